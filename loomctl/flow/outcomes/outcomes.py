"""What the end of a step means: its response read as its kind and its output schema ask for (D33 to D36)."""

from __future__ import annotations

from itertools import pairwise

from loomctl.flow.outcomes import directives, json_objects
from loomctl.flow.outcomes.directives import LAST_FILE, RESPONSE, ROUTING, STATUS_JSON, Fault, Reading, Source, mended
from loomctl.kit.records import NamedTuple

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
    looked = part(response)
    notes = passed_over(RESPONSE, response, looked)
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
        errors = [Fault("SCHEMA_FAILED", "", f"the object cannot be held against the schema: {answer.message}")]
    else:
        errors = [Fault("NEEDS_ENVIRONMENT", "", f"the schema cannot be asked here: {answer.message}")]
    return Reading(found=True, source=RESPONSE, errors=errors)


LONGEST = 1 << 19  # characters; no model writes as many in one message


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
    seen = f"{name}: of {len(text):,} characters the last {len(looked.text):,} were looked at for a result"
    return [Fault("PARTLY_READ", "", seen)]


def _unfenced(text: str) -> str:
    bare = text.strip()
    if not (bare.startswith("```") and bare.endswith("```")):
        return bare
    return bare[bare.find("\n") + 1 : -3].strip()
