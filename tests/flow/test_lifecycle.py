"""The log tells the life of a run: from its events alone follow its status, phases, stages, approvals and sessions."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

from loomctl.flow import advance, decide, stop
from loomctl.flow import resume as resuming
from loomctl.flow import rewind as rewinding
from loomctl.priming import memory_of_session, prime_run
from loomctl.runs.project import Workspace
from loomctl.workflows import triggers
from tests.helpers.scenes import OTHER, SESSION, Json, Scene, artifact

PHASES: Json = {
    "frame": {"pre_steps": [{"id": "p", "prompt": "/loom:prime-context"}], "steps": [{"id": "ask", "prompt": "A."}]},
    "plan": {"steps": [{"id": "think", "prompt": "Think.", "result_handling": {"on_failure": "prompt"}}]},
    "build": {"require_approval": True, "steps": [{"id": "make", "prompt": "Make.", "max_retries": 1}]},
    "ship": {"steps": [{"id": "send", "prompt": "Send."}]},
}


class Life(NamedTuple):
    """What is told of a run. visits: status by stage; gates: approvals that are waited for; open: sessions."""

    status: str
    phase: str | None
    phases: dict[str, str]
    visits: dict[str, str]
    gates: set[str]
    sessions: dict[str, bool]


def of_state(state: Json) -> Life:
    phases = {name: str(state["phases"].get(name, {}).get("status", "pending")) for name in PHASES}
    visits = {one["stage"]: str(one["status"]) for one in state["steps"] if one.get("stage")}
    history = {one["session_id"]: not one.get("ended_at") for one in state["sessions"]["session_history"]}
    gates = {one["id"] for one in state["pending_approvals"]}
    return Life(state["status"], state["current_phase"], phases, visits, gates, history)


class Follower:
    """Follows a log from its beginning."""

    def __init__(self, events: list[Json]) -> None:
        self.status = "pending"
        self.phase: str | None = None
        self.phases: dict[str, str] = dict.fromkeys(PHASES, "pending")
        self.visits: dict[str, str] = {}
        self.gates: set[str] = set()
        self.sessions: dict[str, bool] = {}
        for entry in events:
            thing, _, what = entry["event"].partition(".")
            getattr(self, thing, lambda *_: None)(what, entry["properties"], entry)

    @property
    def life(self) -> Life:
        return Life(self.status, self.phase, self.phases, self.visits, self.gates, self.sessions)

    def run(self, what: str, _: Json, entry: Json) -> None:
        if what == "resumed":
            self.status = "awaiting_feedback" if self.gates else "in_progress"
        elif what in ("failed", "completed", "cancelled", "paused"):
            self.status = what
        if what == "failed":
            self.phases[entry["step_id"].partition("/")[0]] = what

    def enter(self, what: str, told: Json, _: Json) -> None:
        self.phases[told["phase"]] = "in_progress" if what == "started" else what
        if what == "started":
            self.phase, self.status = told["phase"], "in_progress"

    def stage(self, what: str, told: Json, entry: Json) -> None:
        if what in ("started", "undone"):
            self.visits[told["stage"]] = self.status = "in_progress"
            self.gates -= self.gates if what == "undone" else set()
            for gone in told.get("gone", ()):
                del self.visits[gone]
            phase = str(entry["step_id"]).partition("/")[0]
            self.phases |= {phase: "in_progress", **told.get("phases", {})}
            self.phase = phase
        elif what in ("closing", "completed"):
            self.visits[told["stage"]] = told.get("status", what)

    def approval(self, what: str, told: Json, _: Json) -> None:
        (self.gates.add if what == "requested" else self.gates.discard)(told["id"])
        self.status = "awaiting_feedback" if self.gates else "in_progress"

    def session(self, what: str, told: Json, entry: Json) -> None:
        self.sessions[told["session_id"] if what == "lost" else entry["session_id"]] = what not in ("ended", "lost")


def of_events(events: list[Json]) -> Life:
    return Follower([{**one, "event": one["event"].replace("phase.", "enter.")} for one in events]).life


class Told:
    """Does things with a run, and holds its log against its state after each."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.session = scene, SESSION
        scene.write("spec.md", "# Spec\n")
        scene.workflow([artifact("spec", "spec.md")], PHASES, autonomy="guarded")
        scene.begin()
        self.run_id = scene.run_dir.name
        self.hold("run")

    def space(self) -> Workspace:
        return self.scene.space(self.session)

    def hold(self, what: str) -> None:
        state, events = self.scene.state, self.scene.events()
        assert of_events(events) == of_state(state), (what, [entry["event"] for entry in events])

    def goes(self, *verbs: str) -> None:
        for verb in verbs:
            if verb == "approve":
                decide.approve(self.space(), self.run_id)
            elif verb == "undo":
                rewinding.undo(self.space(), self.run_id)
            else:
                outcome = "failed" if verb == "failed" else "succeeded"
                advance.done(self.space(), self.run_id, response="x", outcome=outcome, note="so it is")
            self.hold(verb)

    def rewind(self, to: str) -> None:
        rewinding.rewind(self.space(), self.run_id, to)
        self.hold(f"rewind {to}")

    def resume(self, session: str, *, reopen: bool = False) -> None:
        self.session = session
        resuming.resume(self.space(), self.run_id, reopen=reopen, take_over=True)
        self.hold("resume")


