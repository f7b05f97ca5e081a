"""A run taken back to a stage: as if what came after had never been, with nothing lost on disk (D31)."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.flow import advance, contexts, decide
from loomctl.flow import rewind as rewinding
from loomctl.flow.commands import command_steps, run_commands
from loomctl.flow.rewind import Rewound
from loomctl.kit.errors import LoomError
from loomctl.priming import memory_of_session, prime_run, slip
from loomctl.runs import context_history, stages
from loomctl.workflows import triggers
from tests.helpers.errors import refused
from tests.helpers.routed import answers, begun, essence, plans, play, says, stages_of, worked
from tests.helpers.scenes import MAIN, OTHER, SESSION, Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import done, events, go_on, stand, status_of, statuses


def rewind(scene: Scene, to: str, session: str | None = SESSION) -> Rewound:
    return rewinding.rewind(scene.space(session), scene.run_dir.name, to)


SPEC = {"spec_path": "{project_root}/spec.md"}
# ---- Where a run stands afterwards.


@each(
    ("to", "stage", "context", "artifacts"),
    [
        ("1", "001-build.make@1", {}, {}),
        ("make", "001-build.make@1", {}, {}),
        ("002-build", "002-build.review@1", {"a": 1, "b": "made"}, SPEC),
        ("review@1", "002-build.review@1", {"a": 1, "b": "made"}, SPEC),
        ("fix", "003-build.fix@1", {"a": 2, "b": "made"}, SPEC),
        ("review", "004-build.review@2", {"a": 2, "b": "made", "c": [3]}, SPEC),
    ],
)
def test_the_run_is_as_it_was_when_the_stage_was_open(
    scene: Scene, to: str, stage: str, context: Json, artifacts: Json
) -> None:
    """Its visit is open, what came after is gone, and context and artifacts are those of its beginning."""
    worked(scene)
    before = stages_of(scene.state)
    rewound = rewind(scene, to)
    state = scene.state
    assert (rewound.stage, rewound.changed, rewound.move.kind) == (stage, True, "step")
    assert stages_of(state) == before[: before.index(stage) + 1]
    assert list(rewound.gone) == before[before.index(stage) + 1 :]
    assert (state["steps"][-1]["status"], state["status"]) == ("in_progress", "in_progress")
    assert "next" not in state["steps"][-1]
    assert {key: value for key, value in state["context"].items() if key in "abc"} == context
    assert state["artifacts"] == artifacts
    assert [state["phases"][name]["status"] for name in ("build", "ship")] == ["in_progress", "pending"]


def test_nothing_on_disk_is_lost_and_a_later_stage_of_the_same_name_has_files_of_its_own(scene: Scene) -> None:
    """Each undone stage's files are kept aside, and what is written anew stands beside them."""
    worked(scene)
    contents = {path.read_bytes() for path in (scene.run_dir / "stages").rglob("*") if path.is_file()}
    rewind(scene, "2")
    after = {path.read_bytes() for path in (scene.run_dir / "stages").rglob("*") if path.is_file()}
    assert contents <= after
    for stage in ("002-build.review@1", "003-build.fix@1", "004-build.review@2"):
        names = {path.name for path in (scene.run_dir / "stages" / stage).iterdir()}
        assert {"response.undone-1.md", "status.undone-1.json", "changes.undone-1.json"} <= names, stage
        assert not {"response.md", "status.json", "changes.json"} & names, stage
    done(scene, says("fix"))
    done(scene, "mended otherwise")
    folder = scene.run_dir / "stages" / "003-build.fix@1"
    assert (folder / "response.md").read_text() == "mended otherwise"
    assert json.loads((folder / "response.undone-1.md").read_text())["context_updates"] == {"c": [3]}


def test_a_stage_that_is_open_changes_nothing(scene: Scene) -> None:
    worked(scene)
    before = [(scene.run_dir / name).read_bytes() for name in ("state.json", "events.jsonl")]
    rewound = rewind(scene, "send")
    assert (rewound.changed, rewound.stage, rewound.gone) == (False, "005-ship.send@1", ())
    assert [(scene.run_dir / name).read_bytes() for name in ("state.json", "events.jsonl")] == before


