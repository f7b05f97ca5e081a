"""What an assistant is told of a step: its prompt, how it ends, and the one next thing to do (D22)."""

from __future__ import annotations

import os

from loomctl.expressions import placeholders
from loomctl.kit.text.fences import fenced, visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.priming.slip import NEXT_SHARE, cut_lines
from loomctl.runs import stages
from loomctl.runs.artifact_paths import REJECTED, TASK_LINE, prompt_values
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, lease, standing, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.priming.slip import Budget
    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.project import Project
    from loomctl.runs.store.store import Run

ENDING = """When the step is done, end it with its result:

    {done} <<'LOOM'
    the work done, the decisions, what is still open
    LOOM

If you cannot do it, add `--outcome failed`. `--artifact NAME=PATH` registers a file that later steps need.
"""
_PLAIN = "A plain `{done}` takes your next final message as the result."
_AT_A_TERMINAL = "A plain `{done}` asks for the result."

BRANCH_ENDING = """When the step is done, end it with its result; that shows the branch's next step:

    {done} <<'LOOM'
    the work done, the decisions, what is still open
    LOOM

If you cannot do it, add `--outcome failed`. `--artifact NAME=PATH` registers a file that later steps need."""

COMMAND_ENDING = "`loomctl next` runs it and shows the next step. The exit code is the result."


def told(prompt: str) -> str:
    """Give a prompt as it is shown: secrets masked, controls visible (D21). The stage's own file keeps it (D47)."""
    return visible(mask(prompt)[0])


def step_prompt(place: Place, visit: int, known: Mapping[str, str | None]) -> str:
    """Render a step for the assistant: heading, what it is for, its text with placeholders expanded."""
    step = place.step
    name = masked_line(str(step.get("name") or step["id"]), 120)
    task = _task(step, known)  # which one says more than how often the step has begun
    again = f" ({visits.nth(visit)})" if visit > 1 and not task else ""
    lines = [f"## Step {masked_line(place.key, 120)}: {name}{again}"]
    if step.get("description"):
        lines.append(masked_line(str(step["description"]), 400))
    lines += [said] if (said := known.get(REJECTED)) else []
    if step.get("parallel"):
        from loomctl.flow import gate_texts

        asked = [_instruction(step, known)] if step.get("prompt") else []
        return "\n\n".join([*lines, *asked, gate_texts.instruction(step)])
    lines += [*task, _instruction(step, known), *_where(step, known), *_ways(step)]
    if step.get("output_schema"):  # most steps have none, nor anything to show
        from loomctl.flow.outcomes import answers

        lines.append(answers.instruction(step, known.get("plan_path")))
    if frozen_plan.has_to_show(step):
        from loomctl.flow.outcomes import evidence

        lines += evidence.instruction(step, known)
    return "\n\n".join(lines)


def _task(step: Mapping[str, Any], known: Mapping[str, str | None]) -> list[str]:
    """Say which task of its list a visit is for; all of it, where the step's own text does not name it (D65)."""
    line, text = known.get(TASK_LINE), known.get(placeholders.TASK)
    if not step.get("for_each") or not line or not text:
        return []
    from loomctl.workflows import task_lists  # most steps go through no list

    asked = "".join(str(step.get(field) or "") for field in ("prompt", "command", "skill", "run"))
    head = f"This is {masked_line(line.partition(':')[0], 60)}"
    if len(text) >= task_lists.LONGEST:
        of = masked_line(str(step["for_each"].get("list")), 120)
        head += f", cut after {task_lists.LONGEST:,} characters (the rest stands in the list, {of})"
    return [f"{head}."] if placeholders.TASK in placeholders.used(asked) else [f"{head}:", fenced(text, "text")]


def _ways(step: Mapping[str, Any]) -> list[str]:
    labels = [
        str(one["label"]) for one in step.get("transitions") or () if one.get("label") and not one.get("condition")
    ]
    if not labels or step.get("run"):
        return []
    named = ", ".join(f"“{masked_line(label, 60)}”" for label in dict.fromkeys(labels))
    if frozen_plan.is_human(step):
        return [f"A person chooses one of {named}."]
    return [f"Choose the way on: set `preferred_next_label` in the result's JSON to one of {named}."]


def _instruction(step: Mapping[str, Any], known: Mapping[str, str | None]) -> str:
    for field, wording in (
        ("prompt", "{}"),
        ("command", "Run the slash command `{}`, and report what it did."),
        ("skill", "Use the skill `{}`, and report what it did."),
    ):
        if step.get(field):
            return wording.replace("{}", placeholders.expand(str(step[field]), known).text)
    if step.get("run"):
        script = placeholders.expand_in_shell(str(step["run"]), known).text
        return f"Loom runs this command itself:\n\n{fenced(script, 'sh')}"
    return "(this step has no text)"


def ending(run: Run, step: Mapping[str, Any]) -> str:
    """Say how a step of a run, or of a branch that is seen as one, is ended."""
    branch = visits.seen_from(run.state).name
    if step.get("run"):
        return COMMAND_ENDING.replace("next`", f"next --branch {branch}`") if branch else COMMAND_ENDING
    if step.get("parallel"):
        from loomctl.flow import gate_texts

        return gate_texts.ENDING
    text = BRANCH_ENDING if branch else _ending(run)
    return text.replace("{done}", visits.done_command(visits.open_visit(run.state)))


def _ending(run: Run) -> str:
    holder = lease.holder(run.state)
    return ENDING + (_AT_A_TERMINAL if holder is not None and holder.host == TERMINAL else _PLAIN)


