"""The catalogue of messages: every text that Loom shows to people or to the assistant, read from the source.

It takes more rather than less: each literal of at least two words counts as a message, except docstrings, patterns,
and what a rule below names. What varies at run time is `X`. Print what breaks the rules in a room, or all of a room:

    python -m tests.docs.messages kit runs
    python -m tests.docs.messages --all kit
"""

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.helpers.scenes import CHECKOUT

COLUMNS, WORDS = 80, 25
# Who says what happened, and as which argument.
_WHAT = {"LoomError": 1, "Finding": 1, **dict.fromkeys(("error", "fail", "_fail", "warning", "warn", "note"), 2)}
BUNDLE = {"commands": "commands/*.md", "skills": "skills/*/*.md", "prompts": "config/workflows/*.yaml"}
_PATTERNS = ("compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer")


class Message(NamedTuple):
    """One text. kind: `what`, `why`, `hint`, `where` of an error, `help`, or `text`; room: who says it."""

    room: str
    file: str
    line: int
    kind: str
    text: str


class Rule(NamedTuple):
    """What a message must not be. breaks: a pattern; but: what is taken out of the text before it is looked for."""

    name: str
    breaks: re.Pattern[str]
    but: re.Pattern[str]


# Commands, options, file names and settings keep the words that scripts know.
_NAMES = (
    r"`[^`]*`|--[a-z-]+|\bloomctl(?: (?!and\b|or\b)[a-z-]+)+"
    r"|[\w*.@-]*/[\w/*.@-]*|\b\w+\.(?:md|json|jsonl|py|ya?ml)\b"
)
_NOTHING = re.compile(r"(?!)")
RULES = (
    Rule(
        "a word of our insides",
        re.compile(r"\b(?:packing slips?|slips?|prim(?:ed|ing)|ledgers?|visit(?:s|ed|ing)?|leases?)\b", re.IGNORECASE),
        re.compile(_NAMES),
    ),
    # "a fresh clone" is plain English; "3 fresh" and "is fresh" are ours.
    Rule(
        "fresh as a state",
        re.compile(r"\bX fresh\b|\b(?:is|are|be|was|were|stays?) fresh\b|\bfresh[,;:.]", re.IGNORECASE),
        _NOTHING,
    ),
    Rule("closing as a state", re.compile(r"\b(?:is|was|are|were|be|still) closing\b", re.IGNORECASE), _NOTHING),
    Rule(
        "a fence of ours",
        re.compile(r"\b(?:un)?fence[sd]?\b", re.IGNORECASE),
        re.compile(_NAMES + r"|\b[Cc]ode\s+fences?\b"),
    ),
    # A stage is one execution of a step and has a number: it may be named where the number is what is typed.
    Rule(
        "stage where step will do",
        re.compile(r"\bstages?\b"),
        re.compile(_NAMES + r"|(?<!X )\bstages? (?:X|\d+|NNN)\b|\bstage's number\b|\bnumber of (?:a|the) stage\b"),
    ),
    Rule(
        "a sentence without a subject",
        re.compile(r"^(?:What|Who|Whoever|Whose|Of which|That which)\b(?: [^ ?]+){3,}$", re.IGNORECASE),
        _NOTHING,
    ),
)


# What looks like a message and is none, or must keep its words: a file, how the text begins, and the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [
            (f"loomctl/{file}.py", "Loom slip ")
            for file in ("priming/slip", "priming/edits", "hosts/protocol/transcript")
        ],
        "transcripts keep the line by which a text is found again",
    ),
    ("loomctl/runs/model/state.py", "let old visits"): "the events of migrated runs keep the name",
    ("loomctl/reduction/tokens.py", "\n"): "lists of words that make one token each",
    ("loomctl/reduction/first_lines.py", "Visited X"): "a page was visited by a browser",
    ("loomctl/reduction/first_lines.py", "Could not visit X"): "a page was not visited by a browser",
}


class Fault(NamedTuple):
    rule: str
    at: Message
    words: str

    def __str__(self) -> str:
        return f"{self.at.file}:{self.at.line}: {self.at.kind}: {self.rule}: {self.words}\n    {self.at.text!r}"


# ---- The rules.


