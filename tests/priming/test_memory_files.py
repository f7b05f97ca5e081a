"""The line that imports a file into a host's memory, put into a file of the user's and taken out of it (D62)."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from loomctl.priming import memory
from tests.helpers.tables import each

LINE = "@.loom/now.md"
CONTENTS = st.lists(
    st.sampled_from([b"Use tabs.", b"\n", b"\r\n", b"\r", b"\xef\xbb\xbf", b"\xff\xfe", b"- a list", b"```", b" "])
    | st.binary(max_size=8),
    max_size=12,
).map(b"".join)


@given(CONTENTS)
@example(b"")
@example(b"\xef\xbb\xbf")
@example(b"Use tabs.")
@example(b"Use tabs.\r\n")
@example(b"a\r\nb")
def test_what_is_added_is_taken_away_byte_for_byte(before: bytes) -> None:
    """Whatever stands in the file: no final newline, CRLF, a byte order mark, bytes that are no text."""
    assume(not memory.has_line(before, LINE))
    added = memory.addition(before, LINE)
    assert memory.has_line(before + added, LINE)
    assert memory.without(before + added, LINE, added) == before


@given(CONTENTS, CONTENTS.filter(bool))
def test_of_a_file_that_was_edited_since_only_the_line_goes(before: bytes, behind: bytes) -> None:
    assume(not any(memory.has_line(one, LINE) for one in (before, behind)))
    added = memory.addition(before, LINE)
    at = added.index(LINE.encode())
    left = memory.without(before + added + behind, LINE, added)
    assert left == before + added[:at] + behind
    assert not memory.has_line(left, LINE)


def test_the_line_stands_in_a_paragraph_of_its_own() -> None:
    """With the file's own line ends; in a table or a list it would not be an import."""
    assert memory.addition(b"| a |\n", LINE) == b"\n@.loom/now.md\n"
    assert memory.addition(b"- a", LINE) == b"\n\n@.loom/now.md\n"
    assert memory.addition(b"a\r\n", LINE) == b"\r\n@.loom/now.md\r\n"


@each(
    ("text", "led"),
    [
        ("see @docs/a.md, and @../b\\ c.md#part", ["docs/a.md,", "../b c.md"]),
        ("mail me@example.com or `x@y`", []),
        ("@one\n@one\t@two", ["one", "two"]),
        ("@#x", []),
        (" ".join(f"@{number}" for number in range(1000)), None),
    ],
)
def test_what_a_text_may_import_by_itself_is_known(text: str, led: list[str] | None) -> None:
    """As the host reads it; for too many nobody looks."""
    assert memory.imported_by(text) == led


@each(
    ("text", "front"),
    [
        ("---\na: b\n---\n# A\n", "---\na: b\n---"), ("---\na: b\n", ""), ("# A\n\n---\nb\n---\n", ""),
        ("--- a\nb\n---\n", ""), ("---\n" + "a: b\n" * 1000 + "---\n", None),
    ],
)  # fmt: skip
def test_the_front_matter_that_the_host_leaves_out_is_known(text: str, front: str | None) -> None:
    assert memory.front_matter(text) == front
