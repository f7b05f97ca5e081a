"""Steps that a person decides, and what else waits for a person: granted, refused, chosen, with who and when (D45)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import decide as deciding
from loomctl.flow import resume, rewind
from loomctl.flow.advance import Driven
from loomctl.kit import files
from loomctl.kit.errors import EXIT_HELD, EXIT_USAGE, LoomError
from tests.helpers.errors import refused
from tests.helpers.repositories import git
from tests.helpers.scenes import SESSION, Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import begin, done, events, go_on, read, stand, status_of, stop, take_back

GATE = "003-build.gate@1"
WAYS: list[Json] = [{"to": "end", "label": "[A] Approve"}, {"to": "fix", "label": "[F] Fix"}]
FIX: Json = {"id": "fix", "prompt": "Mend it.", "transitions": [{"to": "review"}, {"to": "end", "on_failure": True}]}


def steps(*ways: Json, **more: Any) -> list[Json]:
    """Give a step, its review, a gate with these ways, and a step that leads back to the review."""
    asks = {"id": "gate", "kind": "human", "prompt": "Is {run_id} good?\nLook at it."}
    gate = {**asks, "transitions": list(ways), **more}
    return [{"id": "make"}, {"id": "review"}, {key: one for key, one in gate.items() if one}, FIX]


def at_the_gate(scene: Scene, *ways: Json, **more: Any) -> Scene:
    begin(scene, *steps(*ways, **more))
    done(scene)
    done(scene)
    return scene


def decide(scene: Scene, verb: str, *words: str, by: str = "Ada", note: str = "") -> Driven:
    space = scene.space("terminal-1", host="terminal")
    if verb == "choose":
        return deciding.choose(space, scene.run_dir.name, words[0], by=by, note=note)
    return (deciding.approve if verb == "approve" else deciding.reject)(space, scene.run_dir.name, by=by, note=note)


def refusal(scene: Scene, verb: str, *words: str) -> LoomError:
    """Give the error that a decision meets with, which leaves the state as it was."""
    before = scene.state
    with pytest.raises(LoomError) as caught:
        decide(scene, verb, *words)
    assert scene.state == before
    return caught.value


def test_a_run_waits_at_a_gate(scene: Scene) -> None:
    """Its visit is open, with a prompt that tells what happened; the state and the log say what is asked."""
    at_the_gate(scene, *WAYS)
    state = scene.state
    assert (state["status"], state["current_step"]) == ("awaiting_feedback", "build/gate")
    assert (state["steps"][-1]["stage"], state["steps"][-1]["status"]) == (GATE, "in_progress")
    (asked,) = state["pending_approvals"]
    assert asked == {
        "id": f"human:{GATE}",
        "step_id": "build/gate",
        "stage": GATE,
        "reason": f"Is {scene.run_dir.name} good?",
        "choices": ["[A] Approve", "[F] Fix"],
        "requested_at": asked["requested_at"],
    }
    told = read(scene, GATE, "prompt.md")
    for words in ("build/review", "Look at it.", "A person chooses one of “[A] Approve”, “[F] Fix”."):
        assert words in told
    assert "preferred_next_label" not in told
    for _ in range(2):  # as often as somebody likes: it is not asked again
        move = go_on(scene).move
        assert (move.kind, move.step) == ("approval", "build/gate")
    assert (scene.state["pending_approvals"], scene.state["steps"]) == ([asked], state["steps"])
    assert events(scene, "approval.requested") == [asked]


NEXT, OVER = "build/fix", None
YES_NO: list[Json] = [{"to": "end", "label": "Yes"}, {"to": "fix", "label": "No"}]
ONE: list[Json] = [{"to": "fix", "label": "Ship it"}]
ONLY_NO: list[Json] = [{"to": "fix", "label": "Reject"}]
BARE: list[Json] = [{"to": "fix"}]
TWO_KEYS: list[Json] = [{"to": "end", "label": "[F] Finish"}, {"to": "fix", "label": "[F] Fix"}]
KEY_AND_WORD: list[Json] = [{"to": "end", "label": "[F] Finish"}, {"to": "fix", "label": "F"}]
FAILING: list[Json] = [{"to": "end", "label": "Ship"}, {"to": "fix", "on_failure": True}]
TWO_YES: list[Json] = [{"to": "end", "label": "Yes"}, {"to": "fix", "label": "OK"}]

DECISIONS: list[tuple[list[Json], tuple[str, ...], str, str | None, str | None]] = [
    # the ways, what is said, how the visit ends, with which label, and where it leads
    (WAYS, ("choose", "fix"), "succeeded", "[F] Fix", NEXT),
    (WAYS, ("choose", "F"), "succeeded", "[F] Fix", NEXT),
    (WAYS, ("choose", " [f]  FIX "), "succeeded", "[F] Fix", NEXT),
    (WAYS, ("choose", "f) fix"), "succeeded", "[F] Fix", NEXT),
    (WAYS, ("choose", "Approve"), "succeeded", "[A] Approve", OVER),
    (WAYS, ("approve",), "succeeded", "[A] Approve", OVER),
    (YES_NO, ("approve",), "succeeded", "Yes", OVER),
    (YES_NO, ("reject",), "succeeded", "No", NEXT),
    (ONE, ("approve",), "succeeded", "Ship it", NEXT),
    (BARE, ("approve",), "succeeded", None, NEXT),
    ([], ("approve",), "succeeded", None, NEXT),
    (KEY_AND_WORD, ("choose", "F"), "succeeded", "F", NEXT),
    (TWO_KEYS, ("choose", "fix"), "succeeded", "[F] Fix", NEXT),
    (FAILING, ("reject",), "failed", None, NEXT),
    (ONLY_NO, ("reject",), "succeeded", "Reject", NEXT),
]


@each(("ways", "said", "outcome", "label", "leads"), DECISIONS)
def test_a_decision_ends_the_visit(
    scene: Scene, ways: list[Json], said: tuple[str, ...], outcome: str, label: str | None, leads: str | None
) -> None:
    """By a label that is meant; who, when and why stand in the state, the stage, the context and the log."""
    at_the_gate(scene, *ways)
    driven = decide(scene, *said, note="so be it")
    assert (driven.move.step if driven.move.kind == "step" else None) == leads
    state, status = scene.state, status_of(scene, GATE)
    visit = next(one for one in state["steps"] if one["stage"] == GATE)
    assert (visit["status"], visit.get("preferred_next_label")) == (outcome, label)
    at = status["completed_at"]
    assert status["decided"] == {"by": "Ada", "at": at, "label": label, "note": "so be it"}
    assert (status["kind"], status["response_source"], status["directive"]) == ("human", "decision", None)
    assert read(scene, GATE, "response.md") == "so be it"
    assert (state["context"]["human.gate.label"], state["context"]["human.gate.text"]) == (label, "so be it")
    assert state["pending_approvals"] == []
    (record,) = state["approvals"]
    when = "rejected_at" if said[0] == "reject" else "granted_at"
    told = {"id": f"human:{GATE}", "by": "Ada", "label": label, "note": "so be it"}
    assert {"label": None, **record} == {**told, when: at, "after_rank": 3}
    name = {"approve": "approval.granted", "reject": "approval.rejected", "choose": "approval.chosen"}[said[0]]
    assert events(scene, name) == [told]


WRONG: list[tuple[list[Json], tuple[str, ...], str]] = [
    (WAYS, ("choose", "nope"), "UNKNOWN_LABEL"),
    (WAYS, ("choose", ""), "UNKNOWN_LABEL"),
    (WAYS, ("choose", "fix it"), "UNKNOWN_LABEL"),
    (BARE, ("choose", "fix"), "UNKNOWN_LABEL"),
    (TWO_KEYS, ("choose", "F"), "AMBIGUOUS_LABEL"),
    (TWO_KEYS, ("approve",), "CHOICE_NEEDED"),
    (ONLY_NO, ("approve",), "CHOICE_NEEDED"),
    (TWO_YES, ("approve",), "CHOICE_NEEDED"),
    ([*YES_NO, {"to": "review", "label": "Decline"}], ("reject",), "CHOICE_NEEDED"),
]


@each(("ways", "said", "code"), WRONG)
def test_what_is_no_decision_is_refused(scene: Scene, ways: list[Json], said: tuple[str, ...], code: str) -> None:
    at_the_gate(scene, *ways)
    error = refusal(scene, *said)
    assert (error.code, error.exit_code) == (code, EXIT_USAGE)
    for way in ways:
        assert way.get("label", "") in error.why
    assert error.hint == f"loomctl status {scene.handle}"  # who pastes it decides nothing


@each("verb", ["approve", "reject", "choose"])
@each("status", ["paused", "failed", "completed", "cancelled"])
def test_a_run_that_stands_still_takes_no_decision(scene: Scene, verb: str, status: str) -> None:
    at_the_gate(scene, *YES_NO)
    scene.edit(status=status)
    assert refusal(scene, verb, "yes").code == "BAD_STATUS"


def test_where_nothing_is_asked_nothing_is_decided(scene: Scene) -> None:
    begin(scene, *steps(*WAYS))
    for verb, thing in (("approve", "APPROVE"), ("reject", "APPROVE"), ("choose", "CHOOSE")):
        assert refusal(scene, verb, "fix").code == f"NOTHING_TO_{thing}"


def test_a_rejection_without_a_way_fails_the_run(scene: Scene) -> None:  # D45
    begin(scene, *steps(*ONE), max_visits=5)
    done(scene)
    done(scene)
    driven = decide(scene, "reject", note="rate limit of my patience")
    assert (driven.move.kind, scene.state["status"]) == ("failed", "failed")
    error = scene.state["steps"][-1]["error"]
    assert (error["retryable"], error["message"]) == (False, "rejected by Ada: rate limit of my patience")
    resume.resume(scene.space(), scene.run_dir.name)
    state = scene.state
    assert (state["status"], state["steps"][-1]["stage"]) == ("awaiting_feedback", "004-build.gate@2")


def test_a_person_who_is_not_named_is_known_by_git(scene: Scene) -> None:
    (scene.root / ".git").rmdir()
    git(scene.root, "init", "-q")
    git(scene.root, "config", "user.name", "Grace\tghp_" + "a1B2" * 9)
    at_the_gate(scene, *WAYS)
    decide(scene, "choose", "fix", by="")
    by = scene.state["approvals"][0]["by"]
    assert by.startswith("Grace")
    assert not any(part in by for part in ("a1B2", "\t"))


@each("by", ["Ada\nLovelace", "x" * 500, " Ada "])
def test_a_name_is_a_line(scene: Scene, by: str) -> None:
    at_the_gate(scene, *WAYS)
    decide(scene, "choose", "fix", by=by)
    name = status_of(scene, GATE)["decided"]["by"]
    assert ("\n" in name, name.strip()) == (False, name)
    assert 0 < len(name) <= deciding.LONGEST_NAME


def test_a_note_is_a_persons_word_and_no_directive(scene: Scene) -> None:
    """What it holds of JSON changes no way and no context; one that is too long is refused."""
    at_the_gate(scene, *WAYS)
    with pytest.raises(LoomError, match="TOO_LARGE"):
        decide(scene, "choose", "fix", note="x" * (deciding.LONGEST_NOTE + 1))
    note = '{"preferred_next_label": "approve", "outcome": "failed", "context_updates": {"a": 1}}'
    assert decide(scene, "choose", "fix", note=note).move.step == "build/fix"
    assert "a" not in scene.state["context"]
    assert scene.state["context"]["last_response"] == note


def test_the_assistant_cannot_end_it(scene: Scene) -> None:
    """Neither by `done`, with whatever outcome, nor by stopping; a stop does not block."""
    at_the_gate(scene, *WAYS)
    for response, outcome in (("It is good.", None), ("It is good.", "failed"), (None, None)):
        with refused("HUMAN_STEP") as caught:
            done(scene, response, outcome=outcome)
        assert caught.value.hint == f"loomctl status {scene.handle}"
    for driven in (True, False):
        stopped = stop(scene, '{"preferred_next_label": "approve"}', told=GATE, driven=driven)
        assert (stopped.block, stopped.waits) == ("", driven)
        assert ("waits for you at build/gate" in stopped.line) is driven
    assert scene.state["status"] == "awaiting_feedback"
    assert not (scene.run_dir / "stages" / GATE / "candidate.md").exists()


def test_a_decision_is_taken_back_and_made_anew(scene: Scene) -> None:
    """Undo asks again; files, context, approvals and the way are those of the second decision alone."""
    at_the_gate(scene, *WAYS)
    take_back(scene)  # the step before, and with it the question
    assert (scene.state["status"], scene.state["pending_approvals"]) == ("in_progress", [])
    done(scene)
    assert scene.state["pending_approvals"][0]["stage"] == GATE
    decide(scene, "choose", "fix", note="first")
    scene.let_go()
    driven = rewind.undo(scene.space("terminal-1", host="terminal"), scene.run_dir.name)
    assert (driven.move.kind, scene.state["status"]) == ("approval", "awaiting_feedback")
    assert scene.state["approvals"] == []
    assert not {"human.gate.label", "human.gate.text"} & scene.state["context"].keys()
    assert decide(scene, "approve").move.kind == "completed"
    assert [one["label"] for one in scene.state["approvals"]] == ["[A] Approve"]
    assert status_of(scene, GATE)["decided"]["label"] == "[A] Approve"
    assert len(events(scene, "approval.requested")) == 3


def test_a_paused_run_keeps_its_question(scene: Scene) -> None:
    at_the_gate(scene, *WAYS)
    before = scene.state["pending_approvals"]
    space, run_id = scene.space(), scene.run_dir.name
    for status, reopen in (("paused", False), ("cancelled", True)):
        stand(scene, status)
        resumed = resume.resume(space, run_id, reopen=reopen)
        assert (resumed.move.kind, scene.state["status"]) == ("approval", "awaiting_feedback")
        assert scene.state["pending_approvals"] == before
    assert decide(scene, "choose", "fix").move.step == "build/fix"


def test_a_kill_between_the_files_and_the_state_loses_no_question(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage's files say a decision that the state does not know: it is asked still, and decided otherwise."""
    at_the_gate(scene, *WAYS)
    whole = files.write_atomically

    def killed(path: str, data: bytes, **more: Any) -> None:
        if Path(path).name == "state.json":
            raise KeyboardInterrupt
        whole(path, data, **more)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            decide(scene, "choose", "fix", note="lost")
    assert status_of(scene, GATE)["decided"]["label"] == "[F] Fix"
    assert scene.state["status"] == "awaiting_feedback"
    assert decide(scene, "choose", "approve").move.kind == "completed"
    status = status_of(scene, GATE)
    assert status["decided"] == {"by": "Ada", "at": status["completed_at"], "label": "[A] Approve", "note": ""}


