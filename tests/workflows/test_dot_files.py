"""Workflows in DOT are found, read and bounded like the others, their prompts from files of their own among them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loomctl.workflows.workflow_files import (
    LARGEST_DOT,
    LARGEST_PROMPT,
    Places,
    available,
    load,
    locate,
    with_prompts,
)
from tests.helpers.errors import refusal
from tests.helpers.tables import each

LINE = 'digraph Line { start -> plan -> exit; plan [prompt="Plan it."] }'


@pytest.mark.parametrize("name", ["line.dot", "line.gv", "line.fabro"])
def test_a_file_is_found_and_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / ".loom" / "workflows"
    folder.mkdir(parents=True)
    (folder / name).write_text(LINE, encoding="utf-8")
    places = Places(str(tmp_path), str(tmp_path / ".loom"), str(tmp_path / "bundle"))
    assert locate("line", places).path == locate(name, places, base=str(folder)).path == str(folder / name)
    assert available(places) == ["line"]
    loaded = load(str(folder / name))
    assert loaded.raw == {
        "id": "Line",
        "phases": {"main": {"steps": [{"id": "plan", "prompt": "Plan it."}]}},
    }
    assert loaded.places["$.phases.main.steps[0].prompt"] == "line 1, column 52"
    (folder / "line.json").write_text("{}", encoding="utf-8")
    assert refusal(locate, "line", places).code == "AMBIGUOUS_WORKFLOW"


BAD = [
    (b"digraph {", "DOT_SYNTAX"), (b'digraph { a [x="\xff"] }', "NOT_UTF8"),
    (b"digraph {" + b" " * LARGEST_DOT + b"}", "TOO_LARGE"), (b"digraph {" + b"{" * 100, "TOO_DEEP"),
    (b"", "DOT_SYNTAX"), (b'{"id": "json"}', "DOT_SYNTAX"), (b"\x00", "DOT_SYNTAX"),
]  # fmt: skip


def test_what_cannot_be_read_is_a_problem_and_a_mark_before_the_text_is_no_harm(tmp_path: Path) -> None:
    for data, code in BAD:
        path = tmp_path / "bad.dot"
        path.write_bytes(data)
        loaded = load(str(path))
        assert loaded.raw is None
        assert [problem.code for problem in loaded.problems] == [code]
    (tmp_path / "a.dot").write_bytes(b"\xef\xbb\xbf" + LINE.replace(" ", "\r\n", 1).encode())
    assert load(str(tmp_path / "a.dot")).raw is not None


def asking(reference: str) -> dict[str, object]:
    """Give a workflow with one step that asks for what a file holds."""
    return {"id": "a", "phases": {"main": {"steps": [{"id": "a", "prompt": reference}]}}}


def prompt(raw: dict[str, object], path: Path, root: Path) -> tuple[str, list[str]]:
    """Give the step's prompt, and the codes of what is wrong."""
    filled, problems = with_prompts(raw, str(path), [str(root)])
    return filled["phases"]["main"]["steps"][0]["prompt"], [problem.code for problem in problems]


def test_a_prompt_may_stand_in_a_file_of_steps_of_branches_too(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    (flows / "prompts").mkdir(parents=True)
    (flows / "prompts" / "plan.md").write_text("Plan {{ goal }} in {run_dir}, {not_ours}.\n", encoding="utf-8")
    (tmp_path / "common.md").write_text("Common.", encoding="utf-8")
    flow = flows / "a.dot"
    said = "Plan the goal of this run in {run_dir}, {{not_ours}}.\n"
    assert prompt(asking("@prompts/plan.md"), flow, tmp_path) == (said, [])
    assert prompt(asking("@../common.md"), flow, tmp_path) == ("Common.", [])
    assert prompt(asking("@prompts/plan.md"), flows / "a.json", tmp_path) == ("@prompts/plan.md", [])
    (tmp_path / "p.md").write_text("Do it.", encoding="utf-8")
    (tmp_path / "a.dot").write_text(
        "digraph { start -> p; p [shape=component]; p -> x -> j; j [shape=tripleoctagon]; j -> exit;"
        ' x [prompt="@p.md"] }',
        encoding="utf-8",
    )
    raw = load(str(tmp_path / "a.dot")).raw
    filled, problems = with_prompts(raw, str(tmp_path / "a.dot"), [str(tmp_path)])
    assert not problems
    assert filled["phases"]["main"]["steps"][0]["parallel"]["branches"][0]["steps"][0]["prompt"] == "Do it."


REFUSED = [
    ("@../../etc/passwd", "PATH_ESCAPE"), ("@/etc/passwd", "PATH_ESCAPE"), ("@link.md", "PATH_ESCAPE"),
    ("@nowhere.md", "UNKNOWN_PROMPT"), ("@pipe", "UNKNOWN_PROMPT"), ("@", "UNKNOWN_PROMPT"),
    ("@\0", "PATH_ESCAPE"), ("@large.md", "TOO_LARGE"), ("@latin.md", "NOT_UTF8"),
]  # fmt: skip


@each(("reference", "code"), REFUSED)
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, reference: str, code: str) -> None:
    """Outside of the project, by a link too; a pipe; too much; no text. Nothing of it gets into the workflow (D10)."""
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "secret.md").write_text("secret", encoding="utf-8")
    (root / "link.md").symlink_to(tmp_path / "secret.md")
    os.mkfifo(root / "pipe")
    (root / "large.md").write_bytes(b"x" * (LARGEST_PROMPT + 1))
    (root / "latin.md").write_bytes(b"\xff")
    assert prompt(asking(reference), root / "a.dot", root) == (reference, [code])


def test_many_steps_may_not_ask_for_one_large_file(tmp_path: Path) -> None:
    (tmp_path / "large.md").write_bytes(b"x" * LARGEST_PROMPT)
    steps = [{"id": f"s{n}", "prompt": "@large.md"} for n in range(100)]
    _, problems = with_prompts(
        {"id": "a", "phases": {"main": {"steps": steps}}}, str(tmp_path / "a.dot"), [str(tmp_path)]
    )
    assert len(problems) == 100 - 32
    assert {problem.code for problem in problems} == {"TOO_LARGE"}
    assert problems[0].where == "$.phases.main.steps[32].prompt"
