"""Who sits at this machine, as far as a decision is to bear a name."""

from __future__ import annotations

import os

from loomctl.kit import git

TYPE_CHECKING = False

_PATIENCE = 2.0  # seconds that git may take


def user_name(folder: str) -> str:
    """Give the name of the person: as git calls the author of what is done in `folder`, else the login name.

    The login name is the account's own, not what an environment variable says of it.
    """
    asked = ("config", "user.name")
    said = git.output(asked, folder, patience=_PATIENCE) or git.said(*asked, patience=_PATIENCE)
    name = said.decode("utf-8", "replace").strip() if said else ""
    return name or _login()


def _login() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container whose user has no name
        return f"user {os.getuid()}"
