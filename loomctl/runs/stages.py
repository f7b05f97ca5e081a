"""The files of a stage: what the step was told, what it answered, how it ended (design §4)."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

PROMPT, RESPONSE, CANDIDATE, STATUS = "prompt.md", "response.md", "candidate.md", "status.json"
CHANGED = ("changes.json", "changes.patch")
REPAIRED, ASKED = "response.repair-", "repair-"


def folder(run_dir: str, stage: str) -> str:
    """Give a stage's folder; its name comes from a file, so it is checked (D10). Raises BAD_ID or UNSAFE_LINK."""
    checked_id(stage.replace("@", "."), what="stage")
    found = os.path.join(run_dir, "stages", stage)
    files.refuse_links(run_dir, found)
    return found


def write_prompt(run_dir: str, stage: str, prompt: str) -> dict[str, str]:
    """Write what the step is told; gives its hash by its name, for the log."""
    _write(run_dir, stage, PROMPT, prompt)
    return {PROMPT: sha256_of(prompt)}


def write_candidate(run_dir: str, stage: str, message: str) -> None:
    """Keep a message that may turn out to be the step's response (D27)."""
    _write(run_dir, stage, CANDIDATE, message)


def write_response(run_dir: str, stage: str, response: str) -> None:
    """Write what a step answered."""
    _write(run_dir, stage, RESPONSE, response)


def sha256_of(response: str) -> str:
    """Give the SHA-256 of an answer as its file holds it."""
    from loomctl.kit import digests  # a hook that ends no stage hashes none

    return digests.of_bytes(_encoded(response))


def sha256_of_json(document: Mapping[str, Any]) -> str:
    """Give the SHA-256 of what a JSON file of a stage says, but for whose run it is: a copy has a name of its own."""
    from loomctl.kit import digests

    return digests.of_json(document, ("run_id",))


def write_status(run_dir: str, stage: str, status: Mapping[str, Any]) -> dict[str, str]:
    """Write how a stage ended, before the state says so; gives its hash by its name."""
    where = folder(run_dir, stage)
    files.make_folder(where, mode=0o755)
    files.write_atomically(os.path.join(where, STATUS), files.to_json(dict(status)))
    return {STATUS: sha256_of_json(status)}


def write_repaired(
    run_dir: str, stage: str, attempt: int, *, response: str, asked: str, errors: Sequence[Mapping[str, str]]
) -> None:
    """Keep an answer that had to be repaired, what was wrong with it, and the message that asked for another.

    attempt: which repair it led to, from 1 (D36).
    """
    _write(run_dir, stage, f"{REPAIRED}{attempt}.md", response)
    _write(run_dir, stage, f"{ASKED}{attempt}.json", files.to_json(list(errors)).decode())
    _write(run_dir, stage, f"{ASKED}{attempt}.md", asked)


def repair_errors(run_dir: str, stage: str, repairs: int) -> list[list[Any]]:
    """Give what was wrong with each answer that had to be repaired; nothing of one whose file cannot be read."""
    found = []
    for attempt in range(1, repairs + 1):
        name = f"{ASKED}{attempt}.json"
        try:
            held = files.parse_json((read_text(run_dir, stage, name) or "[]").encode(), where=name)
        except LoomError:
            held = []
        found.append(held if isinstance(held, list) else [])
    return found


def set_aside(run_dir: str, stage: str) -> None:
    """Keep what an earlier visit of this name left under names of its own; nothing is thrown away (D31)."""
    from loomctl.runs import command_runs

    where = folder(run_dir, stage)
    for name in (RESPONSE, STATUS, CANDIDATE, command_runs.LOG, command_runs.RECORD, *CHANGED, *_repaired(where)):
        path = os.path.join(where, name)
        if not os.path.exists(path):
            continue
        base, ending = os.path.splitext(path)
        number = 1
        while os.path.exists(f"{base}.undone-{number}{ending}"):
            number += 1
        os.replace(path, f"{base}.undone-{number}{ending}")


def aside(run_dir: str, stage: str, name: str) -> list[str]:
    """Name the files of a name that were set aside, the newest first."""
    base, ending = os.path.splitext(name)
    try:
        names = os.listdir(folder(run_dir, stage))
    except OSError:
        return []
    numbers = [one[len(base) + len(".undone-") : -len(ending)] for one in names if one.startswith(f"{base}.undone-")]
    return [
        f"{base}.undone-{number}{ending}" for number in sorted(map(int, filter(str.isdigit, numbers)), reverse=True)
    ]


def _repaired(where: str) -> list[str]:
    try:
        names = os.listdir(where)
    except OSError:
        return []
    return sorted(name for name in names if _attempt(name))


def _attempt(name: str) -> str:
    beginning = REPAIRED if name.startswith(REPAIRED) else ASKED
    base, ending = os.path.splitext(name)
    number = base[len(beginning) :] if base.startswith(beginning) and ending in (".md", ".json") else ""
    return number if number.isascii() and number.isdigit() and len(number) < 10 else ""


def names(run_dir: str, stage: str) -> list[str]:
    """List the plain files of a stage: prompt, answers and what was asked for in their order, then the rest by name."""
    try:
        with os.scandir(folder(run_dir, stage)) as entries:
            found = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    from loomctl.runs import command_runs

    return sorted((name for name in found if not name.endswith(".tmp") and name != command_runs.LOCK), key=_order)


def _order(name: str) -> tuple[int, int, str]:
    if attempt := _attempt(name):  # the answer, what was asked then, what was wrong
        return 1, int(attempt), f"{not name.startswith(REPAIRED)}{name.endswith('.json')}"
    first = (PROMPT, REPAIRED, RESPONSE, CANDIDATE, STATUS)
    at = next((place for place, beginning in enumerate(first) if name.startswith(beginning)), len(first))
    number = name.rpartition("-")[2].partition(".")[0]
    return at, int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0, name


def read_text(run_dir: str, stage: str, name: str) -> str | None:
    """Read one of a stage's texts; None if it is not there."""
    path = os.path.join(folder(run_dir, stage), name)
    files.refuse_links(run_dir, path)
    try:
        return files.read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return None


def _write(run_dir: str, stage: str, name: str, text: str) -> None:
    where = folder(run_dir, stage)
    files.make_folder(where, mode=0o755)
    files.write_atomically(os.path.join(where, name), _encoded(text))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
