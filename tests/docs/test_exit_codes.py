"""The page of exit codes and errors says what the code says."""

import re

import pytest

from loomctl.kit import errors as exits
from loomctl.kit.errors import ON_INTERRUPT
from tests.cli.test_errors import FAILING
from tests.cli.test_exit_codes import CASES
from tests.docs import errors
from tests.docs.pages import DOCS, make, table
from tests.helpers.tables import each

PAGE = DOCS / "reference" / "exit-codes.md"

# What an error says where its words come from elsewhere.
MEANS = {
    "BAD_CONFIG": "a `config.yaml` cannot be read, or one of its values is not what it should be",
    "BUG": "a fault in Loom; `--debug` shows where",
    "DOT_SYNTAX": "a file in DOT cannot be read as a digraph",
    "NEVER_TRUE": "a condition in DOT compares with an outcome that no step has",
    "NOT_REMEMBERED": "this machine's own folder cannot be written, so trust would not last",
    "SCHEMA": "the file does not fit the published schema in some other way",
    "SCHEMA_TOO_OLD": "the file's schema is older than any that this Loom can migrate",
    "SYSTEM": "the system refused something: a full disk, a missing permission",
    "UNKNOWN_SETTING": "a `config.yaml` has a name that is no setting, or one that it may not set",
    "USAGE": "a command, option or argument that there is not, or that does not fit the others",
}


def by_code(kinds: tuple[str, ...]) -> list[list[str]]:
    rows = []
    found = [one for one in errors.said() if one.kind in kinds]
    for code in sorted({one.code for one in found}):
        mine = [one for one in found if one.code == code]
        words = [one.words for one in mine if any(letter.isalpha() for letter in one.words)]
        told = MEANS.get(code) or "; ".join(dict.fromkeys(words))
        ends = sorted({one.exit_code for one in mine})
        what = (
            ", ".join(str(end) for end in ends)
            if kinds == (errors.ENDS,)
            else ", ".join(sorted({one.kind for one in mine}))
        )
        assert told, f"nothing is known of what {code} says: add it to MEANS"
        rows.append([f"`{code}`", what, told])
    return rows


@pytest.mark.slow
def test_every_error_is_listed_with_its_exit_code() -> None:
    make(PAGE, "errors", table(["error", "exit code", "says"], by_code((errors.ENDS,))))


@pytest.mark.slow
def test_every_finding_of_check_is_listed() -> None:
    rows = by_code((errors.ERROR, errors.WARNING, errors.NOTE))
    make(PAGE, "findings", table(["finding", "kind", "says"], rows))


@pytest.mark.slow
def test_every_notice_is_listed() -> None:
    make(PAGE, "notices", table(["warning", "says"], [[row[0], row[2]] for row in by_code((errors.NOTICE,))]))


def test_what_is_raised_under_test_is_in_the_table() -> None:
    listed = {row[0].strip("`"): row[1] for row in by_code((errors.ENDS,))}
    cases = [(code, error) for code, _, _, error in CASES if error]
    for code, error in [*cases, *((one.code, one.error) for one in FAILING if one.error in listed)]:
        assert str(code) in listed[error].split(", "), error


@each("name", sorted(errors.EXITS))
def test_every_exit_code_is_explained(name: str) -> None:
    """The first table has a row for each code of D52."""
    assert re.search(rf"^\| {errors.EXITS[name]} \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
def test_the_reader_of_the_source_finds_what_is_there() -> None:
    """Names that are assigned before, conditional exit codes and f-strings are read; nothing ends with 0."""
    found = errors.said()
    assert errors.Said("NO_ACTIVE_RUN", errors.ENDS, exits.EXIT_NO_RUN, "No active run") in found
    assert errors.Said("NO_PYTHON", errors.ENDS, exits.EXIT_SETUP, "no Python 3.10 or newer was found on PATH") in found
    assert {one.exit_code for one in found if one.kind == errors.ENDS} <= {*errors.EXITS.values(), ON_INTERRUPT} - {0}
    assert len({one.code for one in found}) > 100
