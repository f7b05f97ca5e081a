"""A project with a run under way whose files are damaged one at a time, and everything that then reads them."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from loomctl.runs import artifact_paths
from tests.helpers.scenes import OTHER, SESSION, Ended, Json, Scene, TranscriptFile, artifact
from tests.hostile import inside

# What stands in the place of a good value; what is not JSON on purpose comes as text that is put into the file.
HOSTILE: dict[str, str] = {
    "null": "null",
    "true": "true",
    "minus one": "-1",
    "a large number": "1e308",
    "a number of 401 digits": "1" + "0" * 400,
    "a number of 4,300 digits": "9" * 4300,
    "an infinite number": "1e999",
    "NaN": "NaN",
    "no text": '""',
    "controls": '"\\u0000\\u001b[31m\\u009b\\u202e\\ud800"',
    "a way out": '"../../../../../../etc/passwd"',
    "an absolute path": '"/etc/passwd"',
    "a long text": '"' + "x" * 70_000 + '"',
    "an empty list": "[]",
    "an empty object": "{}",
    "nested": "[" * 90 + "]" * 90,
    "nested deeply": '{"a":' * 700 + "0" + "}" * 700,
    "a list of everything": '[null,true,-1,1.5,"x",[],{},["x"],{"id":null},{"id":"x","status":"x"}]',
}
_MARK = "\ue000the hostile value\ue001"
SECONDS = 20  # of processor time, for one reader of one file; far more than any takes, far less than for ever


class Trial(NamedTuple):
    """One damaged place: which file, where in it, by what."""

    kind: str
    path: tuple[str | int, ...]
    hostile: str

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.path)) or '$'} = {self.hostile}"


def nodes(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict):
        for key, child in value.items():
            yield from nodes(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from nodes(child, (*path, index))


def damaged(value: Any, path: tuple[str | int, ...], text: str) -> str:
    """Give the JSON text of a value with what stands at `path` replaced by `text`."""
    if not path:
        return text
    whole = copy.deepcopy(value)
    at = whole
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = _MARK
    return json.dumps(whole).replace(json.dumps(_MARK), text)


PHASES: Json = {
    "frame": {"steps": [{"id": "ask", "prompt": "Ask what {work_id} wants.", "max_retries": 1}]},
    "build": {
        "description": "to build",
        "require_approval": True,
        "max_retries": 1,
        "pre_steps": [{"id": "prime", "command": "/loom:prime-context"}],
        "steps": [
            {"id": "make", "name": "Make", "description": "to make", "skill": "make-it"},
            {"id": "polish", "prompt": "Polish it.", "result_handling": {"on_failure": "prompt"}},
        ],
    },
    "ship": {"steps": [{"id": "send", "command": "/send", "require_approval": True}]},
}


class Victim:
    """The project; `restore` puts every file back as `__init__` made it."""

    def __init__(self, folder: Path) -> None:
        scene = self.scene = Scene(folder / "shop")
        self.outside = folder / "outside"
        self.transcript = TranscriptFile(folder / "transcript.jsonl")
        scene.write("spec.md", "# Spec\n\nThe contrast is 7:1.\n")
        scene.write("docs/a.md", "a\n")
        scene.write("data.json", '{"a": 1}')
        scene.write(".loom/config.yaml", "hook_budget: 9000\ncommand_budget: 20000\ndefault_workflow: tiny\n")
        both = {"reload_triggers": ["session_start", "phase_transition:frame->build"]}
        scene.workflow(
            [
                artifact("spec", "spec.md", **both),
                artifact("state", "{state_path}", type="json"),
                artifact("plan", "{plan_path}", type="json", required=False),
                artifact("docs", "docs", type="directory", load_strategy="all"),
                artifact("data", "data.json", type="json", load_strategy="summary", required=False),
                artifact("log", None, type="git_info", command="git log --oneline -3", required=False),
            ],
            PHASES,
            conditional=[
                artifact("simple", "spec.md", condition="state.status == 'in_progress' && !state.context.x"),
                artifact("engine", "spec.md", condition="[1].includes(state.revision) || true", required=False),
                artifact("from-state", None, path_from_state="artifacts.spec_path", **both),
            ],
            by_phase={"build": [artifact("phase", "spec.md", required=False)]},
            description="small",
            autonomy={"level": "guarded", "require_approval_for": ["ship"]},
        )
        scene.begin("258")
        self.run_dir = scene.run_dir
        self.run_id = self.run_dir.name
        self.restore_points: dict[Path, bytes] = {}
        self.hook("session-start", source="startup")
        self.loomctl("done", "--artifact", "spec_path=spec.md", "--note", "asked", given="# Asked\n\nwell")
        self.loomctl("approve")
        self.loomctl("next")
        self.hook("session-start", source="compact")
        self.hook("stop", last_assistant_message="so far so good")
        self._fill()
        self.places = self._places()
        self.restore_points = {path: path.read_bytes() for path in self._all() if path.is_file()}

    def _fill(self) -> None:
        """Put into the state what seldom stands there, so that there is a node of everything."""
        state = self.scene.state
        state["errors"] = [{"at": "2026-01-01T00:00:00Z", "step_id": "frame/ask", "stage": "x", "message": "it failed"}]
        state["pending_triggers"] = ["phase_start:build"]
        state["context"] = {"a": {"b": 1}}
        state["goal"] = "a goal"
        state["completed_at"] = "2026-01-01T00:00:00Z"
        record = copy.deepcopy(state["sessions"]["session_history"][0])
        record.update(session_id=OTHER, ended_at=None)
        record["compactions"] = [{"at": "2026-01-01T00:00:00Z", "trigger": "auto"}]
        record["environment"].update(git_commit="0" * 40, hostname="elsewhere", project_root="/home/b/shop")
        state["sessions"]["session_history"].append(record)
        (self.scene.run_dir / "state.json").write_text(json.dumps(state), encoding="utf-8")
        primed = self.scene.store / "local" / "primed" / f"{SESSION}.json"
        known = json.loads(primed.read_text(encoding="utf-8"))
        known.update(compacting="manual", restores={"boundary": 1})
        primed.write_text(json.dumps(known), encoding="utf-8")
        slip = str(known["slip"])
        self.transcript.prompt("begin")
        self.transcript.hook_text(f"text\n\nLoom slip {slip}")
        self.transcript.compacts(kept=["uuid-0001"])
        self.transcript.says("what was said", message="m1")
        self.transcript.calls("loomctl next")
        self.transcript.result("it said")
        self.transcript.says("the end", message="m2")

    def _all(self) -> Iterator[Path]:
        for folder in (self.scene.root, Path(os.environ["LOOM_STATE_HOME"]), self.transcript.path.parent):
            yield from folder.rglob("*") if folder != self.transcript.path.parent else [self.transcript.path]

    def restore(self) -> None:
        for folder in (self.scene.root, Path(os.environ["LOOM_STATE_HOME"])):
            for path in sorted(folder.rglob("*"), reverse=True):
                if path.is_symlink() or (path.is_file() and path not in self.restore_points):
                    path.unlink()
        for path, data in self.restore_points.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != data:
                if path.is_dir():
                    shutil.rmtree(path)
                path.write_bytes(data)
        artifact_paths._REAL.clear()

    def _places(self) -> dict[str, Path]:
        run, local = self.run_dir, self.scene.store / "local"
        (known,) = (Path(os.environ["LOOM_STATE_HOME"]) / "runs").iterdir()
        (stage,) = (run / "stages").glob("001*")
        return {
            "state": run / "state.json",
            "plan": run / "plan.json",
            "workflow": self.scene.store / "workflows" / "tiny.json",
            "settings": self.scene.store / "config.yaml",
            "compiled": local / "config.json",
            "binding": local / "sessions" / f"{SESSION}.json",
            "primed": local / "primed" / f"{SESSION}.json",
            "known": known,
            "events": run / "events.jsonl",
            "transcript": self.transcript.path,
            "stage": stage / "status.json",
        }

    def value(self, kind: str) -> Any:
        """Give what a file of a kind holds, as JSON; the last line of one that has lines."""
        text = self.restore_points[self.places[kind]].decode()
        if kind in ("events", "transcript"):
            return [json.loads(line) for line in text.splitlines()]
        return json.loads(text) if kind != "settings" else dict(line.split(": ") for line in text.splitlines())

    def write(self, trial: Trial) -> None:
        text = damaged(self.value(trial.kind), trial.path, HOSTILE[trial.hostile])
        if trial.kind in ("events", "transcript") and trial.path:
            lines = [json.dumps(line) for line in self.value(trial.kind)]
            index = int(trial.path[0])
            lines[index] = damaged(self.value(trial.kind)[index], trial.path[1:], HOSTILE[trial.hostile])
            text = "\n".join(lines) + "\n"
        self.places[trial.kind].write_text(text, encoding="utf-8")

    def hook(self, event: str, given: str | None = None, **told: Any) -> Ended:
        """Answer a hook event in this process; a fault that the hook would hide is raised."""
        return inside.hook(self.scene, event, given, transcript_path=str(self.transcript.path), **told)

    def loomctl(self, *arguments: str, given: str | None = None, session: str | None = SESSION) -> Ended:
        return inside.loomctl(self.scene, *arguments, given=given, session=session)


Reader = Callable[[Victim], Ended]


def _hook(event: str, **told: Any) -> Reader:
    return lambda victim: victim.hook(event, **told)


def _says(words: str, **more: Any) -> Reader:
    """Read by a command; RUN stands for the run's id."""
    return lambda victim: victim.loomctl(*words.replace("RUN", victim.run_id).split(" "), **more)


