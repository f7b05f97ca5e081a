"""What a step of a workflow is, and how one is read: what it asks for, where it leads, what it shows, its branches."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.expressions.placeholders import placeholder_problems
from loomctl.kit.ids import slug
from loomctl.kit.problems import ID_RULE, Fields, at, choices, is_id, kind_of, objects, shown
from loomctl.runs.model.visits import END, JOINS
from loomctl.workflows import artifacts
from loomctl.workflows.artifacts import ALLOW, EVIDENCE, FOR_EACH, PRODUCES
from loomctl.workflows.routing import FIDELITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


PARTS = ("pre_steps", "steps", "post_steps")  # of a phase
KINDS = ("agent", "prompt", "command", "human", "parallel")
HUMAN, PARALLEL, ROUTING = "human", "parallel", "routing"
LONGEST_TIMEOUT = 7 * 24 * 3600  # seconds of a command
HEAVIEST = 1_000_000
LONGEST_INNER = 100  # characters of a branch's step with the names before it, in which it is known
HANDLING = {
    "on_success": ("continue", "prompt"),
    "on_warning": ("continue", "prompt", "stop"),
    "on_failure": ("stop", "prompt", "continue"),
}
# What the design has and nothing executes yet; a workflow that says so is refused, never half obeyed.
LATER_FIELDS = ("steps_parallel",)
# What Loom adds to a step of FABER's shape; a plan of FABER's that says such a thing means something else.
ADDED_FIELDS = (
    *("run", "timeout", "workdir", "output_schema", "output_retries", "fidelity"),
    *("max_visits", "transitions", "retry_target", "parallel", EVIDENCE, PRODUCES, FOR_EACH, ALLOW),
)
# FABER's fields that are kept and change nothing here.
INERT_FIELDS = (
    *("conditional", "guards", "context", "config", "arguments", "role", "executor", "model", "harness"),
    *("max_turns", "max_budget_usd", "allowed_tools", "mcp", "changelog"),
)
# What an assistant or a command is asked for; a parallel step asks for nothing but its branches.
NOT_FOR_PARALLEL = (
    *("command", "skill", "run", "timeout", "workdir", "output_schema", "output_retries", EVIDENCE, PRODUCES),
    FOR_EACH,
)
_SLASH_COMMAND = re.compile(r"\s*(/[A-Za-z0-9_.:-]+|[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+)(\s[\s\S]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The smallest resumable unit. One of prompt, command (`/slash …`), skill and run says what is asked.

    FABER's files also give a skill or command together with a prompt, or a description alone; both are understood.
    Of kind human, prompt (or description) is the question, and the labels of the transitions are the choices.
    run: a shell command that Loom runs itself (D30); timeout: its seconds; workdir: where the step works, below the
    project. output_schema: `routing`, or `@FILE` beside the workflow (D36). fidelity: of its preamble (D46).
    retry_target: the step to which a failure leads that no transition is meant for (D45). where: its JSON path.

    transitions: each `{to, label?, condition?, weight?, fidelity?, on_failure?}`; to: a step id of the same phase,
    `phase/id`, or `end`; condition: JavaScript over `state outcome context preferred_label` (D12); weight: the higher
    one wins a tie; fidelity: of the next step's preamble; on_failure: it is for a step that failed.

    evidence: what the engine has to find before the step counts as done, one of these each: `file`, a path or a pattern
    (`*`, `?`, `[…]`, `**`), with `changed`, whether it has to have changed since the step began, the default; `run`, a
    shell command that has to end with 0 (D23), with `timeout` in seconds; `state`, a JSONPath into the state that has
    to find something other than null and false; `condition`, JavaScript that has to be true (D12).
    produces: what has to be there and registered by then: a name, or `{name: path}`, which Loom registers (D66).

    for_each: the list through which it goes, a task a visit (D65): `list`, a plain path into the state, of a JSON list
    or a Markdown file; `section`, the heading under which its boxes stand; `allow_empty`, it may have none.
    allow: rules of what the assistant may use unasked as the run is driven: `Bash(npm test:*)`, `Write` (D75).
    """

    where: str
    id: str
    name: str | None = None
    description: str | None = None
    kind: str | None = None
    prompt: str | None = None
    command: str | None = None
    skill: str | None = None
    run: str | None = None
    timeout: float | None = None
    workdir: str | None = None
    output_schema: str | None = None
    output_retries: int | None = None
    fidelity: str | None = None
    max_visits: int | None = None
    transitions: tuple[dict[str, Any], ...] | None = None
    retry_target: str | None = None
    parallel: Parallel | None = None
    evidence: tuple[dict[str, Any], ...] | None = None
    produces: tuple[str | dict[str, str], ...] | None = None
    for_each: dict[str, Any] | None = None
    allow: tuple[str, ...] | None = None
    max_retries: int | None = None
    require_approval: bool | None = None
    result_handling: dict[str, str] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def inner(self) -> Iterator[tuple[Branch, str, Step]]:
        """Go through the steps of all branches, each with its branch and its id in the phase."""
        for branch in self.parallel.branches if self.parallel is not None else ():
            for step in branch.steps:
                yield branch, inner_id(self.id, branch.id, step.id), step

    def targets(self) -> Iterator[tuple[str, str]]:
        """Go through the names of steps that it leads to, each with its JSON path."""
        for index, transition in enumerate(self.transitions or ()):
            yield f"{self.where}.transitions[{index}].to", transition["to"]
        if self.retry_target is not None:
            yield f"{self.where}.retry_target", self.retry_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of a parallel step: an id, and steps that lead to one another and to its end."""

    id: str
    steps: tuple[Step, ...]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The branches of a parallel step (D43). join: one of `visits.JOINS`; None: `wait_all`."""

    join: str | None = None
    branches: tuple[Branch, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


def inner_id(owner: str, branch: str, step: str) -> str:
    """Give the id by which a branch's step is known in its phase (D7): parallel step, branch and step, with points."""
    return f"{owner}.{branch}.{step}"


def key_of(name: str, phase: str) -> str:
    """Give the key of what a step of a phase calls `name`; `end` stays."""
    return name if name == END or "/" in name else f"{phase}/{name}"


def step_id(raw: Mapping[str, Any]) -> str:
    """Give a raw step's id: its own, else the slug of its name (D7)."""
    return str(raw["id"]) if "id" in raw else slug(str(raw.get("name", "")))


def map_steps(raw: Mapping[str, Any], change: Callable[[dict[str, Any], str], dict[str, Any]]) -> dict[str, Any]:
    """Give a raw workflow with each step, those of branches first, changed; what has another shape stays as it is.

    change: is given a step and its JSON path.
    """

    def all_of(holder: Any, key: str, where: str, each: Callable[[Any, str], Any]) -> Any:
        listed = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(listed, list):
            return holder
        return {**holder, key: [each(entry, at(where, key, index)) for index, entry in enumerate(listed)]}

    def step(entry: Any, where: str) -> Any:
        if not isinstance(entry, dict):
            return entry
        if "parallel" in entry:
            inside = at(where, "parallel")
            entry = {**entry, "parallel": all_of(entry["parallel"], "branches", inside, branch)}
        return change(entry, where)

    def branch(entry: Any, where: str) -> Any:
        return all_of(entry, "steps", where, step)

    phases = raw.get("phases")
    if not isinstance(phases, dict):
        return dict(raw)
    changed = {}
    for name, phase in phases.items():
        changed[name] = phase
        for part in PARTS:
            changed[name] = all_of(changed[name], part, at("$", "phases", name), step)
    return {**raw, "phases": changed}


def each_step(raw: object) -> list[tuple[str, dict[str, Any]]]:
    """List the steps of a raw workflow, those of branches too, with their JSON paths."""
    found: list[tuple[str, dict[str, Any]]] = []

    def note(step: dict[str, Any], where: str) -> dict[str, Any]:
        found.append((where, step))
        return step

    map_steps(raw if isinstance(raw, dict) else {}, note)
    return found


# ---- A step.


def read(fields: Fields, seen: dict[str, str]) -> Step:
    """Read one step. seen: the ids of its phase so far with their JSON paths; it grows."""
    name = fields.text("name", blank=True)
    step_id = _read_step_id(fields, name, seen)
    kind = fields.text("kind")
    if kind is not None and kind not in KINDS:
        fields.fail("UNKNOWN_VALUE", "kind", f"unknown kind of step {shown(kind)}", choices(kind, KINDS))
    prompt, command, skill = fields.text("prompt"), fields.text("command"), fields.text("skill")
    run = fields.text("run")
    description = fields.text("description", blank=True)
    if fields.has("parallel") or kind == "parallel":
        _check_parallel(fields, kind)
    elif fields.has("run") or kind == "command":
        _check_run(fields, kind)
    elif kind == HUMAN:
        _check_human(fields, description)
    elif not any(fields.has(key) for key in LATER_FIELDS):
        _check_text(fields, description)
    if command is not None and not _SLASH_COMMAND.fullmatch(command):
        hint = "write the slash command (/name:command …), or ask for it in prompt"
        message = "command must be a slash command for the assistant; for a shell command use run"
        fields.fail("NOT_A_SLASH_COMMAND", "command", message, hint)
    workdir = _read_workdir(fields)
    for key, text in (("prompt", prompt), ("command", command), ("skill", skill), ("run", run), ("workdir", workdir)):
        fields.problems += placeholder_problems(text, fields.path(key), also=artifacts.own_placeholders(fields))
    return Step(
        where=fields.where,
        id=step_id,
        name=name,
        description=description,
        kind=kind,
        prompt=prompt,
        command=command,
        skill=skill,
        run=run,
        timeout=_read_timeout(fields),
        workdir=workdir,
        output_schema=_read_output_schema(fields),
        output_retries=_read_output_retries(fields),
        fidelity=fields.choice("fidelity", FIDELITIES),
        max_visits=read_max_visits(fields),
        transitions=_read_transitions(fields),
        retry_target=read_target(fields, "retry_target"),
        parallel=_read_parallel(fields, step_id, seen),
        evidence=artifacts.read_evidence(fields),
        produces=artifacts.read_produces(fields),
        for_each=artifacts.read_for_each(fields),
        allow=artifacts.read_allow(fields),
        max_retries=fields.whole("max_retries"),
        require_approval=fields.flag("require_approval"),
        result_handling=read_handling(fields),
        extra=fields.rest(later=LATER_FIELDS, inert=INERT_FIELDS),
    )


def _read_step_id(fields: Fields, name: str | None, seen: dict[str, str]) -> str:
    given = fields.text("id")
    if given is None:
        if fields.has("id"):
            return ""
        if name is None or not name.strip():
            fields.fail("MISSING_FIELD", "id", "a step needs an id, or a name to make one from", '"id": "implement"')
            return ""
        given = slug(name)  # D7
    elif not is_id(given):
        fields.fail("BAD_ID", "id", f"{shown(given)} is not a valid step id", ID_RULE)
        return ""
    if given in seen:
        message = f"{seen[given]} has the step {given} already"
        fields.fail("DUPLICATE_ID", "id", message, "phase/id names a step: give this one another id")
    seen.setdefault(given, fields.where)
    return given


def _check_run(fields: Fields, kind: str | None) -> None:
    """Check a step that Loom runs itself: it has a command and asks nobody for anything."""
    if not fields.has("run"):
        message = "kind: command without a command to run"
        fields.fail("MISSING_TEXT", "", message, 'add "run": "pytest -q"')
    elif kind not in (None, "command"):
        fields.fail("TWO_TEXTS", "kind", f"a step with run is of kind command, not {shown(kind)}", "leave kind out")
    message = "run and {} are both set, but a step does one thing"
    _refuse(fields, ("prompt", "command", "skill"), "TWO_TEXTS", message, "keep one, or make two steps")
    message = "{} is for an assistant, and Loom runs a command itself: its exit code is the answer"
    _refuse(fields, ("output_schema", "output_retries", ALLOW), "NOT_FOR_COMMANDS", message, "leave {} out")
    if any("run" in one or artifacts.TESTS in one for _, one in objects({EVIDENCE: fields.raw(EVIDENCE)}, EVIDENCE)):
        message = "a command step cannot have another command as evidence"
        fields.fail("NOT_FOR_COMMANDS", EVIDENCE, message, "make that command its own step")


def _check_human(fields: Fields, description: str | None) -> None:
    """Check a step that a person decides: it has a question, and asks no assistant for anything."""
    message = "{} is for an assistant, and a person decides a step of kind: human"
    _refuse(fields, ("command", "skill", FOR_EACH, ALLOW), "NOT_FOR_HUMANS", message, "ask in prompt and leave {} out")
    message = "{} is about an assistant's answer, and a person chooses a label"
    _refuse(fields, ("output_schema", "output_retries", EVIDENCE, PRODUCES), "NOT_FOR_HUMANS", message, "leave {} out")
    for key in ("workdir", "max_retries"):
        if fields.has(key):
            fields.warn("IGNORED_FIELD", key, f"Loom ignores {key}, because a person decides this step")
    if not fields.has("prompt") and not (description or "").strip():
        hint = 'add "prompt": "Is this good enough to ship?"'
        fields.fail("MISSING_TEXT", "", "the step does not say what to ask a person", hint)


def _check_parallel(fields: Fields, kind: str | None) -> None:
    """Check a step that is its branches: it may say in a prompt what they are for, and asks for nothing itself."""
    if not fields.has("parallel"):
        hint = '"parallel": {"branches": [{"id": "api", "steps": […]}, …]}'
        fields.fail("MISSING_FIELD", "parallel", "kind: parallel without branches", hint)
    elif kind not in (None, "parallel"):
        message = f"a step with parallel is of kind parallel, not {shown(kind)}"
        fields.fail("TWO_TEXTS", "kind", message, "leave kind out")
    message = "{} belongs to a branch's step; nobody works on the parallel step itself"
    _refuse(fields, NOT_FOR_PARALLEL, "NOT_FOR_PARALLEL", message, "move {} to the branch's step")


def _refuse(fields: Fields, keys: Sequence[str], code: str, message: str, hint: str) -> None:
    for key in keys:
        if fields.has(key):
            fields.fail(code, key, message.format(key), hint.format(key))


def _read_timeout(fields: Fields) -> float | None:
    value = fields.seconds("timeout", most=LONGEST_TIMEOUT)
    if value is not None and not fields.has("run"):
        fields.warn("IGNORED_FIELD", "timeout", "Loom ignores timeout: only a step with run has one")
    return value


def _read_workdir(fields: Fields) -> str | None:
    text = fields.text("workdir")
    if text is not None and ("\0" in text or ".." in text.replace("\\", "/").split("/")):
        fields.fail("PATH_ESCAPE", "workdir", f"{shown(text)} leads out of the project", "name a folder below it")
        return None
    return text


def _read_output_schema(fields: Fields) -> str | None:
    text = fields.text("output_schema")
    if text is None or text == ROUTING or (text.startswith("@") and text[1:].strip()):
        return text
    hint = choices(text, (ROUTING,)) if not text.startswith("@") else '"@schemas/audit.schema.json"'
    message = f"unknown output schema {shown(text)}: write routing, or @ and a file"
    fields.fail("UNKNOWN_VALUE", "output_schema", message, hint)
    return None


def _read_output_retries(fields: Fields) -> int | None:
    """Read how often an answer may be repaired; below zero means never (D36)."""
    value = fields.raw("output_retries")
    if type(value) is int and value < 0:
        return 0
    return fields.whole("output_retries")


def _check_text(fields: Fields, description: str | None) -> None:
    given = [key for key in ("prompt", "command", "skill") if fields.has(key)]
    if "command" in given and "skill" in given:
        message = "command and skill are both set, but a step asks for one thing"
        fields.fail("TWO_TEXTS", "", message, "keep one, or make two steps")
    elif len(given) == 2:
        message = f"Loom puts the {given[1]} in front of the prompt and asks for both"
        fields.warn("TWO_TEXTS", given[1], message, "one of the two is enough")
    elif not given and description is not None and description.strip():
        fields.warn("NO_PROMPT", "prompt", "no prompt: Loom takes the description", "write a prompt")
    elif not given:
        hint = 'add "prompt": "…" (or command, or skill)'
        fields.fail("MISSING_TEXT", "", "the step does not say what to do", hint)


# ---- Its transitions.


def _read_transitions(fields: Fields) -> tuple[dict[str, Any], ...] | None:
    opened = fields.each("transitions")
    return None if opened is None else tuple(_transition(one) for one in opened)


def _transition(fields: Fields) -> dict[str, Any]:
    said = {
        "to": read_target(fields, "to", required=True) or "",
        "label": fields.text("label"),
        "condition": fields.text("condition"),
        "weight": _read_weight(fields),
        "fidelity": fields.choice("fidelity", FIDELITIES),
        "on_failure": fields.flag("on_failure"),
    }
    return {**{key: value for key, value in said.items() if value is not None}, **fields.rest()}


def read_target(fields: Fields, key: str, *, required: bool = False) -> str | None:
    """Take the name of a step: its id or `phase/id`."""
    text = fields.text(key, required=required)
    if text is not None and not all(is_id(part) for part in text.split("/", 1)):
        fields.fail(
            "BAD_ID", key, f"{shown(text)} is not a valid step: write an id of the same phase, or phase/id", ID_RULE
        )
        return None
    return text


def _read_weight(fields: Fields) -> float | None:
    if not fields.has("weight"):
        return None
    value = fields.raw("weight")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        fields.fail("WRONG_TYPE", "weight", f"weight: expected a number, got {kind_of(value)}", '"weight": 5')
        return None
    if not -HEAVIEST <= value <= HEAVIEST:
        fields.fail("OUT_OF_RANGE", "weight", f"weight must be between -{HEAVIEST:,} and {HEAVIEST:,}")
        return None
    return value


# ---- Its branches.


def _read_parallel(fields: Fields, owner: str, seen: dict[str, str]) -> Parallel | None:
    """Read what `parallel` says; None where it is not there or is no object.

    owner: the step's id; seen: the ids of its phase so far with their JSON paths; it grows.
    """
    inner = fields.inner(PARALLEL)
    if inner is None:
        return None
    join = inner.choice("join", JOINS)
    opened = inner.each("branches", required=True)
    if inner.raw("branches") == []:
        inner.fail("EMPTY_LIST", "branches", "a parallel step without branches", '"branches": [{"id": "api", …}]')
    known: dict[str, str] = {}
    branches = tuple(_read_branch(one, owner, known, seen) for one in opened or ())
    return Parallel(join=join, branches=branches, extra=inner.rest())


def _read_branch(fields: Fields, owner: str, known: dict[str, str], seen: dict[str, str]) -> Branch:
    name = _read_branch_id(fields, known)
    opened = fields.each("steps", required=True)
    if fields.raw("steps") == []:
        fields.fail("EMPTY_LIST", "steps", "a branch without steps", "add a step, or remove the branch")
    own: dict[str, str] = {}
    steps = []
    for entry in opened or ():
        step = read(entry, own)
        if step.kind == PARALLEL or step.parallel is not None:
            hint = "make one parallel step of both, or put one after the other"
            entry.fail("NESTED_PARALLEL", "", "a parallel step in a branch of another", hint)
        if known.get(name) == fields.where and own.get(step.id) == entry.where:  # what stands twice was told
            _check_name(inner_id(owner, name, step.id), entry, seen)
        steps.append(step)
    return Branch(id=name, steps=tuple(steps), extra=fields.rest())


def _read_branch_id(fields: Fields, known: dict[str, str]) -> str:
    name = fields.text("id", required=True) or ""
    if name and not is_id(name):
        fields.fail("BAD_ID", "id", f"{shown(name)} is not a valid branch id", ID_RULE)
    elif name in known:
        fields.fail("DUPLICATE_ID", "id", f"{known[name]} has the branch {name} already", "give it another id")
    known.setdefault(name, fields.where)
    return name


def _check_name(name: str, of: Fields, seen: dict[str, str]) -> None:
    if name in seen and seen[name] != of.where:
        message = f"the step would have the same name as the one at {seen[name]}: {shown(name)}"
        of.fail("DUPLICATE_ID", "", message, "give one of them another id")
    elif len(name) > LONGEST_INNER:
        message = f"the ids of parallel step, branch and step together have over {LONGEST_INNER} characters"
        of.fail("TOO_LONG", "", message, "make them shorter")
    seen.setdefault(name, of.where)


# ---- What phases and workflows say, too.


def read_handling(fields: Fields) -> dict[str, str] | None:
    """Read an object's `result_handling`; None if it has none."""
    inner = fields.inner("result_handling")
    if inner is None:
        return None
    said: dict[str, str] = {}
    for key, known in HANDLING.items():
        value = inner.text(key)
        if value is not None and value.lstrip().startswith("/"):
            inner.fail("NOT_SUPPORTED", key, f"{key} cannot be a slash command yet", choices(None, known))
        elif value == "retry" and key == "on_failure":
            hint = 'write "max_retries": 2 and "on_failure": "stop"; Loom retries first'
            inner.fail("UNKNOWN_VALUE", key, "use max_retries to retry", hint)
        elif value is not None and value not in known:
            inner.fail("UNKNOWN_VALUE", key, f"unknown {key} {shown(value)}", choices(value, known))
        if value is not None:
            said[key] = value
    inner.rest()
    return said


def read_max_visits(fields: Fields) -> int | None:
    """Take how often a step may be visited: 1 or more."""
    value = fields.whole("max_visits")
    if value == 0:
        hint = "leave it out to set no limit; to skip the step, use skip_steps"
        fields.fail("OUT_OF_RANGE", "max_visits", "max_visits must be 1 or more", hint)
        return None
    return value
