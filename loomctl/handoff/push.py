"""Push a run: one commit of what is carried, put where the remote still has what was known here (D29, D53).

A push writes an entry of its own into the run's log, and the state remembers that: both go along, and are counted
before anything is written. Beside the files goes a commit, which says who pushes what from where.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from loomctl.handoff import carried, copies, handoff, remotes, work_parcel
from loomctl.handoff.carried import LOG, STATE, LeftOut, Look
from loomctl.handoff.handoff import Desk, Message, Standing
from loomctl.handoff.remotes import Done
from loomctl.handoff.repository import Move
from loomctl.handoff.work_parcel import Code, Prepared, There
from loomctl.kit import clock, files, machine
from loomctl.kit.errors import EXIT_HELD, EXIT_SETUP, LoomError
from loomctl.kit.quick_json import following
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import leases
from loomctl.runs.machine import drivers
from loomctl.runs.model import lease, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.state import accepted
from loomctl.runs.model.visit_list import stored
from loomctl.runs.store import arrivals, events, visit_files
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recording

_MOST_NAMED = 1000  # files that were left out, in a commit's message


class Parcel(NamedTuple):
    """What a push would send. new: files that the remote has not as they are, with their bytes and masked secrets.

    gone: paths that it has and the run has no more; an output that is only not here stays in what is pushed; left_out:
    what stays here; outputs: whether outputs go along; message: what the commit says; code: what goes of the run's
    code; notes: for its user.
    """

    run_id: str
    standing: Standing
    new: Sequence[tuple[str, int, int]]
    gone: Sequence[str]
    left_out: Sequence[LeftOut]
    outputs: bool
    message: Message
    code: Code | None = None
    notes: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        """The size of all files that are new."""
        return sum(size for _, size, _ in self.new)

    @property
    def message_bytes(self) -> int:
        """The size of what the commit says."""
        return len(_encoded(self.message))

    @property
    def is_due(self) -> bool:
        """Whether there is anything that the remote has not."""
        return bool(self.new or self.gone or self.standing.theirs is None or self.code is not None)


class Pushed(NamedTuple):
    """What was pushed. parcel: as it was taken there; commit: None where the remote had all of it; notes: for its user.

    released: nobody drives the run any more, here or in what was pushed.
    """

    parcel: Parcel
    commit: str | None
    notes: Sequence[str]
    released: bool = False

    @property
    def files(self) -> int:
        """How many files were new."""
        return len(self.parcel.new)


def prepare(desk: Desk, run_id: str, *, outputs: bool = False) -> Parcel:
    """Tell what a push would send, with what the push itself writes into the run before; nothing is written.

    Raises REMOTE_NEWER, DIVERGED, NOT_LOOMS, and as a remote does.
    """
    recording.digest(desk.space)  # what waits belongs into it
    there = work_parcel.listed(desk, run_id)
    standing = _allowed(desk, run_id, there.state)
    outputs = outputs or desk.with_outputs(run_id, standing.base)
    look = desk.look(run_id, outputs=outputs)
    desk.looker.add_blobs(look, Blobs(desk.space.store.folder))
    state = desk.space.store.read_state(run_id)
    code = work_parcel.prepare(desk, run_id, there.code)
    parcel = _parcel(desk, standing, look, state, outputs=outputs, code=code)
    if not parcel.is_due:
        return parcel
    count = len({path for path, _, _ in parcel.new} | {LOG, STATE})
    more, head = events.foreseen(
        desk.space.store.run_dir(run_id),
        run_id,
        [_event(desk, count, outputs=outputs)],
        known=events.head_of(state.get("ledger_head")),
        state=events.of_state(state),
    )
    after = {**state, "updated_at": clock.now(), "ledger_head": head._asdict()}
    after["revision"] = following(state.get("revision", 0))
    data: bytes | None = files.to_json(stored(after))
    masked, before = 0, look.files.get(STATE)
    if before is None or before.masked:  # what a push writes holds no secret
        data, masked = carried.form(STATE, data or b"")
    log = look.files.get(LOG)
    written = {STATE: (len(data or b""), masked), LOG: ((log.size if log is not None else 0) + more, 0)}
    sizes = {path: (size, count) for path, size, count in parcel.new} | written
    summary = {**parcel.message.summary, "revision": after["revision"], "updated_at": after["updated_at"]}
    message = parcel.message._replace(summary=summary)
    return parcel._replace(new=[(path, *sizes[path]) for path in sorted(sizes)], message=message)


def _parcel(
    desk: Desk, standing: Standing, look: Look, state: dict[str, Any], *, outputs: bool, code: Prepared
) -> Parcel:
    run_id = str(state["run_id"])
    known = desk.tree(standing.base, run_id) if standing.base and standing.theirs is not None else {}
    entries = sorted(look.files.items())
    new = [(path, entry.size, entry.masked) for path, entry in entries if known.get(path) != entry.oid]
    summary = {
        **{key: state.get(key) for key in ("work_id", "status", "updated_at", "revision")},
        "goal": masked_line(str(state.get("goal") or ""), 400),
        "step": state.get("current_step"),
        "stages": sum(1 for entry in visits.every(state) if entry.get("stage")),
    }
    left_out = tuple((entry.name, entry.why) for entry in look.left_out[:_MOST_NAMED])
    message = Message(run_id, clock.now(), desk.author()[0], machine.hostname(), outputs, left_out, summary)
    notes = [code.note] if code.note else []
    return Parcel(run_id, standing, new, _gone(known, look), look.left_out, outputs, message, code.code, notes)


def _gone(known: dict[str, str], look: Look) -> list[str]:
    return sorted(path for path in carried.of_run(known) if path not in look.files and not carried.is_output(path))


def _allowed(desk: Desk, run_id: str, theirs: str | None, *, notes: bool = False) -> Standing:
    """Give how the run stands, if it may be pushed over what the remote has. Raises REMOTE_NEWER, DIVERGED."""
    standing = desk.standing(run_id, theirs, notes=notes)
    if standing.kind in (handoff.THEIRS, handoff.DIVERGED):
        raise _refused(desk, run_id, standing)
    return standing


def _refused(desk: Desk, run_id: str, standing: Standing) -> LoomError:
    if standing.kind != handoff.THEIRS:
        return desk.diverged(run_id, standing, "nothing was pushed")
    brings = "it continues your state, so pull it first"
    if standing.apart:
        brings = "it lacks some of your state: a pull takes it, and saves yours as a new run"
    what = f"{desk.remote.shown} has a newer state of the run {desk.space.store.handle(run_id)}; nothing was pushed"
    where, why = desk.remote.place(run_id), f"{handoff.who(standing.message)}; {brings}"
    hint = desk.pull_command(run_id)
    return LoomError("REMOTE_NEWER", what, where=where, why=why, hint=hint, exit_code=EXIT_HELD)


def send(desk: Desk, parcel: Parcel, *, release: bool = False, save: Callable[[], object] | None = None) -> Pushed:
    """Push a run, as it is now. Raises as `prepare`, REMOTE_REFUSED, HELD; then the remote has what it had.

    save: saves the code once the state is taken, so that it holds what every step left that has ended there.

    release: give its lease up before, so that another machine goes on at once; who works on it here takes it again with
    the next write. Raises HELD_BY_ANOTHER.
    """
    run_id, store = parcel.run_id, desk.space.store
    if release:
        if leases.release_by_hand(desk.space, run_id) is not None:
            parcel = prepare(desk, run_id, outputs=parcel.outputs)
        return send(desk, parcel, save=save)._replace(released=True)
    notes = [*handoff.log_warnings(desk.space, run_id), *_driver_notes(desk, run_id, store.read_state(run_id))]
    notes += parcel.notes
    if not parcel.is_due:
        _note_as_had(desk, run_id, parcel.standing)
        return Pushed(parcel, None, notes)
    with desk.lock(run_id):
        there = work_parcel.listed(desk, run_id)
        standing = _allowed(desk, run_id, there.state, notes=True)
        recording.digest(desk.space)
        event = _event(desk, len(parcel.new), outputs=parcel.outputs)
        store.tell(run_id, lambda _: [event])
        try:
            pushed = _sent(desk, parcel, standing, there, save)
            return pushed._replace(notes=[*notes, *pushed.notes])
        except BaseException as error:
            reason = error.code if isinstance(error, LoomError) else type(error).__name__
            properties = {**_where(desk), "reason": reason}
            with suppress(OSError, LoomError):  # its user is told all the same
                store.tell(run_id, lambda _: [Event("run.push_failed", properties, desk.space.caller.session_id)])
            raise


def _note_as_had(desk: Desk, run_id: str, standing: Standing) -> None:
    """Note that the remote has a run as it is here, where the logs alone told it; who hands it on now does so else."""
    with suppress(OSError, LoomError):
        if standing.theirs is not None and not desk.is_noted(run_id, standing.theirs):
            with desk.lock(run_id, patience=0):
                desk.standing(run_id, standing.theirs, notes=True)


def _event(desk: Desk, count: int, *, outputs: bool) -> Event:
    return Event("run.pushed", {**_where(desk), "outputs": outputs, "files": count}, desk.space.caller.session_id)


def _where(desk: Desk) -> dict[str, Any]:
    return {"remote": desk.remote.shown, "machine": machine.hostname()}


def _sent(desk: Desk, parcel: Parcel, standing: Standing, there: There, save: Callable[[], object] | None) -> Pushed:
    store, run_id = desk.space.store, parcel.run_id
    with arrivals.room(store, "push-") as staging:
        folder = os.path.join(staging, "run")
        os.mkdir(folder, 0o700)
        with store.lock(run_id):  # a moment: other names for its files, copies of what is appended to
            for name, source in carried.below(store.run_dir(run_id), outputs=parcel.outputs):
                copies.give(source, os.path.join(folder, name))
        code = Prepared(parcel.code)
        if save is not None:
            save()
            code = work_parcel.prepare(desk, run_id, there.code)
        look = desk.looker.look(folder, outputs=parcel.outputs)
        desk.looker.add_blobs(look, Blobs(store.folder))
        place = os.path.join(folder, "state.json")
        state = accepted(files.read_json(place), where=place, read=visit_files.reader(folder, run_id))
        now = _parcel(desk, standing, look, state, outputs=parcel.outputs, code=code)
        ref = f"{desk.pending_refs(run_id)}{os.urandom(6).hex()}"
        commit = desk.repository.write(ref, _stream(desk, ref, now, look))
    done, notes = _pushed(desk, now, Move(remotes.RUNS + run_id, commit, standing.theirs))
    now = now._replace(code=None if notes else now.code)
    if done.code != 0:
        _hold_arrived(desk, run_id, commit, standing, done)
        notes += [f"{desk.remote.shown} has the run, but git also says: {remotes.besides(done)}"]
    try:
        desk.agree(run_id, commit)
    except (OSError, LoomError) as error:  # the log tells it the next time
        why = error.why if isinstance(error, LoomError) else str(error)
        notes.append(f"{desk.remote.shown} has the run, but Loom could not record that here: {one_line(why, 300)}")
    return Pushed(now, commit, notes)


def _pushed(desk: Desk, parcel: Parcel, state: Move) -> tuple[Done, list[str]]:
    """Push state and code at one moment; the state alone, with a note, where the remote does not take the code."""
    if parcel.code is None:
        return desk.repository.push(desk.remote, [state]), []
    code = work_parcel.move(desk, parcel.run_id, parcel.code)
    done = desk.repository.push(desk.remote, [state, code])
    if done.code == 0:
        return done, []
    if remotes.cannot_at_once(done):
        done = desk.repository.push(desk.remote, [code])
    elif not remotes.is_answer(done):
        return done, []
    why = [] if done.code == 0 else [f"{desk.remote.shown} did not take the code: {remotes.reason(done, code.ref)}"]
    return desk.repository.push(desk.remote, [state]), why


def _hold_arrived(desk: Desk, run_id: str, commit: str, standing: Standing, done: Done) -> None:
    """Return where a push that did not end well arrived all the same; else say what became of it."""
    try:
        now = work_parcel.listed(desk, run_id).state
    except LoomError:
        raise remotes.unreachable(desk.remote, done) from None
    if now == commit:
        return
    if remotes.is_answer(done):
        desk.let_go(run_id, commit)
    if now != standing.theirs:
        raise _refused(desk, run_id, desk.standing(run_id, now))
    why = remotes.refusal(done)
    if not why:
        raise remotes.unreachable(desk.remote, done)
    what, where = (
        f"{desk.remote.shown} refused the run {desk.space.store.handle(run_id)}",
        desk.remote.place(run_id),
    )
    hint = "git remote -v" if remotes.is_stale(done) else f"loomctl push {desk.space.store.handle(run_id)} --remote URL"
    raise LoomError("REMOTE_REFUSED", what, where=where, why=f"it says: {why}", hint=hint, exit_code=EXIT_SETUP)


def _driver_notes(desk: Desk, run_id: str, state: dict[str, Any]) -> list[str]:
    if state["status"] in OVER:  # nobody goes on with it
        return []
    holder = lease.holder(state)
    other = desk.space.store.held(run_id, state)
    if holder is None or (other is None and holder.session_id != desk.space.caller.session_id):
        return []
    called = desk.space.store.handle(run_id)
    there = f"loomctl pull {called}{desk.remote.elsewhere}, then loomctl resume {called} --take-over"
    drives = "This session drives the run" if other is None else f"The run is driven by {drivers.told(other)}"
    return [f"{drives}. To continue on another machine: {there}"]


# ---- The commit, as `git fast-import` reads it.


def _stream(desk: Desk, ref: str, parcel: Parcel, look: Look) -> Iterator[bytes]:
    base = parcel.standing.base
    known = desk.tree(base, parcel.run_id) if base is not None else {}
    who, message = desk.author()[1].encode("utf-8", "replace"), _encoded(parcel.message)
    now = clock.seconds_of(clock.now())
    yield b"commit %b\ncommitter %b %d +0000\ndata %d\n" % (ref.encode(), who, now, len(message))
    yield message
    yield b"\nfrom %b\n" % base.encode() if base is not None else b"\n"
    for path, entry in sorted(look.files.items()):
        if known.get(path) != entry.oid:
            data = entry.content(path)
            assert data is not None  # what is held back is not among the files
            yield b"M 100644 inline %b\ndata %d\n" % (_quoted(path), len(data))
            yield data
            yield b"\n"
    yield from (b"D %b\n" % _quoted(path) for path in _gone(known, look))
    yield b"done\n"


def _encoded(message: Message) -> bytes:
    return message.text().encode("utf-8", "backslashreplace")


def _quoted(path: str) -> bytes:
    return b'"' + os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
