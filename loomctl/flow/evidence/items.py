"""Pieces of evidence: what each is, and what came of checking them."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FILE, COMMAND, STATE = "file", "command", "state"
TIMEOUT = 600.0  # seconds of a command that says nothing


class Item(NamedTuple):
    """One piece of evidence.

    sha256: of the file, the command's output or the value; pending: nobody could judge it here, and another answer
    would not help. word: what people call its kind, where that is not the kind's own name.
    """

    kind: str
    name: str
    passed: bool
    sha256: str = ""
    why: str = ""
    pending: bool = False
    word: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as `status.json` and the event hold it."""
        found: dict[str, Any] = {"kind": self.kind, "name": self.name, "passed": self.passed}
        return {**found, **({"sha256": self.sha256} if self.sha256 else {}), **({"why": self.why} if self.why else {})}


class Checked(NamedTuple):
    """What a step showed, in declared order."""

    items: Sequence[Item]

    @property
    def passed(self) -> bool:
        """Whether all of it is there."""
        return all(item.passed for item in self.items)

    @property
    def pending(self) -> bool:
        """Whether some of it could not be judged, and nothing that could is missing."""
        return not self.passed and all(item.passed or item.pending for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        """Give it as `status.json` and the event hold it."""
        return {"passed": self.passed, "items": [item.to_dict() for item in self.items]}


def name_of(item: Mapping[str, Any]) -> str:
    """Name a piece of evidence as it is declared, for people and files."""
    return masked_line(str(item.get("file") or item.get("run") or item.get("state") or item.get("condition")), 300)


class Command(NamedTuple):
    """A command that is evidence. entry, step: of the visit; number: of the evidence, from 1; claim: see `check`."""

    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    wanted: Mapping[str, Any]
    number: int
    claim: str
