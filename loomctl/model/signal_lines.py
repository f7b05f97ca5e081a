"""What of a tool's output the work may need later: its errors, its last word, its paths, its telling names (D49)."""

from __future__ import annotations

import re

from loomctl.model.fences import visible
from loomctl.model.tokens import estimate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_LINE = 240  # characters of a line that is quoted

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;:?<=>]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_]|[()][0-9A-B])"
)

# A line that tells of trouble: words that tools use for it, and the marks before a failed test.
_TROUBLE = re.compile(
    r"""
    \b(?: error | errors | err! | fail | fails | failed | failure | failures | failing | fatal | panic | panicked
        | exception | traceback | abort(?:ed|ing)? | segmentation | assert(?:ion)?s? | denied | refused | rejected
        | forbidden | unauthorized | undefined | unresolved | unexpected | invalid | illegal | missing | mismatch
        | conflict(?:s|ing)? | corrupt(?:ed)? | crash(?:ed)? | killed | timeout | timed[ ]out | expected
        | warn(?:ing)?s? | deprecated | blocked | overflow | unreachable | unable | unknown | unsupported
        | unused | incompatible | violat(?:es|ed|ion) | vulnerab\w+ | requires? | required | no[ ]such
        | not[ ](?:found|exist|installed|allowed|recognized|defined|permitted|supported|assignable|valid|known|granted)
        | does[ ]not | do[ ]not | is[ ]not
        | are[ ]not | was[ ]not | were[ ]not | ha(?:s|ve|d)[ ]not? | could[ ]not | can[ ]?not | can't | couldn't
        | doesn't | isn't | didn't | won't | haven't | wasn't | must | skipped | broken | bad | lost | nothing[ ]to
        | would | exit(?:ed|code)?[ ](?:code|status|with|\'?\d) | no[ ]\w+[ ]found | e\d{3,4} | ts\d{3,5} )\b
    | (?:^|[\s\[(])[✗✕✖\u00d7❌⚠✘●] | ^E\s{1,6}\S | ^not[ ]ok\b | ^-{3}[ ]FAIL | ^FAIL\b | ^FAILED\b | [A-Za-z]Error\b
    | [A-Za-z]Exception\b | npm[ ]ERR! | ^\s{0,12}\^+\s*$ | ^\s{0,12}at[ ]\S+[ ]\(\S+:\d+
    """,
    re.VERBOSE | re.IGNORECASE,
)
# What says that there is none.
# A line of a program, which names trouble and is none.
_CODE = re.compile(
    r"\s*(?:\d+[:|→-]\s*)?(?:(?:def|class|return|raise|if|elif|else|for|while|import|from|try|except|with|assert|const|let"
    r"|var|func|fn|type|export|package|use|pub|public|private|self)\b(?!:)|[@#*}\])]|//|/\*|\"\"\")|.*[{;(,]\s*$"
)
_NUMBERED = re.compile(r"\s*\d+[:|→\t]")
_GOOD = re.compile(
    r"\b(?:0|no|without|zero) (?:errors?|failures?|failed|warnings?|problems?|issues?|vulnerabilities)\b", re.IGNORECASE
)
# Trouble in the first degree: what is told if not everything can be.
_WORST = re.compile(
    r"\b(?:error|errors|fatal|panic|panicked|traceback|exception|fail|failed|failure|failures|denied|refused)\b"
    r"|[A-Za-z](?:Error|Exception)\b|^E\s{1,6}\S|✗|✕|✖|❌|npm ERR!|^not ok\b|exit code",
    re.IGNORECASE,
)
_PLACE = re.compile(r"(\S*[/\\.]\S*?):\d+[:,]")
# What differs between two that say the same: times, addresses, long numbers.
_CHANGING = re.compile(r"\b\d+(?:\.\d+)?(?:ms|s|m|us|µs)\b|0x[0-9a-f]+|\d\d:\d\d:\d\d\S*|\b\d{5,}\b")
_TEST_NAME = re.compile(
    r"^(?:FAILED|ERROR) \S+::|^--- FAIL: |^\s*(?:✕|✗|\u00d7) |^not ok \d+|^ *● .+ \u203a|^FAIL +\S+"
    r"|^test \S+ \.\.\. FAILED|^FAIL: \S+"
)
_SUMMARY = re.compile(
    r"\b\d+ (?:passed|failed|errors?|warnings?|problems?|tests?|files?|failing|passing|skipped|vulnerabilities"
    r"|packages?)\b"
    r"|^(?:Tests?|Test Suites|Ran|Found|Summary|Total|Result|Finished|Done|Compiled|Build)\b|^=+ .+ =+$|exit code \d",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?<![\w/.~@:-])(?:~/|\.{1,2}/|/)?(?:[\w.@+-]+/){1,14}[\w.@+-]*[\w+-](?:\.\w{1,8})?"
    r"|(?<![\w/.@:-])[\w@+-][\w.@+-]{0,80}\.(?:[a-z][a-z0-9]{0,5}|[A-Z]{1,4})(?![\w/(])"
    r"|(?<![\w/.~@:-])/[\w.@+-]{2,}"
)
_NAME = re.compile(
    r"\b(?:[a-z]+(?:[A-Z][a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Za-z][a-z0-9]*(?:_[A-Za-z0-9]+)+"
    r"|_+[a-z][a-z0-9_]+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[0-9a-f]{7,12}|[a-z0-9]+(?:-[a-z0-9]+)+)\b"
)
_DEFINED = re.compile(
    r"^[ \t+>0-9→:|]{0,16}(?:export |default |public |private |static |async |pub |abstract )*"
    r"(?:def|class|func(?: \([^)]*\))?|function|fn|type|interface|struct|enum|trait|module|const|impl)"
    r" +([A-Za-z_]\w{2,60})",
    re.MULTILINE,
)
_ADDRESS = re.compile(r"https?://[^\s\"'<>()\[\]{}|\\^`]{4,200}[^\s\"'<>()\[\]{}|\\^`.,;:!?]")


