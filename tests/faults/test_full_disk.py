"""A full disk loses nothing: what could not be written is named, and all goes on once there is room (D53, D55)."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_INVALID
from tests.faults.bench import HUNGRY, Answer
from tests.faults.stand import RESPONSE, SENTENCE, Stand, chain, essences, litter, sound
from tests.faults.test_kills import DEEDS
from tests.helpers.scenes import MAIN, SESSION, Json, Scene

NO_SPACE = "No space left on device"


def shortages(calls: list[str]) -> Iterator[Json]:
    """Give every write at which the disk may turn out to be full, from then on; half of a content may still fit."""
    for number, call in enumerate(calls, 1):
        name = call.partition(" ")[0]
        if name in HUNGRY:
            yield {"at": number, "errno": errno.ENOSPC, "onward": True}
        if name in ("write", "pwrite"):
            yield {"at": number, "errno": errno.ENOSPC, "onward": True, "half": True}


def told(answer: Answer) -> None:
    """Hold that a command says what it could not write and why: as its error, or as a note where the deed is done."""
    if answer.code == 0:
        assert NO_SPACE in answer.stdout
        return
    assert (answer.code, answer.error["code"]) == (EXIT_INVALID, "SYSTEM")
    assert NO_SPACE in answer.error["message"]
    assert os.path.isabs(answer.error["where"])
    assert not answer.error["where"].endswith(".tmp")
    place = shlex.split(answer.error["hint"].rpartition(": ")[2])
    assert subprocess.run(place, capture_output=True, check=False).returncode == 0


COMMANDS = ("done", "done that closes", "undo", "resume", "runs archive")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_on_a_full_disk_names_what_it_could_not_write(stand: Stand, name: str) -> None:
    """At whichever write the disk is full, every file is the old or the new one, the error names one, and doing it
    again with room leads to where it leads without.
    """
    deed = DEEDS[name]
    deed.before(stand)
    stand.keep()
    undisturbed = deed.do(stand, {"count": True})
    deed.again(stand)
    goal = essences(stand)
    for fault in shortages(undisturbed.calls):
        stand.put_back()
        struck = undisturbed.calls[fault["at"] - 1]
        needless = struck.endswith(".lock") or struck.startswith("link ")  # its owner's name; a second name for a file
        answer = deed.do(stand, {"fault": fault})
        if not (needless and answer.code == 0):
            told(answer)
        sound(stand.scene)
        again = deed.again(stand)
        assert again.code == 0, (fault, undisturbed.calls[fault["at"] - 1], again)
        sound(stand.scene)
        assert essences(stand) == goal, (fault, undisturbed.calls[fault["at"] - 1])
        assert litter(stand.scene) == []
        deed.after(stand, again)


HOOKS = ("session-start", "session-start of another session", "stop", "stop that closes", "session-end", "pre-compact")


@pytest.mark.slow
@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_on_a_full_disk_primes_and_says_that_it_could_not_record(stand: Stand, name: str) -> None:
    """At whichever write the disk is full, the context is given, the user is told, and nothing is lost."""
    deed = DEEDS[name]
    deed.before(stand)
    stand.keep()
    undisturbed = deed.do(stand, {"count": True})
    deed.again(stand)
    goal = essences(stand)
    for fault in shortages(undisturbed.calls):
        stand.put_back()
        answer = deed.do(stand, {"fault": fault})
        assert (answer.code, answer.stderr) == (0, "")
        sound(stand.scene)
        if name.startswith("session-start"):
            assert SENTENCE in answer.context
            lost_a_name = undisturbed.calls[fault["at"] - 1].startswith(("pwrite", "ftruncate"))
            assert f"{NO_SPACE}: {stand.scene.store}" in answer.message or lost_a_name
        elif name.startswith("stop") and answer.stdout:
            assert NO_SPACE in answer.message or "succeeded" in answer.message
        assert deed.again(stand).code == 0
        sound(stand.scene)
        assert essences(stand) == goal, (fault, undisturbed.calls[fault["at"] - 1])
        assert litter(stand.scene) == []


@pytest.mark.parametrize("size", [0, 200, 2000])
def test_a_limit_on_the_size_of_files_is_met_in_the_same_way(stand: Stand, size: int) -> None:
    """Where the system itself refuses to let a file grow, the command says which, and a hook primes all the same."""
    answer = stand.cli("done", given=RESPONSE, file_size=size)
    assert (answer.code, answer.error["code"]) == (EXIT_INVALID, "SYSTEM")
    assert "File too large" in answer.error["message"]
    assert answer.error["where"].startswith(str(stand.scene.run_dir))
    assert "ulimit" in answer.error["hint"]
    sound(stand.scene)
    assert stand.scene.state["current_step"] == "frame/ask"
    assert litter(stand.scene) == []
    primed = stand.hook("session-start", told={"source": "compact"}, file_size=size)
    assert SENTENCE in primed.context
    assert all(words in primed.message for words in ("could not record", "File too large"))
    sound(stand.scene)
    assert stand.cli("done", given=RESPONSE).code == 0
    assert stand.scene.state["current_step"] == "frame/note"
    chain(stand.scene.run_dir)


SMALL = "mount -t tmpfs -o size=512k,mode=700 none {place}"
READ_ONLY = "mount --bind {place} {place} && mount -o remount,ro,bind {place}"
SCRIPT = """
set -e
{mount}
cp -R {kept}/. {place}/
cd {place}
{fill}
set +e
loomctl done --json < {response} > {told}/done.json; echo $? > {told}/done.code
printf '%s' {event} | {python} -I -S {main} hook session-start > {told}/hook.json; echo $? > {told}/hook.code
{free}
loomctl next --json > {told}/next.json; echo $? > {told}/next.code
loomctl check .loom/runs/*/state.json .loom/runs/*/events.jsonl > {told}/check.txt; echo $? > {told}/check.code
"""


def may_mount() -> bool:
    if sys.platform != "linux":
        return False
    asked = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def on_a_disk_of_its_own(begun: Scene, folder: Path) -> Callable[[str], Json]:
    """Put a project on a file system that is full, do a command and a hook there, make room, and go on.

    Gives a reader of what was told. Where nothing may be mounted, the size of files is limited instead.
    """
    kept, tools, told = folder / "kept", folder / "tools", folder / "told"
    begun.root.rename(kept)
    begun.root.mkdir()
    for place in (tools, told):
        place.mkdir()
    (tools / "loomctl").write_text(f'#!/bin/sh\nexec {sys.executable} -I {MAIN} "$@"\n')
    (tools / "loomctl").chmod(0o755)
    (folder / "response").write_text(RESPONSE)
    event = json.dumps({"session_id": SESSION, "cwd": str(begun.root), "source": "compact"})
    mounted = may_mount()
    words = {
        "mount": SMALL.format(place=shlex.quote(str(begun.root))) if mounted else ":",
        "fill": "cat /dev/zero > filler 2>/dev/null || :" if mounted else "limit=$(ulimit -S -f); ulimit -S -f 1",
        "free": "rm filler" if mounted else "ulimit -S -f $limit",
        "event": shlex.quote(event),
        "python": shlex.quote(sys.executable),
        **{name: shlex.quote(str(path)) for name, path in (("kept", kept), ("told", told), ("main", MAIN))},
        "response": shlex.quote(str(folder / "response")),
        "place": shlex.quote(str(begun.root)),
    }
    script = SCRIPT.format(**words)
    command = [*(["unshare", "-rm"] if mounted else []), "sh", "-c", script]
    environ = {**begun.environ(), "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def read(name: str) -> Json:
        code = int((told / f"{name}.code").read_text())
        text = (told / f"{name}.json").read_text() if name != "check" else json.dumps((told / "check.txt").read_text())
        return {"code": code, "told": json.loads(text)}

    return read


@pytest.mark.slow
def test_a_disk_that_is_really_full(begun: Scene, tmp_path: Path) -> None:
    """On a file system without a byte left the step is not ended, the session is primed, and both say why; with room
    again the run goes on where it was.
    """
    read = on_a_disk_of_its_own(begun, tmp_path)
    done, hook, after, check = (read(name) for name in ("done", "hook", "next", "check"))
    assert done["code"] == EXIT_INVALID
    assert any(why in done["told"]["error"]["message"] for why in (NO_SPACE, "File too large"))
    assert done["told"]["error"]["where"].startswith(str(begun.root))
    assert hook["code"] == 0
    assert SENTENCE in hook["told"]["hookSpecificOutput"]["additionalContext"]
    assert "could not record" in hook["told"]["systemMessage"]
    assert (after["code"], after["told"]["next"]["id"]) == (0, "frame/ask")
    assert check["code"] == 0, check
