"""How large the house is and how it hangs together: lines, modules, folders, the largest knot of imports, docs.

Run it with any Python 3.10 or later: `python benchmarks/house.py [--json] [--knots]`. Every import counts, those inside
functions and those for a type checker alone too. A knot is a set of modules each of which reaches every other one by
imports. Counts do not depend on the machine.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.stand import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONG = 60
"""Lines from which on a function is listed as long."""


class House(NamedTuple):
    """What was counted. docs: bytes of Markdown below `docs/`; knots: the modules of each knot, the largest first."""

    lines: int
    modules: int
    most_in_one_folder: int
    largest_knot: int
    long_functions: int
    lines_of_tests: int
    test_functions: int
    docs: int
    readme: int
    knots: list[list[str]]


def main() -> int:
    """Count and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--knots", action="store_true", help="name the modules of each knot")
    options = parser.parse_args()
    gc.disable()  # all trees stay to the end, and looking through them for what could go takes longer than the rest
    house = count(ROOT)
    if options.json:
        print(json.dumps(house._asdict(), indent=1))
        return 0
    print("| what | count |\n|---|---|")
    for name, value in house._asdict().items():
        if isinstance(value, int):
            print(f"| {name.replace('_', ' ')} | {value:,} |")
    for knot in house.knots if options.knots else ():
        print(f"\n{len(knot)} modules: {', '.join(knot)}")
    return 0


def count(root: Path) -> House:
    """Count what git tracks below a checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True)
    paths = [path for path in listed.stdout.split("\0") if path and (root / path).is_file()]
    texts = {path: (root / path).read_text(encoding="utf-8") for path in paths if path.endswith(".py")}
    trees = {path: ast.parse(text) for path, text in texts.items() if path.startswith(("loomctl/", "tests/"))}
    package = {_name(path): tree for path, tree in trees.items() if path.startswith("loomctl/")}
    folders = collections.Counter(str(Path(path).parent) for path in trees if path.startswith("loomctl/"))
    knots = sorted(knots_of({name: set(imports(name, tree, package)) for name, tree in package.items()}), key=len)
    tests = [name for path, tree in trees.items() if path.startswith("tests/") for name in _functions(tree)]
    return House(
        lines=sum(text.count("\n") for path, text in texts.items() if path.startswith("loomctl/")),
        modules=len(package),
        most_in_one_folder=max(folders.values()),
        largest_knot=max(map(len, knots), default=0),
        long_functions=sum(length > LONG for tree in package.values() for length in _functions(tree).values()),
        lines_of_tests=sum(text.count("\n") for path, text in texts.items() if path.startswith("tests/")),
        test_functions=sum(name.startswith("test_") for name in tests),
        docs=sum((root / path).stat().st_size for path in paths if path.startswith("docs/") and path.endswith(".md")),
        readme=(root / "README.md").stat().st_size,
        knots=[sorted(knot) for knot in reversed(knots)],
    )


def _name(path: str) -> str:
    return path[: -len(".py")].replace("/", ".").removesuffix(".__init__")


def _functions(tree: ast.Module) -> dict[str, int]:
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {f"{node.name}:{node.lineno}": (node.end_lineno or node.lineno) - node.lineno for node in found}


def imports(name: str, tree: ast.Module, modules: Mapping[str, object]) -> Iterator[str]:
    """Give the modules, of those named, that a module imports anywhere in it, itself apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [one if one in modules else node.module for one in whole]
        else:
            continue
        yield from (target for target in targets if target in modules and target != name)


def knots_of(imported: Mapping[str, set[str]]) -> list[list[str]]:
    """Give the sets of two or more modules that reach one another, by Tarjan's algorithm without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    knots: list[list[str]] = []

    def enter(node: str) -> tuple[str, Iterator[str]]:
        index[node] = low[node] = len(index)
        stack.append(node)
        waiting.add(node)
        return node, iter(sorted(imported[node]))

    for first in sorted(imported):
        path = [enter(first)] if first not in index else []
        while path:
            node, rest = path[-1]
            target = next(rest, None)
            if target is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    knot = _taken(stack, node)
                    waiting.difference_update(knot)
                    knots += [knot] if len(knot) > 1 else []
            elif target not in index:
                path.append(enter(target))
            elif target in waiting:
                low[node] = min(low[node], index[target])
    return knots


def _taken(stack: list[str], node: str) -> list[str]:
    at = stack.index(node)
    taken = stack[at:]
    del stack[at:]
    return taken


if __name__ == "__main__":
    raise SystemExit(main())
