"""What each node of a workflow in DOT is, and what its attributes say of its step, field by field."""

from __future__ import annotations

import html
import re
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from loomctl.expressions.placeholders import LEFT_TO_ASSISTANT, NAMES, TASK
from loomctl.kit.ids import slug
from loomctl.kit.problems import at, choices, is_id, nearest, note, shown
from loomctl.runs.model.visits import JOINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from loomctl.workflows.dot_text import Graph, Node, Report, Value

_T = TypeVar("_T", int, float, bool)

START, END, DECISION, JOIN, PARALLEL = "start", "end", "decision", "join", "parallel"
AGENT, PROMPT, COMMAND, HUMAN, WAIT = "agent", "prompt", "command", "human", "wait"
_STEPS = (AGENT, PROMPT, COMMAND, HUMAN, WAIT, PARALLEL)
_UNSUPPORTED = "unsupported"

_SHAPES = {
    "mdiamond": START,
    "msquare": END,
    "box": AGENT,
    "tab": PROMPT,
    "parallelogram": COMMAND,
    "hexagon": HUMAN,
    "diamond": DECISION,
    "component": PARALLEL,
    "tripleoctagon": JOIN,
    "insulator": WAIT,
    "house": _UNSUPPORTED,
}
_TYPES = {
    "start": START,
    "exit": END,
    "end": END,
    "agent": AGENT,
    "codergen": AGENT,
    "prompt": PROMPT,
    "command": COMMAND,
    "tool": COMMAND,
    "human": HUMAN,
    "wait.human": HUMAN,
    "conditional": DECISION,
    "parallel": PARALLEL,
    "parallel.fan_in": JOIN,
    "wait": WAIT,
    "stack.manager_loop": _UNSUPPORTED,
    "pull_request": _UNSUPPORTED,
}
_START_NAMES, _END_NAMES = ("start", "Start"), ("exit", "Exit", "end", "End")


class Role(NamedTuple):
    """kind: one of this module's words; asks: it has a prompt or script of its own; joins: branches may end there."""

    kind: str
    asks: bool
    joins: bool = False


def is_step(role: Role) -> bool:
    """Tell whether a step is made of the node: a decision that asks for nothing only routes, a join likewise."""
    return role.kind in _STEPS


def roles_of(graph: Graph, report: Report) -> dict[str, Role]:
    """Give each node its role."""
    roles = {name: _role(node, report) for name, node in graph.nodes.items()}
    for kind, names in ((START, _START_NAMES), (END, _END_NAMES)):
        if any(role.kind == kind for role in roles.values()):
            continue
        for name in names:
            if name in roles and not roles[name].asks and not graph.nodes[name].own.keys() & {"shape", "type"}:
                roles[name] = Role(kind, asks=False)
    starts = [name for name, role in roles.items() if role.kind == START]
    if len(starts) > 1:
        message = f"a workflow has one start, not several: {', '.join(shown(name) for name in starts[:5])}"
        report.fail("BAD_START", graph.nodes[starts[1]].at, message, "keep one shape=Mdiamond")
    return roles


def _role(node: Node, report: Report) -> Role:
    asks = any((said := node.own.get(key)) and said.text.strip() for key in ("prompt", "script", "tool_command", "run"))
    kind, named = node.get("type"), node.get("shape")
    if kind is not None and kind.text:
        named, found = kind, _TYPES.get(kind.text)
        if found is None:
            message = f"unknown node type {shown(kind.text)}"
            report.fail("UNKNOWN_VALUE", kind.at, message, choices(kind.text, list(_TYPES)))
    else:
        found = _SHAPES.get(named.text.lower()) if named is not None else None
    if found == _UNSUPPORTED and named is not None:
        hint = "use a command (shape=parallelogram, script=…), or ask for it in an agent's prompt"
        report.fail("NOT_SUPPORTED", named.at, f"{named.text}: Loom has no such step", hint)
    if found in (DECISION, JOIN) and asks:
        return Role(AGENT, asks, joins=found == JOIN)
    scripted = any(key in node.own for key in ("script", "tool_command", "run"))
    if found is None and scripted and "prompt" not in node.own:
        return Role(COMMAND, asks)
    return Role(found or AGENT, asks, joins=found == JOIN)


