"""What a step has to show, checked by the engine as it ends: the assistant's word for it is not enough.

Files are held against what they were as the step began, by content; values against the state as it will be; commands
are run by `loomctl done` alone, once they are trusted, and never by a hook (D23).
"""

from __future__ import annotations

import itertools
import os

from loomctl.changes import evidence_files
from loomctl.expressions import placeholders
from loomctl.expressions.state_paths import MISSING
from loomctl.flow import lines
from loomctl.kit import clock, digests, files, machine
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import fenced
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths, stages
from loomctl.runs.model import frozen_plan, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from loomctl.changes.evidence_files import Seen
    from loomctl.runs.artifact_paths import Roots
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Run

NEEDED = ("succeeded", "partially_succeeded")  # the outcomes that have to be shown
_LONGEST_WHY, _LONGEST_VALUE = 300, 120
_SEEN = 4  # values of a condition that are told
_UNKNOWN = (
    "Loom has no record, or not its own, of the file at the step's start, so it cannot see a change. "
    "End the step with --outcome failed or skipped"
)
_OLDER = (
    "it is as it was committed before the step began on another checkout. "
    "Change it here, fetch the change by git, or end the step where you changed it. "
    "Or end it with --outcome failed or skipped"
)
NOTED = "evidence.json"  # in the stage's folder
HASHED = "evidence_sha256"  # in the visit's entry
CHANGED, UNCHANGED, OLDER = "changed", "unchanged", "older"
_MOST_ASKED = 20  # files of one pattern of which git is asked
FILE, COMMAND, STATE, ARTIFACT = "file", "command", "state", "artifact"
MISSING_EVIDENCE, NOT_PRODUCED = "EVIDENCE_MISSING", "NOT_PRODUCED"
TIMEOUT = 600.0  # seconds of a command that says nothing


