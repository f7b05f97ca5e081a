"""Artifacts keep under one budget and its parts, and what is not given in full is named (D19-D21, D62)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from loomctl.kit.text.fences import utf8_bytes, utf16_units, visible
from loomctl.priming.packing import Packed, Packing, Piece, pack
from tests.helpers.tables import each

ANY_TEXT = st.text(st.characters(exclude_categories=()))
TRICKY = st.text(st.sampled_from("`~ \n\r\t>-#<!=*a.😀"))
LONG = st.builds(
    lambda line, count, end: "\n".join([f"{line}{n}" for n in range(count)]) + end,
    st.sampled_from(["line ", "# Heading ", "漢字 ", "😀", "```", ""]),
    st.integers(0, 400),
    st.sampled_from(["", "\n"]),
)
TEXTS = st.none() | ANY_TEXT | TRICKY | LONG | st.sampled_from(["x" * 40_000, '{"a": [1, {"b": null}]}', "`" * 3000])
NAMES = ANY_TEXT | TRICKY | st.sampled_from(["- ```", "<!--", "- <div>", "~~~", "===", "- - -", "x" * 500, "[a]: /b"])
PIECES = st.lists(st.builds(
    Piece,
    id=NAMES,
    heading=NAMES,
    text=TEXTS,
    info=NAMES,
    pointer=NAMES,
    required=st.booleans(),
    read=NAMES,
    numbered=st.booleans(),
    own=st.booleans(),
    diff=st.just(""),
    base=st.just(""),
    of=st.sampled_from(["", "", "listing", "command"]),
), max_size=12)  # fmt: skip
WITH_DIFFS = st.lists(
    st.builds(Piece, required=st.booleans(), text=TEXTS, diff=TRICKY | LONG, base=NAMES, of=st.just("")), max_size=8
)
BUDGETS = st.integers(-3, 400) | st.integers(0, 12_000)
ROOMS = st.lists(BUDGETS, min_size=1, max_size=4)
MEASURES = pytest.mark.parametrize("measure", [utf16_units, utf8_bytes])


def piece(name: str, text: str | None, *, required: bool = False, own: bool = False) -> Piece:
    """Give a piece with the usual words around its text."""
    pointer = f"- {name}: not given in full; read {name}.md"
    return Piece(
        name, f"{name} — {name}.md", text, "text", pointer, required, f"read {name}.md", numbered=True, own=own
    )


def forms(made: Packing) -> dict[str, str]:
    return {entry.id: entry.form for entry in made.packed}


def lines_of(count: int, size: int = 40) -> str:
    """Make a text of so many numbered lines, each of which says so many characters."""
    return "".join(f"{f'line {n + 1} ':x<{size - 1}}\n" for n in range(count))


@pytest.mark.slow
@MEASURES
@given(pieces=PIECES, rooms=ROOMS)
@example(pieces=[piece(str(n), "x" * 50) for n in range(2000)], rooms=[9500])
@example(pieces=[piece(str(n), "x\n" * 9000, required=True) for n in range(9)], rooms=[3000, 9500, 9500, 9500])
def test_no_part_exceeds_its_room(measure: Callable[[str], int], pieces: list[Piece], rooms: list[int]) -> None:
    made = pack(pieces, rooms=rooms, measure=measure)
    assert len(made.texts) == len(rooms)
    for text, room in zip(made.texts, rooms, strict=True):
        text.encode()
        assert measure(text) <= max(0, room)


@pytest.mark.slow(quick=1)
@MEASURES
@given(pieces=PIECES, rooms=ROOMS)
def test_every_piece_is_accounted_for(measure: Callable[[str], int], pieces: list[Piece], rooms: list[int]) -> None:
    made = pack(pieces, rooms=rooms, measure=measure)
    assert [entry.id for entry in made.packed] == [piece.id for piece in pieces]
    for declared, entry in zip(pieces, made.packed, strict=True):
        assert entry.form in ("full", "head", "pointer", "omitted")
        assert (entry.form == "omitted") == (not entry.parts)
        assert list(entry.parts) == sorted(set(entry.parts))
        assert set(entry.parts) <= set(range(1, len(rooms) + 1))
        standing = "".join(made.texts[part - 1] for part in entry.parts)
        if entry.form == "full":
            assert declared.text is not None
            assert all(line in standing for line in visible(declared.text).split("\n"))
        if entry.form == "pointer":
            assert visible(declared.pointer).replace("\n", " ").strip() in "- " + made.texts[0]
        if entry.form == "head":
            assert not declared.own
            assert "are given here; for the rest " in made.texts[0]
    omitted = [entry.form for entry in made.packed].count("omitted")
    if omitted and made.texts[0]:
        assert f"{omitted} more artifact{'s are' if omitted > 1 else ' is'} left out here" in made.texts[0]


@given(text=LONG, rooms=st.lists(st.integers(300, 3000), min_size=1, max_size=4))
def test_the_parts_put_together_are_the_text_in_order(text: str, rooms: list[int]) -> None:
    made = pack([piece("a", text, required=True)], rooms=rooms, measure=utf16_units)
    entry = made.packed[0]
    tokens = [token for part in made.texts for token in MarkdownIt("commonmark").parse(part) if token.type == "fence"]
    shown = "".join(token.content for token in tokens)
    whole = visible(text)
    if entry.form == "full":
        assert shown.rstrip("\n") == whole.rstrip("\n")
    else:
        assert whole.startswith(shown.rstrip("\n"))
    if entry.form == "head":
        assert entry.rest == f"read a.md from line {shown.count(chr(10)) + 1}"
        assert f"for the rest {entry.rest}" in made.texts[0]


@pytest.mark.slow
@given(pieces=PIECES, rooms=st.lists(st.integers(500, 12_000), min_size=1, max_size=4))
@pytest.mark.shows("The text of a file stands in a fence that is longer than any fence in it")
def test_what_a_file_holds_stands_in_fences_only(pieces: list[Piece], rooms: list[int]) -> None:
    made = pack(pieces, rooms=rooms, measure=utf16_units)
    for at, part in enumerate(made.texts, 1):
        tokens = MarkdownIt("commonmark").parse(part + "\n\nLoom's own last words.")
        shown = [entry for entry in made.packed if entry.form in ("full", "head") and at in entry.parts]
        kinds = [token.type for token in tokens if token.level == 0]
        assert kinds.count("fence") == kinds.count("heading_open") == len(shown)
        assert set(kinds) <= {
            *("heading_open", "heading_close", "inline", "fence", "paragraph_open", "paragraph_close"),
            *("bullet_list_open", "bullet_list_close", "hr"),
        }
        said = [token.content for token in tokens if token.type == "inline" and token.level == 1]
        assert said[-1].startswith("Loom's own")


@given(text=LONG | ANY_TEXT, rooms=ROOMS)
def test_no_line_is_cut(text: str, rooms: list[int]) -> None:
    """Whatever the form, between the fences stand whole lines of the text."""
    whole = visible(text).split("\n")
    made = pack([piece("a", text, required=True)], rooms=rooms, measure=utf16_units)
    for part in made.texts:
        for token in MarkdownIt("commonmark").parse(part):
            if token.type == "fence":
                assert not [line for line in token.content.removesuffix("\n").split("\n") if line not in whole]


@pytest.mark.slow
@given(pieces=PIECES, rooms=ROOMS)
def test_the_same_pieces_give_the_same_bytes(pieces: list[Piece], rooms: list[int]) -> None:
    """A prompt cache finds the same text again (D19)."""
    assert pack(pieces, rooms=rooms, measure=utf16_units) == pack(list(pieces), rooms=rooms, measure=utf16_units)


@pytest.mark.slow
@given(pieces=PIECES)
def test_with_room_enough_all_is_given_in_full(pieces: list[Piece]) -> None:
    made = pack(pieces, rooms=[10_000_000, 9500], measure=utf16_units)
    assert [entry.form for entry in made.packed] == ["pointer" if piece.text is None else "full" for piece in pieces]
    assert not made.texts[1]


def test_full_text_is_introduced_as_content_of_a_file() -> None:
    pieces = [piece("spec", "# Spec\nx\n"), piece("gone", None), piece("log", lines_of(300))]
    made = pack(pieces, rooms=[720], measure=utf16_units)
    begun, rest = made.texts[0].split("### log", 1)
    assert begun == "### spec — spec.md\nFile, in full:\n```text\n# Spec\nx\n```\n\n"
    assert rest.startswith(" — log.md\nFile, lines 1 to 11 of 300:\n```text\nline 1 xxx")
    assert rest.endswith(
        "```\n\n- gone: not given in full; read gone.md\n\n"
        "- log: lines 1 to 11 of 300 are given here; for the rest read log.md from line 12"
    )


def test_a_text_that_fits_nowhere_whole_goes_on_over_the_parts() -> None:
    spec = lines_of(750)
    pieces = [
        piece("item", lines_of(40), required=True),
        piece("spec", spec, required=True),
        piece("page", "p\n", own=True),
    ]
    made = pack(pieces, rooms=[6500, 9400, 9400, 9400], measure=utf16_units)
    assert forms(made) == {"item": "full", "spec": "full", "page": "full"}
    assert made.packed[1].parts == (1, 2, 3, 4)
    assert "### spec — spec.md\nFile, lines 1 to 1" in made.texts[0]
    assert all("### spec — spec.md (continued)\nFile, lines " in text for text in made.texts[1:])
    assert made.texts[3].count("\nline 750 ") == 1


def test_the_users_artifacts_come_before_looms_own_pages() -> None:
    """A 4 kB specification is not given away for a protocol and a plan that are shorter (D62)."""
    pieces = [
        piece("protocol", lines_of(30), required=True, own=True),
        piece("plan", lines_of(10), required=True, own=True),
        piece("spec", lines_of(100), required=True),
    ]
    little, more = (forms(pack(pieces, rooms=[room], measure=utf16_units)) for room in (4300, 4800))
    assert little == {"protocol": "pointer", "plan": "pointer", "spec": "full"}
    assert more == {"protocol": "pointer", "plan": "full", "spec": "full"}


def test_required_pieces_come_first_in_declared_order_and_a_long_one_leaves_room_for_short_ones() -> None:
    pieces = [
        piece("optional", "o\n" * 500),
        piece("a", lines_of(200), required=True),
        piece("b", lines_of(200), required=True),
    ]
    made = pack(pieces, rooms=[9500], measure=utf16_units)
    assert forms(made) == {"optional": "pointer", "a": "head", "b": "head"}
    given_lines = [int(one) for one in re.findall(r"lines 1 to (\d+) of 200 are given here", made.texts[0])]
    assert given_lines[0] > given_lines[1] > 40
    pieces = [piece("spec", lines_of(1500), required=True), piece("item", lines_of(50), required=True)]
    made = pack(pieces, rooms=[9500] * 4, measure=utf16_units)
    assert forms(made) == {"spec": "head", "item": "full"}
    assert sum(map(utf16_units, made.texts)) > 37_000


@pytest.mark.parametrize("text", ["x" * 250, "some words\n" * 25])
def test_of_many_short_required_files_as_many_as_fit_are_given(text: str) -> None:
    pieces = [piece(f"r{n:02}", text, required=True) for n in range(30)]
    made = pack(pieces, rooms=[6000], measure=utf16_units)
    assert list(forms(made).values()).count("full") > 7
    assert utf16_units(made.texts[0]) > 5500


def test_many_optional_pieces_do_not_starve_the_required_and_are_omitted_before_them() -> None:
    pieces = [piece(f"optional-{n}", "x" * 500) for n in range(500)] + [piece("spec", "y" * 4200, required=True)]
    made = pack(pieces, rooms=[9500], measure=utf16_units)
    assert forms(made)["spec"] == "full"
    kept = [entry.id for entry in made.packed if entry.form != "omitted" and entry.id != "spec"]
    assert kept == [f"optional-{n}" for n in range(len(kept))]
    assert len(kept) > 40
    assert f"{500 - len(kept)} more artifacts are left out here: no room; " in made.texts[0]
    pieces = [*(piece(f"p{n}", "x" * 500) for n in range(9)), piece("must", "y" * 900, required=True)]
    found = forms(pack(pieces, rooms=[400], measure=utf16_units))
    assert found["must"] == "pointer"
    assert list(found.values()) == sorted(found.values(), key=["pointer", "omitted"].index) or found["p8"] == "omitted"
    assert pack(pieces, rooms=[60], measure=utf16_units).packed == [Packed(one.id, "omitted") for one in pieces]


def test_a_text_shorter_than_its_pointer_is_given_even_where_room_is_short() -> None:
    short = Piece("id", "id", "x", "text", "read it at " + "a/" * 100, False)
    assert pack([short], rooms=[60], measure=utf16_units).packed[0].form == "full"


def test_a_beginning_that_needs_a_long_fence_keeps_under_the_budget_too() -> None:
    ruler = piece("a", ("~" * 200 + "\ntext\n") * 200, required=True)
    made = pack([ruler], rooms=[6000], measure=utf16_units)
    assert made.packed[0].form == "head"
    assert "`" * 201 in made.texts[0]
    assert utf16_units(made.texts[0]) <= 6000


def test_of_a_text_whose_lines_are_no_files_none_is_named_by_its_number() -> None:
    """Where a mask took several lines' place, or nobody can read it by lines, the number would lead astray."""
    made = pack([piece("a", lines_of(300), required=True)._replace(numbered=False)], rooms=[900], measure=utf16_units)
    assert made.packed[0].rest == "read a.md"


