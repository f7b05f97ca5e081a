"""What Qwen Code's own install cannot do: that `loomctl` is run without a question, said in the user's settings.

The extension brings hooks, skills and commands. Pure: texts of `~/.qwen/settings.json` in, texts out.
"""

from __future__ import annotations

import os

from loomctl.hosts.setup.plans import Places, Plan, text_file
from loomctl.kit import commented_json
from loomctl.kit.errors import LoomError, quoted

FOLDER = ("", ".qwen")
RULE = "run_shell_command(loomctl)"
_ALLOWED = ("permissions", "allow")


def plan(places: Places) -> Plan:
    """Give the rule in the settings."""
    path = os.path.join(places.folder, "settings.json")
    what = "lets the assistant call loomctl without a question"
    permission = text_file(path, what, f"permissions.allow: {RULE}", with_loom, without_loom)
    return Plan((permission,), then=(f"qwen extensions link {quoted(places.bundle)}",))


def with_loom(settings: str) -> str:
    """Allow `loomctl` in settings, all else left as it stands; the same text where that stands there already.

    settings: empty where there is no file yet. Raises UNREADABLE.
    """
    if has_loom(settings):
        return settings
    try:
        return commented_json.add(settings, _ALLOWED, RULE)
    except ValueError:
        raise _unreadable("its permissions have another form") from None


def without_loom(settings: str) -> str:
    """Take back what `with_loom` adds, and what it had to make for that. Raises UNREADABLE."""
    return commented_json.take(settings, _ALLOWED, RULE) if has_loom(settings) else settings


def has_loom(settings: str) -> bool:
    """Tell whether settings allow `loomctl`. Raises UNREADABLE."""
    try:
        held = commented_json.read(settings) or {}
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(error)) from None
    if not isinstance(held, dict):
        raise _unreadable("it holds no object")
    permissions = held.get("permissions")
    allowed = permissions.get("allow") if isinstance(permissions, dict) else None
    return isinstance(allowed, list) and RULE in allowed


def _unreadable(why: str) -> LoomError:
    what = "Loom cannot change the settings of Qwen Code by itself"
    why = f'{why}; to allow loomctl yourself, add "{RULE}" to permissions.allow in it'
    hint = "cat ~/.qwen/settings.json"
    return LoomError("UNREADABLE", what, where="~/.qwen/settings.json", why=why, hint=hint)
