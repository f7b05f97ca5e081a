"""How many tokens a text costs a model, told from its characters alone (D51).

There is no vocabulary here: a word that reads like English or code is taken for one token, or two if it is long, and
what looks like a hash, a key or noise for about one token in two characters. `estimate` is as near as that gets;
`at_most` errs on the safe side and is what budgets are held by. `benchmarks/reduction.py` measures both against
`o200k_base`, and the tests hold `at_most` above it on any text.
"""

from __future__ import annotations

import re
from itertools import pairwise

# A blank goes with what follows it; what white space is left is a piece of its own.
_PIECES = re.compile(
    r" ?(?:[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\s\x00-\x7f]|[^\sA-Za-z0-9\x80-\U0010ffff]+)|\s+?(?= \S|\S|\Z)"
)

_TWICE = re.compile(r"(.)\1")

# What may follow each letter in a word that reads like one: the pairs that make up 98 % of those in prose and code.
_FOLLOWS = {
    line[0]: frozenset(line[1:])
    for line in """
    abcdfgiklmnprstuvwxy baeijloruy cacehiklortu dadeilorsuy eacdefglmnpqrstvwxy faefilortu gaeghinorsu haeiortuy
    ibcdefglmnoprstv jeos kefins ladefilostuy mabcdeilmops nacdefgiklmnostuvy oabcdefgijklmnoprstuvw paehiloprstuy
    qu racdegikmnorstuy sacehiklopstuwy tacefhiloprstuy ubcdegilmnprstv vaei waehinors xcit yeopst ze
    """.split()  # noqa: SIM905 - ten lines of list would tell less
}
# One word may be four tokens where most are one: so much is added to a text of words that are not Loom's own.
SPARE = 3
_LINE_END = 1.0  # what a line end costs at most
_OWN = frozenset({
    "Asked", "Earlier", "Edited", "Found", "Listed", "Ran", "Read", "Recent", "bytes", "exit", "files", "in",
    "items", "lines", "loom", "more", "names", "output", "results", "status", "steps", "text", "JSON",
})  # fmt: skip
_KEPT = 40  # characters of a piece whose cost is remembered
_BLANKS = 16  # so many blanks, or line ends, in a row are one token
# Characters of a text that is judged whole; else so many samples of so many characters.
_WHOLE, _SAMPLES, _SAMPLE = 200_000, 32, 4096
# Beyond ASCII a character costs up to its bytes; these, which Loom itself writes, are one token each.
_SINGLE = frozenset("•…→—–“”’‘·äöüéèàçñÄÖÜ°§")  # noqa: RUF001 - as they are


def estimate(text: str) -> int:
    """Estimate how many tokens a text has; a large one is judged by samples from all over it."""
    if len(text) > _WHOLE:
        step = len(text) // _SAMPLES
        sample = "".join([text[start : start + _SAMPLE] for start in range(0, step * _SAMPLES, step)])
        return round(sum(map(_likely, _PIECES.findall(sample))) * len(text) / len(sample))
    return round(sum(map(_likely, _PIECES.findall(text))))


def size(text: str) -> dict[str, int]:
    """Give what an event tells of a text that was put into a conversation: `tokens`, estimated, and `characters`."""
    return {"tokens": estimate(text), "characters": len(text)}


def at_most(text: str) -> int:
    """Give a number of tokens that a text does not exceed.

    White space, signs, digits and other scripts never do, however they stand together, for a token has a byte at least.
    A word of letters is held to what words of its length cost beside each other: a long text of nothing but invented
    words, each picked for its rare letters, can have more.
    """
    pieces = _PIECES.findall(text)
    spare = SPARE if any(len(piece) > 2 and piece.strip() not in _OWN for piece in pieces) else 0
    return int(sum(map(_at_worst, pieces)) + spare + 0.999)


def closely(text: str) -> int:
    """Give a number of tokens that a text does not exceed, as `at_most` does, and nearer to it for prose and code.

    It knows the commonest words and signs: of English text it says about a seventh more than there are.
    """
    return int(weight(text) + SPARE + 0.999)


def weight(text: str) -> float:
    """Give what a text adds to a longer one by that measure; SPARE is for all of it."""
    return sum(map(_COSTS.__getitem__, _PIECES.findall(text)))


class _Costs(dict[str, float]):
    """What pieces cost at most, each found out once."""

    def __missing__(self, piece: str) -> float:
        cost = _known(piece)
        if len(piece) <= _KEPT:
            self[piece] = cost
        return cost


