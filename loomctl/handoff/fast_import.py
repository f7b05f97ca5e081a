"""The form of the stream that `git fast-import` reads: one commit, file by file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.kit import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

DONE = b"done\n"


def head(ref: str, identity: str, text: str, parent: str | None) -> Iterator[bytes]:
    """Begin a commit on a ref, of now. identity: `Name <mail>`; text: its message; parent: a commit, None for none."""
    message = text.encode("utf-8", "backslashreplace")
    yield b"commit %b\ncommitter %b %d +0000\ndata %d\n" % (
        ref.encode(),
        identity.encode("utf-8", "replace"),
        clock.seconds_of(clock.now()),
        len(message),
    )
    yield message
    if parent is not None:
        yield b"\nfrom %b" % parent.encode()
    yield b"\n"


def file(path: str, data: bytes) -> Iterator[bytes]:
    """Put a file into the commit."""
    yield b"M 100644 inline %b\ndata %d\n" % (quoted(path), len(data))
    yield data
    yield b"\n"


def gone(path: str) -> bytes:
    """Take a file of the parent's out of the commit."""
    return b"D %b\n" % quoted(path)


def quoted(path: str) -> bytes:
    """Give a path as a line of the stream names it."""
    data = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + data + b'"'
