"""What a hook process imports: the standard library alone, and little of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from loomctl.flow import advance
from tests.helpers.scenes import MAIN, OTHER, SESSION, Json, Scene, TranscriptFile, artifact

# What costs too much, or is not there before any set-up.
FORBIDDEN = {
    *("click", "yaml", "jsonschema", "jsonpath_ng", "psutil", "quickjs", "loomctl.cli"),
    *("importlib.metadata", "tempfile", "logging", "dataclasses", "pathlib", "hashlib", "asyncio", "inspect", "shutil"),
    *("datetime", "urllib", "glob", "fnmatch", "random", "argparse", "typing", "ssl", "socket", "unicodedata"),
    *("loomctl.workflows.resolve", "loomctl.workflows.workflow", "loomctl.workflows.workflow_files"),
}
# What a hook may build on; everything else that it loads is named here.
GROUND = "import errno, fcntl, json, os, stat, sys, time"
DIGEST = {"_sha256", "_sha2"}
GIT = {
    "subprocess",
    "contextlib",
    "warnings",
    "collections.abc",
    "signal",
    "select",
    "selectors",
    "threading",
    "math",
    "_posixsubprocess",
    "_weakrefset",
    "locale",
}

# What a hook leaves alone that only primes, or only keeps a message.
TO_DRIVE = (
    "flow.advance",
    "flow.settle",
    "flow.route",
    "workflows.routing",
    "workflows.gates",
)
TO_END_A_STEP = (
    *("priming.prime_run", "flow.advance", "flow.settle", "flow.finish", "changes.track", "flow.prompts"),
    "flow.finish_records",
    *(
        "runs.context_values",
        "expressions.engine",
        "changes.working_tree",
    ),
    *("changes.asset_files", "runs.artifact_paths", "expressions.conditions", "kit.text.secrets"),
)

PROGRAM = """
import sys
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rsplit("/", 2)[0])
from loomctl.__main__ import main
code = main()
sys.stderr.write("\\n".join(sys.modules))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def ground() -> set[str]:
    """The modules that the standard library brings along with what a hook builds on."""
    program = f"{GROUND}; sys.stderr.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def modules_of(scene: Scene, event: str, session: str = SESSION, **told: object) -> tuple[set[str], str]:
    """Run a hook as the launcher does; gives the modules it ended with, and what it said."""
    body = {"session_id": session, "cwd": str(scene.root), "hook_event_name": event, **told}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(MAIN), "hook", event],
        cwd=scene.root,
        env={**scene.environ(session), "CLAUDE_PID": str(os.getpid())},
        input=json.dumps(body),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split()), done.stdout


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run with artifacts of every kind that a hook reads by itself."""
    scene.write("spec.md", "# The spec\n\ntoken: ghp_" + "a1B2" * 9)
    scene.write("docs/a.md", "# A\n" * 9000)
    scene.write("data.json", '{"a": [1, 2, 3]}')
    declared = [
        artifact("spec", "spec.md", condition="state.status == 'in_progress'"),
        artifact("data", "data.json", type="json"),
        artifact("docs", "docs", type="directory", load_strategy="all"),
        artifact("own", "{run_dir}/state.json", type="json"),
        artifact("plan", "{run_dir}/plan.json", type="json"),
        artifact("long", "docs/a.md"),
    ]
    scene.workflow(declared)
    scene.begin()
    return scene


CASES: list[tuple[str, Json]] = [
    ("session-start", {"source": "compact"}),
    ("session-start", {"source": "resume"}),
    ("user-prompt-submit", {"prompt": "go on"}),
    ("pre-tool-use", {"tool_name": "Bash", "tool_input": {"command": "loomctl next"}}),
    ("pre-compact", {"trigger": "auto"}),
    ("stop", {"last_assistant_message": "the result"}),
    ("session-end", {"reason": "other"}),
]


@pytest.mark.slow(quick=8)
@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize(("event", "told"), CASES, ids=[f"{event}-{told.get('source', '')}" for event, told in CASES])
def test_a_hook_imports_little(begun: Scene, ground: set[str], event: str, told: Json, closing: bool) -> None:
    """None of what is forbidden, nothing that is not named here, and `subprocess` only where git is asked."""
    if closing:
        advance.done(begun.space(), begun.run_dir.name, response=None)
    file = TranscriptFile(begun.root.parent / "t.jsonl")
    file.prompt("hello")
    file.compacts()
    loaded, _ = modules_of(begun, event, transcript_path=str(file.path), **told)
    assert sorted(loaded & FORBIDDEN) == []
    allowed = ground | DIGEST | set(sys.builtin_module_names) | (GIT if told.get("source") == "resume" else set())
    assert {name for name in loaded - allowed if not name.startswith(("loomctl", "encodings."))} == {"__future__"}


@pytest.mark.parametrize("event", ["session-start", "pre-compact", "stop"])
def test_digesting_imports_little_too(begun: Scene, ground: set[str], event: str) -> None:
    """What tools gave is reduced, and told, with what a hook has anyway."""
    told = {"session_id": SESSION, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {}}
    spooled = {**told, "tool_response": {"stdout": "error: no\n" * 900}, "tool_use_id": "toolu_1"}
    (begun.store / f"local/spool/{SESSION}-1.json").write_text(json.dumps(spooled))
    loaded, _ = modules_of(begun, event, source="compact", trigger="auto", last_assistant_message="so far")
    assert "loomctl.runs.tools.reducer" in loaded
    assert sorted(loaded & FORBIDDEN) == []
    allowed = ground | DIGEST | set(sys.builtin_module_names)
    assert {name for name in loaded - allowed if not name.startswith(("loomctl", "encodings."))} == {"__future__"}


def test_what_ends_early_imports_no_engine(begun: Scene) -> None:
    """Events that have nothing to do load neither priming nor driving."""
    loaded, said = modules_of(begun, "pre-tool-use", tool_name="Bash", tool_input={"command": "ls"})
    assert said == ""
    assert not {name for name in loaded if name.startswith(("loomctl.flow.", "loomctl.priming."))} - {
        "loomctl.flow.open_project"
    }
    loaded, said = modules_of(begun, "stop", last_assistant_message="so far so good")
    assert said == ""
    assert loaded & {f"loomctl.{name}" for name in TO_END_A_STEP} == set()


def test_a_start_that_owes_nothing_imports_nothing_that_drives(scene: Scene) -> None:
    """What is primed is read and packed; the rules of a run's way, of conditions and of git commands are not asked."""
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    loaded, said = modules_of(scene, "session-start", source="compact")
    assert "# The spec" in said
    unused = (
        "expressions.conditions",
        "expressions.state_paths",
        "workflows.git_commands",
        "priming.plan_text",
        "priming.state_text",
    )
    assert not loaded & {f"loomctl.{name}" for name in (*TO_DRIVE, *unused)}


