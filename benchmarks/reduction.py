"""What reduction saves and what it keeps, on recorded sessions and on the document's scenarios, beside other ways.

    LOOM_CORPUS=FOLDER python benchmarks/reduction.py [--json]

Run it with a Python that has the packages of `requirements-dev.lock` (an exact tokenizer, o200k_base). FOLDER holds
`transcripts/claude-code/*.jsonl`, `transcripts/swe-agent/*.traj` and `transcripts/aider/*.md` (`fetch_recordings.py`
fetches these); several folders are joined as in PATH. Without any, only the scenarios are measured.

Columns: what of the tool calls' tokens is saved, arguments and results, for a history tells both; the same of the
results' tokens alone, against which the telling of the call counts too; the first minus what must be read again for
what is needed later and not visible (what a search of the original shows, ten lines around each find; all of it where
only the command could be run again); error lines that are kept, by labels made by hand (`error_lines.json`, which holds
their hashes); paths and identifiers that later calls use and that came from results, as far as they are visible, and
reachable (what is told in braces is there); anchors (the old text of later edits) that stand verbatim; bytes of
originals that come back; references to nothing; milliseconds a call takes to reduce. "Kept aside" are the recordings
that no rule was tuned on.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import aider_history  # noqa: E402
from loomctl.kit.errors import LoomError  # noqa: E402
from loomctl.reduction import history  # noqa: E402
from loomctl.runs.tools.reducer import StepReducer  # noqa: E402
from loomctl.runs.tools.tool_log import DataOffloader  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import bpe_openai

LABELS = Path(__file__).with_name("error_lines.json")
# Where the rules were tuned; everything else is kept aside.
TUNED = {
    "ccl-fe869ecb.jsonl",
    "ccviewer-5c0375b4.jsonl",
    "claude_p-2b4ed4c0-errors.jsonl",
    "coderabbit-agent-db734024-web.jsonl",
    "compacted-4b7d5121b42a.jsonl",
    "worktrees-ef958aa1.jsonl",
    *(f"aider-2024-08-{day:02}.md" for day in range(6, 12)),
}
BARS = {"saved": 0.80, "net": 0.75, "errors": 0.95, "paths": 0.95, "names": 0.80, "reachable": 1.0, "recovered": 1.0}
SCENARIO_BARS = {"5 file reads of 2 KB": 0.92, "10 web searches": 0.94, "20 steps": 0.90}

# Deliberately other patterns than the reducer's.
PATH = re.compile(r"(?:[\w.-]*/)+[\w.-]+|\b[\w-]+\.(?:py|js|ts|tsx|go|md|json|ya?ml|toml|rs|sh|html|css|txt)\b")
NAME = re.compile(r"\b(?:[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w*|\w+_\w+|[0-9a-f]{7,40})\b")
_BRACES = re.compile(r"([^\s{},]*)\{([^\s{}]+)\}([^\s{},]*)")
NOT_LOOKED_FOR_IN = ("content", "new_string", "edits", "prompt", "message", "description")


@dataclass
class Call:
    """A tool call as it was recorded. seen: the text that the model got."""

    id: str
    tool: str
    args: Any
    result: Any
    seen: str
    failed: bool


@dataclass
class Told:
    """A history: the text that each call came to, and which calls' originals can still be read."""

    texts: list[str]
    reachable: list[bool]


@dataclass
class Sums:
    """What is counted over recordings."""

    before: int = 0  # tokens of arguments and results
    after: int = 0  # of what a history says of them
    results: int = 0  # of results alone
    told: int = 0  # of the texts that stand for them
    again: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, hit: int, of: int) -> None:
        """Count hits of so many."""
        pair = self.counts.setdefault(name, [0, 0])
        pair[0] += hit
        pair[1] += of

    def share(self, name: str) -> float | None:
        """Give what was hit of all, None where there was nothing to hit."""
        hit, of = self.counts.get(name, (0, 0))
        return hit / of if of else None


