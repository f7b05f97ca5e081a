"""Prompts that a workflow in DOT keeps in files of their own (`prompt="@prompts/plan.md"`), read into its steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.problems import at, error, shown
from loomctl.workflows import workflow_files
from loomctl.workflows.dot.steps import prompt_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.kit.problems import Problem

LARGEST = 256 << 10
_LARGEST_TOGETHER = 8 << 20  # of one workflow: a file may be named by every step


def filled_in(raw: Mapping[str, Any], path: str, roots: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """Give a workflow from DOT with the text of each prompt's file; any other is given as it is.

    raw: as it was read from `path`; it is not changed. roots: folders that the files must lie in, links followed (D10).
    """
    if not path.endswith(workflow_files.DOT):
        return dict(raw), []
    reader = _Reader(path, roots)
    phases = {
        name: {**phase, "steps": reader.steps(phase["steps"], at("$", "phases", name, "steps"))}
        for name, phase in raw["phases"].items()
    }
    return {**raw, "phases": phases}, reader.problems


class _Reader:
    def __init__(self, path: str, roots: Sequence[str]) -> None:
        self._folder, self._roots = os.path.dirname(os.path.abspath(path)), roots
        self._left = _LARGEST_TOGETHER
        self.problems: list[Problem] = []

    def steps(self, steps: Sequence[Mapping[str, Any]], where: str) -> list[dict[str, Any]]:
        return [self._step(dict(step), at(where, index)) for index, step in enumerate(steps)]

    def _step(self, step: dict[str, Any], where: str) -> dict[str, Any]:
        prompt = step.get("prompt")
        if isinstance(prompt, str) and prompt.startswith("@"):
            step["prompt"] = self._text(prompt, at(where, "prompt"))
        if "parallel" in step:
            inside = at(where, "parallel", "branches")
            branches = [
                {**branch, "steps": self.steps(branch["steps"], at(inside, index, "steps"))}
                for index, branch in enumerate(step["parallel"]["branches"])
            ]
            step["parallel"] = {**step["parallel"], "branches": branches}
        return step

    def _text(self, reference: str, where: str) -> str:
        """Read one file; the reference itself stands in for what cannot be read."""
        name = reference[1:].strip()
        path = os.path.normpath(os.path.join(self._folder, name))
        if "\0" in name or not any(files.is_inside(path, root) for root in self._roots):
            message = f"{shown(name, 200)} lies outside of the project and the bundle; nothing of it is read"
            self.problems.append(error("PATH_ESCAPE", where, message, "copy it beside the workflow"))
            return reference
        try:
            data = files.read_bytes(path, limit=min(LARGEST, self._left))
            self._left -= len(data)
            text = files.text_of(data)
        except LoomError as problem:
            self.problems.append(error(problem.code, where, f"{shown(name, 200)}: {problem.what}"))
        except UnicodeDecodeError:
            self.problems.append(error("NOT_UTF8", where, f"{shown(name, 200)} is not UTF-8 text", "save it as UTF-8"))
        except OSError as problem:
            hint = "the path is relative to the workflow's own file"
            message = f"the prompt's file {shown(name, 200)} cannot be read: {problem.strerror}"
            self.problems.append(error("UNKNOWN_PROMPT", where, message, hint))
        else:
            return prompt_text(text)
        return reference
