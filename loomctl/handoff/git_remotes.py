"""Which remote is meant by a name, an address, or a folder of this machine, and by none of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.handoff.git_answers import Remote
from loomctl.handoff.git_refs import fits_a_ref
from loomctl.kit import digests, git
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.text.secrets import masked_line

if TYPE_CHECKING:
    from loomctl.handoff.git_refs import Repository


def find(repository: Repository, named: str | None, cwd: str) -> Remote:
    """Find a remote by its name, its URL, or its path from `cwd`; without one, `origin`, or the only one.

    Raises NO_REMOTE.

    Runs are read where they are pushed: a remote may be fetched from one repository and pushed to another.
    """
    found = _named(repository, named, cwd)
    return found._replace(pushed_at=_pushed_at(repository, found))


def _pushed_at(repository: Repository, remote: Remote) -> str:
    """Give the first address to which is pushed, where no push goes to the one from which is fetched; else nothing.

    A path of this machine is given whole: git reads it from the checkout's top, whoever is told it may be elsewhere.
    """
    done = repository.run("remote", "get-url", "--push", "--all", remote.name)
    if done.code != 0:  # it is an address
        return _rewritten(repository, remote.name)
    addresses = os.fsdecode(done.out).splitlines()
    if not addresses or repository.url_of(remote) in addresses:
        return ""
    first = addresses[0]
    is_path = ":" not in first.partition("/")[0] and not first.startswith(("/", "~"))
    return os.path.realpath(os.path.join(repository.top, first)) if is_path else first


def _rewritten(repository: Repository, address: str) -> str:
    """Give what `url.*.pushInsteadOf` makes of an address, the longest beginning first; nothing where it is not met."""
    done = repository.run("config", "-z", "--get-regexp", r"^url\..*\.pushinsteadof$")
    settings = (entry.partition("\n") for entry in os.fsdecode(done.out).split("\0") if entry)
    met = [(held, key[len("url.") : -len(".pushinsteadof")]) for key, _, held in settings if address.startswith(held)]
    beginning, instead = max(met, key=lambda one: len(one[0]), default=("", ""))
    return instead + address[len(beginning) :] if met else ""


def _named(repository: Repository, named: str | None, cwd: str) -> Remote:
    """Give the remote that is named."""
    listed = [one for one in repository.ask("remote").decode("utf-8", "replace").split("\n") if one]
    wanted = named if named is not None else listed[0] if len(listed) == 1 else "origin"
    if wanted in listed:
        return _as_named(wanted)
    if named and not named.startswith("-"):
        if ":" in named.partition("/")[0]:  # as git tells an address from a path
            return Remote(named, _hashed(named), masked_line(named, 200))
        if "/" in named or os.path.isdir(os.path.join(cwd, named)):
            return _folder(repository, named, os.path.join(cwd, named))
    known = ", ".join(masked_line(one, 60) for one in listed)
    raise LoomError(
        "NO_REMOTE",
        f"the repository has no remote {masked_line(wanted, 80)!r}",
        where=repository.top,
        why=f"its remotes are {known}; --remote names one"
        if known
        else "it has none; any git remote does, a bare repository on a disk that both machines see among them",
        hint=_as_named("origin" if "origin" in listed else listed[0]).listing if known else "git remote add origin URL",
        exit_code=EXIT_USAGE,
    )


def _as_named(name: str) -> Remote:
    return Remote(name, name if fits_a_ref(name) else _hashed(name), name)


def _folder(repository: Repository, named: str, path: str) -> Remote:
    """Give the repository in a folder of this machine as a remote. Raises NO_REMOTE for none, and for this one."""
    found, own = os.path.realpath(path), os.path.realpath(repository.common)
    folders = git.git_folders(found)
    is_own = found == own or (folders is not None and os.path.realpath(folders[1]) == own)
    if os.path.isdir(found) and not is_own:
        return Remote(found, _hashed(found), masked_line(named, 200))
    raise LoomError(
        "NO_REMOTE",
        f"{masked_line(named, 200)} is this repository itself"
        if is_own
        else f"there is neither a remote nor a folder {masked_line(named, 200)!r}",
        where=os.path.normpath(path),
        why="any git remote does, a bare repository on a disk that both machines see among them",
        hint="git remote -v",
        exit_code=EXIT_USAGE,
    )


def _hashed(name: str) -> str:
    return f"url-{digests.of_text(name)[:12]}"
