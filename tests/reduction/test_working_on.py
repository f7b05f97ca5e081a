"""What stands for an output is enough to go on working: values, the odd one, sections, totals, hits, changes, ids."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import Any

import pytest

from loomctl.reduction.calls import reduce_call
from loomctl.reduction.gist import facts, gist
from loomctl.reduction.hits import changes, hit_lines, hits_of
from loomctl.reduction.signal import odd, tree
from loomctl.reduction.tokens import estimate
from loomctl.reduction.trouble import Rooms, trouble
from tests.helpers.tables import each

WIDE = Rooms(1000, 1000, 100)


def failed(text: str) -> str:
    """What stands for the output of a command that failed."""
    return reduce_call("Bash", {"command": "weave"}, None, error=f"Exit code 1\n{text}").observation


def went_well(text: str, command: str = "weave") -> str:
    """What stands for the output of one that did not."""
    return reduce_call("Bash", {"command": command}, {"stdout": text, "stderr": "", "interrupted": False}).observation


# ---- Values.

COMPARED = [
    ["  {n}) shed {n}", "", "  KnotError: threads differ:", "", "{n} !== 9{n}", "", "    at pull (shed/red.wv:{n}:3)"],
    ["KnotError: not equal at shed/red.wv:{n}:7", "  got:", "    {n} spools", "  want:", "    9{n} spools"],
    ["KnotError: threads differ:", "+ actual - expected", "", "+ {n}", "- 9{n}", "  at pull (shed/red.wv:{n}:3)"],
    ["weft 'pull' panicked at shed/red.wv:{n}:5:", "spool {n} is on side 9{n}"],
    ["KnotError at shed/red.wv:{n}:5", "spool {n} is on side 9{n}"],
    ["FAIL: shed {n}", "left: {n}", "right: 9{n}"],
    ["FAIL: shed {n}", "left:", "{n}", "right:", "9{n}"],
    ["FAIL: shed {n}", "expected 'red {n}'", "'blue 9{n}'"],
]  # fmt: skip


@each("lines", COMPARED)
def test_each_failure_has_the_values_that_were_compared(lines: list[str]) -> None:
    """Also where they are the same in several: the second would be as unclear as without any."""
    text = "\n\n".join("\n".join(lines).replace("{n}", str(n)) for n in (3, 4, 3, 5, 6))
    told = failed(f"weaving\n{text}\n" + "\n".join(f"thread {n} is fine" for n in range(300)))
    told_lines = told.split("\n")
    for n in (3, 4, 5, 6):
        assert any(f"9{n}" in line for line in told_lines)
        assert any(str(n) in line.replace(f"9{n}", "") for line in told_lines)


# ---- The odd one.

MANY = [
    ([f"item {n}: ok (0 errors)" for n in range(28_001)], "item {n}: ERROR has no price"),
    ([f"2026-03-03 10:00:00,123 worker-3 queue default host a1 INFO item {n} of 28001 read in {n % 7} ms"
      for n in range(28_001)], "2026-03-03 10:00:00,124 worker-3 queue default host a1 ERROR item {n} has no price"),
    ([f"ok {n} - keeps thread {n}." for n in range(4000)], "not ok {n} - keeps thread {n}"),
    ([f"{n}: ok" for n in range(9000)], "{n}: FAILED no price"),
    ([f"{n}\tspool\tok" for n in range(9000)], "{n}\tspool\tfailed"),
    ([f"checked {n * 7919 % 999983 + 4096:x}: no error in {n * 7907 % 999983 + 4096:x}" for n in range(9000)],
     "checked {n}: error 71"),
]  # fmt: skip


@pytest.mark.slow
@each("place", [40, 3990])
def test_the_odd_one_of_thousands_is_told_and_those_beside_it_are_not(place: int) -> None:
    for lines, other in MANY:
        line = other.replace("{n}", str(place))
        text = "\n".join([*lines[:place], line, *lines[place + 1 :], "weaving is done"])
        for told in (failed(text), went_well(text)):
            assert line in told
            assert lines[place + 1] not in told
            assert lines[place - 1] not in told


@each("place", [1, 300, 698])
def test_the_line_that_no_other_is_like_is_told_whatever_its_words(place: int) -> None:
    lines = [f"spool {number} wound in {number % 9} s" for number in range(700)]
    lines[place] = "spool 17 holds the thread of spool 71"
    for told in (failed("\n".join(lines)), went_well("\n".join(lines))):
        assert lines[place] in told


def test_where_most_lines_are_unlike_none_is_the_odd_one() -> None:
    words = ["warp", "weft", "shed", "loom", "knot", "dye", "reed"]
    text = "\n".join(f"{one} and {two} by {three}" for one in words for two in words for three in words)
    assert odd(text) == []
    assert odd("\n".join([*["as ever"] * 8, "unlike"])) == []  # of so few lines nothing is said


# ---- Markers in the middle of a line.


@each(
    "line",
    [
        "Considering thread 'red'*** No rule to make thread 'red', needed by 'cloth'.  Stop.",
        "reading 'red' 81%error: no room left on the spool",
        "reading the spools (3 of 9)fatal: the spool is cut",
        "wound 3 of 9Traceback (most recent call last):",
    ],
)
def test_a_marker_that_stands_directly_behind_another_line_counts(line: str) -> None:
    text = "\n".join([*(f"Considering thread '{n}' of the warp" for n in range(900)), line, ""])
    assert any(line in told for told in trouble(text, WIDE))


@each("line", ["see *** for more", "a ***b*** c"])
def test_what_only_looks_like_a_marker_is_none(line: str) -> None:
    assert trouble(f"{line}\n", WIDE, failed=False) == []


# ---- Sections.

SECTIONS = [
    ["== {name}", "pulling", "KnotError: no red thread"],
    ["> Task :{name}", "pulling", "error: no red thread"],
    ["[{n}/40] shed/{name}.wv", "error: no red thread"],
    ["> {name}@1.0.0 build", "> weave", "error: no red thread"],
]


@each("lines", SECTIONS)
def test_the_section_of_an_error_is_told_and_no_other(lines: list[str]) -> None:
    names = [f"{one}ing" for one in ("spin", "warp", "knot", "card", "reel", "dye", "wind", "comb", "felt", "full")]
    text = [
        line.replace("{name}", name).replace("{n}", str(n))
        for n, name in enumerate(names)
        for line in (lines if name == "cardinging" or n == 3 else lines[:-1])
    ]
    told = failed("\n".join([*text, *(f"thread {n} is fine" for n in range(300))]))
    assert "no red thread" in told
    assert "carding" in told
    assert "warping" not in told.partition("\nin: ")[0]


def test_the_errors_of_steps_that_run_at_a_time_have_their_own_section() -> None:
    text = (
        "#7 [2/5] RUN weave red\n#8 [3/5] RUN weave blue\n#8 0.2 pulling\n#7 0.3 pulling\n#7 0.4 ERROR: no red thread\n"
    )
    told = failed(text + "\n".join(f"#8 1.{n} thread {n} is fine" for n in range(300)))
    assert "#7 [2/5] RUN weave red" in told
    assert "RUN weave blue" not in told


# ---- Totals.


@each(
    "total",
    [
        "# fail 1", "800 passing (2s)", "===== 63 passed in 1.00s =====", "Job succeeded", "Ran 3 tests in 0.1s",
        "Tests:       1 skipped, 2 passed, 3 total", "12 examples, 1 failure", "[weave] 5 passed, 2 failed",
    ],
)  # fmt: skip
def test_totals_are_told_wherever_they_stand(total: str) -> None:
    before = [f"thread {n} is wound by hand, and then by {n} more" for n in range(90)]
    behind = [f"coverage of shed/part_{chr(97 + n % 26)}{n}.wv is as it was" for n in range(90)]
    for told in (went_well("\n".join([*before, total, *behind])), failed("\n".join([*before, total, *behind]))):
        assert total in told


def test_lines_that_count_each_entry_are_no_totals() -> None:
    told = went_well("\n".join(f"{n} tests in shed number {n}" for n in range(200)))
    assert told.count("tests in shed") < 8


def test_what_is_left_out_of_a_part_of_a_text_is_at_least_so_much() -> None:
    text = "\n".join(f"shed/all_{n}.wv:{n}: error: unknown thread 't{n}' on spool {n}" for n in range(9000))
    assert "[at least " in failed(text)
    assert "[at least " not in failed(text[:9000])


# ---- Hits and changes.

HITS = "\n".join(f"src/shed/part_{n % 9}.wv:{n * 3}:    pull(the_thread_{n}, of=spool)" for n in range(60))


def test_of_hits_each_file_and_each_number_of_a_line_is_told() -> None:
    grep = reduce_call("Grep", {"pattern": "pull"}, {"mode": "content", "content": HITS}).observation
    for told in (went_well(HITS, "rg -n pull"), grep):
        assert "src/shed/part_4.wv:12:pull(the_thread_4, of=spool)" in told
        for n in range(60):
            assert f"part_{n % 9}.wv:" in told
            assert any(str(n * 3) in line.replace("(", ",").split("pull")[0] for line in told.split("\n"))


def test_hits_in_one_file_have_their_numbers_and_none_is_taken_for_a_listing() -> None:
    text = "\n".join(f"{n * 7}:def pull_{chr(97 + n % 26)}(thread, spool, side):" for n in range(1, 90))
    told = reduce_call("Grep", {"pattern": "def", "path": "shed.wv"}, {"mode": "content", "content": text}).observation
    assert "7:def pull_b(thread, spool, side):" in told
    assert "623" in told
    assert hits_of("Nothing here.\nNothing there: 3\n") == []
    assert estimate("\n".join(hit_lines(hits_of(text), 100))) <= 110


DIFF = """\
diff --git a/shed/red.wv b/shed/red.wv
index 1111111..2222222 100644
--- a/shed/red.wv
+++ b/shed/red.wv
@@ -3,4 +3,5 @@ def pull(thread):
 before = thread
