"""What a user tells a run's assistant, kept on this machine: `.loom/local/tells/{run_id}/` (D76).

A file is one message, and its ending says how far it is: `{number}.json` waits; `.given` was given, and nobody has seen
it arrive; `.kept` arrived, and stays until its step is over, for a conversation that takes the step up has not got it.
The launcher looks for the first two by their names. Who changes a file holds `lock`; a kill leaves both of its endings
at most, and the later one counts.
"""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id, is_fit
from loomctl.kit.processes import Lock
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

WAITS, GIVEN, KEPT = ".json", ".given", ".kept"
MOST = 20
"""Messages that may wait at once."""
LONGEST = 4000
"""Characters of one."""
_FOLDER, _LOCK = "tells", ".lock"
_ENDINGS = (WAITS, GIVEN, KEPT)
_LARGEST = 1 << 20
_HANDED = 20  # conversations that are remembered of one message


class Tell(NamedTuple):
    """One message.

    number: its place in their order; at: when it was written; by: empty for the user, `loom` for Loom itself; handed:
    to whom it was given: `{mark, session_id, process, at}`; stage: the one that was open when it was given last.
    """

    number: str
    ending: str
    at: str
    text: str
    by: str = ""
    stage: str = ""
    handed: Sequence[dict[str, Any]] = ()

    @property
    def marks(self) -> list[str]:
        """The ids of the slips that carried it."""
        return [mark for one in self.handed if isinstance(mark := one.get("mark"), str)]


def are_there(local: str, run_id: str) -> bool:
    """Tell whether anything is kept of a run."""
    return os.path.isdir(_folder(local, run_id))


def lock(local: str, run_id: str, patience: float) -> Lock:
    """Give the lock of a run's messages. Raises UNSAFE_LINK."""
    path = os.path.join(_folder(local, run_id), _LOCK)
    files.refuse_links(os.path.dirname(local), path)
    return Lock(path, patience=patience, what="the lock of the run's messages")


def read(local: str, run_id: str) -> list[Tell]:
    """Give a run's messages in their order; what is damaged, or a link, is passed over."""
    folder = _folder(local, run_id)
    if files.leads_away(os.path.dirname(local), folder):
        return []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    latest: dict[str, str] = {}
    for ending in _ENDINGS:
        latest.update((name.removesuffix(ending), ending) for name in names if name.endswith(ending) and name[0] != ".")
    found = (_read(os.path.join(folder, number + ending), number, ending) for number, ending in sorted(latest.items()))
    return [one for one in found if one is not None]


def _read(path: str, number: str, ending: str) -> Tell | None:
    try:
        if os.path.islink(path):
            return None
        value = files.read_json(path, limit=_LARGEST)
    except (OSError, LoomError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return None
    at, by, stage = (one if isinstance(one := value.get(key), str) else "" for key in ("at", "by", "stage"))
    handed = value.get("handed")
    known = [one for one in handed if isinstance(one, dict)] if isinstance(handed, list) else []
    return Tell(number, ending, at, value["text"], by, stage, known)


def add(local: str, run_id: str, at: str, text: str, by: str = "") -> Tell:
    """Add a message behind all others. Raises OSError. Under the lock."""
    numbers = [int(one.number) for one in read(local, run_id) if one.number.isascii() and one.number.isdigit()]
    made = Tell(f"{max(numbers, default=0) + 1:06}", WAITS, at, text, by)
    _write(local, run_id, made, durable=True)
    return made


def put(local: str, run_id: str, tell: Tell) -> Tell:
    """Write a message with its ending, in place of the one that it had. Raises OSError. Under the lock."""
    tell = tell._replace(handed=[*tell.handed][-_HANDED:])
    _write(local, run_id, tell, durable=False)
    for ending in _ENDINGS:
        if ending != tell.ending:
            files.remove(_path(local, run_id, tell.number, ending))
    return tell


def drop(local: str, run_id: str, tell: Tell) -> None:
    """Forget a message. Under the lock."""
    for ending in _ENDINGS:
        files.remove(_path(local, run_id, tell.number, ending))


def tidy(local: str, run_id: str, held: Lock) -> None:
    """Remove the folder of a run of which nothing is left: with it the launcher has less to look at. Under the lock."""
    folder = _folder(local, run_id)
    try:
        if os.listdir(folder) == [_LOCK]:
            held.remove()
            os.rmdir(folder)
            os.rmdir(os.path.dirname(folder))
    except OSError:  # another is there, or comes just now
        pass


def forget(local: str, run_id: str) -> None:
    """Forget all that is kept of a run, which is removed. Raises OSError, and HELD where somebody reads it just now."""
    if not is_fit(run_id) or files.leads_away(os.path.dirname(local), _folder(local, run_id)):
        return
    if are_there(local, run_id):
        with lock(local, run_id, 1.0) as held:
            for name in os.listdir(_folder(local, run_id)):
                if name != _LOCK:
                    files.remove(os.path.join(_folder(local, run_id), name))
            tidy(local, run_id, held)


def _write(local: str, run_id: str, tell: Tell, *, durable: bool) -> None:
    value = {"at": tell.at, "by": tell.by, "text": tell.text, "stage": tell.stage, "handed": [*tell.handed]}
    files.write_atomically(_path(local, run_id, tell.number, tell.ending), files.to_json(value), durable=durable)


def _path(local: str, run_id: str, number: str, ending: str) -> str:
    return os.path.join(_folder(local, run_id), number + ending)


def _folder(local: str, run_id: str) -> str:
    return os.path.join(local, _FOLDER, checked_id(run_id))
