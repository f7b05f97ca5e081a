"""A run that is hit by a fault, put back, and hit again; and what must hold of it whatever struck (D53, D54)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from loomctl.care import file_checks
from loomctl.kit.processes import Lock
from loomctl.runs import log_verdict
from loomctl.runs.model.state import VOLATILE
from loomctl.runs.store import recovery
from loomctl.runs.store.store import Store
from tests.faults.bench import Answer, Bench
from tests.helpers.scenes import SESSION, Json, Scene, artifact

SENTENCE = "The heliotrope switch survives a reload."
GUIDE = "Cerulean code is reviewed twice."
RESPONSE = "What was asked: " + "a switch that survives; " * 200
DECIDED = RESPONSE + ' {"outcome": "succeeded", "context_updates": {"n": 1}}'
PHASES: Json = {
    "frame": {"steps": [{"id": "ask", "prompt": "Ask what is wanted."}, {"id": "note", "prompt": "Note it."}]},
    "build": {"steps": [{"id": "make", "prompt": "Make it."}, {"id": "polish", "prompt": "Polish it."}]},
}
# What differs between two runs that did the same.
_TIMES = (
    *("at", "completed_at", "created_at", "ended_at", "granted_at", "last_activity", "not_before", "rejected_at"),
    *("requested_at", "started_at"),
)


def lay_out(scene: Scene) -> Scene:
    """Start a run on a workflow with a spec for every session and a guide that comes with the second phase."""
    scene.write("spec.md", f"# The spec\n\n{SENTENCE}\n")
    scene.write("guide.md", f"# The guide\n\n{GUIDE}\n")
    guide = artifact("guide", "guide.md", reload_triggers=["phase_start"])
    scene.workflow([artifact("spec", "spec.md")], PHASES, by_phase={"build": [guide]})
    scene.begin()
    return scene


class Kept(NamedTuple):
    """A folder, a file or a link as it was. content: None for a folder, the target of a link."""

    path: Path
    mode: int
    content: bytes | None
    times: tuple[int, int]

    def put_back(self) -> None:
        if stat.S_ISLNK(self.mode):
            self.path.symlink_to(os.fsdecode(self.content or b""))
            return
        if self.content is None:
            self.path.mkdir(mode=stat.S_IMODE(self.mode))
            return
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(self.mode))
        os.write(descriptor, self.content)
        os.utime(descriptor, ns=self.times)
        os.close(descriptor)


def _as_it_is(path: Path) -> Kept:
    status = path.lstat()
    content = None
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
    return Kept(path, status.st_mode, content, (status.st_atime_ns, status.st_mtime_ns))


class Stand:
    """A project and its user's folder, as they were when this was made; `put_back` makes them so again.

    kept_runs: the runs there were then.
    """

    def __init__(self, scene: Scene, forks: Bench, home: Path) -> None:
        self.scene, self.forks, self._home = scene, forks, home
        scene.rest(forks.pid)
        self.keep()

    def keep(self) -> None:
        """Take what is there now for what is put back, and put it back: all that is struck begins with new files."""
        tops = (self.scene.root, self._home)
        self._kept = [_as_it_is(path) for top in tops for path in (top, *sorted(top.rglob("*")))]
        self.kept_runs = self.store.run_ids()
        self.put_back()

    def put_back(self) -> None:
        for place in (self.scene.root, self._home):
            shutil.rmtree(place)
        for kept in self._kept:
            kept.put_back()

    @property
    def store(self) -> Store:
        return Store(str(self.scene.store))

    def cli(self, *arguments: str, given: str | None = None, session: str | None = SESSION, **how: Any) -> Answer:
        return self.forks.ask(
            "cli", *arguments, "--json", cwd=self.scene.root, environ=self.scene.environ(session), given=given, **how
        )

    def hook(self, event: str, *, session: str = SESSION, told: Json | None = None, **how: Any) -> Answer:
        body = {"session_id": session, "cwd": str(self.scene.root), "transcript_path": "", **(told or {})}
        return self.forks.ask(
            "hook", event, cwd=self.scene.root, environ=self.scene.environ(session), given=json.dumps(body), **how
        )

    def work(self, name: str, *arguments: str, **how: Any) -> Answer:
        return self.forks.ask(name, *arguments, cwd=self.scene.root, environ=self.scene.environ(), **how)


def strikes(calls: list[str]) -> Iterator[Json]:
    """Give every place where a kill can meet these writes: before each, half-way within each that has a content.

    Before an fsync nothing is there that is not there after it as well: a kill takes no more than a power cut does.
    """
    for number, call in enumerate(calls, 1):
        if not call.startswith("fsync "):
            yield {"at": number}
        if call.startswith(("write ", "pwrite ")):
            yield {"at": number, "half": True}


def chain(folder: Path) -> list[Json]:
    """Read a run's events and check them: numbers without a gap, each with the hash of the line before (D54)."""
    found: list[Json] = []
    prev = ""
    for line in (folder / "events.jsonl").read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:  # torn off by a kill; the next append says so
            continue
        assert (entry["seq"], entry["prev"]) == (len(found) + 1, prev)
        prev = hashlib.sha256(line).hexdigest()
        found.append({**entry, "sha256": prev})
    return found


