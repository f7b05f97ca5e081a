"""A tool call as a host tells it; and which shell commands are Loom's own and harmless, or for a person to see (D29).

Pure; a command that is not certainly harmless gets no answer, and the host asks its user as it always does.
"""

from __future__ import annotations

from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.visits import OUTCOMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# verb: (options that take a value, options that take none, most positional words)
_HARMLESS: dict[str, tuple[frozenset[str], frozenset[str], int]] = {
    "next": (frozenset({"--branch"}), frozenset({"--json"}), 1),
    "show": (frozenset(), frozenset({"--json"}), 2),
    "steps": (
        frozenset({"--last", "--tool"}),
        frozenset({"--all", "--failed", "--agents", "--json"}),
        1,  # `show ID` gives what a tool gave, and masks nothing
    ),
    "preamble": (frozenset({"--step", "--fidelity", "--branch"}), frozenset({"--json"}), 1),
    "stages": (frozenset(), frozenset({"--json"}), 1),
    "events": (frozenset({"--since", "--last", "--event"}), frozenset({"--json"}), 1),  # following would never end
    "assets": (frozenset(), frozenset({"--json"}), 1),  # two words are a copy
    "context get": (frozenset({"--branch"}), frozenset({"--json"}), 2),
    "context list": (frozenset({"--branch"}), frozenset({"--all", "--json"}), 1),
    "context history": (frozenset(), frozenset({"--all", "--json"}), 2),
    "done": (frozenset({"--for", "--outcome", "--note", "--artifact", "--branch"}), frozenset({"--json"}), 1),
}
# As they are called now; the old names of these do the same until 1.0.
_HARMLESS |= {
    "show --stages": _HARMLESS["stages"],
    "show --assets": _HARMLESS["assets"],
    "debug preamble": _HARMLESS["preamble"],
}
_ASK = ("approve", "reject", "choose", "trust", "cancel", "fork", "rewind", "push", "pull", "tell")
# Verbs of two words that take something away; a slash command of Loom's own allows every other `loomctl` unasked.
_ASK_BOTH = (
    *(("state", "restore"), ("runs", "rm"), ("runs", "archive")),
    *(("plugin", "install"), ("plugin", "remove")),  # what an assistant may do by itself is its user's
)
_ASK_BEHIND = ("drive",)  # those that are words of any text, too: they count right behind `loomctl` alone
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@,+-")
_DELIMITER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_UNPREDICTABLE = frozenset("$`*?[]{}!()")
_SEPARATORS = ";&|\n<>"
_UNQUOTED = {ord(mark): None for mark in "'\"\\"}
_LONGEST = 10_000  # characters of a line whose words are looked at: hosts take no longer command for a simple one
ALLOW, ASK, DENY = "allow", "ask", "deny"
# Tools whose Loom commands need no question, and all that have a shell run the `command` of their input.
ALLOWED_IN = (
    "Bash", "bash", "shell", "local_shell", "shell_command", "exec_command", "run_shell_command",
)  # fmt: skip
SHELLS = (*ALLOWED_IN, "Monitor", "PowerShell")
ALLOWED = "a loomctl command that only reads or records this run's progress"


class ToolCall(NamedTuple):
    """A call that has ended. error: what the host said of one that failed, else empty; id: the host's, or empty."""

    tool_name: str
    args: Any
    result: Any
    error: str
    id: str


def read(told: object) -> ToolCall:
    """Read either form. Raises NO_TOOL_CALL, which says what is missing."""
    event = told if isinstance(told, dict) else {}
    is_an_event = "tool_name" in event
    name = event.get("tool_name" if is_an_event else "tool")
    if not isinstance(name, str) or not name.strip():
        raise LoomError(
            "NO_TOOL_CALL",
            "this is not a tool call",
            where="standard input" + ("" if event else ": $"),
            why="give an object with tool_name, tool_input and tool_response or error; or with tool, args, result",
            hint="loomctl debug reduce --help",
        )
    error = _said(event.get("error"))
    if is_an_event:
        from loomctl.reduction import tool_steps  # a judge of commands needs none

        failed = event.get("hook_event_name") == tool_steps.FAILED
        error = error or ("failed" if failed else "")
        args, result, step_id = event.get("tool_input"), tool_steps.result_of(event), event.get("tool_use_id")
    else:
        args, result, step_id = event.get("args"), event.get("result"), event.get("id")
    return ToolCall(name, args, result, error, step_id if isinstance(step_id, str) else "")


def _said(error: object) -> str:
    if error in (None, "", False):
        return ""
    if isinstance(error, str):
        return error
    import json  # most errors are a text

    return json.dumps(error, ensure_ascii=False)


class Verdict(NamedTuple):
    """decision: `ALLOW` or `ASK`. words: of the text, where it names what the user is asked about."""

    decision: str
    reason: str
    words: frozenset[str] = frozenset()


