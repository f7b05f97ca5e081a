"""Which characters that no screen shows a text needs, as real scripts and emoji are written; all others are escaped.

Imported only once a text holds one of them. Pure.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# What stands in a class of a regular expression, without what is hidden there. Scripts whose letters join:
_CURSIVE = (
    r"\u0600-\u061b\u061d-\u077f\u07c0-\u07ff\u0840-\u08ff\u1810-\u18af\ua840-\ua87f\ufb50-\ufdff\ufe70-\ufefc"
    r"\U00010d00-\U00010d3f\U0001e900-\U0001e95f"
)
# Scripts whose consonants a virama stacks: India's and those that came from there.
_INDIC = (
    r"\u0900-\u0dff\u0f00-\u109f\u1700-\u17b3\u17b6-\u17ff\u1a20-\u1aaf\u1b00-\u1c4f\ua800-\ua82f\ua880-\ua8ff"
    r"\ua930-\ua9df\uaa60-\uaa7f\uaae0-\uaaff\uabc0-\uabff\U00010a00-\U00010a5f\U00011000-\U00011daf"
)
_VIRAMAS = (  # of canonical combining class 9
    r"\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d3b\u0d3c\u0d4d\u0dca\u0f84\u1039\u103a\u1714\u1715\u1734"
    r"\u17d2\u1a60\u1b44\u1baa\u1bab\u1bf2\u1bf3\ua806\ua82c\ua8c4\ua953\ua9c0\uaaf6\uabed\U00010a3f\U00011046"
    r"\U00011070\U0001107f\U000110b9\U00011133\U00011134\U000111c0\U00011235\U000112ea\U0001134d\U00011442"
    r"\U000114c2\U000115bf\U0001163f\U000116b6\U0001172b\U00011839\U0001193d\U0001193e\U000119e0\U00011a34"
    r"\U00011a47\U00011a99\U00011c3f\U00011d44\U00011d45\U00011d97"
)
_EMOJI = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf\u2934\u2935"
    r"\u2b05-\u2b55\u3030\u303d\u3297-\u3299\U0001f000-\U0001faff"
)
_IDEOGRAPHS = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MONGOLIAN = r"\u1820-\u18aa"
_JOINING = _CURSIVE + _INDIC

# Each with what must stand around it, told from behind it. Persian's plural, also of a foreign word, and an Indic stack
# that is to be none; a letter that keeps its joined form, a stack, an emoji of several; what picks a sign's colours;
# forms of letters; and forms of an ideograph in names. None stands behind another, so that no run of them is left.
_COLOURS = rf"(?<=[{_EMOJI}].)|(?<=[0-9#*].)(?=\u20e3)"
_NEEDED = {
    "\u200c": rf"(?<=[\w{_JOINING}].)(?=[{_JOINING}])",
    "\u200d": rf"(?<=[{_CURSIVE}{_VIRAMAS}].)|(?<=[{_INDIC}].)(?=[{_VIRAMAS}])"
    rf"|(?=[{_EMOJI}])(?:(?<=[{_EMOJI}].)|(?<=[{_EMOJI}]\ufe0f.))",
    "\ufe0e": _COLOURS,
    "\ufe0f": _COLOURS,
    "\u180e": rf"(?<=[{_MONGOLIAN}].)(?=[{_MONGOLIAN}])",
    **dict.fromkeys("\u180b\u180c\u180d\u180f", rf"(?<=[{_MONGOLIAN}].)"),
    **dict.fromkeys(map(chr, range(0xE0100, 0xE0110)), rf"(?<=[{_IDEOGRAPHS}].)"),
}
# England, Scotland and Wales: a black flag, the letters of the country as tags, and their end.
_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in country) + "\U000e007f"
    for country in ("gbeng", "gbsct", "gbwls")
)


def escaped(text: str, found: Collection[str], escape: Callable[[str], str]) -> str:
    """Escape the hidden characters in a text but those that it needs where they stand. found: which ones it holds."""
    for flag in _FLAGS:
        if flag in text:
            return flag.join(escaped(part, found, escape) for part in text.split(flag))
    for one in found:
        if one in _NEEDED:
            text = re.sub(f"{one}(?!{_NEEDED[one]})", escape(one).replace("\\", r"\\"), text)
    return text.translate({ord(one): escape(one) for one in found if one not in _NEEDED})
