"""What a preamble tells of stages and of the context, read from a run's files (D46).

What is missing or damaged is named and holds nothing up.
"""

from __future__ import annotations

import os

from loomctl.disk import files, reading_copies, text_parts, trouble
from loomctl.engine import context_values, prompts, stages
from loomctl.model import blob_refs, run_life
from loomctl.model.errors import LoomError
from loomctl.model.preamble import Stage, Text, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace

_READ = 1 << 17  # bytes of a response or an output that are looked at
_COMMAND_LOG = "command.log"


def status_of(run: Run, entry: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
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
    """Reads what a preamble tells of stages and values. troubles: what could not be read."""

    def __init__(self, space: Workspace, run: Run, step: Mapping[str, Any]) -> None:
        self._space, self._run = space, run
        self._workdir = prompts.workdir(space.project, run, step)
        self.troubles: list[str] = []

    def stage(self, entry: Mapping[str, Any], *, detailed: bool, known: bool) -> Stage:
        """Give a visit as a stage; known: with what its files say, detailed: its response and output, too."""
        bare = Stage(
            entry["step_id"],
            entry["visit"],
            run_life.how_it_ended(entry),
            run_life.reason_of(entry),
            str(entry.get("note") or ""),
        )
        if not known or not entry.get("stage"):
            return bare
        if not detailed:
            said = self._response(entry, 2048) if not bare.reason and not bare.note else None
            return bare._replace(first_line=_first_line(said.text if said is not None else None))
        status, missing = status_of(self._run, entry)
        command, usage = _object(status.get("command")), _object(status.get("usage"))
        tokens = [usage.get(key) for key in ("input_tokens", "cache_creation_input_tokens")]
        spent, output = [count for count in tokens if type(count) is int], usage.get("output_tokens")
        if missing:
            self.troubles.append(f"{entry['stage']}: {missing}")
        return bare._replace(
            reason=bare.reason or (str(status.get("failure_reason") or "") if entry["status"] == "failed" else ""),
            models=_texts(usage.get("models")),
            tokens_in=sum(spent) if spent else None,
            tokens_out=output if type(output) is int else None,
            files=_texts(status.get("files_touched")),
            response=None if command else self._response(entry, _READ),
            script=str(command.get("script") or ""),
            ended=_how_it_ended(command),
            output=self._output(entry, command) if command else None,
            trouble=missing,
        )

    def _response(self, entry: Mapping[str, Any], limit: int) -> Text | None:
        """Give a stage's response, or its beginning; one that is a blob by the file that it can be read in (D38)."""
        stage = str(entry["stage"])
        try:
            at = os.path.join(stages.folder(self._run.folder, stage), stages.RESPONSE)
            files.refuse_links(self._run.folder, at)
            text, whole = text_parts.head(at, limit)
        except FileNotFoundError:
            return None
        except (OSError, LoomError) as error:
            self.troubles.append(f"{stage}: response.md: {trouble.said(error)}")
            return None
        value = self._run.state["context"].get(f"response.{entry['step_id']}")
        if limit == _READ and blob_refs.is_ref(value) and self._is_newest(entry):
            return Text(None, self._file(value), whole=False, lines_at=at)
        return Text(text, at, whole)

    def _is_newest(self, entry: Mapping[str, Any]) -> bool:
        """Tell whether no later visit of the same step ended."""
        ended = (one for one in reversed(self._run.state["steps"]) if one["status"] not in run_life.OPEN)
        newest = next(one for one in ended if one["step_id"] == entry["step_id"])
        return bool(newest == entry)

    def _output(self, entry: Mapping[str, Any], command: Mapping[str, Any]) -> Text | None:
        """Give the end of what a command printed, and the file of all of it."""
        stage, ref = str(entry["stage"]), command.get("output")
        at = self._file(ref) if isinstance(ref, str) and blob_refs.is_ref(ref) else ""
        try:
            log = os.path.join(stages.folder(self._run.folder, stage), _COMMAND_LOG)
            files.refuse_links(self._run.folder, log)
            text, whole = text_parts.tail(log, _READ)
        except (OSError, LoomError):
            return self._output_of(ref, at)
        return Text(text, at or log, whole, lines_at=log if at else "")

    def _output_of(self, ref: object, at: str) -> Text | None:
        """Give the same where the log is not there: from the blob, which holds it, too."""
        if not isinstance(ref, str):
            return None
        try:
            text = context_values.text_of(self._space, self._run, ref)
        except (OSError, LoomError):
            return Text(None, at, whole=False) if at else None
        if len(text) <= _READ:
            return Text(text, at, whole=True)
        return Text(text[-_READ:].partition("\n")[2], at, whole=False)

    def value(self, key: str, value: Any) -> Value:
        """Give a value of the context, a large one by the file that it can be read in (D42)."""
        if not isinstance(value, str):
            return Value(key, value)
        is_file = self._workdir is not None and value.startswith(reading_copies.FILE_REF)
        return Value(key, value, self._file(value)) if is_file or blob_refs.is_ref(value) else Value(key, value)

    def _file(self, ref: str) -> str:
        """Give the file in which a blob, or what a `file://` reference names, can be read.

        What is missing or damaged is named among the troubles, and its reference given.
        """
        try:
            return context_values.materialised(self._space, self._run, ref, self._workdir)
        except (OSError, LoomError) as error:
            self.troubles.append(f"{ref}: {trouble.said(error)}")
            return ref


def _how_it_ended(command: Mapping[str, Any]) -> str:
    if not command:
        return ""
    if command.get("timed_out"):
        return "timed out"
    code = command.get("exit_code")
    return f"exit code {code}" if type(code) is int else "without an exit code"


def _first_line(text: str | None) -> str:
    return next((line.strip() for line in (text or "").split("\n") if line.strip()), "")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