STEP_TEXTS = ("prompt", "command", "skill")
TASK_LIST = ("for_each", "section", "allow_empty")
USED = {
    "graph": (
        *("id", "description", "goal", "label", "extends", "autonomy", "default_fidelity", "retry_target"),
        *("default_max_retries", "max_node_visits", "max_visits", "allow"),
    ),
    "node": (
        *("name", "label", "shape", "type", "phase", "description", "workdir", "require_approval", *STEP_TEXTS),
        *(
            "script",
            "tool_command",
            "run",
            "language",
            "timeout",
            "duration",
            "output_schema",
            "output_retries",
            "produces",
            "allow",
        ),
        *("fidelity", "max_visits", "max_retries", "retry_policy", "retry_target", "join", "join_policy"),
        *TASK_LIST,
    ),
    "edge": ("label", "choice", "condition", "weight", "fidelity", "on_failure", "branch", "drawn_only"),
}
# What the workflow would do otherwise elsewhere, and what it does here.
_CHANGES: dict[str, dict[str, str]] = {
    "graph": {
        "stall_timeout": "Loom does not end a run that stands still",
        "loop_restart_signature_limit": "only max_visits limits how often a step fails",
        "fallback_retry_target": "there is only one retry_target; after it the run fails",
    },
    "node": {
        "goal_gate": "Loom does not check it again at the end; a failure with no way on fails the run at once",
        "auto_status": "a failed step stays failed",
        "allow_partial": "a failed step stays failed",
        "selection": "Loom takes the heaviest way, then the first by name, never one by chance",
        "fallback_retry_target": "there is only one retry_target; after it the run fails",
        "human.default_choice": "a human step waits until somebody decides",
    },
    "edge": {
        "loop_restart": "the same run continues, with its context",
        "freeform": "a person chooses one of the labels; other words become the reason",
    },
}
_HARMLESS = {"selection": ("deterministic",)}
# What names an executor, its model, its threads: here the assistant that works on the run is all of it.
_OF_EXECUTORS = """
model_stylesheet model llm_model provider llm_provider reasoning_effort max_tokens backend thread_id default_thread
class project_memory max_parallel error_policy
"""
_OF_DRAWINGS = """
rankdir bgcolor color fillcolor fontcolor fontname fontsize style penwidth width height margin peripheries tooltip URL
href target group image labelloc labeljust nodesep ranksep splines size ratio pad dpi layout newrank compound
concentrate ordering overlap rank constraint dir arrowhead arrowtail arrowsize headlabel taillabel labelfontsize
labelfontcolor labelfontname labelangle labeldistance headport tailport lhead ltail minlen len decorate xlabel
fixedsize sides skew distortion orientation regular comment colorscheme gradientangle charset center clusterrank
forcelabels nojustify rotate searchsize stylesheet pos pin labelfloat headclip tailclip samehead sametail edgetooltip
labeltooltip headtooltip tailtooltip outputorder pack packmode quantum viewport area imagescale shapefile K z fontpath
landscape mindist mode smoothing truecolor
"""
_IDLE = frozenset((_OF_EXECUTORS + _OF_DRAWINGS).split())
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
_RULE = re.compile(r"(?:[^,(]|\([^)]*\)?)+")
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_TAG = re.compile(r"<[^<>]*>")
_LINE_BREAK = re.compile(r"\s+|\\[lr]")


