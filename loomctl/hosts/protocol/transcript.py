"""Claude Code's transcript: which of Loom's slips stand before the assistant, and what was said and done (D15, D27).

The file is the host's: every line is hostile until parsed, and an unknown shape is passed over.
"""

from __future__ import annotations

import os
import time

from loomctl.runs.project import Conversation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from loomctl.kit.json_lines import JsonLines
    from loomctl.runs.project import Sent

_NOTICE = "<task-notification>"  # begins the prompt by which the host tells of a subagent's end
_COMMANDS = "/loom:"
_LONGEST_CHAIN = 50  # of notices that led to notices
_FOR_A_PROMPT = 3.0  # seconds; whether Loom drives a turn hangs on it
_FOR_A_FILE = 0.5  # seconds; a session that is kept in none is common, a file that late is not
_FOR_A_MESSAGE = 1.0  # seconds; without it the last block alone is known
_LOOKS_EVERY = 0.02
_CLOSE = (
    8 * 1024 * 1024
)  # bytes; further back from the end, or from the next line of it, no line of a turn is looked for
_INTERRUPTED = "[Request interrupted by user"
MARK = "Loom slip "  # as priming.slip has it; not imported, for most hooks need nothing else of that
_HOSTS_OWN = "<synthetic>"  # the model of a message that the host wrote itself, such as an error of its API
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_BOUNDARY = b'"compact_boundary"'


class Recorded(Conversation):
    """A conversation of which a host writes a file; a path of None, or one that is not there, holds nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._lines: JsonLines | None = None

    def another(self, path: str | None, host: str = "") -> Conversation:
        """Give another session's conversation, of whatever host."""
        return self.of_host(host, path) if host and self.of_host else type(self)(path)

    def _grows(self, until: float) -> bool:
        """Wait until the host has written more, no longer than to a time of the clock; tells whether it has."""
        while self._path and time.monotonic() < until:
            time.sleep(_LOOKS_EVERY)
            try:
                size = os.stat(self._path).st_size
            except (OSError, ValueError):  # a name that no file can have
                size = 0
            if size != len(self._read()):
                self._lines = None
                return True
        return False

    def _read(self) -> JsonLines:
        if self._lines is None:
            from loomctl.kit import json_lines  # most hooks ask nothing of it

            self._lines = json_lines.JsonLines(self._path)
        return self._lines


