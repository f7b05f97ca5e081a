"""What an assistant does for a step in an interleaving, and what of it must stand afterwards.

A step is ended by its answer, as ever. Now and then a shell was called in it whose output is stored, a test's run left
a file, or the answer sets a value that is too large for the state. What a step has of these is told by its number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loomctl.flow import advance, resume
from loomctl.kit.errors import LoomError
from loomctl.runs import leases
from loomctl.runs.project import Workspace
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.store import Run, Store
from tests.helpers.scenes import SESSION

AGAIN = [{"to": "end", "condition": "outcome == 'skipped'"}, {"to": "make"}]
PHASES = {"build": {"steps": [{"id": "make", "prompt": "Make it.", "transitions": AGAIN}]}}
WORKFLOW: dict[str, Any] = {"id": "tiny", "max_visits": 1_000_000, "phases": PHASES}
"""A step that is gone to again, as long as anybody does."""
_LARGE = 110_000  # characters of a value that becomes a blob
_OUTPUT = 6_000  # characters of a tool's output that is stored beside the record


def number_of(token: str) -> int:
    return int(token.rpartition(" ")[2])


def has_value(token: str) -> bool:
    return number_of(token) % 6 == 0


def has_asset(token: str) -> bool:
    return number_of(token) % 3 == 0


def has_output(token: str) -> bool:
    """Tell whether a shell was called with much output; it was for each file that was left."""
    return number_of(token) % 2 == 0 or has_asset(token)


def answer(token: str) -> str:
    if not has_value(token):
        return f"{token}\n"
    value = f"{token} is made. " * (_LARGE // 12)
    return f"{token}\n{json.dumps({'context_updates': {'made': value}})}\n"


def output(token: str) -> str:
    return f"{token}: a line of the test's run\n" * (_OUTPUT // 30)


def left(token: str) -> tuple[str, bytes]:
    return f"test-results/{token}.txt", f"{token}: the screen at its end\n".encode()


def end_a_step(space: Workspace, run_id: str, token: str) -> None:
    if not space.store.has(run_id):
        raise LoomError("NO_SUCH_RUN", "it did not come here yet", hint="loomctl pull")
    resume.resume(space, run_id, take_over=True)
    if has_asset(token):
        _leave(Path(space.project.root), token)
    if has_output(token):
        _spool(space, token)
    advance.done(leases.taking_over(space), run_id, response=answer(token))


def _leave(root: Path, token: str) -> None:
    path, data = left(token)
    beside = root.parent / f"{root.name} {token}"
    beside.write_bytes(data)
    (root / path).parent.mkdir(exist_ok=True)
    os.replace(beside, root / path)


def _spool(space: Workspace, token: str) -> None:
    stdout = {"stdout": output(token), "stderr": "", "interrupted": False, "isImage": False}
    event: dict[str, Any] = {
        "session_id": SESSION,
        "cwd": space.project.root,
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
    }
    event |= {"tool_input": {"command": "make test"}, "tool_use_id": f"toolu_{number_of(token):06}"}
    path = Path(space.store.local, "spool", f"{SESSION}-{number_of(token)}.json")
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(json.dumps({**event, "tool_response": stdout}), encoding="utf-8")
    beside.rename(path)


# ---- What must stand.


def answers(run: Run) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give token, answer and `status.json` of each stage of a run that was ended."""
    for entry in run.state["steps"]:
        if entry["status"] == "succeeded":
            folder = Path(run.folder, "stages", entry["stage"])
            told = (folder / "response.md").read_text(encoding="utf-8")
            yield told.partition("\n")[0], told, json.loads((folder / "status.json").read_text(encoding="utf-8"))


def missing(store: Store, run: Run, token: str, status: dict[str, Any]) -> str:
    """Say what a stage does not have of the file and the value that it was ended with; empty where both are whole.

    A stage that began on the other machine, or whose beginning was killed, says that its files are unknown (D40).
    """
    if has_asset(token) and not status.get("files_unknown"):
        path, data = left(token)
        kept = {one["path"]: Path(run.folder, one["stored"]) for one in status["assets"]}
        if path not in kept:
            return "no asset"
        if not kept[path].is_file() or kept[path].read_bytes() != data:
            return "another asset"
    if has_value(token):
        ref = status["context_updates"]["made"]
        if not blobs.is_ref(ref):
            return "no large value"
        try:
            value = json.loads(Blobs(store.folder).get(ref))
        except LoomError as error:
            return f"its large value: {error.code}"
        if value != json.loads(answer(token).partition("\n")[2])["context_updates"]["made"]:
            return "another large value"
    return ""


def outputs(run: Run) -> Iterator[str]:
    folder = os.path.join(run.folder, "outputs")
    for path in Path(folder).glob("*.log") if os.path.isdir(folder) else ():
        text = path.read_text(encoding="utf-8")
        token = text.partition(":")[0]
        if text == output(token):
            yield token
