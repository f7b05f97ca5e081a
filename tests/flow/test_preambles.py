"""What opens a step is gathered from the run's files; a conversation is told what is new to it (D46)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import advance, preambles, resume
from loomctl.flow.preambles import Preamble
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import stage_name
from loomctl.priming import memory_of_session
from loomctl.runs import context_values
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.project import Conversation, Workspace
from tests.helpers.errors import refused
from tests.helpers.scenes import OTHER, SESSION, Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import begin, read, status_of, take_back

STEPS: Json = {"build": {"steps": [{"id": f"s{n}", "prompt": f"Do the part {n}."} for n in range(6)]}}


class Usage(Conversation):
    """A conversation that holds what it was given, and in which tokens were used."""

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        return frozenset(slips)

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:  # noqa: ARG002
        cache = {"cache_creation_input_tokens": 12_000, "cache_read_input_tokens": 900_000}
        return {"models": ["claude-sonnet-4-5"], "input_tokens": 400, "output_tokens": 3_200, **cache}


class Forgetful(Conversation):
    """A conversation that was rewound: it holds nothing that it was given."""


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow(phases=STEPS)
    scene.begin()
    return scene


def done(scene: Scene, response: str, *, session: str | None = SESSION, **more: Any) -> None:
    conversation = more.pop("conversation", None)
    scene.let_go()
    advance.done(scene.space(session, conversation=conversation), scene.run_dir.name, response=response, **more)
    scene.let_go()


def of(scene: Scene, step: str | None = None, fidelity: str | None = None, **more: Any) -> Preamble:
    space = scene.space(more.pop("session", SESSION))
    return preambles.of(space, space.store.read(scene.run_dir.name), step, fidelity, **more)


def news(space: Workspace, scene: Scene) -> Preamble | None:
    return preambles.news(space, space.store.read(scene.run_dir.name))


def prompt(scene: Scene, stage: str) -> str:
    return read(scene, stage, "prompt.md")


def rows_of(text: str) -> dict[str, str]:
    return dict(line.strip("| ").split(" | ", 1) for line in text.split("\n") if line.startswith("| "))


# ---- What it tells.


def test_a_stages_prompt_is_its_preamble_and_its_text(begun: Scene) -> None:
    """`prompt.md` is assembled of both, and `loomctl debug preamble` prints the bytes that it begins with."""
    done(begun, "The first part is done.")
    made = of(begun)
    assert prompt(begun, "002-build.s1@1") == f"{made.text}\n\n## Step build/s1: s1\n\nDo the part 1."
    assert "- **build/s0**: succeeded\n  - Response:\n    ```\n    The first part is done.\n    ```" in made.text
    assert prompt(begun, "001-build.s0@1").startswith("# Loom: what happened before this step\n\nRun ")
    assert "Completed stages" not in prompt(begun, "001-build.s0@1")


def test_models_tokens_files_and_context_are_told(begun: Scene) -> None:
    """As status.json has them; what was read from a cache is not counted among the tokens that went in."""
    space = begun.space(conversation=Usage())
    answer = 'Half of it.\n{"outcome": "partially_succeeded", "context_updates": {"coverage": 72, "_x": 1}}'
    advance.done(space, begun.run_dir.name, response=answer)
    edit_status(begun, "001-build.s0@1", files_touched=["src/main.rs", "tests/api_test.rs"])
    text = of(begun).text
    assert "- **build/s0**: partially_succeeded\n  - Model: claude-sonnet-4-5, 12.4k tokens in / 3.2k out\n" in text
    assert "  - Files: src/main.rs, tests/api_test.rs\n" in text
    assert "| key | value |\n|---|---|\n| coverage | 72 |" in text
    assert not any(key in text for key in ("last_response", "| response."))


def test_a_large_response_and_a_large_value_are_named_by_a_file_that_holds_them(begun: Scene) -> None:  # D42
    large = "line of a long answer\n" * 6000
    done(begun, large + json.dumps({"context_updates": {"report": "y" * 200_000, "small": "z"}}))
    text = of(begun).text
    (line,) = [one for one in text.split("\n") if one.startswith("  - Response: See: ")]
    blob, _, rest = line.removeprefix("  - Response: See: ").partition(" (with line breaks: ")
    assert json.loads(Path(blob).read_text(encoding="utf-8")).startswith(large)
    assert Path(rest.removesuffix(")")).read_text(encoding="utf-8").startswith(large)
    rows = rows_of(text)
    assert json.loads(Path(rows["report"].split()[1]).read_text(encoding="utf-8")) == "y" * 200_000
    assert (rows["small"], str(begun.run_dir / "blobs") in blob) == ('"z"', True)


@each("named", ["box", "{project_root}/box"])
def test_a_step_in_a_folder_of_its_own_gets_copies_there(scene: Scene, named: str) -> None:
    """Where the store cannot be seen from a step's workdir, its blobs are materialised there (D42)."""
    scene.write("box/x.txt", "x")
    begin(scene, "a", {"id": "b", "workdir": named})
    report = scene.write("report.html", "<p>")
    done(scene, "x\n" * 60_000 + json.dumps({"context_updates": {"report": report.as_uri()}}))
    text = of(scene).text
    assert f"  - Response: See: {scene.root / 'box' / '.loom' / 'blobs'}" in text
    assert f"| report | See: {scene.root / 'box' / '.loom' / 'artifacts' / 'report.html'} |" in text
    assert f'| report | "{report.as_uri()}" |' in of(scene, "a").text


