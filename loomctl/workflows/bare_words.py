"""Words in a condition that were meant as texts, and that JavaScript takes for names which nothing has (D12, D32)."""

from __future__ import annotations

import re

from loomctl.expressions.conditions import ROOTS
from loomctl.runs.model.visits import OUTCOMES, SPELLINGS

_TEXTS = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
_TOKENS = re.compile(r"[=!]==?|=>|\?\.|[\w$]+|\S")
_EQUAL = frozenset(("==", "!=", "===", "!=="))
_LEADS_ON = frozenset((".", "?.", "[", "("))
_MEANT = frozenset((*OUTCOMES, *SPELLINGS))
# What JavaScript knows by itself, and what may stand before a value.
_KNOWN = frozenset(
    """
    true false null undefined NaN Infinity this globalThis arguments
    Object Array String Number Boolean Symbol BigInt Function Date RegExp Math JSON Reflect Promise Proxy Intl Atomics
    Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError InternalError
    Map Set WeakMap WeakSet WeakRef Iterator FinalizationRegistry ArrayBuffer SharedArrayBuffer DataView
    Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array Float16Array Float32Array
    Float64Array BigInt64Array BigUint64Array DOMException CallSite
    DisposableStack AsyncDisposableStack SuppressedError atob btoa
    parseInt parseFloat isNaN isFinite escape unescape eval encodeURI encodeURIComponent decodeURI decodeURIComponent
    performance queueMicrotask navigator
    new void delete in instanceof await async yield class super import let of
    """.split()  # noqa: SIM905 - a hundred lines of list would tell less
)
# Where one of these stands, a word may be a name that the condition makes itself, or be none of the condition's.
_MAKES_NAMES = frozenset(("=>", "{", "function", "typeof", "`", "/", "\\", "'", '"', "#"))


def found_in(source: str) -> str | None:
    """Give the first word of a condition that is a text without its quotes; None where there is none for certain.

    It is one of an outcome's words, or is compared by `==`, `===`, `!=` or `!==` with what a condition sees. What may
    have a meaning is passed over: a word before `.`, `[` or `(`, and each condition that makes names of its own or
    that is not read with certainty here (a function, an object, a template, a slash). source: as it was written, and
    of right syntax.
    """
    tokens: list[str] = _TOKENS.findall(_TEXTS.sub("0", source))
    if not _MAKES_NAMES.isdisjoint(tokens):
        return None
    for place, word in enumerate(tokens):
        if _is_bare(tokens, place) and (word in _MEANT or _is_compared(tokens, place)):
            return word
    return None


def _is_bare(tokens: list[str], place: int) -> bool:
    word = tokens[place]
    if not (word[0].isalpha() or word[0] in "_$") or word in _KNOWN or word in ROOTS:
        return False
    return _at(tokens, place - 1) not in (".", "?.") and _at(tokens, place + 1) not in _LEADS_ON


def _is_compared(tokens: list[str], place: int) -> bool:
    before = _at(tokens, place - 1) in _EQUAL and _ends_a_path(tokens, place - 2)
    return before or (_at(tokens, place + 1) in _EQUAL and _at(tokens, place + 2) in ROOTS)


def _ends_a_path(tokens: list[str], place: int) -> bool:
    """Tell whether what ends at a place is one of a condition's names, or what it holds: `context.tests['passed']`."""
    while place >= 0:
        if tokens[place] == "]":
            while place >= 0 and tokens[place] != "[":
                place -= 1
            place -= 1
        elif _at(tokens, place - 1) in (".", "?."):
            place -= 2
        else:
            return tokens[place] in ROOTS
    return False


def _at(tokens: list[str], place: int) -> str:
    return tokens[place] if 0 <= place < len(tokens) else ""
