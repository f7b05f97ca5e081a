"""What a step's answer means: its response and, for an agent, the files that may stand in for it (D35)."""

from __future__ import annotations

import os
from itertools import pairwise

from loomctl.flow.outcomes import directives
from loomctl.flow.outcomes.directives import (
    FIELDS,
    LAST_FILE,
    RESPONSE,
    ROUTING,
    STATUS_JSON,
    Fault,
    Reading,
    Source,
    mended,
)
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.visits import OUTCOMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

LARGEST_SOURCE = 1 << 20  # bytes of a file that may stand in for a response
ENDINGS = (".json", ".md")  # of the file touched last, where it may hold a directive
_ROUTING = "routing"
RETRIES = 2  # where a step says nothing
MOST_ERRORS = 5
_MOST_FIRST = 3
_LONGEST_ERROR = 300
_LONGEST_EXPECTED = 800
_NOT_THE_RESPONSES = ("NEEDS_ENVIRONMENT",)
_SAID = frozenset(("type", "enum"))
_SAYS_NOTHING = frozenset(("title", "description", "examples", "default", "$schema", "$id", "$comment"))
_MOST_VALUES = 8
LONGEST = 1 << 19  # characters; no model writes as many in one message


def read(
    space: Workspace,
    run: Run,
    entry: Mapping[str, Any],
    step: Mapping[str, Any],
    response: str | None,
    *,
    alone: bool = False,
) -> Reading:
    """Read what a visit answered. Raises nothing for what a response or a file holds.

    A file counts only if it was written during the visit; a prompt step's answer is its response alone. alone: so is
    this one, for nobody gave it as a response: it may be a question, whatever a file says (D27).
    """
    beside: list[_Beside] = []
    if not alone and step.get("kind", "agent") == "agent" and not is_custom(step):
        from loomctl.changes import track  # a message that nobody gave as an answer needs none

        since = track.began_at(space, run, entry)
        workdir = _workdir(space, run, step)
        status_json = os.path.join(workdir, STATUS_JSON)
        touched = track.last_written(space, run, entry) or ""
        roots = (space.project.root, run.folder, workdir)
        beside.append(_beside(roots, STATUS_JSON, status_json, since))
        if touched.endswith(ENDINGS) and touched != status_json:
            beside.append(_beside(roots, LAST_FILE, touched, since))
    texts = {one.source: one.text for one in beside}
    reading = understood(
        step,
        response or "",
        status_json=texts.get(STATUS_JSON),
        last_file=texts.get(LAST_FILE),
        environment_python=space.caller.environment_python,
    )
    return _with_files(reading, beside)


class _Beside(NamedTuple):
    """A file that may stand in for a response. source: STATUS_JSON or LAST_FILE; text: None where it does not count.

    path: from the project's root, the run's folder or the step's workdir; fault: why it was not read though it might
    count.
    """

    source: str
    path: str
    text: str | None = None
    fault: Fault | None = None


def _beside(roots: Sequence[str], source: str, path: str, since: int) -> _Beside:
    from loomctl.runs.artifact_paths import is_inside, real

    try:
        there = os.path.realpath(path)
    except ValueError:  # no file has such a name
        return _Beside(source, "")
    folder = next((one for one in roots if is_inside(there, real(one))), None)
    if folder is None:
        return _Beside(source, "")
    shown = mended(os.path.relpath(there, real(folder)))
    try:
        return _Beside(source, shown, _written_since(there, since))
    except LoomError as error:
        return _Beside(source, shown, fault=Fault("PASSED_OVER", "", f"Loom ignored {shown}: {error.what}"))


def _with_files(reading: Reading, beside: Sequence[_Beside]) -> Reading:
    file = next((one.path for one in beside if one.source == reading.source), None)
    names = [one.source for one in beside]
    before = 0 if reading.source == RESPONSE else names.index(reading.source) if reading.source in names else len(names)
    faults = [one.fault for one in beside[:before] if one.fault is not None]
    if reading.errors and not reading.found:
        return reading._replace(errors=[*reading.errors, *faults])
    return reading._replace(file=file, warnings=[*faults, *reading.warnings])


