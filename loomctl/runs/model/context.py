"""A context in memory: flat text keys with JSON values, for many threads, and for branches on clones (D43, D44)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any

from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.text.fences import one_line
from loomctl.runs.model.run_context import Changes, copied, is_reserved, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEEPEST = 200  # levels of a value
LONGEST_KEY = 1_000  # characters
MOST = 10_000_000  # values within one
_TOO_LONG = 10**400  # no reader of a state takes a number of so many digits
_SHOWN = 60


class Snapshot(Mapping[str, Any]):
    """A context as it was at one moment; nothing changes it, and what it gives is a copy."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = copied(dict(values))

    def __getitem__(self, key: str) -> Any:
        """Give a key's value. Raises KeyError."""
        return copied(self._values[key])

    def __iter__(self) -> Iterator[str]:
        """Give the keys, the one that was set last at the end."""
        return iter(tuple(self._values))

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._values)

    def __repr__(self) -> str:
        """Show the values."""
        return f"Snapshot({self._values!r})"

    def to_dict(self) -> dict[str, Any]:
        """Give all of it, as a dictionary of its own."""
        values: dict[str, Any] = copied(self._values)
        return values


class Context:
    """Keys and values that the steps of a run share.

    A key is text; a dotted one (`auth.tests_passing`) is as flat as any other. A value is text, a finite number, true,
    false, null, a list or an object of such, at most DEEPEST levels deep. What goes in and what comes out are copies:
    nothing that is held elsewhere changes the context, and each of its methods is one step for all threads.

    values: what it begins with, whose keys may be the engine's own; those are refused in all that is set later. Raises
    BAD_KEY, RESERVED_KEY and BAD_VALUE, and then nothing of that call is set.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._lock = RLock()
        self._values = {checked_key(key, by_engine=True): checked(key, value) for key, value in (values or {}).items()}
        self._changed: dict[str, bool] = {}  # since it was made: True where the key was set, False where it went

    def get(self, key: str, default: Any = None) -> Any:
        """Give a key's value, or `default` where the key is not set."""
        with self._lock:
            return copied(self._values[key]) if key in self._values else default

    def set(self, key: str, value: Any, *, by_engine: bool = False) -> None:
        """Set one key."""
        self.update({key: value}, by_engine=by_engine)

    def update(self, values: Mapping[str, Any], *, by_engine: bool = False) -> None:
        """Set several keys, all of them or none. by_engine: keys that are the engine's own may be among them."""
        taken = {checked_key(key, by_engine=by_engine): checked(key, value) for key, value in values.items()}
        with self._lock:
            for key, value in taken.items():
                self._put(key, value)

    def change(self, key: str, make: Callable[[Any], Any], default: Any = None) -> Any:
        """Set a key to what `make` makes of its value, while no other thread changes it; gives the new value.

        default: what `make` is given where the key is not set.
        """
        checked_key(key)
        with self._lock:
            value = checked(key, make(self.get(key, default)))
            self._put(key, value)
            return copied(value)

    def unset(self, key: str, *, by_engine: bool = False) -> bool:
        """Take a key away; tells whether it was there."""
        checked_key(key, by_engine=by_engine)
        with self._lock:
            if key not in self._values:
                return False
            del self._values[key]
            self._changed[key] = False
            return True

    def keys(self) -> list[str]:
        """List the keys, the one that was set last at the end."""
        with self._lock:
            return list(self._values)

    def items(self) -> list[tuple[str, Any]]:
        """List keys and values as they were at one moment."""
        return list(self.snapshot().to_dict().items())

    def __iter__(self) -> Iterator[str]:
        """Give the keys as they were when this began."""
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        """Tell whether a key is set."""
        with self._lock:
            return key in self._values

    def __len__(self) -> int:
        """Count the keys."""
        with self._lock:
            return len(self._values)

    def __repr__(self) -> str:
        """Show the values."""
        with self._lock:
            return f"Context({self._values!r})"

    def snapshot(self) -> Snapshot:
        """Give all of it as it is now."""
        with self._lock:
            return Snapshot(self._values)

    def clone(self) -> Context:
        """Give a context for a branch: it begins with the same values, and neither ever sees the other's changes."""
        made = Context()
        made._values = self.snapshot().to_dict()
        return made

    def changes(self) -> Changes:
        """Give what was changed since the context was made or cloned."""
        with self._lock:
            values = {key: copied(self._values[key]) for key, is_set in self._changed.items() if is_set}
            return Changes(values, sorted(key for key, is_set in self._changed.items() if not is_set))

    def merge(self, branches: Sequence[tuple[str, Context]]) -> list[dict[str, Any]]:
        """Take over what branches changed in their clones; gives the conflicts, `{key, branches}` each (D43).

        branches: id and clone of each, in the order in which they were declared: of two that set a key the later one
        wins. What a branch did not touch it does not set back.
        """
        changed = [(name, branch.changes()) for name, branch in branches]
        with self._lock:
            made = merged(self._values, changed)
            self._values = made.context
            for _, changes in changed:
                self._changed.update(dict.fromkeys(changes.gone, False) | dict.fromkeys(changes.set, True))
            return made.conflicts

    def _put(self, key: str, value: Any) -> None:
        self._values.pop(key, None)
        self._values[key] = value
        self._changed.pop(key, None)
        self._changed[key] = True


