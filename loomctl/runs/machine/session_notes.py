"""What a session was given and is owed: notes in `.loom/local`, each replaced whole, machine-local and dispensable.

`owed/{session_id}.json` stands while a compaction's losses are owed. Who gives them renames it to `.given` first, so
that of several hooks of one moment one gives it; that file stays until it is seen that what was given arrived. What did
not fit is owed on: then it is renamed back. A note holds the compaction (`run_id`, `at`, `number`), its receipt,
`left`: what is still to be given, `parts`: what was given and not seen to arrive, `again`: what was given once already,
and `never`: what cannot be read, or never fits.

`given/{sha256}.txt` are texts that conversations were given in full, secrets masked: what a later diff begins with
(D15). `primed/{session_id}.watch` names the user's files that a session was given, for the launcher to compare their
times with (D80): a line for each, `+` and the absolute path, or `-` for one that is known to be gone. Its own time is
older than the reading of them, so that what is newer may have changed since. Who looks takes it away first. `.unsure`
beside it says that a compaction may have taken what the session was given; then each prompt starts Python.
`.compacted` says that one has begun, or is over, and no start will follow it: whoever removes that file primes, and
leaves it with a word in it while what was given still has to be looked for. `.starting` says that a start is being
answered whose text comes with the next prompt, and that the conversation does not show it yet.
"""

from __future__ import annotations

import os
import time

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_OWED, _GIVEN, _WATCH, _UNSURE = ".json", ".given", ".watch", ".unsure"
_COMPACTED, _STARTING = ".compacted", ".starting"
_FOLDERS = {
    _OWED: "owed", _GIVEN: "owed", _WATCH: "primed", _UNSURE: "primed", _COMPACTED: "primed", _STARTING: "primed",
}  # fmt: skip
_LONGEST_START = 15.0  # seconds; hosts end a start's hook after 10
_LARGEST = 1 << 20
TEXTS = "given"
MOST_TEXTS = 200  # files that are kept; the oldest go first
LARGEST_TEXT = 1 << 18  # bytes of one; what is longer is not kept
# Seconds by which a file must be older than its reading to count as read: some shells compare whole seconds.
SLACK = 2.0


def _path(local: str, session_id: str, ending: str) -> str:
    return os.path.join(local, _FOLDERS[ending], checked_id(session_id, what="session id") + ending)


def _write(local: str, path: str, data: bytes) -> None:
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, data, durable=False)


def _read(path: str) -> dict[str, Any] | None:
    try:
        value = files.read_json(path, limit=_LARGEST)
    except (OSError, LoomError):
        return None
    return value if isinstance(value, dict) else None


def _remove(local: str, path: str) -> None:
    if not files.leads_away(os.path.dirname(local), path):
        files.remove(path)


# ---- What is owed after a compaction.


def note_owed(local: str, session_id: str, owed: dict[str, Any]) -> None:
    """Note what a session is owed. local: the store's `local` folder. Raises OSError and UNSAFE_LINK."""
    _write(local, _path(local, session_id, _OWED), files.to_json(owed))


def is_owed(local: str, session_id: str, *, or_given: bool = False) -> bool:
    """Tell whether a session is owed something. or_given: or was given what is not known to have arrived."""
    endings = (_OWED, _GIVEN) if or_given else (_OWED,)
    return any(os.path.isfile(_path(local, session_id, ending)) for ending in endings)


def read_owed(local: str, session_id: str) -> dict[str, Any] | None:
    """Give what a session is owed, or was given without being seen to arrive; nothing is taken. None: nothing is."""
    try:
        paths = [_path(local, session_id, ending) for ending in (_OWED, _GIVEN)]
    except LoomError:  # an id that no file bears
        return None
    found = (None if files.leads_away(os.path.dirname(local), path) else _read(path) for path in paths)
    return next((one for one in found if one is not None), None)


