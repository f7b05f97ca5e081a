"""A parallel step, driven branch by branch as subagents do: contexts, stages, joins, and what is refused (D43)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from loomctl.flow import advance, contexts, decide, lines, preambles, resume, rewind, stop
from loomctl.flow.advance import Driven
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs import context_history, stages
from loomctl.runs.model import standing, visits
from loomctl.runs.store import blobs
from loomctl.runs.store.events import Event
from tests.helpers.errors import refusal
from tests.helpers.scenes import SESSION, Json, Scene
from tests.helpers.verbs import status_of

API: Json = {"id": "api", "steps": [{"id": "look", "prompt": "Look at the interface."}]}
WEB: Json = {
    "id": "web",
    "steps": [{"id": "draw", "prompt": "Draw the pages."}, {"id": "check", "prompt": "Check the drawing."}],
}


def fan(*branches: Json, join: str = "wait_all", **more: Any) -> Json:
    return {"id": "fan", "parallel": {"join": join, "branches": list(branches)}, **more}


def begun(scene: Scene, step: Json | None = None, *behind: Json, first: bool = False, **more: Any) -> Scene:
    """Start a run at a parallel step, or before it; behind it a step, `sum`."""
    ahead = [{"id": "plan", "prompt": "Plan it."}] if first else []
    steps = [*ahead, step or fan(API, WEB), *(behind or ({"id": "sum", "prompt": "Sum it up."},))]
    scene.workflow(phases={"build": {"steps": steps}}, **more)
    scene.begin()
    return scene


def opened(scene: Scene, branch: str | None = None) -> Driven:
    """Give the next step of the run or of a branch."""
    return advance.next_step(scene.space(), scene.run_dir.name, branch=branch)


def done(scene: Scene, branch: str | None, response: str | None = "It is done.", **more: Any) -> Driven:
    """End the current step of a branch, or of the run."""
    return advance.done(scene.space(), scene.run_dir.name, response=response, branch=branch, **more)


def worked(scene: Scene, branch: str, *responses: str, outcome: str | None = None) -> Driven:
    """Work a branch to its end, a response for each of its steps."""
    opened(scene, branch)
    driven = None
    for response in responses or ("It is done.",):
        driven = done(scene, branch, response, outcome=outcome)
    assert driven is not None
    return driven


def sets(**updates: Any) -> str:
    return json.dumps({"context_updates": updates})


def fan_visit(scene: Scene) -> Json:
    visit: Json = [one for one in scene.state["steps"] if one["step_id"] == "build/fan"][-1]
    return visit


def statuses(scene: Scene) -> dict[str, str]:
    return {one["id"]: one["status"] for one in fan_visit(scene)["branches"]}


def events(scene: Scene, name: str) -> list[Json]:
    return [one["properties"] for one in scene.events() if one["event"] == name]


# ---- From fan-out to join.


def test_the_way_through_two_branches(scene: Scene) -> None:
    begun(scene, first=True)
    done(scene, None, sets(base=1))
    assert statuses(scene) == {"api": "pending", "web": "pending"}
    worked(scene, "api", sets(a=1, both="api"))
    assert scene.state["context"]["base"] == 1
    assert "a" not in scene.state["context"]
    opened(scene, "web")
    web = lines.read(scene.space(), scene.run_dir.name, "web")
    assert "a" not in web.state["context"]
    assert web.state["context"]["base"] == 1
    done(scene, "web", sets(w=1, both="web"))
    driven = done(scene, "web", "Checked.")
    assert driven.line == (
        "Branch web has ended: succeeded. All have ended: build/fan succeeded. "
        "The run's own session continues: loomctl next"
    )
    state = scene.state
    assert state["current_step"] == "build/sum"
    context = state["context"]
    assert {key: context[key] for key in ("base", "a", "w", "both")} == {"base": 1, "a": 1, "w": 1, "both": "web"}
    assert context["parallel.results"] == [
        {"id": "api", "index": 0, "status": "succeeded", "context_updates": {"a": 1, "both": "api"}},
        {"id": "web", "index": 1, "status": "succeeded", "context_updates": {"w": 1, "both": "web"}},
    ]
    assert context["parallel.conflicts"] == [{"key": "both", "branches": ["api", "web"]}]
    assert context["last_stage"] == "build/fan"
    assert (
        contexts.held(
            scene.space(), lines.read(scene.space(), scene.run_dir.name), "response.build/fan.web.check"
        ).value
        == "Checked."
    )
    assert [one["stage"] for one in visits.every(state)] == [
        "001-build.plan@1", "002-build.fan@1", "003-build.fan.api.look@1", "004-build.fan.web.draw@1",
        "005-build.fan.web.check@1", "006-build.sum@1",
    ]  # fmt: skip
    assert [one["stage"] for one in state["steps"]] == ["001-build.plan@1", "002-build.fan@1", "006-build.sum@1"]
    ended = status_of(scene, "002-build.fan@1")
    assert (ended["kind"], ended["status"], ended["response_source"]) == ("parallel", "succeeded", "branches")
    assert ended["next"] == {"step_id": "build/sum", "reason": "order"}
    assert {one["id"]: one["set"]["both"] for one in ended["branches"]} == {"api": "api", "web": "web"}
    assert "set" not in fan_visit(scene)["branches"][0]
    said = (scene.run_dir / "stages/002-build.fan@1/response.md").read_text(encoding="utf-8")
    assert said.startswith("## Branch api: succeeded\n\n")
    assert said.endswith("## Branch web: succeeded\n\nChecked.\n")
    assert [(one["branch"], one["status"]) for one in events(scene, "branch.ended")] == [
        ("api", "succeeded"),
        ("web", "succeeded"),
    ]
    assert events(scene, "branches.joined")[0]["conflicts"] == [{"key": "both", "branches": ["api", "web"]}]
    assert opened(scene).move.step == "build/sum"


def test_what_the_parallel_step_tells(scene: Scene) -> None:
    begun(scene, fan(API, WEB, prompt="Two views."))
    told = (scene.run_dir / "stages/001-build.fan@1/prompt.md").read_text(encoding="utf-8")
    assert "Two views." in told
    assert "This step has 2 branches" in told
    assert "`loomctl next --branch BRANCH`" in told
    assert "- `web`: draw → check" in told
    assert "stand so" not in told
    worked(scene, "api")
    shown = scene.loomctl("next").stdout
    assert "Start a subagent only for an open one that nobody works on:" in shown
    assert "- `api`: ended, succeeded" in shown
    assert "- `web`: not begun" in shown
    assert "<<'LOOM'" not in shown


def test_a_subagent_is_told_all_that_came_before(scene: Scene) -> None:
    """It knows nothing of the conversation: the main line's stages before the step, none of another branch's."""
    begun(scene, first=True)
    done(scene, None, "The plan is to be brief.")
    worked(scene, "api", "The interface is fine.")
    shown = scene.loomctl("next", "--branch", "web").stdout
    assert "The plan is to be brief." in shown
    assert "The interface is fine." not in shown
    assert "loomctl done --for 004 <<'LOOM'" in shown
    again = scene.loomctl("done", "--branch", "web", given="Drawn.").stdout
    assert "The plan is to be brief." not in again
    assert "Check the drawing." in again
    assert "Drawn." in scene.loomctl("debug", "preamble", "--branch", "web").stdout


def test_the_step_behind_the_join_is_told_what_each_branch_said(scene: Scene) -> None:
    begun(scene)
    worked(scene, "api", "The interface is fine.")
    worked(scene, "web", "Drawn.", "The pages are fine.")
    space = scene.space()
    text = preambles.of(space, space.store.read(scene.run_dir.name)).text
    assert "The interface is fine." in text
    assert "The pages are fine." in text


@pytest.mark.parametrize(
    ("join", "ends", "outcome", "states", "kept"),
    [
        (
            "wait_all", [("api", "failed"), ("web", "succeeded")], "partially_succeeded",
            ("failed", "succeeded"), {"api", "web"},
        ),
        ("wait_all", [("api", "succeeded"), ("web", "skipped")], "succeeded", ("succeeded", "skipped"), {"api", "web"}),
        ("first_success", [("web", "succeeded")], "succeeded", ("cancelled", "succeeded"), {"web"}),
        ("first_success", [("api", "failed"), ("web", "succeeded")], "succeeded", ("failed", "succeeded"), {"web"}),
        ("any", [("api", "partially_succeeded")], "partially_succeeded", ("partially_succeeded", "cancelled"), {"api"}),
    ],
)  # fmt: skip
def test_joins(
    scene: Scene, join: str, ends: list[tuple[str, str]], outcome: str, states: tuple[str, str], kept: set[str]
) -> None:
    """Each join on disk: the step's outcome, how each branch ended, whose values are kept; the run goes on."""
    begun(scene, fan({**API}, {**WEB, "steps": WEB["steps"][:1]}, join=join))
    for name, ends_with in ends:
        worked(scene, name, sets(**{name: 1}), outcome=ends_with)
    assert (fan_visit(scene)["status"], tuple(statuses(scene).values())) == (outcome, states)
    assert {key for key in ("api", "web") if key in scene.state["context"]} == kept
    assert scene.state["current_step"] == "build/sum"


