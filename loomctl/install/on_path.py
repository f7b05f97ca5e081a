"""`loomctl` where people type: a link to the bundle's launcher in a folder on PATH, made, judged and removed.

The standard library alone, for the doctor asks here too.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import NamedTuple

from loomctl.kit import files, machine
from loomctl.kit.errors import EXIT_SETUP, EXIT_USAGE, LoomError, quoted

NAME = "loomctl"
LINK, SCRIPT = "link", "script"
_MARK = "# Written by `loomctl install`; `loomctl install --remove` removes it."
_LARGEST = 1 << 14


class Placed(NamedTuple):
    """What stands in a place. kind: LINK, SCRIPT, "" for nothing; target: the launcher that it leads to.

    changed: whether it was made, renewed or removed just now; before: where it led before that.
    """

    path: str
    kind: str = ""
    target: str = ""
    changed: bool = False
    before: str = ""


def default_folder() -> str:
    """Give `~/.local/bin`. Raises NO_HOME."""
    home = machine.home()
    if not home:
        why = "HOME is empty or not an absolute path"
        raise LoomError(
            "NO_HOME", "there is no home folder", why=why, hint="loomctl install --to DIR", exit_code=EXIT_SETUP
        )
    return os.path.join(home, ".local", "bin")


def place(folder: str, launcher: str) -> Placed:
    """Let `loomctl` in a folder lead to a launcher: by a link, or by a script where no link can be made.

    Raises FILE_EXISTS for what is not Loom's, and OSError.
    """
    path = os.path.join(folder, NAME)
    before = _own(path)
    if before.target == launcher:
        return before
    files.make_folder(folder, mode=0o755)
    beside = f"{path}.{os.getpid()}.new"
    try:
        kind = LINK
        try:
            os.symlink(launcher, beside)
        except OSError:
            kind = SCRIPT
            text = f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(launcher)} "$@"\n'
            files.write_atomically(beside, os.fsencode(text), mode=0o755, durable=False)
        os.replace(beside, path)
    except OSError as error:
        raise files.naming(error, path) from None
    finally:
        files.remove(beside)
    return Placed(path, kind, launcher, True, before.target)


def remove(folder: str) -> Placed:
    """Remove `loomctl` from a folder. Raises FILE_EXISTS for what is not Loom's, and OSError."""
    path = os.path.join(folder, NAME)
    before = _own(path)
    if before.kind:
        files.remove(path)
    return Placed(path, "", "", bool(before.kind), before.target)


def _own(path: str) -> Placed:
    """Look at what stands in the place, which is a link to a Loom, a script that does the same, or nothing."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return Placed(path)
    target = ""
    if stat.S_ISLNK(mode):
        leads = os.path.join(os.path.dirname(path), os.readlink(path))
        target = leads if _is_launcher(leads) else ""
        kind = LINK
    else:
        target, kind = _target_of_script(path), SCRIPT
    if target:
        return Placed(path, kind, target)
    what = f"refusing to overwrite {NAME}, which Loom did not write"
    why = "it is neither a link to bin/loomctl nor a script that loomctl install wrote"
    hint = f"ls -l {quoted(path)}"
    raise LoomError("FILE_EXISTS", what, where=path, why=why, hint=hint, exit_code=EXIT_USAGE)


def _is_launcher(path: str) -> bool:
    """Tell a bundle's `bin/loomctl`, also one that is gone; what pipx makes stands beside no bundle."""
    folder, name = os.path.split(path)
    is_there = not os.path.lexists(path) or os.path.isfile(os.path.join(os.path.dirname(folder), "plugin.json"))
    return name == NAME and os.path.basename(folder) == "bin" and is_there


def _target_of_script(path: str) -> str:
    try:
        lines = os.fsdecode(files.read_bytes(path, limit=_LARGEST)).splitlines()
        words = shlex.split(lines[2]) if len(lines) > 2 and lines[1] == _MARK else []
    except (OSError, LoomError, ValueError):
        return ""
    return words[1] if len(words) == 3 and words[0] == "exec" else ""


# ---- PATH.


def first() -> str | None:
    """Give the first `loomctl` on PATH; relative entries do not count."""
    import shutil  # commands beside `install` and `doctor` need none of it

    return shutil.which(NAME, path=os.pathsep.join(_folders()))


def is_on_path(folder: str) -> bool:
    """Tell whether a folder stands on PATH, by any name."""
    return os.path.realpath(folder) in map(os.path.realpath, _folders())


def _folders() -> list[str]:
    return [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]


def leads_to(program: str, launcher: str) -> bool:
    """Tell whether a program is a launcher, by links or by a script of Loom's."""
    return os.path.realpath(_target_of_script(program) or program) == os.path.realpath(launcher)


def line_for_login(folder: str) -> str:
    """Give the line that puts a folder on PATH in login shells, too."""
    home, shell = machine.home(), os.path.basename(os.environ.get("SHELL", ""))
    shown = "$HOME" + folder[len(home) :] if home and folder.startswith(home + os.sep) else folder
    start = {"zsh": "~/.zprofile"}.get(shell, "~/.profile")
    return f"echo {shlex.quote(f'export PATH={chr(34)}{shown}:$PATH{chr(34)}')} >> {start}"


def line_for_shell(folder: str) -> str:
    """Give the line that puts a folder on PATH for good, for the user's shell."""
    home, shell = machine.home(), os.path.basename(os.environ.get("SHELL", ""))
    if shell == "fish":
        return f"fish_add_path {quoted(folder)}"
    is_below = bool(home) and folder.startswith(home + os.sep)
    shown = "$HOME" + folder[len(home) :] if is_below else folder
    start = {"zsh": "~/.zshrc", "bash": "~/.bashrc"}.get(shell, "~/.profile")
    return f"echo {shlex.quote(f'export PATH={chr(34)}{shown}:$PATH{chr(34)}')} >> {start}"