def test_a_visit_whose_answer_never_fitted_is_told_with_its_own(scene: Scene) -> None:  # D36
    step = {"id": "a", "output_schema": "routing", "output_retries": 0, "max_retries": 1}
    begin(scene, {**step, "result_handling": {"on_failure": "continue"}}, {"id": "b", "fidelity": "full"})
    done(scene, "FIRST " * 30_000 + '{"outcome": "failed", "failure_reason": "first"}')
    done(scene, 'SECOND answer {"outcome": }\n')
    first, second = of(scene).text.split("- **build/a**: failed")[1:]
    assert "  - Response: See: " in first
    assert "blobs" not in second
    assert 'SECOND answer {"outcome": }' in second


def test_everything_that_is_named_can_be_read_in_the_workdir(scene: Scene) -> None:
    """A response that was cut, one with its lines, a value that is too long for the table (D42)."""
    scene.write("box/x.txt", "x")
    begin(scene, "a", "b", {"id": "c", "workdir": "box", "fidelity": "summary:medium"})
    done(scene, "one line of it\n" * 40)
    done(scene, "large\n" * 30_000 + json.dumps({"context_updates": {"list": ["item"] * 200, "text": "l\n" * 500}}))
    text = of(scene).text
    assert str(scene.store) not in text
    room = scene.root / "box" / ".loom"
    named = [word.strip("()|") for word in text.split() if word.startswith(str(room))]
    assert len(named) == 5
    contents = {Path(one).suffix: Path(one).read_text(encoding="utf-8") for one in named if "/blobs/" in one}
    assert contents[".txt"] == "l\n" * 500
    assert (room / "stages" / "001-build.a@1" / "response.md").read_text() == "one line of it\n" * 40
    assert (room / "stages" / "002-build.b@1" / "response.md").stat().st_size > 180_000


def test_a_value_that_is_not_shown_whole_is_named_by_a_file(begun: Scene) -> None:
    """A text with its lines, else its JSON; one that is no longer than its reference is shown."""
    done(begun, json.dumps({"context_updates": {"text": "a line\n" * 900, "list": [7] * 900, "short": "s" * 80}}))
    rows = rows_of(of(begun, None, "summary:low").text)
    assert rows["short"] == json.dumps("s" * 80)
    assert rows["text"].endswith(".txt (a text of 6,300 characters)")
    assert Path(rows["text"].split()[1]).read_text(encoding="utf-8") == "a line\n" * 900
    assert json.loads(Path(rows["list"].split()[1]).read_text(encoding="utf-8")) == [7] * 900
    shutil.rmtree(begun.run_dir / "blobs")
    (begun.run_dir / "blobs").write_text("in the way")  # the file cannot be made, and that is said
    made = of(begun)
    assert rows_of(made.text)["text"] == "(a text of 6,300 characters)"
    assert any("context text: " in warning for warning in made.warnings)


