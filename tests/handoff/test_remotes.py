"""What git said is told as what it is: this machine's trouble, a refusal, objects that are none, or silence."""

from __future__ import annotations

import os

import pytest

from loomctl.handoff.remotes import Done, Remote, is_answer, not_fetched, refusal, unreachable
from tests.helpers.tables import each

REMOTE = Remote("origin", "origin", "origin")

SAID = [
    ("error: file write error: No space left on device\nfatal: fetch-pack: invalid index-pack output", "GIT_FAILED"),
    ("fatal: unable to write loose object file: No space left on device", "GIT_FAILED"),
    ("error: cannot update ref 'refs/loom/incoming/origin/x': unable to append", "GIT_FAILED"),
    ("error: couldn't write .git/objects/pack/tmp_pack: Disk quota exceeded", "GIT_FAILED"),
    ("fatal: Unable to create temporary file '/x/.git/objects/pack/tmp_pack_a': Permission denied", "GIT_FAILED"),
    ("error: insufficient permission for adding an object to repository database .git/objects", "GIT_FAILED"),
    ("fatal: Unable to create '/x/.git/shallow.lock': Read-only file system", "GIT_FAILED"),
    ("error: object 1234: badTree: cannot be parsed as a tree\nfatal: fsck error in packed object", "BAD_HANDOFF"),
    ("fatal: bad tree object 1234\nerror: o did not send all necessary objects", "BAD_HANDOFF"),
    ("error: unpack failed: unpack-objects abnormal exit", "BAD_HANDOFF"),
    ("fatal: the remote end hung up unexpectedly", "REMOTE_UNREACHABLE"),
    ("fatal: '/srv/401/403.git' does not appear to be a git repository", "REMOTE_UNREACHABLE"),
    ("ssh: connect to host h port 403: Connection refused", "REMOTE_UNREACHABLE"),
    ("fatal: '/srv/permission denied/unpack.git' does not appear to be a git repository", "REMOTE_UNREACHABLE"),
    ("fatal: unable to access 'https://h/403/': Could not resolve host: h", "REMOTE_UNREACHABLE"),
    ("remote: fatal: write error: No space left on device\nfatal: the remote end hung up", "REMOTE_UNREACHABLE"),
    ("fatal: unable to access 'https://h/x/': The requested URL returned error: 403", "REMOTE_DENIED"),
    ("error: RPC failed; HTTP 401 curl 22 The requested URL returned error: 401", "REMOTE_DENIED"),
    ("git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.", "REMOTE_DENIED"),
    ("fatal: could not read Username for 'https://h': terminal prompts disabled", "REMOTE_DENIED"),
    ("fatal: mismatched algorithms: client sha1; server sha256", "OTHER_OBJECT_FORMAT"),
    ("fatal: the receiving end does not support this repository's hash algorithm", "OTHER_OBJECT_FORMAT"),
    ("remote: Invalid username or password.\nfatal: Authentication failed for 'https://h/x/'", "REMOTE_DENIED"),
]


@each(("said", "code"), SAID)
def test_what_git_said_at_a_fetch_is_told_as_what_it_is(said: str, code: str) -> None:
    """A name that it quotes says nothing; what a server says of its own disk is not this machine's."""
    error = not_fetched(REMOTE, Done(128, b"", said), "origin refs/loom/runs/x")
    assert error.code == code
    assert error.why
    assert error.hint


@each(("said", "code"), SAID)
def test_objects_that_are_none_are_the_fetchs_affair(said: str, code: str) -> None:
    told = unreachable(REMOTE, Done(128, b"", said)).code
    assert told == ("REMOTE_UNREACHABLE" if code == "BAD_HANDOFF" else code)


def test_a_remote_that_takes_too_long_gave_no_answer() -> None:
    assert unreachable(REMOTE, Done(None, b"", "it took over 401 s")).code == "REMOTE_UNREACHABLE"


@each(
    ("reason", "tells", "answered"),
    [
        ("[remote rejected] (pre-receive hook declined)", "a hook of the remote decides that", True),
        ("[remote rejected] (deny updating a hidden ref)", "ask its administrator to allow refs", True),
        ("[rejected] (stale info)", "git fetch and git push see different states there", True),
        ("[remote failure] (remote failed to report status)", "ask its administrator to allow refs", False),
    ],
)
def test_why_a_push_was_refused_is_told_by_what_git_says(reason: str, tells: str, answered: bool) -> None:
    """Another state there is nobody's rule; where the remote reported nothing, nobody knows what it has."""
    done = Done(1, f"To x\n!\ta:refs/loom/runs/r\t{reason}\nDone\n".encode(), "error: failed to push")
    assert refusal(done).startswith(f"{reason}; {tells}")
    assert ("administrator" in refusal(done)) == ("administrator" in tells)
    assert is_answer(done) is answered


@pytest.mark.parametrize("done", [Done(None, b"", "it took over 900 s"), Done(128, b"", "fatal: hung up")])
def test_a_push_that_nobody_answered_may_have_arrived(done: Done) -> None:
    assert (refusal(done), is_answer(done)) == ("", False)


@each(("said", "code"), [one for one in SAID if one[1] == "GIT_FAILED"])
def test_a_full_disk_sends_to_what_tells_of_disks(said: str, code: str) -> None:
    is_full = "space" in said or "quota" in said
    hint = not_fetched(REMOTE, Done(128, b"", said), "origin refs/loom/runs/x").hint
    assert (code, hint) == ("GIT_FAILED", "df -h ." if is_full else "git count-objects -vH")


ADDRESSES = [
    ("https://me:hunter2@h.example/x.git", "https://me@h.example/x.git"),
    ("https://me:hun@ter2@h.example/x.git", "https://me@h.example/x.git"),
    ("ssh://h.example:22/a@b", "ssh://h.example:22/a@b"),
    ("git@h.example:x/y.git", "git@h.example:x/y.git"),
    ("/a folder/x.git", "'/a folder/x.git'"),
]


@each(("address", "told"), ADDRESSES)
def test_an_address_is_told_without_its_password(address: str, told: str) -> None:
    pushed = REMOTE._replace(pushed_at=address)
    assert (pushed.read_at, pushed.written_at, pushed.elsewhere) == (told, "origin", f" --remote {told}")
    assert unreachable(pushed, Done(None, b"", "")).hint == f"git ls-remote {told}"
    if ":" in address:
        named = Remote(address, "url-1", "https://…")
        assert (named.read_at, named.written_at) == (told, told)


@each("said", ["error: cannot run : No such file or directory\nfatal: unable to fork", "fatal: Authentication failed"])
def test_a_shell_without_the_users_settings_is_told(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With them goes what gives access to a remote."""
    told = "; this shell hides your git settings (GIT_CONFIG_GLOBAL): use a terminal of your own"
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    assert told not in str(unreachable(REMOTE, Done(128, b"", said)).why)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert str(unreachable(REMOTE, Done(128, b"", said)).why).endswith(told)
