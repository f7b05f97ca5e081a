"""What changed in a checkout is told by content, in every kind of checkout; the user's repository stays as it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.changes import working_tree
from loomctl.changes.working_tree import Change, Changes, Moment, Unknown
from tests.helpers import repositories
from tests.helpers.repositories import git
from tests.helpers.tables import each

PATIENT = 60.0


class Watch:
    """A checkout and what was noted of it."""

    def __init__(self, top: Path, own: Path) -> None:
        self.top, self.own = top, own
        own.mkdir()
        self.before = working_tree.note(str(top), str(own), patience=PATIENT)

    def changes(self) -> Changes:
        """What changed since, read from what a file holds of the first moment."""
        before = Moment.from_dict(json.loads(json.dumps(self.before._asdict())))
        return working_tree.since(str(self.top), str(self.own), before, patience=PATIENT)

    def told(self) -> dict[str, str]:
        """What changed since, by path."""
        return {change.path: change.kind for change in self.changes().entries}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Give a repository with files that are tracked, untracked, changed and ignored."""
    return shop_in(tmp_path)


def shop_in(folder: Path) -> Path:
    top = repositories.make(folder / "Größe 1", **{"a.txt": "one\n", "b.txt": "two\n", ".gitignore": "ignored/\n*.o\n"})
    (top / "ignored").mkdir()
    (top / "ignored" / "x").write_text("x\n")
    (top / "src").mkdir()
    (top / "src" / "c.py").write_text("c = 1\n")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "second")
    (top / "b.txt").write_text("two, changed\n")
    (top / "notes.md").write_text("notes\n")
    return top


def commit(top: Path) -> None:
    git(top, "add", "-A")
    git(top, "commit", "-q", "--allow-empty", "-m", "more")


def commit_and_go_back(top: Path) -> None:
    """Change a file, commit it, and commit what it was."""
    (top / "a.txt").write_text("other\n")
    commit(top)
    (top / "a.txt").write_text("one\n")
    commit(top)


def switch(top: Path) -> None:
    git(top, "stash", "-q", "-u")
    git(top, "checkout", "-q", "-b", "other")
    (top / "d.txt").write_text("d\n")
    commit(top)
    git(top, "stash", "pop", "-q")


def by_rename(top: Path) -> None:
    """Rename a folder; its files' own times stay."""
    (top / "src").rename(top / "lib")


def same_size_and_time(top: Path) -> None:
    """Change a file to other content of the same size and give it its old time."""
    status = (top / "a.txt").stat()
    (top / "a.txt").write_text("eno\n")
    os.utime(top / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))


def a_merge_in_conflict(top: Path) -> None:
    """Leave a file with both sides of a merge in it."""
    git(top, "stash", "-q", "-u")
    git(top, "checkout", "-q", "-b", "left")
    (top / "a.txt").write_text("left\n")
    commit(top)
    git(top, "checkout", "-q", "main")
    (top / "a.txt").write_text("right\n")
    commit(top)
    user = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *user, "merge", "-q", "left"], cwd=top, check=False, capture_output=True)
    assert "<<<<<<<" in (top / "a.txt").read_text()


def folder_for_file(top: Path) -> None:
    """Put a folder where a file was, and a link where a folder was."""
    (top / "a.txt").unlink()
    (top / "a.txt").mkdir()
    (top / "a.txt" / "inside").write_text("x")
    (top / "src").rename(top / "ignored" / "src")
    (top / "src").symlink_to("ignored")


def nested_repository(top: Path) -> None:
    repositories.make(top / "vendor" / "lib")


def write(path: str, text: str) -> Callable[[Path], None]:
    def done(top: Path) -> None:
        place = top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    return done


def ignored_no_more(top: Path) -> None:
    """Ignore nothing any more: what was there all the time was not made now."""
    (top / ".gitignore").write_text("")
    (top / "ignored" / "new").write_text("new\n")


def added_by_force(top: Path) -> None:
    (top / "made.o").write_text("o\n")
    git(top, "add", "-f", "made.o")


def loom_and_faber(top: Path) -> None:
    """Write what Loom and FABER keep, tracked or not, at the top and below."""
    for folder in (".loom/runs/x", ".fractary/faber/runs", "packages/a/.loom"):
        (top / folder).mkdir(parents=True)
        (top / folder / "state.json").write_text("{}")
    git(top, "add", "-f", ".loom")
    commit(top)


def change_and_commit(top: Path) -> None:
    (top / "a.txt").write_text("x")
    commit(top)


