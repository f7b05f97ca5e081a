"""Which process drives a run: a small file for each run that is driven from this machine, beside the locks.

The lease in a run's state names a session; its process means something on its own machine alone, so it stands in
`.loom/local/drivers/{run_id}.json`. The file's time is the driver's last sign.
"""

from __future__ import annotations

import os
import time

from loomctl.kit import clock, files, processes, quick_json
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.ids import checked_id
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import lease

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from loomctl.runs.model.lease import Holder

FOLDER = "drivers"
HOST = "loomctl"  # of a lease that `loomctl drive` holds
NOW, AFTER_STEP = "now", "step"  # when such a driver is asked to end
_LARGEST_ASK = 1000  # bytes


def note(local: str, run_id: str, epoch: int, session_id: str, pid: int | None, word: str = "") -> None:
    """Note who takes a run's lease: written under the run's lock, before the state says so. Raises OSError.

    word: by which who was started to work in the holder's place is known.
    """
    path = _path(local, run_id)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(os.path.dirname(path))
    from loomctl.kit import machine  # few commands take a lease

    process = processes.identity(pid)
    if not process["started"]:  # a number of another namespace's, or of a shell that ended before its command
        process["pid"] = None
        process |= {"session": pid} if pid == os.getsid(0) else {}
    told = {
        "epoch": epoch,
        "session_id": session_id,
        "process": {**process, "namespace": processes.namespace()},
        "hostname": machine.hostname(),
        "store": _store(local),
    }
    if word:
        from loomctl.kit import digests

        told["word"] = digests.of_text(word)
    files.write_atomically(path, files.to_json(told), durable=False)


def delegates(local: str, run_id: str, holder: Holder, word: str) -> bool:
    """Tell whether a run's holder, which lives, started whoever has this word (D74).

    What it started may see no other processes; then the holder counts as living, for it ends what it starts.
    """
    from loomctl.kit import digests

    known = _of(local, run_id, holder)
    if known is None or not word or known.get("word") != digests.of_text(word):
        return False
    return not is_seen(local, run_id, holder) or processes.lives(_process(known))


def complete(local: str, run_id: str, holder: Holder, pid: int | None) -> None:
    """Note the driver's process where it was not known as it took the lease: a shell knew less than a hook."""
    known = _of(local, run_id, holder)
    if pid is not None and known is not None and (not _process(known).get("pid") or known.get("gone")):
        note(local, run_id, holder.epoch, holder.session_id, pid)


def note_gone(local: str, run_id: str, holder: Holder) -> None:
    """Note of a driver whose process runs no more that it is gone, for who cannot see that: a sandbox has own numbers.

    Raises OSError.
    """
    known = _of(local, run_id, holder)
    if known is not None and is_seen(local, run_id, holder) and not processes.lives(_process(known)):
        files.write_atomically(_path(local, run_id), files.to_json({**known, "gone": True}), durable=False)


def forget(local: str, run_id: str, session_id: str | None = None) -> None:
    """Forget who drove a run that is put away, or which this session has left."""
    path = _path(local, run_id)
    if session_id is not None and (_read(local, run_id) or {}).get("session_id") != session_id:
        return
    if not files.leads_away(os.path.dirname(local), path):
        files.remove(path)
        files.remove(_ask(local, run_id))


def may_ask(local: str, run_id: str, holder: Holder) -> bool:
    """Tell whether a run's driver is a `loomctl drive` of this user's in this store: such a one ends when asked."""
    return holder.host == HOST and is_here(local, run_id, holder) and _is_own(_path(local, run_id))


def ask_to_end(local: str, run_id: str, holder: Holder, when: str) -> None:
    """Ask the `loomctl drive` that holds a run to end: NOW, or AFTER_STEP where it is not asked for NOW already.

    Raises OSError.
    """
    if asked_to_end(local, run_id, holder.session_id) != NOW:
        path = _ask(local, run_id)
        files.refuse_links(os.path.dirname(local), path)
        files.write_atomically(path, f"{holder.session_id} {when}\n".encode(), durable=False)


def asked_to_end(local: str, run_id: str, session_id: str) -> str:
    """Give when the driver of this session is asked to end; empty where it is not, or by another user."""
    path = _ask(local, run_id)
    if not os.path.lexists(path) or files.leads_away(os.path.dirname(local), path) or not _is_own(path):
        return ""
    try:
        whose, _, when = files.read_bytes(path, limit=_LARGEST_ASK).decode("ascii", "replace").strip().partition(" ")
    except (OSError, LoomError):
        return ""
    return when if whose == session_id and when in (NOW, AFTER_STEP) else ""


def is_process(local: str, run_id: str, holder: Holder, pid: int | None) -> bool:
    """Tell whether a run's driver is this very process: after a `/clear` it is, in a fork it is not (D2)."""
    known = _of(local, run_id, holder)
    return known is not None and pid is not None and processes.same(_process(known), processes.identity(pid))


