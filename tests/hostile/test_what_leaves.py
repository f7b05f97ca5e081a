"""No secret of a known kind leaves the machine with a run: not in a name, not behind a zero byte, not in odd JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from loomctl.handoff import carried
from tests.helpers.machines import SECRET, Machine, server_of
from tests.helpers.repositories import git
from tests.helpers.tables import each


@pytest.fixture
def laptop(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "laptop", server_of(tmp_path))
    made.workflow()
    made.done(made.begin().run.run_id)
    return made


@pytest.fixture
def run_id(laptop: Machine) -> str:
    return laptop.run_dir.name


def server_of_run(machine: Machine) -> Path:
    return machine.root.parent / "server.git"


def everything(machine: Machine) -> bytes:
    """Give each object that the server holds: contents, messages, and trees with their names."""
    done = subprocess.run(
        "git rev-list --all --objects | cut -d' ' -f1 | git cat-file --batch",
        shell=True,
        cwd=server_of_run(machine),
        capture_output=True,
        check=True,
    )
    return done.stdout


def names(machine: Machine, run_id: str) -> list[str]:
    return git(server_of_run(machine), "ls-tree", "-r", "--name-only", f"refs/loom/runs/{run_id}").splitlines()


def put(machine: Machine, name: str, data: bytes) -> None:
    path = machine.run_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# ---- Names.


NAMES = (f"{SECRET}.md", f"notes/{SECRET}/a.md", f"assets/{SECRET}.txt", f"stages/001-frame.ask@1/{SECRET}.log")


@pytest.mark.slow
def test_a_name_that_holds_a_secret_stays_with_its_file(laptop: Machine, run_id: str) -> None:
    """No tree, message or list has it; the file is still here after a pull, as all is that is left out."""
    for name in NAMES:
        put(laptop, name, b"mine\n")
    told = laptop.loomctl("push", run_id, "--yes")
    assert told.code == 0, told
    assert told.stderr.count("its name holds a secret") == len(NAMES)
    assert SECRET not in told.stderr + told.stdout
    assert "run/state.json" in names(laptop, run_id)
    assert SECRET not in "".join(names(laptop, run_id))
    assert SECRET.encode() not in everything(laptop)
    other = Machine(laptop.root.parent / "other", server_of_run(laptop))
    assert [why for _, why in other.pull(run_id).left_out] == ["its name holds a secret"] * len(NAMES)
    other.done(run_id)
    other.push(run_id)
    laptop.pull(run_id)
    assert [(laptop.run_dir / name).read_text() for name in NAMES] == ["mine\n"] * len(NAMES)


def test_what_a_commit_says_is_masked_wherever_it_says_it(laptop: Machine, run_id: str) -> None:
    laptop.edit(work_id=SECRET, goal=f"use {SECRET}")
    laptop.push(run_id)
    message = git(server_of_run(laptop), "log", "-1", "--format=%B", f"refs/loom/runs/{run_id}")
    assert "[masked: github token]" in message
    assert SECRET.encode() not in everything(laptop)


# ---- Zero bytes, and letters of more than one byte.


LOG = "stages/001-frame.ask@1/command.log"


@each("name", [LOG, "notes.MD", "x.patch", "notes.txt", "more.json", "more.jsonl"])
@each("before", [b"a\0b\n", b"\0" * 9000, b"\xff\xfe\0\n", b"x" * 9000 + b"\0\n"])
def test_a_zero_byte_in_a_text_switches_nothing_off(name: str, before: bytes) -> None:
    clean, count = carried.form(f"run/{name}", before + f"token {SECRET}\n".encode() + b"\0end\n")
    assert count == 1
    assert clean == before + b"token [masked: github token]\n\0end\n"


@each("path", ["run/core.dump", "run/assets/shot.png", "run/outputs/x.log", "blobs/sha256/aa/x"])
@each("encoding", ["ascii", "utf-16-le", "utf-16-be", "utf-32"])
def test_what_is_no_text_and_holds_a_secret_stays(path: str, encoding: str) -> None:
    data = b"\x89PNG\0\0" + bytes(range(256)) * 50 + f"the token: {SECRET} ".encode(encoding) + b"\0\0\1"
    assert carried.form(path, data) == (None, 1)
    fine = b"\x89PNG\0\0" + bytes(range(256)) * 50
    assert carried.form(path, fine) == (fine, 0)


@each("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_text_in_wide_letters_stays_if_it_holds_a_secret(encoding: str) -> None:
    assert carried.form("run/" + LOG, f"é: {SECRET}\n".encode(encoding)) == (None, 1)
    fine = "é: nothing\n".encode(encoding)
    assert carried.form("run/" + LOG, fine) == (fine, 0)


@pytest.mark.slow
def test_a_log_with_a_zero_byte_reaches_the_server_masked(laptop: Machine, run_id: str) -> None:
    """As a command's log does that printed one; and a file that is no text is named as one that stays."""
    put(laptop, LOG, f"a\0b\ntoken {SECRET}\n".encode())
    put(laptop, "core.dump", b"\0\0" + SECRET.encode())
    told = laptop.loomctl("push", run_id, "--yes")
    assert f"Loom masks 1 secret in\n  run/{LOG}" in told.stderr
    assert "run/core.dump: it holds a secret that Loom cannot mask, because the file is not text" in told.stderr
    assert SECRET.encode() not in everything(laptop)
    assert b"a\0b\ntoken [masked: github token]\n" in everything(laptop)


# ---- JSON that says a thing twice.


ESCAPED = "\\u0067" + SECRET[1:]
TWICE = [
    f'{{"token":"{SECRET}","token":"x"}}',
    f'{{"token":"{ESCAPED}","token":"x"}}',
    f'{{"a":[{{"b":{{"k":["{ESCAPED}"]}},"b":1}}]}}',
    f'{{"{ESCAPED}":1,"{ESCAPED}":2}}',
]


@each("text", TWICE)
@each("name", ["state.json", "more.json", "tool_steps.jsonl", "more.jsonl"])
def test_a_value_that_a_later_one_of_its_key_hides_is_masked_too(name: str, text: str) -> None:
    clean, count = carried.form(f"run/{name}", text.encode() + b"\n")
    assert count
    assert clean is not None
    json.loads(clean)
    assert SECRET[4:].encode() not in clean


@each("text", TWICE)
def test_a_blob_that_hides_one_so_stays(text: str) -> None:
    assert carried.form("blobs/sha256/aa/x", text.encode()) == (None, 1)


def test_the_original_of_a_tool_step_whose_line_hides_one_stays() -> None:
    line = f'{{"id":"1","x":"{SECRET}","x":"","rest":{{"a":1}}}}\n'
    clean, _ = carried.form("run/tool_steps.jsonl", line.encode())
    assert clean is not None
    assert json.loads(clean) == {"id": "1", "x": "", "withheld": "it holds a secret"}


@each("name", ["more.json", "more.jsonl"])
def test_what_is_said_twice_and_is_no_secret_goes_as_it_is(name: str) -> None:
    data = b'{"a": 1, "a": "x"}\n'
    assert carried.form(f"run/{name}", data) == (data, 0)


def test_a_secret_that_was_hidden_comes_back_to_where_it_is_known() -> None:
    mine = TWICE[0].encode()
    clean, _ = carried.form("run/more.json", mine)
    assert clean is not None
    assert carried.unmasked("run/more.json", clean, mine) == mine
