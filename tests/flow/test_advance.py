"""Driving a run: its next step, the end of a step, and back; approval, pause and cancel (D27, D31)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import advance, decide, rewind
from loomctl.flow import stop as stopping
from loomctl.flow.advance import Driven
from loomctl.kit.errors import LoomError
from loomctl.priming import memory_of_session, prime_run
from loomctl.runs import leases
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.project import Conversation
from loomctl.workflows import triggers
from tests.helpers.errors import refused
from tests.helpers.scenes import OTHER, PHASES, SESSION, Json, Scene, artifact
from tests.helpers.tables import each
from tests.helpers.verbs import done, go_on, read, stand, status_of, statuses, take_back
from tests.helpers.verbs import stop as stop_with


class Said(Conversation):
    """A conversation whose transcript holds a text."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def said_since(self, at: str) -> str | None:
        return self.text if at else None


ASK, MAKE = "001-frame.ask@1", "002-build.make@1"


def stop(scene: Scene, message: str | None, conversation: Conversation | None = None) -> str:
    """Let the session stop, with its final message or without one; gives the line for its user."""
    if message is not None:
        return stop_with(scene, message, driven=False).line
    space = scene.space(conversation=conversation)
    return stopping.closed_without_message(space, space.store.read(scene.run_dir.name))


def owing(scene: Scene, phases: Json | None = None) -> str:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md", reload_triggers=["phase_transition:frame->build"])], phases)
    return scene.begin().run.run_id


def loaded(driven: Driven) -> list[str] | None:
    return driven.slip and [entry.id for entry in driven.slip.loaded if entry.form == "full"]


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    return scene


def test_a_run_goes_from_step_to_step_to_its_end(begun: Scene) -> None:
    """Each `done` ends a step with its files and opens the next; the last one completes the run."""
    moves = [done(begun, f"result {number}").move for number in range(4)]
    steps = [("step", "build/make"), ("step", "build/polish"), ("step", "ship/send")]
    assert [(move.kind, move.step) for move in moves[:3]] == steps
    stages = [ASK, MAKE, "003-build.polish@1", "004-ship.send@1"]
    assert [entry["stage"] for entry in begun.state["steps"]] == stages
    assert read(begun, MAKE, "response.md") == "result 1"
    assert "Make it." in read(begun, MAKE, "prompt.md")
    assert status_of(begun, MAKE)["status"] == "succeeded"
    assert (moves[3].kind, begun.state["status"]) == ("completed", "completed")
    assert {phase["status"] for phase in begun.state["phases"].values()} == {"completed"}
    assert begun.state["sessions"]["session_history"][0]["phases_completed"] == ["frame", "build", "ship"]
    take_back(begun)
    assert (begun.state["status"], begun.state["current_step"]) == ("in_progress", "ship/send")


def test_no_verb_changes_in_place_the_state_that_was_read(begun: Scene) -> None:
    """What was read stays as it was, through every verb: it serves for more than one reader of the same file."""
    space, name = begun.space(), begun.run_dir.name
    answer = 'Made.\n{"context_updates": {"coverage": 72}}'
    verbs: list[Callable[[], Any]] = [
        lambda: advance.next_step(space, name),
        lambda: advance.done(space, name, response=answer, artifacts={"spec": "spec.md"}),
        lambda: advance.done(space, name, response=None),
        lambda: rewind.undo(space, name),
        lambda: advance.done(space, name, response="It failed.", outcome="failed", note="no"),
        lambda: rewind.undo(space, name),
        lambda: stopping.set_standing(space, name, "paused", "run.paused", allowed=ACTIVE),
    ]
    for verb in verbs:
        held = space.store.read(name)
        before = copy.deepcopy((held.state, held.plan))
        verb()
        assert (held.state, held.plan) == before


def test_next_is_the_first_step_that_is_not_done_and_changes_no_stage(begun: Scene) -> None:
    done(begun)
    for _ in range(3):
        assert go_on(begun).move.step == "build/make"
    assert (len(begun.state["steps"]), begun.event_names().count("stage.started")) == (2, 2)


def test_entering_a_phase_loads_what_it_names(scene: Scene) -> None:
    """A phase transition fires its triggers, and its slip comes with the verb that made it (D13)."""
    owing(scene)
    first = done(scene)
    assert first.slip is not None
    assert (first.slip.event, loaded(first)) == ("phase_transition:frame->build", ["spec"])
    assert done(scene).slip is None


