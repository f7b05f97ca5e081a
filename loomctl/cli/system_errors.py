"""What the system refused while a command ran, with what the command line knows besides (D52)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.cli import streams
from loomctl.disk import trouble

if TYPE_CHECKING:
    from loomctl.model.errors import LoomError


def in_words(error: OSError, again: str) -> LoomError:
    """Make the one error that says what was refused, where, and what can be done. Code SYSTEM, exit 5.

    again: the command line to paste that shows where in Loom it happened, for what nothing better is known.
    """
    said = trouble.of(error)
    if not said.where and streams.output_fails():
        said.where = "standard output"
        said.why = said.why or "the work is done; what it says did not reach who was to read it"
        said.hint = "df -h"
    said.hint = said.hint or again
    return said
