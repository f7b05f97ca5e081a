"""A driven run goes on over compactions, and over a day in which a person did not answer (D73, D66)."""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.e2e.drives import DIRECTIVE, WORKFLOW, Drive
from tests.e2e.scripted_api import AUTO_COMPACT, bash, reply
from tests.e2e.test_drive_faults import started_by

SPEC = """critical_artifacts:
  always_load:
    - {id: spec, type: markdown, path: spec.md, description: the spec, required: true, reload_triggers: [session_start]}
"""
LAST = "The heliotrope switch outlives each summary."
GATE = """
id: two
description: A step that a person decides.
autonomy: autonomous
phases:
  build:
    steps:
      - {id: write, prompt: "Write a file."}
      - {id: gate, kind: human, prompt: "Is it right?"}
      - {id: check, prompt: "Check it."}
"""
DAY = 86_400


def test_three_compactions_and_a_long_specification_on_the_way(drive: Drive) -> None:
    drive.workflow(WORKFLOW + SPEC)
    rules = "".join(
        f"- Rule {number}: element {number} keeps its colour where it stands now.\n" for number in range(500)
    )
    (drive.project / "spec.md").write_text(f"# The spec\n\n{rules}\n{LAST}\n", encoding="utf-8")
    assert (drive.project / "spec.md").stat().st_size > 30_000
    api = drive.assistant.api
    api.summary = "The user wants a file."
    compacted = [reply(bash(f"loomctl --version # {number}"), usage=AUTO_COMPACT) for number in range(3)]
    between = [reply(bash(f"loomctl --help # {number}")) for number in range(3)]
    steps = [one for pair in zip(compacted, between, strict=True) for one in pair]
    api.script(*steps, DIRECTIVE, reply(bash("loomctl next")), DIRECTIVE)
    drive.loomctl("drive", "make a file", "--workflow", "two")
    assert drive.state()["status"] == "completed"
    kinds = [request.kind for request in api.requests]
    assert kinds.count("compaction") == 3
    for at, kind in enumerate(kinds):
        if kind == "compaction":  # the request after the next tool result has the specification, whole and once
            later = [request for request in api.requests[at + 1 :] if request.kind == "main"]
            assert later[1].seen().count(LAST) == 1
    proven = json.loads(drive.loomctl("prove", drive.state()["run_id"], "--json"))["compactions"]
    assert [one["proven"] for one in proven] == [True] * 3
    assert [one["lost"] for one in proven] == [[]] * 3 or all(one["restored"] == one["lost"] for one in proven)


@pytest.mark.quick
def test_a_gate_that_is_open_for_a_day_holds_no_process(drive: Drive) -> None:
    drive.workflow(GATE)
    api = drive.assistant.api
    api.script(DIRECTIVE)
    said = drive.loomctl("drive", "make a file", "--workflow", "two", code=9)
    handle = drive.state()["run_id"]
    assert "loomctl approve" in said
    assert started_by(drive) == []
    a_day_later(drive)
    asked = len(api.requests)
    assert "waits for your decision" in drive.loomctl("drive", handle, code=9)
    assert len(api.requests) == asked
    drive.loomctl("approve", handle)
    api.script(reply(bash("loomctl next")), DIRECTIVE)
    drive.loomctl("drive", handle)
    assert drive.state()["status"] == "completed"


def a_day_later(drive: Drive) -> None:
    """Put all that is known of a run a day back."""
    today, yesterday = (time.strftime("%Y-%m-%dT", time.gmtime(time.time() - days * DAY)) for days in (0, 1))
    (folder,) = (drive.project / ".loom" / "runs").iterdir()
    state = folder / "state.json"
    told = json.loads(state.read_text(encoding="utf-8"))
    own = ("run_id", "plan_id")
    moved = {key: _moved(value, today, yesterday) if key not in own else value for key, value in told.items()}
    state.write_text(json.dumps(moved, indent=1), encoding="utf-8")
    for path in (drive.project / ".loom").rglob("*"):
        at = path.lstat().st_mtime - DAY
        os.utime(path, (at, at), follow_symlinks=False)


def _moved(value: object, today: str, yesterday: str) -> object:
    if isinstance(value, dict):
        return {key: _moved(one, today, yesterday) for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, today, yesterday) for one in value]
    is_time = isinstance(value, str) and value.startswith(today) and value.endswith("Z")
    return value.replace(today, yesterday) if is_time and isinstance(value, str) else value
