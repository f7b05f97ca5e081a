"""Looking back at a run's tool steps: which there are, what they cost, and their originals, byte for byte (D47)."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit import digests
from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.reduction import history
from loomctl.reduction.tokens import closely, estimate
from loomctl.reduction.tool_steps import rule_for
from loomctl.runs import context_values
from loomctl.runs import find as finding
from loomctl.runs.tools import recording, tool_log
from loomctl.runs.tools.tool_log import FOLDER, DataOffloader, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import Rule, ToolStep
    from loomctl.runs.project import Workspace

INDEX = "loomctl steps"  # where a history sends its reader for what it left out
_COUNTED = re.compile(r"^(\d+)(?: more steps(?:: loomctl steps)?)?$", re.MULTILINE)


class Record(NamedTuple):
    """A run's tool steps on disk. folder: the run's; trouble: why the newest may be missing, for its reader."""

    run_id: str
    folder: str
    trouble: str = ""
    handle: str = ""

    @property
    def log(self) -> str:
        """The file of the steps."""
        return os.path.join(self.folder, tool_log.FILE)

    def steps(self) -> Iterator[ToolStep]:
        """Give all of them, oldest first, one at a time."""
        return tool_log.read(self.folder)


def record(space: Workspace, named: str | None, *, whole: bool = True) -> Record:
    """Find a run's tool steps. Raises as `find.to_read`.

    whole: with what its hooks have put aside; else nothing is written, and the newest may be missing.
    """
    run_id = finding.to_read(space, named).run_id
    assert run_id is not None  # to_read raises instead
    trouble = recording.digest(space).trouble if whole else ""
    return Record(run_id, space.store.run_dir(run_id), trouble, space.store.handle(run_id))


# ---- Which steps there are.


class Listed(NamedTuple):
    """The last steps of those asked for, oldest first.

    found: how many were asked for in all; agents: how many of subagents were left out; total: of the whole run.
    """

    steps: Sequence[ToolStep]
    found: int
    agents: int
    total: int


def is_an_agents(step: ToolStep) -> bool:
    """Tell a subagent's step, which is no part of the main line (D48)."""
    return bool(step.more.get("agent_id"))


def listed(
    held: Record, *, last: int | None = None, tool: str = "", failed: bool = False, agents: bool = False
) -> Listed:
    """Give the last steps, at most `last` of them in memory; None for all.

    tool: only that one's, or with a `*` at its end of all that begin so; failed: only those that failed; agents:
    subagents' too.
    """
    kept: deque[ToolStep] = deque(maxlen=last)
    found = left_out = total = 0
    for step in held.steps():
        total += 1
        if (tool and not _is_named(tool, step.tool_name)) or (failed and step.success):
            continue
        if is_an_agents(step) and not agents:
            left_out += 1
            continue
        found += 1
        kept.append(step)
    return Listed(tuple(kept), found, left_out, total)


def _is_named(pattern: str, tool_name: str) -> bool:
    return tool_name.startswith(pattern[:-1]) if pattern.endswith("*") else tool_name == pattern


def find(held: Record, named: str) -> ToolStep:
    """Give the step of an id or of its unique beginning, as a list may cut it; of several with one id the newest.

    Raises NO_SUCH_TOOL_STEP and AMBIGUOUS_TOOL_STEP.
    """
    same: ToolStep | None = None
    found: dict[str, ToolStep] = {}
    beginning = named.removesuffix("…")
    for step in held.steps():
        if step.id == named:
            same = step
        elif step.id.startswith(beginning) and (len(found) < 10 or step.id in found):
            found[step.id] = step
    if same is not None:
        return same
    if len(found) == 1:
        return next(iter(found.values()))
    hint = f"loomctl steps {held.handle} --all --agents"
    if found:
        what = f"several tool steps have ids that begin with {named!r:.80}"
        why = ", ".join(found)
        raise LoomError("AMBIGUOUS_TOOL_STEP", what, where=held.log, why=why, hint=hint, exit_code=EXIT_NO_RUN)
    what = f"there is no tool step {named!r:.80} in this run"
    raise LoomError("NO_SUCH_TOOL_STEP", what, where=held.log, hint=hint, exit_code=EXIT_NO_RUN)


# ---- Their originals.