# ---- Closing: `done` without a response (D27)


def test_done_without_a_response_only_marks_the_step(begun: Scene) -> None:
    driven = done(begun, None, outcome="partially_succeeded")
    assert driven.closing is not None
    assert (driven.closing["stage"], driven.ended, driven.slip, statuses(begun)) == (ASK, None, None, ["closing"])
    assert not (begun.run_dir / "stages" / ASK / "response.md").exists()
    take_back(begun)
    assert statuses(begun) == ["in_progress"]


def test_the_final_message_closes_it_with_the_outcome_that_was_given(begun: Scene) -> None:
    """A Stop's message is the response; the outcome, note and artifacts of `done` are kept."""
    done(begun, None, outcome="partially_succeeded", note="half", artifacts={"spec_path": "{project_root}/x.md"})
    line = stop(begun, "the final words")
    assert read(begun, ASK, "response.md") == "the final words"
    status = status_of(begun, ASK)
    told = ("partially_succeeded", "conversation", "half")
    assert (status["status"], status["response_source"], status["note"]) == told
    assert begun.state["artifacts"] == {"spec_path": "{project_root}/x.md"}
    assert line == "Loom: frame/ask partially_succeeded. Next: build/make"
    assert "closing" not in begun.state["steps"][0]


@each("verb", ["next", "stop"])
@each(
    ("transcript", "candidate", "source", "response"),
    [
        ("what was said", "a candidate", "transcript", "what was said"),
        (None, "a candidate", "candidate", "a candidate"),
        (None, None, "none", None),
    ],
)
def test_a_closing_step_is_closed_with_what_can_be_found(
    begun: Scene, verb: str, transcript: str | None, candidate: str | None, source: str, response: str | None
) -> None:
    """The transcript comes first, then the last candidate, else there is no response; it is said which (D27)."""
    done(begun, None, outcome="failed")
    begun.workflow()
    folder = begun.run_dir / "stages" / ASK
    if candidate is not None:
        (folder / "candidate.md").write_text(candidate)
    seen = Said(transcript)
    if verb == "stop":
        stop(begun, None, seen)
    else:
        driven = go_on(begun, seen)
        assert ((driven.ended or {})["stage"], driven.move.kind) == (ASK, "failed")
        (note,) = driven.notes
        assert note.startswith("Ended frame/ask with")
    status = status_of(begun, ASK)
    assert (status["status"], status["response_source"]) == ("failed", source)
    assert (folder / "response.md").exists() == (response is not None)
    if response is not None:
        assert read(begun, ASK, "response.md") == response
    assert begun.state["status"] == "failed"


def test_a_response_for_a_closing_step_keeps_what_was_given_before(begun: Scene) -> None:
    """`done` with input while closing is that step's own response; outcome, note and artifacts stay (D27)."""
    given = {"a": "{project_root}/a", "b": "{project_root}/b"}
    done(begun, None, outcome="skipped", note="not needed", artifacts=given)
    driven = done(begun, "said after all", artifacts={"b": "{project_root}/c"})
    status = status_of(begun, ASK)
    assert (status["status"], status["note"], status["response_source"]) == ("skipped", "not needed", "done")
    assert begun.state["artifacts"] == {"a": "{project_root}/a", "b": "{project_root}/c"}
    assert driven.move.step == "build/make"


def test_a_second_outcome_for_a_closing_step_counts(begun: Scene) -> None:
    done(begun, None, outcome="failed")
    assert done(begun, None, outcome="partially_succeeded", artifacts={"a": "{project_root}/a"}).closing is not None
    stop(begun, "half of it")
    assert statuses(begun)[0] == "partially_succeeded"
    assert begun.state["artifacts"] == {"a": "{project_root}/a"}


def test_a_stop_enters_a_phase_and_owes_what_it_loads(scene: Scene) -> None:
    """The next telling verb tells it, once; a terminal that primes by hand does not take it away before."""
    run_id = owing(scene)
    done(scene, None)
    stop(scene, "the result")
    terminal = scene.space("terminal-1", host="terminal")
    run = terminal.store.read(run_id)
    made = prime_run.prime(terminal, run, triggers.manual(), prime_run.command_budget(terminal), may_write=True)
    memory_of_session.record(terminal, run_id, made)
    driven = go_on(scene)
    assert (driven.move.step, loaded(driven)) == ("build/make", ["spec"])
    assert (go_on(scene).slip, "pending_triggers" in scene.state) == (None, False)


