"""What a line of a tool's output is by its form: how bad, at which place, a heading, a detail, a frame of a trace.

Words lower a line's kind or raise it; which tool printed it is never asked (D49).
"""

from __future__ import annotations

import re

from loomctl.kit.records import NamedTuple
from loomctl.reduction.live import without_digits
from loomctl.reduction.words import ERROR, NOISE, PLAIN, WARNING, WEAK, kind_of_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_LINE = 240  # characters of a line that is quoted
_LOOKED_AT = 2000  # characters of a line

_FEW_WORDS = 5  # before a place that ends a line, whose message is in the next
_PROSE = 8  # blanks before a word of trouble that make it one of prose, in the output of what went well


class Line(NamedTuple):
    """A line. text: without indent, cut; place: of a file in it, "" if none; own: a file of the code at hand.

    frame: a place of a trace, without a message; bare_place: line and column of the file that a heading named;
    detail: a labelled value or a line of a difference; trace: the beginning of a trace that ends with its message;
    value: what may be one that was compared; owes: what it is about stands in the next line; section: says whose lines
    follow.
    """

    number: int
    text: str
    indent: int
    kind: int
    shape: str
    place: str
    own: bool
    frame: bool
    heading: bool
    detail: bool
    bare_place: bool
    trace: bool
    value: bool
    owes: bool
    section: bool


# ---- Places.

_PLACE = re.compile(
    r"(?<![^\s:()\[\]{}'\"`<>,=;|])(?:"  # where a word begins, so that no line is looked at more than once
    r"(?P<colon>(?:[A-Za-z]:(?=[\\/]))?(?:[^\s:()\[\]{}'\"`<>,=;|]{0,200}\.[A-Za-z]\w{0,9}"
    r"|[^\s:()\[\]{}'\"`<>,=;|]{0,200}[/\\][^\s:()\[\]{}'\"`<>,=;|]{1,200}|[A-Z][A-Za-z]{0,20}file"
    r"|^[A-Za-z_.][\w.+-]{0,60}(?=:\d+: ))):\[?(?P<line>\d+)(?:[:,](?P<column>\d+))?(?![\w.]\d)\]?"
    r"|(?P<round>[^\s()'\"`<>,=]{1,200}\.[A-Za-z]\w{0,9})\((?P<row>\d+)(?:[,:] ?\d+)?\)"
    r"|(?P<worded>[^\s'\"`,()]{0,200}[./][^\s'\"`,():]{0,200}[\w/-]|[\w-]{1,40}(?=: line \d+: ))"
    r"[\"'`]?,?:? (?:on |at )?line (?P<at>\d+))"
)
_BARE_PLACE = re.compile(r"\d+:\d+\s+\S")
# Below these folders stands what others wrote.
_OF_OTHERS = re.compile(
    r"node:|\bnode_modules/|\b(?:site|dist)-packages/|/python3?[.\d]*/|\binternal/|/vendor/|/\.cargo/|/rustc/|/gems/"
    r"|^/usr/|^/opt/|^/nix/|^/lib|/toolchains?/|^<|/\.(?:[\w-]+)/|/go/(?:src|pkg)/|/deps/|\w/\.\./"
)
_FRAME = re.compile(r"(?:at|from|in|by|called from|raised at|re-raised at|File|#\d+|\d+[:.]|\[\d+\]|#|-->)\s")
_OTHERS_FRAME = re.compile(
    r"at (?:async )?(?:java|javax|jdk|sun|kotlin|scala|node)\b[.:]|at \S+ ?(?:\(native|\(<anonymous>\)|\[native)"
)
_OPENS = re.compile(r"(?:[^\w/.~\\<\"'@-]|In |File |\[\d+/\d+\] )*")  # before a place that begins a line

# ---- Forms.

