"""An artifact is read whole, within limits, inside what is allowed, or it is said why not (D10, D16, D17)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.kit import digests
from loomctl.priming import artifact_files
from loomctl.priming.artifact_files import LISTED, REFUSE_BYTES, SUMMARY_BYTES, WARN_BYTES, Reading
from loomctl.runs.artifact_paths import Roots
from tests.helpers import confinement, repositories
from tests.helpers.confinement import SECRET, World
from tests.helpers.runs import RUN_ID, make_run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Give a project full of ways out; nothing in it is changed by the tests that share it."""
    return confinement.make(tmp_path_factory.mktemp("world"))


TYPES = st.sampled_from(["markdown", "json", "directory", "directory", "text"])
STRATEGIES = st.sampled_from([None, "full", "summary", "latest_only", "all", "odd"])


@pytest.mark.slow
@settings(max_examples=1000)
@given(data=st.data())
@pytest.mark.shows("if they are inside the project, the run's folder or the bundle")
@pytest.mark.shows("It can have nothing read outside of the project")
def test_nothing_outside_is_ever_read(world: World, data: st.DataObject) -> None:
    """Whatever path, type and strategy: no byte of a file outside is in what is read, folders included."""
    artifact = {"id": "a", "type": data.draw(TYPES), "load_strategy": data.draw(STRATEGIES)}
    reading = artifact_files.read(artifact, data.draw(confinement.paths(world)), world.known, world.roots)
    assert SECRET not in repr(reading)
    assert "root:" not in (reading.text or "")
    assert (reading.text is None) == bool(reading.problem)


@pytest.mark.slow
def test_no_way_out_is_open(world: World) -> None:
    for start in confinement.starts(world):
        for folder in (
            "", "..", "../..", "docs", "docs/out", "out", "up", "root", "in", "chain", "../outside", "docs/..",
        ):  # fmt: skip
            for name in ("x.md", "state.json", "only-outside.md", "secret.txt", "file-out.md", "etc/passwd", ""):
                for kind in ("markdown", "json", "directory"):
                    declared = f"{start}{folder}/{name}"
                    artifact = {"id": "a", "type": kind, "load_strategy": "all"}
                    reading = artifact_files.read(artifact, declared, world.known, world.roots)
                    assert SECRET not in repr(reading), declared
                    assert "root:" not in (reading.text or ""), declared


@pytest.mark.shows("Symbolic links are followed before that is decided")
def test_a_folder_gives_nothing_of_what_its_links_lead_to(world: World) -> None:
    for strategy in ["summary", "latest_only", "all"]:
        for declared in ["docs", "{project_root}", "{run_dir}", "{plugin_root}/docs", "."]:
            reading = artifact_files.read(
                {"id": "a", "type": "directory", "load_strategy": strategy}, declared, world.known, world.roots
            )
            assert reading.text
            assert SECRET not in reading.text
            if strategy == "summary" and declared != "{run_dir}":
                assert "link out of the project" in reading.text


def place(folder: Path) -> tuple[dict[str, str | None], Roots]:
    """Give the values and roots of a project with a run."""
    run_dir = folder / ".loom" / "runs" / "r1"
    run_dir.mkdir(parents=True, exist_ok=True)
    return values_of(folder, str(run_dir))


def values_of(folder: Path, run_dir: str) -> tuple[dict[str, str | None], Roots]:
    """Give the values and roots of a project whose run lies in `run_dir`."""
    known: dict[str, str | None] = {
        "project_root": str(folder), "run_id": "r1", "plan_id": "p", "work_id": "258", "run_suffix": "s",
        "run_dir": run_dir, "state_path": f"{run_dir}/state.json", "plan_path": f"{run_dir}/plan.json",
        "plugin_root": str(folder),
    }  # fmt: skip
    return known, Roots(str(folder), run_dir, str(folder))


def read(folder: Path, declared: str, kind: str = "markdown", **artifact: Any) -> Reading:
    known, roots = place(folder)
    return artifact_files.read({"id": "a", "type": kind, **artifact}, declared, known, roots)


