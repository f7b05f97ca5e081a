"""Large tool output, stored and replaced for the model while the host waits: the PostToolUse hook's second half (D48).

The launcher has spooled the event and found it large (D59), or that the session is owed what a compaction lost. Nothing
but `os`, `sys` and what is as small is imported for the first, for all of it may cost three starts of Python (design
§7). Whatever goes wrong, the host's own output stays.
"""

from __future__ import annotations

import os
import sys

from loomctl.hosts import asking
from loomctl.hosts.asking import Answer, written
from loomctl.kit import digests, machine, quick_json
from loomctl.reduction import live
from loomctl.runs.tools import tool_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.project import Workspace

LARGEST_EVENT = 64 * 1024 * 1024
_SMALL = 1 << 20  # bytes of a binding or of settings
_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_LONGEST_NAME = 200
_SHOWN = 8000  # characters that a host gives of an output that it put away; it is known by them


def main(spooled: str, also: str = "") -> int:
    """Answer for a spooled event; always gives 0.

    spooled: its absolute path; its output is replaced where it is large. also: `owed` where what a compaction lost is
    to be put back with it, `edited` where a file that the session was given may have changed, `compacted` where the
    session is to be primed again; `called` behind a call of Loom's own in a host that shuts it in, to which nothing is
    said; `told` where its user's words wait for the run, `failed` where they do behind a call that failed.
    """
    try:
        if also == "called":
            from loomctl.hosts.protocol import sandbox  # few hosts have one

            sandbox.remember(asking.in_shape("post-tool-use", _object(spooled, LARGEST_EVENT)))
            return 0
        _answer(spooled, also)
    except Exception:  # noqa: BLE001, S110 - a hook fails open (D55), and the event waits in the spool as it was
        pass
    return 0


def _answer(spooled: str, also: str) -> None:
    failed = also == "failed"
    event = asking.in_shape("post-tool-use-failure" if failed else "post-tool-use", _object(spooled, LARGEST_EVENT))
    text, line = _told(event, also) if also and not event.get("agent_id") else ("", "")
    output = record = None
    try:
        replaced = _replaced(spooled, event) if not failed else None
    except Exception:  # noqa: BLE001 - what is put back is given all the same
        replaced = None
    if replaced is not None:
        output, record = replaced
    if also == "compacted" and text and _has_room_behind(event):
        output, text = _behind(event["tool_response"] if output is None else output, text), ""
    answer = Answer("PostToolUseFailure" if failed else "PostToolUse", text, line, output=output)
    _write(written(answer).encode("utf-8", "backslashreplace"))
    if record is not None:
        _finish(spooled, record)


def _told(event: dict[str, Any], also: str) -> tuple[str, str]:
    """Give what the assistant is told beside, and a line for its user: nothing inside of a subagent."""
    try:
        from loomctl.hosts.protocol import events

        space = events.workspace_of(event)
        if space is None:
            return "", ""
        if also in ("told", "failed"):
            from loomctl.priming import messages

            words = messages.to_hook(space, messages.RESULT, asking.host().beside, look=False)
            return words.text, words.line
        if also == "edited":
            from loomctl.priming import edits

            made = edits.notice(space, own=_written(event))
            return made.text, made.line
        if also == "compacted":
            from loomctl.hosts.protocol import restores

            host = asking.host()
            room = host.behind if _has_room_behind(event) else host.beside
            given = restores.restored(space, "post-tool-use", event, room)
            if given is None:  # what the summary lost, if that was looked for now
                return _put_back(space), ""
            return given.text, given.line
        return _put_back(space), ""
    except Exception:  # noqa: BLE001 - a hook fails open (D55); what is owed stays noted for the next prompt
        return "", ""


def _put_back(space: Workspace) -> str:
    from loomctl.priming import prime_run, survive  # once after a compaction that lost something

    return survive.put_back(space, prime_run.hook_budget(space, room=asking.host().beside), "PostToolUse")


def _has_room_behind(event: dict[str, Any]) -> bool:
    """Tell whether a text can be put behind the call's own output: it is one of success, and of text."""
    response = event.get("tool_response")
    failed = isinstance(response, dict) and response.get("result_type", "success") != "success"
    return asking.host().behind > 0 and not failed and live.main_text(response)[1] != ""


def _behind(response: Any, text: str) -> Any:
    place, own = live.main_text(response)
    return live.with_text(response, place, f"{own}\n\n{text}")


def _written(event: dict[str, Any]) -> tuple[str, ...]:
    """Give the files that the assistant itself has written with this call; of them nothing is told (D80)."""
    from loomctl.reduction import tool_steps  # where a file may have changed alone

    rule = tool_steps.rule_for(str(event.get("tool_name")))
    if rule.action not in (tool_steps.WRITE, tool_steps.EDIT):
        return ()
    base = str(event.get("cwd") or "/")
    named = (path for path in tool_steps.paths_of(rule, event.get("tool_input")) if "\0" not in path)
    return tuple(os.path.realpath(os.path.join(base, path)) for path in named)


