"""What of a tool's output the work may need later: its errors, its last word, its paths, its telling names (D49)."""

from __future__ import annotations

import re

from loomctl.kit.text.fences import visible
from loomctl.reduction.lists import within
from loomctl.reduction.live import left, without_digits
from loomctl.reduction.marks import LONGEST_LINE, cut
from loomctl.reduction.tokens import estimate
from loomctl.reduction.words import tells_trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;:?<=>]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_]|[()][0-9A-B])"
)

_MARKED = re.compile(r"#{1,4} \w")  # a heading of Markdown
# A line that counts how all went: `800 passing`, `# fail 1`, `Ran 3 tests`, `Job succeeded`.
_TOTAL = re.compile(
    r"[^\w]*(?:\[[^\]]{1,40}\]\W*)?(?:\d+ (?:passed|failed|passing|failing|pending|skipped|tests?|examples?|errors?"
    r"|assertions|problems?|warnings?|failures?|files?|insertions?|deletions?|packages?|vulnerabilities)\b"
    r"|(?:tests?|pass|fail|skipped|cancelled|suites|todo|failures|errors|passed|failed|total):? +=?\d+\b"
    r"|(?:Tests?|Test Suites|Test Files|Snapshots)\b:? .*\d|Ran \d+|Found \d+ |OK\b|FAILED\b ?\("
    r"|(?:Job|Build|Pipeline|BUILD|Step) (?:succeeded|failed|passed|SUCCESSFUL|FAILED|SUCCESS|FAILURE|finished)"
    r"|Finished |All (?:\d+ )?\w+ passed)"
)
_OF_A_FORM, _MANY_ALIKE, _MOST_ODD = 10, 0.9, 6  # lines of one form; the share of such; lines unlike any other
_MOST_TOTALS, _MANY_TOTALS = 6, 24  # that are told; so many in a text sum nothing up
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_PATH = re.compile(
    r"(?<![\w/.~@:{-])(?:~/|\.{1,2}/|/)?(?:[\w.@+-]{1,80}/){1,14}[\w.@+-]*[\w+-](?:\.\w{1,8})?"
    r"|(?<![\w/.@:-])(?!(?:self|cls|this)\.)[\w@+-][\w.@+-]{0,80}\.(?:[a-z][a-z0-9]{0,5}|[A-Z]{1,4})(?![\w/(])"
    r"|(?<![\w/.~@:{<-])/[\w.@+-]{2,}"
)
_NAME = re.compile(
    r"\b(?:[a-z]+(?:[A-Z][a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Za-z][a-z0-9]*(?:_[A-Za-z0-9]+)+"
    r"|_+[a-z][a-z0-9_]+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[0-9a-f]{7,12}|[a-z0-9]+(?:-[a-z0-9]+)+|(?!UTF-|SHA-|ISO-|RFC-)[A-Z]{2,10}-\d+)\b"
)
_OFTEN = 3  # so many times words with a hyphen are a name
_MAIL = re.compile(r"[\w.+-]+@[A-Za-z][\w-]*\.[A-Za-z.]+\Z")
_STATUS = ("On branch ", "HEAD detached ", "Not currently on any branch")
_LISTED = re.compile(
    r"^([-dlbcps])[rwxsStT-]{9}[.+@]? +\d+ +\S+ +\S+ +[\d.,]+[KMGT]? +\S+ +\S+ +\S+ (?!\.{1,2}$)(.+?)(?: -> .+)?$",
    re.MULTILINE,
)
# A file at a line's begin: of a search's finds, of changes with their letter before them, of a count behind them.
_BEGINS = re.compile(
    r"^(?:[ MADRCU?!]{2} |[AMDRCTU]\d{0,3}\t|\./| )?"
    r"((?:[\w.@+~-]{0,80}/){1,14}[\w.@+-]{0,80}|[\w@+-][\w.@+-]{0,80}\.[A-Za-z]\w{0,9})(?=:\d+[:-]|-\d+-|:| +\|| *$)",
    re.MULTILINE,
)
# An entry of a tree, and how deep it stands: `│   ├── cart.py`.
_BRANCH = re.compile(r"((?:[│|][ \xa0]{3}|[ \xa0]{4}){0,40})(?:[├└]──|\|--|`--|\+--)[ \xa0]([^\n]{1,200})$")
_DEFINED = re.compile(
    r"^[ \t+>0-9:|]{0,16}(?:export |default |public |private |static |async |pub |abstract )*"
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
        text = "\n".join([left(line) for line in text.replace("\r\n", "\n").split("\n")])
    return visible(text)


def is_difference(text: str) -> bool:
    """Tell the output of a diff: what its lines say is content, and no trouble of the command's own."""
    return "\n@@ -" in text or text.startswith(("diff --git ", "@@ -"))


def is_status(text: str) -> bool:
    """Tell the long form of `git status`."""
    return text.startswith(_STATUS) and "\n\t" in text


def listed_files(text: str) -> list[str]:
    """Give the files that a text lists: a diff's, those of `git status` and `ls -l`, what begins most of its lines.

    Of texts that list none there are none.
    """
    if is_difference(text):
        found = [line.partition(" b/")[2] for line in text.split("\n") if line.startswith("diff --git ")]
        found += [line[4:].split("\t")[0].removeprefix("b/") for line in text.split("\n") if line.startswith("+++ ")]
        return _once(path for path in found if path and path != "/dev/null")
    if is_status(text):
        named = (line[1:].partition(":   ") for line in text.split("\n") if line.startswith("\t"))
        return _once((path or first).strip() for first, _, path in named)
    if text.startswith(("total ", "-r", "dr", "lr")):
        return [name + "/" * (kind == "d") for kind, name in _LISTED.findall(text)]
    if "── " in text or "\n|-- " in text:
        return tree(text)
    found = _BEGINS.findall(text)
    lines = [line.strip() for line in text.split("\n") if line.strip(" -")]
    if 2 * len(found) <= len(lines):
        return []
    bare = [line for line in lines if " " not in line and ":" not in line]
    return _once(bare if len(bare) >= _MANY_ALIKE * len(lines) else found)  # a name may have no ending


def tree(text: str) -> list[str]:
    """Give the paths of the files, and of folders that are empty or not gone into, of a text that draws a tree.

    What stands high comes first.
    """
    found: list[str] = []
    above: list[str] = []
    count = 0
    for line in text.split("\n"):
        branch = _BRANCH.match(line)
        count += bool(line.strip())
        if branch is None:
            continue
        depth = len(branch[1]) // 4
        if depth and depth == len(above) and above[-1]:
            found.pop()  # the folder that this is in
        del above[depth:]
        above += [""] * (depth - len(above))  # a tree that does not begin at the line's
        above.append(branch[2].partition(" -> ")[0].rstrip("/"))
        found.append("/".join(filter(None, above)))
    return sorted(found, key=lambda path: path.count("/")) if 2 * len(found) > count - len(found) else []


def opening(text: str, budget: float) -> list[str]:
    """Give how a text begins: its first lines with words in them, up to a blank line, and the headings below.

    For what a tool says of its own failure: the first lines say what, whatever words they have. budget: in estimated
    tokens; the first line is given in any case, cut to `LONGEST_LINE`.
    """
    lines = [line.strip() for line in text.strip().split("\n")]
    end = next((at for at, line in enumerate(lines) if not line), len(lines))
    first = [line for line in lines[: min(end, 3)] if any(map(str.isalpha, line)) and not _ADDRESS.fullmatch(line)]
    headings = [line for line in lines if _MARKED.match(line) and tells_trouble(line[:2000])]
    told = [cut(line) for line in _once([*first, *headings])]
    return [*told[:1], *within(told[1:], budget - estimate(told[0]) if told else 0)]


def odd(text: str) -> list[str]:
    """Give the few lines that no other is like, where nearly all others are of a few forms, digits aside."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    shapes = [without_digits(line[:LONGEST_LINE]) for line in lines]
    counts: dict[str, int] = {}
    for shape in shapes:
        counts[shape] = counts.get(shape, 0) + 1
    alike = sum(count for count in counts.values() if count >= _OF_A_FORM)
    if alike < _MANY_ALIKE * max(len(lines), _MOST_ODD / (1 - _MANY_ALIKE)):
        return []
    found = [cut(line) for line, shape in zip(lines, shapes, strict=True) if counts[shape] == 1]
    return found if len(found) <= _MOST_ODD else []


def totals(text: str) -> list[str]:
    """Give the last lines that count how all went, each form once; none where these are entries."""
    found = [line.strip() for line in text.split("\n") if _TOTAL.match(line[:200])]
    last = {without_digits(line): line for line in found[-_MANY_TOTALS:]}
    told = list(last.values())[-_MOST_TOTALS:] if len(found) <= _MANY_TOTALS or len(last) < _MANY_TOTALS / 2 else []
    return [cut(line) for line in told]


def ending(text: str, count: int) -> list[str]:
    """Give the last lines with words in them, of those that differ in digits alone the last one."""
    lines = [line.strip() for line in text.rstrip().split("\n")[-40:] if any(map(str.isalpha, line))]
    last = {without_digits(line): at for at, line in enumerate(lines)}
    return [cut(lines[at]) for at in sorted(last.values())[-count:]]


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
    defined = _once(_DEFINED.findall(text.replace("→", ":")))
    if is_difference(text):  # what changed first
        lines = [line for line in text.split("\n") if not line.startswith("index ")]
        text = "\n".join(sorted(lines, key=lambda line: line[:1] not in "+-"))
    counts: dict[str, int] = {}
    for name in _NAME.findall(_UUID.sub(" ", text)):
        counts[name] = counts.get(name, 0) + 1
    order = {name: place for place, name in enumerate(counts)}
    often = sorted(
        (name for name, count in counts.items() if _is_told(name, count)),
        key=lambda name: (is_common(name), -min(counts[name], 4), order[name]),
    )
    return _once([*(name for name in defined if 3 < len(name) < 60), *often])


def is_common(name: str) -> bool:
    """Tell words with a hyphen and hashes, which stand everywhere, from the names of things in programs."""
    return "-" in name or not name.strip("0123456789abcdef")


def _is_told(name: str, count: int) -> bool:
    return 3 < len(name) < 60 and not _is_mode(name) and (count >= _OFTEN or not _is_of_words(name))


def _is_of_words(name: str) -> bool:
    """Tell words with a hyphen between them, and no digit, that are as likely prose as a name."""
    return "-" in name and not any(map(str.isdigit, name))


def _is_mode(name: str) -> bool:
    """Tell what `ls -l` says of who may do what, or a part of it."""
    return not name.strip("-drwxstl")


def _is_number(text: str) -> bool:
    return not any(map(str.isalpha, text)) or (text[0].isdigit() and text.count(".") > 1 and "/" not in text)


def _once(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))
