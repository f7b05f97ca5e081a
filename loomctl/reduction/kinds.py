"""What a text is, told from its content and never from a file's name (D47, context-reduction.md)."""

from __future__ import annotations

import json

# The kinds of texts, and how a file of each ends.
EMPTY, JSON, JSONL, TEXT, BINARY = "empty", "JSON", "JSONL", "text", "binary"
EXTENSIONS = {EMPTY: "txt", JSON: "json", JSONL: "jsonl", TEXT: "txt", BINARY: "bin"}
_LARGEST_PARSED = 4_000_000  # characters; what is larger is judged by its two ends
_LINES_TRIED = 20
_CONTROLS = frozenset(map(chr, (*range(9), 11, *range(14, 27), *range(28, 32), 0x7F)))


def kind_of(text: str) -> str:
    """Tell the kind of a text: "empty", "JSON", "JSONL", "text" or "binary"."""
    bare = text.strip()
    if not bare:
        return EMPTY
    if _is_noise(text):
        return BINARY
    if bare[0] not in "{[":
        return TEXT
    if bare[-1] in "}]" and (len(bare) > _LARGEST_PARSED or _parses(bare)):
        return JSON
    lines = [line for line in bare[:_LARGEST_PARSED].splitlines() if line.strip()]
    tried = [*lines[:_LINES_TRIED], bare[-_LARGEST_PARSED:].splitlines()[-1]]
    return JSONL if len(lines) > 1 and all(line.strip()[0] in "{[" and _parses(line) for line in tried) else TEXT


def _is_noise(text: str) -> bool:
    """Tell text that was read from bytes that were none: one character in ten is a control or a replacement."""
    head = text[:4096]
    return 10 * sum(character in _CONTROLS or character == "\ufffd" for character in head) > len(head)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
