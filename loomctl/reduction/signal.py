"""What of a tool's output the work may need later: its errors, its last word, its paths, its telling names (D49)."""

from __future__ import annotations

import re

from loomctl.kit.text.fences import visible
from loomctl.reduction.tokens import estimate

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
        | would | exit(?:ed|code)?[ ](?:code|status|with|\'?\d) | no[ ]\w+[ ]found | e\d{3,4} | ts\d{3,5}
    | (?-i:\w{0,40}BackOff) | OOMKilled | evicted | unhealthy | degraded | HTTP/[\d.]{1,4}[ ][45]\d\d )\b
    | ^\S+\.\w{1,4}:\d+:[ ][\w.]+$ | ^\s*\S+[.\w]:\d+(?::\d+)?:?[ ]+[A-Z]{1,4}\d{2,5}\b | ^\s*\S+\.\w+:\d+:\d+:[ ]\S
    | \bexited[ ]\([1-9] | ^\s*(?:received|got|actual|but[ ]was)\s{0,8}: | ^rspec[ ]\./\S+:\d+
    | (?:^|[\s\[(])[✗✕✖\u00d7❌⚠✘●] | ^E\s{1,6}\S | ^not[ ]ok\b | ^-{3}[ ]FAIL | ^FAIL\b | ^FAILED\b | [A-Za-z]Error\b
    | [A-Za-z]Exception\b | npm[ ]ERR! | ^\s{0,12}\^+\s*$ | ^\s{0,12}at[ ]\S+[ ]\(\S+:\d+
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A line of a program, which names trouble and is none. A pair of JSON, an error with its message, and a list's or a
# build's mark (`* `, `#8 `) at the line's begin are not of that kind.
_CODE = re.compile(
    r"(?!\*{1,3} |\s*\"[^\"]{1,60}\": |\[?(?:[A-Z]\w*)?(?:Error|Exception)\b[^=(){]{0,40}: )"
    r"(?:\s*(?:\d+[:|│→-]\s*)?(?:(?:def|class|return|raise|if|elif|else|for|while|import|from|try|except|with|assert|const"
    r"|let|var|func|fn|type|export|package|use|pub|public|private|self)\b(?!:)|[@*}\])]|\#(?!\d+ )|//|/\*|\"\"\")"
    r"|.*[{;(,]\s*$)"
)
_NUMBERED = re.compile(r"\s*\d+[:|│→\t]")
# What says that there is none.
_GOOD = re.compile(
    r"\b(?:0|no|without|zero) (?:errors?|failures?|failed|warnings?|problems?|issues?|vulnerabilities)\b"
    r"|\b\w{0,40}(?:error|fail|warn|unreachable|skipped|exception|invalid|missing)\w{0,40}[\"']?\s?[:=]\s?"
    r"(?:null|none|nil|false|0|\"\"|''|\[\]|\{\})(?![\w.\"'])",
    re.IGNORECASE,
)
# Trouble in the first degree: what is told if not everything can be.
_WORST = re.compile(
    r"\b(?:error|errors|fatal|panic|panicked|traceback|exception|fail|failed|failure|failures|denied|refused)\b"
    r"|[A-Za-z](?:Error|Exception)\b|^E\s{1,6}\S|✗|✕|✖|❌|npm ERR!|^not ok\b|exit code"
    r"|^\s*\S+[.\w]:\d+(?::\d+)?:?[ ]+[A-Z]{1,4}\d{2,5}\b",
    re.IGNORECASE,
)
# A line that says no more than that there is trouble, or nothing at all.
_BARE_WORD = re.compile(r"[\W_]*(?:npm )?(?:errors?|failures?|failed examples|fail)?[\W_]*\Z", re.IGNORECASE)
_HEADING = re.compile(r"(?:[\w.@+-]*/|[A-Za-z]:\\)\S*\.\w{1,8}\Z")  # a file, of which the lines below tell
_MARKED = re.compile(r"#{1,4} \w")  # a heading of Markdown
_ASSERTED = re.compile(r"E\s{1,40}\S")  # what pytest quotes of a failure
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?::|$)")  # the last line of a Python traceback
_UNDER_HEADING = re.compile(r"\s+\d+:\d+\s")
_OF_OTHERS = ("node:internal", "node_modules/", "java.base/", "site-packages/", "/lib/python3", "(internal/")
_PLACE = re.compile(r"(\S*[/\\.]\S*?):\d+[:,]")
# What differs between two that say the same: times, addresses, long numbers.
_CHANGING = re.compile(r"\b\d+(?:\.\d+)?(?:ms|s|m|us|µs)\b|0x[0-9a-f]+|\d\d:\d\d:\d\d\S*|\b\d{5,}\b")
_TEST_NAME = re.compile(
    r"^(?:FAILED|ERROR) \S+::|^--- FAIL: |^\s*(?:✕|✗|\u00d7) |^not ok \d+|^ *● .+ \u203a|^FAIL +\S+"
    r"|^test \S+ \.\.\. FAILED|^FAIL: \S+|^rspec \./\S+:\d+"
)
_SUMMARY = re.compile(
    r"\b\d+ (?:passed|failed|errors?|warnings?|problems?|tests?|files?|failing|passing|skipped|vulnerabilities"
    r"|packages?)\b"
    r"|^(?:Tests?|Test Suites|Ran|Found|Summary|Total|Result|Finished|Done|Compiled|Build|Plan|Apply)\b"
    r"|^=+ .+ =+$|exit code \d",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?<![\w/.~@:{-])(?:~/|\.{1,2}/|/)?(?:[\w.@+-]{1,80}/){1,14}[\w.@+-]*[\w+-](?:\.\w{1,8})?"
    r"|(?<![\w/.@:-])(?!(?:self|cls|this)\.)[\w@+-][\w.@+-]{0,80}\.(?:[a-z][a-z0-9]{0,5}|[A-Z]{1,4})(?![\w/(])"
    r"|(?<![\w/.~@:{-])/[\w.@+-]{2,}"
)
_NAME = re.compile(
    r"\b(?:[a-z]+(?:[A-Z][a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Za-z][a-z0-9]*(?:_[A-Za-z0-9]+)+"
    r"|_+[a-z][a-z0-9_]+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[0-9a-f]{7,12}|[a-z0-9]+(?:-[a-z0-9]+)+|(?!UTF-|SHA-|ISO-|RFC-)[A-Z]{2,10}-\d+)\b"
)
_MAIL = re.compile(r"[\w.+-]+@[A-Za-z][\w-]*\.[A-Za-z.]+\Z")
_STATUS = ("On branch ", "HEAD detached ", "Not currently on any branch")
_LISTED = re.compile(
    r"^([-dlbcps])[rwxsStT-]{9}[.+@]? +\d+ +\S+ +\S+ +[\d.,]+[KMGT]? +\S+ +\S+ +\S+ (?!\.{1,2}$)(.+?)(?: -> .+)?$",
    re.MULTILINE,
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


def is_status(text: str) -> bool:
    """Tell the long form of `git status`."""
    return text.startswith(_STATUS) and "\n\t" in text


def listed_files(text: str) -> list[str]:
    """Give the files that a diff changes, `git status` names, or `ls -l` lists; of other texts none."""
    if is_difference(text):
        found = [line.partition(" b/")[2] for line in text.split("\n") if line.startswith("diff --git ")]
        found += [line[4:].split("\t")[0].removeprefix("b/") for line in text.split("\n") if line.startswith("+++ ")]
        return _once(path for path in found if path and path != "/dev/null")
    if is_status(text):
        named = (line[1:].partition(":   ") for line in text.split("\n") if line.startswith("\t"))
        return _once((path or first).strip() for first, _, path in named)
    if text.startswith(("total ", "-r", "dr", "lr")):
        return [name + "/" * (kind == "d") for kind, name in _LISTED.findall(text)]
    return []


def opening(text: str, budget: float) -> list[str]:
    """Give how a text begins: its first lines with words in them, up to a blank line, and the headings below.

    For what a tool says of its own failure: the first lines say what, whatever words they have. budget: in estimated
    tokens; the first line is given in any case, cut to `LONGEST_LINE`.
    """
    lines = [line.strip() for line in text.strip().split("\n")]
    end = next((at for at, line in enumerate(lines) if not line), len(lines))
    first = [line for line in lines[: min(end, 3)] if any(map(str.isalpha, line)) and not _ADDRESS.fullmatch(line)]
    headings = [line for line in lines if _MARKED.match(line) and _TROUBLE.search(line[:2000])]
    told = [_cut(line) for line in _once([*first, *headings])]
    return [*told[:1], *within(told[1:], budget - estimate(told[0]) if told else 0)]


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
    heading = ""
    for number, line in enumerate(lines):
        quoted = line.strip()
        if number < skip or not quoted:
            continue
        if not line[0].isspace():
            heading = quoted if len(line) < LONGEST_LINE and _HEADING.match(quoted) else ""
        at = _told_at(line[: _reach(line, len(lines))])
        if at < 0 and _ASSERTED.match(line) and not (number and _ASSERTED.match(lines[number - 1])):
            at = 0
        if at < 0 or _BARE_WORD.match(quoted[:80]):
            continue
        below, skip = _below(lines, number)
        shape = _CHANGING.sub("#", "\n".join((quoted, *below)))
        if shape not in seen:
            seen.add(shape)
            if heading and _UNDER_HEADING.match(line):
                quoted = f"{heading}:{quoted}"
            is_verdict = _TEST_NAME.search(line[:LONGEST_LINE]) or quoted[0] in "❌✗✕✖" or _SUMMARY.search(quoted[:200])
            degree = 2 if not _is_worst(quoted) else 0 if is_verdict else 1
            yield degree, number, [_cut_around(quoted, at), *below]


def _reach(line: str, count: int) -> int:
    """Say how far a line is looked at: JSON on a few long lines further than what programs write."""
    return max(2000, 40_000 // count) if line.startswith(("{", "[")) else 2000


def _is_worst(quoted: str) -> bool:
    return bool(_WORST.search(quoted[:400]))


def _below(lines: list[str], number: int) -> tuple[list[str], int]:
    """Give up to three lines that stand indented below one and belong to it, and the number of the line after them.

    Of a traceback these are the places where it ended: in the code at hand, and in whatever that called.
    """
    line = lines[number]
    indent = len(line) - len(line.lstrip())
    end = number + 1
    while end < len(lines) and end < number + 400 and lines[end].strip() and _indent(lines[end]) > indent:
        end += 1
    if line.strip() == "Traceback (most recent call last):":
        frames = [at for at in range(number + 1, end) if lines[at].lstrip().startswith("File ")]
        own = [at for at in frames if not any(sign in lines[at] for sign in _OF_OTHERS)]
        chosen = sorted({*own[-1:], *frames[-1:]})
        told = [lines[at + more].strip() for at in chosen for more in (0, 1) if at + more < end]
        if end < len(lines) and _RAISED.match(lines[end]) and _told_at(lines[end][:2000]) < 0:
            told.append(lines[end].strip())  # an exception whose name has no word of trouble in it
        return [_cut(one) for one in told if any(map(str.isalnum, one))], end
    below: list[str] = []
    skip = number + 1
    is_minor = not _is_worst(line)
    for at in range(number + 1, end):
        follower = lines[at].strip()
        if len(below) == 3 or (
            _told_at(lines[at][:2000]) >= 0 and (_PLACE.match(follower) or (is_minor and _is_worst(follower)))
        ):
            break
        skip = at + 1
        if any(map(str.isalnum, follower)) and not (
            follower.startswith("at ") and any(s in follower for s in _OF_OTHERS)
        ):
            below.append(_cut(follower))
    return below, skip


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _told_at(line: str) -> int:
    """Give where in a line the trouble is that it tells of; -1 where it tells of none."""
    found = _TROUBLE.search(line)
    if found is None or _CODE.match(line) or _ADDRESS.fullmatch(line.strip()):
        return -1
    if _GOOD.search(line):
        found = _TROUBLE.search(_GOOD.sub(lambda good: " " * len(good.group()), line))
    return found.start() if found else -1


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
        if len(found) > 3 and not _is_number(found) and not _MAIL.match(found)
    )


def addresses(text: str) -> list[str]:
    """Give the web addresses in a text, each once."""
    return _once(_ADDRESS.findall(text))


def names(text: str) -> list[str]:
    """Give the identifiers in a text that tell more than a word does: what it defines, then what it names often."""
    defined = _once(_DEFINED.findall(text))
    if is_difference(text):  # what changed first
        lines = [line for line in text.split("\n") if not line.startswith("index ")]
        text = "\n".join(sorted(lines, key=lambda line: line[:1] not in "+-"))
    counts: dict[str, int] = {}
    for name in _NAME.findall(text):
        counts[name] = counts.get(name, 0) + 1
    order = {name: place for place, name in enumerate(counts)}
    often = sorted(
        (name for name in counts if 3 < len(name) < 60),
        key=lambda name: (is_common(name), -min(counts[name], 4), order[name]),
    )
    return _once([*(name for name in defined if 3 < len(name) < 60), *often])


def is_common(name: str) -> bool:
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


def _cut_around(line: str, at: int) -> str:
    """Cut a line to what stands around a place in it."""
    start = at - LONGEST_LINE // 3
    return _cut(line) if at < LONGEST_LINE - 40 else "…" + _cut(line[start:])
