"""What a step has to show, checked by the engine as it ends: the assistant's word for it is not enough.

Files are held against what they were as the step began, by content; values against the state as it will be; commands
are run by `loomctl done` alone, once they are trusted, and never by a hook (D23).
"""

from __future__ import annotations

import os

from loomctl.changes import evidence_files
from loomctl.expressions.state_paths import MISSING
from loomctl.flow import beginnings
from loomctl.flow.beginnings import COMMAND, FILE, STATE, Checked, Command, Item, name_of
from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths, stages
from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.beginnings import Known
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

NEEDED = ("succeeded", "partially_succeeded")  # the outcomes that have to be shown
_LONGEST_WHY, _LONGEST_VALUE = 300, 120
_SEEN = 4  # values of a condition that are told
_UNKNOWN = (
    "what it was as the step began was not noted, or not by Loom, so that no change can be shown: "
    "end the step with --outcome failed or skipped"
)
_OLDER = (
    "it is another than where the step began, on another checkout, but stands here as it was committed before that: "
    "change it here, bring the change by git, or end the step where it was changed, or with --outcome failed or skipped"
)


def asked_of(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give what a step of a plan has to show."""
    listed = step.get("evidence")
    return list(listed) if isinstance(listed, list) else []


# ---- As it ends.


def claim(outcome: str, response: str | None) -> str:
    """Give the hash of an answer, blanks around it apart: a command's result is that of one answer alone."""
    return digests.of_text(f"{outcome}\n{(response or '').strip()}")


def check(
    space: Workspace,
    run: Run,
    entry: Mapping[str, Any],
    step: Mapping[str, Any],
    outcome: str,
    updates: Mapping[str, Any],
    *,
    may_run: bool,
    claim: str = "",
) -> Checked | None:
    """Check what a visit has to show; None where that is nothing. Raises nothing of its own.

    outcome, updates: how it is about to end, and what it sets then. may_run: whether commands may be run here; on the
    hook path they may not, whatever is said (D23). claim: the hash of the answer, for which alone a command is run.
    """
    wanted = asked_of(step)
    if not wanted or outcome not in NEEDED:
        return None
    known, scope = beginnings.known_of(space, run, entry), _scope(run, outcome, updates)
    found: list[Item] = []
    commands: list[tuple[int, Mapping[str, Any]]] = []
    for number, one in enumerate(wanted, 1):
        if one["kind"] == FILE:
            found.append(_file(space, run, one, known))
        elif one["kind"] == STATE:
            found.append(_value(space, one, scope))
        else:
            commands.append((number, one))
            found.append(Item(COMMAND, name_of(one), passed=False, pending=True))
    rest = [item for item in found if item.kind != COMMAND]
    if commands and all(item.passed for item in rest):  # what is missing anyway needs no command
        for number, one in commands:
            asked = Command(entry, step, one, number, claim)
            found[number - 1] = _command(space, run, asked, may_run=may_run)
    elif commands:
        found = [one._replace(why="not run while the rest is missing") if one.kind == COMMAND else one for one in found]
    return Checked(tuple(found))


def _file(space: Workspace, run: Run, wanted: Mapping[str, Any], known: Known) -> Item:
    declared, name = str(wanted["file"]), name_of(wanted)
    values, ours = artifact_paths.placeholder_values(space.project, run), evidence_files.own_reports(space.store.local)
    seen = evidence_files.look(declared, values, beginnings.roots(space, run), ours)
    if not seen.digests:
        return Item(FILE, name, passed=False, why=masked_line(seen.why or "there is no such file", _LONGEST_WHY))
    item = Item(FILE, name, passed=False, sha256=evidence_files.together(seen.digests))
    if not wanted.get("changed"):
        return item._replace(passed=True)
    if known.files.get(declared) is None:
        return item._replace(why=_UNKNOWN, pending=True)
    fate = beginnings.fate(known, declared, seen)
    why = {beginnings.OLDER: _OLDER, beginnings.UNCHANGED: "it has not changed since the step began"}
    return item._replace(passed=fate == beginnings.CHANGED, why=why.get(fate, ""))


def _scope(run: Run, outcome: str, updates: Mapping[str, Any]) -> dict[str, Any]:
    from loomctl.flow import route
    from loomctl.runs.model import run_context

    state = {**run.state, "context": {**run.state["context"], **updates}}
    nested = route.nested(run_context.scope(state))
    return {"state": {**state, "context": nested}, "outcome": outcome, "context": nested, "preferred_label": None}


def _value(space: Workspace, wanted: Mapping[str, Any], scope: Mapping[str, Any]) -> Item:
    is_path = "state" in wanted
    item = Item(STATE, name_of(wanted), passed=False, word="path into the state" if is_path else "condition")
    try:
        value = _read(space, wanted, scope, is_path=is_path)
    except _UnjudgedError as unjudged:
        return item._replace(why=unjudged.args[0], pending=unjudged.args[1])
    sha256 = "" if value is MISSING else digests.of_bytes(files.to_json(value))
    if value is MISSING or value is None or value is False:
        why = _met_at_path(value) if is_path else _met_by_condition(wanted, scope)
        return item._replace(sha256=sha256, why=why)
    return item._replace(passed=True, sha256=sha256)


def _met_at_path(value: Any) -> str:
    return f"wanted a value, neither null nor false; found {'nothing' if value is MISSING else _as_json(value)}"


def _met_by_condition(wanted: Mapping[str, Any], scope: Mapping[str, Any]) -> str:
    """Say what a condition that does not hold looked at; a condition that takes an engine tells nothing of that."""
    from loomctl.expressions.conditions import values_of  # most ends have nothing to show

    seen = values_of(wanted.get("condition_code"), scope)
    told = [masked_line(f"{path} = {_as_json(value)}", _LONGEST_VALUE) for path, value in list(seen.items())[:_SEEN]]
    return f"wanted it to be true; found {', '.join(told) or 'that it is not'}"


def _as_json(value: Any) -> str:
    return files.to_json_line(value).decode().strip()


class _UnjudgedError(Exception):
    """Why a value could not be judged, and whether that is no fault of the answer."""


def _read(space: Workspace, wanted: Mapping[str, Any], scope: Mapping[str, Any], *, is_path: bool) -> Any:
    """Give what a path finds in the state, or a condition's truth: simple ones here, others by a child (D11, D12)."""
    code = wanted.get("path_steps" if is_path else "condition_code")
    if code is not None and is_path:
        from loomctl.expressions import state_paths

        return state_paths.read(code, scope["state"])
    if code is not None:
        from loomctl.expressions.conditions import ConditionThrew, NeedsEngine, evaluate

        try:
            return evaluate(code, scope)
        except ConditionThrew as threw:
            raise _UnjudgedError(masked_line(str(threw), _LONGEST_WHY), False) from None
        except NeedsEngine:
            pass
    from loomctl.expressions import engine, questions

    question = questions.Question("path" if is_path else "condition", str(wanted["state" if is_path else "condition"]))
    (answer,) = engine.answer([question], scope, environment_python=space.caller.environment_python)
    if answer.status != "ok":
        raise _UnjudgedError(masked_line(answer.message, _LONGEST_WHY), answer.status == "needs_environment")
    return answer.value


# ---- Commands.


def _command(space: Workspace, run: Run, asked: Command, *, may_run: bool) -> Item:
    name = name_of(asked.wanted)
    if space.caller.on_hook_path or not may_run:
        return Item(COMMAND, name, passed=False, why="it is run by `loomctl done`, with the result", pending=True)
    from loomctl.flow import command_trust, evidence_commands

    try:
        if command_trust.untrusted(space, run):
            why = f"this machine does not trust the run's commands: loomctl trust {run.run_id}"
            return Item(COMMAND, name, passed=False, why=why, pending=True)
        return evidence_commands.run(space, run, asked)
    except (LoomError, OSError) as error:
        what = error.what if isinstance(error, LoomError) else str(error)
        return Item(COMMAND, name, passed=False, why=masked_line(what, _LONGEST_WHY), pending=True)


# ---- What is said of it.


def instruction(step: Mapping[str, Any]) -> list[str]:
    """Tell an assistant what a step has to show; nothing where that is nothing."""
    wanted = asked_of(step)
    if not wanted:
        return []
    lines = "\n".join(f"- {_asks(one)}" for one in wanted)
    own = "" if step.get("run") or not any(one["kind"] == COMMAND for one in wanted) else " End it with `loomctl done`."
    return [f"It counts as done only when Loom finds this evidence:{own}\n\n{lines}"]


def _asks(wanted: Mapping[str, Any]) -> str:
    name = name_of(wanted)
    if wanted["kind"] == FILE:
        return f"the file `{name}`, " + ("new or changed since the step began" if wanted.get("changed") else "there")
    if wanted["kind"] == COMMAND:
        return f"the command `{name}` ends with exit code 0; Loom runs it"
    if "state" in wanted:
        return f"the run's state has a value at `{name}`, neither null nor false"
    return f"`{name}` is true"


def missing(checked: Checked) -> str:
    """Say in one line what is missing."""
    return "; ".join(f"{item.name}: {item.why or 'missing'}" for item in checked.items if not item.passed)


def again(run: Run, entry: Mapping[str, Any], outcome: str | None) -> str:
    """Give the command line that hands the answer over which was kept as the stage's candidate. Raises BAD_ID."""
    import shlex

    options = ["--for", f"{entry['rank']:03}", *(["--outcome", outcome] if outcome else [])]
    kept = os.path.join(stages.folder(run.folder, entry["stage"]), stages.CANDIDATE)
    return shlex.join(["loomctl", "done", run.run_id, *options, "--response-file", kept])


def message(
    step: Mapping[str, Any], entry: Mapping[str, Any], checked: Checked, attempt: int, allowed: int, again: str = ""
) -> str:
    """Say what a step that was said to be done has not shown, and what to do. attempt: 0 where it is not counted.

    again: the command that hands the same answer over once more.
    """
    lines = [f"EVIDENCE_MISSING: the step {masked_line(str(step['key']), 120)} is not done: Loom did not find", ""]
    for item in checked.items:
        lines += [] if item.passed else [f"- {item.word or item.kind} `{item.name}`: {item.why or 'missing'}"]
    if attempt:
        asks = f"Mend that, and end the step again with its result. (Correction {attempt} of {allowed}.)"
    elif again:
        asks = f"Your result is kept. Once it can be checked, end the step with this command:\n\n    {again}"
    else:
        done = visits.done_command(entry)
        asks = f"End it with `{done}` and its result on standard input, once that can be checked."
    return "\n".join([*lines, "", asks])


def exhausted(checked: Checked, allowed: int) -> str:
    """Say that evidence is missing for good; the step's failure reason."""
    return masked_line(f"evidence is missing after {allowed} correction(s): {missing(checked)}", 600)
