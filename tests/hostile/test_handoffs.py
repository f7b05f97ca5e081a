"""What a remote holds is hostile until it was looked at: refused in words, and nothing here is changed (D10, D53)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from loomctl.flow.outcomes import evidence
from loomctl.handoff import carried, copies, pull, repository
from loomctl.handoff.remotes import Done, Remote, unreachable
from loomctl.handoff.repository import Repository
from loomctl.kit.errors import LoomError
from loomctl.runs import command_runs, stages
from tests.helpers.errors import refused
from tests.helpers.machines import SECRET, Machine, server_of
from tests.helpers.repositories import git
from tests.helpers.scenes import Json, fingerprint


@pytest.fixture
def pushed(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "laptop", server_of(tmp_path))
    made.workflow()
    run_id = made.begin().run.run_id
    made.done(run_id)
    made.push(run_id)
    return made


class Tree:
    """A pushed commit taken apart, to be put together as somebody else would have it."""

    def __init__(self, machine: Machine, run_id: str) -> None:
        self.server, self.run_id = machine.root.parent / "server.git", run_id
        self.ref = f"refs/loom/runs/{run_id}"
        lines = git(self.server, "ls-tree", "-r", self.ref).splitlines()
        self.files = {line.split("\t")[1]: tuple(line.split("\t")[0].split()[::2]) for line in lines}
        self.message = git(self.server, "log", "-1", "--format=%B", self.ref)

    def read(self, path: str) -> bytes:
        return self._git("cat-file", "blob", self.files[path][1])

    def _git(self, *words: str, given: bytes = b"") -> bytes:
        return subprocess.run(["git", *words], cwd=self.server, input=given, capture_output=True, check=True).stdout

    def put(self, path: str, data: bytes, mode: str = "100644") -> None:
        self.files[path] = (mode, self._git("hash-object", "-w", "--stdin", given=data).decode().strip())

    def edit(self, path: str, **changes: object) -> None:
        self.put(path, json.dumps({**json.loads(self.read(path)), **changes}).encode())

    def tell(self, **changes: object) -> None:
        head, _, body = self.message.partition("\n\n")
        self.message = f"{head}\n\n{json.dumps({**json.loads(body), **changes})}"

    def commit(self) -> None:
        root = self._tree({tuple(path.split("/")): entry for path, entry in self.files.items()})
        words = ["commit-tree", root, "-p", self.ref, "-m", self.message]
        git(self.server, "update-ref", self.ref, git(self.server, *words))

    def _tree(self, files: dict[tuple[str, ...], tuple[str, ...]]) -> str:
        lines, inside = [], dict[str, dict[tuple[str, ...], tuple[str, ...]]]()
        for parts, (mode, oid) in files.items():
            if len(parts) == 1:
                kind = {"160000": "commit", "040000": "tree"}.get(mode, "blob")
                lines.append(f"{mode} {kind} {oid}\t{parts[0]}")
            else:
                inside.setdefault(parts[0], {})[parts[1:]] = (mode, oid)
        lines += [f"040000 tree {self._tree(held)}\t{name}" for name, held in inside.items()]
        return self._git("mktree", "--missing", given="".join(f"{line}\n" for line in lines).encode()).decode().strip()

    def unfold(self, path: str, leaf: dict[bytes, bytes], *, levels: int, width: int) -> None:
        """Put folders in folders there: so many levels, in each so many names for one and the same folder."""
        entries = [(b"100644", name, self._object(b"blob", data)) for name, data in sorted(leaf.items())]
        for _ in range(levels):
            data = b"".join(mode + b" " + name + b"\0" + oid for mode, name, oid in entries)
            folder = self._object(b"tree", data)
            entries = [(b"40000", b"%d" % number, folder) for number in range(width)]
        self.files[path] = ("040000", folder.hex())

    def _object(self, kind: bytes, data: bytes) -> bytes:
        whole = kind + b" %d\0" % len(data) + data
        oid = hashlib.sha1(whole, usedforsecurity=False)
        place = self.server / "objects" / oid.hexdigest()[:2] / oid.hexdigest()[2:]
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            place.write_bytes(zlib.compress(whole))
        return oid.digest()


def instead(path: str, put: str) -> Callable[[Tree], None]:

    def lay(tree: Tree) -> None:
        for held in [one for one in tree.files if one == path or one.startswith(f"{path}/")]:
            del tree.files[held]
        tree.put(put, b"x\n")

    return lay


def unfolded(levels: int, width: int, **leaf: bytes) -> Callable[[Tree], None]:
    held = {name.encode(): data for name, data in leaf.items()}
    return lambda tree: tree.unfold("run/x", held, levels=levels, width=width)


def log_without_its_end(tree: Tree) -> None:
    lines = tree.read("run/events.jsonl").splitlines(keepends=True)
    tree.put("run/events.jsonl", b"".join(lines[:-1]))


def ends_in(more: bytes) -> Callable[[Tree], None]:
    return lambda tree: tree.put("run/events.jsonl", tree.read("run/events.jsonl") + more)


class Trap(NamedTuple):
    """What somebody put there. code: how it is refused."""

    name: str
    lay: Callable[[Tree], None]
    code: str = "BAD_HANDOFF"


def other_state(**changes: object) -> Callable[[Tree], None]:
    return lambda tree: tree.edit("run/state.json", **changes)


STAGE = "run/stages/001-frame.ask@1"
LOGS = ("run/events.jsonl", "run/tool_steps.jsonl", "run/sessions.jsonl")
FILES = (*LOGS, f"{STAGE}/response.md", f"{STAGE}/status.json")
ENDS = (b"\xff\xff\n", b"[]\n", b'{"seq":1e400}\n', b'{"seq":"x"}\n')
PLACES = [
    Trap("a link", lambda tree: tree.put("run/stages/x", b"/etc/passwd", "120000")),
    Trap("a submodule", lambda tree: tree.files.update({"run/sub": ("160000", "a" * 40)})),
    Trap("a file beside the run", lambda tree: tree.put("local/config.json", b"{}")),
    Trap("a file at the top", lambda tree: tree.put("x", b"{}")),
    Trap("a state that is this machine's", lambda tree: tree.put("run/state.backup.json", b"{}")),
    Trap("a watcher of a command", lambda tree: tree.put(f"{STAGE}/command.json", b"{}")),
    Trap("outputs unsaid", lambda tree: tree.put("run/outputs/x.log", b"x")),
    Trap("a blob of another name", lambda tree: tree.put(f"blobs/sha256/aa/{'a' * 64}", b"x")),
    Trap("a blob in another place", lambda tree: tree.put("blobs/x", b"x")),
    Trap("a backslash", lambda tree: tree.put("run/..\\x", b"x")),
    Trap("stages that are a file", instead("run/stages", "run/stages")),
    Trap("assets that are a file", instead("run/assets", "run/assets")),
    Trap("a file among the stages", lambda tree: tree.put("run/stages/002-x", b"x")),
    *(Trap(f"a folder for {path}", instead(path, f"{path}/x")) for path in FILES),
]
SIZES = [
    Trap("a path of 25 parts", lambda tree: tree.put(f"run/{'d/' * 23}f", b"x")),
    Trap("folders of 3,000 levels", unfolded(3000, 1, f=b"x")),
    Trap("a name of 300 bytes", lambda tree: tree.put(f"run/{'n' * 300}", b"x")),
    Trap("a path of 1,200 bytes", lambda tree: tree.put("run/" + "/".join("n" * 200 for _ in range(6)), b"x")),
    Trap("a tree that unfolds without end", unfolded(13, 10, f=b"x")),
    Trap("folders without files without end", unfolded(13, 10)),
]
CONTENTS = [
    Trap("no state", lambda tree: (tree.files.pop("run/state.json"), None)[1]),
    Trap("a broken state", lambda tree: tree.put("run/state.json", b'{"schema_version": 1')),
    Trap("a state that is a list", lambda tree: tree.put("run/state.json", b"[]")),
    Trap("a broken plan", lambda tree: tree.put("run/plan.json", b"{}")),
    Trap("another run's state", other_state(run_id="x-run-1"), "RUN_ID_MISMATCH"),
    Trap("a newer state", other_state(schema_version=99), "SCHEMA_TOO_NEW"),
    Trap("a lease counted to the end", other_state(lease={"epoch": 2**53 - 1, "session_id": None})),
    Trap("an epoch that nobody counts to", other_state(lease={"epoch": 2**53, "session_id": "theirs"})),
    Trap("a revision counted to the end", other_state(revision=2**53 - 1)),
    Trap("a time that is a number", other_state(updated_at=5)),
    Trap("a plan's id that leads out", other_state(plan_id="../../../../evil")),
    Trap("a plan's id that is empty", other_state(plan_id="")),
    Trap("a plan's id without room for a run's", other_state(plan_id="p" * 190)),
    Trap("another plan than the run's", lambda tree: tree.edit("run/plan.json", plan_id="../../evil")),
    Trap("no log", lambda tree: (tree.files.pop("run/events.jsonl"), None)[1]),
    Trap("a torn log", lambda tree: tree.put("run/events.jsonl", tree.read("run/events.jsonl")[:-20])),
    Trap("a log without its end", log_without_its_end),
    *(Trap(f"a log that ends in {data[:5]!r}", ends_in(data)) for data in ENDS),
]
MESSAGES = [
    Trap("a newer handoff", lambda tree: tree.tell(schema_version=3), "NEWER_HANDOFF"),
    Trap("a handoff of the schema true", lambda tree: tree.tell(schema_version=True)),
    Trap("another run's commit", lambda tree: tree.tell(run_id="x-run-1"), "RUN_ID_MISMATCH"),
    Trap("a commit that says nothing", lambda tree: setattr(tree, "message", "hello")),
    Trap("a commit that says too much", lambda tree: setattr(tree, "message", "x\n\n" + "y" * 100_000)),
    Trap("a commit of odd shapes", lambda tree: tree.tell(summary=[], by=5)),
]
TRAPS = {"messages": MESSAGES, "places": PLACES, "sizes": SIZES, "contents": CONTENTS}


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("kind", TRAPS)
def test_what_no_push_of_looms_makes_is_refused(pushed: Machine, tmp_path: Path, kind: str) -> None:
    """In words that name the remote; a run that is here, and everything else of the store, is as it was."""
    run_id = pushed.run_dir.name
    other = Machine(tmp_path / "other", tmp_path / "server.git")
    (other.store / "runs").mkdir(parents=True)
    good = git(tmp_path / "server.git", "rev-parse", f"refs/loom/runs/{run_id}")
    before = {machine.root: fingerprint(machine.store / "runs") for machine in (pushed, other)}
    for trap in TRAPS[kind]:
        tree = Tree(pushed, run_id)
        trap.lay(tree)
        tree.commit()
        for machine in (pushed, other):
            error = refusal_of(machine, run_id)
            assert (error.code, bool(error.hint)) == (trap.code, True), (trap.name, error)
            assert fingerprint(machine.store / "runs") == before[machine.root], trap.name
            assert [name for name in os.listdir(machine.store / "local") if name.startswith("arriving-")] == []
            assert machine.desk().repository.refs("refs/loom/incoming/") == {}, trap.name
            assert [one.run_id for one in copies.list_runs(machine.desk())] == [run_id], trap.name
        git(tmp_path / "server.git", "update-ref", tree.ref, good)
    assert other.pull(run_id).kind == pull.NEW


def refusal_of(machine: Machine, run_id: str) -> LoomError:
    with pytest.raises(LoomError) as caught:
        machine.pull(run_id)
    return caught.value


SUMMARIES: list[Json] = [
    {},
    {"work_id": {"a": 1}, "goal": ["x"], "status": {"x": 2}, "step": [["y"]], "revision": "z", "stages": None},
    {"status": None, "step": 5, "work_id": True, "goal": False},
]


@pytest.mark.slow
def test_what_a_commit_sums_up_in_other_shapes_is_not_told(pushed: Machine, tmp_path: Path) -> None:
    good = git(tmp_path / "server.git", "rev-parse", f"refs/loom/runs/{pushed.run_dir.name}")
    for number, summary in enumerate(SUMMARIES):
        tree = Tree(pushed, pushed.run_dir.name)
        tree.tell(summary=summary, left_out=[["a"], [1, 2], [{"a": 1}, [2]], ["run/x", "it is large"]])
        tree.commit()
        other = Machine(tmp_path / f"other-{number}", tmp_path / "server.git")
        listed, told = other.loomctl("runs", "--remote"), other.loomctl("pull")
        assert (listed.code, told.code) == (0, 0)
        assert not [sign for sign in ("{", "[", "None", "True", "False") if sign in listed.stdout + told.stdout]
        for words in ("pushed it ", "Not pulled:\n  run/x: it is large\nTo continue"):
            assert words in told.stdout
        git(tmp_path / "server.git", "update-ref", tree.ref, good)


def test_a_ref_that_names_no_run_is_passed_over(pushed: Machine) -> None:
    server = pushed.root.parent / "server.git"
    oid = git(server, "rev-parse", "refs/heads/main")
    for name in ("-x", "..x", "x.lock", "é"):
        (server / "refs" / "loom" / "runs" / name).write_text(oid + "\n", encoding="utf-8")
    desk = pushed.desk()
    assert list(desk.repository.list_runs(desk.remote)) == [pushed.run_dir.name]


NONE = ("nowhere", "--upload-pack=touch sprung", "./nowhere.git", "", ".", ".git")
FAR = ("ext::sh -c touch% sprung", "http://127.0.0.1:9/x.git")
REMOTES = {**dict.fromkeys(NONE, "NO_REMOTE"), **dict.fromkeys(FAR, "REMOTE_UNREACHABLE")}


def test_a_remote_that_is_none_is_said(pushed: Machine) -> None:
    for named, code in REMOTES.items():
        with refused(code):
            pushed.push(pushed.run_dir.name, named=named)
        assert not (pushed.root / "sprung").exists()


HOOKS = "a hook of the remote decides that"
REFS = "ask its administrator to allow refs below refs/loom/"


def hooked(pushed: Machine, name: str, body: str) -> Path:
    hook = pushed.root.parent / "server.git" / "hooks" / name
    hook.write_text(f"#!/bin/sh\n{body}\nexit 1\n", encoding="utf-8")
    hook.chmod(0o755)
    return hook


def refusal(pushed: Machine) -> str:
    (pushed.run_dir / "note.md").write_text("mine\n")
    with refused("REMOTE_REFUSED") as caught:
        pushed.push(pushed.run_dir.name)
    return str(caught.value.why)


@pytest.mark.slow
def test_a_hook_that_refuses_is_quoted(pushed: Machine) -> None:
    """Its own words stand in the error, the log says that the push failed, and a later one goes well."""
    for name in ("pre-receive", "update"):
        for stream in ("", " >&2"):
            hook = hooked(pushed, name, f"echo 'no loom refs here'{stream}")
            why = refusal(pushed)
            assert why.startswith("it says: no loom refs here; ")
            assert [words in why for words in ("hook declined)", HOOKS, REFS)] == [True, True, False]
            assert pushed.event_names()[-1] == "run.push_failed"
        hook.unlink()
    assert pushed.push(pushed.run_dir.name).commit


@pytest.mark.slow
def test_a_hook_is_quoted_in_part_and_no_words_are_made_up_for_it(pushed: Machine) -> None:
    """Its first three lines that say something, each bounded, masked, and nothing that a terminal obeys."""
    hooked(pushed, "pre-receive", ":")
    assert refusal(pushed).startswith("it says: [remote rejected] (pre-receive hook declined); ")
    lines = ["", "one\033[2J", f"two {SECRET}", "three " + "x" * 5000, "four", f"five {SECRET}"]
    hooked(pushed, "pre-receive", "printf '" + "\\n".join(lines) + "\\n'")
    why = refusal(pushed)
    assert why.startswith("it says: one")
    assert all(words in why for words in ("two ", "three xx"))
    assert not any(words in why for words in ("four", SECRET, "\033"))
    assert len(why) < 1500


@pytest.mark.slow
def test_a_remote_that_takes_no_such_refs_is_quoted(pushed: Machine) -> None:
    """What its settings refuse is no hook's: then the refs are the likely reason.

    A run that it lists and hides from a push looks there like another state.
    """
    server = pushed.root.parent / "server.git"
    git(server, "config", "receive.hideRefs", "refs/loom")
    why = refusal(pushed)
    assert why.startswith("it says: [rejected] (stale info); git fetch and git push see different states there")
    assert why.endswith("or it hides refs/loom/")
    assert REFS not in why
    git(server, "update-ref", "-d", f"refs/loom/runs/{pushed.run_dir.name}")
    why = refusal(pushed)
    assert why.startswith("it says: [")
    assert (REFS in why, HOOKS in why) == (True, False)


@pytest.mark.slow
def test_a_push_sends_nothing_that_a_pull_would_refuse(pushed: Machine, tmp_path: Path) -> None:
    stays, goes = ["a\\b.md", "d/" * 25 + "f", "stages/notes.md"], "n/" * 2 + "events.jsonl"
    for name in (*stays, goes):
        path = pushed.run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine\n")
    parcel = pushed.push(pushed.run_dir.name).parcel
    assert sorted(one.name for one in parcel.left_out) == [f"run/{name}" for name in stays]
    other = Machine(tmp_path / "other", tmp_path / "server.git")
    other.pull(pushed.run_dir.name)
    folder = other.folder(pushed.run_dir.name)
    assert [name for name in (*stays, goes) if (folder / name).exists()] == [goes]


def test_every_file_that_loom_has_for_a_stage_can_only_be_a_file() -> None:
    names = (stages.PROMPT, stages.RESPONSE, stages.CANDIDATE, stages.STATUS, *stages.CHANGED)
    for name in (*names, command_runs.LOG, evidence.NOTED):
        assert carried.trouble(f"{STAGE}/{name}") == ""
        assert carried.trouble(f"{STAGE}/{name}", is_folder=True)
        assert carried.trouble(f"{STAGE}/{name}/x")


# ---- The list of a remote that holds something odd.


def another(machine: Machine, work: str) -> str:
    before = set(machine.run_dirs)
    machine.begin(work)
    (made,) = set(machine.run_dirs) - before
    machine.push(made.name)
    return made.name


def broken_ref(server: Path, run_id: str) -> None:
    """Put a commit under a run's name that git refuses to take: nobody wrote it."""
    tree = git(server, "hash-object", "-t", "tree", "-w", "--stdin")
    words = ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"]
    text = f"tree {tree}\n\nhello\n"
    done = subprocess.run(words, cwd=server, input=text, capture_output=True, text=True, check=True)
    (server / "refs" / "loom" / "runs" / run_id).write_text(done.stdout, encoding="utf-8")


