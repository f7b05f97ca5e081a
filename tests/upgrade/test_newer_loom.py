"""Today's Loom that meets what a newer one wrote says so and changes nothing (D56)."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_SKEW
from tests.helpers.scenes import Ended
from tests.upgrade.recorded import RELEASES, Place, changed, release

ANSWER = "It is made, and the tests pass."
NEWER = 99
OF_A_STATE = (
    *("show RUN", "status RUN", "next RUN", "done RUN", "undo RUN", "resume RUN --take-over", "pause RUN"),
    *("cancel RUN", "rewind RUN --to 001", "fork RUN --at 001", "trust RUN --yes", "push RUN --yes", "prove RUN --log"),
    *("report RUN --json", "drive RUN", "debug state restore RUN --yes", "dump RUN dumped"),
    *(
        "prime-context --run-id RUN",
        "runs archive RUN",
        "runs archive RUN --force",
        "runs rm RUN --yes",
        "runs rm RUN --yes --force",
    ),
)
OF_A_PLAN = ("show RUN", "status RUN", "resume RUN --take-over", "fork RUN --at 001", "report RUN --json", "drive RUN")
OF_A_PUSHED_RUN = ("pull RUN", "pull RUN --take-theirs", "pull RUN --keep-mine", "push RUN --yes", "pull --all")
OF_A_QUEUE = ("fleet status", "fleet add more --workflow feature", "fleet rebuild", "fleet doctor", "fleet work")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(release(RELEASES[-1]), tmp_path / "place")


def says_so(ended: Ended, code: str) -> None:
    said = ended.stderr or json.dumps(ended.json["error"])
    assert (ended.code, code in said, "hint" in said) == (EXIT_SKEW, True, True), ended
    assert "restore" not in said, ended
    assert "rm " not in said, ended


def try_each(place: Place, table: tuple[str, ...], name: str, code: str) -> None:
    before = place.files()
    for words in table:
        says_so(place.loomctl(*words.replace("RUN", place.run_id(name)).split(), given=ANSWER), code)
    assert changed(place, before) == []


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize(("file", "table"), [("plan.json", OF_A_PLAN), ("state.json", OF_A_STATE)])
def test_a_newer_file_of_a_run(place: Place, file: str, table: tuple[str, ...]) -> None:
    path = place.run_dir("under-way") / file
    told = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**told, "schema_version": NEWER, "x-new": True}), encoding="utf-8")
    try_each(place, table, "under-way", "SCHEMA_TOO_NEW")


def test_a_newer_archive(place: Place) -> None:
    """It is not unpacked, and no older state is said to stand in for its own."""
    (path,) = (place.shop / ".loom/archive").glob("*.tar.gz")
    data = path.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(path, "w:gz") as new:
        for entry in old:
            file = old.extractfile(entry)
            content = file.read() if file is not None else b""
            if entry.name.endswith("/state.json"):
                content = json.dumps({**json.loads(content), "schema_version": NEWER}).encode()
                entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    try_each(place, ("runs restore RUN",), "archived", "SCHEMA_TOO_NEW")


@pytest.mark.slow
def test_a_newer_pushed_run(place: Place) -> None:
    """Whatever is asked for, the remote keeps it; the list of what is there says whose it is."""
    ref = f"refs/loom/runs/{place.run_id('rewound')}"

    def git(*words: str, given: str | None = None) -> str:
        user = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *user, *words], cwd=place.remote, input=given, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    head, _, body = git("log", "-1", "--format=%B", ref).partition("\n\n")
    message = f"{head}\n\n{json.dumps({**json.loads(body), 'schema_version': NEWER})}\n"
    git("update-ref", ref, git("commit-tree", f"{ref}^{{tree}}", "-p", ref, given=message))
    before = place.files()
    for words in OF_A_PUSHED_RUN:
        ended = place.loomctl(*words.replace("RUN", place.run_id("rewound")).split())
        assert ended.code == EXIT_SKEW, ended
        assert "NEWER_HANDOFF" in ended.stderr, ended
    assert "newer Loom" in place.loomctl("runs", "--remote").ends(0).stdout
    assert changed(place, before, "/.git/objects/", ".loom/local/seen-commits.json") == []


@pytest.mark.slow
def test_a_newer_queue(place: Place) -> None:
    place.loomctl("fleet", "add", "sweep the floor", "--workflow", "feature").ends(0)
    path = place.shop / ".loom/local/fleet.sqlite3"
    with sqlite3.connect(path) as base:
        base.execute("UPDATE version SET number = ?", (NEWER,))
        base.execute("DROP TABLE place")
    base.close()
    try_each(place, OF_A_QUEUE, "under-way", "NEWER_QUEUE")


def test_a_newer_record_of_what_was_set_up(place: Place) -> None:
    """What stood in an assistant's file before is put back by who knows how it was kept."""
    record = place.home / ".local/state/loom/setup/gemini.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"schema_version": NEWER, "kept": [{"path": "~/.gemini/settings.json"}]}), "utf-8")
    try_each(place, ("plugin install gemini --yes", "plugin remove gemini"), "under-way", "SCHEMA_TOO_NEW")