def test_a_text_is_read_whole_and_json_as_it_stands(tmp_path: Path) -> None:
    for text in ["", "plain\n", "größe 😀\r\n\ttab", "\ufeffmark", "\u2028", "x" * 5000]:
        (tmp_path / "x.md").write_bytes(text.encode())
        reading = read(tmp_path, "x.md")
        assert reading.text == text.removeprefix("\ufeff")
        assert reading.sha256 == digests.of_text(reading.text)
        assert (reading.bytes, reading.path, reading.absolute) == (len(text.encode()), "x.md", str(tmp_path / "x.md"))
        assert (reading.problem, reading.warnings) == ("", ())
    (tmp_path / "x.json").write_text('{"b":1,   "a":[]}')
    reading = read(tmp_path, "x.json", "json")
    assert (reading.text, reading.kind) == ('{"b":1,   "a":[]}', "json")


def test_what_cannot_be_given_and_what_is_no_readable_file_says_why(tmp_path: Path) -> None:
    for content, kind, problem in [
        (b"a\0b", "markdown", "binary"), (b"{", "json", "unparsable"), (b"\xff", "json", "unparsable"),
        (b"", "json", "unparsable"), (b"[" * 100_000, "json", "unparsable"), (b"x", "directory", "unreadable"),
        (b"x" * (REFUSE_BYTES + 1), "markdown", "too_large"),
    ]:  # fmt: skip
        (tmp_path / "x").write_bytes(content)
        reading = read(tmp_path, "x", kind)
        assert (reading.text, reading.problem) == (None, problem)
        assert reading.message
        assert reading.path == "x"
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    for declared, kind, problem in [
        ("none.md", "markdown", "missing"), ("none/", "directory", "missing"),
        ("folder", "markdown", "unreadable"), ("loop", "markdown", "unreadable"),
        ("pipe", "markdown", "unreadable"), ("../x", "markdown", "path_escape"), ("", "markdown", "bad_path"),
        ("{nope}", "markdown", "unresolved_placeholder"), ("\ud800", "directory", "bad_path"),
    ]:  # fmt: skip
        reading = read(tmp_path, declared, kind)
        assert (reading.text, reading.problem) == (None, problem)


def test_a_large_file_warns_and_a_huge_one_takes_a_summary(tmp_path: Path) -> None:
    """Over 100 KiB a warning, over 1 MiB nothing but a summary, over that nothing at all (D17)."""
    sizes = {"small": WARN_BYTES, "large": WARN_BYTES + 1, "huge": REFUSE_BYTES + 1, "endless": SUMMARY_BYTES + 1}
    for name, size in sizes.items():
        with (tmp_path / name).open("wb") as file:
            file.write(b"x" * 10)
            file.seek(size - 1)
            file.write(b"x")
    for name in ("small", "large"):
        (tmp_path / name).write_bytes(b"x" * sizes[name])
    (tmp_path / "huge").write_bytes(b"x" * sizes["huge"])
    known, roots = place(tmp_path)

    def reading(name: str, strategy: str | None) -> Reading:
        return artifact_files.read({"id": "a", "type": "markdown", "load_strategy": strategy}, name, known, roots)

    assert reading("small", None).warnings == ()
    assert [code for code, _ in reading("large", None).warnings] == ["LARGE_ARTIFACT"]
    assert reading("huge", "full").problem == "too_large"
    assert (reading("huge", "summary").bytes, reading("huge", "summary").problem) == (REFUSE_BYTES + 1, "")
    assert reading("endless", "summary").problem == "too_large"


def test_bytes_that_are_no_text_are_shown_and_told_and_so_is_a_foreign_path(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("größe".encode("latin-1"))
    (tmp_path / "real").write_text("�", encoding="utf-8")
    known, roots = place(tmp_path)
    latin = artifact_files.read({"id": "a", "type": "markdown"}, "latin", known, roots)
    assert (latin.text, [code for code, _ in latin.warnings]) == ("gr��e", ["NOT_UTF8"])
    assert artifact_files.read({"id": "a", "type": "markdown"}, "real", known, roots).warnings == ()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "x.md").write_text("x")
    reading = read(tmp_path, "/home/b/shop/docs/x.md")
    assert reading.warnings == (("REBASED_PATH", "/home/b/shop/docs/x.md was found here as docs/x.md"),)


