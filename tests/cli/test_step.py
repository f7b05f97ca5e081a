"""`loomctl next`, `done`, `undo` and `approve` as an assistant and a person call them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.helpers.repositories import make as repository
from tests.helpers.scenes import MAIN, OTHER, PHASES, SESSION, Json, Scene, handle
from tests.helpers.tables import each
from tests.helpers.texts import holds


@pytest.fixture
def begun(scene: Scene, cli: Cli) -> Scene:
    scene.workflow()
    assert cli("run", "add dark mode", "--workflow", "tiny").code == 0
    return scene


def response(scene: Scene, stage: str = "001-frame.ask@1") -> str | None:
    path = scene.run_dir / "stages" / stage / "response.md"
    return path.read_text() if path.exists() else None


def test_next_shows_the_step_a_response_ends_it_and_undo_shows_it_again(cli: Cli, begun: Scene) -> None:
    holds(cli("next").ends().stdout, "Ask what is wanted.", "loomctl done --for 001 <<'LOOM'")
    words = "What was done.\n\n  Indented, `code`, $HOME, 'quotes' and 😀.\n"
    ended = cli("done", given=words).ends()
    assert ended.stdout.startswith("✓ frame/ask: succeeded (001-frame.ask@1)\nNext: build/make\n")
    assert response(begun) == words
    holds(cli("undo").ends().stdout, "Next: frame/ask", "Ask what is wanted.")
    assert response(begun) is None


@each("status, line", [("completed", "is completed."), ("cancelled", "is cancelled. To continue")])
def test_next_has_nothing_to_give_of_a_run_that_is_over(begun: Scene, cli: Cli, status: str, line: str) -> None:
    begun.edit(status=status)
    before = (begun.run_dir / "state.json").read_bytes()
    for named in ((), (begun.run_dir.name,)):
        told = cli("next", *named)
        assert (told.code, told.stderr) == (0, "")
        assert told.stdout.startswith(f"The run {line}")
        document = cli("next", *named, "--json").json
        assert (document["status"], document["next"], document["preamble"]) == (status, None, None)
    assert (begun.run_dir / "state.json").read_bytes() == before


@each("is_known", [True, False])
def test_an_end_that_a_command_alone_proves_says_where_no_file_changed(scene: Scene, cli: Cli, is_known: bool) -> None:
    """Nothing is said of a step that changed one, nor where nobody knows, as without git."""
    if is_known:
        repository(scene.root)
    step: Json = {"prompt": "Do it.", "evidence": [{"run": "true"}]}
    scene.workflow(phases={"build": {"steps": [{"id": name, **step} for name in ("a", "b", "c")]}})
    cli("run", "add dark mode", "--workflow", "tiny")
    cli("trust", "--yes").ends()
    first = cli("done", given="x").ends().stdout.splitlines()[0]
    scene.write("made.py", "x = 1\n")
    second = cli("done", given="x").ends().stdout.splitlines()[0]
    said = "; no file changed in this step" if is_known else ""
    assert first == f"✓ build/a: succeeded (001-build.a@1){said}"
    assert second == "✓ build/b: succeeded (002-build.b@1)"


def test_a_failed_step_tells_why(scene: Scene, cli: Cli) -> None:
    held: Json = {"output_schema": "routing", "output_retries": 0}
    steps: list[Json] = [{"id": "a"}, {"id": "b"}, {"id": "c", **held}]
    steps = [{"prompt": "Do it.", "result_handling": {"on_failure": "continue"}, **step} for step in steps]
    scene.workflow(phases={"build": {"steps": steps}})
    cli("run", "add dark mode", "--workflow", "tiny")
    noted = cli("done", "--outcome", "failed", "--note", "no database", given="x")
    assert noted.stdout.startswith("✗ build/a: failed (001-build.a@1): no database\n")
    said = cli("done", "--json", given='{"outcome": "failed", "failure_reason": "no disk"}').json
    assert (said["outcome"], said["failure_reason"]) == ("failed", "no disk")
    never = cli("done", "--json", given="x").json
    assert never["failure_reason"] == "output schema validation failed after 0 repair attempt(s)"
    assert "✗ build/b  failed (002-build.b@1): no disk\n" in cli("show").stdout


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("succeeded", "succeeded"),
        ("SUCCESS", "succeeded"),
        ("partially_succeeded", "partially_succeeded"),
        ("PARTIAL", "partially_succeeded"),
        ("skipped", "skipped"),
        ("SKIPPED", "skipped"),
        ("failed", "failed"),
        ("FAILURE", "failed"),
    ],
)
def test_outcomes_have_their_words(begun: Scene, cli: Cli, word: str, status: str) -> None:
    """The words on the wire, and those of the documents, are accepted (D32)."""
    assert cli("done", "--outcome", word, "--note", "a note", given="x").code == 0
    (entry,) = [entry for entry in begun.state["steps"] if entry["stage"] == "001-frame.ask@1"]
    assert (entry["status"], entry["note"]) == (status, "a note")


@each("given", [None, "", "  \n"])
def test_without_a_response_the_step_is_closing(begun: Scene, cli: Cli, given: str | None) -> None:
    """Nothing on standard input, or only blanks, asks for the final message (D27)."""
    ended = cli("done", given=given).ends()
    assert "Now end frame/ask with your final message" in ended.stdout
    assert begun.state["steps"][0]["status"] == "closing"


@each("name", ["-", "empty.md"])
def test_an_empty_response_is_no_result(begun: Scene, cli: Cli, name: str) -> None:
    """Without a result nothing succeeds, whatever file it was to be in; what needs none may end by it (D67)."""
    begun.write("empty.md", "")
    refused = cli("done", "--response-file", name, "--json", given="")
    assert (refused.code, refused.json["error"]["code"], response(begun)) == (2, "NO_RESPONSE", None)
    assert cli("done", "--response-file", name, "--outcome", "skipped", given="").code == 0
    assert response(begun) == ""


def test_a_response_file_may_hold_anything(begun: Scene, cli: Cli) -> None:
    begun.write("notes.md", b"caf\xe9 \x00 done\n")
    assert (cli("done", "--response-file", "notes.md").code, response(begun)) == (0, "caf\ufffd \x00 done\n")


@pytest.mark.parametrize("kind", ["socket", "null", "closed", "pipe"])
def test_only_a_pipe_or_a_file_is_input(begun: Scene, kind: str) -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", str(MAIN), "done", "--json"]
    stdin = {"socket": theirs.fileno(), "null": subprocess.DEVNULL, "closed": None, "pipe": subprocess.PIPE}[kind]
    if kind == "closed":
        command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command]
    try:
        with subprocess.Popen(
            command, cwd=begun.root, env=begun.environ(), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            stdout, stderr = child.communicate(b"the result" if kind == "pipe" else None, timeout=30)
    finally:
        ours.close()
        theirs.close()
    assert child.returncode == 0, stderr
    assert json.loads(stdout)["closing"] is (kind != "pipe")


@each(
    "given, cwd, stored",
    [
        ("specs/x.md", ".", "{project_root}/specs/x.md"),
        ("x.md", "specs", "{project_root}/specs/x.md"),
        ("../specs/x.md", "specs", "{project_root}/specs/x.md"),
        ("specs/x.md", "specs", "{project_root}/specs/x.md"),  # not there from here, but from the root
        ("{root}/specs/x.md", "/", "{project_root}/specs/x.md"),
        ("{root}/.loom/runs/{run}/work.md", ".", "{run_dir}/work.md"),
        ("{link}/specs/x.md", ".", "{project_root}/specs/x.md"),
        ("specs", ".", "{project_root}/specs"),
        ("odd {{run_id}}.md", ".", "{project_root}/odd {{run_id}}.md"),
    ],
)
def test_a_registered_path_holds_on_every_machine(
    begun: Scene, cli: Cli, tmp_path: Path, given: str, cwd: str, stored: str
) -> None:
    """Files are stored by a portable name, from wherever and however they were named (D9)."""
    begun.write("specs/x.md", "# x\n")
    begun.write("odd {run_id}.md", "# odd\n")
    run_dir = begun.run_dir
    (run_dir / "work.md").write_text("# work\n")
    link = tmp_path / "link"
    link.symlink_to(begun.root)
    name = (
        given.replace("{{run_id}}", "{run_id}")
        if "{{" in given
        else given.format(root=begun.root, run=run_dir.name, link=link)
    )
    here = begun.root if cwd == "/" else begun.root / cwd
    cli("done", "--artifact", f"spec_path={name}", given="x", cwd=here).ends()
    assert begun.state["artifacts"] == {"spec_path": stored}


@each("path", ["../outside.md", "/etc/hostname", "link.md"])
def test_a_file_that_no_priming_would_read_is_not_registered(begun: Scene, cli: Cli, path: str) -> None:
    """Outside of the project is refused when it is registered, not when it is missed (D10)."""
    outside = begun.root.parent / "outside.md"
    outside.write_text("x")
    (begun.root / "link.md").symlink_to(outside)
    ended = cli("done", "--artifact", f"spec_path={path}", given="x").ends(2)
    assert ended.stderr.startswith("loomctl: PATH_ESCAPE: ")
    assert begun.state["steps"][0]["status"] == "in_progress"


def test_a_linked_worktree_registers_the_runs_own_file(begun: Scene, cli: Cli) -> None:
    """From a worktree the run's folder lies in the main checkout, and its files are still portable (D9)."""
    tree = begun.root.parent / "tree"
    git_folder = begun.root / ".git" / "worktrees" / "tree"
    git_folder.mkdir(parents=True)
    tree.mkdir()
    (git_folder / "commondir").write_text("../..\n")
    (git_folder / "gitdir").write_text(f"{tree / '.git'}\n")
    (tree / ".git").write_text(f"gitdir: {git_folder}\n")
    work = begun.run_dir / "work.md"
    work.write_text("# work\n")
    (tree / "x.md").write_text("# x\n")
    artifacts = ["--artifact", f"work_path={work}", "--artifact", "spec_path=x.md"]
    assert cli("done", *artifacts, given="x", cwd=tree).code == 0
    assert begun.state["artifacts"] == {"work_path": "{run_dir}/work.md", "spec_path": "{project_root}/x.md"}


