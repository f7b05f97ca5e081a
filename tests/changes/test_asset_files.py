"""Which files are assets, which of them are new, and how they are copied: bounded, whole, through no link (D40)."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from loomctl.changes import asset_files
from loomctl.changes.asset_files import Look
from loomctl.kit import files


def put(root: Path, *paths: str, size: int = 3) -> None:
    for path in paths:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * size)


CAPTURED = [
    "playwright-report/index.html", "playwright-report/data/a/b.png", "test-results/login/screenshot.png",
    "packages/web/test-results/video.webm", "cypress/videos/a.mp4", "cypress/screenshots/a/b.png", "junit.xml",
    "build/reports/junit-unit.xml", "deep/er/login.trace.zip", ".trace.zip", "test-results/ä\nö.png",
]  # fmt: skip
LEFT = [
    "cypress/other/a.mp4", "videos/a.mp4", "my-test-results/a.png", "test-results.txt", "my-junit.xml",
    "junit.xml.bak", "trace.zip", "JUNIT.XML",
    *(f"{folder}/junit.xml" for folder in ("node_modules", ".git", ".venv", "venv", ".tox", "__pycache__", "target")),
    *(f"{folder}/junit.xml" for folder in (".next", ".loom", ".fractary", ".cache/ms-playwright", ".yarn/cache")),
    "packages/web/node_modules/x/test-results/a.png", "test-results/node_modules/a.png",
]  # fmt: skip


def test_the_documents_directories_and_patterns_are_found(tmp_path: Path) -> None:
    put(tmp_path, *CAPTURED, *LEFT)
    found = asset_files.look(str(tmp_path))
    assert (sorted(found.found), found.why_not_all) == (sorted(CAPTURED), "")
    assert {size for size, _ in found.found.values()} == {3}


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Neither to a file, which is found as the link that it is, nor to a folder; a pipe is nothing."""
    put(tmp_path / "elsewhere", "junit.xml", "test-results/a.png")
    root = tmp_path / "root"
    root.mkdir()
    (root / "junit.xml").symlink_to(tmp_path / "elsewhere" / "junit.xml")
    (root / "test-results").symlink_to(tmp_path / "elsewhere" / "test-results")
    (root / "lib").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "junit-pipe.xml")
    assert list(asset_files.look(str(root)).found) == ["junit.xml"]
    found = asset_files.collect(str(root), ["junit.xml"], str(tmp_path / "run"), "s/retry_1")
    assert (found.assets, found.warnings) == ([], [])
    assert found.passed_over == [asset_files.PassedOver("junit.xml", None, "it is a link")]


def test_a_walk_ends_at_its_bounds_and_says_so(tmp_path: Path) -> None:
    put(tmp_path, "junit.xml", *(f"d{number}/{number}" for number in range(30)), "d0/deep/junit.xml")
    cut = asset_files.look(str(tmp_path), most=40)
    assert (list(cut.found), cut.why_not_all) == (["junit.xml"], "there are over 40 files and folders")
    assert asset_files.look(str(tmp_path), patience=-1).why_not_all == "the search took over -1 seconds"


BEFORE = Look({"same": (1, 10), "grown": (1, 10), "touched": (1, 10), "gone": (1, 10)})
AFTER = Look({"same": (1, 10), "grown": (9, 10), "touched": (1, 11), "new": (5, 50), "old": (4, 2)})


@pytest.mark.parametrize(
    ("why", "told"), [("", ["touched", "old", "new", "grown"]), ("cut", ["touched", "new", "grown"])]
)
def test_what_is_new_or_changed_is_told_smallest_first(why: str, told: list[str]) -> None:
    assert asset_files.fresh(BEFORE._replace(why_not_all=why), AFTER, at=20) == told


def test_assets_are_copied_whole_for_their_owner_alone(tmp_path: Path) -> None:
    root, run = tmp_path / "root", tmp_path / "run"
    put(root, "junit.xml", "test-results/a/b.png")
    run.mkdir()
    found = asset_files.collect(str(root), ["junit.xml", "test-results/a/b.png"], str(run), "build.make/retry_2")
    assert found.warnings == []
    digest = hashlib.sha256(b"xxx").hexdigest()
    assert [tuple(asset) for asset in found.assets] == [
        (path, 3, digest, f"assets/build.make/retry_2/{path}") for path in ("junit.xml", "test-results/a/b.png")
    ]
    for asset in found.assets:
        stored = run / asset.stored
        assert (stored.read_bytes(), stored.stat().st_mode & 0o777) == (b"xxx", 0o600)
    again = asset_files.collect(str(root), ["junit.xml"], str(run), "build.make/retry_2")
    assert again.assets == found.assets[:1]


