"""How long a text is: in the two units that hosts limit (D19), in columns of a screen; and how counts are said."""

from __future__ import annotations


def utf16_units(text: str) -> int:
    """Give the length as JavaScript counts it: 1 for é, 2 for an emoji, 1 for a lone surrogate.

    The units of two texts add up to the units of the two joined.
    """
    return len(text) if text.isascii() else len(text.encode("utf-16", "surrogatepass")) // 2 - 1  # its mark


def utf8_bytes(text: str) -> int:
    """Give the length in UTF-8; a lone surrogate, which UTF-8 cannot hold, counts as the 3 bytes it would take.

    The bytes of two texts add up to the bytes of the two joined.
    """
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


_MARKS = ("Mn", "Me", "Cf")  # set above, or around, what stands before them; or not seen at all


def width(text: str) -> int:
    """Give the columns that a text without control characters takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    from unicodedata import category, east_asian_width  # most texts are ASCII

    if category(character) in _MARKS:
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


def cut(text: str, limit: int) -> str:
    """Give the text in at most `limit` columns, "…" where it was cut."""
    if width(text) <= limit:
        return text
    return head(text, limit - 1).rstrip() + "…" if limit > 0 else ""


def head(text: str, limit: int) -> str:
    """Give as much of a text's beginning as `limit` columns hold."""
    left = limit
    for at, character in enumerate(text):
        left -= _columns(character)
        if left < 0:
            return text[:at]
    return text


def wrapped(text: str, limit: int, most: int) -> list[str]:
    """Give a text as lines of at most `limit` columns, broken between words; a longer word is broken where it must be.

    most: how many lines; what is left of the text ends the last one with "…". limit is at least 1.
    """
    lines: list[str] = []
    line = ""
    for whole in text.split():
        word = whole
        while (line and width(line) + 1 + width(word) > limit) or width(word) > limit:
            if line:
                lines.append(line)
                line = ""
                continue
            part = head(word, limit) or word[0]
            lines.append(part)
            word = word[len(part) :]
        line = f"{line} {word}" if line else word
    if line:
        lines.append(line)
    if len(lines) > most:
        lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), limit)] if most > 0 else []
    return lines


def counted(count: int, noun: str) -> str:
    """Give `1 stage`, `2 stages`, `1,000 stages`. noun: in the singular; its plural has an `s` more."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
