"""The text that stands for a tool's result: a line that says what came of it, then the signal (D49).

The signal is made in stages, of which each adds what those before it did not say.
"""

from __future__ import annotations

import json
import re

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import mask, masked, masked_line
from loomctl.reduction import signal
from loomctl.reduction.first_lines import LONGEST_WORDS, Call, first_line
from loomctl.reduction.gist import facts, gist
from loomctl.reduction.hits import changes, hit_lines, hits_of
from loomctl.reduction.kinds import BINARY, JSON, JSONL, TEXT
from loomctl.reduction.lists import files, ranges, within
from loomctl.reduction.marks import without_folders
from loomctl.reduction.tokens import estimate
from loomctl.reduction.tool_outputs import (
    MOST_VALUES,
    WHOLE,
    bounded,
    cleaned,
    hides_exit_code,
    is_a_search,
    looked_at,
    masked_head,
    searched_for,
    spoken,
    without_exit_code,
)
from loomctl.reduction.tool_steps import EDIT, LIST, MATCHES, OTHER, READ, REPORTS, SEARCH, SHELL, VISIT, WRITE
from loomctl.reduction.trouble import Rooms, trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# All in estimated tokens. An output as small as this stands for itself.
SMALL, SMALL_LIST, SMALL_FAILED = 100, 50, 120
CONFIRMED = 40  # of an edit's answer
NEVER_LONGER = 400  # what stands for an output of up to so many tokens is never longer than it


class Share(NamedTuple):
    """How much may be told of something: a share of the original, but so much at least and at most."""

    of: float
    least: float
    most: float


TROUBLE = Share(0.3, 420, 1000)  # messages and what explains them; of messages alone as many as there are, up to `most`
TROUBLE_IF_WELL = Share(0.3, 320, 800)
FILES = Share(0.04, 16, 120)
LISTS, FOLDERS = Share(0.8, 0, 300), Share(0.3, 0, 300)  # of a list of files: whole ones, and the others' folders
NAMES = Share(0.1, 16, 300)
ADDRESSES = Share(0.4, 40, 300)
FACTS = Share(0.25, 80, 300)  # of JSON
HITS, CHANGES = Share(0.3, 120, 300), Share(0.15, 120, 300)  # of what a search found, of a difference
PRINTED = Share(0.15, 100, 160)  # of what a command printed that went well
REPORT, PROSE, PAGES = Share(0.5, 400, 700), Share(0.3, 100, 300), Share(0.2, 60, 160)
TOUCHED = Share(0.1, 0, 40)  # names in what an edit takes out and puts in
CELLS = Share(0.1, 40, 120)  # of a notebook: their ids, and as much of what went wrong in them
HINTS = 50
_GIVEN = 40  # objects among a call's arguments that a result's are held against
SUMMARY = 50
LAST_LINES = 3  # of what failed; twice as many where nothing told of trouble
NAMES_ALIKE = 8  # names that differ in numbers alone
_EDITED = ("new_string", "old_string", "content", "new_source", "patch")  # arguments that hold text
_EDITS = 40  # that are looked at
_NO_WORDS = ("image", "pdf", "parts", "file_unchanged")  # forms of what was read that hold no text
_KEYS = re.compile(r"^[\w.$-]{1,80}: ", re.MULTILINE)  # before a value's words
_JSON_KEYS = re.compile(r"\"[\w$.-]{1,80}\"\s?:")


def observation(call: Call) -> str:
    """Tell a call in a line, and below it what the work may need of its output; secrets are masked."""
    lines = [first_line(call)]
    is_quiet = call.output.success and (call.rule.template or call.rule.action in (WRITE, EDIT))
    if not is_quiet and call.kind != BINARY and call.output.facts.get("form") not in _NO_WORDS:
        lines += _signal(_seen(call))
    if call.output.success and call.rule.action in (WRITE, EDIT) and not call.rule.template:
        lines += _confirmation(call) + _touched(call)
    return mask("\n".join(lines))[0]


def _confirmation(call: Call) -> list[str]:
    """Give an edit's answer, if it is a short text: an id or a branch in it stands nowhere else."""
    is_text = call.output.at is not None or isinstance(call.output.result, str)
    text = call.output.text.strip() if is_text and call.size <= CONFIRMED else ""
    return [line.strip() for line in text.split("\n") if line.strip()]


