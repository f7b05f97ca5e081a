"""From the name of a workflow to one merged, checked workflow: its ancestors followed, every problem gathered."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.problems import error, errors, in_file, placed, refusal, warning
from loomctl.workflows import graph_checks, workflow_files
from loomctl.workflows.artifacts import ALLOW
from loomctl.workflows.steps import PARTS, step_id
from loomctl.workflows.survival import KEY
from loomctl.workflows.workflow import build_plan, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.workflows.workflow import Workflow
    from loomctl.workflows.workflow_files import Places


class Resolved(NamedTuple):
    """workflow and merged: None if there are errors, but for NO_STEPS, for FABER's give artifacts without a step (D5).

    sources: `{id, path, sha256}`, the root ancestor first. path: the file that was asked for. Problems of an ancestor
    carry its portable path before their JSON path.
    """

    path: str
    workflow: Workflow | None
    merged: dict[str, Any] | None
    sources: list[dict[str, str]]
    problems: list[Problem]

    def checked(self) -> dict[str, Any]:
        """Give the merged workflow for `build_plan`. Raises one LoomError that says every error."""
        refused = refusal(self.problems, what="this workflow is invalid", where=self.path)
        if refused is not None or self.merged is None:
            raise refused or AssertionError("a workflow without errors was not merged")
        return self.merged


class _Link(NamedTuple):
    """One file of the chain. name: what its problems are prefixed with, empty for the file that was asked for.

    places: where in its text what its problems speak of stands, by JSON path (of DOT alone).
    """

    path: str
    name: str
    raw: dict[str, Any]
    own: Workflow | None
    places: Mapping[str, str]

    @property
    def id(self) -> str:
        return str(self.raw.get("id") or os.path.basename(self.path))

    def said(self, problems: Iterable[Problem]) -> list[Problem]:
        found = placed(problems, self.places)
        return in_file(self.name, found) if self.name else found


def resolve(ref: str, places: Places, *, base: str | None = None, by_user: bool = True) -> Resolved:
    """Resolve a workflow by its name: id, `loom:id`, `project:id` or path.

    base: the folder that paths are relative to, the current directory by default. by_user: a path may lie anywhere,
    for its user named it; what a project's settings name stays in the project. Raises LoomError if nothing goes by
    that name; what is wrong with the files is in `problems`.
    """
    found = workflow_files.locate(ref, places, base=base)
    named = by_user and ("/" in ref or "\\" in ref or ref.endswith(workflow_files.SUFFIXES))
    resolved = _resolved(found.path, places, trusted=named)
    if found.stands_in:
        resolved.problems.insert(0, _stand_in(ref, found.path, "$"))
    return resolved


def resolve_file(path: str, places: Places) -> Resolved:
    """Resolve the workflow in one file."""
    return _resolved(os.path.abspath(path), places, trusted=True)


def _resolved(path: str, places: Places, *, trusted: bool) -> Resolved:
    problems: list[Problem] = []
    chain: list[_Link] = []
    sources: list[dict[str, str]] = []
    roots = [places.project_dir, places.store, places.bundle, *([os.path.dirname(path)] if trusted else [])]
    following: str | None = path
    while following is not None:
        if not any(files.is_inside(following, root) for root in roots):
            problems += chain[-1].said([outside(following, "$.extends")]) if chain else [outside(following)]
            break
        name = workflow_files.portable(following, places) if chain else ""
        loaded = workflow_files.load(following)
        if errors(loaded.problems) or not isinstance(loaded.raw, dict):
            found = loaded.problems or parse(loaded.raw)[1]
            problems += in_file(name, found) if name else found
            break
        asked, of_prompts = workflow_files.with_prompts(loaded.raw, following, roots)
        own, found = parse(asked)
        raw, of_schemas = workflow_files.with_schemas(asked, following, roots)
        link = _Link(following, name, raw, own, loaded.places)
        said = (
            loaded.problems,
            of_prompts,
            found,
            of_schemas,
            graph_checks.expression_problems(asked, of_dot=bool(loaded.places)),
        )
        problems += link.said(problem for each in said for problem in each)
        chain.append(link)
        sources.append({"id": link.id, "path": workflow_files.portable(following, places), "sha256": loaded.sha256})
        following = _parent(chain, places, problems)
    sources.reverse()
    if errors(problems):
        return Resolved(path, None, None, sources, problems)
    merged = merge([(link.id, link.raw) for link in reversed(chain)])
    workflow, found = parse(merged)
    problems += errors(found)  # its warnings were said file by file
    if workflow is None:
        return Resolved(path, None, None, sources, problems)
    for link in chain:
        problems += link.said(graph_checks.dangling(link.own, workflow, merged) if link.own else ())
    if not errors(problems):
        plan = build_plan(merged, plan_id="check", created_at="", sources=[])
        steps = _step_places(chain)
        found = graph_checks.problems(plan, lambda key: steps.get(key, "$"))
        for link in chain:
            own_file = f"{link.name}: " if link.name else ""
            found = placed(found, {own_file + where: own_file + place for where, place in link.places.items()})
        problems += found
    if errors(problems):
        return Resolved(path, None, None, sources, problems)
    return Resolved(path, workflow, merged, sources, [*problems, *graph_checks.stepless(workflow)])


def _step_places(chain: list[_Link]) -> dict[str, str]:
    found: dict[str, str] = {}
    for link in chain:
        for key, where in (graph_checks.step_places(link.own) if link.own else {}).items():
            found.setdefault(key, f"{link.name}: {where}" if link.name else where)
    return found


def _parent(chain: list[_Link], places: Places, problems: list[Problem]) -> str | None:
    """Find the file that the chain's last workflow extends; None if there is none, or none that can be used."""
    link = chain[-1]
    ref = link.raw.get("extends")
    if not isinstance(ref, str) or not ref.strip():
        return None
    try:
        found = workflow_files.locate(ref, places, named_in=link.path)
    except LoomError as refused:
        code = "UNKNOWN_PARENT" if refused.code == "UNKNOWN_WORKFLOW" else refused.code
        problems += link.said([error(code, "$.extends", f"extends: {refused.what}", refused.why or refused.hint)])
        return None
    if found.stands_in:
        problems += link.said([_stand_in(ref, found.path, "$.extends")])
    seen = [os.path.realpath(each.path) for each in chain]
    real = os.path.realpath(found.path)
    if real in seen:
        begins = seen.index(real)
        cycle = " -> ".join([*(each.id for each in chain[begins:]), chain[begins].id])
        hint = "remove one extends; loom:core always means Loom's own core"
        problems += link.said([error("EXTENDS_CYCLE", "$.extends", f"workflows extend each other: {cycle}", hint)])
        return None
    return found.path


