"""The recording of `loomctl demo` that the README shows: an animated picture, drawn from what the demo prints.

It needs no script: CSS alone moves it, and whoever asks for less motion sees its last screen. `lines_of` reads a
picture's lines back, so that a test can hold them against the demo as it is now. `scripts/docs -k recording` draws it
anew.
"""

import re
import textwrap
from typing import NamedTuple
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from tests.docs.consoles import ANY, steady
from tests.docs.pages import DOCS

PICTURE = DOCS / "demo.svg"
COMMAND = "$ loomctl demo"
SECONDS = 20
COLUMNS = 84
_CELL, _ROW = 7.8, 18  # pixels: a letter's width and a line's height, where type has 13
_LEFT, _TOP = 18, 58
_WIDTH = round(COLUMNS * _CELL + 2 * _LEFT)
_FILES = re.compile(r"^     [\w./@-]+  [\d,]+ bytes$")
_STYLE = """\
:root{--ground:#fff;--bar:#f6f8fa;--edge:#d0d7de;--text:#1f2328;--dim:#59636e;--typed:#0550ae;--good:#116329}
@media (prefers-color-scheme:dark){:root{--ground:#0d1117;--bar:#161b22;--edge:#3d444d;--text:#e6edf3;--dim:#9198a1;\
--typed:#79c0ff;--good:#7ee787}}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--text);white-space:pre}
.heading{font-weight:700}.typed{fill:var(--typed)}.good{fill:var(--good);font-weight:700}.dim{fill:var(--dim)}
.cover rect{fill:var(--ground)}.cover .cursor,.done{fill:var(--typed)}
.screen,.cover{opacity:0}.last{opacity:1}
.screen,.screen text,.cover,.done{animation:{seconds}s step-end infinite}
.done{animation-name:done;animation-timing-function:linear}
@keyframes done{0%{transform:scaleX(0)}}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}""".replace("{seconds}", str(SECONDS))
_FRAME = """\
<rect x=".5" y=".5" width="{width}" height="{height}" rx="9" style="fill:var(--ground);stroke:var(--edge)"/>
<path d="M.5 33.5v-24a9 9 0 0 1 9-9h{inner}a9 9 0 0 1 9 9v24z" style="fill:var(--bar);stroke:var(--edge)"/>
<circle cx="20" cy="17" r="5.5" fill="#ff5f57"/><circle cx="38" cy="17" r="5.5" fill="#febc2e"/>\
<circle cx="56" cy="17" r="5.5" fill="#28c840"/>
<text x="50%" y="21.5" text-anchor="middle" class="dim">loomctl demo</text>
<rect class="done" y="33" width="100%" height="2"/>"""


class Line(NamedTuple):
    """A printed line: its rows on the screen, its kind, the empty lines before it, and when it comes, in seconds.

    typed: for how many seconds it is typed.
    """

    rows: list[str]
    kind: str
    blank: int
    at: float = 0.0
    typed: float = 0.0


def masked(printed: str) -> list[str]:
    """Give the demo's lines without what differs from one play to the next."""
    text = re.sub(r"\S*/loom-demo-\w+", "/tmp/loom-demo", printed)
    text = re.sub(r"(add-dark-mode)-[0-9a-z]{4}\b(?!-)", r"\1-k3f9", text)
    return steady(re.sub(r"It took [\d.]+ s", f"It took {ANY} s", text)).rstrip().split("\n")


def shown(lines: list[str]) -> list[str]:
    """Give the lines that the recording shows: all, but of the files that the demo wrote the first three."""
    files = [number for number, line in enumerate(lines) if _FILES.match(line)][3:]
    return [
        f"     {ANY}" if number in files else line
        for number, line in enumerate(lines)
        if number not in files[1:]
    ]  # fmt: skip


def drawn(lines: list[str]) -> str:
    """Draw the lines, the first of which is what is typed: a screen for each section of the demo."""
    screens = _timed(_screens(lines))
    height = _TOP + _ROW * max(_height(screen) for screen in screens)
    bodies: list[str] = []
    moves: list[str] = []
    for number, screen in enumerate(screens):
        end = screens[number + 1][0].at if number + 1 < len(screens) else SECONDS
        elements, own = _elements(number, screen)
        kind = "screen" if end < SECONDS else "screen last"
        bodies += [f'<g class="{kind}" style="animation-name:s{number}">', *elements, "</g>"]
        gone = f"{_percent(end)}{{opacity:0}}" if end < SECONDS else ""
        moves += [f"@keyframes s{number}{{0%{{opacity:0}}{_percent(screen[0].at)}{{opacity:1}}{gone}}}", *own]
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
        "<title>A recording of loomctl demo</title>",
        "<desc>A run starts, is taken up on another machine, and has its files back after a compaction.</desc>",
        "<style>", _STYLE, *moves, "</style>",
        f'<clipPath id="inside"><rect x="1" y="36" width="{_WIDTH - 2}" height="{height - 40}"/></clipPath>',
        _FRAME.format(width=_WIDTH - 1, height=height - 1, inner=_WIDTH - 19),
        '<g clip-path="url(#inside)" xml:space="preserve">', *bodies, "</g>", "</svg>", "",
    ]  # fmt: skip
    return "\n".join(parts)


