"""Whether the conditions and state paths of a workflow can be read at all, asked of the engines that will read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.disk import expressions
from loomctl.model.critical_artifacts import declared
from loomctl.model.problems import at, error, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.model.problems import Problem

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


def problems(raw: object) -> Iterator[Problem]:
    """Find syntax errors in every `condition` (JavaScript, D12) and `path_from_state` (JSONPath, D11).

    raw: a workflow as it was read; what is no text is passed over, the parser speaks of it.
    """
    for where, artifact in declared(raw):
        for key, kind, code, what, hint in _KINDS:
            source = artifact.get(key)
            if isinstance(source, str) and source.strip():
                said = expressions.syntax_error(source, kind)
                if said:
                    yield error(code, at(where, key), f"{shown(source)} is no {what}: {said}", hint)
