"""`loomctl show --diff` and `loomctl show --assets`: what stages changed and left, told and copied as it was."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl.changes import asset_files, track
from loomctl.flow import advance, rewind
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.tools import tool_log
from tests.cli.conftest import Cli
from tests.helpers.repositories import git
from tests.helpers.scenes import MAIN, Json, Scene, fingerprint
from tests.helpers.texts import holds

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

ASK, MAKE = "001-frame.ask@1", "002-build.make@1"
TOKEN = "ghp_" + "a1B2c3D4e5" * 4


def begin(scene: Scene) -> None:
    space = scene.space()
    track.begin(space, space.store.read(scene.run_dir.name), scene.state["steps"][-1])


def end(scene: Scene) -> None:
    advance.done(scene.space(), scene.run_dir.name, response="done")


def called(scene: Scene, tool: str, **args: str) -> None:
    more = {"stage": scene.state["steps"][-1]["stage"], "at": "2999-01-01T00:00:00Z"}
    tool_log.append(str(scene.run_dir), [ToolStep("toolu", tool, dict(args), "did", None, success=True, more=more)])


@pytest.fixture
def worked(scene: Scene) -> Scene:
    """Two stages that are over, which changed files and left assets, and a third that is open."""
    git(scene.root, "init", "-q", "-b", "main")
    scene.write("a.txt", "one\n")
    scene.write(".gitignore", ".loom/\nnotes.md\n*.xml\ntest-results/\n")
    git(scene.root, "add", ".")
    git(scene.root, "commit", "-q", "-m", "first")
    scene.workflow()
    scene.begin("add dark mode")
    begin(scene)
    scene.write("a.txt", f"one\r\nhalf \x1b[31m {TOKEN}\n")
    scene.write("notes.md", "x")
    called(scene, "Write", file_path=str(scene.root / "notes.md"))
    end(scene)
    begin(scene)
    (scene.root / "a.txt").unlink()
    scene.write("b\nc", "new\n")
    scene.write("junit.xml", "<testsuite/>")
    scene.write("test-results/login/a.png", b"\x89PNG")
    called(scene, "Bash", command="pytest")
    end(scene)
    return scene


def process(scene: Scene, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", str(MAIN), *words]
    return subprocess.run(command, cwd=scene.root, env=scene.environ(), capture_output=True, check=False)


def patch(scene: Scene, stage: str) -> bytes:
    return (scene.run_dir / "stages" / stage / "changes.patch").read_bytes()


def test_patches_are_given_byte_for_byte_and_in_order(worked: Scene) -> None:
    ended = process(worked, "diff")
    name = worked.handle
    assert ended.stdout == (
        f"# {name} {ASK}: 2 files\n".encode()
        + patch(worked, ASK)
        + f"# {name} {MAKE}: 2 files\n".encode()
        + patch(worked, MAKE)
        + f"# {name} 003-build.polish@1: not ended yet\n".encode()
    )
    assert ended.stderr == b"003-build.polish@1: not ended yet\n"
    subprocess.run(["git", "apply", "--stat", "-"], cwd=worked.root, input=ended.stdout, check=True)
    before = fingerprint(worked.store)
    ended = process(worked, "diff", "shop", "001")
    assert ended.stdout == patch(worked, ASK)
    holds(ended.stdout, TOKEN.encode(), b"\r\n")
    assert fingerprint(worked.store) == before
    (worked.root / "a.txt").write_text("one\n")
    subprocess.run(["git", "apply", "-"], cwd=worked.root, input=ended.stdout, check=True)
    assert TOKEN in (worked.root / "a.txt").read_text()


def test_names_numbers_and_all_of_it_are_told_on_request(cli: Cli, worked: Scene) -> None:
    assert cli("show", "--diff", "shop", "--names").stdout == "a.txt\nb\nc\nnotes.md\n"
    assert cli("show", "--diff", MAKE, "--stat").stdout == cli("show", "--diff", "shop", "002", "--stat").stdout
    assert cli("show", "--diff", MAKE, "--stat").stdout.splitlines() == [
        f"{MAKE}  2 files", "FILE   CHANGE   LINES", "a.txt  deleted  +0 -2", "b␤c    added    +1 -0", "",
    ]  # fmt: skip
    assert "notes.md  by a tool" in cli("show", "--diff", "--stat").stdout
    told = cli("show", "--diff", "--json").json["stages"]
    assert [one["stage"] for one in told] == [ASK, MAKE, "003-build.polish@1"]
    assert [one["told"] for one in told] == [True, True, False]
    assert told[1]["files"][1] == {"path": "b\nc", "by": ["git"], "change": "added", "added": 1, "removed": 0}
    assert Path(told[0]["patch"]).read_bytes() == patch(worked, ASK)
    assert told[2]["patch"] is None


def test_assets_that_were_passed_over_are_told_with_the_reason(worked: Scene, cli: Cli) -> None:
    begin(worked)
    with worked.write("test-results/film.webm", b"").open("wb") as film:
        film.truncate(asset_files.LARGEST + 1)
    (worked.root / "test-results" / "latest.png").symlink_to("login/a.png")
    worked.write("test-results/b.png", "b")
    called(worked, "Bash", command="pytest")
    end(worked)
    lines = cli("show", "--assets").stdout.splitlines()
    stage = "003-build.polish@1"
    assert [" ".join(line.split()) for line in lines[-5:-2]] == [
        "STAGE NOT CAPTURED BYTES REASON",
        f"{stage} test-results/latest.png - it is a link",
        f"{stage} test-results/film.webm 10,485,761 it is over 10 MiB",
    ]
    assert lines[-1] == f"{worked.handle}: 3 assets, 17 bytes; 2 not captured"
    assert (
        f"\nassets    1, 1 byte\n          2 not captured: loomctl show --assets {worked.handle}\n"
        in cli("show", "3").stdout
    )
    told = cli("show", "--assets", "--json").json["passed_over"]
    assert sorted(told, key=lambda one: str(one["path"])) == [
        {"stage": stage, "path": "test-results/film.webm", "bytes": 10_485_761, "reason": "it is over 10 MiB"},
        {"stage": stage, "path": "test-results/latest.png", "bytes": None, "reason": "it is a link"},
    ]
    path = worked.run_dir / "stages" / stage / "changes.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "assets_passed_over": [7, {"path": 1}, {"path": "x\ny", "bytes": "z"}]}))
    assert ["x␤y", "-", "unknown"] in [line.split()[1:] for line in cli("show", "--assets").stdout.splitlines()]


def test_what_is_not_known_or_not_there_is_said(begun: Scene, cli: Cli) -> None:
    assert cli("show", "--assets").stdout == f"{begun.handle}: no assets\n"
    ended = cli("show", "--assets", "cp", "out")
    assert (ended.code, "copied 0 of 0 assets" in ended.stdout) == (0, True)
    assert not (begun.root / "out").exists()
    begin(begun)
    called(begun, "Edit", file_path="x")
    end(begun)
    ended = cli("show", "--diff", "shop", "001")
    assert ended.stdout == ""
    assert ended.stderr == f"{ASK}: Loom only knows the files that tools were called for: there is no git repository\n"
    assert (
        "  ! Loom only knows the files that tools were called for: there is no git"
        in cli("show", "--diff", "--stat").stdout
    )
    assert cli("show", "--diff", "--names").stdout == "x\n"


def test_a_step_that_two_undos_opened_says_that_its_changes_are_unknown(scene: Scene, cli: Cli) -> None:
    """Loom keeps the snapshots of two steps; that of the first is gone by then (D31)."""
    git(scene.root, "init", "-q", "-b", "main")
    scene.write(".gitignore", ".loom/\n")
    scene.workflow()
    scene.begin("add dark mode")
    for name in ("one.txt", "two.txt"):
        scene.write(name, "x")
        end(scene)
    rewind.undo(scene.space(), scene.run_dir.name)
    rewind.undo(scene.space(), scene.run_dir.name)
    scene.write("again.txt", "x")
    end(scene)
    why = "this machine has no snapshot from the start of the step"
    said = f"Loom does not know what it changed in your files: {why}"
    ended = cli("show", "--diff", "shop")
    assert f"# {scene.handle} {ASK}: files unknown\n" in ended.stdout
    assert f"{ASK}: {said}\n" in ended.stderr
    assert f"{ASK}  files unknown\n  ! {said}\n" in cli("show", "--diff", "--stat").stdout
    assert f"\nfiles     unknown: {why}\n" in cli("show", "shop", "001").stdout
    unknown = f"Loom does not know what 1 step changed in your files. To see why: loomctl show --diff {scene.handle}\n"
    assert unknown in cli("show", "--stages").stdout
    cli("report", "-o", "page.html").ends()
    assert f"Loom does not know what it changed in your files: {why}.</p>" in (scene.root / "page.html").read_text()


def test_assets_are_copied_where_their_user_wants_them_and_listed(worked: Scene, cli: Cli, tmp_path: Path) -> None:
    ended = cli("show", "--assets", "cp", "shop", str(tmp_path / "out"))
    assert ended.stdout == f"Loom: copied 2 of 2 assets to {tmp_path / 'out'}\n"
    made = tmp_path / "out" / "build.make" / "retry_1"
    assert (made / "junit.xml").read_text() == "<testsuite/>"
    assert (made / "test-results" / "login" / "a.png").read_bytes() == b"\x89PNG"
    told = cli("show", "--assets", "cp", str(tmp_path / "out"), "--json").json
    assert (told["written"], told["there_already"], told["failed"]) == ([], 2, [])
    below = worked.root / "src"
    below.mkdir()
    assert cli("show", "--assets", "cp", "rel", "--stage", "002", cwd=below).code == 0
    assert (below / "rel" / "build.make" / "retry_1" / "junit.xml").is_file()
    assert "0 of 0 assets" in cli("show", "--assets", "cp", "other", "--stage", ASK).stdout
    lines = cli("show", "--assets").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["STAGE", "PATH", "BYTES"],
        [MAKE, "junit.xml", "12"],
        [MAKE, "test-results/login/a.png", "4"],
    ]
    assert lines[-1] == f"{worked.handle}: 2 assets, 16 bytes"
    told = cli("show", "--assets", "shop", "--json").json
    assert (told["bytes"], [one["there"] for one in told["assets"]]) == (16, [True, True])
    (worked.run_dir / told["assets"][0]["stored"]).unlink()
    assert "12 (gone)" in cli("show", "--assets").stdout


def test_nothing_is_written_over_without_force(worked: Scene, cli: Cli, tmp_path: Path) -> None:
    made = tmp_path / "out" / "build.make" / "retry_1"
    made.mkdir(parents=True)
    (tmp_path / "precious").write_text("mine")
    (made / "junit.xml").symlink_to(tmp_path / "precious")
    ended = cli("show", "--assets", "cp", str(tmp_path / "out")).ends(2)
    assert "loomctl: FILE_EXISTS: 1 of 2 files exist there with other content" in ended.stderr
    assert f"hint: loomctl show --assets cp {worked.handle} {tmp_path / 'out'} --force" in ended.stderr
    assert [path.name for path in made.iterdir()] == ["junit.xml"]
    assert cli("show", "--assets", "cp", str(tmp_path / "out"), "--force").code == 0
    assert ((made / "junit.xml").read_text(), (tmp_path / "precious").read_text()) == ("<testsuite/>", "mine")


def test_an_asset_that_is_gone_or_changed_is_not_copied(worked: Scene, cli: Cli, tmp_path: Path) -> None:
    stored = worked.run_dir / "assets" / "build.make" / "retry_1"
    (stored / "junit.xml").write_text("<forged/>")
    ended = cli("show", "--assets", "cp", str(tmp_path / "out")).ends(1)
    assert "could not copy junit.xml: it was changed after it was captured" in ended.stdout
    assert "Loom: copied 1 of 2 assets" in ended.stdout
    (stored / "junit.xml").unlink()
    assert "junit.xml: No such file" in cli("show", "--assets", "cp", str(tmp_path / "out")).stdout


def test_what_strangers_put_into_a_runs_folder_leads_nowhere(worked: Scene, cli: Cli, tmp_path: Path) -> None:
    """A run may have come with a repository (D10)."""
    for stored in ["../../x", "assets/../../x", "/etc/passwd", "assets", "assets//x", "outputs/x", 5]:
        path = worked.run_dir / "stages" / MAKE / "changes.json"
        raw: Json = json.loads(path.read_text())
        path.write_text(
            json.dumps({**raw, "assets": [{"path": "x", "stored": stored, "bytes": 1}, 7], "files": [7, {}]})
        )
        assert cli("show", "--assets", "--json").json["assets"] == []
        cli("show", "--assets", "cp", str(tmp_path / "out"))
        assert not (tmp_path / "out").exists()
        assert cli("show", "--diff", MAKE, "--stat").code == 0
    for content in ["[]", "5", '{"files": 5, "assets": {}, "warnings": 1, "count": "x"}']:
        (worked.run_dir / "stages" / MAKE / "changes.json").write_text(content)
        for words in (
            ["show", "--diff", "--stat"],
            ["show", "--diff", "--names"],
            ["show", "--diff", "--json"],
            ["show", "--diff"],
            ["show", "--assets"],
        ):
            assert cli(*words).code == 0
    (tmp_path / "secret").write_text("secret")
    path = worked.run_dir / "stages" / ASK / "changes.patch"
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    ended = cli("show", "--diff", "shop", ASK).ends(5)
    assert "UNSAFE_LINK" in ended.stderr
    assert "secret" not in ended.stdout
