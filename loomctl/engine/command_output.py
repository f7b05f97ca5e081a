"""What a command printed: stored as a value of the context, its loss told, its end shown (D30, D38)."""

from __future__ import annotations

import os

from loomctl.disk import command_files, command_runs, text_parts
from loomctl.engine import context_values
from loomctl.model import blob_refs
from loomctl.model.fences import visible
from loomctl.model.secrets import mask, masked_line
from loomctl.model.units import utf8_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.engine.caller import Workspace

KEY = "command.output"
_INLINE = 100 * 1024  # bytes of an output that could not be stored as a blob
_TAIL_LINES = 20
_WINDOW = 1 << 16  # bytes of a log that its last lines are looked for in


def stored(space: Workspace, folder: str) -> tuple[Any, int, list[dict[str, str]]]:
    """Put a stage's output into a blob, always (D38): its text as JSON. Where that fails its end stays inline.

    Gives the value, the bytes that the log holds, and what is to be warned of.
    """
    data = command_runs.read_log(folder)
    values, warnings = context_values.stored(space, {KEY: data.decode("utf-8", "replace")})
    if blob_refs.is_ref(values[KEY]):
        return values[KEY], len(data), warnings
    end = data[-_INLINE:].decode("utf-8", "replace")
    why = "; ".join(one["message"] for one in warnings)
    message = f"{len(data):,} bytes are in command.log, the end of them in the state: {why}"
    return end, len(data), [{"code": "NOT_OFFLOADED", "where": KEY, "message": message}]


def losses(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what of an output is not in its log, as (code, words). result: as `command_runs.Standing` has it."""
    if result.get("log_error"):
        why = masked_line(str(result["log_error"]), 200)
        return [("OUTPUT_LOST", f"the output could not be stored any more: {why}")]
    most = command_files.MOST_HEAD + command_files.MOST_END
    if isinstance(result.get("bytes"), int) and result["bytes"] > most:
        told = f"of {result['bytes']:,} bytes of output {most >> 20} MiB are stored: its beginning and its end"
        return [("OUTPUT_CUT", told)]
    return []


def tail_of(folder: str, most: int) -> str:
    """Give the last lines of a command's log for showing: masked, controls visible, `most` UTF-8 bytes at most."""
    try:
        data, whole = text_parts.end(os.path.join(folder, command_files.LOG), _WINDOW)
    except OSError:  # there is none, or no file in its place
        return ""
    text = data.decode("utf-8", "replace").rstrip("\n")
    if not whole and "\n" in text:
        text = text.partition("\n")[2]  # the first line is a part of one
    # A line that a program wrote over and over, such as a progress bar, is shown as it was last.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in mask(text)[0].split("\n")]
    shown: list[str] = []
    left = most
    for line in reversed([visible(line) for line in lines[-_TAIL_LINES:]]):
        size = utf8_bytes(line) + 1
        if size > left:
            if not shown:
                shown.append("…" + line.encode("utf-8")[-max(0, left - 4) :].decode("utf-8", "ignore"))
            break
        shown.append(line)
        left -= size
    return "\n".join(reversed(shown))
