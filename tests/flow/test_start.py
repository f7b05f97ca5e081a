"""Starting a run: workflow → plan → state, bound to the session, primed, at its first step."""

from __future__ import annotations

import concurrent.futures
import json
import os
from pathlib import Path

import pytest

from loomctl.flow import start as starting
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs.machine import run_notes
from loomctl.runs.model import lease
from tests.helpers.errors import refused
from tests.helpers.scenes import OTHER, PHASES, SESSION, Json, Scene, artifact, fingerprint, handle
from tests.helpers.tables import each


def test_a_run_is_written_bound_known_and_primed(scene: Scene) -> None:
    """After the start everything that a run has is there, and the session is at its first step."""
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    begun = scene.begin()
    assert begun.run.run_id.startswith("shop-add-dark-mode-run-20")
    assert (begun.move.kind, begun.move.step) == ("step", "frame/ask")
    assert begun.slip is not None
    assert [entry.form for entry in begun.slip.loaded] == ["full"]
    state = scene.state
    assert (state["goal"], state["work_id"], state["status"]) == ("add dark mode", None, "in_progress")
    assert (state["current_phase"], state["current_step"]) == ("frame", "frame/ask")
    names = ["events.jsonl", "plan.json", "stages", "state.backup.json", "state.json"]
    assert sorted(path.name for path in scene.run_dir.iterdir()) == names
    ignored = (scene.store / ".gitignore").read_text().splitlines()  # but for the user's own files
    assert ignored[1:4] == ["*", "!.gitignore", "!config.yaml"]
    binding = scene.space().local.binding(SESSION)
    assert binding is not None
    assert binding["run_id"] == begun.run.run_id
    assert run_notes.is_known(begun.run.run_id, str(scene.store))
    assert scene.event_names()[:3] == ["run.created", "lease.taken", "session.started"]


@each(
    ("work", "work_id", "goal", "plan_id"),
    [
        ("258", "258", "", "shop-258"),
        ("#258", "258", "", "shop-258"),
        ("ABC-12", "ABC-12", "", "shop-abc-12"),
        ("add dark mode", None, "add dark mode", "shop-add-dark-mode"),
        ("  258  ", "258", "", "shop-258"),
        ("Füge einen Schalter hinzu", None, "Füge einen Schalter hinzu", "shop-fuge-einen-schalter-hinzu"),
        ("日本語", None, "日本語", "shop-work"),
        ("../../etc/passwd", None, "../../etc/passwd", "shop-etc-passwd"),
    ],
)
def test_work_is_an_id_or_a_goal(scene: Scene, work: str, work_id: str | None, goal: str, plan_id: str) -> None:
    """A tracker's id is stored as `work_id`, everything else is a goal; both name the plan."""
    scene.workflow()
    begun = scene.begin(work)
    assert (scene.state["work_id"], scene.state["goal"], scene.state["plan_id"]) == (work_id, goal, plan_id)
    assert begun.run.run_id.startswith(f"{plan_id}-run-")
    assert "hunter2" not in scene.begin("use https://me:hunter2hunter2@example.com/x").run.run_id  # D21


WITH_WHAT_IS_NOT_SUPPORTED: Json = {"frame": {"steps": [{"id": "ask", "prompt": "x", "steps_parallel": []}]}}


@each(
    ("work", "phases", "said"),
    [
        *((work, PHASES, "NO_WORK") for work in ("", "   ", "\n")),
        ("a goal", WITH_WHAT_IS_NOT_SUPPORTED, "NOT_SUPPORTED"),
        ("a goal", {"frame": {"enabled": False, **PHASES["frame"]}}, "every step is disabled or skipped"),
    ],
)
def test_a_run_needs_work_and_a_workflow_that_can_be_run(scene: Scene, work: str, phases: Json, said: str) -> None:
    scene.workflow(phases=phases)
    scene.space()
    before = fingerprint(scene.root)
    with pytest.raises(LoomError) as caught:
        scene.begin(work)
    assert said in str(caught.value)
    assert said != "NO_WORK" or caught.value.exit_code == EXIT_USAGE
    assert fingerprint(scene.root) == before


@each("how", ["option", "autonomy"])
def test_a_dry_run_writes_nothing(scene: Scene, how: str) -> None:
    """Neither the project nor the user's folder is touched, and the plan is there to be shown."""
    starting.start(scene.space(), "x", workflow="core", dry_run=True)
    assert not scene.store.exists()
    scene.workflow()
    home = Path(os.environ["HOME"])
    space = scene.space()
    before = (fingerprint(scene.root), fingerprint(home))
    more: Json = {"dry_run": True} if how == "option" else {"autonomy": "dry-run"}
    begun = starting.start(space, "x", workflow="tiny", **more)
    assert (begun.slip, len(begun.run.plan["phases"])) == (None, 3)
    assert (fingerprint(scene.root), fingerprint(home)) == before


