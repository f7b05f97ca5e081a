"""Which fresh output may be replaced for the model, and what it gets instead (D48)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomctl.reduction import live
from tests.helpers.tables import each

LARGE = "x" * 9000
BASH = {"stdout": LARGE, "stderr": "", "interrupted": False, "isImage": False}


def event(tool: str = "Bash", response: Any = None, **given_to_it: Any) -> dict[str, Any]:
    return {
        "tool_name": tool,
        "tool_input": given_to_it or {"command": "make"},
        "tool_response": BASH if response is None else response,
        "cwd": "/home/me/shop",
    }


OUTPUT = "/home/me/shop/.loom/runs/shop-x-run-1/outputs/toolu_1.log"
LEFT_ALONE = {
    **{f"a {tool}": event(tool) for tool in ("Read", "Edit", "Write", "Grep", "Glob", "Task", "TodoWrite", "Mcp", "")},
    "reading an output back": event(command=f"cat {OUTPUT}"),
    "reading it back in part": event(command=f"sed -n '1,50p' \"{OUTPUT}\" | head"),
    "by a relative path": event(command="cd .loom/runs/shop-x-run-1 && cat outputs/toolu_1.log"),
    "from its folder": {**event(command="cat toolu_1.log"), "cwd": "/home/me/shop/.loom/runs/r/outputs"},
    "from its run's folder": {**event(command="cat outputs/toolu_1.log"), "cwd": "/home/me/shop/.loom/runs/r"},
    "by an MCP tool": event("mcp__files__read", LARGE, paths=[{"path": OUTPUT}]),
    "loomctl": event(command="loomctl show"),
    "loomctl by its path": event(command="cd x && '/opt/loom/bin/loomctl' steps show 1"),
    "loomctl among others": event(command="make; X=1 loomctl next | cat"),
    "loomctl in a substitution": event(command='echo "$(loomctl next)"'),
    "an MCP tool's word for a file": event(
        "mcp__a__b", response={"content": LARGE, "persistedOutputPath": "/home/me/.ssh/id"}
    ),
    "interrupted": event(response={**BASH, "interrupted": True}),
    "an image": event(response={**BASH, "isImage": True}),
    "an error": event("mcp__a__b", {"isError": True, "content": [{"type": "text", "text": LARGE}]}),
}


@each("case", LEFT_ALONE)
def test_what_is_never_replaced(case: str) -> None:
    """Each exception of D48."""
    assert live.refusal(LEFT_ALONE[case])


@each(
    "command",
    ["make", "cat src/outputs/x", "pytest tests/test_loomctl.py", "grep -rn loomctls .", "ls .loom/runs", "ls outputs"],
)
def test_other_commands_are_no_exception(command: str) -> None:
    assert live.refusal(event(command=command)) == ""


THRESHOLDS: list[tuple[dict[str, Any], int | None]] = [
    ({}, 8000), ({"live": "large"}, 8000), ({"live": "off"}, None), ({"live_threshold": 9000}, 9000),
    ({"live": "off", "tools": {"Bash": {"live": "large"}}}, 8000), ({"tools": {"Bash": {"live": "off"}}}, None),
    ({"tools": {"WebFetch": {"live": "off"}}}, 8000),
    ({"live_threshold": 9000, "tools": {"Bash": {"live_threshold": 12000}}}, 12000),
    ({"live_threshold": "many", "tools": 3}, 8000), ({"tools": {"Bash": 1}}, 8000),
]  # fmt: skip


@each(("settings", "expected"), THRESHOLDS)
def test_settings_say_from_how_much_on(settings: dict[str, Any], expected: int | None) -> None:
    assert live.threshold(settings, "Bash") == expected


PLACES: list[tuple[Any, tuple[Any, ...], str]] = [
    ("text", (), "text"),
    (BASH, ("stdout",), LARGE),
    ({"stdout": "a", "stderr": "bb"}, ("stderr",), "bb"),
    ({"bytes": 9, "code": 200, "result": "page", "url": "long" * 9}, ("result",), "page"),
    ({"query": "q", "results": [{"content": [{"title": "t"}]}, "found"]}, ("results", 1), "found"),
    ([{"type": "text", "text": "a"}, {"type": "text", "text": "bbb"}], (1, "text"), "bbb"),
    ([{"type": "image", "data": LARGE, "text": LARGE}], (), ""),
    ({"content": [{"type": "text", "text": "abc"}]}, ("content", 0, "text"), "abc"),
    (None, (), ""),
    (3, (), ""),
]


@each(("response", "place", "text"), PLACES)
def test_the_main_text_is_the_longest(response: Any, place: tuple[Any, ...], text: str) -> None:
    assert live.main_text(response) == (place, text)
    if text:
        before = repr(response)
        changed = live.with_text(response, place, "new")
        assert (repr(changed), repr(response)) == (before.replace(repr(text), "'new'", 1), before)


PROGRAMS = [
    ("pytest -q", "pytest"), ("cd /x && npm test", "npm"), ("FOO=1 /usr/bin/make all", "make"), ("", "Bash"),
    ("sudo time gcc x.c", "gcc"), ("for i in 1 2; do echo; done", "for"), ("$(evil)", "Bash"), ("(cat x)", "cat"),
    ("\x1b[31m x", "Bash"),
]  # fmt: skip


@each(("command", "name"), PROGRAMS)
def test_an_output_is_named_after_its_program(command: str, name: str) -> None:
    assert live.program("Bash", {"command": command}) == name


def test_an_excerpt_has_both_ends_and_the_trouble_between() -> None:
    lines = [f"line {number} of plain output" for number in range(1000)]
    lines[400], lines[700] = "src/a.py:3: TypeError: no", "  FAILED tests/test_x.py::test_y"
    text = "\n".join(lines) + "\n"
    told = live.shortened("pytest", text, len(text), "/run/outputs/1.log").split("\n")
    assert told[0] == f"pytest: 1,000 lines, {len(text):,} bytes; shortened by Loom"
    assert told[-1] == "The whole output: /run/outputs/1.log"
    shown = [line for line in told[1:-1] if not line.startswith("[… ")]
    assert shown == [line for line in lines if line in shown]
    assert {lines[0], lines[400], lines[700], lines[999]} <= set(shown)
    left_out = sum(int(line.split()[1].replace(",", "")) for line in told if line.startswith("[… "))
    assert left_out + len(shown) == 1000


def test_the_rare_error_is_shown_among_a_flood_of_others() -> None:
    """Warnings before it, and errors that differ in numbers alone."""
    flood = [f"shed/all.wv:{n}: error: no thread {n}" for n in range(100)]
    flood += [f"shed/all.wv:{n}: warning: thread {n} is loose" for n in range(100)]
    text = "\n".join(["start", *flood[100:], *flood[:100], "shed/red.wv:7: error: the warp is cut", *["fine"] * 200])
    assert "shed/red.wv:7: error: the warp is cut" in live.excerpt(text)


def test_a_message_is_shown_by_its_place() -> None:
    """A compiler's words need not be known."""
    odd = "loft/warp.wv:44:12: weft declared and not used"
    text = "\n".join(["start", *["it goes on at 10:44:12"] * 900, odd, *["fine"] * 900])
    assert odd in live.excerpt(text)
    assert "x.wv:4:y" not in live.excerpt(text.replace(odd, "x.wv:4:y"))


