"""A workflow in DOT is the workflow that its drawing shows: steps, ways, decisions, branches (D61)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.workflows.dot_workflow import Converted, convert
from tests.helpers.tables import each
from tests.hostile.test_linear import GROWTH, lines_of_python

Step = dict[str, Any]


def converted(body: str) -> Converted:
    return convert("digraph W {\n" + body + "\n}", name="file")


def raw(body: str) -> dict[str, Any]:
    """Convert what is right; warnings are no matter."""
    made = converted(body)
    assert made.raw is not None, made.problems
    return made.raw


def steps(body: str, phase: str = "main") -> list[Step]:
    listed: list[Step] = raw(body)["phases"][phase]["steps"]
    return listed


def step(body: str, step_id: str = "a") -> Step:
    """Give one step of a workflow whose start and end are said here."""
    return next(one for one in steps(body) if one["id"] == step_id)


def codes(body: str, severity: str = "error") -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in converted(body).problems if one.severity == severity]


LINE = "start -> a -> exit; a "
FIELDS = [
    ('[prompt="Do it."]', {"id": "a", "prompt": "Do it."}),
    ('[shape=box, prompt="Do it."]', {"id": "a", "prompt": "Do it."}),
    ('[shape=tab, prompt="Do it."]', {"id": "a", "kind": "prompt", "prompt": "Do it."}),
    ('[label="Do\\nit"]', {"id": "a", "name": "Do it", "prompt": "Do it"}),
    ("[label=<<b>Do</b><br/>it &amp; more>]", {"id": "a", "name": "Do it & more", "prompt": "Do it & more"}),
    ('[label="\\N!", prompt=x]', {"id": "a", "name": "a!", "prompt": "x"}),
    ("", {"id": "a", "prompt": "a"}),
    ('[shape=parallelogram, script="pytest -q"]', {"id": "a", "run": "pytest -q"}),
    ('[shape=parallelogram, tool_command="pytest"]', {"id": "a", "run": "pytest"}),
    ('[type=tool, script="pytest"]', {"id": "a", "run": "pytest"}),
    ('[script="pytest"]', {"id": "a", "run": "pytest"}),
    ('[shape=parallelogram, script="x", timeout="900s"]', {"id": "a", "run": "x", "timeout": 900}),
    ('[shape=parallelogram, script="x", timeout=15m]', {"id": "a", "run": "x", "timeout": 900}),
    ('[shape=parallelogram, script="x", timeout=250ms]', {"id": "a", "run": "x", "timeout": 0.25}),
    ('[shape=parallelogram, script="x", timeout=2h]', {"id": "a", "run": "x", "timeout": 7200}),
    ('[shape=parallelogram, script="x", timeout=60]', {"id": "a", "run": "x", "timeout": 60}),
    ('[shape=parallelogram, script="print(\'x\')", language=python]',
     {"id": "a", "run": "python3 -c 'print('\"'\"'x'\"'\"')'"}),
    ('[shape=parallelogram, script="echo ${name} {run_id}"]', {"id": "a", "run": "echo ${{name}} {run_id}"}),
    ("[shape=insulator, duration=2m]", {"id": "a", "run": "sleep 120"}),
    ('[shape=hexagon, label="Approve?"]', {"id": "a", "name": "Approve?", "kind": "human", "prompt": "Approve?"}),
    ("[type=human]", {"id": "a", "kind": "human", "prompt": "a"}),
    ('[shape=hexagon, prompt="Look at it."]', {"id": "a", "kind": "human", "prompt": "Look at it."}),
    ('[prompt=x, output_schema="routing", output_retries=3]',
     {"id": "a", "prompt": "x", "output_schema": "routing", "output_retries": 3}),
    ('[prompt=x, produces="spec_path, notes"]', {"id": "a", "prompt": "x", "produces": ["spec_path", "notes"]}),
    ('[prompt=x, produces="spec_path = a=b.md, n"]',
     {"id": "a", "prompt": "x", "produces": [{"spec_path": "a=b.md"}, "n"]}),
    ('[prompt=x, output_schema="@schemas/a.json"]', {"id": "a", "prompt": "x", "output_schema": "@schemas/a.json"}),
    ("[prompt=x, fidelity=summary:low, max_visits=3, max_retries=2]",
     {"id": "a", "prompt": "x", "fidelity": "summary:low", "max_visits": 3, "max_retries": 2}),
    ('[prompt=x, max_visits="3"]', {"id": "a", "prompt": "x", "max_visits": 3}),
    ("[prompt=x, retry_policy=standard]", {"id": "a", "prompt": "x", "max_retries": 4}),
    ("[prompt=x, retry_policy=none]", {"id": "a", "prompt": "x", "max_retries": 0}),
    ("[prompt=x, max_visits=0]", {"id": "a", "prompt": "x"}),
    ('[prompt="Do {task}.", for_each="context.parts"]',
     {"id": "a", "prompt": "Do {task}.", "for_each": "context.parts"}),
    ('[prompt="Do {task}."]', {"id": "a", "prompt": "Do {{task}}."}),
    ('[script="make {task}", for_each="artifacts.spec", section=Tasks, allow_empty=true]',
     {"id": "a", "run": "make {task}",
      "for_each": {"list": "artifacts.spec", "section": "Tasks", "allow_empty": True}}),
    ("[prompt=x, retry_target=a]", {"id": "a", "prompt": "x", "retry_target": "a"}),
    ("[prompt=x, retry_target=start]", {"id": "a", "prompt": "x", "retry_target": "a"}),
    ('[prompt="For: {{ goal }}."]', {"id": "a", "prompt": "For: the goal of this run."}),
    ('[prompt="For: $goal."]', {"id": "a", "prompt": "For: the goal of this run."}),
    ('[prompt="{name} {run_id} {\\"x\\": 1}"]', {"id": "a", "prompt": '{{name}} {run_id} {"x": 1}'}),
    ('[prompt="@prompts/a.md"]', {"id": "a", "prompt": "@prompts/a.md"}),
    ("[skill=review, description=D, require_approval=true]",
     {"id": "a", "description": "D", "skill": "review", "require_approval": True}),
    ("[shape=ellipse, prompt=x]", {"id": "a", "prompt": "x"}),
    ("[shape=diamond, prompt=x]", {"id": "a", "prompt": "x"}),
]  # fmt: skip


@each(("attributes", "expected"), FIELDS)
def test_a_node_is_a_step(attributes: str, expected: Step) -> None:
    assert steps(LINE + attributes) == [expected]


def test_the_graph_is_the_workflow() -> None:
    made = raw(
        'graph [goal="Build it", default_fidelity="full", retry_target=a, default_max_retries=2, max_node_visits=9]\n'
        "start -> a -> exit"
    )
    assert made == {
        "id": "W", "description": "Build it", "default_fidelity": "full", "retry_target": "main/a",
        "max_visits": 9, "phases": {"main": {"max_retries": 2, "steps": [{"id": "a", "prompt": "a"}]}},
    }  # fmt: skip
    for text, name in [
        ("digraph { start -> a }", "file"),
        ('digraph "My Flow" { start -> a }', "my-flow"),
        ("digraph X { id=y start -> a }", "y"),
    ]:
        made_of = convert(text, name="file").raw
        assert made_of is not None
        assert made_of["id"] == name


WAYS = [
    ("start -> a -> b -> exit; a -> exit [label=No]", "a", [{"to": "b"}, {"to": "end", "label": "No"}]),
    ("start -> a -> b -> a", "b", [{"to": "a"}]),
    ("start -> a; a -> b; a -> c; b -> exit; c -> exit", "a", [{"to": "b"}, {"to": "c"}]),
    ("start -> a; a -> b; a -> c; b -> exit; c -> exit", "b", [{"to": "end"}]),
    ("start -> a; a -> b; a -> c", "b", [{"to": "end"}]),
    ("start -> a -> b [weight=3, fidelity=full]; b -> exit", "a", [{"to": "b", "weight": 3, "fidelity": "full"}]),
    ("start -> a; a -> exit [weight=2.5]", "a", [{"to": "end", "weight": 2.5}]),
    ('start -> a; a -> exit [condition="outcome=fail"]', "a", [{"to": "end", "condition": 'outcome === "failed"'}]),
    ("start -> a; a -> a [on_failure=true]; a -> exit", "a", [{"to": "a", "on_failure": True}, {"to": "end"}]),
    ("start -> a -> b; b -> start [label=again]; b -> exit", "b", [{"to": "a", "label": "again"}, {"to": "end"}]),
    ('start -> a -> end; end [shape=Msquare]; a -> Done [label="x"]; Done [shape=Msquare]', "a",
     [{"to": "end"}, {"to": "end", "label": "x"}]),
]  # fmt: skip


@each(("body", "step_id", "transitions"), WAYS)
def test_an_arrow_is_a_transition(body: str, step_id: str, transitions: list[Step]) -> None:
    assert step(body, step_id).get("transitions") == transitions


BEGINS = [
    ("start -> a -> exit", "a"), ("Start -> a -> End", "a"),
    ("go [shape=Mdiamond]; go -> a -> stop; stop [shape=Msquare]", "a"),
    ("go [type=start]; b; go -> a -> b", "a"), ("b; a -> b", "a"),
    ("start [prompt=x]; start -> b -> exit", "start"),
    ("start [shape=box, prompt=x]; start -> b -> start", "start"), ("b -> exit; start -> a -> b", "a"),
    ("node [shape=box]; start -> a -> exit", "a"),
]  # fmt: skip


@each(("body", "first"), BEGINS)
def test_it_begins_where_it_is_drawn_to(body: str, first: str) -> None:
    assert steps(body)[0]["id"] == first


def test_steps_are_in_the_order_of_the_arrows_and_a_line_needs_no_transitions() -> None:
    body = "c; b; lost; start -> a -> b -> c -> exit; b -> a [label=again]"
    assert [one["id"] for one in steps(body)] == ["a", "b", "c", "lost"]
    phases = raw("start -> a -> b -> c -> exit; a [phase=plan] b [phase=build] c [phase=plan]")["phases"]
    assert {name: [one["id"] for one in phase["steps"]] for name, phase in phases.items()} == {
        "plan": ["a", "c"],
        "build": ["b"],
    }
    assert phases["plan"]["steps"][0]["transitions"] == [{"to": "build/b"}]
    assert phases["build"]["steps"][0]["transitions"] == [{"to": "plan/c"}]
    assert "transitions" not in str(raw("start -> a -> b -> exit; a [phase=plan] b [phase=build]"))
    assert steps("start -> a -> b -> c -> exit") == [{"id": x, "prompt": x} for x in "abc"]
    assert "transitions" not in str(raw("a -> b -> c"))


OK = 'outcome === "succeeded"'
DECISIONS = [
    # What the documents show: the unconditional way holds for a failed step too.
    ('a -> g; g -> exit [label=Pass, condition="outcome=succeeded"]; g -> a [label=Fix]',
     [{"to": "end", "label": "Pass", "condition": OK}, {"to": "a", "label": "Fix"}, {"to": "a", "on_failure": True}]),
    ('a -> g; g -> exit [condition="outcome=succeeded"]; g -> a [condition="outcome=failed"]',
     [{"to": "end", "condition": OK}, {"to": "a", "condition": 'outcome === "failed"'}]),
    # A decision with one way is that way.
    ("a -> g [label=L]; g -> exit", [{"to": "end", "label": "L"}, {"to": "end", "on_failure": True}]),
    # A condition on the way to it holds for all that it leads to.
    ('a -> g [condition="x"]; g -> exit [condition="outcome=succeeded"]; g -> a; a -> exit',
     [{"to": "end", "condition": "(X) && (" + OK + ")"}, {"to": "a", "condition": "(X) && (!(" + OK + "))"},
      {"to": "end"}]),
    # Conditions of the step's own come before those of the decision.
    ('a -> g; a -> exit [condition="x"]; g -> a [condition="outcome=succeeded"]; g -> exit',
     [{"to": "a", "condition": "(!(X)) && (" + OK + ")"}, {"to": "end"}, {"to": "end", "condition": "X"},
      {"to": "end", "on_failure": True}]),
    # One decision behind another.
    ('a -> g; g -> h; h [shape=diamond]; h -> exit [condition="outcome=succeeded"]; h -> a',
     [{"to": "end", "condition": OK}, {"to": "a"}, {"to": "a", "on_failure": True}]),
    ("a -> g; g -> exit [fidelity=full]",
     [{"to": "end", "fidelity": "full"}, {"to": "end", "fidelity": "full", "on_failure": True}]),
]  # fmt: skip
X = '(context.x && context.x != "" && context.x !== "false" && context.x !== "0")'


@each(("body", "transitions"), DECISIONS)
def test_a_decision_is_folded_into_the_step_before_it(body: str, transitions: list[Step]) -> None:
    """Its ways become that step's, so that the same one is chosen."""
    expected = [
        {**one, "condition": one["condition"].replace("X", X)} if "condition" in one else one for one in transitions
    ]
    assert step("start -> a; g [shape=diamond];" + body)["transitions"] == expected


