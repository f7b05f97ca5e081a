"""The one line that tells a run in a status line: its parts, and which of them goes first where there is less room."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text import columns
from loomctl.kit.text.secrets import masked_line

WIDEST = 80  # columns
BETWEEN = " · "
_LABEL, _STEP = 24, 40
_NARROW = (20, 12, 6)  # to these the last form of the line is cut


class Told(NamedTuple):
    """What a line tells.

    label: of the run; step: `phase/id@visit`, empty where none is open; status: of the run; done, total: steps;
    artifacts: how many this session was given; saved: percent of tokens, None where that is not known; word: what
    comes next (`approve`, `resume`, …), empty where nobody need do anything; alarm: what is the matter with hooks.
    """

    label: str
    step: str
    status: str
    done: int
    total: int
    artifacts: int = 0
    saved: float | None = None
    word: str = ""
    alarm: str = ""


def forms(told: Told) -> list[str]:
    """Give the line in each of its forms, the richest first; none is wider than WIDEST.

    What goes first where there is less room: what was saved, the artifacts, the progress, what comes next, the run's
    label; the step and the alarm stay, and are cut in the end. A form that is too wide is left out, so that every
    terminal gets the richest that fits.
    """
    label, step = _part(told.label, _LABEL), _part(told.step, _STEP)
    where = step if told.status == "in_progress" and step else told.status.replace("_", " ")
    where += f" at {step}" if step and where != step and told.status not in ("completed", "cancelled") else ""
    alarm = f"! {_part(told.alarm, _STEP)}" if told.alarm else ""
    known = {
        "alarm": alarm,
        "run": f"loom {label}",
        "where": where,
        "progress": f"{told.done}/{told.total}" if told.total else "",
        "artifacts": f"{told.artifacts} artifact{'' if told.artifacts == 1 else 's'}" if told.artifacts else "",
        "saved": f"saved {told.saved:.0f}%" if told.saved is not None and told.saved > 0 else "",
        "next": f"next: {told.word}" if told.word else "",
    }
    made = []
    for goes in ("", "saved", "artifacts", "progress", "next"):
        known.pop(goes, None)
        made.append(BETWEEN.join(filter(None, known.values())))
    least = BETWEEN.join(filter(None, (alarm, where if alarm else f"loom {where}")))
    made.append(least)
    made += [columns.cut(least, limit) for limit in _NARROW]
    return [line for line in dict.fromkeys(made) if columns.width(line) <= WIDEST]


def fitting(found: list[str], room: int) -> str:
    """Give the first form that fits into so many columns; empty where none does."""
    return next((line for line in found if columns.width(line) <= room), "")


def _part(text: str, limit: int) -> str:
    return columns.cut(masked_line(text, 4 * limit), limit)