-    old_side(thread)
+    new_side(thread)
+    wind(thread)
--- a line that was taken out and looks like a heading
@@ -90,2 +91,2 @@
-    last_old()
+    last_new()
diff --git a/docs/blue.md b/docs/blue.md
new file mode 100644
--- /dev/null
+++ b/docs/blue.md
@@ -0,0 +1,40 @@
""" + "".join(f"+Blue line {n} of many words\n" for n in range(40))


def test_of_a_difference_each_file_has_its_counts_and_places_and_changed_lines_come_before_others() -> None:
    told = went_well(DIFF + " context\n" * 90, "git diff")
    for words in (
        "shed/red.wv +3 -3 @3,91",
        "docs/blue.md +40 -0 @1",
        "-    old_side(thread)",
        "+    last_new()",
        "+Blue",
    ):
        assert words in told
    assert "before = thread" not in told
    assert "2222222" not in told
    assert estimate("\n".join(changes(DIFF, 60))) <= 70


# ---- Prose, values, confirmations.

REPORT = "Everything was looked at, and this is what came of it.\n\n" + "\n".join(
    f"## Part {name}\n\n" + "This part was read with care and there is much that might be said of it.\n" * 3
    + f"The fault is in `shed/{name}.wv` line {n}: `pull_{name}` winds {n * 7} threads.\n"
    + "All else in this part is as it should be, and it was read twice.\n" * 3
    for n, name in enumerate(("red", "blue", "green", "grey", "pink", "gold"), 11)
)  # fmt: skip


def test_of_a_report_each_part_has_what_it_found() -> None:
    told = reduce_call("Agent", {"description": "Look"}, [{"type": "text", "text": REPORT}]).observation
    for n, name in enumerate(("red", "blue", "green", "grey", "pink", "gold"), 11):
        assert f"`shed/{name}.wv` line {n}" in told
        assert f"## Part {name}" in told


def test_long_lines_of_prose_are_told_by_their_sentences() -> None:
    words = "It was read with care, and nothing was to be said of it. " * 9
    told = gist(f"Read.\n{words}The fault is `pull_red` at shed/red.wv:41. {words}\nDone.", 60)
    assert "The fault is `pull_red` at shed/red.wv:41." in told


@each(
    ("tool", "result", "words"),
    [
        ("Edit", "File updated: shed/red.wv (revision r71)", ["revision r71"]),
        ("Write", [{"type": "text", "text": "Created branch red-3"}], ["Created branch red-3"]),
        (
            "Agent",
            {"content": [{"type": "text", "text": REPORT}], "agentId": "a71f", "worktreePath": "/w/red-3",
             "worktreeBranch": "shed/red-3", "totalTokens": 7},
            ["agentId=a71f", "worktreePath=/w/red-3", "worktreeBranch=shed/red-3"],
        ),
    ],
)  # fmt: skip
def test_ids_and_confirmations_are_told(tool: str, result: Any, words: list[str]) -> None:
    given = {"file_path": "shed/red.wv", "old_string": "a", "new_string": "b", "content": "c", "description": "d"}
    told = reduce_call(tool, given, result).observation
    assert [word for word in words if word not in told] == []


def test_of_json_keys_with_their_short_values_are_told_and_long_texts_begun() -> None:
    rows = [
        {"id": n, "path": f"shed/part_{n}.wv", "line": 40 + n, "user": {"login": f"ann{n}", "avatar_url": "https://x.org/a"},
         "body": f"Thread {n} is on the wrong side. " * 20, "_links": {"self": {"href": "https://x.org"}}}
        for n in range(4)
    ]  # fmt: skip
    told = went_well(json.dumps(rows), "tracker comments")
    for n in range(4):
        for word in (f"id={n}", f"path=shed/part_{n}.wv", f"line={40 + n}", f"body=Thread {n} is on the wrong side."):
            assert word in told
    assert "avatar" not in told
    assert "href" not in told
    many = facts([{"id": n, "title": f"Thread {n} is loose"} for n in range(1, 99)], 120)
    assert many[-1].startswith("[")
    assert many[-1].endswith(" more]")


def test_what_was_given_is_not_told_again() -> None:
    todos = [{"content": "Wind the red thread", "status": "done"}, {"content": "Wind the blue one", "status": "open"}]
    told = reduce_call("TodoWrite", {"todos": todos}, {"oldTodos": todos[:1], "newTodos": todos}).observation
    assert "Wind" not in told


_OPTIONS = ("red", "blue", "green", "grey") * 16
HELP = (
    "Usage: weave [options] FILE\n\nWeaves a cloth.\n\nOptions:\n"
    + "".join(f"  --{name} N    how much {name} there is, {n} of them\n" for n, name in enumerate(_OPTIONS))
    + "\nCommands:\n"
    + "".join(f"  {name}    does the {name}\n" for name in ("spin", "wind", "card"))
)
HELP += "\nSee weave(1).\n"


def test_of_a_help_text_lines_of_each_part_are_told() -> None:
    told = went_well(HELP, "weave --help")
    for words in ("Usage: weave", "Options:", "--red", "Commands:", "does the"):
        assert words in told


# ---- No false pairs.


def test_names_that_differ_in_numbers_or_hashes_are_few() -> None:
    text = "\n".join(f"wind thread_{n:03}_{n * 7919 % 65521} of warp_{n % 7}{n}" for n in range(180))
    told = went_well(text).rpartition("names: ")[2]
    assert told.count("thread_") <= 8


@each("line", ["import: line 9 parsed, 14 threads", "reading at line 9 of the card", "worker line 9 is free"])
def test_a_word_before_the_number_of_a_line_is_no_file(line: str) -> None:
    told = trouble("\n".join(line.replace("9", str(n)) for n in range(3)), WIDE)
    assert told == []


def test_a_tree_of_files_tells_no_trouble() -> None:
    names = ("error.wv", "failed.wv", "missing.wv")
    tree = "\n".join(f"│   │   {'└' if name == 'missing.wv' else '├'}── {name}" for name in names * 9)
    assert trouble(f"weave: no such spool\n{tree}\n", WIDE) == ["weave: no such spool"]


# ---- Trees, long texts of JSON, what a pipe searched for.

TREE = """shed
├── looms.md
├── red
│   ├── warp
│   │   ├── pull.wv
│   │   └── push.wv -> pull.wv
│   └── weft
└── spools
    └── big.wv

