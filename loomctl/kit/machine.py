"""The machine: its name and what a session record says of it (D25), the user's folders (D23), the room on its disks.

What a session record says holds no environment variables and no tokens.
"""

from __future__ import annotations

import os
import sys

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def hostname() -> str:
    """Give the recorded name of this machine: `$LOOM_HOSTNAME`, else the system's."""
    return os.environ.get("LOOM_HOSTNAME") or (os.uname().nodename if hasattr(os, "uname") else "") or "unknown"


def platform() -> str:
    """Give `linux`, `darwin` or `win32`."""
    return "win32" if sys.platform in ("cygwin", "msys") else sys.platform


def environment(project_root: str, cwd: str, *, on_hook_path: bool) -> dict[str, Any]:
    """Describe where a session works: machine, folder, git, Python; cores and memory where time allows (D25).

    memory: bytes. dirty: None where git did not answer in time or there is no repository.
    """
    from loomctl.kit import git
    from loomctl.kit.package import __version__

    top = git.top_of(project_root)
    head = git.head(top) if top is not None else git.Head(None, None)
    described: dict[str, Any] = {
        "hostname": hostname(),
        "platform": platform(),
        "cwd": cwd,
        "project_root": project_root,
        "git_branch": head.branch,
        "git_commit": head.commit,
        "dirty": git.is_dirty(project_root) if top is not None else None,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "loom": __version__,
    }
    if not on_hook_path:
        import psutil

        described["cores"] = psutil.cpu_count()
        described["memory"] = psutil.virtual_memory().total
    return described


_SUPPORT = "Library/Application Support"
PLUGIN_DATA = "LOOM_PLUGIN_DATA"  # in which the launcher says what folder the host gives a plugin for its data


def home() -> str:
    """Give the user's home, or an empty string where there is none that can be named."""
    if os.environ.get("HOME") == "":  # it would be taken for the root folder
        return ""
    found = os.path.expanduser("~")
    return found if os.path.isabs(found) else ""


def state_home() -> str:
    """Give the folder of what this machine has started, resumed and trusted; empty where there is none of the user's.

    `$LOOM_STATE_HOME`, else `platformdirs.user_state_dir("loom")`. A relative name is ignored: it would be another
    folder from each directory, and inside a project what the project brought along would count as the user's word. So
    would what others put into a folder of theirs.
    """
    named = _named_state_home()
    return named if _is_ours(named) else ""


def _named_state_home() -> str:
    named = os.environ.get("LOOM_STATE_HOME", "")
    return named if os.path.isabs(named) else _platform("XDG_STATE_HOME", home(), ".local/state", _SUPPORT)


def status_script() -> str:
    """Give the place of the script that a user's settings may name as their status line; empty without a home."""
    folder = state_home()
    return os.path.join(folder, "statusline") if folder else ""


def config_home() -> str:
    """Give the folder of the user's own settings, `platformdirs.user_config_dir`; empty where none is the user's."""
    named = _named_config_home()
    return named if _is_ours(named) else ""


def _named_config_home() -> str:
    return _platform("XDG_CONFIG_HOME", home(), ".config", _SUPPORT)


def cache_home() -> str:
    """Give the folder of environments, of the Python that was found and of compiled modules; empty if there is none.

    `platformdirs.user_cache_dir`, but without HOME there is none: the launcher's own rule.
    """
    return _platform("XDG_CACHE_HOME", os.environ.get("HOME", ""), ".cache", "Library/Caches")


def unsafe_folders() -> list[str]:
    """Name the folders that the launcher would run Python from and does not, for others could have put it there.

    A plugin's data folder and the cache, where they are there: the launcher's own rule.
    """
    data = os.environ.get(PLUGIN_DATA, "").rstrip("/")
    found = [base for base in (data, cache_home()) if os.path.isabs(base)]
    return [base for base in found if os.path.islink(base) or os.path.isfile(base) or not _is_ours(base)]


def foreign_folders() -> list[str]:
    """Name the folders of the user's state and settings that are not read, for others could have filled them."""
    return [folder for folder in (_named_state_home(), _named_config_home()) if folder and not _is_ours(folder)]


def _is_ours(folder: str) -> bool:
    """Tell whether a folder is the user's own, and no other may write there; one that is not there yet, too.

    Root is believed, and so is whose home this is, for root works in a home of somebody else's, too (sudo -E, a
    container). A group that may write, as an umask of 002 lets it, is shut out.
    """
    try:
        status = os.stat(folder)
        owners = {status.st_uid, os.lstat(folder).st_uid}
        if status.st_mode & 0o170000 != 0o040000:
            return True  # nothing stands in it
        if not owners <= _believed() or status.st_mode & 0o002:
            return False
        if status.st_mode & 0o020:
            os.chmod(folder, 0o700)
    except OSError:
        return not os.path.lexists(folder)
    return True


def _believed() -> set[int]:
    try:
        return {0, os.geteuid(), os.stat(home()).st_uid}
    except OSError:
        return {0, os.geteuid()}


def _platform(variable: str, base: str, unix: str, mac: str) -> str:
    """Give platformdirs' folder of Loom in a few lines: its import alone would cost a hook more than its work."""
    named = os.environ.get(variable, "")
    if os.path.isabs(named):  # the XDG rules: a relative value is invalid and ignored
        return os.path.join(named, "loom")
    return os.path.join(base, mac if sys.platform == "darwin" else unix, "loom") if os.path.isabs(base) else ""


class Room(NamedTuple):
    """free: bytes that this user may still write; files: how many files, None where the file system does not say."""

    free: int
    files: int | None


def size_below(folder: str) -> int:
    """Give the bytes of all files below a folder, links not followed; what cannot be read counts nothing."""
    total, waiting = 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total


def nearest(path: str) -> str:
    """Give the path, or else the nearest folder above it that is there: where it would be made."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def room(path: str) -> Room:
    """Give what is free on the file system of a path, or of where it would be made. Raises OSError."""
    told = os.statvfs(nearest(path))
    return Room(told.f_bavail * told.f_frsize, told.f_favail if told.f_files else None)


def size_in_words(size: float) -> str:
    """Say a number of bytes: `512 bytes`, `1.5 MB`."""
    if size < 1000:
        return f"{size:g} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"
