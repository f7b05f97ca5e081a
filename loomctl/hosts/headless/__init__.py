"""Assistants without a person: how each is started for a turn, and what a line of its output means (D73).

One file a host, of pure functions: `command(order)` and `read(line)`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from loomctl.kit.errors import EXIT_USAGE, LoomError

if TYPE_CHECKING:
    from loomctl.drive.drive import Dialect

_KNOWN = {"claude-code": "claude"}


def of(host: str) -> Dialect:
    """Give how a host is driven. Raises NO_DRIVER."""
    name = _KNOWN.get(host)
    if name is None:
        why = f"the driver knows {', '.join(_KNOWN)}"
        raise LoomError(
            "NO_DRIVER", f"Loom cannot drive {host!r:.80}", why=why, hint="loomctl drive --help", exit_code=EXIT_USAGE
        )
    return cast("Dialect", importlib.import_module(f"loomctl.hosts.headless.{name}"))
