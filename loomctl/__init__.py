"""Loom: long work with a coding assistant that survives compaction, `/clear`, a crash and a new laptop.

For scripts: `Context`, `Outcome`, `Status`, `ErrorInfo`, `LoomError`, and `RunContext`, the context of a run on disk.
Each is imported when it is asked for: a hook pays for none.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.engine.contexts import RunContext as RunContext
    from loomctl.model.context import Context as Context
    from loomctl.model.errors import LoomError as LoomError
    from loomctl.model.outcome import ErrorInfo as ErrorInfo
    from loomctl.model.outcome import Outcome as Outcome
    from loomctl.model.outcome import Status as Status

__version__ = "0.1.0"
__all__ = ["Context", "ErrorInfo", "LoomError", "Outcome", "RunContext", "Status"]

_PLACES = {
    "Context": "loomctl.model.context",
    "ErrorInfo": "loomctl.model.outcome",
    "LoomError": "loomctl.model.errors",
    "Outcome": "loomctl.model.outcome",
    "RunContext": "loomctl.engine.contexts",
    "Status": "loomctl.model.outcome",
}


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """Name what there is."""
    return sorted([*globals(), *__all__])
