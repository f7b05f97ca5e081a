"""What came of a step: `Outcome`, and how it stands in a directive, in a visit and in `status.json` (D32, D33)."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.visits import OUTCOMES, SPELLINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.flow.outcomes.directives import Reading

_NONE: Mapping[str, Any] = MappingProxyType({})
FAILURE = "FAILURE"  # the type of an error of which nothing is known but that its step failed
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false"}


class Status(str, Enum):
    """How a step ended; as text it is the word that stands in files (D32)."""

    SUCCESS = "succeeded"
    FAILURE = "failed"
    PARTIAL = "partially_succeeded"
    SKIPPED = "skipped"

    def __str__(self) -> str:
        """Give the word."""
        return self.value

    @classmethod
    def of(cls, word: object) -> Status:
        """Read a status by its word in files or by its name (`SUCCESS`). Raises BAD_OUTCOME."""
        if isinstance(word, str) and SPELLINGS.get(word, word) in OUTCOMES:
            return cls(SPELLINGS.get(word, word))
        why = f"expected one of {', '.join((*OUTCOMES, *SPELLINGS))}"
        raise LoomError("BAD_OUTCOME", f"unknown outcome {word!r:.60}", why=why, hint="loomctl done --help")


class ErrorInfo(NamedTuple):
    """Why a step failed.

    type: a category, such as TERMINAL, TRANSIENT or TIMEOUT; retryable: whether trying again may help; details: what
    else is known; extra: what a file holds besides.
    """

    type: str
    message: str
    retryable: bool = True
    details: Mapping[str, Any] = _NONE
    extra: Mapping[str, Any] = _NONE

    @classmethod
    def from_dict(cls, raw: object) -> ErrorInfo:
        """Read what `to_dict` gives. Raises BAD_OUTCOME."""
        given = _object(raw, "error")
        shapes = {"type": str, "message": str, "retryable": bool, "details": dict}
        held = _held(given, shapes, "error.")
        extra = {name: value for name, value in given.items() if name not in shapes}
        return cls(**{"type": FAILURE, "message": "", **held}, extra=extra)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON."""
        told = {"type": self.type, "message": self.message, "retryable": self.retryable}
        return {**self.extra, **told, "details": dict(self.details)}


class Outcome(NamedTuple):
    """What a step leaves: how it ended, what it sets, where it would go on.

    context_updates: values for the run's context; preferred_label, suggested_next: of the way on; artifacts: what it
    registered, `{name, path}` each; error: of a failed one; metadata: whatever else is worth keeping; extra: what a
    file holds besides.
    """

    status: Status
    context_updates: Mapping[str, Any] = _NONE
    preferred_label: str | None = None
    suggested_next: Sequence[str] = ()
    artifacts: Sequence[Mapping[str, Any]] = ()
    error: ErrorInfo | None = None
    metadata: Mapping[str, Any] = _NONE
    extra: Mapping[str, Any] = _NONE

    @classmethod
    def from_dict(cls, raw: object) -> Outcome:
        """Read what `to_dict` gives; only `status` must be there, null stands for the rest. Raises BAD_OUTCOME."""
        given = _object(raw, "the outcome")
        shapes = {
            "context_updates": dict,
            "preferred_label": str,
            "suggested_next": list,
            "artifacts": list,
            "metadata": dict,
        }
        held = _held(given, shapes)
        for name in held.get("suggested_next", ()):
            _typed(name, str, "suggested_next")
        for one in held.get("artifacts", ()):
            _typed(one, dict, "artifacts")
        error = ErrorInfo.from_dict(given["error"]) if given.get("error") is not None else None
        extra = {name: value for name, value in given.items() if name not in (*shapes, "status", "error")}
        return cls(Status.of(given.get("status")), **held, error=error, extra=extra)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {
            **self.extra,
            "status": self.status.value,
            "context_updates": dict(self.context_updates),
            "preferred_label": self.preferred_label,
            "suggested_next": list(self.suggested_next),
            "artifacts": [dict(one) for one in self.artifacts],
            "error": self.error.to_dict() if self.error is not None else None,
            "metadata": dict(self.metadata),
        }

    # ---- In a directive (D33).

    @classmethod
    def from_reading(cls, reading: Reading) -> Outcome:
        """Give what a response means, as it was read; one that says nothing of how it ended has succeeded."""
        status = Status.of(reading.outcome or Status.SUCCESS.value)
        failed = status is Status.FAILURE
        return cls(
            status,
            dict(reading.context_updates),
            reading.preferred_next_label,
            list(reading.suggested_next_ids) or (),
            error=ErrorInfo(FAILURE, reading.failure_reason or "") if failed else None,
        )

    def to_directive(self) -> dict[str, Any]:
        """Give the directive that says the same, as far as a directive can: without artifacts and metadata."""
        said = {
            "outcome": self.status.value,
            "failure_reason": self.error.message if self.error and self.status is Status.FAILURE else None,
            "preferred_next_label": self.preferred_label,
            "suggested_next_ids": list(self.suggested_next),
            "context_updates": dict(self.context_updates),
        }
        return {name: value for name, value in said.items() if value}

    # ---- In a run.

    @classmethod
    def from_visit(cls, visit: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Outcome:
        """Give the outcome of an ended visit of `state.steps`. Raises BAD_OUTCOME for one that is still open.

        status: its `status.json`, which alone has what it set and its metadata.
        """
        told = status or {}
        ended = Status.of(visit.get("status"))
        registered = _of_kind(_of_kind(visit.get("artifacts"), dict).get("set") or told.get("artifacts"), dict)
        label, error = visit.get("preferred_next_label"), visit.get("error") or told.get("error")
        if ended is Status.FAILURE and not isinstance(error, dict):
            error = {"message": str(visit.get("failure_reason") or visit.get("note") or "")}
        return cls(
            ended,
            _of_kind(told.get("context_updates"), dict),
            label if isinstance(label, str) else None,
            [one for one in _of_kind(visit.get("suggested_next_ids"), list) if isinstance(one, str)] or (),
            [{"name": name, "path": path} for name, path in registered.items()] or (),
            ErrorInfo.from_dict(error) if isinstance(error, dict) else None,
            _of_kind(visit.get("metadata") or told.get("metadata"), dict),
        )

    def to_visit(self) -> dict[str, Any]:
        """Give what a visit of `state.steps` and its `status.json` say of it, besides what it set."""
        directive = self.to_directive()
        said = {name: directive[name] for name in directive if name not in ("outcome", "context_updates")}
        error = {"error": self.error.to_dict()} if self.error is not None else {}
        metadata = {"metadata": dict(self.metadata)} if self.metadata else {}
        return {"status": self.status.value, **said, **error, **metadata}


def _held(given: Mapping[str, Any], shapes: Mapping[str, type], above: str = "") -> dict[str, Any]:
    there = {name: kind for name, kind in shapes.items() if given.get(name) is not None}
    held = {name: _typed(given[name], kind, above + name) for name, kind in there.items()}
    return {name: value for name, value in held.items() if value != []}


def _object(raw: object, name: str) -> dict[str, Any]:
    found: dict[str, Any] = _typed(raw, dict, name)
    return found


def _typed(value: object, kind: type, name: str) -> Any:
    if isinstance(value, kind):
        return value
    what = f"{name}: expected {_KINDS[kind]}, got {value!r:.60}"
    raise LoomError("BAD_OUTCOME", what, hint="loomctl debug outcome --help")


def _of_kind(value: object, kind: type) -> Any:
    return value if isinstance(value, kind) else kind()
