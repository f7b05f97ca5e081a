"""Files made to take for ever: they are refused or told in bounded time and memory, each by one clear word."""

from __future__ import annotations

import json

import pytest

from tests.helpers.scenes import Json, Scene, artifact
from tests.hostile.limited import fails_open, hook, in_good_order, loomctl

STATE: Json = {
    "schema_version": 2,
    "run_id": "x",
    "plan_id": "p",
    "workflow_id": "w",
    "status": "pending",
    "phases": {},
    "artifacts": {},
    "context": {},
    "errors": [],
    "pending_approvals": [],
    "sessions": {},
    "context_metadata": {},
}


def bomb(levels: int) -> str:
    """Write a YAML file whose aliases stand for ten to the power of `levels` texts."""
    lines = ['a0: &a0 ["lol"]']
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(lines)


FILES: dict[str, tuple[str, str, str]] = {
    "a billion laughs": ("yaml", bomb(10), "YAML_ALIAS"),
    "one key 100,000 times": ("json", "{" + ",".join(['"a":1'] * 100_000) + "}", "DUPLICATE_KEY"),
    "one key 20,000 times, in YAML": ("yaml", "a: 1\n" * 20_000, "DUPLICATE_KEY"),
    "60,000 steps that are numbers": (
        "json",
        json.dumps({"id": "w", "phases": {"a": {"steps": [1] * 60_000}}}),
        "WRONG_TYPE",
    ),
    "100,000 visits that are numbers": ("json", json.dumps({**STATE, "steps": [1] * 100_000}), "WRONG_TYPE"),
    "a long list on one line": ("yaml", "[" + "a," * 60_000 + "]", "TOO_LARGE"),
    "only open braces": ("yaml", "{" * 100_000, "NON_STRING_KEY"),
    "only open brackets": ("json", "[" * 500_000, "TOO_DEEP"),
    "1,000 deep": ("json", '{"id":' * 1_000 + "1" + "}" * 1_000, "TOO_DEEP"),
    "1,000 deep, in YAML": ("yaml", "- " * 1_000 + "a", "TOO_DEEP"),
    "a number of a million digits": ("json", '{"id": ' + "9" * 1_000_000 + "}", "JSON_SYNTAX"),
    "a text of quotes without an end": ("json", '{"id": "' + '\\"' * 200_000, "JSON_SYNTAX"),
    "an exponent without end": ("json", '{"id": 1e999999999}', "JSON_SYNTAX"),
    "an id of a million dots": ("json", json.dumps({"id": "." * 1_000_000, "phases": {}}), "BAD_ID"),
    "larger than any workflow": ("json", json.dumps({"id": "w", "description": "x" * (1 << 20)}), "TOO_LARGE"),
    "not text": ("json", "\ud800", "NOT_UTF8"),
}


@pytest.mark.slow(quick=3)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.shows("with limits on size and depth")
def test_a_workflow_made_to_exhaust_is_refused_in_bounded_time(scene: Scene, name: str) -> None:
    """`check` names what is wrong, at most a hundred times; `run` refuses the file by one error."""
    ending, text, code = FILES[name]
    path = scene.write(f".loom/workflows/evil.{ending}", text)
    if "visits" not in name and "larger" not in name:  # states and plans may be as large as they get
        told = loomctl(scene, "check", str(path), "--json")
        in_good_order(told)
        (file,) = told.json["files"]
        assert code in [problem["code"] for problem in file["problems"]]
        assert len(file["problems"]) <= 101
    ended = loomctl(scene, "run", "x", "--workflow", "evil", "--json")
    assert ended.code in (5, 8)
    if "visits" not in name:
        assert in_good_order(ended, as_json=True) in (code, "INVALID_WORKFLOW")
    assert not (scene.store / "runs").exists()


def test_a_state_of_100_000_wrong_visits_is_told_in_short(scene: Scene) -> None:
    path = scene.write("state.json", FILES["100,000 visits that are numbers"][1])
    told = loomctl(scene, "check", str(path), "--json")
    assert told.code == 5
    assert 0 < len(told.json["files"][0]["problems"]) <= 101


@pytest.mark.slow
def test_a_state_of_ten_megabytes_is_read_shown_and_primed(scene: Scene) -> None:
    scene.write("spec.md", "The contrast is 7:1.\n")
    scene.workflow([artifact("spec", "spec.md"), artifact("state", "{state_path}", type="json", required=False)])
    scene.begin()
    scene.edit(context={f"key{number}": "x" * 1_000 for number in range(10_000)})
    message = fails_open(hook(scene, "session-start", source="startup"))
    assert "2 artifacts" in message
    assert message.endswith("not in full: state")
    for words in (["show"], ["runs"], ["next", "--json"], ["state", "show", "--path", "status"]):
        assert in_good_order(loomctl(scene, *words)) == "", words


@pytest.mark.slow
def test_a_log_without_a_line_is_not_read_to_its_beginning(scene: Scene) -> None:
    """Half a gigabyte of nothing where the run's events should be costs neither time nor memory."""
    scene.workflow()
    scene.begin()
    with (scene.run_dir / "events.jsonl").open("r+b") as file:
        file.truncate(600 << 20)
    assert in_good_order(loomctl(scene, "done", given=b"the result")) == ""
    assert b"ledger.mismatch" in (scene.run_dir / "events.jsonl").read_bytes()[600 << 20 :]
