"""What a session is owed after a compaction: one small file that the launcher looks for, given to one hook alone.

`local/owed/{session_id}.json` stands while something is owed. Who gives it renames it to `{session_id}.given` first, so
that of several hooks of one moment one gives it; that file stays until it is seen that what was given arrived. What did
not fit is owed on: then it is renamed back.

A note holds the compaction (`run_id`, `at`, `number`), its receipt, `left`: what is still to be given, `parts`: what
was given and not seen to arrive, `again`: what was given once already, and `never`: what cannot be read, or never fits.
"""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FOLDER = "owed"
_OWED, _GIVEN = ".json", ".given"
_LARGEST = 1 << 20


def note(local: str, session_id: str, owed: dict[str, Any]) -> None:
    """Note what a session is owed. local: the store's `local` folder. Raises OSError and UNSAFE_LINK."""
    _write(_path(local, session_id, _OWED), local, owed)


def is_any(local: str, session_id: str) -> bool:
    """Tell whether a session is owed something, or was given what is not known to have arrived."""
    return any(os.path.isfile(_path(local, session_id, ending)) for ending in (_OWED, _GIVEN))


def is_owed(local: str, session_id: str) -> bool:
    """Tell whether a session is owed something."""
    return os.path.isfile(_path(local, session_id, _OWED))


def standing(local: str, session_id: str) -> dict[str, Any] | None:
    """Give what a session is owed, or was given without being seen to arrive; nothing is taken. None: nothing is."""
    try:
        paths = [_path(local, session_id, ending) for ending in (_OWED, _GIVEN)]
    except LoomError:  # an id that no file bears
        return None
    found = (None if files.leads_away(os.path.dirname(local), path) else _read(path) for path in paths)
    return next((one for one in found if one is not None), None)


def claim(local: str, session_id: str) -> dict[str, Any] | None:
    """Take what a session is owed, in order to give it; None where there is nothing, or another hook took it."""
    path = _path(local, session_id, _OWED)
    if files.leads_away(os.path.dirname(local), path):
        return None
    given = _path(local, session_id, _GIVEN)
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
    _write(_path(local, session_id, _GIVEN), local, what)


def owe_on(local: str, session_id: str) -> None:
    """Owe what is left of what was taken: from now on another hook may take it. Raises OSError."""
    given, path = _path(local, session_id, _GIVEN), _path(local, session_id, _OWED)
    if not files.leads_away(os.path.dirname(local), given):
        os.rename(given, path)


def left(noted: Mapping[str, Any]) -> list[str]:
    """Give the names of what is still to be given."""
    due = names(noted, "left" if "left" in noted else "lost")
    return [name for name in due if name not in names(noted, "given")] if _is_older(noted) else due


def parts(noted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give what was given and not seen to arrive; `given` are the names of what a part held, `mark` is its slip's."""
    if _is_older(noted):
        recorded = set(names(noted, "given")) <= set(names(noted, "recorded"))
        return [{**{key: noted.get(key) for key in ("mark", "given", "by", "characters")}, "recorded": recorded}]
    listed = noted.get("parts")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _is_older(noted: Mapping[str, Any]) -> bool:
    """Tell a note of a Loom that gave one part alone: it stands in the note itself, and is due until it arrived."""
    return "parts" not in noted and isinstance(noted.get("mark"), str) and bool(names(noted, "given"))


def names(noted: Mapping[str, Any], key: str) -> list[str]:
    """Give the names under a key of a note, which may be damaged."""
    listed = noted.get(key)
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def settle(local: str, session_id: str) -> None:
    """Forget what was given: it arrived, or is given up."""
    _remove(local, _path(local, session_id, _GIVEN))


def drop(local: str, session_id: str | None) -> None:
    """Forget all of it: another compaction came, or the conversation was cleared."""
    if not session_id:
        return
    for ending in (_OWED, _GIVEN):
        _remove(local, _path(local, session_id, ending))


def _path(local: str, session_id: str, ending: str) -> str:
    return os.path.join(local, FOLDER, checked_id(session_id, what="session id") + ending)


def _write(path: str, local: str, value: dict[str, Any]) -> None:
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, files.to_json(value), durable=False)


def _read(path: str) -> dict[str, Any] | None:
    try:
        value = files.read_json(path, limit=_LARGEST)
    except (OSError, LoomError):
        return None
    return value if isinstance(value, dict) else None


def _remove(local: str, path: str) -> None:
    if not files.leads_away(os.path.dirname(local), path):
        files.remove(path)