def main() -> int:
    """Measure and print the tables; the exit code is 1 where Loom's own row misses a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="loom-bench-"))
    try:
        scenarios = _scenarios(base)
        tables = {}
        every = list(recordings())
        for title, chosen in (
            ("tuned on", [r for r in every if r[0] in TUNED]),
            ("kept aside", [r for r in every if r[0] not in TUNED]),
        ):
            if chosen:
                tables[title] = {name: _measured(name, chosen, base) for name in WAYS}
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if options.json:
        print(
            json.dumps(
                {
                    "scenarios": scenarios,
                    "recordings": {k: {n: _row(s) for n, s in t.items()} for k, t in tables.items()},
                }
            )
        )
    else:
        _print(scenarios, tables)
    over = [name for name, (_, _, saved) in scenarios.items() if saved < SCENARIO_BARS[name]]
    for table in tables.values():
        row = _row(table["Loom"])
        over += [name for name, bar in BARS.items() if (value := row[name]) is not None and value < bar]
        over += ["dangling"] * bool(row["dangling"])
    return 1 if over else 0


# ---- Tokens.

_encodings: list[bpe_openai.Encoding] = []


def tokens(text: str) -> int:
    """Count exactly, as o200k_base does."""
    if not _encodings:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import bpe_openai

            _encodings.append(bpe_openai.get_encoding("o200k_base"))
    return len(_encodings[0].encode_ordinary(text))


# ---- Recordings.


def recordings() -> Iterator[tuple[str, list[Call]]]:
    """Give the name and the calls of each recording."""
    for corpus in filter(None, os.environ.get("LOOM_CORPUS", "").split(os.pathsep)):
        folder = Path(corpus) / "transcripts"
        for path in sorted(folder.glob("claude-code/*.jsonl")):
            yield path.name, list(_claude_calls(path))
        for path in sorted(folder.glob("swe-agent/*.traj")):
            yield path.name, list(_swe_calls(path))
        for path in sorted(folder.glob("aider/*.md")):
            yield path.name, list(_aider_calls(path))


def _aider_calls(path: Path) -> Iterator[Call]:
    for call in aider_history.calls(path.read_text(encoding="utf-8")):
        result = {"stdout": call.text, "stderr": ""} if call.tool == "Bash" else call.text
        yield Call(call.id, call.tool, call.args, result, call.text, call.failed)


def _claude_calls(path: Path) -> Iterator[Call]:
    used: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        message = entry.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if block.get("type") == "tool_use":
                used[block["id"]] = block
            call = used.get(block.get("tool_use_id", "")) if block.get("type") == "tool_result" else None
            if call is not None:
                content = block.get("content") or ""
                seen = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
                failed = bool(block.get("is_error"))
                result = entry.get("toolUseResult")
                yield Call(
                    call["id"],
                    call["name"],
                    call["input"],
                    result if isinstance(result, dict) and not failed else seen,
                    seen,
                    failed,
                )


def _swe_calls(path: Path) -> Iterator[Call]:
    for number, step in enumerate(json.loads(path.read_text(encoding="utf-8"))["trajectory"]):
        output = str(step["observation"])
        yield Call(
            str(number), "system:shell", {"command": step["action"]}, {"stdout": output, "stderr": ""}, output, False
        )


# ---- Ways to keep a history. Each gives, for the calls so far, the text of each and whether it can be read again.


def _loom(calls: list[Call], base: Path, sums: Sums) -> Callable[[int], Told]:
    folder = tempfile.mkdtemp(dir=base)
    reducer = StepReducer(DataOffloader(folder))
    texts = []
    for call in calls:
        began = time.perf_counter()
        result, error = (None, call.seen) if call.failed else (call.result, "")
        step = reducer.reduce(call.tool, call.args, result, step_id=call.id, error=error)
        sums.add("microseconds", int((time.perf_counter() - began) * 1e6), 1)
        texts.append(history.full(step))
        reopened = StepReducer(DataOffloader(folder))  # as another process would
        try:
            args, back = reopened.original(step)
            whole = back == (call.seen if call.failed else call.result)
            whole = whole and (args == call.args or "content" in call.args)
        except (LoomError, ValueError):
            sums.add("dangling", 1, 1)
            whole = False
        size = len(json.dumps(call.result))
        sums.add("recovered", size if whole else 0, size)
    return lambda upto: Told(texts[:upto], [True] * upto)


def _document(calls: list[Call], base: Path, sums: Sums) -> Callable[[int], Told]:  # noqa: ARG001 - one shape for all
    texts, reachable = [], []
    for call in calls:
        size = len(call.seen)
        path = str((call.args or {}).get("file_path") or (call.args or {}).get("path") or "")
        large = size > 500
        if call.tool == "Read":
            kind = "JSON" if path.endswith(".json") else "text"
            text, large = f"Read {path} ({size} bytes, {kind})", size > 1024
        elif call.tool in ("Write", "Edit", "MultiEdit", "NotebookEdit"):
            text = f"Wrote {path}"
        elif call.tool in ("Glob", "LS"):
            text = f"Listed {path}: {call.seen.count(chr(10)) + 1} items"
        elif call.tool == "WebSearch":
            text, large = f"Found results for '{call.args.get('query')}'", True
        elif call.tool == "WebFetch":
            text, large = f"Visited {call.args.get('url')} ({size // 1024}KB text)", True
        elif call.tool in ("Bash", "system:shell"):
            command = str(call.args.get("command", ""))
            text = f"{command[:80]}: exit {1 if call.failed else 0}, {call.seen.count(chr(10)) + 1} lines output"
            text += f"\n{call.seen[:200]}" if call.failed else ""
        else:
            text = f"{call.tool}: {size} bytes"
        texts.append(text if large or call.tool in ("Write", "Edit", "MultiEdit") else f"{text}\n{call.seen}")
        reachable.append(large)
    return lambda upto: Told(texts[:upto], reachable[:upto])


def _masked_but_ten(calls: list[Call], base: Path, sums: Sums) -> Callable[[int], Told]:  # noqa: ARG001
    def told(upto: int) -> Told:
        shown = range(max(0, upto - 10), upto)
        texts = [calls[n].seen if n in shown else "[output masked]" for n in range(upto)]
        return Told(texts, [False] * upto)

    return told


def _last_five(calls: list[Call], base: Path, sums: Sums) -> Callable[[int], Told]:  # noqa: ARG001
    return lambda upto: Told([calls[n].seen if n >= upto - 5 else "" for n in range(upto)], [False] * upto)


def _head_and_tail(calls: list[Call], base: Path, sums: Sums) -> Callable[[int], Told]:  # noqa: ARG001
    texts = [c.seen if len(c.seen) <= 1000 else f"{c.seen[:500]}\n…\n{c.seen[-500:]}" for c in calls]
    return lambda upto: Told(texts[:upto], [False] * upto)


WAYS: dict[str, Callable[[list[Call], Path, Sums], Callable[[int], Told]]] = {
    "Loom": _loom,
    "the document's rules": _document,
    "all but the last 10 masked": _masked_but_ten,
    "the last 5 alone": _last_five,
    "head and tail, 500 each": _head_and_tail,
}
# Ways whose text says what was called; the others keep the arguments beside it as they are.
TELL_THE_CALL = ("Loom", "the document's rules")


# ---- What is measured.


def _measured(name_of: str, recordings: list[tuple[str, list[Call]]], base: Path) -> Sums:
    sums, way = Sums(), WAYS[name_of]
    for name, calls in recordings:
        told_upto = way(calls, base, sums)
        final = told_upto(len(calls))
        given = sum(tokens(json.dumps(call.args, ensure_ascii=False)) for call in calls)
        results = sum(tokens(call.seen) for call in calls)
        told = sum(tokens(text) for text in final.texts)
        sums.results += results
        sums.told += told
        sums.before += given + results
        sums.after += told + (0 if name_of in TELL_THE_CALL else given)
        _count_errors(sums, name, calls, final)
        _count_needs(sums, calls, told_upto)
    return sums


def _count_errors(sums: Sums, name: str, calls: list[Call], final: Told) -> None:
    labels = json.loads(LABELS.read_text(encoding="utf-8")).get(name, {})
    for call, text in zip(calls, final.texts, strict=True):
        wanted = set(labels.get(call.id, ()))
        lines = {line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", call.seen).splitlines()}
        for line in sorted(line for line in lines if hashlib.sha256(line.encode()).hexdigest() in wanted):
            sums.add("errors", any(form[:200] in text for form in _forms(line)), 1)


def _forms(line: str) -> list[str]:
    """Give the forms in which a line counts as kept: whole, without what a runner put before it, from its file on."""
    bare = line.rpartition("| ")[2].strip()
    place = re.match(r"\S*/(\S+:\d+.*)", bare)
    return [line, bare, *([place[1]] if place else [])]


def _count_needs(sums: Sums, calls: list[Call], told_upto: Callable[[int], Told]) -> None:
    """Look at each call for what it uses that a result before it brought up first."""
    originals = asked = ""
    again: dict[int, set[str]] = {}
    whole: set[int] = set()
    for number, call in enumerate(calls):
        told = told_upto(number)
        text = "\n".join(map(unfolded, told.texts))
        args = call.args if isinstance(call.args, dict) else {}
        used = words({key: value for key, value in args.items() if key not in NOT_LOOKED_FOR_IN})
        for kind, pattern in (("paths", PATH), ("names", NAME)):
            for need in {found for found in pattern.findall(used) if len(found) > 3 and not found.startswith("//")}:
                if need not in originals or need in asked:
                    continue
                sums.add(kind, need in text, 1)
                where = [n for n in range(number) if need in calls[n].seen]
                sums.add("reachable", need in text or any(told.reachable[n] for n in where), 1)
                if need not in text and told.reachable[where[-1]]:
                    again.setdefault(where[-1], set()).update(_around(calls[where[-1]].seen, need))
                elif need not in text:
                    whole.add(where[-1])
        old = args.get("old_string")
        if isinstance(old, str) and old in originals:
            sums.add("anchors", old in text, 1)
        originals += call.seen + "\n"
        asked += words(args) + "\n"
    sums.again += sum(tokens("\n".join(lines)) for n, lines in again.items() if n not in whole)
    sums.again += sum(tokens(calls[n].seen) for n in whole)


@functools.cache
def unfolded(text: str) -> str:
    """Give a text with what it tells in braces behind it one by one: `src/{a.py,b.py}`, `part_{1..9}`."""
    found = []
    for before, inner, after in _BRACES.findall(text):
        first, dots, last = inner.partition("..")
        if dots and first.isdigit() and last.isdigit():
            names = [f"{number:0{len(first)}}" for number in range(int(first), min(int(last), int(first) + 10_000) + 1)]
        else:
            names = inner.split(",")
        found += [f"{before}{name}{after}" for name in names]
    return "\n".join([text, *found])


def words(value: Any) -> str:
    """Give the texts in a value as they read: behind an escape of JSON a name seems to begin with its letter."""
    if isinstance(value, dict):
        return "\n".join(f"{key}\n{words(inner)}" for key, inner in value.items())
    return "\n".join(map(words, value)) if isinstance(value, list) else str(value)


def _around(text: str, need: str) -> Iterator[str]:
    """Give the lines that a search of the original for it shows, with ten around each."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if need in line:
            yield from lines[max(0, number - 10) : number + 11]