# Lines that are drawn count as `|`, and the arrow behind a number as a colon.
_DRAWN_AS = str.maketrans("│┃→", "||:")
_GUTTER = re.compile(r"(?:[>*]\s*)?\d+\s*[|:\t](?!\d)")
_NUMBERED = re.compile(r"\s*\d+(?:[|\t]|:(?!\d))")
_DRAWN = re.compile(r"\|\s?(?=\s*\S)")
_QUOTES = re.compile(r"E\s{2,}(?=\S)")  # before what a failed assertion said
_HEADING = re.compile(r"(?:-{3,} |={3,} |>{1,3} |#{1,4} )?(?:[\w.@+-]*/|[A-Za-z]:\\)\S*\.\w{1,8}:?\Z")
_ENUMERATED = re.compile(r"\d+\)\s\S|\u25cf \S|In \S+ line \d+:\Z|([-=_*#])\1{1,}\s[^-=_*].*\s\1{2,}\Z")
_LABELLED = re.compile(
    r"(?:expected|actual|received|got|want(?:ed)?|left|right|but was|found|given|symbol|location|reason|caused? by)\b"
    r"[\w ]{0,20}\s*[:=](?:\s*\S|\Z)",
    re.IGNORECASE,
)
# A value that was compared, alone in its line: `3 !== 2`, `+ red`, `'red'`, `[`, `12.5`.
_OPERAND = r"(?:'[^']{0,80}'|\"[^\"]{0,80}\"|[^\s(){};]{1,80})"
_VALUE = re.compile(
    rf"{_OPERAND} (?:[!=]==?|<>|≠|=/=|!~|is not|vs\.?) {_OPERAND}\Z|[-+] ?[^\s-].{{0,120}}\Z"
    r"|(?:'[^']{0,120}'|\"[^\"]{0,120}\"|-?\d[\d.,_]{0,30}|[\[{][^\[\]{}]{0,120}[\]}])\Z"
)
# What says whose lines follow: `== name`, `> Task :name`, `[12/40] name`, `#9 [2/5] RUN`.
_SECTION = re.compile(
    r"(?:={2,}>?\s+|>{1,3}\s|::group::|##\[group\]|Step \d+/\d+|\[\d+/\d+\]|#\d+ \[|\$ )\s?\S.{0,150}\Z"
)
_TREE = re.compile(r"[\s│|]*[├└]─+ \S+\Z")  # a file's name in a drawn tree
_LABELLED_BELOW = re.compile(r"[A-Za-z][\w /-]{0,24}\s{0,8}[:=]\s+\S|[-+] ?\S|[\^~]+-* ?[A-Za-z]")
_TRACE = re.compile(r"Traceback \(most recent call last\)")

# What differs between two that say the same: times, addresses, long numbers.
_CHANGING = re.compile(r"\b\d+(?:\.\d+)?(?:ms|s|m|us|µs)\b|0x[0-9a-f]+|\d\d:\d\d:\d\d\S*|\b\d{5,}\b")
_VARYING = re.compile(
    r"'[^']{0,80}'|\"[^\"]{0,80}\"|`[^`]{0,80}`|\S*[/\\]\S*|\S+\.\w{1,5}:\d\S*|\b[0-9a-f]*\d[0-9a-f]*\b|\d+|\b\w+(?:_\w+|[a-z][A-Z]\w*)\b"
)
_QUOTED = re.compile(r"'[^']{1,60}'|\"[^\"]{1,60}\"|`[^`]{1,60}`")


def read(text: str, *, failed: bool) -> Iterator[Line]:
    """Give the lines of a text with what their form says."""
    lines = _bare(text.split("\n"))
    numbered = [bool(_NUMBERED.match(_beginning(line))) for line in lines]
    is_listed = 2 * sum(numbered) > len(lines)
    has_results = is_listed and _is_repeated(lines, numbered)
    if is_listed and not has_results:  # a listing of a file, whose lines are content
        lines = ["" if is_content else line for line, is_content in zip(lines, numbered, strict=True)]
    context = _Context(failed=failed, has_results=has_results)
    quoted = False
    for number, line in enumerate(lines):
        quoted = (quoted or line.startswith("<<<<<<<")) and not line.startswith(">>>>>>>")
        found = _line(number, "" if quoted or _TREE.match(line) else line, len(lines), context)
        if found.text and not found.indent:
            context.under_file = found.heading and names_file(found.text)
        yield found