def test_all_branches_failed(scene: Scene) -> None:
    """Then the step has failed: without a way for failure the run fails, and a resume works all branches anew."""
    begun(scene)
    worked(scene, "api", outcome="failed")
    driven = worked(scene, "web", outcome="failed")
    assert driven.line.endswith("All have ended: build/fan failed. The run is failed.")
    assert scene.state["status"] == "failed"
    assert "api: failed, web: failed" in scene.state["errors"][-1]["message"]
    resume.resume(scene.space(), scene.run_dir.name)
    assert (fan_visit(scene)["visit"], statuses(scene)) == (2, {"api": "pending", "web": "pending"})
    worked(scene, "api")
    assert fan_visit(scene)["branches"][0]["steps"][0]["visit"] == 2  # of the step, in the whole run


def test_a_failed_branch_leaves_the_others_whole_and_a_cancelled_run_none(scene: Scene) -> None:
    begun(scene)
    opened(scene, "web")
    worked(scene, "api", outcome="failed")
    assert scene.state["status"] == "in_progress"
    assert statuses(scene) == {"api": "failed", "web": "in_progress"}
    assert done(scene, "web").move.step == "build/fan.web.check"
    assert "run.failed" not in scene.event_names()
    stop.set_standing(scene.space(), scene.run_dir.name, "cancelled", "run.cancelled", allowed=["in_progress"])
    refused("BAD_STATUS", lambda: opened(scene, "web"))
    refused("BAD_STATUS", lambda: done(scene, "web"))


