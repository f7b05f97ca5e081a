"""Placeholders are replaced exactly once, and nothing else is touched (D8, D9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.expressions.placeholders import NAMES, escape, expand, to_portable, used
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

VALUES: dict[str, str | None] = {
    "project_root": "/home/a", "run_id": "r-1", "work_id": None, "plan_id": "",
    "run_dir": "/home/a/.loom/runs/r-1",
}  # fmt: skip
# Texts in which brackets and names meet in every way.
tricky = st.lists(
    st.sampled_from(["{", "}", "<", ">", "{{", "}}", *NAMES, "x", "X", "1", "_", " ", "\n", "é", "😀", "$", '"']),
    max_size=14,
).map("".join)
texts = st.one_of(tricky, st.text())
values = st.dictionaries(st.sampled_from([*NAMES, "x"]), st.one_of(st.none(), texts))


@each(
    ("text", "expected"),
    [
        ("{project_root}/x", "/home/a/x"), ("<project_root>/<run_id>", "/home/a/r-1"),
        ("{run_id}{run_id}", "r-1r-1"), ("{{run_id}}", "{run_id}"), ("{{{run_id}}}", "{{run_id}}"),
        ("<<run_id>>", "<run_id>"), ("<work_id>", "<work_id>"), ("<b>{run_id}</b>", "<b>r-1</b>"),
        ("{Run_id} {run-id} {} {1x} { run_id }", "{Run_id} {run-id} {} {1x} { run_id }"),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'), ("{a:{run_id}}", "{a:r-1}"),
        ("function(){return {run_id}}", "function(){return r-1}"), ("{run_id", "{run_id"),
        ("run_id}", "run_id}"), ("", ""),
    ],
)  # fmt: skip
def test_only_names_in_brackets_are_replaced(text: str, expected: str) -> None:
    assert expand(text, VALUES).text == expected


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("{work_id} {plan_id} {nope} {work_id}", ("work_id", "plan_id", "nope")),
        ("{{work_id}} <work_id>", ()),
        ("<run_id>", ()),
    ],
)
def test_what_has_no_value_is_named_once_and_stays(text: str, missing: tuple[str, ...]) -> None:
    expansion = expand(text, VALUES)
    assert expansion.missing == missing
    for name in missing:
        assert f"{{{name}}}" in expansion.text


def test_used_names_what_would_be_replaced_and_a_value_is_not_read_again() -> None:
    """A value that looks like a placeholder is text: nobody expands through it."""
    assert used("{a} {{b}} <run_id> <x> {a}") == ("a", "run_id")
    assert expand("{run_id}", {"run_id": "{project_root}", "project_root": "/etc"}).text == "{project_root}"


@given(texts, values)
def test_expanding_what_was_escaped_gives_the_text_back(text: str, known: dict[str, str | None]) -> None:
    assert expand(escape(text), known) == (text, ())


@given(texts)
def test_what_has_no_placeholder_is_not_changed(text: str) -> None:
    if escape(text) == text:
        assert expand(text, {}) == (text, ())


parts = st.text(alphabet=st.sampled_from("ab.{}<>_é \\"), min_size=1).filter(lambda part: part not in (".", ".."))
folders = st.lists(parts, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))


@given(folders, folders, folders, st.booleans())
def test_expanding_what_was_stored_gives_the_path_back(root: str, tail: str, run_dir: str, inside: bool) -> None:
    path = root + tail if inside else tail
    stored = to_portable(path, root, run_dir=run_dir)
    assert expand(stored, {"project_root": root, "run_dir": run_dir}) == (path, ())
    if inside:
        assert stored.startswith(("{project_root}/", "{run_dir}"))


@each(
    ("path", "stored"),
    [
        ("/p/specs/x.md", "{project_root}/specs/x.md"), ("/p", "{project_root}"), ("/pp/x", "/pp/x"),
        ("specs/{a}.md", "{project_root}/specs/{{a}}.md"), ("/main/.loom/runs/r/work.md", "{run_dir}/work.md"),
        ("C:\\work\\x.md", "C:\\work\\x.md"), ("\\\\server\\share\\x.md", "\\\\server\\share\\x.md"),
    ],
)  # fmt: skip
def test_a_stored_path_names_no_machine(path: str, stored: str) -> None:
    assert to_portable(path, "/p", run_dir="/main/.loom/runs/r") == stored


@pytest.mark.slow
def test_a_long_text_of_brackets_takes_linear_time() -> None:
    with bounded_work():
        assert expand("{ " * 500_000, {})