def test_a_start_beside_a_driver_imports_little(begun: Scene, ground: set[str]) -> None:
    loaded, said = modules_of(begun, "session-start", OTHER, source="startup")
    assert f"is driven by the session {SESSION}" in said
    assert sorted(loaded & FORBIDDEN) == []
    allowed = ground | DIGEST | GIT | set(sys.builtin_module_names)
    assert {name for name in loaded - allowed if not name.startswith(("loomctl", "encodings."))} == {"__future__"}


ANSWERS: list[tuple[Json, str]] = [
    ({"outcome": "failed", "failure_reason": "rate limit"}, "build/review"),
    ({"outcome": "succeeded", "context_updates": {"coverage": 72}}, "build/fix"),
    ({"outcome": "succeeded", "preferred_next_label": "f", "context_updates": {"coverage": 81}}, "build/fix"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "wanted"), ANSWERS)
def test_a_stop_that_chooses_among_ways_imports_no_more(scene: Scene, answer: Json, wanted: str) -> None:
    """Conditions, labels, a passing failure that is to be tried again: the standard library does it."""
    ways = [{"to": "fix", "condition": "context.coverage < 80"}, {"to": "fix", "label": "[F] Fix"}]
    steps = [
        {"id": "review", "prompt": "Review.", "transitions": [*ways, {"to": "end", "weight": 1}], "max_retries": 1},
        {"id": "fix", "prompt": "Mend.", "transitions": [{"to": "review"}]},
    ]
    scene.workflow(phases={"build": {"steps": steps}})
    scene.begin()
    file = TranscriptFile(scene.root.parent / "t.jsonl")
    file.prompt("hello")
    loaded, _ = modules_of(scene, "stop", transcript_path=str(file.path), last_assistant_message=json.dumps(answer))
    assert sorted(loaded & FORBIDDEN) == []
    assert [one["step_id"] for one in scene.state["steps"]] == ["build/review", wanted]


def test_masking_a_plain_text_compiles_no_pattern() -> None:
    """Each hook masks what it gives, and most of it has nothing to look at: `re` alone takes as long as a hook."""
    text = "see docs/explanation/security.md and loomctl.priming.prime_run.one_line_for_people\n"
    program = f"import sys; sys.path.insert(0, sys.argv[1]); from loomctl.kit.text.secrets import mask; mask({text!r})"
    command = [sys.executable, "-I", "-S", "-c", f"{program}; print('re' in sys.modules)", str(MAIN.parent.parent)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
