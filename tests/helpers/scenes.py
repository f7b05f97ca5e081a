"""Scenes that tests of the engine, the hosts and the command line begin with: a project, its runs, its sessions."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loomctl.flow import start
from loomctl.flow.open_project import workspace
from loomctl.flow.start import Started
from loomctl.hosts import asking, table
from loomctl.hosts.protocol.transcript import Transcript
from loomctl.kit import clock, ids
from loomctl.runs import config, project
from loomctl.runs.machine import launcher_files
from loomctl.runs.model import lease
from loomctl.runs.model.state import handle as named
from loomctl.runs.project import Caller, Conversation, Workspace
from loomctl.runs.store.store import Store

CHECKOUT = Path(__file__).resolve().parents[2]
MAIN = CHECKOUT / "loomctl" / "__main__.py"
PLAIN = CHECKOUT / "tests" / "helpers" / "plain.json"
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""The interpreter that the tests' environment stands on."""
SESSION = "5f0c9a52-0000-4000-8000-000000000001"
OTHER = "5f0c9a52-0000-4000-8000-000000000002"

Json = dict[str, Any]


class Ended(NamedTuple):
    """A process that ended."""

    code: int
    stdout: str
    stderr: str
    others: tuple[str, ...] = ()

    @property
    def json(self) -> Json:
        document: Json = json.loads(self.stdout)
        return document

    def ends(self, code: int = 0) -> "Ended":
        """Assert how it ended; gives it itself."""
        assert self.code == code, self
        return self

    @property
    def parts(self) -> list[str]:
        """What each entry of a hook put into the conversation; others: what those behind the first printed."""
        given = [json.loads(output).get("hookSpecificOutput") or {} for output in (self.stdout, *self.others) if output]
        return [str(one["additionalContext"]) for one in given if "additionalContext" in one]

    @property
    def context(self) -> str:
        """What a hook put into the conversation."""
        return "\n\n".join(self.parts)

    @property
    def message(self) -> str:
        return str(self.json.get("systemMessage", "")) if self.stdout else ""


def artifact(name: str, path: str | None, **more: Any) -> Json:
    """Declare a critical artifact, required and loaded at every session start unless said otherwise.

    path: None for one that `more` says otherwise how to find.
    """
    often = {"description": f"the {name}", "required": True, "reload_triggers": ["session_start"]}
    return {"id": name, "type": "markdown", **({} if path is None else {"path": path}), **often, **more}


BUILT_IN = (
    *("_current_node", "_previous_node", "_pipeline_name", "_run_id", "_retry_count", "_start_time"),
    "_node_start_time",
)
"""The keys of a run's context that the engine itself says (D44)."""

PHASES: Json = {
    "frame": {"steps": [{"id": "ask", "prompt": "Ask what is wanted."}]},
    "build": {"steps": [{"id": "make", "prompt": "Make it."}, {"id": "polish", "prompt": "Polish it."}]},
    "ship": {"steps": [{"id": "send", "prompt": "Send it."}]},
}
"""Three phases with four steps."""


def handle(run: str | Json, work: str = "add dark mode") -> str:
    """What people call a run (D69). run: its state, or its id, which goes with a piece of work."""
    return ids.handle(run, work) if isinstance(run, str) else named(run)


class Seen(Conversation):
    """A conversation in which everything that was given still stands."""

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        return frozenset(slips)


