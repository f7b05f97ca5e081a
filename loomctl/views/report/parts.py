"""Small parts that the sections of a report share: marks, tables, bars, lists of facts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.views.report.markup import Markup, el, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TAKEN_OVER = "lease.taken_over"
"""The event among a report's turns of which no work was taken back."""
# A status is told by a sign, a word and a colour; tone: which of the page's colours.
_SIGNS = {
    "succeeded": ("✓", "good"),
    "found": ("✓", "good"),
    "missing": ("✕", "bad"),
    "completed": ("✓", "good"),
    "partially_succeeded": ("◐", "warn"),
    "failed": ("✕", "bad"),
    "skipped": ("»", "calm"),
    "cancelled": ("⊘", "calm"),
    "pending": ("○", "calm"),
    "in_progress": ("▸", "busy"),
    "closing": ("▸", "busy"),
    "paused": ("‖", "warn"),
    "awaiting_feedback": ("?", "warn"),
}


def tone(status: str) -> str:
    """Give the tone of a status: good, warn, bad, busy or calm."""
    return _SIGNS.get(status, ("•", "calm"))[1]


def words(status: str) -> str:
    """Give a status as it is read."""
    return status.replace("_", " ")


def mark(status: str) -> Markup:
    """Give a status as a mark with a sign and its word."""
    sign = _SIGNS.get(status, ("•", "calm"))[0]
    return el("span", el("span", sign, aria_hidden="true"), " ", words(status), class_=f"mark {tone(status)}")


class Section(NamedTuple):
    """A section of the page. name: as the page's list of sections has it, short."""

    identity: str
    name: str
    shown: Markup


def section(identity: str, title: str, *children: object, name: str = "", note: object = None) -> Section:
    """Give a section of the page with its heading. name: a shorter one than the title."""
    head = el("h2", title, id=f"{identity}-title")
    about = el("p", note, class_="about") if note else None
    shown = el("section", head, about, *children, id=identity, aria_labelledby=f"{identity}-title")
    return Section(identity, name or title, shown)


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], **attributes: object) -> Markup:
    """Give a table in a box that scrolls by itself; a row's first cell is its header. numeric: columns of numbers."""
    numeric = attributes.pop("numeric", ())
    assert isinstance(numeric, tuple)
    kinds = ["number" if column in numeric else None for column in range(len(header))]
    head = el("tr", *(el("th", name, scope="col", class_=kind) for name, kind in zip(header, kinds, strict=True)))
    body = join(_row(row, header, kinds) for row in rows)
    made = el("table", el("caption", caption), el("thead", head), el("tbody", body), **attributes)
    return el("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _row(row: Sequence[object], header: Sequence[str], kinds: Sequence[str | None]) -> Markup:
    cells = zip(row[1:], header[1:], kinds[1:], strict=True)
    first = el("th", row[0], scope="row", data_label=header[0])
    return el("tr", first, *(el("td", cell, data_label=name, class_=kind) for cell, name, kind in cells))


def facts(pairs: Iterable[tuple[str, object]], **attributes: object) -> Markup | None:
    """Give a list of facts; those whose value is empty are left out."""
    told = [el("div", el("dt", name), el("dd", value)) for name, value in pairs if value not in (None, "")]
    return el("dl", *told, **{"class_": "facts", **attributes}) if told else None


def percent(part: float, whole: float) -> float:
    """Give a part of a whole in percent, between 0 and 100."""
    return round(min(100.0, max(0.0, 100.0 * part / whole)), 2) if whole > 0 else 0.0


def bar(pieces: Iterable[tuple[float, float, str]], label: str, *, height: int = 10) -> Markup:
    """Draw a bar of pieces `(x, width, class)` in percent. label: what it says, for who does not see it."""
    drawn = [
        el("rect", x=f"{x:g}%", y="0", width=f"{max(width, 0.4):g}%", height=height, rx="2", class_=kind)
        for x, width, kind in pieces
    ]
    back = el("rect", x="0", y="0", width="100%", height=height, rx="2", class_="track")
    return el("svg", back, *drawn, class_="bar", width="100%", height=height, role="img", aria_label=label)


def excerpt(one: Mapping[str, Any], *, opened: bool = False) -> Markup:
    """Show the beginning of a file, or its end, in a box that opens; and where the whole of it is."""
    size = f"{one['bytes']:,} bytes"
    cut = {"end": "the end of it", "begin": "the beginning of it"}.get(str(one.get("cut")))
    head = el("summary", el("code", one["name"]), " ", el("span", size + (f", {cut}" if cut else ""), class_="dim"))
    way = link(one.get("href"), "the whole file") if cut else link(one.get("href"), "the file")
    return el("details", head, el("pre", one["text"], tabindex="0"), way, open=opened, class_="file")


def link(href: object, words_of_it: str) -> Markup | None:
    """Give a link to a file beside the page; None where there is none."""
    return el("p", el("a", words_of_it, href=str(href)), class_="way") if href else None


def path(value: str, href: object = None) -> Markup:
    """Give a file's path, which may be broken behind its slashes; a link where there is a place for one."""
    told = el("code", join(value.replace("\n", "␤").split("/"), Markup("/<wbr>")), class_="path")
    return el("a", told, href=str(href)) if href else told


def term(value: str, tag: str = "code") -> Markup:
    """Give a name of Loom's own, such as an event's: broken behind a colon or an arrow, never within its words."""
    pieces = re.split(r"(?<=:)(?=.)|(?<=->)(?=.)", value)
    return el(tag, join(pieces, Markup("<wbr>")), class_="term")


def survived(receipt: Mapping[str, Any] | None) -> tuple[str, str]:
    """Say what survived a compaction, and in which tone; empty where nobody looked."""
    if receipt is None:
        return "", "calm"
    if not receipt["proven"]:
        return "unproven: no summary came", "warn"
    kept, lost, restored = (len(receipt[key]) for key in ("kept", "lost", "restored"))
    absent = f", {len(receipt['absent'])} absent" if receipt["absent"] else ""
    if not lost:
        return f"all {kept} kept{absent}" if kept or not absent else absent.removeprefix(
            ", "
        ), "good" if kept else "calm"
    pending = len(receipt["pending"])
    coming = f", {pending} still to be put back" if pending else ""
    missing = f", {lost - restored - pending} still missing" if lost > restored + pending else ""
    tone = "bad" if missing else "warn" if pending else "good"
    return f"{kept} kept, {lost} lost, {restored} put back{coming}{missing}{absent}", tone
