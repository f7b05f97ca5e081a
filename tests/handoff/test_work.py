"""The code of a run, saved after a step without a trace for its user (D77)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.handoff import work
from loomctl.handoff.remotes import Done
from loomctl.handoff.repository import Repository
from loomctl.handoff.work import Snapshot
from loomctl.kit.errors import EXIT_SKEW
from tests.handoff.conftest import commit_of, save
from tests.helpers.code import SCENES, held, kept, lay_out
from tests.helpers.errors import refused
from tests.helpers.machines import Machine, own_of_the_user
from tests.helpers.repositories import add_worktree, git, trap
from tests.helpers.scenes import CHECKOUT

# ---- What is saved.


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_is_saved_is_what_stands_there_byte_for_byte(
    laptop: Machine, run_id: str, scene: Callable[[Path], None]
) -> None:
    scene(laptop.root)
    commit = commit_of(save(laptop, run_id))
    assert kept(laptop.root, commit) == held(laptop.root)
    (laptop.root / "later é").write_text("later")
    (laptop.root / "a.txt").unlink() if (laptop.root / "a.txt").is_file() else None
    second = commit_of(save(laptop, run_id))
    assert kept(laptop.root, second) == held(laptop.root)
    head = subprocess.run(
        ["git", "rev-parse", "-q", "--verify", "HEAD"], cwd=laptop.root, capture_output=True, text=True, check=False
    )
    parents = git(laptop.root, "log", "-1", "--format=%P", second).split()
    assert parents == [*head.stdout.split(), commit]
    assert git(laptop.root, "rev-parse", f"refs/loom/work/{run_id}") == second
    git(laptop.root, "fsck", "--strict", "--no-dangling")


def test_nothing_new_makes_no_commit_and_a_new_head_does(laptop: Machine, run_id: str) -> None:
    lay_out(laptop.root)
    first = save(laptop, run_id)
    assert (first.is_new, save(laptop, run_id)) == (True, Snapshot(first.commit, left_out=first.left_out))
    git(laptop.root, "commit", "-q", "--allow-empty", "-m", "empty")
    assert save(laptop, run_id).is_new


def test_what_a_newer_loom_saved_is_not_read(laptop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole, and no reason to think that another program wrote it (D56)."""
    with monkeypatch.context() as newer:
        newer.setattr(work, "SCHEMA", work.SCHEMA + 1)
        commit = commit_of(save(laptop, run_id))
    with refused("NEWER_HANDOFF", exit_code=EXIT_SKEW):
        work.read(laptop.desk().repository, commit)


def test_a_file_of_the_same_size_and_second_is_seen(laptop: Machine, run_id: str) -> None:
    for text in ("one\n", "two\n", "six\n"):
        (laptop.root / "b.txt").write_text(text)
        assert kept(laptop.root, commit_of(save(laptop, run_id)))["b.txt"] == ("100644", text.encode())


def test_settings_lead_to_no_other_folder(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "private").write_text("x")
    lay_out(laptop.root)
    there = held(laptop.root)
    git(laptop.root, "config", "core.worktree", str(tmp_path / "elsewhere"))
    assert kept(laptop.root, commit_of(save(laptop, run_id))) == there


def test_what_a_sparse_checkout_leaves_out_is_saved_as_committed(server: Path, tmp_path: Path) -> None:
    sparse = Machine(tmp_path / "sparse", server)
    for name in ("in", "out"):
        (sparse.root / name).mkdir()
        (sparse.root / name / "f").write_text(name)
    git(sparse.root, "add", "-A")
    git(sparse.root, "commit", "-q", "-m", "folders")
    git(sparse.root, "sparse-checkout", "set", "--sparse-index", "in")
    sparse.workflow()
    sparse.begin()
    (sparse.root / "in" / "new").write_text("x")
    assert not (sparse.root / "out").exists()
    there = kept(sparse.root, commit_of(save(sparse, sparse.run_dir.name)))
    assert (there["out/f"], there["in/new"]) == (("100644", b"out"), ("100644", b"x"))


def test_a_name_that_git_takes_from_nobody_is_named(laptop: Machine, run_id: str) -> None:
    (laptop.root / "git~1").write_text("x")
    (laptop.root / "z").write_text("x")
    found = save(laptop, run_id)
    assert [(one.name, one.why) for one in found.left_out] == [("git~1", "git takes no such name")]
    assert "z" in kept(laptop.root, commit_of(found))


