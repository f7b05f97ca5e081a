"""Large outputs in files of their own: byte for byte, under names that nobody else has, whole or not at all (D47)."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.kit import files
from loomctl.runs.tools.tool_log import DataOffloader
from tests.helpers.errors import refusal
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

TEXTS = [
    "", "plain\n", "crlf\r\nand lf\n", "\ufeffmark", "lone \ud800 surrogate \udfff", "nul \0 and \x1b[31mred",
    "10%\r20%\r", "x" * 200_000, "é😀\u2028",
]  # fmt: skip


@each("text", TEXTS)
def test_a_text_comes_back_byte_for_byte(tmp_path: Path, text: str) -> None:
    keeper = DataOffloader(tmp_path)
    ref = keeper.offload(text, "toolu_01", "txt")
    assert (ref, keeper.read(ref).decode("utf-8", "surrogatepass")) == ("outputs/toolu_01.txt", text)
    assert (tmp_path / ref).read_bytes() == text.encode("utf-8", "surrogatepass")


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=3000), name=st.text(max_size=300), ext=st.text(max_size=12))
def test_any_bytes_under_any_name(tmp_path: Path, data: bytes, name: str, ext: str) -> None:
    """Binary too; whatever the id and the ending say, the file is in `outputs` and nothing else is left there."""
    keeper = DataOffloader(tmp_path)
    ref = keeper.offload(data, name, ext)
    assert keeper.read(ref) == data
    folder, _, file = ref.partition("/")
    assert folder == "outputs"
    assert "/" not in file
    assert not file.startswith(".")
    assert [path.name for path in (tmp_path / "outputs").iterdir() if path.name.startswith(".")] == []


def test_two_texts_under_one_name_get_two_files_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    keeper = DataOffloader(tmp_path)
    refs = [keeper.offload(text, "step_001", "log") for text in ("one", "two", "one", "three", "two")]
    assert refs == [f"outputs/step_001{end}.log" for end in ("", "-2", "", "-3", "-2")]
    assert [keeper.read(ref) for ref in refs] == [b"one", b"two", b"one", b"three", b"two"]
    ref = keeper.offload("x", "a", "txt")
    (tmp_path / ref).unlink()
    for odd in (None, "pipe"):
        if odd:
            os.mkfifo(tmp_path / ref)
        caught = refusal(keeper.read, ref)
        assert (caught.code, caught.exit_code) == ("REF_GONE", 5)
        assert caught.where == str(tmp_path / ref)
        assert caught.hint.startswith("ls -l ")


def test_a_file_is_its_owners_alone_and_its_reference_holds_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0600 in a folder of 0700, whatever the umask (D56)."""
    before = os.umask(0)
    try:
        ref = DataOffloader(tmp_path).offload("x", "a", "txt")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / ref).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "outputs").stat().st_mode) == 0o700
    ref = DataOffloader(tmp_path / "run").offload("here", "a", "txt")
    monkeypatch.chdir("/")
    assert DataOffloader(tmp_path / "run").read(ref) == b"here"
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert DataOffloader(tmp_path / "elsewhere").read(ref) == b"here"


@each(
    "ref",
    ["", "outputs", "outputs/", "outputs/.hidden", "/etc/passwd", "../x", "outputs/../x", "outputs/a/b", "state.json"],
)
def test_a_reference_leads_nowhere_else(tmp_path: Path, ref: str) -> None:
    (tmp_path / "state.json").write_text("{}")
    assert refusal(DataOffloader(tmp_path).read, ref).code == "BAD_REF"


def test_a_link_is_not_followed_when_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    keeper = DataOffloader(tmp_path / "run")
    keeper.offload("y", "a", "txt")
    (tmp_path / "run" / "outputs" / "b.txt").symlink_to(secret)
    assert refusal(keeper.read, "outputs/b.txt").code == "UNSAFE_LINK"
    (tmp_path / "run" / "outputs").rename(tmp_path / "moved")
    (tmp_path / "run" / "outputs").symlink_to(tmp_path / "moved")
    assert refusal(keeper.read, "outputs/a.txt").code == "UNSAFE_LINK"


@each("kind", ["link", "folder", "pipe"])
def test_what_stands_in_a_files_place_is_left_alone(tmp_path: Path, kind: str) -> None:
    """A link, a folder or a pipe under the name: another name is taken, and nothing waits."""
    keeper = DataOffloader(tmp_path / "run")
    keeper.offload("x", "other", "txt")
    place = tmp_path / "run" / "outputs" / "a.txt"
    target = tmp_path / "target"
    target.write_text("untouched")
    if kind == "link":
        place.symlink_to(target)
    elif kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    ref = keeper.offload("untouched" if kind == "folder" else "mine", "a", "txt")
    assert (ref, target.read_text()) == ("outputs/a-2.txt", "untouched")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_a_full_disk_leaves_nothing_and_names_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    keeper = DataOffloader(tmp_path)
    keeper.offload("x", "before", "txt")

    def fails(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:10])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "write_all", fails)
    with pytest.raises(OSError, match="outputs") as caught:
        keeper.offload("y" * 100, "a", "txt")
    assert caught.value.errno == number
    assert sorted(path.name for path in (tmp_path / "outputs").iterdir()) == ["before.txt"]


OFFLOADS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from loomctl.runs.tools.tool_log import DataOffloader
keeper = DataOffloader(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[4])):
    print(keeper.offload(f"{sys.argv[3]} {number}\\n" * 50_000, f"step_{number % 5:03d}", "log"), flush=True)
"""


def offloading(folder: Path, mark: str, count: int) -> subprocess.Popen[str]:
    """Start a process that puts `count` texts away, of which several have one id, when it is told to."""
    command = [sys.executable, "-I", "-c", OFFLOADS, str(CHECKOUT), str(folder), mark, str(count)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_two_processes_never_share_a_name(tmp_path: Path) -> None:
    """The same ids at the same time: every reference holds its own text."""
    children = {mark: offloading(tmp_path, mark, 20) for mark in ("a", "b")}
    for child in children.values():
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    found: dict[str, str] = {}
    for mark, child in children.items():
        printed, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        for number, ref in enumerate(printed.split()):
            assert ref not in found, "two texts under one name"
            found[ref] = f"{mark} {number}\n" * 50_000
    assert len(found) == 40
    keeper = DataOffloader(tmp_path)
    assert all(keeper.read(ref).decode() == text for ref, text in found.items())


@each("after", [0, 1, 3])
def test_a_killed_process_leaves_whole_files(tmp_path: Path, after: int) -> None:
    """Killed between any two texts or within one: what has a name is whole, and what was named is there."""
    child = offloading(tmp_path, "k", 200)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    named = [child.stdout.readline().strip() for _ in range(after)]
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate(timeout=60)
    named += [line for line in rest.split("\n")[:-1] if line]
    keeper = DataOffloader(tmp_path)
    for number, ref in enumerate(named):
        assert keeper.read(ref).decode() == f"k {number}\n" * 50_000
    folder = tmp_path / "outputs"
    for path in folder.iterdir() if folder.exists() else ():
        lines = path.read_text().splitlines() if not path.name.startswith(".") else []
        assert path.name.startswith(".") or (len(lines) == 50_000 and len(set(lines)) == 1), path.name
    assert keeper.offload("again", "step_000", "log").startswith("outputs/step_000")
