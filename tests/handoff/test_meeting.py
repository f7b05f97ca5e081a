"""What a run here goes on from is told by its log: where stores and refs do not match one to one, nothing newer is
replaced, and nothing older is called newer (D53).
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loomctl.flow import advance, resume
from loomctl.handoff import copies, pull, push
from loomctl.kit.errors import LoomError
from loomctl.runs import leases
from loomctl.runs.machine import run_notes
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.faults import interleaved_work
from tests.helpers.machines import Machine, server_of, tips
from tests.helpers.repositories import git


def machine(root: Path) -> Machine:
    made = Machine.__new__(Machine)
    made.root, made.store = root, root / ".loom"
    return made


def worktrees(base: Path, server: Path) -> tuple[Machine, Machine]:
    """Make two worktrees of a bare clone: each has a store of its own, and both have the refs."""
    git(base, "clone", "-q", "--bare", str(server), "bare.git")
    for name in ("one", "two"):
        git(base / "bare.git", "worktree", "add", "-q", "-b", name, str(base / name), "main")
    return machine(base / "one"), machine(base / "two")


def subfolders(base: Path, server: Path) -> tuple[Machine, Machine]:
    git(base, "clone", "-q", str(server), "both")
    for name in ("api", "web"):
        (base / "both" / name / ".loom").mkdir(parents=True)
    return machine(base / "both" / "api"), machine(base / "both" / "web")


def work(made: Machine, run_id: str, said: str) -> None:
    resume.resume(made.space(), run_id, take_over=True)
    advance.done(leases.taking_over(made.space()), run_id, response=said)


def begun(made: Machine) -> str:
    made.workflow()
    run_id = made.begin().run.run_id
    made.done(run_id, "Asked.")
    return run_id


def here(made: Machine, named: str | None = None) -> str:
    (found,) = copies.list_runs(made.desk(named))
    return found.here


def refused(deed: Callable[[], object]) -> str:
    with pytest.raises(LoomError) as caught:
        deed()
    return caught.value.code


@pytest.mark.slow
@pytest.mark.parametrize("shape", [worktrees, subfolders])
def test_two_stores_of_one_repository_are_two_places(
    tmp_path: Path, server: Path, shape: Callable[[Path, Path], tuple[Machine, Machine]]
) -> None:
    """What the other one pushed through the same refs is newer than what is here, in the list as in a push."""
    one, two = shape(tmp_path, server)
    run_id = begun(one)
    one.push(run_id)
    two.pull(run_id)
    work(two, run_id, "Made in two.")
    two.push(run_id)
    before = tips(server)
    assert here(one) == "newer there"
    assert refused(lambda: one.push(run_id)) == "REMOTE_NEWER"
    assert tips(server) == before
    assert one.pull(run_id).kind == pull.FORWARD
    assert one.responses(run_id) == ["Asked.", "Made in two."]
    assert [path.name for path in one.run_dirs] == [run_id]
    assert here(two) == here(one) == "the same"


@pytest.mark.slow
def test_both_stores_of_one_repository_went_on(tmp_path: Path, server: Path) -> None:
    """Then two states are two, and a word about them in one store is none in the other."""
    one, two = worktrees(tmp_path, server)
    run_id = begun(one)
    one.push(run_id)
    two.pull(run_id)
    work(two, run_id, "Made in two.")
    work(one, run_id, "Made in one.")
    two.push(run_id)
    assert here(one) == "diverged"
    assert refused(lambda: one.push(run_id)) == refused(lambda: one.pull(run_id)) == "DIVERGED"
    saved = one.pull(run_id, pull.KEPT_MINE).saved
    assert here(one) == "newer here"
    assert one.push(run_id).commit
    assert one.responses(str(saved)) == ["Asked.", "Made in two."]
    told = two.pull(run_id)
    assert (two.responses(run_id), two.responses(str(told.saved))) == (
        ["Asked.", "Made in one."],
        ["Asked.", "Made in two."],
    )


@pytest.fixture
def laptop(tmp_path: Path, server: Path) -> Machine:
    made = Machine(tmp_path / "laptop", server)
    begun(made)
    return made


def backed_up(made: Machine, number: int = 0) -> Path:
    return Path(shutil.copytree(made.store, made.root.parent / f"{made.root.name}-backup-{number}", symlinks=True))


def put_back(made: Machine, backup: Path) -> None:
    shutil.rmtree(made.store)
    shutil.copytree(backup, made.store, symlinks=True)


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "a push", "a step", "a push and a step"])
def test_a_store_from_a_backup_is_older(laptop: Machine, server: Path, run_id: str, before: str) -> None:
    """Whether or not what it holds was ever pushed as it is: a push is refused, and a pull brings it forward."""
    if "push" in before:
        laptop.push(run_id)
    if "step" in before:
        laptop.done(run_id, "Made.")
    backup = backed_up(laptop)
    laptop.done(run_id, "More.")
    laptop.push(run_id)
    newest, log = laptop.responses(run_id), (laptop.run_dir / "events.jsonl").read_bytes()
    put_back(laptop, backup)
    there = tips(server)
    assert here(laptop) == "newer there"
    assert refused(lambda: laptop.push(run_id)) == "REMOTE_NEWER"
    assert tips(server) == there
    assert laptop.pull(run_id).kind == pull.FORWARD
    assert laptop.responses(run_id) == newest
    assert ((laptop.run_dir / "events.jsonl").read_bytes(), len(laptop.run_dirs)) == (log, 1)
    assert here(laptop) == "the same"


@pytest.mark.slow
def test_a_store_from_a_backup_that_went_on_has_diverged(laptop: Machine, server: Path, run_id: str) -> None:
    """What was done since the backup and pushed, and what is done behind it now, are two states of one."""
    laptop.push(run_id)
    backup = backed_up(laptop)
    laptop.done(run_id, "Made.")
    laptop.push(run_id)
    put_back(laptop, backup)
    laptop.done(run_id, "Made otherwise.")
    before = tips(server)
    assert here(laptop) == "diverged"
    assert refused(lambda: laptop.push(run_id)) == refused(lambda: laptop.pull(run_id)) == "DIVERGED"
    assert tips(server) == before


@pytest.mark.slow
def test_a_word_about_two_states_holds_as_long_as_the_log_has_it(
    laptop: Machine, tmp_path: Path, server: Path, run_id: str
) -> None:
    desktop = Machine(tmp_path / "desktop", server)
    laptop.push(run_id)
    desktop.pull(run_id)
    backup = backed_up(laptop)
    work(desktop, run_id, "Made on the desktop.")
    laptop.done(run_id, "Made on the laptop.")
    desktop.push(run_id)
    laptop.pull(run_id, pull.KEPT_MINE)
    assert here(laptop) == "newer here"
    local = laptop.store / "local" / run_notes.AGREED / f"{run_id}.json"
    kept = local.read_bytes()
    put_back(laptop, backup)
    local.write_bytes(kept)
    assert here(laptop) == "newer there"
    assert refused(lambda: laptop.push(run_id)) == "REMOTE_NEWER"
    assert laptop.pull(run_id).kind == pull.FORWARD
    assert laptop.responses(run_id) == ["Asked.", "Made on the desktop."]


@pytest.mark.slow
def test_a_branch_that_holds_an_older_state_of_the_run_holds_an_older_state(
    laptop: Machine, server: Path, run_id: str
) -> None:
    """With `commit_runs` a switch puts the run back in time, and the refs stay where they are."""
    (laptop.store / "config.yaml").write_text("commit_runs: true\n", encoding="utf-8")
    laptop.push(run_id)
    git(laptop.root, "add", "-A", "-f", ".loom/runs", ".loom/config.yaml")
    git(laptop.root, "commit", "-q", "-m", "asked")
    git(laptop.root, "checkout", "-q", "-b", "feature")
    laptop.done(run_id, "Made.")
    laptop.push(run_id)
    git(laptop.root, "add", "-A", "-f", ".loom/runs")
    git(laptop.root, "commit", "-q", "-m", "made")
    git(laptop.root, "checkout", "-q", "main")
    before = tips(server)
    assert here(laptop) == "newer there"
    assert refused(lambda: laptop.push(run_id)) == "REMOTE_NEWER"
    assert tips(server) == before
    git(laptop.root, "checkout", "-q", "feature")
    assert laptop.push(run_id).commit is None


@pytest.mark.slow
def test_what_no_log_tells_is_not_dropped(laptop: Machine, tmp_path: Path, server: Path, run_id: str) -> None:
    """A tool step and a file beside it are work, too, whether or not what was agreed on is known."""
    desktop = Machine(tmp_path / "desktop", server)
    laptop.push(run_id)
    desktop.pull(run_id)
    work(desktop, run_id, "Made.")
    desktop.push(run_id)
    before = backed_up(laptop)
    for what in ("tool step", "file"):
        put_back(laptop, before)
        unlogged(laptop, run_id, what)
        for noted in (True, False):
            if not noted:
                run_notes.forget(str(laptop.store / "local"), run_id)
            assert here(laptop) in ("diverged", "unknown")
            assert refused(lambda: laptop.push(run_id)) == refused(lambda: laptop.pull(run_id)) == "DIVERGED"


@pytest.mark.slow
def test_what_no_log_tells_of_a_store_from_a_backup_is_saved(laptop: Machine, run_id: str) -> None:
    """It stands behind an entry that theirs has as well: theirs goes on from that, and has not this file."""
    laptop.push(run_id)
    laptop.done(run_id, "Made.")
    backup = backed_up(laptop)
    laptop.push(run_id)
    put_back(laptop, backup)
    unlogged(laptop, run_id, "file")
    assert "saves yours as a new run" in laptop.loomctl("push", run_id, "--yes").stderr
    told = laptop.pull(run_id)
    assert told.kind == pull.FORWARD
    assert (laptop.folder(str(told.saved)) / "note.md").read_text() == "perhaps"


def unlogged(made: Machine, run_id: str, what: str, said: str = "perhaps") -> None:
    if what == "file":
        (made.folder(run_id) / "note.md").write_text(said, encoding="utf-8")
        return
    reducer = StepReducer(DataOffloader(made.folder(run_id)))
    step = reducer.reduce("Bash", {"command": "ls"}, {"stdout": said}, step_id=f"toolu_{said}")
    tool_log.append(str(made.folder(run_id)), [step])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["renamed", "path", "relay"])
def test_another_name_for_a_remote_is_no_other_history(
    laptop: Machine, tmp_path: Path, server: Path, run_id: str, way: str
) -> None:
    """A remote that was renamed, the same one by its path, a backup to which somebody else pushed: the log tells."""
    laptop.push(run_id)
    if way == "relay":
        desktop = Machine(tmp_path / "desktop", server)
        desktop.pull(run_id)
        work(desktop, run_id, "Made.")
        git(tmp_path, "init", "-q", "--bare", "backup.git")
        for one in (laptop, desktop):
            git(one.root, "remote", "add", "backup", str(tmp_path / "backup.git"))
        desktop.push(run_id, named="backup")
        assert refused(lambda: laptop.push(run_id, named="backup")) == "REMOTE_NEWER"
        told = laptop.pull(run_id, named="backup")
        assert (told.kind, told.saved) == (pull.FORWARD, None)
        assert laptop.push(run_id, named="backup").commit is None
        assert laptop.push(run_id).commit  # to origin, which has the older one
        return
    named = str(server)
    if way == "renamed":
        git(laptop.root, "remote", "rename", "origin", "upstream")
        named = "upstream"
    assert here(laptop, named) == "the same"
    laptop.done(run_id, "Made.")
    assert here(laptop, named) == "newer here"
    assert laptop.push(run_id, named=named).commit
    assert here(laptop, named) == "the same"
    assert git(server, "rev-list", "--count", f"refs/loom/runs/{run_id}") == "2"


ODD_NOTES = [
    *("", "[]", '{"origin": 1}', '{"origin": {"commit": "x", "line": ""}}'),
    json.dumps({"origin": {"commit": "0" * 40, "line": "0" * 64}}),
    json.dumps({"origin": {"commit": "0" * 40, "line": ""}}),
]


@pytest.mark.slow
def test_a_note_of_what_was_agreed_on_may_hold_anything(laptop: Machine, run_id: str) -> None:
    laptop.push(run_id)
    laptop.done(run_id, "Made.")
    for text in ODD_NOTES:
        (laptop.store / "local" / run_notes.AGREED / f"{run_id}.json").write_text(text, encoding="utf-8")
        assert here(laptop) == "newer here"
        assert push.prepare(laptop.desk(), run_id).is_due
    assert laptop.push(run_id).commit


@pytest.mark.slow
def test_a_run_that_is_put_away_is_not_remembered(laptop: Machine, run_id: str) -> None:
    laptop.push(run_id)
    assert run_notes.agreed(str(laptop.store / "local"), run_id)
    assert laptop.loomctl("runs", "rm", run_id, "--yes", "--force").code == 0
    assert not (laptop.store / "local" / run_notes.AGREED / f"{run_id}.json").exists()
    assert laptop.pull(run_id).kind == pull.NEW


# ---- Any order of it all.


class Places:
    """Stores of all shapes that hand one run on: two worktrees of one bare clone, a clone, two projects in another."""

    def __init__(self, base: Path) -> None:
        self.server = server_of(base)
        self.machines = [*worktrees(base, self.server), Machine(base / "clone", self.server)]
        self.machines += subfolders(base, self.server)
        for made in self.machines:
            made.workflow(**{key: held for key, held in interleaved_work.WORKFLOW.items() if key != "id"})
        self.run_id = self.machines[0].begin().run.run_id
        self.machines[0].push(self.run_id)
        self.backups: dict[int, list[Path]] = {}
        self.said = 0

    def said_in(self, made: Machine) -> set[str]:
        return {said for path in made.run_dirs for said in self.said_of(made, path.name)}

    def said_of(self, made: Machine, run_id: str) -> Iterator[str]:
        folder = made.folder(run_id)
        yield from made.responses(run_id)
        yield from (str(step.more.get("said")) for step in tool_log.read(str(folder)))
        yield from (path.read_text(encoding="utf-8") for path in folder.glob("note-*.md"))

    def said_there(self) -> set[str]:
        ref = f"refs/loom/runs/{self.run_id}"
        names = git(self.server, "ls-tree", "-r", "--name-only", ref).splitlines()
        state = json.loads(git(self.server, "show", f"{ref}:run/state.json"))
        ended = {f"run/stages/{one['stage']}/response.md" for one in state["steps"] if one["stage"]}
        told = {name for name in names if name in ended or name.startswith("run/note-")}
        found = {git(self.server, "show", f"{ref}:{name}").strip() for name in told}
        if "run/tool_steps.jsonl" in names:
            lines = git(self.server, "show", f"{ref}:run/tool_steps.jsonl").splitlines()
            found |= {str(json.loads(line).get("said")) for line in lines}
        return {said.strip() for said in found}

    def do(self, chance: random.Random) -> str:
        """Do one thing in one place, and hold that nothing was lost by it; gives what it was."""
        at = chance.randrange(len(self.machines))
        made = self.machines[at]
        deed = chance.choice(
            ("work", "work", "beside", "push", "push", "pull", "pull", "keep", "take", "save", "restore")
        )
        has = made.folder(self.run_id).exists()
        before, there = {one.strip() for one in self.said_in(made)}, self.said_there()
        if deed in ("work", "beside") and has:
            self.said += 1
            self._work(made, f"said {self.said}", chance if deed == "beside" else None)
        elif deed == "save" and has:
            self.backups.setdefault(at, []).append(backed_up(made, self.said * 100 + len(os.listdir(made.root.parent))))
        elif deed == "restore" and self.backups.get(at):
            put_back(made, chance.choice(self.backups[at]))
            return deed
        elif deed in ("pull", "keep", "take"):
            deed = self._tried(
                lambda: made.pull(self.run_id, {"keep": pull.KEPT_MINE, "take": pull.TOOK_THEIRS}.get(deed, ""))
            )
        elif deed == "push" and has:
            deed = self._tried(lambda: made.push(self.run_id))
        after = {one.strip() for one in self.said_in(made)}
        assert before <= after, (deed, at, before - after)
        assert there <= self.said_there() | after, (deed, at, there - self.said_there() - after)
        return deed

    def _work(self, made: Machine, said: str, beside: random.Random | None) -> None:
        if beside is None:
            work(made, self.run_id, said)
        elif beside.random() < 0.5:
            (made.folder(self.run_id) / f"note-{said[5:]}.md").write_text(said, encoding="utf-8")
        else:
            reducer = StepReducer(DataOffloader(made.folder(self.run_id)))
            step = reducer.reduce("Bash", {"command": "ls"}, {"stdout": "a"}, step_id=f"toolu_{said[5:]}")
            tool_log.append(str(made.folder(self.run_id)), [step._replace(more={"said": said})])

    @staticmethod
    def _tried(deed: Callable[[], pull.Pulled | push.Pushed]) -> str:
        try:
            done = deed()
        except LoomError as error:
            if error.code not in ("REMOTE_NEWER", "DIVERGED"):
                raise
            return error.code
        return done.kind if isinstance(done, pull.Pulled) else "pushed"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 6])
def test_no_order_of_stores_backups_pushes_and_pulls_loses_what_somebody_did(tmp_path: Path, seed: int) -> None:
    """What a place has and what the remote has, it or the remote has afterwards: but for a backup that is put back."""
    places, chance = Places(tmp_path), random.Random(seed)
    deeds = [places.do(chance) for _ in range(80)]
    assert {"pushed", "forward", "restore", "REMOTE_NEWER", "DIVERGED"} <= set(deeds), deeds
