"""Reduce tool calls to tool steps, with their originals put away, and events of tools to one run's log (D47).

`StepReducer` serves hooks, commands and other agents. `StepLog` makes each event of a run one step, with an id of its
own and its text stored once.
"""

from __future__ import annotations

import json
import os

from loomctl.kit import clock, digests, files
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.text.secrets import masked_line
from loomctl.reduction import history, kinds, live
from loomctl.reduction.calls import rebuilt, reduce_call
from loomctl.reduction.tokens import estimate
from loomctl.reduction.tool_steps import FAILED, LIST, READ, SHELL, ToolStep, result_of, rule_for, usual_args
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.tool_log import DataOffloader, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import Rule
    from loomctl.runs.machine.launcher_files import Spooled

INLINE_MOST = 2048  # bytes of what stands in the record itself
READS = "reads.json"
_TAIL = 160  # steps at the log's end among which a repeated one is looked for; a batch is smaller
_MOST_READS = 500
_PARTS = ("start_line", "end_line", "view_range", "include")  # of a file, or which files: beside what every host has
_CONTENTS = ("output", "llmContent", "text_result_for_llm")


class StepReducer:
    """Applies the rules to one call after another.

    offloader: where large texts go; rules: a user's own, which come before Loom's.
    """

    def __init__(self, offloader: DataOffloader, rules: Sequence[Rule] = ()) -> None:
        self.offloader, self._rules = offloader, rules
        self._count = 0

    def reduce(
        self,
        tool_name: str,
        args: Any,
        result: Any,
        *,
        step_id: str = "",
        error: str = "",
        more: dict[str, Any] | None = None,
    ) -> ToolStep:
        """Reduce a call. Raises nothing, whatever the arguments and the result are.

        step_id: the host's id of the call, else the steps are counted: `step_001`. error: what the host said of a call
        that failed. more: what else the record shall say. What cannot be stored stays in the record, and no file is
        named.
        """
        self._count += 1
        step_id = step_id or f"step_{self._count:03d}"
        reduction = reduce_call(tool_name, args, result, error=error, users=self._rules)
        ref, rest = None, reduction.rest
        if reduction.text is not None:
            try:
                ref = self.offloader.offload(
                    reduction.text, step_id, _extension(tool_name, reduction.kind, self._rules)
                )
            except OSError:
                rest = {**rest, "result": result}
                rest.pop("text_at", None)
        rest, rest_ref = self._put_away(rest, step_id)
        step = ToolStep(
            step_id,
            tool_name,
            reduction.minimal_args,
            reduction.observation,
            ref,
            reduction.success,
            rest,
            rest_ref,
            reduction.size,
            digests.of_text(reduction.text) if reduction.text is not None else "",
            reduction.tokens_before,
            more=more or {},
        )
        return step._replace(tokens_after=estimate(history.full(step)))

    def _put_away(self, rest: dict[str, Any], step_id: str) -> tuple[dict[str, Any], str | None]:
        try:
            rendered = _json(rest)
        except (ValueError, RecursionError) as error:  # a library's caller can give what no JSON holds
            return {"lost": type(error).__name__}, None
        if len(rendered) <= INLINE_MOST and _is_strict(rest):
            return rest, None
        try:
            return {}, self.offloader.offload(rendered, f"{step_id}.rest", "json")
        except OSError:
            return (rest if _is_strict(rest) else {"lost": "ValueError"}), None

    def original(self, step: ToolStep) -> tuple[Any, Any]:
        """Give a call's arguments and result as they were. Raises LoomError: what `read` does, and REF_DAMAGED."""
        try:
            rest = json.loads(self.offloader.read(step.rest_ref)) if step.rest_ref else step.rest
            text = self.offloader.read(step.outcome_ref).decode("utf-8", "surrogatepass") if step.outcome_ref else None
            return rebuilt(step.minimal_args, rest, text)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            where = f"{self.offloader.workspace}/{step.rest_ref or step.outcome_ref or ''}"
            hint = f"ls -l {quoted(where)}"
            what = "the stored output of the tool step is damaged"
            raise LoomError("REF_DAMAGED", what, where=where, why=str(error), hint=hint) from None


def _extension(tool_name: str, kind: str, rules: Sequence[Rule]) -> str:
    action = rule_for(tool_name, rules).action
    if kind == kinds.TEXT and action == SHELL:
        return "log"
    return "txt" if action == LIST and kind == kinds.TEXT else kinds.EXTENSIONS[kind]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)


def _is_strict(value: object) -> bool:
    """Tell whether every reader of JSON takes it: without the words for numbers that JSON does not have."""
    try:
        json.dumps(value, allow_nan=False, default=str)
    except ValueError:
        return False
    return True


