"""The schemas at the site's addresses: made from config/ in the draft that editors read, and as strict as the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from loomctl.runs import config
from tests.docs.pages import DOCS, WRITE
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

FOLDER = DOCS / "schemas"
SITE = "https://OWNER.github.io/loom/schemas"
KINDS = sorted(path.name.removesuffix(".schema.json") for path in (CHECKOUT / "config").glob("*.schema.json"))
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
LATER = ("$anchor", "$dynamicRef", "dependentRequired", "dependentSchemas", "prefixItems", "unevaluatedProperties",
         "unevaluatedItems", "minContains", "maxContains")  # fmt: skip
"""What draft 7 would pass over in silence."""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def source(kind: str) -> dict[str, Any]:
    return read(CHECKOUT / "config" / f"{kind}.schema.json")


def older(node: Any, *, named: bool = False) -> Any:
    """Turn a schema of draft 2020-12 into draft 7. named: keys are names of properties, and no words of a schema."""
    if isinstance(node, list):
        return [older(one) for one in node]
    if not isinstance(node, dict):
        return node
    made: dict[str, Any] = {}
    for key, value in node.items():
        if not named:
            assert key not in LATER, key
        names = not named and key in ("properties", "patternProperties", "$defs")
        made["definitions" if key == "$defs" and not named else key] = (
            value if not named and key in ("examples", "default", "const", "enum") else older(value, named=names)
        )
    if not named and "$ref" in made:
        made["$ref"] = made["$ref"].replace("#/$defs/", "#/definitions/")
        if len(made.keys() - {"$ref", "description", "examples", "default"}):  # draft 7 reads no rule beside a $ref
            made["allOf"] = [*made.get("allOf", []), {"$ref": made.pop("$ref")}]
    return made


@each("kind", KINDS)
def test_a_published_schema_is_the_programs_own_in_an_older_draft(kind: str) -> None:
    made = older(source(kind))
    made = {"$schema": DRAFT_7, "$id": f"{SITE}/{kind}.json", **{k: v for k, v in made.items() if k != "$schema"}}
    path, text = FOLDER / f"{kind}.json", json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    if WRITE:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "run scripts/docs"


@each("path", sorted((CHECKOUT / "tests/examples").glob("*/*/*.json")))
def test_both_drafts_judge_alike(path: Path) -> None:
    kind = path.parent.parent.name
    raw = read(path)
    published = Draft7Validator(read(FOLDER / f"{kind}.json"))
    assert published.is_valid(raw) == Draft202012Validator(source(kind)).is_valid(raw)


@each("path", sorted(FOLDER.glob("*.json")))
def test_a_schema_stands_at_its_own_address(path: Path) -> None:
    if path.stem != "catalog":
        schema = read(path)
        Draft7Validator.check_schema(schema)
        assert (schema["$schema"], schema["$id"]) == (DRAFT_7, f"{SITE}/{path.name}")
        assert schema["title"]
        assert schema["description"]
        assert set(re.findall(r'"\$ref": "([^"#]*)', path.read_text(encoding="utf-8"))) <= {""}


def test_the_catalog_has_what_schemastore_asks_for() -> None:
    """An entry has four keys, in alphabetical order of their names; each pattern is of Loom's folder alone."""
    entries = read(FOLDER / "catalog.json")["schemas"]
    assert [entry["name"] for entry in entries] == sorted(entry["name"] for entry in entries)
    for entry in entries:
        assert list(entry) == ["name", "description", "fileMatch", "url"]
        assert (FOLDER / entry["url"].removeprefix(f"{SITE}/")).is_file()
        assert all(pattern.startswith("**/.loom/") for pattern in entry["fileMatch"])
        assert not entry["description"].endswith((".", ":"))


def test_the_schema_of_settings_has_them_all_with_their_limits() -> None:
    schema = read(FOLDER / "config.json")
    names: dict[str, dict[str, Any]] = {}
    for name, one in schema["properties"].items():
        inner = one.get("properties", {})
        names |= {f"{name}.{key}": value for key, value in inner.items()} if inner else {name: one}
    assert set(names) == set(config._USER) | set(config._PROJECT)
    resolved = {}
    for name, one in names.items():
        resolved[name] = {**schema["definitions"].get(one.get("$ref", "").rpartition("/")[2], {}), **one}
    for name, (least, most) in config._NUMBERS.items():
        assert (resolved[name]["minimum"], resolved[name]["maximum"]) == (least, most)
    for name, one in resolved.items():
        value = getattr(config.Settings(), config.field(name))
        assert one.get("default", None) == (None if value in ((), {}) else value), name


SETTINGS: list[tuple[str, object]] = [
    *(("hook_budget", value) for value in (499, 500, 38000, 38001, "500", True)),
    *(("command_budget", value) for value in (999, 1000, 25001)),
    *(("default_workflow", value) for value in ("", "core", 3)),
    *(("commit_runs", value) for value in (True, "yes")),
    *(("test_command", value) for value in ("", "pytest -q", "a\nb", "x" * 500, "x" * 501, None)),
    *(("notify", value) for value in ("", "say done", ["say"])),
    *(("extra_roots", value) for value in (["/srv"], ["~/docs"], ["docs"], "/srv")),
    *(("retention.local_days", value) for value in (0, 1, 36500, 36501, 1.5)),
    *(("retention.outputs_days", value) for value in (30, "30")),
    *(("retention.environments_days", value) for value in (30, -1)),
    *(("reduce.live", value) for value in ("large", "off", False, True, "on")),
    *(("reduce.live_threshold", value) for value in (7999, 8000, 1_000_001)),
    ("reduce.tools", {}),
    ("reduce.tools", []),
    ("reduce.tools", {"Bash": {"live": "off"}}),
    ("reduce.tools", {"Bash": {"live": "on"}}),
    ("reduce.tools", {"Bash": {"x": 1}}),
    ("reduce.rules", {}),
    ("reduce.rules", []),
    ("reduce.rules", [{"tool": "a*"}]),
    ("reduce.rules", [{"keep": ["a"]}]),
    ("reduce.rules", [{"tool": "a", "x": 1}]),
    ("reduce.rules", [{"tool": "a", "keep": ["$.unit.name"], "template": "{a}", "threshold": 0}]),
    ("reduce.rules", [{"tool": "a", "threshold": 1_000_001}]),
    ("reduce.rules", [{"tool": "a", "template": "a\nb"}]),
    ("reduce.rules", [{"tool": "a"}] * 101),
]  # fmt: skip


@each(("name", "value"), SETTINGS)
def test_schema_and_reader_judge_a_setting_alike(name: str, value: object) -> None:
    """The schema takes what the reader takes; a wrong JSON path in a rule only the reader finds."""
    outer, _, inner = name.partition(".")
    raw = {outer: {inner: value}} if inner else {outer: value}
    accepts = Draft7Validator(read(FOLDER / "config.json")).is_valid(raw)
    assert accepts == (config._misfit(name, value) == ""), (name, value)


@pytest.mark.parametrize("raw", [{"hook_budgets": 500}, {"retention": {"days": 3}}, {"retention": 3}, []])
def test_what_is_no_setting_is_marked(raw: object) -> None:
    assert not Draft7Validator(read(FOLDER / "config.json")).is_valid(raw)