def test_a_prompt_that_cannot_be_filled_stops_before_anything_is_written(scene: Scene) -> None:  # D8
    scene.workflow(phases={"frame": {"steps": [{"id": "ask", "prompt": "Fetch {work_id} for {{work_id}}."}]}})
    scene.space()
    before = fingerprint(scene.root)
    with refused("UNRESOLVED_PLACEHOLDER", what="frame/ask needs {work_id}"):
        scene.begin("a goal")
    assert fingerprint(scene.root) == before
    prompt = (Path(scene.begin("258").run.folder) / "stages" / "001-frame.ask@1" / "prompt.md").read_text()
    assert "Fetch 258 for {work_id}." in prompt


def test_two_starts_in_one_second_are_two_runs(scene: Scene) -> None:
    """Sessions that start the same work at once get a run each, whole and bound to its own session."""
    scene.workflow()

    def start(number: int) -> str:
        return starting.start(scene.space(f"session-{number}"), "same", workflow="tiny").run.run_id

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(start, range(8)))
    assert len(set(found)) == 8
    for number, run_id in enumerate(found):
        assert (scene.space().local.binding(f"session-{number}") or {})["run_id"] == run_id
        assert scene.state_of(scene.store / "runs" / run_id)["current_step"] == "frame/ask"


def test_a_step_that_only_primes_is_done_by_the_engine(scene: Scene) -> None:  # D7
    scene.write("late.md", "# Late\n")
    frame = {"pre_steps": [{"id": "reload", "prompt": "/loom:prime-context"}], **PHASES["frame"]}
    scene.workflow([artifact("late", "late.md", reload_triggers=["phase_start:ship"])], {**PHASES, "frame": frame})
    begun = scene.begin()
    assert begun.move.step == "frame/ask"
    assert begun.slip is not None
    assert [entry.id for entry in begun.slip.loaded] == ["late"]
    entries = [(entry["step_id"], entry["status"], entry["stage"]) for entry in scene.state["steps"]]
    assert entries == [("frame/reload", "succeeded", None), ("frame/ask", "in_progress", "001-frame.ask@1")]


def test_a_caller_without_a_session_starts_an_unbound_run(scene: Scene) -> None:
    scene.workflow()
    scene.begin(session=None)
    assert (scene.space().local.bindings(), scene.state["sessions"]["session_history"]) == ([], [])


def test_a_new_run_takes_the_session_over(scene: Scene) -> None:
    scene.workflow()
    first = scene.begin("first").run.run_id
    second = scene.begin("second")
    assert (scene.space().local.binding(SESSION) or {})["run_id"] == second.run.run_id
    assert any(handle(first, "first") in note for note in second.notes)


def test_a_folder_that_cannot_remember_is_said(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine's own state cannot be written the run starts all the same, and that is told (D23)."""
    monkeypatch.setenv("LOOM_STATE_HOME", "/dev/null/nowhere")
    scene.workflow()
    begun = scene.begin()
    assert any("could not remember the run" in note for note in begun.notes)
    assert not run_notes.is_known(begun.run.run_id, str(scene.store))


def test_a_linked_worktree_has_its_own_root_in_the_main_store(scene: Scene) -> None:
    """A run that a worktree starts stands in the main checkout's store, with the worktree as project root."""
    scene.workflow()
    tree = scene.root.parent / "tree"
    tree.mkdir()
    git_folder = scene.root / ".git" / "worktrees" / "tree"
    git_folder.mkdir(parents=True)
    (git_folder / "commondir").write_text("../..\n")
    (git_folder / "gitdir").write_text(f"{tree / '.git'}\n")
    (tree / ".git").write_text(f"gitdir: {git_folder}\n")
    space = scene.space(OTHER, cwd=tree)
    begun = starting.start(space, "x", workflow="tiny")
    assert (space.project.root, begun.run.folder) == (str(tree), str(scene.run_dir))
    assert not (tree / ".loom").exists()
    assert scene.state["sessions"]["session_history"][0]["environment"]["project_root"] == str(tree)


def test_a_plan_is_frozen_with_its_sources(scene: Scene) -> None:
    """The plan names every file it was made of, by hash, and none by this machine's path (D9)."""
    scene.workflow(extends="core")
    scene.begin()
    plan = json.loads((scene.run_dir / "plan.json").read_text())
    assert [source["id"] for source in plan["sources"]] == ["base", "core", "tiny"]
    assert all(len(source["sha256"]) == 64 for source in plan["sources"])
    assert str(scene.root) not in (scene.run_dir / "plan.json").read_text()


def test_another_run_on_the_same_work_is_named_with_the_way_to_take_it(scene: Scene) -> None:
    scene.workflow()
    first = scene.begin("add dark mode").run.run_id
    way = f"Another run on the same work is open. To continue it: loomctl resume {handle(first)}"
    assert f"{way} --take-over" in scene.begin("add dark mode", session=OTHER).notes
    scene.space().store.update(first, lambda state: (lease.released(state, clock.now()), []))
    assert way in scene.begin("add dark mode", session="third").notes
