"""Run Loom's reducer over the zoo of failures: which lines that matter it keeps, and what it saves.

    python benchmarks/failures/score.py [--tuned | --reveal] [--lost] [TOOL ...]

Run it with a Python that has the packages of `requirements-dev.lock` (an exact tokenizer). Each recording goes through
the reducer as the result of a Bash call with its exit code. A line that matters counts as kept if it stands in what is
left, up to its first 200 characters, or if one line there carries all that was planted in it: file, line, words. Saved
is told of outputs over 1,000 tokens: of their tokens together, which the outputs of 2 MB rule, and as the mean of the
outputs' shares. Beside it stands plain head and tail with as many characters as Loom used.

Of the tools that were kept aside only totals are shown, so that who writes rules does not see them; `--reveal` shows
all, and `--tuned` leaves their recordings unread. `--lost` lists the lines that were lost.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.failures import zoo  # noqa: E402
from benchmarks.reduction import tokens  # noqa: E402
from loomctl.reduction import history  # noqa: E402
from loomctl.runs.tools.reducer import StepReducer  # noqa: E402
from loomctl.runs.tools.tool_log import DataOffloader  # noqa: E402

LARGE = 1000  # tokens
PIECE = 100_000  # characters
SHORT = 8  # characters; a line as short as this one has to stand alone
BARS = {"tuned on": 0.97, "kept aside": 0.93}
SAVED_BAR = 0.80
_ROW = "{:<14}{:>7}{:>8}{:>8}{:>12}{:>13}{:>9}{:>8}{:>8}"


@dataclass
class Score:
    """Sums over cases: lines that matter and those kept, tokens of large outputs before and after."""

    must: int = 0
    loom: int = 0
    plain: int = 0
    cases: int = 0
    large: int = 0
    before: int = 0
    after: int = 0
    shares: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def add(self, other: Score) -> None:
        """Add another's sums."""
        for name in ("must", "loom", "plain", "cases", "large", "before", "after"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lost += other.lost
        self.shares += other.shares


def main() -> int:
    """Score both halves; the exit code is 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", metavar="TOOL")
    parser.add_argument("--reveal", action="store_true", help="show the tools that were kept aside, too")
    parser.add_argument("--tuned", action="store_true", help="only the tools that rules are tuned on")
    parser.add_argument("--lost", action="store_true", help="list the lines that were lost")
    options = parser.parse_args()
    aside, halves = zoo.aside(), {name: Score() for name in BARS}
    base = tempfile.mkdtemp(prefix="loom-zoo-")
    print(_ROW.format("", "matter", "Loom", "plain", "outputs", "tokens", "left", "saved", "each"))
    try:
        for name in options.tools or [name for name in zoo.names() if not (options.tuned and name in aside)]:
            if name in aside and options.tools and (options.tuned or not options.reveal):
                parser.error(f"{name} is kept aside; --reveal shows it")
            recording = zoo.load(name)
            if recording is None:
                print(f"{name:<14} has no recording")
                continue
            score = _of_tool(recording, base)
            halves["kept aside" if name in aside else "tuned on"].add(score)
            if name not in aside or options.reveal:
                _print(name, score, lost=options.lost)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    for title, score in halves.items():
        if score.cases:
            _print(title, score, lost=False)
    over = [s for title, s in halves.items() if s.must and (s.loom / s.must < BARS[title] or _saved(s) < SAVED_BAR)]
    print(f"goals: kept {BARS['tuned on']:.0%} · {BARS['kept aside']:.0%}, saved {SAVED_BAR:.0%}")
    return 1 if over else 0


def _of_tool(recording: dict[str, Any], base: str) -> Score:
    score = Score()
    for case in recording["cases"]:
        score.add(_of_case(f"{recording['tool']}/{case['kind']}", case, base))
    return score


def _of_case(title: str, case: dict[str, Any], base: str) -> Score:
    output, code = case["output"], case["exit"]
    text = reduced(case, base)
    lines = [zoo.ANSI.sub("", line) for line in output.split("\n")]
    plain = _head_and_tail(output, len(text))
    score = Score(must=len(case["must"]), cases=1)
    for wanted, kept in ((text, "loom"), (plain, "plain")):
        there = [_squeezed(line) for line in wanted.split("\n")]
        for index, needs in case["must"]:
            hit = any(_stands(_squeezed(lines[index]), line) or zoo.carries(line, needs) for line in there)
            setattr(score, kept, getattr(score, kept) + hit)
            if not hit and kept == "loom":
                score.lost.append(f"{title} (exit {code}) {index + 1}: {lines[index].strip()[:150]}")
    before = _tokens(output)
    if before > LARGE:
        score.large, score.before, score.after = 1, before, _tokens(text)
        score.shares.append(_saved(score))
    return score


def reduced(case: dict[str, Any], base: str) -> str:
    """Return what Loom leaves of a recording: a Bash call as an assistant's host tells it."""
    reducer = StepReducer(DataOffloader(tempfile.mkdtemp(dir=base)))
    arguments, output = {"command": case["command"]}, case["output"]
    if case["exit"]:
        return history.full(reducer.reduce("Bash", arguments, None, error=f"Exit code {case['exit']}\n{output}"))
    return history.full(reducer.reduce("Bash", arguments, {"stdout": output, "stderr": "", "interrupted": False}))


def _tokens(text: str) -> int:
    """Count in pieces: the tokenizer refuses a text of megabytes."""
    return sum(tokens(text[at : at + PIECE]) for at in range(0, len(text), PIECE))


def _head_and_tail(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size // 2]}\n{text[-(size // 2) :]}"


def _stands(wanted: str, line: str) -> bool:
    return wanted[:200] in line if len(wanted) > SHORT else wanted == line


def _squeezed(line: str) -> str:
    return " ".join(zoo.ANSI.sub("", line).split())


def _saved(score: Score) -> float:
    return 1 - score.after / score.before if score.before else 1.0


def _print(title: str, score: Score, *, lost: bool) -> None:
    kept, plain = (f"{part / score.must:.1%}" if score.must else "-" for part in (score.loom, score.plain))
    saved = f"{_saved(score):.1%}" if score.large else "-"
    each = f"{sum(score.shares) / score.large:.1%}" if score.large else "-"
    outputs, before, after = f"{score.large} of {score.cases}", f"{score.before:,}", f"{score.after:,}"
    print(_ROW.format(title, score.must, kept, plain, outputs, before, after, saved, each), flush=True)
    if lost:
        print(*(f"    {line}" for line in score.lost), sep="\n", end="\n" if score.lost else "")


if __name__ == "__main__":
    sys.exit(main())
