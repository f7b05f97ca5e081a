"""A JSON document as it goes out: its schema version, and an encoding that loses nothing (D52)."""

from __future__ import annotations

import codecs
import json
import sys
from typing import Any

from loomctl.kit.text.fences import visible_in_json
from loomctl.kit.text.secrets import masked

SCHEMA_VERSION = 1


def rendered(value: dict[str, Any]) -> str:
    """Give one JSON document for standard output, its schema version first."""
    return plain({"schema_version": SCHEMA_VERSION, **value})


def plain(value: Any) -> str:
    """Give a JSON value for standard output, its secrets masked (D21) and nothing in it raw.

    All beyond ASCII is escaped where the stream speaks something else than UTF-8, or where half a character stands in
    it, as in the name of a folder that is no UTF-8: a reader gets back what was meant, never a `?`.
    """
    return _encoded(masked(value))


def line(value: Any) -> str:
    """Give a JSON value, its secrets masked already, in one line as Loom's logs have it, nothing in it raw."""
    printed = visible_in_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return printed if _goes_out_whole(printed) else json.dumps(value, separators=(",", ":"))


def unmasked(value: dict[str, Any]) -> str:
    """Give one JSON document as it is, for who asks for an original: what a tool gave, and nothing instead of it."""
    return _encoded({"schema_version": SCHEMA_VERSION, **value})


def _encoded(shown: Any) -> str:
    printed = visible_in_json(json.dumps(shown, ensure_ascii=False, indent=1))
    return printed if _goes_out_whole(printed) else json.dumps(shown, indent=1)


def _goes_out_whole(printed: str) -> bool:
    try:
        printed.encode()
        return codecs.lookup(sys.stdout.encoding).name == "utf-8"
    except (UnicodeEncodeError, LookupError):
        return False