def _replaced(spooled: str, event: dict[str, Any]) -> tuple[Any, bytes] | None:
    """Give what stands in place of a large output, and the event's record then; None where it stays as it is."""
    store = os.path.dirname(os.path.dirname(os.path.dirname(spooled)))
    if live.refusal(event) or not asking.can(asking.host(), asking.SHORTENS):
        return None
    tool_name = event["tool_name"]
    most = live.threshold(_settings(store), tool_name)
    place, text = live.main_text(event.get("tool_response"))
    if live.put_away(event.get("tool_response")):
        text = _whole(live.put_away(event["tool_response"]), text, live.shown(event["tool_response"]) or _SHOWN)
        event["tool_response"] = live.given_whole(event["tool_response"])
    run_dir = _run_dir(store, event, os.path.basename(spooled)) if most is not None and len(text) > most else ""
    if not run_dir:
        return None
    content = text.encode("utf-8", "surrogatepass")
    size = len(content)
    planned = live.shortened(live.program(tool_name, event.get("tool_input")), text, size, run_dir)
    if len(planned) + 2 * _LONGEST_NAME >= len(text):
        return None
    ref = tool_log.keep(run_dir, _name(event, spooled), "log", content)
    told = planned[: -len(run_dir)] + os.path.join(run_dir, ref)
    response = live.with_text(event["tool_response"], place, told)
    kept = {"ref": ref, "sha256": digests.of_bytes(content), "bytes": size, "at": list(place)}
    return response, quick_json.dumps({**event, "tool_response": response, "loom": kept}).encode()


def _whole(path: str, beginning: str, shown: int) -> str:
    """Give an output that the host put away. Raises OSError and ValueError where the file is not what was shown.

    shown: how many characters of its beginning the host gives.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as source:
        data = source.read(LARGEST_EVENT + 1)
    text = data.decode("utf-8", "replace")
    if len(data) > LARGEST_EVENT or len(beginning) < shown or not text.startswith(beginning[:shown]):
        raise ValueError(f"{path} is not the output whose beginning was given")
    return text


def _object(path: str, limit: int) -> dict[str, Any]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as source:
        data = source.read(limit + 1)
    if not data or len(data) > limit:
        raise ValueError(f"{path} is empty or larger than {limit} bytes")
    value = quick_json.loads(data.decode("utf-8", "replace"))
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")  # noqa: TRY004 - as for what is no JSON
    return value


def _settings(store: str) -> dict[str, Any]:
    """Give what `reduce:` says, the project's word before the user's, as the last command compiled it."""
    found: dict[str, Any] = {}
    home = machine.state_home()
    for path in ([os.path.join(home, "config.json")] if home else []) + [os.path.join(store, "local", "config.json")]:
        try:
            settings = _object(path, _SMALL).get("settings")
        except (OSError, ValueError):
            continue
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if name.startswith("reduce."):
                found[name[len("reduce.") :]] = value
    return found


def _run_dir(store: str, event: dict[str, Any], name: str) -> str:
    session_id = event.get("session_id")
    if not isinstance(session_id, str) or not _is_fit(session_id) or not name.startswith(f"{session_id}-"):
        return ""
    binding = _object(os.path.join(store, "local", "sessions", f"{session_id}.json"), _SMALL)
    run_id = binding.get("run_id")
    here = binding.get("session_id") == session_id and binding.get("store") == os.path.realpath(store)
    if not here or not isinstance(run_id, str) or not _is_fit(run_id):
        return ""
    runs = os.path.join(store, "runs")
    run_dir = os.path.join(runs, run_id)
    return run_dir if os.path.isdir(run_dir) and not os.path.islink(run_dir) and not os.path.islink(runs) else ""


def _name(event: dict[str, Any], spooled: str) -> str:
    call = event.get("tool_use_id")
    if isinstance(call, str) and _is_fit(call):
        return call
    return f"step-{digests.of_text(call if isinstance(call, str) and call else os.path.basename(spooled))[:16]}"


def _is_fit(name: str) -> bool:
    """Tell whether a name is fit for a file, as `kit.ids` does, which brings more along than there is time for."""
    return 0 < len(name) <= _LONGEST_NAME and name[0] not in ".-" and ".." not in name and _NAME.issuperset(name)


def _write(answer: bytes) -> None:
    view = memoryview(answer)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def _finish(spooled: str, record: bytes) -> None:
    """Put the record in the event's place, at its time, so that it is digested in its turn."""
    at = os.stat(spooled)
    beside = os.path.join(os.path.dirname(spooled), f".{os.path.basename(spooled)}.{os.getpid()}.part")
    tool_log.write_new(beside, record)
    try:
        os.utime(beside, ns=(at.st_atime_ns, at.st_mtime_ns))
        os.replace(beside, spooled)
    except OSError:
        os.unlink(beside)
        raise
