"""Whom the doctor examines: an installation of Loom, in a folder, for a caller."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from loomctl.kit.errors import LoomError
from loomctl.runs.machine.local import Local
from loomctl.runs.model.state import is_active
from loomctl.runs.project import Conversation, plugin_root
from loomctl.runs.store.store import Store

if TYPE_CHECKING:
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Project


class Patient:
    """cwd: the working directory, empty where it is gone; project: None where there is none.

    environment_python: the interpreter of Loom's own environment, empty where there is none. session_id: the host's.
    now: seconds since 1970. program: the file that this process was started from.
    """

    def __init__(
        self, *, cwd: str, project: Project | None, environment_python: str, session_id: str, now: float, program: str
    ) -> None:
        self.cwd, self.project, self.environment_python = cwd, project, environment_python
        self.session_id, self.now, self.program = session_id, now, program
        self.conversation = Conversation()  # whoever knows the host gives one that can be seen
        self.bundle = project.plugin_root if project else plugin_root()
        self.launcher = os.path.join(self.bundle, "bin", "loomctl")
        self.store = Store(project.store, project.faber_roots) if project else None  # as a hook has it
        self.local = Local(self.store.local) if self.store else None

    @property
    def is_helper(self) -> bool:
        """Tell whether this is a `loomctl` of its own (pipx), whose bundle stands inside of the package."""
        return os.path.basename(self.bundle) == "_bundle"

    @cached_property
    def states(self) -> dict[str, State | LoomError]:
        """Each run's state, or why it cannot be read."""
        found: dict[str, State | LoomError] = {}
        for run_id in self.store.run_ids() if self.store else ():
            try:
                found[run_id] = self.store.read_state(run_id) if self.store else {}
            except LoomError as error:
                if error.code != "BAD_ID":  # a folder of somebody else's
                    found[run_id] = error
        return found

    @property
    def active(self) -> dict[str, State]:
        """The states of the active runs."""
        return {
            run_id: state
            for run_id, state in self.states.items()
            if not isinstance(state, LoomError) and is_active(state)
        }
