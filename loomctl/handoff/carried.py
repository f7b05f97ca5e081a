"""What of a run's folder is carried to another machine, and in which form: secrets masked, nothing of this machine's.

A path here is the one in the tree that is handed on: `run/…` for the run's files, `blobs/sha256/2c/…` for blobs. Which
path a file may have is the same for who pushes it and for who pulls it, on whatever system.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from loomctl.changes import asset_files
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.text import secrets
from loomctl.runs import command_runs
from loomctl.runs.store import blobs, events, leftovers, recovery, visit_files
from loomctl.runs.tools import tool_log

RUN = "run/"
STATE, PLAN, LOG = f"{RUN}state.json", f"{RUN}plan.json", f"{RUN}{events.FILE}"
OUTPUTS, BLOBS = f"{RUN}{tool_log.FOLDER}/", f"{blobs.FOLDER}/"
LARGEST_FILE = 512 << 20
"""Bytes of a file that is carried; servers take no more, most of them less."""
WITHHELD = "withheld"
"""The key of a tool step whose original was left out, for it holds a secret; its value says so."""
DEEPEST, LONGEST_NAME, LONGEST = 20, 255, 1000
"""Parts of a path, bytes of a name, and bytes of a path."""
_BY_HASH = (BLOBS, OUTPUTS, f"{RUN}{asset_files.FOLDER}/")
_LARGEST_CLEAN = 16 << 20  # bytes of a masked form that is held until it is sent
# What stands in a run's folder and is made anew elsewhere, or is of no use there.
_OWN = (blobs.FOLDER, "reads.json")
# What is text by its name, and masked whatever bytes it holds: a command may print anything into its log.
_TEXTS = (
    *(".json", ".jsonl", ".log", ".md", ".patch", ".diff", ".txt", ".out", ".err", ".yaml", ".yml", ".toml", ".ini"),
    *(".cfg", ".conf", ".env", ".csv", ".tsv", ".html", ".htm", ".xml", ".svg", ".sh", ".sql", ".py", ".js", ".ts"),
)
_WIDE = rb"(?:[\t\n\r\x20-\x7e]\0{1,3}){8,}[\x20-\x7e]?"  # ASCII in two or four bytes a letter
# What Loom reads as a file, and what it looks into; `*` stands for a stage.
_OF_A_STAGE = ("prompt.md", "response.md", "candidate.md", "status.json", "changes.json", "changes.patch")
_FILES = frozenset(
    (
        *(STATE, PLAN, LOG, f"{RUN}{tool_log.FILE}", f"{RUN}{recovery.SESSIONS_FILE}"),
        *(f"{RUN}stages/*/{name}" for name in (*_OF_A_STAGE, "evidence.json", command_runs.LOG)),
    )
)
_PARTS_OF_FILES = 1 + max(name.count("/") + 1 for name in _FILES)
_NO_NAMES = frozenset(("", ".", ".."))
_FOLDERS = frozenset(f"{RUN}{name}" for name in ("stages", "stages/*", asset_files.FOLDER, tool_log.FOLDER))


class Entry(NamedTuple):
    """A file that is carried. oid: of its content in that form; size: of that; masked: secrets that were taken out.

    source: where it stands here, absolute; refs: the blobs that it names; clean: the content itself, where that is not
    what stands here and is of no great size.
    """

    oid: str
    size: int
    masked: int
    source: str
    refs: frozenset[str] = frozenset()
    clean: bytes | None = None

    def content(self, path: str) -> bytes | None:
        """Give the file as it is carried; it is masked again only where it is no longer what was looked at.

        path: of the entry. None where it must stay now. Raises OSError.
        """
        data = self.clean if self.clean is not None else files.read_bytes(self.source, limit=LARGEST_FILE)
        algorithm = "sha256" if len(self.oid) == 64 else "sha1"
        return data if oid_of(data, algorithm) == self.oid else form(path, data)[0]


class LeftOut(NamedTuple):
    """A file of the run's that is not carried. name: its path in the tree, secrets and all; why: in a few words."""

    name: str
    why: str