def faults(messages: Iterable[Message]) -> Iterator[Fault]:
    """Give what breaks a rule, message by message."""
    for message in messages:
        if excepted(message):
            continue
        columns = len(message.text.partition("\n")[0])
        if message.kind == "what" and columns > COLUMNS:
            yield Fault(f"over {COLUMNS} columns", message, str(columns))
        for sentence in sentences(message.text):
            for rule in RULES:
                broken = rule.breaks.search(rule.but.sub(" `` ", sentence))
                if broken and not is_command(message, sentence):
                    yield Fault(rule.name, message, broken[0])
            count = max(len(_counted(clause).split()) for clause in _items(sentence))
            if count > WORDS and message.kind != "hint":
                yield Fault(f"a sentence over {WORDS} words", message, str(count))


def sentences(text: str) -> list[str]:
    """Cut a text where a sentence or a line ends; lines of a Markdown paragraph go on."""
    return [one.strip() for one in re.split(r"(?<=[.!?])[\"')]*\s+|\n+|\s\|\s", text) if one.strip()]


def excepted(message: Message) -> tuple[str, str] | None:
    """Give the exception that a message falls under."""
    return next((key for key in EXCEPTIONS if key[0] == message.file and message.text.startswith(key[1])), None)


def _items(sentence: str) -> list[str]:
    """Give the items of a list that semicolons set off, which count one by one; of anything else the whole."""
    items = re.split(r"; ", sentence)
    return items if len(items) > 2 else [sentence]


def is_command(message: Message, sentence: str) -> bool:
    """Tell whether a sentence is a command line, in which names keep their words."""
    return message.kind == "hint" or sentence.startswith(("loomctl ", "git ", "$ "))


def _counted(sentence: str) -> str:
    """Make each code span and each option one word, and leave signs out."""
    return re.sub(r"(?<!\w)[^\w`X]+(?!\w)", " ", re.sub(r"`[^`]*`", "X", sentence))


# ---- What is collected.


@functools.cache
def catalogue() -> tuple[Message, ...]:
    """Collect every message of the source and of the bundle."""
    return (*(one for path in sorted(CHECKOUT.glob("loomctl/**/*.py")) for one in in_module(path)), *_in_bundle())


def rooms() -> list[str]:
    """Name who says something: each room of the source and of the bundle, and the launcher. It reads no file."""
    source = {path.relative_to(CHECKOUT).parts[1].removesuffix(".py") for path in CHECKOUT.glob("loomctl/**/*.py")}
    return sorted({*source, *BUNDLE, "launcher"})


def of(room: str) -> list[Message]:
    return [one for one in catalogue() if one.room == room]


def in_module(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = path.relative_to(CHECKOUT).as_posix()
    room = file.split("/")[1].removesuffix(".py")
    passed, kinds = _passed_over(tree), _kinds(tree)
    for node in _texts(tree, passed):
        text = written(node)
        if _is_message(text):
            yield Message(room, file, node.lineno, kinds.get(id(node), "text"), text)
    for node, text in _help(tree):
        yield Message(room, file, node.lineno, "help", text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "counted":
            words = [written(one) for one in node.args[1:2] if _is_text(one)]  # shown behind its number
            yield from (Message(room, file, node.lineno, "text", f"X {word}s") for word in words)


def _texts(node: ast.AST, passed: set[int]) -> Iterator[ast.expr]:
    """Give the outermost texts below a node: literals, f-strings, and sums of them."""
    if id(node) in passed:
        return
    if isinstance(node, ast.expr) and _is_text(node):
        yield node
        # What stands in a placeholder may say something of its own.
        node = ast.Module([], []) if isinstance(node, ast.Constant) else node
        for part in ast.walk(node):
            if isinstance(part, ast.FormattedValue):
                yield from _texts(part.value, passed)
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, passed)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) and _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def written(node: ast.expr) -> str:
    """Read a text as the source has it, `X` for what is known only at run time."""
    if isinstance(node, ast.BinOp):
        return written(node.left) + written(node.right)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    assert isinstance(node, ast.Constant)
    return re.sub(r"\{\w*(?:[:!][^{}\s]*)?\}", "X", str(node.value))