def _check(victim: Victim) -> Ended:
    return victim.loomctl("check", *(str(victim.places[kind]) for kind in ("state", "plan", "workflow")), "--json")


READERS: dict[str, Reader] = {
    "SessionStart": _hook("session-start", source="startup"),
    "SessionStart compact": _hook("session-start", source="compact"),
    "UserPromptSubmit": _hook("user-prompt-submit", prompt="go on"),
    "PreCompact": _hook("pre-compact", trigger="auto"),
    "PreToolUse": _hook("pre-tool-use", tool_name="Bash", tool_input={"command": "loomctl done --note x"}),
    "Stop": _hook("stop", last_assistant_message="the end"),
    "SessionEnd": _hook("session-end", reason="clear"),
    "check": _check,
    "run": _says("run 259 --json"),
    "run in words": _says("run 259"),
    "resume": _says("resume RUN"),
    "resume elsewhere": _says("resume RUN --json --reopen", session=OTHER),
    "show": _says("show RUN"),
    "show stage": _says("show RUN 001"),
    "prime-context": _says("prime-context --force --json"),
    "prime-context in words": _says("prime-context --text"),
    "next": _says("next --json"),
    "next in words": _says("next"),
    "done": _says("done --artifact a=spec.md", given="it is done"),
    "done failed": _says("done --outcome failed --json", given="no"),
    "closing": lambda victim: [victim.loomctl("done"), victim.hook("stop", last_assistant_message="so")][-1],
    "closing, then next": lambda victim: [victim.loomctl("done"), victim.loomctl("next")][-1],
    "trust": _says("trust --yes"),
    "archive": _says("runs archive RUN --force"),
    "rm": _says("runs rm RUN --force --yes"),
    **{
        words: _says(words) for words in ("show --json", "state show", "state show --path steps", "runs", "runs --json")
    },
    **{words: _says(words) for words in ("sessions", "paths", "undo", "approve", "pause", "cancel")},
}
KINDS = (
    *("state", "plan", "workflow", "settings", "compiled", "binding", "primed", "known", "events", "transcript"),
    "stage",
)


