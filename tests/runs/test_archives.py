"""An archive holds a run as it is, and nothing in one is believed before it was looked at (D10, D56)."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.kit.errors import LoomError
from loomctl.runs import archives
from tests.helpers.errors import refusal
from tests.helpers.tables import each

RUN = "shop-258-run-2026-01-01T00-00-00Z"


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Give mode and content of everything below a folder; None for a folder's content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o777, None if path.is_dir() else path.read_bytes())
        for path in sorted(folder.rglob("*"))
    }


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=30).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 100
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    contents=st.dictionaries(st.lists(names, min_size=1, max_size=4).map(tuple), st.binary(max_size=3000), max_size=6),
    folders=st.lists(st.lists(names, min_size=1, max_size=3).map(tuple), max_size=3),
)
def test_what_was_packed_is_unpacked(
    tmp_path_factory: pytest.TempPathFactory,
    contents: dict[tuple[str, ...], bytes],
    folders: list[tuple[str, ...]],
) -> None:
    base = tmp_path_factory.mktemp("archive")
    origin, into = base / "origin", base / "into"
    origin.mkdir()
    into.mkdir()
    for parts, data in [*contents.items(), *((parts, None) for parts in folders)]:
        path = origin.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(data)
        except OSError:  # one name is a folder and a file at once
            continue
    count = archives.pack(str(origin), RUN, str(base / "a.tar.gz"))
    unpacked = archives.unpack(str(base / "a.tar.gz"), str(into))
    assert (unpacked, tree(into / RUN), os.listdir(into)) == ((RUN, count), tree(origin), [RUN])


def test_large_files_come_back_and_no_name_of_this_machine_is_in_an_archive(tmp_path: Path) -> None:
    """Files longer than a piece, and of a block's exact size, are whole."""
    origin = tmp_path / "origin"
    origin.mkdir()
    for size in (0, 511, 512, 513, (1 << 20) - 1, 1 << 20, (3 << 20) + 7):
        (origin / str(size)).write_bytes(os.urandom(size))
    archives.pack(str(origin), RUN, str(tmp_path / "a.tar.gz"))
    archives.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "into"))
    assert tree(tmp_path / "into" / RUN) == tree(origin)
    with tarfile.open(tmp_path / "a.tar.gz") as packed:
        assert {(member.uid, member.gid, member.uname, member.gname) for member in packed} == {(0, 0, "", "")}
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o077 == 0


@each("kind", ["link", "dangling", "pipe"])
def test_what_could_not_come_back_is_not_packed(tmp_path: Path, kind: str) -> None:
    origin = tmp_path / "origin"
    (origin / "deep").mkdir(parents=True)
    odd = origin / "deep" / "odd"
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to(tmp_path if kind == "link" else "nowhere")
    with pytest.raises(LoomError, match="NOT_A_FILE") as error:
        archives.pack(str(origin), RUN, str(tmp_path / "a.tar.gz"))
    assert (error.value.where, os.listdir(tmp_path)) == (str(odd), ["origin"])


def test_a_file_in_the_way_is_shown_by_a_harmless_line_and_a_pipe_for_an_archive_holds_nobody(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / "origin" / "x;touch y").symlink_to("nowhere")
    with pytest.raises(LoomError, match="NOT_A_FILE") as error:
        archives.pack(str(tmp_path / "origin"), RUN, str(tmp_path / "a.tar.gz"))
    assert error.value.hint == f"ls -l '{tmp_path}/origin/x;touch y'"
    os.mkfifo(tmp_path / "a.tar.gz")
    with pytest.raises((LoomError, OSError), match="not a regular file"):
        archives.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "into"))


