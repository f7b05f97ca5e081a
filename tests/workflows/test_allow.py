"""`allow`: what a workflow lets an assistant use unasked: read, inherited, frozen, shown and trusted (D75)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loomctl.flow import start
from loomctl.flow.commands import command_steps
from loomctl.kit import digests, files
from loomctl.runs.machine import run_notes
from loomctl.runs.model import frozen_plan
from loomctl.workflows import check, workflow_files
from loomctl.workflows.resolve import merge
from loomctl.workflows.workflow import build_plan
from tests.helpers.scenes import CHECKOUT, Json, Scene
from tests.helpers.verbs import begin

BUILD = "Bash(npm run build:*)"
STEPS: list[Json] = [
    {"id": "make", "prompt": "Make it.", "allow": [BUILD, "Write"]},
    {
        "id": "fan",
        "allow": ["WebSearch"],
        "parallel": {
            "branches": [
                {"id": "api", "steps": [{"id": "look", "prompt": "Look.", "allow": ["Bash(curl:*)"]}]},
                {"id": "web", "steps": [{"id": "draw", "prompt": "Draw.", "allow": ["Write", "Bash(node:*)"]}]},
            ]
        },
    },
    {"id": "say", "prompt": "Say it."},
]
WORKFLOW: Json = {"id": "w", "phases": {"build": {"steps": STEPS}}, "allow": ["Bash(git log:*)", "Write"]}


def plan_of(raw: Json) -> Json:
    return build_plan(raw, plan_id="p", created_at="", sources=[])


def test_a_plan_lists_them_in_order_and_one_without_them_has_none() -> None:
    assert [(one["step"], one["allow"]) for one in frozen_plan.allowed(plan_of(WORKFLOW))] == [
        ("", "Bash(git log:*)"),
        ("", "Write"),
        ("build/make", BUILD),
        ("build/make", "Write"),
        ("build/fan", "WebSearch"),
        ("build/fan.api.look", "Bash(curl:*)"),
        ("build/fan.web.draw", "Write"),
        ("build/fan.web.draw", "Bash(node:*)"),
    ]
    bare = plan_of({"id": "w", "phases": {"build": {"steps": [{"id": "say", "prompt": "Say it."}]}}})
    assert "allow" not in json.dumps(bare)
    assert frozen_plan.allowed(bare) == []


def test_a_child_adds_to_its_parent_s_and_its_own_step_is_its_own() -> None:
    child: Json = {"id": "c", "extends": "w", "allow": ["Write", "Edit"]}
    child["phases"] = {"build": {"steps": [{"id": "make", "prompt": "Make it.", "allow": ["Read"]}, STEPS[2]]}}
    plan = plan_of(merge([("w", WORKFLOW), ("c", child)]))
    assert plan["allow"] == ["Bash(git log:*)", "Write", "Edit"]
    rules = [(one["step"], one["allow"]) for one in frozen_plan.allowed(plan)]
    assert rules[:4] == [("", "Bash(git log:*)"), ("", "Write"), ("", "Edit"), ("build/make", "Read")]
    plain = plan_of(merge([("w", WORKFLOW), ("c", {"id": "c", "extends": "w"})]))
    assert frozen_plan.allowed(plain) == frozen_plan.allowed(plan_of(WORKFLOW))


def test_dot_says_it_between_commas_that_stand_in_no_brackets(scene: Scene) -> None:
    text = """digraph w {
      allow="Read"
      start [shape=Mdiamond]; exit [shape=Msquare]
      make [prompt="Make it.", allow="Write, Bash(npm test:*), Edit(a, b)"]
      say [prompt="Say it."]
      start -> make -> say -> exit
    }"""
    scene.write(".loom/workflows/drawn.dot", text)
    started = start.start(scene.space(), "add dark mode", workflow="drawn")
    assert [(one["step"], one["allow"]) for one in frozen_plan.allowed(started.run.plan)] == [
        ("", "Read"),
        ("main/make", "Write"),
        ("main/make", "Bash(npm test:*)"),
        ("main/make", "Edit(a, b)"),
    ]


VALUES = st.one_of(
    st.none(), st.integers(), st.text(max_size=210), st.sampled_from(["--x", "Write", "a\nb", " a", "é"])
)
SCHEMA = json.loads((CHECKOUT / "config/workflow.schema.json").read_text(encoding="utf-8"))["$defs"]["allow"]


@given(st.lists(VALUES, max_size=4))
def test_schema_and_code_judge_every_rule_alike_and_a_plan_s_are_looked_at_again(rules: list[Any]) -> None:
    """A plan on disk is anybody's: what is no rule is none, and no rule is an option of a command line."""
    fits = Draft202012Validator(SCHEMA).is_valid(rules)
    assert fits is all(frozen_plan.is_rule(one) for one in rules)
    found = [one["allow"] for one in frozen_plan.allowed({"phases": [], "allow": rules})]
    assert found == [one for one in rules if frozen_plan.is_rule(one)]
    assert not any(one.startswith("-") or "\n" in one for one in found)


# ---- Trust.


def test_without_allow_the_hash_is_the_one_of_before() -> None:
    commands = [{"step": "build/test", "run": "make test"}]
    assert command_steps.digest_of(commands, []) == digests.of_bytes(files.to_json(commands))
    lets = [{"step": "", "allow": "Write"}]
    assert command_steps.digest_of(commands, lets) != command_steps.digest_of(commands, [])
    assert command_steps.digest_of([], lets) != command_steps.digest_of([], [{"step": "", "allow": "Bash(*)"}])