def test_retries_and_loops_are_the_branch_s_own(scene: Scene) -> None:
    loop = {
        "id": "loop",
        "steps": [
            {"id": "make", "prompt": "Make.", "max_visits": 2},
            {
                "id": "look",
                "prompt": "Look.",
                "transitions": [{"to": "end", "label": "ok"}, {"to": "make", "label": "no"}],
            },
        ],
    }
    begun(scene, fan(loop, {"id": "one", "steps": [{"id": "try", "prompt": "Try.", "max_retries": 1}]}))
    opened(scene, "one")
    assert done(scene, "one", outcome="failed").move.step == "build/fan.one.try"
    assert visits.open_visit(lines.read(scene.space(), scene.run_dir.name, "one").state)["attempt"] == 2  # type: ignore[index]
    done(scene, "one")
    opened(scene, "loop")
    done(scene, "loop")
    done(scene, "loop", json.dumps({"preferred_next_label": "no"}))
    done(scene, "loop")
    done(scene, "loop", json.dumps({"preferred_next_label": "no"}))
    assert statuses(scene)["loop"] == "failed"
    assert "max_visits" in scene.state["errors"][-1]["message"]
    assert fan_visit(scene)["status"] == "partially_succeeded"


def test_transitions_of_the_parallel_step(scene: Scene) -> None:
    ways = [{"to": "fan", "condition": "outcome == 'partially_succeeded'"}, {"to": "sum"}]
    begun(scene, fan(API, {**WEB, "steps": WEB["steps"][:1]}, transitions=ways))
    worked(scene, "api", outcome="failed")
    worked(scene, "web", sets(n=1))
    assert (fan_visit(scene)["visit"], fan_visit(scene)["status"]) == (2, "in_progress")
    assert lines.read(scene.space(), scene.run_dir.name, "api").state["context"]["n"] == 1
    worked(scene, "api", sets(n=2))
    worked(scene, "web")
    assert (scene.state["current_step"], scene.state["context"]["n"]) == ("build/sum", 2)


def test_a_branch_takes_a_key_away(scene: Scene) -> None:
    begun(scene, None, first=True)
    done(scene, None, sets(gone=1, kept=1))
    space, run_id = scene.space(), scene.run_dir.name
    contexts.take_away(space, run_id, "gone", branch="api")
    contexts.take_away(space, run_id, "kept", branch="api")
    contexts.put(space, run_id, {"kept": 2}, branch="web")
    worked(scene, "api")
    worked(scene, "web", "a", "b")
    assert "gone" not in scene.state["context"]
    assert scene.state["context"]["kept"] == 2
    assert [one["key"] for one in scene.state["context"]["parallel.conflicts"]] == ["kept"]


def test_the_history_of_the_context_knows_the_join(scene: Scene) -> None:
    begun(scene, first=True)
    done(scene, None, sets(n=1))
    worked(scene, "api", sets(n=2))
    worked(scene, "web", sets(n=3), "b")
    changes = context_history.of_run(scene.space().store.read(scene.run_dir.name), "n")
    assert [(one.by, one.stage, one.after) for one in changes] == [
        ("step", "001-build.plan@1", 1),
        ("step", "002-build.fan@1", 3),
    ]
    every = context_history.of_run(scene.space().store.read(scene.run_dir.name))
    assert [one for one in every if one.by == context_history.UNKNOWN] == []