def lines_of(picture: str) -> list[str]:
    """Read the lines back that a picture was drawn from."""
    lines: list[str] = []
    for text in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):
        rows = [row.text or "" for row in text]
        if rows:  # the frame's own text has none
            lines += [""] * int(text.get("data-blank", "0"))
            lines.append(" ".join([rows[0], *(row.strip() for row in rows[1:])]))
    return lines


def _screens(lines: list[str]) -> list[list[Line]]:
    screens: list[list[Line]] = [[]]
    blank = 0
    for line in lines:
        if not line:
            blank += 1
            continue
        if re.match(r"[2-9]\. ", line):
            screens.append([])
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        rows = textwrap.wrap(line, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        screens[-1].append(Line(rows, _kind(line), blank))
        blank = 0
    return screens


def _kind(line: str) -> str:
    if line.lstrip().startswith("$ "):
        return "typed"
    if re.match(r"\d\. ", line):
        return "heading"
    if "back in context" in line or line.endswith("survived.") or line.startswith("   Loom: "):
        return "good"
    return "dim" if line.startswith(("     ", "Loom's demo", "recorded name", "the git project", "It took")) else ""


def _timed(screens: list[list[Line]]) -> list[list[Line]]:
    """Say when each line comes: what is typed takes its time, each screen stands a while, the last one longest."""
    now = 0.0
    timed: list[list[Line]] = []
    for screen in screens:
        timed.append([])
        for line in screen:
            typed = 0.4 + len(line.rows[0]) / 50 if line.kind == "typed" else 0.0
            timed[-1].append(line._replace(at=now, typed=typed))
            now += typed + (0.5 if line.kind in ("heading", "good") else 0.12)
        now += 1.6
    scale = SECONDS / (now + 2.4)
    return [[line._replace(at=line.at * scale, typed=line.typed * scale) for line in screen] for screen in timed]


def _height(screen: list[Line]) -> int:
    return sum(len(line.rows) + line.blank for line in screen) - screen[0].blank


def _elements(number: int, screen: list[Line]) -> tuple[list[str], list[str]]:
    """Give one screen's elements, and how these move."""
    elements: list[str] = []
    moves: list[str] = []
    row = -screen[0].blank
    for at, line in enumerate(screen):
        row += line.blank
        name, y = f"l{number}-{at}", _TOP + _ROW * row
        spans = "".join(
            f'<tspan x="{_LEFT}" y="{y + _ROW * offset}" textLength="{len(text) * _CELL:g}">{escape(text)}</tspan>'
            for offset, text in enumerate(line.rows)
        )
        words = f'class="{line.kind}"' if line.kind else ""
        words += f' data-blank="{line.blank}"' if line.blank else ""
        elements.append(f'<text {words} style="animation-name:{name}">{spans}</text>')
        moves.append(f"@keyframes {name}{{0%{{opacity:0}}{_percent(line.at)}{{opacity:1}}}}")
        if line.typed:
            cover, move = _cover(name, line, y)
            elements.append(cover)
            moves.append(move)
        row += len(line.rows)
    return elements, moves


def _cover(name: str, line: Line, y: int) -> tuple[str, str]:
    """Cover what is not typed yet; gives the cover, behind a cursor, and how it moves away."""
    begin = line.rows[0].index("$ ") + 2
    letters = len(line.rows[0].partition("   →")[0]) - begin
    x = _LEFT + begin * _CELL
    element = (
        f'<g class="cover" style="animation-name:{name}c"><rect x="{x:g}" y="{y - 14}" width="{_WIDTH}" '
        f'height="{_ROW}"/><rect class="cursor" x="{x:g}" y="{y - 12}" width="{_CELL}" height="15"/></g>'
    )
    begun, ended = _percent(line.at + line.typed * 0.2), _percent(line.at + line.typed)
    move = (
        f"@keyframes {name}c{{0%{{opacity:0}}{_percent(line.at)}{{opacity:1}}"
        f"{begun}{{opacity:1;transform:none;animation-timing-function:steps({letters})}}"
        f"{ended}{{opacity:0;transform:translateX({letters * _CELL:g}px)}}}}"
    )
    return element, move


def _percent(seconds: float) -> str:
    return f"{100 * seconds / SECONDS:.2f}%"