def test_a_linked_worktree_is_saved_as_itself(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    lay_out(laptop.root)
    there = add_worktree(laptop.root, tmp_path / "by side", "side")
    (there / "only here").write_text("x")
    before = own_of_the_user(laptop.root)
    found = work.snapshot(laptop.space(cwd=there), run_id)
    assert found is not None
    assert kept(there, commit_of(found)) == held(there)
    assert own_of_the_user(laptop.root) == before


def test_a_submodule_is_saved_as_a_link_and_a_repository_inside_is_named(
    laptop: Machine, run_id: str, server: Path
) -> None:
    git(laptop.root, "submodule", "add", "-q", str(server), "sub")
    git(laptop.root, "commit", "-q", "-m", "sub")
    git(laptop.root / "sub", "commit", "-q", "--allow-empty", "-m", "further")
    git(laptop.root, "clone", "-q", str(server), "nested")
    found = save(laptop, run_id)
    entry = git(laptop.root, "ls-tree", commit_of(found), "sub").split()
    assert entry[:3] == ["160000", "commit", git(laptop.root / "sub", "rev-parse", "HEAD")]
    assert [one.name for one in found.left_out] == ["nested/"]
    assert git(laptop.root, "ls-tree", commit_of(found), "nested") == ""


# ---- What is not saved.


@pytest.mark.shows("untracked files with a secret's name stay here")
def test_what_may_not_travel_stays_and_is_told_once(laptop: Machine, run_id: str) -> None:
    """Secrets that git does not track, links that lead out, what is too large; what is tracked goes all the same."""
    root = laptop.root
    (root / "kept.pem").write_text("tracked")
    (root / "out").symlink_to("/etc/hostname")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "more")
    for name in (".env", ".env.production", "server.key", "id_ed25519", "my.tfvars", ".env.example", "environment.py"):
        (root / name).write_text("x")
    (root / "leads").symlink_to("../../etc")
    (root / "odd").symlink_to("sub/../a.txt")
    with (root / "huge").open("wb") as out:
        out.truncate(work.LARGEST + 1)
    found = save(laptop, run_id)
    stays = {".env", ".env.production", "server.key", "id_ed25519", "my.tfvars", "leads", "odd", "huge"}
    assert {one.name for one in found.left_out} == stays
    assert kept(root, commit_of(found)).keys() == held(root).keys() - stays
    assert ("out" in kept(root, commit_of(found)), len(found.notes)) == (True, 1)
    (root / "a.txt").write_text("changed")
    assert save(laptop, run_id).notes == ()


def test_what_a_filter_makes_is_saved_as_committed_and_no_filter_runs(
    laptop: Machine, run_id: str, tmp_path: Path
) -> None:
    """A filter may keep a secret out of git: its changed files stay here. Those of Git LFS go as they stand."""
    program, sprung = trap(tmp_path)
    (laptop.root / ".gitattributes").write_text("*.crypt filter=crypt\n*.bin filter=lfs\n*.none filter=nobody\n")
    for name in ("a.crypt", "b.crypt", "a.bin", "b.bin", "c.none"):
        (laptop.root / name).write_text(f"pointer of {name}\n")
        os.utime(laptop.root / name, (1, 1))  # older than the index, so that git need not look into them
    large = b"LARGE\n"
    (laptop.root / "d.bin").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(large).hexdigest()}\nsize 6\n"
    )
    git(laptop.root, "add", "-A")
    git(laptop.root, "commit", "-q", "-m", "filtered")
    for name in ("crypt", "lfs"):
        git(laptop.root, "config", f"filter.{name}.clean", str(program))
        git(laptop.root, "config", f"filter.{name}.process", str(program))
        git(laptop.root, "config", f"filter.{name}.required", "true")
    for name in ("b.crypt", "b.bin", "c.none"):
        (laptop.root / name).write_text("plain, and longer than it was before\n")
    (laptop.root / "new.crypt").write_text("plain\n")
    (laptop.root / "d.bin").write_bytes(large)
    found = save(laptop, run_id)
    assert [one.name for one in found.left_out] == ["b.crypt", "new.crypt"]
    there = kept(laptop.root, commit_of(found))
    assert there["a.crypt"][1] == b"pointer of a.crypt\n"
    assert there["a.bin"][1] == b"pointer of a.bin\n"
    assert there["d.bin"][1].startswith(b"version ")
    assert there["b.bin"][1] == there["c.none"][1] == b"plain, and longer than it was before\n"
    assert not sprung.exists()