def commit_and_reset(top: Path) -> None:
    commit(top)
    git(top, "reset", "-q", "--soft", "HEAD~1")


def link_for_a_file(top: Path) -> None:
    (top / "a.txt").unlink()
    (top / "a.txt").symlink_to("b.txt")


def intend(top: Path) -> None:
    (top / "i").write_text("x")
    git(top, "add", "-N", "i")


def run_python(top: Path) -> None:
    """Let an interpreter leave compiled modules behind, beside one that was committed."""
    for name in ("__pycache__/x.cpython-311.pyc", "src/deep/__pycache__/y.pyc"):
        write(name, "compiled")(top)
    write("src/__pycache__.py", "a module")(top)


def compiled_and_committed(top: Path) -> None:
    run_python(top)
    git(top, "add", "-f", "__pycache__")
    commit(top)


def pipe_for_a_file(top: Path) -> None:
    (top / "a.txt").unlink()
    os.mkfifo(top / "a.txt")


CASES: list[tuple[str, Callable[[Path], object], dict[str, str]]] = [
    ("nothing", lambda _: None, {}),
    ("a file that is touched", lambda top: (top / "a.txt").touch(), {}),
    ("a tracked file", write("a.txt", "other\n"), {"a.txt": "modified"}),
    ("of the same size and time", same_size_and_time, {"a.txt": "modified"}),
    ("a file that was changed already, again", write("b.txt", "three\n"), {"b.txt": "modified"}),
    ("a changed file that is changed back to what is committed", write("b.txt", "two\n"), {"b.txt": "modified"}),
    ("an untracked file, again", write("notes.md", "more\n"), {"notes.md": "modified"}),
    ("an untracked file that goes", lambda top: (top / "notes.md").unlink(), {"notes.md": "deleted"}),
    ("a new file", write("new/deep/file", "x"), {"new/deep/file": "added"}),
    ("an empty new file", write("empty", ""), {"empty": "added"}),
    ("a file that goes", lambda top: (top / "a.txt").unlink(), {"a.txt": "deleted"}),
    ("a file that git removes", lambda top: git(top, "rm", "-q", "a.txt"), {"a.txt": "deleted"}),
    ("a file that git forgets", lambda top: git(top, "rm", "-q", "--cached", "a.txt"), {}),
    ("a commit of what was there", commit, {}),
    ("a stash of what was there", lambda top: git(top, "stash", "-q", "-u"),
     {"b.txt": "modified", "notes.md": "deleted"}),
    ("a change that is committed", change_and_commit, {"a.txt": "modified"}),
    ("a commit and its contrary", commit_and_go_back, {}),
    ("a commit that is taken back", commit_and_reset, {}),
    ("an amended commit", lambda top: git(top, "commit", "-q", "--amend", "-m", "other"), {}),
    ("another branch", switch, {"d.txt": "added"}),
    ("a detached head", lambda top: git(top, "checkout", "-q", "--detach"), {}),
    ("a rename", lambda top: git(top, "mv", "a.txt", "z.txt"), {"a.txt": "deleted", "z.txt": "added"}),
    ("a folder's rename", by_rename, {"src/c.py": "deleted", "lib/c.py": "added"}),
    ("a mode", lambda top: (top / "a.txt").chmod(0o755), {"a.txt": "modified"}),
    ("a link", lambda top: (top / "link").symlink_to("/etc/passwd"), {"link": "added"}),
    ("a link for a file", link_for_a_file, {"a.txt": "modified"}),
    ("a folder for a file, a link for a folder", folder_for_file,
     {"a.txt": "deleted", "a.txt/inside": "added", "src": "added", "src/c.py": "deleted"}),
    ("a merge in conflict", a_merge_in_conflict, {"a.txt": "modified", "b.txt": "modified", "notes.md": "deleted"}),
    ("a nested repository", nested_repository, {"vendor/lib": "added"}),
    ("a nested repository without a commit", lambda top: git(top, "init", "-q", "empty"), {}),
    ("another checkout of it inside", lambda top: git(top, "worktree", "add", "-q", "trees/one"), {}),
    ("an ignored file", write("ignored/y", "y"), {}),
    ("compiled modules of Python's", run_python, {"src/__pycache__.py": "added"}),
    ("compiled modules that are committed", compiled_and_committed,
     {"__pycache__/x.cpython-311.pyc": "added", "src/deep/__pycache__/y.pyc": "added",
      "src/__pycache__.py": "added"}),
    ("a new ignored file", write("a.o", "o"), {}),
    ("an ignored file that is added", added_by_force, {"made.o": "added"}),
    ("nothing ignored any more", ignored_no_more, {".gitignore": "modified", "ignored/new": "added"}),
    ("a tracked file that is ignored now", write(".gitignore", "ignored/\n*.o\n*.md\n"), {".gitignore": "modified"}),
    ("Loom's and FABER's own", loom_and_faber, {}),
    ("a name beyond ASCII", write("Maße/ä\u0301 ☃.txt", "x"), {"Maße/ä\u0301 ☃.txt": "added"}),
    ("a name with a line's end", write('a\nb\t"c"\\', "x"), {'a\nb\t"c"\\': "added"}),
    ("names that look like patterns", write(":(top)*", "x"), {":(top)*": "added"}),
    ("a name that begins with a hyphen", write("--all", "x"), {"--all": "added"}),
    ("an intended file", intend, {"i": "added"}),
    ("a pipe for a file", pipe_for_a_file, {"a.txt": "modified"}),
]  # fmt: skip