@pytest.fixture
def told(scene: Scene) -> Told:
    return Told(scene)


def test_a_run_from_its_beginning_to_its_end(told: Told) -> None:
    """Approvals, a failed visit that is tried again, one that a person passes, an end taken back, a second session."""
    told.goes("done", "undo", "done", "failed", "approve", "undo", "failed", "approve", "approve", "failed")
    told.resume(OTHER)
    told.goes("done", "done")
    assert told.scene.state["status"] == "completed"
    assert told.scene.event_names()[-2:] == ["phase.completed", "run.completed"]
    told.resume(OTHER, reopen=True)
    for to in ("make", "think", "1"):
        told.rewind(to)
    told.goes("done", "done")
    assert told.scene.state["status"] == "awaiting_feedback"
    told.rewind("1")


def test_a_run_that_fails_is_paused_and_cancelled(told: Told) -> None:
    told.goes("done", "done", "approve", "failed", "failed")
    assert told.scene.state["status"] == "failed"
    told.resume(OTHER)
    for verb, event in (("paused", "run.paused"), ("cancelled", "run.cancelled")):
        stop.set_standing(told.space(), told.run_id, verb, event, allowed=("in_progress",))
        told.hold(verb)
        told.resume(OTHER, reopen=verb == "cancelled")


def test_sessions_come_and_go(told: Told) -> None:
    """A start, a switch that takes the run over, a compaction, an end, a return; each priming is told."""
    scene = told.scene
    pid = {"CLAUDE_PID": str(os.getpid())}
    assert scene.hook("session-start", source="startup", environ=pid).code == 0
    told.hold("startup")
    assert scene.hook("session-start", session=OTHER, source="clear", environ=pid).code == 0
    told.hold("clear")
    (inherited,) = [one for one in scene.events() if one["properties"].get("inherited_from")]
    assert (inherited["event"], inherited["session_id"]) == ("session.started", OTHER)
    for event, more in (("session-start", {"source": "compact"}), ("session-end", {"reason": "other"})):
        scene.hook(event, session=OTHER, environ=pid, **more)
        told.hold(event)
    scene.hook("session-start", session=OTHER, source="resume", environ=pid)
    told.hold("return")
    primed = [one["properties"] for one in scene.events() if one["event"] == "context.primed"]
    assert len(primed) == 5
    assert all(one["loaded"] == {"spec": "full"} and one["fresh"] == [] for one in primed)


def test_a_priming_that_gave_nothing_is_told(told: Told) -> None:
    """With what the session has already, beside what is written anyhow; by itself it writes nothing (D15)."""
    space = told.space()
    run = space.store.read(told.run_id)
    made = prime_run.prime(space, run, triggers.session_start(), prime_run.hook_budget(space), may_write=True)
    state, (event,) = memory_of_session.with_priming(space, run.state, made)
    assert (made.text, state, event.name) == ("", run.state, "context.primed")
    assert [event.properties[key] for key in ("slip_id", "loaded", "fresh")] == [None, {}, ["spec"]]
    before = told.scene.events()
    memory_of_session.record(space, told.run_id, made)
    assert (told.scene.state, told.scene.events()) == (run.state, before)
