"""Who asks, from where, and about which project: what every use case is given."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from loomctl.runs.config import Settings
    from loomctl.runs.machine.local import Local
    from loomctl.runs.project import Project
    from loomctl.runs.store.store import Store


class Sent(NamedTuple):
    """What a host wrote down of a conversation that stands before the assistant.

    slips: those of the ids that were asked for. copies: texts of whole files, by real path, whoever brought them.
    given_again: of what the host itself gave as it compacted the conversation, the same.
    """

    slips: frozenset[str]
    copies: Mapping[str, Sequence[str]]
    given_again: Mapping[str, str]


class Conversation:
    """What can be seen of the asking session's conversation; this one sees nothing, a host's own class sees more."""

    def holds(self, slips: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - the shape of a host's own
        """Tell which slip ids stand live in the conversation; what cannot be seen is sent again (D15)."""
        return frozenset()

    def sent(
        self,
        wanted: Collection[str],  # noqa: ARG002 - as above
        older: Collection[str],  # noqa: ARG002
        *,
        patience: float = 0,  # noqa: ARG002
    ) -> Sent | None:
        """Tell which slips stand in the conversation, and which whole files; None where nothing can be seen.

        patience: seconds for which those that are wanted are waited for, where a host may not have written them yet.
        """
        return None

    def said_since(self, at: str) -> str | None:  # noqa: ARG002 - as above
        """Give what the assistant said since a time (UTC, with or without milliseconds); None if that is not known."""
        return None

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:  # noqa: ARG002
        """Give the models and tokens that were used since a time, here and beside; None if that is not known (D41)."""
        return None

    def called(self) -> Mapping[str, float]:
        """Give when hooks were last called, by event, in seconds since 1970, as far as what was said shows it."""
        return {}

    def kept_at(self, session_id: str) -> str | None:  # noqa: ARG002 - as above
        """Find where the host keeps another session's transcript, by its id; None if that is not known."""
        return None

    def interrupted_at(self) -> float:
        """Give when its user last broke a turn off, in seconds since 1970; 0 where that is not known."""
        return 0

    def called_at(self) -> float:
        """Give when its assistant last called a tool, in seconds since 1970; 0 where that is not known."""
        return 0

    def another(self, path: str | None) -> Conversation:  # noqa: ARG002 - as above
        """Give another session's conversation of the same host, by its transcript's path."""
        return self


class Caller(NamedTuple):
    """session_id: the host's (D24), None where nobody has one; pid: the host's process; cwd: absolute.

    environment_python: the made environment's interpreter, if there is one. on_hook_path: the standard library alone.
    parts: how many outputs a host takes of what is told now (D62).
    """

    session_id: str | None
    host: str
    pid: int | None
    cwd: str
    conversation: Conversation
    on_hook_path: bool = False
    environment_python: str | None = None
    parts: int = 1


class Workspace(NamedTuple):
    """A project as one caller meets it.

    upcoming: says the one next thing to do in a run: `prompts.upcoming`, which stands above those who ask.
    """

    project: Project
    store: Store
    local: Local
    settings: Settings
    caller: Caller
    upcoming: Callable[..., str]
