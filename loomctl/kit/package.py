"""The package itself: its version, where it lies, the file that starts it, and whether parts fit each other."""

from __future__ import annotations

import os

from loomctl.kit.records import NamedTuple

__version__ = "0.2.0"
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAIN = os.path.join(FOLDER, "__main__.py")


def is_older(one: str, other: str) -> bool:
    """Tell whether one version comes before another; what is no version, such as an empty text, never does."""
    ours, theirs = _numbers(one), _numbers(other)
    return bool(ours) and bool(theirs) and ours < theirs


def _numbers(version: str) -> list[int]:
    parts = version.split(".")
    fit = all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts)
    return [int(part) for part in parts] if fit else []


class Skew(NamedTuple):
    """Something of Loom that is of another version than the `loomctl` that asks.

    part: `hooks` (what fired in a session) or `run` (what last worked on the state); newer: than this `loomctl`.
    """

    part: str
    version: str
    newer: bool


def skews(helper: str, *, hooks: str = "", writer: str = "") -> tuple[Skew, ...]:
    """Tell what does not fit this `loomctl`, the helper; empty versions are not known and tell nothing.

    Hooks of any other version do not fit: they read what it writes, and it what they write. A run that an older Loom
    worked on does, for that is what every update looks like.
    """
    found = []
    if hooks not in ("", helper):
        found.append(Skew("hooks", hooks, not is_older(hooks, helper)))
    if is_older(helper, writer):
        found.append(Skew("run", writer, True))
    return tuple(found)
