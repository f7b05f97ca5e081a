"""What a push sends, to the byte: the run's files that the remote has not as they are, and what the push notes itself.

A push writes an entry of its own into the run's log, and the state remembers that: both go along, and are counted
before anything is written. Beside the files goes a commit, which says who pushes what from where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loomctl.handoff import carried, git_refs, handoff, received
from loomctl.kit import clock, files, git, machine
from loomctl.kit.json.shapes import following
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.runs.model import visits
from loomctl.runs.store import events
from loomctl.runs.store.events import Event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.handoff.carried import Entry, LeftOut, Look
    from loomctl.handoff.handoff import Desk, Standing
    from loomctl.handoff.received import Told
    from loomctl.runs.model.state import State

_MOST_NAMED = 1000  # files that were left out, in a commit's message
_LOG = carried.RUN + events.FILE


class Parcel(NamedTuple):
    """What a push would send. new: files that the remote has not as they are, with their bytes and masked secrets.

    gone: paths that it has and the run has no more; left_out: what stays here; outputs: whether outputs go along; told:
    what the commit says.
    """

    run_id: str
    standing: Standing
    new: Sequence[tuple[str, int, int]]
    gone: Sequence[str]
    left_out: Sequence[LeftOut]
    outputs: bool
    told: Told

    @property
    def bytes(self) -> int:
        """The size of all files that are new."""
        return sum(size for _, size, _ in self.new)

    @property
    def message_bytes(self) -> int:
        """The size of what the commit says."""
        return len(received.message(self.told).encode("utf-8", "backslashreplace"))

    @property
    def is_due(self) -> bool:
        """Whether there is anything that the remote has not."""
        return bool(self.new or self.gone or self.standing.theirs is None)


def of(desk: Desk, found: Standing, look: Look, state: State, *, outputs: bool) -> Parcel:
    """Give what goes to the remote of a run as it was looked at. state: what stands in it."""
    run_id = str(state["run_id"])
    known = desk.tree(found.base, run_id) if found.base and found.theirs is not None else {}
    new = [
        (path, entry.bytes, entry.masked) for path, entry in sorted(look.files.items()) if known.get(path) != entry.oid
    ]
    gone = handoff.gone(known, look)
    told = _told(desk, run_id, state, look.left_out, outputs=outputs)
    return Parcel(run_id, found, new, gone, look.left_out, outputs, told)


def foreseen(desk: Desk, found: Standing, look: Look, state: State, *, outputs: bool) -> Parcel:
    """Give what a push would send: as `of`, with what the push itself writes into the run before it is sent."""
    parcel = of(desk, found, look, state, outputs=outputs)
    if not parcel.is_due:
        return parcel
    count = len({path for path, _, _ in parcel.new} | {_LOG, carried.STATE})
    folder, known = desk.space.store.run_dir(parcel.run_id), events.head_of(state.get("ledger_head"))
    more, head = events.foreseen(
        folder, parcel.run_id, [noted(desk, count, outputs=outputs)], known=known, state=events.of_state(state)
    )
    after = {
        **state,
        "revision": following(state.get("revision", 0)),
        "updated_at": clock.now(),
        "ledger_head": head._asdict(),
    }
    data, masked = carried.form(carried.STATE, files.to_json(after))
    written = {carried.STATE: (len(data or b""), masked), _LOG: (_bytes(look.files.get(_LOG)) + more, 0)}
    sizes = {path: (size, count) for path, size, count in parcel.new} | written
    return parcel._replace(new=[(path, *sizes[path]) for path in sorted(sizes)])


def _bytes(entry: Entry | None) -> int:
    return entry.bytes if entry is not None else 0


def noted(desk: Desk, count: int, *, outputs: bool) -> Event:
    """Make the event of a push of so many files, which is a part of what is pushed."""
    told = {**where(desk), "outputs": outputs, "files": count}
    return Event("run.pushed", told, desk.space.caller.session_id)


def where(desk: Desk) -> dict[str, Any]:
    """Give where to and from where a run is pushed, as events tell it."""
    return {"remote": desk.remote.shown, "machine": machine.hostname()}


def _told(desk: Desk, run_id: str, state: Mapping[str, Any], left_out: Sequence[LeftOut], *, outputs: bool) -> Told:
    listed = tuple((one.name, one.why) for one in left_out)[:_MOST_NAMED]
    summary = {
        "work_id": state.get("work_id"),
        "goal": masked_line(str(state.get("goal") or ""), 400),
        "status": state["status"],
        "step": state.get("current_step"),
        "updated_at": state.get("updated_at"),
        "revision": state.get("revision"),
        "stages": sum(1 for entry in visits.every(state) if entry.get("stage")),
    }
    known = git_refs.committer(desk.repository)
    by = mask(known[0] if known is not None else git.user_name(desk.repository.top))[0]
    return received.Told(run_id, clock.now(), by, machine.hostname(), outputs, listed, summary)