@pytest.mark.shows("reads your checkout with an index of its own")
def test_no_program_of_the_repositorys_runs(laptop: Machine, run_id: str, tmp_path: Path) -> None:
    program, sprung = trap(tmp_path)
    hooks = laptop.root / ".git" / "hooks"
    for name in ("pre-commit", "post-commit", "post-index-change", "reference-transaction", "commit-msg"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    for setting in ("core.fsmonitor", "gpg.program", "core.editor", "core.pager"):
        git(laptop.root, "config", setting, str(program))
    git(laptop.root, "config", "commit.gpgSign", "true")
    sprung.unlink(missing_ok=True)
    lay_out(laptop.root, stage=False)
    assert save(laptop, run_id).is_new
    assert not sprung.exists()


# ---- What goes wrong.


def test_what_git_refuses_is_a_line_for_the_user(laptop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (laptop.root / ".git" / "index").write_bytes(b"no index")
    found = work.snapshot(laptop.space(), run_id)
    assert found is not None
    assert found.commit is None
    assert found.notes[0].startswith("Loom could not save the code of this step for another machine: git ls-files")
    monkeypatch.setenv("PATH", "/nowhere")
    assert work.snapshot(laptop.space(), run_id) is None


def test_an_unreadable_file_is_named_and_the_rest_is_saved(
    laptop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root nothing is unreadable, so git says here what it says of such a file, and ends as it does."""
    lay_out(laptop.root)
    (laptop.root / "shut").write_text("x")
    run = Repository.run

    def refuses(self: Repository, *words: str, given: bytes = b"", **named: Any) -> Done:
        if "--add" in words and b"shut" in given:
            return Done(128, b"", "error: unable to index file 'shut'\nfatal: Unable to process path shut")
        return run(self, *words, given=given, **named)

    monkeypatch.setattr(Repository, "run", refuses)
    monkeypatch.setattr(work, "_is_readable", lambda path: not path.endswith("shut"))
    found = work.snapshot(laptop.space(), run_id)
    monkeypatch.undo()
    assert found is not None
    assert [one.name for one in found.left_out] == ["shut"]
    assert kept(laptop.root, commit_of(found)).keys() == held(laptop.root).keys() - {"shut"}


def test_what_git_noted_and_lost_is_made_anew(laptop: Machine, run_id: str) -> None:
    """A damaged index of Loom's, a lock of a killed git, objects that were thrown away."""
    lay_out(laptop.root)
    first = commit_of(save(laptop, run_id))
    index = laptop.store / "local" / "work" / f"{run_id}.index"
    index.with_suffix(".index.lock").write_text("")
    index.write_bytes(b"DIRC damaged")
    assert commit_of(save(laptop, run_id)) == first
    git(laptop.root, "update-ref", "-d", f"refs/loom/work/{run_id}")
    git(laptop.root, "reset", "-q")
    git(laptop.root, "-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")
    again = commit_of(save(laptop, run_id))
    assert kept(laptop.root, again) == held(laptop.root)


KILLED = """
import os, sys
from loomctl.handoff import repository, work
at, count, begin = int(sys.argv[1]), 0, repository.Repository._begin
def counted(self, *words, **named):
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), 9)
    return begin(self, *words, **named)
repository.Repository._begin = counted
from tests.helpers.machines import Machine
from pathlib import Path
machine = Machine.__new__(Machine)
machine.root, machine.store = Path(sys.argv[2]), Path(sys.argv[2]) / ".loom"
work.snapshot(machine.space(), sys.argv[3])
"""


@pytest.mark.slow
def test_a_kill_at_any_command_leaves_the_old_commit_or_the_new(laptop: Machine, run_id: str) -> None:
    lay_out(laptop.root)
    old = commit_of(save(laptop, run_id))
    (laptop.root / "a.txt").write_text("new")
    before, codes = own_of_the_user(laptop.root), []
    for at in range(1, 40):
        words = [sys.executable, "-c", KILLED, str(at), str(laptop.root), run_id]
        codes.append(subprocess.run(words, cwd=CHECKOUT, check=False).returncode)
        assert own_of_the_user(laptop.root) == before
        now = git(laptop.root, "rev-parse", f"refs/loom/work/{run_id}")
        git(laptop.root, "fsck", "--no-dangling")
        if now != old:
            assert git(laptop.root, "rev-parse", f"{now}^2") == old
            assert kept(laptop.root, now) == held(laptop.root)
            break
        assert codes[-1] == -9
    assert len(codes) > 8
    assert codes[-1] == 0