class Look(NamedTuple):
    """What of a run is carried: files by path; and what is not, though it would be."""

    files: dict[str, Entry]
    left_out: list[LeftOut]

    def names(self) -> dict[str, str]:
        """Give the objects by path."""
        return {path: entry.oid for path, entry in self.files.items()}


class Looker:
    """Looks at runs' folders; a file that did not change since is not read again, nor a copy of it masked again.

    algorithm: by which the repository names objects, `sha1` or `sha256`.
    """

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._seen: dict[tuple[object, ...], Entry | LeftOut] = {}
        self._masked: dict[tuple[str, str], Entry | LeftOut] = {}  # by path and name of the content as it stands here

    def look(self, folder: str, *, outputs: bool) -> Look:
        """Tell what of a run's folder is carried. Raises OSError.

        outputs: with what was put away of tools' results.
        """
        found = Look({}, [])
        for name, source in below(folder, outputs=outputs):
            self._add(found, RUN + name, source)
        return found

    def add_blobs(self, found: Look, stored: blobs.Blobs) -> None:
        """Add the blobs that the files name, and those that they name in turn, as far as they are whole."""
        waiting = sorted({ref for entry in found.files.values() for ref in entry.refs})
        seen: set[str] = set()
        while waiting:
            ref = waiting.pop()
            if ref in seen:
                continue
            seen.add(ref)
            sha256 = blobs.sha256_of(ref)
            path = f"{BLOBS}sha256/{sha256[:2]}/{sha256}"
            try:
                stored.get(ref)
            except LoomError:  # not here, damaged, or a hash of something else
                continue
            self._add(found, path, stored.path(ref))
            if path in found.files:
                waiting += found.files[path].refs

    def _add(self, found: Look, path: str, source: str) -> None:
        try:
            status = os.lstat(source)
        except FileNotFoundError:  # it went meanwhile
            return
        key = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._seen.get(key)
        if known is None:
            known = self._entry(path, source, status.st_size)
            self._seen[key] = known
        if isinstance(known, LeftOut):
            found.left_out.append(known)
        else:
            found.files[path] = known._replace(source=source)

    def _entry(self, path: str, source: str, size: int) -> Entry | LeftOut:
        if size > LARGEST_FILE:
            return LeftOut(path, f"it is larger than {LARGEST_FILE >> 20} MiB")
        if why := trouble(path):
            return LeftOut(path, f"it {why}")
        if secrets.mask(path)[1]:
            return LeftOut(path, "its name holds a secret")
        raw = files.read_bytes(source, limit=LARGEST_FILE)
        content = (path, oid_of(raw, self._algorithm))
        if content not in self._masked:
            self._masked[content] = self._as_carried(path, source, raw)
        return self._masked[content]

    def _as_carried(self, path: str, source: str, raw: bytes) -> Entry | LeftOut:
        data, masked = form(path, raw)
        if data is None:
            kind = "named after its hash" if path.startswith(_BY_HASH) else "not text"
            return LeftOut(path, f"it holds a secret that Loom cannot mask, because the file is {kind}")
        oid = oid_of(data, self._algorithm)
        named = is_blob(path) or path.endswith((".json", ".jsonl", ".md"))
        refs = frozenset(blobs.named_in(data)) if named else frozenset[str]()
        clean = data if masked and len(data) <= _LARGEST_CLEAN else None
        return Entry(oid, len(data), masked, source, refs, clean)


def is_blob(path: str) -> bool:
    """Tell a blob among what is carried."""
    return path.startswith(BLOBS)


def is_output(path: str) -> bool:
    """Tell an output of a tool among what is carried."""
    return path.startswith(OUTPUTS)


def of_run(names: dict[str, str]) -> dict[str, str]:
    """Give the run's own files among those of a tree."""
    return {path: oid for path, oid in names.items() if path.startswith(RUN)}


def oid_of(data: bytes, algorithm: str) -> str:
    """Give the name that git has for a file's content."""
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def below(folder: str, *, outputs: bool) -> Iterator[tuple[str, str]]:
    """Give what may be carried of a run's folder: its name below that, with `/`, and its place. No link is followed."""
    for name, path in all_below(folder):
        if not is_this_machines(name) and (outputs or not name.startswith(f"{tool_log.FOLDER}/")):
            yield name, path