def plain(text: str) -> str:
    """Give the text as a terminal would have left it: no escapes, of a line that was written over its last form."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join([_left(line) for line in text.replace("\r\n", "\n").split("\n")])
    return visible(text)


def _left(line: str) -> str:
    return next((part for part in reversed(line.split("\r")) if part.strip()), "") if "\r" in line else line


def is_difference(text: str) -> bool:
    """Tell the output of a diff: what its lines say is content, and no trouble of the command's own."""
    return "\n@@ -" in text or text.startswith(("diff --git ", "@@ -"))


def changed_files(text: str) -> list[str]:
    """Give the files that a diff changes."""
    found = [line.partition(" b/")[2] for line in text.split("\n") if line.startswith("diff --git ")]
    found += [line[4:].split("\t")[0].removeprefix("b/") for line in text.split("\n") if line.startswith("+++ ")]
    return _once(path for path in found if path and path != "/dev/null")


def trouble(text: str, budget: float, minor: float) -> list[str]:
    """Give the lines that tell of trouble, as they stand, the worst of them if there is no room for all.

    budget: in estimated tokens; minor: what of it warnings and the like may have. Each is told once; what belongs to
    it and is indented below it follows. What a runner puts before every line is left out, and so are a file's folders
    where the line before has the same.
    """
    lines = _bare(text.split("\n"))
    numbered = [bool(_NUMBERED.match(line)) for line in lines]
    if 2 * sum(numbered) > len(lines):  # a listing of a file, whose lines are content
        lines = ["" if is_content else line for line, is_content in zip(lines, numbered, strict=True)]
    groups = sorted(_chosen(_groups(lines), budget, minor))
    found: list[str] = []
    before = ""
    for _, lines in groups:
        place = _PLACE.match(lines[0])
        if place and place[1] == before:
            found.append(lines[0][lines[0].rfind("/", 0, place.end(1)) + 1 :])
        else:
            found.append(lines[0])
        before = place[1] if place else before
        found += lines[1:]
    return found


def _bare(lines: list[str]) -> list[str]:
    """Leave out what a runner puts before each line of a job: `[CI/test] | `, `app-1  | `."""
    counts: dict[str, int] = {}
    for line in lines:
        mark = line.find("| ", 0, 48)
        if mark > 0:
            counts[line[: mark + 2]] = counts.get(line[: mark + 2], 0) + 1
    often = tuple(prefix for prefix, count in counts.items() if count > 3 and "/" in prefix + "/")
    return [line[line.find("| ") + 2 :] if line.startswith(often) else line for line in lines] if often else lines


