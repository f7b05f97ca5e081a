"""The text that stands for a tool's result: a line that says what came of it, then the signal (D49)."""

from __future__ import annotations

import json
import re

from loomctl.expressions import state_paths
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import mask, masked, masked_line
from loomctl.reduction import signal
from loomctl.reduction.live import main_words
from loomctl.reduction.tokens import estimate
from loomctl.reduction.tool_outputs import (
    Output,
    as_text,
    bounded,
    cleaned,
    entries,
    lines_of,
    looked_at,
    masked_head,
    spoken,
    without_exit_code,
)
from loomctl.reduction.tool_steps import EDIT, LIST, MATCHES, OTHER, READ, SEARCH, SHELL, VISIT, WRITE, Rule
from loomctl.reduction.trouble import Rooms, trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# The kinds of texts, and how a file of each ends.
EMPTY, JSON, JSONL, TEXT, BINARY = "empty", "JSON", "JSONL", "text", "binary"
EXTENSIONS = {EMPTY: "txt", JSON: "json", JSONL: "jsonl", TEXT: "txt", BINARY: "bin"}
_LARGEST_PARSED = 4_000_000  # characters; what is larger is judged by its two ends
_LINES_TRIED = 20
_CONTROLS = frozenset(map(chr, (*range(9), 11, *range(14, 27), *range(28, 32), 0x7F)))
# All in estimated tokens. An output as small as this stands for itself.
SMALL, SMALL_FAILED = 50, 120
# What a step may say of files and of names: this share of the original, and these bounds; lists of files get more.
FILES_SHARE, FILES_LEAST, FILES_MOST = 0.02, 12, 60
NAMES_SHARE, NAMES_LEAST, NAMES_MOST = 0.07, 12, 280
ADDRESSES_MOST = 16
LIST_SHARE, LIST_MOST = 0.8, 300
# The same for lines that tell of trouble, and for the line that sums up.
ERRORS_SHARE, ERRORS_LEAST, ERRORS_MOST = 0.3, 420, 1000
WELL_LEAST = 240  # of a call that went well
HINTS = 50
SUMMARY_MOST = 60
LAST_LINES = 3  # of what failed; twice as many where nothing told of trouble
LONGEST_WORDS = 400  # characters of an argument that is quoted
_NO_WORDS = ("image", "pdf", "parts", "file_unchanged")  # forms of what was read that hold no text
_KEYS = re.compile(r"^[\w.$-]{1,80}: ", re.MULTILINE)  # before a value's words
_JSON_KEYS = re.compile(r"\"[\w$.-]{1,80}\"\s?:")


class Call(NamedTuple):
    """A call as the observation tells it. kind: of the output's text (`kind_of`); size: its estimated tokens."""

    tool_name: str
    rule: Rule
    args: Mapping[str, Any]
    output: Output
    kind: str
    size: int


def observation(call: Call) -> str:
    """Tell a call in a line, and below it what the work may need of its output; secrets are masked."""
    rule = call.rule
    lines = [_filled(rule.template, call) if rule.template else _FIRST[rule.action](call)]
    is_quiet = call.output.success and (rule.template or rule.action in (WRITE, EDIT))
    if not is_quiet and call.kind != BINARY:
        lines += _signal(call)
    return mask("\n".join(lines))[0]


def shortened(value: str) -> str:
    """Give an argument short enough to be kept, its secrets masked before it is cut."""
    value = masked_head(value, LONGEST_WORDS)
    return value if len(value) <= LONGEST_WORDS else value[: LONGEST_WORDS - 1] + "…"


def _quoted(value: str) -> str:
    """Give an argument on one line, with nothing in it that a reader does not see."""
    return one_line(masked_head(value, LONGEST_WORDS), LONGEST_WORDS)


# ---- The signal.