def test_a_closing_stage_is_open_again(scene: Scene) -> None:
    worked(scene)
    done(scene, None)
    assert rewind(scene, "send").changed
    assert statuses(scene)[-1] == "in_progress"
    done(scene, None)
    rewind(scene, "fix")
    assert stages_of(scene.state)[-1] == "003-build.fix@1"


def test_it_is_undo_as_often_as_it_takes(scene: Scene, tmp_path: Path) -> None:
    other = Scene(tmp_path / "other")
    for one in (scene, other):
        worked(one)
    rewind(scene, "1")
    while stages_of(other.state) != ["001-build.make@1"] or other.state["steps"][0]["status"] != "in_progress":
        rewinding.undo(other.space(), other.run_dir.name)
    told = [{**essence(one.state), "run_id": "", "plan_id": ""} for one in (scene, other)]
    assert told[0] == told[1]
    assert events(scene, "stage.undone") == events(other, "stage.undone")
    names = ["001-build.make@1", "002-build.review@1", "003-build.fix@1", "004-build.review@2", "005-ship.send@1"]
    assert events(scene, "run.rewound") == [{"to": names[0], "undone": names[3::-1], "gone": names[1:]}]


MEANWHILE: dict[str, Callable[[Scene], object]] = {
    "failed": lambda scene: done(scene, outcome="failed", note="no"),
    "completed": done,
    "paused": lambda scene: stand(scene, "paused"),
    "in_progress": lambda scene: done(scene, None),  # closing
}


@each("status", MEANWHILE)
def test_from_every_status_it_is_as_with_undo(scene: Scene, status: str) -> None:
    worked(scene)
    MEANWHILE[status](scene)
    assert scene.state["status"] == status
    assert rewind(scene, "fix").move.step == "build/fix"
    state = scene.state
    assert state["status"] == ("paused" if status == "paused" else "in_progress")
    assert (state["errors"], "completed_at" in state) == ([], False)


def test_a_cancelled_run_is_refused(scene: Scene) -> None:
    worked(scene)
    stand(scene, "cancelled")
    before = (scene.run_dir / "state.json").read_bytes()
    with refused("BAD_STATUS", hint=f"loomctl resume {scene.handle} --reopen"):
        rewind(scene, "fix")
    assert (scene.run_dir / "state.json").read_bytes() == before


def test_approvals_given_since_lapse(scene: Scene) -> None:
    """What was approved on the strength of the undone work is asked again; what was approved before holds."""
    x, y, z = ({"id": name, "prompt": "Do it."} for name in "xyz")
    steps = {"a": [x, y], "b": [z]}
    scene.workflow(phases={name: {"require_approval": True, "steps": steps[name]} for name in steps})
    scene.begin()
    for _ in range(2):
        decide.approve(scene.space(), scene.run_dir.name)
        done(scene)
        if scene.state["current_step"] == "a/y":
            done(scene)
    assert scene.state["status"] == "completed"
    rewind(scene, "y")
    assert [one["id"] for one in scene.state["approvals"]] == ["phase:a"]
    assert done(scene).move.kind == "approval"


def test_an_undo_after_an_approval_names_both_steps(scene: Scene) -> None:
    """The step before the approval is what opens again, and that is not what a user has before them."""
    step = {"id": "x", "prompt": "Do it."}
    scene.workflow(phases={"a": {"steps": [step]}, "b": {"require_approval": True, "steps": [step]}})
    scene.begin()
    done(scene)
    decide.approve(scene.space(), scene.run_dir.name)
    notes = rewinding.undo(scene.space(), scene.run_dir.name).notes
    closed = "002-b.x@1 had begun after it and is closed. Loom asks again when a/x ends."
    assert list(notes)[:2] == [
        "Undone: 001-a.x@1. The project's files stay as they are.",
        f"The approval after 001-a.x@1 is undone with it. {closed}",
    ]
    done(scene)
    decide.approve(scene.space(), scene.run_dir.name)
    done(scene)
    notes = rewinding.undo(scene.space(), scene.run_dir.name).notes
    assert "The approval" not in " ".join(notes)  # it was given before this step, and holds