def fits(step: Mapping[str, Any], reading: Reading) -> bool:
    """Tell whether an answer holds what its step asks for (D36)."""
    return reading.found and not reading.errors if step.get("output_schema") else True


def how(step: Mapping[str, Any], reading: Reading) -> str:
    """Tell whether a message that nobody gave as an answer holds a result: `ABSENT`, `FITS` or `UNFIT`."""
    if not step.get("output_schema"):
        return directives.FITS if _says_something(reading) else directives.ABSENT
    if fits(step, reading):
        return directives.FITS
    if reading.errors and not can_be_repaired(reading) and reading.found:
        return directives.ABSENT  # nobody here can tell: `loomctl done` can
    return directives.ABSENT if is_absent(reading) else directives.UNFIT


def _says_something(reading: Reading) -> bool:
    """Tell whether a directive that was read loosely says how a step ended: JSON that merely has such a key does not.

    One whose outcome is no word of D32 might mean a failure; it is not taken for a success.
    """
    if any(one.where == "/outcome" for one in reading.warnings):
        return False
    said = (reading.outcome, reading.preferred_next_label, reading.suggested_next_ids, reading.context_updates)
    return reading.found and any(said)


def is_custom(step: Mapping[str, Any]) -> bool:
    """Tell whether a step asks for an object of its own schema, which does not route (D35)."""
    return step.get("output_schema") not in (None, _ROUTING)


def _workdir(space: Workspace, run: Run, step: Mapping[str, Any]) -> str:
    """Give the folder that a step works in: in the project, or where its user allows one; else the project's root."""
    from loomctl.runs import artifact_paths
    from loomctl.runs.artifact_paths import is_inside, real

    root = space.project.root
    path = os.path.join(root, artifact_paths.workdir(space.project, run, step) or "")
    allowed = (root, *space.settings.extra_roots)
    return path if any(is_inside(real(path), real(one)) for one in allowed) else root


def _written_since(path: str, since: int) -> str | None:
    """Read a file that was written at or after a time in nanoseconds; None for every other. Raises TOO_LARGE."""
    try:
        if os.stat(path).st_mtime_ns < since:
            return None
        return files.read_bytes(path, limit=LARGEST_SOURCE).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def retries(step: Mapping[str, Any]) -> int:
    """Give how many corrective turns a step's response has: 2 where it does not say, a negative number is none."""
    said = step.get("output_retries")
    return RETRIES if said is None else max(0, int(said))


def can_be_repaired(reading: Reading) -> bool:
    """Tell whether there are errors that another response could mend."""
    return bool(reading.errors) and not any(one.code in _NOT_THE_RESPONSES for one in reading.errors)


def repair_message(step: Mapping[str, Any], reading: Reading, attempt: int, allowed: int) -> str:
    """Ask for a corrected response: which schema, what is wrong, what is expected, JSON alone.

    attempt: the number of this corrective turn, from 1, of `allowed`.
    """
    file = f" ({_cut(reading.file, _LONGEST_ERROR)})" if reading.file else ""
    lines = [f"The result of step {step['key']}{file} does not match its output schema, {_name(step)}:", ""]
    lines += [f"- {_told(one)}" for one in reading.errors[:MOST_ERRORS]]
    if len(reading.errors) > MOST_ERRORS:
        lines.append(f"- and {len(reading.errors) - MOST_ERRORS} more")
    asked = "Answer with the corrected JSON object alone: no other text, no code fence."
    return "\n".join([*lines, "", f"Expected: {_expected(step)}", "", f"{asked} {correction(attempt, allowed)}"])


def correction(attempt: int, allowed: int) -> str:
    """Say which corrective turn this is, and of the last one what comes after it."""
    last = "; after it the step fails" if attempt == allowed else ""
    return f"(Correction {attempt} of {allowed}{last}.)"


