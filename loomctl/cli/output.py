"""What goes out: the two streams, text and JSON documents, tables, questions, and what the system refused.

The standard library alone, for it also speaks where Loom's own environment is missing or damaged.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from loomctl.hosts import table as hosts
from loomctl.kit import clock, files, trouble
from loomctl.kit.errors import EXIT_BUG, EXIT_SETUP, EXIT_USAGE, LoomError
from loomctl.kit.text import fences
from loomctl.kit.text.fences import visible, visible_in_json
from loomctl.kit.text.secrets import mask, masked
from loomctl.runs import project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


SCHEMA_VERSION = 1
_in_lines: list[bool] = []  # not empty: a command has spoken in a document a line, and so does its error
_NARROWEST, _NARROW_SCREEN = 12, 40  # columns of a cell that is cut, and of a line
_STYLES = {"bold": 1, "red": 31, "green": 32, "yellow": 33}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# ---- The streams.


class _Patient(io.RawIOBase):
    """The raw end of a stream whose pipe may be full at times: it waits until all is taken."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # any buffer, as RawIOBase has it
        files.write_all(self._descriptor, view.tobytes())
        return len(view)


def prepare() -> None:
    """Make both streams show what they can: other signs where a locale lacks ours, all of it where a pipe is full."""
    _in_lines.clear()
    sys.stdout, sys.stderr = _prepared(sys.stdout), _prepared(sys.stderr)


