"""The spool digested: what tools gave becomes tool steps in the log of the run that their session drives (D47, D59)."""

from __future__ import annotations

import json
import os
import time

from loomctl.kit import files, ids, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.processes import PATIENCE, Lock
from loomctl.kit.records import NamedTuple
from loomctl.reduction import tool_steps
from loomctl.runs.machine import drivers, launcher_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any

    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.machine.launcher_files import Spooled
    from loomctl.runs.project import Workspace
    from loomctl.runs.tools.reducer import StepLog

HOOK_LIMIT = 0.2  # seconds that a hook digests for
AHEAD = 256_000
"""Bytes of events that a hook digests before it gives what it promises; the rest comes after it (D59)."""
LARGEST_PARSED = 1 << 21
"""Bytes of an event that is parsed; of a larger one the beginning and the end are looked at, and it is kept whole."""
_END = 1 << 18  # bytes of each end
NEWEST, NEWEST_BYTES = 24, 256_000
"""The newest calls that are reduced for a priming before their turn in the log comes, and what they may weigh."""
_MOST_FILES = 500
"""Files of the spool that a hook looks at in one go, at either end: a repository can bring along thousands."""
_BATCH = 64  # steps that are appended in one write; what a kill repeats of them is found in the log's tail
_SETTLED = 60  # seconds after which nobody writes a file of the spool any more
_NOTED = "bindings of what waits"
_WRITTEN = 2  # seconds that the launcher may take for one large file


class Digested(NamedTuple):
    """What was done: steps that were appended, files that wait, files put aside; trouble: why not all, for its user.

    unfinished: the file whose digesting was begun before and came to no end, which is set aside now.
    """

    steps: int = 0
    left: int = 0
    aside: tuple[str, ...] = ()
    trouble: str = ""
    unfinished: str = ""


def digest(space: Workspace, limit: float | None = None, *, most: int | None = None) -> Digested:
    """Append what waits in the spool to the logs of its runs, oldest first. Raises nothing: what fails waits on.

    limit: seconds after which the rest stays for the next time, for a hook; at least one step is digested. most: bytes
    of events after which the rest stays, even the first. What a kill left unfinished is set aside; who has no limit
    digests it too, after all others.
    """
    local = space.store.local
    waiting = [] if space.store.unwritten else launcher_files.spooled(local)
    if not waiting and (
        limit is not None or space.store.unwritten or not launcher_files.spooled(local, launcher_files.UNFINISHED)
    ):
        return Digested()
    try:
        patience = PATIENCE if limit is None else limit
        with Digesting(local, patience) as digesting:
            deadline = None if limit is None else time.monotonic() + limit
            return _Digester(space, patience, deadline).work(digesting, most)
    except (OSError, LoomError) as error:
        return Digested(left=len(waiting), trouble=f"Loom could not record tool outputs: {trouble.said(error)}")


def note_bindings(space: Workspace) -> None:
    """Note who is bound to which step now, for what is digested later in this process: the answer may change it."""
    waiting = launcher_files.spooled(space.store.local)[:_MOST_FILES]
    named = {
        session_id for one in waiting for session_id in launcher_files.sessions_of(one.name) if ids.is_fit(session_id)
    }
    space.local.memo[_NOTED] = {session_id: space.local.binding(session_id) for session_id in named}


def are_noted(space: Workspace) -> bool:
    """Tell whether something was left to be digested later in this process."""
    return _NOTED in space.local.memo


def foreseen(space: Workspace) -> dict[str, Sequence[ToolStep]]:
    """Give the steps that digesting would append now, by their runs; nothing is written, moved or removed."""
    digester = _Digester(space, 0.0, None, foresees=True)
    for spooled in launcher_files.spooled(space.store.local):
        digester.foresee(spooled)
    return digester.fresh


