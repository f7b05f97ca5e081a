"""`loomctl clean`: a list with sizes, then the deed; exit code 1 where something could not be read or removed (D56)."""

import os
import time

import pytest

from loomctl.runs.store.blobs import Blobs
from tests.cli.conftest import Cli
from tests.cli.terminal import at_a_terminal
from tests.helpers.scenes import SESSION, Scene, fingerprint
from tests.helpers.texts import holds

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

YOUNG = "of the last hour: 1 large value, 7 bytes"


@pytest.fixture
def over(scene: Scene) -> Scene:
    """A completed run with an old output, a leftover and a blob that it names; another blob goes, a third is young."""
    scene.workflow()
    scene.begin()
    store = Blobs(str(scene.store))
    refs = [store.put(content) for content in (b'"kept"', b'"goes"')]
    for ref in refs:
        os.utime(store.path(ref), (1, 1))
    store.put(b'"young"')
    scene.edit(status="completed", context={"a": refs[0]})
    scene.space().local.mark_ended(SESSION)
    old = time.time() - 40 * 86400
    (scene.run_dir / "outputs").mkdir()
    for name, size in (("outputs/toolu.txt", 1234), ("plan.json.1.0a1b2c3d.tmp", 10)):
        (scene.run_dir / name).write_bytes(b"x" * size)
        os.utime(scene.run_dir / name, (old, old))
    return scene


def test_what_a_dry_run_lists_is_removed(over: Scene, cli: Cli) -> None:
    cli("paths")  # compiles the settings
    before = fingerprint(over.store)
    ended = cli("clean", "--dry-run").ends()
    for line in (
        "leftover",
        "tool outputs of finished runs: 1,234 bytes (set retention.outputs_days to drop)",
        "Loom: would remove 1 item, 10 bytes\n",
        "1970-01-01  blob://sha256/",
        f"Loom: would remove 1 large value, 6 bytes (in use: 1 large value, 6 bytes; {YOUNG})\n",
    ):
        assert line in ended.stdout
    assert fingerprint(over.store) == before
    document = cli("clean", "--json").json
    machine, blobs = document["machine"], document["blobs"]
    assert (document["dry_run"], [item["kind"] for item in machine["items"]]) == (False, ["leftover"])
    assert (machine["bytes"], machine["failed"], machine["outputs_kept_bytes"]) == (10, [], 1234)
    assert (blobs["bytes"], blobs["unsure"], blobs["failed"]) == (6, [], [])
    assert (blobs["kept"], blobs["young"]) == ({"blobs": 1, "bytes": 6}, {"blobs": 1, "bytes": 7})
    (blob,) = blobs["blobs"]
    assert blob["path"].startswith(str(over.store))
    assert not os.path.exists(blob["path"])
    assert not (over.run_dir / "plan.json.1.0a1b2c3d.tmp").exists()
    assert (over.run_dir / "outputs" / "toolu.txt").exists()
    again = cli("clean").ends()
    assert "Loom: there is nothing to remove\n" in again.stdout
    assert f"Loom: no large value to remove (in use: 1 large value, 6 bytes; {YOUNG})\n" in again.stdout


def test_a_terminal_asks_first(over: Scene) -> None:
    leftover = over.run_dir / "plan.json.1.0a1b2c3d.tmp"
    holds(at_a_terminal(over, "clean", typed="n\n"), "Loom: would remove 1 item, 10 bytes", "NOT_CONFIRMED")
    assert leftover.exists()
    assert "Loom: removed 1 item, 10 bytes" in at_a_terminal(over, "clean", typed="y\n")
    assert not leftover.exists()
    leftover.write_bytes(b"x")
    os.utime(leftover, (1, 1))
    assert "Remove them?" not in at_a_terminal(over, "clean", "--yes")
    assert not leftover.exists()


def test_the_settings_say_how_long_outputs_stay(over: Scene, cli: Cli) -> None:
    (over.store / "config.yaml").write_text("retention:\n  outputs_days: 60\n")
    assert cli("clean", "--dry-run", "--json").json["machine"]["bytes"] == 10
    (over.store / "config.yaml").write_text("retention:\n  outputs_days: 30\n")
    machine = cli("clean", "--json").json["machine"]
    assert {item["kind"] for item in machine["items"]} == {"outputs", "leftover"}
    assert (machine["bytes"], machine["failed"], machine["outputs_kept_bytes"]) == (1244, [], 0)
    assert not (over.run_dir / "outputs" / "toolu.txt").exists()


def test_a_run_that_cannot_be_read_keeps_all_blobs(over: Scene, cli: Cli) -> None:
    """Exit code 1, the file and the reason are said; once the run is mended or removed, its blobs go."""
    (over.run_dir / "state.json").write_text("{")
    ended = cli("clean").ends(1)
    assert f"could not read {over.run_dir}/state.json: BAD_JSON: the file is not JSON" in ended.stdout
    stays = f"(there: 2 large values, 12 bytes; {YOUNG})"
    assert f"kept all large values; the files above may use them {stays}" in ended.stdout
    assert cli("runs", "rm", over.run_dir.name, "--yes").code == 0
    assert "Loom: removed 2 large values, 12 bytes" in cli("clean").stdout


def test_what_could_not_be_removed_is_exit_1(over: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("loomctl.runs.store.leftovers.discard", refuse)
        ended = cli("clean")
    assert ended.code == 1
    assert f"could not remove {over.run_dir}/plan.json.1.0a1b2c3d.tmp: Permission denied" in ended.stdout
    assert "Loom: removed nothing" in ended.stdout
    os.utime(over.run_dir / "plan.json.1.0a1b2c3d.tmp")
    Blobs(str(over.store)).put(b'"more"')
    for path in (over.store / "blobs").rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    monkeypatch.setattr(Blobs, "discard", refuse)
    holds(cli("clean").ends(1).stdout, f"could not remove {over.store}/blobs/sha256/", ": Permission denied")


@pytest.mark.usefixtures("begun")
def test_a_project_without_blobs_has_nothing_to_remove(cli: Cli) -> None:
    assert "Loom: no large value to remove\n" in cli("clean").stdout
