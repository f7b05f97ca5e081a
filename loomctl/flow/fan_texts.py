"""What the assistant is told of a parallel step: its branches, how they stand, and who works on them (D43)."""

from __future__ import annotations

from loomctl.kit.text.secrets import masked_line
from loomctl.workflows.model import branches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_STEPS_NAMED = 6
_JOINS = {
    "wait_all": "when all of them have ended",
    "first_success": "with the first that succeeds, and without the others",
    "any": "with the first that ends, and without the others",
}
_TOLD = """This step has {count} branches, for subagents that work at the same time. Start one for each branch, all of \
them in one message, and give each this task with the name of its branch:

    {task}

{named}

Where there are no subagents, work on one branch after the other in the same way. The run goes on {join}. A branch \
that cannot be done is ended with `loomctl done --branch BRANCH --outcome failed`."""
STANDING = "The branches stand so. Start a subagent only for one that has not ended and that none works on:"
ENDING = "`loomctl next` tells how the branches stand, and gives the step behind them once they are joined."


def instruction(step: Mapping[str, Any]) -> str:
    """Say how a parallel step of a plan is worked on: its branches, with the task of each."""
    parallel = step["parallel"]
    listed = parallel["branches"]
    named = "\n".join(f"- `{masked_line(str(branch['id']), 80)}`: {_steps(branch)}" for branch in listed)
    return _TOLD.format(count=len(listed), task=task("BRANCH"), named=named, join=_JOINS[parallel["join"]])


def task(branch: str) -> str:
    """Give the task of who works on a branch, in one line."""
    return (
        f"Work on the branch {branch} of this Loom run: run `loomctl next --branch {branch}`, do what it says, and end "
        "each step with its result by the `loomctl done --for …` that stands there, which shows the next one. "
        "Go on until it says that the branch has ended; then report in a few lines what came of it."
    )


def _steps(branch: Mapping[str, Any]) -> str:
    names = [masked_line(str(step.get("name") or step["id"]), 60) for step in branch["steps"]]
    more = len(names) - _STEPS_NAMED
    return " → ".join(names[:_STEPS_NAMED]) + (f" and {more} more" if more > 0 else "")


def standing(entry: Mapping[str, Any]) -> list[str]:
    """Say how each branch of a visit stands, a line each."""
    return [f"- `{masked_line(str(record['id']), 80)}`: {how(record)}" for record in entry[branches.KEY]]


def how(record: Mapping[str, Any]) -> str:
    """Say in a few words how a branch stands."""
    status, at = record["status"], masked_line(str(record.get("current_step") or ""), 120)
    if status == branches.PENDING:
        return "not begun"
    if status == "in_progress":
        return f"at {at}" if at else "under way"
    if status == "awaiting_feedback":
        return f"waits for its user at {at}"
    return f"ended, {status}"
