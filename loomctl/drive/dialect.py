"""What the driver is handed of an assistant: how a turn is begun, and how its output is read (`hosts.headless`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.drive.process import Order
    from loomctl.drive.signs import Sign


BY_HAND = "command"  # stands for the assistant where any command does the steps


class Dialect(Protocol):
    """An assistant without a person.

    PROGRAM: its name on PATH, empty where that is its user's; INSTALL: how one gets it, in words; SILENT: what is
    said where it calls no hook of Loom's; TAKES_RULES: whether it can be told what to allow; WIDENED: in words,
    where that stands else, or that nothing does; NAMES_CONVERSATIONS: whether their ids can be chosen; TELLS_COST:
    whether it says what it costs.
    """

    PROGRAM: str
    INSTALL: str
    SILENT: str
    TAKES_RULES: bool
    WIDENED: str
    NAMES_CONVERSATIONS: bool
    TELLS_COST: bool

    def command(self, order: Order) -> list[str]:
        """Give the command line of a turn."""

    def read(self, line: bytes) -> Iterator[Sign]:
        """Read one line of its output."""