def _row(sums: Sums) -> dict[str, float | None]:
    spent, calls = sums.counts.get("microseconds", (0, 0))
    return {
        "saved": 1 - sums.after / sums.before,
        "results": 1 - sums.told / sums.results,
        "net": 1 - (sums.after + sums.again) / sums.before,
        **{name: sums.share(name) for name in ("errors", "paths", "names", "reachable", "anchors", "recovered")},
        "dangling": float(sums.counts.get("dangling", (0, 0))[0]) if calls else None,
        "ms": spent / calls / 1000 if calls else None,
    }


# ---- The document's scenarios.

_PROSE = (
    "The live price of Bitcoin is shown here with charts, market data and the opinion of several analysts about what "
    "the coming months may bring to those who hold it."
)


def _scenarios(base: Path) -> dict[str, tuple[int, int, float]]:
    """Give for each scenario the tokens before and after, and the share that is saved."""
    code = "\n\n\n".join(
        f'def load_{n}(path):\n    """Read the settings of part {n}."""\n    with open(path) as source:\n'
        "        return json.load(source)"
        for n in range(16)
    )
    reads: list[tuple[str, Any, Any]] = [
        ("fs:read_file", {"path": f"src/module_{n}.py"}, {"content": code[n : n + 2048]}) for n in range(5)
    ]
    searches = [
        ("web:search", {"query": f"Bitcoin price {n}", "count": 10}, {"results": _results(n)}) for n in range(10)
    ]
    mixed: list[tuple[str, Any, Any]] = []
    for n in range(5):
        mixed += [
            ("fs:read_file", {"path": f"src/module_{n}.py"}, {"content": code[:1600]}),
            (
                "system:shell",
                {"command": "pytest", "args": ["-q"]},
                {"stdout": _tests(n), "stderr": "", "exit_code": 0},
            ),
            (
                "browser:navigate",
                {"url": f"https://example.com/{n}"},
                {"status": 200, "text": _PROSE * 15, "links": []},
            ),
            ("fs:write_file", {"path": f"out/{n}.md", "content": _PROSE * 4}, {"success": True, "bytes": 600}),
        ]
    found = {}
    everything: list[list[tuple[str, Any, Any]]] = [reads, searches, mixed]
    for name, calls in zip(SCENARIO_BARS, everything, strict=True):
        reducer = StepReducer(DataOffloader(tempfile.mkdtemp(dir=base)))
        steps = [reducer.reduce(*call) for call in calls]
        before = sum(tokens(json.dumps(args)) + tokens(json.dumps(result)) for _, args, result in calls)
        text = history.compact_history(steps) if len(steps) > 10 else "\n".join(history.full(step) for step in steps)
        found[name] = (before, tokens(text), 1 - tokens(text) / before)
    return found


