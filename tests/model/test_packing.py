"""Artifacts keep under one budget, and what is not given in full is named (D19-D21)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from loomctl.model.fences import visible
from loomctl.model.packing import Packed, Piece, joined, pack
from loomctl.model.units import utf8_bytes, utf16_units

if TYPE_CHECKING:
    from collections.abc import Callable

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
PIECES = st.lists(
    st.builds(
        Piece,
        id=NAMES,
        heading=NAMES,
        text=TEXTS,
        kind=st.sampled_from(["json", "markdown", "text"]),
        info=NAMES,
        pointer=NAMES,
        required=st.booleans(),
        diff=st.just(""),
        base=st.just(""),
    ),
    max_size=12,
)
WITH_DIFFS = st.lists(st.builds(Piece, required=st.booleans(), text=TEXTS, diff=TRICKY | LONG, base=NAMES), max_size=8)
BUDGETS = st.integers(-3, 400) | st.integers(0, 12_000)
MEASURES = pytest.mark.parametrize("measure", [utf16_units, utf8_bytes])


def piece(name: str, text: str | None, *, required: bool = False, kind: str = "text") -> Piece:
    """Give a piece with the usual words around its text."""
    return Piece(
        name, f"{name} — {name}.md", text, kind, kind, f"- {name}: not given in full; read {name}.md", required
    )


def forms(packed: list[Packed]) -> dict[str, str]:
    """Give the form that each piece took."""
    return {entry.id: entry.form for entry in packed}


@MEASURES
@given(pieces=PIECES, budget=BUDGETS, floor=st.integers(0, 10_000))
@example(pieces=[piece(str(n), "x" * 50) for n in range(2000)], budget=9500, floor=4500)
def test_the_budget_is_never_exceeded(
    measure: Callable[[str], int], pieces: list[Piece], budget: int, floor: int
) -> None:
    """For any pieces and any budget, in either measure; and the text can be written."""
    text = joined(pack(pieces, budget=budget, measure=measure, required_floor=floor))
    text.encode()
    assert measure(text) <= max(0, budget)


@MEASURES
@given(pieces=PIECES, budget=BUDGETS)
def test_every_piece_is_accounted_for(measure: Callable[[str], int], pieces: list[Piece], budget: int) -> None:
    """Each is full, outlined, pointed to or counted in the closing line, in declared order; full is the whole text."""
    packed = pack(pieces, budget=budget, measure=measure)
    entries = packed[: len(pieces)]
    assert [entry.id for entry in entries] == [piece.id for piece in pieces]
    for declared, entry in zip(pieces, entries, strict=True):
        assert entry.form in ("full", "outline", "pointer", "omitted")
        assert (entry.form == "omitted") == (not entry.text)
        if entry.form == "full":
            assert declared.text is not None
            assert f"\n{visible(declared.text)}" in entry.text
        if entry.form in ("outline", "pointer"):
            assert visible(declared.pointer).replace("\n", " ").strip() in "- " + entry.text
    omitted = [entry.form for entry in entries].count("omitted")
    closing = [entry for entry in packed[len(pieces) :] if entry.form == "omitted" and not entry.id]
    if omitted and joined(packed):
        assert closing == [packed[-1]]
        assert closing[0].text.startswith(f"{omitted} more artifact{'s' if omitted > 1 else ''} ")
    else:
        assert len(packed) == len(pieces)


@given(pieces=PIECES, budget=st.integers(500, 12_000))
def test_what_a_file_holds_stands_in_fences_only(pieces: list[Piece], budget: int) -> None:
    """A CommonMark reader finds one code block for each text, and no block of Loom's words that a file or name made."""
    packed = pack(pieces, budget=budget, measure=utf16_units)
    tokens = MarkdownIt("commonmark").parse(joined(packed) + "\n\nLoom's own last words.")
    fences = [token.content for token in tokens if token.type == "fence" and token.level == 0]
    shown = [entry for entry in packed if entry.form in ("full", "outline")]
    assert len(fences) == len(shown)
    for content, entry in zip(fences, shown, strict=True):
        assert content.strip("\n") in entry.text
    given_in_full = [entry for entry in packed if entry.form == "full"]
    assert [token.type for token in tokens if token.level == 0].count("heading_open") == len(given_in_full)
    assert {token.type for token in tokens if token.level == 0} <= {
        *("heading_open", "heading_close", "inline", "fence", "paragraph_open", "paragraph_close"),
        *("bullet_list_open", "bullet_list_close", "hr"),
    }
    assert [token.content for token in tokens if token.type == "inline" and token.level == 1][-1].startswith(
        "Loom's own"
    )


