"""Loom: long work with a coding assistant that survives compaction, `/clear`, a crash and a new laptop.

For scripts: `Context`, `Outcome`, `Status`, `ErrorInfo`, `LoomError`, and `RunContext`, the context of a run on disk.
Each is imported when it is asked for: a hook pays for none.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.flow.outcomes.outcome import ErrorInfo as ErrorInfo
    from loomctl.flow.outcomes.outcome import Outcome as Outcome
    from loomctl.flow.outcomes.outcome import Status as Status
    from loomctl.hosts.scripts import RunContext as RunContext
    from loomctl.kit.errors import LoomError as LoomError
    from loomctl.kit.package import __version__ as __version__
    from loomctl.runs.model.context import Context as Context

__all__ = ["Context", "ErrorInfo", "LoomError", "Outcome", "RunContext", "Status"]

_PLACES = {
    "Context": "loomctl.runs.model.context",
    "ErrorInfo": "loomctl.flow.outcomes.outcome",
    "LoomError": "loomctl.kit.errors",
    "Outcome": "loomctl.flow.outcomes.outcome",
    "RunContext": "loomctl.hosts.scripts",
    "Status": "loomctl.flow.outcomes.outcome",
    "__version__": "loomctl.kit.package",
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
