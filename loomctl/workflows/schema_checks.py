"""What the JSON Schemas of the bundle say against a file, in words."""

from __future__ import annotations

import json
import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from loomctl.expressions.output_schemas import TYPES
from loomctl.kit import files
from loomctl.kit.json.strict_json import MOST_PROBLEMS
from loomctl.kit.problems import at, choices, error, errors, kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jsonschema.exceptions import ValidationError

    from loomctl.kit.problems import Problem


def schema(kind: str, *, bundle: str) -> dict[str, Any]:
    """Give a schema by its name: `workflow`, `plan`, `state`, `tool_step`, `status`, `changes`, `report`."""
    read: dict[str, Any] = files.read_json(os.path.join(bundle, "config", f"{kind}.schema.json"))
    return read


def problems(raw: object, kind: str, *, bundle: str) -> list[Problem]:
    """Give what the schema says, by place: the first MOST_PROBLEMS of it."""
    from jsonschema import Draft202012Validator

    found = Draft202012Validator(schema(kind, bundle=bundle)).iter_errors(raw)
    said = dict.fromkeys(islice((problem for refused in found for problem in _said(refused)), MOST_PROBLEMS))
    return sorted(said, key=lambda problem: problem.where)


def beyond(raw: object, kind: str, *, bundle: str, known: Sequence[Problem]) -> Iterator[Problem]:
    """Give what the schema says of places that no error in `known` speaks of already; nothing where it says enough."""
    spoken = [problem.where for problem in errors(known)]
    if len(spoken) >= MOST_PROBLEMS:
        return
    for problem in problems(raw, kind, bundle=bundle):
        if not any(_related(problem.where, where) for where in spoken):
            spoken.append(problem.where)
            yield problem


def _related(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return longer == shorter or (shorter != "$" and longer.startswith((shorter + ".", shorter + "[")))


def _said(refused: ValidationError) -> Iterator[Problem]:
    where = at("$", *refused.absolute_path)
    rule: str = str(refused.validator)
    value: Any = refused.instance
    limit: Any = refused.validator_value
    if rule == "required":
        for key in limit:
            if key not in value:
                yield error("MISSING_FIELD", at(where, key), f"{key} is missing")
    elif rule == "type":
        wanted = " or ".join(TYPES[name] for name in ([limit] if isinstance(limit, str) else limit))
        yield error("WRONG_TYPE", where, f"expected {wanted}, got {kind_of(value)}")
    elif rule in ("enum", "const"):
        words = [word for word in (limit if rule == "enum" else [limit]) if isinstance(word, str)]
        hint = choices(value, words) if words else f"expected {json.dumps(limit)}"
        yield error("UNKNOWN_VALUE", where, f"{shown(value)} is not known here", hint)
    elif rule == "pattern":
        yield error("BAD_TEXT", where, f"{shown(value)} does not have the form {limit}")
    elif rule == "minimum":
        yield error("OUT_OF_RANGE", where, f"{value} is below {limit}")
    else:
        about = refused.schema.get("description", "") if isinstance(refused.schema, dict) else ""
        yield error("SCHEMA", where, f"this does not have the form that the schema asks for. {about}".strip())