def newest(space: Workspace, run_id: str) -> tuple[Sequence[ToolStep], int]:
    """Give the steps of a run's newest calls that wait in the spool, and how many other calls of it wait.

    The log gets them in their order (D59): here each is noted while it is looked at, for one may kill, and nothing else
    is written. While another digests, or one came to no end, none is looked at.
    """
    bound: dict[str, bool] = {}

    def drives(session_id: str) -> bool:
        if session_id not in bound:
            binding = space.local.binding(session_id) if ids.is_fit(session_id) else None
            bound[session_id] = binding is not None and binding["run_id"] == run_id
        return bound[session_id]

    newest = launcher_files.spooled(space.store.local)[-_MOST_FILES:]
    waiting = [one for one in newest if one.plain and any(map(drives, launcher_files.sessions_of(one.name)))]
    chosen: list[Spooled] = []
    room = NEWEST_BYTES
    for spooled in reversed(waiting):
        if len(chosen) == NEWEST:
            break
        # No large one takes the room of the others; only what may fit is looked into.
        if spooled.bytes <= room // 2 and (weight := launcher_files.weight(spooled)) <= room // 2:
            chosen.append(spooled)
            room -= weight
    left = len(waiting) - len(chosen)
    digester = _Digester(space, 0.0, None, foresees=True, passed_over=left)
    if space.store.unwritten:  # nothing is noted, and nobody waits for this
        for spooled in reversed(chosen):
            digester.foresee(spooled)
        return digester.fresh.get(run_id, ()), left
    try:
        with Digesting(space.store.local, 0.0) as digesting:
            if digesting.left():
                return (), len(waiting)
            for spooled in reversed(chosen):
                digesting.note(spooled.name)
                digester.foresee(spooled)
    except (OSError, LoomError):
        return (), len(waiting)
    return digester.fresh.get(run_id, ()), left


def noted(space: Workspace) -> list[str]:
    """Digest all that waits, before a command changes what it belongs to; gives a line for its user if that failed."""
    said = digest(space).trouble
    return [said[:1].upper() + said[1:] + "."] if said else []