def is_below_one(local: str, pids: Collection[int]) -> bool:
    """Tell whether one of these processes is a `loomctl drive` that holds a run of this store. pids: of a process line.

    What it starts cannot leave its line: the keeper adopts it (D74).
    """
    folder = os.path.join(local, FOLDER)
    try:
        files.refuse_links(os.path.dirname(local), folder)
        names = [name for name in os.listdir(folder) if name.endswith(".json")]
    except (OSError, LoomError):
        return False
    for name in names:
        try:
            found = quick_json.as_object(files.read_json(os.path.join(folder, name), limit=1 << 16))
        except (OSError, LoomError):
            continue
        process = _process(found)
        if found.get("word") and process.get("pid") in pids and processes.lives(process):
            return True
    return False


def is_users_terminal(local: str, run_id: str, holder: Holder) -> bool:
    """Tell whether a run's driver is a terminal of this user's on this machine, in this store.

    Nothing works there by itself: an assistant or a driver that the same person starts need not fight it.
    """
    known = _of(local, run_id, holder) if holder.host == TERMINAL else None
    if known is None:
        return False
    from loomctl.kit import machine

    return _is_own(_path(local, run_id)) and known.get("hostname") == machine.hostname()


def is_here(local: str, run_id: str, holder: Holder) -> bool:
    """Tell whether a run's driver took it on this machine, in this store."""
    return _of(local, run_id, holder) is not None


def is_seen(local: str, run_id: str, holder: Holder) -> bool:
    """Tell whether the process of a run's driver can be asked from here whether it lives."""
    process = _process(_of(local, run_id, holder) or {})
    here = (process.get("boot_id"), process.get("namespace")) == (processes.boot_id(), processes.namespace())
    return here and bool(process.get("pid"))


def of_own_session(local: str, run_id: str, holder: Holder, pid: int | None) -> str:
    """Tell of a driver with the caller's session id whether it is another process: `alive`, `gone`; empty: it is not.

    A conversation can be open in two windows, on two machines even, and it comes back after a kill. What runs in a
    namespace of its own, as a sandbox does, counts as the session that it names. One that pulls its own run into
    another copy of the project on this machine goes on there.
    """
    known = _of(local, run_id, holder)
    process = _process(known or {})
    if known is not None and process.get("boot_id") == processes.boot_id():
        if pid is None or not process.get("pid") or process.get("namespace") != processes.namespace():
            return ""
        if processes.same(process, processes.identity(pid)):
            return ""
    return "alive" if _lives(local, run_id, holder, known, came=False) else "gone"


def lives(local: str, run_id: str, holder: Holder) -> bool:
    """Tell whether a run's driver may live, as far as this machine can see (`lease.lives`)."""
    known = _of(local, run_id, holder)
    if known is not None:  # it took the run in this store
        return _lives(local, run_id, holder, known, came=False)
    from loomctl.runs.machine import run_notes

    return _lives(local, run_id, holder, None, came=run_notes.came_driven(local, run_id, holder))


def _lives(local: str, run_id: str, holder: Holder, known: dict[str, Any] | None, *, came: bool) -> bool:
    from loomctl.kit import machine

    if known is not None and known.get("gone") is True:
        return False
    process = _process(known or {})
    here = machine.hostname()
    same_boot = known is not None and process.get("boot_id") == processes.boot_id()
    same_names = known is not None and process.get("namespace") == processes.namespace()
    pid = bool(process.get("pid"))
    left = process.get("session")
    if same_boot and same_names and not pid and type(left) is int:
        pid = processes.session_is_empty(left)  # nothing of it runs any more
    sight = lease.Sight(
        known=known is not None,
        same_boot=same_boot,
        same_names=same_names,
        pid=pid,
        running=same_boot and same_names and processes.lives(process),
        same_host=holder.hostname == here or (known is not None and known.get("hostname") == here),
        came=came,
        ages=[time.time() - at for at in _signs(local, run_id, holder, known)],
    )
    return lease.lives(sight)


def sign(local: str, run_id: str, session_id: str, at: float) -> None:
    """Note a sign of a driver that was found later: its tool calls, of which the spool is emptied. at: since 1970."""
    path = _path(local, run_id)
    if at <= last_sign(local, run_id) or (_read(local, run_id) or {}).get("session_id") != session_id:
        return
    try:
        os.utime(path, (at, at))
    except OSError:
        pass


def last_sign(local: str, run_id: str) -> float:
    """Give when the driver's file was last written or touched, in seconds since 1970; 0 where there is none."""
    try:
        return os.lstat(_path(local, run_id)).st_mtime
    except OSError:
        return 0.0


def _signs(local: str, run_id: str, holder: Holder, known: dict[str, Any] | None) -> list[float]:
    """Give the times at which a driver showed itself: in the state, in its file, by a tool call that waits, a prompt.

    A prompt with nothing to tell is the launcher's alone, which notes that its hook fired, for the last session (D80).
    """
    sign = clock.seconds_of(holder.seen)
    found: list[float] = [sign] if sign else []
    if known is not None:
        from loomctl.runs.machine import launcher_files

        found.append(last_sign(local, run_id))
        beat = launcher_files.beats(local).get("user-prompt-submit")
        if beat is not None and beat.session_id == holder.session_id:
            found.append(beat.at)
        begins = f"{holder.session_id}-"
        found += [one.at / 1e9 for one in launcher_files.spooled(local) if one.name.startswith(begins)]
    return found