FAN = "start -> p; p [shape=component]; j [shape=tripleoctagon]; "
TWO = FAN + "p -> {x y}; x -> j; y -> j; "


def test_a_parallel_step_has_its_branches_up_to_the_join_and_what_follows_it() -> None:
    """The join is no step where it asks for nothing; what follows it follows the parallel step."""
    branches = [{"id": name, "steps": [{"id": name, "prompt": name}]} for name in "xy"]
    parallel = {"id": "p", "kind": "parallel", "parallel": {"join": "wait_all", "branches": branches}}
    assert steps(TWO + "j -> z -> exit") == [parallel, {"id": "z", "prompt": "z"}]
    found = steps(TWO + 'j [prompt="Put it together."]; j -> exit; p [join_policy=first_success, label=Fan]')
    assert [one["id"] for one in found] == ["p", "j"]
    assert (found[0]["name"], found[0]["parallel"]["join"]) == ("Fan", "first_success")
    assert found[1] == {"id": "j", "prompt": "Put it together."}
    body = TWO + 'j -> z [condition="outcome=succeeded"]; j -> p [label=again]; z -> exit'
    assert steps(body)[0]["transitions"] == [{"to": "z", "condition": OK}, {"to": "p", "label": "again"}]


def test_a_branch_has_ways_of_its_own() -> None:
    body = FAN + (
        'p -> x [fidelity=full]; x -> t -> g; g [shape=diamond]; g -> j [condition="outcome=succeeded"]; g -> x;'
        "p -> y -> j; j -> exit; t [shape=parallelogram, script=test]"
    )
    branches = steps(body)[0]["parallel"]["branches"]
    assert branches[0]["steps"] == [
        {"id": "x", "prompt": "x", "fidelity": "full"},
        {
            "id": "t",
            "run": "test",
            "transitions": [{"to": "end", "condition": OK}, {"to": "x"}, {"to": "x", "on_failure": True}],
        },
    ]


