"""Which path a file may have that is carried: the same for who pushes it and for who pulls it, on whatever system."""

from __future__ import annotations

import os

from loomctl.changes import asset_files
from loomctl.runs import command_runs
from loomctl.runs.store import events, recovery
from loomctl.runs.tools import output_files, tool_log

DEEPEST, LONGEST_NAME, LONGEST = 20, 255, 1000
"""Parts of a path, bytes of a name, and bytes of a path."""
_STAGES = "stages"
_FOLDERS = frozenset((_STAGES, asset_files.FOLDER, output_files.FOLDER))
_FILES = frozenset(("state.json", "plan.json", events.FILE, tool_log.FILE, recovery.SESSIONS_FILE))
_OF_A_STAGE = frozenset(
    (
        *("prompt.md", "response.md", "candidate.md", "status.json", "changes.json", "changes.patch", "evidence.json"),
        command_runs.LOG,
    )
)


def trouble(path: str, *, is_folder: bool = False) -> str:
    """Say why nothing is carried at a path of the tree; empty where something can be."""
    parts = path.split("/")
    raw = os.fsencode(path)
    if len(parts) > DEEPEST:
        return f"lies deeper than {DEEPEST} folders"
    if len(raw) > LONGEST or any(len(part) > LONGEST_NAME for part in raw.split(b"/")):
        return f"has a name of over {LONGEST_NAME} bytes, or a path of over {LONGEST}"
    if any(part in ("", ".", "..") or "\\" in part for part in parts):
        return "has a name that is none everywhere"
    if any(part.lower() == ".git" for part in parts):
        return "has a name of which git carries nothing"
    folders = range(1, len(parts) + is_folder)
    if any(_is_a_file(parts[:count]) for count in folders):
        return "is, or lies in, a folder where Loom has a file"
    if not is_folder and _is_a_folder(parts):
        return "stands where Loom has a folder"
    return ""


def _is_a_file(parts: list[str]) -> bool:
    """Tell what can only be a file, for Loom reads it as one."""
    if parts[:2] == ["run", _STAGES]:
        return len(parts) == 4 and parts[3] in _OF_A_STAGE
    return parts[0] == "run" and len(parts) == 2 and parts[1] in _FILES


def _is_a_folder(parts: list[str]) -> bool:
    """Tell what can only be a folder, for Loom looks into it."""
    if parts[0] == "run" and len(parts) == 2:
        return parts[1] in _FOLDERS
    return parts[:2] == ["run", _STAGES] and len(parts) == 3