# ---- What is refused.


def refused(code: str, verb: Any) -> LoomError:
    """Say that a verb is refused with a code; gives the error."""
    caught = refusal(verb)
    assert caught.code == code, caught
    return caught


def test_what_is_refused_and_how_a_branch_that_was_not_begun_is_ended_by_hand(scene: Scene) -> None:
    """Each with its code, and the state as it was."""
    begun(scene)
    before = scene.state
    assert "api, web" in refused("PARALLEL_STEP", lambda: done(scene, None)).why
    refused("NO_SUCH_BRANCH", lambda: opened(scene, "none"))
    missing = refused("NO_OPEN_STEP", lambda: done(scene, "api", None))
    assert (missing.hint, "nobody has begun it" in missing.why) == (f"loomctl next --branch api {scene.handle}", True)
    refused("NO_OPEN_STEP", lambda: done(scene, "api"))
    refused("IN_PARALLEL", lambda: contexts.put(scene.space(), scene.run_dir.name, {"a": 1}))
    assert {**scene.state, "updated_at": 0, "revision": 0} == {**before, "updated_at": 0, "revision": 0}
    unbegun = refused("NO_OPEN_STEP", lambda: done(scene, "web"))
    assert unbegun.hint.startswith("loomctl next --branch web")
    assert unbegun.what.startswith("branch web has no open step")
    done(scene, "web", None, outcome="failed", note="nobody has time")
    assert statuses(scene) == {"api": "pending", "web": "failed"}


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_an_ended_branch_is_not_called_a_run_that_is_over(scene: Scene, outcome: str) -> None:
    """Whatever is to be done in it, also where it was read before somebody else ended it."""
    begun(scene)
    opened(scene, "api")
    space, run_id = scene.space(), scene.run_dir.name
    line = lines.read(space, run_id, "api")

    def late(state: Json) -> tuple[Json, list[Event]]:
        advance.refuse_over(state)
        return state, []

    worked(scene, "api", outcome=outcome)
    before = scene.state
    refused("BRANCH_ENDED", lambda: lines.update(space, line, late))
    refused("BRANCH_ENDED", lambda: contexts.put(space, run_id, {"a": 1}, branch="api"))
    refused("BRANCH_ENDED", lambda: decide.approve(space, run_id, branch="api"))
    assert scene.state == before


def test_work_on_a_branch_that_was_left_behind_counts_nowhere(scene: Scene) -> None:
    """The join went on without it while its step was worked on: who ends it is told so, and the run stays as it is."""
    begun(scene, fan(API, WEB, join="first_success"))
    opened(scene, "web")
    line = lines.read(scene.space(), scene.run_dir.name, "web")
    worked(scene, "api")
    before = scene.state
    refused("NOT_PARALLEL", lambda: done(scene, "web"))
    error = refused(
        "BRANCH_OVER", lambda: lines.update(scene.space(), line, lambda state: ({**state, "goal": "x"}, []))
    )
    assert (error.exit_code, scene.state) == (EXIT_USAGE, before)
    closed = before["steps"][0]["branches"][1]["steps"][0]
    assert closed["status"] == "skipped"


def test_a_paused_run_s_branches_stand_still(scene: Scene) -> None:
    begun(scene)
    opened(scene, "web")
    stop.set_standing(scene.space(), scene.run_dir.name, "paused", "run.paused", allowed=["in_progress"])
    refused("BAD_STATUS", lambda: opened(scene, "api"))
    done(scene, "web")
    assert (scene.state["status"], statuses(scene)["web"]) == ("paused", "in_progress")
    resume.resume(scene.space(), scene.run_dir.name)
    assert opened(scene, "web").move.step == "build/fan.web.check"


def test_a_join_that_was_met_while_the_run_stood_still(scene: Scene) -> None:
    """The last branch failed in a paused run: the join follows when the run goes on."""
    begun(scene)
    worked(scene, "web", "a", "b")
    opened(scene, "api")
    stop.set_standing(scene.space(), scene.run_dir.name, "paused", "run.paused", allowed=["in_progress"])
    done(scene, "api", outcome="failed")
    assert (statuses(scene), scene.state["status"]) == ({"api": "failed", "web": "succeeded"}, "paused")
    resumed = resume.resume(scene.space(), scene.run_dir.name)
    assert (resumed.move.step, fan_visit(scene)["status"]) == ("build/sum", "partially_succeeded")
    rewind.undo(scene.space(), scene.run_dir.name)
    assert statuses(scene) == {"api": "in_progress", "web": "succeeded"}