def test_a_run_that_is_over_is_not_primed_with_nothing(scene: Scene) -> None:
    """Its last step entered a phase in which only Loom has something to do, and all is fresh: its end is the end."""
    scene.write("spec.md", "# The spec\n")
    only = {"steps": [{"id": "only", "prompt": "Do it."}]}
    primes = {"pre_steps": [{"id": "again", "prompt": "/loom:prime-context"}], "steps": []}
    scene.workflow(
        [artifact("spec", "spec.md", reload_triggers=["session_start", "phase_transition:frame->build"])],
        {"frame": only, "build": primes},
    )
    scene.begin()
    driven = done(scene)
    assert (driven.move.kind, driven.slip) == ("completed", None)
    assert scene.event_names()[-1] == "run.completed"
    assert "pending_triggers" not in scene.state


@each("verb", ["next", "done", "approve"])
def test_a_phase_that_a_stranger_enters_is_owed_to_the_session(scene: Scene, verb: str) -> None:
    """Where a terminal drives a named run, the session that is bound to it is still given what the phase loads."""
    run_id = owing(scene, {**PHASES, "build": {**PHASES["build"], "require_approval": verb == "approve"}})
    terminal = scene.space("terminal-1", host="terminal")
    if verb == "approve":
        done(scene)
        decide.approve(leases.deciding(terminal), run_id)
    elif verb == "done":
        leases.leave(scene.space(), run_id, "other")
        advance.done(terminal, run_id, response="by hand")
    else:
        done(scene, None, outcome="skipped")
        scene.space().local.mark_ended(SESSION)
        leases.leave(scene.space(), run_id, "other")
        advance.next_step(terminal, run_id)
    leases.leave(terminal, run_id, "other")
    driven = go_on(scene)
    assert (driven.move.step, loaded(driven)) == ("build/make", ["spec"])


# ---- Failure, approval, standing


@each(
    ("retries", "handling", "kinds"),
    [
        (0, {}, ["failed"]),
        (2, {}, ["step", "step", "failed"]),
        (1, {"on_failure": "continue"}, ["step", "step"]),
        (0, {"on_failure": "prompt"}, ["approval"]),
    ],
)
def test_a_failure_is_retried_and_then_handled(
    scene: Scene, retries: int, handling: dict[str, str], kinds: list[str]
) -> None:
    steps = [{"id": "ask", "prompt": "Ask.", "max_retries": retries, "result_handling": handling}]
    scene.workflow(phases={**PHASES, "frame": {"steps": steps}})
    scene.begin()
    moves = [done(scene, outcome="failed").move for _ in kinds]
    assert [move.kind for move in moves] == kinds
    visits = [entry for entry in scene.state["steps"] if entry["step_id"] == "frame/ask"]
    assert len(visits) == min(retries + 1, len(kinds))
    assert len(scene.state["errors"]) == len(visits)
    standing = {"failed": "failed", "step": "in_progress", "approval": "awaiting_feedback"}
    assert scene.state["status"] == standing[kinds[-1]]


def test_a_gate_waits_for_its_user(scene: Scene) -> None:
    """Before a phase that asks for approval the run waits; `next` says so; `approve` goes on into the phase."""
    scene.workflow(autonomy={"level": "guarded", "require_approval_for": ["ship"]})
    scene.begin()
    driven = [done(scene) for _ in range(3)][-1]
    assert "loomctl approve" in driven.line
    assert (driven.move.kind, go_on(scene).move.kind) == ("approval", "approval")
    assert [item["id"] for item in scene.state["pending_approvals"]] == ["phase:ship"]
    assert decide.approve(scene.space(), scene.run_dir.name).move.step == "ship/send"
    assert scene.state["pending_approvals"] == []
    with pytest.raises(LoomError, match="does not wait for an approval"):
        decide.approve(scene.space(), scene.run_dir.name)


