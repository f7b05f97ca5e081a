"""Counts for people: a number with its noun."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Give `1 stage`, `2 stages`, `1,000 stages`. noun: in the singular; its plural has an `s` more."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
