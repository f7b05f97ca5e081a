"""The page of schemas has every property of every published schema, in tables that are made from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.docs.pages import DOCS, make, table
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

PAGE = DOCS / "reference" / "schemas.md"
SET_APART = ("not_yet", "inert")
"""Definitions whose properties are named in a line and not described one by one."""

Schema = Mapping[str, Any]


class Part(NamedTuple):
    """A table of the page: its heading and the way to its object in the schema."""

    heading: str
    way: tuple[str, ...]


STAGE = ("properties", "stages", "items")
COMPACTION = ("properties", "sessions", "items", "properties", "compactions", "items")
PARTS = {
    "workflow": [
        Part("The file", ()),
        Part("`critical_artifacts`", ("properties", "critical_artifacts")),
        Part("An artifact in one of the three groups", ("$defs", "artifact")),
        Part("An entry of `must_survive` as an object", ("$defs", "survivor")),
        Part("`autonomy` as an object", ("properties", "autonomy")),
        Part("A phase", ("$defs", "phase")),
        Part("A step", ("$defs", "step")),
        Part("An entry of a step's `transitions`", ("$defs", "transition")),
        Part("An entry of a step's `evidence`", ("$defs", "evidence_item")),
        Part("`parallel` of a step", ("$defs", "parallel")),
        Part("An entry of its `branches`", ("$defs", "branch")),
        Part("`result_handling`", ("$defs", "result_handling")),
    ],
    "plan": [
        Part("The file", ()),
        Part("An entry of `sources`", ("properties", "sources", "items")),
        Part("An entry of `commands`", ("properties", "commands", "items")),
        Part("`autonomy`", ("properties", "autonomy")),
        Part("An entry of `phases`", ("$defs", "phase")),
        Part("An entry of a phase's `steps`", ("$defs", "step")),
        Part("An entry of a step's `transitions`", ("$defs", "transition")),
        Part("An entry of a step's `evidence`", ("$defs", "step", "properties", "evidence", "items")),
        Part("`parallel` of a step", ("$defs", "step", "properties", "parallel")),
        Part(
            "An entry of its `branches`",
            ("$defs", "step", "properties", "parallel", "properties", "branches", "items"),
        ),
        Part("A step's `result_handling`", ("$defs", "step", "properties", "result_handling")),
        Part("An entry of `artifacts`", ("$defs", "artifact")),
        Part("An entry of `must_survive` as an object", ("properties", "must_survive", "items")),
    ],
    "state": [
        Part("The file", ()),
        Part("An entry of `phases`", ("properties", "phases", "additionalProperties")),
        Part("An entry of `steps`", ("$defs", "visit")),
        Part("An entry of `branches` of a step's entry", ("$defs", "branch")),
        Part("The `next` of a step's entry", ("$defs", "next")),
        Part("The `error` of a step's entry", ("$defs", "error")),
        Part("`forked_from`", ("properties", "forked_from")),
        Part("`saved_from`", ("properties", "saved_from")),
        Part("`lease`", ("properties", "lease")),
        Part("`feedback`", ("properties", "feedback")),
        Part("An entry of `pending_approvals`", ("properties", "pending_approvals", "items")),
        Part("An entry of `approvals`", ("properties", "approvals", "items")),
        Part("`sessions`", ("properties", "sessions")),
        Part("An entry of `session_history`", ("$defs", "session")),
        Part("An entry of `compactions`", ("$defs", "session", "properties", "compactions", "items")),
        Part("The `receipt` of a compaction", ("$defs", "receipt")),
        Part("A session's `environment`", ("$defs", "session", "properties", "environment")),
        Part("`context_metadata`", ("properties", "context_metadata")),
        Part(
            "An entry of `artifacts_in_context`",
            ("properties", "context_metadata", "properties", "artifacts_in_context", "items"),
        ),
        Part(
            "`tool_history` of `context_metadata`",
            ("properties", "context_metadata", "properties", "tool_history"),
        ),
        Part("`ledger_head`", ("properties", "ledger_head")),
    ],
    "tool_step": [
        Part("The line", ()),
        Part("`rest`", ("properties", "rest")),
    ],
    "status": [
        Part("The file", ()),
        Part("`error`", ("properties", "error")),
        Part("`next`", ("properties", "next")),
        Part("`directive`", ("properties", "directive")),
        Part("An entry of `assets`", ("properties", "assets", "items")),
        Part("`usage`", ("properties", "usage")),
        Part("`command`", ("properties", "command")),
        Part("`evidence`", ("properties", "evidence")),
        Part("An entry of its `items`", ("properties", "evidence", "properties", "items", "items")),
        Part("`decided`", ("properties", "decided")),
        Part("An entry of `branches`", ("properties", "branches", "items")),
        Part("An entry of `errors` and `warnings`", ("$defs", "fault")),
    ],
    "changes": [
        Part("The file", ()),
        Part("An entry of `files`", ("properties", "files", "items")),
        Part("An entry of `assets`", ("properties", "assets", "items")),
        Part("An entry of `assets_passed_over`", ("properties", "assets_passed_over", "items")),
    ],
    "report": [
        Part("The document", ()),
        Part("`run`", ("properties", "run")),
        Part("Its `forked_from`", ("properties", "run", "properties", "forked_from")),
        Part("Its `saved_from`", ("properties", "run", "properties", "saved_from")),
        Part("Its `driver`", ("properties", "run", "properties", "driver")),
        Part("`ledger`", ("properties", "ledger")),
        Part("Its `fault`", ("properties", "ledger", "properties", "fault")),
        Part("`progress`", ("properties", "progress")),
        Part("An entry of `troubles`", ("properties", "troubles", "items")),
        Part("An entry of `phases`", ("properties", "phases", "items")),
        Part("An entry of its `steps`", ("properties", "phases", "items", "properties", "steps", "items")),
        Part("An entry of `stages`", STAGE),
        Part("The `branch` of a stage", (*STAGE, "properties", "branch")),
        Part("An entry of its `branches`", (*STAGE, "properties", "branches", "items")),
        Part("Its `tokens`", (*STAGE, "properties", "tokens")),
        Part("An entry of its `evidence`", (*STAGE, "properties", "evidence", "items")),
        Part("An entry of its `files`", (*STAGE, "properties", "files", "items")),
        Part("An entry of its `assets`", (*STAGE, "properties", "assets", "items")),
        Part("An entry of its `passed_over`", (*STAGE, "properties", "passed_over", "items")),
        Part("An entry of its `texts`", (*STAGE, "properties", "texts", "items")),
        Part("An entry of its `others`", (*STAGE, "properties", "others", "items")),
        Part("An entry of `sessions`", ("properties", "sessions", "items")),
        Part("An entry of its `compactions`", COMPACTION),
        Part("The `receipt` of a compaction", (*COMPACTION, "properties", "receipt")),
        Part("An entry of `turns`", ("properties", "turns", "items")),
        Part("An entry of `decisions`", ("properties", "decisions", "items")),
        Part("An entry of `approvals`", ("properties", "approvals", "items")),
        Part("An entry of the run's `errors`", ("properties", "errors", "items")),
        Part("An entry of `primings`", ("properties", "primings", "items")),
        Part("`savings`", ("properties", "savings")),
        Part("An entry of its `tools`", ("properties", "savings", "properties", "tools", "items")),
        Part("Its `all`", ("properties", "savings", "properties", "all")),
        Part("An entry of `artifacts`", ("properties", "artifacts", "items")),
        Part("Its `file`", ("properties", "artifacts", "items", "properties", "file")),
        Part("An entry of `made_files`", ("properties", "made_files", "items")),
        Part("The `file` of what was made", ("properties", "made_files", "items", "properties", "file")),
        Part("An entry of the run's `files`", ("properties", "files", "items")),
        Part("`events`", ("properties", "events")),
        Part("An entry of its `rows`", ("properties", "events", "properties", "rows", "items")),
        Part("`linked`", ("properties", "linked")),
        Part("`page`", ("properties", "page")),
        Part("Its `copies`", ("properties", "page", "properties", "copies")),
    ],
}


def read(kind: str) -> Schema:
    schema: Schema = json.loads((CHECKOUT / "config" / f"{kind}.schema.json").read_text(encoding="utf-8"))
    return schema


@each("kind", PARTS)
def test_the_page_has_the_schema(kind: str) -> None:
    schema = read(kind)
    parts = [str(schema["description"])]
    for part in PARTS[kind]:
        parts += [
            f"### {kind.capitalize().replace('_', ' ')}: {part.heading[:1].lower() + part.heading[1:]}",
            *_described(schema, _at(schema, part.way)),
        ]
    make(PAGE, kind, "\n\n".join(parts))


@each("kind", PARTS)
def test_no_object_of_a_schema_is_left_out(kind: str) -> None:
    schema = read(kind)
    shown = [id(_at(schema, part.way)) for part in PARTS[kind]]
    assert [way for way, node in _objects(schema) if id(node) not in shown] == []


def _objects(node: Any, way: str = "$") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        if (
            isinstance(node.get("properties"), dict)
            and "then" not in way
            and way.rsplit(".", 1)[-1] not in ("if", "else")
        ):
            yield way, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):  # names of keys, one of which may be `properties`
                for name, held in value.items():
                    yield from _objects(held, f"{way}.{key}.{name}")
            elif key not in ("anyOf", "allOf", "oneOf", "if", "then", "else", "not"):
                yield from _objects(value, f"{way}.{key}")


def _at(schema: Schema, way: tuple[str, ...]) -> Any:
    node: Any = schema
    for key in way:
        node = node[key]
    return node


def _described(schema: Schema, node: Schema) -> list[str]:
    rows = []
    apart: dict[str, list[str]] = {name: [] for name in SET_APART}
    for name, raw in node["properties"].items():
        reference = str(raw.get("$ref", "")).removeprefix("#/$defs/")
        if reference in SET_APART:
            apart[reference].append(f"`{name}`")
            continue
        whole = {**_at(schema, ("$defs", reference)), **raw} if reference else raw
        rows.append(
            [f"`{name}`", _type(schema, whole), "yes" if name in node.get("required", ()) else "", _told(whole)]
        )
    parts = [table(["key", "type", "required", "what it is"], rows)]
    for reference, names in apart.items():
        if names:
            parts.append(f"{schema['$defs'][reference]['description']} These are {', '.join(names)}.")
    return parts


def _type(schema: Schema, node: Schema) -> str:
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    if "enum" in node:
        return ", ".join(f"`{json.dumps(value) if value is None else value}`" for value in node["enum"])
    if "anyOf" in node:
        return " or ".join(_type(schema, _resolved(schema, one)) for one in node["anyOf"])
    kinds = node.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    words = {"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list", "null": "null"}
    return " or ".join(words.get(kind, kind) for kind in kinds)


def _resolved(schema: Schema, node: Schema) -> Schema:
    reference = str(node.get("$ref", "")).removeprefix("#/$defs/")
    return {**_at(schema, ("$defs", reference)), **node} if reference else node


def _told(node: Schema) -> str:
    parts = [str(node.get("description", ""))]
    if "default" in node:
        parts.append(f"Default: `{json.dumps(node['default']).strip(chr(34))}`.")
    if node.get("examples"):
        shown = ", ".join(f"`{one if isinstance(one, str) else json.dumps(one)}`" for one in node["examples"])
        if len(shown) < 120:
            parts.append(f"For example {shown}.")
    return " ".join(part for part in parts if part)
