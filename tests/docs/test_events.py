"""The page of events has every event that Loom writes, with its properties, and no other."""

import json
import re

import pytest

from loomctl.flow import advance, decide, rewind
from tests.docs.events import EVENTS, written
from tests.docs.pages import DOCS, make, table
from tests.helpers.scenes import Scene

PAGE = DOCS / "reference" / "events.md"
NAME = re.compile(r"`([a-z]+\.[a-z_]+)`")


@pytest.mark.slow
def test_every_event_of_the_source_is_listed_with_its_properties() -> None:
    found = written()
    assert {one.name for one in found} == set(EVENTS)
    for one in found:
        assert one.properties <= set(EVENTS[one.name][1]), one


def test_the_page_has_the_table() -> None:
    """Made from the same list."""
    rows = [
        [f"`{name}`", when, "; ".join(f"`{key}`" + (f": {told}" if told else "") for key, told in properties.items())]
        for name, (when, properties) in EVENTS.items()
    ]
    make(PAGE, "events", table(["event", "when", "properties"], rows))


def test_the_names_of_the_documents_lead_to_events_that_there_are() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Other names")[2].partition("\n## ")[0]
    told = set(NAME.findall(section)) - {"state.json", "events.jsonl"}
    assert {"stage.completed", "run.completed"} <= told
    assert told <= {*EVENTS, "steps.jsonl"}


def test_a_runs_events_have_only_what_the_page_tells(scene: Scene) -> None:
    scene.workflow(
        phases={
            "a": {"steps": [{"id": "x", "prompt": "X.", "max_retries": 1}]},
            "b": {"require_approval": True, "steps": [{"id": "y", "prompt": "Y."}]},
        }
    )
    scene.begin()
    space, run_id = scene.space(), scene.run_dir.name
    advance.done(space, run_id, response="no", outcome="failed", note="why")
    advance.done(space, run_id, response='{"context_updates": {"a": 1}}')
    rewind.undo(space, run_id)
    advance.done(space, run_id, response="x")
    decide.approve(space, run_id)
    advance.done(space, run_id, response="y")
    entries = [json.loads(line) for line in (scene.run_dir / "events.jsonl").read_text().splitlines()]
    assert entries[-1]["event"] == "run.completed"
    assert {"stage.undone", "approval.granted", "phase.completed"} <= {entry["event"] for entry in entries}
    for entry in entries:
        assert set(entry["properties"]) <= set(EVENTS[entry["event"]][1]), entry
