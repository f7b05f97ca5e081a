"""The page of stages has every key of `status.json`, and each file of a stage's folder."""

import json

from loomctl.changes import track
from loomctl.flow import advance
from loomctl.runs import command_runs, stages
from tests.docs.pages import DOCS, make, table
from tests.helpers.scenes import Scene

PAGE = DOCS / "reference" / "stages.md"

KEYS = {
    "schema_version": "1",
    "run_id, step_id, stage, visit, rank": "whose it is; `rank` is the number at the beginning of the folder's name",
    "kind": "`agent`, `prompt`, `command`, `human` or `parallel`",
    "status": "`succeeded`, `failed`, `partially_succeeded` or `skipped`",
    "attempt": "which try it is since the step was come to, from 1",
    "failure_reason": "why it failed, else `null`",
    "error": "what kind of failure it is: `type`, `message`, `retryable`, `details`; else `null`",
    "next": "where the run went on: `step_id` (`null` at its end) and `reason`, as the state keeps it",
    "note": "what `loomctl done --note TEXT` said",
    "response_source": "`done`, `conversation` (a final message), `transcript`, `candidate`, `command`, `decision`, "
    "`branches` or `none`",
    "directive": "what the answer said of the way on, and in which `source`: `response`, `status.json`, `last_file` "
    "(with the `file`)",
    "context_updates": "what the answer set, large values by their reference",
    "context_before": "what the keys that changed held before, for `loomctl undo`",
    "output": "the object that fitted a schema of the step's own",
    "files_touched": "names, from the project's root, the first 1,000",
    "files_unknown": "why tool calls alone are known; absent where git could tell",
    "assets": "captured files: `path`, `bytes`, `sha256`, `stored`",
    "usage": "`models`, `messages` and tokens of the conversations that worked on it, where they are known; `partial` "
    "where one of them cannot be seen here",
    "repairs": "how often another answer was asked for",
    "repair_errors": "what was wrong with each answer that another was asked for: a list of faults for each",
    "errors": "of a step whose answer never fitted: `code`, `where`, `message` of each fault in the last one",
    "warnings": "the same of what was passed over",
    "command": "of a command step: `script`, `exit_code`, `signal`, `duration_ms`, `timed_out`, `output`, `bytes`",
    "artifacts": "files that were registered: name and path",
    "started_at, completed_at": "UTC",
    "session_id": "who ended it",
}


def test_every_key_of_a_status_is_told(scene: Scene) -> None:
    """As it is written without git, so that all of them are there; and in the order of the file."""
    scene.workflow()
    scene.begin()
    advance.done(scene.space(), scene.run_dir.name, response="It is done.")
    status = json.loads((scene.run_dir / "stages" / "001-frame.ask@1" / "status.json").read_text(encoding="utf-8"))
    assert sorted(status) == sorted(key for keys in KEYS for key in keys.split(", "))
    rows = [[", ".join(f"`{key}`" for key in keys.split(", ")), told] for keys, told in KEYS.items()]
    make(PAGE, "status", table(["key", "what it says"], rows))


def test_every_file_of_a_stage_is_told() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [stages.PROMPT, stages.RESPONSE, stages.CANDIDATE, stages.STATUS, track.CHANGES, track.PATCH]
    for name in (*names, command_runs.LOG, command_runs.RECORD, "response.repair-1.md", "repair-1.md", "repair-1.json"):
        assert f"`{name}`" in text, name
