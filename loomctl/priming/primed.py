"""What a priming gave: its text in parts, and what became of each artifact."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.priming.due import ERROR, LOAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.priming.examine import Entry


class Slip(NamedTuple):
    """A packing slip with the text it describes.

    id: empty where nothing was due; parts: exactly what the conversation gets, each of them in an output of its own;
    used: in the budget's measure; history: what it tells of the run's tool steps (`step_history.Told.counts`), None
    where it tells none.
    """

    id: str
    run_id: str
    event: str
    parts: Sequence[str]
    entries: Sequence[Entry]
    warnings: Sequence[tuple[str, str]]
    limit: int
    used: int
    history: Mapping[str, int] | None = None

    @property
    def text(self) -> str:
        """All parts as one text."""
        return "\n\n".join(self.parts)

    @property
    def loaded(self) -> list[Entry]:
        """The artifacts that the text carries in some form."""
        return [entry for entry in self.entries if entry.decision == LOAD]

    @property
    def fresh(self) -> list[Entry]:
        """The artifacts that the conversation has already, unchanged."""
        return [entry for entry in self.entries if entry.reason == "fresh"]

    @property
    def failed(self) -> list[Entry]:
        """The required artifacts that could not be given (exit code 4, D18)."""
        return [entry for entry in self.entries if entry.decision == ERROR and entry.required]

    def to_dict(self) -> dict[str, Any]:
        """Give the document that `--json` prints."""
        return {
            "schema_version": 1,
            "run_id": self.run_id,
            "event": self.event,
            "slip_id": self.id or None,
            "artifacts": [
                {
                    "id": entry.id,
                    "decision": entry.decision,
                    "reason": entry.reason,
                    "path": entry.path,
                    "bytes": entry.bytes,
                    "sha256": entry.sha256,
                    "form": entry.form,
                    **({"base": entry.base} if entry.base else {}),
                }
                for entry in self.entries
            ],
            "budget": {"limit": self.limit, "used": self.used},
            "warnings": [{"code": code, "message": message} for code, message in self.warnings],
        }

    def with_text(self) -> dict[str, Any]:
        """Give the same with the text itself, for a reader to whom this document is all that is printed."""
        return {**self.to_dict(), "text": self.text}
