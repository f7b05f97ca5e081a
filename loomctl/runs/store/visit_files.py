"""The files in a run's `stages/` with the visits that left its state: appended to, each line with the hash of the last.

Who writes holds the run's lock. What stands behind the bytes that a state refers to is a killed write's, and is cut off
by the next; what a kept state refers to stays, whatever state takes its place.
"""

from __future__ import annotations

import os

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object
from loomctl.runs.model import visit_list, visits
from loomctl.runs.model.state import accepted, visit_misfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State
    from loomctl.runs.model.visit_list import Reader, Visit
    from loomctl.runs.store.layouts import Home

MOST = 64  # ended visits that a state holds before the oldest leave it
FIRST = "stages/visits.jsonl"  # below the run's folder
_BLOCK = 1 << 16
_LARGEST = files.LARGEST_JSON  # bytes of a file, as of a state that held them all
_SHORTEST = 100  # bytes of a line with a visit


def is_one(name: str) -> bool:
    """Tell such a file by its name."""
    return _number(name) > 0


def _number(name: str) -> int:
    if name == _name(1):
        return 1
    digits = name.removeprefix("visits-").removesuffix(".jsonl")
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
    return number if name == _name(number) else 0


def _name(number: int) -> str:
    return "visits.jsonl" if number == 1 else f"visits-{number}.jsonl"


def path_of(run_dir: str, name: str) -> str:
    """Give where one stands. Raises UNSAFE_LINK."""
    path = os.path.join(run_dir, "stages", name)
    files.refuse_links(os.path.dirname(run_dir), path)
    return path


def reader(run_dir: str, run_id: str) -> Reader:
    """Give what reads the visits that left a run's state. Raises BAD_STATE as it is read."""

    def read(record: Mapping[str, Any]) -> Iterator[Visit]:
        where = os.path.join(run_dir, "stages", str(record["file"]))
        wanted, left = record["sha256"], record["count"]
        try:
            for line in _backwards(run_dir, record):
                if left <= 0 or digests.of_bytes(line) != wanted:
                    raise _bad(where, run_id, left, "the line was changed after it was written")
                told = as_object(files.parse_json(line, where=where))
                problem = visit_misfit("$.visit", told.get("visit"))
                if problem is not None or not isinstance(told.get("prev"), str):
                    raise _bad(where, run_id, left, " ".join(problem or ("it does not name the line before",)))
                wanted, left = told["prev"], left - 1
                yield told["visit"]
        except OSError as error:
            raise _bad(where, run_id, left, error.strerror or str(error)) from None
        except ValueError as error:
            raise _bad(where, run_id, left, str(error)) from None
        except LoomError as error:
            if error.code in ("BAD_STATE", "UNSAFE_LINK"):
                raise
            raise _bad(where, run_id, left, error.what) from None
        if left or wanted:
            raise _bad(where, run_id, left, "there are fewer records than the state counts")

    return read


def _bad(where: str, run_id: str, number: int, why: str) -> LoomError:
    what, hint = "older records of the run's state cannot be read", f"loomctl debug state restore {run_id}"
    return LoomError("BAD_STATE", what, where=f"{where}:{max(number, 1)}", why=why, hint=hint)


def _backwards(run_dir: str, record: Mapping[str, Any]) -> Iterator[bytes]:
    """Give the lines that a state refers to, the last first. Raises OSError, UNSAFE_LINK, and ValueError in words."""
    name, at = str(record["file"]), record["bytes"]
    if not is_one(name):
        raise ValueError("no file of records has that name")
    if at > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST:,} bytes")
    descriptor = files.open_regular(path_of(run_dir, name))
    try:
        if at > os.fstat(descriptor).st_size:
            raise ValueError("the file is shorter than the state says")
        rest: list[bytes] = []  # of a line whose beginning is still to be read, the last first
        while at > 0:
            start = max(0, at - _BLOCK)
            first, *whole = os.pread(descriptor, at - start, start).split(b"\n")
            if whole:
                whole[-1] += b"".join(reversed(rest))
                yield from (line for line in reversed(whole) if line)
                rest = []
            rest.append(first)
            at = start
        if line := b"".join(reversed(rest)):
            yield line
    finally:
        os.close(descriptor)


def let_leave(home: Home, state: State, most: int, *, durable: bool) -> State:
    """Write visits that are due into the file, if any are; gives the state without them, which is still to be written.

    A file that is damaged stays as it is, and so does the state: who reads it is told (`reader`). Raises OSError.
    """
    count = visits.due(state, most)
    if not count:
        return state
    from loomctl.kit.text.secrets import masked  # once in many steps

    steps, held = state["steps"], visits.recent(state)
    leaving = [masked(one) for one in held[:count]]  # as the log, it is sent around (D21)
    earlier = steps.earlier if isinstance(steps, visit_list.Visits) else None
    try:
        record = _appended(home, earlier.record, leaving, durable=durable) if earlier is not None else None
        if record is None:
            before = earlier.newest(earlier.count)[::-1] if earlier is not None else []
            record = _written(home, [*before, *leaving], durable=durable)
    except LoomError:
        return state
    read = reader(home.folder, home.run_id)
    return {**state, "steps": visit_list.Visits(held[count:], visit_list.Earlier(record, read))}


def _lines(leaving: Sequence[Visit], prev: str) -> tuple[bytes, str]:
    lines = []
    for entry in leaving:
        lines.append(files.to_json_line({"prev": prev, "visit": entry}))
        prev = digests.of_bytes(lines[-1][:-1])
    return b"".join(lines), prev