class Transcript(Recorded):
    """One session's transcript file."""

    def kept_at(self, session_id: str) -> str | None:
        """Find where the host keeps another session's transcript."""
        from loomctl.hosts.setup import claude  # most hooks ask for their own session alone

        return claude.transcript_of(session_id)

    def called(self) -> Mapping[str, float]:
        """Give when hooks were last called, by event, as far as the end of the transcript shows it."""
        from loomctl.hosts.setup import claude  # no hook asks

        return claude.calls_of(self._path)

    def holds(self, slips: Collection[str]) -> frozenset[str]:
        """Tell which slip ids stand in the live part: after the last compaction (or kept by it), on the live branch.

        A slip's id counts where it is a line of its own in something that was given to the assistant, or the end of a
        text in JSON.
        """
        stand: frozenset[str] = frozenset()
        start, boundary = _last_boundary(self._read())
        for _, entry in self._read().back(0 if _kept(boundary) else max(0, start), holding=MARK.encode()):
            stand |= marks_in(_given(entry)).intersection(slips)
            if stand.issuperset(slips):
                break
        return stand and marks_in(text for entry in self._live() for text in _given(entry)).intersection(stand)

    def sent(self, wanted: Collection[str], older: Collection[str], *, patience: float = 0) -> Sent | None:
        """Tell which slips and whole files stand before the assistant; None where there is no transcript.

        An older slip counts in the body of a command, too, that the host gave again.
        """
        from loomctl.runs.project import Sent  # most hooks ask for less

        begun = time.monotonic()
        while True:
            live = self._live()
            marks = marks_in(text for entry in live for text in _given(entry))
            if marks.issuperset(wanted) or not self._grows(begun + patience):
                break
        if not self._read():
            return None
        copies: dict[str, list[str]] = {}
        again: dict[str, str] = {}
        for entry in live:
            given = {_real(path): text for path, text in _files_given_again(entry).items()}
            again = {**given, **again}
            read = {_real(path): text for path, text in _file_read(entry).items()}
            for path, text in (*given.items(), *read.items()):
                copies.setdefault(path, []).append(text)
        bodies = marks_in(text for entry in live for text in _bodies(entry))
        return Sent(marks.intersection(wanted) | (marks | bodies).intersection(older), copies, again)

    def said_since(self, at: str) -> str | None:
        """Give the assistant's text blocks since a time, joined; None if there is no transcript or it said nothing.

        What was said on a branch that was left by a rewind does not count.
        """
        later: list[dict[str, Any]] = []
        since, whole = _moment(at), True
        for _, entry in self._read().back():
            whole = not (_is_said(entry) and _text(entry, "timestamp") < since)
            if not whole:
                break
            later.append(entry)
        later.reverse()
        boundary = max((place for place, entry in enumerate(later) if _is_boundary(entry)), default=0)
        said = [
            text
            for entry in (*later[:boundary], *_on_the_line(later[boundary:], whole=whole or boundary > 0))
            if _is_said(entry) and _text(entry, "timestamp") >= since
            for text in _blocks(entry, "text")
            if text.strip()
        ]
        return "\n\n".join(said) or None

    def interrupted_at(self) -> float:
        """Give when its user last broke a turn off, or refused a call, in seconds since 1970; 0 if they never did.

        No hook fires then, and the host writes it down.
        """
        for _, entry in self._read().back(holding=_INTERRUPTED.encode()):
            if _is_prompt(entry) and any(text.startswith(_INTERRUPTED) for text in _blocks(entry, "text")):
                return _seconds(entry)
        return 0

    def refused(self) -> list[str]:
        """Name the tools of which a call was refused since the last prompt; no hook tells of that."""
        found: dict[str, None] = {}
        names: dict[str, str] = {}
        refused: list[str] = []
        for _, entry in self._read().back():
            if _is_prompt(entry):
                break
            if entry.get("toolDenialKind"):
                refused += _results(entry)
            names |= _called(entry)
        for call in refused:
            found[names.get(call, "a tool")] = None
        return list(found)

    def called_at(self) -> float:
        """Give when its assistant last called a tool, in seconds since 1970; 0 where that is not known.

        Hooks mark it, but none fires any more where the plugin was switched off.
        """
        for _, entry in self._read().back(holding=b'"tool_use"'):
            if _is_said(entry) and _calls(entry):
                return _seconds(entry)
        return 0

    def await_turn(self, prompt_id: str, ending: str) -> None:
        """Wait until the host has written down what it calls a Stop hook for: it writes later than it calls.

        prompt_id: the turn's, "" where it is not told; ending: the last text block of the assistant's message. Ends
        after some seconds in any case, for a host may write down neither.
        """
        begun = time.monotonic()
        while self._grows(begun + self._patience(prompt_id, ending)):
            pass

    def _patience(self, prompt_id: str, ending: str) -> float:
        lines = self._read()
        if not lines:
            return _FOR_A_FILE
        if prompt_id and self._line_with(prompt_id, _is_of)[1] is None:
            return _FOR_A_PROMPT
        return _FOR_A_MESSAGE if ending.strip() and not _ends_with(lines, ending) else 0.0

    def last_message(self, ending: str) -> str:
        """Give the whole last message of the assistant, whose last text block is `ending`; else `ending` itself.

        The host hands a Stop hook the last block only; blocks of one message stand on lines of their own.
        """
        blocks: list[str] = []
        ids: set[object] = set()
        start = max(0, _last_boundary(self._read())[0])
        for _, entry in self._read().back(start, holding=b'"assistant"'):
            if not _is_said(entry):
                continue
            ids.add(_text(_message(entry), "id"))
            if len(ids) > 1:
                break
            blocks[:0] = _blocks(entry, "text")
        return "\n\n".join(blocks) if blocks and blocks[-1].strip() == ending.strip() else ending

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:
        """Give the models and tokens of the assistant's messages since a time, each counted once (D41).

        beside: other transcripts, of which one may be a fork and hold the same messages.
        """
        used: dict[str, dict[str, Any]] = {}
        for one in (*beside, self):
            if isinstance(one, Transcript):
                used.update(one._used_since(_moment(at)))  # noqa: SLF001 - of its own kind
        if not used:
            return None
        models = dict.fromkeys(_text(message, "model") for message in used.values())
        total: dict[str, Any] = {"models": [model for model in models if model], "messages": len(used)}
        for name in _TOKENS:
            counts = (message["usage"].get(name) for message in used.values())
            total[name] = sum(count for count in counts if type(count) is int and count > 0)
        return total

    def _used_since(self, at: str) -> dict[str, dict[str, Any]]:
        used: dict[str, dict[str, Any]] = {}
        for _, entry in self._read().back():
            if "message" not in entry or not _is_said(entry):
                continue
            if _text(entry, "timestamp") < at:
                break
            message = _message(entry)
            if isinstance(message.get("usage"), dict) and _text(message, "model") != _HOSTS_OWN:
                used.setdefault(_text(message, "id") or _text(entry, "uuid"), message)
        return dict(reversed(used.items()))

    def began_with_loom(self, prompt_id: str, driven: Collection[str], unwritten: str = "") -> bool:
        """Tell whether a turn began with a Loom command, or with the notice that a subagent of a driven turn ended.

        driven: the prompt ids of turns that are known to be driven; unwritten: the turn's prompt, which the host may
        write down later than it calls hooks.
        """
        for _ in range(_LONGEST_CHAIN):
            if prompt_id in driven:
                return True
            start, entry = self._line_with(prompt_id, lambda one, turn: _is_of(one, turn) and _is_prompt(one))
            words = "\n".join(_blocks(entry or {}, "text")).lstrip()
            if unwritten and not words:
                start, words = len(self._read()), unwritten.lstrip()
            unwritten = ""
            if not self.is_notice(words):
                return words.startswith("<command-") and f"<command-name>{_COMMANDS}" in words
            end = "</tool-use-id>"
            called = words.partition("<tool-use-id>")[2].partition(end)[0].strip() if end in words else ""
            if called:
                start = self._line_with(called, lambda one, call: _is_said(one) and call in _calls(one))[0]
            before = (_text(one, "promptId") for _, one in self._read().back(end=start) if _is_prompt(one))
            prompt_id = next(filter(None, before), "")
        return False

    def is_notice(self, prompt: str) -> bool:
        """Tell a prompt that is the host's own notice of a subagent's end."""
        return prompt.startswith(_NOTICE)

    def _line_with(self, word: str, fits: Callable[[dict[str, Any], str], bool]) -> tuple[int, dict[str, Any] | None]:
        """Find the first whole line that has a word and whose entry fits: where it begins; (0, None) without one.

        What is asked for is mostly near the end, and lines with its word near each other.
        """
        lines, mark = self._read(), word.encode("utf-8", "replace")
        near = len(lines) if mark else 0
        while near and (before := lines.rfind(mark, max(0, near - _CLOSE), near)) >= 0:
            near = before
        for begins in (near, 0) if mark else ():
            at = lines.find(mark, begins)
            while at >= 0:
                start, entry = lines.line_around(at)
                if fits(entry or {}, word):
                    return start, entry
                end = lines.find(b"\n", at)
                at = lines.find(mark, end) if end >= 0 else -1
        return 0, None

    def boundary(self) -> str | None:
        """Name the last compaction by its entry's uuid; None if there was none."""
        start, entry = _last_boundary(self._read())
        return _text(entry, "uuid") or "boundary" if start >= 0 else None

    def _live(self) -> list[dict[str, Any]]:
        """Give what the assistant has before it: the entries since the last compaction, and those that it kept."""
        lines = self._read()
        start, boundary = _last_boundary(lines)
        if start < 0:
            return _on_the_line(lines.since())
        uuids = _kept(boundary)
        kept: list[dict[str, Any]] = []
        for _, entry in lines.back(end=start) if uuids else ():
            if _text(entry, "uuid") in uuids:
                uuids.remove(_text(entry, "uuid"))
                kept.append(entry)
                if not uuids:
                    break
        return kept[::-1] + _on_the_line(lines.since(start))


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a name that no file can have
        return path


