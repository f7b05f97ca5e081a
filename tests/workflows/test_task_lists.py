"""Task lists in Markdown (D65): which lines are boxes, in which order, how one is found again and ticked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from loomctl.workflows import graph_checks, task_lists, workflow

if TYPE_CHECKING:
    from collections.abc import Sequence

BOXES = {
    "every bullet": ("- [ ] a\n* [ ] b\n+ [ ] c\n1. [ ] d\n2) [x] e\n", ["a", "b", "c", "d", "e"]),
    "a tick is x or X, and nothing else": ("- [x] a\n- [X] b\n- [y] c\n- [  ] d\n- [] e\n", ["a", "b"]),
    "a box has a text and a blank before it": ("- [ ]a\n- [ ]\n- [ ] b\n", ["b"]),
    "a text is no box": ("[ ] a\ntext [ ] b\n[x](link)\n-[ ] c\n", []),
    "lines indented below belong to it": ("- [ ] a\n  more\n\n    code\n\n- [ ] b\n", ["a\nmore\n  code", "b"]),
    "bullets without a box belong to it": ("- [ ] a\n  - one\n  - two\n", ["a\n- one\n- two"]),
    "a line at the margin goes on, after a blank it does not": ("- [ ] a\ngoes on\n\nno more\n", ["a\ngoes on"]),
    "a parent comes after its children": (
        "- [ ] a\n  - [ ] b\n    - [ ] c\n  - [ ] d\n- [ ] e\n",
        ["c", "b", "d", "a", "e"],
    ),
    "code is none": ("```\n- [ ] a\n```\n~~~md\n- [ ] b\n~~~\n\n    - [ ] c\n- [ ] d\n", ["d"]),
    "code in a task is its text": (
        "- [ ] a\n  ```sh\n  - [ ] b\n    x\n  ```\n- [ ] c\n",
        ["a\n```sh\n- [ ] b\n  x\n```", "c"],
    ),
    "a shorter fence ends no longer one": ("````\n```\n- [ ] a\n````\n- [ ] b\n", ["b"]),
    "code that never ends takes the rest": ("- [ ] a\n\n```\n- [ ] b\n", ["a"]),
    "code in an item ends with the item": ("- a\n  ```\n- [ ] b\n", ["b"]),
    "a comment is none": ("<!-- - [ ] a -->\n<!--\n- [ ] b\n-->\n- [ ] c\n", ["c"]),
    "a quotation is none": ("> - [ ] a\n", []),
    "tabs": ("-\t[ ] a\n\t- [ ] b\n", ["b", "a"]),
    "a rule ends a list": ("- [ ] a\n---\n  b\n- [ ] c\n* * *\n", ["a", "c"]),
    "line ends and the mark of a file": ("\ufeff- [ ] a\r\n  b\r\n- [x] c", ["a\nb", "c"]),
    "line ends of old": ("# T\r- [ ] a\r  b\r\r- [x] c\r", ["a\nb", "c"]),
    "what JSON and a shell cannot hold": ("- [ ] a\0b\n", ["a\ufffdb"]),
    "a number goes on under a text, where GitHub asks for a blank line": ("text\n2. [ ] a\n", ["a"]),
    "nothing": ("", []),
}


@pytest.mark.parametrize("name", BOXES)
def test_these_are_the_boxes_of_a_file(name: str) -> None:
    text, expected = BOXES[name]
    assert [task.text for task in read(text)] == expected


SECTIONS = {
    "the heading's own": ("# A\n- [ ] a\n## Tasks\n- [ ] b\n# B\n- [ ] c\n", ["b"]),
    "deeper headings are within it": ("## Tasks\n- [ ] a\n### Later\n- [ ] b\n## End\n- [ ] c\n", ["a", "b"]),
    "case, blanks and marks at the end do not count": ("##   TASKS  ##  \n- [ ] a\n", ["a"]),
    "an underlined heading": ("Tasks\n-----\n- [ ] a\n\nEnd\n===\n- [ ] b\n", ["a"]),
    "an underlined heading ends a section": ("# Tasks\n- [ ] a\n\nOther\n=====\n- [ ] b\n", ["a"]),
    "the first of two": ("# Tasks\n- [ ] a\n# Tasks\n- [ ] b\n", ["a"]),
    "one in code is none": ("```\n# Tasks\n- [ ] a\n```\n# Tasks\n- [ ] b\n", ["b"]),
    "a sharp is part of a name": ("# Tasks#\n- [ ] a\n# Tasks\n- [ ] b\n", ["b"]),
    "without a box": ("# Tasks\n\nnone yet\n", []),
    "no such heading": ("# Other\n- [ ] a\n", None),
    "no heading at all": ("- [ ] a\nTasks\n", None),
}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_what_stands_under_its_heading(name: str) -> None:
    text, expected = SECTIONS[name]
    found = task_lists.read(text.encode(), " tasks ")
    assert (None if found is None else [task.text for task in found.tasks]) == expected


AGAIN = {
    "as it was": ("- [ ] a\n- [ ] b\n- [ ] c\n", 2),
    "moved": ("- [ ] b\n- [ ] a\n- [ ] c\n", 1),
    "ticked by hand": ("- [ ] a\n- [x] b\n- [ ] c\n", 2),
    "with more before it": ("- [ ] new\n- [ ] a\n\n# C\n- [ ] b\n- [ ] c\n", 5),
    "reworded between the same two": ("- [ ] a\n- [ ] better\n- [ ] c\n", 2),
    "with notes below it, and moved": ("- [ ] a\n- [ ] new\n- [x] b\n  noted\n  - here\n- [ ] c\n", 3),
    "with notes below it, and its like": ("- [ ] a\n- [ ] new\n- [ ] b\n  noted\n- [ ] b\n  too\n", None),
    "reworded and moved": ("- [ ] better\n- [ ] a\n- [ ] c\n", None),
    "removed": ("- [ ] a\n- [ ] c\n", None),
    "gone with all others": ("", None),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_task_is_found_again_in_an_edited_file(name: str) -> None:
    before = task_lists.read(b"- [ ] a\n- [ ] b\n- [ ] c\n")
    assert before is not None
    noted = before.noted(before.tasks[1])
    text, expected = AGAIN[name]
    after = task_lists.read(text.encode())
    assert after is not None
    found = after.again(noted)
    assert (found and found.line) == expected


def test_a_task_of_a_state_that_says_little_of_it_is_found_by_its_text_alone() -> None:
    found = task_lists.read(b"- [ ] a\n- [ ] b\n")
    assert found is not None
    assert found.again({"text": "b", "line": 9}) == found.tasks[1]
    assert found.again({"text": "c", "line": 1}) is None


def test_of_identical_lines_the_one_that_was_given_is_found() -> None:
    found = task_lists.read(b"- [x] same\n- [ ] same\n- [ ] same\n")
    assert found is not None
    task = found.next()
    assert task is not None
    assert task.line == 2
    assert found.again(found.noted(task)) == task


def test_a_task_says_which_of_how_many_it_is() -> None:
    found = task_lists.read(b"- [x] a\n- [ ] b\n  - [x] c\n  - [ ] d\n")
    assert found is not None
    task = found.next()
    assert task is not None
    noted = found.noted(task)
    assert (noted["text"], noted["number"], noted["of"], noted["line"]) == ("d", 3, 4, 4)


def read(text: str) -> Sequence[task_lists.Task]:
    found = task_lists.read(text.encode("utf-8", "surrogateescape"))
    assert found is not None
    return found.tasks


# ---- In a workflow.


def test_a_list_is_frozen_with_its_path_compiled() -> None:
    (step,) = frozen({"id": "each", "prompt": "{task}", "for_each": "artifacts.spec"})
    assert step["for_each"] == {"list": "artifacts.spec", "path_steps": ["artifacts", "spec"]}


def test_only_a_step_with_a_list_has_a_task() -> None:
    assert codes({"id": "a", "prompt": "{task}"}) == ["UNRESOLVED_PLACEHOLDER"]
    assert codes({"id": "a", "prompt": "{task}", "for_each": "context.a", "evidence": [{"run": "t {task}"}]}) == []
    assert codes({"id": "a", "kind": "human", "prompt": "Yes?", "for_each": "context.a"}) == ["NOT_FOR_HUMANS"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("artifacts.a", "artifacts.b", []),
        ("artifacts.a", "$.artifacts.a", ["SHARED_TASK_LIST"]),
        ({"list": "artifacts.a", "section": "One"}, {"list": "artifacts.a", "section": "Two"}, []),
        ({"list": "artifacts.a", "section": "One"}, {"list": "artifacts.a", "section": " one "}, ["SHARED_TASK_LIST"]),
        ({"list": "artifacts.a", "section": "One"}, "artifacts.a", ["SHARED_TASK_LIST"]),
    ],
)
def test_two_branches_have_no_list_in_common(one: object, other: object, expected: list[str]) -> None:
    branches = [
        {"id": name, "steps": [{"id": "s", "prompt": "{task}", "for_each": each}, {"id": "t", "prompt": "T."}]}
        for name, each in (("x", one), ("y", other))
    ]
    plan = {"phases": [{"id": "p", "steps": frozen({"id": "fan", "parallel": {"branches": branches}})}]}
    assert [problem.code for problem in graph_checks.problems(plan)] == expected


def frozen(*steps: dict[str, object]) -> list[dict[str, Any]]:
    raw = {"id": "w", "phases": {"p": {"steps": list(steps)}}}
    plan = workflow.build_plan(raw, plan_id="w", created_at="", sources=[])
    return list(plan["phases"][0]["steps"])


def codes(step: dict[str, object]) -> list[str]:
    return [problem.code for problem in workflow.parse({"id": "w", "phases": {"p": {"steps": [step]}}})[1]]


# ---- Held against another reader of Markdown, over documents made of what people write.

words = st.sampled_from(["alpha", "beta [x] gamma", "[ ] delta", "`- [ ] code`", "**e**", "zeta: 1. [ ] eta"])
marks = st.sampled_from(["-", "*", "+", "1.", "1)"])


@st.composite
def items(draw: st.DrawFn, depth: int = 0, before: str = "") -> list[str]:
    lines: list[str] = []
    mark = draw(marks)
    for _ in range(draw(st.integers(1, 3))):
        box = draw(st.sampled_from(["[ ] ", "[x] ", "[X] ", "", "[-] "]))
        lines.append(f"{before}{mark} {box}{draw(words)}")
        inner = before + " " * (len(mark) + 1)
        if draw(st.booleans()):
            lines.append(f"{inner}more {draw(words)}")
        if draw(st.integers(0, 4)) == 0:
            lines += ["", f"{inner}```", f"{inner}- [ ] in code", f"{inner}```"]
        if depth < 2 and draw(st.booleans()):
            lines += draw(items(depth + 1, inner))
    return lines


blocks = st.one_of(
    items(),
    words.map(lambda word: [f"text {word}"]),
    words.map(lambda word: [f"## {word}"]),
    st.just(["Heading", "==="]),
    st.just(["```md", "- [ ] in code", "", "1. [x] in code", "```"]),
    st.just(["    - [ ] indented"]),
    st.just(["<!--", "- [ ] hidden", "-->"]),
    st.just(["> - [ ] quoted"]),
    st.just(["---"]),
    st.just(["- [ ]"]),
)
documents = st.lists(blocks, max_size=6).map(lambda found: "\n".join("\n".join([*block, ""]) for block in found))


def boxes_by_another_reader(text: str) -> list[int]:
    """Give the lines of list items whose first thing is a paragraph that opens with a box and a text; no quotations."""
    tokens, found, quotes = MarkdownIt().parse(text), [], 0
    for at, token in enumerate(tokens):
        quotes += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type != "list_item_open" or quotes or tokens[at + 1].type != "paragraph_open":
            continue
        content = tokens[at + 2].content
        if content[:3] in ("[ ]", "[x]", "[X]") and content[3:4].isspace() and content[3:].strip() and token.map:
            found.append(token.map[0] + 1)
    return found


@settings(max_examples=300)
@given(documents)
def test_another_reader_of_markdown_sees_the_same_boxes(text: str) -> None:
    assert sorted(task.line for task in read(text)) == boxes_by_another_reader(text)


anything = st.text(alphabet="- *+1.[]xX #`~<>!=\t\r\n\0\ufeffaé\udcff", max_size=120)


@given(st.one_of(documents, anything), st.sampled_from([None, "a", "heading"]))
def test_ticking_the_boxes_one_by_one_ends_and_changes_one_byte_each(text: str, section: str | None) -> None:
    data = text.encode("utf-8", "surrogateescape")
    found = task_lists.read(data, section)
    for left in range(sum(not task.done for task in found.tasks) if found else 0, 0, -1):
        assert found is not None
        task = found.next()
        assert task is not None
        after = found.ticked(task)
        assert [byte for byte in zip(data, after, strict=True) if byte[0] != byte[1]] == [(ord(" "), ord("x"))]
        data, noted = after, found.noted(task)
        found = task_lists.read(data, section)
        assert found is not None
        again = found.again(noted)
        assert again is not None
        assert (again.line, again.done) == (task.line, True)
        assert sum(not one.done for one in found.tasks) == left - 1


@given(documents)
def test_an_edited_line_elsewhere_moves_no_task(text: str) -> None:
    found = task_lists.read(text.encode())
    assert found is not None
    if (task := found.next()) is not None:
        after = task_lists.read(f"# New\n\n{text}".encode())
        assert after is not None
        again = after.again(found.noted(task))
        assert again is not None
        assert (again.text, again.line) == (task.text, task.line + 2)


EDITED = ("add", "remove", "move", "reword", "note", "tick", "untick")
edits = st.lists(st.tuples(st.sampled_from(EDITED), st.integers(0, 9), st.integers(0, 9)), max_size=4)


def edit(lines: list[str], what: str, at: int, to: int, fresh: str) -> None:
    """Do what somebody does to a list of boxes by hand, a line each, some with a note below."""
    if what == "add" or not lines:
        lines.insert(at % (len(lines) + 1), f"- [ ] {fresh}")
        return
    at %= len(lines)
    if what in ("remove", "move"):
        line = lines.pop(at)
        if what == "move":
            lines.insert(to % (len(lines) + 1), line)
    elif what == "note":
        lines[at] += f"\r\n  {fresh}"
    elif what == "reword":
        lines[at] = lines[at][:6] + fresh
    else:
        lines[at] = lines[at].replace("[ ]" if what == "tick" else "[x]", "[x]" if what == "tick" else "[ ]")


@given(st.integers(1, 6), st.lists(edits, max_size=12))
def test_whatever_is_edited_while_tasks_are_worked_on_each_tick_is_the_tasks_own(count: int, rounds: list[Any]) -> None:
    """Its text is its name while it stands there; else nothing, or what stands in its place, is ticked. It ends."""
    lines = [f"- [ ] task {number}" for number in range(count)]
    for number in range(60):
        found = task_lists.read("\r\n".join(lines).encode())
        assert found is not None
        task = found.next()
        if task is None:
            break
        noted = found.noted(task)
        for index, (what, at, to) in enumerate(rounds[number] if number < len(rounds) else ()):
            edit(lines, what, at, to, f"new {number}.{index}")
        after = task_lists.read("\r\n".join(lines).encode())
        assert after is not None
        own, heads = after.again(noted), [one.text.partition("\n")[0] for one in after.tasks]
        head = noted["text"].partition("\n")[0]
        if head in heads:
            assert own is not None
            assert own.text.partition("\n")[0] == head
        elif own is not None:
            assert own.line == noted["line"]
        if own is not None and not own.done:
            ticked = after.ticked(own).decode().split("\r\n- ")
            before = "\r\n".join(lines).split("\r\n- ")
            changed = [pair for pair in zip(before, ticked, strict=True) if pair[0] != pair[1]]
            assert len(changed) == 1
            assert changed[0][0].replace("[ ]", "[x]", 1) == changed[0][1]
            lines = [ticked[0], *(f"- {line}" for line in ticked[1:])]
    else:
        pytest.fail("the list has no end")
    assert "[ ]" not in "".join(lines)