def _groups(lines: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Give each different trouble: its degree (0 is the worst), its line's number, its lines."""
    seen: set[str] = set()
    skip = 0
    for number, line in enumerate(lines):
        quoted = line.strip()
        if number < skip or not quoted or not _tells(line[:2000]):
            continue
        indent = len(line) - len(line.lstrip())
        below = []
        for follower in lines[number + 1 : number + 4]:
            if (
                not follower.strip()
                or len(follower) - len(follower.lstrip()) <= indent
                or _PLACE.match(follower.strip())
            ):
                break
            below.append(_cut(follower.strip()))
        skip = number + 1 + len(below)
        shape = _CHANGING.sub("#", "\n".join((quoted, *below)))
        if shape not in seen:
            seen.add(shape)
            is_verdict = _TEST_NAME.search(line) or quoted[0] in "❌✗✕✖" or _SUMMARY.search(quoted[:200])
            degree = 2 if not _WORST.search(quoted[:400]) else 0 if is_verdict else 1
            yield degree, number, [_cut(quoted), *below]


def _tells(line: str) -> bool:
    return (
        bool(_TROUBLE.search(line))
        and not _CODE.match(line)
        and not (_GOOD.search(line) and not _TROUBLE.search(_GOOD.sub("", line)))
    )


def _chosen(
    groups: Iterable[tuple[int, int, list[str]]], budget: float, minor: float
) -> Iterator[tuple[int, list[str]]]:
    """Choose what there is room for: of errors the first lines, then what stands below them, then other trouble."""
    ranked = sorted(groups, key=lambda group: group[:2])
    errors = [group for group in ranked if group[0] < 2]
    chosen: dict[int, list[str]] = {}
    for degree, number, lines in (
        *((0, number, lines[:1]) for _, number, lines in errors),
        *errors,
        *ranked[len(errors) :],
    ):
        if degree == 2:
            budget = min(budget, minor)
        cost = sum(estimate(line) + 1 for line in lines[len(chosen.get(number, ())) :])
        if cost <= budget:
            budget -= cost
            chosen[number] = lines
    yield from chosen.items()


def summary(text: str) -> str:
    """Give the line that sums the output up, which is the last that looks so, else the last at all."""
    lines = [line.strip() for line in text.rstrip().split("\n")[-40:] if any(map(str.isalpha, line))]
    return _cut(next((line for line in reversed(lines) if _SUMMARY.search(line[:400])), lines[-1] if lines else ""))


def paths(text: str) -> list[str]:
    """Give the paths in a text, each once, in their order; what an address holds is none."""
    return _once(
        found.rstrip(".")
        for found in _PATH.findall(_ADDRESS.sub(" ", text))
        if len(found) > 3 and not _is_number(found)
    )


def addresses(text: str) -> list[str]:
    """Give the web addresses in a text, each once."""
    return _once(_ADDRESS.findall(text))


def names(text: str) -> list[str]:
    """Give the identifiers in a text that tell more than a word does: what it defines, then what it names often."""
    defined = _once(_DEFINED.findall(text))
    if is_difference(text):  # what changed first
        text = "\n".join(sorted(text.split("\n"), key=lambda line: line[:1] not in "+-"))
    counts: dict[str, int] = {}
    for name in _NAME.findall(text):
        counts[name] = counts.get(name, 0) + 1
    order = {name: place for place, name in enumerate(counts)}
    often = sorted(
        (name for name in counts if 3 < len(name) < 60),
        key=lambda name: (_is_common(name), -min(counts[name], 4), order[name]),
    )
    return _once([*(name for name in defined if 3 < len(name) < 60), *often])


def _is_common(name: str) -> bool:
    """Tell words with a hyphen and hashes, which stand everywhere, from the names of things in programs."""
    return "-" in name or not name.strip("0123456789abcdef")


def within(items: Iterable[str], budget: float, *, known: str = "") -> Iterator[str]:
    """Give the items for which there is room, in estimated tokens; what `known` already says is left out."""
    for item in items:
        if item in known:
            continue
        budget -= estimate(item) + 1
        if budget < 0:
            return
        yield item


def _is_number(text: str) -> bool:
    return not any(map(str.isalpha, text)) or (text[0].isdigit() and text.count(".") > 1 and "/" not in text)


def _once(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
