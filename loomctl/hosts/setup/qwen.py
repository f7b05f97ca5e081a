"""What Qwen Code's own install cannot do: that `loomctl` is run without a question, said in the user's settings.

The extension brings hooks, skills and commands. Pure: texts of `~/.qwen/settings.json` in, texts out.
"""

from __future__ import annotations

import json
import os
from typing import Any

from loomctl.hosts.setup.plans import Places, Plan, text_file
from loomctl.kit.errors import LoomError, quoted

FOLDER = ("", ".qwen")
RULE = "run_shell_command(loomctl)"


def plan(places: Places) -> Plan:
    """Give the rule in the settings."""
    path = os.path.join(places.folder, "settings.json")
    what = "lets the assistant call loomctl without a question"
    permission = text_file(path, what, f"permissions.allow: {RULE}", with_loom, without_loom)
    return Plan((permission,), then=(f"qwen extensions install {quoted(places.bundle + ':loom')}",))


def with_loom(settings: str) -> str:
    """Allow `loomctl` in settings, all else left as it stands; the same text where that stands there already.

    settings: empty where there is no file yet. Raises UNREADABLE for what is not plain JSON, such as comments.
    """
    held = _object(settings)
    if RULE in _rules(held):
        return settings
    permissions = held.setdefault("permissions", {})
    if not isinstance(permissions, dict) or not isinstance(permissions.setdefault("allow", []), list):
        raise _unreadable("its permissions have another form")
    permissions["allow"].append(RULE)
    return _written(held, settings)


def without_loom(settings: str) -> str:
    """Take back what `with_loom` adds, and what it had to make for that. Raises UNREADABLE."""
    held = _object(settings)
    if RULE not in _rules(held):
        return settings
    permissions = held["permissions"]
    permissions["allow"] = [rule for rule in permissions["allow"] if rule != RULE]
    if not permissions["allow"]:
        del permissions["allow"]
    if not permissions:
        del held["permissions"]
    return _written(held, settings)


def has_loom(settings: str) -> bool:
    """Tell whether settings allow `loomctl`. Raises UNREADABLE."""
    return RULE in _rules(_object(settings))


def _object(settings: str) -> dict[str, Any]:
    try:
        held = json.loads(settings.removeprefix("\ufeff")) if settings.strip("\ufeff \t\r\n") else {}
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(error)) from None
    if not isinstance(held, dict):
        raise _unreadable("it holds no object")
    return held


def _rules(held: dict[str, Any]) -> list[Any]:
    permissions = held.get("permissions")
    allowed = permissions.get("allow") if isinstance(permissions, dict) else None
    return allowed if isinstance(allowed, list) else []


def _written(held: dict[str, Any], before: str) -> str:
    """Write as the file was written: its indentation, its line ends, its end."""
    lines = before.splitlines()
    second = lines[1] if len(lines) > 1 else ""
    indent: str | int | None = second[: len(second) - len(second.lstrip())] or (2 if len(lines) != 1 else None)
    text = json.dumps(held, ensure_ascii=False, indent=indent)
    if not before.strip() or before.endswith("\n"):
        text += "\n"
    return text.replace("\n", "\r\n") if "\r\n" in before else text


def _unreadable(why: str) -> LoomError:
    what = "Loom cannot change the settings of Qwen Code by itself"
    why = f'{why}; to allow loomctl yourself, add "{RULE}" to permissions.allow in it'
    hint = "cat ~/.qwen/settings.json"
    return LoomError("UNREADABLE", what, where="~/.qwen/settings.json", why=why, hint=hint)
