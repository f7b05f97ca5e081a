"""What this machine alone knows of a project: which session drives which run, and what each was given (D1, D2, D15)."""

from __future__ import annotations

import os
import time

from loomctl.kit import clock, files, processes, quick_json
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# A binding of a session whose process is not known counts as alive for this long after its last sign.
SILENT_AFTER = 30 * 60
_MOST_LIVING = 1000  # marks of living sessions that are looked at in one go
# The host of a session that is a person's shell.
TERMINAL = "terminal"


class Local:
    """The `.loom/local` folder: small files, one session's each, replaced atomically, never fsynced.

    Each is read once and again when it is another file, whoever wrote it; what is given is the caller's own, all of it.
    """

    def __init__(self, folder: str) -> None:
        self._seen: dict[str, tuple[tuple[int, ...], bytes]] = {}
        self.memo: dict[str, Any] = {}  # what one process found out once
        self._store_folder = os.path.dirname(folder)
        self.folder = folder
        self._sessions = os.path.join(folder, "sessions")
        self._primed = os.path.join(folder, "primed")
        self._live = os.path.join(folder, "live")
        self._turns = os.path.join(folder, "turns")
        self._opened = os.path.join(folder, "opened")
        self._receipts = os.path.join(folder, "receipts")

    def binding(self, session_id: str | None) -> dict[str, Any] | None:
        """Give the session's binding, or None: it is of this store, at this place, or it does not count.

        `{session_id, run_id, host, process, bound_at, store, shared?, root?, transcript_path?, step?, stage?, ended?}`
        """
        found = self._read(self._sessions, session_id) or {}
        if found.get("session_id") != session_id or not isinstance(found.get("run_id"), str):
            return None
        return found if found.get("store") == self._store() else None  # copied along with a project: not made here

    def unusable_binding(self, session_id: str | None) -> str:
        """Give the path of a session's binding that is there and does not count; empty where there is none."""
        if not session_id or self.binding(session_id) is not None:
            return ""
        path = self._path(self._sessions, session_id)
        return path if os.path.lexists(path) else ""

    def damaged_binding(self, session_id: str | None) -> str:
        """Give the path of a session's binding that cannot be read as one; empty for one of another place (D23)."""
        try:
            path = self.unusable_binding(session_id)
        except LoomError:  # no file can have its name
            return ""
        found = self._read(self._sessions, session_id) or {}
        return "" if found.get("session_id") == session_id and isinstance(found.get("run_id"), str) else path

    def damaged_bindings(self) -> list[str]:
        """Give the paths of all bindings that cannot be read as one."""
        found = (self.damaged_binding(one) for one in self._named(self._sessions))
        return [path for path in found if path]

    def _store(self) -> str:
        return os.path.dirname(os.path.realpath(self.folder))

    def bind(self, session_id: str, run_id: str, *, host: str, pid: int | None, **more: Any) -> dict[str, Any]:
        """Bind a session to a run; only run and resume do (and /clear and a fork inherit)."""
        from loomctl.runs.machine import launcher_files

        binding = {
            "session_id": session_id,
            "run_id": run_id,
            "host": host,
            "process": processes.identity(pid),
            "bound_at": clock.now(),
            "store": self._store(),
            **more,
        }
        self._write(self._sessions, session_id, binding)
        self._mark(session_id)
        launcher_files.make_rooms(self.folder)
        return binding

    def refresh(self, binding: dict[str, Any], *, pid: int | None, transcript_path: str | None) -> dict[str, Any]:
        """Note what a hook event tells of a bound session; the file's time is the session's last sign of life."""
        known = {key: value for key, value in binding.items() if key != "ended"}
        if pid is not None:
            known["process"] = processes.identity(pid)
        if transcript_path:
            known["transcript_path"] = transcript_path
        self._write(self._sessions, known["session_id"], known)
        self._mark(known["session_id"])
        return known

    def mark_ended(self, session_id: str) -> None:
        """Note that a bound session's conversation ended; it stays bound, for it may be resumed."""
        binding = self.binding(session_id)
        if binding is not None:
            self._write(self._sessions, session_id, {**binding, "ended": True})

    def put_back(self, session_id: str, binding: dict[str, Any] | None) -> None:
        """Bind a session as it was bound before; None: not at all."""
        if binding is None:
            self.unbind(session_id)
        else:
            self._write(self._sessions, session_id, binding)

    def unbind(self, session_id: str) -> None:
        """Forget a session's binding."""
        path = self._path(self._sessions, session_id)
        files.refuse_links(self._store_folder, path)
        files.remove(path)

    def bindings(self) -> list[dict[str, Any]]:
        """List every binding there is, the latest sign of life last; unreadable ones are left out."""
        if files.leads_away(self._store_folder, self._sessions):
            return []
        try:
            names = os.listdir(self._sessions)
        except OSError:
            return []
        found: list[tuple[float, dict[str, Any]]] = []
        for name in names:
            binding = self.binding(name[: -len(".json")]) if name.endswith(".json") else None
            if binding is not None:
                found.append((_last_sign(os.path.join(self._sessions, name)), binding))
        return [binding for _, binding in sorted(found, key=lambda pair: pair[0])]

    def _living(self) -> list[dict[str, Any]]:
        """List the bindings of sessions whose process may live, the latest sign of life last.

        Each has a mark in `live/`; the mark of one that is found dead goes, so that looking for the living costs no
        more after a thousand sessions. A binding stays: its conversation may be resumed.
        """
        if files.leads_away(self._store_folder, self._live):  # what lies there must not go
            return []
        living: list[tuple[float, dict[str, Any]]] = []
        for name in self._marks():
            found_here = self.binding(name)
            gone = found_here is None or (found_here.get("ended") and not _process(found_here).get("pid"))
            if found_here is not None and not gone and self._may_live(found_here):
                living.append((_last_sign(self._path(self._sessions, name)), found_here))
            else:
                try:
                    files.remove(os.path.join(self._live, name))
                except OSError:  # who may not write looks all the same
                    pass
        return [binding for _, binding in sorted(living, key=lambda pair: pair[0])]

    def _marks(self) -> list[str]:
        """List marks, a thousand at most: what else a repository brings along goes later."""
        try:
            with os.scandir(self._live) as entries:
                return [entry.name for entry, _ in zip(entries, range(_MOST_LIVING), strict=False)]
        except OSError:
            return []

    def _mark(self, session_id: str) -> None:
        mark = os.path.join(self._live, session_id)
        files.refuse_links(self._store_folder, mark)
        if not os.path.lexists(mark):
            files.make_folder(self._live)
            os.close(files.open_own(mark, os.O_WRONLY))

    def last_sign(self, binding: Mapping[str, Any]) -> float:
        """Give when a bound session last showed that it lives, in seconds since 1970."""
        return _last_sign(self._path(self._sessions, binding["session_id"]))

    def of_process(self, pid: int) -> dict[str, Any] | None:
        """Give the latest binding of a host process, for `/clear` and a switch inside it (D2)."""
        identity = processes.identity(pid)
        same = [entry for entry in self._living() if processes.same(_process(entry), identity)]
        return same[-1] if same else None

    def is_alive(self, binding: Mapping[str, Any]) -> bool:
        """Tell whether a bound session still lives: not ended, its process running, or a sign within half an hour."""
        return not binding.get("ended") and self._may_live(binding)

    def _may_live(self, binding: Mapping[str, Any]) -> bool:
        process = _process(binding)
        if process.get("pid"):
            return processes.lives(process)
        if process.get("boot_id") != processes.boot_id():  # it is of another machine, or of before a restart
            return False
        return time.time() - self.last_sign(binding) < SILENT_AFTER

    def live_sessions(self, run_id: str, *, but: str | None = None, conversing: bool = False) -> list[str]:
        """List the live sessions that are bound to a run on this machine.

        conversing: leave out terminals, which have no conversation that a priming could be for.
        """
        known = self._living()
        latest = {_started(entry): entry["session_id"] for entry in known}  # after /clear the old one left
        return [
            entry["session_id"]
            for entry in known
            if entry["run_id"] == run_id
            and (not _started(entry) or latest[_started(entry)] == entry["session_id"])
            and entry["session_id"] != but
            and not (conversing and entry.get("host") == TERMINAL)
            and self.is_alive(entry)
        ]

    def primed(self, session_id: str | None) -> dict[str, Any]:
        """Give what a session was given: `{run_id, epoch, artifacts: {id: {sha256, form, slip}}, restores: {…}}`."""
        found = self._read(self._primed, session_id) or {}
        epoch = found.get("epoch")
        return {
            **found,
            "epoch": epoch if type(epoch) is int else 0,
            "artifacts": quick_json.as_object(found.get("artifacts")),
        }

    def primed_of(self, run_id: str) -> list[str]:
        """List the sessions that were given something of a run."""
        return [one for one in self._named(self._primed) if self.primed(one).get("run_id") == run_id]

    def note_primed(self, session_id: str, primed: dict[str, Any]) -> None:
        """Keep what a session was given (D15)."""
        self._write(self._primed, session_id, primed)

    def note_watched(self, session_id: str, artifacts: Mapping[str, Any], *, age: float) -> None:
        """Note for the launcher which files a session was given; age: seconds since they were read (D80)."""
        from loomctl.runs.machine import session_notes

        session_notes.note_watch(self.folder, session_id, artifacts, age=age)

    def keep_given(self, text: str) -> str:
        """Keep a text that was given, for the next diff; gives what it is kept under. Raises OSError."""
        from loomctl.runs.machine import session_notes

        return session_notes.keep_text(self.folder, text)

    def turns(self, session_id: str | None) -> dict[str, Any]:
        """Give what its host's adapter keeps of a session's turns (D28)."""
        return self._read(self._turns, session_id) or {}

    def note_turns(self, session_id: str, turns: dict[str, Any]) -> None:
        """Keep what is to be known of a session's turns at its next stop."""
        self._write(self._turns, session_id, turns)

    def opened(self, session_id: str | None) -> dict[str, Any] | None:
        """Give what was due to a session at its last start and nobody has looked for yet: `{run_id, event, at, …}`."""
        found = self._read(self._opened, session_id) or {}
        fits = all(isinstance(found.get(key), str) for key in ("run_id", "event", "at"))
        return found if fits and isinstance(found.get("artifacts"), dict) else None

    def note_opened(self, session_id: str, opened: dict[str, Any]) -> None:
        """Note what is due to a session from its start on; the launcher looks whether there is such a note."""
        self._write(self._opened, session_id, opened)

    def drop_opened(self, session_id: str) -> None:
        """Forget what was due, for it was looked for."""
        path = self._path(self._opened, session_id)
        if not files.leads_away(self._store_folder, path):
            files.remove(path)

    def receipts(self, session_id: str) -> list[dict[str, Any]]:
        """Give a session's receipts on this machine, each with its `run_id`, oldest first."""
        starts = (self._read(self._receipts, session_id) or {}).get("starts")
        return [one for one in starts if isinstance(one, dict)] if isinstance(starts, list) else []

    def note_receipts(self, session_id: str, starts: list[dict[str, Any]]) -> None:
        """Keep a session's receipts; the file names the run of the newest."""
        self._write(self._receipts, session_id, {"run_id": starts[-1]["run_id"], "starts": starts})

    def receipts_of(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Give the receipts of a run that stand on this machine, each behind its session's id."""
        found = [(session_id, one) for session_id in self._named(self._receipts) for one in self.receipts(session_id)]
        return [(session_id, one) for session_id, one in found if one.get("run_id") == run_id]

    def _named(self, folder: str) -> list[str]:
        if files.leads_away(self._store_folder, folder):
            return []
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return []
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    @staticmethod
    def _path(folder: str, session_id: str) -> str:
        return os.path.join(folder, checked_id(session_id, what="session id") + ".json")

    def _write(self, folder: str, session_id: str, value: dict[str, Any]) -> None:
        path = self._path(folder, session_id)
        files.refuse_links(self._store_folder, path)
        files.make_folder(folder)
        self._seen.pop(path, None)
        files.write_atomically(path, files.to_json(value), durable=False)

    def _read(self, folder: str, session_id: str | None) -> dict[str, Any] | None:
        if not session_id:
            return None
        try:
            path = self._path(folder, session_id)
            there = _identity(path)
            before, seen = self._seen.get(path, ((), b""))
            if there == before:
                again: dict[str, Any] = quick_json.loads(seen.decode())  # it was looked at when it was read
                return again
            files.refuse_links(self._store_folder, path)
            data = files.read_bytes(path, limit=1 << 22)
            value = files.parse_json(data, where=path)
        except (OSError, LoomError):
            return None
        if not isinstance(value, dict):
            return None
        self._seen[path] = (there, data.removeprefix(b"\xef\xbb\xbf"))
        return value


def _identity(path: str) -> tuple[int, ...]:
    there = os.lstat(path)
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns


def _process(binding: Mapping[str, Any]) -> dict[str, Any]:
    return quick_json.as_object(binding.get("process"))


def _started(binding: dict[str, Any]) -> tuple[str, ...]:
    """Name a session's own process; nothing where it is not known. Two can start in one tick of the clock."""
    process = _process(binding) if not binding.get("shared") else {}
    named = tuple(str(process.get(key) or "") for key in ("pid", "started", "boot_id"))
    return named if named[1] else ()


def _last_sign(path: str) -> float:
    """Give when a file was last written; a session's is written at each of its events."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def terminal_session(store: str) -> tuple[str, int | None]:
    """Give the session id of the shell that this process belongs to, in one store, and the process that leads it.

    A terminal gives no id of its own (D24): all commands of one shell, or of one script that was started without one,
    are one session.
    """
    from loomctl.kit import digests, machine  # a host's sessions have ids

    leader = os.getsid(0)
    which = (machine.hostname(), processes.boot_id(), str(leader), processes.started(leader), store)
    return f"{TERMINAL}-{digests.of_text(chr(0).join(which))[:12]}", leader or None
