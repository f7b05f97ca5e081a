"""What the fuzzer calls for Graphviz DOT: a whole file, and a condition on one of its arrows (D61)."""

import json
import re

from loomctl.expressions import conditions
from loomctl.kit.problems import ERROR, NOTE, WARNING, errors
from loomctl.runs.model import frozen_plan
from loomctl.workflows import dot_conditions, dot_workflow, graph_checks, workflow

AT = "2026-01-01T00:00:00Z"
_PLACE = re.compile(r"line ([1-9][0-9]*), column ([1-9][0-9]*)")
_PER_CHARACTER = 400  # bytes of a workflow; a decision's ways multiply, up to a bound of their own
_AT_LEAST = 2_000_000


def drawing(data: bytes) -> None:
    """Text is a workflow, or is refused with places that are in it; neither grows beyond what the text can ask for."""
    text = data.decode("utf-8", "replace")
    made = dot_workflow.convert(text, name="file")
    assert (made.raw is None) == bool(errors(made.problems))
    lines = [len(line) for line in text.split("\n")]
    for one in made.problems:
        assert one.code.isupper()
        assert one.message
        assert one.severity in (ERROR, WARNING, NOTE)
        if one.where != "$":
            _within(one.where, lines)
    for place in made.places.values():
        _within(place, lines)
    assert len(made.problems) <= len(text) + 10
    if made.raw is not None:
        written = json.dumps(made.raw)
        assert len(written) <= _AT_LEAST + _PER_CHARACTER * len(text)
        _planned(json.loads(written))


def _within(where: str, lines: list[int]) -> None:
    """Hold that a place is one of the text's, or the end of one of its lines."""
    found = _PLACE.fullmatch(where)
    assert found, where
    line, column = int(found[1]), int(found[2])
    assert line <= len(lines)
    assert column <= lines[line - 1] + 1


def _planned(raw: dict[str, object]) -> None:
    """Make a plan of what its own reader accepts, and look for ways that lead nowhere."""
    parsed, found = workflow.parse(raw)
    if parsed is None or errors(found):
        return
    if errors(graph_checks.dangling(parsed, parsed, raw)):
        return
    made = workflow.build_plan(raw, plan_id="p", created_at=AT, sources=[])
    graph_checks.problems(frozen_plan.accepted(json.loads(json.dumps(made)), where="x"))


def condition(data: bytes) -> None:
    """A condition is refused in words, or is JavaScript that is shown in short and read back as the same."""
    compiled = dot_conditions.compile_condition(data.decode("utf-8", "replace"))
    assert bool(compiled.javascript) != bool(compiled.errors)
    if not compiled.javascript:
        return
    conditions.compile_condition(compiled.javascript)
    dot_conditions.readable(compiled.javascript)
    again = dot_conditions.compile_condition(dot_conditions.as_written(compiled.javascript))
    assert again.javascript == compiled.javascript


_LOOP = b"""digraph Build {
    graph [goal="Ship it", default_fidelity=compact, retry_target=build, max_node_visits=9]
    node [shape=box, max_retries=1]
    start [shape=Mdiamond]; exit [shape=Msquare]
    subgraph cluster_0 { label="Build"; build [prompt="@prompts/build.md"] }
    review [shape=tab, prompt="Look.", output_schema="routing"]
    gate [shape=diamond, label="Good?"]
    start -> build -> review
    review -> fix [label="[F] Fix", weight=2, fidelity="summary:low"]
    review -> gate [label="[A] Approve", condition="outcome=succeeded && context.tests_passed=true"]
    fix -> review
    gate -> exit [condition="coverage >= 80 || log contains error"]; gate -> fix [condition="log matches ^v[0-9]+"]
}
"""
_BRANCHES = b"""digraph {
    start -> both; both [shape=component, join_policy=first_success]
    both -> { api web } -> joined; joined [shape=tripleoctagon, prompt=Join]
    joined -> ask; ask [shape=hexagon, label=<<b>Go</b> on?>]; ask -> exit [label="Y) Yes"]
    ask -> test:n [label="N - No"]
    test [shape=parallelogram, script="pytest -q" + " tests", timeout=15m]; wait [shape=insulator, duration=5s]
}
"""

SEEDS: dict[str, list[bytes]] = {
    "dot": [
        _LOOP,
        _BRANCHES,
        _LOOP.replace(b"\n", b"\r\n"),
        _LOOP[:-200],
        b'digraph { a -> b -> c -> a; review [shape=tab, output_schema="routing"]; review -> fix [label="Fix"] }',
        b"graph { a -- b }",
        b"strict digraph { a -> b }",
        b"digraph {" + b"subgraph {" * 90 + b"a" + b"}" * 90 + b"}",
        b"digraph {" + b"".join(b"g%d [shape=diamond]; a -> g%d [condition=c];" % (n, n) for n in range(40)) + b"}",
        b'digraph { a [label="\\N \\"q\\" \\\nnext"] /* open',
        b"digraph \xc3\xa9 { \xf0\x9f\x98\x80 [prompt=\xff] }",
        b"digraph { a [condition=<a<b>>] } digraph { b }",
        b"\x00",
        b"",
    ],
    "dot-condition": [
        b"outcome=succeeded && context.tests_passed=true", b'!(a != "x y" || b >= -0.5) && c contains "d"',
        rb"version matches ^v\d+(\.\d+)*$ && ready", b"js: context.a > 1 && state.steps.length", b"((((a))))",
        b"a and b", b"a = 'open", b"!" * 300 + b"a",
    ],
}  # fmt: skip
