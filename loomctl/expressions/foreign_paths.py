"""Where a path that was written on another machine may lie here (D9). Pure: the caller looks whether it exists."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Each candidate is looked for on disk, so a path made of a thousand components may not ask for a thousand looks.
LONGEST_SUFFIX = 32


def is_absolute(path: str) -> bool:
    r"""Tell whether a path is absolute on any system: `/x`, `C:\x`, `\\server\x`."""
    return path.startswith(("/", "\\\\")) or (path[1:2] == ":" and path[:1].isalpha() and path[2:3] in ("/", "\\"))


def parts_of(path: str) -> list[str]:
    r"""Split a path into components, by `\` too where it is a Windows path."""
    windows = path.startswith("\\\\") or (path[1:2] == ":" and path[:1].isalpha())
    plain = path.replace("\\", "/") if windows else path
    return [part for part in plain.split("/") if part not in ("", ".")]


def candidates(path: str, recorded_roots: Iterable[str]) -> Iterator[str]:
    """Give places relative to the project root, the likeliest first.

    Each recorded project root as a prefix; the whole path below the root; then its suffixes, the longest first, of two
    to LONGEST_SUFFIX components. Nothing with `..` in it is offered.
    """
    parts = parts_of(path)
    if not parts or ".." in parts:
        return
    for root in recorded_roots:
        below = below_recorded(path, (root,))
        if below is not None:
            yield below
    if path.startswith("/"):
        yield "/".join(parts)
    for start in range(max(1, len(parts) - LONGEST_SUFFIX), len(parts) - 1):
        yield "/".join(parts[start:])


def below_recorded(path: str, recorded_roots: Iterable[str]) -> str | None:
    """Give a path relative to the first recorded project root that it lies below, or None."""
    parts = parts_of(path)
    for root in recorded_roots:
        head = parts_of(root)
        if head and ".." not in parts and parts[: len(head)] == head and len(parts) > len(head):
            return "/".join(parts[len(head) :])
    return None