def _of(local: str, run_id: str, holder: Holder) -> dict[str, Any] | None:
    """Give what is known here of the holder of a lease; None for another's, and for a file that was copied along."""
    found = _read(local, run_id)
    if found is None or found.get("store") != _store(local):
        return None
    same = (found.get("epoch"), found.get("session_id")) == (holder.epoch, holder.session_id)
    return found if same else None


_looked: list[tuple[object, object]] = []  # the file that was read last, as it stood, and what it held


def _read(local: str, run_id: str) -> dict[str, Any] | None:
    path = _path(local, run_id)
    try:
        files.refuse_links(os.path.dirname(local), path)
        told = os.lstat(path)
        stands = (path, told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)
        if not _looked or _looked[0][0] != stands:
            _looked[:] = [(stands, files.read_json(path, limit=1 << 16))]
    except (OSError, LoomError):
        return None
    found = _looked[0][1]
    return found if isinstance(found, dict) else None


def _path(local: str, run_id: str) -> str:
    return os.path.join(local, FOLDER, checked_id(run_id) + ".json")


def _ask(local: str, run_id: str) -> str:
    return os.path.join(local, FOLDER, checked_id(run_id) + ".ask")


def _is_own(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _store(local: str) -> str:
    return os.path.dirname(os.path.realpath(local))


def _process(found: dict[str, Any]) -> dict[str, Any]:
    return quick_json.as_object(found.get("process"))


# ---- What is said of a driver.


def told(found: Holder) -> str:
    """Say who drives, in a few words."""
    from loomctl.kit.text.fences import one_line  # most hooks say nothing of it

    name = " on ".join(filter(None, (one_line(found.host, 40), one_line(found.hostname, 80))))
    came = f"came {clock.ago(one_line(found.since, 20))}" if found.since else ""
    known = ", ".join(filter(None, (name, came)))
    return f"the session {one_line(found.session_id, 60)}" + (f" ({known})" if known else "")


def fate(*, is_here: bool) -> str:
    """Say what becomes of a driver from whom the run is taken. is_here: it drives in this store, and not in a copy."""
    if is_here:
        return "which can no longer write to it"
    return "which learns of this when it pulls; if it goes on there, you will have to choose between two states"


def outlived(handle: str) -> LoomError:
    """Say to what a driver had started that it drives the run no more."""
    return LoomError(
        "HELD_BY_ANOTHER",
        f"the driver that started this works on the run {handle} no more",
        why="Loom wrote nothing: whoever drives the run now would be written over. Stop here",
        hint=f"loomctl show {handle}",
        exit_code=EXIT_HELD,
    )


def way_in(local: str, run_id: str, handle: str, found: Holder) -> str:
    """Give the command that takes a run from its driver: a `loomctl drive` of this user's here is asked, not fought."""
    return f"loomctl resume {handle}{'' if may_ask(local, run_id, found) else ' --take-over'}"


def ends_soon(handle: str, found: Holder) -> LoomError:
    """Say that a `loomctl drive` works on a run, and was asked to end after its step."""
    came = f", started {clock.ago(found.since[:20])}," if clock.seconds_of(found.since) else ""
    return LoomError(
        "HELD_BY_ANOTHER",
        f"`loomctl drive`{came} works on the run {handle}",
        why=f"Loom has asked it to end after this step, and changed nothing else. A step may take minutes: tell your "
        f"user to call this again then. At once, with the assistant stopped at its work: "
        f"loomctl resume {handle} --take-over",
        hint=f"loomctl resume {handle}",
        exit_code=EXIT_HELD,
    )


def refusal(handle: str, found: Holder | None, *, is_here: bool = True, is_seen: bool = True) -> LoomError:
    """Say that a run is another's to drive, and the ways that are left.

    found: who drives it, None where nobody does by now; is_here: the driver drives in this store; is_seen: as the
    function of that name tells.
    """
    if found is None:
        return LoomError(
            "HELD_BY_ANOTHER",
            f"the run {handle} got another driver while this command ran",
            why="Loom wrote nothing: another session took the run over meanwhile",
            hint=f"loomctl show {handle}",
            exit_code=EXIT_HELD,
        )
    from loomctl.kit.text.fences import one_line

    silent = "" if is_seen else f", and it counts as gone {lease.SILENT_AFTER // 60} minutes after that"
    sign = f"its last sign was {clock.ago(one_line(found.seen, 20))}{silent}; " if found.seen else ""
    return LoomError(
        "HELD_BY_ANOTHER",
        f"the run {handle} is driven by {told(found)}",
        why=f"{sign}one session drives a run at a time. You can still read it: loomctl show {handle}, "
        f"loomctl prime-context --run-id {handle}. "
        f"To drive it from here, take it from that session, {fate(is_here=is_here)}",
        hint=f"loomctl resume {handle} --take-over",
        exit_code=EXIT_HELD,
    )
