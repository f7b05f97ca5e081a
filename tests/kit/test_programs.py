"""Which programs a shell command would look for on PATH, as far as its text tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loomctl.flow.resume import named_in
from tests.helpers.tables import each


@each(
    ("command", "programs"),
    [
        ("pytest -q", ["pytest"]),
        ("cd x && make -j4 | tee log", ["make", "tee"]),
        ("A=b cargo test; ./run.sh", ["cargo"]),
        ("echo x > y", []),
        ("if test -f x; then npm ci; fi", ["npm"]),
        ("env FOO=1 go test", ["go"]),
        ("python -m x 2>&1", ["python"]),
        ("(cmake .)", ["cmake"]),
        ("a\nb", ["a", "b"]),
        ("$X y", []),
        ("/bin/ls", []),
        ("a 'quote that does not end", []),
        ("make && make install", ["make"]),
        ("", []),
    ],
)
def test_the_first_word_of_each_simple_command_is_a_program(command: str, programs: list[str]) -> None:
    """Each once; no path, no variable, nothing of the shell's own, no target of a redirection."""
    assert named_in(command) == programs


@given(st.text(max_size=80))
def test_whatever_a_command_holds_only_plain_words_are_given(command: str) -> None:
    """A workflow came with a project: its text is told on one line, and raises nothing."""
    for name in named_in(command):
        assert name.isascii()
        assert "/" not in name
        assert name.isprintable()