SHAPES = {
    "one endless line": "y" * 200_000, "one endless line of trouble": "error " * 40_000,
    "trouble in every line": "error: it failed\n" * 5000,
    "different trouble in every line": "\n".join(f"error {number}" for number in range(5000)),
    "a progress bar": "\r".join(f"{number}% done" for number in range(9000)) + "\nfinished\n",
    "Windows lines": "one\r\ntwo\r\n" * 3000, "colours": "\x1b[31merror\x1b[0m plain \x1b[1m" * 5000,
    "emoji": "😀" * 50_000, "lone surrogates": "\ud83d" * 50_000, "empty lines": "\n" * 50_000,
    "letters that grow when small": "İERROR\n" * 9000, "binary": "".join(map(chr, range(256))) * 200,
}  # fmt: skip


@each("case", SHAPES)
def test_any_output_is_shortened_to_about_three_thousand_characters(case: str) -> None:
    text = SHAPES[case]
    told = live.excerpt(text)
    assert len(told) < 4200
    for line in told.split("\n"):
        for piece in line.split(" [… ") if "characters left out …]" in line else [line]:
            quoted = piece.partition(" left out …] ")[2] if "characters left out" in piece else piece
            assert quoted in text or line.startswith("[… ")


def test_a_progress_bar_shows_its_last_state() -> None:
    """What a terminal would show."""
    bar = "\r".join(f"{number}% done" for number in range(9000))
    assert "8999% done" in live.excerpt(f"start\n{bar}\nend")
    assert "\r" not in live.excerpt(f"start\n{bar}\nend")


@given(st.text(st.characters(exclude_categories=()), max_size=40), st.integers(1, 4000))
def test_nothing_raises_and_nothing_grows_much(text: str, times: int) -> None:
    whole = text * times
    assert len(live.excerpt(whole)) <= min(len(whole) + 100, 4200)
