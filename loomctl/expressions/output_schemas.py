"""Custom JSON Schemas of steps: loaded beside their workflow and checked (D35), and what they say against a value."""

from __future__ import annotations

import json
import os
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import files, strict
from loomctl.kit.errors import LoomError
from loomctl.kit.problems import at, error, kind_of, shown, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jsonschema.exceptions import ValidationError

    from loomctl.kit.problems import Problem

LARGEST = 256 << 10
MOST_ERRORS = 5  # that anybody is told of one value (D36)
_LOOKED_AT = 50  # of what a schema says; the nearest to the top are told
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = ("const", "enum", "default", "examples")  # what stands there is no schema
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
TYPES = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


class Loaded(NamedTuple):
    """schema: None if a problem is an error."""

    schema: dict[str, Any] | None
    problems: list[Problem]


def is_reference(said: object) -> bool:
    """Tell whether an `output_schema` names a file: `@schemas/x.schema.json`."""
    return isinstance(said, str) and said.startswith("@")


def load(reference: str, workflow_path: str, roots: Sequence[str], where: str = "$") -> Loaded:
    """Read the schema that a step names, relative to its workflow's file, and check it.

    roots: folders that it must lie in, links followed (D10). where: the JSON path that problems name. Raises nothing
    for what is in the file; LoomError NEEDS_ENVIRONMENT comes from the import of a library that is not there.
    """
    name = reference.removeprefix("@").strip()
    path = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(workflow_path)), name))
    if not name or "\0" in name:
        return Loaded(None, [error("UNKNOWN_SCHEMA", where, "@ needs a schema file", '"@schemas/x.schema.json"')])
    if not any(files.is_inside(path, root) for root in roots):
        message = f"{shown(name, 200)} is outside of the project and the bundle; Loom does not read it"
        return Loaded(None, [error("PATH_ESCAPE", where, message, "copy it beside the workflow")])
    return load_file(path, where, name)


def load_file(path: str, where: str = "$", name: str = "") -> Loaded:
    """Read one schema file and check it; name: what problems call it."""
    name = name or os.path.basename(path)
    try:
        return loaded(files.read_bytes(path, limit=LARGEST), where, name)
    except LoomError as problem:
        return Loaded(None, [error(problem.code, where, f"{shown(name, 200)}: {problem.what}")])
    except (OSError, ValueError) as problem:
        said = getattr(problem, "strerror", None) or "not a path"
        hint = "the path is relative to the workflow's own file"
        return Loaded(None, [error("UNKNOWN_SCHEMA", where, f"Loom cannot read {shown(name, 200)}: {said}", hint)])


def loaded(data: bytes, where: str = "$", name: str = "") -> Loaded:
    """Parse a schema's bytes and check it; name: what problems call it."""
    name = shown(name, 200)
    try:
        text = files.text_of(data)
    except UnicodeDecodeError:
        return Loaded(None, [error("NOT_UTF8", where, f"{name} is not UTF-8 text", "save it as UTF-8")])
    raw, problems = strict.parse_json(text, max_depth=strict.DEEPEST)
    if problems:
        told = [one._replace(where=where, message=f"{name}, {one.where}: {one.message}") for one in problems]
        return Loaded(None, told)
    found = list(islice(schema_problems(raw, where, name), MOST_ERRORS))
    failed = any(one.severity == "error" for one in found)
    return Loaded(None if failed else raw, found)


def schema_problems(raw: object, where: str, name: str) -> Iterator[Problem]:
    """Find what makes a schema useless: not a schema, of an unknown draft, pointing out of itself or nowhere."""
    import warnings

    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(raw, dict):
        yield error("BAD_SCHEMA", where, f"{name}: a schema must be an object, got {kind_of(raw)}")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of an unknown draft, which is said here
        known: Any = None
        validator: Any = validator_for(raw, default=known) if isinstance(raw.get("$schema"), str) else known
        validator = validator if "$schema" in raw else Draft202012Validator
    if validator is None:
        hint = f"leave it out for {Draft202012Validator.META_SCHEMA['$id']}"
        yield error("UNKNOWN_DRAFT", where, f"{name}: unknown $schema {shown(raw['$schema'], 100)}", hint)
        return
    try:
        validator.check_schema(raw)
    except SchemaError as refused:
        message = f"{name} is not a JSON Schema: {at('$', *refused.absolute_path)}: {refused.message[:200]}"
        yield error("BAD_SCHEMA", where, message, "https://json-schema.org/understanding-json-schema")
        return
    yield from _reference_problems(raw, where, name)
    circle = _circle(raw)
    if circle:
        message = f"{name}, {circle}: its $ref leads back to itself, so it can check no value"
        yield error("BAD_SCHEMA", where, message, "refer to a schema with rules of its own")
        return
    kinds = raw.get("type", "object")
    if "object" not in ([kinds] if isinstance(kinds, str) else kinds):
        message = f"{name} asks for {shown(kinds)}, but Loom only looks for a JSON object in a result"
        yield warning("NEVER_MATCHES", where, message, 'give it "type": "object"')