def _touched(call: Call) -> list[str]:
    """Give the names in what an edit takes out and puts in: what is worked on is likely to be named again."""
    edits = call.args.get("edits")
    parts = [call.args, *(edits if isinstance(edits, list) else ())]
    texts = [part.get(key) for part in parts[:_EDITS] if isinstance(part, dict) for key in _EDITED]
    text = looked_at(cleaned("\n".join(text for text in texts if isinstance(text, str)), signal.plain))
    return _line("names", within(ranges(signal.names(text)), min(TOUCHED.most, TOUCHED.of * estimate(text))))


def shortened(value: str) -> str:
    """Give an argument short enough to be kept, its secrets masked before it is cut."""
    value = masked_head(value, LONGEST_WORDS)
    return value if len(value) <= LONGEST_WORDS else value[: LONGEST_WORDS - 1] + "…"


def measured(text: str, errors: str) -> int:
    """Estimate the tokens of an output, of which one part may be in the other."""
    return estimate(text) + (estimate(errors) if errors not in text else 0)


class _Seen(NamedTuple):
    """What is looked at of a call, its secrets masked.

    Masked first: a name, a path or a part does not show any more what it was assigned to. text: what it printed, or the
    words of the value that it gave; whole: it stands for itself, and nothing more is told of it; files: that a list of
    files has.
    """

    call: Call
    text: str
    errors: str
    is_text: bool
    whole: list[str]
    files: list[str]
    is_difference: bool

    @property
    def action(self) -> str:
        return self.call.rule.action

    def room(self, share: Share) -> float:
        return min(share.most, max(share.least, share.of * self.call.size))


def _seen(call: Call) -> _Seen:
    output, action = call.output, call.rule.action
    is_text = output.at is not None or isinstance(output.result, str)
    given = without_exit_code(output.text) if is_text else spoken(call.rule, masked(bounded(output.result)))
    text, errors = (looked_at(cleaned(one, signal.plain)) for one in (given, output.errors))
    whole: list[str] = []
    is_difference = action == SHELL and signal.is_difference(text)
    listed: list[str] = []
    if action in (SHELL, MATCHES, OTHER):
        listed = signal.listed_files(text) if output.success else signal.tree(text)
    small = (SMALL if is_text and not listed else SMALL_LIST) if output.success else SMALL_FAILED
    if call.size <= small and action != READ:
        stands = text if is_text or action in (LIST, MATCHES) or not text else _compact(output.result)
        stands = "" if errors and not is_text and not output.success else stands  # `errors` says it
        whole = [line.strip() for line in stands.split("\n") if line.strip() and stands != errors]
        text, listed = "", []
    return _Seen(call, text, errors, is_text, whole, listed, is_difference)


def _signal(seen: _Seen) -> list[str]:
    found = list(seen.whole)
    said = _trouble(seen, found)
    found += said
    if not seen.text.strip():
        return found
    if seen.is_text and seen.call.kind in (JSON, JSONL):  # for names do not begin with the letter of an escape
        seen = seen._replace(text=seen.text.replace("\\n", "\n").replace("\\t", "\t"))
    found += _prose(seen, found, has_trouble=bool(said))
    found += [line for line in _facts(seen) if line not in found]
    found += _notebook(seen)
    if seen.action in (SEARCH, VISIT):
        found += _line("at", within(ranges(signal.addresses(seen.text)), seen.room(ADDRESSES), known="\n".join(found)))
    found += _files(seen, found)
    known = "\n".join([first_line(seen.call), *found, _held(seen) if seen.action in (WRITE, EDIT) else ""])
    found += _line("names", within(ranges(_names(seen), NAMES_ALIKE), seen.room(NAMES), known=known))
    return _never_longer(seen, found)


def _never_longer(seen: _Seen, found: list[str]) -> list[str]:
    if seen.action == READ or seen.call.size > NEVER_LONGER or estimate("\n".join(found)) <= seen.call.size:
        return found
    lines = [line.strip() for text in (seen.errors, seen.text) for line in text.split("\n")]
    return list(dict.fromkeys(line for line in lines if line))


# ---- Trouble.