def _where(step: Mapping[str, Any], known: Mapping[str, str | None]) -> list[str]:
    """Say in which folder an assistant works, if the step has one of its own, and what may stand there (D35, D42)."""
    declared = step.get("workdir")
    if not isinstance(declared, str) or step.get("run") or frozen_plan.is_human(step):
        return []
    folder = os.path.join(known.get("project_root") or "", placeholders.expand(declared, known).text)
    told = f"Work in `{masked_line(folder, 400)}`."
    if step.get("kind", "agent") == "agent" and step.get("output_schema") in (None, "routing"):
        told += " If no JSON object in the result says how the step ended, Loom reads `status.json` there."
    return [told]


def upcoming(project: Project, run: Run, *, may_write: bool, budget: Budget | None = None) -> str:
    """Say the one next thing to do in a run, within its share of the budget (D19); None: all of it."""
    state = run.state
    unknown = frozen_plan.steps_unknown(run.plan)
    if unknown:
        return f"## Next\n\nLoom can show this run but not continue it: {masked_line(unknown, 1200)}"
    if not may_write:
        return _for_a_reader(project, run, budget)
    status = state["status"]
    if status == "awaiting_feedback" and state["pending_approvals"]:
        return _approval_awaited(project, run, budget)
    if status == "awaiting_feedback" and (waits := _trust_awaited(run)):
        return waits
    if status in ("paused", "failed", "completed", "cancelled"):
        return f"## Next\n\n{_refused(run) or _standing(status, run.handle)}"
    entry = visits.open_visit(state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None:
        return "## Next\n\n`loomctl next` shows the next step."
    if entry["status"] == "closing":
        key = masked_line(entry["step_id"], 120)
        return f"## Next\n\nEnd {key} with its result as your final message."
    if frozen_plan.is_human(place.step):
        return f"## Next\n\n`loomctl next` asks the user to decide {masked_line(entry['step_id'], 120)}."
    prompt = told(step_prompt(place, entry["visit"], prompt_values(project, run))) + _branches(entry)
    how = ending(run, place.step)
    if budget is None:
        return f"{prompt}\n\n{how}"
    path = os.path.join(stages.folder(run.folder, entry["stage"]), stages.PROMPT)
    prompt = prompt if place.step.get("run") else prompt + _before(state)
    done = visits.done_command(entry)
    return _shortened(prompt, path, budget, how, done if how == _ending(run).replace("{done}", done) else "")


def _for_a_reader(project: Project, run: Run, budget: Budget | None) -> str:
    way = f"This session does not drive the run. To continue it here: `loomctl resume {run.handle}`"
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or budget is None:
        return f"## Next\n\n{way}"
    prompt = told(step_prompt(place, entry["visit"], prompt_values(project, run)))
    return _shortened(prompt, os.path.join(stages.folder(run.folder, entry["stage"]), stages.PROMPT), budget, way)


def _branches(entry: Mapping[str, Any]) -> str:
    if "branches" not in entry or all(record["status"] == "pending" for record in entry["branches"]):
        return ""
    from loomctl.flow import gate_texts

    return f"\n\n{gate_texts.STANDING}\n\n" + "\n".join(gate_texts.standing(entry))


def _approval_awaited(project: Project, run: Run, budget: Budget | None) -> str:
    from loomctl.flow import gate_texts  # most runs wait for nobody
    from loomctl.workflows import gates

    found = gates.open_human(run.state, run.plan)
    if found is None:
        return gate_texts.upcoming(run)
    entry, place = found
    prompt = told(step_prompt(place, entry["visit"], prompt_values(project, run)))
    return gate_texts.at_a_step(run, place, prompt, budget)


def _refused(run: Run) -> str:
    if run.state["status"] != "paused" or not run.state["pending_approvals"]:
        return ""
    from loomctl.flow import gate_texts

    return gate_texts.paused(run)


def _trust_awaited(run: Run) -> str:
    if not standing.waits_for_trust(run.state):
        return ""
    asked = masked_line(str(run.state["feedback"].get("message")), 400)
    decides = f"Ask the user to run `{standing.trust_command(run.handle)}`; then run `loomctl next`."
    return f"## Next\n\nThe run waits for the user: {asked}. {decides}"


def _before(state: Mapping[str, Any]) -> str:
    """Say where it stands what earlier stages said: a priming's own history names them (D19), and no more of them."""
    ended = any(entry["status"] not in visits.OPEN and entry.get("stage") for entry in reversed(state["steps"]))
    return "\n\n`loomctl debug preamble` shows what came before." if ended else ""


def _shortened(prompt: str, path: str, budget: Budget, ending: str, done: str = "") -> str:
    """Shorten a prompt. done: the command that ends the step, where that is all that has to be said of its end."""
    head = "## Next\n\n" + prompt.replace("## Step ", "The step ", 1)
    if budget.measure(f"{head}\n\n{ending}") <= budget.share(NEXT_SHARE):
        return f"{head}\n\n{ending}"
    short_ending = ending
    if done:
        short_ending = f"When it is done, end it with `{done}` and its result on standard input."
    limit = budget.share(NEXT_SHARE) - budget.measure(short_ending) - 2
    if budget.measure(head) <= limit:
        return f"{head}\n\n{short_ending}"
    size = len(prompt.encode("utf-8", "replace"))
    rest = f"(the whole prompt is in {path}, {size:,} bytes; `loomctl next` prints it)"
    return f"{cut_lines(head, max(0, limit - budget.measure(rest) - 2), budget.measure)}\n\n{rest}\n\n{short_ending}"


def _standing(status: str, handle: str) -> str:
    return {
        "paused": f"The run is paused. When the user wants to continue: `loomctl resume {handle}`",
        "failed": f"The run failed at its last step. To try that step again: `loomctl resume {handle}`",
        "completed": "The run is completed. There is nothing left to do.",
        "cancelled": "The run was cancelled. There is nothing left to do.",
    }[status]
