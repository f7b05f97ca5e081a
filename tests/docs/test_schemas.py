"""The page of schemas has every property of every published schema, in tables that are made from them."""

import json
import re
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


_TABLES = """
workflow:
    The file = | `critical_artifacts` = critical_artifacts | An artifact in one of the three groups = $artifact | An
    entry of `must_survive` as an object = $survivor | `autonomy` as an object = autonomy | A phase = $phase | A step
    = $step | An entry of a step's `transitions` = $transition | An entry of a step's `evidence` = $evidence_item |
    `for_each` of a step as an object = $for_each | `parallel` of a step = $parallel | An entry of its `branches` =
    $branch | `result_handling` = $result_handling
plan:
    The file = | An entry of `sources` = sources[] | An entry of `commands` = commands[] | `autonomy` = autonomy | An
    entry of `phases` = $phase | An entry of a phase's `steps` = $step | An entry of a step's `transitions` =
    $transition | An entry of a step's `evidence` = $step.evidence[] | `for_each` of a step =
    $step.for_each | `parallel` of a step = $step.parallel | An
    entry of its `branches` = $step.parallel.branches[] | A step's `result_handling` = $step.result_handling | An
    entry of `artifacts` = $artifact | An entry of `must_survive` as an object = must_survive[]
state:
    The file = | An entry of `phases` = phases{} | An entry of `steps` = $visit | An entry of `branches` of a step's
    entry = $branch | The `next` of a step's entry = $next | The `task` of a step's entry = $task | The
    `rejected` of a step's entry = $visit.rejected | The `error` of a step's entry = $error | `earlier` =
    earlier | An entry of `steps` of `earlier` = earlier.steps{} | `forked_from` = forked_from |
    `saved_from` = saved_from | `lease` = lease | `driving` = driving | Its `ended` = driving.ended |
    The `tries` of `ended` = driving.ended.tries | `fleet` = fleet | Its `failed` = fleet.failed |
    `feedback` = feedback | An entry of `pending_approvals` = pending_approvals[] | An entry of `approvals` =
    approvals[] | `sessions` = sessions | An entry of `session_history` = $session | An entry of `compactions` =
    $session.compactions[] | The `receipt` of a compaction = $receipt | A session's `environment` =
    $session.environment | `context_metadata` = context_metadata | An entry of `artifacts_in_context` =
    context_metadata.artifacts_in_context[] | `tool_history` of `context_metadata` = context_metadata.tool_history |
    `ledger_head` = ledger_head
tool_step:
    The line = | `rest` = rest
status:
    The file = | `error` = error | `next` = next | `directive` = directive | An entry of `assets` = assets[] | `usage`
    = usage | `command` = command | `evidence` = evidence | An entry of its `items` = evidence.items[] | `task` =
    task | `decided` =
    decided | An entry of `branches` = branches[] | An entry of `errors` and `warnings` = $fault
changes:
    The file = | An entry of `files` = files[] | An entry of `assets` = assets[] | An entry of `assets_passed_over` =
    assets_passed_over[]
report:
    The document = | `run` = run | Its `forked_from` = run.forked_from | Its `saved_from` = run.saved_from | Its
    `driver` = run.driver | `ledger` = ledger | Its `fault` = ledger.fault | `progress` = progress | An entry of
    `troubles` = troubles[] | An entry of `phases` = phases[] | An entry of its `steps` = phases[].steps[] | An entry
    of `stages` = stages[] | The `branch` of a stage = stages[].branch | An entry of its `branches` =
    stages[].branches[] | Its `tokens` = stages[].tokens | An entry of its `evidence` = stages[].evidence[] | An entry
    of its `files` = stages[].files[] | An entry of its `assets` = stages[].assets[] | An entry of its `passed_over` =
    stages[].passed_over[] | An entry of its `texts` = stages[].texts[] | An entry of its `others` = stages[].others[]
    | An entry of `sessions` = sessions[] | An entry of its `compactions` = sessions[].compactions[] | The `receipt`
    of a compaction = sessions[].compactions[].receipt | An entry of `turns` = turns[] | `driven` = driven
    | An entry of `decisions` = decisions[]
    | An entry of `approvals` = approvals[] | An entry of the run's `errors` = errors[] | An entry of
    `primings` = primings[] | `savings` = savings | An entry of its `tools` = savings.tools[] | Its `all` =
    savings.all | An entry of `artifacts` = artifacts[] | Its `file` = artifacts[].file | An entry of `made_files` =
    made_files[] | The `file` of what was made = made_files[].file | An entry of the run's `files` = files[] |
    `events` = events | An entry of its `rows` = events.rows[] | `linked` = linked | `page` = page | Its `copies` =
    page.copies
"""
"""Headings and ways: `a` is a property, `$a` a definition, `a[]` its items and `a{}` its additional properties."""


def _parts(told: str) -> list[Part]:
    parts = []
    for one in " ".join(told.split()).split(" | "):
        heading, _, words = one.partition(" =")
        spelled = re.sub(r"(?<![$\w])(?=\w)", "properties.", words.strip()).replace("$", "$defs.")
        way = spelled.replace("[]", ".items").replace("{}", ".additionalProperties").split(".")
        parts.append(Part(heading, tuple(filter(None, way))))
    return parts


PARTS = {kind: _parts(told) for kind, told in re.findall(r"^(\w+):\n((?: .*\n)+)", _TABLES, re.MULTILINE)}


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
