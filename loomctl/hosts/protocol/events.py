"""What every hook needs: its event read, the project that it is about, and the form of an answer.

An event's shape, and an answer's, are those of Claude Code, which others have taken over; where a host's are different,
its dialect turns the one into the other (D70).
"""

from __future__ import annotations

import os
import sys

from loomctl.flow.open_project import workspace
from loomctl.hosts import asking
from loomctl.kit import quick_json, trouble
from loomctl.kit.errors import LoomError
from loomctl.runs import config, project
from loomctl.runs.project import Caller, Workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Written = TypeVar("Written")

LARGEST_EVENT = 64 * 1024 * 1024
_END = 1 << 18  # bytes of an event of which the ends do
_SET_ASIDE = "a hook was killed while it recorded a tool call; the next loomctl command records it"


def read_event(word: str = "", *, ends_do: bool = False) -> dict[str, Any]:
    """Read the event on standard input, in the protocol's shape. Raises BAD_EVENT.

    word: the event's, as hooks are called by it; ends_do: of a large one its two ends tell enough.
    """
    data = sys.stdin.buffer.read(LARGEST_EVENT + 1)
    if len(data) > LARGEST_EVENT:
        raise LoomError("BAD_EVENT", f"the hook event is larger than {LARGEST_EVENT} bytes")
    try:
        if ends_do and len(data) > 2 * _END:
            from loomctl.runs.tools import recording  # no host's event of this kind is that large

            head, tail = (part.decode("utf-8", "replace") for part in (data[:_END], data[-_END:]))
            return recording.read_cut(head, tail)
        event = quick_json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise LoomError("BAD_EVENT", "the hook event is not JSON") from None
    if not isinstance(event, dict):
        raise LoomError("BAD_EVENT", "the hook event is not a JSON object")
    return asking.in_shape(word, event)


def text(event: dict[str, Any], key: str) -> str:
    """Give a text of an event; empty where it has none."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def workspace_of(event: dict[str, Any], *, parts: int = 1) -> Workspace | None:
    """Give the project that an event is about, as its session meets it; None where there is none.

    parts: how many outputs the host takes for this event.
    """
    host = asking.host()
    started_in = os.environ.get(host.project, "") if host.project else ""
    found = project.find((started_in, os.environ.get("PWD", ""), text(event, "cwd")))
    if found is None:
        return None
    caller = Caller(
        session_id=text(event, "session_id") or None,
        host=host.name,
        pid=asking.process_of(host),
        cwd=text(event, "cwd") or found.root,
        conversation=asking.conversation(host, text(event, "transcript_path") or None),
        on_hook_path=True,
        environment_python=os.environ.get("LOOM_ENV_PYTHON") or None,
        parts=parts,
        shared=host.shared,
        memory=asking.MEMORY_LINES,
        rereads=asking.rereads(host),
        started_in=started_in,
    )
    return workspace(found, config.load_for_a_hook(found.store, caller.environment_python), caller)


def attempt(notes: list[str], write: Callable[[], Written]) -> Written | None:
    """Do a write that a priming can do without; a project that cannot be written is primed all the same."""
    try:
        return write()
    except (OSError, LoomError) as error:
        note = f"Loom could not record this: {trouble.said(error)}"
        if note not in notes:
            notes.append(note)
        return None


def digest(space: Workspace, *, rest_follows: bool = False) -> str:
    """Digest what tools gave as far as that costs little; gives what its user must know. Most hooks find nothing there.

    What is left waits for a later event or command, or for `digest_rest` in this process where rest_follows says so:
    what the event promises comes first, whatever lies there (D59).
    """
    try:
        with os.scandir(os.path.join(space.store.local, "spool")) as entries:
            if next(entries, None) is None:
                return ""
    except OSError:
        return ""
    from loomctl.runs.tools import recording

    done = recording.digest(space, recording.HOOK_LIMIT, most=recording.AHEAD)
    if done.left and rest_follows:
        recording.note_bindings(space)
    return "; ".join(filter(None, (_SET_ASIDE if done.unfinished else "", done.trouble)))


def digest_rest(space: Workspace) -> None:
    """Digest what `digest` left and said would follow, once the answer is out."""
    recording = sys.modules.get("loomctl.runs.tools.recording")
    if recording is not None and recording.are_noted(space):
        recording.digest(space, recording.HOOK_LIMIT)


def survived(space: Workspace) -> str:
    """Say once, at the first event after a compaction was judged, how much of what must survive did."""
    if not space.local.primed(space.caller.session_id).get("judged"):
        return ""
    from loomctl.priming import receipts  # most events follow no compaction

    return attempt([], lambda: receipts.survived(space)) or ""


def user_said(space: Workspace, by: str, *, before: str = "") -> tuple[str, str]:
    """Give what the user told the run that the session drives, and a line that says so (D76).

    by: the event, as `priming.messages` calls it; before: the text that stands before it in the same output.
    """
    if not os.path.isdir(os.path.join(space.store.local, "tells")):
        return "", ""
    from loomctl.kit.text.fences import utf16_units
    from loomctl.priming import messages  # few runs are told something

    room = asking.host().room - utf16_units(before) - 2
    words = attempt([], lambda: messages.to_hook(space, by, room)) or messages.NOTHING
    return words.text, words.line


def failure(space: Workspace | None, name: str, error: Exception) -> str:
    """Say in one line what went wrong with a hook, with the way out; the bound run's events are told the same (D55).

    name: the event's word. Of a PreToolUse nothing is said, for the tool's call goes on as without Loom.
    """
    if name == "pre-tool-use":
        return ""
    from loomctl.kit.text.secrets import masked_line

    hint, said = "", f"{type(error).__name__}: {error}"
    if isinstance(error, LoomError):
        hint, said = trouble.fitting(error, project.plugin_root()).hint, trouble.said(error)
    elif isinstance(error, OSError):
        hint, said = trouble.way_out(error), trouble.said(error)
    said, hint = masked_line(said, 600), masked_line(hint, 600)
    held = isinstance(error, LoomError) and error.code == "HELD"  # the note would wait for the same lock in vain
    if space is not None and not held:
        try:
            binding = space.local.binding(space.caller.session_id)
            if binding is not None:
                from loomctl.runs.store.events import Event

                note = Event("hook.failed", {"hook": name, "error": said}, space.caller.session_id)
                space.store.tell(binding["run_id"], lambda _: [note], durable=False, patience=0.5)
        except Exception:  # noqa: BLE001, S110 - it was worth a try, and the user is told anyhow
            pass
    return f"the {name} hook failed: {said}" + (f" ({hint})" if hint else "")
