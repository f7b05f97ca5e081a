"""What reads foreign text takes work that grows as the text does: counted in lines of Python, over units and sizes.

What C code does inside of one call (a search, a pattern) is not counted: `UNBOUNDED` looks at the patterns instead, and
`benchmarks/hostile.py` at whole hooks.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import loomctl
from loomctl.expressions import conditions, placeholders
from loomctl.flow import resume, turn_ends
from loomctl.flow.outcomes import directives, json_objects
from loomctl.hosts import tool_calls
from loomctl.hosts.protocol import transcript
from loomctl.kit import files, json_lines, strict
from loomctl.kit.text import fences, secrets
from loomctl.priming import artifact_files
from loomctl.reduction import calls, gist, history, hits, kinds, live, signal, tokens, tool_outputs
from loomctl.reduction.tool_steps import ToolStep
from loomctl.reduction.trouble import Rooms, trouble
from loomctl.runs.tools import recording
from loomctl.workflows import dot_conditions, dot_workflow, git_commands, graph_checks, survival

parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

SMALL, TIMES = 600, 4
LARGER = {"difference": 2_400, "excerpt": 2_400}  # beyond what is compared or looked at whole
GROWTH = 1.3  # times TIMES: what a constant part or a cut may add
FEW = 3_000  # lines of Python that nobody counts

UNITS = (
    *(":5432:", "\x1b[31m", "{", "[", '"', "\\", "- [ ] ", "`", "<", "$(", "-----BEGIN ", " ", "\n", "0", "a.b.", "@"),
    *("|", "a", "a/+", "{}", '{"a":', '{"outcome":1}', "```\n", "error: x\n", "a: ", "password=", "\r", "é", "\u200b"),
    *(
        *("http://a", "A", "a_", "a-", "{a}", "${a}", "; ", "'", "//", "/*", "!", "  x\n", " a/0.c\n"),
        "Traceback (most recent call last):\n",
    ),
    *("1:", "a.c:1: x\n", "1:x\n", "@@ -1 +1 @@\n+a\n", '\\"', "    └── a\n", "== a\n", "'a' != 'b'\n", "12 passed\n"),
)


def reduced(tool: str, shape: Callable[[str], object], *, failed: bool = False) -> Callable[[str], object]:
    return lambda text: calls.reduce_call(tool, {"command": text}, shape(text), error=text if failed else "")


def entries_of(text: str) -> list[dict[str, Any]]:
    """Give entries of a transcript, one behind the other, of which every eighth is a prompt on a branch of its own."""
    return [
        {"uuid": str(at), "parentUuid": str(at - 1 - at % 8), "type": "user", "message": {"content": sign}}
        for at, sign in enumerate(text)
    ]


def written(text: str) -> json_lines.JsonLines:
    """Give a file with a text, of which what was opened stays."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        return json_lines.JsonLines(file.name)


