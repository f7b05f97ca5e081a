"""A chain of workflows becomes one: who adds, who replaces, in which order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomctl.workflows.resolve import merge
from loomctl.workflows.steps import PARTS, step_id
from loomctl.workflows.workflow import parse
from tests.helpers.tables import each


def step(name: str, prompt: str = "x") -> dict[str, Any]:
    return {"id": name, "prompt": prompt}


def phase(pre: str = "", main: str | None = None, post: str = "", **more: Any) -> dict[str, Any]:
    """Write a phase from words: each is a step's id."""
    made: dict[str, Any] = {**more}
    for part, names in (("pre_steps", pre), ("steps", main), ("post_steps", post)):
        if names is not None and (names or part == "steps"):
            made[part] = [step(name) for name in names.split()]
    return made


def chain(*phases: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Make workflows w0, w1, … each with one phase `build`, the root first."""
    return [(f"w{index}", {"id": f"w{index}", "phases": {"build": one}}) for index, one in enumerate(phases)]


def order(merged: dict[str, Any], name: str = "build") -> list[str]:
    return [step_id(one) for part in PARTS for one in merged["phases"][name].get(part, ())]


ORDERS = [
    ([phase("a", "m", "z")], "a m z"),
    ([phase("a", "m", "z"), phase("b", "n", "y")], "a b n y z"),
    ([phase("a", "m", "z"), phase("b", "n", "y"), phase("c", "o", "x")], "a b c o x y z"),
    ([phase("a", "m", "z"), phase("b", "", "y")], "a b m y z"),  # an explicit [] inherits
    ([phase("a", "m", "z"), phase("b", None, "y")], "a b m y z"),
    ([phase("a", "m", "z"), phase("", "", ""), phase("", "o", "")], "a o z"),
    ([phase("a b", "m"), phase("b c", "")], "a b c m"),  # a step named again is one step (D7)
    ([phase("", "m", "y z"), phase("", "", "x z")], "m x z y"),
    ([phase("a", "m", "z"), phase("z", "", "")], "a z m"),  # named again in another part: it moves there
    ([phase("a", "m", "z"), phase("", "z", "")], "a z"),
    ([phase("a", "", ""), phase("a", "", ""), phase("a", "m", "")], "a m"),
]


@each(("phases", "expected"), ORDERS)
def test_steps_come_in_the_declared_order(phases: list[dict[str, Any]], expected: str) -> None:
    assert order(merge(chain(*phases))) == expected.split()


def test_the_nearest_definition_of_a_step_counts_and_phases_keep_the_parents_order() -> None:
    parent = {"id": "p", "phases": {"build": {"pre_steps": [step("a", "old"), step("b")]}}}
    child = {"id": "c", "phases": {"build": {"pre_steps": [{"name": "A", "prompt": "new"}]}}}
    merged = merge([("p", parent), ("c", child)])
    assert merged["phases"]["build"]["pre_steps"] == [{"name": "A", "prompt": "new"}, step("b")]
    late = {"id": "c", "phases": {"build": {"post_steps": [step("z", "new")]}}}
    early = {"id": "p", "phases": {"build": {"post_steps": [step("y"), step("z", "old")]}}}
    assert merge([("p", early), ("c", late)])["phases"]["build"]["post_steps"] == [step("z", "new"), step("y")]
    parent = {"id": "p", "phases": {"b": phase("", "m", max_retries=2, require_approval=True), "a": phase("", "n")}}
    child = {"id": "c", "phases": {"c": phase("", "o"), "a": {"enabled": False}, "b": {"max_retries": 0}}}
    merged = merge([("p", parent), ("c", child)])
    assert list(merged["phases"]) == ["b", "a", "c"]
    assert merged["phases"]["a"]["enabled"] is False
    assert merged["phases"]["b"]["max_retries"] == 0
    assert merged["phases"]["b"]["require_approval"] is True


def entry(name: str, text: str = "x") -> dict[str, Any]:
    return {"id": name, "type": "markdown", "path": text, "required": False, "reload_triggers": ["manual"]}


def test_artifacts_are_merged_by_id() -> None:
    parent = {
        "id": "p",
        "phases": {},
        "critical_artifacts": {
            "always_load": [entry("a"), entry("b"), entry("c")],
            "phase_specific": {"build": [entry("d")]},
            "x-note": 1,
        },
    }
    child = {
        "id": "c",
        "phases": {},
        "critical_artifacts": {
            "always_load": [entry("e"), entry("b", "new")],
            "conditional_load": [entry("a", "now with a condition")],
            "phase_specific": {"release": [entry("d", "later")]},
        },
    }
    merged = merge([("p", parent), ("c", child)])["critical_artifacts"]
    assert merged["always_load"] == [entry("b", "new"), entry("c"), entry("e")]
    assert merged["conditional_load"] == [entry("a", "now with a condition")]
    assert merged["phase_specific"] == {"build": [], "release": [entry("d", "later")]}
    assert merged["x-note"] == 1
    assert merge([("p", parent), ("c", {"id": "c"})])["critical_artifacts"] == parent["critical_artifacts"]


POLICIES = [
    ("guarded", "assist", {"level": "assist"}),
    ({"level": "guarded", "require_approval_for": ["release"]}, "autonomous", None),
    ({"level": "guarded", "require_approval_for": ["release"]}, {"level": "autonomous"}, None),
    ({"level": "guarded", "require_approval_for": ["release"]}, {"require_approval_for": []},
     {"level": "guarded", "require_approval_for": []}),
]  # fmt: skip


@each(("parent", "child", "expected"), POLICIES)
def test_an_approval_is_not_lost_by_naming_a_level(parent: Any, child: Any, expected: dict[str, Any] | None) -> None:
    merged = merge([("p", {"id": "p", "autonomy": parent}), ("c", {"id": "c", "autonomy": child})])
    assert merged["autonomy"] == (expected or {"level": "autonomous", "require_approval_for": ["release"]})


def test_other_keys_are_the_childs() -> None:
    parent = {"id": "p", "$schema": "a", "description": "P", "skip_steps": ["a", "b"], "x-list": [1], "x-old": 1}
    child = {"id": "c", "$schema": "b", "extends": "p", "skip_steps": ["b", "build/c"], "x-list": [2]}
    merged = merge([("p", {**parent, "result_handling": {"on_failure": "stop"}}), ("c", child)])
    assert merged == {
        "id": "c", "description": "P", "skip_steps": ["a", "b", "build/c"], "x-list": [2], "x-old": 1,
        "result_handling": {"on_failure": "stop"},
    }  # fmt: skip


@st.composite
def phases_of_a_file(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), max_size=6, unique=True))
    cuts = sorted(draw(st.tuples(st.integers(0, len(names)), st.integers(0, len(names)))))
    parts = (names[: cuts[0]], names[cuts[0] : cuts[1]], names[cuts[1] :])
    return {part: [step(name) for name in some] for part, some in zip(PARTS, parts, strict=True)}


@given(st.lists(phases_of_a_file(), min_size=1, max_size=4))
def test_merging_never_doubles_loses_or_harms(files: list[dict[str, Any]]) -> None:
    """Any chain of good files gives a good workflow: each step once, each file's own pre- and post-steps all there."""
    links = chain(*files)
    before = repr(links)
    merged = merge(links)
    assert repr(links) == before
    names = order(merged)
    assert len(names) == len(set(names))
    own = files[-1]
    assert {one["id"] for part in PARTS for one in own[part]} <= set(names)
    assert parse(merged)[0] is not None
    assert merge([("all", merged)]) == merged
    assert merge([("head", merge(links[:-1])), links[-1]]) == merged or len(links) == 1