def _on_the_line(given: Iterable[dict[str, Any]], *, whole: bool = True) -> list[dict[str, Any]]:
    """Leave out what stands on a branch that was left by a rewind.

    Each entry names its parent. A prompt that is not an ancestor of the last entry was left, and all that hangs from
    it, and so was what leads to it from where the line goes another way, such as a hook's text before it; parallel
    tool results hang beside the line, lead to nothing and stay. whole: they begin where the conversation does; else
    what hangs from none of them, and is no ancestor, was left too.
    """
    known = list(given)
    by_id = {_text(entry, "uuid"): entry for entry in known}
    line = {""}
    in_the_tree = (e for e in reversed(known) if _text(e, "uuid") and not e.get("isSidechain") and "parentUuid" in e)
    at = next(in_the_tree, None)
    while at is not None and _text(at, "uuid") not in line:
        line.add(_text(at, "uuid"))
        at = by_id.get(_text(at, "parentUuid"))
    left = set() if whole else {_text(entry, "parentUuid") for entry in known} - by_id.keys() - {""}
    for entry in known:
        uuid = _text(entry, "uuid")
        if uuid not in line and _is_prompt(entry):
            while uuid in by_id and uuid not in line and uuid not in left:
                left.add(uuid)
                uuid = _text(by_id[uuid], "parentUuid")
    stay: list[dict[str, Any]] = []
    for entry in known:
        uuid = _text(entry, "uuid")
        if uuid not in line and (uuid in left or _text(entry, "parentUuid") in left):
            left.add(uuid)
        else:
            stay.append(entry)
    return stay


