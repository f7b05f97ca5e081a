"""The player of pages can fail: what it would not notice, no test of a page proves."""

from pathlib import Path

import pytest

from tests.docs import consoles
from tests.docs.pages import pages
from tests.helpers.tables import each

TABLE: list[tuple[str, str, bool]] = [
    ("", "", True),
    ("", "something\n", False),
    ("one\ntwo", "one\ntwo\n\n", True),
    ("one", "one\ntwo", False),
    ("one\ntwo", "one", False),
    ("one\n…", "one\ntwo\nthree", True),
    ("…\nthree", "one\ntwo\nthree", True),
    ("…\ntwo", "one\ntwo\nthree", False),
    ("one\n…\nthree\n…", "one\ntwo\nthree", True),
    ("one\n…\nfour\n…\nthree", "one\ntwo\nthree", False),
    ("one … three", "one two three", True),
    ("one … three", "one two four", False),
    ("at 2026-01-15T09:30:00Z", "at 2031-12-01T00:00:01Z", True),
    ("at 2026-01-15T09:30:00Z", "at noon", False),
    ("terminal-b5990596d19", "terminal-0123456789a", True),
    ("spec loaded, in full: 1,453 bytes", "spec loaded, in full: 1,500 bytes", True),
    ("spec loaded, in full: 1,453 bytes", "spec loaded, in full: 2,453 bytes", False),
    ("2 sessions", "3 sessions", False),
]


@each(("shown", "printed", "fits"), TABLE)
def test_an_output_is_what_is_shown_or_it_is_not(shown: str, printed: str, fits: bool) -> None:
    assert (consoles.misfit(shown.split("\n") if shown else [], printed) == "") is fits


PAGE = """# A page

```yaml title="folder/file.yaml"
key: value
```

```console
$ echo made > made.txt
$ cat made.txt folder/file.yaml
made
key: value
$ cat <<'END'
several
lines
END
several
lines
$ sh -c 'exit 3'  # exit code 3
$ cd folder && test -t 0 && test -t 1
```

```console second terminal
$ pwd
~/folder
```

```console desktop
$ pwd && echo $LOOM_HOSTNAME
~
desktop
```
"""


def test_a_page_is_played(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert consoles.played(page, tmp_path / "machines") == (PAGE, [])


@pytest.mark.parametrize(
    ("before", "after"), [("made\nkey", "other\nkey"), ("# exit code 3", "# exit code 4"), ("~/folder", "?")]
)
def test_a_page_that_is_wrong_is_found_and_mended(tmp_path: Path, before: str, after: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(before, after), encoding="utf-8")
    text, faults = consoles.played(page, tmp_path / "machines")
    assert len(faults) == 1
    assert text == PAGE or "exit code" in after


@each("page", pages())
def test_no_page_sets_up_what_its_reader_does_not_see(page: Path) -> None:
    assert "<!-- before" not in page.read_text(encoding="utf-8")
