"""Files are read within limits and replaced whole (D53)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from tests.helpers.errors import refused
from tests.helpers.tables import each

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**18), 10**18),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert files.parse_json(files.to_json(value), where="x") == value


@each("text", ["\ud800", "a\udfffb", "\udc80 name"])
def test_lone_surrogates_survive(text: str) -> None:
    data = files.to_json({"x": text})
    data.decode("utf-8")
    assert files.parse_json(data, where="x") == {"x": text}


@each(
    ("data", "where"),
    [
        (b"", "/p:1:1"),
        (b"{", "/p:1:2"),
        (b'{"a": 1,\n "b"', "/p:2:5"),
        (b"[1] x", "/p:1:5"),
        (b"NaN", "/p"),
        (b"[Infinity]", "/p"),
        (b'{"a": 1e999}', "/p"),
        (b"[-1e999]", "/p"),
        (b"\xff\xfe{}", "/p"),
        (b"[" * 200_000, "/p"),
        (b"9" * 5000, "/p"),
    ],
)
def test_bad_json_is_named_with_its_place(data: bytes, where: str) -> None:
    """Whatever is wrong is one kind of error, with line and column where there is one; nothing crashes."""
    with refused("BAD_JSON", where=where):
        files.parse_json(data, where="/p")


@each("value", [float("nan"), float("inf"), [-float("inf")]])
def test_what_no_reader_takes_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        files.to_json(value)


def test_both_sides_of_a_merge_are_no_json(tmp_path: Path) -> None:
    """The error of a file that git could not merge says so, and gives the line that takes one side."""
    path = tmp_path / "a file.json"
    path.write_text('{\n<<<<<<< HEAD\n"a": 1\n=======\n"a": 2\n>>>>>>> theirs\n}\n')
    with refused("GIT_CONFLICT", hint=f"git checkout --theirs -- '{path}'"):
        files.read_json(str(path))


def test_a_byte_order_mark_is_no_content() -> None:
    assert files.parse_json(b"\xef\xbb\xbf{}", where="x") == {}


def test_a_file_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    """At the limit a file is read whole, one byte over it is an error that names both sizes."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert files.read_bytes(str(path), limit=100) == b"x" * 100
    with pytest.raises(LoomError, match=r"100 bytes \(limit 99\)"):
        files.read_bytes(str(path), limit=99)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_a_file_that_grows_while_it_is_read_is_refused() -> None:
    with pytest.raises(LoomError, match="TOO_LARGE"):
        files.read_bytes("/proc/self/maps", limit=10)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.shows("what is not a regular file (a device, a pipe) is not read")
def test_only_regular_files_are_read(tmp_path: Path, make: Any) -> None:
    """A pipe in a file's place does not hold the reader, and neither it nor a folder is read."""
    path = tmp_path / "odd"
    make(path)
    with pytest.raises(OSError, match="not a regular file"):
        files.read_bytes(str(path))


def test_a_reader_meets_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = str(tmp_path / "state.json")
    versions = [files.to_json({"n": number, "fill": "x" * 50_000 * number}) for number in (0, 1)]
    files.write_atomically(path, versions[0], durable=False)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            files.write_atomically(path, versions[number % 2], durable=False)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert {files.read_bytes(path) for _ in range(300)} <= set(versions)
    finally:
        stop.set()
        writer.join()
    assert os.listdir(tmp_path) == ["state.json"]


@each(("umask", "mode", "expected"), [(0o022, 0o644, 0o644), (0o077, 0o644, 0o600), (0o000, 0o600, 0o600)])
def test_a_mode_is_never_wider_than_asked(tmp_path: Path, umask: int, mode: int, expected: int) -> None:
    """The user's umask narrows what Loom asks for, and nothing widens it, whatever the file was before."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    path.chmod(0o666)
    before = os.umask(umask)
    try:
        files.write_atomically(str(path), b"x", mode=mode, durable=False)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == expected


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    """Where the new content cannot be put in place, the old is as it was and nothing lies beside it."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "inside").write_bytes(b"")
    with pytest.raises(OSError, match="target"):
        files.write_atomically(str(tmp_path / "target"), b"x")
    assert os.listdir(tmp_path) == ["target"]


def test_a_full_disk_leaves_the_old_file_alone(tmp_path: Path) -> None:
    """A write that runs into the end of the disk raises; the file is the one before, with nothing beside it."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import resource, signal, sys\n"
        "from loomctl.kit import files\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    files.write_atomically(sys.argv[1], b'x' * 5000)\n"
        "except OSError:\n    sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code, str(path)], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 7
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "state.json").symlink_to(victim)
    files.write_atomically(str(tmp_path / "state.json"), b"{}")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "state.json").is_symlink()


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_in_place_of_a_log_is_refused(tmp_path: Path, exists: bool) -> None:
    """A file that is written in place is never opened through a link: not to change its target, not to make it."""
    victim = tmp_path / "victim"
    if exists:
        victim.write_text("mine")
    (tmp_path / "log").symlink_to(victim)
    with pytest.raises(LoomError, match="UNSAFE_LINK"):
        files.open_own(str(tmp_path / "log"), os.O_RDWR)
    assert victim.exists() == exists


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    files.remove(str(tmp_path / "none"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        files.remove(str(tmp_path / "folder"))


def test_files_hold_readable_json(tmp_path: Path) -> None:
    """People and diffs can read what Loom writes: indented, real letters, a newline at the end."""
    files.write_atomically(str(tmp_path / "x"), files.to_json({"goal": "größer 😀"}))
    text = (tmp_path / "x").read_text(encoding="utf-8")
    assert text == '{\n "goal": "größer 😀"\n}\n'
    assert json.loads(text) == {"goal": "größer 😀"}
