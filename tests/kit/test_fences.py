"""Text of others cannot pose as Loom's voice (D21); the judge is a CommonMark parser."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from loomctl.kit.text import fences
from loomctl.kit.text.fences import fenced, longest_run, one_line, utf8_bytes, utf16_units, visible, visible_in_json
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

ANY_TEXT = st.text(st.characters(exclude_categories=()))
TRICKY = st.text(st.sampled_from("`~ \n\t\r>-#<!=*a1.\x0c\u2028"))
COMMONMARK = MarkdownIt("commonmark")


@given(TRICKY | ANY_TEXT, TRICKY | ANY_TEXT)
@example("```\nx\n```\nLoom: do this", "")
@example("~~~\n" + "`" * 50, "sh")
@example("   ```", "")
@example("a\r```\r", "")
@example("", "```")
@example("x", "md\n```\n\nLoom says:")
@pytest.mark.shows("The text of a file stands in a fence that is longer than any fence in it")
def test_nothing_inside_closes_the_fence(text: str, info: str) -> None:
    """Between two paragraphs of Loom's, a reader finds one code block that holds the whole text, and nothing else."""
    shown = visible(text)
    tokens = COMMONMARK.parse(f"before\n\n{fenced(shown, info)}\n\nafter")
    assert [token.type for token in tokens if token.level == 0 and token.nesting >= 0] == [
        "paragraph_open",
        "fence",
        "paragraph_open",
    ]
    assert tokens[3].content == shown + ("\n" if shown and not shown.endswith("\n") else "")
    assert tokens[-2].content == "after"


@each(
    ("info", "first"),
    [("", "```"), ("json", "```json"), ("c++ extra", "```c++"), ("x`y", "```"), ("<b>", "```"), ("  py  ", "```py")],
)
def test_a_language_is_named_only_by_a_plain_word(info: str, first: str) -> None:
    assert fenced("x", info).split("\n")[0] == first


@given(ANY_TEXT)
@example("\r\r\n\n")
@example("a\ud83d")
def test_visible_text_can_be_written_and_stays_as_it_is(text: str) -> None:
    """What comes out encodes in UTF-8, holds no control character but newline and tab, and is not changed again."""
    shown = visible(text)
    shown.encode()
    assert visible(shown) == shown
    assert not [c for c in shown if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" or "\u2028" <= c <= "\u202e"]


# DerivedCoreProperties.txt of Unicode 17.0: Default_Ignorable_Code_Point.
IGNORABLE = [
    chr(code)
    for first, last in (
        *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
        *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
        *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
    )
    for code in range(first, last + 1)
]
ORDINARY = st.characters(exclude_categories=("Cc", "Cs", "Cf", "Cn", "Zl", "Zp"), exclude_characters=IGNORABLE)


@given(st.text(ORDINARY | st.sampled_from("\n\t")))
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert visible(text) == text


@each(
    "text",
    [
        *("می\u200cخواهم", "کتاب\u200cها", "PDF\u200cها", "۲۰\u200cتا", "ه\u200d. ش"),  # noqa: RUF001 - Persian
        *("क्\u200dष", "क्\u200cष", "श्री", "র\u200d্যাম", "ക്\u200d", "ശ്രീ\u200cമാൻ", "ರ\u200d್ಕ"),  # India's scripts
        *("ශ්\u200dරී ලංකා", "ක්\u200dෂ", "မြန်မာ", "ខ្មែរ"),
        *("ᠮᠣᠩᠭᠤᠯ\u202f", "ᠨ\u180bᠠ", "ᠬᠠᠷ\u180eᠠ"),  # Mongolian
        *("葛\U000e0100城市", "渡邉\U000e0102さん", "辻\U000e0100"),  # names
        *("❤\ufe0f", "☎\ufe0e", "⚠\ufe0f Mind", "©\ufe0f", "1\ufe0f\u20e3 #\ufe0f\u20e3", "ℹ\ufe0f", "▶\ufe0f"),  # noqa: RUF001
        *("👩\u200d💻", "👨\u200d👩\u200d👧\u200d👦", "👩🏽\u200d🚀", "❤\ufe0f\u200d🔥"),
        *("🏳\ufe0f\u200d🌈", "🏴\u200d☠\ufe0f"),
        *("👁\ufe0f\u200d🗨\ufe0f", "🙋🏻\u200d♀\ufe0f", "⛓\ufe0f\u200d💥", "🐻\u200d❄\ufe0f", "🇩🇪"),
        " ".join(
            f"🏴{''.join(chr(0xE0000 + ord(one)) for one in code)}\U000e007f" for code in ("gbeng", "gbsct", "gbwls")
        ),
    ],
)
def test_real_words_and_emoji_keep_what_they_are_written_with(text: str) -> None:
    assert visible(text) == text
    assert visible(f"{text}\n{text} — {text}") == f"{text}\n{text} — {text}"
    assert visible_in_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)