def test_a_runs_own_state_is_the_same_after_a_priming(tmp_path: Path) -> None:
    """What priming itself changes is neither shown nor part of the digest (D15); another file is left as it is."""
    store, made = make_run(tmp_path)
    known, roots = values_of(tmp_path, made.folder)
    artifact = {"id": "a", "type": "json"}
    first = artifact_files.read(artifact, "{state_path}", known, roots, store.read(RUN_ID))
    record = {"session_id": "s1", "environment": {"hostname": "machine-a"}}
    sessions = {"current_session_id": "s1", "session_history": [record]}
    metadata = {**made.state["context_metadata"], "reload_count": 7}
    store.update(RUN_ID, lambda state: ({**state, "sessions": sessions, "context_metadata": metadata}, []))
    assert artifact_files.read(artifact, "{state_path}", known, roots, store.read(RUN_ID))[:2] == first[:2]
    assert "machine-a" not in (first.text or "")
    store.update(RUN_ID, lambda state: ({**state, "artifacts": {"spec_path": "x"}}, []))
    changed = artifact_files.read(artifact, "{state_path}", known, roots, store.read(RUN_ID))
    assert changed.sha256 != first.sha256
    assert '"spec_path"' in (changed.text or "")
    shutil.copy(os.path.join(made.folder, "state.json"), tmp_path / "other.json")
    other = artifact_files.read(artifact, "other.json", known, roots, made)
    assert json.loads(other.text or "") == store.read_state(RUN_ID)


def notes(folder: Path) -> Path:
    """Make a folder of notes, the newest in the middle of the alphabet."""
    made = folder / "notes"
    (made / "sub").mkdir(parents=True)
    for age, name in ((3, "a.md"), (1, "b.md"), (2, "c.md")):
        (made / name).write_text(f"# {name}\n")
        os.utime(made / name, (1000 - age, 1000 - age))
    return made


def test_a_folder_is_listed_joined_or_its_newest_given(tmp_path: Path) -> None:
    made = notes(tmp_path)
    known, roots = place(tmp_path)

    def text(strategy: str | None, declared: str = "notes") -> str:
        artifact = {"id": "a", "type": "directory", "load_strategy": strategy}
        return artifact_files.read(artifact, declared, known, roots).text or ""

    assert text("summary") == text(None) == "a.md  7 bytes\nb.md  7 bytes\nc.md  7 bytes\nsub/\n"
    assert text("latest_only") == "newest file: b.md\n\n# b.md\n"
    assert text("all") == "=== a.md ===\n# a.md\n\n=== b.md ===\n# b.md\n\n=== c.md ===\n# c.md\n"
    assert text("summary", "notes/sub") == "(empty)\n"
    assert text("all", "notes/sub") == text("latest_only", "notes/sub") == "(no files)\n"
    (made / "d.bin").write_bytes(b"\0")
    artifact = {"id": "a", "type": "directory", "load_strategy": "all"}
    reading = artifact_files.read(artifact, "notes", known, roots)
    assert reading.warnings == (("LEFT_OUT", "not read: d.bin (binary)"),)


@pytest.mark.parametrize("strategy", ["all", "latest_only", "summary"])
@pytest.mark.shows("no strategy reads a hidden file of it")
def test_hidden_files_of_a_folder_are_named_and_never_read(tmp_path: Path, strategy: str) -> None:
    made = notes(tmp_path)
    for path in (".env", "notes/.env", ".git/config", ".ssh/keys/id", "conf/.npmrc"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(SECRET)
    links = {"a-link.md": ".env", "b-link.md": "../.git/config", "c-link.md": "../.ssh/keys/id"}
    for name, to in {**links, "d-link.md": "c-link.md", "e-link.md": "../conf/.npmrc", ".f": "a.md"}.items():
        (made / name).symlink_to(to)
    reading = read(tmp_path, "notes", "directory", load_strategy=strategy)
    assert SECRET not in (reading.text or "")
    assert "b.md" in (reading.text or "")
    hidden = [".env", ".f", "a-link.md", "b-link.md", "c-link.md", "d-link.md", "e-link.md"]
    if strategy == "summary":
        assert all(f"{name}  (hidden)\n" in (reading.text or "") for name in hidden)
    else:
        told = "not read: " + ", ".join(f"{name} (hidden)" for name in hidden)
        assert reading.warnings == (("LEFT_OUT", told),)
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "notes.md").write_text("declared")
    assert "notes.md" in (read(tmp_path, ".github", "directory", load_strategy=strategy).text or "")


