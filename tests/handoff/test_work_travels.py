"""The code of a run, pushed with its state and put back on another machine byte for byte (D10, D77)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from loomctl.handoff import push, work, work_restore
from loomctl.handoff.repository import Repository
from loomctl.handoff.work import Message
from loomctl.handoff.work_restore import PutBack
from tests.handoff.conftest import commit_of, save
from tests.helpers.code import SCENES, held, hidden_from_git, lay_out, with_autocrlf, without_an_index
from tests.helpers.errors import refused
from tests.helpers.machines import Machine, own_of_the_user, tips
from tests.helpers.repositories import git, trap
from tests.helpers.scenes import CHECKOUT, handle


def put_back(machine: Machine, run_id: str, folder: Path) -> PutBack:
    """Pull a run with its code, as the command does."""
    desk = machine.desk()
    place = work_restore.check_place(desk, run_id, str(folder))
    theirs = work_restore.find(desk, run_id)
    machine.pull(run_id)
    return work_restore.put_back(desk, run_id, theirs, place)


def changes(root: Path) -> dict[str, str]:
    """Give what git says is changed: `?` for what no commit has; whether it is staged is not told apart."""
    words = ["git", "status", "--porcelain", "-z", "--no-renames", "-uall"]
    said = os.fsdecode(subprocess.run(words, cwd=root, check=True, capture_output=True).stdout)
    entries = [(entry[:2], entry[3:]) for entry in said.split("\0") if entry]
    return {
        path: "?" if set(about) & {"A", "?"} else "D" if "D" in about else "M"
        for about, path in entries
        if ".loom" not in path.split("/") and about != "AD"
    }


# ---- There and back.


@pytest.mark.slow(quick=2)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_code_arrives_byte_for_byte_with_the_same_changes(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path, scene: Callable[[Path], None]
) -> None:
    scene(laptop.root)
    save(laptop, run_id)
    (laptop.root / "later").write_text("later")
    save(laptop, run_id)
    before = own_of_the_user(laptop.root)
    laptop.push(run_id)
    assert own_of_the_user(laptop.root) == before
    back = put_back(desktop, run_id, tmp_path / "put back")
    there = Path(back.path)
    assert held(there) == held(laptop.root)
    assert git(there, "symbolic-ref", "HEAD") == f"refs/heads/loom/{handle(run_id)}"
    if scene not in (with_autocrlf, hidden_from_git, without_an_index):  # what the laptop's git says is its own affair
        assert changes(there) == changes(laptop.root)


@pytest.mark.slow
def test_code_and_state_go_on_after_a_kill_as_of_the_last_step(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    """A step ended, its code was saved and pushed; what the next step did before its machine died is not there."""
    (laptop.root / "feature.py").write_text("done = 1\n")
    laptop.done(run_id, "Made the feature.")
    save(laptop, run_id)
    laptop.push(run_id)
    was = held(laptop.root)
    state = (laptop.folder(run_id) / "state.json").read_bytes()
    (laptop.root / "feature.py").write_text("half a thought")
    back = put_back(desktop, run_id, tmp_path / "there")
    assert held(Path(back.path)) == was
    assert (desktop.folder(run_id) / "state.json").read_bytes() == state
    assert back.message.step == "build/make"
    assert not list(back.notes)
    # And back again: the desktop goes on in its worktree, and the laptop gets that.
    (Path(back.path) / "feature.py").write_text("done = 2\n")
    found = work.snapshot(desktop.space(cwd=Path(back.path)), run_id)
    assert found is not None
    desktop.push(run_id)
    again = put_back(laptop, run_id, tmp_path / "returned")
    assert held(Path(again.path)) == held(Path(back.path))
    assert git(laptop.root, "rev-parse", f"refs/loom/work/{run_id}") == found.commit


def test_a_base_that_was_never_pushed_comes_along(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    git(laptop.root, "commit", "-q", "--allow-empty", "-m", "only here")
    save(laptop, run_id)
    desk = laptop.desk()
    parcel = push.prepare(desk, run_id)
    assert parcel.code is not None
    assert (parcel.code.commits, parcel.code.files) == (1, 0)
    push.send(desk, parcel)
    back = put_back(desktop, run_id, tmp_path / "there")
    assert git(Path(back.path), "rev-parse", "HEAD") == git(laptop.root, "rev-parse", "HEAD")


def machine_of(root: Path, server: Path, *how: str) -> Machine:
    """Give a machine whose clone was made in some other way."""
    made = Machine.__new__(Machine)
    made.root, made.store = root, root / ".loom"
    git(root.parent, "clone", "-q", *how, f"file://{server}", str(root))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("how", [("--depth=1",), ("--filter=blob:none",), ("--filter=blob:none", "--sparse")])
def test_code_travels_between_clones_that_have_not_all(
    server: Path, tmp_path: Path, laptop: Machine, how: tuple[str, ...]
) -> None:
    git(server, "config", "uploadpack.allowFilter", "true")
    (laptop.root / "folder").mkdir()
    (laptop.root / "folder" / "f").write_text("x")
    for text in ("two\n", "three\n"):
        (laptop.root / "a.txt").write_text(text)
        git(laptop.root, "add", "-A")
        git(laptop.root, "commit", "-q", "-m", text)
    git(laptop.root, "push", "-q")
    one, other = machine_of(tmp_path / "one", server, *how), machine_of(tmp_path / "other", server, *how)
    one.workflow()
    one.begin()
    run_id = one.run_dir.name
    (one.root / "new").write_text("x")
    save(one, run_id)
    one.push(run_id)
    back = put_back(other, run_id, tmp_path / "there")
    there = held(Path(back.path))
    assert there.pop("folder/f", None) == ("100644", b"x")
    assert there == {name: of for name, of in held(one.root).items() if name != "folder/f"}


def test_code_travels_where_objects_have_longer_names(tmp_path: Path) -> None:
    server = tmp_path / "wide.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "--object-format=sha256", str(server))
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "first")
    first = Machine.__new__(Machine)
    first.root, first.store = tmp_path / "first", tmp_path / "first" / ".loom"
    git(first.root, "remote", "add", "origin", str(server))
    lay_out(first.root)
    git(first.root, "push", "-q", "origin", "HEAD")
    other = Machine(tmp_path / "other", server)
    first.workflow()
    first.begin()
    run_id = first.run_dir.name
    save(first, run_id)
    first.push(run_id)
    assert held(Path(put_back(other, run_id, tmp_path / "there").path)) == held(first.root)


def test_what_stays_here_is_on_the_other_machine_as_committed(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    """A changed file of a filter's, and Loom's own settings; a secret is not there at all."""
    (laptop.root / ".gitattributes").write_text("*.crypt filter=crypt\n")
    (laptop.root / "a.crypt").write_text("as committed\n")
    (laptop.root / ".loom" / "config.yaml").write_text("commit_runs: false\n")
    git(laptop.root, "add", "-A")
    git(laptop.root, "commit", "-q", "-m", "crypt")
    git(laptop.root, "config", "filter.crypt.clean", "cat")
    (laptop.root / "a.crypt").write_text("plain and much longer\n")
    (laptop.root / ".env").write_text("TOKEN=1\n")
    save(laptop, run_id)
    laptop.push(run_id)
    back = put_back(desktop, run_id, tmp_path / "there")
    there = Path(back.path)
    assert (there / "a.crypt").read_text() == "as committed\n"
    assert (there / ".loom" / "config.yaml").read_text() == "commit_runs: false\n"
    assert not (there / ".env").exists()
    assert [name for name, _ in back.message.left_out] == ["a.crypt", ".env"]
    assert git(there, "status", "--porcelain") == ""


def test_files_of_a_filter_come_through_that_filter(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    """As Git LFS has it: the history has a pointer, the working tree the file."""
    for machine in (laptop, desktop):
        git(machine.root, "config", "filter.up.clean", "tr A-Z a-z")
        git(machine.root, "config", "filter.up.smudge", "tr a-z A-Z")
    (laptop.root / ".gitattributes").write_text("*.up filter=up\n")
    (laptop.root / "a.up").write_text("LARGE\n")
    os.utime(laptop.root / "a.up", (1, 1))  # older than the index, so that git need not look into it
    git(laptop.root, "add", "-A")
    git(laptop.root, "commit", "-q", "-m", "filter")
    save(laptop, run_id)
    laptop.push(run_id)
    back = put_back(desktop, run_id, tmp_path / "there")
    assert held(Path(back.path)) == held(laptop.root)
    assert list(back.notes) == ["1 file came through a filter of git's, such as Git LFS"]


def test_a_submodule_stands_at_the_commit_of_then(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path, server: Path
) -> None:
    git(laptop.root, "submodule", "add", "-q", str(server), "sub")
    git(laptop.root, "commit", "-q", "-m", "sub")
    git(laptop.root / "sub", "commit", "-q", "--allow-empty", "-m", "further")
    save(laptop, run_id)
    laptop.push(run_id)
    back = put_back(desktop, run_id, tmp_path / "there")
    staged = git(Path(back.path), "ls-files", "-s", "sub").split()
    assert staged[:2] == ["160000", git(laptop.root / "sub", "rev-parse", "HEAD")]


# ---- Who went on.


def test_code_is_pushed_with_the_state_and_once(laptop: Machine, server: Path, run_id: str) -> None:
    laptop.push(run_id)
    assert f"refs/loom/work/{run_id}" not in tips(server)
    first = commit_of(save(laptop, run_id))
    assert laptop.push(run_id).commit is not None
    assert tips(server)[f"refs/loom/work/{run_id}"] == first
    assert laptop.push(run_id).commit is None


def test_older_code_replaces_no_newer_and_nothing_is_lost_of_either(
    laptop: Machine, desktop: Machine, server: Path, run_id: str, tmp_path: Path
) -> None:
    ref = f"refs/loom/work/{run_id}"
    first = commit_of(save(laptop, run_id))
    laptop.push(run_id)
    back = put_back(desktop, run_id, tmp_path / "there")
    (Path(back.path) / "b").write_text("desktop")
    found = work.snapshot(desktop.space(cwd=Path(back.path)), run_id)
    assert found is not None
    desktop.push(run_id)
    assert tips(server)[ref] == found.commit
    laptop.pull(run_id)  # the state alone
    assert laptop.push(run_id).commit is None  # the code here is a part of what the remote has
    assert git(laptop.root, "rev-parse", ref) == first
    (laptop.root / "b").write_text("laptop")
    second = commit_of(save(laptop, run_id))
    laptop.push(run_id)
    joined = tips(server)[ref]
    assert git(laptop.root, "rev-parse", f"{joined}^{{tree}}") == git(laptop.root, "rev-parse", f"{second}^{{tree}}")
    for older in (first, second, str(found.commit)):
        git(laptop.root, "merge-base", "--is-ancestor", older, joined)


def test_a_remote_that_takes_no_code_gets_the_state(laptop: Machine, server: Path, run_id: str) -> None:
    hook = server / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/loom/work/*) echo "no code here" >&2; exit 1;; esac\n')
    hook.chmod(0o755)
    save(laptop, run_id)
    pushed = laptop.push(run_id)
    assert f"refs/loom/runs/{run_id}" in tips(server)
    assert f"refs/loom/work/{run_id}" not in tips(server)
    (told,) = (note for note in pushed.notes if note.startswith("origin did not take the code: "))
    assert ("no code here" in told, pushed.parcel.code) == (True, None)
    git(server, "config", "receive.advertiseAtomic", "false")
    hook.unlink()
    assert not any("code" in note for note in laptop.push(run_id).notes)
    assert f"refs/loom/work/{run_id}" in tips(server)


# ---- What is refused.


def test_a_taken_place_and_a_taken_branch_are_refused_before_anything_is_written(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    with refused("NO_CODE"):
        laptop.push(run_id)
        put_back(desktop, run_id, tmp_path / "there")
    assert not desktop.folder(run_id).exists()
    save(laptop, run_id)
    laptop.push(run_id)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    for place in (tmp_path / "full", tmp_path / "full" / "mine"):
        with refused("NOT_EMPTY"):
            put_back(desktop, run_id, place)
    for place in (desktop.root / ".git" / "x", desktop.root / ".loom"):
        with refused("USAGE"):
            put_back(desktop, run_id, place)
    assert not desktop.folder(run_id).exists()
    git(desktop.root, "branch", f"loom/{handle(run_id)}")
    with refused("BRANCH_EXISTS"):
        put_back(desktop, run_id, tmp_path / "there")
    assert not (tmp_path / "there").exists()
    git(desktop.root, "branch", "-m", f"loom/{handle(run_id)}", "loom/before")
    assert put_back(desktop, run_id, tmp_path / "there").branch == f"loom/{handle(run_id)}"
    with refused("BRANCH_EXISTS") as error:
        put_back(desktop, run_id, tmp_path / "elsewhere")
    assert error.value.hint == f"git branch -m loom/{handle(run_id)} loom/{handle(run_id)}-before"


KILLED = """
import os, sys
from pathlib import Path
from loomctl.handoff import work_restore
from tests.helpers.machines import Machine
work_restore._Putting._by_git = lambda *given: os.kill(os.getpid(), 9)
machine = Machine.__new__(Machine)
machine.root, machine.store = Path(sys.argv[1]), Path(sys.argv[1]) / ".loom"
desk, run_id = machine.desk(), sys.argv[3]
machine.pull(run_id)
work_restore.put_back(desk, run_id, work_restore.find(desk, run_id), sys.argv[2])
"""


@pytest.mark.slow
def test_a_pull_that_was_killed_says_how_to_clear_it_away(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    lay_out(laptop.root)
    save(laptop, run_id)
    laptop.push(run_id)
    words = [sys.executable, "-c", KILLED, str(desktop.root), str(tmp_path / "there"), run_id]
    assert subprocess.run(words, cwd=CHECKOUT, check=False).returncode == -9
    with refused("NOT_EMPTY") as error:
        put_back(desktop, run_id, tmp_path / "there")
    subprocess.run(error.value.hint, shell=True, cwd=desktop.root, check=True, capture_output=True)
    assert held(Path(put_back(desktop, run_id, tmp_path / "there").path)) == held(laptop.root)


def test_no_hook_runs_as_code_is_put_back(laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path) -> None:
    program, sprung = trap(tmp_path)
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        hook = desktop.root / ".git" / "hooks" / name
        hook.write_text(program.read_text())
        hook.chmod(0o755)
    lay_out(laptop.root)
    save(laptop, run_id)
    laptop.push(run_id)
    put_back(desktop, run_id, tmp_path / "there")
    assert not sprung.exists()


def _blob(repo: Repository, data: bytes) -> str:
    return repo.ask("hash-object", "-w", "--stdin", given=data).decode().strip()


def _tree(repo: Repository, *entries: tuple[str, str, str]) -> str:
    """Write a tree as it is told, whether or not git would."""
    data = b"".join(
        mode.lstrip("0").encode() + b" " + os.fsencode(name) + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries
    )
    words = ("hash-object", "-t", "tree", "--literally", "-w", "--stdin")
    return repo.ask(*words, given=data).decode().strip()


HOSTILE: dict[str, Callable[[Repository, str], str]] = {
    "a .git": lambda repo, blob: _tree(repo, ("40000", ".git", _tree(repo, ("100644", "config", blob)))),
    "a .Git": lambda repo, blob: _tree(repo, ("40000", ".Git", _tree(repo, ("100644", "config", blob)))),
    "a git~1": lambda repo, blob: _tree(repo, ("40000", "git~1", _tree(repo, ("100644", "config", blob)))),
    "an HFS .git": lambda repo, blob: _tree(repo, ("40000", ".g\u200cit", _tree(repo, ("100644", "config", blob)))),
    "a way up": lambda repo, blob: _tree(repo, ("40000", "..", _tree(repo, ("100644", "escaped", blob)))),
    "a slash": lambda repo, blob: _tree(repo, ("100644", "../escaped", blob)),
    "Loom's own": lambda repo, blob: _tree(repo, ("40000", ".loom", _tree(repo, ("100644", "config.yaml", blob)))),
    "a link out": lambda repo, _: _tree(repo, ("120000", "out", _blob(repo, b"../../etc"))),
    "a root link": lambda repo, _: _tree(repo, ("120000", "out", _blob(repo, b"/etc/passwd"))),
    "a link by a link": lambda repo, _: _tree(repo, ("120000", "a", _blob(repo, b"b/.."))),
    "through a link": lambda repo, blob: _tree(
        repo, ("120000", "a", _blob(repo, b"b")), ("40000", "a", _tree(repo, ("100644", "escaped", blob)))
    ),
    "twice": lambda repo, blob: _tree(repo, ("100644", "a", blob), ("100644", "a", blob)),
    "a long name": lambda repo, blob: _tree(repo, ("100644", "n" * 300, blob)),
}


def _offer(machine: Machine, run_id: str, tree: str, base: str, more: Mapping[str, Any] = {}) -> None:
    """Put a tree on the remote as the code of a run. more: what its message says otherwise."""
    desk = machine.desk()
    message = Message(run_id, "2026-01-15T09:30:00Z", "elsewhere", base, "a/b", 1)._replace(**more)
    commit = work.write(desk.repository, tree, [base], message)
    git(machine.root, "push", "-q", "-f", "origin", f"{commit}:refs/loom/work/{run_id}")


@pytest.mark.slow(quick=3)
@pytest.mark.shows("It puts no file outside of that worktree")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tree_is_refused_whole(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path, name: str
) -> None:
    laptop.push(run_id)
    repo = laptop.desk().repository
    _offer(laptop, run_id, HOSTILE[name](repo, _blob(repo, b"[core]\n")), git(laptop.root, "rev-parse", "HEAD"))
    with pytest.raises(Exception) as error:  # noqa: PT011 - its code is looked at below
        put_back(desktop, run_id, tmp_path / "there")
    assert getattr(error.value, "code", "") in ("BAD_HANDOFF", "GIT_FAILED"), error.value
    assert not (tmp_path / "there").exists()
    assert not (tmp_path / "escaped").exists()
    assert git(desktop.root, "branch", "--list", "loom/*") == ""
    assert git(desktop.root, "worktree", "list").count("\n") == 0
    assert not any("work/" in ref or "arriving" in ref for ref in git(desktop.root, "for-each-ref").split())


@pytest.mark.parametrize("more", [{"run_id": "another"}, {"base": "f" * 40}, {"base": "--help"}])
def test_code_that_is_not_the_runs_is_refused(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path, more: dict[str, str]
) -> None:
    laptop.push(run_id)
    head = git(laptop.root, "rev-parse", "HEAD")
    _offer(laptop, run_id, git(laptop.root, "rev-parse", "HEAD^{tree}"), head, more)
    with refused("BAD_HANDOFF"):
        put_back(desktop, run_id, tmp_path / "there")


def test_a_tree_that_unfolds_without_end_is_stopped(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_restore, "MOST_ENTRIES", 10_000)
    laptop.push(run_id)
    repo = laptop.desk().repository
    tree = _tree(repo, ("100644", "a", _blob(repo, b"x")))
    for _ in range(12):
        tree = _tree(repo, *(("40000", str(number), tree) for number in range(10)))
    _offer(laptop, run_id, tree, git(laptop.root, "rev-parse", "HEAD"))
    with refused("BAD_HANDOFF"):
        put_back(desktop, run_id, tmp_path / "there")


def test_names_that_are_one_on_this_disk_are_refused(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    (laptop.root / "A").write_text("x")
    (laptop.root / "a").mkdir()
    (laptop.root / "a" / "b").write_text("x")
    save(laptop, run_id)
    laptop.push(run_id)
    git(desktop.root, "config", "core.ignorecase", "true")
    with refused("BAD_HANDOFF"):
        put_back(desktop, run_id, tmp_path / "there")
    git(desktop.root, "config", "core.ignorecase", "false")
    assert held(Path(put_back(desktop, run_id, tmp_path / "there").path)) == held(laptop.root)
