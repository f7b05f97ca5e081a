"""What git's history says of one file: whether it stands as a commit from before a moment has it."""

from __future__ import annotations

import os

from loomctl.kit import git

_PATIENCE = 2.0  # seconds for each of two questions


def stands_since_before(path: str, moment: int) -> bool:
    """Tell whether a file is as the current commit has it, and no commit changed it since a moment.

    moment: seconds since the epoch, held against the committer's time. False where git cannot tell in time, for a file
    that it does not track, and outside of a repository. Raises nothing.
    """
    folder, name = os.path.split(path)
    if not moment or git.top_of(folder) is None:
        return False
    asked = ["--literal-pathspecs", "log", "-1", "--format=%ct", "--", name]
    when = (git.output(asked, folder, patience=_PATIENCE) or b"").strip()
    if not when.isdigit() or int(when) >= moment:
        return False
    # It fails where the file differs.
    return git.output(["--literal-pathspecs", "diff", "--quiet", "HEAD", "--", name], folder, patience=_PATIENCE) == b""
