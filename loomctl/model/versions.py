"""Which of two versions of Loom is older."""

from __future__ import annotations


def is_older(one: str, other: str) -> bool:
    """Tell whether one version comes before another; what is no version, such as an empty text, never does."""
    ours, theirs = _numbers(one), _numbers(other)
    return bool(ours) and bool(theirs) and ours < theirs


def _numbers(version: str) -> list[int]:
    parts = version.split(".")
    fit = all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts)
    return [int(part) for part in parts] if fit else []