def exhausted(allowed: int) -> str:
    """Say that no corrective turn is left; the step's failure reason."""
    return f"output schema validation failed after {allowed} repair attempt(s)"


def first_errors(reading: Reading) -> str:
    """Name the first three of what is wrong with a response, in one line."""
    told = [_told(one) for one in reading.errors[:_MOST_FIRST]]
    more = len(reading.errors) - _MOST_FIRST
    return "; ".join([*told, *([f"and {more} more"] if more > 0 else [])])


def _told(one: Fault) -> str:
    return _cut((f"{one.where}: " if one.where else "") + one.message, _LONGEST_ERROR)


def _name(step: Mapping[str, Any]) -> str:
    return str(step.get("output_schema") or ROUTING).removeprefix("@")


def instruction(step: Mapping[str, Any], plan_path: str | None) -> str:
    """Say before the first answer what a correction would ask for, so that none is needed.

    plan_path: where the whole schema stands, named where its words here leave something out.
    """
    told = (
        f"Loom checks the last JSON object of the result against the output schema {_name(step)}. "
        f"Expected: {_expected(step)}"
    )
    if _says_all(step) or not plan_path:
        return told
    return f"{told}. The whole schema: `schema` of {step['key']} in {plan_path}"


def _says_all(step: Mapping[str, Any]) -> bool:
    schema = step.get("schema")
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    every = properties.values() if isinstance(properties, dict) else ()
    rest = schema.keys() - _SAYS_NOTHING - {"type", "properties", "required"}
    return (
        not rest
        and len(_fields(schema)) <= _LONGEST_EXPECTED
        and all(isinstance(one, dict) and _is_said(one) for one in every)
    )


def _is_said(field: Mapping[str, Any]) -> bool:
    values = field.get("enum", [])
    few = isinstance(values, list) and len(values) <= _MOST_VALUES
    return few and field.keys() <= _SAID | _SAYS_NOTHING and field.get("type") not in ("object", "array")


def _expected(step: Mapping[str, Any]) -> str:
    if step.get("output_schema") == ROUTING:
        return (
            f"one JSON object with at least one of {', '.join(FIELDS)}; outcome is one of {', '.join(OUTCOMES)}; "
            "failure_reason and preferred_next_label are text, suggested_next_ids is a list of text, "
            "context_updates is an object"
        )
    schema = step.get("schema")
    return _cut(_fields(schema if isinstance(schema, dict) else {}), _LONGEST_EXPECTED)


def _fields(schema: Mapping[str, Any]) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, dict) else {}
    needed = [key for key in required if isinstance(key, str)] if isinstance(required, list) else []
    keys = [*needed, *(key for key in known if key not in needed)]
    told = [_field(key, known.get(key), key in needed) for key in keys]
    return "one JSON object" + (f" with {', '.join(told)}" if told else " that the schema accepts")


def _field(key: str, schema: object, needed: bool) -> str:  # noqa: FBT001 - told by position
    said = schema if isinstance(schema, dict) else {}
    kind = said.get("type")
    words = [*([kind] if isinstance(kind, str) else kind if isinstance(kind, list) else [])]
    values = said.get("enum")
    if isinstance(values, list):
        words.append("one of " + " | ".join(str(value) for value in values[:_MOST_VALUES]))
    notes = [" or ".join(map(str, words[:3])) if words else "", "" if needed else "optional"]
    note = ", ".join(one for one in notes if one)
    return f"{key} ({note})" if note else key


def _cut(text: str, limit: int) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"


