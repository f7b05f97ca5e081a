"""`loomctl report`: where the page goes, what it replaces and what not, its links and copies, its data."""

import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from loomctl.kit import files
from tests.cli.conftest import Cli
from tests.helpers import faber, reports
from tests.helpers.scenes import CHECKOUT, Scene, handle
from tests.helpers.tables import each
from tests.helpers.texts import holds


def links(page: Path) -> list[Path]:
    found = re.findall(r'href="([^"#][^"]*)"', page.read_text(encoding="utf-8"))
    return [page.parent / unquote(one) for one in found]


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_page_leads_to_the_runs_files_and_elsewhere_to_nothing(scene: Scene, cli: Cli, tmp_path: Path) -> None:
    folder = reports.rich(scene)
    cli("report", cwd=scene.root / "docs").ends()
    page = scene.root / "docs" / f"report-{scene.handle}.html"
    assert page.stat().st_mode & 0o777 == 0o600
    led = links(page)
    assert len(led) > 20
    own = [path.resolve() for path in led if folder.resolve() in path.resolve().parents]
    assert all(path.is_file() for path in led)
    assert {path.resolve() for path in led} - set(own) == {
        (scene.root / name).resolve() for name in ("specs/dark-mode.md", "docs/rules.md")
    }
    assert not re.search(r"https?://", page.read_text(encoding="utf-8"))
    elsewhere = tmp_path / "elsewhere" / "r.html"
    elsewhere.parent.mkdir()
    assert cli("report", "-o", str(elsewhere)).code == 0
    text = elsewhere.read_text(encoding="utf-8")
    assert links(elsewhere) == []
    holds(text, "--with-files adds them", but=(str(scene.root),))


@pytest.mark.slow
def test_with_files_brings_all_along_byte_for_byte(scene: Scene, cli: Cli, tmp_path: Path) -> None:
    folder = reports.hostile(scene)
    place = tmp_path / "ö out"
    place.mkdir()
    page = place / "report.html"
    for _ in range(2):
        ended = cli("report", "-o", str(page), "--with-files", "--json").ends()
    copies = [path for path in files_below(place / "report_files") if path.name != "loom-report.txt"]
    stages, assets = ({path.read_bytes() for path in files_below(folder / name)} for name in ("stages", "assets"))
    critical = {(scene.root / name).read_bytes() for name in ("specs/dark-mode.md", "docs/rules.md")}
    given = {path.read_bytes() for path in copies}
    assert stages | critical <= given <= stages | assets | critical
    assert b"\x89PNG" in given
    assert {path.resolve() for path in links(page)} == {path.resolve() for path in copies}
    assert all(re.fullmatch(r"[A-Za-z0-9._@+-]{1,100}", path.name) for path in copies)
    assert ended.json["page"]["copies"]["files"] == len(copies)
    assert sorted(os.listdir(place)) == ["report.html", "report_files"]


def linked_artifacts(scene: Scene, tmp_path: Path) -> None:
    """Give a run artifacts in every kind of place: its own, the project's, by links, and where nobody is to look."""
    reports.rich(scene)
    outside = tmp_path / "outside.md"
    outside.write_text("not yours")
    scene.write("specs/ünï #1.md", "a name that a link has to quote")
    (scene.root / "specs/away.md").symlink_to(outside)
    (scene.root / "specs/near.md").symlink_to(scene.root / "docs/rules.md")
    (scene.root / "away").symlink_to(tmp_path)
    (scene.run_dir / "outputs").mkdir(exist_ok=True)
    (scene.run_dir / "outputs/result.md").write_text("the result")
    scene.write(".git/config", "[remote] url = https://ada:secret@example.com")
    scene.write(".loom/local/notes", "this machine's")
    scene.edit(
        artifacts={
            "spec_path": "{project_root}/specs/dark-mode.md",
            "quoted": "specs/ünï #1.md",
            "result": "{run_dir}/outputs/result.md",
            "near": "specs/near.md",
            "away": "specs/away.md",
            "through": "away/outside.md",
            "above": "../outside.md",
            "absolute": str(outside),
            "git": ".git/config",
            "local": ".loom/local/notes",
            "folder": "specs",
            "gone": "specs/gone.md",
            "address": "https://example.com/pull/7",
            "none": "",
        }
    )


