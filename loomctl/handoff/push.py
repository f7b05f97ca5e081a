"""Handing a run on: one commit of what is carried, put where the remote still has what was known here (D29, D53)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from loomctl.handoff import carried, git_answers, git_refs, handoff, parcels, received
from loomctl.kit import clock, files, links
from loomctl.kit.errors import EXIT_HELD, EXIT_SETUP, LoomError
from loomctl.kit.text.fences import one_line
from loomctl.runs.model import lease
from loomctl.runs.store import arrivals
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.handoff.carried import Look
    from loomctl.handoff.handoff import Desk, Standing
    from loomctl.handoff.parcels import Parcel
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State


class Pushed(NamedTuple):
    """What was pushed. parcel: as it was sent; commit: None where the remote had all of it.

    notes: what its user should know.
    """

    parcel: Parcel
    commit: str | None
    notes: Sequence[str]

    @property
    def files(self) -> int:
        """How many files were new."""
        return len(self.parcel.new)


def prepare(desk: Desk, run_id: str, *, outputs: bool = False) -> Parcel:
    """Tell what a push would send; nothing is written. Raises REMOTE_NEWER, DIVERGED, NOT_LOOMS, as a remote does."""
    recording.digest(desk.space)  # what waits belongs into it
    theirs = desk.repository.listed(desk.remote).get(run_id)
    found = _allowed(desk, run_id, theirs)
    outputs = outputs or desk.with_outputs(run_id, found.base)
    look = desk.look(run_id, outputs=outputs)
    desk.looker.add_blobs(look, Blobs(desk.space.store.folder))
    return parcels.foreseen(desk, found, look, desk.space.store.read_state(run_id), outputs=outputs)


def _allowed(desk: Desk, run_id: str, theirs: str | None, *, notes: bool = False) -> Standing:
    """Give how the run stands, if it may be pushed over what the remote has. Raises REMOTE_NEWER, DIVERGED."""
    found = desk.standing(run_id, theirs, notes=notes)
    if found.kind in (handoff.THEIRS, handoff.DIVERGED):
        raise refused(desk, run_id, found)
    return found


def refused(desk: Desk, run_id: str, found: Standing) -> LoomError:
    """Make the error of a push over what somebody else has done."""
    pull = f"loomctl pull {run_id}{desk.option()}"
    if found.kind == handoff.THEIRS:
        brings = "it goes on from what is here, so a pull brings it"
        if found.apart:
            brings = "a pull brings it, and saves what is here, which is not a part of that, as a run of its own"
        return LoomError(
            "REMOTE_NEWER",
            f"{desk.remote.shown} has a newer state of the run {run_id}; nothing was pushed",
            where=received.where_of(desk.remote, run_id),
            why=f"{handoff.who(found.told)}; {brings}",
            hint=pull,
            exit_code=EXIT_HELD,
        )
    return handoff.diverged(desk, run_id, found, "nothing was pushed")


def send(desk: Desk, parcel: Parcel) -> Pushed:
    """Push a run, as it is now. Raises as `prepare`, REMOTE_REFUSED, HELD; then the remote has what it had."""
    run_id, space = parcel.run_id, desk.space
    notes = [*handoff.warned(space, run_id), *_notes(desk, run_id, space.store.read_state(run_id))]
    if not parcel.is_due:
        _note_as_had(desk, run_id, parcel.standing)
        return Pushed(parcel, None, notes)
    with desk.lock(run_id):
        theirs = desk.repository.listed(desk.remote).get(run_id)
        found = _allowed(desk, run_id, theirs, notes=True)
        recording.digest(space)
        _say(space, run_id, parcels.noted(desk, len(parcel.new), outputs=parcel.outputs))
        try:
            pushed = _sent(desk, parcel, found)
            return pushed._replace(notes=[*notes, *pushed.notes])
        except BaseException as error:
            _say_failed(desk, run_id, error.code if isinstance(error, LoomError) else type(error).__name__)
            raise


def _note_as_had(desk: Desk, run_id: str, found: Standing) -> None:
    """Note that the remote has a run as it is here, where the logs alone told it; who hands it on now does so else."""
    with suppress(OSError, LoomError):
        if found.theirs is not None and not desk.is_noted(run_id, found.theirs):
            with desk.lock(run_id, patience=0):
                desk.standing(run_id, found.theirs, notes=True)


def _say_failed(desk: Desk, run_id: str, reason: str) -> None:
    """Write that a push which was begun did not arrive; where that cannot be written, its user is told all the same."""
    try:
        told = {**parcels.where(desk), "reason": reason}
        _say(desk.space, run_id, Event("run.push_failed", told, desk.space.caller.session_id))
    except (OSError, LoomError):
        pass


def _say(space: Workspace, run_id: str, event: Event) -> None:
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
        state = files.read_json(os.path.join(folder, "state.json"))
        now = parcels.of(desk, found, look, state, outputs=parcel.outputs)
        commit = _committed(desk, now, look)
    done = desk.repository.push(desk.remote, commit, run_id, found.theirs)
    notes = []
    if done.code != 0:
        _hold_arrived(desk, run_id, commit, found, done)
        notes = [f"{desk.remote.shown} has it; of the rest git says: {git_answers.besides(done)}"]
    try:
        desk.agree(run_id, commit)
    except (OSError, LoomError) as error:  # the log tells it the next time
        why = error.why if isinstance(error, LoomError) else str(error)
        notes.append(f"{desk.remote.shown} has it; that could not be noted here: {one_line(why, 300)}")
    return Pushed(now, commit, notes)


def keep(run_dir: str, folder: str, *, outputs: bool) -> None:
    """Keep a run as it is at this moment in an empty folder: other names for its files, copies of what is appended to.

    The caller holds the run's lock. Raises OSError.
    """
    for name, source in carried.below(run_dir, outputs=outputs):
        links.give(source, os.path.join(folder, name))


def _hold_arrived(desk: Desk, run_id: str, commit: str, found: Standing, done: git_answers.Done) -> None:
    """Return where a push that did not end well arrived all the same; else say what became of it."""
    try:
        now = desk.repository.listed(desk.remote).get(run_id)
    except LoomError:
        raise git_answers.unreachable(desk.remote, done) from None
    if now == commit:
        return
    if git_answers.is_answer(done):
        desk.let_go(run_id, commit)
    if now != found.theirs:
        raise refused(desk, run_id, desk.standing(run_id, now))
    why = git_answers.refusal(done)
    if not why:
        raise git_answers.unreachable(desk.remote, done)
    raise LoomError(
        "REMOTE_REFUSED",
        f"{desk.remote.shown} does not take the run {run_id}",
        where=received.where_of(desk.remote, run_id),
        why=f"it says: {why}",
        hint="git remote -v" if git_answers.is_stale(done) else f"loomctl push {run_id} --remote URL",
        exit_code=EXIT_SETUP,
    )


def _notes(desk: Desk, run_id: str, state: State) -> list[str]:
    holder = lease.holder(state)
    other = desk.space.store.held(run_id, state)
    if holder is None or (other is None and holder.session_id != desk.space.caller.session_id):
        return []
    there = f"loomctl pull {run_id}{desk.remote.elsewhere}, then loomctl resume {run_id} --take-over"
    drives = "This session drives the run" if other is None else f"The run is driven by {lease.told(other)}"
    return [f"{drives}. To drive it on another machine: {there}"]


# ---- The commit.


def _committed(desk: Desk, parcel: Parcel, look: Look) -> str:
    """Write objects and commit into the repository, on a ref of its own; gives the commit. Raises GIT_FAILED."""
    ref = f"{desk.pending(parcel.run_id)}{os.urandom(6).hex()}"
    return desk.repository.write(ref, _stream(desk, ref, parcel, look, received.message(parcel.told)))


def _stream(desk: Desk, ref: str, parcel: Parcel, look: Look, text: str) -> Iterator[bytes]:
    """Give the commit with the files that its parent has not, and without those gone."""
    base = parcel.standing.base
    known = desk.tree(base, parcel.run_id) if base is not None else {}
    yield from _stream_head(ref, _identity(desk), text, base)
    for path, entry in sorted(look.files.items()):
        if known.get(path) != entry.oid:
            data, _ = carried.form(path, files.read_bytes(entry.source, limit=carried.LARGEST_FILE))
            assert data is not None  # what is held back is not among the files
            yield from _stream_file(path, data)
    yield from (_stream_gone(path) for path in handoff.gone(known, look))
    yield _STREAM_DONE


def _identity(desk: Desk) -> str:
    """Give whom the commit is by: git's own user, if it is set, else Loom."""
    found = git_refs.committer(desk.repository)
    return f"{found[0]} <{found[1]}>" if found is not None else "Loom <loom@localhost>"


_STREAM_DONE = b"done\n"


def _stream_head(ref: str, identity: str, text: str, parent: str | None) -> Iterator[bytes]:
    """Begin a commit on a ref, of now. identity: `Name <mail>`; text: its message; parent: a commit, None for none."""
    message = text.encode("utf-8", "backslashreplace")
    yield b"commit %b\ncommitter %b %d +0000\ndata %d\n" % (
        ref.encode(),
        identity.encode("utf-8", "replace"),
        clock.seconds_of(clock.now()),
        len(message),
    )
    yield message
    if parent is not None:
        yield b"\nfrom %b" % parent.encode()
    yield b"\n"


def _stream_file(path: str, data: bytes) -> Iterator[bytes]:
    """Put a file into the commit."""
    yield b"M 100644 inline %b\ndata %d\n" % (_stream_path(path), len(data))
    yield data
    yield b"\n"


def _stream_gone(path: str) -> bytes:
    """Take a file of the parent's out of the commit."""
    return b"D %b\n" % _stream_path(path)


def _stream_path(path: str) -> bytes:
    """Give a path as a line of the stream names it."""
    data = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + data + b'"'