def claim_owed(local: str, session_id: str) -> dict[str, Any] | None:
    """Take what a session is owed, in order to give it; None where there is nothing, or another hook took it."""
    path, given = _path(local, session_id, _OWED), _path(local, session_id, _GIVEN)
    if files.leads_away(os.path.dirname(local), path):
        return None
    try:
        os.rename(path, given)
    except OSError:
        return None
    found = _read(given)
    if found is None:  # damaged: nobody can give it
        files.remove(given)
    return found


def note_given(local: str, session_id: str, what: dict[str, Any]) -> None:
    """Note what was given."""
    _write(local, _path(local, session_id, _GIVEN), files.to_json(what))


def owe_on(local: str, session_id: str) -> None:
    """Owe what is left of what was taken: from now on another hook may take it. Raises OSError."""
    given, path = _path(local, session_id, _GIVEN), _path(local, session_id, _OWED)
    if not files.leads_away(os.path.dirname(local), given):
        os.rename(given, path)


def left(owed: Mapping[str, Any]) -> list[str]:
    """Give the names of what is still to be given."""
    due = names(owed, "left" if "left" in owed else "lost")
    return [name for name in due if name not in names(owed, "given")] if _is_older(owed) else due


def parts(owed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give what was given and not seen to arrive; `given` are the names of what a part held, `mark` is its slip's."""
    if _is_older(owed):
        recorded = set(names(owed, "given")) <= set(names(owed, "recorded"))
        return [{**{key: owed.get(key) for key in ("mark", "given", "by", "characters")}, "recorded": recorded}]
    listed = owed.get("parts")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _is_older(owed: Mapping[str, Any]) -> bool:
    """Tell a note of a Loom that gave one part alone: it stands in the note itself, and is due until it arrived."""
    return "parts" not in owed and isinstance(owed.get("mark"), str) and bool(names(owed, "given"))


def names(owed: Mapping[str, Any], key: str) -> list[str]:
    """Give the names under a key of a note, which may be damaged."""
    listed = owed.get(key)
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def settle_owed(local: str, session_id: str) -> None:
    """Forget what was given: it arrived, or is given up."""
    _remove(local, _path(local, session_id, _GIVEN))


def drop_owed(local: str, session_id: str | None) -> None:
    """Forget all of it: another compaction came, or the conversation was cleared."""
    if session_id:
        for ending in (_OWED, _GIVEN):
            _remove(local, _path(local, session_id, ending))


# ---- The texts that conversations were given.


def keep_text(local: str, text: str) -> str:
    """Keep a text; gives its SHA-256, empty where it is not kept. Raises OSError and UNSAFE_LINK."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > LARGEST_TEXT:
        return ""
    sha256 = digests.of_bytes(data)
    path = _text_path(local, sha256)
    files.refuse_links(os.path.dirname(local), path)
    if os.path.isfile(path):
        os.utime(path)
        return sha256
    _write(local, path, data)
    _make_room(os.path.dirname(path))
    return sha256


def read_text(local: str, sha256: str) -> str | None:
    """Give a text that was kept; None where it is gone, damaged, or a link leads to it."""
    from loomctl.runs.store.blobs import is_sha256  # most hooks read none

    if not is_sha256(sha256) or files.leads_away(os.path.dirname(local), _text_path(local, sha256)):
        return None
    try:
        data = files.read_bytes(_text_path(local, sha256), limit=LARGEST_TEXT)
    except (OSError, LoomError):
        return None
    return data.decode("utf-8", "surrogatepass") if digests.of_bytes(data) == sha256 else None


def _text_path(local: str, sha256: str) -> str:
    return os.path.join(local, TEXTS, f"{sha256}.txt")


def _make_room(folder: str) -> None:
    paths = [path for name in os.listdir(folder) if os.path.isfile(path := os.path.join(folder, name))]
    for _, path in sorted((os.stat(path).st_mtime, path) for path in paths)[: max(0, len(paths) - MOST_TEXTS)]:
        files.remove(path)


# ---- The files that a session was given.


def note_watch(local: str, session_id: str, artifacts: Mapping[str, Any], *, age: float) -> None:
    """Write anew which files a session was given (`primed.artifacts`), none whose name has a line end.

    age: seconds since they were read, at most. Raises OSError and UNSAFE_LINK.
    """
    path = _path(local, session_id, _WATCH)
    lines = b"".join(os.fsencode(line) + b"\n" for line in sorted(set(_watched(artifacts))))
    _write(local, path, lines)
    at = os.stat(path).st_mtime - age - SLACK  # by the clock of the file system, as theirs are
    os.utime(path, (at, at))


def _watched(artifacts: Mapping[str, Any]) -> Iterable[str]:
    for entry in artifacts.values():
        path = entry.get("file") if isinstance(entry, dict) else None
        if isinstance(path, str) and path.startswith("/") and "\n" not in path:
            yield ("-" if entry.get("problem") and not os.path.exists(path) else "+") + path


def take_watch(local: str, session_id: str) -> int | None:
    """Take the file away in order to look; gives its time in ns, None where it is not there, or another took it."""
    path = _path(local, session_id, _WATCH)
    if files.leads_away(os.path.dirname(local), path):
        return None
    try:
        at = os.lstat(path).st_mtime_ns
        os.unlink(path)
    except OSError:
        return None
    return at


def is_newer(path: str, since: int) -> bool:
    """Tell whether a file may have changed since a time in ns, or is gone."""
    try:
        return os.stat(path).st_mtime_ns >= since
    except OSError:
        return True


def doubt(local: str, session_id: str) -> None:
    """Note that a session may have lost what it was given, if any was. Raises OSError and UNSAFE_LINK."""
    path = _path(local, session_id, _UNSURE)
    if os.path.isdir(os.path.dirname(path)):
        files.refuse_links(os.path.dirname(local), path)
        os.close(files.open_own(path, os.O_WRONLY))


def confirm(local: str, session_id: str) -> None:
    """Note that a session has what it was given, or that nothing more is tried. Raises OSError."""
    path = _path(local, session_id, _UNSURE)
    if os.path.lexists(path):
        _remove(local, path)


# ---- A compaction that no session start follows.


GIVEN_THEN = "given"
"""What stands in that note once the session was primed, and the compaction still goes on."""


def note_compacted(local: str, session_id: str, word: str = "") -> None:
    """Note that a session must be primed at its next event that can be. Raises OSError and UNSAFE_LINK.

    word: GIVEN_THEN where it was, and is to be looked for. What a start gave before may be gone.
    """
    claim_starting(local, session_id)
    _write(local, _path(local, session_id, _COMPACTED), word.encode())


def claim_compacted(local: str, session_id: str) -> str | None:
    """Take that note away; gives its word, None where it is not there, for of several hooks one acts on it."""
    path = _path(local, session_id, _COMPACTED)
    if files.leads_away(os.path.dirname(local), path):
        return None
    try:
        word = files.read_bytes(path, limit=_LARGEST)
        os.unlink(path)
    except (OSError, LoomError):
        return None
    return word.decode("utf-8", "replace")


# ---- A start whose text comes with a prompt.


def note_starting(local: str, session_id: str) -> None:
    """Note that a start is being answered, where one ever gave something. Raises OSError and UNSAFE_LINK."""
    path = _path(local, session_id, _STARTING)
    if os.path.isdir(os.path.dirname(path)):
        _write(local, path, b"")


def claim_starting(local: str, session_id: str) -> bool:
    """Take that note away; tells whether it was there, and is not from a start of long ago."""
    path = _path(local, session_id, _STARTING)
    try:
        age = time.time() - os.lstat(path).st_mtime
        _remove(local, path)
    except OSError:
        return False
    return age < _LONGEST_START
