"""What git and a remote answered, and the errors that their refusals become: for whoever hands a run on."""

from __future__ import annotations

from typing import NamedTuple

from loomctl.model.errors import EXIT_SETUP, LoomError, quoted
from loomctl.model.secrets import masked_line


class Done(NamedTuple):
    """How a git command ended. code: None where it took too long; said: its standard error."""

    code: int | None
    out: bytes
    said: str


class Remote(NamedTuple):
    """A remote to carry runs to. name: as git is given it; key: a name for it in refs; shown: for people, masked."""

    name: str
    key: str
    shown: str

    @property
    def option(self) -> str:
        """What a command line needs to name it again, as a shell reads it; empty for `origin`."""
        return "" if self.name == "origin" else f" --remote {quoted(self.shown)}"

    @property
    def listing(self) -> str:
        """The command line that lists its runs."""
        return f"loomctl runs --remote{'' if self.name == 'origin' else f'={quoted(self.shown)}'}"


def no_git(why: str) -> LoomError:
    """Make the error of a machine on which there is no git."""
    return LoomError(
        "NO_GIT",
        "there is no git here, and runs are handed on through it",
        why=f"{why}; a run can also be moved as an archive",
        hint="loomctl runs archive --help",
        exit_code=EXIT_SETUP,
    )


def unreachable(remote: Remote, done: Done) -> LoomError:
    """Make the error of a remote that gave no answer: refused for who asks, or not reached at all."""
    said = done.said.lower()
    denied = ("permission denied", "authentication failed", "could not read username", "could not read password")
    more = ("access denied", "403", "401", "host key verification failed", "terminal prompts disabled")
    if any(word in said for word in (*denied, *more)):
        return LoomError(
            "REMOTE_DENIED",
            f"the remote {remote.shown} does not let you in",
            why=f"{last_line(done.said)}; who may push and fetch there may hand on runs, and nobody else",
            hint=f"git ls-remote {quoted(remote.shown)}",
            exit_code=EXIT_SETUP,
        )
    nowhere = "does not appear to be a git repository" in said or "repository not found" in said
    return LoomError(
        "REMOTE_UNREACHABLE",
        f"the remote {remote.shown} leads to no git repository"
        if nowhere
        else f"the remote {remote.shown} gave no answer",
        why=last_line(done.said) or "nothing was changed, here or there; try again",
        hint=f"git ls-remote {quoted(remote.shown)}",
        exit_code=EXIT_SETUP,
    )


def last_line(said: str) -> str:
    """Give the line of git's that says most, masked."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ERROR", "ssh:"))]
    picked = (telling or lines[-1:])[:2]
    return masked_line("; ".join(picked), 300)


def refusal(done: Done) -> str:
    """Give why a remote refused a ref, in its own words; empty where it did not say."""
    for line in done.out.decode("utf-8", "replace").splitlines():
        if line.startswith("!"):
            return masked_line(line.split("\t")[-1], 300)
    return ""