def member(
    name: str, *, kind: bytes = tarfile.REGTYPE, data: bytes = b"x", **more: Any
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(info, key, value)
    return info, data if kind == tarfile.REGTYPE else b""


def forged(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w:gz") as packed:
        for info, data in members:
            packed.addfile(info, io.BytesIO(data))
    return str(path)


FOLDER = member(RUN, kind=tarfile.DIRTYPE)
HOSTILE: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "absolute": [member("/tmp/loom-was-here")],
    "upward": [FOLDER, member(f"{RUN}/../../loom-was-here")],
    "upward at once": [member("../loom-was-here")],
    "a point": [member(f"./{RUN}/state.json")],
    "an empty part": [member(f"{RUN}//state.json")],
    "link": [FOLDER, member(f"{RUN}/x", kind=tarfile.SYMTYPE, linkname="/etc/passwd")],
    "link as folder": [member(RUN, kind=tarfile.SYMTYPE, linkname="/tmp"), member(f"{RUN}/loom-was-here")],
    "hard link": [FOLDER, member(f"{RUN}/x", kind=tarfile.LNKTYPE, linkname="/etc/passwd")],
    "device": [FOLDER, member(f"{RUN}/x", kind=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "block device": [FOLDER, member(f"{RUN}/x", kind=tarfile.BLKTYPE)],
    "pipe": [FOLDER, member(f"{RUN}/x", kind=tarfile.FIFOTYPE)],
    "unknown kind": [FOLDER, member(f"{RUN}/x", kind=b"Z")],
    "two runs": [member(f"{RUN}/state.json"), member("other/state.json")],
    "a file alone": [member("state.json")],
    "a name that is no id": [member("a b/state.json")],
    "a hidden name": [member(".git/config")],
    "a file twice": [member(f"{RUN}/x"), member(f"{RUN}/x", data=b"y")],
    "a file that is a folder": [member(f"{RUN}/x"), member(f"{RUN}/x/y")],
    "a folder that is a file": [member(f"{RUN}/x/y"), member(f"{RUN}/x")],
    "nothing": [],
}  # fmt: skip


@each("members", HOSTILE.values())
@pytest.mark.shows("What comes out of an archive is checked before it counts, and never replaces a run")
def test_nothing_of_a_hostile_archive_leads_elsewhere(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    path = forged(tmp_path / "a.tar.gz", *members)
    assert refusal(archives.unpack, path, str(into)).code in ("BAD_ARCHIVE", "BAD_ID")
    assert (sorted(os.listdir(tmp_path)), os.listdir(tmp_path / "deep")) == (["a.tar.gz", "deep"], ["into"])
    assert not os.path.lexists("/tmp/loom-was-here")
    assert not any(found.is_symlink() for found in into.rglob("*"))


def bomb(path: Path) -> None:
    """A file that says of itself that it is larger than any run."""
    info = tarfile.TarInfo(f"{RUN}/x")
    info.size = archives.LARGEST + 1
    path.write_bytes(gzip.compress(info.tobuf() + b"\0" * 4096))


def long_header(path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type = tarfile.GNUTYPE_LONGNAME
    info.size = 1 << 33
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096))


def endless_headers(path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type = tarfile.GNUTYPE_LONGNAME
    info.size = 5
    path.write_bytes(gzip.compress((info.tobuf(tarfile.GNU_FORMAT) + b"name".ljust(512, b"\0")) * 5000))


def negative(path: Path) -> None:
    info = tarfile.TarInfo(f"{RUN}/x")
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    raw[124:136] = b"\xff" * 12
    raw[148:156] = b" " * 8
    raw[148:156] = f"{sum(raw):06o}\0 ".encode()
    path.write_bytes(gzip.compress(bytes(raw) + b"\0" * 4096))


def sparse(path: Path) -> None:
    forged(path, member(f"{RUN}/x", kind=tarfile.REGTYPE, pax_headers={"GNU.sparse.major": "1"}))
    info = tarfile.TarInfo(f"{RUN}/x")
    info.type = tarfile.GNUTYPE_SPARSE
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096))


def torn(path: Path) -> None:
    forged(path, FOLDER, member(f"{RUN}/x", data=os.urandom(100_000)))
    path.write_bytes(path.read_bytes()[:50_000])


def flipped(path: Path) -> None:
    forged(path, FOLDER, member(f"{RUN}/x", data=os.urandom(100_000)))
    data = bytearray(path.read_bytes())
    data[60_000] ^= 4
    path.write_bytes(bytes(data))


@each(
    "write",
    [
        bomb, long_header, endless_headers, negative, sparse, torn, flipped, lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no archive"), lambda path: path.write_bytes(gzip.compress(b"no tar")),
        lambda path: path.write_bytes(gzip.compress(b"")),
    ],
)  # fmt: skip
def test_a_damaged_or_lying_archive_is_refused(tmp_path: Path, write: Callable[[Path], object]) -> None:
    into = tmp_path / "into"
    into.mkdir()
    write(tmp_path / "a.tar.gz")
    assert refusal(archives.unpack, str(tmp_path / "a.tar.gz"), str(into)).code == "BAD_ARCHIVE"


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.shows("What comes out of an archive is checked before it counts, and never replaces a run")
def test_no_forged_bytes_are_more_than_an_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """An archive with bytes changed anywhere is unpacked inside its folder or refused; nothing else is raised."""
    base = tmp_path_factory.mktemp("forged")
    forged(base / "good", FOLDER, member(f"{RUN}/state.json", data=b"{}"), member(f"{RUN}/a/b", data=b"y" * 600))
    raw = bytearray(gzip.decompress((base / "good").read_bytes()))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, min(len(raw), 4096) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    for start in range(0, 2560, 512):  # a header's sum is made to fit, or nothing behind it would be reached
        if data.draw(st.booleans()):
            raw[start + 148 : start + 156] = b" " * 8
            raw[start + 148 : start + 156] = f"{sum(raw[start : start + 512]):06o}\0 ".encode()
    (base / "a.tar.gz").write_bytes(gzip.compress(bytes(raw)))
    (base / "into").mkdir()
    try:
        archives.unpack(str(base / "a.tar.gz"), str(base / "into"))
    except LoomError:
        pass
    assert sorted(os.listdir(base)) == ["a.tar.gz", "good", "into"]