def all_below(folder: str) -> Iterator[tuple[str, str]]:
    """Give every plain file of a run's folder: its name below that, with `/`, and its place. No link is followed."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(os.path.join(folder, inside)) as entries:
            held = sorted(entries, key=lambda entry: entry.name)
        for entry in held:
            name = f"{inside}/{entry.name}" if inside else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif entry.is_file(follow_symlinks=False):
                yield name, entry.path


def is_this_machines(name: str) -> bool:
    """Tell what is not carried, by its name: leftovers, kept states, what is derived, who watches a command."""
    last = name.rpartition("/")[2]
    if leftovers.is_leftover(last) or last.endswith(".tmp"):
        return True
    if name.partition("/")[0] in _OWN:
        return True
    if "/" not in name:
        return (
            name.endswith(".json") and name.startswith(("state.", "plan.")) and name not in ("state.json", "plan.json")
        )
    is_undone = last.startswith("command.undone-") and last.endswith(".json")  # as `command.json` was before an undo
    return name.startswith("stages/") and (is_undone or last in (command_runs.LOCK, command_runs.RECORD))


def trouble(path: str, *, is_folder: bool = False) -> str:
    """Say why nothing is carried at a path of the tree; empty where something can be."""
    parts = path.split("/")
    raw = os.fsencode(path)
    if len(parts) > DEEPEST:
        return f"lies deeper than {DEEPEST} folders"
    if len(raw) > LONGEST or (len(raw) > LONGEST_NAME and any(len(one) > LONGEST_NAME for one in raw.split(b"/"))):
        return f"has a name longer than {LONGEST_NAME} bytes, or a path longer than {LONGEST}"
    if "\\" in path or not _NO_NAMES.isdisjoint(parts):
        return "has a name that some systems do not allow"
    if ".git" in path.lower() and any(part.lower() == ".git" for part in parts):
        return "has a name that git does not carry"
    if parts[:2] == ["run", "stages"] and len(parts) > 2 and visit_files.is_one(parts[2]):
        return "stands where Loom expects a file" if is_folder or len(parts) > 3 else ""
    shape = ["run", "stages", "*", *parts[3:]] if parts[:2] == ["run", "stages"] and parts[2:] else parts
    if any("/".join(shape[:count]) in _FILES for count in range(1, min(len(parts) + is_folder, _PARTS_OF_FILES))):
        return "is, or lies in, a folder where Loom expects a file"
    return "stands where Loom expects a folder" if not is_folder and "/".join(shape) in _FOLDERS else ""


# ---- The form in which a file is carried.


def form(path: str, data: bytes) -> tuple[bytes | None, int]:
    """Give a file's bytes as they are carried, and how many secrets were masked; None where it must stay.

    What is known by its hash (a blob, an output, an asset) goes as it is or not at all; the log of events, which is
    chained by hashes, was masked when it was written; all other text is masked, whatever bytes stand in it; what is no
    text, or holds a secret in wide letters, goes as it is or not at all.
    """
    if path == LOG:
        return data, 0
    if visit_files.is_one(path.removeprefix(f"{RUN}stages/")):
        return (None, 1) if _masked(path, data)[1] else (data, 0)
    if path.startswith(_BY_HASH) or (b"\0" in data and not path.lower().endswith(_TEXTS)):
        return (None, 1) if _holds_a_secret(path, data) else (data, 0)
    clean, count = _masked(path, data)
    return (None, 1) if _holds_wide_secret(clean) else (clean, count)


def _masked(path: str, data: bytes) -> tuple[bytes, int]:
    if path.endswith(".jsonl"):
        lines = [_line(line, is_step=path == RUN + tool_log.FILE) for line in data.splitlines(keepends=True)]
        return b"".join(line for line, _ in lines), sum(count for _, count in lines)
    if path.endswith(".json"):
        try:
            value = files.parse_json(data, where=path)
        except LoomError:
            return _text(data)
        clean, count = _values_masked(value, files.text_of(data))
        return (files.to_json(clean), count) if count else (data, 0)
    return _text(data)


def _text(data: bytes) -> tuple[bytes, int]:
    text, count = secrets.mask(data.decode("utf-8", "surrogateescape"))
    return (text.encode("utf-8", "surrogateescape"), count) if count else (data, 0)


def _holds_a_secret(path: str, data: bytes) -> bool:
    if secrets.mask(data.decode("utf-8", "surrogateescape"))[1] or _holds_wide_secret(data):
        return True
    if not is_blob(path):
        return False
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return bool(_values_masked(value, data)[1])


def _holds_wide_secret(data: bytes) -> bool:
    """Tell whether a secret stands in text of UTF-16 or UTF-32, which no mask fits into."""
    if b"\0" not in data:
        return False
    found = b"\n".join(one.replace(b"\0", b"") for one in re.findall(_WIDE, data))
    return bool(secrets.mask(found.decode("ascii"))[1])


def _line(line: bytes, *, is_step: bool) -> tuple[bytes, int]:
    """Give a line of JSON with its secrets masked; an original of a tool step that holds one is left out whole."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _text(line)
    clean, count = _values_masked(value, line)
    if not count:
        return line, 0
    changed = isinstance(clean, dict) and ("rest" in clean) and (clean["rest"] != value.get("rest") or _hidden(line))
    if is_step and changed:
        clean = {key: held for key, held in clean.items() if key != "rest"} | {WITHHELD: "it holds a secret"}
    return files.to_json_line(clean), count


