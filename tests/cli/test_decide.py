"""`loomctl approve`, `reject` and `choose` as a person calls them in a terminal, and as a script reads them."""

import json
import shlex
import subprocess
import sys

import pytest

from tests.cli.conftest import Cli
from tests.helpers.scenes import MAIN, OTHER, Json, Scene, handle
from tests.helpers.tables import each
from tests.helpers.texts import holds

WAYS: list[Json] = [{"to": "end", "label": "[A] Approve"}, {"to": "fix", "label": "[F] Fix"}]


@pytest.fixture
def waiting(scene: Scene, cli: Cli) -> Scene:
    gate = {"id": "gate", "kind": "human", "prompt": "Is it good?", "transitions": WAYS}
    fix = {"id": "fix", "prompt": "Mend it.", "transitions": [{"to": "gate"}]}
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make it."}, gate, fix]}})
    assert cli("run", "add dark mode", "--workflow", "tiny").code == 0
    assert cli("done", given="It is made.").code == 0
    return scene


def test_an_assistant_is_told_who_decides(waiting: Scene, cli: Cli) -> None:
    told = cli("next").stdout
    run_id = waiting.run_dir.name
    assert told.startswith(
        "The run waits for the user at build/gate: Is it good? ([A] Approve · [F] Fix). The user decides: "
    )
    assert "Only the user decides, with one of these commands. An assistant shows them and does not run them:" in told
    assert (
        f"\n    loomctl choose '[A] Approve' {handle(run_id)}\n    loomctl choose '[F] Fix' {handle(run_id)}\n" in told
    )
    document = cli("next", "--json").json
    assert (document["next"]["kind"], document["next"]["choices"]) == ("human", ["[A] Approve", "[F] Fix"])
    assert document["status"] == "awaiting_feedback"
    assert document["pending_approvals"][0]["choices"] == ["[A] Approve", "[F] Fix"]


def test_status_shows_every_choice_and_prefers_none(waiting: Scene, cli: Cli) -> None:
    commands = [f"loomctl choose '{label}' {waiting.handle}" for label in ("[A] Approve", "[F] Fix")]
    told = cli("status", "--json").json
    assert (told["waits"]["for"], told["next"], told["choices"]) == ("user", None, commands)
    lines = cli("status").stdout.splitlines()
    at = lines.index(f"next      {commands[0]}")
    assert lines[at + 1] == f"       or {commands[1]}"
    assert cli("statusline").stdout.rstrip().endswith("next: choose")