def asked_of(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give what a step of a plan has to show: what it leaves (D66), then its evidence."""
    listed = step.get("evidence")
    leaves = [{"kind": ARTIFACT, "artifact": name} for name in frozen_plan.leaves(step)]
    return [*leaves, *(listed if isinstance(listed, list) else ())]


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
    run_command: Callable[[Command], Item] | None,
    claim: str = "",
    registers: Mapping[str, str] | None = None,
    refused: Mapping[str, str] | None = None,
) -> Checked | None:
    """Check what a visit has to show; None where that is nothing. Raises nothing of its own.

    outcome, updates: how it is about to end, and what it sets then. run_command: None
    where none may be run (D23). claim: the hash of the answer, for which alone a command is run. registers: the
    artifacts that it registers as it ends; refused: why others are not registered, by `artifacts/NAME`.
    """
    wanted = asked_of(step)
    if not wanted or outcome not in NEEDED:
        return None
    known, scope = known_of(space, run, entry), _scope(run, outcome, updates)
    found: list[Item] = []
    commands: list[tuple[int, Mapping[str, Any]]] = []
    for number, one in enumerate(wanted, 1):
        if one["kind"] == FILE:
            found.append(_file(space, run, one, known))
        elif one["kind"] == ARTIFACT:
            item = _produced(space, run, step, str(one["artifact"]), registers or {}, refused or {})
            found.append(_with_tasks(space, run, entry, item, registers or {}))
        elif one["kind"] == STATE:
            found.append(_value(space, one, scope))
        else:
            commands.append((number, one))
            found.append(Item(COMMAND, name_of(one), passed=False, pending=True))
    rest = [item for item in found if item.kind != COMMAND]
    if commands and all(item.passed for item in rest):  # what is missing anyway needs no command
        for number, one in commands:
            asked = Command(entry, step, one, number, claim)
            found[number - 1] = run_command(asked) if run_command else _not_run(one)
    elif commands:
        found = [
            one._replace(why="Loom runs it once the rest is there") if one.kind == COMMAND else one for one in found
        ]
    return Checked(tuple(found))


def _not_run(wanted: Mapping[str, Any]) -> Item:
    why = "`loomctl done` runs it when it gets the result"
    return Item(COMMAND, name_of(wanted), passed=False, why=why, pending=True)


def _file(space: Workspace, run: Run, wanted: Mapping[str, Any], known: Known) -> Item:
    declared, name = str(wanted["file"]), name_of(wanted)
    values, ours = artifact_paths.placeholder_values(space.project, run), evidence_files.own_reports(space.store.local)
    seen = evidence_files.look(declared, values, roots(space, run), ours)
    if not seen.digests:
        return Item(FILE, name, passed=False, why=masked_line(seen.why or "there is no such file", _LONGEST_WHY))
    item = Item(FILE, name, passed=False, sha256=evidence_files.together(seen.digests))
    if not wanted.get("changed"):
        return item._replace(passed=True)
    if known.files.get(declared) is None:
        return item._replace(why=_UNKNOWN, pending=True)
    fate = fate_of(known, declared, seen)
    why = {OLDER: _OLDER, UNCHANGED: "it has not changed since the step began"}
    return item._replace(passed=fate == CHANGED, why=why.get(fate, ""))


def misspelt(name: str, step: Mapping[str, Any], registers: Mapping[str, str]) -> str:
    """Give the name by which a file was registered that a step leaves under another one; empty where none was."""
    from loomctl.kit.problems import nearest

    others = [one for one in registers if one not in frozen_plan.leaves(step)]
    alike = [one for one in others if one in name or name in one]
    return nearest(name, others) or (alike[0] if len(alike) == 1 else "")


def _unregistered(name: str, step: Mapping[str, Any], registers: Mapping[str, str]) -> str:
    said = masked_line(misspelt(name, step, registers), 80)
    meant = f", but one as `{said}`; did you mean `{name}`?" if said else ""
    return f"you registered no file under this name{meant}"


def _produced(
    space: Workspace,
    run: Run,
    step: Mapping[str, Any],
    name: str,
    registers: Mapping[str, str],
    refused: Mapping[str, str],
) -> Item:
    """Look for an artifact: registered now or before, inside the project or the run's folder, with something in it."""
    item = Item(ARTIFACT, name, passed=False)
    path, why = registers.get(name) or run.state["artifacts"].get(name), refused.get(f"artifacts/{name}")
    if not path and not why and not misspelt(name, step, registers):
        path = frozen_plan.leaves(step)[name]
    if not isinstance(path, str) or not path:
        return item._replace(why=why or _unregistered(name, step, registers))
    try:
        values = artifact_paths.placeholder_values(space.project, run)
        place = artifact_paths.locate(path, values, roots(space, run)._replace(plugin=""))
    except LoomError as error:
        return item._replace(why=masked_line(f"{path}: {error.what}", _LONGEST_WHY))
    why = evidence_files.lacks_content(place.path)
    return item._replace(passed=not why, why=masked_line(f"{place.shown}: {why}", _LONGEST_WHY) if why else "")


def _with_tasks(space: Workspace, run: Run, entry: Mapping[str, Any], item: Item, registers: Mapping[str, str]) -> Item:
    """Hold an artifact against what a later step that goes through it needs of it: open tasks (D65)."""
    if not item.passed:
        return item
    from loomctl.flow import tasks  # most steps leave nothing

    registered = {**run.state["artifacts"], **registers}
    lacking = tasks.lacking(space, run, str(entry["step_id"]), item.name, registered)
    return item._replace(passed=not lacking, why=masked_line(lacking, _LONGEST_WHY))


def _scope(run: Run, outcome: str, updates: Mapping[str, Any]) -> dict[str, Any]:
    from loomctl.flow import route
    from loomctl.runs.model import run_context

    state = {**run.state, "context": {**run.state["context"], **updates}}
    nested = route.nested(run_context.scope(state))
    known = {"outcome": outcome, "context": nested, "preferred_label": None, "task": visits.task(run.state)}
    return {"state": {**state, "context": nested}, **known}


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
    return f"expected a value other than null and false, found {'nothing' if value is MISSING else _as_json(value)}"


def _met_by_condition(wanted: Mapping[str, Any], scope: Mapping[str, Any]) -> str:
    """Say what a condition that does not hold looked at; a condition that takes an engine tells nothing of that."""
    from loomctl.expressions.conditions import values_of  # most ends have nothing to show

    seen = values_of(wanted.get("condition_code"), scope)
    told = [masked_line(f"{path} = {_as_json(value)}", _LONGEST_VALUE) for path, value in list(seen.items())[:_SEEN]]
    return f"it is not true{': ' + ', '.join(told) if told else ''}"


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
        from loomctl.expressions.conditions import evaluate
        from loomctl.expressions.javascript import ConditionThrew, NeedsEngine

        try:
            return evaluate(code, scope)
        except ConditionThrew as threw:
            raise _UnjudgedError(masked_line(str(threw), _LONGEST_WHY), False) from None
        except NeedsEngine:
            pass
    from loomctl.expressions import conditions, engine

    question = conditions.Question("path" if is_path else "condition", str(wanted["state" if is_path else "condition"]))
    (answer,) = engine.answer([question], scope, environment_python=space.caller.environment_python)
    if answer.status != "ok":
        raise _UnjudgedError(masked_line(answer.message, _LONGEST_WHY), answer.status == "needs_environment")
    return answer.value


# ---- What is said of it.


def instruction(step: Mapping[str, Any], known: Mapping[str, str | None]) -> list[str]:
    """Tell an assistant what a step has to show; nothing where that is nothing. known: values of placeholders."""
    wanted, left = [one for one in asked_of(step) if one["kind"] != ARTIFACT], frozen_plan.leaves(step)
    places = [f"`{placeholders.expand(path, known).text}` (`{name}`)" for name, path in left.items() if path]
    names = [f"`{name}`" for name, path in left.items() if not path]
    leaves = [f"It has to leave {', '.join(places)}; Loom registers that."] if places else []
    if names:
        leaves.append(f"It has to leave {', '.join(names)}: register each file with `--artifact NAME=PATH`.")
    if not wanted:
        return leaves
    lines = "\n".join(f"- {_asks(one)}" for one in wanted)
    own = "" if step.get("run") or not any(one["kind"] == COMMAND for one in wanted) else "End it with `loomctl done`. "
    return [*leaves, f"{own}It is done when Loom finds this evidence:\n\n{lines}"]


def _asks(wanted: Mapping[str, Any]) -> str:
    name = name_of(wanted)
    if wanted["kind"] == FILE:
        return f"the file `{name}` " + ("is new or changed since the step began" if wanted.get("changed") else "exists")
    if wanted.get("tests") == "fail":
        return f"the tests fail: Loom runs `{wanted['run']}`, and the exit code is not 0"
    if wanted.get("tests"):
        return f"the tests pass: Loom runs `{name}`, and the exit code is 0"
    if wanted["kind"] == COMMAND:
        return f"Loom runs `{name}`, and the exit code is 0"
    if "state" in wanted:
        return f"the run's state has a value at `{name}` other than null and false"
    return f"`{name}` is true"


def missing(checked: Checked) -> str:
    """Say in one line what is missing."""
    return "; ".join(f"{item.name}: {item.why or 'missing'}" for item in checked.items if not item.passed)


def again(run: Run, entry: Mapping[str, Any], outcome: str | None, artifacts: Mapping[str, str] | None = None) -> str:
    """Give the command line that hands the answer over which was kept as the stage's candidate. Raises BAD_ID."""
    import shlex

    options = ["--for", f"{entry['rank']:03}", *(["--outcome", outcome] if outcome else [])]
    for name, path in (artifacts or {}).items():
        options += ["--artifact", f"{name}={path}"]
    kept = os.path.join(stages.folder(run.folder, entry["stage"]), stages.CANDIDATE)
    return shlex.join(["loomctl", "done", run.handle, *options, "--response-file", kept])


def message(
    step: Mapping[str, Any], entry: Mapping[str, Any], checked: Checked, attempt: int, allowed: int, again: str = ""
) -> str:
    """Say what a step that was said to be done has not shown, and what to do. attempt: 0 where it is not counted.

    again: the command that hands the same answer over once more.
    """
    code = NOT_PRODUCED if checked.not_produced else MISSING_EVIDENCE
    lines = [f"{code}: step {masked_line(str(step['key']), 120)} is not done. Loom did not find", ""]
    for item in checked.items:
        lines += [] if item.passed else [f"- {item.word or item.kind} `{item.name}`: {item.why or 'missing'}"]
        lines += [fenced(item.output)] if item.output and not item.passed else []
    if attempt:
        from loomctl.flow.outcomes.answers import correction

        how = f":\n\n    {again}\n\n" if again else " with its result. "
        asks = f"Fix that and end the step again{how}{correction(attempt, allowed)}"
    elif again:
        asks = f"Loom kept your result. Once it can check it, end the step with this command:\n\n    {again}"
    else:
        done = visits.done_command(entry)
        asks = f"Once Loom can check it, run `{done}` with the result on standard input."
    return "\n".join([*lines, "", asks])


def exhausted(checked: Checked, allowed: int) -> str:
    """Say that evidence is missing for good; the step's failure reason."""
    return masked_line(f"evidence is missing after {allowed} correction(s): {missing(checked)}", 600)


class Known(NamedTuple):
    """What is known of the files as the visit began.

    files, plain: `{declared: {path: hash}}` as `evidence_files.Seen` has them; what was not noted is not in there.
    since: when it began, in seconds since the epoch, if that was in another checkout; else 0.
    """

    files: Mapping[str, Mapping[str, str]] = {}
    plain: Mapping[str, Mapping[str, str]] = {}
    since: int = 0


def roots(space: Workspace, run: Run) -> Roots:
    """Give where evidence may lie."""
    return artifact_paths.Roots(
        space.project.root, run.folder, space.project.plugin_root, tuple(space.settings.extra_roots)
    )


def begin(space: Workspace, run: Run, entry: Mapping[str, Any]) -> None:
    """Note what the files are that a visit has to change, in its stage's folder. May raise."""
    wanted = _to_change(run, entry)
    if not wanted:
        return
    values, where = artifact_paths.placeholder_values(space.project, run), roots(space, run)
    ours = evidence_files.own_reports(space.store.local)
    seen = {one: evidence_files.look(one, values, where, ours) for one in wanted}
    plain = {one: dict(found.plain) for one, found in seen.items() if found.plain}
    note = {"schema_version": 1, "place": _place(space), "files": {one: found.digests for one, found in seen.items()}}
    folder, data = (
        stages.folder(run.folder, entry["stage"]),
        files.to_json({**note, **({"plain": plain} if plain else {})}),
    )
    files.make_folder(folder, mode=0o755)
    files.write_atomically(os.path.join(folder, NOTED), data)
    _remember(space, run, entry, digests.of_bytes(data))


def known_of(space: Workspace, run: Run, entry: Mapping[str, Any]) -> Known:
    """Give what the files were as a visit began; nothing where nothing was noted, or it is not what was noted then."""
    try:
        text = stages.read_text(run.folder, entry["stage"], NOTED) or ""
        if not text or digests.of_text(text) != entry.get(HASHED):
            return Known()
        held = files.parse_json(text.encode(), where=NOTED)
    except LoomError:
        return Known()
    note = held if isinstance(held, dict) else {}
    elsewhere = isinstance(note.get("place"), str) and note["place"] != _place(space)
    since = clock.seconds_of(str(entry.get("started_at") or "")) if elsewhere else 0
    return Known(_by_name(note, "files"), _by_name(note, "plain"), since)


def fate_of(known: Known, declared: str, seen: Seen) -> str:
    """Tell what became of a file or of those of a pattern, which were noted: CHANGED, UNCHANGED or OLDER.

    One that changed is enough.
    """
    changed = seen.changed(known.files[declared], known.plain.get(declared, {}))
    if not changed:
        return UNCHANGED
    asked = itertools.islice(changed, _MOST_ASKED)
    if known.since and all(evidence_files.stands_since_before(seen.paths[path], known.since) for path in asked):
        return OLDER if len(changed) <= _MOST_ASKED else CHANGED
    return CHANGED


def _to_change(run: Run, entry: Mapping[str, Any]) -> list[str]:
    place = frozen_plan.place_of(run.plan, str(entry.get("step_id")))
    listed = place.step.get("evidence") if place else None
    asked = listed if isinstance(listed, list) else []
    return [str(one["file"]) for one in asked if one["kind"] == "file" and one.get("changed")]


def _place(space: Workspace) -> str:
    return digests.of_text(f"{machine.hostname()}\0{os.path.realpath(space.project.root)}")[:16]


def _remember(space: Workspace, run: Run, entry: Mapping[str, Any], sha256: str) -> None:
    from loomctl.kit.processes import HOOK_PATIENCE, PATIENCE

    def change(state: State) -> tuple[State, list[Event]]:
        now = visits.open_visit(state)
        if now is None or now["stage"] != entry["stage"]:
            return state, []
        return visits.replaced(state, {**now, HASHED: sha256}), []

    lines.update(space, run, change, patience=HOOK_PATIENCE if space.caller.on_hook_path else PATIENCE)


def _by_name(note: Mapping[str, Any], key: str) -> dict[str, dict[str, str]]:
    found = note.get(key)
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


class Item(NamedTuple):
    """One piece of evidence.

    sha256: of the file, the command's output or the value; pending: nobody could judge it here, and another answer
    would not help. word: what people call its kind, where that is not the kind's own name. output: the end of what a
    command printed, for who has to mend it: masked, and kept nowhere.
    """

    kind: str
    name: str
    passed: bool
    sha256: str = ""
    why: str = ""
    pending: bool = False
    word: str = ""
    output: str = ""

    @property
    def code(self) -> str:
        """What its absence is called."""
        return NOT_PRODUCED if self.kind == ARTIFACT else MISSING_EVIDENCE

    def to_dict(self) -> dict[str, Any]:
        """Give it as `status.json` and the event hold it."""
        found: dict[str, Any] = {"kind": self.kind, "name": self.name, "passed": self.passed}
        return {**found, **({"sha256": self.sha256} if self.sha256 else {}), **({"why": self.why} if self.why else {})}


class Checked(NamedTuple):
    """What a step showed, in declared order."""

    items: Sequence[Item]

    @property
    def passed(self) -> bool:
        """Whether all of it is there."""
        return all(item.passed for item in self.items)

    @property
    def not_produced(self) -> list[str]:
        """Name the artifacts that are missing."""
        return [item.name for item in self.items if item.kind == ARTIFACT and not item.passed]

    @property
    def pending(self) -> bool:
        """Whether some of it could not be judged, and nothing that could is missing."""
        return not self.passed and all(item.passed or item.pending for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        """Give it as `status.json` and the event hold it."""
        return {"passed": self.passed, "items": [item.to_dict() for item in self.items]}


def name_of(item: Mapping[str, Any]) -> str:
    """Name a piece of evidence as it is declared, for people and files."""
    if item.get("tests") == "fail":
        return masked_line(f"{item['run']} (must fail)", 300)
    said = (item.get(key) for key in ("artifact", "file", "run", "state", "condition"))
    return masked_line(str(next(filter(None, said), None)), 300)


class Command(NamedTuple):
    """A command that is evidence. entry, step: of the visit; number: of the evidence, from 1; claim: see `check`."""

    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    wanted: Mapping[str, Any]
    number: int
    claim: str