def _trouble(seen: _Seen, said: list[str]) -> list[str]:
    """Give what went wrong: all that was said on the second stream, and of the first what tells of trouble."""
    output, errors = seen.call.output, seen.errors
    if seen.action != SHELL and output.success:
        return []
    rooms = _rooms(seen)
    failed = seen.action != SHELL and not output.success
    begins = signal.opening(errors.strip() or seen.text, rooms.others / 2) if failed else []
    found = [
        line
        for line in (*begins, *trouble(errors, rooms, failed=not output.success, is_part=len(output.errors) > WHOLE))
        if line not in said
    ]
    if failed and seen.action in (WRITE, EDIT):  # what a failed edit is quoted with is no trouble
        held = _held(seen)
        found = [line for line in found if line.strip() not in held]
    found = list(dict.fromkeys(found))
    if errors.strip() and not found and not output.success:
        found.append(masked_line(errors, LONGEST_WORDS))
    is_content = output.success and (seen.is_difference or is_a_search(seen.call.args))
    text = "" if is_content else seen.text
    unsure = seen.action == SHELL and hides_exit_code(seen.call.args)
    said_more = trouble(text, rooms, failed=not output.success, unsure=unsure, is_part=len(output.text) > WHOLE)
    return [*found, *(line for line in said_more if line not in found)]


def _held(seen: _Seen) -> str:
    """Give what a call itself held: of a failed edit the result quotes it."""
    return "\n".join(value for value in seen.call.args.values() if isinstance(value, str))


def _rooms(seen: _Seen) -> Rooms:
    if seen.call.output.success:
        room = seen.room(TROUBLE_IF_WELL)
        return Rooms(room, room, HINTS)
    return Rooms(TROUBLE.most, seen.room(TROUBLE), 2 * HINTS)


# ---- What was said.


def _prose(seen: _Seen, found: list[str], *, has_trouble: bool) -> list[str]:
    """Give the line that sums up, the last lines of what failed, and of prose what says most."""
    output, known = seen.call.output, "\n".join(found)
    if seen.action in (SHELL, MATCHES) and seen.call.kind == TEXT:
        return _printed(seen, known, has_trouble=has_trouble)
    if seen.action == OTHER and seen.call.kind == TEXT:
        share = REPORT if seen.call.tool_name in REPORTS else PROSE
        return [line for line in gist(seen.text, seen.room(share)) if line not in known]
    if seen.action == VISIT and output.success:
        return gist(seen.text, seen.room(PAGES))
    results = output.result.get("results") if isinstance(output.result, dict) else None
    if seen.action == SEARCH and isinstance(results, list):
        words = [mask(one)[0] for one in results if isinstance(one, str) and not one.startswith("http")]
        return gist("\n".join(words), seen.room(PAGES))
    return []


def _printed(seen: _Seen, known: str, *, has_trouble: bool) -> list[str]:
    """Give of what a command printed its hits, its changes, or its last words and what says most."""
    output = seen.call.output
    if seen.is_difference:
        beside = "\n".join(line for line in seen.text.split("\n") if line[:1] not in ("+", "-", " ", "@"))
        return [*changes(seen.text, seen.room(CHANGES)), *signal.totals(beside)]
    lines = hits_of(seen.text) if output.success and not has_trouble else []
    if lines and (all(line.file for line in lines) or seen.action == MATCHES or is_a_search(seen.call.args)):
        return hit_lines(lines, seen.room(HITS))
    if seen.action == MATCHES:
        return []
    last = _last_words(seen, known, has_trouble=has_trouble)
    if not seen.files and "\n" not in known:  # a line alone mostly tells that something failed, not what
        odd = [line for line in signal.odd(seen.text) if line not in last]
        last = [*within(odd, SUMMARY, known=known), *last]
    if not output.success or seen.files or signal.is_status(seen.text):
        return last
    wanted = searched_for(seen.call.args)
    room = seen.room(HITS if wanted else PRINTED) - estimate(known) - sum(map(estimate, last))
    told = gist(seen.text, room, first=wanted)
    return [*(line for line in told if line not in known and line not in last), *last]


def _last_words(seen: _Seen, known: str, *, has_trouble: bool) -> list[str]:
    if signal.is_status(seen.text):
        ends = [seen.text.split("\n", 1)[0]]
    else:
        ends = [] if seen.files else signal.totals(seen.text)
        ends = ends or signal.ending(seen.text, 1)
    is_entry = any(
        one.startswith("total ") or signal.tree(one) or any(file.rstrip("/") in one for file in seen.files)
        for one in ends
    )
    last = [] if is_entry and seen.files else list(within(reversed(ends), SUMMARY, known=known))[::-1]
    if seen.call.output.success:
        return last
    times = 1 if has_trouble else 2
    ends = signal.ending(seen.text, times * LAST_LINES)
    ends = [line for line in ends if without_folders(line) not in known and not signal.tree(line)]
    newest = list(within(reversed(ends), times * SUMMARY, known="\n".join([known, *last])))
    return sorted([*last, *newest], key=lambda line: ends.index(line) if line in ends else -1)


