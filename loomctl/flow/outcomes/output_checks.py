"""What a response that breaks its step's output schema is answered with: the corrective message, and the end (D36)."""

from __future__ import annotations

from loomctl.flow.outcomes.directives import FIELDS, ROUTING
from loomctl.runs.model.visits import OUTCOMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.outcomes.directives import Fault, Reading

RETRIES = 2  # where a step says nothing
MOST_ERRORS = 5
_MOST_FIRST = 3
_LONGEST_ERROR = 300
_LONGEST_EXPECTED = 800
_NOT_THE_RESPONSES = ("NEEDS_ENVIRONMENT",)


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
    lines = [f"The response of step {step['key']}{file} does not match its output schema, {_name(step)}:", ""]
    lines += [f"- {_told(one)}" for one in reading.errors[:MOST_ERRORS]]
    if len(reading.errors) > MOST_ERRORS:
        lines.append(f"- and {len(reading.errors) - MOST_ERRORS} more")
    asked = "Answer with the corrected JSON object alone: no other text, no code fence."
    return "\n".join([*lines, "", f"Expected: {_expected(step)}", "", f"{asked} (Correction {attempt} of {allowed}.)"])


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
        f"The result is checked against the output schema {_name(step)}; the last JSON object in it counts. "
        f"Expected: {_expected(step)}"
    )
    if _says_all(step) or not plan_path:
        return told
    return f"{told}. All of it: `schema` of {step['key']} in {plan_path}"


_SAID = frozenset(("type", "enum"))
_SAYS_NOTHING = frozenset(("title", "description", "examples", "default", "$schema", "$id", "$comment"))
_MOST_VALUES = 8


def _says_all(step: Mapping[str, Any]) -> bool:
    """Tell whether the words for a step's schema leave nothing of it out."""
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
