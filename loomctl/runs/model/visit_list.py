"""The visits of a run of which the older ones stand in a file: a list of all, of which the newest are held."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeAlias

    Visit: TypeAlias = dict[str, Any]
    Reader: TypeAlias = Callable[[Mapping[str, Any]], Iterator[Visit]]  # from a state's record; the newest first

KEY = "earlier"
"""The key of a stored state under which it keeps what there is to know of the visits that left it.

`{file, count, bytes, sha256, ended: {how: count}, steps: {step: {count, rounds, last}}}`. sha256: of the last line;
each has the one before's. rounds: as `max_visits` counts.
"""
BATCH = 32  # visits leave a state so many at a time
MOST = 1 << 20  # visits in a file


class Earlier:
    """The visits that left a state, read when they are asked for, and no further back than that."""

    def __init__(self, record: Mapping[str, Any], read: Reader) -> None:
        self.record, self.read = record, read
        self.count: int = record["count"]
        self._known: list[Visit] = []
        self._lines: Iterator[Visit] | None = None

    def newest(self, count: int) -> list[Visit]:
        """Give so many of them, the newest first. Raises BAD_STATE."""
        if count > 0:
            self.at(min(count, self.count) - 1)
        return self._known[:count]

    def at(self, number: int) -> Visit:
        """Give one of them; 0 for the newest. Raises BAD_STATE."""
        if self._lines is None:
            self._known, self._lines = [], self.read(self.record)
        try:
            while len(self._known) <= number:
                self._known.append(next(self._lines))
        except BaseException:
            self._lines = None
            raise
        return self._known[number]


class Visits(list[dict[str, "Any"]]):
    """Behaves as the list of all visits; what it holds itself are the newest."""

    def __init__(self, newest: Iterable[Visit], earlier: Earlier) -> None:
        super().__init__(newest)
        self.earlier = earlier

    @property
    def newest(self) -> list[Visit]:
        """The visits that the state itself holds, oldest first."""
        return list.copy(self)

    def __len__(self) -> int:
        return self.earlier.count + list.__len__(self)

    def __iter__(self) -> Iterator[Visit]:
        yield from reversed(self.earlier.newest(self.earlier.count))
        yield from list.__iter__(self)

    def __reversed__(self) -> Iterator[Visit]:
        yield from list.__reversed__(self)
        for number in range(self.earlier.count):
            yield self.earlier.at(number)

    def __getitem__(self, key: Any) -> Any:
        count, total = self.earlier.count, len(self)
        if not isinstance(key, slice):
            at = range(total)[key]  # IndexError as a list's
            return list.__getitem__(self, at - count) if at >= count else self.earlier.newest(count - at)[-1]
        start, stop, step = key.indices(total)
        if step == 1 and start >= count:
            return list.__getitem__(self, slice(start - count, max(0, stop - count)))
        if step == 1 and start == 0 and stop >= count:
            return Visits(list.__getitem__(self, slice(stop - count)), self.earlier)
        return list(self)[key]

    def __add__(self, other: Iterable[Any]) -> Any:
        return Visits([*list.copy(self), *other], self.earlier)

    def __radd__(self, other: Iterable[Any]) -> list[Any]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Visits) and self.earlier.record == other.earlier.record:
            return list.__eq__(self, other)
        return isinstance(other, list) and len(self) == len(other) and list(self) == list(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __contains__(self, value: object) -> bool:
        return any(one == value for one in reversed(self))

    def index(self, value: Any, *_: Any) -> int:
        """Give the place of a visit, which is looked for from the newest on: there is none twice."""
        for behind, one in enumerate(reversed(self), 1):
            if one == value:
                return len(self) - behind
        raise ValueError(f"{value!r:.80} is not in the list")

    def __reduce__(self) -> Any:
        return list, (list(self),)


def with_newest(steps: list[Visit], newest: list[Visit]) -> list[Visit]:
    """Give visits with others for those that the state itself holds."""
    return Visits(newest, steps.earlier) if isinstance(steps, Visits) else newest


def stored(state: Mapping[str, Any]) -> dict[str, Any]:
    """Give a state as its file holds it."""
    steps = state["steps"]
    return {**state, "steps": steps.newest, KEY: steps.earlier.record} if isinstance(steps, Visits) else dict(state)