def test_a_loop_asks_at_each_visit(scene: Scene) -> None:
    """Review, gate, fix, review, gate: each visit has a decision of its own, and the last one leads out."""
    at_the_gate(scene, *WAYS)
    for _ in range(2):
        assert decide(scene, "choose", "F", note="again").move.step == "build/fix"
        go_on(scene)
        done(scene)
        done(scene)
    assert decide(scene, "approve").move.kind == "completed"
    assert [one["label"] for one in scene.state["approvals"]] == ["[F] Fix", "[F] Fix", "[A] Approve"]
    names = [one["step_id"].partition("/")[2] for one in scene.state["steps"]]
    assert names == ["make", *["review", "gate", "fix"] * 2, "review", "gate"]


@each("condition", ["context['human.gate.label'] == '[F] Fix'", "context.human.gate.text == 'slow'"])
def test_later_conditions_read_what_was_decided(scene: Scene, condition: str) -> None:
    after = {"id": "fix", "transitions": [{"to": "make", "condition": condition}, {"to": "end"}]}
    begin(scene, *steps(*WAYS)[:3], after)
    done(scene)
    done(scene, json.dumps({"context_updates": {"human.gate.label": "mine"}}))
    assert "human.gate.label" not in scene.state["context"]
    decide(scene, "choose", "fix", note="slow")
    go_on(scene)
    assert done(scene).move.step == "build/make"


