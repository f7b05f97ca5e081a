"""Trouble is known by its form: the tools here were never written, and most messages have no word that tells of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.reduction.calls import reduce_call
from loomctl.reduction.tokens import estimate
from loomctl.reduction.trouble import Rooms, trouble
from tests.helpers.tables import each

WIDE = Rooms(1000, 1000, 100)
PROGRESS = [f"warping thread {number} of 600" for number in range(600)]


def among_progress(*lines: str) -> str:
    """Put lines into the middle of what a tool prints as it goes on."""
    return "\n".join([*PROGRESS[:300], *lines, *PROGRESS[300:], ""])


PLACES = [
    ["shed/red.wv:12:4: the thread ends here"],
    ["shed/red.wv:12: the thread ends here"],
    ["shed/red.wv(12,4): the thread ends here"],
    ["shed/red.wv:[12,4] the thread ends here"],
    ["[weft] shed/red.wv:12:4 the thread ends here"],
    ['File "shed/red.wv", line 12, characters 4-9:', "Error: the thread ends here"],
    ["knot: the thread ends here", "  --> shed/red.wv:12:4"],
    ["the thread ends here in shed/red.wv on line 12"],
    ["shed/red.wv: line 12: the thread ends here"],
    ["In shed/red.wv line 12:", "pull red", "     ^-- WV12 (error): the thread ends here"],
    ["shed/red.wv", "  12:4  error  the thread ends here"],
    ["LoomError: the thread ends here", "    at pull (shed/red.wv:12:4)", "    at main (shed/main.wv:2:1)"],
    ["shed/red.wv:12:in `pull': the thread ends here (LoomError)", "\tfrom shed/main.wv:2:in `main'"],
    ["The thread ends here at shed/red.wv line 12."],
    ["größe/rot.wv:12:4: the thread ends here"],
]


@each("lines", PLACES)
def test_a_place_with_a_message_is_told_by_its_form(lines: list[str]) -> None:
    told = "\n".join(trouble(among_progress(*lines), WIDE))
    assert "hread ends here" in told
    assert "12" in told
    assert "red.wv" in told or "rot.wv" in told
    assert "warping thread" not in told


def test_a_place_in_what_went_well_is_content() -> None:
    found = "\n".join(f"shed/part_{number}.wv:{number}: pull the thread" for number in range(40))
    assert trouble(found, WIDE, failed=False) == []


TOLD = [
    # A test's name heads what it says, and what was expected belongs to it.
    (
        ["== pulls the red thread ==", "", "left = 3", "", "shed/red_test.wv:9: Mismatch", "  expected: 4", "  got: 3"],
        ["== pulls the red thread ==", "shed/red_test.wv:9", "expected: 4", "got: 3"],
        [],
    ),
    (
        ["3) Shed pulls red", "the spool is on the blue side", "", "/w/shed/red.wv:31", ""],
        ["3) Shed pulls red", "the spool is on the blue side", "/w/shed/red.wv:31"],
        [],
    ),
    # What is drawn stays as it is, and a file that a message lists is none with messages of its own.
    (
        ["│ Knot: red", "│   shed/red.wv:3 → pulled", "LoomFault: no warp:", "  shed/blue.wv", "  shed/red.wv"],
        ["Knot: red", "shed/red.wv:3 → pulled", "shed/blue.wv"],
        [],
    ),
    # Of a trace the code at hand, its first place and its last.
    (
        [
            "LoomFault: no warp",
            *(f"    at inner{n} (/usr/lib/weft/core_{n}.wv:{n}:1)" for n in range(9)),
            *(f"    at own{n} (shed/own_{n}.wv:{n}:1)" for n in range(20)),
        ],
        ["LoomFault: no warp", "own_0.wv:0:1", "own_19.wv:19:1"],
        ["core_3.wv", "own_9.wv"],
    ),
    # What passed is none, whatever it is called.
    (
        [*(f"ok {n} - shows error {n} when the thread fails" for n in range(30)), "not ok 31 - pulls"],
        ["not ok 31 - pulls"],
        ["ok 7 "],
    ),
    ([*(f"fails on knot {n} ... ok" for n in range(9)), "pulls red ... FAILED"], ["pulls red ... FAILED"], ["... ok"]),
    # The word of a log for how bad a line is.
    (
        [*(f'{{"level":"info","msg":"no error in part {n}"}}' for n in range(9)), '{"level":"error","msg":"red"}'],
        ['"msg":"red"'],
        ["part 3"],
    ),
    # A program's lines, marks below them, and options and paths that are only called so.
    (["12 | raise error(red)", "   |       ^^^^^", "weave --no-error src/error.wv"], [], ["12 |", "^^^", "weave"]),
    # What a merge could not place is content.
    (
        ["<<<<<<< ours", "error = fatal(red)", "=======", "error = none", ">>>>>>> theirs", "Refused: shed/red.wv"],
        ["Refused: shed/red.wv"],
        ["fatal(red)"],
    ),
]  # fmt: skip


@each(("lines", "told", "not_told"), TOLD)
def test_what_belongs_to_trouble_is_told_and_nothing_else(
    lines: list[str], told: list[str], not_told: list[str]
) -> None:
    text = "\n".join(trouble(among_progress("", *lines, ""), WIDE))
    assert [one for one in told if one not in text] == []
    assert [one for one in (*not_told, "warping thread") if one in text] == []


def test_a_word_lowers_a_message_where_there_is_little_room() -> None:
    notes = [f"shed/part_{n}.wv:{n}:1: note: the thread is declared here" for n in range(30)]
    warnings = [f"shed/part_{n}.wv:{n}:2: warning: the thread is loose" for n in range(30)]
    text = "\n".join([*notes, *warnings, "shed/red.wv:7:1: error: the thread ends here"])
    told = trouble(text, Rooms(120, 120, 20))
    assert "shed/red.wv:7:1: error: the thread ends here" in told
    assert any("warning" in line for line in told)
    assert sum("note" in line for line in told) < 2


def test_every_distinct_place_is_told_of_many_messages() -> None:
    lines = [f"shed/part_{n}.wv:{n + 100}:1: no thread called 'spool_{n * 7}'" for n in range(40)]
    told = "\n".join(trouble(among_progress(*lines), WIDE))
    assert [n for n in range(40) if f"{n + 100}" not in told] == []
    assert 300 < estimate(told) < 1100


def test_one_message_among_thousands_of_lines_costs_little() -> None:
    told = trouble(among_progress("shed/red.wv:12:4: the thread ends here"), WIDE)
    assert estimate("\n".join(told)) < 40


def test_messages_of_one_shape_leave_room_for_another() -> None:
    """The rare one stands in the middle; those that are left out are counted, and their places told."""
    alike = [f"shed/all.wv:{n}: error: unknown thread 't{n}'" for n in range(1, 800)]
    told = trouble("\n".join([*alike[:400], "shed/red.wv:3: error: the warp is cut", *alike[400:]]), WIDE)
    assert "shed/red.wv:3: error: the warp is cut" in told
    assert told[-1].startswith("[")
    assert " more: shed/all.wv:" in told[-1]


def test_what_is_listed_by_number_is_told_of_what_went_well_too() -> None:
    text = among_progress("", "1) Shed pulls blue", "the blue spool comes in May", "", "/w/shed/blue.wv:8", "")
    told = "\n".join(trouble(text, Rooms(300, 300, 50), failed=False))
    for words in ("1) Shed pulls blue", "the blue spool comes in May", "/w/shed/blue.wv:8"):
        assert words in told


def test_the_last_words_of_what_hung_are_told() -> None:
    text = among_progress() + "the spool is on the blue side\nlistening on port 7001\n"
    told = reduce_call("Bash", {"command": "weave"}, None, error=f"Exit code 124\n{text}").observation
    for words in ("exit 124", "the spool is on the blue side", "listening on port 7001"):
        assert words in told


SHAPES = [
    *PROGRESS[:3], "", "shed/red.wv:12:4: the thread ends here", "error: red", "  expected: 4", "x" * 3000, "1) red",
    "Traceback (most recent call last):", '  File "a.wv", line 3', "warning: blue", "    pull()", "== red ==",
    "no such thread", "^^^",
]  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(SHAPES), max_size=60),
    st.booleans(),
)
def test_no_more_is_told_than_there_is_room_for(lines: list[str], failed: bool) -> None:
    rooms = Rooms(200, 100, 20)
    told = trouble(
        "\n".join(f"{line} {number}" if line else line for number, line in enumerate(lines)), rooms, failed=failed
    )
    assert sum(estimate(line) for line in told) <= 200 * 1.3 + 20