_COSTS = _Costs()


def _known(piece: str) -> float:
    from loomctl.reduction.common_words import SIGNS, SMALL, WORDS

    bare = piece.removeprefix(" ")
    if bare.isalpha():
        # Without a blank before it a word may share a token with the sign there, and be cut elsewhere.
        is_one = bare in SMALL or (bare.istitle() and bare.lower() in WORDS)
        return (1.1 if len(bare) == len(piece) else 1) if is_one else _at_worst(piece)
    is_one = bare in SIGNS or (len(piece) <= _BLANKS and not piece.strip(piece[0]) and piece[0] in " \n")
    return 1 if is_one else _at_worst(piece)


def _likely(piece: str) -> float:
    bare = piece.removeprefix(" ")
    first = bare[:1]
    length = len(bare)
    if not first or first.isspace():
        return 0.75 if len(piece) == 1 else 1.0
    if not first.isascii():
        return 1.0 if first in _SINGLE else 1.1 if first > "\u2e7f" else 0.5
    if first.isdigit():
        return (len(piece) - length) + (length + 2) // 3
    if not first.isalpha():
        return 0.7 if length == 1 else 0.6 + 0.3 * length
    if length > 3 and bare[1].isupper():
        return 0.28 * length
    if _reads_like_a_word(bare):
        return 1.02 if length < 10 else 1.2 if length < 13 else 0.12 * length
    return 1.15 if length < 4 else max(1.2, 0.3 * length) if length < 9 else 0.42 * length


def _at_worst(piece: str) -> float:
    bare = piece.removeprefix(" ")
    first = bare[:1]
    length = len(bare)
    if not first or first.isspace():
        return 2 + len(piece) // 16 if _is_indent(piece) else len(piece.encode("utf-8")) + 1
    if not first.isascii():
        return 1 if first in _SINGLE else len(piece.encode("utf-8", "surrogatepass"))
    if first.isdigit():
        return (len(piece) - length) + (length + 2) // 3
    if not first.isalpha():
        return _signs_at_worst(piece, bare)
    if bare in _OWN:
        return 1
    if length < 3:
        return 1 if length == 1 or (bare.islower() and _reads_like_a_word(bare)) else 2
    if _reads_like_a_word(bare) and not bare[1].isupper():
        return (
            (1.2 if bare.islower() else 1.6)
            if length < 4
            else 1.5
            if length < 7
            else 1.9
            if length < 10
            else 0.24 * length
        )
    return 0.75 * length


def _signs_at_worst(piece: str, bare: str) -> int:
    """Give the most that signs cost: one token each, less where one stands twice in a row, for any such pair is one."""
    length = len(bare)
    if not piece.isprintable():
        return len(piece)  # a control character leaves the blank before it alone
    if not bare.strip(bare[0]):
        return length // 2 + 1 if len(piece) > length else (length + 1) // 2
    return length - 1 if len(piece) == length and _TWICE.search(bare) else length


def _is_indent(piece: str) -> bool:
    """Tell line ends alone, blanks alone, and the one before the other from any other mixture of white space."""
    return not piece.lstrip("\n").strip(" ")


def _reads_like_a_word(piece: str) -> bool:
    low = piece.lower()
    return all(after in _FOLLOWS[before] for before, after in pairwise(low))


class Room:
    """What is left of a number of tokens."""

    def __init__(self, tokens: float) -> None:
        self.left = tokens

    @classmethod
    def of_text(cls, tokens: int) -> Room:
        """Give the room that a whole text of so many tokens has."""
        return cls(tokens - SPARE - 1.0)

    def has(self, text: str) -> bool:
        """Tell whether there is room for a text."""
        # No text costs less than a token for sixteen characters.
        return len(text) <= 16 * max(0.0, self.left) and weight(text) + _LINE_END <= self.left

    def takes(self, text: str) -> bool:
        """Take a text if there is room for it."""
        if len(text) > 16 * max(0.0, self.left):
            return False
        cost = weight(text) + _LINE_END
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def part(self, share: float) -> Room:
        """Set a share of what is left aside; what it does not use is given `back`."""
        part = Room(self.left * share)
        self.left -= part.left
        return part

    def back(self, part: Room) -> None:
        """Take back what a part did not use."""
        self.left += part.left
