"""What a preamble reads of the stages before its step, and of the context."""

from __future__ import annotations

import os

from loomctl.flow.preamble_text import Stage, Text, Value, as_text, is_told
from loomctl.kit import files, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object, as_objects, as_texts
from loomctl.runs import artifact_paths, command_runs, context_values, stages
from loomctl.runs.model import visits
from loomctl.runs.store import blobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.flow.preamble_text import Mode
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_READ = 1 << 17  # bytes of a response or an output that are looked at


def newest_ended(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Give the visits that ended, newest first, as far as they can be read; what the engine did by itself is none.

    A branch knows of the main line before its parallel step, and of itself (D43).
    """
    yield from visits.readable(visits.newest_ended(state))
    yield from visits.readable(visits.newest_ended({"steps": visits.seen_from(state).before}))


def count_ended(state: Mapping[str, Any]) -> dict[str, int]:
    """Count `newest_ended` by how they ended."""
    found = visits.count_ended({"steps": visits.seen_from(state).before})
    for how, count in visits.count_ended(state).items():
        found[how] = found.get(how, 0) + count
    return found


class Reader:
    """Reads what a preamble of a mode tells a step. readables: the files to name; troubles: what could not be read."""

    def __init__(self, space: Workspace, run: Run, step: Mapping[str, Any], mode: Mode) -> None:
        self._space, self._run, self._mode = space, run, mode
        self._workdir = artifact_paths.workdir(space.project, run, step)
        self.readables = context_values.Readables(space, run, self._workdir)
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
            note="; ".join(filter(None, (visits.task_line(visits.task_of(entry)), str(entry.get("note") or "")))),
        )
        if not known or not entry.get("stage"):
            return bare
        status, missing = stages.read_status(self._run, entry)
        bare = bare._replace(files=as_texts(status.get("files_touched")))
        if not detailed:
            wanted = not self._mode.detailed and not bare.reason and not bare.note
            said = self._response(entry, status, 2048) if wanted else None
            lines = (said.text or "").split("\n") if said is not None else []
            return bare._replace(first_line=next((line.strip() for line in lines if line.strip()), ""))
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
        for later in newest_ended(self._run.state):
            if later.get("stage") == entry["stage"]:
                return True
            if later["step_id"] == entry["step_id"] and _sets(stages.read_status(self._run, later)[0], key):
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
        text = as_text(key, value)
        is_short = text is None or len(text) <= self._mode.value
        return Value(key, value, copy="" if is_short else self.readables.value(key, value))


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
    return f"exit code {code}" if type(code) is int else "no exit code"