@each("status", ["completed", "cancelled"])
@each("verb", ["done", "closing", "approve", "pause"])
def test_a_run_that_is_over_is_not_moved(begun: Scene, status: str, verb: str) -> None:  # D4
    waiting = [{"id": "phase:ship", "reason": "x", "requested_at": "2026-01-01T00:00:00Z"}]
    begun.edit(status=status, pending_approvals=waiting)
    before = (begun.run_dir / "state.json").read_bytes()
    verbs: dict[str, Callable[[], object]] = {
        "done": lambda: done(begun, outcome="failed"),
        "closing": lambda: done(begun, None),
        "approve": lambda: decide.approve(begun.space(), begun.run_dir.name),
        "pause": lambda: stand(begun, "paused"),
    }
    with refused("BAD_STATUS"):
        verbs[verb]()
    assert (begun.run_dir / "state.json").read_bytes() == before
    assert not (begun.run_dir / "stages" / ASK / "status.json").exists()


def test_a_stop_does_not_move_a_cancelled_run(begun: Scene) -> None:  # D4
    done(begun, None, outcome="failed")
    stand(begun, "cancelled")
    before = (begun.run_dir / "state.json").read_bytes()
    assert stop(begun, "too late") == ""
    assert (begun.run_dir / "state.json").read_bytes() == before


@each("status", ["paused", "failed"])
def test_next_does_not_wake_a_paused_or_failed_run(begun: Scene, status: str) -> None:
    begun.edit(status=status)
    with refused("BAD_STATUS", hint=f"loomctl resume {begun.handle}"):
        go_on(begun)


@each("closing", [False, True])
def test_a_step_that_is_ended_in_a_paused_run_starts_no_other(begun: Scene, closing: bool) -> None:
    """By its result, or by the final message where it was closing when its run was paused."""
    if closing:
        done(begun, None)
    stand(begun, "paused")
    said = stop(begun, "the result") if closing else (driven := done(begun)).line
    assert "paused" in said
    assert closing or driven.move.kind == "paused"
    assert (statuses(begun), begun.state["status"]) == (["succeeded"], "paused")


@each("prompt", ["Give --artifact ", "--artifact\n", "--artifact NAME=PATH", "--artifact = x", "--artifact a=b.md"])
def test_talk_of_registering_is_no_demand(scene: Scene, prompt: str) -> None:
    """Only what `produces` names is asked for, however the words stand in a prompt."""
    scene.workflow(phases={**PHASES, "frame": {"steps": [{"id": "ask", "prompt": prompt}]}})
    scene.begin()
    assert list(done(scene).notes) == []


def test_there_must_be_a_step_to_end_or_to_take_back(begun: Scene) -> None:
    with refused("NOTHING_TO_UNDO"):
        take_back(begun)
    for _ in range(3):
        done(begun)
    begun.edit(steps=begun.state["steps"][:3])
    with refused("NO_OPEN_STEP", hint=f"loomctl next {begun.handle}"):
        done(begun)


def test_undo_opens_the_last_step_again_and_keeps_its_response(begun: Scene) -> None:
    for number, words in enumerate(("first words", "second words"), 1):
        done(begun, words, artifacts={"spec_path": "{project_root}/x.md"})
        assert take_back(begun).move.step == "frame/ask"
        assert (begun.state["current_step"], begun.state["artifacts"]) == ("frame/ask", {})
        assert read(begun, ASK, f"response.undone-{number}.md") == words
        assert not (begun.run_dir / "stages" / ASK / "response.md").exists()


@pytest.mark.shows("Run ids, session ids and stage names are checked before they become paths")
def test_no_stage_can_be_made_to_lie_elsewhere(begun: Scene, tmp_path: Path) -> None:  # D10
    for name in ("../../../escaped", "/tmp/escaped", "a/b", "..@1"):
        begun.edit(steps=[{**begun.state["steps"][0], "stage": name}])
        begun.space().local.unbind(SESSION)  # a bound session would be told first that the stage is another
        with refused("BAD_ID"):
            done(begun)
    assert not list(tmp_path.rglob("escaped*"))


def test_a_session_that_is_not_bound_may_drive_a_named_run(begun: Scene) -> None:  # D1
    leases.leave(begun.space(), begun.run_dir.name, "other")
    done(begun, session=OTHER)
    assert begun.state["current_step"] == "build/make"
    assert begun.space(OTHER).local.binding(OTHER) is None
