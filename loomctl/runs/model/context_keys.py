"""Which keys of a run's context are the engine's own (D37). Pure."""

from __future__ import annotations

RESERVED_KEYS = ("last_stage", "last_response")
RESERVED_PREFIXES = ("_", "response.", "output.", "command.", "parallel.", "internal.", "human.gate.")


def is_reserved(key: str) -> bool:
    """Tell whether a context key is the engine's own (D37)."""
    return key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES)