def _is_message(text: str) -> bool:
    """Tell whether a literal is a text: two words, and none of the signs of code, styles or patterns."""
    words = re.findall(r"(?<![\w\\%<-])[A-Za-z][a-z']+(?![\w(=-])", text)
    return len(words) >= (1 if re.search(r"\bX\b", text) else 2) and " " in text.strip()


def _passed_over(tree: ast.AST) -> set[int]:
    """Give what is no message: docstrings, patterns, the key of a subscript, a text that something is compared with."""
    passed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(id(node.value))
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            of_re = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "re"
            if (called in _PATTERNS and of_re) or called in ("startswith", "endswith", "removeprefix", "NamedTuple"):
                passed |= {id(one) for one in node.args}
        elif isinstance(node, ast.Compare):
            passed |= {id(one) for one in (node.left, *node.comparators)}
        elif isinstance(node, ast.Subscript):
            passed.add(id(node.slice))
        elif isinstance(node, ast.AnnAssign) or (isinstance(node, ast.arg) and node.annotation is not None):
            passed.add(id(node.annotation))
    return passed


def _kinds(tree: ast.AST) -> dict[int, str]:
    """Tell of which part of an error a text is: by its keyword, its place, or the name that it is assigned to."""
    kinds: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for argument in node.args[_WHAT.get(called, len(node.args)) :][:1]:
                _mark(argument, "what", kinds)
            for keyword in node.keywords:
                if keyword.arg in ("what", "why", "hint", "where", "help"):
                    _mark(keyword.value, keyword.arg, kinds)
        elif isinstance(node, ast.Assign):
            for name, value in assigned_by(node):
                if name in ("what", "why", "hint", "where"):
                    _mark(value, name, kinds)
    return kinds


def assigned_by(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Give the local names that an assignment sets, each with its value."""
    for target in node.targets:
        pairs: list[tuple[ast.expr, ast.expr]] = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        yield from ((name.id, value) for name, value in pairs if isinstance(name, ast.Name))


def _mark(node: ast.expr, kind: str, kinds: dict[int, str]) -> None:
    if isinstance(node, ast.IfExp):
        _mark(node.body, kind, kinds)
        _mark(node.orelse, kind, kinds)
    elif _is_text(node):
        kinds[id(node)] = kind


def _help(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Give the docstrings that click shows: of functions that a decorator makes a command or a group."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            named = [part for one in node.decorator_list for part in ast.walk(one)]
            made = {part.attr for part in named if isinstance(part, ast.Attribute)}
            if made & {"command", "group"}:
                yield node, re.sub(r"(?<!\n)\n(?!\n)", " ", text.partition("\b")[0])


# ---- The bundle.


def _in_bundle() -> Iterator[Message]:
    for room, pattern in BUNDLE.items():
        for path in sorted(CHECKOUT.glob(pattern)):
            text, file = path.read_text(encoding="utf-8"), path.relative_to(CHECKOUT).as_posix()
            if path.suffix == ".md":
                prose = re.sub(r"^ *```.*?^ *```$|^---$|^[a-z-]+: ", "", text, flags=re.DOTALL | re.MULTILINE)
                yield from (Message(room, file, 0, "text", one) for one in prose.split("\n") if " " in one.strip())
            else:
                values = [one for one in _values(yaml.safe_load(text)) if _is_message(one)]
                yield from (Message(room, file, 0, "text", one) for one in values)
    for line, _, what in of_launcher():
        yield Message("launcher", "bin/loomctl", line, "what", what)


def of_launcher() -> Iterator[tuple[int, str, str]]:
    """Give the errors of the launcher: line, code, what happened."""
    text = (CHECKOUT / "bin" / "loomctl").read_text(encoding="utf-8")
    for match in re.finditer(r"\bfail ([A-Z][A-Z_]+) '([^']+)'", text):
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2]


def _values(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _values(one)


def main(arguments: list[str]) -> int:
    """Print the faults of rooms, or with --all every message of them."""
    every, asked = "--all" in arguments, [one for one in arguments if one != "--all"] or rooms()
    say = sys.stdout.write
    for room in asked:
        for one in of(room):
            if every:
                say(f"{one.file}:{one.line}: {one.kind}: {one.text!r}\n")
        broken = list(faults(of(room)))
        if not every:
            say("".join(f"{one}\n" for one in broken))
        say(f"== {room}: {len(of(room))} messages, {len(broken)} faults\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
