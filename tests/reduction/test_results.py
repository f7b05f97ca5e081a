"""What is told of results that are no output of a command: reports, pages, lists, values; the texts are made up."""

from __future__ import annotations

import json
from typing import Any

from loomctl.reduction.calls import reduce_call
from loomctl.reduction.gist import facts, gist
from loomctl.reduction.tokens import estimate
from tests.helpers.tables import each

Json = dict[str, Any]

REPORT = """\
The shed was moved to its own file.

## What was done

- **Commit:** `5ea305f67ff76bf` on branch `ann/shed`
- **File:** `src/shed.wv`, 120 lines

The tests pass.
"""
LONG = "".join(
    f"Thread {n} was looked at, and its colour is as it ought to be, says the person who wove it.\n" for n in range(90)
)


def test_a_subagents_report_is_in_its_record_and_not_its_envelope() -> None:
    result = {
        "status": "completed", "prompt": "You are ann. " * 300, "content": [{"type": "text", "text": REPORT}],
        "totalDurationMs": 9, "totalTokens": 12, "usage": {"input_tokens": 3},
    }  # fmt: skip
    told = reduce_call("Task", {"description": "move the shed"}, result).observation
    assert [line for line in REPORT.split("\n") if line.strip() and line not in told] == []
    assert "You are ann" not in told


def test_of_a_long_report_its_ends_and_its_marked_lines_are_told() -> None:
    text = f"The shed was moved.\n{LONG}- **Commit:** `5ea305f` on `ann/shed`\n{LONG}It is not pushed.\n"
    told = reduce_call("Task", {}, {"content": [{"type": "text", "text": text}]}).observation
    for words in ("The shed was moved.", "- **Commit:** `5ea305f` on `ann/shed`", "It is not pushed."):
        assert words in told
    assert estimate(told) < 900


def test_all_addresses_of_a_search_are_told() -> None:
    links = [{"title": f"Weaving {n}", "url": f"https://weave-{n % 7}.example.org/page/{n * n}"} for n in range(10)]
    result = {"query": "weaving", "results": [{"content": links}, "Weaving is **old**.\nMost looms have a shed."]}
    told = reduce_call("WebSearch", {"query": "weaving"}, result).observation
    assert [link["url"] for link in links if link["url"] not in told] == []
    assert "Weaving is **old**." in told


def test_a_page_is_told_by_what_says_most_of_it_and_its_addresses() -> None:
    page = f"# How to weave\n{LONG}See https://weave.example.org/shed and `pull()`.\n"
    told = reduce_call("WebFetch", {"url": "https://example.org"}, {"code": 200, "result": page}).observation
    assert "# How to weave" in told
    assert "https://weave.example.org/shed" in told


LISTS: list[tuple[str, Json, Any]] = [
    ("Grep", {"pattern": "x"}, {"mode": "content", "content": "%s:3:pull the thread, and then the other one"}),
    ("Grep", {"pattern": "x"}, {"mode": "files_with_matches", "filenames": "%s"}),
    ("Glob", {"pattern": "*"}, {"filenames": "%s"}),
    ("Bash", {"command": "rg pull"}, {"stdout": "%s:3:pull the thread, and then the other one", "stderr": ""}),
    ("Bash", {"command": "git status --short"}, {"stdout": " M %s", "stderr": ""}),
    ("Bash", {"command": "git diff --stat"}, {"stdout": " %s | 12 +++---", "stderr": ""}),
]
FILES = [f"src/{folder}/{name}_side.wv" for folder in ("red", "blue", "green") for name in ("left", "right", "upper")]


@each(("tool", "args", "shape"), LISTS)
def test_all_files_of_a_list_are_told(tool: str, args: Json, shape: Json) -> None:
    result = {
        key: [value % file for file in FILES] if key == "filenames" else "\n".join(value % file for file in FILES)
        if "%s" in value else value
        for key, value in shape.items()
    }  # fmt: skip
    told = reduce_call(tool, args, result).observation
    assert [file for file in FILES if file not in told] == []


