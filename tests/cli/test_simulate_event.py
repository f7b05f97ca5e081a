"""`loomctl simulate --event`: a workflow's artifacts tested as a project's CI tests them."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import advance
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal, at_a_terminal, loomctl
from tests.helpers.scenes import OTHER, SESSION, Ended, Json, Scene, artifact, fingerprint
from tests.helpers.tables import each
from tests.helpers.texts import holds

SPEC = artifact("spec", "specs/spec.md", reload_triggers=["session_start"])
NOTES = artifact("notes", "notes.md", required=False, reload_triggers=["compaction_detected"])
GUIDE = artifact("guide", "guide.md", required=False, reload_triggers=["phase_start:build"])
FILES = {"specs/spec.md": "# Spec\n\nIt is heliotrope.\n", "notes.md": "amber\n", "guide.md": "cobalt\n"}
WORDS = {"spec": "heliotrope", "notes": "amber", "guide": "cobalt"}


@pytest.fixture(autouse=True)
def project(scene: Scene) -> None:
    scene.workflow([SPEC, NOTES, GUIDE])
    for path, text in FILES.items():
        scene.write(path, text)


@each(
    "event, given",
    [
        ("startup", {"spec"}),
        ("resume", {"spec"}),
        ("clear", {"spec"}),
        ("fork", {"spec"}),
        ("compact", {"spec", "notes"}),
        ("phase_start:build", {"guide"}),
        ("phase_transition:frame->build", {"guide"}),
        ("manual", {"spec", "notes", "guide"}),
    ],
)
def test_each_event_gives_what_its_triggers_say(cli: Cli, scene: Scene, event: str, given: set[str]) -> None:
    cli("simulate", "tiny")  # every command compiles the settings
    before = fingerprint(scene.root)
    ended = cli("simulate", "tiny", "--event", event, session=None).ends()
    assert {name for name, word in WORDS.items() if word in ended.stdout} == given
    assert ended.stdout.splitlines()[-1].startswith("Loom slip ")
    assert not ended.stdout.endswith("\n")
    assert (cli("simulate", "tiny", "--event", event), fingerprint(scene.root)) == (ended, before)


def test_the_run_stands_where_it_is_told_or_where_outcomes_lead(cli: Cli, scene: Scene) -> None:
    holds(cli("simulate", "tiny", "--event", "compact").stdout, "Ask what is wanted.", but=("Done so far:",))
    later = cli("simulate", "tiny", "--event", "compact", "--at", "polish").stdout
    holds(later, "Polish it.", "- frame/ask: succeeded\n- build/make: succeeded")
    assert cli("simulate", "tiny", "--event", "compact", "--at", "build/polish@1").stdout == later
    ended = cli("simulate", "tiny", "--event", "compact", "--json")
    document: dict[str, Any] = json.loads(ended.stdout)
    assert document["text"] == cli("simulate", "tiny", "--event", "compact").stdout
    assert document["size"]["utf8_bytes"] == len(document["text"].encode())
    assert document["line"].startswith(f"Loom: run {document['slip']['handle']}, frame/ask, 2 artifacts")
    assert {one["id"]: one["form"] for one in document["slip"]["artifacts"]} == {
        "spec": "full",
        "notes": "full",
        "guide": None,
    }
    scene.workflow([SPEC], autonomy={"level": "guarded", "require_approval_for": ["ship"]})
    told = cli("simulate", "tiny", "--event", "compact", "--at", "send")
    assert "approval assumed: phase:ship" in told.stderr
    assert "approval taken" not in told.stdout
    document = cli("simulate", "tiny", "--event", "compact", "--at", "send", "--json").json
    assert [one["id"] for one in document["approvals"]] == ["phase:ship"]
    assert cli("simulate", "tiny", "--event", "compact", "--at", "make", "--json").json["approvals"] == []
    steps = [
        {
            "id": "review",
            "prompt": "Review.",
            "transitions": [{"to": "fix", "label": "fix"}, {"to": "end", "weight": 1}],
        },
        {"id": "fix", "prompt": "Fix it.", "transitions": [{"to": "review"}]},
    ]
    wanted = artifact("report", "r.md", condition="state.context.coverage > 80")
    scene.workflow(conditional=[wanted], phases={"build": {"steps": steps}}, name="loop")
    scene.write("r.md", "vermilion")
    said = json.dumps({"review": [{"preferred_next_label": "fix", "context_updates": {"coverage": 81}}]})
    asked = ["simulate", "loop", "--event", "compact", "--outcomes", "-"]
    assert "vermilion" not in cli(*asked, given=said).stdout
    assert "(2nd time)" in (there := cli(*asked, "--at", "review@2", given=said).stdout)
    assert "vermilion" in there
    assert "vermilion" in cli(*asked, "--context", '{"coverage": 90}', given="{}").stdout


def test_a_phase_that_starts_is_the_phase_where_the_run_stands(cli: Cli, scene: Scene) -> None:
    """So its artifacts are required there; elsewhere, where nobody meets the event, a warning says so."""
    checks = artifact("checks", "checks.md", reload_triggers=["phase_start:ship"])
    scene.workflow([SPEC], by_phase={"ship": [checks]})
    assert cli("simulate", "tiny", "--event", "phase_start:ship").code == 4
    scene.write("checks.md", "vermilion")
    for event in ("phase_start:ship", "phase_transition:build->ship"):
        ended = cli("simulate", "tiny", "--event", event)
        assert (ended.code, "vermilion" in ended.stdout) == (0, True)
        assert "ANOTHER_PHASE" not in ended.stderr
    odd = cli("simulate", "tiny", "--event", "phase_start:ship", "--at", "make")
    assert "ANOTHER_PHASE: phase_start:ship happens when a run enters ship, and this one is in build" in odd.stderr


def test_on_a_screen_the_peoples_line_stands_by_itself(scene: Scene, cli: Cli) -> None:
    scene.write("spec.md", "vermilion")
    scene.workflow([artifact("spec", "spec.md")])
    words = ["simulate", "tiny", "--event", "startup"]
    given = cli(*words)
    assert given.stdout
    assert not given.stdout.endswith("\n")
    assert not given.stderr.startswith("\n")
    assert at_a_terminal(scene, *words) == f"{given.stdout}\n{given.stderr}"
    terminal = Terminal(loomctl(*words), scene, streams=("stdin", "stderr"))
    told = terminal.child.stdout
    assert told is not None
    with told:
        assert told.read().decode() == given.stdout
    assert terminal.end() == given.stderr


def test_a_step_that_the_play_never_comes_to_is_told_with_the_way_it_went(cli: Cli, scene: Scene) -> None:
    steps = [
        {"id": "make", "prompt": "Make it."},
        {
            "id": "review",
            "prompt": "Review.",
            "transitions": [{"to": "fix", "label": "fix"}, {"to": "end", "weight": 1}],
        },
        {"id": "fix", "prompt": "Fix it.", "transitions": [{"to": "review"}]},
    ]
    scene.workflow(phases={"build": {"steps": steps}}, name="loop")
    context = '{"a b": 1}'
    asked = ["simulate", "loop", "--context", context, "--event", "compact", "--work-id", "7", "--at", "build/fix"]
    missed = cli(*asked)
    assert (missed.code, missed.stdout) == (1, "")
    assert "NOT_REACHED: the run never comes to build/fix" in missed.stderr
    assert "it went build/make@1, build/review@1 and completed there" in missed.stderr
    hint = shlex.split(missed.stderr.rpartition("hint: ")[2])
    assert hint == ["loomctl", "simulate", "loop", "--context", context]
    assert cli(*hint[1:]).code == 0
    scene.write("often.json", json.dumps({"review": [*[{"preferred_next_label": "fix"}] * 6, {}]}))
    often = cli("simulate", "loop", "--outcomes", "often.json", "--event", "compact", "--at", "make@2").stderr
    holds(often, "it went 6 steps, build/fix@3, build/review@4, ", "build/review@7 and completed there")
    scene.write("fails.json", json.dumps({"make": [{"outcome": "failed"}]}))
    fails = cli("simulate", "loop", "--outcomes", "fails.json", "--event", "compact", "--at", "fix").stderr
    assert "it went build/make@1 and failed there" in fails


def test_a_human_step_waits_and_a_parallel_step_is_open(cli: Cli, scene: Scene) -> None:
    branches = [{"id": "api", "steps": [{"id": "look", "prompt": "Look at it."}]}]
    steps = [
        {"id": "ask", "kind": "human", "prompt": "Is it amber?", "transitions": [{"to": "fan", "label": "yes"}]},
        {"id": "fan", "prompt": "Look around.", "parallel": {"branches": branches}},
    ]
    scene.workflow([], {"build": {"steps": steps}}, name="gated")
    holds(cli("simulate", "gated", "--event", "resume").stdout, "awaiting_feedback", "Is it amber?")
    fan = cli(
        "simulate", "gated", "--event", "resume", "--at", "fan", "--outcomes", "-",
        given='{"ask": {"preferred_next_label": "yes"}}',
    )  # fmt: skip
    assert "step build/fan" in fan.stdout


def test_placeholders_are_filled_and_a_missing_required_artifact_is_exit_code_4(cli: Cli, scene: Scene) -> None:
    scene.workflow([artifact("spec", "specs/{work_id}.md")], name="by-item")
    scene.write("specs/258.md", "ochre")
    assert "ochre" in cli("simulate", "by-item", "--event", "startup", "--work-id", "#258").stdout
    assert cli("simulate", "by-item", "--event", "startup").code == 4
    scene.workflow([artifact("plan", "{plan_path}", type="json")], name="own")
    assert "frame/ask" in cli("simulate", "own", "--event", "compact").stdout.partition("```")[2]
    (scene.root / "notes.md").unlink()
    assert cli("simulate", "tiny", "--event", "compact").code == 0
    (scene.root / "specs" / "spec.md").unlink()
    ended = cli("simulate", "tiny", "--event", "compact").ends(4)
    assert "Loom could not load the required artifact spec (missing" in ended.stdout
    (command,) = re.findall(r"correct its path \(`(.*?)`", ended.stdout)
    assert shlex.split(command)[:2] == ["loomctl", "check"]  # a path with a space is one word
    assert len(shlex.split(command)) == 3


@each("event", ["startup", "resume", "clear", "fork", "compact", "manual"])
def test_of_a_run_as_it_stands(cli: Cli, scene: Scene, event: str) -> None:
    """The hook prints the same, and the simulation leaves the run and what this machine keeps as they were."""
    scene.begin()
    before = fingerprint(scene.store)
    ended = cli("simulate", "--event", event, session=None).ends()
    assert fingerprint(scene.store) == before
    if event in ("resume", "compact"):
        assert scene.hook("session-start", source=event).context == ended.stdout
    # A new session and a fork do not drive; nor does one after a clear whose process nobody knows to be the driver's.
    others = event in ("startup", "clear", "fork") and "Loom slip" in ended.stdout
    assert ("does not drive the run" in ended.stdout) == others


def test_a_step_that_is_closing_is_not_guessed(cli: Cli, scene: Scene) -> None:
    """A start would end it with what the transcript holds then; after a compaction the turn goes on."""
    scene.begin()
    assert cli("done").code == 0
    ended = cli("simulate", "--event", "resume")
    assert (ended.code, ended.stdout) == (2, "")
    assert "STEP_CLOSING" in ended.stderr
    assert "as your final message" in cli("simulate", "--event", "compact").stdout


@each(
    "words, what",
    [
        (["simulate"], "name a WORKFLOW"),
        (["simulate", "--event", "compact", "--goal", "x"], "leave out --goal"),
        (["simulate", "--event", "compact", "--at", "ask"], "leave out --at"),
        (["simulate", "tiny", "--event", "compact", "--run", "x"], "leave out --run"),
        (["simulate", "tiny", "--at", "ask"], "leave out --at"),
        (["simulate", "tiny", "--event", "lunch"], "unknown event 'lunch'"),
        (["simulate", "tiny", "--event", "phase_start:bulid"], "no phase 'bulid'"),
        (["simulate", "--event", "phase_transition:frame->bulid"], "no phase 'bulid'"),
        (["simulate", "tiny", "--event", "compact", "--at", "nowhere"], "no step 'nowhere'"),
        (["simulate", "tiny", "--event", "compact", "--at", "ask@0"], "no step 'ask@0'"),
        (["simulate", "--event", "resume", "--session", "../x"], "session id"),
    ],
)
def test_what_cannot_be_asked(cli: Cli, scene: Scene, words: list[str], what: str) -> None:
    scene.begin()
    ended: Ended = cli(*words, session=SESSION)
    assert ended.code == 2
    assert what in ended.stderr


def waiting(scene: Scene, number: int, output: str, session: str = SESSION) -> None:
    """Let a tool call wait in the spool, as the launcher leaves it."""
    given = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
    told: Json = {"session_id": session, "cwd": str(scene.root), "hook_event_name": "PostToolUse", "tool_name": "Bash"}
    told |= {"tool_input": {"command": f"make {number}"}, "tool_response": given, "tool_use_id": f"toolu_{number}"}
    folder = scene.store / "local" / "spool"
    (folder / f"{session}-{number}.json").write_text(json.dumps(told))


def test_nothing_at_all_is_written(cli: Cli, scene: Scene, user_folders: Path) -> None:
    scene.write(".loom/config.yaml", "restore_budget: 9000\n")
    scene.begin()
    advance.done(scene.space(), scene.run_dir.name, response="Asked.")
    waiting(scene, 1, "x" * 20_000)
    waiting(scene, 2, "all pass")
    waiting(scene, 3, "of nobody", OTHER)
    hooks = scene.store / "local" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "stop").write_text(f"9.9.9 {SESSION} x\n")
    for name in ("runs.json", "open-runs.json", "config.json"):
        (scene.store / "local" / name).unlink(missing_ok=True)
    before = fingerprint(scene.root), fingerprint(user_folders)
    for words in (["--event", "compact"], ["--event", "resume", "--json"], ["tiny", "--event", "compact"]):
        for session in (SESSION, None):
            assert cli("simulate", *words, session=session).code == 0
            assert (fingerprint(scene.root), fingerprint(user_folders)) == before
    text = cli("simulate", "--event", "compact", session=None).stdout
    assert "make 2" in text
    assert scene.hook("session-start", source="compact").context == text