@each("given", ["x", "=y", "x=", "../x=spec.md", "a b=spec.md", "1x=spec.md", "x\n=spec.md"])
def test_an_artifact_is_a_name_and_a_path(begun: Scene, cli: Cli, given: str) -> None:
    begun.write("spec.md", "x")
    ended = cli("done", "--artifact", given, given="x")
    assert (ended.code, begun.state["steps"][0]["status"]) == (2, "in_progress")


def test_an_approval_is_asked_for_and_given(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases={**PHASES, "build": {**PHASES["build"], "require_approval": True}})
    cli("run", "x", "--workflow", "tiny")
    waiting = cli("done", given="x")
    holds(waiting.stdout, f"loomctl approve {scene.handle}", but=("Make it.",))
    assert "Make it." in cli("approve").stdout


@each("verb", [["next"], ["done"], ["undo"], ["approve"], ["pause"], ["cancel"]])
def test_a_session_that_is_not_bound_drives_nothing(begun: Scene, cli: Cli, verb: list[str]) -> None:
    """The only active run is shown to an unbound session and never moved by it, though nobody drives it (D1)."""
    begun.let_go()
    before = (begun.run_dir / "state.json").read_bytes()
    ended = cli(*verb, session=OTHER).ends(3)
    assert ended.stderr.startswith("loomctl: NOT_BOUND: ")
    assert begun.handle in ended.stderr.splitlines()[-1]
    assert (begun.run_dir / "state.json").read_bytes() == before