def _results(number: int) -> list[dict[str, str]]:
    return [
        {"title": f"Bitcoin Price Today {n}", "url": f"https://example.com/{number}/{n}/btc", "snippet": _PROSE}
        for n in range(10)
    ]


def _tests(number: int) -> str:
    return "\n".join(f"tests/test_{number}.py::test_case_{n} PASSED" for n in range(40)) + "\n40 passed in 0.31s\n"


# ---- Telling.


def _print(scenarios: dict[str, tuple[int, int, float]], tables: dict[str, dict[str, Sums]]) -> None:
    for name, (before, after, saved) in scenarios.items():
        print(f"{name:<24} {before:>6} -> {after:>5} tokens   {saved:6.1%}   at least {SCENARIO_BARS[name]:.0%}")
    heads = (
        "saved",
        "results",
        "net",
        "errors",
        "paths",
        "names",
        "reachable",
        "anchors",
        "recovered",
        "dangling",
        "ms",
    )
    for title, table in tables.items():
        print(f"\n{title:<28}" + "".join(f"{head:>10}" for head in heads))
        for name, sums in table.items():
            row = _row(sums)
            cells = [_cell(head, row[head]) for head in heads]
            print(f"{name:<28}" + "".join(f"{cell:>10}" for cell in cells))
        counts = table["Loom"].counts
        told = ", ".join(
            f"{name} {counts[name][1]}" for name in ("errors", "paths", "names", "anchors") if name in counts
        )
        loom = table["Loom"]
        print(f"  {loom.before:,} tokens, {loom.results:,} of them of results; {told}")
    if tables:
        print("at least" + " " * 20 + "".join(f"{BARS[h]:>10.0%}" if h in BARS else f"{'':>10}" for h in heads))


def _cell(head: str, value: float | None) -> str:
    if value is None:
        return "-"
    return {"ms": f"{value:.1f}", "dangling": f"{value:.0f}"}.get(head, f"{value:.1%}")


if __name__ == "__main__":
    sys.exit(main())
