"""Taking a run from a remote: whole or not at all, in the place of one that nothing was done to, or beside it (D53).

What comes is built in a folder beside and takes its place at one moment, so that a kill leaves the run as it was or as
it came. Nothing of this machine is lost by it: what was never carried stays, and secrets that were masked come back.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from loomctl.flow import command_events
from loomctl.handoff import carried, handoff, received, received_files, save_aside
from loomctl.kit import files, links, machine
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.text.counts import counted
from loomctl.runs import leases
from loomctl.runs.machine import handoff_notes, known
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import lease, saved_copies
from loomctl.runs.store import arrivals, store
from loomctl.runs.tools import output_files, recording, tool_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.handoff.handoff import Desk, Standing
    from loomctl.handoff.received import Told
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

NEW, FORWARD, NOTHING, AHEAD, KEPT_MINE, TOOK_THEIRS = "new", "forward", "nothing", "ahead", "kept_mine", "took_theirs"
"""What a pull did: brought the run, or brought it forward; nothing, or it is newer here; kept one, saved the other."""


class Pulled(NamedTuple):
    """What was taken. kind: see above; saved: the run that the other state was saved as; files: how many were fetched.

    told: who pushed what came; left_out: what did not come, and why; notes: what its user should know of what came;
    brought: paths of what the run here names and lacked, and has now, whichever state it goes on from;
    bytes: of the files that were fetched.
    """

    run_id: str
    kind: str
    saved: str | None
    files: int
    told: Told | None
    left_out: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    brought: Sequence[str] = ()
    bytes: int = 0


def pull(desk: Desk, run_id: str, theirs: str, *, keep: str = "") -> Pulled:
    """Take a run from the remote. theirs: its commit there; keep: KEPT_MINE or TOOK_THEIRS, for one that diverged.

    Raises DIVERGED without `keep`, BAD_HANDOFF, NEWER_HANDOFF, RUN_ID_MISMATCH, NOT_LOOMS, HELD, COMMAND_RUNS, and what
    a remote and writing raise, and HELD_BY_ANOTHER where another session on this machine drives the run, unless a
    person in a terminal takes theirs; then the run is as it was.
    """
    desk.space.store.prepare(commit_runs=desk.space.settings.commit_runs)
    recording.digest(desk.space)  # what waits is a part of what is here
    with desk.lock(run_id), desk.taking(run_id, theirs):
        arrivals.mend(desk.space.store, run_id)
        found = desk.standing(run_id, theirs, notes=True)
        stays = found.kind != handoff.THEIRS or (found.look is not None and keep == KEPT_MINE)
        with desk.listing_hinted():
            brought = bring_in(desk, run_id, theirs) if stays else []
        if found.kind in (handoff.SAME, handoff.MINE):
            kind = NOTHING if found.kind == handoff.SAME else AHEAD
            return Pulled(run_id, kind, None, len(brought), found.told, (), brought=brought)
        if found.look is not None and keep != KEPT_MINE:
            _refuse_driven(desk, run_id, keep)
        if found.kind == handoff.DIVERGED and not keep:
            raise handoff.diverged(desk, run_id, found, _nothing_but(brought))
        with desk.listing_hinted(), arrivals.room(desk.space.store, "pull-") as staging:
            pulled = _Pull(desk, run_id, found, staging).take(keep)
    came = pulled.saved if pulled.kind == KEPT_MINE and pulled.saved else run_id
    return pulled._replace(notes=handoff.warned(desk.space, came), brought=brought)


def _nothing_but(brought: Sequence[str]) -> str:
    if not brought:
        return "nothing was pulled"
    return f"nothing was pulled but {counted(len(brought), 'file')} that the run here names and lacked"


class _Pull:
    """One pull on its way, in a room of its own.

    apart: what is here is no part of what came, whether or not anything was done here since both agreed: somebody else
    may have kept another state than ours, and pushed that.
    """

    def __init__(self, desk: Desk, run_id: str, found: Standing, room: str) -> None:
        assert found.theirs is not None  # the remote has it
        assert found.told is not None
        self._desk, self._run_id, self._found, self._room = desk, run_id, found, room
        self._space, self._store = desk.space, desk.space.store
        self._theirs, self._told = found.theirs, found.told
        self._folder = os.path.join(room, "run")
        self._fetched = self._bytes = 0
        self._apart = found.look is not None and found.apart

    def take(self, keep: str) -> Pulled:
        """Build what came, hold that it can be worked with, and give it its place."""
        self._build()
        where = received.where_of(self._desk.remote, self._run_id)
        state = received.whole(self._folder, self._run_id, where)
        received_files.put_blobs(self._store.folder, self._room, where)
        if self._found.look is None:
            arrivals.sync(self._folder)
            self._announced(NEW, None, state)
            arrivals.into_place(self._store, self._folder, self._run_id)
            return self._done(NEW, None)
        if self._apart and keep == KEPT_MINE:
            saved = self._save(self._folder, state, saved_copies.THEIRS)
            self._desk.agree(self._run_id, self._theirs, log=handoff.log_of(self._found.look))
            return Pulled(
                self._run_id, KEPT_MINE, saved, self._fetched, self._told, self._told.left_out, bytes=self._bytes
            )
        return self._replace(state, keep)

    # ---- What came.

    def _build(self) -> None:
        """Write what came into the room; a file that is here as it was carried is not fetched again."""
        wanted = dict(self._desk.tree(self._theirs, self._run_id))
        if not self._told.outputs and any(handoff.is_output(path) for path in wanted):
            raise received.bad(received.where_of(self._desk.remote, self._run_id), "it brings outputs unsaid")
        os.mkdir(self._folder, 0o755)
        for path, oid in list(wanted.items()):
            if self._is_here(path, oid):
                del wanted[path]
        received.write(self._desk.repository, wanted, self._room)
        self._fetched = len(wanted)
        self._bytes = sum(os.path.getsize(os.path.join(self._room, path)) for path in wanted)

    def _is_here(self, path: str, oid: str) -> bool:
        """Tell whether a file need not be fetched; one of the run's then has its place in the room, too."""
        if carried.is_blob(path):
            return received_files.has_blob(self._store.folder, path)
        here = self._found.look.files.get(path) if self._found.look is not None else None
        if here is None or here.oid != oid:
            return False
        target = os.path.join(self._room, path)
        if self._apart:  # two runs share no files
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
            shutil.copy2(here.source, target, follow_symlinks=False)
        else:
            links.give(here.source, target)
        return True

    # ---- Its place.

    def _replace(self, came: State, keep: str) -> Pulled:
        """Let what came take the place of the run that is here, which is saved first if it is no part of what came."""
        diverged = self._found.kind == handoff.DIVERGED
        kind = TOOK_THEIRS if diverged else FORWARD
        target = self._store.run_dir(self._run_id)
        self._unmask()
        saved = None
        with self._store.lock(self._run_id):
            _refuse_driven(self._desk, self._run_id, keep)
            self._refuse_running()
            look = self._desk.look(self._run_id, outputs=self._had_outputs())
            if not diverged and not self._is_unchanged(look):
                raise self._changed_meanwhile()
            if self._apart:
                mine = os.path.join(self._room, "mine")
                links.give_all(target, mine)
                saved = self._save(mine, self._store.read_state(self._run_id), saved_copies.MINE)
            self._bring_over(target)
            arrivals.sync(self._folder)
            store.forget_open_runs(self._store.folder, self._store.local)
            self._announced(kind, saved, came)
            arrivals.swap(self._folder, target, arrivals.aside(self._store.local, self._run_id))
        files.sync_folder(os.path.dirname(target))
        return self._done(kind, saved)

    def _had_outputs(self) -> bool:
        return self._desk.with_outputs(self._run_id, self._found.base)

    def _is_unchanged(self, look: carried.Look) -> bool:
        """Tell whether what is here is what it was found to be; an output that came meanwhile stays."""
        return self._found.look is not None and _work_in(look) == _work_in(self._found.look)

    def _changed_meanwhile(self) -> LoomError:
        return LoomError(
            "WORKED_ON_MEANWHILE",
            f"the run {self._run_id} was worked on here while its newer state was fetched; nothing was changed",
            where=self._store.run_dir(self._run_id),
            why="the same command again tells how both stand now",
            hint=f"loomctl pull {self._run_id}{self._desk.option()}",
            exit_code=EXIT_HELD,
        )

    def _refuse_running(self) -> None:
        """Refuse to move a run's folder under a command that writes into it. Raises COMMAND_RUNS."""
        try:
            run: Run = self._store.read(self._run_id)
        except LoomError:  # one that cannot be read has no open step either
            return
        if command_events.runs_now(self._desk.space, run):
            raise LoomError(
                "COMMAND_RUNS",
                f"a command of the run {self._run_id} runs on this machine; nothing was changed",
                where=run.folder,
                why="its output belongs to the state that is here",
                hint=f"loomctl next {self._run_id}",
                exit_code=EXIT_HELD,
            )

    def _unmask(self) -> None:
        """Put the secrets back that this machine's files hold and that were masked when they were carried."""
        look = self._found.look
        assert look is not None  # there is a run here
        for path, entry in look.files.items():
            target = os.path.join(self._room, path)
            if not entry.masked or not os.path.isfile(target) or os.path.samefile(entry.source, target):
                continue
            theirs = files.read_bytes(target, limit=carried.LARGEST_FILE)
            back = carried.unmasked(path, theirs, files.read_bytes(entry.source, limit=carried.LARGEST_FILE))
            if back != theirs:
                files.write_atomically(target, back, mode=0o644, durable=False)

    def _bring_over(self, target: str) -> None:
        """Give the folder that came what is this machine's alone, and never was carried: outputs, kept states."""
        left = (
            {entry.name.removeprefix(carried.RUN) for entry in self._found.look.left_out} if self._found.look else set()
        )
        for name, source in carried.all_below(target):
            place = os.path.join(self._folder, name)
            stays = name in left or name.startswith(f"{output_files.FOLDER}/") or carried.is_this_machines(name)
            if not stays or name.endswith(".tmp") or os.path.lexists(place):
                continue
            if name.startswith("stages/") and not os.path.isdir(os.path.dirname(place)):
                continue  # of a stage that the run no longer has
            links.give(source, place)
        backup = os.path.join(self._folder, "state.backup.json")
        files.remove(backup)
        links.give(os.path.join(target, "state.json"), backup)

    # ---- Saved as a run of its own.

    def _save(self, folder: str, state: State, whose: str) -> str:
        """Make one of two states a run of its own; gives its id. Mine is known on this machine, if the run was."""
        is_theirs = whose == saved_copies.THEIRS
        place = (self._told.machine, self._told.by) if is_theirs else (machine.hostname(), "")
        origin = save_aside.Origin(self._run_id, whose, self._desk.remote.shown, *place)
        kept_known = not is_theirs and known.is_known(self._run_id, self._store.folder)
        new = save_aside.save(self._space, folder, state, origin)
        if is_theirs:
            self._note(new, {})
        elif kept_known:
            known.note(new, self._store.folder)
        return new

    def _announced(self, kind: str, saved: str | None, came: State) -> None:
        """Have the run announced, and its commands wait for trust, until it is resumed here: before it is in its place.

        A kill leaves no run known that somebody else brought forward. One that it leaves as it was is announced once
        too often; that nothing came, the next resume reads off the log, which lacks the entry that is noted here.
        """
        known.forget(self._run_id, self._store.folder)
        pulled = {"kind": kind, **({"saved": saved} if saved else {})}
        found = lease.holder(came)
        driver = {"driver": {"epoch": found.epoch, "session_id": found.session_id}} if found is not None else {}
        self._note(self._run_id, {"pulled": pulled, "head": came.get("ledger_head"), **driver})

    def _done(self, kind: str, saved: str | None) -> Pulled:
        """Note what both sides have now."""
        self._desk.agree(self._run_id, self._theirs)
        return Pulled(self._run_id, kind, saved, self._fetched, self._told, self._told.left_out, bytes=self._bytes)

    def _note(self, run_id: str, more: Mapping[str, Any]) -> None:
        told = self._told
        value = {
            "machine": told.machine,
            "by": told.by,
            "at": told.at,
            "remote": self._desk.remote.shown,
            "commit": self._theirs,
            "outputs": told.outputs,
            "left_out": [list(one) for one in told.left_out],
        }
        handoff_notes.write(self._store.local, run_id, {**value, **more})