class Scene:
    """A project in a folder of its own, and what can be done in it."""

    def __init__(self, root: Path, *, new: bool = True) -> None:
        self.root = root
        if new:
            (root / ".git").mkdir(parents=True)
        self.store = root / ".loom"

    def write(self, path: str, text: str | bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return place

    def workflow(
        self,
        artifacts: list[Json] | None = None,
        phases: Json | None = None,
        *,
        name: str = "tiny",
        conditional: list[Json] | None = None,
        by_phase: Json | None = None,
        **more: Any,
    ) -> None:
        critical = {
            "always_load": artifacts or [],
            "conditional_load": conditional or [],
            "phase_specific": by_phase or {},
        }
        raw = {"id": name, "critical_artifacts": critical, "phases": phases or PHASES, **more}
        self.write(f".loom/workflows/{name}.json", json.dumps(raw))

    def plain(self) -> None:
        """Write the workflow plain: the bundle's five phases, a step each, that end with any answer."""
        self.write(".loom/workflows/plain.json", PLAIN.read_bytes())

    def space(
        self,
        session: str | None = SESSION,
        *,
        host: str = "claude-code",
        pid: int | None = None,
        conversation: Conversation | None = None,
        transcript: Path | None = None,
        on_hook_path: bool = False,
        cwd: Path | None = None,
    ) -> Workspace:
        """Give the workspace as a session meets it; without a conversation all that was given counts as seen."""
        here = str(cwd or self.root)
        found = project.find((here,)) or project.new(here)
        seen = conversation or (Transcript(str(transcript)) if transcript else Seen())
        caller = Caller(
            session,
            host,
            pid,
            here,
            seen,
            on_hook_path,
            memory=asking.MEMORY_LINES,
            rereads=asking.rereads(table.CLAUDE),
            started_in=os.environ.get(table.CLAUDE.project, ""),
        )
        return workspace(found, config.load(found.store, with_yaml=True), caller)

    def begin(self, work: str = "add dark mode", *, session: str | None = SESSION, workflow: str = "tiny") -> Started:
        return start.start(self.space(session), work, workflow=workflow)

    def let_go(self) -> None:
        """Let the only run's driver give it up, as its conversation's end does."""
        Store(str(self.store)).update(self.run_dir.name, lambda state: (lease.released(state, clock.now()), []))

    @property
    def run_dirs(self) -> list[Path]:
        return sorted((self.store / "runs").glob("*/"))

    @property
    def run_dir(self) -> Path:
        (folder,) = self.run_dirs
        return folder

    @property
    def state(self) -> Json:
        return self.state_of(self.run_dir)

    @property
    def handle(self) -> str:
        """What people call the only run."""
        return named(self.state)

    @staticmethod
    def state_of(folder: Path) -> Json:
        state: Json = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return state

    def edit(self, **changes: Any) -> Json:
        """Change keys of the only run's state, as an editor would; gives the new state."""
        state = {**self.state, **changes}
        (self.run_dir / "state.json").write_text(json.dumps(state), encoding="utf-8")
        return state

    def edit_plan(self, **changes: Any) -> Json:
        """Change keys of the only run's plan, as an editor would."""
        path = self.run_dir / "plan.json"
        plan = {**json.loads(path.read_text(encoding="utf-8")), **changes}
        path.write_text(json.dumps(plan), encoding="utf-8")
        return plan

    def events(self) -> list[Json]:
        lines = (self.run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def event_names(self) -> list[str]:
        return [event["event"] for event in self.events()]

    def environ(self, session: str | None = SESSION, **more: str) -> dict[str, str]:
        """Give the environment of a process of this project: the test's own, and what a host sets."""
        own = {"CLAUDE_PROJECT_DIR": str(self.root), "PWD": str(self.root)}
        if session is not None:
            own |= {"CLAUDE_CODE_SESSION_ID": session}
        return {**os.environ, **own, **more}

    def rest(self, pid: int | None = None) -> None:
        """Let a process be an assistant's that rests: a command that it starts now is its user's own line (D68).

        pid: whose; this one's by default.
        """
        if (self.store / "local").is_dir():
            mark = self.store / "local" / launcher_files.HOSTS / f"{pid or os.getpid()}.{launcher_files.RESTED}"
            mark.parent.mkdir(exist_ok=True)
            mark.write_text("\n", encoding="utf-8")

    def hook(
        self,
        event: str,
        given: str | bytes | None = None,
        *,
        session: str = SESSION,
        environ: dict[str, str] | None = None,
        **told: Any,
    ) -> Ended:
        """Answer a hook event in a process of its own, as the launcher starts it.

        given: standard input as it is, instead of an event made of `told`. A session start leaves parts for the other
        entries, as the bundle's does, where there is room for them.
        """
        body = {"session_id": session, "cwd": str(self.root), "transcript_path": "", "hook_event_name": event, **told}
        data = json.dumps(body) if given is None else given
        base = self.root / ".loom" / "local" / "parts" / f"{session}-0"
        fits = len(session) < 200 and all(one.isascii() and (one.isalnum() or one in "-_") for one in session)
        entries = [str(base), "4"] if event == "session-start" and fits and base.parent.is_dir() else []
        ended = run(
            [sys.executable, "-I", "-S", str(MAIN), "hook", event, *entries],
            cwd=self.root,
            environ=self.environ(session, **(environ or {})),
            given=data,
        )
        left = [base.with_name(f"{base.name}.{number}") for number in (2, 3, 4)]
        others = tuple(path.read_text(encoding="utf-8") for path in left if entries and path.exists())
        for path in left if entries else ():
            path.unlink(missing_ok=True)
        return ended._replace(others=tuple(output for output in others if output))

    def loomctl(
        self, *arguments: str, session: str | None = SESSION, given: str | bytes | None = None, cwd: Path | None = None
    ) -> Ended:
        """Run a command in a process of its own, as a line that its user types.

        given: its standard input; None for /dev/null.
        """
        if decides(arguments):
            self.rest()
        return run(
            [sys.executable, "-I", str(MAIN), *arguments],
            cwd=cwd or self.root,
            environ=self.environ(session),
            given=given,
        )


def decides(arguments: Sequence[str]) -> bool:
    """Tell whether a command line holds a decision that only a person may make (D68)."""
    verbs = ("approve", "reject", "choose", "trust", "cancel", "push", "rm", "tell", "drive")
    of_a_fleet = arguments[:1] == ("fleet",) and arguments[1:2] not in ((), ("status",), ("report",), ("board",))
    return of_a_fleet or any(word in verbs for word in arguments[:2]) or "--trust" in arguments


def run(command: list[str], *, cwd: Path, environ: dict[str, str], given: str | bytes | None = None) -> Ended:
    data = given.encode() if isinstance(given, str) else given
    stdin = subprocess.DEVNULL if data is None else subprocess.PIPE
    with subprocess.Popen(
        command, cwd=cwd, env=environ, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        stdout, stderr = child.communicate(data, timeout=60)
    return Ended(child.returncode, stdout.decode("utf-8"), stderr.decode("utf-8", "replace"))


def fingerprint(folder: Path) -> dict[str, tuple[int, str]]:
    """Give time and digest of everything below a folder, to tell whether anything was written."""
    found: dict[str, tuple[int, str]] = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (path.lstat().st_mtime_ns, hashlib.sha256(content).hexdigest())
    return found


class TranscriptFile:
    """A transcript as Claude Code 2.1.330 writes it, entry by entry."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0
        self._last: str | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def add(self, entry: Json, *, parent: str | None = "") -> str:
        """Append an entry; gives its uuid. parent: another entry than the last one."""
        self._count += 1
        uuid = f"uuid-{self._count:04d}"
        stamp = f"2026-11-21T22:{self._count // 60:02d}:{self._count % 60:02d}.037Z"
        above = self._last if parent == "" else parent
        base = {"uuid": uuid, "parentUuid": above, "isSidechain": False, "timestamp": stamp, "sessionId": SESSION}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**base, **entry}, ensure_ascii=False) + "\n")
        self._last = uuid
        return uuid

    def note(self, entry: Json) -> None:
        """Append an entry that stands outside of the conversation's tree."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def prompt(self, text: str, *, parent: str | None = "") -> str:
        return self.add({"type": "user", "message": {"role": "user", "content": text}}, parent=parent)

    def command(self, body: str) -> str:
        """A slash command, its output expanded into the text that the model reads."""
        above = self.prompt("<command-message>loom:run</command-message>\n<command-name>/loom:run</command-name>")
        content = [{"type": "text", "text": body}]
        return self.add({"type": "user", "isMeta": True, "message": {"role": "user", "content": content}}, parent=above)

    def says(self, text: str, *, message: str = "", **more: Any) -> str:
        block = {"type": "text", "text": text}
        told = {"id": message or f"msg-{self._count}", "role": "assistant", "content": [block]}
        return self.add({"type": "assistant", "message": told, **more})

    def calls(self, command: str) -> str:
        block = {"type": "tool_use", "id": f"toolu-{self._count}", "name": "Bash", "input": {"command": command}}
        told = {"id": f"msg-{self._count}", "role": "assistant", "content": [block]}
        return self.add({"type": "assistant", "message": told})

    def result(self, output: str) -> str:
        block = {"type": "tool_result", "tool_use_id": "toolu", "content": output.rstrip("\n"), "is_error": False}
        told = {"role": "user", "content": [block]}
        return self.add({"type": "user", "message": told, "toolUseResult": {"stdout": output}})

    def hook_text(self, text: str, event: str = "SessionStart") -> str:
        shown = {"type": "hook_additional_context", "content": [text], "hookName": event, "hookEvent": event}
        return self.add({"type": "attachment", "attachment": shown})

    def compacts(self, *, kept: list[str] | None = None) -> str:
        """A compaction; gives the boundary's uuid. kept: entries that stay in front of the model."""
        data = {"trigger": "auto", "preTokens": 9, "preservedMessages": {"uuids": kept or [], "allUuids": kept or []}}
        above = self._last
        boundary = self.add(
            {"type": "system", "subtype": "compact_boundary", "logicalParentUuid": above, "compactMetadata": data},
            parent=None,
        )
        summary = {"role": "user", "content": "This session is being continued. Summary: …"}
        self.add({"type": "user", "isCompactSummary": True, "message": summary}, parent=boundary)
        return boundary