@given(text=LONG | ANY_TEXT, budget=st.integers(0, 3000), required=st.booleans())
def test_no_line_is_cut(text: str, budget: int, required: bool) -> None:
    """Whatever the form, between the fences stand whole lines of the text and lines of Loom's own that count."""
    whole = visible(text).split("\n")
    for entry in pack([piece("a", text, required=required)], budget=budget, measure=utf16_units):
        if entry.form in ("full", "outline"):
            inside = entry.text.split("\n")[3 if entry.form == "outline" else 2 :]
            own = re.compile(r"`{3,}(text)?|[\d,]+ lines?, [\d,]+ characters?; the first lines:|… [\d,]+ more lines?")
            assert not [line for line in inside if line not in whole and not own.fullmatch(line)]


@given(pieces=PIECES, budget=BUDGETS)
def test_the_same_pieces_give_the_same_bytes(pieces: list[Piece], budget: int) -> None:
    """A prompt cache finds the same text again (D19)."""
    assert pack(pieces, budget=budget, measure=utf16_units) == pack(list(pieces), budget=budget, measure=utf16_units)


@given(pieces=PIECES)
def test_with_room_enough_all_is_given_in_full(pieces: list[Piece]) -> None:
    """A budget that holds everything leaves nothing out but what has no text."""
    packed = pack(pieces, budget=10_000_000, measure=utf16_units)
    assert [entry.form for entry in packed] == ["pointer" if piece.text is None else "full" for piece in pieces]


def test_full_text_is_introduced_as_content_of_a_file() -> None:
    """What a piece looks like in each form."""
    pieces = [piece("spec", "# Spec\nx\n", kind="markdown"), piece("gone", None), piece("log", "line\n" * 300)]
    assert joined(pack(pieces, budget=500, measure=utf16_units)) == (
        "### spec — spec.md\nContent of a file, in full:\n```markdown\n# Spec\nx\n```\n\n"
        "- gone: not given in full; read gone.md\n\n"
        "- log: not given in full; read log.md"
    )
    outlined = joined(pack(pieces[2:], budget=1200, measure=utf16_units))
    assert outlined.startswith(
        "- log: not given in full; read log.md\n"
        "Content of the file, in outline, for the full text does not fit here:\n"
        "```\n300 lines, 1,500 characters; the first lines:\nline\n"
    )
    assert re.search(r"\n… \d+ more lines\n```$", outlined)


def test_required_pieces_come_first_and_the_shortest_of_them() -> None:
    """A short required file declared last is given in full before a long one, and both before what is optional."""
    pieces = [
        piece("optional", "o" * 3000),
        piece("long", "l\n" * 2000, required=True),
        piece("short", "s" * 3000, required=True),
    ]
    packed = pack(pieces, budget=5000, measure=utf16_units)
    assert forms(packed) == {"optional": "pointer", "long": "outline", "short": "full"}
    assert [entry.id for entry in packed] == ["optional", "long", "short"]


def test_room_is_kept_for_outlines_of_the_other_required() -> None:
    """A required file that would fit alone does not take what the others need to be outlined."""
    pieces = [piece(name, f"{name}\n" * size, required=True) for name, size in (("a", 2350), ("b", 3000), ("c", 4000))]
    assert forms(pack(pieces, budget=5000, measure=utf16_units)) == {"a": "outline", "b": "outline", "c": "outline"}
    assert forms(pack(pieces, budget=6200, measure=utf16_units)) == {"a": "full", "b": "outline", "c": "outline"}


@pytest.mark.parametrize("text", ["x" * 250, "some words\n" * 25])
def test_of_many_short_required_files_as_many_as_fit_are_given(text: str) -> None:
    """Keeping room for outlines leaves none unused where there is too little for all."""
    pieces = [piece(f"r{n:02}", text, required=True) for n in range(30)]
    packed = pack(pieces, budget=6000, measure=utf16_units)
    assert [entry.form for entry in packed].count("full") > 10
    assert utf16_units(joined(packed)) > 5500


def test_optional_pieces_take_what_is_left_in_declared_order() -> None:
    """The first that fits is given in full, one that does not is outlined, the next may still fit."""
    pieces = [piece("big", "b\n" * 9000), piece("first", "f" * 1500), piece("second", "s" * 2500), piece("last", "x\n")]
    assert forms(pack(pieces, budget=5000, measure=utf16_units)) == {
        "big": "outline",
        "first": "full",
        "second": "pointer",
        "last": "full",
    }


