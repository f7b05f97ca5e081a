"""What a preamble tells of a run, read from its stages' files, its context and its log of tools (D46)."""

from __future__ import annotations

import os

from loomctl.flow.preamble_text import Stage, Text, Value, as_text, is_told, path
from loomctl.kit import files, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object, as_objects, as_texts
from loomctl.kit.records import NamedTuple
from loomctl.runs import artifact_paths, command_runs, context_values, stages
from loomctl.runs.model import visits
from loomctl.runs.store import blobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from loomctl.flow.preamble_text import Mode
    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_READ = 1 << 17  # bytes of a response or an output that are looked at
_STEPS_LOOKED_AT = 200  # at the end of the log of tool steps


def ended(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the visits that ended, oldest first; what the engine did by itself is none.

    A branch knows of the main line before its parallel step, and of itself (D43).
    """
    every = (*visits.seen_from(state).before, *state["steps"])
    return [one for one in every if one.get("by") != "engine" and one["status"] not in visits.OPEN]


def tool_steps(run_dir: str, unlogged: Sequence[ToolStep] = ()) -> list[ToolStep]:
    """Give the newest tool steps of the main line (D48). unlogged: those that stand behind the log's (`Store`)."""
    every = [*_logged(run_dir), *unlogged][-_STEPS_LOOKED_AT:]
    return [step._replace(rest={}) for step in every if not step.more.get("agent_id")]


def _logged(run_dir: str) -> list[ToolStep]:
    if not os.path.exists(os.path.join(run_dir, "tool_steps.jsonl")):  # then nothing of what reads it is imported
        return []
    from loomctl.runs.tools import tool_log

    try:
        return tool_log.tail(run_dir, _STEPS_LOOKED_AT)
    except (OSError, LoomError):
        return []


def read_status(run: Run, entry: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Read how a stage ended; gives what can be read and what is wrong with it."""
    try:
        text = stages.read_text(run.folder, str(entry["stage"]), stages.STATUS)
        if text is None:
            return {}, "status.json is not there"
        found = files.parse_json(text.encode(), where=stages.STATUS)
    except (OSError, LoomError) as error:
        return {}, f"status.json: {trouble.said(error)}"
    return (found, "") if isinstance(found, dict) else ({}, "status.json holds no object")


class Reader:
    """Reads what a preamble of a mode tells a step. readables: the files to name; troubles: what could not be read."""

    def __init__(self, space: Workspace, run: Run, step: Mapping[str, Any], mode: Mode) -> None:
        self._space, self._run, self._mode = space, run, mode
        self._workdir = artifact_paths.workdir(space.project, run, step)
        self.readables = Readables(space, run, self._workdir)
        self.troubles: list[str] = []

    def stages(self, told: Sequence[Mapping[str, Any]]) -> list[Stage]:
        """Give visits as stages, oldest first, the newest with what their files say."""
        self.troubles = []
        known, detailed = (len(told) - count for count in (self._mode.known, self._mode.detailed))
        return [
            self._stage(entry, known=number >= known, detailed=number >= detailed) for number, entry in enumerate(told)
        ]

    def context(self, keys: Collection[str] | None) -> list[Value]:
        """Give the run's context, or these keys of it; nothing where the mode tells none."""
        if not self._mode.value:
            return []
        held = self._run.state["context"].items()
        return [self._value(key, value) for key, value in held if is_told(key) and (keys is None or key in keys)]

    def _stage(self, entry: Mapping[str, Any], *, known: bool, detailed: bool) -> Stage:
        failed = entry["status"] == "failed"
        bare = Stage(
            step_id=str(entry["step_id"]),
            visit=entry["visit"] if type(entry.get("visit")) is int else 1,
            status=visits.how_it_ended(entry),
            reason=visits.reason_of(entry),
            note=str(entry.get("note") or ""),
        )
        if not known or not entry.get("stage"):
            return bare
        status, missing = read_status(self._run, entry)
        bare = bare._replace(files=as_texts(status.get("files_touched")))
        if not detailed:
            wanted = not self._mode.detailed and not bare.reason and not bare.note
            said = self._response(entry, status, 2048) if wanted else None
            return bare._replace(first_line=_first_line(said.text if said is not None else None))
        command, usage = as_object(status.get("command")), as_object(status.get("usage"))
        tokens = [usage.get(key) for key in ("input_tokens", "cache_creation_input_tokens")]
        spent, output = [count for count in tokens if type(count) is int], usage.get("output_tokens")
        if missing:
            self.troubles.append(f"{entry['stage']}: {missing}")
        return bare._replace(
            reason=bare.reason or (str(status.get("failure_reason") or "") if failed else ""),
            models=as_texts(usage.get("models")),
            tokens_in=sum(spent) if spent else None,
            tokens_out=output if type(output) is int else None,
            assets=as_texts([one.get("path") for one in as_objects(status.get("assets"))]),
            response=None if command else self._response(entry, status, _READ),
            script=str(command.get("script") or ""),
            ended=_how_it_ended(command),
            output=self._output(entry, command) if command else None,
            trouble=missing,
        )

    def _response(self, entry: Mapping[str, Any], status: Mapping[str, Any], limit: int) -> Text | None:
        """Give a stage's response, or its beginning; one that is a blob by the file that it can be read in (D38)."""
        stage = str(entry["stage"])
        try:
            at = os.path.join(stages.folder(self._run.folder, stage), stages.RESPONSE)
            files.refuse_links(self._run.folder, at)
            text, whole = files.head(at, limit)
        except FileNotFoundError:
            return None
        except (OSError, LoomError) as error:
            self.troubles.append(f"{stage}: response.md: {trouble.said(error)}")
            return None
        value = self._run.state["context"].get(f"response.{entry['step_id']}")
        at = self.readables.of_stage(stage, at)
        if limit == _READ and blobs.is_ref(value) and self._is_its_own(entry, status):
            return Text(None, self.readables.blob(value), whole=False, lines_at=at)
        return Text(text, at, whole)

    def _is_its_own(self, entry: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        """Tell whether a visit is the one whose response its step's key holds: a later one may have set none (D36)."""
        key = f"response.{entry['step_id']}"
        if not _sets(status, key):
            return False
        for later in reversed(ended(self._run.state)):
            if later.get("stage") == entry["stage"]:
                return True
            if later["step_id"] == entry["step_id"] and _sets(read_status(self._run, later)[0], key):
                return False
        return False

    def _output(self, entry: Mapping[str, Any], command: Mapping[str, Any]) -> Text | None:
        stage, ref = str(entry["stage"]), command.get("output")
        at = self.readables.blob(ref) if isinstance(ref, str) and blobs.is_ref(ref) else ""
        try:
            log = os.path.join(stages.folder(self._run.folder, stage), command_runs.LOG)
            files.refuse_links(self._run.folder, log)
            text, whole = files.tail(log, _READ)
        except (OSError, LoomError):
            return self._output_of(ref, at)
        log = self.readables.of_stage(stage, log)
        return Text(text, at or log, whole, lines_at=log if at else "")

    def _output_of(self, ref: object, at: str) -> Text | None:
        if not isinstance(ref, str):
            return None
        try:
            text = context_values.text_of(self._space, self._run, ref)
        except (OSError, LoomError):
            return Text(None, at, whole=False) if at else None
        if len(text) <= _READ:
            return Text(text, at, whole=True)
        return Text(text[-_READ:].partition("\n")[2], at, whole=False)

    def _value(self, key: str, value: Any) -> Value:
        if not is_told(key):
            return Value(key, value)
        if blobs.is_ref(value):
            return Value(key, value, at=self.readables.blob(value))
        if self._workdir is not None and isinstance(value, str) and value.startswith(blobs.FILE_REF):
            return Value(key, value, at=self.readables.artifact(value))
        return Value(key, value, copy=self.readables.value(key, value, self._mode.value))


def _sets(status: Mapping[str, Any], key: str) -> bool:
    before = as_object(status.get("context_before"))
    gone = before.get("gone")
    return key in as_object(before.get("set")) or (isinstance(gone, list) and key in gone)


def _how_it_ended(command: Mapping[str, Any]) -> str:
    if not command:
        return ""
    if command.get("timed_out"):
        return "timed out"
    code = command.get("exit_code")
    return f"exit code {code}" if type(code) is int else "without an exit code"


def _first_line(text: str | None) -> str:
    return next((line.strip() for line in (text or "").split("\n") if line.strip()), "")


class _Copy(NamedTuple):
    """A copy that may be made. at: where; make: gives where it stands; otherwise: what is named without it."""

    at: str
    make: Callable[[], str]
    otherwise: str


class Readables:
    """What can be read by who does a step. workdir: the step's, if it has one. troubles: what cannot be read, in words.

    Each method gives the path to name; nothing is written before `make`.
    """

    def __init__(self, space: Workspace, run: Run, workdir: str | None) -> None:
        self._space, self._run, self._workdir = space, run, workdir
        self._copies: dict[str, _Copy] = {}
        self._stands: dict[str, str] = {}
        self.troubles: list[str] = []
        self._room: str | None = None
        try:
            self._room = context_values.room_of(space, workdir)
        except LoomError as error:
            self.troubles.append(trouble.said(error))

    def blob(self, ref: str) -> str:
        """Give the file in which a blob can be read; one that is gone by its reference."""
        at = os.path.join(self._room or self._run.folder, blobs.FOLDER, f"{blobs.sha256_of(ref)}.json")
        return self._copy(ref, at, lambda: self._materialised(ref), ref)

    def artifact(self, ref: str) -> str:
        """Give the file that a `file://` reference names, or its copy."""
        if ref in self._stands:
            return self._stands[ref]
        try:
            named = blobs.path_in(ref)
        except LoomError as error:
            self.troubles.append(f"{ref}: {trouble.said(error)}")
            return self._stands.setdefault(ref, ref)
        if self._room is None:
            return named
        at = os.path.join(self._room, "artifacts", os.path.basename(named))
        return self._copy(ref, at, lambda: self._materialised(ref), ref)

    def value(self, key: str, value: Any, limit: int) -> str:
        """Give the file for a value of the context that is not told whole: a text with its lines, else its JSON.

        Empty for one that is told in `limit` UTF-16 units.
        """
        text = as_text(key, value)
        if text is None or len(text) <= limit:
            return ""
        data, ending = context_values.encoded(value), ".json"
        if isinstance(value, str):
            data, ending = value.encode("utf-8", "backslashreplace"), ".txt"
        name = blobs.sha256_of(blobs.ref_of(data)) + ending
        folder = self._room or self._run.folder
        at = os.path.join(folder, blobs.FOLDER, name)
        return self._copy(f"context {key}", at, lambda: self._kept(blobs.FOLDER, name, data), "")

    def of_stage(self, stage: str, at: str) -> str:
        """Give a file of a stage, which stands at `at`, or its copy."""
        if self._room is None:
            return at
        folder, name = os.path.join("stages", stage), os.path.basename(at)
        copy = os.path.join(self._room, folder, name)
        return self._copy(copy, copy, lambda: self._kept(folder, name, files.read_bytes(at, limit=blobs.LARGEST)), at)

    def make(self, text: str) -> bool:
        """Make the copies that a text names; tells whether it names them rightly, else it is to be made again."""
        is_right = True
        for what, copy in self._copies.items():
            if what in self._stands or path(copy.at) not in text:
                continue
            try:
                self._stands[what] = copy.make()
            except (OSError, LoomError) as error:
                self.troubles.append(f"{what}: {trouble.said(error)}")
                self._stands[what] = copy.otherwise
            is_right = is_right and self._stands[what] == copy.at
        return is_right

    def _copy(self, what: str, at: str, make: Callable[[], str], otherwise: str) -> str:
        if what in self._stands:
            return self._stands[what]
        self._copies[what] = _Copy(at, make, otherwise)
        return at

    def _materialised(self, ref: str) -> str:
        return context_values.materialised(self._space, self._run, ref, self._workdir)

    def _kept(self, folder: str, name: str, data: bytes) -> str:
        top = self._run.folder if self._room is None else blobs.copy_room(os.path.dirname(self._room))
        return blobs.keep_copy(top, folder, name, data)
