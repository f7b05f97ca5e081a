"""References to blobs, `blob://sha256/` and 64 lower-case hexadecimal digits: how they look, where they stand (D38)."""

from __future__ import annotations

from loomctl.model.errors import EXIT_USAGE, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFIX = "blob://sha256/"
_DIGITS = frozenset("0123456789abcdef")


def is_ref(value: object) -> bool:
    """Tell whether a value is a reference to a blob, and nothing else besides."""
    return isinstance(value, str) and value.startswith(PREFIX) and is_sha256(value[len(PREFIX) :])


def is_sha256(text: str) -> bool:
    """Tell whether a text is the name that a SHA-256 has here."""
    return len(text) == 64 and _DIGITS.issuperset(text)


def ref_to(sha256: str) -> str:
    """Give the reference to the content of a SHA-256, as 64 lower-case hexadecimal digits."""
    return PREFIX + sha256


def sha256_of(ref: str) -> str:
    """Give the SHA-256 that a reference names. Raises BAD_REF."""
    if not is_ref(ref):
        raise LoomError(
            "BAD_REF",
            f"{ref!r:.120} is no reference to a blob",
            why=f"one is {PREFIX} and 64 lower-case hexadecimal digits",
            hint="loomctl blob get --help",
            exit_code=EXIT_USAGE,
        )
    return ref[len(PREFIX) :]


def refs_in(value: Any) -> list[str]:
    """List the references that stand in a JSON value, at any depth, each once."""
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
        elif is_ref(one):
            found[one] = None
    return sorted(found)
