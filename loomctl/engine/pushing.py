"""Handing a run on: one commit of what is carried, put where the remote still has what was known here (D29, D53)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.disk import arrivals, carried, clock, files, git_answers, machine, people, received, second_names
from loomctl.disk.blobs import Blobs
from loomctl.disk.events import Event
from loomctl.engine import handoff, recording, verifying
from loomctl.model import lease, visits
from loomctl.model.errors import EXIT_HELD, EXIT_SETUP, LoomError
from loomctl.model.secrets import mask, masked_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.disk.carried import LeftOut, Look
    from loomctl.disk.git_answers import Remote
    from loomctl.disk.received import Told
    from loomctl.engine.caller import Workspace
    from loomctl.engine.handoff import Desk, Standing
    from loomctl.model.state import State

_MOST_NAMED = 1000  # files that were left out, in a commit's message
_PIECE = 1 << 20


class Parcel(NamedTuple):
    """What a push would send. new: files that the remote has not as they are, with their bytes and masked secrets.

    gone: paths that it has and the run has no more; left_out: what stays here; outputs: whether outputs go along.
    """

    run_id: str
    standing: Standing
    new: Sequence[tuple[str, int, int]]
    gone: Sequence[str]
    left_out: Sequence[LeftOut]
    outputs: bool

    @property
    def bytes(self) -> int:
        """The size of all that is new."""
        return sum(size for _, size, _ in self.new)

    @property
    def masked(self) -> int:
        """How many secrets were masked in it."""
        return sum(count for _, _, count in self.new)


class Pushed(NamedTuple):
    """What was pushed; commit: None where the remote had all of it. notes: what its user should know."""

    run_id: str
    remote: Remote
    commit: str | None
    files: int
    bytes: int
    masked: int
    left_out: Sequence[LeftOut]
    outputs: bool
    notes: Sequence[str]


def prepare(desk: Desk, run_id: str, *, outputs: bool = False) -> Parcel:
    """Tell what a push would send; nothing is written. Raises REMOTE_NEWER, DIVERGED, NOT_LOOMS, as a remote does."""
    recording.digest(desk.space)  # what waits belongs into it
    theirs = desk.repository.listed(desk.remote).get(run_id)
    found = _allowed(desk, run_id, theirs)
    outputs = outputs or desk.with_outputs(run_id, found.base)
    look = desk.look(run_id, outputs=outputs)
    desk.looker.add_blobs(look, Blobs(desk.space.store.folder))
    return _parcel(desk, run_id, found, look, outputs=outputs)


def _allowed(desk: Desk, run_id: str, theirs: str | None) -> Standing:
    """Give how the run stands, if it may be pushed over what the remote has. Raises REMOTE_NEWER, DIVERGED."""
    found = desk.standing(run_id, theirs)
    if found.kind in (handoff.THEIRS, handoff.DIVERGED):
        raise refused(desk, run_id, found)
    return found


def refused(desk: Desk, run_id: str, found: Standing) -> LoomError:
    """Make the error of a push over what somebody else has done."""
    pull = f"loomctl pull {run_id}{desk.option()}"
    if found.kind == handoff.THEIRS:
        apart = found.look is not None and found.theirs and not desk.goes_on(found.look, found.theirs, run_id)
        saves = ", and saves what is here, which is not a part of that, as a run of its own" if apart else ""
        return LoomError(
            "REMOTE_NEWER",
            f"{desk.remote.shown} has a newer state of the run {run_id}; nothing was pushed",
            where=received.where_of(desk.remote, run_id),
            why=f"{handoff.who(found.told)}; nothing was done here since, so a pull brings it{saves}",
            hint=pull,
            exit_code=EXIT_HELD,
        )
    return diverged(desk, run_id, found, "nothing was pushed")


def diverged(desk: Desk, run_id: str, found: Standing, so: str) -> LoomError:
    """Make the error of a run that went on here and there."""
    pull = f"loomctl pull {run_id}{desk.option()}"
    return LoomError(
        "DIVERGED",
        f"the run {run_id} went on here and at {desk.remote.shown}; {so}",
        where=received.where_of(desk.remote, run_id),
        why=f"{handoff.who(found.told)}; two states are not merged: --keep-mine keeps this one and saves theirs as a "
        "run of its own, --take-theirs takes theirs and saves this one",
        hint=f"{pull} --keep-mine",
        exit_code=EXIT_HELD,
    )


def _parcel(desk: Desk, run_id: str, found: Standing, look: Look, *, outputs: bool) -> Parcel:
    theirs = desk.tree(found.base, run_id) if found.base else {}
    known = theirs if found.theirs is not None else {}
    new = [
        (path, entry.bytes, entry.masked) for path, entry in sorted(look.files.items()) if known.get(path) != entry.oid
    ]
    gone = sorted(handoff.of_run(known).keys() - look.files.keys())
    return Parcel(run_id, found, new, gone, look.left_out, outputs)


def send(desk: Desk, parcel: Parcel) -> Pushed:
    """Push a run, as it is now. Raises as `prepare`, REMOTE_REFUSED, HELD; then the remote has what it had."""
    run_id, space = parcel.run_id, desk.space
    state = space.store.read_state(run_id)
    notes = _notes(space, run_id, state)
    if not parcel.new and not parcel.gone and parcel.standing.theirs is not None:
        return Pushed(run_id, desk.remote, None, 0, 0, 0, parcel.left_out, parcel.outputs, notes)
    with desk.lock(run_id):
        theirs = desk.repository.listed(desk.remote).get(run_id)
        found = _allowed(desk, run_id, theirs)
        recording.digest(space)
        _say(space, run_id, "run.pushed", {**_where(desk), "outputs": parcel.outputs, "files": len(parcel.new)})
        try:
            return _sent(desk, parcel, found)._replace(notes=notes)
        except BaseException as error:
            _say_failed(desk, run_id, error.code if isinstance(error, LoomError) else type(error).__name__)
            raise


def _say_failed(desk: Desk, run_id: str, reason: str) -> None:
    """Write that a push which was begun did not arrive; where that cannot be written, its user is told all the same."""
    try:
        _say(desk.space, run_id, "run.push_failed", {**_where(desk), "reason": reason})
    except (OSError, LoomError):
        pass


def _where(desk: Desk) -> dict[str, Any]:
    return {"remote": desk.remote.shown, "machine": machine.hostname()}


def _say(space: Workspace, run_id: str, name: str, told: Mapping[str, Any]) -> None:
    event = Event(name, told, space.caller.session_id)
    space.store.tell(run_id, lambda _: [event])


def _sent(desk: Desk, parcel: Parcel, found: Standing) -> Pushed:
    space, run_id = desk.space, parcel.run_id
    with arrivals.room(space.store, "push-") as staging:
        folder = os.path.join(staging, "run")
        os.mkdir(folder, 0o700)
        with space.store.lock(run_id):  # a moment: names, not bytes
            keep(space.store.run_dir(run_id), folder, outputs=parcel.outputs)
        look = desk.looker.look(folder, outputs=parcel.outputs)
        desk.looker.add_blobs(look, Blobs(space.store.folder))
        now = _parcel(desk, run_id, found, look, outputs=parcel.outputs)
        commit = _committed(desk, now, look, files.read_json(os.path.join(folder, "state.json")))
    done = desk.repository.push(desk.remote, commit, run_id, found.theirs)
    if done.code != 0:
        _hold_arrived(desk, run_id, commit, found, done)
    desk.agree(run_id, commit)
    return Pushed(run_id, desk.remote, commit, len(now.new), now.bytes, now.masked, now.left_out, now.outputs, ())


def keep(run_dir: str, folder: str, *, outputs: bool) -> None:
    """Keep a run as it is at this moment in an empty folder: other names for its files, copies of what is appended to.

    The caller holds the run's lock. Raises OSError.
    """
    for name, source in carried.below(run_dir, outputs=outputs):
        second_names.give(source, os.path.join(folder, name))


def _hold_arrived(desk: Desk, run_id: str, commit: str, found: Standing, done: git_answers.Done) -> None:
    """Return where a push that did not end well arrived all the same; else say what became of it."""
    try:
        now = desk.repository.listed(desk.remote).get(run_id)
    except LoomError:
        raise git_answers.unreachable(desk.remote, done) from None
    if now == commit:
        return
    if now != found.theirs:
        raise refused(desk, run_id, desk.standing(run_id, now))
    why = git_answers.refusal(done)
    if not why:
        raise git_answers.unreachable(desk.remote, done)
    raise LoomError(
        "REMOTE_REFUSED",
        f"{desk.remote.shown} does not take the run {run_id}",
        where=received.where_of(desk.remote, run_id),
        why=f"it says: {why}; its administrator must allow refs below refs/loom/, or another remote is named",
        hint=f"loomctl push {run_id} --remote URL",
        exit_code=EXIT_SETUP,
    )


def _notes(space: Workspace, run_id: str, state: State) -> list[str]:
    warned = verifying.warning(space.store, run_id)
    notes = [f"Run {run_id}: {warned}"] if warned else []
    holder = lease.holder(state)
    if holder is None or holder.session_id != space.caller.session_id:
        return notes
    resume = f"loomctl resume {run_id} --take-over"
    return [
        *notes,
        f"This session drives the run. To drive it on another machine: loomctl pull {run_id}, then {resume}",
    ]


# ---- The commit.


def _committed(desk: Desk, parcel: Parcel, look: Look, state: State) -> str:
    """Write objects and commit into the repository, on a ref of its own; gives the commit. Raises GIT_FAILED."""
    ref = f"{desk.pending(parcel.run_id)}{os.urandom(6).hex()}"
    told = _told(desk, parcel, state)
    return desk.repository.write(ref, _stream(desk, ref, parcel, look, received.message(told)))


def _told(desk: Desk, parcel: Parcel, state: State) -> Told:
    listed = tuple((one.name, one.why) for one in parcel.left_out)[:_MOST_NAMED]
    summary = {
        "work_id": state.get("work_id"),
        "goal": masked_line(str(state.get("goal") or ""), 400),
        "status": state["status"],
        "step": state.get("current_step"),
        "updated_at": state.get("updated_at"),
        "revision": state.get("revision"),
        "stages": sum(1 for entry in visits.every(state) if entry.get("stage")),
    }
    by = mask(people.user_name(desk.repository.top))[0]
    return received.Told(parcel.run_id, clock.now(), by, machine.hostname(), parcel.outputs, listed, summary)


def _stream(desk: Desk, ref: str, parcel: Parcel, look: Look, text: str) -> Iterator[bytes]:
    """Give the stream of `git fast-import`: a commit with the files that its parent has not, and without those gone."""
    message = text.encode("utf-8", "backslashreplace")
    yield b"commit %b\ncommitter %b %d +0000\ndata %d\n" % (
        ref.encode(),
        _identity(desk).encode("utf-8", "replace"),
        clock.seconds_of(clock.now()),
        len(message),
    )
    yield message
    base = parcel.standing.base
    known: dict[str, str] = {}
    if base is not None:
        known = desk.tree(base, parcel.run_id)
        yield b"\nfrom %b" % base.encode()
    yield b"\n"
    for path, entry in sorted(look.files.items()):
        if known.get(path) != entry.oid:
            data, _ = carried.form(path, files.read_bytes(entry.source, limit=carried.LARGEST_FILE))
            assert data is not None  # what is held back is not among the files
            yield b"M 100644 inline %b\ndata %d\n" % (_quoted(path), len(data))
            yield data
            yield b"\n"
    for path in sorted(handoff.of_run(known).keys() - look.files.keys()):
        yield b"D %b\n" % _quoted(path)
    yield b"done\n"


def _quoted(path: str) -> bytes:
    data = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + data + b'"'


def _identity(desk: Desk) -> str:
    """Give whom the commit is by: git's own user, if it is set, else Loom."""
    found = []
    for key in ("user.name", "user.email"):
        done = desk.repository.run("config", key)
        text = done.out.decode("utf-8", "replace").strip() if done.code == 0 else ""
        found.append("".join(character for character in text if character.isprintable() and character not in "<>"))
    return f"{found[0]} <{found[1]}>" if all(found) else "Loom <loom@localhost>"