def _is_repeated(lines: list[str], numbered: list[bool]) -> bool:
    """Tell results that are told by their numbers, most of them in the same words, from the lines of a file."""
    counts: dict[str, int] = {}
    for line, is_numbered in zip(lines, numbered, strict=True):
        if is_numbered:
            shape = without_digits(line[:LONGEST_LINE])
            counts[shape] = counts.get(shape, 0) + any(map(str.isalnum, shape))
    return 2 * max(counts.values(), default=0) > sum(numbered)


def _bare(lines: list[str]) -> list[str]:
    """Leave out what a runner puts before each line of a job: `[CI/test] | `, `app-1  | `."""
    counts: dict[str, int] = {}
    for line in lines:
        mark = line.find("| ", 0, 48)
        if mark > 0:
            counts[line[: mark + 2]] = counts.get(line[: mark + 2], 0) + 1
    often = tuple(
        prefix
        for prefix, count in counts.items()
        if count > 3 and prefix.strip(" |") and not prefix.strip(" |").isdigit()
    )
    return [line[line.find("| ") + 2 :] if line.startswith(often) else line for line in lines] if often else lines


def _beginning(line: str) -> str:
    """Give the first signs of a line, in which those that draw are plain."""
    first = line[:24]
    return first if first.isascii() else first.translate(_DRAWN_AS)


def _line(number: int, line: str, count: int, context: _Context) -> Line:
    bare = line.strip()
    indent = len(line) - len(line.lstrip())
    drawn, quotes = _DRAWN.match(_beginning(bare)), _QUOTES.match(bare)
    if drawn:
        inner = bare[drawn.end() :]
        bare = inner.strip()
        indent += drawn.end() + len(inner) - len(inner.lstrip())
    seen = bare[quotes.end() if quotes else 0 : _reach(bare, count)]
    at = _PLACE.search(seen) if any(map(str.isdigit, seen)) else None
    place = _named(at) if at else ""
    says = at is not None and _says(seen[at.end() :])
    opens = at is not None and _OPENS.fullmatch(seen, 0, at.start()) is not None
    bare_place = context.under_file and not place and _BARE_PLACE.match(seen) is not None
    form = context.form(seen, is_message=bare_place or (opens and says))
    own = bool(place) and not _OF_OTHERS.search(place) and not _OTHERS_FRAME.match(seen)
    frame = bool(place) and not form.heading and (form.frame or (opens and not says))
    kind = PLAIN if frame and form.frame and form.kind != NOISE else form.kind  # a function's name is no trouble
    if quotes and not context.quotes and not drawn:
        kind = ERROR
    context.quotes = quotes is not None
    detail = form.labelled or (indent > 0 and form.labelled_below) or context.quotes
    is_open = at is not None and not seen[at.end() :].strip(" :).") and seen.count(" ", 0, at.start()) < _FEW_WORDS
    owes = (kind <= WARNING and not frame and (seen[-1:] == ":" or is_open)) or (form.labelled and seen[-1:] in ":=")
    return Line(
        number, cut_around(bare, form.told_at), indent, kind, form.shape, place, own, frame, form.heading, detail,
        bare_place, form.trace, form.value or form.labelled, owes, form.section,
    )  # fmt: skip


class _Form(NamedTuple):
    """What is the same for all lines of a form, whatever numbers are in them."""

    kind: int
    told_at: int
    shape: str
    heading: bool
    frame: bool
    labelled: bool
    labelled_below: bool
    trace: bool
    value: bool
    section: bool


