"""How much of the past a preamble carries (D46)."""

from __future__ import annotations

FIDELITIES = ("full", "truncate", "compact", "summary:low", "summary:medium", "summary:high")
DEFAULT = "compact"