def test_a_cancel_stops_the_commands_of_branches(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    sleepers = [{"id": name, "steps": [{"id": "go", "run": "sleep 600"}]} for name in ("one", "two")]
    begun(scene, fan(*sleepers))
    assert scene.loomctl("trust", "--yes", session=None).code == 0
    for name in ("one", "two"):
        assert scene.loomctl("next", "--branch", name).code == 0
    told = scene.loomctl("cancel").stdout
    assert "Stopped the command of build/fan.one.go." in told
    assert "Stopped the command of build/fan.two.go." in told
    ended = events(scene, "command.ended")
    assert [(one["stage"], one["stopped"], one["branch"]) for one in ended] == [
        ("002-build.fan.one.go@1", True, "one"),
        ("003-build.fan.two.go@1", True, "two"),
    ]


@pytest.mark.parametrize("late", [False, True])
def test_what_a_join_goes_on_without_is_stopped(scene: Scene, monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    """Also by a join that is met late, as a paused run goes on: the command of a branch that is left behind ends."""
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    slow = {"id": "slow", "steps": [{"id": "go", "run": "sleep 600"}]}
    begun(scene, fan(slow, API, join="any" if late else "first_success"))
    assert scene.loomctl("trust", "--yes", session=None).code == 0
    assert scene.loomctl("next", "--branch", "slow").code == 0
    opened(scene, "api")
    if late:
        stop.set_standing(scene.space(), scene.run_dir.name, "paused", "run.paused", allowed=["in_progress"])
    done(scene, "api")
    if late:
        assert resume.resume(scene.space(), scene.run_dir.name).move.step == "build/sum"
    assert statuses(scene) == {"slow": "cancelled", "api": "succeeded"}
    assert [one["stopped"] for one in events(scene, "command.ended")] == [True]


def test_large_values_of_a_branch_are_blobs_that_count(scene: Scene) -> None:
    """While its branch is open as after the join: the doctor reads them, clean keeps them."""
    begun(scene)
    large = "x" * 200_000
    worked(scene, "api", sets(big=large))
    ref = lines.read(scene.space(), scene.run_dir.name, "api").state["context"]["big"]
    assert ref in blobs.refs_of_state(scene.state)
    scene.loomctl("clean")
    assert contexts.held(scene.space(), lines.read(scene.space(), scene.run_dir.name, "api"), "big").value == large
    worked(scene, "web", "a", "b")
    assert scene.state["context"]["big"] == ref
    assert contexts.held(scene.space(), lines.read(scene.space(), scene.run_dir.name), "big").value == large


# ---- Taken back.


def test_an_undo_in_a_branch(scene: Scene) -> None:
    begun(scene)
    worked(scene, "api", sets(a=1))
    opened(scene, "web")
    done(scene, "web", sets(w=1))
    assert "web" in refused("IN_PARALLEL", lambda: rewind.undo(scene.space(), scene.run_dir.name)).why
    rewind.undo(scene.space(), scene.run_dir.name, "web")
    line = lines.read(scene.space(), scene.run_dir.name, "web")
    assert "w" not in line.state["context"]
    assert line.state["current_step"] == "build/fan.web.draw"
    assert statuses(scene) == {"api": "succeeded", "web": "in_progress"}
    rewind.undo(scene.space(), scene.run_dir.name, "api")
    assert statuses(scene) == {"api": "in_progress", "web": "in_progress"}
    worked(scene, "api", sets(a=2))
    worked(scene, "web", sets(w=2), "b")
    context = scene.state["context"]
    assert (context["a"], context["w"]) == (2, 2)


@pytest.mark.parametrize("join", ["wait_all", "first_success"])
def test_an_undo_of_a_join(scene: Scene, join: str) -> None:
    """It takes back the end that joined the branches: each is as it was then, and so is the run's context."""
    begun(scene, fan(API, WEB, join=join), first=True)
    done(scene, None, sets(base=1))
    opened(scene, "web")
    done(scene, "web", sets(w=1, base=2))
    before = scene.state
    if join == "wait_all":
        done(scene, "web", "Checked.")
        before = scene.state
    worked(scene, "api", sets(a=1))
    assert scene.state["current_step"] == "build/sum"
    rewind.undo(scene.space(), scene.run_dir.name)
    state = scene.state
    assert state["context"] == before["context"]
    web = "succeeded" if join == "wait_all" else "in_progress"
    assert (statuses(scene), state["current_step"]) == ({"api": "in_progress", "web": web}, "build/fan")
    assert lines.read(scene.space(), scene.run_dir.name, "web").state["context"]["base"] == 2
    undone = [(one["stage"], one.get("branch")) for one in events(scene, "stage.undone")]
    assert [branch for _, branch in undone] == [None, "api"]
    done(scene, "api", sets(a=5))
    if join == "wait_all":
        assert scene.state["context"]["w"] == 1
    assert (scene.state["context"]["a"], scene.state["current_step"]) == (5, "build/sum")


def test_an_undo_of_a_join_whose_file_is_damaged(scene: Scene) -> None:
    begun(scene)
    worked(scene, "api")
    worked(scene, "web", "a", "b")
    (scene.run_dir / "stages/001-build.fan@1/status.json").write_text("{", encoding="utf-8")
    driven = rewind.undo(scene.space(), scene.run_dir.name)
    assert "the context stays as it is" in driven.notes[1]
    assert statuses(scene) == {"api": "pending", "web": "pending"}
    assert opened(scene, "api").move.step == "build/fan.api.look"


# ---- People.


GATED: Json = {
    "id": "web",
    "steps": [
        {
            "id": "ask",
            "kind": "human",
            "prompt": "Ship the pages?",
            "transitions": [{"to": "end", "label": "[Y] Yes"}, {"to": "again", "label": "[N] No"}],
        },
        {"id": "again", "prompt": "Do it again."},
    ],
}


def test_a_person_decides_in_a_branch(scene: Scene) -> None:
    """The others go on meanwhile; the run waits once nobody else can go on."""
    begun(scene, fan(API, GATED))
    opened(scene, "web")
    assert statuses(scene) == {"api": "pending", "web": "awaiting_feedback"}
    assert scene.state["status"] == "in_progress"
    assert [one["branch"] for one in scene.state["pending_approvals"]] == ["web"]
    refused("HUMAN_STEP", lambda: done(scene, "web"))
    worked(scene, "api")
    assert scene.state["status"] == "awaiting_feedback"
    told = scene.loomctl("next").stdout
    assert "web: Ship the pages?" in told
    assert "choose" in told
    driven = decide.choose(scene.space(), scene.run_dir.name, "n", by="Ada")
    assert (driven.line, scene.state["status"]) == ("Next: build/fan.web.again", "in_progress")
    done(scene, "web")
    assert scene.state["current_step"] == "build/sum"
    visit = fan_visit(scene)["branches"][1]["steps"][0]
    assert status_of(scene, visit["stage"])["decided"]["by"] == "Ada"


def test_two_branches_wait_for_people(scene: Scene) -> None:
    """Then the branch is to be named; a refusal of one's gate pauses the run, and a resume asks again."""
    gated = {"id": "api", "steps": [{"id": "risky", "prompt": "Do it.", "require_approval": True}]}
    begun(scene, fan(gated, GATED))
    opened(scene, "web")
    opened(scene, "api")
    assert scene.state["status"] == "awaiting_feedback"
    refused("AMBIGUOUS_BRANCH", lambda: decide.approve(scene.space(), scene.run_dir.name))
    decide.reject(scene.space(), scene.run_dir.name, by="Ada", note="no", branch="api")
    assert scene.state["status"] == "paused"
    resume.resume(scene.space(), scene.run_dir.name)
    assert scene.state["status"] == "awaiting_feedback"
    decide.approve(scene.space(), scene.run_dir.name, by="Ada", branch="api")
    done(scene, "api")
    decide.choose(scene.space(), scene.run_dir.name, "yes", by="Ada")
    assert scene.state["current_step"] == "build/sum"


# ---- Hooks.


def test_a_stop_ends_no_parallel_step(scene: Scene) -> None:
    begun(scene, autonomy="autonomous")
    opened(scene)
    turn = stop.Turn(told="001-build.fan@1", driven=True, blocks_left=5)
    space = scene.space()
    message = json.dumps({"outcome": "succeeded"})
    stopped = stop.stopped(space, space.store.read(scene.run_dir.name), turn, message)
    assert "api, web" in stopped.block
    assert fan_visit(scene)["status"] == "in_progress"
    busy = stop.stopped(space, space.store.read(scene.run_dir.name), turn._replace(busy=True), message)
    assert busy == stop.Stopped()


def test_the_session_stays_at_the_parallel_step_and_is_handed_on_at_the_next_stop(scene: Scene) -> None:
    begun(scene)
    opened(scene)
    worked(scene, "api")
    binding = scene.space().local.binding(SESSION)
    assert binding is not None
    assert binding["stage"] == "001-build.fan@1"
    worked(scene, "web", "a", "b")
    space = scene.space()
    turn = stop.Turn(told="001-build.fan@1", driven=True, blocks_left=5)
    stopped = stop.stopped(space, space.store.read(scene.run_dir.name), turn, "They are done.")
    assert "The next step is build/sum" in stopped.block


# ---- At the same time.


@pytest.mark.slow
def test_branches_are_worked_on_at_the_same_time(scene: Scene) -> None:
    """Eight processes, each with a branch of its own: nothing is lost, and the last one joins them."""
    names = [f"b{number}" for number in range(8)]
    steps = [{"id": f"s{number}", "prompt": "Do it."} for number in range(3)]
    begun(scene, fan(*({"id": name, "steps": steps} for name in names)))

    def work(name: str) -> list[str]:
        said = [Scene.loomctl(scene, "next", "--branch", name)]
        values = [sets(**{f"{name}.{number}": number}) for number in range(3)]
        said += [Scene.loomctl(scene, "done", "--branch", name, given=value) for value in values]
        return [one.stderr for one in said]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, names)) == [[""] * 4] * 8
    state = scene.state
    assert state["current_step"] == "build/sum"
    assert {key for key in state["context"] if key[:1] == "b"} == {f"{name}.{n}" for name in names for n in range(3)}
    every = list(visits.every(state))
    assert len({one["rank"] for one in every}) == len(every) == 26
    assert sorted(one["rank"] for one in every) == list(range(1, 27))
    assert [one["id"] for one in state["context"]["parallel.results"]] == names
    assert len(events(scene, "branches.joined")) == 1
    assert scene.loomctl("check", str(scene.run_dir / "events.jsonl")).code == 0
    assert scene.loomctl("check", str(scene.run_dir / "state.json")).code == 0


