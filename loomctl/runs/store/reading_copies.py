"""Copies of blobs and artifacts that somebody reads who does not see the store (D42)."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError, quoted
from loomctl.runs.tools import output_files

FILE_REF = "file://"
MARK = "copies-only"
"""Stands in a `.loom` folder that holds copies alone, so that nobody takes it for a project's store (D3)."""
_SAID = b"Copies for a step that works in this folder, made by Loom. They can be removed at any time.\n"
_OF_A_STORE = ("runs", "config.yaml", "workflows")
_MOST_NAMES = 1000


def are_all(folder: str) -> bool:
    """Tell whether a `.loom` folder holds copies alone; the mark hides no store that a project has."""
    return os.path.lexists(os.path.join(folder, MARK)) and not os.path.isdir(os.path.join(folder, "runs"))


def room(workdir: str) -> str:
    """Give the `.loom` folder of a step's own directory, made if it is not there. Raises OSError.

    Raises BAD_WORKDIR where there is no such directory, and UNSAFE_LINK where a link stands for the folder.
    """
    if not os.path.isdir(workdir):
        raise LoomError(
            "BAD_WORKDIR",
            "the step's workdir is no directory",
            where=workdir,
            hint=f"mkdir -p {quoted(workdir)}",
        )
    folder = os.path.join(workdir, ".loom")
    files.refuse_links(workdir, folder)
    files.make_folder(folder, mode=0o755)
    if not any(os.path.lexists(os.path.join(folder, name)) for name in (*_OF_A_STORE, MARK)):
        files.write_atomically(os.path.join(folder, ".gitignore"), b"*\n", mode=0o644, durable=False)
        files.write_atomically(os.path.join(folder, MARK), _SAID, mode=0o644, durable=False)
    return folder


def keep(top: str, folder: str, name: str, data: bytes) -> str:
    """Write a file in a folder below `top`, unless it holds these bytes, and give its path.

    It is its owner's alone, and whole whenever it is there. Raises OSError and UNSAFE_LINK.
    """
    path = os.path.join(top, folder, name)
    files.refuse_links(os.path.dirname(top), path)
    if not output_files.holds(path, data):
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, data, durable=False, locked=True, beside=output_files.name_beside(path))
    return path


def keep_beside(top: str, folder: str, name: str, data: bytes) -> str:
    """Write a file as `keep` does, never over other content, which keeps the name: this one gets `{name}-2` then."""
    stem, ending = os.path.splitext(name)
    for number in range(1, _MOST_NAMES):
        free = name if number == 1 else f"{stem}-{number}{ending}"
        path = os.path.join(top, folder, free)
        if not os.path.lexists(path) or output_files.holds(path, data):
            return keep(top, folder, free, data)
    raise OSError(f"no name is left for {name} in {os.path.join(top, folder)}")


def path_in(ref: str) -> str:
    """Give the path that a `file://` reference names. Raises BAD_REF for another machine's, or for none."""
    host, slash, rest = ref[len(FILE_REF) :].partition("/")
    path = _unquoted(slash + rest)
    if host not in ("", "localhost") or not path or "\0" in path:
        raise LoomError(
            "BAD_REF",
            f"{ref!r:.120} names no file of this machine",
            why="one is file:// and an absolute path",
            hint="loomctl show",
        )
    return path


def _unquoted(text: str) -> str:
    """Give a text with its `%20` replaced; a sign that stands for nothing stays."""
    first, *parts = text.encode("utf-8", "backslashreplace").split(b"%")
    return os.fsdecode(first + b"".join(map(_byte, parts)))


def _byte(part: bytes) -> bytes:
    try:
        return bytes.fromhex(part[:2].decode("ascii")) + part[2:] if len(part) > 1 else b"%" + part
    except ValueError:
        return b"%" + part