def test_a_workflow_of_the_project_lets_nothing_until_somebody_trusts_it(scene: Scene) -> None:
    """It came with a repository, maybe: `Bash(*)` in it is its author's word."""
    begin(scene, {"id": "one", "allow": ["Bash(*)"]}, "two", allow=["Write"])
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    assert command_steps.trusted_rules(space, run) == ()
    assert [one["allow"] for one in command_steps.untrusted_allowances(space, run)] == ["Write", "Bash(*)"]
    assert command_steps.untrusted(space, run) == []  # no command waits for it, so the run goes on without
    assert command_steps.trust(space, run, []) == ""
    assert command_steps.trusted_rules(space, run) == ("Write", "Bash(*)")
    assert command_steps.untrusted_allowances(space, run) == []
    scene.edit_plan(allow=["Write", "Bash(*)"])
    run = space.store.read(run.run_id)
    assert command_steps.trusted_rules(space, run) == ()  # it is not what was trusted


@pytest.mark.parametrize("lets", [False, True])
def test_a_command_beside_it_waits_for_the_same_trust(scene: Scene, lets: bool) -> None:
    """Whoever trusted the commands alone has not seen what else is let."""
    more = {"allow": ["Write"]} if lets else {}
    scene.workflow(phases={"build": {"steps": [{"id": "test", "run": "true"}, {"id": "say", "prompt": "x", **more}]}})
    scene.begin()
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    commands = command_steps.listed(space, run)
    run_notes.note_known(run.run_id, space.store.folder, trusted=command_steps.digest_of(commands, []))
    assert bool(command_steps.untrusted(space, run)) is lets
    assert command_steps.trust(space, run, commands) == ""
    assert command_steps.untrusted(space, run) == []


def test_the_bundle_s_own_is_trusted_and_beside_an_allowed_test_command_nothing_else_is(scene: Scene) -> None:
    begin(scene, "one", allow=["Write"])
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    own = [{"id": "core", "path": "{plugin_root}/config/workflows/core.yaml", "sha256": ""}]
    theirs = [{"id": "tiny", "path": "{project_root}/.loom/workflows/tiny.json", "sha256": ""}]
    for sources, rules in (([*own, *theirs], ()), (theirs, ()), (own, ("Write",))):
        assert command_steps.trust_what_is_allowed(space, run, sources) == ""
        assert command_steps.trusted_rules(space, run) == rules


# ---- Shown.


@pytest.fixture
def letting(scene: Scene) -> Scene:
    scene.workflow(phases={"build": {"steps": STEPS}}, allow=["Bash(git log:*)", "Write"])
    return scene


def test_check_shows_what_the_steps_may_use(letting: Scene) -> None:
    told = letting.loomctl("check", "tiny").ends().stdout
    assert told == (
        "tiny: ok\n"
        "tiny: the steps may use, without asking:\n"
        "  every step:\n      Bash(git log:*)\n      Write\n"
        f"  build/make:\n      {BUILD}\n      Write\n"
        "  build/fan:\n      WebSearch\n"
        "  build/fan.api.look:\n      Bash(curl:*)\n"
        "  build/fan.web.draw:\n      Write\n      Bash(node:*)\n"
    )
    (document,) = letting.loomctl("check", "tiny", "--json").json["files"]
    assert document["allow"][2] == {"step": "build/make", "allow": BUILD}
    places = workflow_files.places_of(letting.space().project)
    assert check.commands_of(str(letting.root / ".loom/workflows/tiny.json"), places) == []


def test_run_says_so_and_trust_shows_all_of_it_before_it_agrees(letting: Scene) -> None:
    dry = letting.loomctl("run", "add dark mode", "--workflow", "tiny", "--dry-run").ends().stdout
    assert "It would let the assistant use, without asking:\n  every step:\n      Bash(git log:*)" in dry
    said = letting.loomctl("run", "add dark mode", "--workflow", "tiny").ends().stdout
    wants = "This run wants to let the assistant use 8 things without asking."
    assert f"{wants} See and allow them: loomctl trust {letting.handle}" in said
    refused = letting.loomctl("trust", letting.handle, session=None)
    assert (refused.code, "NOT_CONFIRMED" in refused.stderr) == (2, True)
    told = letting.loomctl("trust", letting.handle, "--yes", session=None).ends().stdout
    assert (
        "It lets the assistant use this without asking, as you drive it:\n  every step:\n      Bash(git log:*)" in told
    )
    space = letting.space()
    run = space.store.read(letting.run_dir.name)
    assert command_steps.trusted_rules(space, run)[:2] == ("Bash(git log:*)", "Write")
    document = letting.loomctl("trust", letting.handle, "--yes", "--json", session=None).ends().json
    assert document["allow"][0] == {"step": "", "allow": "Bash(git log:*)"}
    assert letting.loomctl("run", "again", "--workflow", "tiny", "--json").json["allow"] == document["allow"]


def test_what_a_terminal_would_obey_is_shown_and_never_obeyed(scene: Scene) -> None:
    begin(scene, {"id": "one", "allow": ["Write\u202e(x)"]})
    told = scene.loomctl("trust", "--yes", session=None).ends().stdout
    assert "\u202e" not in told
    scene.edit_plan(allow=["--dangerously-skip-permissions", "a\x1b[2J", "Read"])
    told = scene.loomctl("trust", "--yes", "--json", session=None).ends().json
    assert [one["allow"] for one in told["allow"]] == ["Read", "Write\u202e(x)"]