@pytest.mark.parametrize("behind", [True, False], ids=["a step behind", "the last step"])
@pytest.mark.parametrize("joins", [True, False], ids=["joins", "leaves another open"])
def test_one_of_two_processes_ends_a_branch_s_step(scene: Scene, behind: bool, joins: bool) -> None:
    """Both end the step that they were told of at the same moment: one does, the other is told that it is over, and
    nothing of it is lost or done twice, neither the step behind it nor the join.
    """
    begun(scene, fan(API, {**WEB, "steps": WEB["steps"][: 2 if behind else 1]}))
    if joins:
        worked(scene, "api", sets(api=1))
    opened(scene, "web")
    start = Barrier(2)

    def end(number: int) -> tuple[int, str]:
        start.wait()
        ended = Scene.loomctl(scene, "done", "--branch", "web", "--json", given=sets(**{f"by{number}": number}))
        told = json.loads(ended.stdout)
        return int(ended.code or told["had_ended"]), str((told.get("error") or {"code": "had_ended"})["code"])

    with ThreadPoolExecutor(2) as pool:
        came = list(pool.map(end, range(2)))
    ended = [number for number, (code, _) in enumerate(came) if code == 0]
    first = next(one for one in fan_visit(scene)["branches"] if one["id"] == "web")["steps"][0]
    assert first["status"] == "succeeded"
    refusals = {"had_ended", "NO_OPEN_STEP", "BRANCH_ENDED", "BRANCH_OVER", "NOT_PARALLEL"}
    if behind and len(ended) == 2:  # the second began once the first was done: it ended the step behind, as it was told
        assert statuses(scene)["web"] == "succeeded"
    else:
        assert len(ended) == 1
        assert {said for code, said in came if code} <= refusals
    set_by = status_of(scene, first["stage"])["context_updates"]
    assert set_by in [{f"by{number}": number} for number in ended]
    over = not behind or len(ended) == 2
    assert len(events(scene, "branches.joined")) == int(joins and over)
    if joins and over:
        assert scene.state["context"].items() >= {"api": 1, **set_by}.items()
        assert scene.state["current_step"] == "build/sum"
    assert scene.loomctl("check", str(scene.run_dir / "state.json")).code == 0
    assert scene.loomctl("check", str(scene.run_dir / "events.jsonl")).code == 0


