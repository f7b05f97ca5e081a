"""Reading Claude Code's transcript: which of Loom's slips stand live in it, and what the assistant said (D15, D27).

The file is the host's; every line is hostile until parsed, and an unknown shape is passed over.
"""

from __future__ import annotations

import os
import time

from loomctl.hosts.claude import entries
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id
from loomctl.runs.caller import Conversation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from loomctl.runs.caller import Sent

LARGEST = 512 * 1024 * 1024
NOTICE = "<task-notification>"  # how the prompt begins by which the host tells of a subagent's end
_COMMANDS = "/loom:"
_LONGEST_CHAIN = 50  # of notices that led to notices
_FOR_A_PROMPT = 3.0  # seconds; whether Loom drives a turn hangs on it
_FOR_A_FILE = 0.5  # seconds; a session that is kept in none is common, a file that late is not
_FOR_A_MESSAGE = 1.0  # seconds; without it the last block alone is known
_LOOKS_EVERY = 0.02
_INTERRUPTED = "[Request interrupted by user"
_MARK = "Loom slip "  # as priming.slip has it; not imported, for most hooks need nothing else of that


class Transcript(Conversation):
    """One session's transcript file; a path of None, or a file that is not there, holds nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._data: bytes | None = None

    def another(self, path: str | None) -> Transcript:
        """Give another session's transcript."""
        return Transcript(path)

    def kept_at(self, session_id: str) -> str | None:
        """Find where the host keeps another session's transcript."""
        return find(session_id)

    def called(self) -> Mapping[str, float]:
        """Give when hooks were last called, by event, as far as the end of the transcript shows it."""
        from loomctl.hosts.claude import calls  # no hook asks

        return calls.called(self._path)

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        """Tell which slip ids stand in the live part: after the last compaction (or kept by it), on the live branch.

        A slip's id counts where it is a line of its own in something that was given to the assistant, or the end of a
        text in JSON.
        """
        wanted = [slip for slip in slips if f"{_MARK}{slip}".encode("utf-8", "replace") in self._read()]
        if not wanted:
            return frozenset()
        lines = set[str]()
        for entry in self._live():
            lines.update(entries.marked_lines(entries.texts_of(entry), _MARK))
        return frozenset(slip for slip in wanted if f"{_MARK}{slip}" in lines)

    def sent(self, wanted: Collection[str], older: Collection[str], *, patience: float = 0) -> Sent | None:
        """Tell which slips and whole files stand before the assistant; None where there is no transcript.

        An older slip counts in the body of a command, too, that the host gave again.
        """
        from loomctl.runs.caller import Sent  # most hooks ask for less

        begun = time.monotonic()
        while True:
            lines, bodies = set[str](), set[str]()
            copies: dict[str, list[str]] = {}
            again: dict[str, str] = {}
            for entry in self._live():
                lines.update(entries.marked_lines(entries.texts_of(entry), _MARK))
                bodies.update(entries.marked_lines(entries.bodies_of(entry), _MARK))
                given = {_real(path): text for path, text in entries.files_given_again(entry).items()}
                again = {**given, **again}
                read = {_real(path): text for path, text in entries.file_read(entry).items()}
                for path, text in (*given.items(), *read.items()):
                    copies.setdefault(path, []).append(text)
            if all(f"{_MARK}{slip}" in lines for slip in wanted) or not self._grows(begun + patience):
                break
        if not self._read():
            return None
        found = {slip for slip in wanted if f"{_MARK}{slip}" in lines}
        found.update(slip for slip in older if f"{_MARK}{slip}" in lines or f"{_MARK}{slip}" in bodies)
        return Sent(frozenset(found), copies, again)

    def _grows(self, until: float) -> bool:
        """Wait until the host has written more, no longer than to a time of the clock; tells whether it has."""
        while self._path and time.monotonic() < until:
            time.sleep(_LOOKS_EVERY)
            if self._size() != len(self._read()):
                self._data = None
                return True
        return False

    def said_since(self, at: str) -> str | None:
        """Give the assistant's text blocks since a time, joined; None if there is no transcript or it said nothing.

        What was said on a branch that was left by a rewind does not count.
        """
        data, since = self._read(), entries.moment(at)
        found: list[dict[str, Any]] = []
        whole = True
        for entry in entries.backwards(data):
            whole = not (entries.is_said(entry) and entries.text(entry, "timestamp") < since)
            if not whole:
                break
            found.append(entry)
        found.reverse()
        boundary = max((place for place, entry in enumerate(found) if entries.is_boundary(entry)), default=0)
        said = [
            text
            for entry in (*found[:boundary], *entries.live(found[boundary:], whole=whole or boundary > 0))
            if entries.is_said(entry) and entries.text(entry, "timestamp") >= since
            for text in entries.blocks(entry, "text")
            if text.strip()
        ]
        return "\n\n".join(said) or None

    def interrupted_at(self) -> float:
        """Give when its user last broke a turn off, or refused a call, in seconds since 1970; 0 if they never did.

        No hook fires then, and the host writes it down.
        """
        from loomctl.kit import clock  # no hook asks

        for entry in entries.backwards(self._read(), holding=_INTERRUPTED.encode()):
            words = entries.blocks(entry, "text")
            if entries.is_prompt(entry) and any(text.startswith(_INTERRUPTED) for text in words):
                return clock.exact_seconds_of(entries.text(entry, "timestamp"))
        return 0

    def called_at(self) -> float:
        """Give when its assistant last called a tool, in seconds since 1970; 0 where that is not known.

        Hooks mark it, but none fires any more where the plugin was switched off.
        """
        from loomctl.kit import clock  # no hook asks

        for entry in entries.backwards(self._read(), holding=b'"tool_use"'):
            if entries.is_said(entry) and entries.calls(entry):
                return clock.exact_seconds_of(entries.text(entry, "timestamp"))
        return 0

    def await_turn(self, prompt_id: str, ending: str) -> None:
        """Wait until the host has written down what it calls a Stop hook for: it writes later than it calls.

        prompt_id: the turn's, "" where it is not told; ending: the last text block of the assistant's message. Ends
        after some seconds in any case, for a host may write down neither.
        """
        begun = time.monotonic()
        while self._path and time.monotonic() - begun < self._patience(prompt_id, ending):
            time.sleep(_LOOKS_EVERY)
            if self._size() != len(self._read()):
                self._data = None

    def _patience(self, prompt_id: str, ending: str) -> float:
        """Give for how many seconds what is not written down is waited for; 0 where nothing is."""
        data = self._read()
        if not data:
            return _FOR_A_FILE
        if prompt_id and not entries.is_turn_in(data, prompt_id):
            return _FOR_A_PROMPT
        return _FOR_A_MESSAGE if ending.strip() and not entries.ends_with(data, ending) else 0.0

    def _size(self) -> int:
        try:
            return os.stat(self._path or "").st_size
        except (OSError, ValueError):  # a name that no file can have
            return 0

    def last_message(self, ending: str) -> str:
        """Give the whole last message of the assistant, whose last text block is `ending`; else `ending` itself.

        The host hands a Stop hook the last block only; blocks of one message stand on lines of their own.
        """
        data = self._read()
        blocks: list[str] = []
        ids: set[object] = set()
        for entry in entries.backwards(data, entries.last_boundary(data), holding=b'"assistant"'):
            if not entries.is_said(entry):
                continue
            message = entry.get("message")
            ids.add(entries.text(message, "id") if isinstance(message, dict) else "")
            if len(ids) > 1:
                break
            blocks[:0] = entries.blocks(entry, "text")
        return "\n\n".join(blocks) if blocks and blocks[-1].strip() == ending.strip() else ending

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:
        """Give the models and tokens of the assistant's messages since a time, each counted once (D41).

        beside: other transcripts, of which one may be a fork and hold the same messages.
        """
        used: dict[str, dict[str, Any]] = {}
        for one in (*beside, self):
            if isinstance(one, Transcript):
                used.update(one._used_since(at))  # noqa: SLF001 - of its own kind
        return entries.summed(list(used.values()))

    def _used_since(self, at: str) -> dict[str, dict[str, Any]]:
        """Give the assistant's messages since a time by their ids, the first one first."""
        used: dict[str, dict[str, Any]] = {}
        for entry in entries.backwards(self._read()):
            if "message" not in entry or not entries.is_said(entry):
                continue
            if entries.text(entry, "timestamp") < entries.moment(at):
                break
            message = entry["message"]
            if not isinstance(message, dict) or entries.text(message, "model") == entries.HOSTS_OWN:
                continue
            if isinstance(message.get("usage"), dict):
                used.setdefault(entries.text(message, "id") or entries.text(entry, "uuid"), message)
        return dict(reversed(used.items()))

    def began_with_loom(self, prompt_id: str, driven: Collection[str], unwritten: str = "") -> bool:
        """Tell whether a turn began with a Loom command, or with the notice that a subagent of a driven turn ended.

        driven: the prompt ids of turns that are known to be driven; unwritten: the turn's prompt, which the host may
        write down later than it calls hooks.
        """
        for _ in range(_LONGEST_CHAIN):
            if prompt_id in driven:
                return True
            start, words = self._prompt(prompt_id)
            if unwritten and not words:
                start, words = len(self._read()), unwritten.lstrip()
            unwritten = ""
            if not words.startswith(NOTICE):
                return words.startswith("<command-") and f"<command-name>{_COMMANDS}" in words
            called = entries.between(words, "<tool-use-id>", "</tool-use-id>")
            prompt_id = self._prompt_before(self._call(called) if called else start)
        return False

    def _prompt(self, prompt_id: str) -> tuple[int, str]:
        """Find the prompt of a turn: where its line begins, and its words; (0, "") where it is not there."""
        data, mark = self._read(), prompt_id.encode("utf-8", "replace")
        at = data.find(mark) if mark else -1
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            entry = entries.line_at(data, start)
            if entries.text(entry, "promptId") == prompt_id and entries.is_prompt(entry):
                return start, "\n".join(entries.blocks(entry, "text")).lstrip()
            end = data.find(b"\n", at)
            at = data.find(mark, end) if end >= 0 else -1
        return 0, ""

    def _call(self, called: str) -> int:
        """Find where the line of a tool call begins; 0 where it is not there."""
        data, mark = self._read(), called.encode("utf-8", "replace")
        at = data.find(mark)
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            entry = entries.line_at(data, start)
            if entries.is_said(entry) and called in entries.calls(entry):
                return start
            end = data.find(b"\n", at)
            at = data.find(mark, end) if end >= 0 else -1
        return 0

    def _prompt_before(self, end: int) -> str:
        """Give the id of the last prompt before a place; "" where there is none."""
        for entry in entries.backwards(self._read()[:end]):
            if entries.text(entry, "promptId") and entries.is_prompt(entry):
                return entries.text(entry, "promptId")
        return ""

    def boundary(self) -> str | None:
        """Name the last compaction by its entry's uuid; None if there was none."""
        data = self._read()
        start = entries.last_boundary(data)
        return entries.text(entries.line_at(data, start), "uuid") or "boundary" if start >= 0 else None

    def _live(self) -> list[dict[str, Any]]:
        """Give what the assistant has before it: the entries since the last compaction, and those that it kept."""
        data = self._read()
        start = entries.last_boundary(data)
        if start < 0:
            return entries.live(entries.parsed(data))
        kept = entries.kept_by(entries.line_at(data, start))
        before = entries.parsed(data[:start]) if kept else ()
        return [entry for entry in before if entries.text(entry, "uuid") in kept] + entries.live(
            entries.parsed(data[start:])
        )

    def _read(self) -> bytes:
        if self._data is None:
            try:
                self._data = files.read_bytes(self._path, limit=LARGEST) if self._path else b""
            except (OSError, ValueError, LoomError):
                self._data = b""
        return self._data


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a name that no file can have
        return path


def find(session_id: str) -> str | None:
    """Find a session's transcript where the host keeps them: `projects/*/{session_id}.jsonl` of its folder.

    Of several the newest; None where there is none, or no file can have its name.
    """
    folder = host_folder()
    base = os.path.join(folder, "projects")
    try:
        name = checked_id(session_id, what="session id") + ".jsonl"
        folders = os.listdir(base) if folder else []
    except (OSError, LoomError):
        return None
    paths = [os.path.join(base, one, name) for one in folders]
    found = [(at, path) for path in paths if (at := _written(path)) is not None]
    return max(found)[1] if found else None


def host_folder() -> str:
    """Give the folder of Claude Code's settings and transcripts: CLAUDE_CONFIG_DIR, else `~/.claude`; "" without."""
    from loomctl.kit import folders  # no hook asks

    home = folders.home()
    return os.environ.get("CLAUDE_CONFIG_DIR") or (os.path.join(home, ".claude") if home else "")


def _written(path: str) -> float | None:
    """Give when a plain file was last written; None for what is none, or is gone."""
    try:
        return os.path.getmtime(path) if os.path.isfile(path) else None
    except OSError:
        return None
