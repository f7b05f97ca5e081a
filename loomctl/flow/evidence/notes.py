"""Which commands of evidence this machine started, `.loom/local/evidence/{run_id}/{stage}.{number}`: never carried.

A note holds `{claim, name, supervisor|null}`: the hash of the answer that the command is to witness, what it is called,
and the process that watches it. A record in a stage's folder without its note was not made by a command that Loom
started here.
"""

from __future__ import annotations

import os

from loomctl.changes import baselines
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id, is_fit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FOLDER = "evidence"


def read(local: str, run_id: str, stage: str, number: int) -> dict[str, Any]:
    """Give the note of one command; empty where there is none that can be read."""
    try:
        found = files.read_json(_file(local, run_id, stage, number))
    except (OSError, LoomError):
        return {}
    return found if isinstance(found, dict) else {}


def are_any(local: str, run_id: str) -> bool:
    """Tell whether a run may have a note: a look that costs next to nothing. Raises nothing."""
    return os.path.isdir(os.path.join(local, FOLDER, run_id))


def listed(local: str, run_id: str) -> list[tuple[str, int]]:
    """Give the stage and the number of each command of a run that has its note. Raises BAD_ID, UNSAFE_LINK."""
    try:
        names = sorted(os.listdir(_folder(local, run_id)))
    except OSError:
        return []
    found = [name.rpartition(".") for name in names]
    return [(stage, int(number)) for stage, _, number in found if is_fit(stage.replace("@", ".")) and _counts(number)]


def _counts(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5


def write(local: str, run_id: str, stage: str, number: int, note: Mapping[str, Any]) -> None:
    """Note that a command is started. Raises OSError, BAD_ID, UNSAFE_LINK."""
    path = _file(local, run_id, stage, number)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, files.to_json(dict(note)), durable=False)


def forget(local: str, run_id: str, stage: str, number: int) -> None:
    """Remove the note of a command that is over. Raises OSError, BAD_ID, UNSAFE_LINK."""
    path = _file(local, run_id, stage, number)
    files.remove(path)
    try:
        os.rmdir(os.path.dirname(path))
    except OSError:  # others' notes are in it, or none ever was
        pass


def forget_run(local: str, run_id: str) -> None:
    """Remove the notes of a run that is gone. Raises OSError, BAD_ID, UNSAFE_LINK."""
    baselines.discard(_folder(local, run_id))


def _folder(local: str, run_id: str) -> str:
    path = os.path.join(local, FOLDER, checked_id(run_id))
    files.refuse_links(os.path.dirname(local), path)
    return path


def _file(local: str, run_id: str, stage: str, number: int) -> str:
    checked_id(stage.replace("@", "."), what="stage")
    path = os.path.join(_folder(local, run_id), f"{stage}.{number}")
    files.refuse_links(os.path.dirname(local), path)
    return path
