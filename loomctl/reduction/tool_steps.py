"""A tool step: one call of a tool, reduced to what the work may need later, its original within reach (D47).

How each tool's calls are reduced is one table, of which each row is a rule (context-reduction.md, D48, D49).
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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


READ, WRITE, EDIT, LIST, MATCHES, SEARCH, VISIT, SHELL, OTHER = (
    "read", "write", "edit", "list", "matches", "search", "visit", "shell", "other",
)  # fmt: skip


class Rule(NamedTuple):
    """What is kept of a tool's calls.

    tools: names; one that ends with `*` means all that begin so. action: the kind of thing that the tool does. keep:
    the arguments that are kept, by name or, with a `$` before it, by a plain JSON path; else all that are short.
    threshold: from how much on the result's text is offloaded: bytes for what is read or printed, entries for what is
    listed, 0 for always. template: the first line of the observation in a user's words, with `{argument}` and
    `{result.key}`; "" for the action's own.
    """

    tools: tuple[str, ...]
    action: str
    keep: tuple[str, ...] = ()
    threshold: int = 1024
    template: str = ""


REPORTS = ("Task", "Agent")  # whose text is the report of a subagent

# The document's tools, and what Claude Code calls the same.
RULES = (
    Rule(("fs:read_file", "Read", "NotebookRead"), READ, ("path", "file_path", "notebook_path", "offset", "limit")),
    Rule(("fs:write_file", "Write"), WRITE, ("path", "file_path")),
    Rule(
        ("Edit", "MultiEdit", "NotebookEdit"),
        EDIT,
        ("file_path", "notebook_path", "replace_all", "cell_id", "edit_mode"),
    ),
    Rule(("fs:list_dir", "LS", "Glob"), LIST, ("path", "pattern"), 10),
    Rule(("Grep",), MATCHES, ("pattern", "path", "glob", "type", "output_mode", "-i", "-n", "head_limit"), 500),
    Rule(("web:search", "WebSearch"), SEARCH, ("query",), 0),
    Rule(("browser:navigate", "WebFetch"), VISIT, ("url",), 0),
    Rule(("system:shell", "Bash", "BashOutput"), SHELL, ("command", "bash_id", "run_in_background"), 500),
    Rule(REPORTS, OTHER, ("description", "subagent_type"), 500),
    Rule(("TodoWrite",), OTHER, (), 500),
    Rule(("*",), OTHER, (), 500),
)


def _fits(pattern: str, tool_name: str) -> bool:
    return tool_name.startswith(pattern[:-1]) if pattern.endswith("*") else tool_name == pattern


def _first(tool_name: str, rules: Sequence[Rule]) -> Rule:
    return next(rule for rule in rules if any(_fits(name, tool_name) for name in rule.tools))


# A history asks for the rules of hundreds of steps.
_KNOWN = {name: rule for rule in RULES for name in rule.tools}


def rule_for(tool_name: str, users: Sequence[Rule] = ()) -> Rule:
    """Give the first rule that fits a tool, a user's before Loom's; there always is one."""
    return (None if users else _KNOWN.get(tool_name)) or _first(tool_name, (*users, *RULES))


def of_settings(rules: Sequence[dict[str, Any]]) -> tuple[Rule, ...]:
    """Give a user's rules as config.yaml has them under `reduce.rules`: `{tool, keep?, template?, threshold?}`."""
    return tuple(
        Rule((rule["tool"],), OTHER, tuple(rule.get("keep", ())), rule.get("threshold", 500), rule.get("template", ""))
        for rule in rules
    )