def _given(entry: dict[str, Any]) -> list[str]:
    """Give the texts of an entry that were given to the model: hook output, commands, tool results, prompts."""
    attachment = entry.get("attachment")
    if entry.get("type") == "attachment" and isinstance(attachment, dict):
        if attachment.get("type") not in ("hook_additional_context", "hook_success"):
            return []
        content = attachment.get("content")
        return [part for part in (content if isinstance(content, list) else [content]) if isinstance(part, str)]
    if entry.get("type") != "user" or entry.get("isSidechain"):
        return []
    return _blocks(entry, "text") + _blocks(entry, "tool_result")


def marks_in(texts: Iterable[str]) -> frozenset[str]:
    """Give the ids of slips in texts, each a line of its own; of a text in JSON, whose lines have no ends, the last."""
    marks: set[str] = set()
    for text in texts:
        if MARK in text:
            marks.update(line[len(MARK) :] for line in text.split("\n") if line.startswith(MARK))
            _, escaped, last = text.rpartition(f"\\n{MARK}")
            marks |= {last.partition('"')[0]} if escaped else set()
    return frozenset(marks)


def _bodies(entry: dict[str, Any]) -> list[str]:
    """Give the bodies of commands and skills that a host gives again as it compacts a conversation, as they were."""
    skills = _attached(entry, "invoked_skills").get("skills")
    return [str(one.get("content")) for one in (skills if isinstance(skills, list) else ()) if isinstance(one, dict)]


def _files_given_again(entry: dict[str, Any]) -> dict[str, str]:
    """Give the whole files of an entry of the host's own: what was Read before, and what its memory imports."""
    content = _attached(entry, "file").get("content")
    found = _whole_file(content.get("file")) if isinstance(content, dict) else {}
    listed = _attached(entry, "instructions").get("files")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("content"), str):
            found[_text(one, "path")] = one["content"]
    return found


def _file_read(entry: dict[str, Any]) -> dict[str, str]:
    result = entry.get("toolUseResult")
    return _whole_file(result.get("file")) if isinstance(result, dict) and not entry.get("isSidechain") else {}


