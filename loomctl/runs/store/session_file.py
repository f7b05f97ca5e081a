"""The file of session records that a run's state holds no more: `sessions.jsonl` beside it (D24)."""

from __future__ import annotations

import os

from loomctl.kit import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FILE = "sessions.jsonl"


def keep(folder: str, records: Sequence[dict[str, Any]], *, durable: bool) -> None:
    """Append the records of a run that go out of its state, under its lock. folder: `{run_dir}`. Raises OSError."""
    lines = b"".join(files.to_json_line(record) for record in records)
    files.append(os.path.join(folder, FILE), lines, durable=durable)