def original_call(held: Record, step: ToolStep) -> tuple[Any, Any]:
    """Give a call's arguments and result as they were; what a successful write wrote is in the file that it wrote.

    Raises REF_GONE, REF_NOT_HERE for what another machine has, REF_DAMAGED, and what reading a file raises.
    """
    try:
        return _original_call(held, step)
    except LoomError as error:
        raise _elsewhere(held, step, error) from None


def _elsewhere(held: Record, step: ToolStep, error: LoomError) -> LoomError:
    """Give the error again, as that of a file which another machine has where it is that (D47)."""
    ref = step.outcome_ref or step.rest_ref or f"the original of {step.id}"
    withheld = step.more.get("withheld")
    return context_values.instead(
        error, held.folder, ref, step.more.get("session_id"), withheld if isinstance(withheld, str) else ""
    )


def _original_call(held: Record, step: ToolStep) -> tuple[Any, Any]:
    if step.outcome_ref:
        _behind(held, step, step.outcome_ref)
    elif not step.rest_ref and "result" not in step.rest:
        what = "the record of the tool step holds no original"
        raise LoomError("REF_GONE", what, where=held.log, why=_recorded(step), hint=_look(held))
    from loomctl.runs.tools.reducer import StepReducer

    try:
        return StepReducer(DataOffloader(held.folder)).original(step)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        where = os.path.join(held.folder, step.rest_ref) if step.rest_ref else held.log
        what = f"the stored original of the tool step is damaged ({type(error).__name__})"
        raise LoomError("REF_DAMAGED", what, where=where, why=_recorded(step), hint=_look(held)) from None


def original_text(held: Record, step: ToolStep) -> bytes:
    """Give what the tool printed, read or found, byte for byte. Raises as `original_call`."""
    if step.outcome_ref:
        try:
            return _behind(held, step, step.outcome_ref)
        except LoomError as error:
            raise _elsewhere(held, step, error) from None
    return text_of(step.tool_name, *original_call(held, step)).encode("utf-8", "surrogatepass")


def text_of(tool_name: str, args: Any, result: Any) -> str:
    """Give the text of a result: what the rules would put away, however small it is."""
    from loomctl.reduction.calls import reduce_call

    always = rule_for(tool_name)._replace(tools=("*",), threshold=-1)
    return reduce_call(tool_name, args, result, users=(always,)).text or ""


def _behind(held: Record, step: ToolStep, ref: str) -> bytes:
    data = DataOffloader(held.folder).read(ref)
    if step.sha256 and digests.of_bytes(data) != step.sha256:
        where = os.path.join(held.folder, ref)
        what = "the output was changed after the tool gave it"
        raise LoomError("REF_DAMAGED", what, where=where, why=_recorded(step), hint=_look(held))
    return data


def _recorded(step: ToolStep) -> str:
    told = f"the step {step.id[:80]} was recorded with {step.bytes:,} bytes"
    return told + (f", SHA-256 {step.sha256[:64]}" if step.sha256 else "")


def _look(held: Record) -> str:
    return f"ls -l {quoted(os.path.join(held.folder, FOLDER))}"


# ---- The history.


class Recalled(NamedTuple):
    """A run's history. at_most, estimated: tokens of the text; steps: of the main line; left_out: not in the text."""

    text: str
    at_most: int
    estimated: int
    steps: int
    left_out: int


def recalled(space: Workspace, held: Record, budget: int, recent: int = history.RECENT) -> Recalled:
    """Give the main line's history in at most `budget` tokens (D50). Raises what reading the run's state raises."""
    state = space.store.read_state(held.run_id)
    asked = str(state.get("goal") or (f"work item {state['work_id']}" if state.get("work_id") else ""))
    # What a history shows stands in the step itself; what stands beside it would fill the memory of a long run.
    steps = [step._replace(rest={}, more={}) for step in held.steps() if not is_an_agents(step)]
    text = history.compact_history(steps, budget, asked=asked, recent=recent, index=INDEX)
    return Recalled(text, closely(text), estimate(text), len(steps), _left_out(text, len(steps)))


def _left_out(text: str, count: int) -> int:
    """Read from a history how many steps it only counts: the last line of that form says so."""
    if not text:
        return count
    counts = [int(found[1]) for found in _COUNTED.finditer(text) if int(found[1]) <= count]
    return counts[-1] if counts else 0


# ---- What was saved, and whether all of it can be had back.


class Saved(NamedTuple):
    """Tokens (estimates) before and after, of one tool or of all."""

    tool_name: str
    steps: int
    before: int
    after: int

    @property
    def percent(self) -> float:
        """What was saved, in percent of what there was; below 0 where the record is longer."""
        return round(100 * (self.before - self.after) / self.before, 1) if self.before else 0.0