READERS: dict[str, Callable[[str], object]] = {
    "mask": secrets.mask,
    "reduce a shell's": reduced("Bash", lambda text: {"stdout": text, "stderr": text[::2]}),
    "reduce a failure": reduced("Bash", lambda _: None, failed=True),
    "reduce a listing": reduced("Glob", str),
    "reduce values": reduced("mcp__x__y", lambda text: [text[at : at + 8] for at in range(0, len(text), 8)]),
    "cut JSON": lambda text: recording.read_cut('{"a": ["' + text, text),
    "plain": signal.plain,
    "trouble": lambda text: trouble(f"error: x\n{text}", Rooms(1000, 1000, 50)),
    "hits": lambda text: hits.hit_lines(hits.hits_of(text), 300),
    "changes": lambda text: hits.changes(f"diff --git a/x b/x\n@@ -1 +1 @@\n{text}", 300),
    "gist": lambda text: gist.gist(text, 200),
    "facts": lambda text: gist.facts([{"id": text[at : at + 9]} for at in range(0, len(text), 9)], 200),
    "tree": signal.tree,
    "searches": lambda text: [
        tool_outputs.searched_for({"command": text}),
        tool_outputs.is_a_search({"command": text}),
    ],
    "paths": signal.paths,
    "names": signal.names,
    "kind": kinds.kind_of,
    "estimate": tokens.estimate,
    "at most": tokens.at_most,
    "looked at": tool_outputs.looked_at,
    "excerpt": live.excerpt,
    "main words": live.main_words,
    "visible": fences.visible,
    "fenced": fences.fenced,
    "objects in prose": lambda text: list(json_objects.objects(text)),
    "broken objects": json_objects.broken,
    "last object": directives.last_object,
    "questions": turn_ends.questions,
    "git command": git_commands.git_command_problem,
    "command judge": tool_calls.judge,
    "programs": resume.named_in,
    "placeholders": lambda text: placeholders.expand(text, {"a": "b"}),
    "shell text": lambda text: placeholders.expand_in_shell(text, {"a": "b"}),
    "survival": lambda text: survival.stands_in("what is wanted", survival.search_forms(text)),
    "difference": lambda text: artifact_files.diff_within(text, text[::-1], 1500),
    "columns": lambda text: fences.cut(text, 80),
    "bare words": graph_checks.bare_word,
    "condition": conditions.compile_condition,
    "DOT": lambda text: dot_workflow.convert("digraph {" + text, name="x"),
    "DOT condition": dot_conditions.compile_condition,
    "YAML": lambda text: strict.parse_yaml("a:\n  - " + text.replace("{", "(").replace("[", "("), max_depth=64),
    "a transcript": lambda text: list(transcript._on_the_line(entry for _, entry in written(text).back())),
    "a transcript's texts": lambda text: transcript.marks_in([text]),
    "strict JSON": lambda text: strict.parse_json(text, max_depth=64),
    "JSON": lambda text: files.parse_json(text.encode("utf-8", "replace"), where="x"),
    "a transcript's entries": lambda text: transcript._on_the_line(entries_of(text)),
    "history": lambda text: history.compact_history(
        [ToolStep("a", "Bash", {"command": text[:400]}, text, None, True)] * 8
    ),
}


def lines_of_python(work: Callable[[str], object], text: str) -> int:
    """Count the lines of Python that a call runs through; what it raises of its own is fine."""
    count = 0

    def trace(_frame: Any, event: str, _given: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work(text)
    except Exception:  # noqa: BLE001 - refused
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("name", READERS)
def test_work_grows_as_the_text_does(name: str) -> None:
    steep = []
    lines_of_python(READERS[name], "warm")
    for unit in UNITS:
        for end in ("", "!\n"):
            size = LARGER.get(name, SMALL)
            small, large = (
                lines_of_python(READERS[name], unit * (length // len(unit)) + end) for length in (size, size * TIMES)
            )
            if large > FEW and large > small * TIMES * GROWTH:
                steep.append((unit, end, small, large))
    assert steep == []


@pytest.mark.slow
def test_yaml_that_opens_without_end_has_a_bound() -> None:
    """The scanner looks ahead 1,024 signs for a key, over each level that is open; no further, however long it is."""
    counts = [
        lines_of_python(lambda text: strict.parse_yaml(text, max_depth=64), "{" * size) for size in (1_200, 4_800)
    ]
    assert counts[1] < counts[0] * GROWTH


def patterns() -> Iterator[tuple[str, str, int]]:
    """Give each pattern that a module of Loom's has compiled: its module and name, its text, its flags."""
    for found in pkgutil.walk_packages(loomctl.__path__, "loomctl."):
        if ".cli" in found.name or found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                yield f"{found.name}.{name}", value.pattern, value.flags & ~re.UNICODE


def is_unbounded(node: Any) -> bool:
    return str(node[0]) in ("MAX_REPEAT", "MIN_REPEAT") and node[1][1] is parser.MAXREPEAT


def inside(items: Any) -> Iterator[tuple[Any, Any]]:
    for node in items:
        yield node, items
        for part in node[1] if isinstance(node[1], (tuple, list)) else ():
            if isinstance(part, parser.SubPattern):
                yield from inside(part)
            elif isinstance(part, list):
                for one in part:
                    if isinstance(one, parser.SubPattern):
                        yield from inside(one)


def test_no_pattern_repeats_a_repeat_of_itself() -> None:
    """`(a+)+` takes time that doubles with each letter: what is repeated without end has another end than a repeat."""
    nested = []
    for name, pattern, flags in patterns():
        for node, _ in inside(parser.parse(pattern, flags)):
            if is_unbounded(node) and len(node[1][2]) == 1 and is_unbounded(node[1][2][0]):
                nested.append(name)
    assert nested == []