def _signal(call: Call) -> list[str]:
    # Masked first: a name, a path or a part does not show any more what it was assigned to.
    output, action = call.output, call.rule.action
    is_text = output.at is not None or isinstance(output.result, str)
    given = without_exit_code(output.text) if is_text else spoken(call.rule, masked(bounded(output.result)))
    text, errors = (looked_at(cleaned(one, signal.plain)) for one in (given, output.errors))
    if action == READ and output.facts.get("form") in _NO_WORDS:
        return []
    found: list[str] = []
    if call.size <= (SMALL if output.success else SMALL_FAILED) and action != READ:
        stands = text if is_text or action in (LIST, MATCHES) or not text else _compact(output.result)
        stands = "" if errors and not is_text and not output.success else stands  # `errors` says it
        found = [line.strip() for line in stands.split("\n") if line.strip() and stands != errors]
        text = ""
    is_difference = action == SHELL and signal.is_difference(text)
    said = _trouble(call, found, errors, "" if is_difference and output.success else text)
    found += said
    if not text.strip():
        return found
    if is_text and call.kind in (JSON, JSONL):
        text = text.replace("\\n", "\n").replace("\\t", "\t")  # for names do not begin with the letter of an escape
    listed = signal.listed_files(text) if action == SHELL else []
    files = listed or signal.paths(text)
    is_list_of_files = bool(listed) or sum(map(len, files)) > len(text) / 3
    if action in (SHELL, OTHER) and call.kind == TEXT and not is_difference:
        found += _last_words(call, text, files if is_list_of_files else [], found, has_trouble=bool(said))
    if action in (SEARCH, VISIT):
        found += _listed("at", signal.addresses(text), found, ADDRESSES_MOST)
    room = min(FILES_MOST, max(FILES_LEAST, FILES_SHARE * call.size))
    if is_list_of_files:
        room = max(room, min(LIST_MOST, LIST_SHARE * call.size))
    found += _listed("in", files, found, room)
    if action in (WRITE, EDIT) and not output.success:
        return found  # the names in it are those that the call itself held
    room = min(NAMES_MOST, max(NAMES_LEAST, NAMES_SHARE * call.size))
    return found + _listed("names", _names(call, text, is_text=is_text), found, room)


def _last_words(call: Call, text: str, files: list[str], found: list[str], *, has_trouble: bool) -> list[str]:
    """Give the line that sums up, and of what failed the last lines."""
    sums_up = text.split("\n", 1)[0] if signal.is_status(text) else signal.summary(text)
    last = [] if sums_up in files else list(signal.within([sums_up], SUMMARY_MOST, known="\n".join(found)))
    if call.output.success:
        return last
    times = 1 if has_trouble else 2
    ends = signal.ending(text, times * LAST_LINES)
    return last + list(signal.within(ends, times * SUMMARY_MOST, known="\n".join([*found, *last])))


def _names(call: Call, text: str, *, is_text: bool) -> list[str]:
    """Give the names in a text; of JSON those in its values before its keys."""
    if not is_text:
        return signal.names(_KEYS.sub("", text))
    if call.kind not in (JSON, JSONL):
        return signal.names(text)
    found = dict.fromkeys(signal.names(_JSON_KEYS.sub(" ", text)) + signal.names(text))
    return sorted(found, key=signal.is_common)


def _compact(value: object) -> str:
    try:
        return json.dumps(masked(value), ensure_ascii=False, default=str)
    except (ValueError, RecursionError, TypeError):
        return ""


def _trouble(call: Call, said: list[str], errors: str, text: str) -> list[str]:
    """Give what went wrong: all that was said on the second stream, and of the first what tells of trouble."""
    if call.rule.action != SHELL and call.output.success:
        return []
    rooms = _rooms(call)
    failed = call.rule.action != SHELL and not call.output.success
    begins = signal.opening(errors.strip() or text, rooms.others / 2) if failed else []
    found = [line for line in (*begins, *trouble(errors, rooms, failed=not call.output.success)) if line not in said]
    if failed and call.rule.action in (WRITE, EDIT):  # what a failed edit is quoted with is no trouble
        held = "\n".join(value for value in call.args.values() if isinstance(value, str))
        found = [line for line in found if line.strip() not in held]
    found = list(dict.fromkeys(found))
    if errors.strip() and not found and not call.output.success:
        found.append(masked_line(errors, LONGEST_WORDS))
    return [*found, *(line for line in trouble(text, rooms, failed=not call.output.success) if line not in found)]


def _rooms(call: Call) -> Rooms:
    share = ERRORS_SHARE * call.size
    if call.output.success:
        room = min(ERRORS_MOST, max(WELL_LEAST, share))
        return Rooms(room, room, HINTS)
    return Rooms(ERRORS_MOST, min(ERRORS_MOST, max(ERRORS_LEAST, share)), 2 * HINTS)


def _listed(word: str, items: list[str], found: list[str], room: float) -> list[str]:
    chosen = list(signal.within(items, room, known="\n".join(found)))
    return [f"{word}: {' '.join(chosen)}"] if chosen else []


# ---- The first line, in the document's words (context-reduction.md).


def _read(call: Call) -> str:
    if not call.output.success:
        return f"Could not read {_path(call)}"
    facts = call.output.facts
    size, form = facts.get("originalSize", call.output.size), facts.get("form")
    if form == "file_unchanged":
        return f"Read {_path(call)} (unchanged)"
    if form == "image":
        return f"Read {_path(call)} ({size} bytes, {masked_line(str(facts.get('type') or 'image'), 40)})"
    if form in ("pdf", "parts"):
        pages = facts.get("count")
        told = f", {_counted(pages, 'page')}" if type(pages) is int else ""
        return f"Read {_path(call)} ({size} bytes, PDF{told})"
    if "cells" in facts:
        return f"Read {_path(call)} (notebook, {_counted(facts['cells'], 'cell')})"
    total, begin, count = (facts.get(key) for key in ("totalLines", "startLine", "numLines"))
    part = ""
    if isinstance(total, int) and isinstance(begin, int) and isinstance(count, int) and count < total:
        part = f", lines {begin}-{begin + count - 1} of {total}"
    return f"Read {_path(call)} ({call.output.size} bytes, {call.kind}{part})"


