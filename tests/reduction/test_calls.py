"""A tool call is reduced to the document's words and the signal in its output, and can be rebuilt from what is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.reduction.calls import rebuilt, reduce_call
from loomctl.reduction.tool_steps import OTHER, RULES, Rule, rule_for
from tests.helpers.tables import each

Json = dict[str, Any]

CONFIG = json.dumps({"model": "gpt-4", "words": "x" * 1470, "n": 1}, indent=2)
CONFIG = CONFIG[:-1] + " " * (1523 - len(CONFIG)) + "}"
LOG = "\n".join(f"{number:07x} fix: bug {number}" for number in range(20)) + "\n"
ENTRIES = [f"file_{number}.py" for number in range(15)] + [f"folder_{number}/" for number in range(5)]
RESULTS = [{"title": f"Bitcoin {n}", "url": f"https://example.com/{n}", "snippet": "…"} for n in range(10)]
PAGE = {"status": 200, "title": "Example Article", "text": "An article about it. " * 2438, "links": ["a"] * 100}
SAID = {"stdout": "a\nb", "stderr": "", "interrupted": False}

DOCUMENT = [
    ("fs:read_file", {"path": "config.json"}, {"content": CONFIG}, "Read config.json (1523 bytes, JSON)"),
    ("fs:write_file", {"path": "report.md", "content": "x" * 5234}, {"success": True},
     "Wrote report.md (5234 bytes)"),
    ("fs:list_dir", {"path": "src/"}, {"entries": ENTRIES}, "Listed src/: 20 items (15 files, 5 dirs)"),
    ("web:search", {"query": "Bitcoin price", "count": 10}, {"results": RESULTS},
     "Found 10 results for 'Bitcoin price'"),
    ("browser:navigate", {"url": "https://example.com/article"}, PAGE,
     "Visited example.com/article (status=200, 50KB text)"),
    ("system:shell", {"command": "git", "args": ["log", "--oneline", "-20"]},
     {"stdout": LOG, "stderr": "", "exit_code": 0}, "git log: exit 0, 20 lines output"),
]  # fmt: skip
CLAUDE = [
    ("Read", {"file_path": "/p/a.py", "offset": 10, "limit": 5},
     {"type": "text",
      "file": {"filePath": "/p/a.py", "content": "x = 1\n" * 5, "numLines": 5, "startLine": 10, "totalLines": 90}},
     "Read /p/a.py (30 bytes, text, lines 10-14 of 90)"),
    ("Write", {"file_path": "/p/b.md", "content": "ü\n"}, {"type": "create", "filePath": "/p/b.md", "content": "ü\n"},
     "Wrote /p/b.md (3 bytes)"),
    ("Edit", {"file_path": "/p/a.py", "old_string": "a", "new_string": "b\nc"},
     {"filePath": "/p/a.py", "originalFile": "a"}, "Edited /p/a.py (-1 +2 lines)"),
    ("MultiEdit", {"file_path": "/p/a.py", "edits": [{"old_string": "a", "new_string": "b\nc"}, {}]},
     {"filePath": "/p/a.py"}, "Edited /p/a.py (2 edits, -1 +2 lines)"),
    ("NotebookEdit", {"notebook_path": "/p/a.ipynb", "cell_id": "c1", "new_source": "a\nb", "edit_mode": "insert"},
     {"cell_id": "c2", "new_source": "a\nb", "error": ""}, "Edited /p/a.ipynb (inserted after cell c1, +2 lines)"),
    ("NotebookEdit", {"notebook_path": "/p/a.ipynb", "cell_id": "c1", "new_source": "", "edit_mode": "delete"},
     {"cell_id": "c1", "error": ""}, "Edited /p/a.ipynb (cell c1 deleted)"),
    ("Glob", {"pattern": "**/*.py"}, {"filenames": ["a.py", "b.py"], "numFiles": 2, "truncated": False},
     "Found 2 files for **/*.py"),
    ("LS", {"path": "/p"}, "- /p/\n  - a.py\n  - docs/\n    - b.md\n\nNOTE: something about these files\n",
     "Listed /p: 3 items (2 files, 1 dir)"),
    ("fs:list_dir", {"path": "src"},
     {"entries": [{"name": "a.py", "type": "file"}, {"name": "d", "type": "directory"}]},
     "Listed src: 2 items (1 file, 1 dir)"),
    ("fs:list_dir", {"path": "src"}, {"entries": ["a.py"]}, "Listed src: 1 item"),
    ("Glob", {"pattern": "*.py"}, {"filenames": ["a.py"] * 100, "numFiles": 100, "truncated": True},
     "Found 100 files for *.py, more were cut off"),
    ("Grep", {"pattern": "x"}, {"mode": "files_with_matches", "filenames": ["a.py", "b.py"], "numFiles": 2},
     "Grep 'x': 2 files"),
    ("Grep", {"pattern": "x"}, {"mode": "files_with_matches", "filenames": [], "numFiles": 0}, "Grep 'x': 0 files"),
    ("Grep", {"pattern": "x", "output_mode": "count"},
     {"mode": "count", "numFiles": 2, "filenames": [], "content": "a.py:3\nb.py:9", "numMatches": 12},
     "Grep 'x': 12 matches in 2 files"),
    ("Read", {"file_path": "/p/a.png"},
     {"type": "image", "file": {"base64": "iVBORw0KGgo" * 300, "type": "image/png", "originalSize": 24111}},
     "Read /p/a.png (24111 bytes, image/png)"),
    ("Read", {"file_path": "/p/a.pdf"},
     {"type": "pdf", "file": {"filePath": "/p/a.pdf", "base64": "JVBERi0" * 300, "originalSize": 99}},
     "Read /p/a.pdf (99 bytes, PDF)"),
    ("Read", {"file_path": "/p/a.pdf", "pages": "1-5"},
     {"type": "parts", "file": {"filePath": "/p/a.pdf", "originalSize": 99, "count": 5, "outputDir": "/tmp/x"}},
     "Read /p/a.pdf (99 bytes, PDF, 5 pages)"),
    ("Read", {"file_path": "/p/a.ipynb"},
     {"type": "notebook", "file": {"filePath": "/p/a.ipynb", "cells": [{"source": "x = 1"}]}},
     "Read /p/a.ipynb (notebook, 1 cell)"),
    ("Read", {"file_path": "/p/a.py"}, {"type": "file_unchanged", "file": {"filePath": "/p/a.py"}},
     "Read /p/a.py (unchanged)"),
    ("Grep", {"pattern": "def x", "path": "src"},
     {"mode": "content", "content": "a.py:1:def x\nb.py:2:def x", "numFiles": 2}, "Grep 'def x' in src: 2 lines"),
    ("Bash", {"command": "uv run pytest -q"}, {"stdout": "3 passed in 0.1s", "stderr": "", "interrupted": False},
     "uv run: exit 0, 1 line output"),
    ("Bash", {"command": "sleep 99"}, {"stdout": "", "stderr": "", "interrupted": True},
     "sleep: interrupted, no output"),
    ("Bash", {"command": "cd /p && X=1 timeout 60 pytest -q"}, SAID, "pytest: exit 0, 2 lines output"),
    ("Bash", {"command": "python3 -m pytest -q"}, SAID, "python3 -m pytest: exit 0, 2 lines output"),
    ("Bash", {"command": "git push"}, {"stdout": "", "stderr": "a\nb\n", "code": 0},
     "git push: exit 0, 2 lines stderr"),
    ("Bash", {"command": "cat a.png"}, {"stdout": "\x00\x01" * 9, "code": 0}, "cat: exit 0, 18 bytes binary output"),
    # What no tool said is not said for it: neither that a command went well nor that it has an exit code of -1.
    ("system:shell", {"command": "ls"}, {"stdout": "a\nb"}, "ls: no exit code, 2 lines output"),
    ("Bash", {"command": "ls"}, "a\nb", "ls: no exit code, 2 lines output"),
    ("system:shell", {"command": "ls"}, {"stdout": "a", "exit_code": -1}, "ls: no exit code, 1 line output"),
    ("system:shell", {"command": "ls"}, {"stdout": "", "returncode": -9}, "ls: ended by signal 9, no output"),
    ("system:shell", {"command": "ls"}, {"stdout": "", "exit_code": -1, "timed_out": True},
     "ls: timed out, no output"),
    ("system:shell", {"command": "ls"}, {"stdout": "", "timedOut": True}, "ls: timed out, no output"),
    ("system:shell", {"command": "ls"}, {"stdout": "", "exit_code": 0, "timed_out": False}, "ls: exit 0, no output"),
    ("system:shell", {"command": "ls"},
     {"stdout": "", "stderr": "Command timed out after 10 seconds", "exit_code": -1}, "ls: timed out, 1 line stderr"),
    ("Bash", {"command": "npm run dev", "run_in_background": True},
     {"stdout": "", "stderr": "", "interrupted": False, "backgroundTaskId": "b1"},
     "npm run: runs in the background as b1, no output"),
    ("BashOutput", {"bash_id": "b1"},
     {"shellId": "b1", "status": "running", "exitCode": None, "stdout": "a\n", "stderr": ""},
     "b1: running, 1 line output"),
    ("BashOutput", {"bash_id": "b1"},
     "<status>completed</status>\n\n<exit_code>3</exit_code>\n\n<stdout>\nx\n</stdout>",
     "b1: exit 3, 7 lines output"),
    ("Bash", {"command": "rg colour"}, {"stdout": "", "stderr": "", "returnCodeInterpretation": "No matches found"},
     "rg colour: No matches found, no output"),
    ("WebFetch", {"url": "https://example.com/a?b=1"}, {"bytes": 10, "code": 404, "result": "Nothing here."},
     "Visited example.com/a?b=1 (status=404, 13 bytes text)"),
    ("WebSearch", {"query": "loom"}, {"query": "loom", "results": RESULTS}, "Found 10 results for 'loom'"),
    ("WebSearch", {"query": "loom"},
     {"query": "loom", "results": [{"tool_use_id": "t", "content": RESULTS}, "In short: it weaves, see http://x"]},
     "Found 10 results for 'loom'"),
    ("mcp__a__b", {}, [{"type": "text", "text": "two\nlines"}], "mcp__a__b: ok, 9 bytes text"),
    ("mcp__a__b", {}, {"content": [{"type": "text", "text": "no"}], "isError": True},
     "mcp__a__b: failed, 2 bytes text"),
    ("mcp__a__b", {}, [{"type": "image", "source": {"data": "iVBO" * 99}}], "mcp__a__b: ok, 1 image"),
    ("mcp__db__query", {"sql": "select 1"}, {"rows": [[1]]}, "mcp__db__query: ok, 30 bytes JSON"),
    ("a/../b tool", {}, None, "a/../b tool: ok, 0 bytes empty"),
]  # fmt: skip


@pytest.mark.slow(quick=22)
@pytest.mark.parametrize(
    ("tool", "args", "result", "first"), DOCUMENT + CLAUDE, ids=[row[3][:40] for row in DOCUMENT + CLAUDE]
)
def test_the_first_line_says_what_came_of_it(tool: str, args: Json, result: Any, first: str) -> None:
    assert reduce_call(tool, args, result).observation.partition("\n")[0] == first


FAILED = """\
$ tsc
src/app/main.ts:14:3 - error TS2322: Type 'string' is not assignable to type 'number'.
src/app/main.ts:20:9 - error TS2304: Cannot find name 'colour'.
src/lib/util.ts:7:1 - error TS2304: Cannot find name 'theme'.
"""
TESTS = "\n".join(f"tests/test_a.py::test_{n} PASSED" for n in range(80)) + (
    "\nFAILED tests/test_a.py::test_dark - AssertionError: assert 'light' == 'dark'\n"
    "==== 1 failed, 80 passed in 2.13s ====\n"
)
SIGNALS = [
    (
        FAILED,
        ["src/app/main.ts:14:3 - error TS2322: Type 'string'", "main.ts:20:9 - error TS2304", "src/lib/util.ts:7:1"],
    ),
    (TESTS, ["FAILED tests/test_a.py::test_dark - AssertionError", "1 failed, 80 passed"]),
    ("Error: Exit code 1\nfatal: not a git repository (or any parent)", ["fatal: not a git repository"]),
    ("\x1b[31mError:\x1b[0m \x1b[1mno such table: users\x1b[0m\n" + "ok\n" * 300, ["Error: no such table: users"]),
    ("\r".join(f"{n} %" for n in range(100)) + "\rdone\nnpm ERR! code E404\r\n", ["npm ERR! code E404"]),
    ("y" * 200_000 + "\nTraceback (most recent call last):\nKeyError: 'colour'\n", ["KeyError: 'colour'"]),
]


@each(("output", "wanted"), SIGNALS)
def test_what_failed_is_told(output: str, wanted: list[str]) -> None:
    """Error lines, failing tests and the last word stand in the observation, however much there is around them."""
    for call in ({"stdout": output, "stderr": "", "exit_code": 1}, {"stdout": "", "stderr": output, "exit_code": 1}):
        reduction = reduce_call("system:shell", {"command": "make"}, call)
        assert not reduction.success
        assert [line for line in wanted if line not in reduction.observation] == []
        assert len(reduction.observation) < 6000
    told = reduce_call("Bash", {"command": "make"}, None, error=output)
    assert not told.success
    assert [line for line in wanted if line not in told.observation] == []


def test_a_search_without_matches_has_not_failed() -> None:
    for code, success in ((0, True), (1, True), (2, False)):
        call = {"stdout": "", "stderr": "", "exit_code": code}
        assert reduce_call("system:shell", {"command": "grep -rn colour src"}, call).success is success


SEARCHES = [
    ("rg -n 'a|b' src", True), ("cd src && grep -rn colour .", True), ("cat a.log | grep -i failed", True),
    ("git grep colour", True), ("make", False), ("make && grep colour a.log", False),
    ("grep colour a.log; make", False),
]  # fmt: skip


@each(("command", "success"), SEARCHES)
def test_of_a_host_too_a_search_that_found_nothing_has_not_failed(command: str, success: bool) -> None:
    reduction = reduce_call("Bash", {"command": command}, None, error="Exit code 1")
    assert reduction.success is success
    assert reduction.observation.endswith(": exit 1, no output")
    assert not reduce_call("Bash", {"command": command}, None, error="Exit code 1\ngrep: src: no such file").success


@each(
    ("words", "command"),
    [
        (["-c", "import os; print(1)"], "python3 -c 'import os; print(1)'"),
        (["-m", "pytest", "-k", "it's"], "python3 -m pytest -k 'it'\"'\"'s'"),
        (["-20", "", None, 3], "python3 -20 '' 3"),
    ],
)
def test_arguments_that_are_joined_stay_what_they_were(words: list[Any], command: str) -> None:
    """Each that a shell would take for several words, or none, is quoted; the call is rebuilt as it was (D47)."""
    args = {"command": "python3", "args": words}
    reduction = reduce_call("system:shell", args, {"stdout": "", "exit_code": 0})
    assert reduction.minimal_args == {"command": command}
    assert rebuilt(reduction.minimal_args, reduction.rest, reduction.text)[0] == args


QUIET = [
    ("Grep", {"pattern": "x"}, {"mode": "files_with_matches", "filenames": ["src/a.py"], "numFiles": 1}, "src/a.py"),
    ("Glob", {"pattern": "*"}, {"filenames": [], "durationMs": 12, "numFiles": 0, "truncated": False}, ""),
    ("fs:list_dir", {"path": "."}, {"entries": ["a.py"]}, "a.py"),
    ("web:search", {"query": "x"}, {"results": []}, ""),
    ("fs:write_file", {"path": "a"}, {"success": False, "error": "disk full"}, "disk full"),
    ("Bash", {"command": "make"}, {"stdout": "", "stderr": "Exit code 1"}, "Exit code 1"),
    ("weather:get", {}, {"main": {"temp": 4}}, '{"main": {"temp": 4}}'),
]


@each(("tool", "args", "result", "below"), QUIET)
def test_a_value_is_told_without_the_signs_of_its_form(tool: str, args: Json, result: Any, below: str) -> None:
    """A short one stands as what it lists, else on one line."""
    assert reduce_call(tool, args, result).observation.partition("\n")[2] == below


def test_names_are_no_keys_of_the_hosts_and_no_rests_of_escapes() -> None:
    text = "The issue.\nErrorKind is raised in src/cart.py by check_total.\n" * 20
    for result in (
        {"status": "completed", "content": [{"type": "text", "text": text}], "totalDurationMs": 3, "totalTokens": 4},
        {"content": [{"type": "text", "text": text}, {"type": "text", "text": text}], "isError": False},
        {"rows": [{"issue": text}], "durationMs": 3},
    ):
        told = reduce_call("mcp__a__b", {}, result).observation
        assert "src/cart.py" in told
        assert "check_total" in told
        assert [word for word in ("nErrorKind", "nThe", "isError", "durationMs", "totalTokens") if word in told] == []


def test_a_failed_write_keeps_its_content() -> None:
    reduction = reduce_call("Write", {"file_path": "a", "content": "precious"}, None, error="EACCES: permission denied")
    assert reduction.observation.startswith("Could not write a\nEACCES")
    assert reduction.rest["args"] == {"content": "precious"}
    assert "content" not in reduce_call("Write", {"file_path": "a", "content": "x"}, {"ok": 1}).rest.get("args", {})


def test_a_users_rule_comes_first() -> None:
    rule = Rule(
        ("weather:*",), OTHER, ("location", "$.unit.name"), 10,
        "Checked weather for {location}: {result.main.temp} {nope}",
    )  # fmt: skip
    args = {"location": "Bonn", "unit": {"name": "C"}, "key": "k"}
    reduction = reduce_call("weather:get", args, {"main": {"temp": 12.5}}, users=[rule])
    assert (reduction.observation, reduction.minimal_args) == (
        "Checked weather for Bonn: 12.5 ?",
        {"location": "Bonn", "$.unit.name": "C"},
    )
    assert reduction.text is not None
    assert rebuilt(reduction.minimal_args, reduction.rest, reduction.text) == (args, {"main": {"temp": 12.5}})


def test_no_secret_stands_in_a_summary() -> None:
    secret = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    calls = [
        ("Bash", {"command": f"curl -H 'Authorization: token {secret}' x"}, {"stdout": f"error: bad token {secret}"}),
        ("WebFetch", {"url": f"https://x:{secret}@example.com/?token={secret}"}, {"result": secret, "code": 200}),
        ("mcp__x", {"key": secret, "list": [secret]}, {secret: [secret]}),
        ("Read", {"file_path": f"/p/{secret}"}, {"file": {"content": f"key_{secret} = 1\n" * 100}}),
    ]
    for tool, args, result in calls:
        reduction = reduce_call(tool, args, result)
        assert secret not in reduction.observation
        assert secret not in json.dumps(reduction.minimal_args)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["stdout", "stderr", "exit_code", "file", "content", "path", "x", "command", "error"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
TOOLS = st.sampled_from(sorted({name for rule in RULES for name in rule.tools})) | st.text(max_size=20)


@pytest.mark.slow
@settings(max_examples=500)
@given(TOOLS, JSON, JSON, st.text(max_size=60))
def test_any_call_is_reduced_and_rebuilt(tool: str, args: Any, result: Any, error: str) -> None:
    reduction = reduce_call(tool, args, result, error=error)
    assert reduction == reduce_call(tool, args, result, error=error)
    assert reduction.observation
    back_args, back_result = rebuilt(reduction.minimal_args, reduction.rest, reduction.text)
    assert back_result == (error if error and result is None else result)
    if isinstance(args, dict) and "content" not in args:
        assert back_args == args


@each("name", [*sorted({name for rule in RULES for name in rule.tools}), "mcp__a__b", "", "Bashful"])
def test_a_tools_rule_is_the_first_that_fits(name: str) -> None:
    """By its whole name, else the rule for all tools; a user's rule, by its beginning too, comes before."""
    fits = [rule for rule in RULES if any(one in (name, "*") for one in rule.tools)]
    assert rule_for(name) is fits[0]
    own = Rule((f"{name[:2]}*",), OTHER, ())
    assert rule_for(name, [own]) is own
