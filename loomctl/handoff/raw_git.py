"""A git folder of Loom's own over a repository's objects, with an index of its own: file content as the bytes it is.

No conversion of line ends, no filter and no other setting of the repository's applies in it, so that what is stored is
what stands on the disk, and what is put back is what was stored. The user's index, HEAD and refs are not even seen.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from loomctl.handoff.repository import Repository
from loomctl.kit import files
from loomctl.runs.store import arrivals
from loomctl.runs.store.store import Store

# What a checkout's file system can hold, and how its objects are written; all else is git's default.
_TAKEN_OVER = ("filemode", "symlinks", "ignorecase", "precomposeunicode", "sharedrepository", "compression")
_SETTINGS = (
    *("bare = false", "splitIndex = false", "untrackedCache = false", "fsmonitor = false", "sparseCheckout = false"),
    *("safecrlf = false", "autocrlf = false"),
)
_ATTRIBUTES = "* -text !eol !crlf -ident !filter !working-tree-encoding\n"


def in_checkout(top: str, folder: str) -> Repository:
    """Give git for a checkout and its own git folder, whatever the settings there say that the checkout is."""
    return Repository(top, folder, more={"GIT_WORK_TREE": top})


@contextmanager
def over(store: Store, checkout: Repository, common: str, index: str = "") -> Iterator[Repository]:
    """Give git for a checkout as if nothing were converted there. Raises GIT_FAILED, OSError, UNSAFE_LINK.

    checkout: its own git; common: the folder with the objects; index: the path of an index to keep, else a new one.
    """
    with arrivals.room(store, "code-") as folder:
        for name in ("refs", "info"):
            os.mkdir(os.path.join(folder, name), 0o700)
        for name, text in (
            ("HEAD", "ref: refs/heads/none\n"),
            ("config", _config(checkout)),
            (os.path.join("info", "attributes"), _ATTRIBUTES),
        ):
            files.write_atomically(os.path.join(folder, name), text.encode(), durable=False)
        more = {
            "GIT_WORK_TREE": checkout.top,
            "GIT_OBJECT_DIRECTORY": os.path.join(common, "objects"),
            "GIT_INDEX_FILE": index or os.path.join(folder, "index"),
        }
        yield Repository(checkout.top, folder, more=more)


def settings(checkout: Repository, pattern: str) -> dict[str, str]:
    """Give the settings of a repository and of its user whose names match, the last of each."""
    done = checkout.run("config", "-z", "--get-regexp", pattern)
    entries = (entry.partition("\n") for entry in os.fsdecode(done.out).split("\0") if entry)
    return {key: value if newline else "true" for key, newline, value in entries}


def promisor(repo: Repository) -> str:
    """Name the remote at which a partial clone left objects; empty where all are here."""
    held = settings(repo, r"^(extensions\.partialclone|remote\..*\.promisor)$")
    remotes = [key[len("remote.") : -len(".promisor")] for key, value in held.items() if value == "true"]
    found = held.get("extensions.partialclone") or next(iter(remotes), "")
    return "" if found.startswith("-") else found


def _config(checkout: Repository) -> str:
    held = settings(checkout, rf"^core\.({'|'.join(_TAKEN_OVER)})$")
    is_wide = checkout.object_format == "sha256"
    lines = ["[core]", f"repositoryformatversion = {int(is_wide)}", *_SETTINGS]
    lines += [f"{key.removeprefix('core.')} = {value}" for key, value in held.items() if value.isalnum()]
    return "\n".join([*lines, *(["[extensions]", "objectFormat = sha256"] if is_wide else [])]) + "\n"