def judge(command: str) -> Verdict | None:
    """Decide on a shell command's full text; None for no opinion.

    Allowed: exactly one simple `loomctl next`, `done`, or a command that only reads and masks what it gives; for
    `done` with at most one quoted heredoc that ends the command. Asked: whatever may run one of the verbs by which a
    person decides (`_ASK`), and what puts a run or its state away (`state restore`, `runs rm`, `runs archive`).

    To ask is a courtesy: what is hidden from it is refused where it is carried out (D68).
    """
    if _is_harmless(command.strip(" \n")):
        return Verdict(ALLOW, ALLOWED)
    if "loomctl" not in _unquoted(command):
        return None
    words = words_of(command)
    if "loomctl" in words or any(word.endswith("/loomctl") for word in words):
        named = [verb for verb in _ASK if verb in words]
        line = f"{' '.join(_unquoted(command).split())} "
        named += [verb for verb in _ASK_BEHIND if f"loomctl {verb} " in line]
        named += [f"{noun} {verb}" for noun, verb in _ASK_BOTH if noun in words and verb in words]
        if named:
            return Verdict(ASK, f"only the user decides about loomctl {named[0]}", words)
        if _hides_its_verb(_unquoted(command)):
            return Verdict(ASK, "this runs loomctl, but the text does not show with which arguments")
    return None


def _is_harmless(command: str) -> bool:
    if not command.startswith("loomctl "):
        return False
    first, newline, body = command.partition("\n")
    delimiter = ""
    if newline:
        head, mark, quoted = first.rpartition("<<")
        delimiter = quoted[1:-1]
        quotes = quoted[:1] + quoted[-1:]
        if not mark or quotes not in ("''", '""') or not delimiter or not _DELIMITER.issuperset(delimiter):
            return False
        lines = body.split("\n")
        if lines[-1] != delimiter or delimiter in lines[:-1]:
            return False
        first = head.rstrip(" ")
    words = _split(first)
    if words is None:
        return False
    length = 2 if words[1:2] in (["context"], ["debug"]) else 1
    verb, rest = words[1 : 1 + length], words[1 + length :]
    view = next((word for word in rest if f"show {word}" in _HARMLESS), "") if verb == ["show"] else ""
    if view:
        verb = ["show", view]
        rest.remove(view)
    name = " ".join(verb)
    if name not in _HARMLESS or name.split(" ") != verb or (delimiter and name != "done"):
        return False
    return _arguments_fit(name, rest)


def _arguments_fit(verb: str, words: list[str]) -> bool:
    valued, bare, most = _HARMLESS[verb]
    positional = 0
    waiting = iter(words)
    for word in waiting:
        name, equals, value = word.partition("=")
        if name in valued:
            value = value if equals else next(waiting, "")
            if not value or (name == "--outcome" and value not in OUTCOMES):
                return False
            if name == "--branch" and value.startswith("-"):
                return False
            if name == "--artifact" and (value.startswith("-") or "=" not in value):
                return False
        elif word.startswith("-"):
            if word not in bare:
                return False
        else:
            positional += 1
    return positional <= most


def _split(line: str) -> list[str] | None:
    """Split a line of plain and quoted words at single spaces; None for anything that a shell would read otherwise."""
    if len(line) > _LONGEST:
        return None
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(line):
        character = line[at]
        if character == " ":
            if word is not None:
                words.append(word)
            word = None
        elif character in "'\"":
            end = line.find(character, at + 1)
            inside = line[at + 1 : end] if end >= 0 else None
            if (
                inside is None
                or not inside.isprintable()
                or (character == '"' and not _UNPREDICTABLE.isdisjoint(inside))
            ):
                return None
            if "\\" in inside:
                return None
            word = (word or "") + inside
            at = end
        elif character in _WORD:
            word = (word or "") + character
        else:
            return None
        at += 1
    if word is not None:
        words.append(word)
    return words


def words_of(text: str) -> frozenset[str]:
    """Give the words in a command's text, or in what a shell made of a part of it, as both show them alike."""
    text = _unquoted(text)
    for separator in _SEPARATORS + "()`{},\t=$":
        text = text.replace(separator, " ")
    return frozenset(text.split())


def _unquoted(command: str) -> str:
    return command.replace("\\\n", "").translate(_UNQUOTED)  # a shell joins such lines before it reads a word


def _hides_its_verb(plain: str) -> bool:
    """Tell whether a `loomctl` in the text is followed, in its own command, by something that a shell expands."""
    for separator in _SEPARATORS:
        plain = plain.replace(separator, "\n")
    behind = (command.partition("loomctl")[2] for command in plain.split("\n"))
    return any(not _UNPREDICTABLE.isdisjoint(words) for words in behind)
