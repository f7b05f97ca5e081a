"""What is said of a hook of Claude Code's that failed, and noted in its run's events (D55)."""

from __future__ import annotations

from loomctl.kit import trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace


def line(space: Workspace | None, name: str, error: Exception, words: str) -> str:
    """Give the one line that its user is told, with the way out; the bound run's log is told the same.

    name: the event's word; words: what went wrong.
    """
    said = masked_line(words, 600)
    hint = masked_line(_way_out(error), 600)
    held = isinstance(error, LoomError) and error.code == "HELD"  # the note would wait for the same lock in vain
    if space is not None and not held:
        _note(space, name, said)
    return f"the {name} hook could not do its work: {said}" + (f" ({hint})" if hint else "")


def _way_out(error: Exception) -> str:
    if isinstance(error, LoomError):
        from loomctl.kit import bundle_lines
        from loomctl.runs import project

        return bundle_lines.fitting(error, project.plugin_root()).hint
    return trouble.way_out(error) if isinstance(error, OSError) else ""


def _note(space: Workspace, name: str, said: str) -> None:
    """Note it in the bound run's events, where that can be done."""
    try:
        binding = space.local.binding(space.caller.session_id)
        if binding is not None:
            from loomctl.runs.store.events import Event

            note = Event("hook.failed", {"hook": name, "error": said}, space.caller.session_id)
            space.store.tell(binding["run_id"], lambda _: [note], durable=False, patience=0.5)
    except Exception:  # noqa: BLE001, S110 - it was worth a try, and the user is told anyhow
        pass
