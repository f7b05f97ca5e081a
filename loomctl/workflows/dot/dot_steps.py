"""What one node of a workflow in DOT says of its step, field by field."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from loomctl.expressions.placeholder_checks import LEFT_TO_ASSISTANT
from loomctl.expressions.placeholders import NAMES
from loomctl.kit.ids import slug
from loomctl.kit.json.fields import is_id
from loomctl.kit.problems import at, shown, warning
from loomctl.runs.model.joins import JOINS
from loomctl.workflows.dot.dot_attributes import Attributes
from loomctl.workflows.dot.dot_roles import COMMAND, HUMAN, PARALLEL, PROMPT, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomctl.kit.problems import Problem
    from loomctl.workflows.dot.dot_roles import Role
    from loomctl.workflows.dot.dot_text import Node
    from loomctl.workflows.dot.dot_tokens import Value

RETRIES = {"none": 0, "standard": 4, "aggressive": 4, "linear": 2, "patient": 2}  # of the retry policies by name
_BRACED = re.compile(r"(?<!\{)\{([a-z][a-z0-9_]*)\}(?!\})")
_GOAL = re.compile(r"\{\{\s*goal\s*\}\}|\$goal\b")
_TEMPLATE = re.compile(r"\{\{[^{}]{0,200}\}\}|\{%[^{}]{0,200}%\}")
_THE_GOAL = "the goal of this run"
_FROM = {"script": "run", "tool_command": "run", "label": "name", "retry_policy": "max_retries"}


def id_of(name: str) -> str:
    """Give the id of a step by its node's name: the name where it can be one, else made of it (D7)."""
    return name if is_id(name) else slug(name, empty="step")


def places(node: Node, where: str, place: Callable[[int], str]) -> dict[str, str]:
    """Say where in the text each field of a step comes from, by its JSON path."""
    return {at(where, _FROM.get(key, key)): place(value.at) for key, value in node.attributes().items()}


def fields(
    node: Node, step_id: str, role: Role, place: Callable[[int], str], problems: list[Problem]
) -> dict[str, Any]:
    """Give a step as a raw workflow holds it, without its ways."""
    held = Attributes(node.attributes(), place, problems)
    label = held.line("name", "label")
    name = label.replace("\\N", node.name) if label is not None else node.name if node.name != step_id else None
    timed = role.kind in (COMMAND, WAIT)
    timeout = held.seconds("timeout") if timed else None
    if not timed and (said := held.value("timeout")) is not None:
        held.warn("IGNORED_FIELD", said, "timeout does nothing here: only a command has a time limit")
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
        "fidelity": held.text("fidelity"),
        "max_visits": visits(held, held.value("max_visits"), problems, place),
        "max_retries": _retries(held),
        "require_approval": held.flag("require_approval"),
    }
    return {key: value for key, value in step.items() if value is not None}


def prompt_text(text: str) -> str:
    """Give a prompt as Loom fills it in: what looks like a placeholder and is none of Loom's stays as it stands."""
    return _literal(_GOAL.sub(_THE_GOAL, text))


def _asked(node: Node, held: Attributes, role: Role, name: str) -> dict[str, str | None]:
    if role.kind == WAIT:
        seconds = held.seconds("duration")
        if seconds is None and (held.value("duration") is None):
            said = node.get("shape") or node.get("type")
            if said is not None:
                held.fail("MISSING_FIELD", said, "a step that waits has a duration", 'duration="30s"')
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
            held.warn("NO_PROMPT", said, f"{node.name} has no prompt: its label is what it asks for", 'prompt="…"')
        return {"prompt": name}
    left = [found[0] for found in _TEMPLATE.finditer(prompt.text) if not _GOAL.fullmatch(found[0])]
    if left:
        message = (
            f"{shown(left[0])} stays in the text: Loom fills in {{run_id}} and the like, and gives the goal itself"
        )
        held.warn("TEMPLATE", prompt, message)
    text = prompt.text.strip()
    return {
        "prompt": text if text.startswith("@") else prompt_text(prompt.text),
        "command": held.text("command"),
        "skill": held.text("skill"),
    }


def _script(node: Node, held: Attributes) -> str | None:
    script = held.value("run", "script", "tool_command")
    if script is None:
        said = node.get("shape") or node.get("type")
        if said is not None:
            held.fail("MISSING_TEXT", said, f"the command {shown(node.name)} has no script", 'script="pytest -q"')
        return None
    language = held.value("language")
    if language is not None and language.text not in ("shell", "python"):
        held.fail("UNKNOWN_VALUE", language, f"{shown(language.text)} is no language of a script", "shell or python")
    if _TEMPLATE.search(script.text):
        held.warn("TEMPLATE", script, "a template stays in the script as it stands")
    text = _literal(script.text)
    return f"python3 -c {shlex.quote(text)}" if language is not None and language.text == "python" else text


def _literal(text: str) -> str:
    """Double the braces around names that are no placeholders of Loom's (D8)."""
    known = (*NAMES, *LEFT_TO_ASSISTANT)
    return _BRACED.sub(lambda found: found[0] if found[1] in known else "{" + found[0] + "}", text)


def visits(held: Attributes, said: Value | None, problems: list[Problem], place: Callable[[int], str]) -> int | None:
    """Give a bound on visits; 0 means no bound elsewhere, which Loom has not."""
    if said is None:
        return None
    bound = held.whole("max_visits", "max_node_visits")
    if bound == 0:
        problems.append(warning("IGNORED_FIELD", place(said.at), "0 is no bound; Loom's own default bound holds"))
    return bound or None


def _retries(held: Attributes) -> int | None:
    said = held.whole("max_retries")
    policy = held.value("retry_policy")
    if said is not None or policy is None:
        return said
    if policy.text not in RETRIES:
        held.fail("UNKNOWN_VALUE", policy, f"{shown(policy.text)} is no retry policy", ", ".join(RETRIES))
    return RETRIES.get(policy.text)


def join_of(node: Node, place: Callable[[int], str], problems: list[Problem]) -> str:
    """Give a parallel step's join policy."""
    held = Attributes(node.attributes(), place, problems)
    said = held.value("join", "join_policy")
    if said is None:
        return JOINS[0]
    if said.text not in JOINS:
        held.fail("UNKNOWN_VALUE", said, f"{shown(said.text)} is no join policy", ", ".join(JOINS))
    return said.text
