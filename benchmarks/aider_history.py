"""Reads a chat history that aider kept: commands, runs of the linter and edits, with what came back.

# aider chat started at …    a session begins
#### /run COMMAND            what the person typed (also /test, /git, !)
> first line of the output   its other lines stand as they were printed; the last has two spaces after it
> # Fix any errors below     a linter's run; every line is quoted, with two spaces after it
> Applied edit to FILE       an edit that was made; or why none of the edits of the answer above could be made
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION = "# aider chat started at "
_TYPED = re.compile(r"#### (?:/(?:run|test) |/(?=git )|!(?!!))(.+)")
_LINT = re.compile(r"(> |#### )## Running: (.+)")
_EDIT = re.compile(
    r"^([^\n]+)\n```\w*\n<<<<<<< SEARCH\n(.*?)^=======\n(.*?)^>>>>>>> REPLACE$", re.DOTALL | re.MULTILINE
)
_PICTURE = re.compile(r"\x1b\]1337;File=[^\x07\n]*\x07?")


class Answered(NamedTuple):
    """A call with its answer. id: the number of its line, from 1."""

    id: str
    tool: str
    args: dict[str, Any]
    text: str
    failed: bool


def days(text: str) -> dict[str, str]:
    """Give the sessions of each day, joined in their order; keys as "2024-08-06"."""
    found: dict[str, str] = {}
    for session in re.split(f"^(?={SESSION})", text, flags=re.MULTILINE):
        if session.startswith(SESSION):
            day = session[len(SESSION) :][:10]
            found[day] = found.get(day, "") + session
    return found


def calls(text: str) -> Iterator[Answered]:
    """Give the calls in their order. A linter's run that was handed on stands twice; it is given once."""
    lines = text.split("\n")
    number = answer = 0
    while number < len(lines):
        line, start = lines[number], number
        number += 1
        if line.startswith((SESSION, "#### ")):
            answer = number
        if typed := _TYPED.fullmatch(line.rstrip()):
            end = _end_of_output(lines, number)
            if end > number:
                output = "\n".join(lines[number:end])[2:-2]
                number = end
                yield Answered(str(start + 1), "Bash", {"command": typed[1]}, _PICTURE.sub("", output), False)
        elif run := _LINT.fullmatch(line.rstrip()):
            end = _end_of_quote(lines, number, run[1])
            if not (run[1] == "> " and _handed_on(lines, end, run[2])):
                output = _unquoted(lines[number:end], run[1])
                yield Answered(str(start + 1), "Bash", {"command": run[2]}, output.strip("\n"), False)
            number = end
        elif line.startswith("> The LLM did not conform to the edit format."):
            end = _end_of_quote(lines, number, "> ")
            message = _unquoted(lines[start:end], "> ")
            edits = _edits(lines[answer:start])
            for file, old, new in [edit for edit in edits if edit[1] in message][:1] or edits[:1]:
                args = {"file_path": file, "old_string": old, "new_string": new}
                yield Answered(str(start + 1), "Edit", args, message, True)
            number = answer = end
        elif line.startswith("> Applied edit to "):
            applied = line[len("> Applied edit to ") :].rstrip()
            for place, (file, old, new) in enumerate(_edits(lines[answer:start])):
                if file == applied:
                    args = {"file_path": file, "old_string": old, "new_string": new}
                    yield Answered(f"{start + 1}.{place}", "Edit", args, line[2:].rstrip(), False)


def _end_of_output(lines: list[str], start: int) -> int:
    """Give where the output that begins at start ends: after two spaces, with a quote or a gap below."""
    if not lines[start].startswith("> ") or lines[start].startswith("> Add the output to the chat?"):
        return start
    for number in range(start, len(lines)):
        line = lines[number]
        if line.startswith(("#### ", SESSION, "> Add the output to the chat?")):
            return number
        if line.endswith("  ") and line.strip(" >") and (lines[number + 1 :] or [""])[0][:2] in ("", "> "):
            return number + 1
    return len(lines)


def _end_of_quote(lines: list[str], start: int, mark: str) -> int:
    end = start
    while end < len(lines) and lines[end].startswith(mark.rstrip()):
        if lines[end].startswith(("> Attempt to fix lint errors?", "> Tokens: ", "> Applied edit to ", "> ^C again")):
            break
        if _LINT.fullmatch(lines[end].rstrip()):
            break
        end += 1
    return end


def _handed_on(lines: list[str], end: int, command: str) -> bool:
    """Say whether the same run follows as a message to the model; there its lines stand as they were."""
    return any(
        (run := _LINT.fullmatch(line.rstrip())) and run[1] == "#### " and run[2] == command
        for line in lines[end : end + 12]
    )


def _unquoted(lines: list[str], mark: str) -> str:
    return "\n".join(line[len(mark) :].removesuffix("  ") if line.strip(" >#") else "" for line in lines)


def _edits(lines: list[str]) -> list[tuple[str, str, str]]:
    return [(file.strip(), old, new) for file, old, new in _EDIT.findall("\n".join(lines))]
