"""JSON Pointers (RFC 6901): where in a value something stands."""

from __future__ import annotations


def pointer(*keys: str | int) -> str:
    """Make a JSON Pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