@pytest.mark.slow
def test_one_bad_ref_hides_no_other_run(pushed: Machine, tmp_path: Path) -> None:
    server, first = tmp_path / "server.git", pushed.run_dir.name
    fine = [first, another(pushed, "more"), another(pushed, "most")]
    bad = ("a-run-1", "m-run-1", "z-run-1")
    for name in bad:
        broken_ref(server, name)
    told = Machine(tmp_path / "other", server).loomctl("runs", "--remote", "--json")
    assert told.code == 0, told
    listed = {one["run_id"]: (one["status"] != "unreadable", one["trouble"][:11]) for one in told.json["runs"]}
    assert listed == dict.fromkeys(fine, (True, "")) | dict.fromkeys(bad, (False, "BAD_HANDOFF"))


@pytest.mark.slow
def test_what_was_fetched_of_a_run_that_is_gone_is_let_go(pushed: Machine, tmp_path: Path) -> None:
    """What waits for --keep-mine or --take-theirs stays fetched as long as the remote has it, and no longer."""
    run_id = pushed.run_dir.name
    other = Machine(tmp_path / "other", tmp_path / "server.git")
    other.pull(run_id)
    for machine in (other, pushed):
        machine.done(run_id)
    other.push(run_id)
    with pytest.raises(LoomError, match="DIVERGED"):
        pushed.pull(run_id)
    for words in (["runs", "--remote"], ["pull", run_id]):
        pushed.loomctl(*words)
        assert len(pushed.desk().repository.refs("refs/loom/incoming/")) == 1
    git(tmp_path / "server.git", "update-ref", "-d", f"refs/loom/runs/{run_id}")
    assert pushed.loomctl("runs", "--remote").code == 0
    assert pushed.desk().repository.refs("refs/loom/incoming/") == {}


