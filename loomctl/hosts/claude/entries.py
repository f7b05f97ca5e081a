"""The entries of Claude Code's transcript: what each line is, and which of them stand before the assistant.

Pure: every line is hostile until parsed, and an unknown shape is passed over.
"""

from __future__ import annotations

from loomctl.kit.json import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

HOSTS_OWN = "<synthetic>"  # the model of a message that the host wrote itself, such as an error of its API
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_BOUNDARY = b'"compact_boundary"'


def live(given: Iterable[dict[str, Any]], *, whole: bool = True) -> list[dict[str, Any]]:
    """Leave out what stands on a branch that was left by a rewind.

    Each entry names its parent. A prompt that is not an ancestor of the last entry was left, and all that hangs from
    it, and so was what leads to it from where the line goes another way, such as a hook's text before it; parallel
    tool results hang beside the line, lead to nothing and stay. whole: they begin where the conversation does; else
    what hangs from none of them, and is no ancestor, was left too.
    """
    known = list(given)
    by_id = {text(entry, "uuid"): entry for entry in known}
    line = {""}
    at = next((entry for entry in reversed(known) if _in_the_tree(entry)), None)
    while at is not None and text(at, "uuid") not in line:
        line.add(text(at, "uuid"))
        at = by_id.get(text(at, "parentUuid"))
    left = set() if whole else {text(entry, "parentUuid") for entry in known} - by_id.keys() - {""}
    for entry in known:
        uuid = text(entry, "uuid")
        if uuid not in line and is_prompt(entry):
            while uuid in by_id and uuid not in line and uuid not in left:
                left.add(uuid)
                uuid = text(by_id[uuid], "parentUuid")
    found: list[dict[str, Any]] = []
    for entry in known:
        uuid = text(entry, "uuid")
        if uuid not in line and (uuid in left or text(entry, "parentUuid") in left):
            left.add(uuid)
        else:
            found.append(entry)
    return found


def texts_of(entry: dict[str, Any]) -> list[str]:
    """Give the texts of an entry that were given to the model: hook output, commands, tool results, prompts."""
    attachment = entry.get("attachment")
    if entry.get("type") == "attachment" and isinstance(attachment, dict):
        if attachment.get("type") not in ("hook_additional_context", "hook_success"):
            return []
        content = attachment.get("content")
        return [part for part in (content if isinstance(content, list) else [content]) if isinstance(part, str)]
    if entry.get("type") != "user" or entry.get("isSidechain"):
        return []
    return blocks(entry, "text") + blocks(entry, "tool_result")


def marked_lines(texts: Iterable[str], mark: str) -> set[str]:
    """Give the lines that begin with a mark; of a text in JSON, where a line's end is two signs, the last one too."""
    found: set[str] = set()
    for one in texts:
        if mark not in one:
            continue
        found.update(line for line in one.split("\n") if line.startswith(mark))
        _, escaped, last = one.rpartition(f"\\n{mark}")
        if escaped:
            found.add(mark + last.partition('"')[0])
    return found


def bodies_of(entry: dict[str, Any]) -> list[str]:
    """Give the bodies of commands and skills that a host gives again as it compacts a conversation, as they were."""
    skills = _attached(entry, "invoked_skills").get("skills")
    return [str(one.get("content")) for one in (skills if isinstance(skills, list) else ()) if isinstance(one, dict)]


def files_given_again(entry: dict[str, Any]) -> dict[str, str]:
    """Give the whole files of an entry of the host's own: what was Read before, and what its memory imports."""
    content = _attached(entry, "file").get("content")
    found = _whole_file(content.get("file")) if isinstance(content, dict) else {}
    listed = _attached(entry, "instructions").get("files")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("content"), str):
            found[text(one, "path")] = one["content"]
    return found


def file_read(entry: dict[str, Any]) -> dict[str, str]:
    """Give the whole file of a Read's result, by its absolute path."""
    result = entry.get("toolUseResult")
    return _whole_file(result.get("file")) if isinstance(result, dict) and not entry.get("isSidechain") else {}


def _whole_file(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict) or raw.get("startLine", 1) != 1 or raw.get("numLines") != raw.get("totalLines"):
        return {}
    return {text(raw, "filePath"): raw["content"]} if isinstance(raw.get("content"), str) else {}


def _attached(entry: dict[str, Any], kind: str) -> dict[str, Any]:
    attachment = entry.get("attachment")
    found = entry.get("type") == "attachment" and isinstance(attachment, dict) and attachment.get("type") == kind
    return attachment if found and isinstance(attachment, dict) else {}


def blocks(entry: dict[str, Any], kind: str) -> list[str]:
    """Give the texts of a message's blocks of a kind, `text` or `tool_result`."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [content] if kind == "text" else []
    found: list[str] = []
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, dict) or block.get("type") != kind:
            continue
        value = block.get("text") if kind == "text" else block.get("content")
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            words = part.get("text") if isinstance(part, dict) else part
            if isinstance(words, str):
                found.append(words)
    return found


def summed(messages: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Add up what messages used: `{models, messages, input_tokens, …}`; None for no message."""
    if not messages:
        return None
    models = dict.fromkeys(text(message, "model") for message in messages)
    total: dict[str, Any] = {"models": [model for model in models if model], "messages": len(messages)}
    for name in _TOKENS:
        counts = (message["usage"].get(name) for message in messages)
        total[name] = sum(count for count in counts if type(count) is int and count > 0)
    return total