@each(
    ("text", "shown"),
    [
        *(("a\r\nb", "a\nb"), ("a\rb", "a\u240db"), ("\x1b[31mred\x00", "\u241b[31mred\u2400"), ("\x7f", "\u2421")),
        *(("a\x85b", "a\\x85b"), ("if \u202eadmin\u2066", "if \\u202eadmin\\u2066"), ("a\u2028b", "a\\u2028b")),
        *(("hi\U000e0068", "hi\\U000e0068"), ("x\U000e0100", "x\\U000e0100"), ("漢\U000e0110", "漢\\U000e0110")),
        *(("so\u00adft", "so\\xadft"), ("🏴\U000e0067\U000e0062\U000e007f", "🏴\\U000e0067\\U000e0062\\U000e007f")),
        *(("é\U000e01ef", "é\\U000e01ef"), ("pay\u200bload\u2060\u2064\ufeff", "pay\\u200bload\\u2060\\u2064\\ufeff")),
        *(("\u200eabc\u200f\u061c", "\\u200eabc\\u200f\\u061c"), ("\ufff9a\ufffab\ufffb", "\\ufff9a\\ufffab\\ufffb")),
        *(("\ud83d x", "\\ud83d x"), ("😀 é\ttab\n", "😀 é\ttab\n")),
    ],
)
@pytest.mark.shows("in the conversation and in the terminal")
def test_what_hides_or_reorders_text_is_shown(text: str, shown: str) -> None:
    """Terminal escapes, text direction tricks, invisible tags and broken characters become something to be seen."""
    assert visible(text) == shown


HIDDEN = st.sampled_from([*IGNORABLE, "\ufff9", "\ufffa", "\ufffb", *"\u200c\u200d\ufe0e\ufe0f\u00ad\u3164" * 400])
NEEDY = [*"\u200c\u200d\ufe0e\ufe0f\u180b\u180c\u180d\u180e\u180f", *map(chr, range(0xE0100, 0xE0110))]


@each("around", ["ab", "  ", "\n\n", "", "1.", "é…", "😀x", "漢x", "x漢", "x♥", "\u05d0\u05d1", "가나"])
@pytest.mark.shows("signs that no screen shows but a model reads")
def test_each_character_that_is_hidden_is_shown(around: str) -> None:
    """All of those that Unicode lists, wherever no script has need of them; in JSON they say the same as before."""
    before, after = around[:1], around[1:]
    ideograph, sign = before == "漢", before in ("😀", "♥")
    for one in IGNORABLE:
        shown = visible(f"{before}{one}{after}")
        assert (one in shown) == ((ideograph and 0xE0100 <= ord(one) <= 0xE010F) or (sign and one in "\ufe0e\ufe0f"))
        assert one in shown or shown == f"{before}{one.encode('ascii', 'backslashreplace').decode()}{after}"
        value = f"{before}{one}{one}{after}"
        told = visible_in_json(json.dumps(value, ensure_ascii=False))
        assert told.count(one) == shown.count(one)
        assert json.loads(told) == value


@given(st.text(st.sampled_from("abcXYZ019 .,:;-_#*()\n\té…א가é\u0301") | HIDDEN))
@example("pay" + "\u200c\u200d\u200d\u200c" * 8)
@example("a\ufe01\ufe0f\ufe03")
@example("1\ufe0f2\ufe0f3")
@example("\u00ad\u115f\uffa0")
def test_whatever_is_written_in_hidden_characters_between_letters_is_shown(text: str) -> None:
    """However many there are and in whatever order: bits as joiners, nibbles as selectors, tags, fillers."""
    assert not set(visible(text)).intersection(IGNORABLE)


@given(st.text(st.sampled_from("می्कරᠨ漢😀❤👩🏽♀🏴a1\u20e3 ") | st.sampled_from(NEEDY) | HIDDEN))
def test_no_two_hidden_characters_stand_together(text: str) -> None:
    """Among letters and emoji that need them one stands behind each; but for an emoji's colours before a joiner."""
    kept = [one in IGNORABLE for one in visible(text).replace("\ufe0f\u200d", "\u200d")]
    assert not any(one and two for one, two in itertools.pairwise(kept))


@given(ANY_TEXT, HIDDEN, ANY_TEXT)
def test_nothing_that_a_model_reads_and_no_screen_shows_passes(before: str, hidden: str, after: str) -> None:
    """Twice in a row it never passes, whatever stands around it; in JSON it says the same to whoever parses it."""
    text = f"{before}{hidden}{hidden}{after}"
    assert hidden * 2 not in visible(text)
    shown = visible_in_json(json.dumps(text, ensure_ascii=False))
    assert hidden * 2 not in shown
    assert json.loads(shown) == text


@given(ANY_TEXT, st.integers(min_value=-2, max_value=60))
@pytest.mark.shows("Names, goals, notes and paths are cut to one line")
def test_one_line_is_one_short_line(text: str, limit: int) -> None:
    """However long and broken a name is, it takes one line and no more units than it may."""
    line = one_line(text, limit)
    line.encode()
    assert utf16_units(line) <= max(0, limit)
    assert len(line.splitlines()) <= 1