def _whole_file(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict) or raw.get("startLine", 1) != 1 or raw.get("numLines") != raw.get("totalLines"):
        return {}
    return {_text(raw, "filePath"): raw["content"]} if isinstance(raw.get("content"), str) else {}


def _attached(entry: dict[str, Any], kind: str) -> dict[str, Any]:
    attachment = entry.get("attachment") if entry.get("type") == "attachment" else None
    return attachment if isinstance(attachment, dict) and attachment.get("type") == kind else {}


def _message(entry: dict[str, Any]) -> dict[str, Any]:
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def _blocks(entry: dict[str, Any], kind: str) -> list[str]:
    content = _message(entry).get("content")
    if isinstance(content, str):
        return [content] if kind == "text" else []
    texts: list[str] = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == kind:
            value = block.get("text") if kind == "text" else block.get("content")
            parts = value if isinstance(value, list) else [value]
            words = [part.get("text") if isinstance(part, dict) else part for part in parts]
            texts += [text for text in words if isinstance(text, str)]
    return texts


def _moment(at: str) -> str:
    """Give a time in the form that is held against the host's, which has milliseconds and a Z."""
    return at[:23].removesuffix("Z")


def _seconds(entry: dict[str, Any]) -> float:
    from loomctl.kit import clock  # no hook asks

    return clock.exact_seconds_of(_text(entry, "timestamp"))


def _calls(entry: dict[str, Any]) -> list[str]:
    return list(_called(entry))


def _called(entry: dict[str, Any]) -> dict[str, str]:
    return {str(block.get("id")): str(block.get("name")) for block in _blocks_of(entry, "tool_use")}


def _results(entry: dict[str, Any]) -> list[str]:
    return [str(block.get("tool_use_id")) for block in _blocks_of(entry, "tool_result")]


def _blocks_of(entry: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = _message(entry).get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == kind]


def _is_prompt(entry: dict[str, Any]) -> bool:
    """Tell a person's prompt from tool results and the host's own additions, which carry the `user` type too."""
    apart = ("isMeta", "isSidechain", "isCompactSummary")
    return (
        entry.get("type") == "user"
        and not any(entry.get(key) for key in apart)
        and "toolUseResult" not in entry
        and not _blocks(entry, "tool_result")
    )


def _is_said(entry: dict[str, Any]) -> bool:
    """Tell whether an entry is the conversation's own: no subagent's, and not the host's in the assistant's name.

    The host writes such ones where a turn was broken off ("No response requested."), as of the model `<synthetic>`.
    """
    said = entry.get("type") == "assistant" and not entry.get("isSidechain")
    return said and _message(entry).get("model") != _HOSTS_OWN


def _is_of(entry: dict[str, Any], turn: str) -> bool:
    return _text(entry, "promptId") == turn


def _is_boundary(entry: dict[str, Any]) -> bool:
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _last_boundary(lines: JsonLines) -> tuple[int, dict[str, Any]]:
    """Find the last compaction's entry, and where its line begins; -1 if there is none."""
    found = ((at, entry) for at, entry in lines.back(holding=_BOUNDARY) if _is_boundary(entry))
    return next(found, (-1, {}))


def _kept(boundary: dict[str, Any]) -> set[str]:
    """Give the ids of earlier entries that a compaction kept."""
    metadata = boundary.get("compactMetadata")
    messages = metadata.get("preservedMessages") if isinstance(metadata, dict) else None
    listed = messages.get("allUuids") or messages.get("uuids") if isinstance(messages, dict) else None
    return {uuid for uuid in listed if isinstance(uuid, str)} if isinstance(listed, list) else set()


def _ends_with(lines: JsonLines, ending: str) -> bool:
    """Tell whether the last that was said to or by the assistant is a message of its own with this last text block."""
    for _, entry in lines.back():
        if entry.get("type") in ("assistant", "user") and not entry.get("isSidechain"):
            said = _blocks(entry, "text") if entry["type"] == "assistant" else []
            return bool(said) and said[-1].strip() == ending.strip()
    return False
