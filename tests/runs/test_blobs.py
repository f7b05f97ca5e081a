"""Large values by their hash: once, whole, there before they are named, and never other bytes than asked for (D38)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.kit import files
from loomctl.kit.errors import EXIT_HELD, EXIT_INVALID, EXIT_NO_RUN, LoomError
from loomctl.kit.processes import Lock
from loomctl.runs.store import blobs, leftovers
from loomctl.runs.store.blobs import Blobs, ref_of
from tests.helpers.errors import refusal
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "shop" / ".loom"
    folder.mkdir(parents=True)
    return folder


def below(store: Path) -> list[str]:
    folder = store / "blobs"
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    )


def test_where_a_blob_stands(store: Path) -> None:
    """In a folder of its first two digits, under its whole hash, for its owner alone, whatever the umask."""
    before = os.umask(0)
    try:
        ref = Blobs(str(store)).put(b"hello")
    finally:
        os.umask(before)
    path = store / "blobs" / "sha256" / "2c" / HELLO
    assert ref == f"blob://sha256/{HELLO}" == ref_of(b"hello")
    assert (Blobs(str(store)).path(ref), path.read_bytes()) == (str(path), b"hello")
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert below(store) == [f"sha256/2c/{HELLO}"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(contents=st.lists(st.binary(max_size=3000), max_size=6))
def test_any_bytes_come_back(store: Path, contents: list[bytes]) -> None:
    """Empty ones and binary ones too; the same content has one file."""
    refs = [Blobs(str(store)).put(data) for data in contents]
    assert [Blobs(str(store)).get(ref) for ref in refs] == contents
    assert refs == [f"blob://sha256/{hashlib.sha256(data).hexdigest()}" for data in contents]
    assert set(below(store)) >= {f"sha256/{ref[14:16]}/{ref[14:]}" for ref in refs}
    assert not [name for name in below(store) if os.path.basename(name).startswith(".")]


READS = """
import sys
sys.path.insert(0, sys.argv[1])
from loomctl.runs.store.blobs import Blobs
sys.stdout.buffer.write(Blobs(sys.argv[2]).get(sys.argv[3]))
"""


def test_bytes_come_back_in_another_process_from_another_folder(store: Path) -> None:
    data = bytes(range(256)) * 1000
    ref = Blobs(str(store)).put(data)
    moved = store.parent.rename(store.parent.with_name("moved")) / ".loom"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", READS, str(CHECKOUT), str(moved), ref],
        cwd="/",
        capture_output=True,
        check=True,
    )
    assert done.stdout == data


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another letter": lambda data: b"h" + data[1:].replace(b"l", b"k"),
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\n",
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_blob_is_never_given(store: Path, name: str) -> None:
    blobs = Blobs(str(store))
    ref = blobs.put(b"hello")
    path = Path(blobs.path(ref))
    path.write_bytes(DAMAGES[name](b"hello"))
    damaged = path.read_bytes()
    caught = refusal(blobs.get, ref)
    assert (caught.code, caught.exit_code) == ("DAMAGED_BLOB", EXIT_INVALID)
    assert ref in caught.what
    assert (caught.where, path.read_bytes(), blobs.put(b"hello")) == (str(path), damaged, ref)
    assert blobs.get(ref) == b"hello"


def test_what_cannot_be_read_is_said(store: Path) -> None:
    blobs = Blobs(str(store))
    ref = blobs.put(b"hello")
    makers: tuple[Callable[[Path], None], ...] = (os.mkfifo, os.mkdir)
    for make in makers:
        path = Path(blobs.path(ref))
        path.unlink() if path.is_file() else leftovers.discard(str(path))
        make(path)
        assert refusal(blobs.get, ref).code == "UNREADABLE_BLOB"


@pytest.mark.parametrize(
    "place", ["{store}", "{store}/blobs", "{store}/blobs/sha256", "{store}/blobs/sha256/2c", "{blob}"]
)
def test_no_link_is_followed(store: Path, tmp_path: Path, place: str) -> None:
    """Neither written nor read through, nor anything removed: what came with a project must not steer Loom's files."""
    blobs = Blobs(str(store))
    ref = blobs.put(b"hello")
    where = Path(place.format(store=store, blob=blobs.path(ref)))
    where.rename(tmp_path / "elsewhere")
    where.symlink_to(tmp_path / "elsewhere")
    for deed in (lambda: blobs.get(ref), lambda: blobs.put(b"hello"), lambda: blobs.discard(ref, before=2e9)):
        assert refusal(deed).code == "UNSAFE_LINK"
    assert list((tmp_path / "elsewhere").rglob("*")) or (tmp_path / "elsewhere").read_bytes() == b"hello"


