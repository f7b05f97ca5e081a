"""Pull a run: whole or not at all, in the place of one that nothing was done to, or beside it (D10, D53).

What comes is looked at before anything of it is believed, is built in a folder beside and takes its place at one
moment, so that a kill leaves the run as it was or as it came. Nothing of this machine is lost by it: what was never
carried stays, and secrets that were masked come back. Of two states the one that is not kept becomes a run of its own.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import IO, Any, NamedTuple

from loomctl.flow.commands import evidence_commands
from loomctl.handoff import carried, copies, handoff
from loomctl.handoff.carried import Look
from loomctl.handoff.handoff import Desk, Message, Standing
from loomctl.handoff.remotes import bad_handoff
from loomctl.handoff.repository import Repository
from loomctl.kit import clock, digests, files, ids, machine
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.runs import leases, log_verdict
from loomctl.runs.machine import run_notes
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, lease
from loomctl.runs.model.standing import MINE, THEIRS
from loomctl.runs.model.state import ACTIVE, accepted, counted_off
from loomctl.runs.store import arrivals, blobs, event_log, events, layouts, visit_files
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recording, tool_log

NEW, FORWARD, NOTHING, AHEAD, KEPT_MINE, TOOK_THEIRS = "new", "forward", "nothing", "ahead", "kept_mine", "took_theirs"
"""What a pull did: brought the run, or brought it forward; nothing, or it is newer here; kept one, saved the other."""
_PIECE = 1 << 20


class Pulled(NamedTuple):
    """What was taken. kind: see above; saved: the run that the other state was saved as; files: how many were fetched.

    message: of the commit that came; left_out: what did not come, and why; notes: what its user should know of it;
    brought: paths of what the run here names and lacked, and has now, whichever state it goes on from;
    bytes: of the files that were fetched.
    """

    run_id: str
    kind: str
    saved: str | None
    files: int
    message: Message | None
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
    with desk.lock(run_id), desk.drop_unfit(run_id, theirs):
        arrivals.mend(desk.space.store, run_id)
        standing = desk.standing(run_id, theirs, notes=True)
        stays = standing.kind != handoff.THEIRS or (standing.look is not None and keep == KEPT_MINE)
        brought = _bring_missing(desk, run_id, theirs) if stays else []
        if standing.kind in (handoff.SAME, handoff.MINE):
            kind = NOTHING if standing.kind == handoff.SAME else AHEAD
            return Pulled(run_id, kind, None, len(brought), standing.message, (), brought=brought)
        if standing.look is not None and keep != KEPT_MINE:
            _refuse_driven(desk, run_id, keep)
        if standing.kind == handoff.DIVERGED and not keep:
            but = f" but {counted(len(brought), 'file')} missing here" if brought else ""
            raise desk.diverged(run_id, standing, f"nothing was pulled{but}")
        with arrivals.room(desk.space.store, "pull-") as room:
            pulled = _Pull(desk, run_id, standing, room).take(keep)
    came = pulled.saved if pulled.kind == KEPT_MINE and pulled.saved else run_id
    return pulled._replace(notes=handoff.log_warnings(desk.space, came), brought=brought)


class _Pull:
    """One pull on its way, in a room of its own.

    apart: what is here is no part of what came, whether or not anything was done here since both agreed: somebody else
    may have kept another state than ours, and pushed that.
    """

    def __init__(self, desk: Desk, run_id: str, standing: Standing, room: str) -> None:
        assert standing.theirs is not None  # the remote has it
        assert standing.message is not None
        self._desk, self._run_id, self._standing, self._room = desk, run_id, standing, room
        self._space, self._store = desk.space, desk.space.store
        self._theirs, self._message, self._look = standing.theirs, standing.message, standing.look
        self._folder = os.path.join(room, "run")
        self._fetched = self._bytes = 0

    def take(self, keep: str) -> Pulled:
        self._build()
        state = self._accepted()
        _put_blobs(self._desk, self._room, self._run_id)
        if self._look is None:
            arrivals.sync(self._folder)
            self._announce(NEW, None, state)
            arrivals.into_place(self._store, self._folder, self._run_id)
            return self._done(NEW, None)
        if self._standing.apart and keep == KEPT_MINE:
            saved = self._save(self._folder, state, THEIRS)
            return self._done(KEPT_MINE, saved, log=handoff.log_of(self._look))
        return self._replace(self._look, state, keep)

    # ---- What came.

    def _bad(self, why: str) -> LoomError:
        return bad_handoff(self._desk.remote, self._run_id, why)

    def _build(self) -> None:
        """Write what came into the room; a file that is here as it was carried is not fetched again."""
        tree = self._desk.tree(self._theirs, self._run_id)
        if not self._message.outputs and any(carried.is_output(path) for path in tree):
            raise self._bad("it brings tool outputs without saying so")
        os.mkdir(self._folder, 0o755)
        wanted = {path: oid for path, oid in tree.items() if not self._is_here(path, oid)}
        _write(self._desk.repository, wanted, self._room)
        self._fetched = len(wanted)
        self._bytes = sum(os.path.getsize(os.path.join(self._room, path)) for path in wanted)

    def _is_here(self, path: str, oid: str) -> bool:
        """Tell whether a file need not be fetched; one of the run's then has its place in the room, too."""
        if carried.is_blob(path):
            return _has_blob(self._store.folder, path)
        here = self._look.files.get(path) if self._look is not None else None
        if here is None or here.oid != oid:
            return False
        target = os.path.join(self._room, path)
        if self._standing.apart:  # two runs share no files
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
            shutil.copy2(here.source, target, follow_symlinks=False)
        else:
            copies.give(here.source, target)
        return True

    def _accepted(self) -> dict[str, Any]:
        """Hold that what came can be worked with; gives its state.

        Raises as reading a state and a plan does, RUN_ID_MISMATCH, and BAD_HANDOFF for a state that counts farther than
        a run can, a plan that no run can be named after, and a log that does not reach what the state remembers.
        """
        place = self._desk.remote.place(self._run_id)
        try:
            raw = files.read_json(os.path.join(self._folder, "state.json"))
            read = visit_files.reader(self._folder, self._run_id)
            state = accepted(raw, where=f"{place} state.json", run_id=self._run_id, read=read)
            list(state["steps"])  # those that left it came, too
            raw = files.read_json(os.path.join(self._folder, "plan.json"))
            plan = frozen_plan.accepted(raw, where=f"{place} plan.json")
        except LoomError as error:
            if error.code == "RUN_ID_MISMATCH":
                error.hint = self._desk.remote.listing
            if error.code in ("RUN_ID_MISMATCH", "SCHEMA_TOO_NEW"):
                raise
            raise self._bad(f"{error.code}: {error.what}") from None
        far = counted_off(state)
        if far:
            raise self._bad(f"its state has an impossible value for {far}")
        for plan_id in (state["plan_id"], plan["plan_id"]):
            if not ids.is_fit(plan_id) or len(plan_id) > ids.LONGEST_PLAN_ID:
                raise self._bad(f"its plan id {one_line(plan_id, 80)!r} is not valid")
        why = _log_trouble(self._folder, self._run_id, events.head_of(state.get("ledger_head")))
        if why:
            raise self._bad(why)
        return state

    # ---- Its place.

    def _replace(self, here: Look, came: dict[str, Any], keep: str) -> Pulled:
        """Let what came take the place of the run that is here, which is saved first if it is no part of what came."""
        diverged = self._standing.kind == handoff.DIVERGED
        kind = TOOK_THEIRS if diverged else FORWARD
        target = self._store.run_dir(self._run_id)
        self._unmask(here)
        saved = None
        with self._store.lock(self._run_id):
            _refuse_driven(self._desk, self._run_id, keep)
            self._refuse_running()
            had_outputs = self._desk.with_outputs(self._run_id, self._standing.base)
            if not diverged and _work_in(self._desk.look(self._run_id, outputs=had_outputs)) != _work_in(here):
                called = self._store.handle(self._run_id)
                what = f"the run {called} changed here during the fetch; nothing was pulled"
                why, hint = "repeat the command to compare the two states again", self._desk.pull_command(self._run_id)
                raise LoomError("WORKED_ON_MEANWHILE", what, where=target, why=why, hint=hint, exit_code=EXIT_HELD)
            if self._standing.apart:
                mine = os.path.join(self._room, "mine")
                copies.give_all(target, mine)
                saved = self._save(mine, self._store.read_state(self._run_id), MINE)
            self._bring_over(target, {entry.name.removeprefix(carried.RUN) for entry in here.left_out})
            arrivals.sync(self._folder)
            self._store.forget_open_runs()
            self._announce(kind, saved, came)
            arrivals.swap(self._folder, target, arrivals.aside(self._store.local, self._run_id))
        files.sync_folder(os.path.dirname(target))
        return self._done(kind, saved)

    def _refuse_running(self) -> None:
        try:
            run = self._store.read(self._run_id)
        except LoomError:  # one that cannot be read has no open step either
            return
        if evidence_commands.runs_now(self._space, run):
            what = f"a command of the run {run.handle} is still running here; nothing was pulled"
            why, hint = "its output belongs to the state that is here", f"loomctl next {run.handle}"
            raise LoomError("COMMAND_RUNS", what, where=run.folder, why=why, hint=hint, exit_code=EXIT_HELD)

    def _unmask(self, here: Look) -> None:
        """Put the secrets back that this machine's files hold and that were masked when they were carried."""
        for path, entry in here.files.items():
            target = os.path.join(self._room, path)
            if not entry.masked or not os.path.isfile(target) or os.path.samefile(entry.source, target):
                continue
            theirs = files.read_bytes(target, limit=carried.LARGEST_FILE)
            back = carried.unmasked(path, theirs, files.read_bytes(entry.source, limit=carried.LARGEST_FILE))
            if back != theirs:
                files.write_atomically(target, back, mode=0o644, durable=False)

    def _bring_over(self, target: str, left_out: set[str]) -> None:
        """Give the folder that came what is this machine's alone, and never was carried: outputs, kept states."""
        for name, source in carried.all_below(target):
            place = os.path.join(self._folder, name)
            is_own = name in left_out or carried.is_output(carried.RUN + name) or carried.is_this_machines(name)
            if not is_own or name.endswith(".tmp") or os.path.lexists(place):
                continue
            if name.startswith("stages/") and not os.path.isdir(os.path.dirname(place)):
                continue  # of a stage that the run no longer has
            copies.give(source, place)
        backup = os.path.join(self._folder, "state.backup.json")
        files.remove(backup)
        copies.give(os.path.join(target, "state.json"), backup)
        visit_files.let_hold(layouts.at(self._folder, self._run_id), target)

    # ---- Saved as a run of its own.

    def _save(self, folder: str, state: dict[str, Any], whose: str) -> str:
        """Make one of two states a run of its own; gives its id. Mine is known on this machine, if the run was.

        folder: of one's own, with the state's files. Raises OSError, and what renaming a run raises.
        """
        is_theirs = whose == THEIRS
        origin = {"whose": whose, "remote": self._desk.remote.shown}
        origin |= (
            {"machine": self._message.machine, "by": self._message.by} if is_theirs else {"machine": machine.hostname()}
        )
        origin = {key: value for key, value in origin.items() if value}
        saved = Event("run.saved_aside", {"from": self._run_id, **origin}, self._space.caller.session_id)
        happened = [*_damage(folder, state, self._run_id), saved]
        changes = {
            "status": "pending" if state["status"] in ACTIVE else state["status"],
            "saved_from": {"run_id": self._run_id, "at": clock.now(), **origin},
        }
        new = self._renamed(folder, str(state["plan_id"]), happened, changes)
        if is_theirs:
            self._note(new, {})
        elif run_notes.is_known(self._run_id, self._store.folder):
            run_notes.note_known(new, self._store.folder)
        return new

    def _renamed(self, folder: str, plan_id: str, happened: Sequence[Event], changes: dict[str, Any]) -> str:
        while True:
            new = self._store.free_id(plan_id)
            arrivals.rename(folder, new, happened, changes)
            try:
                arrivals.sync(folder)
                arrivals.into_place(self._store, folder, new)
            except LoomError as error:
                if error.code != "RUN_EXISTS":
                    raise
                continue
            return new

    def _announce(self, kind: str, saved: str | None, came: dict[str, Any]) -> None:
        """Have the run announced, and its commands wait for trust, until it is resumed here: before it is in its place.

        A kill leaves no run known that somebody else brought forward. One that it leaves as it was is announced once
        too often; that nothing came, the next resume reads off the log, which lacks the entry that is noted here.
        """
        run_notes.forget_known(self._run_id, self._store.folder)
        pulled = {"kind": kind, **({"saved": saved} if saved else {})}
        holder = lease.holder(came)
        driver = {"driver": {"epoch": holder.epoch, "session_id": holder.session_id}} if holder is not None else {}
        self._note(self._run_id, {"pulled": pulled, "head": came.get("ledger_head"), **driver})

    def _done(self, kind: str, saved: str | None, *, log: bytes | None = None) -> Pulled:
        """Note what both sides have now. log: as `agree` has it."""
        self._desk.agree(self._run_id, self._theirs, log=log)
        return Pulled(
            self._run_id, kind, saved, self._fetched, self._message, self._message.left_out, bytes=self._bytes
        )

    def _note(self, run_id: str, more: Mapping[str, Any]) -> None:
        message = self._message._asdict()
        value = {key: message[key] for key in ("machine", "by", "at", "outputs", "left_out")}
        value |= {"remote": self._desk.remote.shown, "commit": self._theirs}
        run_notes.note_handoff(self._store.local, run_id, {**value, **more})