NAMES = [
    ('"Run tests" -> exit; start -> "Run tests"', {"id": "run-tests", "name": "Run tests", "prompt": "Run tests"}),
    ("start -> run_tests -> exit", {"id": "run_tests", "prompt": "run_tests"}),
    ('start -> "x.y-z" -> exit', {"id": "x.y-z", "prompt": "x.y-z"}),
    ("start -> Ärger -> exit", {"id": "arger", "name": "Ärger", "prompt": "Ärger"}),
]


@each(("body", "expected"), NAMES)
def test_a_nodes_name_is_the_steps_id(body: str, expected: Step) -> None:
    """Where it can be one; else an id is made of it, and the name is kept."""
    assert steps(body) == [expected]


WRONG = [
    ("", "NO_STEPS"),
    ("start -> exit", "BAD_START"),
    ("start", "BAD_START"),
    ("start -> a; start -> b", "BAD_START"),
    ("start -> a [condition=x]", "BAD_START"),
    ("start -> g; g [shape=diamond]; g -> a", "BAD_START"),
    ("a -> b; c -> b", "BAD_START"),
    ("a -> b -> a", "BAD_START"),
    ("s [shape=Mdiamond]; t [shape=Mdiamond]; s -> a; t -> a", "BAD_START"),
    ("start -> a -> exit -> b", "AFTER_END"),
    ('start -> a [condition=x]; a -> b [condition="x = "]', "CONDITION_SYNTAX"),
    ("start -> end; end [prompt=x]; end -> done; done [shape=Msquare]", "RESERVED_ID"),
    ('start -> "a b" -> "a-b"', "DUPLICATE_ID"),
    ("start -> a; a [type=magic]", "UNKNOWN_VALUE"),
    ("start -> a; a [shape=house]", "NOT_SUPPORTED"),
    ("start -> a; a [type=pull_request]", "NOT_SUPPORTED"),
    ("start -> a; a [shape=parallelogram]", "MISSING_TEXT"),
    ("start -> a; a [shape=insulator]", "MISSING_FIELD"),
    ("start -> a; a [shape=insulator, duration=soon]", "WRONG_TYPE"),
    ("start -> a; a [prompt=x, max_visits=many]", "WRONG_TYPE"),
    ("start -> a; a [prompt=x, max_retries=1.5]", "WRONG_TYPE"),
    ("start -> a; a [prompt=x, require_approval=maybe]", "WRONG_TYPE"),
    ("start -> a; a [prompt=x, retry_target=b]", "UNKNOWN_STEP"),
    ("start -> a; retry_target=b", "UNKNOWN_STEP"),
    ("start -> a; a [prompt=x, retry_policy=often]", "UNKNOWN_VALUE"),
    ("start -> a; a [script=x, language=perl]", "UNKNOWN_VALUE"),
    ("start -> a -> b [weight=heavy]", "WRONG_TYPE"),
    ("start -> a -> b [weight=1e400]", "WRONG_TYPE"),
    ("start -> a -> b [on_failure=x]", "WRONG_TYPE"),
    ("start -> a -> g -> h -> g; g [shape=diamond] h [shape=diamond]", "DECISION_LOOP"),
    ("start -> a -> g -> g; g [shape=diamond]", "DECISION_LOOP"),
    ("start -> a; a -> g [label=A]; a -> b [label=B]; g [shape=diamond]; g -> b [condition=x]; g -> exit",
     "AMBIGUOUS_DECISION"),
    ("start -> a; a -> g [condition=x]; a -> b; g [shape=diamond]; g -> b [label=B]; g -> exit [label=E]",
     "AMBIGUOUS_DECISION"),
    ("start -> p; p [shape=component]; p -> x -> exit; p -> y -> exit", "BAD_BRANCH"),
    ("start -> p; p [shape=component]; p -> x; p -> y", "BAD_PARALLEL"),
    (FAN + "p -> j -> exit", "BAD_PARALLEL"),
    (TWO + "x -> y", "BAD_BRANCH"),
    (TWO + "x -> exit", "BAD_BRANCH"),
    (TWO + "j -> x", "BAD_BRANCH"),
    (TWO + "k [shape=tripleoctagon]; x -> k", "BAD_PARALLEL"),
    (FAN + "p -> g; g [shape=diamond]; g -> x -> j; g -> y [condition=c]; y -> j", "BAD_BRANCH"),
    (FAN + "p -> q; q [shape=component]; q -> x -> j", "NOT_SUPPORTED"),
    (TWO + "p [join_policy=quorum]", "UNKNOWN_VALUE"),
]  # fmt: skip