def test_each_text_is_measured_a_few_times_at_most() -> None:
    measured = 0

    def measure(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return utf16_units(text)

    pieces = [piece(f"p{n}", f"# Part {n}\n" + "some words of text\n" * 1050) for n in range(10)]
    total = sum(len(declared.text or "") for declared in pieces)
    pack(pieces, rooms=[9500] * 4, measure=measure)
    assert measured < 3 * total + 40 * 9500


@each(
    ("diff", "room", "form"),
    [("@@\n-a\n+b\n", 9000, "diff"), ("-a\n" * 2000, 9000, "full"), ("", 9000, "full"), ("@@\n-a\n+b\n", 400, "diff"),
     ("@@\n-a\n+b\n", 120, "pointer")],
)  # fmt: skip
def test_a_diff_stands_for_the_whole_where_it_is_shorter(diff: str, room: int, form: str) -> None:
    one = piece("notes", "line of the text\n" * 100)._replace(diff=diff, base="0123456789abcdef")
    made = pack([one], rooms=[room], measure=utf16_units)
    assert made.packed[0].form == form
    assert ("(then 01234567)" in made.texts[0]) == (form == "diff")


@pytest.mark.parametrize(("lines", "form"), [(1400, "full"), (200, "diff")])
def test_a_diff_that_no_part_holds_gives_way_to_the_whole_on_several(lines: int, form: str) -> None:
    diff = "@@ -1 +1 @@\n" + "-a line\n" * lines
    one = piece("notes", "line of the text\n" * 1400)._replace(diff=diff, base="0123456789abcdef")
    made = pack([one], rooms=[9000] * 4, measure=utf16_units)
    assert (made.packed[0].form, made.packed[0].rest) == (form, "")
    assert made.texts[0].count("from line") == 0


@pytest.mark.slow
@given(WITH_DIFFS, ROOMS)
def test_diffs_keep_under_the_budget(pieces: list[Piece], rooms: list[int]) -> None:
    made = pack(pieces, rooms=rooms, measure=utf16_units)
    for text, room in zip(made.texts, rooms, strict=True):
        assert utf16_units(text) <= max(0, room)


@each(("of", "what", "in_part"), [
    ("", "the file", "File"),
    ("listing", "the listing of a folder", "A folder's listing, without the content of its files"),
    ("newest", "a folder's newest file", "A folder's newest file"),
    ("files", "a folder's files", "A folder's files"),
    ("some", "the readable files of a folder",
     "The readable files of a folder"),
    ("command", "the output of a command", "Output"),
])  # fmt: skip
def test_a_part_of_what_is_no_file_is_not_called_a_files(of: str, what: str, in_part: str) -> None:
    one = piece("notes", "line of the text\n" * 300)._replace(of=of)
    changed = pack([one._replace(diff="@@\n-a\n+b\n")], rooms=[9000], measure=utf16_units).texts[0]
    assert f"\nChanges in {what} since you were given it in full (then " in changed
    begun = pack([one], rooms=[1200], measure=utf16_units).texts[0]
    assert f"\n{in_part}, lines 1 to " in begun
    assert not of or "the file" not in changed + begun
