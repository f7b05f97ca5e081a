"""A history holds what the next step is likely to use: its files and names, in the room that it has (D50)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.reduction import history, working_set
from loomctl.reduction.calls import reduce_call
from loomctl.reduction.tokens import closely
from loomctl.reduction.tool_steps import ToolStep
from tests.docs.tokens import count
from tests.helpers.tables import each


def step(tool: str = "Bash", *lines: str, success: bool = True, **args: str) -> ToolStep:
    first = f"{tool}: {'exit 0' if success else 'exit 1'}, 90 lines output"
    return ToolStep("t", tool, args, "\n".join([first, *lines]), None, success)


def files_and_names(*steps: ToolStep) -> tuple[list[str], list[str]]:
    found = working_set.words(steps)
    return found[working_set.PATH], found[working_set.NAME]


@each(
    ("line", "files", "names"),
    [
        ("in: src/cart.py src/tax.py", ["src/cart.py", "src/tax.py"], []),
        ("in: cart.py self.io", ["cart.py"], []),
        ("in: /x/site-packages/a.py src/b.py", ["src/b.py", "/x/site-packages/a.py"], []),
        ("names: pytest-8 SHOP-8", [], ["SHOP-8"]),
        ("no attribute aider.coders.HelpCoder.run in shop.py", ["shop.py"], ["HelpCoder"]),
        ("names: total_of CartPage a1b2c3d", [], ["total_of", "CartPage", "a1b2c3d"]),
        ("at: https://example.org/a/b", ["https://example.org/a/b"], []),
        ("src/cart.py:12:4: error: no `total_of` in Cart", ["src/cart.py"], ["total_of"]),
        ("FAILED tests/test_cart.py::TestCart::test_total - x", ["tests/test_cart.py"], ["TestCart", "test_total"]),
        ("fatal: bad object 3f2a9c1d", [], ["3f2a9c1d"]),
        ("drwxr-xr-x and/or the words, Of a sentence. HTTP 12345678", ["and/or"], []),
    ],
)
def test_files_and_names_are_known_by_their_form(line: str, files: list[str], names: list[str]) -> None:
    assert files_and_names(step("Bash", line)) == (files, names)


def test_what_was_named_last_comes_first_and_what_is_named_again_stays() -> None:
    steps = [step("Bash", f"names: name_{number} again_and_again") for number in range(9)]
    _, names = files_and_names(*steps)
    assert names[0] in ("name_8", "again_and_again")
    assert names.index("again_and_again") < names.index("name_7") < names.index("name_3")


def test_a_file_that_was_read_stays_longer_than_those_that_results_name() -> None:
    steps = [step("Read", file_path="src/cart.py"), *[step("Bash", f"in: a/b_{n}.py") for n in range(5)]]
    assert "src/cart.py" in files_and_names(*steps)[0][:3]


def test_a_file_that_was_written_comes_before_one_that_was_read() -> None:
    steps = [step("Write", file_path="src/new.py"), step("Read", file_path="src/old.py")]
    assert files_and_names(*steps)[0] == ["src/old.py", "src/new.py"][::-1]


@each(
    ("paths", "told"),
    [
        (["a/x.py", "b.py"], ["a/x.py", "b.py"]),
        (["a/x.py", "a/y.py"], ["a/x.py", "a/y.py"]),
        (["a/x.py", "c.py", "a/y.py", "a/z.py"], ["a/{x.py,y.py,z.py}", "c.py"]),
        (["/p/a/", "/p/b/", "/p/c"], ["/p/a/", "/p/b/", "/p/c"]),
        (["a/{x,y}.py", "a/b", "a/c"], ["a/{x,y}.py", "a/b", "a/c"]),
    ],
)
def test_a_folder_of_several_files_is_told_once(paths: list[str], told: list[str]) -> None:
    assert working_set.folded(paths) == told


def test_a_record_without_room_is_told_by_its_first_lines_and_its_names() -> None:
    output = "".join(f"src/part_{n}.py:12: error: thing_{n} is not defined in module_{n}\n" for n in range(60))
    reduced = reduce_call("Bash", {"command": "make"}, None, error=f"Exit code 2\n{output}")
    large = ToolStep("t", "Bash", reduced.minimal_args, reduced.observation, "outputs/t.log", success=False)
    text = history.compact_history([*[step(command=f"ls {n}") for n in range(30)], large], 500)
    assert "`make`: exit 2" in text
    assert "→ outputs/t.log" in text
    assert "src/part_1.py:12: error: thing_1 is not defined in module_1" in text
    shown = [n for n in range(60) if f"thing_{n} " in f"{text} ".replace("\n", " ")]
    assert len(shown) > 8, text


def test_lines_that_are_the_same_are_one_with_their_number() -> None:
    edits = [
        step("Edit", file_path="src/cart.py")._replace(observation=f"Edited src/cart.py (-1 +{n} lines)")
        for n in range(9)
    ]
    made = history.compacted([*edits, *[step(command=f"ls {n}") for n in range(3)]], 500)
    assert "• Edited src/cart.py \u00d79" in made.text
    assert made.full + made.short + made.counted == 12
    assert made.counted == 0


def test_of_a_long_path_that_is_cut_the_end_stays() -> None:
    place = "/home/somebody/projects/shop/packages/cart/src/components/deep"
    steps = [step(command=f"cat {place}/File{n}.tsx") for n in range(24)]
    text = history.compact_history(steps, 400)
    assert all(f"cat …/File{n}.tsx" in text or f"/File{n}.tsx" in text for n in range(4, 24)), text


@each("tool", ["Edit", "MultiEdit", "Write", "NotebookEdit"])
def test_an_edit_tells_the_names_in_it_and_a_failed_one_none(tool: str) -> None:
    new = "def total_of(cart):\n    return sum(price_with_tax(item) for item in cart.items)\n" * 6
    forms: dict[str, dict[str, Any]] = {
        "Edit": {"file_path": "a.py", "old_string": "x", "new_string": new},
        "MultiEdit": {"file_path": "a.py", "edits": [{"old_string": "x", "new_string": new}]},
        "Write": {"file_path": "a.py", "content": new},
        "NotebookEdit": {"notebook_path": "a.ipynb", "new_source": new},
    }
    given = forms[tool]
    assert reduce_call(tool, given, {}).observation.split("\n")[1:] == ["names: total_of price_with_tax"]
    assert "names:" not in reduce_call(tool, given, None, error="it could not").observation


def test_a_secret_in_an_edit_is_in_no_record() -> None:
    secret = "sk-ant-api03-" + "a1B2c3D4" * 12
    given = {"file_path": "a.py", "content": f"api_key = '{secret}'\nother_name = 1\n" * 9}
    (_, names) = reduce_call("Write", given, {}).observation.split("\n")
    assert "other_name" in names
    assert "a1B2" not in names
    assert reduce_call("Write", {"file_path": "a.py", "content": "a_b = 1"}, {}).observation == "Wrote a.py (7 bytes)"


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["src/a_b.py", "/x/" * 40, "CamelCase", "names: ", "in: ", "{a..b}", "\u00d7", "\n", "…", "a" * 400]
)
STEPS = st.builds(
    ToolStep,
    id=st.just("t"),
    tool_name=st.sampled_from(["Bash", "Read", "Edit", "mcp__x"]),
    minimal_args=st.dictionaries(st.sampled_from(["command", "file_path", "q"]), WORDS, max_size=2),
    observation=st.lists(WORDS, max_size=12).map("\n".join),
    outcome_ref=st.none() | st.just("outputs/t.log"),
    success=st.booleans(),
)


@pytest.mark.slow(quick=3)
@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=30), st.integers(1, 700))
def test_no_history_has_more_tokens_or_steps_than_it_says(steps: list[ToolStep], budget: int) -> None:
    made = history.compacted(steps, budget, asked="tidy up", index="loomctl steps")
    assert count(made.text) <= budget
    assert made.full + made.short + made.counted == len(steps)
    assert made.text == history.compact_history(steps, budget, asked="tidy up", index="loomctl steps")


@each("budget", [300, 500, 1000])
def test_a_history_uses_its_budget(budget: int) -> None:
    """Measured at worst, not exactly: what is left is the doubt of the measure."""
    steps = [
        step("Bash", f"in: src/part_{n}/file_{n}.py", f"names: name_{n} Other{n}Name", command=f"make part-{n}")
        for n in range(300)
    ]
    text = history.compact_history(steps, budget, index="loomctl steps")
    assert 0.9 * budget < closely(text) <= budget
