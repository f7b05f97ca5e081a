"""Reading a text as what it was before it was put into JSON, a repr, a URL or HTML, and finding its places again."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEEPEST = 8
"""How often a text may have been encoded, one encoding in another."""

_BEHIND, _BEFORE = 5000, 1000
"""So much around an escape is read again; what is farther away is as it was in the reading before."""

_MOST = 8, 200_000
"""So many letters are read again for each of the text, or in all where the text is short."""

_BLANKS, _LOGIN = "+-", "+login+"
"""What a form makes of a command's option, and of a login, in which nothing else may be an escape."""

_LONGEST = 192  # of an escape
_PERCENT = r"%(?:[0-7][0-9a-fA-F]|[89a-fA-F][0-9a-fA-F](?:%[89a-fA-F][0-9a-fA-F]){0,63})"
_FAMILIES = (
    ("\\", r"(\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|033|\r?\n|[nrtbfave0/\\\"'`$]))"),
    ("%", f"({_PERCENT})"),
    ("&", r"(&(?:quot|apos|amp|lt|gt|\#0?3[49]|\#x2[27]);)"),
    ("+", rf"({_PERCENT}|\+)"),  # a form, whose blanks are `+`
)
"""The escapes that one encoding puts in a text: the sign without which there is none, and what they look like."""

_PLAIN = {
    "+": " ",
    "\\n": "\n",
    "\\r": "\r",
    "\\t": "\t",
    "\\e": "\x1b",
    "\\033": "\x1b",
    "\\0": "\0",
    "\\\n": "",
    "\\\r\n": "",
    "\\b": "\b",
    "\\f": "\f",
    "\\v": "\v",
    "\\a": "\a",
    "&quot;": '"',
    "&apos;": "'",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "&#34;": '"',
    "&#39;": "'",
    "&#034;": '"',
    "&#039;": "'",
    "&#x22;": '"',
    "&#x27;": "'",
}


class _Decoded(dict[str, str]):
    """What escapes stand for, each looked at once."""

    def __missing__(self, escape: str) -> str:
        if len(escape) > _LONGEST:
            return "\n"  # what is far from any escape
        if escape[0] == "%":
            plain = bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
        elif escape[1] in "ux":
            plain = chr(int(f"0x{escape[2:]}", 0))
        else:
            plain = escape[1:]
        self[escape] = plain
        return plain


def readings(text: str) -> Iterator[tuple[str, Callable[[int], int]]]:
    """Give the text as it is, then what it was before one encoding, before two and so on, in any order of them.

    Each encoding is undone by itself, for what the others' escapes stand for may be what the text was about.
    With each reading comes a function that gives the place in the text of a place in what was read.
    """
    yield text, int
    is_form = _BLANKS in text or _LOGIN in text
    if not is_form and "\\" not in text and "%" not in text and "&" not in text:
        return
    import re  # most texts have nothing to look at

    plain = _Decoded(_PLAIN)
    left = max(_MOST[0] * len(text), _MOST[1])
    seen = {text}
    whole: list[tuple[str, list[tuple[list[str], list[str]]]]] = [(text, [])]
    for reading, layers in whole:  # grows
        for sign, escape in _FAMILIES if len(layers) < DEEPEST else ():
            if sign not in reading or (sign == "+" and "%" not in reading and not is_form):
                continue
            coded = re.compile(escape).split(reading)
            if len(coded) == 1 or (sign == "+" and max(map(len, coded[1::2])) == 1 and not is_form):  # sums
                continue
            if max(map(len, coded)) > _BEHIND + _BEFORE:
                coded = [piece for literal in range(0, len(coded), 2) for piece in _near(coded, literal)]
            decoded = coded.copy()
            decoded[1::2] = map(plain.__getitem__, coded[1::2])
            text = "".join(decoded)
            if text not in seen and left >= len(text):
                left -= len(text)
                seen.add(text)
                whole.append((text, [*layers, (coded, decoded)]))
                yield text, _places(whole[-1][1])


def _near(pieces: list[str], literal: int) -> list[str]:
    """Give a piece without what is far from any escape, that as an escape of its own; and the escape behind it."""
    piece, escape = pieces[literal], pieces[literal + 1 : literal + 2]
    if len(piece) <= _BEHIND + _BEFORE:
        return [piece, *escape]
    # Lines end in a line break or, where the text is JSON too, in its escape.
    breaks = [at for at in (piece.find(sign, _BEHIND) for sign in ("\n", "\\n")) if at >= 0]
    begins = min(breaks, default=-1) if literal else 0
    ends = max(piece.rfind(sign, 0, -_BEFORE) + len(sign) for sign in ("\n", "\\n")) if escape else len(piece)
    if begins < 0 or ends - begins <= _LONGEST:
        return [piece, *escape]
    return [piece[:begins], piece[begins:ends], piece[ends:], *escape]


def _places(layers: list[tuple[list[str], list[str]]]) -> Callable[[int], int]:
    """Give the function that leads a place in the last of the layers back through all of them."""
    starts: list[tuple[list[int], list[int]]] = []

    def place(at: int) -> int:
        from bisect import bisect_right
        from itertools import accumulate

        if not starts:
            starts.extend(
                (list(accumulate(map(len, coded), initial=0)), list(accumulate(map(len, decoded), initial=0)))
                for coded, decoded in reversed(layers)
            )
        for before, after in starts:
            part = min(bisect_right(after, at), len(after) - 1) - 1
            # Within a piece that is the same in both, or at the beginning or behind the end of an escape.
            inside = at - after[part]
            at = before[part] + inside if part % 2 == 0 or not inside else before[part + 1]
        return at

    return place
