"""Whether the conditions and state paths of a workflow can be read at all, asked of the engines that will read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loomctl.expressions import engine
from loomctl.kit.problems import at, error, shown, warning
from loomctl.workflows import bare_words
from loomctl.workflows.model import evidence, transitions
from loomctl.workflows.model.critical_artifacts import declared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomctl.kit.problems import Problem

_KINDS = (
    (
        "condition",
        "condition",
        "CONDITION_SYNTAX",
        "JavaScript expression",
        "one JavaScript expression over state, such as state.artifacts.spec_path != null",
    ),
    (
        "path_from_state",
        "path",
        "PATH_SYNTAX",
        "JSONPath",
        "a path into state.json, such as artifacts.spec_path or $.artifacts['spec-path']",
    ),
)
_OF_TRANSITION = (
    "condition",
    "condition",
    "CONDITION_SYNTAX",
    "JavaScript expression",
    'one JavaScript expression over state, outcome, context and preferred_label, such as outcome == "succeeded"',
)

_TEXTS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|/(?:[^/\\\n]|\\.)+/""")
_SETS = re.compile(r"(?<![=!<>])=(?![=>])")


def problems(raw: object, *, of_dot: bool = False) -> Iterator[Problem]:
    """Find syntax errors in every `condition` (JavaScript, D12) and `path_from_state` (JSONPath, D11).

    A condition with a single = is warned of: in JavaScript it sets, so that it is true whatever the value was. So is
    one with a text that lacks its quotes: it throws, which counts as false (`bare_words`).
    of_dot: what is JavaScript here was written in DOT's own words, which the error then speaks of.
    raw: a workflow as it was read; what is no text is passed over, the parser speaks of it.
    """
    for where, artifact in declared(raw):
        for kind in _KINDS:
            yield from _problem(artifact, where, *kind)
    for where, wanted in evidence.declared(raw):
        yield from _problem(wanted, where, *_OF_TRANSITION)
        yield from _problem(wanted, where, "state", *_KINDS[1][1:])
    for where, transition in transitions.declared(raw):
        for found in _problem(transition, where, *_OF_TRANSITION):
            yield _in_dots_words(found) if of_dot and found.code == "CONDITION_SYNTAX" else found


def _in_dots_words(found: Problem) -> Problem:
    said = found.message.rpartition(" is no JavaScript expression: ")[2]
    hint = "a regular expression behind matches is the usual cause; js: before a condition means JavaScript"
    return found._replace(message=f"the condition of this edge cannot be evaluated: {said}", hint=hint)


def _problem(
    holder: Mapping[str, Any], where: str, key: str, kind: str, code: str, what: str, hint: str
) -> Iterator[Problem]:
    source = holder.get(key)
    said = engine.syntax_error(source, kind) if isinstance(source, str) and source.strip() else None
    if said:
        yield error(code, at(where, key), f"{shown(source)} is no {what}: {said}", hint)
    if said or kind != "condition" or not isinstance(source, str):
        return
    if _SETS.search(_TEXTS.sub("x", source)):
        yield warning(
            "CONDITION_SETS", at(where, key), f"{shown(source)} sets a value: a single = compares nothing", "write =="
        )
    elif (word := bare_words.found_in(source)) is not None:
        why = f"{shown(source)} throws, and is false then: {shown(word)} is a name that nothing has"
        yield warning("CONDITION_WORD", at(where, key), why, f'a text has quotes: "{word}"')
