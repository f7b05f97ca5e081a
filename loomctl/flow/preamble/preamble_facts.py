"""What a preamble is made of: the run, the stages that ended, the values of its context (D46)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import ToolStep


class Text(NamedTuple):
    """A text of a stage, or a part of it in whole lines; None: nothing of it is at hand.

    at: where all of it stands; lines_at: where it stands with its lines, if what stands there has none (D42).
    """

    text: str | None
    at: str
    whole: bool = True
    lines_at: str = ""


class Stage(NamedTuple):
    """A visit that ended, as far as it is known; by itself its name, its status and what the state says of it.

    status: of D32, or that it is to be done again. first_line: of its response. ended: how its command ended.
    trouble: what of it could not be read.
    """

    step_id: str
    visit: int
    status: str
    reason: str = ""
    note: str = ""
    first_line: str = ""
    models: Sequence[str] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    files: Sequence[str] = ()
    assets: Sequence[str] = ()
    response: Text | None = None
    script: str = ""
    ended: str = ""
    output: Text | None = None
    trouble: str = ""


class Value(NamedTuple):
    """A value of the context.

    at: the file to read a large one in, whose `value` is not told then. copy: the same of one that is told where it is
    short enough.
    """

    key: str
    value: Any
    at: str = ""
    copy: str = ""


class Facts(NamedTuple):
    """What a preamble is made of. stages, context: what came or was set first is first.

    already: so many more stages the conversation has told itself. name: the step's. warnings: lines that must be seen.
    """

    run_id: str
    workflow: str
    step_id: str
    name: str
    visit: int
    goal: str
    stages: Sequence[Stage]
    context: Sequence[Value] = ()
    tools: Sequence[ToolStep] = ()
    already: int = 0
    warnings: Sequence[str] = ()
