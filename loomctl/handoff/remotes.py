"""A remote that runs are carried to: how it is named in a command line, and the errors that its answers become."""

import os
import re
from typing import NamedTuple

from loomctl.kit.errors import EXIT_SETUP, LoomError, quoted
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import mask, masked_line

RUNS = "refs/loom/runs/"
_FULL = ("no space left on device", "disk quota exceeded", "out of diskspace")
_OTHER_NAMES = ("mismatched algorithms", "does not support this repository's hash algorithm")
# What git says of its own disk; what a server says of its own comes behind `remote:`.
_LOCAL = (
    *("no space left on device", "disk quota exceeded", "read-only file system", "input/output error"),
    *("cannot update ref", "cannot lock ref", "couldn't write", "unable to write", "unable to create", "write error"),
    *("insufficient permission for adding an object", "out of memory", "fatal: cannot mkdir", "error: cannot open"),
)
# What git says of objects that came and are none that it takes.
_UNFIT = (
    *("fsck error", "unpack", "index-pack", "did not send all necessary objects", "bad object", "bad tree object"),
    *("missing tree", "missing blob", "not our ref", "couldn't find remote ref", "repository corruption"),
)
_DENIED = (
    *("permission denied", "authentication failed", "could not read username", "could not read password"),
    *("access denied", "host key verification failed", "terminal prompts disabled"),
)
_DENIED_STATUS = r"(?:error:|\bhttp(?:/[0-9.]+)?)\s*40[13]\b"
_SERVERS, _MOST_LINES = "remote:", 3
_QUOTED = r"'[^'\n]*'|\"[^\"\n]*\""


class Done(NamedTuple):
    """How a git command ended. code: None where it took too long; said: its standard error."""

    code: int | None
    out: bytes
    said: str


class Remote(NamedTuple):
    """A remote to carry runs to. name: as git is given it; key: a name for it in refs; shown: for people, masked.

    pushed_at: the address to which is pushed, where that is another than the one from which git fetches; else empty.
    """

    name: str
    key: str
    shown: str
    pushed_at: str = ""

    @property
    def source(self) -> str:
        """Where its runs are read, as git is given it: where they are pushed, and nowhere else."""
        return self.pushed_at or self.name

    @property
    def read_at(self) -> str:
        """What git needs in a command line to read its runs, as a shell reads it; no password is in it."""
        return quoted(_told(self.pushed_at)) if self.pushed_at else self.written_at

    @property
    def written_at(self) -> str:
        """What git needs in a command line to push there, as a shell reads it; no password is in it."""
        return quoted(_told(self.name) if is_address(self.name) else self.shown)

    @property
    def option(self) -> str:
        """What a command line needs to name it again, as a shell reads it; empty for `origin`."""
        return "" if self.name == "origin" else f" --remote {quoted(self.shown)}"

    @property
    def elsewhere(self) -> str:
        """As `option`, for a command line in another clone: it has the address, not this clone's name for it."""
        address = self.pushed_at or (self.name if self.name.startswith("/") else "")
        return f" --remote {quoted(_told(address))}" if address else self.option

    @property
    def listing(self) -> str:
        """The command line that lists its runs."""
        return f"loomctl runs --remote{'' if self.name == 'origin' else f'={quoted(self.shown)}'}"

    def place(self, run_id: str) -> str:
        """Name a run there, for an error."""
        return f"{self.shown} {RUNS}{run_id}"


def is_address(name: str) -> bool:
    """Tell an address from a path and a name, as git does."""
    return ":" in name.partition("/")[0]


def _told(address: str) -> str:
    """Give an address as it may be told: without the password in it, for which git asks; other secrets masked."""
    return masked_line(re.sub(r"(?<=://)([^/:@]*):[^/]*@", r"\1@", address), 400)


def unreachable(remote: Remote, done: Done) -> LoomError:
    """Make the error of a remote that did not answer: refused for who asks, or not reached at all.

    Trouble on this machine, such as a full disk, is told as what it is (GIT_FAILED).
    """
    said, line = _said(done), last_line(done.said)
    own = "\n".join(told for told in said.splitlines() if not told.lstrip().startswith(_SERVERS))
    if any(word in own for word in _LOCAL):
        why = f"{line}; the problem is on this machine, not at the remote"
        hint = "df -h ." if is_full(done.said) else "git count-objects -vH"
        return LoomError("GIT_FAILED", "git failed to fetch or to push", where=remote.shown, why=why, hint=hint)
    if any(word in said for word in _OTHER_NAMES):
        return other_names(remote, line)
    hint = f"git ls-remote {remote.read_at}"
    if any(word in said for word in _DENIED) or re.search(_DENIED_STATUS, said):
        what = f"the remote {remote.shown} denied you access"
        why = f"{line}; to hand on runs you need the same access as for git push and git fetch{_hidden()}"
        return LoomError("REMOTE_DENIED", what, why=why, hint=hint, exit_code=EXIT_SETUP)
    nowhere = "does not appear to be a git repository" in said or "repository not found" in said
    silent, leads = f"the remote {remote.shown} did not answer", f"the remote {remote.shown} is not a git repository"
    what = leads if nowhere else silent
    why = (line or "nothing was changed, here or there; try again") + _hidden()
    return LoomError("REMOTE_UNREACHABLE", what, why=why, hint=hint, exit_code=EXIT_SETUP)