@each(("body", "code"), WRONG)
def test_what_is_no_workflow_is_refused_with_its_place(body: str, code: str) -> None:
    """Nothing comes out that would do half of it."""
    assert converted(body).raw is None
    found = codes(body)
    assert code in [one for one, _ in found], found
    assert all(where.startswith("line ") for _, where in found)


WARNED = [
    ("a [goal_gate=true]", "IGNORED_FIELD"), ("a [selection=random]", "IGNORED_FIELD"),
    ("a [auto_status=true]", "IGNORED_FIELD"), ("a [allow_partial=true]", "IGNORED_FIELD"),
    ("a [timeout=900s]", "IGNORED_FIELD"), ("a [max_visits=0]", "IGNORED_FIELD"),
    ("a [section=Tasks]", "IGNORED_FIELD"),
    ("graph [stall_timeout=10s]", "IGNORED_FIELD"), ("a -> a [loop_restart=true]", "IGNORED_FIELD"),
    ("a [promt=x]", "UNKNOWN_ATTRIBUTE"), ("a -> exit [lable=x]", "UNKNOWN_ATTRIBUTE"),
    ("golas=x", "UNKNOWN_ATTRIBUTE"), ('a [prompt="{{ inputs.name }}"]', "TEMPLATE"),
    ('a -> exit [condition="outcome=ok"]', "NEVER_TRUE"), ("a [label=Do]", "NO_PROMPT"),
]  # fmt: skip


