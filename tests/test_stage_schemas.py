"""The schemas of what Loom writes of a stage say the same as what it writes: each key, each word, each kind of end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from loomctl.changes import track
from loomctl.cli import bundle
from loomctl.flow import advance, decide
from loomctl.flow.commands import command_steps
from loomctl.flow.outcomes import directives
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.model import visits
from loomctl.runs.project import Conversation
from loomctl.runs.tools import tool_log
from loomctl.workflows import check, steps
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT, Json, Scene, Seen

SCHEMAS = {kind: check.schema(kind, bundle=str(CHECKOUT)) for kind in ("status", "changes")}
OWN = {"type": "object", "required": ["risk"]}
PHASES: Json = {
    "a": {
        "steps": [
            {"id": "test", "run": "mkdir test-results; echo x > test-results/a.xml; ln -s a.xml test-results/l; echo"},
            {"id": "fails", "run": "kill -9 $$", "result_handling": {"on_failure": "continue"}},
            {"id": "ask", "prompt": "Ask."},
            {"id": "own", "prompt": "Judge.", "output_schema": "@own.json"},
            {"id": "gate", "kind": "human", "prompt": "Is it right?"},
            {"id": "route", "prompt": "R.", "output_schema": "routing", "output_retries": 1},
        ]
    }
}


class Counted(Seen):
    """A conversation whose tokens are known."""

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:  # noqa: ARG002
        """Give all kinds of them."""
        into = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "messages")
        return {"models": [f"since {at}"], **dict.fromkeys(into, 1)}


@pytest.fixture
def worked(scene: Scene) -> Scene:
    """A run whose stages ended in every way."""
    (scene.root / ".git").rmdir()
    git(scene.root, "init", "-q", "-b", "main")
    scene.write("big.bin", b"")
    scene.write(".loom/workflows/own.json", json.dumps(OWN))
    git(scene.root, "add", "big.bin")
    git(scene.root, "commit", "-q", "-m", "first")
    scene.workflow(phases=PHASES)
    run = scene.begin().run
    space = scene.space(conversation=Counted())
    command_steps.trust(space, run, command_steps.listed(space, run))
    advance.next_step(space, run.run_id)
    step = ToolStep("toolu_1", "Write", {"file_path": "/elsewhere/x"}, "written", None, success=True)
    tool_log.append(str(scene.run_dir), [step._replace(more={"stage": "003-a.ask@1", "at": "2999"})])
    scene.write("a.txt", "x\n")
    routing = {"outcome": "succeeded", "context_updates": {"n": 1}, "suggested_next_ids": ["own"]}
    label = {"preferred_next_label": "[O] On", "failure_reason": "none"}
    advance.done(space, run.run_id, response=json.dumps(routing | label), artifacts={"spec": "a.txt"})
    advance.done(space, run.run_id, response='{"risk": "high"}')
    decide.approve(space, run.run_id, by="Ada", note="so be it")
    advance.done(space, run.run_id, response='{"outcome": 7}')
    advance.done(space, run.run_id, response='{"outcome": 7}')
    return scene


def written(scene: Scene, name: str) -> list[Json]:
    """Read a file of every stage."""
    return [json.loads(path.read_text()) for path in sorted((scene.run_dir / "stages").glob(f"*/{name}"))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMAS)
def test_what_is_written_is_what_the_schema_says(worked: Scene, kind: str) -> None:
    """Each file is valid; between them they have every key, and none that the schema does not name."""
    schema = SCHEMAS[kind]
    held = written(worked, f"{kind}.json")
    assert len(held) == 6
    for one in held:
        assert list(Draft202012Validator(schema).iter_errors(one)) == []
        assert set(schema["required"]) <= set(one) <= set(schema["properties"])
        _no_other_keys(schema, schema, one, kind)


def _no_other_keys(root: Json, schema: Json, value: Any, where: str) -> None:
    """Hold every object against the properties that are named for it."""
    schema = root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    named: Json = schema.get("properties") or {}
    for key, inner in value.items() if isinstance(value, dict) and named else ():
        assert key in named, f"{where}.{key}"
        _no_other_keys(root, named[key], inner, f"{where}.{key}")
    for inner in value if isinstance(value, list) else ():
        _no_other_keys(root, schema["items"], inner, f"{where}[]")


@pytest.mark.slow
def test_the_stages_ended_in_every_way(worked: Scene) -> None:
    """So that the parity above is of something."""
    held = written(worked, "status.json")
    assert [one["status"] for one in held] == ["succeeded", "failed", "succeeded", "succeeded", "succeeded", "failed"]
    assert [one["response_source"] for one in held] == ["command", "command", "done", "done", "decision", "done"]
    assert (held[0]["assets"], held[1]["command"]["signal"]) != ([], None)
    assert held[2]["directive"]["source"] == "response"
    assert held[2]["usage"]["messages"] == 1
    assert held[3]["output"] == {"risk": "high"}
    assert (held[4]["decided"]["by"], held[4]["decided"]["label"]) == ("Ada", None)
    assert (held[5]["repairs"], held[5]["errors"][0]["where"]) == (1, "/outcome")
    changes = written(worked, "changes.json")
    assert [one["reason"] for one in changes[0]["assets_passed_over"]] == ["it is a link"]
    assert {tuple(one["by"]) for one in changes[2]["files"]} == {("git",), ("tools",)}


def test_the_words_are_those_of_the_code() -> None:
    """Each list of words."""
    properties = SCHEMAS["status"]["properties"]
    assert set(properties["status"]["enum"]) == set(visits.OUTCOMES)
    assert properties["kind"]["enum"] == list(steps.KINDS)
    sources = properties["directive"]["properties"]["source"]["enum"]
    assert sources == [directives.RESPONSE, directives.STATUS_JSON, directives.LAST_FILE, None]
    assert SCHEMAS["changes"]["properties"]["patch"]["enum"] == [track.PATCH, None]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMAS)
def test_nothing_else_passes(worked: Scene, kind: str) -> None:
    """A key that is missing, and one of another type, are found."""
    schema = SCHEMAS[kind]
    (good, *_) = written(worked, f"{kind}.json")
    for key in schema["required"]:
        for bad in ({name: value for name, value in good.items() if name != key}, {**good, key: [[1]]}):
            assert not Draft202012Validator(schema).is_valid(bad), key


def test_every_schema_is_printed() -> None:
    """By its name."""
    assert {path.name.partition(".")[0] for path in Path(CHECKOUT, "config").glob("*.schema.json")} == set(bundle.KINDS)
