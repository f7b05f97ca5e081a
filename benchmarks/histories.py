"""What a history of 500 tokens holds of what the next call uses, on recorded sessions.

    LOOM_CORPUS=FOLDER python benchmarks/histories.py [--tokens N] [--lost RECORDING]

The recordings are those of `reduction.py`. Before each call of a recording a history of the calls before it is made, as
after a compaction: nothing else of them is in view. A *need* is a path or an identifier in the call's arguments
(not in what it writes) that stood in a call's result or arguments before it. Each need of each call is one case:

- *first*: it stood in a result alone, and no call used it yet;
- *again*: a call used it already.

A need is held where the history says it, its braces expanded: `src/{cart,tax}.py` says two files. *Written out* counts
what stands there without that. *Ceiling* is what the reduced records hold that a history is made from. The document's
rules are those of context-reduction.md: the last three steps full, beside the budget, a line for each other, else their
count. Tokens are told of histories whose records have more than the budget.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import reduction
from benchmarks.reduction import TUNED, Call, tokens
from loomctl.reduction import history
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.reduction.tool_steps import ToolStep

# Drawn by lot before the rules of histories were written: of the other half of TUNED who wrote them saw the sums alone.
LOOKED_AT = {
    "aider-2024-08-08.md",
    "aider-2024-08-09.md",
    "aider-2024-08-10.md",
    "ccviewer-5c0375b4.jsonl",
    "claude_p-2b4ed4c0-errors.jsonl",
    "coderabbit-agent-db734024-web.jsonl",
}
KINDS = ("paths", "identifiers")


@dataclass
class Score:
    """What the histories of a set of recordings held. counts: hits and cases by kind, use and way."""

    counts: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    used: list[int] = field(default_factory=list)  # tokens of each history whose records do not fit whole
    lost: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, use: str, way: str, *, hit: bool) -> None:
        """Count a case."""
        for name in (use, "all"):
            pair = self.counts.setdefault((kind, name, way), [0, 0])
            pair[0] += hit
            pair[1] += 1


def needs(call: Call, before: str, asked: str) -> Iterator[tuple[str, str, str]]:
    """Give kind, use and text of all that a call uses and that stood before it. before: results; asked: arguments."""
    args = call.args if isinstance(call.args, dict) else {}
    used = values({key: value for key, value in args.items() if key not in reduction.NOT_LOOKED_FOR_IN})
    for kind, pattern in zip(KINDS, (reduction.PATH, reduction.NAME), strict=True):
        for need in sorted({found for found in pattern.findall(used) if len(found) > 3 and found[:2] != "//"}):
            if need in asked:
                yield kind, "again", need
            elif need in before:
                yield kind, "first", need


def values(given: object) -> str:
    """Give the texts in arguments without their keys, which no history has to tell."""
    if isinstance(given, dict):
        return "\n".join(map(values, given.values()))
    return "\n".join(map(values, given)) if isinstance(given, list) else str(given)


def by_the_document(steps: list[ToolStep], budget: int) -> str:
    """Compact a history by the document's own algorithm."""
    recent = "\n".join(history.full(step) for step in steps[-3:])
    earlier = "Earlier steps:\n" + "\n".join(f"• {history.line(step)}" for step in steps[:-3])
    if tokens(earlier) > budget:
        earlier = f"Earlier: {len(steps) - 3} steps completed"
    return recent if len(steps) <= 3 else f"{earlier}\n\n{recent}"


def score(recordings: list[tuple[str, list[Call]]], budget: int) -> Score:
    """Make each history of each recording, and look for what the next call uses."""
    found = Score()
    for name, calls in recordings:
        folder = tempfile.mkdtemp(prefix="loom-histories-")
        try:
            _score(found, name, calls, StepReducer(DataOffloader(folder)), budget)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _score(found: Score, name: str, calls: list[Call], reducer: StepReducer, budget: int) -> None:
    before = asked = records = ""
    steps: list[ToolStep] = []
    for number, call in enumerate(calls):
        wanted = list(needs(call, before, asked))
        if steps and wanted:
            text = history.compact_history(steps, budget, index="loomctl steps")
            if tokens(records) > budget:
                found.used.append(tokens(text))
            ways = {
                "Loom": reduction.unfolded(text), "written out": text, "document": by_the_document(steps, budget),
                "ceiling": reduction.unfolded(records),
            }  # fmt: skip
            for kind, use, need in wanted:
                for way, said in ways.items():
                    found.add(kind, use, way, hit=need in said)
                if need not in ways["Loom"]:
                    found.lost.setdefault(name, []).append(f"{number} {kind} {use} {need}")
        result, error = (None, call.seen) if call.failed else (call.result, "")
        steps.append(reducer.reduce(call.tool, call.args, result, step_id=call.id, error=error))
        records += history.full(steps[-1]) + "\n"
        before += call.seen + "\n"
        asked += values(call.args) + "\n"


def main() -> int:
    """Measure and print a table for each set of recordings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=history.BUDGET)
    parser.add_argument("--lost", metavar="RECORDING", help="say what no history of this recording held")
    options = parser.parse_args()
    recordings = list(reduction.recordings())
    if not recordings:
        print("no recordings: LOOM_CORPUS names no folder that has any")
    for title, chosen in (
        ("looked at", [one for one in recordings if one[0] in LOOKED_AT]),
        ("scored alone", [one for one in recordings if one[0] in TUNED - LOOKED_AT]),
        ("kept aside", [one for one in recordings if one[0] not in TUNED]),
    ):
        if chosen:
            _print(title, found := score(chosen, options.tokens))
            print("\n".join(found.lost.get(options.lost or "", ())))
    return 0


def _print(title: str, found: Score) -> None:
    ways = ("Loom", "written out", "document", "ceiling")
    median = f"{statistics.median(found.used):.0f}" if found.used else "-"
    print(f"{title}: {len(found.used)} histories whose records are larger, {median} tokens in the middle")
    print(f"{'':<22}{'n':>6}" + "".join(f"{way:>13}" for way in ways))
    for kind in KINDS:
        for use in ("all", "first", "again"):
            pairs = [found.counts.get((kind, use, way), [0, 0]) for way in ways]
            cells = [f"{hit / of:.1%}" if of else "-" for hit, of in pairs]
            print(f"{kind + ', ' + use:<22}{pairs[0][1]:>6}" + "".join(f"{cell:>13}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
