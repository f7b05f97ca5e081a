"""What the end of a step means: its response read as its kind and its output schema ask for (D33 to D36)."""

from __future__ import annotations

from loomctl.flow.outcomes import directives, long_answers
from loomctl.flow.outcomes.directives import LAST_FILE, RESPONSE, ROUTING, STATUS_JSON, Fault, Reading, Source, mended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


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
    looked = long_answers.part(response)
    notes = long_answers.passed_over(RESPONSE, response, looked)
    if asked is not None and asked != ROUTING:
        return _told(_custom(step.get("schema"), looked, environment_python), notes)
    sources = [Source(RESPONSE, looked.text)]
    if step.get("kind", "agent") == "agent":
        fallbacks = ((STATUS_JSON, status_json), (LAST_FILE, last_file))
        sources += [Source(name, text) for name, text in fallbacks if text is not None]
    return _told(directives.read(sources, asked), notes)


def _told(reading: Reading, notes: list[Fault]) -> Reading:
    """Add what was not looked at: to the errors where there are some, for that may be why; else to the warnings."""
    if reading.errors:
        return reading._replace(errors=[*reading.errors, *notes])
    return reading._replace(warnings=[*notes, *reading.warnings])


def is_absent(reading: Reading) -> bool:
    """Tell whether a response holds nothing that was meant for its step's schema, not even something broken."""
    return not reading.found


def _custom(schema: Any, looked: long_answers.Part, environment_python: str | None) -> Reading:
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
        errors = [Fault("SCHEMA_FAILED", "", f"the object cannot be held against the schema: {answer.message}")]
    else:
        errors = [Fault("NEEDS_ENVIRONMENT", "", f"the schema cannot be asked here: {answer.message}")]
    return Reading(found=True, source=RESPONSE, errors=errors)