def test_a_decision_on_what_is_asked_no_more_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two decide at once: what the second one saw is decided by then, though the run asks the like again."""
    at_the_gate(scene, {"to": "gate", "label": "Again"}, {"to": "end", "label": "Enough"})
    mine = deciding._gathered

    def late(*given: Any) -> Any:
        monkeypatch.setattr(deciding, "_gathered", mine)
        decide(scene, "choose", "again", by="Bea")
        return mine(*given)

    monkeypatch.setattr(deciding, "_gathered", late)
    with refused("DECIDED_MEANWHILE", exit_code=EXIT_HELD) as caught:
        decide(scene, "choose", "enough")
    assert "Bea decided" in caught.value.what
    assert scene.state["pending_approvals"][0]["stage"] == "004-build.gate@2"


# What is no step: before a phase or a step, and after a result.


def gated(scene: Scene, kind: str) -> str:
    first = {"id": "a", "prompt": "A.", "result_handling": {"on_success": "prompt"} if kind == "result" else {}}
    second = {"id": "b", "prompt": "B.", "require_approval": kind == "step"}
    after = {"steps": [second], "require_approval": kind == "phase"}
    scene.workflow(phases={"one": {"steps": [first]}, "two": after})
    scene.begin()
    done(scene)
    (asked,) = scene.state["pending_approvals"]
    assert scene.state["status"] == "awaiting_feedback"
    return str(asked["id"])


@each("kind", ["phase", "step", "result"])
def test_a_gate_that_is_refused_pauses_the_run_and_is_asked_again(scene: Scene, kind: str) -> None:
    """The refusal is on record, with who and why; nothing goes on before somebody grants it."""
    asked = gated(scene, kind)
    error = refusal(scene, "choose", "yes")  # only a human step has choices
    assert (error.code, error.hint) == ("NOTHING_TO_CHOOSE", f"loomctl status {scene.handle}")
    driven = decide(scene, "reject", note="not today")
    assert (driven.move.kind, scene.state["status"]) == ("paused", "paused")
    assert f"Ada rejected {asked}: not today" in driven.line
    (record,) = scene.state["approvals"]
    assert (record["id"], record["by"], record["note"], "rejected_at" in record) == (asked, "Ada", "not today", True)
    assert events(scene, "approval.rejected") == [{"id": asked, "by": "Ada", "label": None, "note": "not today"}]
    assert refusal(scene, "approve").code == "NOTHING_TO_APPROVE"
    resumed = resume.resume(scene.space(), scene.run_dir.name)
    assert (resumed.move.kind, scene.state["status"]) == ("approval", "awaiting_feedback")
    assert "rejected before by Ada: not today" in Driven(resumed.run, resumed.move).line
    assert decide(scene, "approve", by="Bea").move.step == "two/b"
    assert [one["by"] for one in scene.state["approvals"]] == ["Ada", "Bea"]


@pytest.mark.parametrize("kind", ["step", "phase"])
def test_a_turn_of_looms_ends_with_what_the_user_has_to_decide_or_how_the_run_rests(scene: Scene, kind: str) -> None:
    """What the assistant is told of it a host may fold away."""

    def told() -> str:
        assert stop(scene, "I stop.", driven=False).line == ""
        stopped = stop(scene, "I stop.", driven=True)
        assert not stopped.block
        return stopped.line.removeprefix("Loom: ")

    gated(scene, kind)
    question = scene.state["pending_approvals"][0]["reason"]
    assert told() == f"The run waits for you: {question}. You decide: loomctl approve {scene.handle}"
    decide(scene, "reject", note="not today")
    assert told().startswith("The run is paused: Ada rejected ")
    resume.resume(scene.space(), scene.run_dir.name)
    decide(scene, "approve")
    done(scene, outcome="failed")
    assert told() == f"The run failed. To try the step again: loomctl resume {scene.handle}"
    resume.resume(scene.space(), scene.run_dir.name)
    done(scene)
    assert told() == "The run is completed."


@each("way", ["undo", "resume and undo", "rewind", "far"])
def test_why_a_result_was_refused_stands_in_the_step_that_is_opened_again(scene: Scene, way: str) -> None:
    """As the user's words, masked, until the step ends; `show STAGE` has them too."""
    token = "ghp_" + "a1B2" * 9
    scene.workflow(
        phases={
            "zero": {"steps": [{"id": "z", "prompt": "Z."}]},
            "one": {"steps": [{"id": "a", "prompt": "A."}]},
            "two": {"steps": [{"id": "b", "prompt": "B."}], "require_approval": True},
        }
    )
    scene.begin()
    done(scene)
    done(scene)
    decide(scene, "reject", note=f"round VAT per rate, not {token}")
    shown = scene.loomctl("show", "2").ends().stdout
    assert "rejected  by Ada: round VAT per rate" in shown
    space, run_id = scene.space(), scene.run_dir.name
    if way.startswith("resume"):
        resume.resume(space, run_id)
    if way in ("rewind", "far"):
        rewind.rewind(space, run_id, "1" if way == "far" else "2")
    else:
        rewind.undo(space, run_id)
    resume.resume(space, run_id)
    told = scene.loomctl("next").ends().stdout
    assert "Ada rejected the result of this step before, and said:\n\n> round VAT per rate, not " in told
    assert token not in told
    assert "> round VAT per rate" in scene.hook("session-start", source="resume", session=SESSION).context
    assert "rejected  by Ada: round VAT per rate" in scene.loomctl("show", "1" if way == "far" else "2").ends().stdout
    done(scene)
    decide(scene, "approve") if way != "far" else None
    assert "round VAT" not in scene.loomctl("next").ends().stdout