def test_a_reference_leads_nowhere_else_and_an_unknown_blob_is_named(store: Path) -> None:
    """NO_SUCH_BLOB says which, where it would stand, and where it may be had."""
    for ref in ["", "x", f"blob://sha256/{HELLO[:-1]}", f"blob://sha256/../../{HELLO}", HELLO]:
        for deed in (Blobs(str(store)).get, Blobs(str(store)).path):
            assert refusal(deed, ref).code == "BAD_REF"
    ref = f"blob://sha256/{HELLO}"
    for put in (False, True):
        if put:
            Blobs(str(store)).put(b"another")
        error = refusal(Blobs(str(store)).get, ref)
        assert (error.code, error.exit_code) == ("NO_SUCH_BLOB", EXIT_NO_RUN)
        assert ref in error.what
        assert error.where == str(store / "blobs" / "sha256" / "2c" / HELLO)
        assert "archive" in error.why
        assert error.hint.startswith("loomctl ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_nothing_and_names_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    blobs = Blobs(str(store))
    blobs.put(b"before")
    there = below(store)

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", fails) if call == "write" else patch.setattr(os, call, fails)
        with pytest.raises(OSError, match="blobs/sha256") as caught:
            blobs.put(b"hello")
    assert (caught.value.errno, below(store), blobs.get(blobs.put(b"hello"))) == (number, there, b"hello")


LIMITED = """
import resource, signal, sys
sys.path.insert(0, sys.argv[1])
from loomctl.runs.store.blobs import Blobs
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
blobs = Blobs(sys.argv[2])
for size in (149_000, 151_000):
    try:
        print(blobs.put(b"x" * size))
    except OSError as error:
        print("failed", error.errno, error.filename)
"""


def test_a_file_that_may_not_grow_is_not_named(store: Path) -> None:
    """The system itself refuses in the middle of a real write: half of a blob has no name."""
    command = [sys.executable, "-I", "-c", LIMITED, str(CHECKOUT), str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert Blobs(str(store)).get(first) == b"x" * 149_000
    assert second.startswith(f"failed {errno.EFBIG} {store}/blobs/sha256/")
    assert len(below(store)) == 1


def test_a_lock_that_is_held_is_said_and_not_waited_for_long(store: Path) -> None:
    blobs = Blobs(str(store))
    with Lock(str(store / "blobs" / ".lock")), pytest.raises(LoomError) as caught:
        blobs.put(b"hello", patience=0.05)
    assert (caught.value.code, caught.value.exit_code) == ("HELD", EXIT_HELD)
    assert f"the lock of the blobs is held by process {os.getpid()}" in caught.value.what
    assert below(store) == []


def test_only_what_is_old_is_removed_and_what_is_put_again_is_young_and_written_once(store: Path) -> None:
    """So that nobody removes what is about to be named."""
    blobs = Blobs(str(store))
    ref = blobs.put(b"hello")
    put = os.stat(blobs.path(ref)).st_mtime
    assert not blobs.discard(ref, before=put)
    assert blobs.discard(ref, before=put + 1)
    assert not blobs.discard(ref, before=put + 1)
    assert below(store) == []
    path = Path(blobs.path(blobs.put(b"x" * 200_000)))
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    blobs.put(b"x" * 200_000)
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > time.time() - 60
    assert len(below(store)) == 1


PUTS = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
from loomctl.runs.store.blobs import Blobs
blobs = Blobs(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    data = b"content %d\\n" % (number % int(sys.argv[4])) * 20_000
    print(blobs.put(data), flush=True)
"""


def putting(store: Path, count: int, different: int) -> subprocess.Popen[str]:
    """Start a process that puts `count` values, so many of them different, when it is told to."""
    command = [sys.executable, "-I", "-c", PUTS, str(CHECKOUT), str(store), str(count), str(different)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def start(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def whole(store: Path) -> int:
    """Hold every blob in the store against its name; gives how many there are."""
    found = [path for path in (store / "blobs" / "sha256").rglob("*") if path.is_file() and path.name[0] != "."]
    for path in found:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    return len(found)


@pytest.mark.slow
def test_eight_processes_put_the_same_contents_at_once(store: Path) -> None:
    children = [putting(store, 40, 10) for _ in range(8)]
    for child in children:
        start(child)
    removed = 0
    while any(child.poll() is None for child in children):
        for number in range(10):  # somebody removes what is old, all the time; nothing here is
            removed += Blobs(str(store)).discard(ref_of(b"content %d\n" % number * 20_000), before=time.time() - 60)
    printed = {child.communicate(timeout=60)[0] for child in children}
    assert [child.returncode for child in children] == [0] * 8
    assert (removed, len(printed)) == (0, 1)
    assert whole(store) == len(below(store)) == 10


@pytest.mark.parametrize("after", [0, 1, 2, 5, 9])
def test_a_killed_process_leaves_whole_blobs(store: Path, after: int) -> None:
    """Killed between any two values or within one: what has a name is whole, what was named is there, and the next
    process goes on.
    """
    child = putting(store, 400, 400)
    start(child)
    assert child.stdout is not None
    named = [child.stdout.readline().strip() for _ in range(after)]
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate(timeout=60)
    named += [line for line in rest.split("\n")[:-1] if line]
    for number, ref in enumerate(named):
        assert Blobs(str(store)).get(ref) == b"content %d\n" % number * 20_000
    assert whole(store) >= len(named)
    left = [name for name in below(store) if os.path.basename(name).startswith(".")]
    assert all(leftovers.is_leftover(os.path.basename(name)) for name in left)
    again = putting(store, 20, 20)
    start(again)
    assert len(again.communicate(timeout=60)[0].split()) == 20
    assert whole(store) >= 20


KILLS = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
at, seen = int(sys.argv[3]), 0
def hook(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.mkdir", "os.utime", "os.remove", "fcntl.flock"):
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)
from loomctl.runs.store.blobs import Blobs
blobs = Blobs(sys.argv[2])
sys.addaudithook(hook)
ref = blobs.put(b"y" * 150_000)
print(json.dumps([ref, seen]))
"""


def test_killed_at_each_step_of_a_put(store: Path) -> None:
    """Before each call that changes the disk in turn: no blob or a whole one, never a part under the name."""
    ref = ref_of(b"y" * 150_000)
    for at in range(1, 40):
        command = [sys.executable, "-I", "-c", KILLS, str(CHECKOUT), str(store), str(at)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            assert json.loads(done.stdout)[0] == ref
            break
        assert done.returncode == -signal.SIGKILL
        assert whole(store) in (0, 1)
    else:
        pytest.fail("it never came to its end")
    assert at > 4
    assert Blobs(str(store)).get(ref) == b"y" * 150_000


def test_parts_are_stored_as_the_whole_and_leave_nothing_if_they_end_in_an_error(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.EIO, "gone")

    store = Blobs(str(tmp_path))
    with pytest.raises(OSError, match="gone"):
        store.put_parts(parts())
    assert list(Path(store.folder).rglob("*")) == []
    ref = store.put_parts(iter([b'"a', b"", b'b"']))
    assert (ref, store.get(ref)) == (ref_of(b'"ab"'), b'"ab"')
    before = os.stat(store.path(ref)).st_ino
    assert (store.put_parts([b'"ab"']), os.stat(store.path(ref)).st_ino) == (ref, before)
    Path(store.path(ref)).write_bytes(b"damaged")
    assert (store.put_parts([b'"ab"']), store.get(ref)) == (ref, b'"ab"')
    assert [path.name for path in Path(store.folder).iterdir() if path.is_file()] == [".lock"]


HEX = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
REF = f"blob://sha256/{HEX}"


@each(
    "value",
    [
        "", "blob://sha256/", REF[:-1], REF + "0", REF + "\n", REF.upper(), f"blob://sha256/{HEX.upper()}",
        f"blob://sha512/{HEX}", f"blob://sha256//{HEX[1:]}", f"blob://sha256/../{HEX[3:]}", f" {REF}",
        f"blob://sha256/{'٣' * 64}", f"blob://sha256/{'g' * 64}", f"See: {REF}", HEX, None, 7, [REF],
        {"ref": REF},
    ],
)  # fmt: skip
def test_what_is_no_reference(value: object) -> None:
    """Another case, another length, another hash, a way up, anything around it: all refused."""
    assert not blobs.is_ref(value)
    if isinstance(value, str):
        caught = refusal(blobs.sha256_of, value)
        assert (caught.code, caught.exit_code) == ("BAD_REF", 2)


def test_a_reference_and_its_hash() -> None:
    assert blobs.is_ref(REF)
    assert (blobs.sha256_of(REF), blobs.ref_to(HEX)) == (HEX, REF)


@given(st.text(max_size=120))
def test_any_text_is_judged(text: str) -> None:
    """Only what the grammar says is one, whatever the text holds."""
    strict = len(text) == 78 and text[:14] == "blob://sha256/" and all(c in "0123456789abcdef" for c in text[14:])
    assert blobs.is_ref(text) == strict
    assert not blobs.is_sha256(text) or len(text) == 64


OTHER = blobs.ref_to("a" * 64)


@each(
    ("context", "held"),
    [
        ({"b": OTHER, "a": REF, "again": REF}, [OTHER, REF]),
        ({"n": {"x": REF}, "l": [REF], "t": f"see {REF}", REF: 1}, []),
        ([REF], []),
        (None, []),
    ],
)
def test_a_context_holds_a_reference_as_the_value_of_a_key(context: object, held: list[str]) -> None:
    assert blobs.refs_of(context) == sorted(held)


@each(
    ("status", "held"),
    [
        ({"context_updates": {"a": REF, "n": {"x": OTHER}}}, [REF]),
        ({"context_before": {"set": {"a": REF}, "gone": [OTHER]}}, [REF]),
        ({"output": REF, "command": {"output": OTHER, "script": REF}}, [OTHER, REF]),
        ({"output": {"x": REF}, "command": {"output": None}}, []),
        ({"failure_reason": REF, "note": REF, "warnings": [REF]}, []),
        ({"context_before": REF, "command": [REF], "context_updates": [REF]}, []),
        ([REF], []),
    ],
)
def test_a_status_holds_references_where_loom_writes_them(status: object, held: list[str]) -> None:
    assert blobs.refs_of_status(status) == sorted(held)
