"""A machine in a folder of any name, for real processes: home, temporary folder, plugin data and a project."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.helpers.scenes import CHECKOUT, PYTHON, SESSION, Json, artifact

LOCK_ID = (CHECKOUT / "requirements.lock").read_text().splitlines()[0].split()[-1]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


class Answer(NamedTuple):
    """How a process ended, byte for byte."""

    code: int
    stdout: bytes
    stderr: bytes

    def ends(self, code: int = 0) -> "Answer":
        """Assert how it ended; gives it itself."""
        assert self.code == code, self
        return self

    @property
    def json(self) -> Json:
        document: Json = json.loads(self.stdout)
        return document

    @property
    def text(self) -> str:
        return (self.stdout + self.stderr).decode("utf-8", "replace")


class Machine:
    """root: a folder of any name. Everything that a process of this machine knows lies below it.

    compiled: where modules are compiled to, once for all of a test run's machines; None: each its own.
    """

    def __init__(self, root: bytes, compiled: Path | None = None) -> None:
        self.root = root
        self.home, self.project = (os.path.join(root, name) for name in (b"home", b"the project"))
        self.data, self.temporary = (os.path.join(root, name) for name in (b"data", b"tmp"))
        for folder in (self.home, self.temporary, os.path.join(self.project, b".git")):
            os.makedirs(folder)
        cache = os.path.join(self.home, b".cache", b"loom")
        made_for_the_lock(cache)
        if compiled is not None:
            os.symlink(os.fsencode(compiled), os.path.join(cache, b"pycache"))
        self.more: dict[str, str | bytes | None] = {}

    def write(self, path: str, text: str) -> bytes:
        place = os.path.join(self.project, os.fsencode(path))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(text.encode())
        return place

    def workflow(self, phases: Json | None = None, name: str = "tiny") -> None:
        """Write a workflow with one document that is loaded at every start."""
        document = artifact("spec", "spec.md")
        steps = {"steps": [{"id": "ask", "prompt": "Ask in {project_root}, keep it in {run_dir}."}, {"id": "make"}]}
        steps["steps"][1]["prompt"] = "Make it."
        raw = {"id": name, "critical_artifacts": {"always_load": [document]}, "phases": phases or {"frame": steps}}
        self.write(f".loom/workflows/{name}.json", json.dumps(raw))
        self.write("spec.md", "# The spec\n\nheliotrope\n")

    def environ(self, session: str | None = SESSION, **more: str | bytes | None) -> dict[bytes, bytes]:
        """Give an environment made from nothing; a None takes a name out of it."""
        known: dict[str, str | bytes | None] = {
            "PATH": os.environ["PATH"], "HOME": self.home, "TMPDIR": self.temporary, "CLAUDE_PLUGIN_DATA": self.data,
            "LOOM_PYTHON": PYTHON, "LANG": "C.UTF-8",
        }  # fmt: skip
        if session is not None:
            known |= {"CLAUDE_CODE_SESSION_ID": session, "CLAUDE_PROJECT_DIR": self.project}
        whole = {**known, **self.more, **more}
        return {os.fsencode(name): os.fsencode(value) for name, value in whole.items() if value is not None}

    def start(
        self,
        *command: str | bytes,
        given: bytes = b"",
        session: str | None = SESSION,
        cwd: bytes | None = None,
        **environ: str | bytes | None,
    ) -> Answer:
        ended = subprocess.run(
            [os.fsencode(word) for word in command], cwd=cwd or self.project, env=self.environ(session, **environ),
            input=given, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        return Answer(ended.returncode, ended.stdout, ended.stderr)

    def loomctl(
        self,
        *words: str | bytes,
        given: bytes = b"",
        session: str | None = SESSION,
        cwd: bytes | None = None,
        launcher: tuple[str | bytes, ...] = (str(CHECKOUT / "bin" / "loomctl"),),
        **environ: str | bytes | None,
    ) -> Answer:
        """Run a command by the launcher, as a person or a host does."""
        return self.start(*launcher, *words, given=given, session=session, cwd=cwd, **environ)

    def hook(self, event: str, *, session: str = SESSION, **told: object) -> Json:
        """Send a hook event; gives what the hook answers, an empty document where it is silent."""
        body = {"session_id": session, "cwd": os.fsdecode(self.project), "transcript_path": "", **told}
        answer = self.loomctl("hook", event, given=json.dumps(body).encode(), session=session)
        assert (answer.code, answer.stderr) == (0, b""), answer
        return answer.json if answer.stdout else {}

    @property
    def run_folders(self) -> list[bytes]:
        runs = os.path.join(self.project, b".loom", b"runs")
        return sorted(os.path.join(runs, name) for name in os.listdir(runs)) if os.path.isdir(runs) else []


class Make(Protocol):
    """Makes a machine whose root has this name."""

    def __call__(self, root: bytes) -> Machine: ...


def made_for_the_lock(cache: bytes) -> None:
    """Put an environment where the launcher looks for one: the tests' own, which has the same packages."""
    folder = os.path.join(cache, f"env-{LOCK_ID}-{VERSION}".encode(), b"bin")
    os.makedirs(folder)
    python = os.path.join(folder, b"python")
    Path(os.fsdecode(python)).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    os.chmod(python, 0o755)


def longest_names(folder: bytes) -> int:
    """Give the length in bytes of the longest name below a folder."""
    return max(len(name) for _, folders, names in os.walk(folder) for name in (*folders, *names))