def _write(call: Call) -> str:
    content = call.args.get("content")
    size = call.output.facts.get("bytes")
    if isinstance(content, str):
        size = len(content.encode("utf-8", "surrogatepass"))
    if not call.output.success:
        return f"Could not write {_path(call)}"
    return f"Wrote {_path(call)}" + (f" ({size} bytes)" if isinstance(size, int) else "")


def _edit(call: Call) -> str:
    if not call.output.success:
        return f"Could not edit {_path(call)}"
    edits, old, new, source = (call.args.get(key) for key in ("edits", "old_string", "new_string", "new_source"))
    if isinstance(old, str) and isinstance(new, str):
        return f"Edited {_path(call)} (-{lines_of(old)} +{lines_of(new)} lines)"
    if isinstance(edits, list):
        pairs = [(one.get("old_string"), one.get("new_string")) for one in edits if isinstance(one, dict)]
        taken = sum(lines_of(before) for before, _ in pairs if isinstance(before, str))
        added = sum(lines_of(after) for _, after in pairs if isinstance(after, str))
        return f"Edited {_path(call)} ({_counted(len(edits), 'edit')}, -{taken} +{added} lines)"
    if isinstance(source, str):
        cell, mode = call.args.get("cell_id"), call.args.get("edit_mode")
        told = f"cell {_quoted(cell)}" if isinstance(cell, str) else "a cell"
        done = "inserted after " if mode == "insert" and isinstance(cell, str) else ""
        lines = " deleted" if mode == "delete" else f", +{lines_of(source)} lines"
        return f"Edited {_path(call)} ({done}{told}{lines})"
    return f"Edited {_path(call)}"


def _list(call: Call) -> str:
    pattern = call.args.get("pattern")
    count = call.output.facts["items"]
    cut = ", more were cut off" if call.output.facts.get("truncated") is True else ""
    if not call.output.success:
        return f"Could not list {_quoted(pattern) if isinstance(pattern, str) else _path(call)}"
    if isinstance(pattern, str):
        return f"Found {_counted(count, 'file')} for {_quoted(pattern)}{cut}"
    is_text = call.output.at is not None or isinstance(call.output.result, str)
    listed = entries(call.output.text if is_text else spoken(call.rule, call.output.result))
    folders = sum(entry.endswith("/") for entry in listed)
    files = _counted(count - folders, "file")
    split = f" ({files}, {_counted(folders, 'dir')})" if 0 < folders <= count else ""
    return f"Listed {_path(call)}: {_counted(count, 'item')}{split}{cut}"


def _matches(call: Call) -> str:
    where = call.args.get("path") or call.args.get("glob")
    facts = call.output.facts
    told = f"Grep '{_quoted(str(call.args.get('pattern', '')))}'" + (
        f" in {_quoted(where)}" if isinstance(where, str) else ""
    )
    if not call.output.success:
        return f"{told}: failed"
    if facts.get("mode") == "count" and type(facts.get("numMatches")) is int:
        return f"{told}: {_counted(facts['numMatches'], 'match', 'matches')} in {_counted(call.output.lines, 'file')}"
    if call.output.at is None and not isinstance(call.output.result, str):
        return f"{told}: {_counted(facts['items'], 'file')}"
    return f"{told}: {_counted(call.output.lines, 'line')}"


def _search(call: Call) -> str:
    query = _quoted(str(call.args.get("query", "")))
    if not call.output.success:
        return f"Could not search for '{query}'"
    return f"Found {_counted(call.output.facts['items'], 'result')} for '{query}'"


def _visit(call: Call) -> str:
    address = _quoted(str(call.args.get("url", "")))
    place = (address.partition("://")[2] or address).rstrip("/")
    status = call.output.facts.get("status")
    if not call.output.success and status is None:
        return f"Could not visit {place}"
    size = call.output.size
    told = f"{size} bytes" if size < 1024 else f"{round(size / 1024)}KB"
    return f"Visited {place} ({f'status={status}, ' if status is not None else ''}{told} text)"


def _shell(call: Call) -> str:
    command = call.args.get("command", call.args.get("bash_id", ""))
    words = main_words(_quoted(str(command))) or [_quoted(call.tool_name)]
    if words[1:2] == ["-m"] and words[2:]:
        program = " ".join(words[:3])
    else:
        program = " ".join(words[:2]) if words[1:] and words[1].isalpha() else words[0]
    if (
        isinstance(call.args.get("args"), list) and call.args["args"]
    ):  # the document's form: a program and its arguments
        first = str(call.args["args"][0])
        program = f"{program} {_quoted(first)}" if first.isalpha() else program
    return f"{program}: {_ended(call.output)}{_printed(call)}"