def _facts(seen: _Seen) -> list[str]:
    """Give of JSON what names the things in it and says how they are: the ids of what was made.

    Of a result with a text it is what stands beside the text.
    """
    output = seen.call.output
    if seen.action not in (SHELL, OTHER):
        return []
    if seen.call.kind in (JSON, JSONL):
        return facts(_value(seen), seen.room(FACTS))
    if seen.action == SHELL or output.at is None or not isinstance(output.result, dict):
        return []
    return facts({key: one for key, one in masked(bounded(output.result)).items() if key != output.at[0]}, FACTS.least)


def _value(seen: _Seen) -> Any:
    if not seen.is_text:
        value = seen.call.output.result
        given = [*seen.call.args.values()]
        given += [one for many in given if isinstance(many, list) for one in many]
        if isinstance(value, dict):  # what was given is no news
            words = {one for one in given if isinstance(one, str)}
            objects = [one for one in given if isinstance(one, dict)][:_GIVEN]
            value = {key: _new(one, words, objects) for key, one in value.items()}
        return masked(bounded(value))
    try:
        return json.loads(mask(seen.call.output.text)[0]) if len(seen.text) >= len(seen.call.output.text) / 2 else None
    except (ValueError, RecursionError):
        return None


def _new(value: Any, words: set[str], objects: list[Any]) -> Any:
    if isinstance(value, list):
        return [one for one in value[:MOST_VALUES] if not _is_given(one, words, objects)]
    return None if _is_given(value, words, objects) else value


def _is_given(value: Any, words: set[str], objects: list[Any]) -> bool:
    return value in words if isinstance(value, str) else isinstance(value, dict) and value in objects


def _notebook(seen: _Seen) -> list[str]:
    """Give a notebook's ids of cells, by which they are edited, and what went wrong as they ran."""
    file = seen.call.output.result.get("file") if isinstance(seen.call.output.result, dict) else None
    cells = file.get("cells") if seen.action == READ and isinstance(file, dict) else None
    if not isinstance(cells, list):
        return []
    held = [cell for cell in masked(bounded(cells)) if isinstance(cell, dict)]
    ids = [str(cell.get("cell_id") or cell.get("id") or "") for cell in held]
    printed = "\n".join(spoken(seen.call.rule, cell["outputs"]) for cell in held if cell.get("outputs"))
    room = seen.room(CELLS)
    wrong = trouble(looked_at(cleaned(printed, signal.plain)), Rooms(room, room, 0), failed=False)
    return [*_line("cells", within(ranges([one for one in ids if one]), room)), *wrong]


# ---- What was named.


def _files(seen: _Seen, found: list[str]) -> list[str]:
    is_content = seen.action == MATCHES or seen.is_difference  # whose words are no files
    paths = seen.files or ([] if is_content else signal.paths(seen.text))
    if seen.action == READ:  # `item.text` may be an attribute
        paths = [path for path in paths if "/" in path or any(f"{quote}{path}" in seen.text for quote in "\"'`")]
    is_list = bool(seen.files) or sum(map(len, paths)) > len(seen.text) / 3
    room, more = (max(seen.room(FILES), seen.room(LISTS)), seen.room(FOLDERS)) if is_list else (seen.room(FILES), 0)
    return _line("in", files(paths, room, more, known="\n".join(found)))


def _names(seen: _Seen) -> list[str]:
    """Give the names in a text; of JSON those in its values before its keys."""
    if not seen.is_text:
        return signal.names(_KEYS.sub("", seen.text))
    if seen.call.kind not in (JSON, JSONL):
        return signal.names(seen.text)
    return sorted(signal.names(_JSON_KEYS.sub(" ", seen.text)), key=signal.is_common)


def _line(word: str, items: Iterable[str]) -> list[str]:
    told = " ".join(items)
    return [f"{word}: {told}"] if told else []


def _compact(value: object) -> str:
    try:
        return json.dumps(masked(value), ensure_ascii=False, default=str)
    except (ValueError, RecursionError, TypeError):
        return ""