def _hidden() -> str:
    """Say if this shell hides the user's settings of git, as some assistants' do: they give access to remotes."""
    hides = os.environ.get("GIT_CONFIG_GLOBAL") == os.devnull
    return "; this shell hides your git settings (GIT_CONFIG_GLOBAL): use a terminal of your own" if hides else ""


def is_full(said: str) -> bool:
    """Tell whether git says that a disk or a quota is full."""
    return any(word in said.lower() for word in _FULL)


def other_names(remote: Remote, why: str) -> LoomError:
    """Make the error of a remote that names objects by another hash than this repository."""
    what = f"the remote {remote.shown} uses another hash algorithm than this repository"
    why, hint = f"{why}; git cannot bridge that, but you can move an archive", "loomctl runs archive --help"
    return LoomError("OTHER_OBJECT_FORMAT", what, why=why, hint=hint, exit_code=EXIT_SETUP)


def not_fetched(remote: Remote, done: Done, run_id: str) -> LoomError:
    """Make the error of a fetch that failed: as `unreachable`, and BAD_HANDOFF for objects that git does not take."""
    error = unreachable(remote, done)
    if error.code == "REMOTE_UNREACHABLE" and any(word in _said(done) for word in _UNFIT):
        return bad_handoff(remote, run_id, last_line(done.said))
    return error


def bad_handoff(remote: Remote, run_id: str, why: str) -> LoomError:
    """Make the error of what came and is no run that Loom pushed."""
    what = "the remote has no valid run under that name; nothing here was changed"
    return LoomError("BAD_HANDOFF", what, where=remote.place(run_id), why=one_line(why, 300), hint=remote.listing)


def _said(done: Done) -> str:
    """Give what git said, in lower case, without the names that it quotes: they may hold any word."""
    return re.sub(_QUOTED, "", done.said.lower())


def last_line(said: str) -> str:
    """Give the line of git's that says most, masked."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ERROR", "ssh:"))]
    return masked_line("; ".join((telling or lines[-1:])[:2]), 300)


def refusal(done: Done) -> str:
    """Give why a remote refused a ref, in its own words, and what may help; empty where git tells of no refusal.

    What a hook there said comes first: its first three lines, masked.
    """
    reason = _reason(done)
    if not reason:
        return ""
    if is_stale(done):
        helps = "git fetch and git push see different states there: its addresses differ, or it hides refs/loom/"
    elif "hook declined" in reason:
        helps = "a hook of the remote decides that; another remote may accept the run"
    else:
        helps = "ask its administrator to allow refs below refs/loom/, or use another remote"
    said = (line.strip() for line in done.said.splitlines())
    server = "\n".join(line.removeprefix(_SERVERS) for line in said if line.startswith(_SERVERS))
    lines = mask(server)[0].splitlines()  # a secret may go over several lines
    return "; ".join([*[one_line(line, 200) for line in lines if line.strip()][:_MOST_LINES], reason, helps])


def reason(done: Done, ref: str) -> str:
    """Say on one line why a remote did not take one of several refs, with what the server says of it."""
    told = [line for line in done.out.decode("utf-8", "replace").splitlines() if line.startswith("!")]
    of_it = [line.split("\t")[-1] for line in told if line.split("\t")[1:2] and line.split("\t")[1].endswith(f":{ref}")]
    return masked_line("; ".join(filter(None, [*of_it, last_line(done.said)])), 300)


def cannot_at_once(done: Done) -> bool:
    """Tell of a push of several refs whether the remote cannot take them at one moment."""
    return done.code not in (0, None) and "does not support --atomic" in done.said


def _reason(done: Done) -> str:
    """Give why a ref was not taken, as git tells it in brackets; empty where it tells of none."""
    told = [line for line in done.out.decode("utf-8", "replace").splitlines() if line.startswith("!")]
    return masked_line(told[0].split("\t")[-1], 300) if told else ""


def is_stale(done: Done) -> bool:
    """Tell of a push whether the remote had another state than the one that it was to replace."""
    return "stale info" in _reason(done)


def is_answer(done: Done) -> bool:
    """Tell of a push that failed whether the remote said so: it does not have then what was sent, nor will have it."""
    return done.code is not None and bool(_reason(done)) and "[remote failure]" not in _reason(done)


def besides(done: Done) -> str:
    """Say on one line what git made of a push that failed, though the remote has what was sent."""
    said = "; ".join(filter(None, [_reason(done), last_line(done.said)]))
    return masked_line(said or f"it ended with {done.code}", 300)
