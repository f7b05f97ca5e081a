"""What JavaScript makes of JSON's values: members, truth, equality and order, exactly or not at all (D12)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNDEFINED: Any = object()

# Every object has these without owning them, so that only the engine knows their values.
OBJECT_PROTOTYPE = frozenset(
    {
        "__defineGetter__",
        "__defineSetter__",
        "__lookupGetter__",
        "__lookupSetter__",
        "__proto__",
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
    }
)
MAX_INDEX = 2**32 - 2  # an array's last possible index
DIGITS = frozenset("0123456789")
NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")


class NeedsEngine(Exception):  # noqa: N818 - an answer of its own, not an error
    """Only a JavaScript engine can answer this condition for this state exactly."""


class ConditionThrew(Exception):  # noqa: N818 - what the expression did, not what went wrong in Loom
    """JavaScript would throw here; the text is what the engine would say."""


def member(base: Any, key: Any) -> Any:
    """Give `base[key]`, UNDEFINED where there is none; key: a string or an array index."""
    kind = kind_of(base)
    name = str(key)
    if kind in ("null", "undefined"):
        raise ConditionThrew(f"TypeError: cannot read property '{name}' of {kind}")
    if name in OBJECT_PROTOTYPE:
        raise NeedsEngine(f"'{name}' may be inherited")
    if isinstance(base, dict):
        return base.get(name, UNDEFINED)
    if kind == "object":
        if name == "length":
            return len(base)
        if _is_index(name):
            return base[int(name)] if int(name) < len(base) else UNDEFINED
    if kind == "string":
        units = _utf16(base)
        if name == "length":
            return len(units) // 2
        if _is_index(name):
            unit = units[2 * int(name) : 2 * int(name) + 2]
            return unit.decode("utf-16-be", "surrogatepass") if unit else UNDEFINED
    raise NeedsEngine(f"'{name}' of a value that is no plain object")


def kind_of(value: Any) -> str:
    """Name the type: undefined, null, boolean, number, string or object (arrays too)."""
    if value is None:
        return "null"
    if value is UNDEFINED:
        return "undefined"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (dict, list, tuple)):
        return "object"
    raise NeedsEngine(f"a {type(value).__name__} is not a value of JSON")


def truthy(value: Any) -> bool:
    """Convert as `!!value` does."""
    kind = kind_of(value)
    if kind == "object":
        return True  # even an empty one
    return kind != "undefined" and value == value and bool(value)  # noqa: PLR0124 - NaN is false


def strictly_equal(left: Any, right: Any) -> bool:
    """Compare as `===` does."""
    kind = kind_of(left)
    if kind != kind_of(right):
        return False
    if kind == "object":
        if left is right:  # one object, or one that stands in two places only here: the engine knows
            raise NeedsEngine("an object is compared with itself")
        return False
    if kind == "string":
        return left == right or _utf16(left) == _utf16(right)
    if kind == "number":
        return _double(left) == _double(right)
    return left is right


def loosely_equal(left: Any, right: Any) -> bool:
    """Compare as `==` does."""
    kinds = {kind_of(left), kind_of(right)}
    if len(kinds) == 1:
        return strictly_equal(left, right)
    if kinds & {"null", "undefined"}:
        return kinds == {"null", "undefined"}
    return _number_of(left) == _number_of(right)


def less(left: Any, right: Any, *, or_equal: bool = False) -> bool:
    """Compare as `<` does, or as `<=`; `a > b` is `b < a`."""
    if kind_of(left) == kind_of(right) == "string":
        one, other = _utf16(left), _utf16(right)
        return one <= other if or_equal else one < other
    first, second = _number_of(left), _number_of(right)
    return first <= second if or_equal else first < second


def decimal(text: str, start: int) -> tuple[int | float, int] | None:
    """Read the decimal number at `start`: its value and where it ends; None where not every reader would agree.

    Kept out for that reason: more than 15 significant digits, magnitudes near a double's limits, other bases,
    separators, and a number that runs into a name.
    """
    at = _skip_digits(text, start)
    whole, fraction = text[start:at], ""
    if text[at : at + 1] == ".":
        at = _skip_digits(text, at + 1)
        fraction = text[start + len(whole) + 1 : at]
    if text[at : at + 1] in ("e", "E"):
        digits = at + 2 if text[at + 1 : at + 2] in ("+", "-") else at + 1
        at = _skip_digits(text, digits)
        if not 0 < at - digits <= 3 or int(text[digits:at]) > 250:
            return None
    after = text[at : at + 1]
    if (
        not whole + fraction
        or (len(whole) > 1 and whole[0] == "0")
        or len((whole + fraction).strip("0")) > 15
        or max(len(whole), len(fraction)) > 25
        or after in (".", "\\")
        or after in DIGITS
        or after in NAME_START
    ):
        return None
    return (int(whole) if at == start + len(whole) else float(text[start:at])), at


def _skip_digits(text: str, at: int) -> int:
    while text[at : at + 1] in DIGITS:
        at += 1
    return at


def _is_index(name: str) -> bool:
    """Say whether this is an array index in its one canonical spelling."""
    canonical = name == "0" or (0 < len(name) <= 10 and name[0] != "0" and DIGITS.issuperset(name))
    return canonical and int(name) <= MAX_INDEX


def _utf16(text: str) -> bytes:
    """Give the text's UTF-16 units, big end first, so that bytes compare as JavaScript compares strings."""
    return text.encode("utf-16-be", "surrogatepass")


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _number_of(value: Any) -> float:
    """Convert as JavaScript's ToNumber does."""
    kind = kind_of(value)
    if kind == "object":
        raise NeedsEngine("an object is compared with a plain value")
    if kind == "undefined":
        return float("nan")
    return _number_in(value) if kind == "string" else _double(value or 0)


def _number_in(text: str) -> float:
    text = text.strip(" \t\n\r\v\f")
    if not text:
        return 0.0
    if text[0].isascii() and text[0].isprintable() and text[0] not in "0123456789+-.I":
        return float("nan")
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    found = decimal(digits, 0) if digits[:1] in DIGITS or digits[:1] == "." else None
    if found is None or found[1] != len(digits):
        raise NeedsEngine("a text that may be a number in an unusual spelling")
    return -_double(found[0]) if sign == "-" else _double(found[0])
