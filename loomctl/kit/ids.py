"""The names of plans, runs, steps and stages, and the check that every name passes before it meets a file system."""

from __future__ import annotations

from loomctl.kit import digests
from loomctl.kit.errors import EXIT_USAGE, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Digits and letters that nobody takes for one another, 32 of them.
_MARKS = "0123456789abcdefghjkmnpqrstvwxyz"
MARK = 4
"""The letters at a handle's end, by which it is told from every other of its store."""
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
LONGEST_ID = 200
LONGEST_PLAN_ID = LONGEST_ID - len("-run-2026-01-15T09-30-00Z-9999")
"""A plan's runs are named after it, and a name that is taken gets a number."""


def slug(text: str, *, limit: int = 48, empty: str = "work") -> str:
    """Turn any text into lower-case ASCII words joined by single hyphens, `limit` characters at most."""
    if not text.isascii():
        import unicodedata  # rare, and no hook makes names

        text = unicodedata.normalize("NFKD", text).replace("ß", "ss")
        text = "".join(character for character in text if not unicodedata.combining(character))
    words: list[str] = []
    word = ""
    for character in text.lower():
        if character in _LETTERS:
            word += character
        elif word:
            words.append(word)
            word = ""
    if word:
        words.append(word)
    kept = words[0][:limit] if words else empty
    for following in words[1:]:
        if len(kept) + 1 + len(following) > limit:
            break
        kept += "-" + following
    return kept


def checked_id(text: str, *, what: str = "run id") -> str:
    """Give `text` back if it is fit for a file name, else raise BAD_ID (D10).

    Letters, digits, `.`, `_` and `-`; not beginning with `.` or `-`; no `..`; 200 characters at most.
    """
    if not is_fit(text):
        raise LoomError(
            "BAD_ID",
            f"{text[:80]!r} is not a valid {what}",
            why="use 1 to 200 letters, digits, '.', '_' and '-'; do not begin with '.' or '-', and leave out '..'",
            hint="loomctl runs" if what == "run id" else "loomctl show",
            exit_code=EXIT_USAGE,
        )
    return text


def is_fit(text: str) -> bool:
    """Tell whether `checked_id` takes a text."""
    return 0 < len(text) <= LONGEST_ID and text[0] not in ".-" and ".." not in text and _ID_CHARACTERS.issuperset(text)


def is_artifact_name(text: str) -> bool:
    """Tell whether a text can name what a step registers: a letter, then up to 63 letters, digits, `_` and `-`."""
    return len(text) <= 64 and text[:1].isalpha() and _ID_CHARACTERS.issuperset(text) and "." not in text


def make_plan_id(project: str, work: str) -> str:
    """Name a plan: `{project}-{work slug}`."""
    return f"{slug(project, limit=40, empty='project')}-{slug(work)}"


def make_run_id(plan_id: str, stamp: str, taken: Callable[[str], bool]) -> str:
    """Name a run: `{plan_id}-run-{stamp}`, with `-2`, `-3`, … while `taken`.

    stamp: `YYYY-MM-DDTHH-MM-SSZ`.
    """
    first = name = f"{plan_id}-run-{stamp}"
    number = 2
    while taken(name):
        name = f"{first}-{number}"
        number += 1
    return name


def mark(run_id: str, letters: int = MARK) -> str:
    """Give what ends a run's handle: letters of its id's digest, the same on every machine (D69)."""
    value = int(digests.of_text(run_id), 16)
    return "".join(_MARKS[value >> 5 * at & 31] for at in range(min(letters, 51)))


def handle(run_id: str, work: str, letters: int = MARK) -> str:
    """Name a run for people: `add-dark-mode-k3f9` (D69). work: a tracker's id or a goal, masked."""
    return f"{slug(work, limit=24, empty='run')}-{mark(run_id, letters)}"


def split_run_id(run_id: str) -> tuple[str, str]:
    """Give `(plan_id, run_suffix)`, split on the last `-run-`; a name without it is all plan id."""
    plan_id, mark, suffix = run_id.rpartition("-run-")
    return (plan_id, suffix) if mark else (run_id, "")


def step_slug(step_key: str) -> str:
    """Give a step's key (`phase/id`, D7) as one path component: `phase.id`."""
    return step_key.replace("/", ".")


def stage_name(rank: int, step_key: str, visit: int) -> str:
    """Name a stage's folder: `{rank:03}-{phase}.{id}@{visit}`."""
    return f"{rank:03}-{step_slug(step_key)}@{visit}"


def is_work_id(work: str) -> bool:
    """Tell a tracker's id (`258`, `#258`, `ABC-12`) from a goal in words."""
    bare = work.removeprefix("#")
    if bare.isascii() and bare.isdigit():
        return True
    project, dash, number = bare.rpartition("-")
    named = project.isascii() and project.isalnum() and project[:1].isalpha() and project.upper() == project
    return bool(dash) and named and number.isascii() and number.isdigit()