def report_unused(graph: Graph, report: Report) -> None:
    """Tell of every attribute that Loom does nothing with: a warning where that matters, one note of the others."""
    idle: dict[str, int] = {}
    for part, key, value in _each(graph):
        if key in USED[part]:
            continue
        if key in _CHANGES[part]:
            if value.text.lower() not in ("false", "0", "", *_HARMLESS.get(key, ())):
                message = f"Loom ignores {key}={value.text[:40]}: {_CHANGES[part][key]}"
                report.warn("IGNORED_FIELD", value.at, message)
        elif key in _IDLE or key.startswith("_"):
            idle[key] = idle.get(key, 0) + 1
        else:
            meant = nearest(key, USED[part])
            hint = f"write {meant} if you mean that" if meant else "ignore this if no step relies on it"
            report.warn("UNKNOWN_ATTRIBUTE", value.at, f"unknown attribute {shown(key)}", hint)
    if idle:
        told = ", ".join(key if times == 1 else f"{key} ({times} times)" for key, times in sorted(idle.items()))
        message = f"Loom ignores these, and the workflow is the same without them: {told}"
        report.problems.append(note("UNUSED_ATTRIBUTES", "$", message))


def _each(graph: Graph) -> Iterator[tuple[str, str, Value]]:
    """Go through the attributes as they stand in the text: a default once, however many nodes have it."""
    seen: set[int] = set()
    for part, attributes in (
        ("graph", graph.attributes),
        *(("node", node.attributes()) for node in graph.nodes.values()),
        *(("edge", edge.attributes) for edge in graph.edges),
    ):
        for key, value in attributes.items():
            if value.at not in seen:
                seen.add(value.at)
                yield part, key, value


class Attributes:
    """Getters over the attributes of one node, edge or graph; the first key that is said and not empty counts."""

    def __init__(self, held: Mapping[str, Value], report: Report) -> None:
        self._held, self.report = held, report

    def value(self, *keys: str) -> Value | None:
        """Take a value as it is written."""
        return next((held for key in keys if (held := self._held.get(key)) is not None and held.text.strip()), None)

    def text(self, *keys: str) -> str | None:
        """Take text."""
        found = self.value(*keys)
        return None if found is None else plain(found)

    def line(self, *keys: str) -> str | None:
        """Take text as one line, as a drawing's label is."""
        text = self.text(*keys)
        return None if text is None else _LINE_BREAK.sub(" ", text).strip() or None

    def names(self, *keys: str) -> list[str] | None:
        """Take names between commas."""
        text = self.text(*keys)
        return None if text is None else [name.strip() for name in text.split(",") if name.strip()]

    def rules(self, *keys: str) -> list[str] | None:
        """Take rules of what an assistant may use, between commas that stand in no brackets."""
        text = self.text(*keys)
        return None if text is None else [rule for part in _RULE.findall(text) if (rule := part.strip())]

    def whole(self, *keys: str) -> int | None:
        """Take a whole number."""
        return self._read("is not a whole number", lambda text: int(text) if _WHOLE.fullmatch(text) else None, *keys)

    def number(self, *keys: str) -> float | None:
        """Take a number, whole where it is one."""
        return self._read("is not a number", _number, *keys)

    def flag(self, *keys: str) -> bool | None:
        """Take true or false."""
        words = {"true": True, "false": False}
        return self._read("is neither true nor false", lambda text: words.get(text.lower()), *keys)

    def seconds(self, *keys: str) -> float | None:
        """Take a duration: `900s`, `15m`, `250ms`, `2h`, `1d`, or seconds alone."""
        return self._read("is not a duration", _seconds, *keys, hint="900s, 15m, 250ms, 2h or 1d")

    def visits(self) -> int | None:
        """Take a bound on visits; 0 means no bound elsewhere, which Loom has not."""
        bound, said = self.whole("max_visits", "max_node_visits"), self.value("max_visits", "max_node_visits")
        if bound == 0 and said is not None:
            self.report.warn("IGNORED_FIELD", said.at, "0 sets no limit; Loom's default limit applies")
        return bound or None

    def _read(self, wrong: str, read: Callable[[str], _T | None], *keys: str, hint: str = "") -> _T | None:
        said = self.value(*keys)
        found = read(said.text.strip()) if said is not None else None
        if said is not None and found is None:
            self.report.fail("WRONG_TYPE", said.at, f"{shown(said.text)} {wrong}", hint)
        return found


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return (int(number) if number.is_integer() else number) if abs(number) < 1e15 else None


