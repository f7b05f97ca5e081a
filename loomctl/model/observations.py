"""The text that stands for a tool's result: a line that says what came of it, then the signal (D49)."""

from __future__ import annotations

import re

from loomctl.model import content_kinds, paths_in_state, signal_lines
from loomctl.model.fences import one_line
from loomctl.model.records import NamedTuple
from loomctl.model.secrets import mask, masked, masked_line
from loomctl.model.tokens import estimate
from loomctl.model.tool_outputs import Output, as_text
from loomctl.model.tool_rules import EDIT, LIST, MATCHES, OTHER, READ, SEARCH, SHELL, VISIT, WRITE, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# All in estimated tokens. An output as small as this stands for itself.
SMALL = 50
# What a step may say of files and of names: this share of the original, and these bounds; lists of files get more.
FILES_SHARE, FILES_LEAST, FILES_MOST = 0.02, 12, 60
NAMES_SHARE, NAMES_LEAST, NAMES_MOST = 0.07, 12, 220
ADDRESSES_MOST = 16
LIST_SHARE, LIST_MOST = 0.8, 300
# The same for lines that tell of trouble, and for the line that sums up.
ERRORS_SHARE, ERRORS_LEAST, ERRORS_MOST = 0.3, 180, 1000
WARNINGS_MOST = 50
SUMMARY_MOST = 60
LONGEST_WORDS = 400  # characters of an argument that is quoted


class Call(NamedTuple):
    """A call as the observation tells it. kind: of the output's text (`content_kinds`); size: its estimated tokens."""

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
    if not is_quiet and call.kind != content_kinds.BINARY:
        lines += _signal(call)
    return mask("\n".join(lines))[0]


def shortened(value: str) -> str:
    """Give an argument short enough to be kept, its secrets masked before it is cut."""
    value = mask(value)[0]
    return value if len(value) <= LONGEST_WORDS else value[: LONGEST_WORDS - 1] + "…"


def _quoted(value: str) -> str:
    """Give an argument on one line, with nothing in it that a reader does not see."""
    return masked_line(value, LONGEST_WORDS)


# ---- The signal.


def _signal(call: Call) -> list[str]:
    # Masked first: a name or a path taken out of its line does not show any more what it was assigned to.
    output = call.output
    text = output.text if output.at is not None or isinstance(output.result, str) else as_text(masked(output.result))
    text, errors = (mask(signal_lines.plain(one))[0] for one in (text, output.errors))
    found: list[str] = []
    if call.size <= SMALL and call.rule.action != READ:
        found = [line.strip() for line in text.split("\n") if line.strip()]
        text = ""
    is_difference = call.rule.action == SHELL and signal_lines.is_difference(text)
    found += _trouble(call, found, errors, "" if is_difference and call.output.success else text)
    if not text.strip():
        return found
    if call.rule.action in (SHELL, OTHER) and call.kind == content_kinds.TEXT:
        found += signal_lines.within([signal_lines.summary(text)], SUMMARY_MOST, known="\n".join(found))
    if call.rule.action in (SEARCH, VISIT):
        found += _listed("at", signal_lines.addresses(text), found, ADDRESSES_MOST)
    files = signal_lines.changed_files(text) if is_difference else signal_lines.paths(text)
    is_list_of_files = is_difference or sum(map(len, files)) > len(text) / 3
    room = min(FILES_MOST, max(FILES_LEAST, FILES_SHARE * call.size))
    if is_list_of_files:
        room = max(room, min(LIST_MOST, LIST_SHARE * call.size))
    found += _listed("in", files, found, room)
    room = min(NAMES_MOST, max(NAMES_LEAST, NAMES_SHARE * call.size))
    return found + _listed("names", signal_lines.names(text), found, room)


def _trouble(call: Call, said: list[str], errors: str, text: str) -> list[str]:
    """Give what went wrong: all that was said on the second stream, and of the first what tells of trouble."""
    if call.rule.action != SHELL and call.output.success:
        return []
    budget = min(ERRORS_MOST, max(ERRORS_LEAST, ERRORS_SHARE * call.size))
    minor = WARNINGS_MOST if call.output.success else 2 * WARNINGS_MOST
    found = [line for line in signal_lines.trouble(errors, budget, minor) if line not in said]
    if errors.strip() and not found and not call.output.success:
        found.append(masked_line(errors, LONGEST_WORDS))
    return [*found, *(line for line in signal_lines.trouble(text, budget, minor) if line not in found)]


