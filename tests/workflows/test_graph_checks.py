"""What is wrong with the ways of a workflow, and where it is said (D45)."""

from __future__ import annotations

from typing import Any

import pytest

from loomctl.kit.problems import Problem
from loomctl.workflows import graph_checks
from loomctl.workflows.workflow import Workflow, parse
from tests.helpers.tables import each
from tests.helpers.walks import plan, step
from tests.workflows.test_ways import to, when


def found(of: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Give what is wrong with a plan: severity, code, place."""
    return [(one.severity, one.code, one.where) for one in graph_checks.problems(of)]


def asked(**more: Any) -> dict[str, Any]:
    """Make a step whose answers are asked for a label."""
    return step("p/a", output_schema="routing", **more)


LOOP = [step("p/a"), step("p/b", transitions=to("p/a"))]
PLANS: list[tuple[str, dict[str, Any], list[tuple[str, str, str]]]] = [
    ("no routes, nothing to look at", plan({"p": [step("p/a"), step("p/b")]}), []),
    ("a loop with a way out", plan({"p": [step("p/a"), step("p/b", transitions=to("p/a", "end"))]}), []),
    ("a way out that has a condition", plan({"p": [step("p/a", transitions=[*to("p/a"), when("context.x", "end")])]}),
     []),
    ("a way out for failure", plan({"p": [step("p/a", transitions=[*to("p/a"), *to("end", on_failure=True)])]}), []),
    ("a loop without one", plan({"p": LOOP}), [("error", "LOOP_WITHOUT_END", "$ p/a")]),
    ("a step that leads to itself", plan({"p": [step("p/a", transitions=to("p/a"))]}),
     [("error", "LOOP_WITHOUT_END", "$ p/a")]),
    ("a loop that leads on in order",
     plan({"p": [*LOOP[:1], step("p/b", transitions=to("p/a", "p/c")), step("p/c")]}), []),
    ("a step behind a loop that nothing leaves", plan({"p": [*LOOP, step("p/c")]}),
     [("warning", "UNREACHABLE_STEP", "$ p/c"), ("error", "LOOP_WITHOUT_END", "$ p/a")]),
    ("a step that is passed over", plan({"p": [step("p/a", transitions=to("p/c")), step("p/b"), step("p/c")]}),
     [("warning", "UNREACHABLE_STEP", "$ p/b")]),
    ("a step that a failure leads to, in order",
     plan({"p": [step("p/a", transitions=to("p/c"), on_failure="continue"), step("p/b"), step("p/c")]}), []),
    ("a step that a failure leads to, as the retry target",
     plan({"p": [step("p/a", transitions=to("p/c"), retry_target="p/b"), step("p/b"), step("p/c")]}), []),
    ("what result_handling says is not come to where there is a retry target",
     plan({"p": [step("p/a", transitions=to("p/c"), on_failure="prompt", retry_target="p/a"), step("p/b"),
         step("p/c")]}), [("warning", "UNREACHABLE_STEP", "$ p/b")]),
    ("the workflow's retry target",
     {**plan({"p": [step("p/a", transitions=to("p/c")), step("p/b"), step("p/c")]}), "retry_target": "p/b"}, []),
    ("a retry target alone is no way out",
     plan({"p": [step("p/a", transitions=to("p/b"), retry_target="p/b"), step("p/b", transitions=to("p/a"))]}),
     [("error", "LOOP_WITHOUT_END", "$ p/a")]),
    ("across phases", plan({"p": [step("p/a")], "q": [step("q/b", transitions=to("p/a"))]}),
     [("error", "LOOP_WITHOUT_END", "$ p/a")]),
    ("labels that are the same",
     plan(
         {"p": [asked(transitions=[{"to": "p/b", "label": "[F] Fix"}, {"to": "end", "label": "fix"}]), step("p/b")]}),
     [("error", "SAME_LABEL", "$ p/a.transitions[1].label")]),
    ("labels that are the same and lead to one step",
     plan({"p": [step("p/a", transitions=[{"to": "p/b", "label": "[F] Fix"}, {"to": "p/b", "label": "fix"}]),
         step("p/b")]}), []),
    ("a label with a condition is not chosen by it",
     plan({"p": [step("p/a", transitions=[when("context.x", "p/b", label="fix"), {"to": "end", "label": "fix"}]),
         step("p/b")]}), []),
    ("accelerators that are the same",
     plan({"p": [asked(transitions=[{"to": "p/b", "label": "[F] Fix"}, {"to": "end", "label": "F) Finish"}]),
         step("p/b")]}), [("warning", "SAME_ACCELERATOR", "$ p/a.transitions[1].label")]),
]  # fmt: skip


@each(("of", "wanted"), [pytest.param(of, wanted, id=name) for name, of, wanted in PLANS])
def test_the_graph(of: dict[str, Any], wanted: list[tuple[str, str, str]]) -> None:
    """Each finding with its weight and its place; nothing more."""
    assert found(of) == wanted


FIX, APPROVE = {"to": "p/fix", "label": "Fix"}, {"to": "p/approve", "label": "Approve"}
DECIDED: list[tuple[str, list[dict[str, Any]], dict[str, Any], bool]] = [
    # transitions, more of the step, whether it is warned of
    ("two labels, and nothing asks", [FIX, APPROVE], {}, True),
    ("the routing schema asks", [FIX, APPROVE], {"output_schema": "routing"}, False),
    ("a schema of its own does not", [FIX, APPROVE], {"output_schema": "@schemas/audit.schema.json"}, True),
    ("a command says none", [FIX, APPROVE], {"kind": "command"}, True),
    ("a person chooses", [FIX, APPROVE], {"kind": "human"}, False),
    ("one weighs more", [FIX, {**APPROVE, "weight": 1}], {}, False),
    ("both weigh the same", [{**FIX, "weight": 2}, {**APPROVE, "weight": 2}], {}, True),
    ("both lead to one step", [FIX, {**FIX, "label": "Again"}], {}, False),
    ("one label alone", [FIX], {}, False),
    ("one without a label comes first", [FIX, {"to": "p/approve"}], {}, False),
    ("one with a label comes before it", [{"to": "p/fix"}, APPROVE], {}, True),
    ("the one without a label weighs more", [{"to": "p/fix", "weight": 1}, APPROVE], {}, False),
    ("none has a label", to("p/fix", "p/approve"), {}, False),
    ("conditions decide", [when("context.bad", "p/fix", label="Fix"), APPROVE], {}, False),
    ("beside conditions labels decide", [when("context.over", "end"), FIX, APPROVE], {}, True),
    ("the other is for failure", [APPROVE, {**FIX, "on_failure": True}], {}, False),
]


@each(("transitions", "more", "warned"), [pytest.param(*one[1:], id=one[0]) for one in DECIDED])
def test_a_label_that_nothing_asks_for(
    transitions: list[dict[str, Any]], more: dict[str, Any], *, warned: bool
) -> None:
    """It is warned of where an answer without one would take a labelled way for its name alone."""
    steps = [step("p/review", transitions=transitions, **more), *(step(f"p/{name}") for name in ("approve", "fix"))]
    warnings = [one for one in graph_checks.problems(plan({"p": steps})) if one.code == "LABEL_NOT_ASKED"]
    assert [one.where for one in warnings] == ["$ p/review"] * warned
    for one in warnings:
        assert "'Approve'" in one.message
        assert "p/approve" in one.message


def test_a_loop_names_its_steps_and_a_long_graph_is_looked_at_in_its_length() -> None:
    keys = [f"p/{number:02}" for number in range(12)]
    steps = [step(key, transitions=to(keys[(at + 1) % 12])) for at, key in enumerate(keys)]
    (problem,) = graph_checks.problems(plan({"p": steps}), lambda key: f"<{key}>")
    assert problem.where == "<p/00>"
    assert problem.message.startswith("the run cannot leave p/00, p/01,")
    assert "p/07 and 4 more" in problem.message
    steps = [step(f"p/{number}") for number in range(10_000)]
    steps[-1]["transitions"] = to("p/0", "end")
    assert graph_checks.problems(plan({"p": steps})) == []


# ---- Names.


def workflow(transitions: list[dict[str, Any]] | None = None, **more: Any) -> Workflow:
    """Make a workflow of two phases whose first step has these transitions."""
    first: dict[str, Any] = {"id": "a", "prompt": "A.", **more.pop("step", {})}
    if transitions is not None:
        first["transitions"] = transitions
    phases = {
        "p": {"steps": [first, {"id": "b", "prompt": "B."}]},
        "q": {"steps": [{"id": "a", "prompt": "A."}, {"id": "c", "prompt": "C."}], **more.pop("q", {})},
    }
    made, problems = parse({"id": "w", "phases": phases, **more})
    assert made is not None, problems
    return made


def unknown(of: Workflow) -> list[Problem]:
    return [one for one in graph_checks.dangling(of, of, {}) if one.severity == "error"]


AT = "$.phases.p.steps[0]"
NAMES: list[tuple[str, Workflow, str]] = [
    ("its own phase's", workflow(to("b")), ""),
    ("with the phase", workflow(to("p/b", "q/c", "end")), ""),
    ("another phase's without it", workflow(to("c")), f"{AT}.transitions[0].to"),
    ("none", workflow(to("b", "p/x")), f"{AT}.transitions[1].to"),
    ("one that is skipped", workflow(to("b"), skip_steps=["b"]), f"{AT}.transitions[0].to"),
    ("one that is skipped with its phase", workflow(to("p/b"), skip_steps=["p/b"]), f"{AT}.transitions[0].to"),
    ("of a phase that is not enabled", workflow(to("q/c"), q={"enabled": False}), f"{AT}.transitions[0].to"),
    ("retry target", workflow(step={"retry_target": "b"}), ""),
    ("retry target that is none", workflow(step={"retry_target": "c"}), f"{AT}.retry_target"),
    ("the end is no retry target", workflow(step={"retry_target": "end"}), f"{AT}.retry_target"),
    ("the workflow's retry target", workflow(retry_target="q/c"), ""),
    ("the workflow's, by an id that one phase has", workflow(retry_target="c"), ""),
    ("the workflow's, by an id that two have", workflow(retry_target="a"), "$.retry_target"),
    ("the workflow's that is none", workflow(retry_target="q/x"), "$.retry_target"),
]


@each(("of", "where"), [pytest.param(of, where, id=name) for name, of, where in NAMES])
def test_where_a_way_may_lead(of: Workflow, where: str) -> None:
    """A step of the run, by its id within the phase or by its key; whatever else is an error at its place."""
    assert [(one.severity, one.code, one.where) for one in unknown(of)] == (
        [("error", "UNKNOWN_STEP", where)] if where else []
    )


def test_why_there_is_no_such_step_is_said_at_its_place() -> None:
    """Skipped, not enabled, ambiguous, or misspelt: each is said."""
    assert "skip_steps skips it" in unknown(workflow(to("b"), skip_steps=["b"]))[0].message
    assert "phase q is not enabled" in unknown(workflow(to("q/c"), q={"enabled": False}))[0].message
    assert "write phase/id" in unknown(workflow(retry_target="a"))[0].message
    assert unknown(workflow(to("bb")))[0].hint.startswith("known: a, b, p/a")
    parent, child = workflow(to("b")), workflow(to("b"), skip_steps=["b"])
    (problem,) = graph_checks.dangling(parent, child, {})
    assert problem.where == f"{AT}.transitions[0].to"
    found = graph_checks.step_places(workflow())
    assert (found["q/c"], list(found)) == ("$.phases.q.steps[1]", ["p/a", "p/b", "q/a", "q/c"])