def test_a_gate_may_stand_before_a_gate(scene: Scene) -> None:
    begin(scene, *steps(*WAYS, require_approval=True))
    done(scene)
    done(scene)
    assert scene.state["pending_approvals"][0]["id"] == "step:build/gate"
    driven = decide(scene, "approve")
    assert (driven.move.kind, scene.state["pending_approvals"][0]["id"]) == ("approval", f"human:{GATE}")


def test_a_session_is_told_what_is_asked(scene: Scene) -> None:
    """At its start, within the budget, with the choices as they are written and the commands that answer."""
    at_the_gate(scene, *WAYS)
    told = scene.hook("session-start", source="resume", session=SESSION).context
    answers = (f"loomctl choose '{label}' {scene.handle}" for label in ("[A] Approve", "[F] Fix"))
    for words in ("The run waits for the user.", "Look at it.", *answers, "does not run them"):
        assert words in told


def test_a_long_question_leaves_room_for_its_answers(scene: Scene) -> None:
    at_the_gate(scene, *WAYS, prompt="Is it good?\n" + "A long line of words to be read. \n" * 400)
    told = scene.hook("session-start", source="resume", session=SESSION).context
    assert f"loomctl choose '[F] Fix' {scene.handle}" in told
    assert f"stages/{GATE}/prompt.md" in told


def test_a_first_step_may_be_a_gate(scene: Scene) -> None:
    scene.workflow(phases={"a": {"steps": [{"id": "ask", "kind": "human", "description": "Shall we?"}]}})
    assert (scene.begin().move.kind, scene.state["status"]) == ("approval", "awaiting_feedback")
    assert decide(scene, "approve").move.kind == "completed"