WITH_FILE = {"spec_path", "quoted", "result", "near"}


def test_artifacts_are_linked_and_brought_along_but_those_that_lie_elsewhere(
    scene: Scene, cli: Cli, tmp_path: Path
) -> None:
    """Critical and registered ones that are files of the project or the run, each once; nothing by a way out of it."""
    linked_artifacts(scene, tmp_path)
    page = scene.root / "docs/r.html"
    ended = cli("report", "-o", str(page), "--json").ends()
    assert {one["name"] for one in ended.json["made_files"] if one["file"]} == WITH_FILE
    assert [one["file"]["at"] for one in ended.json["artifacts"]] == ["specs/dark-mode.md", "docs/rules.md"]
    led, root = {path.resolve() for path in links(page)}, scene.root.resolve()
    assert {root / name for name in ("specs/dark-mode.md", "docs/rules.md", "specs/ünï #1.md")} <= led
    assert (scene.run_dir / "outputs/result.md").resolve() in led
    assert all(path.is_file() and path.is_relative_to(root) for path in led)
    assert not [path for path in led if path.is_relative_to(root / ".git")]
    place = tmp_path / "out"
    place.mkdir()
    held = cli("report", "-o", str(place / "report.html"), "--with-files", "--json").json
    href = {one["name"]: unquote(one["file"]["href"]) for one in held["made_files"] if one["file"]}
    assert set(href) == WITH_FILE
    assert href["near"] == unquote(held["artifacts"][1]["file"]["href"])
    texts = {name: (place / path).read_text(encoding="utf-8") for name, path in href.items()}
    assert (texts["quoted"], texts["result"]) == ("a name that a link has to quote", "the result")
    assert texts["near"] == (scene.root / "docs/rules.md").read_text()
    assert sorted(os.listdir(place / "report_files/project")) == ["docs", "specs"]
    told = b"".join(path.read_bytes() for path in files_below(place))
    assert not [secret for secret in (b"not yours", b"ada:secret", b"this machine's") if secret in told]


def test_what_a_killed_report_left_goes_with_the_next(scene: Scene, cli: Cli) -> None:
    reports.rich(scene)
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    gone, alive = int(ended.stdout), os.getppid()
    for name in (
        f"r_files.copies-{gone}",
        f"r_files.replaced-{gone}",
        f"r_files.copies-{alive}",
        "r_files.copies-mine",
    ):
        scene.write(f"{name}/x", "half")
    assert cli("report", "-o", "r.html", "--with-files").code == 0
    left = sorted(name for name in os.listdir(scene.root) if name.startswith("r"))
    assert left[:2] == ["r.html", "r_files"]
    assert f"r_files.copies-{alive}" in left
    assert not [name for name in left if name.endswith(f"-{gone}")]


def test_a_report_is_replaced_and_nothing_else(begun: Scene, cli: Cli) -> None:
    assert (cli("report", "-o", "r.html").code, cli("report", "-o", "r.html").code) == (0, 0)
    mine = begun.write("mine.html", "<meta name='generator' content='another'>")
    refused = cli("report", "-o", "mine.html", "--json").json["error"]
    assert (refused["code"], mine.read_text()) == ("FILE_EXISTS", "<meta name='generator' content='another'>")
    assert cli("report", "-o", "mine.html", "--force").code == 0
    assert "loomctl report" in mine.read_text()
    text = begun.write("mine.txt", "mine")
    (begun.root / "l.html").symlink_to(text)  # a link is replaced, not followed
    assert [cli("report", "-o", "l.html", *words).code for words in ([], ["--force"])] == [2, 0]
    assert text.read_text() == "mine"
    begun.write("folder.html/x", "mine")
    assert cli("report", "-o", "folder.html", "--force").code == 2
    begun.write("s_files/x", "mine")
    assert cli("report", "-o", "s.html", "--with-files", "--force").code == 2
    assert not (begun.root / "s.html").exists()
    assert (begun.root / "s_files/x").read_text() == "mine"