def _work_in(look: Look) -> dict[str, str]:
    return {path: oid for path, oid in carried.of_run(look.names()).items() if not carried.is_output(path)}


def _damage(folder: str, state: dict[str, Any], run_id: str) -> list[Event]:
    """Give what the copy's log tells of faults that its new chain would hide (D54)."""
    try:
        verdict = log_verdict.of_log(os.path.join(folder, events.FILE), run_id, state, event_log.every(folder))
    except LoomError:  # what cannot be read is not copied either
        return []
    event = log_verdict.handed_on(verdict)
    return [event] if event is not None else []


def _log_trouble(folder: str, run_id: str, head: events.Head | None) -> str:
    reached = head is None or head.seq == 0
    ends = True
    for line in event_log.all_of(os.path.join(folder, events.FILE)):
        if not line.ended:
            return "the last line of its log is incomplete"
        ends = line.entry is not None
        if line.entry is None:
            continue
        if line.entry.get("run_id") != run_id:
            return "its log holds an entry of another run"
        if head is not None and line.entry["seq"] == head.seq:
            reached = digests.of_bytes(line.data) == head.sha256
    if not ends:  # a push writes an entry of its own behind whatever stands there
        return "its log ends in lines that are not entries"
    return "" if reached else "its log lacks the entry that the state names as the last"


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
            error.hint = f"loomctl pull {desk.space.store.handle(run_id)} --take-theirs{desk.remote.option}"
        raise


