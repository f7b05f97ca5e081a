"""What a command printed: stored as a value of the context, its loss told, its end shown (D30, D38)."""

from __future__ import annotations

import codecs
import os

from loomctl.kit import excerpts, files
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.kit.text.units import utf8_bytes
from loomctl.runs.commands import command_files, command_runs
from loomctl.runs.store.blobs import Blobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace

KEY = "command.output"
_INLINE = 100 * 1024  # bytes of an output that could not be stored as a blob
_TAIL_LINES = 20
_WINDOW = 1 << 16  # bytes of a log that its last lines are looked for in


def stored(space: Workspace, folder: str) -> tuple[Any, list[dict[str, str]]]:
    """Put a stage's output into a blob, always (D38): its text as JSON. Where that fails its end stays inline.

    Gives the value, and what is to be warned of. However large the output is, it is never held as a whole.
    """
    try:
        return Blobs(space.store.folder).put_parts(_as_json(folder)), []
    except (OSError, LoomError) as error:
        why = error.what if isinstance(error, LoomError) else str(error)
    end = _end(folder, _INLINE)[0].decode("utf-8", "replace")
    message = f"{size_of(folder):,} bytes are in command.log, the end of them in the state: {why}"
    return end, [{"code": "NOT_OFFLOADED", "where": KEY, "message": message}]


def _as_json(folder: str) -> Iterator[bytes]:
    """Give the JSON of what a log holds as text, in parts."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield b'"'
    for part in command_runs.log_parts(folder):
        yield files.to_json_line(decoder.decode(part))[1:-2]
    yield files.to_json_line(decoder.decode(b"", final=True))[1:-2] + b'"'


def size_of(folder: str) -> int:
    """Give the bytes that a stage's log holds; 0 where there is none."""
    try:
        return os.lstat(os.path.join(folder, command_files.LOG)).st_size
    except OSError:
        return 0


def losses(folder: str, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what of an output is not in its log, as (code, words). result: as `command_runs.Standing` has it."""
    if result.get("log_error"):
        why = masked_line(str(result["log_error"]), 200)
        return [("OUTPUT_LOST", f"the output could not be stored any more: {why}")]
    if isinstance(result.get("stored"), int) and size_of(folder) < result["stored"]:
        return [("OUTPUT_LOST", f"of {result['stored']:,} bytes that were stored in command.log not all are there")]
    most = command_files.MOST_HEAD + command_files.MOST_END
    if isinstance(result.get("bytes"), int) and result["bytes"] > most:
        told = f"of {result['bytes']:,} bytes of output {most >> 20} MiB are stored: its beginning and its end"
        return [("OUTPUT_CUT", told)]
    return []


def _end(folder: str, most: int) -> tuple[bytes, bool]:
    """Give the last bytes of a log, and whether they are all; nothing where there is none, or no file in its place."""
    path = os.path.join(folder, command_files.LOG)
    try:
        return (b"", True) if os.path.islink(path) else excerpts.end(path, most)
    except OSError:
        return b"", True


def tail_of(folder: str, most: int) -> str:
    """Give the last lines of a command's log for showing: masked, controls visible, `most` UTF-8 bytes at most."""
    data, whole = _end(folder, _WINDOW)
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
