"""The line that says what came of a call, in the document's words (context-reduction.md)."""

from __future__ import annotations

import re

from loomctl.expressions import state_paths
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.reduction.kinds import BINARY
from loomctl.reduction.live import main_words
from loomctl.reduction.tool_outputs import Output, as_text, entries, lines_of, masked_head, spoken
from loomctl.reduction.tool_steps import EDIT, LIST, MATCHES, OTHER, READ, SEARCH, SHELL, VISIT, WRITE, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

LONGEST_WORDS = 400  # characters of an argument that is quoted


class Call(NamedTuple):
    """A call as the observation tells it. kind: of the output's text (`kind_of`); size: its estimated tokens."""

    tool_name: str
    rule: Rule
    args: Mapping[str, Any]
    output: Output
    kind: str
    size: int


def first_line(call: Call) -> str:
    """Say what came of a call; in a user's words where the rule has some."""
    return _filled(call.rule.template, call) if call.rule.template else _FIRST[call.rule.action](call)


def _quoted(value: str) -> str:
    """Give an argument on one line, with nothing in it that a reader does not see."""
    return one_line(masked_head(value, LONGEST_WORDS), LONGEST_WORDS)


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
    patch = call.args.get("patch")
    if isinstance(patch, str):
        gone, new = (sum(line.startswith(sign) for line in patch.split("\n")) for sign in "-+")
        return f"Edited {_path(call)} (-{gone} +{new} lines)"
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
    several = call.args.get("paths", call.args.get("include"))
    if isinstance(several, list) and several:
        return _quoted(", ".join(str(path) for path in several))
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