def moment(at: str) -> str:
    """Give a time in the form that is held against the host's, which has milliseconds and a Z."""
    return at[:23].removesuffix("Z")


def calls(entry: dict[str, Any]) -> list[str]:
    """Give the ids of the tool calls in an entry of the assistant's."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    found = content if isinstance(content, list) else []
    return [str(block.get("id")) for block in found if isinstance(block, dict) and block.get("type") == "tool_use"]


def between(words: str, begin: str, end: str) -> str:
    """Give what stands between two marks; empty where they do not stand there."""
    return words.partition(begin)[2].partition(end)[0].strip() if end in words else ""


def is_prompt(entry: dict[str, Any]) -> bool:
    """Tell a person's prompt from tool results and the host's own additions, which carry the `user` type too."""
    return (
        entry.get("type") == "user"
        and not entry.get("isMeta")
        and not entry.get("isSidechain")
        and not entry.get("isCompactSummary")
        and "toolUseResult" not in entry
        and not blocks(entry, "tool_result")
    )


def is_said(entry: dict[str, Any]) -> bool:
    """Tell whether an entry is the conversation's own: no subagent's, and not the host's in the assistant's name.

    The host writes such ones where a turn was broken off ("No response requested."), as of the model `<synthetic>`.
    """
    if entry.get("type") != "assistant" or entry.get("isSidechain"):
        return False
    message = entry.get("message")
    return not (isinstance(message, dict) and message.get("model") == HOSTS_OWN)


def _in_the_tree(entry: dict[str, Any]) -> bool:
    return bool(text(entry, "uuid")) and not entry.get("isSidechain") and "parentUuid" in entry


def text(entry: dict[str, Any], key: str) -> str:
    """Give a text of an entry; empty where it has none."""
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def last_boundary(data: bytes) -> int:
    """Find the start of the last line that is a compaction's entry; -1 if there is none."""
    at = len(data)
    while True:
        at = data.rfind(_BOUNDARY, 0, at)
        if at < 0:
            return -1
        start = data.rfind(b"\n", 0, at) + 1
        if is_boundary(line_at(data, start)):
            return start
        at = start


def is_turn_in(data: bytes, prompt_id: str) -> bool:
    """Tell whether a whole line is of a turn: its prompt is the first that is."""
    mark = prompt_id.encode("utf-8", "replace")
    at = data.find(mark)
    while at >= 0:
        end = data.find(b"\n", at)
        if end < 0:
            return False
        if text(line_at(data, data.rfind(b"\n", 0, at) + 1), "promptId") == prompt_id:
            return True
        at = data.find(mark, end)
    return False


def ends_with(data: bytes, ending: str) -> bool:
    """Tell whether the last that was said to or by the assistant is a message of its own with this last text block."""
    for entry in backwards(data):
        if entry.get("type") in ("assistant", "user") and not entry.get("isSidechain"):
            said = blocks(entry, "text") if entry["type"] == "assistant" else []
            return bool(said) and said[-1].strip() == ending.strip()
    return False


def line_at(data: bytes, start: int) -> dict[str, Any]:
    """Give the entry of the line that begins at a place; empty where it is none."""
    end = data.find(b"\n", start)
    return _parsed(data[start : end if end >= 0 else len(data)]) or {}


def parsed(data: bytes) -> Iterator[dict[str, Any]]:
    """Give the entries, oldest first."""
    for line in data.split(b"\n"):
        entry = _parsed(line)
        if entry is not None:
            yield entry


def backwards(data: bytes, start: int = 0, *, holding: bytes = b"") -> Iterator[dict[str, Any]]:
    """Give the entries from the last one back to a place, each parsed only when it is come to.

    holding: only those whose line has these bytes in it.
    """
    end = len(data)
    while end > max(0, start):
        begins = data.rfind(b"\n", 0, end - 1) + 1
        if data.find(holding, begins, end) >= 0:
            entry = _parsed(data[begins:end])
            if entry is not None:
                yield entry
        end = begins


def is_boundary(entry: dict[str, Any]) -> bool:
    """Tell whether an entry is a compaction's."""
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"


def kept_by(boundary: dict[str, Any]) -> set[str]:
    """Give the uuids of the entries that a compaction left before the assistant."""
    metadata = boundary.get("compactMetadata")
    kept = metadata.get("preservedMessages") if isinstance(metadata, dict) else None
    uuids = kept.get("allUuids") or kept.get("uuids") if isinstance(kept, dict) else None
    return {uuid for uuid in uuids if isinstance(uuid, str)} if isinstance(uuids, list) else set()


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        entry = quick_json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
