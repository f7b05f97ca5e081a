"""A conversation that is compacted, as the host's hooks tell of it."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.helpers.scenes import MAIN, SESSION, Ended, Json, Scene, TranscriptFile, run


def hook(scene: Scene, event: str, file: TranscriptFile | None = None, **told: Any) -> Ended:
    """Answer an event of the session."""
    ended = scene.hook(event, transcript_path=str(file.path) if file else "", **told)
    assert (ended.code, ended.stderr) == (0, "")
    return ended


def compact(scene: Scene, file: TranscriptFile | None = None, **more: Any) -> Ended:
    """Go through a compaction as the host does; gives PostCompact's answer. more: what PostCompact gets."""
    hook(scene, "pre-compact", file, trigger="auto")
    if file is not None:
        file.compacts()
    text = hook(scene, "session-start", file, source="compact").context
    if file is not None:
        file.hook_text(text)
    return hook(scene, "post-compact", file, trigger="auto", **more)


def tool(scene: Scene, response: str = "ok", **more: Any) -> tuple[Ended, Path]:
    """Answer a tool's event as the launcher starts Python for it while something is owed."""
    path = scene.store / "local/spool" / f"{SESSION}-4711.json"
    stdout = {"stdout": response, "stderr": "", "interrupted": False, "isImage": False}
    told: Json = {"session_id": SESSION, "cwd": str(scene.root), "hook_event_name": "PostToolUse", "tool_name": "Bash"}
    told |= {"tool_input": {"command": "cargo test"}, "tool_response": stdout, "tool_use_id": "toolu_01", **more}
    path.write_text(json.dumps(told))
    command = ["-I", "-S", str(MAIN), "hook", "post-tool-use", str(path), "owed"]
    ended = run([sys.executable, *command], cwd=scene.root, environ=scene.environ(), given=b"")
    assert (ended.code, ended.stderr) == (0, "")
    return ended, path


OWN = ("goal", "step")
"""What must survive in every run, and is primed, so that it is kept."""


def declared(receipt: Json) -> Json:
    """Give a receipt without what every run keeps."""
    return {**receipt, "kept": [name for name in receipt["kept"] if name not in OWN]}


def receipt(scene: Scene, at: int = -1) -> Json:
    """Give the receipt of a compaction, of what was declared; what every run has must have been kept."""
    found: Json = scene.state["sessions"]["session_history"][0]["compactions"][at]["receipt"]
    assert set(OWN) <= set(found["kept"])
    return declared(found)


def prompted(scene: Scene, file: TranscriptFile | None = None) -> Ended:
    return hook(scene, "user-prompt-submit", file, prompt="go on")


def survived(scene: Scene) -> tuple[int, Json, str, str]:
    """What `prove` says of the last compaction, by its code, its document and its words; what `status` says."""
    told = scene.loomctl("prove", "--json", session=None)
    shown = scene.loomctl("prove", session=None).stdout
    return told.code, told.json, shown, scene.loomctl("status", session=None).stdout