class _Stored(DataOffloader):
    """Stores as it does, but for texts that are known to be stored already."""

    def __init__(self, workspace: str) -> None:
        super().__init__(workspace)
        self._known: dict[str, str] = {}

    def remember(self, sha256: str, ref: str) -> None:
        """Know where a text stands."""
        self._known[sha256] = ref

    def offload(self, data: str | bytes, step_id: str, ext: str = "json") -> str:
        """Give the reference of what is stored already, if it still is; else store it."""
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        ref = self._known.get(digests.of_bytes(content)) if self._known else None
        if ref is not None:
            try:
                if self.read(ref) == content:
                    return ref
            except LoomError:
                pass
        return self._write(content, step_id, ext)

    def _write(self, content: bytes, step_id: str, ext: str) -> str:
        return super().offload(content, step_id, ext)

    def whole(self, event: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Give an event's response with the text that a hook stored and replaced, as the tool gave it (D48).

        Where that text is gone or is another, the response is what the model saw of it, and beside it stands what the
        hook noted of the text: `{ref, sha256, bytes}`; else that is empty.
        """
        response, kept = result_of(event), event.get("loom")
        shapes = {"ref": str, "sha256": str, "bytes": int, "at": list}
        if not isinstance(kept, dict) or not all(isinstance(kept.get(key), shape) for key, shape in shapes.items()):
            return response, {}
        lost = {key: kept[key] for key in ("ref", "sha256", "bytes")}
        try:
            content = self.read(kept["ref"])
            if len(content) != kept["bytes"] or digests.of_bytes(content) != kept["sha256"]:
                return response, lost
            whole = live.with_text(response, tuple(kept["at"]), content.decode("utf-8", "surrogatepass"))
        except (LoomError, LookupError, TypeError, ValueError):
            return response, lost
        self.remember(kept["sha256"], kept["ref"])
        return whole, {}


class _Foreseen(_Stored):
    def __init__(self, workspace: str) -> None:
        super().__init__(workspace)
        self._held: dict[str, bytes] = {}

    def read(self, ref: str) -> bytes:
        """Give the bytes behind a reference, also of one that was only named."""
        return self._held[ref] if ref in self._held else super().read(ref)

    def _write(self, content: bytes, step_id: str, ext: str) -> str:
        name, ending = name_of(step_id, ext)
        ref = tool_log.foreseen(self.workspace, name, ending, content)
        self._held[ref] = content
        return ref


class _Nowhere(DataOffloader):
    """Stores nothing: what is reduced stays in its record."""

    def offload(self, data: str | bytes, step_id: str, ext: str = "json") -> str:
        """Raise OSError, as a full disk does."""
        raise OSError(f"{len(data)} of {step_id}.{ext} are not to be stored")


class StepLog:
    """One run's log while its steps are digested; the caller holds the spool's lock.

    foresees: nothing is written, and `fresh` is all that is wanted; passed_over: calls that come before it in the log.
    """

    def __init__(
        self, run_dir: str, rules: Sequence[Rule] = (), *, foresees: bool = False, passed_over: int = 0
    ) -> None:
        self._run_dir = run_dir
        tail = tool_log.tail(run_dir, _TAIL)
        self._ids = {step.id for step in tail}
        self._known = {(step.more.get("spool"), _call_id(step)) for step in tail}
        self._count = (_number(tail[-1]) if tail else 0) + passed_over
        self._fresh: list[ToolStep] = []
        self._stored = _Foreseen(run_dir) if foresees else _Stored(run_dir)
        self._reducer = StepReducer(self._stored, rules)
        self._blind = StepReducer(_Nowhere(run_dir), rules)
        self._reads: dict[str, Any] | None = None
        self._reads_changed = False

    def take(self, spooled: Spooled, event: dict[str, Any], stage: str, whole: bytes = b"") -> None:
        """Reduce an event and keep it for the next `flush`; one that the log has already is passed over.

        whole: the event's file, where `event` is only what its ends tell.
        """
        named = event.get("tool_use_id")
        own = named if isinstance(named, str) and named else f"step-{spooled.at:x}"
        if (spooled.name, own) in self._known:
            return
        self._known.add((spooled.name, own))
        step_id, number = own, 2
        while step_id in self._ids:
            step_id, number = f"{own}-{number}", number + 1
        self._ids.add(step_id)
        self._count += 1
        more = {
            "number": self._count,
            "at": clock.stamp(spooled.at / 1e9),
            "session_id": event["session_id"],
            "agent_id": event.get("agent_id"),
            "stage": stage,
            "spool": spooled.name,
            "tool_use_id": own if own != step_id else None,
        }
        kept = {key: value for key, value in more.items() if value and isinstance(value, (str, int))}
        if whole:
            self._fresh.append(self._in_part(event, step_id, kept, whole))
        else:
            self._fresh.append(self._reduced(event, step_id, kept))

    def _in_part(self, event: dict[str, Any], step_id: str, more: dict[str, Any], whole: bytes) -> ToolStep:
        """Reduce what the ends of a large event tell; the event itself is kept to the last byte."""
        step = self._reduced(event, step_id, more, self._blind)
        ended = "ok" if step.success else "failed"
        first = f"{masked_line(step.tool_name, 80)}: {ended}, {len(whole):,} bytes, looked at in part"
        told = "\n".join([first, *step.observation.split("\n")[1:]])
        step = step._replace(
            observation=told,
            outcome_ref=self._stored.offload(whole, step_id, "json"),
            rest={"text_is": "event"},
            rest_ref=None,
            bytes=len(whole),
            sha256=digests.of_bytes(whole),
        )
        return step._replace(tokens_after=estimate(history.full(step)))

    def _reduced(
        self, event: dict[str, Any], step_id: str, more: dict[str, Any], reducer: StepReducer | None = None
    ) -> ToolStep:
        tool_name, args = event["tool_name"], event.get("tool_input")
        response, lost = self._stored.whole(event)
        error = event.get("error")
        said = error if isinstance(error, str) else ""
        if event["hook_event_name"] == FAILED:
            told = said or "it failed"
            return (reducer or self._reducer).reduce(tool_name, args, None, step_id=step_id, error=told, more=more)
        if reducer is not None:
            return reducer.reduce(tool_name, args, response, step_id=step_id, more=more)
        if rule_for(tool_name).action == READ:
            return self._read(tool_name, args, response, step_id, more)
        if lost:  # the excerpt that the model saw is never given for the output, which is named as what it was
            step = self._blind.reduce(tool_name, args, response, step_id=step_id, more=more)
            return step._replace(outcome_ref=lost["ref"], sha256=lost["sha256"], bytes=lost["bytes"])
        return self._reducer.reduce(tool_name, args, response, step_id=step_id, more=more)

    def _read(self, tool_name: str, args: Any, response: Any, step_id: str, more: dict[str, Any]) -> ToolStep:
        """Reduce a read; of the same content as the last time only that is said, and it is stored once."""
        given = usual_args(rule_for(tool_name), args)
        part = [given.get(name) for name in _PARTS if name in given]
        key = json.dumps([given.get("file_path", given.get("path")), given.get("offset"), given.get("limit"), *part])
        key = key if given else ""
        if self._reads is None:
            self._reads = _read_reads(self._run_dir)
        last = self._reads.get(key)
        content = _content(response)
        if last is not None and last["ref"]:
            self._stored.remember(last["sha256"], last["ref"])
        step = self._reducer.reduce(tool_name, args, response, step_id=step_id, more=more)
        sha256 = digests.of_text(content) if content is not None else ""
        if last is not None and (sha256 == last["sha256"] or _is_unchanged(response)):
            return _seen_again(step, last["id"])
        if key and step.success and sha256:
            self._reads.pop(key, None)
            self._reads[key] = {"sha256": sha256, "id": step.id, "ref": step.outcome_ref or ""}
            self._reads_changed = True
        return step

    @property
    def fresh(self) -> Sequence[ToolStep]:
        """What was reduced and is not appended yet."""
        return self._fresh

    @property
    def has_news(self) -> bool:
        """Tell whether there is anything to append."""
        return bool(self._fresh)

    def flush(self) -> int:
        """Append what was reduced, durably; gives how many steps. Raises OSError."""
        count = len(self._fresh)
        if count:
            tool_log.append(self._run_dir, self._fresh)
            self._fresh = []
        if self._reads_changed and self._reads is not None:
            newest = list(self._reads.items())[-_MOST_READS:]
            path = os.path.join(self._run_dir, READS)
            try:
                files.write_atomically(path, files.to_json(dict(newest)), durable=False, locked=True)
            except OSError:  # a read that is the same is then stored as another
                pass
            self._reads_changed = False
        return count


def _call_id(step: ToolStep) -> str:
    named = step.more.get("tool_use_id")
    return named if isinstance(named, str) else step.id


def _number(step: ToolStep) -> int:
    number = step.more.get("number")
    return number if type(number) is int else 0


def _content(response: Any) -> str | None:
    file = response.get("file") if isinstance(response, dict) else None
    content = file.get("content") if isinstance(file, dict) else response
    if isinstance(content, dict):
        content = next((content[name] for name in _CONTENTS if isinstance(content.get(name), str)), None)
    return content if isinstance(content, str) else None


def _is_unchanged(response: Any) -> bool:
    """Tell what the host answers instead of a content that the conversation has already."""
    return isinstance(response, dict) and response.get("type") == "file_unchanged"


def _seen_again(step: ToolStep, before: str) -> ToolStep:
    first = step.observation.partition("\n")[0]
    told = f"unchanged since {before}"
    first = first.removesuffix(" (unchanged)")
    first = f"{first[:-1]}, {told})" if first.endswith(")") else f"{first} ({told})"
    step = step._replace(observation=first)
    return step._replace(tokens_after=estimate(history.full(step)))


def _read_reads(run_dir: str) -> dict[str, Any]:
    """Give what was read last of each file: `{key: {sha256, id, ref}}`; derived, so whatever is amiss is left out."""
    path = os.path.join(run_dir, READS)
    try:
        files.refuse_links(os.path.dirname(os.path.dirname(run_dir)), path)
        found = files.read_json(path, limit=1 << 22)
    except (OSError, LoomError):
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {key: last for key, last in entries if isinstance(last, dict) and _is_whole(last)}


def _is_whole(last: dict[str, Any]) -> bool:
    return all(isinstance(last.get(name), str) for name in ("sha256", "id", "ref"))