def test_of_a_long_list_more_files_are_told_than_would_fit_whole() -> None:
    names = [
        f"/home/ann/work/shop/src/{folder}/{name}.wv" for folder in "abcdefgh" for name in map(chr, range(0x61, 0x7B))
    ]
    told = reduce_call("Glob", {"pattern": "*"}, {"filenames": names}).observation
    whole = sum(name in told for name in names)
    folded = told.rpartition("{")[2].count(".wv") + told.count(",")
    assert 10 < whole < len(names)
    assert whole + folded > 80
    assert estimate(told) < 700


def test_the_ids_of_what_a_tool_made_are_told() -> None:
    made = {"issue": {"id": 90210, "number": 17, "title": "A loose thread", "html_url": "https://example.org/i/17",
                      "body": LONG, "labels": [{"id": 4, "name": "weft"}], "closed": False}}  # fmt: skip
    for result in (made, [{"type": "text", "text": json.dumps(made)}]):
        told = reduce_call("mcp__tracker__create", {"title": "A loose thread"}, result).observation
        for words in ("id=90210 number=17 title=A loose thread", "https://example.org/i/17", "name=weft"):
            assert words in told
        assert "Thread 7 was looked at" not in told


def test_of_a_notebook_the_ids_of_its_cells_are_told_and_what_went_wrong_in_them() -> None:
    cells: list[Json] = [{"cell_id": f"c{n}f", "source": f"pull({n})\n" * 9, "outputs": []} for n in (1, 4, 9)]
    cells[1]["outputs"] = [{"output_type": "error", "text": "KeyError: 'red'"}]
    result = {"type": "notebook", "file": {"filePath": "/w/a.ipynb", "cells": cells}}
    told = reduce_call("Read", {"file_path": "/w/a.ipynb"}, result).observation
    assert "cells: c1f c4f c9f" in told
    assert "KeyError: 'red'" in told
    for broken in (None, 3, [3], [{"outputs": 3}], [{"cell_id": [], "outputs": [None]}]):
        file = {"filePath": "/w/a.ipynb", "cells": broken}
        assert reduce_call("Read", {}, {"type": "notebook", "file": file}).observation


@each(
    ("value", "told"),
    [
        ([{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}], ["id=1 name=red", "id=2 name=blue"]),
        ([{"id": 1, "state": "open"}, {"id": 2, "state": "shut"}], ["id=1 state=open", "id=2 state=shut"]),
        ({"ok": True, "data": {"sha": "5ea305f", "size": 3}}, ["sha=5ea305f size=3"]),
        ({"id": "x" * 500, "text": "red"}, ["text=red"]),
        ({"url": "https://example.org/3", "node_id": "x", "avatar_url": "y"}, ["url=https://example.org/3"]),
        (None, []),
    ],
)
def test_facts_are_what_names_things_and_says_how_they_are(value: Any, told: list[str]) -> None:
    assert facts(value, 100) == told


def test_a_gist_of_a_short_text_is_all_of_it() -> None:
    assert gist("One.\n\n| a | b |\n|---|---|\nTwo.\n", 100) == ["One.", "| a | b |", "Two."]
    assert gist("", 100) == []


SMALL = [
    "src/red.wv\nsrc/blue.wv\n" * 3,
    "\n".join(f"shed/part_{n}.wv:{n}: the thread ends here" for n in range(9)),
    "Traceback (most recent call last):\n  File \"shed.py\", line 3, in pull\n    red()\nKeyError: 'red'\n" * 4,
    json.dumps({"id": 3, "name": "shed", "rows": [{"id": n, "name": f"thread_{n}"} for n in range(9)]}),
    "\n".join(f"checkThread_{n} OrderOfThreads_{n} src/shed_{n}.wv" for n in range(20)),
]


@each("text", SMALL)
def test_what_stands_for_a_small_result_is_never_longer_than_it(text: str) -> None:
    for tool, args, result, error in (
        ("Bash", {"command": "weave"}, {"stdout": text, "stderr": "", "interrupted": False}, ""),
        ("Bash", {"command": "weave"}, None, f"Exit code 1\n{text}"),
        ("mcp__loom__weave", {}, [{"type": "text", "text": text}], ""),
    ):  # fmt: skip
        below = reduce_call(tool, args, result, error=error).observation.partition("\n")[2]
        assert estimate(below) <= estimate(text) + 3
