"""At a terminal: colours there and nowhere else, NO_COLOR, completion, a reader that goes away."""

import subprocess
import sys

import pytest

from tests.cli.conftest import Cli
from tests.cli.terminal import at_a_terminal, python_at_a_terminal
from tests.helpers.scenes import MAIN, Scene, artifact
from tests.helpers.texts import holds


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_colours_are_for_terminals_that_want_them(scene: Scene, environ: dict[str, str], coloured: bool) -> None:
    program = "from loomctl.cli import output; output.text('Heading', style='bold'); output.text('\\x1b[1mnot ours')"
    seen = python_at_a_terminal(scene, program, environ)
    assert ("\x1b[1mHeading" in seen) == coloured
    holds(seen, "Heading", "␛[1mnot ours")


def test_no_colours_elsewhere(scene: Scene, cli: Cli) -> None:
    scene.workflow()
    cli("run", "x", "--workflow", "tiny")
    for words in (["runs"], ["show"], ["sessions"], ["--help"]):
        assert "\x1b" not in cli(*words).stdout


def test_a_person_sees_the_step_and_not_the_artifacts(scene: Scene) -> None:
    scene.write("spec.md", "# The spec\n\nheliotrope\n")
    scene.workflow([artifact("spec", "spec.md")])
    seen = at_a_terminal(scene, "run", "add dark mode", "--workflow", "tiny")
    holds(seen, "Ask what is wanted.", "✓ spec, ", but=("heliotrope",))
    assert "heliotrope" not in at_a_terminal(scene, "prime-context", "--force")
    assert "heliotrope" in at_a_terminal(scene, "prime-context", "--force", "--text")


def test_one_terminal_is_one_session(scene: Scene) -> None:
    """Commands of one terminal know each other's run; another terminal is another session (D24)."""
    scene.workflow()
    leader = (
        f"{sys.executable} -I {MAIN} run first --workflow tiny >/dev/null && {sys.executable} -I {MAIN} next --json"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", leader], cwd=scene.root, env=scene.environ(None), start_new_session=True,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"frame/ask"' in done.stdout
    other = subprocess.run(
        [sys.executable, "-I", str(MAIN), "next"], cwd=scene.root, env=scene.environ(None), start_new_session=True,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert other.returncode == 3
    assert "NOT_BOUND" in other.stderr


def complete(scene: Scene, words: str) -> list[str]:
    """Ask for completions as bash does; the cursor is at the end of the words."""
    count = len(words.split()) - (not words.endswith(" "))
    environ = {
        **scene.environ(None), "_LOOMCTL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", str(MAIN)], cwd=scene.root, env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.slow
def test_runs_workflows_and_artifacts_are_completed(scene: Scene) -> None:
    scene.workflow([artifact("spec", "spec.md", required=False), artifact("notes", "notes.md", required=False)])
    run_id = scene.begin().run.run_id
    for words in ("loomctl resume ad", "loomctl show ", "loomctl runs rm add", "loomctl prime-context --run-id a"):
        assert scene.handle in complete(scene, words), words
    assert complete(scene, "loomctl show shop-") == [run_id]
    assert complete(scene, "loomctl run x --workflow ti") == ["tiny"]
    assert {"core", "default", "tiny"} <= set(complete(scene, "loomctl check "))
    assert complete(scene, "loomctl prime-context --artifacts sp") == ["spec"]
    assert complete(scene, "loomctl prime-context --artifacts spec,n") == ["spec,notes"]
    assert "prime-context" in complete(scene, "loomctl pri")


def test_completion_never_fails(scene: Scene) -> None:
    assert complete(scene, "loomctl resume sh") == []
    assert complete(scene, "loomctl prime-context --artifacts sp") == []
    scene.workflow()
    scene.begin()
    (scene.run_dir / "plan.json").write_text("{")
    assert complete(scene, "loomctl prime-context --artifacts sp") == []