def understood(
    step: Mapping[str, Any],
    response: str,
    *,
    status_json: str | None = None,
    last_file: str | None = None,
    environment_python: str | None = None,
) -> Reading:
    """Read what a step's response means.

    step: of the plan; its `kind`, `output_schema` (None, "routing" or "@…") and, for the last, `schema` count.
    status_json, last_file: the texts of the fallbacks (D35), None where there is none; only an agent's count, and not
    for a custom schema. environment_python: the made environment's interpreter, None for this one. A schema that
    cannot be asked is an error, NEEDS_ENVIRONMENT (no repair helps). Raises nothing for what the texts hold.
    """
    asked = step.get("output_schema")
    looked = part(response)
    notes = passed_over(RESPONSE, response, looked)
    if asked is not None and asked != ROUTING:
        return _with_notes(_custom(step.get("schema"), looked, environment_python), notes)
    sources = [Source(RESPONSE, looked.text)]
    if step.get("kind", "agent") == "agent":
        fallbacks = ((STATUS_JSON, status_json), (LAST_FILE, last_file))
        sources += [Source(name, text) for name, text in fallbacks if text is not None]
    return _with_notes(directives.read(sources, asked), notes)


def _with_notes(reading: Reading, notes: list[Fault]) -> Reading:
    """Add what was not looked at: to the errors where there are some, for that may be why; else to the warnings."""
    if reading.errors:
        return reading._replace(errors=[*reading.errors, *notes])
    return reading._replace(warnings=[*notes, *reading.warnings])


def is_absent(reading: Reading) -> bool:
    """Tell whether a response holds nothing that was meant for its step's schema, not even something broken."""
    return not reading.found


def _custom(schema: Any, looked: Part, environment_python: str | None) -> Reading:
    value, wrong = directives.last_object(looked.text) if looked.alone is None else (mended(looked.alone), None)
    if wrong is not None:
        found = wrong.code != "NO_OBJECT"
        return Reading(found=found, source=RESPONSE if found else None, errors=[wrong])
    from loomctl.expressions import engine  # most steps have no schema of their own

    answer = engine.held_against(value, schema, environment_python=environment_python)
    if answer.status == "ok" and not answer.value:
        return Reading(found=True, source=RESPONSE, output=value)
    if answer.status == "ok":
        errors = [Fault("SCHEMA", where, message) for where, message in answer.value]
    elif answer.status == "threw":
        errors = [Fault("SCHEMA_FAILED", "", f"Loom cannot check the object against the schema: {answer.message}")]
    else:
        errors = [
            Fault("NEEDS_ENVIRONMENT", "", f"Loom cannot check the answer against its schema here: {answer.message}")
        ]
    return Reading(found=True, source=RESPONSE, errors=errors)


class Part(NamedTuple):
    """What is looked at of a text. left: the characters before it; alone: the object, where the text is just one."""

    text: str
    left: int = 0
    alone: dict[str, Any] | None = None


def part(text: str) -> Part:
    """Give a text of up to LONGEST characters, and one of any length that is an object alone, fenced or not.

    Of every other its end, from behind the last closing brace that closes no object there: an object that stands before
    such a brace may be a part of one that begins before the end, and would not be looked at in the whole text.
    """
    if len(text) <= LONGEST:
        return Part(text)
    from loomctl.flow.outcomes import json_objects  # many messages have no object

    alone = json_objects.alone(_unfenced(text))
    if alone is not None:
        return Part(text, 0, alone)
    end = text[-LONGEST:]
    spans = [(found.start, found.end) for found in json_objects.objects(end)]
    begins = 0
    for (_, before), (after, _) in pairwise([(0, 0), *spans, (len(end), 0)]):
        begins = max(begins, end.rfind("}", before, after) + 1)
    return Part(end[begins:], len(text) - len(end) + begins)


def passed_over(name: str, text: str, looked: Part) -> list[Fault]:
    """Say what was not looked at. name: where the text stands."""
    if not looked.left:
        return []
    seen = f"{name}: Loom looked for a result in the last {len(looked.text):,} of {len(text):,} characters"
    return [Fault("PARTLY_READ", "", seen)]


def _unfenced(text: str) -> str:
    bare = text.strip()
    if not (bare.startswith("```") and bare.endswith("```")):
        return bare
    return bare[bare.find("\n") + 1 : -3].strip()