def test_large_files_and_large_collections_are_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (asset_files.LARGEST, asset_files.TOGETHER) == (10 * 1024 * 1024, 50 * 1024 * 1024)
    root = tmp_path / "root"
    put(root, "exact", size=asset_files.LARGEST)
    put(root, "over", size=asset_files.LARGEST + 1)
    found = asset_files.collect(str(root), ["exact", "over"], str(tmp_path), "s/retry_1")
    assert [asset.path for asset in found.assets] == ["exact"]
    assert found.warnings == ["not captured, over 10 MiB: over"]
    assert found.passed_over == [("over", asset_files.LARGEST + 1, "it is over 10 MiB")]
    monkeypatch.setattr(asset_files, "TOGETHER", 25)
    put(root, "a", "b", "c", size=10)
    found = asset_files.collect(str(root), ["a", "b", "c", "exact"], str(tmp_path), "s/retry_2")
    assert [asset.path for asset in found.assets] == ["a", "b"]
    assert found.warnings == ["the limit of 1,000 files or 0 MiB is reached, so the 2 largest files were not captured"]
    most = "the limit of 1,000 files or 0 MiB is reached"
    assert found.passed_over == [("c", 10, most), ("exact", asset_files.LARGEST, most)]
    monkeypatch.setattr(asset_files, "MOST", 1)
    assert len(asset_files.collect(str(root), ["a", "b"], str(tmp_path), "s/retry_3").assets) == 1


def test_what_cannot_be_had_is_said_and_the_rest_is_copied(tmp_path: Path) -> None:
    root, run = tmp_path / "root", tmp_path / "run"
    put(root, "good", "real/x", "a/b")
    (root / "link").symlink_to("good")
    (root / "linked").symlink_to("real")
    (root / "folder").mkdir()
    put(run, "assets/s/retry_1/a")
    wanted = ["good", "gone", "link", "linked/x", "folder", "a/b"]
    found = asset_files.collect(str(root), wanted, str(run), "s/retry_1")
    assert [asset.path for asset in found.assets] == ["good"]
    (said,) = found.warnings
    assert said.startswith("not captured: gone (No such file or directory), linked/x (a link leads to it), folder (")
    assert [one.path for one in found.passed_over] == wanted[1:]


def test_a_file_that_changes_while_it_is_copied_is_whole_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    put(root, "busy")
    read, times = asset_files._read, []

    def reading(descriptor: int, limit: int) -> bytes:
        data = read(descriptor, limit)
        times.append(1)
        if len(times) <= most:
            (root / "busy").write_bytes(b"y" * (10 + len(times)))
        return data

    monkeypatch.setattr(asset_files, "_read", reading)
    most = 1
    (asset,) = asset_files.collect(str(root), ["busy"], str(tmp_path), "s/retry_1").assets
    assert (tmp_path / asset.stored).read_bytes() == b"y" * 11
    most = 99
    found = asset_files.collect(str(root), ["busy"], str(tmp_path), "s/retry_2")
    assert (found.assets, found.warnings) == ([], ["not captured: busy (it changed while it was copied)"])
    assert not list((tmp_path / "assets" / "s").glob("retry_2/*"))


def test_a_full_disk_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a", "b", "c")
    write = files.write_atomically

    def writing(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith("b"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write(path, data, durable=durable)

    monkeypatch.setattr(files, "write_atomically", writing)
    found = asset_files.collect(str(tmp_path), ["a", "b", "c"], str(tmp_path), "s/retry_1")
    assert [asset.path for asset in found.assets] == ["a"]
    assert found.warnings == ["Loom could not write assets: No space left on device; 2 are not captured"]


def test_a_link_in_the_runs_folder_steers_nothing(tmp_path: Path) -> None:
    root, run, away = tmp_path / "root", tmp_path / "run", tmp_path / "away"
    put(root, "a")
    run.mkdir()
    away.mkdir()
    (run / "assets").symlink_to(away)
    found = asset_files.collect(str(root), ["a"], str(run), "s/retry_1")
    assert found.assets == []
    assert "a symbolic link stands" in found.warnings[0]
    assert not list(away.iterdir())


@pytest.mark.parametrize(("more", "left"), [(0, 0), (1, 1)])
def test_a_collection_of_fifty_mebibytes_is_captured_and_a_byte_more_is_not(
    tmp_path: Path, more: int, left: int
) -> None:
    sizes = [asset_files.LARGEST - 1, *[asset_files.LARGEST] * 4, 1 + more]
    for number, size in enumerate(sizes):
        place = tmp_path / "root" / "test-results" / f"{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            file.truncate(size)
    root = str(tmp_path / "root")
    fresh = asset_files.fresh(Look({}), asset_files.look(root), at=0)
    found = asset_files.collect(root, fresh, str(tmp_path / "run"), "s/retry_1")
    assert (len(found.assets), len(found.warnings)) == (6 - left, left)
    assert sum(asset.bytes for asset in found.assets) == asset_files.TOGETHER - left * (asset_files.LARGEST - 1)