def _work_in(look: carried.Look) -> dict[str, str]:
    return {path: oid for path, oid in handoff.of_run(look.names()).items() if not handoff.is_output(path)}


def _refuse_driven(desk: Desk, run_id: str, keep: str) -> None:
    """Refuse to replace a run that another session on this machine drives. Raises HELD_BY_ANOTHER.

    A person in a terminal, who said which of two states counts, may.
    """
    in_a_terminal = desk.space.caller.host == TERMINAL
    if in_a_terminal and keep == TOOK_THEIRS:
        return
    try:
        state = desk.space.store.read_state(run_id)
    except LoomError:  # one that cannot be read nobody drives
        return
    try:
        leases.refuse_to_replace(desk.space, run_id, state)
    except LoomError as error:
        if in_a_terminal:
            error.hint = f"loomctl pull {run_id} --take-theirs{desk.option()}"
        raise


def bring_in(desk: Desk, run_id: str, theirs: str) -> list[str]:
    """Take what is missing here of a commit that was fetched; gives the paths, as they are carried.

    Raises BAD_HANDOFF, GIT_FAILED, OSError; what was taken by then stays, for it is missed by nobody else.
    """
    store, run_dir = desk.space.store, desk.space.store.run_dir(run_id)
    tree = desk.tree(theirs, run_id)
    outputs = dict(_missing_outputs(run_dir)) if desk.told(theirs, run_id).outputs else {}
    wanted = [carried.RUN + ref for ref in outputs if carried.RUN + ref in tree]
    wanted += [path for path in tree if carried.is_blob(path) and not received_files.has_blob(store.folder, path)]
    if not wanted:
        return []
    with arrivals.room(store, "missing-") as room:
        received.write(desk.repository, {path: tree[path] for path in wanted}, room)
        received_files.put_blobs(store.folder, room, received.where_of(desk.remote, run_id))
        return [path for path in wanted if carried.is_blob(path) or _given(room, run_dir, path, outputs)]


def _given(room: str, run_dir: str, path: str, outputs: dict[str, str]) -> bool:
    ref = path.removeprefix(carried.RUN)
    return received_files.add_output(room, run_dir, ref, outputs[ref])


def _missing_outputs(run_dir: str) -> Iterator[tuple[str, str]]:
    """Give the outputs that tool steps name and that are not here, with their hashes, as far as the steps say them."""
    for step in tool_log.read(run_dir):
        for ref, sha256 in ((step.outcome_ref, step.sha256), (step.rest_ref, "")):
            if (
                ref
                and f"{carried.RUN}{ref}".startswith(carried.OUTPUTS)
                and not os.path.lexists(os.path.join(run_dir, ref))
            ):
                yield ref, sha256
