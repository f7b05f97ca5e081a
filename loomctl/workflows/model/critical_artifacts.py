"""The critical artifacts that a workflow declares: what must be in context, when, from where (D13, D14, D16)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.expressions.placeholder_checks import placeholder_problems
from loomctl.kit.json.fields import ID_RULE, Fields, is_id, only
from loomctl.kit.problems import at, choices, error, shown
from loomctl.workflows.model import triggers
from loomctl.workflows.model.git_commands import git_command_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.kit.problems import Problem

FILE_TYPES = ("json", "markdown", "directory")
COMMAND_TYPES = ("work_plugin", "skill", "git_info")
TYPES = (*FILE_TYPES, *COMMAND_TYPES)
LOAD_STRATEGIES = ("full", "summary", "latest_only", "all")
TRIGGER_WORDS = (
    "session_start",
    "phase_start:PHASE",
    "phase_transition:FROM->TO",
    "compaction_detected",
    "manual",
)
ALWAYS, CONDITIONAL, PHASE = "always", "conditional", "phase"
_COMMAND_WISHES = ("command", "shell", "bash", "sh", "exec", "run", "script", "program")


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalArtifact:
    """One declaration. Exactly one of path, path_from_state and command is set, as its type asks for."""

    id: str
    type: str
    required: bool
    reload_triggers: tuple[str, ...]
    description: str | None = None
    path: str | None = None
    path_from_state: str | None = None
    command: str | None = None
    condition: str | None = None  # without meaning in always_load (D14)
    load_strategy: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = (
        "id",
        "type",
        "path",
        "path_from_state",
        "command",
        "description",
        "required",
        "condition",
        "load_strategy",
        "reload_triggers",
    )

    def to_dict(self) -> dict[str, Any]:
        """Give the declaration as a workflow file writes it; unknown keys come last."""
        values = {key: getattr(self, key) for key in self.KEYS}
        return only(self.KEYS, {**values, "reload_triggers": list(self.reload_triggers)}, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalArtifacts:
    """The three groups; a group that the file does not have is None."""

    always_load: tuple[CriticalArtifact, ...] | None = None
    conditional_load: tuple[CriticalArtifact, ...] | None = None
    phase_specific: dict[str, tuple[CriticalArtifact, ...]] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = ("always_load", "conditional_load", "phase_specific")

    def to_dict(self) -> dict[str, Any]:
        """Give the groups as a workflow file writes them."""
        phases = self.phase_specific
        by_phase = None if phases is None else {name: _written(group) for name, group in phases.items()}
        values = {
            "always_load": _written(self.always_load),
            "conditional_load": _written(self.conditional_load),
            "phase_specific": by_phase,
        }
        return only(self.KEYS, values, self.extra)

    def each(self) -> Iterator[Placed]:
        """Go through all declarations in their order: always, conditional, then phase by phase."""
        groups = [
            (("always_load",), ALWAYS, None, self.always_load or ()),
            (("conditional_load",), CONDITIONAL, None, self.conditional_load or ()),
            *((("phase_specific", name), PHASE, name, group) for name, group in (self.phase_specific or {}).items()),
        ]
        for keys, when, phase, group in groups:
            for index, artifact in enumerate(group):
                yield Placed(at("$", "critical_artifacts", *keys, index), when, phase, artifact)


class Placed(NamedTuple):
    """One declaration with its JSON path, the group it stands in (`always conditional phase`) and that phase's id."""

    where: str
    when: str
    phase: str | None
    artifact: CriticalArtifact


def read(raw: object, where: str, problems: list[Problem]) -> CriticalArtifacts | None:
    """Read a workflow's `critical_artifacts`; what is wrong goes to `problems`."""
    fields = Fields.opened(raw, where, problems)
    if fields is None:
        return None
    seen: dict[str, str] = {}
    always = _read_group(fields.items("always_load"), ALWAYS, seen, problems)
    conditional = _read_group(fields.items("conditional_load"), CONDITIONAL, seen, problems)
    phases: dict[str, tuple[CriticalArtifact, ...]] | None = None
    entries = fields.entries("phase_specific")
    if entries is not None:
        phases = {}
        for name, group_where, group in entries:
            if not isinstance(group, list):
                problems.append(error("WRONG_TYPE", group_where, "expected a list of artifacts"))
                continue
            listed = [(f"{group_where}[{index}]", entry) for index, entry in enumerate(group)]
            phases[name] = _read_group(listed, PHASE, seen, problems) or ()
    return CriticalArtifacts(
        always_load=always, conditional_load=conditional, phase_specific=phases, extra=fields.rest()
    )