@pytest.mark.slow
def test_no_copy_is_made_of_what_is_not_named(begun: Scene) -> None:
    done(begun, json.dumps({"context_updates": {f"k{n}": "y" * 5000 + str(n) for n in range(300)}}))
    stored, _ = context_values.stored(begun.space(), {"command.output": "all of it"})
    command = {"script": "make", "exit_code": 0, "output": stored["command.output"]}
    edit_status(begun, "001-build.s0@1", command=command)
    (begun.run_dir / "stages" / "001-build.s0@1" / "command.log").write_text("all of it", encoding="utf-8")
    shutil.rmtree(begun.run_dir / "blobs")  # what the open step's own preamble named
    text = of(begun).text
    assert "    all of it\n" in text
    copies = sorted(path.name for path in (begun.run_dir / "blobs").iterdir())
    assert copies == sorted(Path(one).name for one in text.split() if one.startswith(str(begun.run_dir / "blobs")))
    assert 0 < len(copies) < 50


def test_captured_assets_are_told(begun: Scene) -> None:
    done(begun, "done")
    assets = [{"path": "junit.xml", "bytes": 1}, {"path": "test-results/a.png"}, "odd", {"path": 3}]
    edit_status(begun, "001-build.s0@1", assets=assets)
    assert "  - Assets: junit.xml, test-results/a.png (loomctl show --assets)\n" in of(begun).text


def test_a_compact_preamble_has_each_stages_files_on_its_line(begun: Scene) -> None:
    for files in (["a.py", "b.py"], [f"f{n}" for n in range(9)], ["c.py"]):
        done(begun, "done")
        edit_status(begun, begun.state["steps"][-2]["stage"], files_touched=files)
    text = of(begun).text
    assert "- **build/s0**: succeeded; files: a.py, b.py\n- **build/s1**: succeeded; files: 9\n" in text
    assert "- **build/s2**: succeeded\n  - Files: c.py\n" in text


def test_a_commands_script_end_and_output_are_told(begun: Scene) -> None:
    """The tail of its log, and where all of it stands: in the log, and in the blob that holds it."""
    done(begun, "x")
    space = begun.space()
    output = "".join(f"line {n}\n" for n in range(300))
    stored, _ = context_values.stored(space, {"command.output": output})
    command = {"script": "cargo test 2>&1", "exit_code": 1, "timed_out": False, "output": stored["command.output"]}
    edit_status(begun, "001-build.s0@1", command=command)
    (begun.run_dir / "stages" / "001-build.s0@1" / "response.md").unlink()
    from_blob = of(begun).text
    assert "  - Script: `cargo test 2>&1`\n  - Ended: exit code 1\n  - Stdout: See: " in from_blob
    assert "    line 299\n    ```" in from_blob
    assert "line 100\n" not in from_blob
    log = begun.run_dir / "stages" / "001-build.s0@1" / "command.log"
    log.write_text(output, encoding="utf-8")
    assert f"(with line breaks: {log}) (the end:)" in of(begun).text
    log.write_text("all of it\n", encoding="utf-8")
    assert "  - Stdout:\n    ```\n    all of it\n    ```" in of(begun).text


def test_a_failed_visit_is_told_to_the_next_one(scene: Scene) -> None:
    begin(scene, {"id": "a", "max_retries": 1})
    done(scene, 'No.\n{"outcome": "failed", "failure_reason": "the port is taken"}')
    for words in ("step build/a, 2nd time", "- **build/a**: failed — the port is taken\n"):
        assert words in prompt(scene, "002-build.a@2")