4 directories, 4 files"""


@each(
    "text",
    [TREE, TREE.replace("├──", "|--").replace("└──", "`--").replace("│", "|"), TREE.replace("│   ", "│\xa0\xa0 ")],
)
def test_a_tree_is_told_by_its_paths_those_of_high_folders_first(text: str) -> None:
    assert tree(text) == ["looms.md", "red/weft", "spools/big.wv", "red/warp/pull.wv", "red/warp/push.wv"]


def test_a_tree_without_end_costs_no_more_than_its_text() -> None:
    """A name in a deep folder could be told as often as there are files below it."""
    deep = "\n".join("    " * depth + "├── " + "n" * 150 for depth in range(39))
    files = "\n".join("    " * 39 + f"└── f{number}" for number in range(2000))
    assert all(path.count("/") <= 40 for path in tree(f"{deep}\n{files}"))
    assert tree("    " * 90 + "├── far") == []


def test_what_a_tree_says_of_a_failing_command_is_no_last_word() -> None:
    looms = "".join(f"    ├── loom{chr(97 + number)}\n    │   └── warp.wv\n" for number in range(26))
    said = failed(f"shedtree: red/none: not there\n{TREE.rpartition(chr(10) * 2)[0]}\n{looms}")
    assert "└──" not in said
    assert "red/warp/pull.wv" in said


def test_a_long_text_in_json_is_told_further_where_there_is_room() -> None:
    body = "The shuttle of the red shed is late. " + "It waits for the spool, which has no thread left at all. " * 3
    review = {"id": 81, "path": "shed/red.wv", "original_path": "shed/red.wv", "hunk": f"@@ -1,3 +1,4 @@ {'x ' * 200}"}
    said = went_well(json.dumps([{**review, "body": f"{body}The knot of `pull` holds two threads, not three."}]))
    assert "The knot of `pull` holds two threads, not three." in said
    assert said.count("shed/red.wv") == 1  # the same word under a key that ends alike is no news
    assert "@@" not in said


@each("search", ["grep -i knot", "grep -A2 -E '(knot|shuttle)'", 'grep -n "knot" | head -40', "egrep -- knot"])
def test_what_a_pipe_searched_for_comes_first(search: str) -> None:
    lines = [f"--colour-{number}   the colour {number} of a thread, see `dye {number}`" for number in range(60)]
    lines[37] = "has the Knot of the other side"
    assert lines[37] in went_well("\n".join(lines), f"weave --help | {search}")


def test_of_a_pipe_that_ended_well_a_place_with_a_message_is_an_error() -> None:
    """The exit code is that of `tail`."""
    lines = ["loft/warp.wv:44:12: undefined: weft", "loft/warp.wv:51:3: the weft is wider than its beam"]
    text = "\n".join(["spun a reel", lines[0], "", "spun more", "", "and more", "", lines[1], "", "the day is over"])
    alone = Rooms(1000, 0, 0)  # no room but for messages
    assert [len(trouble(text, alone, failed=False, unsure=unsure)) for unsure in (True, False)] == [2, 1]
    assert lines[1][5:] in went_well(f"{text}\n" * 20, "weave 2>&1 | tail -200")


def test_keys_that_are_no_text_and_hits_of_odd_form_raise_nothing() -> None:
    assert facts({1: 2, "": "x", None: {"id": 0}, "name": "reel"}, 200) == ["name=reel 1=2 =x None=0"]
    assert len(hits_of("src/cart.py:3: x\n12:y\n\ud800.py:4:\udc00\n")) == 3


# ---- What a reader with a grudge found.


def test_a_tree_that_stands_in_a_text_has_no_paths_of_its_own_and_an_indented_one_has() -> None:
    assert tree("Layout:\n    ├── warp.wv\n    ├── weft.wv\n    └── shed\n        └── red.wv\n") == [
        *("warp.wv", "weft.wv", "shed/red.wv")
    ]
    lines = [f"spool {chr(97 + number % 26)}{number // 26} is wound" for number in range(120)]
    told = went_well("\n".join([*lines, "needs:", "└── thread", "All is wound.", "800 passed in 3 s", "bye"]))
    assert "800 passed in 3 s" in told


def test_totals_beside_a_difference_are_told_and_comments_that_look_like_heads_are_changes() -> None:
    changed = "".join(f"--- old {number}\n+++ new {number}\n" for number in range(9))
    text = f"diff --git a/q.sql b/q.sql\n--- a/q.sql\n+++ b/q.sql\n@@ -1,9 +1,9 @@\n{changed}1 failed, 4 passed\n"
    told = went_well(text + "\n" * 2 + "diff --git a/z.md b/z.md\n" + "index 1..2\n" * 60, "git diff; weave test")
    assert "q.sql +9 -9 @1" in told
    assert "1 failed, 4 passed" in told


def test_of_what_was_made_what_did_not_fail_is_told_and_what_stands_under_a_secret_is_not() -> None:
    names = [{"name": f"Env number {number}", "status": "good"} for number in range(9)]
    told = reduce_call("mcp__k__get", {}, {"items": [{"password": {"value": "Hunter22xy!"}}, *names]}).observation
    assert "Hunter22" not in told
    token = {"token": {"name": "Zq81kd02LLs9dkq7"}, "id": 4, "summary": {"failed": 0, "passed": 12}, "merged": False}
    told = "\n".join(facts(token, 100))
    assert "Zq81" not in told
    assert "failed=0" in told
    assert "merged=false" in told
    pairs = [
        {"name": "DB_PASSWORD", "value": "S3cr3t-pw9x"},
        *({"name": f"N{n}", "value": "x" * 60} for n in range(40)),
    ]
    assert not any("S3cr" in line for line in facts(pairs, 300))


@pytest.mark.slow
@each("prefix", ["    {n}\t", "app-1  | ", "{n}: ", ""])
def test_no_line_of_a_private_key_in_the_middle_of_megabytes_is_told(prefix: str) -> None:
    body = [base64.b64encode(hashlib.sha512(bytes([line])).digest())[:64].decode() for line in range(26)]
    key = ["-----BEGIN RSA PRIVATE KEY-----", *body[:14], "x.py:3: error: boom happened", *body[14:]]
    key = [
        prefix.replace("{n}", str(number)) + line for number, line in enumerate([*key, "-----END RSA PRIVATE KEY-----"])
    ]
    lines = [f"spool {number} is {'wound' if number % 3 else 'dyed'} in {number % 7} ms" for number in range(90_000)]
    told = went_well("\n".join([*lines[:40_000], *key, *lines[40_000:]]))
    assert not [line for line in body if line[:20] in told]


def test_a_result_is_held_against_what_was_given_in_no_more_time_than_it_is_long() -> None:
    given = {"ids": [{"id": number} for number in range(20_000)]}
    begun = time.process_time()
    reduce_call("mcp__k__get", given, {"made": [{"id": -number - 1} for number in range(5_000)]})
    once = time.process_time() - begun
    begun = time.process_time()
    reduce_call("mcp__k__get", {"ids": given["ids"] * 4}, {"made": [{"id": -number - 1} for number in range(5_000)]})
    assert time.process_time() - begun < 10 * once
