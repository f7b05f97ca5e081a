"""`loomctl prime-context`: what it prints, and what it leaves alone."""

import os
from pathlib import Path

import pytest

from loomctl.kit.text.fences import utf16_units
from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, SESSION, Scene, artifact, fingerprint
from tests.helpers.tables import each
from tests.helpers.texts import holds

SPEC = "# The spec\n\nThe heliotrope switch survives a reload.\n"


@pytest.fixture
def begun(scene: Scene, cli: Cli) -> Scene:
    scene.write("spec.md", SPEC)
    scene.write("notes.md", "# Notes\n")
    scene.workflow([artifact("spec", "spec.md"), artifact("notes", "notes.md", required=False)])
    assert cli("run", "x", "--workflow", "tiny").code == 0
    return scene


def test_an_assistant_gets_the_text_and_a_summary_of_what_was_asked_for(cli: Cli, begun: Scene) -> None:
    """What cannot be seen live is sent again; that it was given once is no proof (D15)."""
    assert "Loaded 2 files (" in cli("prime-context").stdout
    assert "Loaded 2 files (" in cli("prime-context").stdout
    lines = cli("prime-context", "--force").stdout.splitlines()
    assert lines[0] == f"Loom: {begun.handle}"
    assert lines[1].startswith("Loaded 2 files (")
    assert any(line.startswith("Sessions: 1 session (") for line in lines)
    assert "The heliotrope switch survives a reload." in lines
    assert lines[-1].startswith("Loom slip ")
    ended = cli("prime-context", "--artifacts", " notes ,,", "--force").ends()
    holds(ended.stdout, "Loaded 1 file (", but=("heliotrope",))
    ended = cli("prime-context", "--artifacts", "spec,nonsense", "--force").ends(2)
    holds(ended.stdout, "✗ nonsense unknown_artifact: known artifacts: notes, spec", "heliotrope")
    entry = cli("prime-context", "--artifacts", "nonsense", "--json").json["artifacts"][-1]
    assert (entry["decision"], entry["reason"]) == ("error", "unknown_artifact")
    assert "heliotrope" in cli("prime-context", "--run-id", "shop-x", session=OTHER).ends().stdout
    assert begun.space().local.binding(OTHER) is None


def test_a_missing_artifact_is_exit_0_or_4_where_it_is_required(begun: Scene, cli: Cli) -> None:
    (begun.root / "notes.md").unlink()
    assert "! MISSING: notes" in cli("prime-context", "--force").ends().stdout
    (begun.root / "spec.md").unlink()
    for words in (["prime-context"], ["prime-context", "--force"], ["prime-context"]):
        ended = cli(*words).ends(4)
        assert "✗ spec missing: no such file (spec.md)" in ended.stdout
        for way in ("Put the file there", "correct its path", "go on without it"):
            assert way in ended.stdout


@each("more", [[], ["--json"], ["--force"], ["--artifacts", "spec"], ["--trigger", "session_start"]])
@each("session", [SESSION, OTHER])
def test_a_dry_run_writes_nothing(begun: Scene, cli: Cli, more: list[str], session: str) -> None:
    home = Path(os.environ["HOME"])
    for path in (begun.run_dir / "state.json", begun.run_dir, begun.run_dir.parent):  # old enough for an index of runs
        os.utime(path, (1_700_000_000, 1_700_000_000))
    before = (fingerprint(begun.root), fingerprint(home))
    assert "heliotrope" not in cli("prime-context", "--dry-run", *more, session=session).ends().stdout
    assert (fingerprint(begun.root), fingerprint(home)) == before


@each(
    "word, loaded",
    [
        ("session_start", 2),
        ("compaction_detected", 2),
        ("manual", 2),
        ("phase_start:build", 0),
        ("phase_transition:a->b", 0),
    ],
)
@pytest.mark.usefixtures("begun")
def test_a_trigger_loads_what_it_names(cli: Cli, word: str, loaded: int) -> None:
    entries = cli("prime-context", "--trigger", word, "--force", "--dry-run", "--json").json["artifacts"]
    assert len([entry for entry in entries if entry["decision"] == "load"]) == loaded


@each("word", ["nonsense", "", "phase_transition", "phase_start:*", "phase_transition:a->*", "a:b"])
@pytest.mark.usefixtures("begun")
def test_a_trigger_must_name_one_event(cli: Cli, word: str) -> None:
    assert "phase_transition:architect->build" in cli("prime-context", "--trigger", word).ends(2).stderr


def test_a_workflow_without_artifacts_says_so(scene: Scene, cli: Cli) -> None:
    """Nothing declared is no error (D5)."""
    scene.workflow()
    cli("run", "x", "--workflow", "tiny")
    assert "this workflow declares no critical artifacts" in cli("prime-context").ends().stdout


@pytest.mark.slow
def test_what_is_printed_for_an_assistant_keeps_the_hosts_limit(scene: Scene, cli: Cli) -> None:
    declared = [artifact(f"doc-{number}", f"{number}.md", required=number < 3) for number in range(60)]
    for number in range(60):
        scene.write(f"{number}.md", "# Heading\n\nwords 😀 words\n" * 2000)
    scene.workflow(declared)
    for words in (["run", "x" * 3000, "--workflow", "tiny"], ["prime-context", "--force"], ["resume"], ["next"]):
        ended = cli(*words).ends()
        assert utf16_units(ended.stdout) < 30_000, words
        if words[0] != "next":
            assert ended.stdout.splitlines()[-1].startswith("Loom slip ")