@each(("more", "code"), WARNED)
def test_what_changes_what_the_workflow_does_is_warned_of(more: str, code: str) -> None:
    body = "start -> a -> exit; a [prompt=x];" + more
    if code == "NO_PROMPT":
        body = "start -> a -> exit;" + more
    assert converted(body).raw is not None
    assert code in [one for one, _ in codes(body, "warning")]


def test_what_changes_nothing_is_one_note_and_problems_of_the_raw_workflow_have_places() -> None:
    body = (
        'rankdir=LR; node [fontname=Arial, model="m"]; start -> a -> b -> exit [color=red]; a [class=x, prompt=p] '
        "b [class=y, prompt=p, goal_gate=false, selection=deterministic]"
    )
    found = converted(body).problems
    assert [(one.severity, one.code) for one in found] == [("note", "UNUSED_ATTRIBUTES")]
    assert found[0].message.endswith(": class (2 times), color, fontname, model, rankdir")
    places = converted('start -> a;\na [prompt="x",\n fidelity=full]\na -> a [label=l]; a -> exit').places
    assert places["$.phases.main.steps[0]"] == "line 2, column 10"
    assert places["$.phases.main.steps[0].fidelity"] == "line 4, column 11"
    assert places["$.phases.main.steps[0].transitions[0]"] == "line 5, column 3"