def test_many_optional_pieces_do_not_starve_the_required() -> None:
    """However many optional pieces there are, the required have what they can use of 4,500 units."""
    pieces = [piece(f"optional-{n}", "x" * 500) for n in range(500)] + [piece("spec", "y" * 4200, required=True)]
    packed = pack(pieces, budget=9500, measure=utf16_units)
    assert forms(packed)["spec"] == "full"
    kept = [entry.id for entry in packed if entry.form == "pointer"]
    assert kept == [f"optional-{n}" for n in range(len(kept))]
    assert len(kept) > 50
    assert packed[-1].text.startswith(f"{500 - len(kept)} more artifacts are left out here for lack of room; ")


def test_the_last_are_omitted_where_not_even_pointers_fit() -> None:
    """Optional ones go first, from the last on; a required one declared last stays as long as it can."""
    pieces = [*(piece(f"p{n}", "x" * 500) for n in range(9)), piece("must", "y" * 900, required=True)]
    packed = pack(pieces, budget=300, measure=utf16_units)
    assert [entry.form for entry in packed] == ["pointer"] * 2 + ["omitted"] * 7 + ["pointer", "omitted"]
    assert packed[-1].text.startswith("7 more artifacts are ")
    assert pack(pieces, budget=60, measure=utf16_units) == [Packed(declared.id, "omitted", "") for declared in pieces]


def test_a_text_shorter_than_its_pointer_is_given_even_where_room_is_short() -> None:
    """Where the whole text costs less than saying where it is, saying where it is makes no sense."""
    short = Piece("id", "id", "x", "text", "", "read it at " + "a/" * 100, False)
    assert pack([short], budget=60, measure=utf16_units)[0].form == "full"


def test_an_outline_that_needs_a_long_fence_keeps_under_the_budget_too() -> None:
    """The fence's length counts, and where it leaves no room there is only a pointer."""
    ruler = piece("a", ("~" * 200 + "\ntext\n") * 200, required=True)
    packed = pack([ruler], budget=6000, measure=utf16_units)
    assert packed[0].form == "outline"
    assert "`" * 201 in packed[0].text
    assert utf16_units(joined(packed)) <= 6000


def test_each_text_is_measured_a_few_times_at_most() -> None:
    """Ten artifacts of 200 KB: what is measured grows with the texts, not with their number times the steps taken."""
    measured = 0

    def measure(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return utf16_units(text)

    pieces = [piece(f"p{n}", f"# Part {n}\n" + "some words of text\n" * 1050, kind="markdown") for n in range(10)]
    total = sum(len(declared.text or "") for declared in pieces)
    joined(pack(pieces, budget=9500, measure=measure))
    assert measured < total + 40 * 9500


@pytest.mark.parametrize(
    ("diff", "budget", "form"),
    [("@@\n-a\n+b\n", 9000, "diff"), ("-a\n" * 2000, 9000, "full"), ("", 9000, "full"), ("@@\n-a\n+b\n", 400, "diff"),
     ("@@\n-a\n+b\n", 60, "pointer")],
)  # fmt: skip
def test_a_diff_stands_for_the_whole_where_it_is_shorter(diff: str, budget: int, form: str) -> None:
    """It says what it begins with; where neither has room, the pointer stays."""
    one = piece("notes", "line of the text\n" * 100)._replace(diff=diff, base="0123456789abcdef")
    (packed,) = pack([one], budget=budget, measure=utf16_units)
    assert packed.form == form
    assert ("(then 01234567)" in packed.text) == (form == "diff")


@given(WITH_DIFFS, BUDGETS)
def test_diffs_keep_under_the_budget(pieces: list[Piece], budget: int) -> None:
    """Whatever they hold; and nothing in one can close its fence."""
    packed = pack(pieces, budget=budget, measure=utf16_units)
    assert utf16_units(joined(packed)) <= max(0, budget)


@pytest.mark.parametrize(("of", "what"), [
    ("", "the file"), ("listing", "the listing of a folder"), ("newest", "what a folder's newest file holds"),
    ("files", "what a folder's files hold"), ("some", "what those of a folder's files hold that can be read"),
    ("command", "what a command says"),
])  # fmt: skip
def test_a_part_of_what_is_no_file_is_not_called_a_files(of: str, what: str) -> None:
    """A folder's listing that changed is not a file that changed, nor is its outline."""
    one = piece("notes", "line of the text\n" * 300)._replace(of=of)
    (changed,) = pack([one._replace(diff="@@\n-a\n+b\n")], budget=9000, measure=utf16_units)
    assert f"\nWhat changed in {what} since it was given here in full (then " in changed.text
    (outlined,) = pack([one], budget=1200, measure=utf16_units)
    said = "Content of the file" if not of else what[0].upper() + what[1:]
    assert f"\n{said}, in outline, for the full text does not fit here:\n" in outlined.text
    assert not of or "the file" not in changed.text + outlined.text
