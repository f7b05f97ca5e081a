"""Tables fit the screen, whatever stands in them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.cli import output
from loomctl.kit.text import fences
from tests.helpers.tables import each

HEADER = ["  RUN", "STATUS", "STEP", "UPDATED", "SESSIONS", "DRIVEN BY"]
ROW = ["* move-every-page-k3f9", "in_progress", "build/implement", "just now", "12 sessions (a, b)", "日本" * 20]


@each("wide", [60, 80, 100, 200])
def test_a_table_is_no_wider_than_the_screen(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pasted is whole; what is cut says so; the columns stand below one another."""
    monkeypatch.setenv("COLUMNS", str(wide))
    lines = output.table(HEADER, [ROW, ["  x", "", "", "", "", ""]], keep=(0, 1, 3)).split("\n")
    assert all(fences.width(line) <= wide for line in lines)
    assert ROW[0] in lines[1]
    assert lines[1].index("in_progress") == lines[0].index("STATUS")
    assert ("…" in lines[1]) == (wide < 200)
    assert lines[0].endswith({60: "UPDATED", 80: "SESSIONS"}.get(wide, "DRIVEN BY"))


def test_on_a_pipe_a_table_has_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output.columns() == 80
    assert max(map(len, output.table(["A", "B"], [["x", "y" * 500]]).split("\n"))) == 80


@each(
    ("rows", "options", "shown"),
    [
        (["x" * 90, "y", "z"], {"keep": (0,)}, "A\n" + "x" * 90),
        (["x" * 20, "y" * 20, "z" * 30], {"keep": (0, 1, 2)}, f"{'A':<22}B\n{'x' * 20}  {'y' * 20}"),
        (["x" * 40, "y" * 40, "z" * 30], {"keep": (0,), "spare": (1,)}, f"{'A':<42}C\n{'x' * 40}  {'z' * 17}…"),
        (["x", "y", "a/long/way/" + "z" * 50], {"paths": (2,)}, f"A  B  C\nx  y  …ay/{'z' * 50}"),
        (["名" * 40, "y", ""], {"always": 1}, f"A{' ' * 58}B\n{'名' * 28}…  y"),
    ],
)
def test_what_does_not_fit_is_cut_or_goes(
    rows: list[str], options: dict[str, Any], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pasted stays whole; the last column goes first, if none is named."""
    monkeypatch.setenv("COLUMNS", "60")
    assert output.table(["A", "B", "C"], [rows], **options) == shown


@settings(deadline=None)
@given(
    st.lists(st.text("aé名🎉 \u0301", max_size=90), min_size=3, max_size=3),
    st.lists(st.integers(0, 2), max_size=3),
    st.lists(st.integers(0, 2), max_size=3),
)
def test_no_table_is_wider_than_its_screen_but_by_what_is_pasted(
    row: list[str], keep: list[int], spare: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60")
        lines = output.table(["A", "B", "C"], [row], keep=tuple(keep), spare=tuple(spare)).split("\n")
    assert len(lines) == 2
    whole = max(fences.width(fences.visible(row[at])) for at in range(3))
    assert max(map(fences.width, lines)) <= (max(60, whole) if keep else 60)


def test_a_text_beside_a_label_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert output.beside("pass  ", "one two three four") == ["pass  one two three", "      four"]
    assert output.beside("pass  ", "") == ["pass  "]
    assert output.beside("pass  ", "名" * 10) == ["pass  " + "名" * 7, "      " + "名" * 3]
    assert output.beside("at  ", "/a/path/that/is/too/long now") == ["at  /a/path/that/is/too/long", "    now"]