@each(
    ("damage", "said"),
    [
        (lambda folder: (folder / "status.json").unlink(), "status.json is missing"),
        (lambda folder: (folder / "status.json").write_text("{"), "status.json: "),
        (lambda folder: (folder / "status.json").write_text("[]"), "status.json is not a JSON object"),
        (lambda folder: (folder / "status.json").write_text('{"usage": 3, "files_touched": [1], "command": []}'), ""),
        (lambda folder: (folder / "response.md").unlink(), ""),
        (lambda folder: ((folder / "response.md").unlink(), (folder / "response.md").mkdir()), ""),
        (lambda folder: ((folder / "response.md").unlink(), (folder / "response.md").symlink_to("/etc/passwd")), ""),
    ],
)
def test_what_is_missing_or_damaged_is_named_and_holds_nothing_up(begun: Scene, damage: Any, said: str) -> None:
    done(begun, "The first part is done.")
    damage(begun.run_dir / "stages" / "001-build.s0@1")
    made = of(begun)
    assert "- **build/s0**: succeeded" in made.text
    assert "root:" not in made.text
    if said:
        assert f"  - Not readable: {said}" in made.text
        assert any(said in warning for warning in made.warnings)
    done(begun, "the next part goes on")
    assert begun.state["current_step"] == "build/s2"


def test_a_blob_that_is_gone_is_named(begun: Scene) -> None:
    done(begun, json.dumps({"context_updates": {"report": "y" * 200_000}}))
    for folder in (begun.store / "blobs", begun.run_dir / "blobs"):
        shutil.rmtree(folder)
    made = of(begun)
    assert "| report | See: blob://sha256/" in made.text
    assert any("blob://sha256/" in warning for warning in made.warnings)


