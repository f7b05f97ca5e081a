"""Put work into a fleet: runs that begin, each with its place in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.fleet import runs
from loomctl.fleet.model import MIDDLE, PRIORITIES
from loomctl.flow import start
from loomctl.handoff import share
from loomctl.kit import files
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.text.fences import one_line
from loomctl.runs import find

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.fleet.model import Row
    from loomctl.fleet.port import Queue
    from loomctl.runs.project import Workspace

LONGEST_LIST, LONGEST_LINE, MOST = 64 << 20, 1 << 20, 100_000
_KEYS = frozenset({"work", "workflow", "priority", "key", "after"})


class Order(NamedTuple):
    """A piece of work. workflow, key: None for the usual one, and for none.

    after: runs, by handle or id, or by the key of an order before this one. where: the order stands, for errors.
    """

    work: str
    workflow: str | None = None
    priority: int = MIDDLE
    key: str | None = None
    after: tuple[str, ...] = ()
    where: str = ""


class Added(NamedTuple):
    """What came of an order. created: False where the open run of its key is in the fleet already, or is now.

    row: as it stands in the queue.
    """

    row: Row
    created: bool


def add(
    space: Workspace, queue: Queue, repository: str, orders: Sequence[Order], *, host: str, travels: bool = False
) -> Iterator[Added]:
    """Begin runs, or find those of their keys, and offer them. Raises as starting a run does.

    Raises BAD_ORDER and NO_SUCH_RUN, before anything is begun, where `after` names nobody.

    travels: they are sent to the remote before; raises as a push does.

    Each order is done before the next: what was added stays where a later one is refused, and with keys the same list
    can be given again.
    """
    before = _those_before(space, queue, orders)
    by_key: dict[str, str] = {}
    for order in orders:
        after = tuple(by_key.get(one) or before[one] for one in order.after)
        place = runs.entry(host=host, priority=order.priority, after=after, shared=travels)
        begun = start.start(
            space, order.work, workflow=order.workflow, key=order.key, later=True, more={runs.KEY: place}
        )
        state = begun.run.state
        if order.key is not None:
            by_key[order.key] = begun.run.run_id
        if not begun.created and not runs.is_in(state):
            state = runs.mark(space, begun.run.run_id, **place)
        commit = ""
        if travels:
            share.begin(space, begun.run.run_id)
            commit = share.send(space, begun.run.run_id)
        row = runs.row_of(state, repository, commit=commit)
        try:
            queue.offer([row])
        except LoomError as error:
            error.why += f"; the run {row.handle} has begun all the same, and the hint's command puts it into the queue"
            error.hint = "loomctl fleet doctor"
            raise
        yield Added(next(iter(queue.find(row.run_id)), row), begun.created)


def _those_before(space: Workspace, queue: Queue, orders: Sequence[Order]) -> dict[str, str]:
    """Give the ids of the runs that `after` names; another machine of the fleet may have begun them."""
    found: dict[str, str] = {}
    keys: set[str] = set()
    for order in orders:
        for name in order.after:
            if name in keys or name in found:
                continue
            known = queue.find(name)
            try:
                found[name] = known[0].run_id if len(known) == 1 else find.run_to_read(space, name)
            except LoomError as error:
                if not order.where:
                    raise
                raise _bad(order.where, f"`after` names {one_line(name, 60)!r}: {error.what}") from error
        keys |= {order.key} if order.key else set()
    return found


def listed(text: str, source: str, defaults: Order) -> list[Order]:
    """Read orders, a JSON object a line: `work`, and `workflow`, `priority`, `key`, `after`. Raises BAD_ORDER.

    source: where the text is from, for errors. All lines are read before anything is done: one that is wrong adds
    nothing.
    """
    found: list[Order] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            found.append(_order(line, f"{source}:{number}", defaults))
    if not 0 < len(found) <= MOST:
        raise _bad(source, f"it has {len(found):,} lines; {MOST:,} are allowed" if found else "it has no line of work")
    return found


def _order(line: str, where: str, defaults: Order) -> Order:
    if len(line) > LONGEST_LINE:
        raise _bad(where, "the line is longer than 1 MB")
    try:
        raw = files.parse_json(line.encode("utf-8", "surrogatepass"), where=where)
    except LoomError as error:
        raise _bad(where, error.why or error.what) from error
    if not isinstance(raw, dict):
        raise _bad(where, "it is no JSON object")
    unknown = sorted(raw.keys() - _KEYS)
    if unknown:
        raise _bad(where, f"{one_line(unknown[0], 40)!r} is none of its keys, which are {', '.join(sorted(_KEYS))}")
    return checked(
        Order(
            raw.get("work", ""),
            raw.get("workflow", defaults.workflow),
            raw.get("priority", defaults.priority),
            raw.get("key", defaults.key),
            tuple(_list(raw.get("after", [*defaults.after]), where)),
            where,
        ),
        where,
    )


def checked(order: Order, where: str) -> Order:
    """Give an order whose parts are of their kinds. Raises BAD_ORDER."""
    said: object = order.work
    if not isinstance(said, str) or not said.strip():
        raise _bad(where, "`work` must say what is to be done")
    if order.priority not in PRIORITIES or isinstance(order.priority, bool):
        raise _bad(where, f"`priority` is {one_line(str(order.priority), 20)}; it is a number from 1, the first, to 9")
    for name, value in (("workflow", order.workflow), ("key", order.key)):
        if value is not None and not isinstance(value, str):
            raise _bad(where, f"`{name}` is no text")
    return order


def _list(value: Any, where: str) -> Sequence[str]:
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _bad(where, "`after` names runs: a text, or a list of texts")
    return value


def _bad(where: str, why: str) -> LoomError:
    what, hint = "this is no work for a fleet; nothing was added", "loomctl fleet add --help"
    return LoomError("BAD_ORDER", what, where=where, why=why, hint=hint, exit_code=EXIT_USAGE)
