"""`loomctl gc`: a list with sizes, then the deed; exit code 1 where something could not be read or removed."""

from __future__ import annotations

import os

import pytest

from loomctl.runs.store.blobs import Blobs
from tests.cli.conftest import Cli
from tests.helpers.scenes import SESSION, Scene, fingerprint


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run that names one of two old blobs; a third is young."""
    scene.workflow()
    scene.begin()
    store = Blobs(str(scene.store))
    refs = [store.put(content) for content in (b'"kept"', b'"goes"')]
    for ref in refs:
        os.utime(store.path(ref), (1, 1))
    store.put(b'"young"')
    scene.edit(context={"a": refs[0]})
    return scene


def test_a_dry_run_lists_and_leaves(begun: Scene, cli: Cli) -> None:
    """What would go, with its size and when it was stored; nothing is written."""
    cli("paths")  # compiles the settings
    before = fingerprint(begun.store)
    ended = cli("gc", "--dry-run")
    assert ended.code == 0
    assert "1970-01-01T00:00:01Z  blob://sha256/" in ended.stdout
    told = "Loom: 1 blob, 6 bytes, would go; nothing was removed"
    stays = "(in use: 1 blob, 6 bytes; of the last hour: 1 blob, 7 bytes)"
    assert ended.stdout.splitlines()[-1] == f"{told} {stays}"
    assert fingerprint(begun.store) == before


def test_collecting_removes_what_was_listed(begun: Scene, cli: Cli) -> None:
    """And says so; a second time nothing is left to do."""
    document = cli("gc", "--json").json
    assert (document["dry_run"], document["bytes"], len(document["blobs"])) == (False, 6, 1)
    assert (document["kept"], document["young"]) == ({"blobs": 1, "bytes": 6}, {"blobs": 1, "bytes": 7})
    assert (document["unsure"], document["failed"]) == ([], [])
    assert document["blobs"][0]["path"].startswith(str(begun.store))
    assert not os.path.exists(document["blobs"][0]["path"])
    ended = cli("gc")
    assert ended.code == 0
    assert "Loom: no blob is to be removed (in use: 1 blob, 6 bytes; of the last hour: 1 blob, 7 bytes)" in ended.stdout


def test_a_run_that_cannot_be_read_keeps_all(begun: Scene, cli: Cli) -> None:
    """Exit code 1, the file and the reason are said; once the run is mended or removed, gc does its work."""
    (begun.run_dir / "state.json").write_text("{")
    ended = cli("gc")
    assert ended.code == 1
    assert f"cannot be read: {begun.run_dir}/state.json: BAD_JSON: the file is not JSON" in ended.stdout
    stays = "(there: 2 blobs, 12 bytes; of the last hour: 1 blob, 7 bytes)"
    assert f"all blobs stay, for what cannot be read may refer to them {stays}" in ended.stdout
    begun.space().local.mark_ended(SESSION)
    assert cli("runs", "rm", begun.run_dir.name, "--yes").code == 0
    assert "Loom: removed 2 blobs, 12 bytes" in cli("gc").stdout


def test_what_could_not_be_removed_is_exit_1(begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding, named with its reason."""

    def refuse(*_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Blobs, "discard", refuse)
    ended = cli("gc")
    assert ended.code == 1
    assert f"not removed: {begun.store}/blobs/sha256/" in ended.stdout
    assert ": Permission denied" in ended.stdout


def test_a_project_without_blobs_has_nothing_to_collect(scene: Scene, cli: Cli) -> None:
    """Neither has one without runs."""
    scene.workflow()
    scene.begin()
    assert "Loom: no blob is to be removed\n" in cli("gc").stdout
