"""A large file of JSON objects, a line each: only the blocks are read in which something is looked for."""

from __future__ import annotations

import os

from loomctl.kit import files, quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Search = Callable[[bytes, bytes, int, int], int]

BLOCK = 1 << 20
OVER = 1 << 12  # bytes that a block has of the next one, so that a word is found where two meet
FURTHEST = 64 * 1024 * 1024  # from the end; what stands before is not there


class JsonLines:
    """What stood in a file when it was opened; nothing where none can be.

    Places are bytes from its beginning. The file is another program's: what is no object is passed over.
    """

    def __init__(self, path: str | None) -> None:
        self._close = os.close
        self._descriptor = -1
        self._size, self._base, self._held = 0, -1, b""
        try:
            if path:
                self._descriptor = files.open_regular(path)
                self._size = os.fstat(self._descriptor).st_size
        except (OSError, ValueError):  # a name that no file can have
            pass
        self._floor = max(0, self._size - FURTHEST)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            self._close(self._descriptor)

    def __len__(self) -> int:
        return self._size

    def since(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """Give the entries from a place on."""
        lines = self._part(start, self._size).split(b"\n")
        return (entry for line in lines if (entry := _entry(line)) is not None)

    def back(
        self, start: int = 0, end: int | None = None, holding: bytes = b""
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Give the entries from the last one back to a place, each with its own, and parsed only when it is come to.

        end: before which they stand; holding: only those whose line has these bytes, at most `OVER`, in it.
        """
        end = self._size if end is None else end
        while end > start:
            at = self.rfind(holding, start, end) if holding else end - 1
            if at < 0:
                break
            begins, entry = self.line_around(at, end)
            if entry is not None:
                yield begins, entry
            end = begins

    def line_around(self, at: int, end: int | None = None) -> tuple[int, dict[str, Any] | None]:
        """Give where the line of a place begins, and its entry; None where it has none. end: where it is cut."""
        begins = self.rfind(b"\n", 0, at) + 1
        ends = self.find(b"\n", at, end)
        return begins, _entry(self._part(begins, ends if ends >= 0 else self._size if end is None else end))

    def find(self, word: bytes, start: int = 0, end: int | None = None) -> int:
        """Find a word of at most `OVER` bytes between two places; -1 if it is not there."""
        return self._search(word, start, end, bytes.find, 1)

    def rfind(self, word: bytes, start: int = 0, end: int | None = None) -> int:
        """Find the last one."""
        return self._search(word, start, end, bytes.rfind, -1)

    def _search(self, word: bytes, start: int, end: int | None, search: Search, step: int) -> int:
        start, end = max(start, self._floor), self._size if end is None else end
        bases = range(start // BLOCK * BLOCK, end, BLOCK) if len(word) <= OVER else range(0)
        for base in bases[::step]:
            if base != self._base:
                self._base, self._held = base, self._read(base, base + BLOCK + OVER)
            at = search(self._held, word, max(start - base, 0), min(end - base, BLOCK + len(word) - 1))
            if at >= 0:
                return base + at
        return -1

    def _part(self, start: int, end: int) -> bytes:
        start = max(start, self._floor)
        if 0 <= self._base <= start and end <= self._base + len(self._held):
            return self._held[start - self._base : end - self._base]
        return self._read(start, end)

    def _read(self, start: int, end: int) -> bytes:
        parts: list[bytes] = []
        while start < (end := min(end, self._size)):
            try:
                part = os.pread(self._descriptor, end - start, start)
            except OSError:
                break
            if not part:  # the file has shrunk
                break
            parts.append(part)
            start += len(part)
        return b"".join(parts)


def _entry(line: bytes) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        entry = quick_json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
