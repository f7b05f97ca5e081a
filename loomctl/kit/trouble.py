"""Trouble in words, with the line that mends it (D52): what the system refused, and what an examination finds.

Which command makes a bundle whole or newer depends on how it came here.
"""

from __future__ import annotations

import errno
import os

from loomctl.kit.errors import UPDATE, LoomError, quoted
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)


def of(error: OSError) -> LoomError:
    """Give the error that people are shown for one of the system's. Code SYSTEM, exit 5."""
    what = f"the system said: {error.strerror or str(error) or type(error).__name__}"
    return LoomError("SYSTEM", what, where=_path(error), why=_why(error.errno), hint=way_out(error))


def _why(number: int | None) -> str:
    if number in _FORBIDDEN:
        return "you do not have the permission to do that there"
    if number == errno.EROFS:
        return "the file system there is read-only"
    if number == errno.ENAMETOOLONG:
        return "a file name is limited to 255 bytes, a path to about four thousand"
    if number == errno.EFBIG:
        return "a limit on the size of files is reached: raise it, then try again"
    return "the disk or a quota is full: make room, then try again" if number in _FULL else ""


def said(error: OSError | LoomError) -> str:
    """Say in one line what went wrong, and with which file."""
    told = of(error) if isinstance(error, OSError) else error
    return f"{told.what}: {told.where}" if told.where else told.what


def way_out(error: OSError) -> str:
    """Give a line that mends it, or shows what is in the way; empty where there is none."""
    path = _path(error)
    if not path:
        return ""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if error.errno in _FULL:
        return f"df -h {quoted(_there(folder))}"
    if error.errno == errno.EFBIG:
        return "ulimit -f unlimited"
    if error.errno == errno.EROFS:
        return f"df {quoted(_there(folder))}"
    if error.errno in _FORBIDDEN:
        if os.path.lexists(path):
            return f"chmod u+rw{'x' if os.path.isdir(path) else ''} {quoted(path)}"
        return f"chmod u+rwx {quoted(_there(folder))}"
    if (error.errno in _IN_THE_WAY and os.path.lexists(path)) or (error.errno == errno.EINVAL and os.path.isdir(path)):
        return f"mv {quoted(path)} {quoted(path + '.aside')}"
    return ""


def look(path: str) -> str:
    """Give a line that shows a file, or the nearest folder upward where it is not there."""
    return f"ls -l {quoted(path if os.path.lexists(path) else _there(os.path.dirname(path) or os.curdir))}"


def _path(error: OSError) -> str:
    name = error.filename
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else ""


def _there(folder: str) -> str:
    """Give the nearest folder upward that there is."""
    while folder and not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return folder or "."


PASS, WARN, FAIL = "PASS", "WARN", "FAIL"
_WORSE = (PASS, WARN, FAIL)


class Finding(NamedTuple):
    """status: PASS, WARN or FAIL; hint: a command that can be pasted; details: further lines.

    facts: what a script may want besides, by name.
    """

    status: str
    found: str
    hint: str = ""
    details: Sequence[str] = ()
    facts: Mapping[str, Any] = {}


def gathered(
    troubles: Sequence[Finding], fine: str, *, details: Sequence[str] = (), facts: Mapping[str, Any] | None = None
) -> Finding:
    """Make one finding of several troubles: the worst comes first, the others are its details. None: `fine`."""
    facts = facts or {}
    if not troubles:
        return Finding(PASS, fine, "", tuple(details), facts)
    worst, *others = sorted(troubles, key=lambda one: -_WORSE.index(one.status))
    more = [f"{one.found}: {one.hint}" if one.hint else one.found for one in others]
    return Finding(worst.status, worst.found, worst.hint, (*worst.details, *more, *details), {**worst.facts, **facts})


UPDATE_HELPER = "pipx upgrade loomctl"


def update(bundle: str) -> str:
    """Give the line that fetches what is newer: of a checkout, which a host loads in place, git's own."""
    if _is_wheel(bundle):
        return UPDATE_HELPER
    return update_plugin(bundle)


def update_plugin(bundle: str) -> str:
    """Give the line for the plugin, whose bundle may be this one."""
    return _by_git(bundle, "pull") or plugin_command("update", bundle)


def repair(bundle: str, part: str) -> str:
    """Give the line that brings back a part of a bundle, such as `hooks`."""
    return _by_git(bundle, f"checkout -- {part}") or plugin_command("install", bundle)


def _by_git(bundle: str, words: str) -> str:
    """Give git's own line for a checkout; a copy that an assistant made of one is the assistant's."""
    is_own = os.path.exists(os.path.join(bundle, ".git")) and not _copied_by(_commands(), bundle)
    return f"git -C {quoted(bundle)} {words}" if is_own else ""


def plugin_command(what: str, bundle: str = "") -> str:
    """Give an assistant's own line that does something to the plugin: `update` or `install`.

    bundle: where the plugin is, by which the assistant is known; the first one's where that tells nothing.
    """
    commands = _commands()
    line = (_copied_by(commands, bundle) or commands.get("") or {}).get(what)
    return line if isinstance(line, str) else UPDATE


def _commands() -> dict[str, dict[str, str]]:
    """Give commands by what the paths of an assistant's own copies have in them."""
    from loomctl.kit import files, package  # most errors need none

    try:
        read = files.read_json(os.path.join(package.FOLDER, "hosts", "plugin_commands.json"), limit=1 << 14)
    except (OSError, LoomError):
        return {}
    return read if isinstance(read, dict) else {}


def _copied_by(commands: Mapping[str, dict[str, str]], bundle: str) -> dict[str, str] | None:
    path = f"{bundle}/".replace(os.sep, "/")
    return next((own for part, own in commands.items() if part and part in path), None)


def new_environment(bundle: str, folder: str) -> str:
    """Give the line that makes Loom's own environment, in a folder, anew."""
    return "pipx reinstall loomctl" if _is_wheel(bundle) else f"rm -r {quoted(folder)} && loomctl --version"


def fitting(error: LoomError, bundle: str) -> LoomError:
    """Give an error whose hint is for this bundle, where it names what only the disk can tell."""
    if error.hint == UPDATE:
        error.hint = update(bundle)
    return error


def _is_wheel(bundle: str) -> bool:
    return os.path.basename(bundle) == "_bundle"