def _seconds(text: str) -> float | None:
    parts = _DURATION.fullmatch(text)
    if parts is None or len(parts[1]) > 15:
        return None
    seconds = float(parts[1]) * _SECONDS[parts[2]]
    return int(seconds) if seconds.is_integer() else seconds


def plain(value: Value) -> str:
    """Give a value as text; of HTML what a reader sees."""
    return html.unescape(_TAG.sub(" ", value.text)).strip() if value.kind == "html" else value.text


RETRIES = {"none": 0, "standard": 4, "aggressive": 4, "linear": 2, "patient": 2}  # of the retry policies by name
_BRACED = re.compile(r"(?<!\{)\{([a-z][a-z0-9_]*)\}(?!\})")
_GOAL = re.compile(r"\{\{\s*goal\s*\}\}|\$goal\b")
_TEMPLATE = re.compile(r"\{\{[^{}]{0,200}\}\}|\{%[^{}]{0,200}%\}")
_THE_GOAL = "the goal of this run"
_FROM = {"script": "run", "tool_command": "run", "label": "name", "retry_policy": "max_retries"}


def id_of(name: str) -> str:
    """Give the id of a step by its node's name: the name where it can be one, else made of it (D7)."""
    return name if is_id(name) else slug(name, empty="step")


def places(node: Node, where: str, report: Report) -> dict[str, str]:
    """Say where in the text each field of a step comes from, by its JSON path."""
    return {at(where, _FROM.get(key, key)): report.where(value.at) for key, value in node.attributes().items()}


def fields(node: Node, step_id: str, role: Role, report: Report) -> dict[str, Any]:
    """Give a step as a raw workflow holds it, without its ways."""
    held = Attributes(node.attributes(), report)
    label = held.line("name", "label")
    name = label.replace("\\N", node.name) if label is not None else node.name if node.name != step_id else None
    timed = role.kind in (COMMAND, WAIT)
    timeout = held.seconds("timeout") if timed else None
    if not timed and (said := held.value("timeout")) is not None:
        report.warn("IGNORED_FIELD", said.at, "Loom ignores timeout: only a command has a time limit")
    step = {
        "id": step_id,
        "name": name,
        "description": held.text("description"),
        "kind": role.kind if role.kind in (PROMPT, HUMAN, PARALLEL) else None,
        **_asked(node, held, role, name or step_id),
        "timeout": timeout,
        "workdir": held.text("workdir"),
        "output_schema": held.text("output_schema"),
        "output_retries": held.whole("output_retries"),
        "produces": _produces(held),
        "allow": held.rules("allow"),
        "fidelity": held.text("fidelity"),
        "max_visits": held.visits(),
        "max_retries": _retries(held),
        "require_approval": held.flag("require_approval"),
        "for_each": _for_each(held),
    }
    return {key: value for key, value in step.items() if value is not None}


def _produces(held: Attributes) -> list[str | dict[str, str]] | None:
    entries = [entry.partition("=") for entry in held.names("produces") or ()]
    return [{name.strip(): path.strip()} if equals else name for name, equals, path in entries] or None


def _for_each(held: Attributes) -> str | dict[str, Any] | None:
    path, section, allow_empty = held.text("for_each"), held.text("section"), held.flag("allow_empty")
    if path is None:
        for said in filter(None, (held.value("section"), held.value("allow_empty"))):
            message = "Loom ignores section and allow_empty, because they need for_each"
            held.report.warn("IGNORED_FIELD", said.at, message)
        return None
    if section is None and allow_empty is None:
        return path
    found = {"list": path, "section": section, "allow_empty": allow_empty}
    return {key: value for key, value in found.items() if value is not None}