def test_tool_steps_are_told_where_the_fidelity_asks_for_them(begun: Scene) -> None:  # D48
    step = {"tool_name": "Bash", "observation": "Command executed", "success": True, "outcome_ref": None}
    first = {**step, "id": "1", "minimal_args": {"command": "make all"}}
    second = {**step, "id": "2", "minimal_args": {"command": "secret plan"}, "agent_id": "a1"}
    lines = [json.dumps(first), json.dumps(second)]
    (begun.run_dir / "tool_steps.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    for fidelity in ("full", "summary:high"):
        assert "## What tools did\n\n```\n`make all`" in of(begun, None, fidelity).text
        assert "secret plan" not in of(begun, None, fidelity).text
    assert "make all" not in of(begun, None, "summary:medium").text


@each(("step", "falls_back"), [({}, True), ({"output_schema": "routing"}, True), ({"kind": "prompt"}, False)])
def test_who_works_in_a_folder_of_its_own_is_told_so(scene: Scene, step: Json, falls_back: bool) -> None:
    scene.write("box/x.txt", "x")
    begin(scene, {"id": "a", "prompt": "A.", "workdir": "{project_root}/box", **step}, "b")
    told = prompt(scene, "001-build.a@1").partition("\n\nA.\n\n")[2]
    assert told.startswith(f"Work in `{scene.root}/box`.")
    assert ("Loom reads `status.json` there" in told) == falls_back
    done(scene, '{"outcome": "succeeded"}')
    assert "Work in" not in prompt(scene, "002-build.b@1")


# ---- Which step, which fidelity.


def test_the_step_is_the_open_one_unless_another_is_named(begun: Scene) -> None:
    assert of(begun).step_id == "build/s0"
    assert of(begun, "build/s4").step_id == of(begun, "s4").step_id == "build/s4"
    with refused("NO_SUCH_STEP", exit_code=3):
        of(begun, "nothing")


def test_the_fidelity_is_the_transitions_the_steps_the_workflows(scene: Scene) -> None:
    """And `compact` where none is named; one that is asked for by name holds whatever the plan says."""
    begin(scene, "a", {"id": "b", "fidelity": "truncate"}, default_fidelity="summary:low")
    for made, expected in (
        (of(scene, "a"), ("summary:low", "workflow")),
        (of(scene, "b"), ("truncate", "step")),
        (of(scene, "b", transition="summary:medium"), ("summary:medium", "transition")),
        (of(scene, "b", "summary:high"), ("summary:high", "asked")),
    ):
        assert (made.fidelity, made.source) == expected
    with pytest.raises(LoomError, match="unknown fidelity"):
        of(scene, "a", "most")


def test_what_is_no_fidelity_falls_through_with_a_warning(begun: Scene) -> None:
    begun.edit_plan(default_fidelity="everything")
    made = of(begun, transition="more")
    assert (made.fidelity, made.source, len(made.warnings)) == ("compact", "default", 2)
    assert "Warning: Loom ignores the unknown fidelity 'everything'" in made.text
    done(begun, "x")
    (started,) = [event for event in begun.events() if event["event"] == "stage.started"][1:]
    assert "'everything'" in started["properties"]["warnings"][0]


def test_full_after_a_resume_is_once_a_summary(scene: Scene) -> None:
    """For the first step of a session that came after the last stage had ended; it has seen what comes then."""
    scene.workflow(phases=STEPS, default_fidelity="full")
    scene.begin()
    done(scene, "first")
    resume.resume(scene.space(), scene.run_dir.name, take_over=True)  # its own run: it keeps full
    assert (of(scene).fidelity, of(scene).degraded) == ("full", None)
    resume.resume(scene.space(OTHER), scene.run_dir.name, take_over=True)
    made = of(scene, session=OTHER)
    assert (made.fidelity, made.degraded, made.source) == ("summary:high", "full", "workflow")
    assert "Detail: summary:high." in prompt(scene, "002-build.s1@1")
    done(scene, "second", session=OTHER)
    assert (of(scene, session=OTHER).fidelity, of(scene, session=OTHER).degraded) == ("full", None)
    assert "Detail: full." in prompt(scene, "003-build.s2@1")
    assert of(scene, None, "full", session=OTHER).fidelity == "full"


# ---- What is new to a conversation.


def test_a_conversation_is_not_told_what_it_did_itself(begun: Scene) -> None:
    space = begun.space()
    assert news(space, begun) is None
    done(begun, 'mine {"context_updates": {"host": 1}}', conversation=Usage())
    assert news(space, begun) is None
    done(begun, 'theirs {"context_updates": {"port": 1}}', session=OTHER)
    found = _there(news(space, begun))
    assert "- **build/s0**" not in found.text
    assert "(1 earlier step is in this conversation already)\n- **build/s1**: succeeded" in found.text
    assert ("| port | 1 |" in found.text, "| host |" in found.text) == (True, False)
    assert "| host | 1 |" in of(begun).text
    assert found.text.endswith(f"\n\nLoom slip {found.id}")
    assert preambles.note_told(space, found) == []
    assert news(space, begun) is None
    assert news(begun.space(conversation=Forgetful()), begun) == found


def test_after_a_compaction_everything_is_new(begun: Scene) -> None:  # D15
    done(begun, "mine")
    done(begun, "theirs", session=OTHER)
    space = begun.space()
    preambles.note_told(space, _there(news(space, begun)))
    assert news(space, begun) is None
    begun.hook("session-start", source="compact")
    later(begun)
    found = _there(news(space, begun))
    assert found.stages == 2
    assert "already" not in found.text


def test_a_stage_that_was_done_anew_is_new(begun: Scene) -> None:  # D31
    done(begun, "theirs", session=OTHER)
    told = _there(news(begun.space(), begun))
    preambles.note_told(begun.space(), told)
    steps = begun.state["steps"]
    steps[0]["completed_at"] = "2999-01-01T00:00:00Z"
    begun.edit(steps=steps)
    assert news(begun.space(), begun) is not None


def test_a_terminal_is_told_once_and_without_a_mark(begun: Scene) -> None:
    done(begun, "theirs", session=OTHER)
    space = begun.space("terminal-1", host=TERMINAL, conversation=Conversation())
    found = _there(news(space, begun))
    assert "Loom slip" not in found.text
    assert preambles.note_told(space, found) == []
    assert news(space, begun) is None


def later(scene: Scene) -> None:
    """Let the last compaction be later than all that was ended before, by more than a clock's second."""
    state = scene.state
    for record in state["sessions"]["session_history"]:
        for one in record.get("compactions", []):
            one["at"] = "2999-01-01T00:00:00Z"
    scene.edit(sessions=state["sessions"])


def test_what_a_session_was_told_is_of_one_run_and_can_be_forgotten(begun: Scene) -> None:
    space = begun.space()
    done(begun, "theirs", session=OTHER)
    told = _there(news(space, begun))
    preambles.note_told(space, told._replace(run_id="another"))
    assert news(space, begun) is not None
    preambles.note_told(space, told)
    assert "preamble" in space.local.primed(SESSION)
    memory_of_session.forget(space)
    assert "preamble" not in space.local.primed(SESSION)


def test_who_has_no_session_is_told_everything(begun: Scene) -> None:
    done(begun, "mine")
    space = begun.space(None)
    found = _there(news(space, begun))
    assert (found.stages, preambles.note_told(space, found)) == (1, [])


# ---- Bounds.


def long_run(scene: Scene, count: int) -> None:
    current = scene.state["steps"][-1]
    ended = []
    for rank in range(1, count + 1):
        stage = stage_name(rank, "build/s0", rank)
        end = {"status": "succeeded", "completed_at": current["started_at"]}
        entry = {**current, "visit": rank, "rank": rank, "stage": stage, **end}
        folder = scene.run_dir / "stages" / stage
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "response.md").write_text(f"response {rank}\n" * 50, encoding="utf-8")
        (folder / "status.json").write_text(json.dumps({"session_id": OTHER, "context_updates": {}}), encoding="utf-8")
        ended.append(entry)
    now = {**current, "visit": count + 1, "rank": count + 1, "stage": stage_name(count + 1, "build/s0", count + 1)}
    scene.edit(steps=[*ended, now])