def _listed(word: str, items: list[str], found: list[str], room: float) -> list[str]:
    chosen = list(signal_lines.within(items, room, known="\n".join(found)))
    return [f"{word}: {' '.join(chosen)}"] if chosen else []


# ---- The first line, in the document's words (context-reduction.md).


def _read(call: Call) -> str:
    if not call.output.success:
        return f"Could not read {_path(call)}"
    total, begin, count = (call.output.facts.get(key) for key in ("totalLines", "startLine", "numLines"))
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
    edits, old, new = (call.args.get(key) for key in ("edits", "old_string", "new_string"))
    if isinstance(old, str) and isinstance(new, str):
        return f"Edited {_path(call)} (-{_lines(old)} +{_lines(new)} lines)"
    return f"Edited {_path(call)}" + (f" ({len(edits)} edits)" if isinstance(edits, list) else "")


def _list(call: Call) -> str:
    pattern = call.args.get("pattern")
    count = call.output.facts["items"]
    if isinstance(pattern, str):
        return f"Found {count} files for {_quoted(pattern)}"
    entries = [line.strip(' -\t",') for line in call.output.text.split("\n")]
    folders = sum(entry.endswith("/") for entry in entries)
    split = f" ({count - folders} files, {folders} dirs)" if 0 < folders <= count else ""
    return f"Listed {_path(call)}: {count} items{split}"


def _matches(call: Call) -> str:
    where = call.args.get("path") or call.args.get("glob")
    inside = f" in {_quoted(where)}" if isinstance(where, str) else ""
    return f"Grep '{_quoted(str(call.args.get('pattern', '')))}'{inside}: {call.output.lines} lines"


def _search(call: Call) -> str:
    return f"Found {call.output.facts['items']} results for '{_quoted(str(call.args.get('query', '')))}'"


def _visit(call: Call) -> str:
    address = _quoted(str(call.args.get("url", "")))
    place = (address.partition("://")[2] or address).rstrip("/")
    status = call.output.facts.get("status")
    size = call.output.size
    told = f"{size} bytes" if size < 1024 else f"{round(size / 1024)}KB"
    return f"Visited {place} ({f'status={status}, ' if status is not None else ''}{told} text)"


def _shell(call: Call) -> str:
    command = call.args.get("command", call.args.get("bash_id", ""))
    words = _quoted(str(command)).split() or [_quoted(call.tool_name)]
    program = " ".join(words[:2]) if words[1:] and words[1].isalpha() else words[0]
    if (
        isinstance(call.args.get("args"), list) and call.args["args"]
    ):  # the document's form: a program and its arguments
        first = str(call.args["args"][0])
        program = f"{program} {_quoted(first)}" if first.isalpha() else program
    code = call.output.exit_code
    ended = f"exit {0 if code is None else code}" if call.output.success or code is not None else "failed"
    if call.output.facts.get("interrupted") is True:
        ended = "interrupted"
    return f"{program}: {ended}" + (f", {call.output.lines} lines output" if call.output.lines else ", no output")


def _other(call: Call) -> str:
    return (
        f"{_quoted(call.tool_name)}: {'ok' if call.output.success else 'failed'}, {call.output.size} bytes {call.kind}"
    )


_FIRST: dict[str, Callable[[Call], str]] = {
    READ: _read, WRITE: _write, EDIT: _edit, LIST: _list, MATCHES: _matches, SEARCH: _search, VISIT: _visit,
    SHELL: _shell, OTHER: _other,
}  # fmt: skip


def _path(call: Call) -> str:
    named = (call.args.get(key) for key in ("path", "file_path", "notebook_path"))
    return next((_quoted(path) for path in named if isinstance(path, str)), ".")


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _filled(template: str, call: Call) -> str:
    """Fill a user's template: `{location}` from the arguments, `{result.main.temp}` from the result, else "?"."""

    def value(found: re.Match[str]) -> str:
        steps = paths_in_state.compile_path(found[1].strip())
        if steps is None:
            return "?"
        of_result = steps[:1] == ["result"] and "result" not in call.args
        item = (
            paths_in_state.read(steps[1:], call.output.result) if of_result else paths_in_state.read(steps, call.args)
        )
        if item is paths_in_state.MISSING or item is None:
            return "?"
        return one_line(item if isinstance(item, str) else as_text(item), LONGEST_WORDS)

    return re.sub(r"\{([^{}\n]{1,200})\}", value, template)


def measured(text: str, errors: str) -> int:
    """Estimate the tokens of an output, of which one part may be in the other."""
    return estimate(text) + (estimate(errors) if errors not in text else 0)
