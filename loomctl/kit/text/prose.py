"""Prose that is broken between words to fit a screen; what people copy out of it stays in one piece."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loomctl.kit.text.fences import width

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r" {0,3}(`{3,})")
# Where the further lines of a line begin: below its text, behind the mark of an item or a label.
_HEAD = re.compile(r" *(?:[-*✓✗!·] |\d{1,3}\. |(?<= )[a-z]+: |[a-z]+ {2,})?")
_COPIED = re.compile(r" *hint: ")
# A command behind the sentence that names it.
_AT_THE_END = re.compile(r"""(?<=: )loomctl (?:'[^']*'|"[^"]*"|[^.,;'"]|[.,;](?=\S))*$""")
# A word; with it what stands in quotes, in code quotes, or behind the name of the command, in brackets all of it.
_PIECE = re.compile(
    r"""[^\s`"']*(?:`[^`]*`|"[^"]*"|(?<!\w)'[^']*')\S*|\(loomctl [^)]*\)\S*|\bloomctl(?: [a-z-]+)?\S*|\S+"""
)


def fitted(text: str, limit: int) -> str:
    """Break the lines of a text that are wider than `limit` columns between words.

    What is no prose stays as it is: code, whether it is fenced or indented, rows of tables, and hints. A piece that is
    wider than the screen, such as a path or a command, has a line of its own and is not broken.
    """
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if line.strip().startswith(fence) and not line.strip().strip("`") else fence
            lines.append(line)
        elif mark or width(line) <= limit or _is_no_prose(line):
            fence = mark[1] if mark else ""
            lines.append(line)
        else:
            lines += _broken(line, limit)
    return "\n".join(lines)


def _is_no_prose(line: str) -> bool:
    head = _HEAD.match(line)
    is_a_row = "  " in line[head.end() if head else 0 :].strip()
    return line.startswith(("    ", "|")) or is_a_row or bool(_COPIED.match(line))


def _broken(line: str, limit: int) -> Iterator[str]:
    found = _HEAD.match(line)
    made = found[0] if found else ""
    below, is_empty = " " * width(made), True
    for piece in _pieces(line[len(made) :]):
        if not is_empty and width(made) + 1 + width(piece) > limit:
            yield made
            made, is_empty = below, True
        made += piece if is_empty else f" {piece}"
        is_empty = False
    yield made


def _pieces(text: str) -> list[str]:
    end = _AT_THE_END.search(text)
    return [*_PIECE.findall(text[: end.start()] if end else text), *([end[0]] if end else [])]
