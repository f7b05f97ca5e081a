"""What a workflow wants to be there: critical artifacts (D13, D14, D16), what must survive, evidence of a step."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.expressions.placeholders import TASK, placeholder_problems
from loomctl.expressions.state_paths import compile_path
from loomctl.kit.ids import is_artifact_name
from loomctl.kit.problems import ID_RULE, Fields, at, choices, error, is_id, kind_of, nearest, objects, shown, warning
from loomctl.kit.text.secrets import mask
from loomctl.runs.model.frozen_plan import LONGEST_RULE, MOST_RULES, is_rule
from loomctl.workflows import triggers
from loomctl.workflows.git_commands import git_command_problem
from loomctl.workflows.survival import ARTIFACT, KEY, KINDS, LONGEST, MOST, PATH, is_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem

FILE_TYPES = ("json", "markdown", "directory")
COMMAND_TYPES = ("work_plugin", "skill", "git_info")
TYPES = (*FILE_TYPES, *COMMAND_TYPES)
LOAD_STRATEGIES = ("full", "summary", "latest_only", "all")
TRIGGER_WORDS = ("session_start", "phase_start:PHASE", "phase_transition:FROM->TO", "compaction_detected", "manual")
ALWAYS, CONDITIONAL, PHASE = "always", "conditional", "phase"
_COMMAND_WISHES = ("command", "shell", "bash", "sh", "exec", "run", "script", "program")
# What a hook can read without a library; the schema's pattern says the same.
_STEP = r"\.[A-Za-z_][A-Za-z0-9_-]*|\[-?(0|[1-9][0-9]{0,8})\]|\['[^'\\]+'\]|\[\"[^\"\\]+\"\]"
_PATH = re.compile(rf"\$({_STEP})+")
_LIST_PATH = re.compile(rf"(\$\.)?[A-Za-z_][A-Za-z0-9_-]*({_STEP})*")
# A word that is made of words, as ids are; and how near an id a text is that may mean it.
_ID = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)+")
_NEAR, _NEAR_WORD = 0.82, 0.72
# A plain word, and how long one is that may be the beginning of an id.
_SHORTEST = 3
_WORD = re.compile(rf"[A-Za-z]{{{_SHORTEST},80}}")
LONGEST_CHECK = 24 * 3600  # seconds of a command that is evidence
MOST_EVIDENCE = 20  # of one step
_SOURCES = ("file", "run", "tests", "state", "condition")  # of evidence
TESTS, PASS, FAIL = "tests", "pass", "fail"
EVIDENCE, PRODUCES, ALLOW = "evidence", "produces", "allow"
_A_RULE = "Write, or Bash(npm test:*)"
FOR_EACH = "for_each"
_LIST_LIKE = "for_each: {list: artifacts.spec_path, section: Tasks}"
_FORMS = 'write a text, "$.path.into.state", an artifact\'s id, or {"text": …}, {"path": …}, {"artifact": …}'


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalArtifact:
    """One declaration. Exactly one of path, path_from_state and command is set, as its type asks for.

    where: its JSON path; when: the group it stands in (ALWAYS, CONDITIONAL, PHASE); phase: that of PHASE. condition:
    without meaning in always_load (D14). extra: unknown keys.
    """

    where: str
    when: str
    phase: str | None
    id: str
    type: str
    required: bool
    reload_triggers: tuple[str, ...]
    description: str | None = None
    path: str | None = None
    path_from_state: str | None = None
    command: str | None = None
    condition: str | None = None
    load_strategy: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def read(of: Fields) -> tuple[tuple[CriticalArtifact, ...], tuple[str, ...]]:
    """Read a workflow's `critical_artifacts`: those declared, in their order, and the phases of phase_specific."""
    fields = of.inner("critical_artifacts")
    if fields is None:
        return (), ()
    groups: list[tuple[str, str | None, list[tuple[str, Any]]]] = [
        (ALWAYS, None, fields.items("always_load") or []),
        (CONDITIONAL, None, fields.items("conditional_load") or []),
    ]
    for name, where, group in fields.entries("phase_specific") or ():
        if isinstance(group, list):
            groups.append((PHASE, name, [(at(where, index), entry) for index, entry in enumerate(group)]))
        else:
            fields.problems.append(error("WRONG_TYPE", where, "expected a list of artifacts"))
    fields.rest()
    seen: dict[str, str] = {}
    found = [
        _read_artifact(opened, when, phase, seen)
        for when, phase, entries in groups
        for where, raw in entries
        if (opened := Fields.opened(raw, where, fields.problems)) is not None
    ]
    return tuple(one for one in found if one is not None), tuple(str(phase) for _, phase, _ in groups[2:])