def _stand_in(ref: str, path: str, where: str) -> Problem:
    message = f"{ref} is not here; Loom's own {os.path.splitext(os.path.basename(path))[0]} stands in for it"
    hint = "name Loom's with loom:, or put FABER's file into .fractary/faber/workflows/"
    return warning("STAND_IN", where, message, hint)


def outside(path: str, where: str = "$") -> Problem:
    """Say that a file is none that a project may name (D10)."""
    message = f"{os.path.basename(path)} is outside of the project and the bundle; Loom does not read it"
    return error("PATH_ESCAPE", where, message, "copy it into .loom/workflows/")


_GROUPS = ("always_load", "conditional_load")
# Said key by key: a child that changes one of them keeps the others (an approval is not lost by naming a level).
_KEY_BY_KEY = ("autonomy", "result_handling")
_NOT_INHERITED = ("extends", "$schema")


def merge(chain: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Merge workflows into one, as a plain workflow without `extends`.

    chain: (id, raw workflow), the root ancestor first; each has passed `parse` without an error. pre_steps run root →
    child, post_steps child → root; steps are the nearest non-empty ones (an explicit [] inherits: FABER's children
    write it so). A step named again in its phase is one step, the nearest definition at the first place (D7). Critical
    artifacts are merged by id, the child's in the parent's place. skip_steps add up, and so do must_survive and
    allow, the parent's items first. Phases keep the parent's order.
    """
    merged: dict[str, Any] = {}
    for _, raw in chain:
        merged = _over(merged, raw)
    return merged


def _over(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**parent, **{key: value for key, value in child.items() if key not in _NOT_INHERITED}}
    for key in _KEY_BY_KEY:
        if key in parent and key in child:
            merged[key] = _keys_over(parent[key], child[key])
    if "skip_steps" in parent and "skip_steps" in child:
        merged["skip_steps"] = list(dict.fromkeys([*parent["skip_steps"], *child["skip_steps"]]))
    for name in (KEY, ALLOW):
        if name in parent and name in child:
            merged[name] = [*parent[name], *(entry for entry in child[name] if entry not in parent[name])]
    if "critical_artifacts" in parent and "critical_artifacts" in child:
        merged["critical_artifacts"] = _artifacts_over(parent["critical_artifacts"], child["critical_artifacts"])
    phases = {name: dict(phase) for name, phase in parent.get("phases", {}).items()}
    for name, phase in child.get("phases", {}).items():
        phases[name] = _phase_over(phases.get(name, {}), phase)
    if "phases" in parent or "phases" in child:
        merged["phases"] = phases
    return merged


def _keys_over(parent: Any, child: Any) -> dict[str, Any]:
    long = [{"level": said} if isinstance(said, str) else said for said in (parent, child)]
    return {**long[0], **long[1]}


def _phase_over(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**parent, **child}
    if "result_handling" in parent and "result_handling" in child:
        merged["result_handling"] = _keys_over(parent["result_handling"], child["result_handling"])
    own = {step_id(step): part for part in PARTS for step in child.get(part, ())}
    kept = {part: [step for step in parent.get(part, ()) if own.get(step_id(step), part) == part] for part in PARTS}
    parts = {
        "pre_steps": _one_each(kept["pre_steps"], child.get("pre_steps", ())),
        "steps": list(child.get("steps") or kept["steps"]),
        "post_steps": _one_each(child.get("post_steps", ()), kept["post_steps"], nearest=child.get("post_steps", ())),
    }
    for part, steps in parts.items():
        if steps or part in merged:
            merged[part] = steps
    return merged


def _one_each(
    first: Sequence[Mapping[str, Any]],
    then: Sequence[Mapping[str, Any]],
    nearest: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Join two lists, each step once at its first place, as `nearest` (else `then`) defines it."""
    placed: dict[str, dict[str, Any]] = {}
    for step in (*first, *then, *(then if nearest is None else nearest)):
        placed[step_id(step)] = dict(step)
    return list(placed.values())


def _artifacts_over(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    own = {entry["id"]: place for place, entries in _places(child).items() for entry in entries}
    groups = {
        place: [entry for entry in entries if own.get(entry["id"], place) == place]
        for place, entries in _places(parent).items()
    }
    for place, entries in _places(child).items():
        by_id = {entry["id"]: dict(entry) for entry in groups.get(place, ())}
        by_id.update((entry["id"], dict(entry)) for entry in entries)
        groups[place] = list(by_id.values())
    merged = {**parent, **child}
    for name in _GROUPS:
        if (name, None) in groups:
            merged[name] = groups[name, None]
    phases = {phase: entries for (name, phase), entries in groups.items() if name == "phase_specific" and phase}
    if phases:
        merged["phase_specific"] = phases
    return merged


def _places(groups: Mapping[str, Any]) -> dict[tuple[str, str | None], list[dict[str, Any]]]:
    """List a declaration's groups by place, such as `("always_load", None)` and `("phase_specific", "build")`."""
    places: dict[tuple[str, str | None], list[dict[str, Any]]] = {
        (name, None): groups[name] for name in _GROUPS if name in groups
    }
    places.update((("phase_specific", phase), entries) for phase, entries in groups.get("phase_specific", {}).items())
    return places