def _values_masked(value: Any, text: str | bytes) -> tuple[Any, int]:
    """Give a value that was read from a JSON text masked, and how many secrets the text holds.

    Of two values of one key the last is read; a secret in an earlier one counts, and is gone from what is given.
    """
    clean = secrets.masked(value)
    count = 0 if clean == value else max(1, _count(value, clean))
    return clean, count + _hidden(text)


def _hidden(text: str | bytes) -> int:
    """Count the secrets in values of JSON that a later one of the same key hides from whoever reads it."""
    passed: list[dict[str, Any]] = []

    def held(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                passed.append({key: found[key]})
            found[key] = value
        return found

    json.loads(text, object_pairs_hook=held)
    return sum(_count(one, clean) for one in passed if (clean := secrets.masked(one)) != one)


def _count(value: Any, clean: Any) -> int:
    found, waiting = 0, [(value, clean)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            waiting += [(one[key], other[key]) for key in one]
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            waiting += zip(one, other, strict=True)
        else:
            found += one != other
    return found


# ---- What comes back to where a secret is known.


def unmasked(path: str, theirs: bytes, mine: bytes) -> bytes:
    """Give what came, with the secrets that masking had taken out of this machine's own file put back in their places.

    A text comes back where the whole of it is what masking makes of this machine's; of JSON each value by itself; of a
    log its beginning.
    """
    carried, count = form(path, mine)
    if not count or carried is None:
        return theirs
    if theirs == carried:
        return mine
    if path.endswith(".jsonl"):
        return mine + theirs[len(carried) :] if theirs.startswith(carried) else theirs
    if path.endswith(".json"):
        try:
            ours, came = files.parse_json(mine, where=path), files.parse_json(theirs, where=path)
        except LoomError:
            return theirs
        return files.to_json(_put_back(came, ours, secrets.masked(ours)))
    return theirs


def _put_back(came: Any, mine: Any, clean: Any) -> Any:
    if came == clean:
        return mine
    if isinstance(came, dict) and isinstance(mine, dict) and isinstance(clean, dict):
        same = mine.keys() == clean.keys()
        return {
            key: _put_back(held, mine[key], clean[key]) if same and key in mine else held for key, held in came.items()
        }
    if isinstance(came, list) and isinstance(mine, list) and isinstance(clean, list):
        known = min(len(mine), len(clean))
        return [_put_back(held, mine[at], clean[at]) if at < known else held for at, held in enumerate(came)]
    return came
