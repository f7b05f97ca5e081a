"""A tool step: one call of a tool, reduced to what the work may need later, its original within reach (D47).

How each tool's calls are reduced is one table, of which each row is a rule (context-reduction.md, D48, D49).
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.reduction import live

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


# What hosts call the tools that print what a program said, or what the web has; `live` has to know them.
SHELLS = (
    *live.SHELL, "shell", "local_shell", "shell_command", "exec_command", "run_shell_command", "read_bash",
    "read_background_output", "write_stdin",
)  # fmt: skip
REPORTS = ("Task", "Agent", "task", "agent", "invoke_agent")  # whose text is the report of a subagent
_SEEN = ("path", "file_path", "notebook_path", "include", "offset", "limit", "start_line", "end_line", "view_range")
_CHANGED = ("file_path", "path", "paths", "notebook_path", "replace_all", "cell_id", "edit_mode")
_SEARCHED = ("pattern", "path", "glob", "type", "output_mode", "-i", "-n", "head_limit")
_CALLED = ("command", "bash_id", "shellId", "session_id", "pid", "run_in_background", "is_background")

# The document's tools, and what hosts call the same. Arguments have their usual names here.
RULES = (
    Rule(("fs:read_file", "Read", "NotebookRead", "read", "read_file", "read_many_files", "view"), READ, _SEEN),
    Rule(("fs:write_file", "Write", "write", "write_file", "create"), WRITE, ("path", "file_path")),
    Rule(
        ("Edit", "MultiEdit", "NotebookEdit", "edit", "multiedit", "notebook_edit", "replace", "patch", "apply_patch"),
        EDIT,
        _CHANGED,
    ),
    Rule(
        ("fs:list_dir", "LS", "Glob", "glob", "list", "ls", "list_dir", "list_directory"), LIST, ("path", "pattern"), 10
    ),
    Rule(("Grep", "grep", "grep_search", "search_file_content"), MATCHES, _SEARCHED, 500),
    Rule(("web:search", "WebSearch", "websearch", "web_search", "google_web_search"), SEARCH, ("query",), 0),
    Rule(("browser:navigate", "WebFetch", "webfetch"), VISIT, ("url",), 0),
    Rule(("web_fetch",), VISIT, ("url", "prompt"), 0),  # to one host the prompt alone names the address
    Rule(("system:shell", *SHELLS), SHELL, _CALLED, 500),
    Rule(REPORTS, OTHER, ("description", "subagent_type", "agent_type", "agent_name"), 500),
    Rule(("TodoWrite", "todowrite", "todo_write", "write_todos", "update_plan"), OTHER, (), 500),
    Rule(("*",), OTHER, (), 500),
)

# What hosts call the arguments that the rules know; in tools that have a rule of their own alone.
_USUAL = {
    "filePath": "file_path", "absolute_path": "file_path", "dir_path": "path", "cmd": "command",
    "oldString": "old_string", "old_str": "old_string", "newString": "new_string", "new_str": "new_string",
    "replaceAll": "replace_all", "file_text": "content", "include_pattern": "glob",
}  # fmt: skip
_PATCHES = ("patch", "patchText", "input", "command")  # where a patch's text stands
_PATCH = "*** Begin Patch"
_FILES = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")
_WRAPPERS = ("sh", "bash", "zsh", "dash")


def usual_args(rule: Rule, args: object) -> dict[str, Any]:
    """Give a call's arguments by the names that rules have for them; of a patch the files that it names, too."""
    if rule.action == EDIT and isinstance(args, str):
        args = {"patch": args}
    if not isinstance(args, dict) or rule.action == OTHER:
        return args if isinstance(args, dict) else {}
    given: dict[str, Any] = args
    found = {_USUAL.get(key, key): value for key, value in given.items()}
    if rule.action == SHELL and isinstance(found.get("command"), list):
        found["command"] = _command(found["command"])
    if rule.action in (LIST, MATCHES) and "path" not in found and isinstance(found.get("paths"), str):
        found["path"] = found.pop("paths")
    if rule.action == EDIT:
        found |= _patched(found)
    return found


def _command(words: list[Any]) -> str:
    """Give a command that is a list of words as it would be typed."""
    texts = [str(word) for word in words if word is not None]
    if len(texts) == 3 and texts[0].rpartition("/")[2] in _WRAPPERS and texts[1] in ("-c", "-lc"):
        return texts[2]
    import shlex  # most hosts give a text

    return shlex.join(texts)


def _patched(args: dict[str, Any]) -> dict[str, Any]:
    patch = next((text for name in _PATCHES if isinstance(text := args.get(name), str) and _PATCH in text[:200]), "")
    lines = [line.rstrip() for line in patch.split("\n")] if patch else []
    named = [line[len(head) :] for line in lines for head in _FILES if line.startswith(head)]
    files = list(dict.fromkeys(name for name in named if name))
    if not files:
        return {}
    return {"patch": patch, "file_path": files[0], **({"paths": files} if files[1:] else {})}


def paths_of(rule: Rule, args: object) -> list[str]:
    """Give the paths of files that a call's arguments name."""
    given = usual_args(rule, args)
    several = given.get("paths")
    if isinstance(several, list):
        return [path for path in several if isinstance(path, str) and path]
    named = (given.get(name) for name in ("file_path", "notebook_path", "path"))
    return [path for path in named if isinstance(path, str) and path][:1]


# The events that tell of a call that has ended, and the one for calls that failed.
FAILED = "PostToolUseFailure"
ENDED = ("PostToolUse", FAILED, "AfterTool")


def result_of(event: Mapping[str, Any]) -> Any:
    """Give what an event says that a tool gave."""
    return event["tool_response"] if "tool_response" in event else event.get("tool_result")


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