def prompt_text(text: str, *, has_task: bool = False) -> str:
    """Give a prompt as Loom fills it in: what looks like a placeholder and is none of Loom's stays as it stands.

    has_task: whether it is a step's that goes through a task list.
    """
    return _literal(_GOAL.sub(_THE_GOAL, text), has_task=has_task)


def _asked(node: Node, held: Attributes, role: Role, name: str) -> dict[str, str | None]:
    if role.kind == WAIT:
        seconds = held.seconds("duration")
        if seconds is None and (held.value("duration") is None):
            said = node.get("shape") or node.get("type")
            if said is not None:
                held.report.fail("MISSING_FIELD", said.at, "a waiting step needs a duration", 'duration="30s"')
        return {"run": f"sleep {seconds:g}" if seconds is not None else None}
    if role.kind == COMMAND:
        return {"run": _script(node, held)}
    if role.kind == PARALLEL:
        return {}
    prompt = held.value("prompt")
    if prompt is None:
        if role.kind == HUMAN or held.value("command", "skill", "description") is not None:
            text = name if role.kind == HUMAN else None
            return {"prompt": text, "command": held.text("command"), "skill": held.text("skill")}
        said = node.get("label") or node.get("shape")
        if said is not None:
            message = f"{node.name} has no prompt; Loom takes its label"
            held.report.warn("NO_PROMPT", said.at, message, 'prompt="…"')
        return {"prompt": name}
    left = [found[0] for found in _TEMPLATE.finditer(prompt.text) if not _GOAL.fullmatch(found[0])]
    if left:
        message = f"{shown(left[0])} stays in the text: Loom fills in {{run_id}} and its like, and adds the goal itself"
        held.report.warn("TEMPLATE", prompt.at, message)
    text = prompt.text.strip()
    return {
        "prompt": text if text.startswith("@") else prompt_text(prompt.text, has_task=_has_task(held)),
        "command": held.text("command"),
        "skill": held.text("skill"),
    }


def _script(node: Node, held: Attributes) -> str | None:
    script = held.value("run", "script", "tool_command")
    if script is None:
        said = node.get("shape") or node.get("type")
        if said is not None:
            message = f"the command {shown(node.name)} has no script"
            held.report.fail("MISSING_TEXT", said.at, message, 'script="pytest -q"')
        return None
    language = held.value("language")
    if language is not None and language.text not in ("shell", "python"):
        message = f"unknown script language {shown(language.text)}"
        held.report.fail("UNKNOWN_VALUE", language.at, message, "shell or python")
    if _TEMPLATE.search(script.text):
        held.report.warn("TEMPLATE", script.at, "Loom leaves templates in a script as they are")
    text = _literal(script.text, has_task=_has_task(held))
    return f"python3 -c {shlex.quote(text)}" if language is not None and language.text == "python" else text


def _has_task(held: Attributes) -> bool:
    return held.value("for_each") is not None


def _literal(text: str, *, has_task: bool) -> str:
    """Double the braces around names that are no placeholders of Loom's (D8)."""
    known = (*NAMES, *LEFT_TO_ASSISTANT, *((TASK,) if has_task else ()))
    return _BRACED.sub(lambda found: found[0] if found[1] in known else "{" + found[0] + "}", text)


def _retries(held: Attributes) -> int | None:
    said = held.whole("max_retries")
    policy = held.value("retry_policy")
    if said is not None or policy is None:
        return said
    if policy.text not in RETRIES:
        held.report.fail("UNKNOWN_VALUE", policy.at, f"unknown retry policy {shown(policy.text)}", ", ".join(RETRIES))
    return RETRIES.get(policy.text)


def join_of(node: Node, report: Report) -> str:
    """Give a parallel step's join policy."""
    said = Attributes(node.attributes(), report).value("join", "join_policy")
    if said is None:
        return JOINS[0]
    if said.text not in JOINS:
        report.fail("UNKNOWN_VALUE", said.at, f"unknown join policy {shown(said.text)}", ", ".join(JOINS))
    return said.text