def test_two_stages_may_be_meant(scene: Scene) -> None:
    scene.workflow(phases={name: {"steps": [{"id": "same", "prompt": "X."}]} for name in ("a", "b")})
    scene.begin()
    done(scene)
    with refused("NO_SUCH_STAGE") as caught:
        rewind(scene, "same")
    assert "001-a.same@1, 002-b.same@1" in caught.value.why


# ---- What is told.


def test_the_context_explains_itself(scene: Scene) -> None:
    worked(scene)
    contexts.put(scene.space(), scene.run_dir.name, {"a": 9})
    rewind(scene, "2")
    done(scene, says("fix", a=5))
    rewind(scene, "1")
    done(scene, says(a=6))
    run = scene.space().store.read(scene.run_dir.name)
    found = context_history.of_run(run)
    assert "unknown" not in {one.by for one in found}
    of_a = [(one.by, one.after) for one in found if one.key == "a"]
    assert (*of_a[:2], of_a[-1]) == (("step", 1), ("step", 2), ("step", 6))
    assert ("user", 9) in of_a
    assert run.state["context"]["a"] == 6


def test_what_the_stages_touched_is_named_and_stays(scene: Scene) -> None:
    """No file of the project is written or removed; the patches are where the answer says, and can be taken back."""
    scene.root.joinpath(".git").rmdir()
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
    scene.write("spec.md", "# Spec\n")
    scene.write("kept.txt", "one\n")
    for words in (["init", "--quiet", "."], ["add", "-A"], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *words], cwd=scene.root, check=True)
    begun(scene)
    scene.write("first.txt", "1\n")
    done(scene)
    scene.write("kept.txt", "two\n")
    scene.write("second.txt", "2\n")
    done(scene, says("fix"))
    rewound = rewind(scene, "review@1")
    assert list(rewound.files) == ["kept.txt", "second.txt"]
    assert (scene.root / "kept.txt").read_text() == "two\n"
    (patch,) = rewound.patches
    assert Path(patch).name == "changes.undone-1.patch"
    subprocess.run([*git, "apply", "-R", patch], cwd=scene.root, check=True)
    assert (scene.root / "kept.txt").read_text() == "one\n"
    assert [(scene.root / name).exists() for name in ("first.txt", "second.txt")] == [True, False]


def test_a_stage_far_back_is_measured_from_the_rewind_on(scene: Scene) -> None:
    """What the checkout was when it began is not known any more; what is changed from now on is told."""
    scene.root.joinpath(".git").rmdir()
    subprocess.run(["git", "init", "--quiet", "."], cwd=scene.root, check=True)
    worked(scene)
    rewind(scene, "1")
    scene.write("again.txt", "1\n")
    done(scene)
    status = status_of(scene, "001-build.make@1")
    assert (status["files_touched"], "files_unknown" in status) == (["again.txt"], False)


@each("content", ["{", "[]", '{"completed_at": "2001-01-01T00:00:00Z"}', None])
def test_what_cannot_be_taken_back_is_said(scene: Scene, content: str | None) -> None:
    """One stage's own change of the context stays, named, here and in the log; all else goes back."""
    worked(scene)
    path = scene.run_dir / "stages" / "003-build.fix@1" / "status.json"
    path.unlink() if content is None else path.write_text(content)
    (note,) = rewind(scene, "2").notes
    assert "003-build.fix@1" in note
    assert [scene.state["context"][key] for key in "abc"] == [1, "made", [3]]
    assert [told["context_left"] for told in events(scene, "run.rewound")] == [["003-build.fix@1"]]


def test_what_was_set_by_hand_since_stays_and_is_named(scene: Scene) -> None:
    """It is no stage's; where an undone stage had set the same key, that goes back with the stage."""
    worked(scene)
    contexts.put(scene.space(), scene.run_dir.name, {"a": 9, "mine": 1})
    (note,) = (note for note in rewind(scene, "fix").notes if "by hand" in note)
    left = f"set by hand since then, and kept: a, mine (loomctl context history {scene.handle})"
    assert (note, [scene.state["context"].get(key) for key in ("a", "mine")]) == (left, [9, 1])
    assert rewind(scene, "1").changed
    assert [scene.state["context"].get(key) for key in ("a", "mine")] == [None, 1]