def _ended(output: Output) -> str:
    code, facts = output.exit_code, output.facts
    if facts.get("interrupted") is True:
        return "interrupted"
    if facts["timed_out"] or _says_that_it_timed_out(output):
        return "timed out"
    if code is None and isinstance(facts.get("backgroundTaskId"), str):
        return f"runs in the background as {masked_line(facts['backgroundTaskId'], 60)}"
    if code is None and (facts.get("status") == "running" or output.text.startswith("<status>running")):
        return "running"
    if code is None and isinstance(facts.get("returnCodeInterpretation"), str):
        return masked_line(facts["returnCodeInterpretation"], 60)
    if code is None and output.success:  # a host that tells what was interrupted calls each other code a failure
        return "exit 0" if facts.get("interrupted") is False else "no exit code"
    if code is not None and code < 0:
        return f"ended by signal {-code}" if code < -1 else "no exit code"
    return "failed" if code is None else f"exit {code}"


def _says_that_it_timed_out(output: Output) -> bool:
    """Tell a command that a tool ended for its time; what a command prints of its own of time is none of this."""
    if output.success or (output.exit_code or 0) > 0:
        return False
    said = "\n".join((output.text[:300], output.text[-300:], output.errors[:300]))
    return "command timed out" in said.lower()


def _printed(call: Call) -> str:
    output = call.output
    if call.kind == BINARY:
        return f", {output.size} bytes binary output"
    if output.lines:
        return f", {_counted(output.lines, 'line')} output"
    return f", {_counted(lines_of(output.errors), 'line')} stderr" if output.errors.strip() else ", no output"


def _other(call: Call) -> str:
    ended = "ok" if call.output.success else "failed"
    images = call.output.facts["images"]
    if images and not call.output.at:
        return f"{_quoted(call.tool_name)}: {ended}, {_counted(images, 'image')}"
    return f"{_quoted(call.tool_name)}: {ended}, {call.output.size} bytes {call.kind}"


_FIRST: dict[str, Callable[[Call], str]] = {
    READ: _read, WRITE: _write, EDIT: _edit, LIST: _list, MATCHES: _matches, SEARCH: _search, VISIT: _visit,
    SHELL: _shell, OTHER: _other,
}  # fmt: skip


def _path(call: Call) -> str:
    named = (call.args.get(key) for key in ("path", "file_path", "notebook_path"))
    return next((_quoted(path) for path in named if isinstance(path, str)), ".")


def _counted(count: int, noun: str, nouns: str = "") -> str:
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def _filled(template: str, call: Call) -> str:
    """Fill a user's template: `{location}` from the arguments, `{result.main.temp}` from the result, else "?"."""

    def value(found: re.Match[str]) -> str:
        steps = state_paths.compile_path(found[1].strip())
        if steps is None:
            return "?"
        of_result = steps[:1] == ["result"] and "result" not in call.args
        item = state_paths.read(steps[1:], call.output.result) if of_result else state_paths.read(steps, call.args)
        if item is state_paths.MISSING or item is None:
            return "?"
        return one_line(item if isinstance(item, str) else as_text(item), LONGEST_WORDS)

    return re.sub(r"\{([^{}\n]{1,200})\}", value, template)


def measured(text: str, errors: str) -> int:
    """Estimate the tokens of an output, of which one part may be in the other."""
    return estimate(text) + (estimate(errors) if errors not in text else 0)


# ---- What a text is, told from its content and never from a file's name (D47, context-reduction.md).


def kind_of(text: str) -> str:
    """Tell the kind of a text: "empty", "JSON", "JSONL", "text" or "binary"."""
    bare = text.strip()
    if not bare:
        return EMPTY
    if "\0" in text or _is_noise(text):
        return BINARY
    if bare[0] not in "{[":
        return TEXT
    if bare[-1] in "}]" and (len(bare) > _LARGEST_PARSED or _parses(bare)):
        return JSON
    lines = [line for line in bare[:_LARGEST_PARSED].splitlines() if line.strip()]
    tried = [*lines[:_LINES_TRIED], bare[-_LARGEST_PARSED:].splitlines()[-1]]
    return JSONL if len(lines) > 1 and all(line.strip()[0] in "{[" and _parses(line) for line in tried) else TEXT


def _is_noise(text: str) -> bool:
    """Tell text that was read from bytes that were none: one character in ten is a control or a replacement."""
    head = text[:4096]
    return 10 * sum(character in _CONTROLS or character == "\ufffd" for character in head) > len(head)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