def test_a_stage_of_a_branch_is_found_and_explained(scene: Scene) -> None:
    begun(scene)
    worked(scene, "web", "a", "b")
    run = scene.space().store.read(scene.run_dir.name)
    assert stages.find_stage(run, "build/fan.web.check")["rank"] == 3
    assert stages.find_stage(run, "check")["rank"] == 3
    assert stages.find_stage(run, "draw@1")["rank"] == 2
    assert "came after build/fan.web.draw@1" in scene.loomctl("show", "--why", "fan.web.check").stdout
    assert "fan.web.draw" in scene.loomctl("show", "--stages").stdout


def test_a_step_with_a_run_in_a_branch(scene: Scene) -> None:
    begun(scene, fan(API, {"id": "test", "steps": [{"id": "go", "run": "echo tested"}, {"id": "no", "run": "exit 3"}]}))
    told = scene.loomctl("next", "--branch", "test")
    assert told.code == 2
    assert "echo tested" in told.stdout
    assert (scene.state["status"], scene.loomctl("trust", "--yes", session=None).code) == ("in_progress", 0)
    told = scene.loomctl("next", "--branch", "test")
    assert "✓ build/fan.test.go" in told.stdout
    assert "✗ build/fan.test.no" in told.stdout
    assert "Branch test has ended: failed. Still open: api." in told.stdout
    assert statuses(scene) == {"api": "pending", "test": "failed"}


