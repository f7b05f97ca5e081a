"""How each tool's calls are reduced: one table, of which each row is a rule (context-reduction.md, D48, D49)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

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
    Rule(("Task", "Agent"), OTHER, ("description", "subagent_type"), 500),
    Rule(("TodoWrite",), OTHER, (), 500),
    Rule(("*",), OTHER, (), 500),
)


def _fits(pattern: str, tool_name: str) -> bool:
    return tool_name.startswith(pattern[:-1]) if pattern.endswith("*") else tool_name == pattern


def _first(tool_name: str, rules: Sequence[Rule]) -> Rule:
    return next(rule for rule in rules if any(_fits(name, tool_name) for name in rule.tools))


# A history asks for the rules of hundreds of steps.
_KNOWN = {name: _first(name, RULES) for rule in RULES for name in rule.tools}


def rule_for(tool_name: str, users: Sequence[Rule] = ()) -> Rule:
    """Give the first rule that fits a tool, a user's before Loom's; there always is one."""
    return (None if users else _KNOWN.get(tool_name)) or _first(tool_name, (*users, *RULES))


def of_settings(rules: Sequence[dict[str, Any]]) -> tuple[Rule, ...]:
    """Give a user's rules as config.yaml has them under `reduce.rules`: `{tool, keep?, template?, threshold?}`."""
    return tuple(
        Rule((rule["tool"],), OTHER, tuple(rule.get("keep", ())), rule.get("threshold", 500), rule.get("template", ""))
        for rule in rules
    )