def test_what_was_set_by_hand_in_a_branch_is_gone_with_it_and_named(scene: Scene) -> None:
    parallel(scene)
    contexts.put(scene.space(), scene.run_dir.name, {"mine": 1}, branch="web")
    (note,) = (note for note in rewind(scene, "make").notes if "by hand" in note)
    assert note == "set by hand in branches since then, and gone with them: web: mine"


# ---- What a session was given.


@each("by", [SESSION, None])
def test_what_is_due_is_given_whole_again(scene: Scene, by: str | None) -> None:  # D15
    worked(scene)
    space = scene.space()

    def given() -> slip.Slip:
        run = space.store.read(scene.run_dir.name)
        made = prime_run.prime(space, run, triggers.session_start(), prime_run.hook_budget(space), may_write=True)
        return memory_of_session.record(space, run.run_id, made)

    assert [entry.id for entry in given().fresh] == ["spec"]
    scene.let_go()
    rewound = rewinding.rewind(scene.space(by, host="claude-code" if by else "terminal"), scene.run_dir.name, "2")
    assert rewound.changed
    assert scene.state["context_metadata"]["artifacts_in_context"] == []
    assert [(entry.id, entry.form) for entry in given().loaded] == [("spec", "full")]
    assert [entry.id for entry in given().fresh] == ["spec"]


def test_another_runs_session_keeps_what_it_was_given(scene: Scene) -> None:
    worked(scene)
    other = scene.begin("other work", session=OTHER).run
    before = scene.space(OTHER).local.primed(OTHER)
    first = next(path.name for path in scene.run_dirs if path.name != other.run_id)
    rewinding.rewind(scene.space(), first, "2")
    assert scene.space(OTHER).local.primed(OTHER) == before


def test_a_session_that_was_told_of_another_stage_is_refused(scene: Scene) -> None:
    worked(scene)
    scene.let_go()
    rewinding.rewind(scene.space(None, host="terminal"), scene.run_dir.name, "fix")
    with refused("STAGE_MOVED"):
        done(scene)
    advance.next_step(scene.space(), scene.run_dir.name)
    assert done(scene).move.step == "build/review"


# ---- Commands and branches.