class Lost(NamedTuple):
    """A step whose original cannot be had back, and why."""

    step_id: str
    error: LoomError


class Savings(NamedTuple):
    """tools: by what they cost; recovered, bytes_recovered: of how many steps and bytes the original is in reach.

    steps, own: how many there are, and how many of them are calls of Loom's own, which save nothing and are in no sum.
    dangling: references that name no file; lost: the first hundred steps of which something is lost; missing: steps
    whose own record cannot be read any more, by the numbers of those around it.
    """

    tools: Sequence[Saved]
    whole: Saved
    recovered: int
    bytes: int
    bytes_recovered: int
    dangling: int
    lost: Sequence[Lost]
    missing: int = 0
    steps: int = 0
    own: int = 0

    @property
    def all_there(self) -> bool:
        """Tell whether every original can be had back."""
        return self.recovered == self.steps and not self.missing


def savings(held: Record) -> Savings:
    """Count what every step but Loom's own calls saved, and rebuild each original, whose hash must hold."""
    by_tool: dict[str, Saved] = {}
    recovered = total = total_recovered = dangling = count = own = 0
    lost: list[Lost] = []
    numbers: set[int] = set()
    for step in held.steps():
        number = step.more.get("number")
        if type(number) is int and number > 0:
            numbers.add(number)
        count += 1
        if history.has_looms(step):
            own += 1
        else:
            so_far = by_tool.get(step.tool_name, Saved(step.tool_name, 0, 0, 0))
            by_tool[step.tool_name] = Saved(
                step.tool_name, so_far.steps + 1, so_far.before + step.tokens_before, so_far.after + step.tokens_after
            )
        total += step.bytes
        dangling += _dangling(held, step)
        try:
            original_call(held, step)
        except LoomError as error:
            if len(lost) < 100:
                lost.append(Lost(step.id, error))
        else:
            recovered += 1
            total_recovered += step.bytes
    tools = sorted(by_tool.values(), key=lambda one: (-one.before, one.tool_name))
    whole = Saved(
        "", sum(one.steps for one in tools), sum(one.before for one in tools), sum(one.after for one in tools)
    )
    missing = max(numbers) - min(numbers) + 1 - len(numbers) if numbers else 0
    return Savings(tools, whole, recovered, total, total_recovered, dangling, lost, missing, count, own)


def _dangling(held: Record, step: ToolStep) -> int:
    refs = [ref for ref in (step.outcome_ref, step.rest_ref) if ref]
    return sum(not os.path.isfile(os.path.join(held.folder, ref)) for ref in refs)


# ---- What a call would become.


class _Names(DataOffloader):
    def offload(self, data: str | bytes, step_id: str, ext: str = "json") -> str:  # noqa: ARG002 - nothing is stored
        """Give the reference."""
        return f"{FOLDER}/{'.'.join(name_of(step_id, ext))}"


def reduced(
    tool_name: str, args: Any, result: Any, *, error: str = "", step_id: str = "", rules: Sequence[Rule] = ()
) -> tuple[ToolStep, str]:
    """Give the step that a call would become, and the text of its result; nothing is written. rules: a user's own."""
    from loomctl.runs.tools.reducer import StepReducer

    step = StepReducer(_Names(""), rules).reduce(tool_name, args, result, step_id=step_id, error=error)
    return step, text_of(tool_name, args, error if error and result is None else result)


def as_document(step: ToolStep, text: str) -> dict[str, Any]:
    """Give a step as `loomctl debug reduce --json` shows it: its record, the numbers always, inline where it is.

    inline: the result's text, where no file holds it; sha256 is of that text then, as it else is of the file.
    """
    document = {**step.to_dict(), "bytes": step.bytes}
    document |= {"tokens_before": step.tokens_before, "tokens_after": step.tokens_after}
    if step.outcome_ref is None:
        rest = dict(step.rest)
        if rest.get("result") == text or _says_the_same(rest.get("result"), text):
            rest.pop("result", None)
        document |= {"inline": text, "sha256": digests.of_text(text), "rest": rest}
    return {key: value for key, value in document.items() if key != "rest" or value}


def _says_the_same(result: Any, text: str) -> bool:
    try:
        return not isinstance(result, str) and result == json.loads(text)
    except (ValueError, RecursionError):
        return False
