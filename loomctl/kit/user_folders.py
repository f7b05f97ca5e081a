"""Where Loom keeps what is the user's and this machine's, never the project's (D23)."""

from __future__ import annotations

import os
import sys


def home() -> str:
    """Give the user's home, or an empty string where there is none that can be named."""
    if os.environ.get("HOME") == "":  # it would be taken for the root folder
        return ""
    found = os.path.expanduser("~")
    return found if os.path.isabs(found) else ""


def state_home() -> str:
    """Give the folder of what this machine has started, resumed and trusted; empty where there is none of the user's.

    `$LOOM_STATE_HOME`, else `$XDG_STATE_HOME/loom` or `~/.local/state/loom`; on macOS
    `~/Library/Application Support/loom`. A relative name is ignored: it would be another folder from each directory,
    and inside a project what the project brought along would count as the user's word. So would what others put into
    a folder of theirs.
    """
    named = _named_state_home()
    return named if _is_ours(named) else ""


def _named_state_home() -> str:
    named = os.environ.get("LOOM_STATE_HOME", "")
    if os.path.isabs(named):
        return named
    if sys.platform == "darwin":
        return os.path.join(home(), "Library", "Application Support", "loom") if home() else ""
    return _xdg("XDG_STATE_HOME", ".local/state")


def status_script() -> str:
    """Give the place of the script that a user's settings may name as their status line; empty without a home."""
    return os.path.join(state_home(), "statusline") if state_home() else ""


def config_home() -> str:
    """Give the folder of the user's own settings; empty where there is none of the user's.

    `$XDG_CONFIG_HOME/loom`, else `~/.config/loom`, on macOS `~/Library/Application Support/loom`.
    """
    named = _named_config_home()
    return named if _is_ours(named) else ""


def _named_config_home() -> str:
    if sys.platform == "darwin" and not os.path.isabs(os.environ.get("XDG_CONFIG_HOME", "")):
        return os.path.join(home(), "Library", "Application Support", "loom") if home() else ""
    return _xdg("XDG_CONFIG_HOME", ".config")


def cache_home() -> str:
    """Give the folder where the launcher keeps environments, the Python it found and compiled modules; empty if none.

    `$XDG_CACHE_HOME/loom`, else `~/.cache/loom`, on macOS `~/Library/Caches/loom`: the launcher's own rule.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return os.path.join(base, "loom")
    base = os.environ.get("HOME", "")
    below = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
    return os.path.join(base, *below, "loom") if os.path.isabs(base) else ""


def unsafe_folders() -> list[str]:
    """Name the folders that the launcher would run Python from and does not, for others could have put it there.

    A plugin's data folder and the cache, where they are there: the launcher's own rule.
    """
    data = os.environ.get("CLAUDE_PLUGIN_DATA", "").rstrip("/")
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


def _xdg(variable: str, default: str) -> str:
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):  # the XDG rules: a relative value is invalid and ignored
        base = os.path.join(home(), default) if home() else ""
    return os.path.join(base, "loom") if base else ""