@pytest.mark.slow(quick=3)
@pytest.mark.parametrize("first", range(5))
def test_what_changed_is_told_by_content(tmp_path: Path, first: int) -> None:
    """And a second look, after a third party's `git status`, tells the same. first: of the cases, each fifth."""
    for number, (name, act, told) in enumerate(CASES[first::5]):
        folder = tmp_path / str(number)
        folder.mkdir()
        shop = shop_in(folder)
        watch = Watch(shop, folder / "own")
        act(shop)
        assert watch.told() == told, name
        git(shop, "status")
        assert watch.told() == told, name


def test_a_name_that_is_no_text_is_told(shop: Path, tmp_path: Path) -> None:
    watch = Watch(shop, tmp_path / "own")
    name = os.fsdecode(b"caf\xe9")
    (shop / name).write_text("x")
    assert watch.told() == {name: "added"}


@pytest.mark.parametrize("detached", [False, True])
def test_a_linked_worktree_is_a_checkout_of_its_own(shop: Path, tmp_path: Path, detached: bool) -> None:
    tree = repositories.add_worktree(shop, tmp_path / "tree", "side")
    if detached:
        git(tree, "checkout", "-q", "--detach")
    watch = Watch(tree, tmp_path / "own")
    (shop / "a.txt").write_text("there\n")
    (tree / "b.txt").write_text("here\n")
    commit(tree)
    assert watch.told() == {"b.txt": "modified"}
    with pytest.raises(Unknown, match="another checkout"):
        working_tree.since(str(shop), str(watch.own), watch.before, patience=PATIENT)


def test_before_the_first_commit_there_are_changes_too(tmp_path: Path) -> None:
    top = tmp_path / "new"
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    watch = Watch(top, tmp_path / "own")
    assert watch.told() == {}
    (top / "a").write_text("a")
    assert watch.told() == {"a": "added"}
    commit(top)
    assert watch.told() == {"a": "added"}


def test_a_submodule_is_told_by_the_commit_it_stands_at(shop: Path, tmp_path: Path) -> None:
    """What stands uncommitted in it is not looked at: that would be its own settings' affair."""
    inner = repositories.make(tmp_path / "inner")
    git(shop, "submodule", "--quiet", "add", str(inner), "lib")
    watch = Watch(shop, tmp_path / "own")
    (shop / "lib" / "a.txt").write_text("uncommitted\n")
    assert watch.told() == {}
    commit(shop / "lib")
    assert watch.told() == {"lib": "modified"}
    commit(shop)
    assert watch.told() == {"lib": "modified"}