@pytest.mark.slow
def test_a_remote_that_falls_silent_is_not_asked_for_each_run(pushed: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Machine(pushed.root.parent / "other", pushed.root.parent / "server.git").desk()
    tries: list[int] = []

    def silent(*_: object, **__: object) -> None:
        tries.append(1)
        (pushed.root.parent / "server.git").rename(pushed.root.parent / "gone.git")
        raise unreachable(desk.remote, Done(128, b"", "fatal: the remote end hung up unexpectedly"))

    another(pushed, "more")
    monkeypatch.setattr(repository.Repository, "fetch", silent)
    with refused("REMOTE_UNREACHABLE"):
        copies.list_runs(desk)
    assert len(tries) == 1


@pytest.mark.slow
def test_the_list_fetches_commits_alone_and_each_once(pushed: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from a bare repository on a disk; what a commit says is kept, and believed for its hash alone."""
    server = pushed.root.parent / "server.git"
    other = Machine(pushed.root.parent / "other", server)
    fetched: list[str] = []
    fetch = repository.Repository.fetch

    def counting(self: Repository, remote: Remote, wanted: dict[str, str], *, bare: str = "") -> None:
        fetch(self, remote, wanted, bare=bare)
        fetched.append(git(Path(bare), "count-objects", "-v").split("in-pack: ")[1].split("\n")[0])

    monkeypatch.setattr(repository.Repository, "fetch", counting)
    first = copies.list_runs(other.desk())
    assert copies.list_runs(other.desk()) == first
    assert fetched == ["1"]
    another(pushed, "more")
    assert [one.trouble for one in copies.list_runs(other.desk())] == ["", ""]
    assert fetched == ["1", "1"]
    kept = other.store / "local" / "seen-commits.json"
    kept.write_text(kept.read_text().replace("add dark mode", "something else"), encoding="utf-8")
    assert {one.work for one in copies.list_runs(other.desk())} == {"add dark mode", "more"}
    assert len(fetched) == 3
    for damaged in ("{", "[]", '{"origin": 5}', '{"origin": {"x": 1}}'):
        kept.write_text(damaged, encoding="utf-8")
        assert len(copies.list_runs(other.desk())) == 2
    git(server, "update-ref", "-d", f"refs/loom/runs/{pushed.run_dirs[0].name}")
    broken_ref(server, "new-run-1")
    copies.list_runs(other.desk())
    assert len(json.loads(kept.read_text())["origin"]) == 1