@pytest.mark.parametrize("fidelity", [None, "full", "summary:high"])
def test_a_thousand_stages_cost_what_a_hundred_cost(
    begun: Scene, monkeypatch: pytest.MonkeyPatch, fidelity: str | None
) -> None:
    opened: list[str] = []
    real = os.open

    def counted(path: Any, *args: Any, **more: Any) -> int:
        opened.append(str(path))
        return real(path, *args, **more)

    counts, sizes = [], []
    for count in (100, 1000):
        long_run(begun, count)
        space = begun.space()
        run = space.store.read(begun.run_dir.name)
        opened.clear()
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", counted)
            sizes.append(len(preambles.of(space, run, None, fidelity).text))
        counts.append(len([path for path in opened if "/stages/" in path]))
    assert counts[0] == counts[1] <= 130
    assert abs(sizes[0] - sizes[1]) < 0.1 * sizes[0]


def test_nothing_is_written_by_a_preamble_of_small_things(begun: Scene) -> None:  # D38
    done(begun, "small")
    before = {str(path): path.stat().st_mtime_ns for path in begun.root.rglob("*")}
    of(begun)
    news(begun.space(OTHER), begun)
    assert {str(path): path.stat().st_mtime_ns for path in begun.root.rglob("*")} == before


def test_undone_stages_are_told_no_more(begun: Scene) -> None:
    done(begun, "wrong")
    take_back(begun)
    assert "Completed stages" not in of(begun).text
    assert begun.state["steps"][-1]["stage"] == "001-build.s0@1"


def edit_status(scene: Scene, stage: str, **changes: Any) -> None:
    path = scene.run_dir / "stages" / stage / "status.json"
    path.write_text(json.dumps({**status_of(scene, stage), **changes}), encoding="utf-8")


def _there(found: Preamble | None) -> Preamble:
    assert found is not None
    return found