def test_a_folder_below_the_top_stands_for_its_whole_checkout(shop: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    before = working_tree.note(str(shop / "src"), str(own), patience=PATIENT)
    (shop / "a.txt").write_text("x")
    (shop / "src" / "c.py").write_text("x")
    told = working_tree.since(str(shop / "src"), str(own), before, patience=PATIENT)
    assert [change.path for change in told.entries] == ["a.txt", "src/c.py"]


def state_of(top: Path) -> dict[str, tuple[bytes, int]]:
    """Give every file of a repository's own folder, and the time of those that git looks at."""
    found = {}
    for path in sorted((top / ".git").rglob("*")):
        if path.is_file():
            # By these times git notes what is still in use.
            timed = "objects" not in path.parts and not path.name.startswith("sharedindex.")
            found[str(path)] = (path.read_bytes(), path.stat().st_mtime_ns if timed else 0)
    return found


def test_the_users_repository_is_not_written(shop: Path, tmp_path: Path) -> None:
    git(shop, "config", "core.splitIndex", "true")
    git(shop, "config", "core.untrackedCache", "true")
    (shop / "split.txt").write_text("x")
    git(shop, "add", "split.txt")
    for path in shop.glob("*.txt"):
        os.utime(path)
    before = state_of(shop)
    watch = Watch(shop, tmp_path / "own")
    (shop / "a.txt").write_text("new content\n")
    (shop / "new.bin").write_bytes(os.urandom(5000))
    assert (watch.told(), state_of(shop)) == ({"a.txt": "modified", "new.bin": "added"}, before)


def test_nothing_that_a_repository_names_is_run(shop: Path, tmp_path: Path) -> None:
    program, mark = repositories.trap(tmp_path)
    (shop / ".gitattributes").write_text("*.txt filter=trap diff=trap\n")
    commit(shop)
    for name in ("filter.trap.clean", "filter.trap.process", "core.fsmonitor", "diff.trap.textconv", "diff.external"):
        git(shop, "config", name, str(program))
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (shop / ".git" / "hooks" / name).symlink_to(program)
    watch = Watch(shop, tmp_path / "own")
    (shop / "a.txt").write_text("x\n")
    found = watch.changes()
    assert [change.path for change in found.entries] == ["a.txt"]
    assert found.patch is not None
    assert not mark.exists()


def test_large_files_are_known_by_size_and_time(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_tree, "LARGEST", 1000)
    for name in ("tracked", "idle", "going", "dirty"):
        (shop / name).write_text(name * 1000)
    commit(shop)
    (shop / "dirty").write_text("x" * 2000)
    for name in ("free", "calm", "hidden", "shrinking"):
        (shop / name).write_text(name * 1000)
    watch = Watch(shop, tmp_path / "own")
    assert not any(path.stat().st_size > 1000 for path in (watch.own / "objects").rglob("*"))
    assert watch.told() == {}
    (shop / "tracked").write_text("t" * 2000)
    (shop / "going").unlink()
    (shop / "free").write_text("f" * 2000)
    (shop / "shrinking").write_text("s")
    (shop / "new").write_text("n" * 2000)
    with (shop / ".gitignore").open("a") as file:
        file.write("hidden\n")
    git(shop, "add", "calm")
    git(shop, "commit", "-q", "-m", "calm")
    found = {change.path: change for change in watch.changes().entries}
    assert found.pop(".gitignore").kind == "modified"
    assert {(path, change.kind, change.by_time) for path, change in found.items()} == {
        ("tracked", "modified", True), ("going", "deleted", False), ("free", "modified", True),
        ("shrinking", "modified", True), ("new", "added", True),
    }  # fmt: skip


def test_of_too_much_together_the_largest_are_known_by_size_and_time(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_tree, "MOST_TOGETHER", 3000)
    for number in range(5):
        (shop / f"n{number}").write_text("x" * (900 + number))
    watch = Watch(shop, tmp_path / "own")
    assert (sorted(watch.before.apart), watch.told()) == (["n3", "n4"], {})
    (shop / "n0").unlink()
    assert watch.told() == {"n0": "deleted"}
    (shop / "n4").write_text("y" * 904)
    assert watch.told() == {"n0": "deleted", "n4": "modified"}


def test_a_patch_says_what_changed(shop: Path, tmp_path: Path) -> None:
    watch = Watch(shop, tmp_path / "own")
    git(shop, "config", "diff.noprefix", "true")
    git(shop, "config", "color.diff", "always")
    (shop / "a.txt").write_text("one\nmore\n")
    (shop / "image").write_bytes(bytes(range(256)))
    found = watch.changes()
    assert found.entries == [Change("a.txt", "modified", added=1, removed=0), Change("image", "added")]
    assert found.patch is not None
    assert b"\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n one\n+more\n" in found.patch
    assert b"Binary files /dev/null and b/image differ" in found.patch
    (shop / "a.txt").write_text("one\n")
    (shop / "image").unlink()
    (tmp_path / "p").write_bytes(found.patch.partition(b"diff --git a/image")[0])
    git(shop, "apply", str(tmp_path / "p"))
    assert (shop / "a.txt").read_text() == "one\nmore\n"


def test_a_patch_that_is_too_large_is_left_out(shop: Path, tmp_path: Path) -> None:
    watch = Watch(shop, tmp_path / "own")
    (shop / "long").write_text("a line of a long file\n" * 60_000)
    found = watch.changes()
    assert found.patch is None
    assert found.why_none == "it has over 1,048,576 bytes"
    assert found.entries == [Change("long", "added", added=60_000, removed=0)]


def test_time_that_is_over_is_said(shop: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(Unknown, match="over 0 seconds"):
        working_tree.note(str(shop), str(own), patience=0)
    shutil.rmtree(own)
    watch = Watch(shop, own)
    (own / "index.end.lock").write_text("")
    with pytest.raises(Unknown, match="over 0 seconds"):
        working_tree.since(str(shop), str(own), watch.before, patience=0)
    assert watch.told() == {}


@pytest.mark.parametrize("kind", ["none", "empty", "broken", "no git"])
def test_without_a_repository_that_git_reads_it_is_unknown(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    if kind != "none":
        (top / ".git").mkdir()
    if kind in ("broken", "no git"):
        (top / ".git" / "HEAD").write_text("nonsense")
    if kind == "no git":
        monkeypatch.setenv("PATH", str(top))
    (tmp_path / "own").mkdir()
    began = time.monotonic()
    with pytest.raises(Unknown, match="git failed" if kind in ("broken", "no git") else "no git repository"):
        working_tree.note(str(top), str(tmp_path / "own"), patience=PATIENT)
    assert time.monotonic() - began < PATIENT


@each("raw", [None, [], {}, {"tree": "x"}, {"top": "/", "tree": "--output=x", "apart": {}, "stood": [], "at": 1}])
def test_a_damaged_note_is_unknown(raw: object) -> None:
    with pytest.raises(Unknown, match="damaged"):
        Moment.from_dict(raw)


# ---- Any sequence of changes tells exactly what differs at its end.

NAMES = ["a.txt", "b.txt", "src/c.py", "src/d.py", "new", "x/y/z", "ß ü"]
ACTS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.sampled_from(["", "one\n", "two\n", "three\n", "a\0b"])),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("mode"), st.sampled_from(NAMES), st.sampled_from(["644", "755"])),
    st.tuples(st.just("link"), st.sampled_from(NAMES), st.sampled_from(["a.txt", "/nowhere"])),
    st.tuples(st.just("commit"), st.just(""), st.just("")),
    st.tuples(st.just("add"), st.just(""), st.just("")),
    st.tuples(st.just("forget"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("stash"), st.just(""), st.just("")),
    st.tuples(st.just("reset"), st.just(""), st.just("")),
)


def do(top: Path, act: str, name: str, value: str) -> None:
    """Do one of them; one that is not possible is passed over."""
    place = top / name
    if act in ("write", "link"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(value) if act == "link" else place.write_text(value)
    elif act == "delete":
        place.unlink(missing_ok=True)
    elif act == "mode" and place.is_file() and not place.is_symlink():
        place.chmod(int(value, 8))
    elif act == "commit":
        commit(top)
    else:
        words = {
            "add": ["add", "-A"],
            "forget": ["rm", "-q", "--cached", "--ignore-unmatch", name],
            "stash": ["stash", "-q", "-u"],
            "reset": ["reset", "-q", "--hard"],
        }
        if act in words:
            subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words[act]], cwd=top, check=False)


def contents(top: Path) -> dict[str, tuple[str, bytes]]:
    """Give what stands in a checkout: kind and content."""
    found = {}
    for path in top.rglob("*"):
        name = str(path.relative_to(top))
        if path.is_relative_to(top / ".git") or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        else:
            found[name] = ("program" if path.stat().st_mode & 0o100 else "file", path.read_bytes())
    return found


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(earlier=st.lists(ACTS, max_size=6), later=st.lists(ACTS, max_size=8))
def test_whatever_is_done_exactly_what_differs_is_told(
    tmp_path_factory: pytest.TempPathFactory, earlier: list[tuple[str, str, str]], later: list[tuple[str, str, str]]
) -> None:
    base = tmp_path_factory.mktemp("any")
    top = repositories.make(base / "top", **{"a.txt": "one\n", "b.txt": "two\n"})
    for act in earlier:
        do(top, *act)
    before = contents(top)
    watch = Watch(top, base / "own")
    for act in later:
        do(top, *act)
    after = contents(top)
    expected = {
        name: "added" if name not in before else "deleted" if name not in after else "modified"
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }
    assert watch.told() == expected
    shutil.rmtree(base)
