"""A file of visits that somebody else wrote: refused by one word in bounded time and memory, and in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.runs.store import visit_files
from tests.helpers.scenes import Json, Scene
from tests.helpers.verbs import lengthen
from tests.hostile.limited import hook, in_good_order, loomctl


def claims(path: Path, **told: object) -> None:
    """Have the state refer to other bytes of the file."""
    state = path.parent.parent / "state.json"
    raw = json.loads(state.read_bytes())
    raw["earlier"] |= told
    state.write_text(json.dumps(raw))


def rubbish(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 400)


def of_another_run(path: Path) -> None:
    """Put lines there that are good by themselves."""
    data = path.read_bytes().replace(b'"rank":1,', b'"rank":7,')
    path.write_bytes(data * 2)


def one_line(path: Path) -> None:
    path.write_bytes(b"x" * (60 << 20))
    claims(path, bytes=60 << 20)


def large(path: Path) -> None:
    path.write_bytes((b'{"prev": "0", "visit": ' + b"1" * 100 + b"}\n") * 840_000)
    claims(path, bytes=path.stat().st_size)


def short_lines(path: Path) -> None:
    path.write_bytes(b"{}\n" * (20 << 20))
    claims(path, bytes=path.stat().st_size, count=10**6)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def elsewhere(path: Path) -> None:
    claims(path, file="../../../../../etc/passwd")


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("evil", [rubbish, of_another_run, one_line, large, short_lines, link, elsewhere])
def test_a_file_of_visits_that_somebody_else_wrote_is_refused_and_the_run_goes_on(
    scene: Scene, evil: Callable[[Path], None]
) -> None:
    scene.workflow()
    run_id = scene.begin().run.run_id
    loomctl(scene, "done", given=b"Asked.")
    lengthen(scene.space().store, run_id, "build/make", 100)
    path = scene.run_dir / visit_files.FIRST
    evil(path)
    told = loomctl(scene, "show", "--stages", run_id, "--json")
    assert told.code != 0
    word = in_good_order(told, as_json=True)
    assert word == ("UNSAFE_LINK" if evil is link else "BAD_STATE")
    assert evil is link or told.json["error"]["hint"] == f"loomctl debug state restore {run_id}"
    found = loomctl(scene, "prove", "--log", "--json")
    assert in_good_order(found) == "", found
    assert "files" in found.json, found
    assert (found.code, len(found.json["files"]["faults"]) > 0) == (1, True)
    before = path.lstat()
    for _ in range(2):
        assert loomctl(scene, "next").code == 0
        assert loomctl(scene, "done", given=b"Made.").code == 0
        assert hook(scene, "session-start", source="compact").code == 0
    assert path.lstat().st_size == before.st_size
    assert loomctl(scene, "debug", "state", "restore", run_id, "--yes").code == 0
    steps: list[Json] = loomctl(scene, "show", "--stages", run_id, "--json").json["stages"]
    assert steps
    assert loomctl(scene, "next").code == 0
