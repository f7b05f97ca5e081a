"""What scripts import from `loomctl`, with the session of the assistant in whose shell they run."""

from __future__ import annotations

import os

from loomctl.flow import contexts
from loomctl.hosts import shells


class RunContext(contexts.RunContext):
    """The context of a run on disk, for a script: `flow.contexts` says what it does."""

    __doc__ = contexts.RunContext.__doc__

    @staticmethod
    def session_id() -> str | None:
        """Give the id of the session that this shell is of; None in a terminal."""
        inner = shells.innermost(os.environ)
        return inner.id if inner is not None else None