def _appended(home: Home, record: Mapping[str, Any], leaving: list[Visit], *, durable: bool) -> dict[str, Any] | None:
    """Append to the file that a state refers to; None where another state refers to more of it, or it is cut off."""
    name, size = str(record["file"]), record["bytes"]
    try:
        if digests.of_bytes(next(_backwards(home.folder, record), b"")) != record["sha256"]:
            return None  # it is not the file that was written
    except (OSError, ValueError, LoomError):
        return None
    descriptor = files.open_own(path_of(home.folder, name), os.O_RDWR | os.O_APPEND)
    try:
        stands = os.fstat(descriptor).st_size
        if stands > size and _referred(home).get(name, 0) > size:
            return None
        if stands > size:
            os.ftruncate(descriptor, size)
        data, sha256 = _lines(leaving, record["sha256"])
        files.write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if len(_there(home)) > 1:
        _forget(home)
    return visits.record_of(record, leaving, file=name, bytes=size + len(data), sha256=sha256)


def _written(home: Home, leaving: list[Visit], *, durable: bool) -> dict[str, Any]:
    """Write a file of a name that none has, and to which no state refers."""
    folder = os.path.join(home.folder, "stages")
    files.make_folder(folder, mode=0o755)
    kept = _forget(home)
    number = 1
    while _name(number) in kept or os.path.lexists(os.path.join(folder, _name(number))):
        number += 1
    path = path_of(home.folder, _name(number))
    data, sha256 = _lines(leaving, "")
    files.write_atomically(path, data, mode=0o600, durable=durable, locked=True)
    return visits.record_of(None, leaving, file=_name(number), bytes=len(data), sha256=sha256)


def _referred(home: Home) -> dict[str, int]:
    """Tell how many bytes of which files the run's state and those kept beside it refer to."""
    from loomctl.runs.store import recovery

    found: dict[str, int] = {}
    for name in (home.state, *(os.path.join(home.folder, one) for one in recovery.kept_states(home))):
        try:
            told = as_object(as_object(files.read_json(name)).get(visit_list.KEY))
        except (OSError, LoomError):
            continue
        if isinstance(told.get("file"), str) and type(told.get("bytes")) is int:
            found[told["file"]] = max(found.get(told["file"], 0), told["bytes"])
    return found


def _there(home: Home) -> list[str]:
    return [name for name in os.listdir(os.path.join(home.folder, "stages")) if is_one(name)]


def _forget(home: Home) -> Mapping[str, int]:
    """Remove the files to which no state refers; gives `_referred`."""
    folder = os.path.join(home.folder, "stages")
    files.refuse_links(os.path.dirname(home.folder), folder)
    kept = _referred(home)
    for name in _there(home):
        if name not in kept:
            try:
                files.remove(os.path.join(folder, name))
            except OSError:  # a folder, such as no Loom makes
                continue
    return kept


def let_hold(home: Home, before: str) -> None:
    """Have each kept state hold all its visits itself, where they stand in no file here but in one of a folder before.

    What can be read in neither stays as it is. Raises OSError.
    """
    from loomctl.runs.store import recovery

    for name in recovery.kept_states(home):
        path = os.path.join(home.folder, name)
        try:
            raw = as_object(files.read_json(path))
            if visit_list.KEY not in raw or _reads(raw, path, home.folder, home.run_id) is not None:
                continue
            whole = _reads(raw, path, before, home.run_id)
        except LoomError:
            continue
        if whole is not None:
            files.write_atomically(path, files.to_json(whole), mode=0o644, durable=False)


def _reads(raw: dict[str, Any], path: str, folder: str, run_id: str) -> State | None:
    state = accepted(raw, where=path, run_id=run_id, read=reader(folder, run_id))
    try:
        return {**state, "steps": list(state["steps"])}
    except LoomError:
        return None


def rebuilt(home: Home, state: State) -> tuple[list[Visit], int]:
    """Give all visits of a state whose file of older ones is damaged, as far as they can be told, and how many cannot.

    They are taken from lines of the file that are visits still, and from the stages' own `status.json`.
    """
    steps = state["steps"]
    record = steps.earlier.record
    fans = tuple(f"{key}." for key, known in record["steps"].items() if "branches" in known["last"])
    first = next((one["rank"] for one in steps.newest if one["rank"]), record["count"] + 1)
    found: dict[tuple[str, int], Visit] = {}
    for one in (*_told_by_stages(home), *_told_by_lines(home, record), *(k["last"] for k in record["steps"].values())):
        if visit_misfit("$", one) is not None or str(one["step_id"]).startswith(fans):
            continue
        if one["rank"] < first and one["status"] not in visits.OPEN:
            found[one["step_id"], one["visit"]] = one
    older = sorted(found.values(), key=lambda one: int(one["rank"]))
    return [*older, *steps.newest], max(0, record["count"] - len(older))


def _told_by_lines(home: Home, record: Mapping[str, Any]) -> Iterator[Any]:
    import io  # no hook comes here

    try:
        data = files.read_bytes(path_of(home.folder, str(record["file"])))
    except (OSError, LoomError):
        return
    for line in io.BytesIO(data):
        if len(line) < _SHORTEST:
            continue
        try:
            yield as_object(files.parse_json(line, where=str(record["file"]))).get("visit")
        except LoomError:
            continue


def _told_by_stages(home: Home) -> Iterator[Any]:
    try:
        names = os.listdir(os.path.join(home.folder, "stages"))
    except OSError:
        return
    kept = ("step_id", "visit", "rank", "stage", "status", "completed_at", "note", "next", "attempt", "failure_reason")
    for name in names:
        try:
            path = path_of(home.folder, os.path.join(name, "status.json"))
            told = as_object(files.read_json(path))
        except (OSError, LoomError):
            continue
        phase = str(told.get("step_id")).partition("/")[0]
        yield {"phase": phase, "started_at": "", **{key: told[key] for key in kept if told.get(key) is not None}}