class Digesting:
    """`with Digesting(local, patience) as digesting:` one process at a time digests, and notes which file it began.

    Whoever comes after a kill, or after a failure that nobody foresaw, finds the note. It costs a write for each file,
    and stands beside the lock. A failure of the disk, or an end at a person's wish, leaves none. Raises HELD, OSError.
    """

    def __init__(self, local: str, patience: float) -> None:
        self._folder = os.path.join(local, launcher_files.SPOOL)
        self._note = os.path.join(local, "locks", "spool.begun")
        lock = os.path.join(local, "locks", "spool.digest")
        files.refuse_links(os.path.dirname(local), lock)
        self._lock = Lock(lock, patience=patience)

    def __enter__(self) -> Digesting:
        self._lock.__enter__()
        try:
            self._descriptor = files.open_own(self._note, os.O_RDWR)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None or not issubclass(kind, Exception) or issubclass(kind, (OSError, LoomError)):
                self.note("")
        finally:
            os.close(self._descriptor)
            self._lock.__exit__(kind, error, trace)

    def left(self) -> str:
        """Give the name of the file that was begun and never ended; empty where there is none."""
        name = os.pread(self._descriptor, 300, 0).decode("utf-8", "replace")
        fits = (
            name.removesuffix(launcher_files.UNFINISHED).endswith(launcher_files.EVENT)
            and os.path.basename(name) == name
        )
        return name if fits and os.path.lexists(os.path.join(self._folder, name)) else ""

    def set_aside(self, name: str) -> None:
        """Rename what was begun and never ended, so that no hook begins it again."""
        os.rename(os.path.join(self._folder, name), os.path.join(self._folder, _aside(name)))
        self.note("")

    def note(self, name: str) -> None:
        """Note which file is begun now; empty for none."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, name.encode(), 0)


def _aside(name: str) -> str:
    """Name a file that was begun and never ended; one that was set aside before is bad, for it ended a command too."""
    unfinished, bad = launcher_files.UNFINISHED, launcher_files.BAD
    return name.removesuffix(unfinished) + (bad if name.endswith(unfinished) else unfinished)


class _Digester:
    """Works through the spool, under its lock.

    patience: for a run's own lock, in seconds; deadline: of the monotonic clock, None for none; foresees: as `StepLog`
    takes it; passed_over: calls that will stand in the log before what it sees.
    """

    def __init__(
        self, space: Workspace, patience: float, deadline: float | None, *, foresees: bool = False, passed_over: int = 0
    ) -> None:
        self._space, self._patience, self._deadline, self._foresees = space, patience, deadline, foresees
        self._passed_over = passed_over
        self._logs: dict[str, StepLog] = {}
        self._signs: dict[tuple[str, str], float] = {}
        self._steps = 0
        self._aside: list[str] = []

    def work(self, digesting: Digesting, most: int | None) -> Digested:
        """Digest until all is done, the time is over, or so many bytes were digested."""
        local = self._space.store.local
        begun = digesting.left()
        if begun:
            self._say(_aside(begun), begun)  # first, for who is killed between says it again
            digesting.set_aside(begun)
        waiting = launcher_files.spooled(local)
        if self._deadline is None:
            waiting += launcher_files.spooled(local, launcher_files.UNFINISHED)
        done = self._work(waiting if self._deadline is None else waiting[:_MOST_FILES], digesting, most)
        return Digested(self._steps, len(waiting) - done, tuple(self._aside), unfinished=begun)

    def _work(self, waiting: Sequence[Spooled], digesting: Digesting, most: int | None) -> int:
        done = size = 0
        batch: list[Spooled] = []
        for spooled in waiting:
            size += launcher_files.weight(spooled) if most is not None else 0
            if (done and self._is_over()) or (most is not None and size > most):
                break
            done += 1
            digesting.note(os.path.basename(spooled.path))
            if self._take(spooled):
                batch.append(spooled)
            if len(batch) >= _BATCH or (batch and self._is_over()):
                digesting.note("")
                self._flush(batch)
        digesting.note("")
        self._flush(batch)
        return done

    def foresee(self, spooled: Spooled) -> None:
        """Reduce a file, if it is fit to be; the steps of all stand in `fresh`."""
        self._reduce(spooled, self._binding(spooled.name))

    @property
    def fresh(self) -> dict[str, Sequence[ToolStep]]:
        """Give the steps that were not appended yet, by their runs."""
        return {run_id: log.fresh for run_id, log in self._logs.items()}

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _log(self, run_id: str) -> StepLog:
        if run_id not in self._logs:
            from loomctl.runs.tools.reducer import StepLog

            rules = tool_steps.of_settings(self._space.settings.reduce_rules)
            self._logs[run_id] = StepLog(
                self._space.store.run_dir(run_id), rules, foresees=self._foresees, passed_over=self._passed_over
            )
        return self._logs[run_id]

    def _flush(self, batch: list[Spooled]) -> None:
        """Append, and only then let go of the files: a kill in between leaves them to be known again.

        They were signs of who drives the run, and are noted as such.
        """
        for run_id, log in self._logs.items():
            if log.has_news:
                with self._space.store.lock(run_id, self._patience):  # nobody puts the run away meanwhile
                    self._steps += log.flush()
        for (run_id, session_id), at in self._signs.items():
            drivers.sign(self._space.store.local, run_id, session_id, at)
        self._signs.clear()
        for spooled in batch:
            files.remove(spooled.path)
        batch.clear()

    def _take(self, spooled: Spooled) -> bool:
        """Reduce one file; what is no event of a session that drives a run here is put aside, once nobody writes it."""
        binding = self._binding(spooled.name)
        if self._reduce(spooled, binding):
            return True
        if _may_be_written(spooled):
            return False
        try:
            os.rename(spooled.path, os.path.join(os.path.dirname(spooled.path), spooled.name + launcher_files.BAD))
        except OSError:
            return False
        self._aside.append(spooled.name)
        self._say(spooled.name + launcher_files.BAD, spooled.name + launcher_files.BAD)
        return False

    def _reduce(self, spooled: Spooled, binding: dict[str, Any] | None) -> bool:
        """Reduce one file for its run; False for what is no event of the session that is bound to it."""
        event, whole = _event(spooled)
        if event is None or binding is None:
            return False
        if event.get("session_id") != binding["session_id"]:
            if not event.get("agent_id") or event.get("parent_agent_id") != binding["session_id"]:
                return False
            event = {**event, "session_id": binding["session_id"]}  # a host that names the subagent there
        stage = (
            binding.get("stage") if not spooled.path.endswith(launcher_files.UNFINISHED) else ""
        )  # many ended since, maybe
        self._signs[binding["run_id"], binding["session_id"]] = spooled.at / 1e9
        self._log(binding["run_id"]).take(spooled, event, stage if isinstance(stage, str) else "", whole)
        return True

    def _binding(self, name: str) -> dict[str, Any] | None:
        noted = self._space.local.memo.get(_NOTED, {})
        for session_id in filter(ids.is_fit, launcher_files.sessions_of(name)):
            binding = noted[session_id] if session_id in noted else self._space.local.binding(session_id)
            try:
                if binding is not None and self._space.store.has(binding["run_id"]):
                    self._space.store.run_dir(binding["run_id"])
                    return binding
            except LoomError:  # no name of a run, or a link in its place
                pass
        return None

    def _say(self, file: str, named: str) -> None:
        """Say in the run's events what is put aside; where it cannot be said, the file itself is there.

        named: as it is named just now.
        """
        from loomctl.runs.store.events import Event

        binding = self._binding(file.removesuffix(launcher_files.BAD).removesuffix(launcher_files.UNFINISHED))
        if binding is None:
            return
        size = os.lstat(os.path.join(self._space.store.local, launcher_files.SPOOL, named)).st_size
        if file.endswith(launcher_files.BAD):
            told = Event("tools.unreadable", {"file": file, "bytes": size}, binding["session_id"])
        else:
            told = Event("tools.unfinished", {"file": file, "bytes": size}, binding["session_id"])
        try:
            self._space.store.tell(binding["run_id"], lambda _: [told], durable=False, patience=0.5)
        except (OSError, LoomError):
            pass


def _may_be_written(spooled: Spooled) -> bool:
    return spooled.plain and time.time() - spooled.at / 1e9 < _SETTLED


def _event(spooled: Spooled) -> tuple[dict[str, Any] | None, bytes]:
    """Read an event; of one that is too large to be parsed what its ends tell, and beside it the whole file."""
    if not spooled.plain:
        return None, b""
    try:
        data = files.read_bytes(spooled.path)
        if len(data) > LARGEST_PARSED:
            event: Any = _ends(data, spooled)
        else:
            event, data = json.loads(data.decode("utf-8", "replace")), b""
    except (OSError, LoomError, ValueError, RecursionError):
        return None, b""
    is_ended = isinstance(event, dict) and event.get("hook_event_name") in tool_steps.ENDED
    return (event, data) if is_ended and isinstance(event.get("tool_name"), str) else (None, b"")


def _ends(data: bytes, spooled: Spooled) -> dict[str, Any] | None:
    """Read the two ends of a large event; None while it may still be written: no parser tells that it is whole."""
    if not data.rstrip().endswith(b"}") or abs(time.time() - spooled.at / 1e9) < _WRITTEN:
        return None
    return read_cut(data[:_END].decode("utf-8", "replace"), data[-_END:].decode("utf-8", "replace"))


# ---- The two ends of a JSON object too large to be parsed: what stands before the cut, and the cut text's end (D59).

_BLANKS = frozenset(" \t\n\r")
_REST = r"(?:[^\"\\]|\\.)*"  # of a string, up to its end
_CALL = r'"tool_use_id": ?"([A-Za-z0-9_-]{1,200})"'
_DEEPEST = 8
_LONGEST_ESCAPE = 12  # of a character outside of the basic plane


def read_cut(head: str, tail: str) -> dict[str, Any]:
    """Give the event as far as its ends tell it: a text that the cut parts is its beginning, a new line, and its end.

    What follows that text is left out, but for the call's id. Raises ValueError where the head is no object's.
    """
    decoder = json.JSONDecoder(strict=False)
    if not head.lstrip().startswith("{"):
        raise ValueError("no object")
    event = _value(decoder, head, _after_blanks(head, 0), tail, _DEEPEST)
    import re  # few events are that large

    named = re.findall(_CALL, tail)
    if named and "tool_use_id" not in event:
        event["tool_use_id"] = named[-1]
    return dict(event)


def _value(decoder: json.JSONDecoder, text: str, at: int, tail: str, depth: int) -> Any:
    """Give a value that begins at a place and that the text's end cuts."""
    opening = text[at : at + 1]
    if opening == '"':
        return f"{_beginning(text[at + 1 :])}\n{_ending(tail)}"
    found: Any = {} if opening == "{" else []
    if opening not in ("{", "[") or not opening or not depth:
        return None
    at += 1
    while at < len(text):
        at = _after_blanks(text, at)
        key, is_whole = "", True
        if opening == "{":
            key, at, is_whole = _whole(decoder, text, at)
            at = _after_blanks(text, at)
            if not is_whole or not isinstance(key, str) or text[at : at + 1] != ":":
                break
            at = _after_blanks(text, at + 1)
        value, at, is_whole = _whole(decoder, text, at)
        if not is_whole:
            value = _value(decoder, text, at, tail, depth - 1)
        if opening == "{":
            found[key] = value
        else:
            found.append(value)
        at = _after_blanks(text, at)
        if not is_whole or text[at : at + 1] != ",":
            break
        at += 1
    return found


def _after_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in _BLANKS:
        at += 1
    return at


def _whole(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int, bool]:
    """Give a value, the place behind it, and whether all of it stands in the text."""
    try:
        value, end = decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at, False
    return value, end, end < len(text)


def _beginning(raw: str) -> str:
    """Give the beginning of a string, from what of it stands in JSON; an escape may be cut."""
    for less in range(min(_LONGEST_ESCAPE, len(raw)) + 1):
        try:
            return str(json.loads(f'"{raw[: len(raw) - less]}"', strict=False))
        except ValueError:
            continue
    return ""


def _ending(raw: str) -> str:
    """Give the end of a string whose rest this text begins with; the cut may stand in the middle of an escape."""
    start = next((at for at in range(1, len(raw)) if raw[at - 1] != "\\" != raw[at]), len(raw))
    import re

    rest = re.compile(_REST, re.DOTALL).match(raw, start)
    return _beginning(rest.group()) if rest else ""
