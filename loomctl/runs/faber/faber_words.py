"""The words and forms of FABER's state files, of every era (D5)."""

from __future__ import annotations

from loomctl.runs.model.state import STATUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

# A run's own words for how it stands; what is in neither list is kept, and counts as not under way.
_STANDINGS = {
    "running": "in_progress",
    "active": "in_progress",
    "started": "in_progress",
    "resumed": "in_progress",
    "awaiting_approval": "awaiting_feedback",
    "awaiting_input": "awaiting_feedback",
    "waiting": "awaiting_feedback",
    "blocked": "paused",
    "interrupted": "paused",
    "success": "completed",
    "succeeded": "completed",
    "complete": "completed",
    "done": "completed",
    "failure": "failed",
    "error": "failed",
    "canceled": "cancelled",
    "aborted": "cancelled",
    "not_started": "pending",
    "planned": "pending",
}
# How a step ended. FABER's word for each outcome of Loom's comes first.
ENDS = {
    "succeeded": ("success", "succeeded", "completed", "complete", "done", "passed"),
    "failed": ("failure", "failed", "error"),
    "partially_succeeded": ("warning", "partial", "partially_succeeded"),
    "skipped": ("skipped", "skip", "disabled"),
}
_OUTCOMES = {word: end for end, words in ENDS.items() for word in words}
OPEN = ("in_progress", "closing")
DONE = ("succeeded", "partially_succeeded", "skipped")
# Who ended a step without a stage of Loom's.
BY_FABER = "faber"


def belongs(raw: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether a FABER state is the run that its place says (D6).

    Its id is that of the place, or was left out, or ends with the place's name after a slash.
    """
    named = raw.get("run_id")
    return named is None or (isinstance(named, str) and named.rpartition("/")[2] == run_id)


def standing(word: object) -> str:
    """Give a FABER state's status in Loom's words; an unknown one is kept as it is."""
    if not isinstance(word, str) or not word.strip():
        return "pending"
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    return plain if plain in STATUSES else _STANDINGS.get(plain, word)


def text(value: object) -> str | None:
    """Give a text that says something, else None."""
    return value if isinstance(value, str) and value.strip() else None


def within(value: object, key: str) -> object:
    """Give what an object holds under a key; None for anything else."""
    return value.get(key) if isinstance(value, dict) else None


def texts(value: object) -> list[str]:
    """Give the texts in a list; none for anything else."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def phases(value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the phases by name, from an object or a list."""
    return _named(value, "name", "id", "phase")


def steps(value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the steps that stand below a phase by their ids, from an object or a list."""
    return _named(value, "step_id", "id", "name")


def _named(value: object, *keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the objects in an object by their names there, those in a list by the first of these keys."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if isinstance(entry, dict):
                yield name, entry
    elif isinstance(value, list):
        for entry in value:
            known = name_of(entry, *keys)
            if known is not None:
                yield known, entry


def name_of(entry: object, *keys: str) -> str | None:
    """Give the first of an entry's keys that names it."""
    return next((name for key in keys if (name := text(within(entry, key)))), None)


def outcome(word: object) -> str | None:
    """Give the outcome that a step's status means; None for one that has not ended."""
    return _OUTCOMES.get(word.strip().lower()) if isinstance(word, str) else None


def is_good(visit: Mapping[str, Any] | None) -> bool:
    """Tell whether a visit is the last word on its step: it ended well, or was passed."""
    if visit is None or visit.get("reopened") or visit.get("stopped"):
        return False
    return visit["status"] in DONE or bool(visit.get("passed"))


def is_plan(raw: object) -> bool:
    """Tell a plan of FABER's: its workflow stands in it, and it has no schema version of Loom's."""
    return isinstance(raw, dict) and "schema_version" not in raw and isinstance(raw.get("workflow"), dict)