def test_a_running_command_is_stopped(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [{"id": "x", "prompt": "X."}, {"id": "run", "kind": "command", "run": "sleep 600"}]
    scene.workflow(phases={"a": {"steps": steps}})
    scene.begin()
    run_id = scene.run_dir.name
    space = scene.space()
    run = space.store.read(run_id)
    command_steps.trust(space, run, command_steps.listed(space, run))
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0.2")
    done(scene)
    pending = advance.next_step(scene.space(), run_id).pending
    assert pending is not None
    assert pending.kind == run_commands.RUNNING
    assert any("Stopped the" in note for note in rewind(scene, "x").notes)
    assert stages_of(scene.state) == ["001-a.x@1"]
    assert (scene.run_dir / "stages" / "002-a.run@1" / "command.undone-1.log").exists()


def parallel(scene: Scene, *, ended: bool = False) -> None:
    """Work on a parallel step behind another one: `api` has ended and `web` is open, or both have ended."""
    branches = [{"id": name, "steps": [{"id": "look", "prompt": "Look."}]} for name in ("api", "web")]
    steps = [{"id": "make", "prompt": "Make it."}, {"id": "fan", "parallel": {"branches": branches}}]
    begun(scene, {"build": {"steps": [*steps, {"id": "sum", "prompt": "Sum it up."}]}})
    done(scene, "made")
    space, run_id = scene.space(), scene.run_dir.name
    for name in ("api", "web"):
        advance.next_step(space, run_id, branch=name)
        if name == "api" or ended:
            advance.done(space, run_id, branch=name, response="of a branch")


@each("named", ["fan.api.look", "build/fan.web.look", "003-build.fan.api.look@1", "4"])
@each("ended", [False, True])
def test_a_stage_of_a_branch_is_refused(scene: Scene, named: str, ended: bool) -> None:
    parallel(scene, ended=ended)
    before = (scene.run_dir / "state.json").read_bytes()
    with refused("IN_PARALLEL", hint=f"loomctl rewind {scene.handle} --to 002-build.fan@1"):
        rewind(scene, named)
    assert (scene.run_dir / "state.json").read_bytes() == before


@each("ended", [False, True])
@each("to", ["1", "2"])
def test_branches_go_with_their_step(scene: Scene, to: str, ended: bool) -> None:
    """Before the parallel step, or to its own beginning: what the branches answered is kept aside."""
    parallel(scene, ended=ended)
    assert rewind(scene, to).changed
    assert stages_of(scene.state) == ["001-build.make@1", "002-build.fan@1"][: int(to)]
    last = scene.state["steps"][-1]
    assert last["status"] == "in_progress"
    assert [one["status"] for one in last.get("branches", ())] == ["pending"] * (2 if to == "2" else 0)
    kept = scene.run_dir / "stages/003-build.fan.api.look@1/response.undone-1.md"
    assert kept.read_text(encoding="utf-8") == "of a branch"
    if to == "2":
        assert scene.event_names()[-1] == "stage.started"
        assert go_on(scene, branch="api").move.step == "build/fan.api.look"


# ---- Properties.


SLOW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_numbers = itertools.count()


@pytest.mark.slow
@SLOW
@given(phases=plans(), script=st.lists(answers, min_size=1, max_size=7), cut=st.integers(0, 100))
def test_going_on_after_a_rewind_ends_where_going_on_without_one_ends(
    tmp_path: Path, phases: Json, script: list[Json], cut: int
) -> None:
    """Any plan, any answers, back to any stage: with the same answers the run ends in the same state."""
    scene = Scene(tmp_path / str(next(_numbers)))
    try:
        begun(scene, phases, max_visits=3)
    except LoomError as error:
        assert error.code == "INVALID_WORKFLOW"  # noqa: PT017 - a drawn plan that check refuses
        return
    play(scene, scene.run_dir.name, script, 7)
    goal = essence(scene.state)
    names = [one["stage"] for one in stages.entries(scene.space().store.read(scene.run_dir.name))]
    to = names[cut % len(names)]
    rewind(scene, to)
    assert stages_of(scene.state)[-1] == to
    play(scene, scene.run_dir.name, script, 7)
    assert essence(scene.state) == goal
    found = context_history.of_run(scene.space().store.read(scene.run_dir.name))
    assert "unknown" not in {one.by for one in found}


@pytest.mark.parametrize("targets", [("1", "1"), ("1", "3"), ("4", "1")])
def test_two_processes_at_once(scene: Scene, targets: tuple[str, str]) -> None:
    """One comes first; the other finds the stage open, takes the run further back, or is told that it is gone."""
    worked(scene)
    command = [sys.executable, "-I", str(MAIN), "rewind", "--json", "--to"]
    children = [
        subprocess.Popen([*command, to], cwd=scene.root, env=scene.environ(), stdout=subprocess.PIPE) for to in targets
    ]
    answers = []
    for child in children:
        with child:
            answers.append(json.loads(child.communicate(timeout=60)[0]))
    assert stages_of(scene.state) == ["001-build.make@1"]
    assert scene.state["steps"][0]["status"] == "in_progress"
    codes = [answer["error"]["code"] for answer in answers if "error" in answer]
    changed = [answer["changed"] for answer in answers if "error" not in answer]
    if targets == ("1", "1"):
        assert (codes, sorted(changed)) == ([], [False, True])
    else:
        assert codes in ([], ["NO_SUCH_STAGE"])
        assert changed == [True] * (2 - len(codes))
    assert sorted(one["stage"] for one in events(scene, "stage.undone")) == [
        *("001-build.make@1", "002-build.review@1", "003-build.fix@1", "004-build.review@2"),
    ]
    assert [path.name for path in (scene.run_dir / "stages").rglob("response*")] == ["response.undone-1.md"] * 4
