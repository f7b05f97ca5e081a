"""Showing text that others wrote so that it can neither pose as Loom's voice nor play tricks on who reads it (D21).

And how long a text is: in the two units that hosts limit (D19), in columns of a screen; how counts are said.
"""

from __future__ import annotations

_INFO = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-_.#")

# Control characters are shown as the symbols that Unicode has for them: a terminal escape becomes ␛[31m.
_CONTROLS = {chr(code): chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"} | {"\x7f": "\u2421"}

# What hides or reorders text has no symbol and is shown escaped: C1 controls, the two separators that some readers
# take for line ends, annotations, and what no screen shows but a model reads, which is every code point that Unicode
# calls Default_Ignorable (DerivedCoreProperties.txt, the same from version 14 to 17). Where a script or an emoji cannot
# be written without one, it stays (`hidden_characters`).
_HIDDEN = frozenset(
    chr(code)
    for first, last in (
        *((0x80, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
        *((0x180B, 0x180F), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
        *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    )
    for code in range(first, last + 1)
)
_TAGS = ("\U000e0000", "\U000e0fff")  # the first and the last, with the selectors of rare variants among them
_TAGS_BEGIN = (b"\x40\xdb", b"\x41\xdb", b"\x42\xdb", b"\x43\xdb")  # in UTF-16, as little else does
_SHORT = 500  # characters


def _hidden(text: str) -> list[str]:
    """List what hides in a text."""
    # A search for one character runs at the speed of memory, so in a long text looking for each in turn costs less than
    # any single pass that stops at every character; the thousands of tags are told by a look at the text's bytes.
    is_plain = len(text) < _SHORT and _HIDDEN.isdisjoint(text)
    found = [] if is_plain else [one for one in _HIDDEN if one in text]
    units = text.encode("utf-16-le", "surrogatepass")
    if len(units) > 2 * len(text) and b"\xdb" in units and any(begin in units for begin in _TAGS_BEGIN):
        found += [one for one in set(text) if _TAGS[0] <= one <= _TAGS[1]]
    return found


def visible(text: str) -> str:
    """Give the text with CRLF as LF and each control, direction or hidden character and lone surrogate made visible.

    Newline and tab stay. What comes out can be encoded in UTF-8, and shown again it stays as it is.
    """
    if text.isascii() and text.isprintable():  # a name, a line
        return text
    text = text.replace("\r\n", "\n")
    for character, symbol in _CONTROLS.items():
        if character in text:
            text = text.replace(character, symbol)
    if text.isascii():
        return text
    found = _hidden(text)
    if found:
        from loomctl.kit.text import hidden_characters  # few texts hold any

        text = hidden_characters.escaped(text, found, _text_escape)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def visible_in_json(text: str) -> str:
    """Give a JSON text whose strings hold nothing raw that a terminal obeys or a reader does not see: it is escaped.

    What it says stays the same for whoever parses it.
    """
    if text.isascii() and "\x7f" not in text:  # the C0 controls are escaped in any JSON
        return text
    text = text.replace("\x7f", _json_escape("\x7f"))
    found = _hidden(text)
    if found:
        from loomctl.kit.text import hidden_characters

        text = hidden_characters.escaped(text, found, _json_escape)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "".join(_json_escape(one) if "\ud800" <= one <= "\udfff" else one for one in text)
    return text


def _text_escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def fenced(text: str, info: str = "") -> str:
    """Put the text between fences that nothing in it can close: longer than any run of backticks or tildes inside.

    info: the language of the content; only its first word counts, and only where it is a plain name.
    """
    opening, closing = fence_for(text, info)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{opening}\n{text}{end}{closing}"


def fence_for(text: str, info: str = "") -> tuple[str, str]:
    """Give the line that opens and the line that closes such fences, for the text or any run of its lines."""
    fence = "`" * max(3, 1 + longest_run(text, "`"), 1 + longest_run(text, "~"))
    word = (info.split() or [""])[0]
    return f"{fence}{word if _INFO.issuperset(word) else ''}", fence


def one_line(text: str, limit: int) -> str:
    """Give the text on one line of at most `limit` UTF-16 units, white space run together, "…" where it was cut."""
    line = visible(" ".join(text.split()))
    if utf16_units(line) <= limit:
        return line
    if limit < 1:
        return ""
    head = line.encode("utf-16-le")[: 2 * (limit - 1)]
    return head.decode("utf-16-le", "ignore").rstrip() + "…"


def longest_run(text: str, character: str) -> int:
    """Give the length of the longest run of the character in the text, in a handful of substring searches."""
    if character not in text:
        return 0
    low, high = 1, 2
    while character * high in text:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if character * middle in text else (low, middle)
    return low


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
