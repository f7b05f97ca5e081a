"""DOT is read as Graphviz reads it, and with values that people leave unquoted; hostile text is only an error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.kit.problems import Problem
from loomctl.workflows import dot_text
from loomctl.workflows.dot_text import DEEPEST, Graph, Report, quoted
from tests.helpers import graphviz
from tests.helpers.tables import each


def parse(text: str) -> tuple[Graph | None, list[Problem]]:
    """Read a text: what it holds, and what is wrong."""
    report = Report(text)
    return dot_text.parse(text, report), report.problems


def read(text: str) -> Graph:
    graph, problems = parse(text)
    assert graph is not None, problems
    return graph


def edges(text: str) -> list[str]:
    return [f"{edge.tail}>{edge.head}" for edge in read(text).edges]


def attributes(text: str, node: str = "a") -> dict[str, str]:
    return {key: value.text for key, value in read("digraph {" + text + "}").nodes[node].attributes().items()}


EDGES = [
    ("digraph { a -> b }", ["a>b"]), ("digraph g { a->b->c; }", ["a>b", "b>c"]),
    ('digraph "two words" { "a b" -> b }', ["a b>b"]), ("DIGRAPH g { a -> b a -> c }", ["a>b", "a>c"]),
    ("digraph { a -> {b; c} -> d }", ["a>b", "a>c", "b>d", "c>d"]),
    ("digraph { a -> subgraph x { b c } }", ["a>b", "a>c"]),
    ("digraph { {a b} -> {c d} }", ["a>c", "a>d", "b>c", "b>d"]),
    ("digraph { a:p:n -> b:s [weight=1] }", ["a>b"]), ("digraph { a -> b, c -> d; e }", ["a>b", "c>d"]),
    ("digraph { subgraph cluster_x { a -> b } b -> c }", ["a>b", "b>c"]),
    ("digraph { a -> { b -> c } }", ["b>c", "a>b", "a>c"]), ("digraph { a -> {} -> b }", []),
    ("digraph { 1 -> 2.5 -> -3 }", ["1>2.5", "2.5>-3"]), ("digraph { a /* -> x */ -> b // -> y\n}", ["a>b"]),
    ("# made by a program\ndigraph {\n# of nodes\na -> b }", ["a>b"]), ("digraph { ä -> ü_1 }", ["ä>ü_1"]),
    ("digraph { a -> b [label=x] [weight=2] }", ["a>b"]), ("digraph { a -> <b> }", ["a>b"]),
    ('digraph { "node" -> "edge" }', ["node>edge"]), ("digraph { a -> a }", ["a>a"]),
]  # fmt: skip


@each(("text", "expected"), EDGES)
def test_arrows_are_read(text: str, expected: list[str]) -> None:
    """Chains, sub-graphs as ends, ports passed over, comments, names of every kind; and Graphviz reads it too."""
    assert edges(text) == expected
    assert graphviz.is_read(text)


VALUES = [
    ("a [x=1]", "1"), ("a [x=-1.5]", "-1.5"), ("a [x=.5]", ".5"), ("a [x=box]", "box"), ('a [x="box"]', "box"),
    ('a [x=""]', ""), ('a [x="a" + "b" + "c"]', "abc"), ('a [x="line\\nbreak"]', "line\nbreak"),
    ('a [x="tab\\tand \\"quote\\" and \\\\"]', 'tab\tand "quote" and \\'), ('a [x="^v\\d+"]', "^v\\d+"),
    ('a [x="one \\\n  line"]', "one   line"), ('a [x="one \\\r\nline"]', "one line"),
    ('a [x="two\nlines"]', "two\nlines"),
    ('a [x="// no comment /* nor this */ # nor this"]', "// no comment /* nor this */ # nor this"),
    ("a [x=<<b>bold</b> text>]", "<b>bold</b> text"), ("a [y=2; x=1]", "1"), ("a [y=2 x=1]", "1"),
    ("a [x=2]; a [x=1]", "1"), ("a [x=2] [x=1]", "1"), ("node [x=1]; a", "1"), ("node [x=1]; a [y=2]", "1"),
    ("node [x=2]; a [x=1]", "1"), ("node [x=1]; b -> a", "1"), ("subgraph s { node [x=1]; a }", "1"),
    ("node [x=1]; subgraph s { node [x=2]; b } a", "1"), ("subgraph s { node [x=2]; b } a [x=1]", "1"),
    ("node [x=1]; a; node [x=2]; a -> b", "1"),
]  # fmt: skip


@each(("text", "expected"), VALUES)
def test_attributes_are_read(text: str, expected: str) -> None:
    """Values of every kind; a default holds from where it stands, in its subgraph; and Graphviz reads the same."""
    assert attributes(text)["x"] == expected
    assert graphviz.is_read("digraph {" + text + "}")


LOOSE = [
    ("a [x=900s]", "900s"), ("a [x=250ms, y=1]", "250ms"), ("a [x=claude-sonnet-4-5]", "claude-sonnet-4-5"),
    ("a [x=gpt-5.2-codex]", "gpt-5.2-codex"), ("a [x=summary:high]", "summary:high"),
    ("a [stack.child=1, x=1]", "1"), ("x.y=1 a [x=1]", "1"), ("\n  # a line of its own\n a [x=1]", "1"),
]  # fmt: skip


@each(("text", "expected"), LOOSE)
def test_values_that_graphviz_wants_quoted_are_read(text: str, expected: str) -> None:
    """Durations, names of models, dotted keys: they stand bare in the files that people have."""
    assert attributes(text)["x"] == expected
    assert "stack.child" in attributes("a [stack.child=1]")


def test_defaults_are_for_what_follows_them_and_what_is_said_of_the_graph_is_the_graphs() -> None:
    assert "x" not in attributes("a; node [x=1]; a -> b")
    assert "x" not in attributes("subgraph s { node [x=1]; b } a")
    graph = read("digraph { edge [w=1]; a -> b; { edge [w=2]; a -> c } a -> d [w=3]; a -> e }")
    assert [edge.attributes["w"].text for edge in graph.edges] == ["1", "2", "3", "1"]
    graph = read('digraph W { graph [goal="g"] rankdir=LR; label="L" subgraph s { label="inner"; goal="no" } }')
    assert {key: value.text for key, value in graph.attributes.items()} == {"goal": "g", "rankdir": "LR", "label": "L"}
    assert graph.name is not None
    assert graph.name.text == "W"
    assert read("digraph {}").name is None


WRONG = [
    ("", "line 1, column 1", "must begin with digraph"),
    ("a -> b", "line 1, column 1", "must begin with digraph"),
    ("{}", "line 1, column 1", "must begin with digraph"),
    ("graph { a -- b }", "line 1, column 1", "undirected"),
    ("strict digraph { a -> b }", "line 1, column 1", "strict"),
    ("digraph {\n  a -- b\n}", "line 2, column 5", "no direction"),
    ("digraph {\n  a -> b", "line 1, column 9", "has no }"),
    ("digraph { a -> }", "line 1, column 13", "must lead to a step"),
    ("digraph { a -> -> b }", "line 1, column 16", "must begin at a step"),
    ("digraph { -> b }", "line 1, column 11", "must begin at a step"),
    ("digraph { a [x=1 }", "line 1, column 18", "among attributes"),
    ("digraph { a [x] }", "line 1, column 15", "missing = after"),
    ("digraph { a [x=] }", "line 1, column 16", "missing value"),
    ("digraph { a [label=two words] }", "line 1, column 29", "missing = after"),
    ("digraph { a [x=@file] }", "line 1, column 16", "unexpected"),
    ('digraph { a [x="open] }', "line 1, column 16", "no end"),
    ("digraph { a [x=<open] }", "line 1, column 16", "no end"),
    ("digraph { /* open }", "line 1, column 11", "no end"),
    ("digraph { a } }", "line 1, column 15", "after the graph's end"),
    ("digraph { a } digraph { b }", "line 1, column 15", "after the graph's end"),
    ("digraph { [x=1] }", "line 1, column 11", "must follow a step"),
    ("digraph { {a b} [x=1] }", "line 1, column 17", "must follow a step"),
    ("digraph { node }", "line 1, column 16", "expected ["),
    ("digraph { a -> node [x=1] }", "line 1, column 16", "keyword of DOT"),
    ("digraph { edge = 1 }", "line 1, column 11", "keyword of DOT"),
    ("digraph { a:  }", "line 1, column 12", "port"),
    ('digraph { a [x="a" + b] }', "line 1, column 20", "needs two"),
    ("digraph { a $ }", "line 1, column 13", "unexpected"),
    ("digraph g h { }", "line 1, column 11", "expected {"),
    ("digraph { subgraph x y { } }", "line 1, column 22", "expected {"),
]


@each(("text", "where", "said"), WRONG)
def test_what_is_wrong_is_said_with_its_place(text: str, where: str, said: str) -> None:
    graph, problems = parse(text)
    assert graph is None
    assert [(problem.code, problem.where) for problem in problems] == [("DOT_SYNTAX", where)]
    assert said in problems[0].message


def test_a_name_that_dot_wants_quoted_is_said_to_want_it_and_places_are_counted_in_characters() -> None:
    graph, problems = parse("digraph { run-tests -> b }")
    assert graph is None
    assert '"run-tests"' in problems[0].hint
    lines = Report("aé\n\n  b")
    assert [lines.where(at) for at in (0, 1, 3, 6)] == [
        "line 1, column 1", "line 1, column 2", "line 2, column 1", "line 3, column 3",
    ]  # fmt: skip


HOSTILE = [
    ("digraph" + "{" * 5000, "TOO_DEEP"),
    ("digraph {" + "{" * DEEPEST, "TOO_DEEP"),
    ("digraph {" + " ".join(f"n{number}" for number in range(6000)) + "}", "TOO_LARGE"),
    ("digraph {" + "a->b;" * 20_001 + "}", "TOO_LARGE"),
    (
        "digraph {{" + " ".join(f"n{n}" for n in range(200)) + "} -> {" + " ".join(f"m{n}" for n in range(200)) + "}}",
        "TOO_LARGE",
    ),
    ("digraph { node [" + " ".join(f"k{number}=1" for number in range(300)) + "] }", "TOO_LARGE"),
    ("digraph {" + "".join(f"node [k{number}=1]" for number in range(300)) + "}", "TOO_LARGE"),
    ("digraph {" + "".join(f"k{number}=1;" for number in range(300)) + "}", "TOO_LARGE"),
    ("digraph { a" + "->a" * 60_000 + "}", "TOO_LARGE"),
    ("/*" * 100_000, "DOT_SYNTAX"),
    ("digraph { a [x=" + "<" * 200_000, "DOT_SYNTAX"),
    ('digraph { a [x="' + "\\" * 200_001, "DOT_SYNTAX"),
    ("digraph {" + "\n#" * 100_000, "DOT_SYNTAX"),
    ("digraph { a [x=" + "a-" * 100_000, "DOT_SYNTAX"),
    ('digraph { a [x="a"' + '+"a"' * 50_000, "DOT_SYNTAX"),
    ("digraph {" + "a;" * 100_000, "DOT_SYNTAX"),
    ("digraph {" + "{}" * 100_000, "DOT_SYNTAX"),
    ("digraph {" + "node[x=1]" * 25_000, "DOT_SYNTAX"),
    ("digraph { a" + "[x=1]" * 45_000, "DOT_SYNTAX"),
]


@each(("text", "code"), HOSTILE)
def test_hostile_text_is_only_an_error(text: str, code: str) -> None:
    """Deep, wide, never ending: one problem."""
    graph, problems = parse(text)
    assert graph is None
    assert [problem.code for problem in problems] == [code]


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet='digraph {}[]->=;,:"<>+\\/*#\nab1.-', max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, "digraph {" + text + "}"):
        graph, problems = parse(whole)
        assert (graph is None) == bool(problems)


NAMES = st.one_of(
    st.sampled_from(["a", "b", "run_tests", "_x", "ä", "7", "-1.5", "node1"]),
    st.text(alphabet="ab \"\\\n->{}'é", min_size=1, max_size=6).map(quoted),
)
ATTRIBUTES = st.lists(st.tuples(NAMES, NAMES), max_size=3).map(
    lambda pairs: "[" + ", ".join(f"{key}={value}" for key, value in pairs) + "]"
)
OPERANDS = st.one_of(NAMES, st.lists(NAMES, max_size=3).map(lambda names: "{ " + " ".join(names) + " }"))
STATEMENTS = st.recursive(
    st.one_of(
        st.tuples(NAMES, ATTRIBUTES).map(" ".join),
        st.tuples(st.lists(OPERANDS, min_size=2, max_size=4).map(" -> ".join), ATTRIBUTES).map(" ".join),
        st.tuples(st.sampled_from(["node", "edge", "graph"]), ATTRIBUTES).map(" ".join),
        st.tuples(NAMES, NAMES).map(" = ".join),
        st.tuples(NAMES, st.sampled_from([";", " /* a comment */", " // a comment\n"])).map("".join),
    ),
    lambda inner: st.lists(inner, max_size=4).map(lambda several: "subgraph s { " + "\n".join(several) + " }"),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(STATEMENTS, max_size=6))
def test_what_the_standard_allows_graphviz_and_we_read_alike(statements: list[str]) -> None:
    text = "digraph {\n" + "\n".join(statements) + "\n}"
    assert graphviz.is_read(text) == (parse(text)[0] is not None), parse(text)[1]
    ours = read(text)
    drawn = graphviz.rendered(text, "plain").replace("\\\n", "")
    assert (drawn.count("\nnode "), drawn.count("\nedge ")) == (len(ours.nodes), len(ours.edges))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_a_quoted_text_is_read_as_it_was(text: str) -> None:
    value = read(f"digraph {{ a [x={quoted(text)}] }}").nodes["a"].own["x"]
    assert value.text == text.replace("\r", "").replace("\0", "")