@each("verb", [["next"], ["done"], ["undo"], ["context", "set", "k", "1"], ["context", "unset", "k"]])
@each("named", [False, True])
def test_a_session_that_is_not_bound_is_told_who_drives(begun: Scene, cli: Cli, verb: list[str], named: bool) -> None:
    run_id = begun.run_dir.name
    before = (begun.run_dir / "state.json").read_bytes()
    ended = cli(*verb, *([run_id] if named else []), session=OTHER).ends(6)
    assert ended.stderr.startswith(
        f"loomctl: HELD_BY_ANOTHER: the run {handle(run_id)} is driven by the session {SESSION}"
    )
    assert ended.stderr.splitlines()[0].endswith(", came just now)")
    assert ended.stderr.splitlines()[-1] == f"  hint: loomctl resume {handle(run_id)} --take-over"
    assert (begun.run_dir / "state.json").read_bytes() == before
    assert cli("resume", run_id, "--take-over", session=OTHER).code == 0
    assert (cli("context", "set", "k", "1", session=OTHER).code, cli("next", session=OTHER).code) == (0, 0)


def test_an_empty_name_is_no_name_every_folder_will_do_and_a_question_is_shown(begun: Scene, cli: Cli) -> None:
    assert (cli("cancel", "").code, begun.state["status"]) == (2, "in_progress")
    deep = begun.root / "src" / "deep"
    deep.mkdir(parents=True)
    for words in (["next"], ["show"], ["runs"], ["sessions"], ["paths"]):
        cli(*words, cwd=deep).ends()
    assert os.path.isdir(begun.root / ".loom")
    assert not (deep / ".loom").exists()
    said = {"stage": "001-frame.ask@1", "at": "2026-11-22T09:00:00Z", "message": "Red or blue?"}
    begun.edit(status="awaiting_feedback", feedback=said)
    assert "waits for “Red or blue?”" in cli("show").stdout
    begun.edit(status="awaiting_feedback", feedback=["odd"])
    assert cli("show").code == 0


@pytest.mark.usefixtures("begun")
def test_a_step_that_failed_is_told_with_its_reason(cli: Cli) -> None:
    ended = cli("done", given='{"outcome": "failed", "failure_reason": "the database is missing"}')
    assert ended.stdout.startswith("✗ frame/ask: failed (001-frame.ask@1): the database is missing\n")