# ---- What may be in it.


def checked_key(key: object, *, by_engine: bool = False) -> str:
    """Give a key that may be set. Raises BAD_KEY, and RESERVED_KEY for the engine's own (D37, D44)."""
    if not isinstance(key, str):
        raise _bad_key(f"{key!r:.{_SHOWN}}", "a key must be text")
    if not key or len(key) > LONGEST_KEY or not _is_unicode(key):
        raise _bad_key(_shown(key), f"a key must have 1 to {LONGEST_KEY:,} characters of valid Unicode")
    if not by_engine and is_reserved(key):
        raise LoomError(
            "RESERVED_KEY",
            f"the key {_shown(key)} is reserved for Loom",
            why="so are `last_stage`, `last_response` and keys that begin with `_`, `response.`, `output.`, "
            "`command.`, `parallel.`, `internal.` or `human.gate.`",
            hint="loomctl context list --all",
            exit_code=EXIT_USAGE,
        )
    return _plain(key)


def checked(key: object, value: Any) -> Any:
    """Give a copy of a value of which everything is JSON. key: whose, for words. Raises BAD_VALUE."""
    return _copied(value, (one_line(str(key), _SHOWN),), (), itertools.count(1))


def _copied(value: Any, place: tuple[str, ...], above: tuple[Any, ...], counter: Iterator[int]) -> Any:
    """Copy one value. above: the lists and objects that it is in; counter: of the values within the whole."""
    if next(counter) > MOST:
        raise _bad_value(place, f"it holds more than {MOST:,} values")
    if not isinstance(value, (dict, list)):
        why = _misfit(value)
        if why:
            raise _bad_value(place, why)
        return _bare(value)
    if any(value is one for one in above):
        raise _bad_value(place, "it contains itself")
    if len(above) == DEEPEST:
        raise _bad_value(place, f"it is nested deeper than {DEEPEST} levels")
    above = (*above, value)
    if isinstance(value, list):
        return [_copied(inner, (*place, str(at)), above, counter) for at, inner in enumerate(value)]
    for name in value:
        if not isinstance(name, str) or not _is_unicode(name):
            raise _bad_value(place, f"{name!r:.{_SHOWN}} cannot be a key of an object: it must be text")
    return {
        _plain(name): _copied(inner, (*place, one_line(name, _SHOWN)), above, counter) for name, inner in value.items()
    }


def _misfit(value: Any) -> str:
    """Say why a value that is no list and no object is no JSON; empty if it is."""
    if isinstance(value, str):
        return "" if _is_unicode(value) else "the text is not valid Unicode: it holds half a character"
    if isinstance(value, int):
        return "" if abs(value) < _TOO_LONG else "the number has more than 400 digits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{value} is not a JSON number"
    return "" if value is None else f"{type(value).__name__} is not a JSON value: {_ADVICE.get(type(value), _JSON)}"


def _bare(value: Any) -> Any:
    """Give a member of an enumeration, or whatever else is more than text or a number, as just that."""
    if value is None or isinstance(value, bool):
        return value
    return _plain(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)


def _bad_value(place: tuple[str, ...], why: str) -> LoomError:
    shown = place if len(place) <= 8 else (*place[:4], "…", *place[-3:])
    what, hint = "this value cannot be stored in the context", "loomctl context set --help"
    return LoomError("BAD_VALUE", what, where=" / ".join(shown), why=why, hint=hint, exit_code=EXIT_USAGE)


_JSON = "use text, numbers, true, false, null, lists or objects"
_ADVICE: dict[type, str] = {
    **dict.fromkeys((bytes, bytearray), "give it as text, decoded"),
    **dict.fromkeys((tuple, set, frozenset), "give a list"),
}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(text: str) -> str:
    """Give a text that is nothing more, such as an enumeration's member that is one, as text alone."""
    return str.__str__(text)


def _shown(key: str) -> str:
    return repr(one_line(key.encode("utf-8", "backslashreplace").decode(), _SHOWN))


def _bad_key(shown: str, why: str) -> LoomError:
    hint = "loomctl context set --help"
    return LoomError("BAD_KEY", f"{shown} cannot be a key of the context", why=why, hint=hint, exit_code=EXIT_USAGE)
