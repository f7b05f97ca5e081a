"""A tool step: one call of a tool, reduced to what the work may need later, its original within reach (D47)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class ToolStep(NamedTuple):
    """One reduced call.

    minimal_args: the arguments that tell what was done; observation: the lines that stand for the result, the first of
    which says what came of it; outcome_ref: where the text that was left out stands, or None; success: how it ended.

    rest: what else there was of arguments and result, so that nothing is lost: `{args?, result?, text_at?, text_is?}`,
    where text_at names the place in the result of the text behind `outcome_ref`, and text_is says that this text is the
    whole result in `JSON`, or the whole `event` of the call; rest_ref: where that stands, if it is large.
    bytes and sha256 are of the text in UTF-8; tokens_before and tokens_after are estimates (D51), of the arguments and
    the result, and of what a history says in full.
    """

    id: str
    tool_name: str
    minimal_args: dict[str, Any]
    observation: str
    outcome_ref: str | None
    success: bool
    rest: dict[str, Any] = {}  # noqa: RUF012 - never changed
    rest_ref: str | None = None
    bytes: int = 0
    sha256: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    more: dict[str, Any] = {}  # noqa: RUF012 - at, session_id, agent_id, stage: whoever records it says when and for whom

    def to_dict(self) -> dict[str, Any]:
        """Give the step as it stands in `tool_steps.jsonl`; what is empty is left out."""
        named = self._asdict()
        more = named.pop("more")
        kept = ("id", "tool_name", "minimal_args", "observation", "outcome_ref", "success")
        return {**{key: value for key, value in named.items() if key in kept or value}, **more}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> ToolStep:
        """Read a step, whatever it lacks; what is of another shape is left out, and unknown keys stand in `more`."""
        known: dict[str, Any] = {}
        for key, (shape, empty) in _SHAPES.items():
            value = raw.get(key, empty)
            known[key] = value if (isinstance(value, shape) and type(value) is not bool) or key == "success" else empty
            if shape is int:
                known[key] = max(0, known[key])
        known["success"] = raw.get("success") is not False
        return ToolStep(**known, more={key: value for key, value in raw.items() if key not in _SHAPES})


_SHAPES: dict[str, tuple[Any, Any]] = {
    "id": (str, ""),
    "tool_name": (str, ""),
    "minimal_args": (dict, {}),
    "observation": (str, ""),
    "outcome_ref": ((str, type(None)), None),
    "success": (bool, True),
    "rest": (dict, {}),
    "rest_ref": ((str, type(None)), None),
    "bytes": (int, 0),
    "sha256": (str, ""),
    "tokens_before": (int, 0),
    "tokens_after": (int, 0),
}