def chain_of_decisions(length: int) -> str:
    """Make decisions that each lead to the next in two ways."""
    nodes = "".join(f"g{n} [shape=diamond];" for n in range(length))
    ways = "".join(f"g{n} -> g{n + 1} [condition=c{n}]; g{n} -> g{n + 1} [condition=d{n}];" for n in range(length - 1))
    return f"start -> a -> g0; {nodes} {ways} g{length - 1} -> exit"


DIAMOND = "start -> a -> g; g [shape=diamond];"
HOSTILE = [
    (chain_of_decisions(60), "TOO_MANY_WAYS"),
    (DIAMOND + "".join(f"g -> b{n} [condition=c{n}];" for n in range(500)), "TOO_MANY_WAYS"),
    (DIAMOND + "g -> a; " + "".join(f"a -> g [condition=c{n}];" for n in range(2000)), "TOO_MANY_WAYS"),
    ("start -> a" + "".join(f"-> g{n}" for n in range(4000)) + ";"
     + "".join(f"g{n} [shape=diamond];" for n in range(4000)) + "g3999 -> g0", "DECISION_LOOP"),
]  # fmt: skip


@pytest.mark.slow
@each(("body", "code"), HOSTILE)
def test_what_would_grow_without_end_is_refused(body: str, code: str) -> None:
    assert code in {one for one, _ in codes(body)}


@pytest.mark.slow
def test_thousands_of_steps_are_read() -> None:
    """In a line, and as a chain of decisions with one way each: no recursion."""
    assert len(steps("start ->" + "->".join(f"s{n}" for n in range(4000)))) == 4000
    body = "start -> a" + "".join(f"-> g{n}" for n in range(3000)) + "-> exit; node [shape=diamond];"
    assert len(steps(body + "".join(f"g{n} [shape=diamond];" for n in range(3000)))) == 1


def loops(length: int) -> str:
    """Write a file of reviews that each lead back or on, in the words of the documents."""
    each = (
        'r{0} [shape=tab, prompt="Look at {0}", output_schema="routing"]; r{0} -> f{0} [label="[F] Fix", weight=2];'
        'f{0} -> r{0}; r{0} -> r{1} [label="Go", condition="outcome=succeeded && context.n{0}=true"];\n'
    )
    return "start -> r0;\n" + "".join(each.format(n, n + 1) for n in range(length)) + f"r{length} -> exit"


@pytest.mark.slow
def test_a_file_that_is_eight_times_as_long_takes_about_eight_times_as_long() -> None:
    """Counted in lines of Python; a third more is let pass."""
    assert raw(loops(800))
    small, large = (lines_of_python(raw, loops(length)) for length in (100, 800))
    assert large < 8 * GROWTH * small


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["start", "a", "b", "p", "j", "g", "exit"]), st.sampled_from("abpjg")).map(
                " -> ".join
            ),
            st.sampled_from(
                [
                    "p [shape=component]", "j [shape=tripleoctagon]", "g [shape=diamond]", "a -> exit",
                    "b -> exit [condition=x]", "g -> b [condition=y]", "j [prompt=x]", "edge [label=l]",
                ]
            ),
        ),
        max_size=14,
    )
)  # fmt: skip
def test_any_drawing_is_a_workflow_or_refused(statements: list[str]) -> None:
    made = converted(";".join(statements))
    assert (made.raw is None) == any(one.severity == "error" for one in made.problems)
    if made.raw is None:
        return
    listed = made.raw["phases"]["main"]["steps"]
    _lead_somewhere(listed)
    for one in listed:
        for branch in one.get("parallel", {"branches": []})["branches"]:
            _lead_somewhere(branch["steps"])


def _lead_somewhere(listed: list[Step]) -> None:
    ids = {one["id"] for one in listed}
    assert len(ids) == len(listed)
    assert all(way["to"] in {*ids, "end"} for one in listed for way in one.get("transitions", ()))