def test_a_required_folder_that_holds_nothing_is_missing(tmp_path: Path) -> None:
    """With a placeholder of git's alone, too; an optional one says that it is empty (D18)."""
    folder = tmp_path / "specs"
    folder.mkdir()
    for strategy in ("summary", "all", "latest_only", None):
        for name in ("", ".gitkeep"):
            if name:
                (folder / name).touch()
            reading = read(tmp_path, "specs", "directory", load_strategy=strategy, required=True)
            message = "the folder holds no files" + (" that Loom reads; hidden files are left out" if name else "")
            assert (reading.text, reading.problem, reading.message) == (None, "missing", message)
            assert read(tmp_path, "specs", "directory", load_strategy=strategy, required=False).text
            (folder / ".gitkeep").unlink(missing_ok=True)
    (folder / "below").mkdir()
    assert read(tmp_path, "specs", "directory", load_strategy="summary", required=True).text == "below/\n"
    assert read(tmp_path, "specs", "directory", load_strategy="all", required=True).problem == "missing"


def test_a_folder_of_too_much_is_refused_and_a_full_one_cut(tmp_path: Path) -> None:
    made = notes(tmp_path)
    for number in range(LISTED + 7):
        (made / f"n{number:04}").write_bytes(b"x" * 6000)
    known, roots = place(tmp_path)
    whole = artifact_files.read({"id": "a", "type": "directory", "load_strategy": "all"}, "notes", known, roots)
    assert whole.problem == "too_large"
    listed = artifact_files.read({"id": "a", "type": "directory", "load_strategy": "summary"}, "notes", known, roots)
    assert listed.text
    lines = listed.text.splitlines()
    assert (len(lines), lines[-1]) == (LISTED + 1, "… and 11 more")


def test_names_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(str(folder)) + b"/\xff.md")).write_text("x")
    (folder / "two\nlines").write_text("y")
    known, roots = place(tmp_path)
    for strategy in ("summary", "all", "latest_only"):
        artifact = {"id": "a", "type": "directory", "load_strategy": strategy}
        assert artifact_files.read(artifact, "odd", known, roots).sha256


def test_an_answer_of_gits_that_is_too_long_is_refused_whole(tmp_path: Path) -> None:
    """Nothing is cut in the middle of a line: over the limit nothing is given, and what to do is said."""
    repositories.make(tmp_path, **{"big.txt": "x" * 80 + "\n" * 1 + "y\n" * (REFUSE_BYTES // 2)})
    reading = read(tmp_path, "git show HEAD", "git_info")
    assert (reading.text, reading.problem) == (None, "too_large")


def test_git_is_asked_in_the_project_with_checked_placeholders_and_without_a_repository_not(tmp_path: Path) -> None:
    assert read(tmp_path, "git log", "git_info").problem == "missing"
    repositories.make(tmp_path)
    repositories.git(tmp_path, "commit", "-q", "--allow-empty", "-m", "work on 258")
    reading = read(tmp_path, "git log --format=%s --grep={work_id}", "git_info")
    assert (reading.text, reading.problem) == ("work on 258\n", "")
    for command in ("git push", "git log; id", "git log --output=x", "git show --ext-diff", "git log {nope}", ""):
        refused = read(tmp_path, command, "git_info")
        assert (refused.text, refused.problem in ("refused", "unresolved_placeholder")) == (None, True)
    assert not (tmp_path / "x").exists()
    known, roots = place(tmp_path)
    known["work_id"] = "x --output=pwned"
    artifact = {"id": "a", "type": "git_info"}
    reading = artifact_files.read(artifact, "git log {work_id}", known, roots)
    assert (reading.text, reading.problem) == (None, "refused")
    assert not (tmp_path / "pwned").exists()


def test_a_project_in_a_repository_of_its_own_configuration_is_read_safely(tmp_path: Path) -> None:
    repository = repositories.make(tmp_path / "r", **{"a.txt": "one\n"})
    program, mark = repositories.trap(tmp_path)
    for key in ("core.fsmonitor", "diff.external", "core.pager", "filter.evil.clean"):
        repositories.git(repository, "config", key, str(program))
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    mark.unlink(missing_ok=True)
    (repository / "a.txt").write_text("two\n")
    known, roots = place(repository)
    for command in ("git status --short", "git diff", "git log -p"):
        assert artifact_files.read({"id": "a", "type": "git_info"}, command, known, roots).text
    assert not mark.exists()