def sound(scene: Scene, responses: Collection[str] = (RESPONSE, RESPONSE.strip(), DECIDED)) -> None:
    """Hold that every run is whole: state, plan, backup and log are read, what the state says of the log is true, each
    file is the one that the log tells of, the locks are free and no other file is torn.
    """
    store = Store(str(scene.store))
    for run_id in store.run_ids():
        run = store.read(run_id)
        folder = Path(run.folder)
        home = store.home(run_id)
        for kept in ("state.json", *recovery.kept_states(home)):
            if "broken" not in kept and "faber" not in kept:  # set aside on purpose, or another's
                list(store.read_home(recovery.kept_home(home, kept))["steps"])
        entries = chain(folder)
        head = run.state["ledger_head"]
        assert entries[head["seq"] - 1]["sha256"] == head["sha256"]
        assert "ledger.mismatch" not in {entry["event"] for entry in entries}
        backup = folder / "state.backup.json"
        if backup.exists():
            before = json.loads(backup.read_bytes())
            assert before["run_id"] == run_id
            assert before["revision"] <= run.state["revision"]  # less by more than one after a restore
        faults = file_checks.check(scene.space(), run_id).faults
        assert {one.file for one in faults} <= {"plan.json"}, faults  # which the scenes themselves edit
        assert log_verdict.verify(store, run_id).ok
        with Lock(os.path.join(store.local, "locks", f"{run_id}.lock"), patience=0):
            pass
    for path in [*scene.store.rglob("*.json"), *Path(os.environ["LOOM_STATE_HOME"]).rglob("*.json")]:
        if "broken" not in path.name and not _arrives(path):  # set aside on purpose
            json.loads(path.read_bytes())
    for path in scene.store.rglob("response*.md"):
        if not _arrives(path):
            assert _is_whole(path.read_text(encoding="utf-8"), responses), path


def _is_whole(text: str, responses: Collection[str]) -> bool:
    """Tell whether a response is one that was given, or what the branches of a parallel step said last."""
    if text in responses:
        return True
    first, *said = re.split(r"^## Branch .*\n\n", text, flags=re.MULTILINE)
    known = {"(no response)", *(one.strip() for one in responses)}
    return not first and text.endswith("\n") and all(one.strip() in known for one in said)


def _arrives(path: Path) -> bool:
    """Tell a file of a run that is only being built, where nothing looks for runs."""
    return any(part.startswith("arriving-") for part in path.parts)


def litter(scene: Scene) -> list[str]:
    """Name what half-done work left: files beside others, folders on their way out, second files of a kind."""
    home = Path(os.environ["LOOM_STATE_HOME"])
    found = [path for top in (scene.store, home) for path in top.rglob("*")]
    return sorted(path.name for path in found if path.name.endswith(".tmp") or path.name.startswith("removed-"))


def essence(state: Json) -> Json:
    """Give what a state says, without what differs between two runs that did the same."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if key not in _TIMES}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    plain: Json = without({key: value for key, value in state.items() if key not in VOLATILE})
    # What a step said last depends on who ended it, the deed or what is done after it.
    said = (key for key in plain["context"] if key == "last_response" or key.startswith("response."))
    return {**plain, "context": {key: plain["context"][key] for key in {*plain["context"]} - {*said}}}


def essences(stand: Stand) -> dict[str, Json]:
    """Give the essence of each run."""
    return {run_id: essence(stand.store.read_state(run_id)) for run_id in stand.store.run_ids()}