def test_a_branch_that_is_over_is_no_end_of_the_run(scene: Scene) -> None:
    begun(scene)
    worked(scene, "api")
    assert not {"run.completed", "phase.completed"} & set(scene.event_names())
    assert standing.goes_on(scene.state)
    assert opened(scene, "api").move.kind == "branch"
    refused("BRANCH_ENDED", lambda: done(scene, "api"))
    worked(scene, "web", "a", "b")
    refused("NOT_PARALLEL", lambda: opened(scene, "api"))


# ---- What a review found.


def test_a_late_join_is_taken_back_whatever_was_open(scene: Scene) -> None:
    """In a paused run one branch failed while another was open: an undo and a rewind find their way back."""
    begun(scene, fan(API, WEB, join="any", transitions=[{"to": "sum", "on_failure": True}]), first=True)
    done(scene, None)
    opened(scene, "api")
    opened(scene, "web")
    stop.set_standing(scene.space(), scene.run_dir.name, "paused", "run.paused", allowed=["in_progress"])
    done(scene, "api", outcome="failed")
    resume.resume(scene.space(), scene.run_dir.name)
    assert scene.state["current_step"] == "build/sum"
    rewind.undo(scene.space(), scene.run_dir.name)
    assert statuses(scene) == {"api": "in_progress", "web": "in_progress"}
    done(scene, "api", outcome="failed")
    rewind.rewind(scene.space(), scene.run_dir.name, "plan")
    assert [one["stage"] for one in scene.state["steps"]] == ["001-build.plan@1"]


def test_branches_that_ended_while_the_run_stood_still(scene: Scene) -> None:
    begun(scene, fan(API, {**WEB, "steps": WEB["steps"][:1]}))
    opened(scene, "api")
    opened(scene, "web")
    stop.set_standing(scene.space(), scene.run_dir.name, "paused", "run.paused", allowed=["in_progress"])
    done(scene, "api", sets(a=1))
    done(scene, "web", sets(w=1))
    assert resume.resume(scene.space(), scene.run_dir.name).move.step == "build/sum"
    assert {key: scene.state["context"][key] for key in ("a", "w")} == {"a": 1, "w": 1}
    assert [one["branch"] for one in events(scene, "branch.ended")] == ["api", "web"]


def test_what_a_branch_registered_goes_with_it(scene: Scene) -> None:
    begun(scene, first=True)
    done(scene, None)
    opened(scene, "api")
    done(scene, "api", artifacts={"spec": "{project_root}/a.md"})
    worked(scene, "web", outcome="failed")
    assert scene.state["artifacts"]
    rewound = rewind.rewind(scene.space(), scene.run_dir.name, "fan")
    assert (scene.state["artifacts"], scene.state["errors"]) == ({}, [])
    assert "003-build.fan.api.look@1" in rewound.gone
    worked(scene, "api")
    opened(scene, "web")
    done(scene, "web", artifacts={"spec": "{project_root}/b.md"})
    rewind.rewind(scene.space(), scene.run_dir.name, "plan")
    assert scene.state["artifacts"] == {}


def test_a_refused_undo_stops_no_command(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    begun(scene, fan({"id": "slow", "steps": [{"id": "go", "run": "sleep 600"}]}, API))
    assert scene.loomctl("trust", "--yes", session=None).code == 0
    assert scene.loomctl("next", "--branch", "slow").code == 0
    refused("NOTHING_TO_UNDO", lambda: rewind.undo(scene.space(), scene.run_dir.name, "slow"))
    assert "command.ended" not in scene.event_names()
    assert "Stopped the" in scene.loomctl("cancel").stdout


def test_what_was_approved_in_a_branch_stays_on_record(scene: Scene) -> None:
    gated = {"id": "api", "steps": [{"id": "risky", "prompt": "Do it.", "require_approval": True}]}
    begun(scene, fan(gated))
    opened(scene, "api")
    decide.approve(scene.space(), scene.run_dir.name, by="Ada")
    done(scene, "api")
    assert [one["by"] for one in fan_visit(scene)["branches"][0]["approvals"]] == ["Ada"]