# ---- Files of a commit.


def _write(repository: Repository, wanted: Mapping[str, str], folder: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing(repository.contents(list(wanted.values()))) as contents:
        for path, (size, stream) in zip(wanted, contents, strict=True):
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
            with os.fdopen(os.open(target, flags, 0o600 if carried.is_output(path) else 0o644), "wb") as out:
                _copy(stream, out, size)


def _copy(stream: IO[bytes], out: IO[bytes], size: int) -> None:
    while size:
        piece = stream.read(min(_PIECE, size))
        if not piece:
            raise OSError("git stopped in the middle of a file")
        out.write(piece)
        size -= len(piece)


def _has_blob(store: str, path: str) -> bool:
    """Tell whether a blob is in the store, and whole: a damaged one is mended by what comes. path: as it is carried."""
    try:
        blobs.Blobs(store).get(blobs.ref_to(os.path.basename(path)))
    except LoomError:
        return False
    return True


def _put_blobs(desk: Desk, room: str, run_id: str) -> None:
    for below, _, names in os.walk(os.path.join(room, "blobs")):
        for name in names:
            data = files.read_bytes(os.path.join(below, name), limit=blobs.LARGEST)
            if digests.of_bytes(data) != name:
                raise bad_handoff(desk.remote, run_id, f"the blob {name} does not match its hash")
            blobs.Blobs(desk.space.store.folder).put(data)


def _bring_missing(desk: Desk, run_id: str, theirs: str) -> list[str]:
    """Take what is missing here of a commit that was fetched; gives the paths, as they are carried.

    Raises BAD_HANDOFF, GIT_FAILED, OSError; what was taken by then stays, for it is missed by nobody else.
    """
    store, run_dir = desk.space.store, desk.space.store.run_dir(run_id)
    tree = desk.tree(theirs, run_id)
    outputs = dict(_missing_outputs(run_dir)) if desk.message(theirs, run_id).outputs else {}
    wanted = [path for path in outputs if path in tree]
    wanted += [path for path in tree if carried.is_blob(path) and not _has_blob(store.folder, path)]
    if not wanted:
        return []
    with arrivals.room(store, "missing-") as room:
        _write(desk.repository, {path: tree[path] for path in wanted}, room)
        _put_blobs(desk, room, run_id)
        return [path for path in wanted if carried.is_blob(path) or _add_output(room, run_dir, path, outputs[path])]


def _missing_outputs(run_dir: str) -> Iterator[tuple[str, str]]:
    """Give the outputs that tool steps name and that are not here, with their hashes, as far as the steps say them."""
    for step in tool_log.read(run_dir):
        for ref, sha256 in ((step.outcome_ref, step.sha256), (step.rest_ref, "")):
            path = f"{carried.RUN}{ref}"
            if ref and carried.is_output(path) and not os.path.lexists(os.path.join(run_dir, ref)):
                yield path, sha256


def _add_output(room: str, run_dir: str, path: str, sha256: str) -> bool:
    """Give an output that was written in a room its place in a run that lacks it; tells whether it was given.

    path: as it is carried; sha256: what its bytes must have, empty where the step does not say. Nothing is written
    over. Raises OSError, and UNSAFE_LINK where a link stands for the folder.
    """
    target = os.path.join(run_dir, path.removeprefix(carried.RUN))
    data = files.read_bytes(os.path.join(room, path), limit=carried.LARGEST_FILE)
    if sha256 and digests.of_bytes(data) != sha256:
        return False
    files.refuse_links(run_dir, target)
    files.make_folder(os.path.join(run_dir, tool_log.FOLDER))
    if os.path.lexists(target):
        return False
    files.write_atomically(target, data, mode=0o600)
    return True