def test_a_page_that_cannot_be_read_is_not_called_somebody_elses(
    begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loom says that it cannot tell whose it is, and why."""
    page = begun.root / "r.html"
    cli("report", "-o", "r.html").ends()
    before, opened = page.read_bytes(), files.open_regular

    def barred(path: str) -> int:
        if path == str(page):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_regular", barred)
        error = cli("report", "-o", "r.html", "--json").json["error"]
        said = "Loom cannot tell whether it wrote this file: Permission denied; --force replaces it"
        assert (error["code"], error["why"], page.read_bytes()) == ("FILE_EXISTS", said, before)
        cli("report", "-o", "r.html", "--force").ends()


@pytest.mark.parametrize("words", [[], ["--with-files"], ["RUN"], ["shop-add", "--with-files", "-o", "a b.html"]])
def test_the_hint_of_a_page_that_cannot_be_written_is_the_same_line_with_another_page(
    begun: Scene, cli: Cli, words: list[str]
) -> None:
    """It makes the report of the same run, in the same way; run, files and all."""
    run_id = begun.run_dir.name
    words = [run_id if word == "RUN" else word for word in words]
    name = "a b" if "-o" in words else f"report-{handle(run_id)}"
    begun.write(f"{name}.html", "mine")
    begun.begin("another")
    bound = cli("resume", run_id, "--take-over").code
    refused = cli("report", *words)
    hint = refused.stderr.rstrip().rpartition("hint: ")[2]
    expected = [one for one in words if one not in ("--with-files", "-o", "a b.html")]
    expected += ["-o", str(begun.root / f"{name}-2.html"), *(["--with-files"] if "--with-files" in words else [])]
    assert (bound, refused.code, shlex.split(hint)) == (0, 2, ["loomctl", "report", *expected])
    assert cli(*shlex.split(hint)[1:]).code == 0
    assert run_id in (begun.root / f"{name}-2.html").read_text()
    assert (begun.root / f"{name}-2_files").is_dir() == ("--with-files" in words)


def test_standard_output_takes_the_page_or_the_data_that_the_documentation_names(scene: Scene, cli: Cli) -> None:
    folder = reports.rich(scene)
    before = files_below(scene.root)
    page = cli("report", "-o", "-")
    assert page.stdout.startswith("<!doctype html>")
    assert page.stdout.rstrip().endswith("</html>")
    told = cli("report", "--json").json
    assert (told["run_id"], told["schema_version"], told["page"]) == (folder.name, 1, None)
    assert files_below(scene.root) == before
    told = cli("report", "--json").json
    text = (CHECKOUT / "docs/reference/report.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]+\|([^|]+)\|$", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    printed = json.dumps(told)
    assert len(named) > 10
    assert [name for name in named if f'"{name}"' not in printed] == []


def test_words_that_contradict_each_other_and_folders_that_are_not_there_are_refused(begun: Scene, cli: Cli) -> None:
    before = files_below(begun.root)
    for words in ("-o - --json", "-o - --with-files", "--json --with-files", "-o ..", "-o ''"):
        assert cli("report", *shlex.split(words)).code == 2, words
    assert files_below(begun.root) == before
    folder = begun.root / "out put" / "ü"
    ended = cli("report", "-o", str(folder / "report.html"), "--json")
    error = ended.json["error"]
    assert (ended.code, error["code"], error["where"]) == (2, "NO_FOLDER", str(folder))
    assert shlex.split(error["hint"]) == ["mkdir", "-p", str(folder)]
    begun.write("file", "x")
    error = cli("report", "-o", "file/further/report.html", "--json").json["error"]
    assert (error["code"], shlex.split(error["hint"])) == ("NO_FOLDER", ["ls", "-ld", str(begun.root / "file")])
    folder.mkdir(parents=True)
    assert cli("report", "-o", str(folder / "report.html")).code == 0


def test_an_archived_run_is_told_from_its_archive(scene: Scene, cli: Cli) -> None:
    folder = reports.rich(scene)
    scene.edit(status="completed")
    assert cli("runs", "archive", folder.name).code == 0
    assert not folder.exists()
    ended = cli("report", folder.name[:8], "-o", "r.html", "--with-files", "--json")
    assert (ended.code, ended.json["run"]["status"]) == (0, "completed")
    assert len(ended.json["stages"]) == 10
    assert all(path.is_file() for path in links(scene.root / "r.html"))
    assert not folder.exists()


def test_a_damaged_run_ends_with_findings_and_a_page(scene: Scene, cli: Cli) -> None:
    (reports.rich(scene) / "plan.json").write_text("{")
    assert "! BAD_JSON" in cli("report", "-o", "r.html").ends(1).stdout
    assert "Unreadable, damaged or changed" in (scene.root / "r.html").read_text(encoding="utf-8")


def test_a_run_of_fabers_has_a_report(scene: Scene, cli: Cli) -> None:
    run_id = faber.lay(scene).parent.name
    ended = cli("report", run_id, "-o", "r.html", "--json").ends()
    assert ended.json["run"]["run_id"] == run_id
    assert ended.json["phases"]


def test_the_pages_parts_are_shipped_with_the_package() -> None:
    folder = "loomctl/views/assets/"
    listed = subprocess.run(["git", "ls-files", folder], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == sorted(f"{folder}{path.name}" for path in (CHECKOUT / folder).iterdir())


def test_what_is_no_file_stays_whatever_is_said(scene: Scene, cli: Cli) -> None:
    scene.workflow()
    first = scene.begin().run.run_id
    assert cli("resume", scene.begin().run.run_id).code == 0
    os.mkfifo(scene.root / "pipe")
    (scene.root / "link").symlink_to(scene.root / "pipe")
    before = [(scene.root / name).lstat().st_ino for name in ("pipe", "link")]
    for place in ("pipe", "link", ".loom/x.html"):
        for words in ([], ["--force"], ["--with-files", "--force"]):  # what cannot go with a printed page is left out
            refused = cli("report", first, "-o", place, *words, "--json").json["error"]
            assert refused["code"] == ("BAD_TARGET" if "loom" in place else "FILE_EXISTS")
            assert (refused["hint"], "--force" in refused.get("why", "")) == (f"loomctl report {first} -o -", False)
        drawn = ("graph", first, "--format", "dot")
        error = cli(*drawn, "--output", place, "--json").json.get("error", {})
        assert place.startswith(".") or (error["code"], error["hint"]) == ("FILE_EXISTS", f"loomctl {' '.join(drawn)}")
    assert f"{first}</" in cli("report", first, "-o", "-").stdout
    assert [(scene.root / name).lstat().st_ino for name in ("pipe", "link")] == before


@each(
    ("path", "is_one"),
    [
        *(("/dev/null", False), ("/dev/stdout", False), ("/dev/fd/0", False), ("/proc/self/exe", False)),
        *((__file__, True), (f"{__file__}.not-there", True), ("/dev/shm/not-there", True)),
    ],
)
def test_a_file_is_told_from_what_only_looks_like_one(path: str, is_one: bool) -> None:
    assert files.is_replaceable(path) is is_one


def test_no_report_stands_among_looms_own_files(scene: Scene, cli: Cli, tmp_path: Path) -> None:
    scene.workflow()
    run_id = scene.begin().run.run_id
    another = tmp_path / "another" / ".loom"
    shutil.copytree(scene.store, another)
    for store in (scene.store, another):
        way = tmp_path / f"way-{store.parent.name}"
        way.symlink_to(store)
        for place in (f"runs/{run_id}/state.json", f"runs/{run_id}/stages/x.html", "local/x.html", "x.html"):
            path = way / place
            before = files_below(store), path.read_bytes() if path.exists() else b""
            ended = cli("report", "-o", str(path), "--force", "--json")
            if store == another and place == "x.html":
                assert ended.code == 0
                continue
            assert ended.json["error"]["code"] == "BAD_TARGET", path
            assert (files_below(store), path.read_bytes() if path.exists() else b"") == before


def test_two_pages_do_not_share_a_folder_of_files(scene: Scene, cli: Cli) -> None:
    reports.rich(scene)
    for first, second in (("q.html", "q.htm"), ("q", "q.html"), ("q.html", "q")):
        for name in ("q", "q.htm", "q.html"):
            (scene.root / name).unlink(missing_ok=True)
        assert cli("report", "-o", first, "--with-files").code == 0
        before = files_below(scene.root / "q_files")
        refused = cli("report", "-o", second, "--with-files", "--json").json["error"]
        assert refused["code"] == "FOLDER_TAKEN"
        assert f"the copies of another page, {first}" in refused["why"]
        assert not (scene.root / second).exists()
        assert files_below(scene.root / "q_files") == before
        assert all(path.is_file() for path in links(scene.root / first))
        assert cli("report", "-o", first, "--with-files").code == 0
        (scene.root / first).unlink()
        assert cli("report", "-o", second, "--with-files").code == 0


def test_the_folder_says_whose_it_is_and_what_somebody_put_there_is_not_deleted(scene: Scene, cli: Cli) -> None:
    folder = reports.rich(scene)
    assert cli("report", "-o", 'ü "\n".html', "--with-files").code == 0
    beside = scene.root / 'ü "\n"_files'
    lines = (beside / "loom-report.txt").read_text(encoding="utf-8").splitlines()
    assert lines[1:4] == ['page: "\\u00fc \\"\\n\\".html"', f'run: "{folder.name}"', ""]
    named = {line[66:]: line[:64] for line in lines[4:]}
    for path in files_below(beside):
        if path.name != "loom-report.txt":
            name = json.dumps(path.relative_to(beside).as_posix())
            assert named.pop(name) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert named == {}
    for what in ["added", "added below", "changed", "a link", "a link to a folder"]:
        assert cli("report", "-o", "r.html", "--with-files").code == 0
        beside = scene.root / "r_files"
        mine = beside / {"added": "mine.txt", "added below": "a/mine.txt", "changed": "plan.json"}.get(what, "link")
        if what == "changed":
            mine = next(path for path in files_below(beside) if path.name == "response.md")
        mine.parent.mkdir(exist_ok=True)
        if "link" in what:
            mine.symlink_to(scene.root / ("docs" if "folder" in what else "mine.txt"))
        else:
            mine.write_text("mine", encoding="utf-8")
        refused = cli("report", "-o", "r.html", "--with-files", "--force", "--json").json["error"]
        assert refused["code"] == "FOLDER_TAKEN"
        assert mine.relative_to(beside).as_posix() in refused["why"]
        assert mine.is_symlink() or mine.read_text(encoding="utf-8") == "mine"
        mine.unlink()
        assert cli("report", "-o", "r.html", "--with-files").code == 0
    scene.write("r_files/loom-report.txt", "Copies that `loomctl report --with-files` made, and replaces.\n")
    scene.write("r_files/old.md", "old")
    assert cli("report", "-o", "r.html", "--with-files").code == 0
    assert not (scene.root / "r_files/old.md").exists()
    for name in ["\\u0000", "../../../etc/passwd", "", "\\u001b[2J.html", "x" * 5000, "\\ud800"]:
        scene.write("r_files/loom-report.txt", f'page: "{name}"\n{"0" * 64}  "{name}"\n')
        scene.write("r_files/mine.txt", "mine")
        holds(cli("report", "-o", "r.html", "--with-files").ends(2).stderr, "FOLDER_TAKEN", but=("\x1b",))
        assert (scene.root / "r_files/mine.txt").read_text(encoding="utf-8") == "mine"