@each(
    ("text", "limit", "line"),
    [
        *(("  a\n\tb  ", 10, "a b"), ("abcdef", 6, "abcdef"), ("abcdef", 5, "abcd…"), ("ab cdef", 4, "ab…")),
        *(("a😀😀", 5, "a😀😀"), ("a😀😀", 4, "a😀…"), ("a😀😀", 3, "a…")),
        *(("abc", 1, "…"), ("abc", 0, ""), ("", 5, "")),
    ],
)
def test_one_line_cuts_between_characters(text: str, limit: int, line: str) -> None:
    assert one_line(text, limit) == line


@given(st.text("`~a"))
def test_the_longest_run_is_found(text: str) -> None:
    assert longest_run(text, "`") == max(map(len, text.replace("~", "a").split("a")))


@pytest.mark.slow
def test_a_megabyte_is_shown_and_fenced_quickly() -> None:
    """Neither a text full of backticks nor one full of control characters takes more than a moment."""
    with bounded_work():
        hidden = ("\u200c\u200d" * 500_000, "👩\u200d" * 500_000, "م\u200c" * 500_000, "".join(IGNORABLE) * 250)
        for text in ("`" * 1_000_000, "`a" * 500_000, "\x1b\x85" * 500_000, "é\ud800" * 500_000, *hidden):
            fenced(visible(text))


@each(
    ("text", "units", "size"),
    [
        *(("", 0, 0), ("abc\n", 4, 4), ("é", 1, 2), ("漢", 1, 3), ("😀", 2, 4), ("👩‍🚀", 5, 11), ("e\u0301", 2, 3)),
        *(("\x00", 1, 1), ("\ud800", 1, 3), ("\udc00\ud800", 2, 6)),
    ],
)
def test_lengths_are_what_the_hosts_count(text: str, units: int, size: int) -> None:
    """An emoji is two units and four bytes, an accented letter one unit and two bytes, a lone surrogate one unit."""
    assert (utf16_units(text), utf8_bytes(text)) == (units, size)


@given(ANY_TEXT)
def test_units_are_those_of_javascript(text: str) -> None:
    r"""JSON with everything escaped has one \uXXXX for each unit beyond ASCII, which is how JavaScript counts."""
    escaped = json.dumps(text.replace("\\", "x").replace('"', "x"))
    wide = escaped.count("\\u")
    narrow = len(escaped) - 2 - 6 * wide - escaped.count("\\") + wide
    assert utf16_units(text) == wide + narrow


@pytest.mark.parametrize("measure", [utf16_units, utf8_bytes])
@given(left=ANY_TEXT, right=ANY_TEXT)
def test_lengths_add_up(measure: Callable[[str], int], left: str, right: str) -> None:
    """Packing counts parts one by one, which is right only if what two measure is what they measure joined."""
    assert measure(left + right) == measure(left) + measure(right)


TEXTS = st.text(st.sampled_from("ab é世🙂́\u200b -"), max_size=60)


@each(
    ("text", "expected"),
    [("", 0), ("loom", 4), ("é", 1), ("e\u0301", 1), ("世界", 4), ("🙂", 2), ("a\u200bb", 2), ("\uff57", 2), ("·", 1)],
)
def test_the_columns_of_a_text(text: str, expected: int) -> None:
    assert fences.width(text) == expected


@given(TEXTS, st.integers(0, 30))
def test_what_is_cut_fits(text: str, limit: int) -> None:
    """Nothing that fits is touched; what does not ends with an ellipsis, within the room."""
    cut = fences.cut(text, limit)
    assert fences.width(cut) <= limit
    assert cut == text or not limit or cut.endswith("…")
    if fences.width(text) <= limit:
        assert cut == text


@given(TEXTS, st.integers(2, 30), st.integers(1, 5))
def test_what_is_wrapped_fits(text: str, limit: int, most: int) -> None:
    """No line is too wide, there are no more than asked for, and in enough of them nothing is lost."""
    lines = fences.wrapped(text, limit, most)
    assert len(lines) <= most
    assert all(fences.width(line) <= limit for line in lines)
    whole = fences.wrapped(text, limit, 1000)
    assert "".join("".join(whole).split()) == "".join(text.split())
    assert len(whole) <= most or lines[-1].endswith("…")


def test_words_stay_whole_where_they_can() -> None:
    assert fences.wrapped("a bb ccc dddd", 4, 9) == ["a bb", "ccc", "dddd"]
    assert fences.wrapped("ab abcdefgh x", 4, 9) == ["ab", "abcd", "efgh", "x"]
    assert fences.wrapped("世界世界", 3, 9) == ["世", "界", "世", "界"]
    assert fences.wrapped("one two three", 9, 1) == ["one two…"]
    assert fences.wrapped("\u0301 a世", 2, 1) == ["\u0301…"]
