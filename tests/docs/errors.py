"""Every error, finding and warning that Loom's source can say, found by reading it."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from loomctl.cli import main
from loomctl.kit import errors as exits
from tests.docs.messages import assigned_by, of_launcher
from tests.helpers.scenes import CHECKOUT

CODE = re.compile(r"[A-Z]{2,}(_[A-Z0-9]+)*")
EXITS: dict[str, int] = {name: value for name, value in vars(exits).items() if name.startswith("EXIT_")}
ENDS, ERROR, WARNING, NOTE, NOTICE = "ends", "error", "warning", "note", "notice"
# Who says a code as the first argument, and which argument is its words.
_SAYERS = {
    **dict.fromkeys(("error", "fail", "_fail", "_FoldingError"), (ERROR, 2)),
    **dict.fromkeys(("warning", "warn"), (WARNING, 2)),
    "note": (NOTE, 2),
}


class Said(NamedTuple):
    """One place that says a code.

    kind: `ends` a command, `error`, `warning` and `note` of `loomctl check`, `notice` beside a result; words: with `…`
    for what varies.
    """

    code: str
    kind: str
    exit_code: int
    words: str


@functools.cache
def said() -> list[Said]:
    found = {one for path in CHECKOUT.glob("loomctl/**/*.py") for one in in_module(path)}
    found |= {Said(code, ENDS, exits.EXIT_SETUP, words) for _, code, words in of_launcher()}
    return sorted(found)


def in_module(path: Path) -> Iterator[Said]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        assigned = sorted(assigned_in(function), key=lambda one: one[0])
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.args:
                if not (isinstance(node.args[0], ast.Name) or _code(node.args[0])):
                    continue  # most calls: what is known there need not be gathered
                known = _known(assigned, node)
                for code in _codes(node.args[0], known):
                    yield from _in_call(node, code, known)
            elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and _code(node.elts[0]):
                words = _words(node.elts[1], _known(assigned, node))
                if " " in words:
                    yield Said(_code(node.elts[0]), NOTICE, exits.EXIT_OK, words)


def _known(assigned: list[tuple[int, str, ast.expr]], node: ast.expr) -> dict[str, ast.expr]:
    """Give the values that names have where a node stands."""
    return {name: value for line, name, value in assigned if line <= node.lineno}


def assigned_in(function: ast.FunctionDef) -> Iterator[tuple[int, str, ast.expr]]:
    """Give what local names are assigned: the line, the name, the value."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from ((node.lineno, name, value) for name, value in assigned_by(node))


def _in_call(node: ast.Call, code: str, known: dict[str, ast.expr]) -> Iterator[Said]:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in ("LoomError", "__init__"):  # the latter of a class of its own
        words = _words(node.args[1], known) if len(node.args) > 1 else ""
        yield Said(code, ENDS, _exit(node), words)
    elif called in _SAYERS:
        kind, place = _SAYERS[called]
        words = _words(node.args[place], known) if len(node.args) > place else ""
        yield Said(code, kind, exits.EXIT_INVALID if kind == ERROR else exits.EXIT_OK, words)


def _codes(node: ast.expr, known: dict[str, ast.expr]) -> list[str]:
    """Read the codes that an argument may be: one, or those that its name was given on condition."""
    if isinstance(node, ast.Name) and isinstance(known.get(node.id), ast.IfExp):
        return [code for part in ast.iter_child_nodes(known[node.id]) if (code := _code(part))]
    return [code] if (code := _code(node)) else []


def _code(node: ast.AST) -> str:
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return text if CODE.fullmatch(text) else ""


def _exit(node: ast.Call) -> int:
    for keyword in node.keywords:
        if keyword.arg == "exit_code":
            assert isinstance(keyword.value, ast.Name), ast.unparse(node)
            return EXITS[keyword.value.id] if keyword.value.id in EXITS else int(getattr(main, keyword.value.id))
    return int(exits.EXIT_INVALID)


def _words(node: ast.expr, known: dict[str, ast.expr]) -> str:
    """Read a message as far as the source has it; what is known only at run time is `…`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
        return re.sub(r"(… ?)+", lambda match: "… " if match[0].endswith(" ") else "…", "".join(parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left, known) + _words(node.right, known)
    if isinstance(node, ast.IfExp):
        return " / ".join(words for words in (_words(node.body, known), _words(node.orelse, known)) if words)
    if isinstance(node, ast.Name) and node.id in known:
        return _words(known[node.id], {name: value for name, value in known.items() if name != node.id})
    return "…"