def _reference_problems(raw: dict[str, Any], where: str, name: str) -> Iterator[Problem]:
    parts = list(_schemas(raw, "$"))
    anchors = {part.get(key) for _, part in parts for key in ("$anchor", "$dynamicAnchor") if key in part}
    anchors |= {str(part["$id"])[1:] for _, part in parts if str(part.get("$id", "")).startswith("#")}
    nested = any("$id" in part for path, part in parts if path != "$")
    for path, part in parts:
        for key in _REFERENCES:
            target = part.get(key)
            if not isinstance(target, str):
                continue
            if not target.startswith("#"):
                message = f"{name}, {at(path, key)}: {shown(target, 100)} is outside of the file; Loom fetches nothing"
                yield error("REMOTE_REF", where, message, "put it into $defs of the file: #/$defs/name")
            elif not nested and not _resolves(raw, target[1:], anchors):
                yield error(
                    "UNKNOWN_REF", where, f"{name}, {at(path, key)}: there is no {shown(target, 100)} in the file"
                )


def _schemas(part: object, path: str, *, named: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """Walk through the objects of a schema that are schemas; named: its keys are names, not words of the schema."""
    if isinstance(part, dict):
        if not named:
            yield path, part
        for key, value in part.items():
            if named or key not in _DATA:
                yield from _schemas(value, at(path, key), named=not named and key in _NAMED)
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from _schemas(value, at(path, index))


def _resolves(raw: Any, fragment: str, anchors: set[Any]) -> bool:
    if not fragment.startswith("/"):
        return fragment == "" or fragment in anchors
    return isinstance(_target(raw, fragment), (dict, bool))


def _target(raw: Any, fragment: str) -> Any:
    """Give what a JSON Pointer leads to in a schema, None for nothing."""
    from urllib.parse import unquote

    for word in unquote(fragment)[1:].split("/") if fragment else ():
        key = word.replace("~1", "/").replace("~0", "~")
        if isinstance(raw, list) and key.isascii() and key.isdigit() and int(key) < len(raw):
            raw = raw[int(key)]
        elif isinstance(raw, dict) and key in raw:
            raw = raw[key]
        else:
            return None
    return raw


def _circle(raw: dict[str, Any]) -> str:
    """Name a schema that leads to itself without a step into the value: no value could ever be held against it."""
    parts, over = list(_schemas(raw, "$")), set[int]()
    if any("$id" in part for path, part in parts if path != "$"):  # references are of other files there
        return ""
    for path, part in parts:
        line: list[int] = []
        waiting: list[tuple[Any, int]] = [(part, 0)]
        while waiting:
            one, depth = waiting.pop()
            del line[depth:]
            if not isinstance(one, dict):
                continue
            if id(one) in line:
                return path
            if id(one) in over:
                continue
            over.add(id(one))
            line.append(id(one))
            ref, every = one.get("$ref"), one.get("allOf")
            waiting += [(child, depth + 1) for child in (every if isinstance(every, list) else ())]
            if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")):
                waiting.append((_target(raw, ref[1:]), depth + 1))
    return ""


def said_against(value: Any, schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Give what a schema says against a value, as (JSON Pointer, message), MOST_ERRORS at most, nearest the top first.

    With no guard against patterns that never end: it is called by the child of expressions/engine. Raises what the
    library does, such as RecursionError for a schema that goes in circles.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    # An empty registry: what is not in the schema itself is not fetched from anywhere.
    validator = validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())
    found = islice(validator.iter_errors(value), _LOOKED_AT)
    told = dict.fromkeys((_pointer(refused), message) for refused in found for message in _words(refused))
    return sorted(told, key=lambda one: one[0].count("/"))[:MOST_ERRORS]


def _pointer(refused: ValidationError) -> str:
    from loomctl.kit.quick_json import pointer

    return pointer(*refused.absolute_path)[:200]


def _words(refused: ValidationError) -> Iterator[str]:
    rule = str(refused.validator)
    limit: Any = refused.validator_value
    value: Any = refused.instance
    if rule == "required":
        for key in limit if isinstance(limit, list) else ():
            if key not in value:
                yield f"the key {shown(key)} is missing"
    elif rule == "type":
        wanted = " or ".join(TYPES.get(name, name) for name in ([limit] if isinstance(limit, str) else limit))
        yield f"expected {wanted}, got {_brief(value)}"
    elif rule in ("enum", "const"):
        words = limit if rule == "enum" else [limit]
        listed = _cut(", ".join(json.dumps(word, ensure_ascii=False) for word in words[:10]), 200)
        yield f"{_brief(value)} is not one of: {listed}" if rule == "enum" else f"{_brief(value)} is not {listed}"
    elif rule == "additionalProperties" and limit is False:
        known = refused.schema.get("properties", {}) if isinstance(refused.schema, dict) else {}
        more = [shown(key) for key in value if key not in known]
        yield f"unexpected keys: {_cut(', '.join(more), 200)}"
    elif rule == "pattern":
        yield f"{_brief(value)} does not match the pattern {_cut(str(limit), 100)}"
    elif rule == "None":  # of the schema `false`
        yield f"{_brief(value)} is not allowed here"
    else:
        yield f"{_brief(value)} breaks {rule}: {_cut(json.dumps(limit, ensure_ascii=False), 100)}"


def _brief(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _cut(str(value), 40)
    return shown(value)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