def declared(raw: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """List the artifacts in a raw workflow with their JSON paths, passing over whatever is no object or list."""
    groups = raw.get("critical_artifacts") if isinstance(raw, dict) else None
    where = at("$", "critical_artifacts")
    yield from objects(groups, "always_load", where)
    yield from objects(groups, "conditional_load", where)
    phases = groups.get("phase_specific") if isinstance(groups, dict) else None
    for name in phases if isinstance(phases, dict) else ():
        yield from objects(phases, name, at(where, "phase_specific"))


def _read_artifact(fields: Fields, when: str, phase: str | None, seen: dict[str, str]) -> CriticalArtifact | None:
    name = _read_id(fields, seen)
    kind = _read_type(fields)
    path, from_state, command = fields.text("path"), fields.text("path_from_state"), fields.text("command")
    if kind is not None:
        _check_source(fields, kind)
    if kind == "git_info" and command is not None:
        reason = git_command_problem(command)
        if reason is not None:
            fields.fail(
                "GIT_COMMAND", "command", f"Loom does not run this git command: {reason}", "git log --oneline -10"
            )
    required = fields.flag("required", required=True)
    for text, key in ((path, "path"), (command, "command")):
        fields.problems += placeholder_problems(text, fields.path(key), optional=required is False)
    if path is not None and _leads_out(path):
        hint = "keep it in the project, or allow its folder under extra_roots in your own config"
        fields.warn("PATH_ESCAPE", "path", "this path leads out of the project; by default Loom does not read it", hint)
    description = fields.text("description", blank=True)
    if description is None or not description.strip():
        message = "no description: say in a sentence what this is for; Loom shows it to people"
        fields.warn("MISSING_DESCRIPTION", "description", message)
    condition = _read_condition(fields, when)
    strategy = fields.choice("load_strategy", LOAD_STRATEGIES)
    words = _read_triggers(fields)
    extra = fields.rest()
    if name is None or kind is None:
        return None
    return CriticalArtifact(
        where=fields.where,
        when=when,
        phase=phase,
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
        fields.fail("BAD_ID", "id", f"{shown(name)} is not a valid id", ID_RULE)
        return None
    if name in seen:
        hint = "give it another id; for several phases use conditional_load with a condition on state.current_phase"
        fields.fail("DUPLICATE_ID", "id", f"{seen[name]} declares the artifact {name} already", hint)
    seen.setdefault(name, fields.where)
    return name


def _read_type(fields: Fields) -> str | None:
    wish = fields.raw("type")
    if isinstance(wish, str) and wish.lower() in _COMMAND_WISHES:
        hint = "git_info reads from git; otherwise let a step save the output to a file and declare that file"
        message = f"type {shown(wish)}: Loom runs no commands to fetch an artifact"
        fields.fail("UNKNOWN_ARTIFACT_TYPE", "type", message, hint)
        return None
    if not fields.has("type"):
        fields.fail("MISSING_FIELD", "type", "type is missing", choices(None, TYPES))
        return None
    return fields.choice("type", TYPES, code="UNKNOWN_ARTIFACT_TYPE")


def _check_source(fields: Fields, kind: str) -> None:
    wanted = ("command",) if kind in COMMAND_TYPES else ("path", "path_from_state")
    other = ("path", "path_from_state") if kind in COMMAND_TYPES else ("command",)
    given = [key for key in wanted if fields.has(key)]
    listed = " or ".join(wanted)
    if not given:
        message = f"an artifact of type {kind} needs {listed}"
        fields.fail("MISSING_SOURCE", "", message, f"add {listed}")
    if len(given) > 1:
        message = "path and path_from_state are both set; which one is meant?"
        fields.fail("AMBIGUOUS_SOURCE", "", message, "keep one of them")
    for key in other:
        if fields.has(key):
            message = f"an artifact of type {kind} has no {key}"
            fields.fail("WRONG_SOURCE", key, message, f"use {listed}, or a type that takes {key}")


def _read_condition(fields: Fields, when: str) -> str | None:
    condition = fields.text("condition")
    if when == ALWAYS and condition is not None:
        hint = "move the artifact to conditional_load"
        fields.warn("CONDITION_IGNORED", "condition", "always_load has no conditions; Loom ignores this one", hint)
    if when == CONDITIONAL and not fields.has("condition"):
        hint = "add a condition such as state.artifacts.spec_path != null, or move it to always_load"
        fields.warn("MISSING_CONDITION", "condition", "no condition: it always holds", hint)
    return condition


def _read_triggers(fields: Fields) -> tuple[str, ...]:
    words = fields.texts("reload_triggers", required=True, check=_check_trigger)
    if words == ():
        message = "no triggers: Loom loads it only when somebody runs loomctl prime-context"
        fields.warn("NO_TRIGGERS", "reload_triggers", message, f"the triggers are: {', '.join(TRIGGER_WORDS)}")
    return words or ()


def _check_trigger(where: str, word: str) -> Problem | None:
    if triggers.is_trigger(word):
        return None
    return error("UNKNOWN_TRIGGER", where, f"unknown trigger {shown(word)}", choices(word, TRIGGER_WORDS))


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


# ---- What must survive.


def read_must_survive(fields: Fields) -> tuple[str | dict[str, Any], ...]:
    """Take `must_survive` from a workflow as it stands there; what is wrong with an entry is reported."""
    entries = fields.items(KEY) or []
    if len(entries) > MOST:
        fields.fail("TOO_MANY", KEY, f"{len(entries)} items; at most {MOST} are allowed", "name an artifact")
    for where, entry in entries:
        fields.problems += entry_problems(entry, where)
    return tuple(entry for _, entry in entries if isinstance(entry, (str, dict)))


def entry_problems(entry: object, where: str) -> list[Problem]:
    """Find what is wrong with one item, whatever the plan declares."""
    if isinstance(entry, str):
        return list(_value_problems(entry, PATH if is_path(entry) else "", where))
    if not isinstance(entry, dict):
        return [error("WRONG_TYPE", where, f"expected text or an object, got {kind_of(entry)}", _FORMS)]
    said = [kind for kind in KINDS if kind in entry]
    if len(said) != 1:
        return [error("BAD_ITEM", where, f"an item needs exactly one of {', '.join(KINDS)}", _FORMS)]
    value, place = entry[said[0]], at(where, said[0])
    if not isinstance(value, str):
        return [error("WRONG_TYPE", place, f"{said[0]}: expected text, got {kind_of(value)}", _FORMS)]
    return list(_value_problems(value, said[0], place))


def _value_problems(value: str, kind: str, where: str) -> Iterator[Problem]:
    if not value.strip():
        yield error("EMPTY_TEXT", where, "this item is empty", "leave it out")
    elif len(value) > LONGEST:
        hint = "put it into a file, declare that as an artifact, and name the artifact here"
        yield error("TOO_LONG", where, f"an item may have {LONGEST:,} characters; this one has {len(value):,}", hint)
    elif kind == PATH and not (_PATH.fullmatch(value) and compile_path(value) is not None):
        hint = 'use names and places only: $.goal, $.context["release.date"]; for a text like that: {"text": …}'
        yield error("PATH_SYNTAX", where, f"hooks cannot read the path {shown(value)}", hint)
    elif mask(value)[1]:
        message = "this looks like a secret: Loom masks it for the assistant, but everybody can read it in the file"
        yield warning("SECRET", where, message, "describe the item without the secret")


def everything_said(raw: Mapping[str, Any]) -> str:
    """Give all that a workflow or a run says, but for what must survive: a word that stands there is no made-up id."""
    return json.dumps({key: value for key, value in raw.items() if key != KEY}, ensure_ascii=False, default=str)


def unknown_artifact(
    entry: object, where: str, ids: Collection[str], said: str, hint: Callable[[str, str], str] | None = None
) -> Iterator[Problem]:
    """Find that an item names an artifact that is not declared, or looks as if it were to name one.

    ids: those declared; said: as `everything_said` gives it; hint: gives, of the item and the artifact that may be
    meant ("" for none), what mends it; by default what to write into a workflow.
    """
    name = entry.get(ARTIFACT) if isinstance(entry, dict) else None
    if isinstance(name, str) and name not in ids:
        yield error(
            "UNKNOWN_ARTIFACT", at(where, ARTIFACT), f"there is no artifact {shown(name)}", choices(name, list(ids))
        )
    if not isinstance(entry, str) or entry in ids:
        return
    meant = nearest(entry, list(ids), cutoff=_NEAR if " " in entry else _NEAR_WORD) or _short_for(entry, ids)
    mends = hint(entry, meant) if hint is not None else _to_write(entry, meant, list(ids))
    if meant:
        what = f"{shown(entry)} is a text; did you mean the artifact {meant}?"
        yield warning("POSSIBLE_TYPO", where, what, mends)
    elif _ID.fullmatch(entry) and entry not in said:
        message = f"{shown(entry)} looks like an artifact's id, but there is none; Loom takes it as a text"
        yield warning("POSSIBLE_TYPO", where, message, mends)


def _short_for(entry: str, ids: Collection[str]) -> str:
    """Give the artifact whose id, or a word of it, begins as a plain word does (`spec`, `specs`: `specification`)."""
    if not _WORD.fullmatch(entry):
        return ""
    stem = entry.lower()
    stem = stem.removesuffix("s") if len(stem) > _SHORTEST else stem
    begins = (one for one in ids if any(part.startswith(stem) for part in re.split(r"[-_.]", one.lower())))
    return next(begins, "")


def _to_write(entry: str, meant: str, ids: list[str]) -> str:
    outright = f'{{"text": {json.dumps(mask(entry)[0], ensure_ascii=False)}}} if you mean the text'
    return f"{f'write {meant} if you mean the artifact' if meant else choices(entry, ids)}; {outright}"


# ---- Evidence of a step.


def read_evidence(fields: Fields) -> tuple[dict[str, Any], ...] | None:
    """Take what a step has to show before it counts as done; None where it says nothing of it."""
    entries = fields.items(EVIDENCE)
    if entries is None:
        return None
    if len(entries) > MOST_EVIDENCE:
        fields.fail("OUT_OF_RANGE", EVIDENCE, f"{len(entries)} pieces of evidence; at most {MOST_EVIDENCE} are allowed")
    also = own_placeholders(fields)
    found = (_piece(raw, where, fields.problems, also) for where, raw in entries[:MOST_EVIDENCE])
    return tuple(one for one in found if one is not None)


def read_produces(fields: Fields) -> tuple[str | dict[str, str], ...] | None:
    """Take what a step has to leave before it counts as done, each name once: `name`, or `{name: path}` (D66)."""
    entries = fields.items(PRODUCES)
    if entries is None:
        return None
    if len(entries) > MOST_EVIDENCE:
        fields.fail("OUT_OF_RANGE", PRODUCES, f"{len(entries)} names; at most {MOST_EVIDENCE} are allowed")
    found: dict[str, str | dict[str, str]] = {}
    for where, entry in entries:
        said = list(entry.items()) if isinstance(entry, dict) else [(entry, "")]
        if len(said) != 1 or not all(isinstance(text, str) for text in said[0]):
            message = "expected a name, or one name with its path"
            fields.problems.append(
                error("WRONG_TYPE", where, message, 'spec_path, or {spec_path: "{run_dir}/spec.md"}')
            )
            continue
        (name, path), has_path = said[0], isinstance(entry, dict)
        fields.problems += [*_unfit_name(where, name), *(_unfit_place(at(where, name), path) if has_path else ())]
        found.setdefault(name, {name: path} if has_path else name)
    return tuple(found.values())


def read_allow(fields: Fields) -> tuple[str, ...] | None:
    """Take the rules of what an assistant may use at a step, or at all, without being asked: each once, as written."""
    entries = fields.items(ALLOW)
    if entries is None:
        return None
    if len(entries) > MOST_RULES:
        fields.fail("TOO_MANY", ALLOW, f"{len(entries)} rules; at most {MOST_RULES} are allowed")
    for where, entry in entries:
        if not isinstance(entry, str):
            fields.problems.append(error("WRONG_TYPE", where, f"expected text, got {kind_of(entry)}", _A_RULE))
        elif not is_rule(entry):
            message = f"{shown(entry)} is no rule: one line of 1 to {LONGEST_RULE} characters, without a dash in front"
            fields.problems.append(error("BAD_RULE", where, message, _A_RULE))
    return tuple(dict.fromkeys(entry for _, entry in entries if isinstance(entry, str)))


def _unfit_name(where: str, name: str) -> Iterator[Problem]:
    if not is_artifact_name(name):
        rule = "a name begins with a letter and has letters, digits, _ and -, at most 64 characters: spec_path"
        yield error("BAD_ID", where, f"{shown(name)} is not a valid artifact name", rule)


def _unfit_place(where: str, path: str) -> Iterator[Problem]:
    yield from placeholder_problems(path, where)
    if not path.strip():
        yield error("EMPTY_TEXT", where, "the path is empty", "leave it out: write the name alone")
    elif path.startswith("/") or "\0" in path or ".." in path.replace("\\", "/").split("/"):
        yield error("PATH_ESCAPE", where, f"{shown(path)} leads out of the project", "begin it with {run_dir}/")


def _piece(raw: object, where: str, problems: list[Problem], also: Sequence[str]) -> dict[str, Any] | None:
    if isinstance(raw, str):
        raw = {"file": raw}
    if not isinstance(raw, dict):
        message = f"expected a path or an object, got {kind_of(raw)}"
        problems.append(error("WRONG_TYPE", where, message, '"dist/report.html", or {"run": "pytest -q"}'))
        return None
    fields = Fields(raw, where, problems)
    given = [key for key in _SOURCES if fields.has(key)]
    if len(given) != 1:
        message = f"evidence needs exactly one of {', '.join(_SOURCES)}; found {' and '.join(given) or 'none'}"
        fields.fail("ONE_EVIDENCE", "", message, '{"file": "dist/report.html"}')
    file, run = fields.text("file"), fields.text("run")
    found = {
        "file": file if file is None or _is_pattern(fields, file) else None,
        "changed": fields.flag("changed"),
        "run": run,
        TESTS: fields.choice(TESTS, (PASS, FAIL)),
        "timeout": fields.seconds("timeout", most=LONGEST_CHECK),
        "state": fields.text("state"),
        "condition": fields.text("condition"),
    }
    fields.rest()
    for key, text in (("file", file), ("run", run)):
        fields.problems += placeholder_problems(text, fields.path(key), also=also)
    for key, of in (("changed", ("file",)), ("timeout", ("run", TESTS))):
        if fields.has(key) and not any(fields.has(one) for one in of):
            fields.warn("IGNORED_FIELD", key, f"Loom ignores {key}: only evidence with {' or '.join(of)} has it")
    return {key: value for key, value in found.items() if value is not None}


def _is_pattern(fields: Fields, text: str) -> bool:
    parts = text.replace("\\", "/").split("/")
    if ".." in parts:
        fields.fail("PATH_ESCAPE", "file", f"{shown(text)} leads out of the project", "name a file below it")
    elif "\0" in text or any("**" in part and part != "**" for part in parts):
        fields.fail(
            "BAD_GLOB", "file", f"invalid pattern {shown(text)}: ** must be alone between slashes", "dist/**/*.js"
        )
    else:
        return True
    return False


# ---- The task list that a step goes through.


def own_placeholders(step: Fields) -> Sequence[str]:
    """Give the placeholders that are known in a step and nowhere else."""
    return (TASK,) if step.has(FOR_EACH) else ()


def read_for_each(fields: Fields) -> dict[str, Any] | None:
    """Take the task list of a step, in its long form; None where it has none (D65)."""
    if isinstance(fields.raw(FOR_EACH), str):
        path, where = fields.text(FOR_EACH) or "", fields.path(FOR_EACH)
        said: dict[str, Any] = {"list": path}
    else:
        inner = fields.inner(FOR_EACH)
        if inner is None:
            return None
        path, where = inner.text("list", required=True) or "", inner.path("list")
        own = {"list": path, "section": inner.text("section"), "allow_empty": inner.flag("allow_empty")}
        said = {**{key: value for key, value in own.items() if value is not None}, **inner.rest()}
    if path and (_LIST_PATH.fullmatch(path) is None or not compile_path(path)):
        message = f"hooks cannot read the path {shown(path)}: use names and places only"
        fields.problems.append(error("PATH_SYNTAX", where, message, _LIST_LIKE))
    return said