def test_choices_stay_in_their_column_of_a_narrow_screen(
    scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their keys, which are never cut; the labels stand behind as far as there is room."""
    labels = ["[A] Approve it as it is, and ship it today", "[F] Fix what the review found", "[S] Stop all of it"]
    ways = [{"to": "end", "label": label} for label in labels]
    gate = {"id": "gate", "kind": "human", "prompt": "Is it good?", "transitions": ways}
    scene.workflow(phases={"build": {"steps": [gate]}})
    assert cli("run", "add dark mode", "--workflow", "tiny").code == 0
    monkeypatch.setenv("COLUMNS", "60")
    lines = cli("status").stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("next "))
    for line, label, key in zip(lines[at : at + 3], labels, "afs", strict=True):
        head = f"loomctl choose {key} {scene.handle} # "
        assert line[10:].startswith(head)
        assert label.startswith(line[10 + len(head) :].rstrip("…"))
    assert len(lines) <= 19
    assert cli("choose", "s", "--by", "Ada").code == 0


@each(
    "words, told",
    [
        (
            ["choose", "f"],
            "Loom: build/gate: [F] Fix by Ada. Next: build/fix, because the choice is “[F] Fix”\nTell the",
        ),
        (["choose", "f", "--note", "slow"], "Loom: build/gate: [F] Fix by Ada: slow. Next: build/fix"),
        (["approve"], "Loom: build/gate: [A] Approve by Ada. The run is completed.\n"),
        (["reject", "--reason", "never"], "Loom: build/gate: rejected by Ada: never. The run failed."),
    ],
)
@pytest.mark.usefixtures("waiting")
def test_a_person_decides_in_a_terminal(cli: Cli, words: list[str], told: str) -> None:
    ended = cli(*words, "--by", "Ada", session=None)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith(told)
    assert "Mend it." not in ended.stdout


@each("words", [["choose", "f", "--note", "slow"], ["approve"], ["reject", "--note", "it's late"]])
def test_of_several_runs_the_hint_is_the_same_verb_with_the_one_that_waits(scene: Scene, words: list[str]) -> None:
    """None is guessed; where none waits, or two do, none is offered."""
    gate = {"id": "gate", "kind": "human", "prompt": "Good?", "transitions": WAYS[:1]}
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make it."}, gate]}})
    run_ids = [scene.begin(work, session=OTHER).run.run_id for work in ("first", "second", "third")]
    refused = scene.loomctl(*words, session=None).stderr
    holds(refused, "AMBIGUOUS_RUN: 3 runs could be meant", "hint: loomctl show ", but=("alone waits",))
    for count, run_id in enumerate(run_ids[:0:-1]):
        scene.loomctl("resume", run_id, session=OTHER).ends()
        scene.loomctl("done", session=OTHER, given="Made.").ends()
        state = scene.state_of(scene.store / "runs" / run_id)
        assert state["status"] == "awaiting_feedback"
        at = 2 if words[0] == "choose" else 1
        line = shlex.join(["loomctl", *words[:at], handle(state), *words[at:]])
        refused = scene.loomctl(*words, session=None).stderr
        assert (f"\n  hint: {line}\n" in refused) is (count == 0), refused
    assert {scene.state_of(folder)["status"] for folder in scene.run_dirs} == {"in_progress", "awaiting_feedback"}


@each("words", [["approve"], ["reject", "--note", "late"]])
@each("break_both", [False, True])
def test_a_state_that_cannot_be_read_leaves_the_question_which_run_is_meant(
    scene: Scene, words: list[str], break_both: bool
) -> None:
    """Neither its own error comes instead, nor is the other one offered: the broken one may be meant."""
    gate = {"id": "gate", "kind": "human", "prompt": "Good?", "transitions": WAYS[:1]}
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make it."}, gate]}})
    for work in ("first", "second"):
        scene.begin(work, session=OTHER)
        scene.loomctl("done", session=OTHER, given="Made.").ends()
    for folder in scene.run_dirs[: 1 + break_both]:
        state = scene.state_of(folder)
        state["steps"][-1]["visit"] = "x"
        (folder / "state.json").write_text(json.dumps(state))
    refused = scene.loomctl(*words, session=None).stderr
    holds(refused, "AMBIGUOUS_RUN: 2 runs could be meant", but=("alone waits", "BAD_STATE"))


def test_a_person_who_drives_the_run_in_a_terminal_is_sent_on_there(waiting: Scene) -> None:
    waiting.loomctl("resume", "--take-over", session=None)
    told = waiting.loomctl("choose", "fix", session=None).ends().stdout
    assert told.splitlines()[-1] == "To go on: loomctl next"


@pytest.mark.usefixtures("waiting")
def test_a_session_that_drives_the_run_goes_on_at_once_and_is_told_what_was_decided_elsewhere(cli: Cli) -> None:
    """Its user was asked by its host: the next step is printed, and may be ended."""
    told = cli("choose", "fix", "--by", "Ada", "--note", "slow").stdout
    assert told.startswith(
        "✓ build/gate: succeeded (002-build.gate@1): [F] Fix by Ada: slow\n"
        "Next: build/fix, because the choice is “[F] Fix”\n"
    )
    assert "Mend it." in told
    assert cli("done", given="Mended.").code == 0
    cli("choose", "fix", "--by", "Ada", "--note", "two lines would be kinder", session=None)
    told = cli("next").stdout
    assert told.startswith("Next: build/fix, because the choice is “[F] Fix”\n")
    assert cli("next").stdout.startswith("Next: build/fix\n")
    holds(told, "[F] Fix by Ada: two lines would be kinder", "Mend it.")


@each("verb", ["approve", "choose", "reject"])
@pytest.mark.usefixtures("waiting")
def test_a_script_reads_what_was_decided(cli: Cli, verb: str) -> None:
    words = [verb, "fix"] if verb == "choose" else [verb]
    document = cli(*words, "--json", session=None).json
    assert (document["stage"], document["outcome"]) == (
        "002-build.gate@1",
        "failed" if verb == "reject" else "succeeded",
    )
    assert document["way"]["step_id"] == ("build/fix" if verb == "choose" else None)
    assert document["pending_approvals"] == []


def test_two_persons_decide_at_once(waiting: Scene) -> None:
    command = [sys.executable, "-I", str(MAIN)]
    environ = {key: value for key, value in waiting.environ(None).items() if key != "CLAUDE_CODE_SESSION_ID"}
    both = [
        subprocess.Popen(
            [*command, *words, waiting.run_dir.name, "--json"], cwd=waiting.root, env=environ,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        for words in (["choose", "fix", "--by", "Ada"], ["choose", "approve", "--by", "Bea"])
    ]  # fmt: skip
    said = [json.loads(one.communicate(timeout=60)[0]) for one in both]
    codes = [one.returncode for one in both]
    assert sorted(code == 0 for code in codes) == [False, True]
    error = next(one["error"] for one in said if "error" in one)
    assert error["code"] in ("DECIDED_MEANWHILE", "NOTHING_TO_CHOOSE", "BAD_STATUS")
    (record,) = waiting.state["approvals"]
    assert record["by"] == ("Ada" if codes[0] == 0 else "Bea")
    assert len([one for one in waiting.event_names() if one == "approval.chosen"]) == 1


def test_a_label_that_looks_like_an_option(scene: Scene, cli: Cli) -> None:
    ways: list[Json] = [{"to": "end", "label": "--now"}, {"to": "end", "label": "it's late"}]
    scene.workflow(phases={"a": {"steps": [{"id": "gate", "kind": "human", "prompt": "When?", "transitions": ways}]}})
    cli("run", "x", "--workflow", "tiny")
    told = cli("next").stdout
    run_id = scene.run_dir.name
    holds(told, f"    loomctl choose -- '--now' {scene.handle}\n", f"    loomctl choose 'it'\\''s late' {scene.handle}")
    assert cli("choose", "--", "--now", run_id, session=None).code == 0


def test_a_simulation_tells_of_its_gates(scene: Scene, cli: Cli) -> None:
    gate = {"id": "gate", "kind": "human", "prompt": "Is it good?", "transitions": WAYS}
    fix: Json = {
        "id": "fix",
        "prompt": "Mend it.",
        "transitions": [{"to": "gate", "condition": "context['human.gate.label'] == '[F] Fix'"}, {"to": "end"}],
    }
    scene.workflow(phases={"build": {"steps": [gate, fix]}})
    scene.write("said.json", json.dumps({"gate": [{"preferred_next_label": one} for one in ("f", "approve", "x")]}))
    document = cli("simulate", "tiny", "--outcomes", "said.json", "--json").json
    assert [one["step_id"] for one in document["stages"]] == ["build/gate", "build/fix", "build/gate"]
    assert [(one["id"], one["choices"]) for one in document["approvals"]] == [
        ("human:001-build.gate@1", ["[A] Approve", "[F] Fix"]),
        ("human:003-build.gate@2", ["[A] Approve", "[F] Fix"]),
    ]
    assert document["context"]["human.gate.label"] == "[A] Approve"
    assert [one["code"] for one in document["warnings"]] == ["NOT_PLAYED"]
    told = cli("simulate", "tiny").stdout
    assert "a person would decide: human:001-build.gate@1: Is it good? ([A] Approve · [F] Fix)" in told
    scene.write("said.json", json.dumps({"gate": {"preferred_next_label": "nope"}}))
    warned = cli("simulate", "tiny", "--outcomes", "said.json", "--json").json["warnings"]
    assert [(one["code"], one["where"]) for one in warned] == [("UNKNOWN_LABEL", "build/gate")]


DOT = """digraph gate {
    start [shape=Mdiamond]; exit [shape=Msquare];
    make [prompt="Make it."];
    gate [shape=hexagon, label="Ship it?", prompt="Is it good?"];
    start -> make -> gate;
    gate -> exit [label="[A] Approve"];
    gate -> make [label="[F] Fix"];
}
"""


def test_a_hexagon_is_a_gate_there_and_back(scene: Scene, cli: Cli) -> None:
    scene.write(".loom/workflows/gate.dot", DOT)
    assert cli("check", ".loom/workflows/gate.dot").code == 0
    drawn = cli("graph", "gate", "--format", "dot").stdout
    assert '"gate" [shape="hexagon", label="Ship it?", prompt="Is it good?"]' in drawn
    scene.write(".loom/workflows/again.dot", drawn.replace('digraph "gate"', 'digraph "again"'))
    assert cli("check", ".loom/workflows/again.dot").code == 0
    assert cli("graph", "again", "--format", "dot").stdout.replace('digraph "again"', 'digraph "gate"') == drawn
    assert '{{"Ship it?"}}' in cli("graph", "gate", "--format", "mermaid").stdout
    cli("run", "x", "--workflow", "gate")
    cli("done", given="made")
    assert scene.state["pending_approvals"][0]["choices"] == ["[A] Approve", "[F] Fix"]


@each(
    "ways, said",
    [
        ([{"to": "end"}], None),
        ([{"to": "end"}, {"to": "a", "on_failure": True}], None),
        ([{"to": "end", "label": "Yes"}, {"to": "a", "label": "No"}], None),
        ([{"to": "end"}, {"to": "a"}], "NO_LABEL"),
        ([{"to": "end", "label": "Yes"}, {"to": "a"}], "NO_LABEL"),
        ([{"to": "end", "label": "Yes"}, {"to": "a", "label": "yes"}], "SAME_LABEL"),
        ([{"to": "end", "label": "Yes"}, {"to": "a", "label": "No", "condition": "context.x"}], "LABEL_UNUSED"),
    ],
)
def test_check_finds_ways_that_nobody_can_choose(scene: Scene, cli: Cli, ways: list[Json], said: str | None) -> None:
    gate = {"id": "gate", "kind": "human", "prompt": "Well?", "transitions": ways}
    scene.workflow(phases={"a": {"steps": [{"id": "a", "prompt": "A."}, gate]}})
    found = cli("check", ".loom/workflows/tiny.json", "--json").stdout
    codes = {word for word in ("NO_LABEL", "SAME_LABEL", "LABEL_UNUSED") if f'"{word}"' in found}
    assert codes == ({said} if said else set())