def _prepared(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        if not os.get_blocking(stream.fileno()):
            return io.TextIOWrapper(io.BufferedWriter(_Patient(stream.fileno())), stream.encoding, "replace")
    except (OSError, ValueError):
        pass
    stream.reconfigure(errors="replace")
    return stream


def finish() -> None:
    """Let go of what a stream holds and nobody takes, so that the process ends with its own code."""
    for stream in (sys.stdout, sys.stderr):
        if _is_stuck(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _is_stuck(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return True
    return False


# ---- Results.


def document(value: dict[str, Any]) -> None:
    """Print one JSON document, its schema version first, its secrets masked."""
    print(rendered(value), flush=True)


def event(value: dict[str, Any]) -> None:
    """Print one JSON document of many, in a line, its secrets masked."""
    _in_lines[:] = [True]
    print(line(masked({"schema_version": SCHEMA_VERSION, **value})), flush=True)


def original(value: dict[str, Any]) -> None:
    """Print one JSON document as it is, for who asks for what a tool gave, and nothing instead of it."""
    print(_encoded({"schema_version": SCHEMA_VERSION, **value}), flush=True)


def plain(value: Any) -> None:
    """Print a JSON value, its secrets masked."""
    print(_encoded(masked(value)), flush=True)


def rendered(value: dict[str, Any]) -> str:
    """Give one JSON document for standard output: secrets masked (D21), nothing in it raw.

    All beyond ASCII is escaped where the stream speaks something else than UTF-8, or where half a character stands in
    it, as in the name of a folder that is no UTF-8: a reader gets back what was meant, never a `?`.
    """
    return _encoded(masked({"schema_version": SCHEMA_VERSION, **value}))


def _encoded(value: Any) -> str:
    printed = visible_in_json(json.dumps(value, ensure_ascii=False, indent=1))
    return printed if _goes_out_whole(printed) else json.dumps(value, indent=1)


def line(value: Any) -> str:
    """Give a JSON value, its secrets masked already, in one line as Loom's logs have it, nothing in it raw."""
    printed = visible_in_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return printed if _goes_out_whole(printed) else json.dumps(value, separators=(",", ":"))


def _goes_out_whole(printed: str) -> bool:
    try:
        printed.encode()
        return codecs.lookup(sys.stdout.encoding).name == "utf-8"
    except (UnicodeEncodeError, LookupError):
        return False


def text(value: str = "", *, style: str = "") -> None:
    """Print text, its secrets masked (D21); what a terminal would obey instead of show is made visible."""
    print(shown(value, style), flush=True)


def shown(value: str, style: str = "") -> str:
    """Give text as `text` prints it."""
    return styled(visible(mask(value)[0]), style)


def prose(value: str, last: Callable[[], list[str]] = list) -> None:
    """Print text as `text` does; at a person's terminal its prose is broken to fit the screen.

    last: gives the lines that say most, which are repeated where a screen is too low for the text.
    """
    printed = _on_a_screen(shown(value), sys.stdout)
    if _is_too_low(printed, sys.stdout):
        printed = "\n".join([printed, "", _on_a_screen(shown("\n".join(last())), sys.stdout)]).rstrip("\n")
    print(printed, flush=True)


def answer(told: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a document for a script, or lines for people."""
    document(told) if as_json else prose("\n".join(lines))


def is_a_screen(stream: TextIO) -> bool:
    """Tell whether a stream is a person's terminal, on which text can be set and drawn."""
    dumb = hosts.sessions(os.environ) or os.environ.get("TERM") == "dumb"
    return not dumb and stream.isatty()


def _is_too_low(printed: str, stream: TextIO) -> bool:
    """Tell whether a person's screen has fewer rows than a text and the next prompt; one of unknown height has not."""
    if not is_a_screen(stream):
        return False
    try:
        high = os.get_terminal_size(stream.fileno()).lines
    except OSError:
        return False
    return 0 < high < 2 + printed.count("\n")


def _on_a_screen(value: str, stream: TextIO) -> str:
    """Break prose for a person's screen; for an assistant, a script and a dumb terminal it stays as it is."""
    if not is_a_screen(stream):
        return value
    wide = max(_NARROW_SCREEN, columns())
    if all(fences.width(line) <= wide for line in value.split("\n")):
        return value
    from loomctl.kit.text import prose as broken

    return broken.fitted(value, wide)


def raw(pieces: Iterable[bytes]) -> None:
    """Print bytes as they are, for who asks for an original; nothing is added and nothing masked."""
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def note(value: str) -> None:
    """Print a line beside the result, on standard error."""
    print(_on_a_screen(shown(value), sys.stderr), file=sys.stderr, flush=True)


def unmasked(value: str, *, err: bool = False) -> None:
    """Print text as it is but for what a terminal would obey: for whoever is to judge the whole of it."""
    print(visible(value), file=sys.stderr if err else sys.stdout, flush=True)


def styled(value: str, style: str) -> str:
    """Give text in a style, for a terminal alone, and not under NO_COLOR."""
    plain = not style or os.environ.get("NO_COLOR") or not sys.stdout.isatty()
    return value if plain else f"\033[{_STYLES[style]}m{value}\033[0m"


def when(stamped: object) -> str:
    """Say for people when something was; empty where no time is given."""
    return clock.ago(fences.one_line(str(stamped or ""), 40))


def columns() -> int:
    """Give how wide a line of text may be: as COLUMNS says, else as wide as the terminal, else 80 columns."""
    said = os.environ.get("COLUMNS", "")
    wide = int(said[:6]) if said.isascii() and said[:6].isdigit() else 0
    if wide <= 0 and sys.stdout.isatty():
        try:
            wide = os.get_terminal_size(sys.stdout.fileno()).columns
        except OSError:
            wide = 0
    return wide if wide > 0 else 80


def beside(label: str, text: str) -> list[str]:
    """Wrap a text beside a label, its further lines below its first; a path stays in one piece, for it is pasted."""
    indent = fences.width(label)
    room = max(_NARROWEST, columns() - indent)
    lines: list[str] = []
    for word in visible(text).split():
        for piece in [word] if "/" in word else fences.wrapped(word, room, len(word)):
            if lines and fences.width(lines[-1]) + 1 + fences.width(piece) <= room:
                lines[-1] += f" {piece}"
            else:
                lines.append(piece)
    return [f"{' ' * indent if number else label}{line}" for number, line in enumerate(lines or [""])]


def table(
    header: list[str],
    rows: list[list[str]],
    *,
    always: int | None = None,
    keep: tuple[int, ...] = (),
    paths: tuple[int, ...] = (),
    spare: tuple[int, ...] = (),
) -> str:
    """Set rows under a header, columns aligned, two spaces between, in a line's width.

    always: later columns go where they are empty. keep: columns that are never cut, for they are pasted. paths: columns
    that are cut at their beginning. The widest are cut first; where even that does not fit those of `spare` go, then
    the last.
    """
    held = [at for at in range(len(header)) if always is None or at < always or any(row[at] for row in rows)]
    cells = [header, *[[visible(cell).replace("\n", " ") for cell in row] for row in rows]]
    natural = [max(fences.width(row[at]) for row in cells) for at in range(len(header))]
    while not (widths := _fitted({at: natural[at] for at in held}, keep)):
        goes = (*spare, *(at for at in reversed(held) if at not in keep), *reversed(held))
        held.remove(next(at for at in goes if at in held))
    return "\n".join(
        "  ".join(_cell(row[at], width, is_path=at in paths) for at, width in widths.items()).rstrip() for row in cells
    )


def _fitted(widths: dict[int, int], keep: tuple[int, ...]) -> dict[int, int]:
    """Cut columns until they fit into a line, none below what tells anything; gives nothing where that is not enough.

    A column that stands alone fits.
    """
    over = sum(widths.values()) + 2 * (len(widths) - 1) - max(_NARROW_SCREEN, columns())
    fitted, cut = dict(widths), [at for at in widths if at not in keep]
    for _ in range(over):
        widest = max(cut, key=lambda at: fitted[at], default=None)
        if widest is None or fitted[widest] <= _NARROWEST:
            return fitted if len(widths) == 1 else {}
        fitted[widest] -= 1
    return fitted


def _cell(text: str, width: int, *, is_path: bool) -> str:
    cut = fences.cut(text[::-1], width)[::-1] if is_path else fences.cut(text, width)
    return cut + " " * (width - fences.width(cut))


# ---- Questions.


def may_ask(*, as_json: bool) -> bool:
    """Tell whether a person sits where they are asked and where they answer."""
    streams = (sys.stdin, sys.stderr)
    return not as_json and all(stream is not None and stream.isatty() for stream in streams)


def is_agreed(question: str, *, may_break: bool = False) -> bool:
    """Ask a person, on standard error; who breaks off, or has nothing more to say, does not agree.

    may_break: who breaks off with Ctrl-C raises KeyboardInterrupt instead.
    """
    import click

    try:
        return click.confirm(question, err=True)
    except click.Abort as broken:
        if may_break and isinstance(broken.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        return False


def must_agree(question: str, *, asks: bool, what: str, hint: str, why: str = "") -> None:
    """Ask a person, if somebody may be asked. Raises NOT_CONFIRMED, which says `what`, without a yes."""
    if not (asks and is_agreed(question)):
        raise LoomError("NOT_CONFIRMED", what, why=why, hint=hint, exit_code=EXIT_USAGE)


# ---- Errors.


def in_words(error: OSError, again: str) -> LoomError:
    """Make the one error that says what was refused, where, and what can be done. Code SYSTEM, exit 5.

    again: the command line to paste that shows where in Loom it happened, for what nothing better is known.
    """
    said = trouble.of(error)
    # What a full disk refuses in one piece is not kept in the stream; every file that Loom writes is named.
    if not said.where and (error.errno in _FULL or _is_stuck(sys.stdout)):
        said.where = "standard output"
        said.why = said.why or "the command did its work, but could not print the answer"
        said.hint = "df -h"
    said.hint = said.hint or again
    return said


def told(error: Exception, again: str) -> LoomError:
    """Make the one error that tells of whatever a command ended with. again: as above."""
    if isinstance(error, LoomError):
        return error
    return in_words(error, again) if isinstance(error, OSError) else bug(error, again)


def bug(error: Exception, again: str) -> LoomError:
    """Make the error of what no user did: code BUG, exit 70. again: as above."""
    why = "this is a bug in Loom, not your fault; please report it with the output of the --debug command below"
    return LoomError("BUG", f"{type(error).__name__}: {error}", why=why, hint=again, exit_code=EXIT_BUG)


def damage(error: ImportError) -> LoomError:
    """Make the error of what Loom runs with and cannot import. Code ENVIRONMENT_DAMAGED, exit 8 (D52)."""
    root = project.plugin_root()
    python = os.environ.get("LOOM_ENV_PYTHON", "")
    hint = trouble.new_environment(root, os.path.dirname(os.path.dirname(python))) if python else "loomctl doctor"
    if (error.name or "").partition(".")[0] == "loomctl":
        hint = trouble.repair(root, "loomctl")
    what = "a part of Loom's installation is missing or broken"
    why = f"{type(error).__name__}: {error}"
    where = error.path or sys.prefix
    return LoomError("ENVIRONMENT_DAMAGED", what, where=where, why=why, hint=hint, exit_code=EXIT_SETUP)


def fail(error: LoomError, *, as_json: bool) -> int:
    """Print an error where it belongs; where that takes nothing, on standard error; else the exit code says it all."""
    try:
        if as_json and not _is_stuck(sys.stdout):
            (event if _in_lines else document)({"error": error.to_dict()})
            return error.exit_code
    except OSError:
        pass
    try:
        note(f"loomctl: {error}")
    except OSError:
        pass
    return error.exit_code


def refuse_to_start(error: ImportError, arguments: list[str]) -> int:
    """Say that the command line cannot be started; gives its exit code."""
    prepare()
    code = fail(damage(error), as_json="--json" in arguments)
    finish()
    return code
