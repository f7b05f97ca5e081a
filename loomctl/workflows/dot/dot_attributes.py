"""What Loom does with each attribute of a workflow in DOT; for what it does nothing with, whether that matters."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from loomctl.kit.problems import error, nearest, note, shown, warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from loomctl.kit.problems import Problem
    from loomctl.workflows.dot.dot_text import Graph
    from loomctl.workflows.dot.dot_tokens import Value

STEP_TEXTS = ("prompt", "command", "skill")
USED = {
    "graph": (
        *("id", "description", "goal", "label", "extends", "autonomy", "default_fidelity", "retry_target"),
        *("default_max_retries", "max_node_visits", "max_visits"),
    ),
    "node": (
        *("name", "label", "shape", "type", "phase", "description", "workdir", "require_approval", *STEP_TEXTS),
        *("script", "tool_command", "run", "language", "timeout", "duration", "output_schema", "output_retries"),
        *("fidelity", "max_visits", "max_retries", "retry_policy", "retry_target", "join", "join_policy"),
    ),
    "edge": ("label", "choice", "condition", "weight", "fidelity", "on_failure", "branch", "drawn_only"),
}
# What the workflow would do otherwise elsewhere, and what it does here.
_CHANGES: dict[str, dict[str, str]] = {
    "graph": {
        "stall_timeout": "a run that stands still is not ended",
        "loop_restart_signature_limit": "a failure that repeats is bounded by max_visits alone",
        "fallback_retry_target": "there is one retry_target; where it does not help, the run fails",
    },
    "node": {
        "goal_gate": "whether this step succeeded is not asked again at the end; a failure that no way is meant for "
        "fails the run at once",
        "auto_status": "a failed step has failed",
        "allow_partial": "a failed step has failed",
        "selection": "the heaviest way is taken, then the first by its name, never one by chance",
        "fallback_retry_target": "there is one retry_target; where it does not help, the run fails",
        "human.default_choice": "a human step waits until somebody decides",
    },
    "edge": {
        "loop_restart": "the run goes on as the same run, with its context",
        "freeform": "one of the labels is chosen; other words go in as its reason",
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
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_TAG = re.compile(r"<[^<>]*>")
_LINE_BREAK = re.compile(r"\s+|\\[lr]")


def unused(graph: Graph, where: Callable[[int], str]) -> Iterator[Problem]:
    """Tell of every attribute that Loom does nothing with: a warning where that matters, one note of the others."""
    idle: dict[str, int] = {}
    for part, key, value in _each(graph):
        if key in USED[part]:
            continue
        if key in _CHANGES[part]:
            if value.text.lower() not in ("false", "0", "", *_HARMLESS.get(key, ())):
                message = f"{key}={value.text[:40]} does nothing here: {_CHANGES[part][key]}"
                yield warning("IGNORED_FIELD", where(value.at), message)
        elif key in _IDLE or key.startswith("_"):
            idle[key] = idle.get(key, 0) + 1
        else:
            meant = nearest(key, USED[part])
            hint = f"write {meant} if you meant that" if meant else "nothing needs to be done if no step relies on it"
            yield warning("UNKNOWN_ATTRIBUTE", where(value.at), f"Loom knows no attribute {shown(key)} here", hint)
    if idle:
        told = ", ".join(key if times == 1 else f"{key} ({times} times)" for key, times in sorted(idle.items()))
        message = f"Loom does nothing with these, and the workflow takes the same ways without them: {told}"
        yield note("UNUSED_ATTRIBUTES", "$", message)


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
    """Getters over the attributes of one node, edge or graph; what is wrong becomes a problem at its place."""

    def __init__(self, held: Mapping[str, Value], where: Callable[[int], str], problems: list[Problem]) -> None:
        self._held, self._where, self._problems = held, where, problems

    def value(self, *keys: str) -> Value | None:
        """Give the first of these that is said and not empty."""
        return next((held for key in keys if (held := self._held.get(key)) is not None and held.text.strip()), None)

    def text(self, *keys: str) -> str | None:
        """Take text; None for none or an empty one."""
        found = self.value(*keys)
        return None if found is None else plain(found)

    def line(self, *keys: str) -> str | None:
        """Take text as one line, as a drawing's label is."""
        text = self.text(*keys)
        return None if text is None else _LINE_BREAK.sub(" ", text).strip() or None

    def whole(self, *keys: str) -> int | None:
        """Take a whole number."""
        found = self.value(*keys)
        if found is None:
            return None
        if _WHOLE.fullmatch(found.text.strip()):
            return int(found.text)
        self.fail("WRONG_TYPE", found, f"{shown(found.text)} is no whole number")
        return None

    def number(self, *keys: str) -> float | None:
        """Take a number, whole where it is one."""
        found = self.value(*keys)
        if found is None:
            return None
        try:
            number = float(found.text)
        except ValueError:
            number = float("nan")
        if abs(number) < 1e15:
            return int(number) if number.is_integer() else number
        self.fail("WRONG_TYPE", found, f"{shown(found.text)} is no number")
        return None

    def flag(self, *keys: str) -> bool | None:
        """Take true or false."""
        found = self.value(*keys)
        if found is None:
            return None
        if found.text.lower() in ("true", "false"):
            return found.text.lower() == "true"
        self.fail("WRONG_TYPE", found, f"{shown(found.text)} is neither true nor false")
        return None

    def seconds(self, *keys: str) -> float | None:
        """Take a duration: `900s`, `15m`, `250ms`, `2h`, `1d`, or seconds alone."""
        found = self.value(*keys)
        if found is None:
            return None
        parts = _DURATION.fullmatch(found.text.strip())
        if parts is None or len(parts[1]) > 15:
            self.fail("WRONG_TYPE", found, f"{shown(found.text)} is no duration", "900s, 15m, 250ms, 2h or 1d")
            return None
        seconds = float(parts[1]) * _SECONDS[parts[2]]
        return int(seconds) if seconds.is_integer() else seconds

    def fail(self, code: str, value: Value, message: str, hint: str = "") -> None:
        """Report an error at a value."""
        self._problems.append(error(code, self._where(value.at), message, hint))

    def warn(self, code: str, value: Value, message: str, hint: str = "") -> None:
        """Report a warning at a value."""
        self._problems.append(warning(code, self._where(value.at), message, hint))


def plain(value: Value) -> str:
    """Give a value as text; of HTML what a reader sees."""
    return html.unescape(_TAG.sub(" ", value.text)).strip() if value.kind == "html" else value.text