def judged(trial: object, reader: str, read: Callable[[], Ended]) -> str | None:
    """Give what is wrong with how a reader took a damaged file; None if it was taken or refused in good order."""
    try:
        ended = read()
    except Exception:  # noqa: BLE001 - whatever a hook hid is what is looked for
        return f"{trial}: {reader}: {traceback.format_exc(limit=-6)}"
    if ended.code not in (*range(9),):
        return f"{trial}: {reader}: exit code {ended.code}: {ended.stdout[-300:]} {ended.stderr[-1500:]}"
    raw = [character for character in ended.stdout + ended.stderr if is_raw(character)]
    if raw:
        return f"{trial}: {reader}: shown raw: {sorted(set(raw))!r}"
    if ended.stdout and (reader.endswith("--json") or ended.stdout.startswith("{")):
        try:
            json.loads(ended.stdout)
        except ValueError as problem:
            return f"{trial}: {reader}: not JSON: {problem}"
    return None


def is_raw(character: str) -> bool:
    code = ord(character)
    return (
        (code < 32 and character not in "\n\t")
        or 127 <= code <= 159
        or code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
    )


def trials(victim: Victim, kinds: tuple[str, ...] = KINDS) -> Iterator[Trial]:
    for kind in kinds:
        for path in nodes(victim.value(kind)):
            for hostile in HOSTILE:
                yield Trial(kind, path, hostile)


def tried(victim: Victim, trial: Trial, reader: str) -> str | None:
    victim.restore()
    victim.write(trial)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        return judged(trial, reader, lambda: READERS[reader](victim))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