def declared(raw: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """List the artifacts in a raw workflow with their JSON paths, passing over whatever is no object or list."""
    groups = raw.get("critical_artifacts") if isinstance(raw, dict) else None
    if not isinstance(groups, dict):
        return
    phases = groups.get("phase_specific")
    listed: list[tuple[tuple[str, ...], Any]] = [
        (("always_load",), groups.get("always_load")),
        (("conditional_load",), groups.get("conditional_load")),
    ]
    if isinstance(phases, dict):
        listed += [(("phase_specific", name), group) for name, group in phases.items()]
    for keys, group in listed:
        for index, entry in enumerate(group if isinstance(group, list) else ()):
            if isinstance(entry, dict):
                yield at("$", "critical_artifacts", *keys, index), entry


def _written(group: tuple[CriticalArtifact, ...] | None) -> list[dict[str, Any]] | None:
    return None if group is None else [artifact.to_dict() for artifact in group]


def _read_group(
    entries: list[tuple[str, Any]] | None, when: str, seen: dict[str, str], problems: list[Problem]
) -> tuple[CriticalArtifact, ...] | None:
    if entries is None:
        return None
    found = (_read_artifact(raw, where, when, seen, problems) for where, raw in entries)
    return tuple(artifact for artifact in found if artifact is not None)


def _read_artifact(
    raw: object, where: str, when: str, seen: dict[str, str], problems: list[Problem]
) -> CriticalArtifact | None:
    fields = Fields.opened(raw, where, problems)
    if fields is None:
        return None
    name = _read_id(fields, seen)
    kind = _read_type(fields)
    path, from_state, command = fields.text("path"), fields.text("path_from_state"), fields.text("command")
    if kind is not None:
        _check_source(fields, kind, problems)
    if kind == "git_info" and command is not None:
        reason = git_command_problem(command)
        if reason is not None:
            fields.fail("GIT_COMMAND", "command", f"this git command is refused: {reason}", "git log --oneline -10")
    required = fields.flag("required", required=True)
    for text, key in ((path, "path"), (command, "command")):
        problems += placeholder_problems(text, fields.path(key), optional=required is False)
    if path is not None and _leads_out(path):
        hint = "keep it in the project, or allow its folder under extra_roots in your own config"
        fields.warn("PATH_ESCAPE", "path", "this path leads out of the project and is not read by default", hint)
    description = fields.text("description", blank=True)
    if description is None or not description.strip():
        message = "no description: say in a sentence what this is for, people see it in the packing slip"
        fields.warn("MISSING_DESCRIPTION", "description", message)
    condition = _read_condition(fields, when)
    strategy = fields.choice("load_strategy", LOAD_STRATEGIES)
    words = _read_triggers(fields)
    extra = fields.rest()
    if name is None or kind is None:
        return None
    return CriticalArtifact(
        id=name,
        type=kind,
        path=path,
        path_from_state=from_state,
        command=command,
        description=description,
        required=bool(required),
        condition=condition,
        load_strategy=strategy,
        reload_triggers=words,
        extra=extra,
    )


def _read_id(fields: Fields, seen: dict[str, str]) -> str | None:
    name = fields.text("id", required=True)
    if name is None:
        return None
    if not is_id(name):
        fields.fail("BAD_ID", "id", f"{shown(name)} is no id", ID_RULE)
        return None
    if name in seen:
        hint = "give it another id; for several phases use conditional_load with a condition on state.current_phase"
        fields.fail("DUPLICATE_ID", "id", f"the artifact {name} is declared already at {seen[name]}", hint)
    seen.setdefault(name, fields.where)
    return name


def _read_type(fields: Fields) -> str | None:
    wish = fields.raw("type")
    if isinstance(wish, str) and wish.lower() in _COMMAND_WISHES:
        hint = "git_info reads from git; for the rest let a step save the output to a file and declare that file"
        message = f"type {shown(wish)}: Loom runs no commands to fetch an artifact"
        fields.fail("UNKNOWN_ARTIFACT_TYPE", "type", message, hint)
        return None
    if not fields.has("type"):
        fields.fail("MISSING_FIELD", "type", "type is missing", choices(None, TYPES))
        return None
    return fields.choice("type", TYPES, code="UNKNOWN_ARTIFACT_TYPE")


def _check_source(fields: Fields, kind: str, problems: list[Problem]) -> None:
    wanted = ("command",) if kind in COMMAND_TYPES else ("path", "path_from_state")
    other = ("path", "path_from_state") if kind in COMMAND_TYPES else ("command",)
    given = [key for key in wanted if fields.has(key)]
    listed = " or ".join(wanted)
    if not given:
        message = f"an artifact of type {kind} needs {listed}"
        problems.append(error("MISSING_SOURCE", fields.where, message, f"add {listed}"))
    if len(given) > 1:
        message = "path and path_from_state are both set; which one is meant?"
        problems.append(error("AMBIGUOUS_SOURCE", fields.where, message, "keep one of them"))
    for key in other:
        if fields.has(key):
            message = f"{key} means nothing for the type {kind}"
            fields.fail("WRONG_SOURCE", key, message, f"use {listed}, or one of the types that take {key}")


def _read_condition(fields: Fields, when: str) -> str | None:
    condition = fields.text("condition")
    if when == ALWAYS and condition is not None:
        hint = "move the artifact to conditional_load"
        fields.warn("CONDITION_IGNORED", "condition", "always_load knows no conditions: it is ignored", hint)
    if when == CONDITIONAL and not fields.has("condition"):
        hint = "add a condition such as state.artifacts.spec_path != null, or move it to always_load"
        fields.warn("MISSING_CONDITION", "condition", "no condition: it always holds", hint)
    return condition


def _read_triggers(fields: Fields) -> tuple[str, ...]:
    words = fields.texts("reload_triggers", required=True, check=_check_trigger)
    if words == ():
        message = "no triggers: it comes back only when somebody asks for a priming"
        fields.warn("NO_TRIGGERS", "reload_triggers", message, f"known: {', '.join(TRIGGER_WORDS)}")
    return words or ()


def _check_trigger(where: str, word: str) -> Problem | None:
    if triggers.is_trigger(word):
        return None
    return error("UNKNOWN_TRIGGER", where, f"{shown(word)} is no trigger", choices(word, TRIGGER_WORDS))


def _leads_out(path: str) -> bool:
    """Tell whether a path's own `..` parts climb above where it begins."""
    depth = 0
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", ".") and not part.startswith(("{", "<")):
            depth += 1
        if depth < 0:
            return True
    return False