class _Context:
    """What is known of a text while its lines are read: the forms that it has, and whether a file was named."""

    def __init__(self, *, failed: bool, has_results: bool) -> None:
        self.failed = failed
        self.has_results = has_results
        self.under_file = False
        self.quotes = False
        self._forms: dict[tuple[bytes, bool], _Form] = {}

    def form(self, seen: str, *, is_message: bool) -> _Form:
        key = (seen.encode("utf-8", "surrogatepass").translate(_DIGITS), is_message)
        known = self._forms.get(key)
        if known is None:
            known = self._forms[key] = _form(
                seen, failed=self.failed, says=is_message and self.failed, is_result=self.has_results
            )
        return known


# Digits that no pattern tells from one another.
_DIGITS = bytes.maketrans(b"123456789", b"111446666")
_ONE_DIGIT = str.maketrans("123456789‘’", "000000000''")  # noqa: RUF001 - and one kind of quotes


def _form(seen: str, *, failed: bool, says: bool, is_result: bool) -> _Form:
    is_source = not is_result and _GUTTER.match(_beginning(seen))
    kind, told_at = (NOISE, 0) if is_source else kind_of_words(seen, says=says)
    if not failed and kind <= WARNING and seen.count(" ", 0, told_at) > _PROSE:
        kind = WEAK  # of what went well, a word far behind in a line is prose
    return _Form(
        kind,
        told_at,
        (_CHANGING if seen.startswith("{") else _VARYING).sub("#", seen[:LONGEST_LINE].translate(_ONE_DIGIT)),
        bool(_ENUMERATED.match(seen) or (len(seen) < LONGEST_LINE and _HEADING.match(seen))),
        bool(_FRAME.match(seen)),
        bool(_LABELLED.match(seen)),
        bool(_LABELLED_BELOW.match(seen)),
        bool(_TRACE.match(seen)),
        len(seen) < LONGEST_LINE and bool(_VALUE.match(seen)),
        not is_source and bool(_SECTION.match(seen)),
    )


def _says(rest: str) -> bool:
    """Tell whether words follow a place: a message, and no name of a function."""
    words = rest.strip(" :-(),.").split()
    return len(words) > 1 and sum(word.strip("'\"`:,.()").isalpha() for word in words[:6]) > 1


def _reach(line: str, count: int) -> int:
    """Say how far a line is looked at: JSON on a few long lines further than what programs write."""
    return max(_LOOKED_AT, 40_000 // count) if line.startswith(("{", "[")) else _LOOKED_AT


def _named(at: re.Match[str]) -> str:
    file = at["colon"] or at["round"] or at["worded"]
    line = at["line"] or at["row"] or at["at"]
    return f"{file}:{line}" + (f":{at['column']}" if at["column"] else "")


def place_of(text: str) -> str:
    """Give the first place that a text names as `file:line[:column]`, "" where it names none."""
    at = _PLACE.search(text)
    return _named(at) if at else ""


def file_of(text: str) -> str:
    """Give the file of the place that a text begins with."""
    at = _PLACE.match(text)
    return at["colon"] or "" if at else ""


def without_folders(text: str) -> str:
    """Give a text that begins with a place without the folders of its file."""
    file = file_of(text)
    return text[len(file) - len(file.rpartition("/")[2]) :]


def names_file(text: str) -> bool:
    """Tell a heading that is the name of a file."""
    return _HEADING.match(text) is not None


def words_of(text: str) -> list[str]:
    """Give the words that tell one message from others of its shape: what it quotes, else those beside its place."""
    quoted = _QUOTED.findall(_PLACE.sub("", text))
    return quoted[:2] or _PLACE.sub("", text, count=1).strip(" :")[:60].split()


def unchanging(text: str) -> str:
    """Give a text without what differs each time it is said."""
    return _CHANGING.sub("#", text)


def cut(line: str) -> str:
    """Cut a line to what is quoted of it."""
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def cut_around(line: str, at: int) -> str:
    """Cut a line to what stands around a place in it."""
    start = at - LONGEST_LINE // 3
    return cut(line) if at < LONGEST_LINE - 40 else "…" + cut(line[start:])
