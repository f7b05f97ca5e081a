"""Which files the tool calls of a stage named, as the run's log tells it (D39)."""

from __future__ import annotations

import os

from loomctl.kit import ids
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.reduction import tool_rules
from loomctl.runs.tools import spool, tool_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.caller import Workspace

_OLDER = 200  # steps of other stages in a row, from before a stage began, after which none of its own follows
_PATHS = ("file_path", "notebook_path", "path")


class Told(NamedTuple):
    """paths: of the file tools' calls that ended well; ran: whether a shell was called, well or not."""

    paths: set[str]
    ran: bool


def of_stage(run_dir: str, stage: str, started_at: str) -> Told:
    """Tell of a stage's calls, subagents' too."""
    paths: set[str] = set()
    ran = False
    for step in steps_of(run_dir, stage, started_at):
        action = tool_rules.rule_for(step.tool_name).action
        ran = ran or action == tool_rules.SHELL
        if step.success and action in (tool_rules.WRITE, tool_rules.EDIT):
            path = path_of(run_dir, step)
            if path:
                paths.add(path)
    return Told(paths, ran)


def last_written(run_dir: str, stage: str, started_at: str) -> str:
    """Give the path that the stage's newest call that wrote a file was made with; empty where there is none."""
    for step in steps_of(run_dir, stage, started_at):
        if step.success and tool_rules.rule_for(step.tool_name).action in (tool_rules.WRITE, tool_rules.EDIT):
            return path_of(run_dir, step)
    return ""


def waiting(space: Workspace, run_id: str) -> int:
    """Count the tool calls of a run that are not in its log yet."""
    found = 0
    for spooled in spool.waiting(space.store.local):
        named = filter(ids.is_fit, spool.sessions_of(spooled.name))
        found += any((space.local.binding(session) or {}).get("run_id") == run_id for session in named)
    return found


def steps_of(run_dir: str, stage: str, started_at: str) -> Iterator[ToolStep]:
    """Give a stage's tool steps, subagents' too, newest first, without reading those of long before it."""
    older = 0
    for step in tool_log.backwards(run_dir):
        if step.more.get("stage") == stage:
            older = 0
            yield step
        elif str(step.more.get("at") or "") < started_at:
            older += 1
            if older >= _OLDER:
                return


def path_of(run_dir: str, step: ToolStep) -> str:
    """Give the path that a file tool was called with; from its original, where the step holds it shortened or not."""
    args = step.rest.get("args")
    for held in (args if isinstance(args, dict) else {}, step.minimal_args):
        found = next((held[name] for name in _PATHS if isinstance(held.get(name), str) and held[name]), "")
        if found and (held is not step.minimal_args or not step.rest_ref or os.path.lexists(found)):
            return found
    if not step.rest_ref:
        return ""
    from loomctl.runs.tools.output_files import DataOffloader
    from loomctl.runs.tools.reducer import StepReducer

    try:
        whole, _ = StepReducer(DataOffloader(run_dir)).original(step)
    except (LoomError, OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        whole = step.minimal_args
    held = whole if isinstance(whole, dict) else {}
    return next((held[name] for name in _PATHS if isinstance(held.get(name), str)), "")
