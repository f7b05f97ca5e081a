"""Whether a workflow makes sense beyond its form: its names, its ways and labels (D45), its conditions and paths (D12).

Linear in its steps and ways.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loomctl.expressions import engine
from loomctl.expressions.conditions import ROOTS
from loomctl.kit.problems import at, choices, error, nearest, objects, shown, warning
from loomctl.runs.model.frozen_plan import after, is_human, is_routed, places
from loomctl.runs.model.visits import END, FAILED, OUTCOMES, SPELLINGS
from loomctl.workflows import artifacts, branches, routing, triggers
from loomctl.workflows.artifacts import EVIDENCE, everything_said, unknown_artifact
from loomctl.workflows.steps import ROUTING, each_step, key_of
from loomctl.workflows.survival import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.runs.model.frozen_plan import Place
    from loomctl.workflows.steps import Step
    from loomctl.workflows.workflow import Workflow

_SHOWN = 8  # steps of a loop that are named


# ---- Names: looked at in one file, against the workflow that it becomes with its ancestors.


def dangling(own: Workflow, merged: Workflow, raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what `own` (one file) refers to and `merged` (the file with its ancestors) does not have.

    raw: what was merged, as it was written. What a step leads to is an error, so is an artifact that must survive.
    """
    phases = [phase.id for phase in merged.phases]
    keys = [key for _, key, _ in merged.each_step()]
    step_ids = list(dict.fromkeys(key.partition("/")[2] for key in keys))
    yield from _unknown_names(own, phases, [*step_ids, *keys])
    for artifact in own.artifacts:
        for index, trigger in enumerate(artifact.reload_triggers):
            for name in triggers.split(trigger)[1:]:
                if name and name != "*" and name not in phases:
                    message = f"{shown(trigger)} never fires, because there is no phase {shown(name)}"
                    place = at(artifact.where, "reload_triggers", index)
                    yield warning("UNKNOWN_PHASE", place, message, choices(name, phases))
    for name in own.artifact_phases:
        if name not in phases:
            where = at("$", "critical_artifacts", "phase_specific", name)
            message = f"there is no phase {shown(name)}, so Loom never loads these"
            yield warning("UNKNOWN_PHASE", where, message, choices(name, phases))
    ids, said = [artifact.id for artifact in merged.artifacts], everything_said(raw)
    for index, entry in enumerate(own.must_survive):
        yield from unknown_artifact(entry, at("$", KEY, index), ids, said)
    yield from _unknown_targets(own, merged)


def _unknown_names(own: Workflow, phases: list[str], steps: list[str]) -> Iterator[Problem]:
    """Find phases and steps that `own` names and nobody has; a misspelt approval is an error: no yes would be asked."""
    for index, name in enumerate(own.skip_steps):
        if name not in steps:
            message = f"skip_steps names {shown(name)}, but there is no such step"
            yield warning("UNKNOWN_STEP", at("$", "skip_steps", index), message, choices(name, steps))
    for index, name in enumerate((own.autonomy or {}).get("require_approval_for", ())):
        if name not in phases and name not in steps:
            where = at("$", "autonomy", "require_approval_for", index)
            message = f"require_approval_for names {shown(name)}, but there is no such phase or step"
            known = [*phases, *steps]
            severe = error if nearest(name, known) else warning
            yield severe("UNKNOWN_STEP", where, message, choices(name, known))
    for phase in own.phases:
        others = [name for name in phases if name != phase.id]
        if (phase.pre_steps or phase.post_steps) and not phase.steps and nearest(phase.id, others):
            message = f"phase {shown(phase.id)} is a new one, and comes after the others"
            yield warning("UNKNOWN_PHASE", at("$", "phases", phase.id), message, choices(phase.id, others))


def _unknown_targets(own: Workflow, merged: Workflow) -> Iterator[Problem]:
    gone = _left_out(merged)
    known = [key for _, key, _ in merged.each_step() if key not in gone]
    there, bare = set(known), [key.partition("/")[2] for key in known]
    target = own.retry_target
    if target is not None and target not in there and bare.count(target) != 1:
        message = f"retry_target leads to {shown(target)}, but there is {_why(target, bare, gone)}"
        yield error("UNKNOWN_STEP", "$.retry_target", message, choices(target, known))
    for phase, _, step in own.each_step():
        if phase.enabled is False:
            continue
        yield from _leaves_branch(step)
        for where, name in step.targets():
            key = key_of(name, phase.id)
            if key not in there and not _ends(key, where):
                local = [one.partition("/")[2] for one in known if one.startswith(f"{phase.id}/")]
                message = f"{shown(name)} leads to {shown(key)}, but there is {_why(key, (), gone)}"
                yield error("UNKNOWN_STEP", where, message, choices(name, [*local, *known, END]))


def _leaves_branch(step: Step) -> Iterator[Problem]:
    for branch, _, inner in step.inner():
        names = [one.id for one in branch.steps]
        for where, name in inner.targets():
            if name not in names and not _ends(name, where):
                message = f"branch {shown(branch.id)} has no step {shown(name)}"
                yield error("UNKNOWN_STEP", where, message, choices(name, [*names, END]))


def _ends(name: str, where: str) -> bool:
    """Tell whether a transition ends the run; a retry_target leads to a step."""
    return name == END and not where.endswith(".retry_target")


def _why(name: str, bare: Sequence[str], gone: Mapping[str, str]) -> str:
    if bare.count(name) > 1:
        return f"one in {bare.count(name)} phases: write phase/id"
    return f"no such step in a run: {gone[name]}" if name in gone else "no such step"


def _left_out(merged: Workflow) -> dict[str, str]:
    found: dict[str, str] = {}
    for phase, key, step in merged.each_step():
        if phase.enabled is False:
            found[key] = f"phase {phase.id} is not enabled"
        elif merged.skips(phase.id, step.id):
            found[key] = "skip_steps skips it"
    return found


def stepless(merged: Workflow) -> list[Problem]:
    """Refuse a workflow whose run would be completed at once, with nothing done."""
    gone = _left_out(merged)
    if any(key not in gone for _, key, _ in merged.each_step()):
        return []
    if not any(True for _ in merged.each_step()):
        hint = f"write a workflow that says `extends: {merged.id}` and adds steps, or add steps to this one"
        return [error("NO_STEPS", "$.phases", "no phase has a step; this workflow is only there to be extended", hint)]
    hint = "enable a phase, or remove a step from skip_steps"
    return [error("NO_STEPS", "$.phases", "every step is disabled or skipped", hint)]


def step_places(own: Workflow) -> dict[str, str]:
    """Give the JSON path of each step of a file by its key, those of branches too."""
    found: dict[str, str] = {}
    for phase, key, step in own.each_step():
        found.setdefault(key, step.where)
        for _, name, inner in step.inner():
            found.setdefault(f"{phase.id}/{name}", inner.where)
    return found


# ---- The graph as a whole: looked at in a plan.


def problems(plan: Mapping[str, Any], where: Callable[[str], str] | None = None) -> list[Problem]:
    """Give what is wrong with a plan's ways. where: gives the place of a step by its key, for the messages.

    A step that nothing leads to is a warning, and one whose label decides though nothing asks for it. A loop from which
    no way leads to the end is an error, and so are labels of one step that mean the same and lead to different steps. A
    branch of a parallel step is a graph of its own.
    """
    fans = [place for place in places(plan) if branches.is_parallel(place.step)]
    placed = where or (lambda key: f"$ {key}")
    inside = [found for place in fans for found in _shared_lists(place, placed)]
    inside += [found for place in fans for _, one in branches.plans(plan, place) for found in problems(one, where)]
    if not is_routed(plan):
        return inside
    found: list[Problem] = []
    for place in places(plan):
        found += _collisions(place, placed(place.key))
        found += _without_choice(place, placed(place.key))
        found += _chosen_by_name(place, placed(place.key))
    leads = {place.key: ways_on(plan, place) for place in places(plan)}
    reached = _reached(leads, [place.key for place in places(plan)[:1]])
    for place in places(plan):
        if place.key not in reached:
            hint = "add a transition to it, or remove it"
            found.append(warning("UNREACHABLE_STEP", placed(place.key), f"no way leads to {place.key}", hint))
    found += _without_end(leads, reached, placed)
    return [*found, *inside]


def _shared_lists(place: Place, where: Callable[[str], str]) -> Iterator[Problem]:
    """Find task lists that two branches would work on at the same time: each would tick what the other does (D65)."""
    seen: dict[tuple[str, ...], list[tuple[str | None, str]]] = {}
    for branch in place.step["parallel"]["branches"]:
        own: dict[tuple[str, ...], list[tuple[str | None, str]]] = {}
        for step in branch["steps"]:
            asked = step.get("for_each")
            if not asked:
                continue
            path, section = tuple(map(str, asked["path_steps"] or ())), asked.get("section")
            part = " ".join(section.casefold().split()) if section is not None else None
            own.setdefault(path, []).append((part, str(branch["id"])))
            taken = (name for other, name in seen.get(path, ()) if part is None or other is None or part == other)
            if (name := next(taken, None)) is not None:
                message = f"branches {name} and {branch['id']} share one task list, {asked['list']}"
                hint = "give each its own section: for_each: {list: artifacts.spec_path, section: API}"
                yield error("SHARED_TASK_LIST", at(where(str(step["key"])), "for_each"), message, hint)
        for path, parts in own.items():
            seen.setdefault(path, []).extend(parts)


def ways_on(plan: Mapping[str, Any], place: Place) -> set[str | None]:
    """Give all steps that may follow a step, None for the end: by success, by failure, whatever its conditions are."""
    transitions: Sequence[Mapping[str, Any]] = place.step.get("transitions") or ()
    found: set[str | None] = {None if one["to"] == END else str(one["to"]) for one in transitions}
    behind = after(plan, place.key)
    in_order = behind.key if behind is not None else None
    target = place.step.get("retry_target") or plan.get("retry_target")
    if not transitions:
        found.add(in_order)
    if target:
        found.add(str(target))
    elif routing.handling(place.step, FAILED) != "stop":
        found.add(in_order)
    return found


def _reached(leads: Mapping[str, Iterable[str | None]], begin: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    left = list(begin)
    while left:
        key = left.pop()
        if key not in seen:
            seen.add(key)
            left += [one for one in leads.get(key, ()) if one is not None]
    return seen


def _without_end(
    leads: Mapping[str, set[str | None]], reached: set[str], where: Callable[[str], str]
) -> Iterator[Problem]:
    back: dict[str, list[str]] = {}
    for key, ahead in leads.items():
        for one in ahead:
            if one is not None:
                back.setdefault(one, []).append(key)
    leaving = _reached(back, [key for key, ahead in leads.items() if None in ahead])
    caught = [key for key in leads if key in reached and key not in leaving]
    if caught:
        named = ", ".join(caught[:_SHOWN]) + (f" and {len(caught) - _SHOWN} more" if len(caught) > _SHOWN else "")
        message = f"the run cannot leave {named}: no way leads from there to the end"
        hint = 'add a transition out of the loop: {"to": "end"}, or to a step after it'
        yield error("LOOP_WITHOUT_END", where(caught[0]), message, hint)


def _without_choice(place: Place, where: str) -> Iterator[Problem]:
    """Find ways of a human step that nobody can choose, and those that are taken whatever somebody chooses."""
    if not is_human(place.step):
        return
    listed: Sequence[Mapping[str, Any]] = place.step.get("transitions") or ()
    free = [index for index, one in enumerate(listed) if one.get("condition") is None and not one.get("on_failure")]
    for index in free if len(free) > 1 else ():
        if not listed[index].get("label"):
            message = f"nobody can choose the way to {listed[index]['to']}, because it has no label"
            yield error("NO_LABEL", at(where, "transitions", index), message, '"label": "[F] Fix"')
    for index, one in enumerate(listed):
        if one.get("condition") is not None and one.get("label"):
            message = f"nobody can choose {shown(one['label'])}, because its condition decides"
            hint = "leave out the label or the condition"
            yield warning("LABEL_UNUSED", at(where, "transitions", index, "label"), message, hint)


def _collisions(place: Place, where: str) -> Iterator[Problem]:
    """Find labels among which an answer could not choose; one that stands with a condition is not chosen by label."""
    words: dict[str, int] = {}
    keys: dict[str, int] = {}
    listed: Sequence[Mapping[str, Any]] = place.step.get("transitions") or ()
    for index, transition in enumerate(listed):
        if transition.get("label") is None or transition.get("condition") is not None:
            continue
        at_label, label = at(where, "transitions", index, "label"), routing.label_of(str(transition["label"]))
        first = words.setdefault(routing.normalise(str(transition["label"])), index)
        if listed[first]["to"] != transition["to"]:
            told = f"{shown(listed[first]['label'])} and {shown(transition['label'])}"
            message = f"{told} are the same label, but lead to different steps"
            yield error("SAME_LABEL", at_label, message, "rename one; case, blanks and accelerators do not count")
            continue
        first = keys.setdefault(label.key, index) if label.key else index
        if listed[first]["to"] != transition["to"]:
            means = "neither" if is_human(place.step) else "the heavier one"
            message = f"two labels have the accelerator {shown(label.key)}; alone it means {means}"
            yield warning("SAME_ACCELERATOR", at_label, message, "give each label its own letter")


def _chosen_by_name(place: Place, where: str) -> Iterator[Problem]:
    """Find a step whose answers may say no label, after which the run takes a labelled way for its name alone (D45).

    A person is asked for a label, and so is an answer by the routing schema. A way that weighs more than all others, or
    has no label and comes first, is meant to be taken.
    """
    if is_human(place.step) or place.step.get("output_schema") == ROUTING:
        return
    listed: Sequence[Mapping[str, Any]] = place.step.get("transitions") or ()
    choice = routing.choose(
        {"transitions": listed},
        outcome="succeeded",
        label=None,
        suggested=(),
        truths=[None if one.get("condition") is None else False for one in listed],
    )
    if choice is None or choice.transition is None or not choice.label:
        return
    taken = listed[choice.transition]
    tied = [
        one
        for one in listed
        if one.get("condition") is None
        and one.get("on_failure") is not True
        and (one.get("weight") or 0) == (taken.get("weight") or 0)
        and one["to"] != taken["to"]
    ]
    if tied:
        message = f"without a label the run takes {shown(choice.label)}, because {taken['to']} is first by name"
        yield warning(
            "LABEL_NOT_ASKED", where, message, f'to ask for one: "output_schema": "{ROUTING}"; to rank them: "weight"'
        )


# ---- Conditions and paths, asked of the engines that will read them.

_CONDITION = ("condition", "condition", "CONDITION_SYNTAX", "JavaScript expression")
_OF_ARTIFACT = "one JavaScript expression over state, such as state.artifacts.spec_path != null"
_OF_STEP = 'one JavaScript expression over state, outcome, context, task and preferred_label: outcome == "succeeded"'
_PATH = ("path", "PATH_SYNTAX", "JSONPath")
_OF_STATE = "a path into state.json, such as artifacts.spec_path or $.artifacts['spec-path']"
_TEXTS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|/(?:[^/\\\n]|\\.)+/""")
_SETS = re.compile(r"(?<![=!<>])=(?![=>])")


def expression_problems(raw: object, *, of_dot: bool = False) -> Iterator[Problem]:
    """Find syntax errors in every `condition` (JavaScript, D12) and `path_from_state` (JSONPath, D11).

    A condition with a single = is warned of: in JavaScript it sets, so that it is true whatever the value was. So is
    one with a text that lacks its quotes: it throws, which counts as false (`bare_word`).
    of_dot: what is JavaScript here was written in DOT's own words, which the error then speaks of.
    raw: a workflow as it was read; what is no text is passed over, the parser speaks of it.
    """
    for where, artifact in artifacts.declared(raw):
        yield from _problem(artifact, where, *_CONDITION, _OF_ARTIFACT)
        yield from _problem(artifact, where, "path_from_state", *_PATH, _OF_STATE)
    steps = each_step(raw)
    for place, step in steps:
        for where, piece in objects(step, EVIDENCE, place):
            yield from _problem(piece, where, *_CONDITION, _OF_STEP)
            yield from _problem(piece, where, "state", *_PATH, _OF_STATE)
    for place, step in steps:
        for where, transition in objects(step, "transitions", place):
            for found in _problem(transition, where, *_CONDITION, _OF_STEP):
                yield _in_dots_words(found) if of_dot and found.code == "CONDITION_SYNTAX" else found


def _in_dots_words(found: Problem) -> Problem:
    said = found.message.rpartition(" is not a valid JavaScript expression: ")[2]
    hint = "the usual cause is a regular expression after matches; js: before a condition means JavaScript"
    return found._replace(message=f"Loom cannot evaluate the condition of this edge: {said}", hint=hint)


def _problem(
    holder: Mapping[str, Any], where: str, key: str, kind: str, code: str, what: str, hint: str
) -> Iterator[Problem]:
    source = holder.get(key)
    said = engine.syntax_error(source, kind) if isinstance(source, str) and source.strip() else None
    if said:
        yield error(code, at(where, key), f"{shown(source)} is not a valid {what}: {said}", hint)
    if said or kind != "condition" or not isinstance(source, str):
        return
    if _SETS.search(_TEXTS.sub("x", source)):
        yield warning(
            "CONDITION_SETS", at(where, key), f"{shown(source)} sets a value; a single = does not compare", "write =="
        )
    elif (word := bare_word(source)) is not None:
        why = f"{shown(source)} throws and counts as false, because nothing is called {shown(word)}"
        yield warning("CONDITION_WORD", at(where, key), why, f'put a text in quotes: "{word}"')


# ---- Words in a condition that were meant as texts, and that JavaScript takes for names which nothing has (D32).

_QUOTED = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
_TOKENS = re.compile(r"[=!]==?|=>|\?\.|[\w$]+|\S")
_EQUAL = frozenset(("==", "!=", "===", "!=="))
_LEADS_ON = frozenset((".", "?.", "[", "("))
_MEANT = frozenset((*OUTCOMES, *SPELLINGS))
# What JavaScript knows by itself, and what may stand before a value.
_KNOWN = frozenset(
    """
    true false null undefined NaN Infinity this globalThis arguments
    Object Array String Number Boolean Symbol BigInt Function Date RegExp Math JSON Reflect Promise Proxy Intl Atomics
    Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError InternalError
    Map Set WeakMap WeakSet WeakRef Iterator FinalizationRegistry ArrayBuffer SharedArrayBuffer DataView
    Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array Float16Array Float32Array
    Float64Array BigInt64Array BigUint64Array DOMException CallSite
    DisposableStack AsyncDisposableStack SuppressedError atob btoa
    parseInt parseFloat isNaN isFinite escape unescape eval encodeURI encodeURIComponent decodeURI decodeURIComponent
    performance queueMicrotask navigator
    new void delete in instanceof await async yield class super import let of
    """.split()  # noqa: SIM905 - a hundred lines of list would tell less
)
# Where one of these stands, a word may be a name that the condition makes itself, or be none of the condition's.
_MAKES_NAMES = frozenset(("=>", "{", "function", "typeof", "`", "/", "\\", "'", '"', "#"))


def bare_word(source: str) -> str | None:
    """Give the first word of a condition that is a text without its quotes; None where there is none for certain.

    It is one of an outcome's words, or is compared by `==`, `===`, `!=` or `!==` with what a condition sees. What may
    have a meaning is passed over: a word before `.`, `[` or `(`, and each condition that makes names of its own or
    that is not read with certainty here (a function, an object, a template, a slash). source: as it was written, and
    of right syntax.
    """
    tokens: list[str] = _TOKENS.findall(_QUOTED.sub("0", source))
    if not _MAKES_NAMES.isdisjoint(tokens):
        return None
    for place, word in enumerate(tokens):
        if _is_bare(tokens, place) and (word in _MEANT or _is_compared(tokens, place)):
            return word
    return None


def _is_bare(tokens: list[str], place: int) -> bool:
    word = tokens[place]
    if not (word[0].isalpha() or word[0] in "_$") or word in _KNOWN or word in ROOTS:
        return False
    return _at(tokens, place - 1) not in (".", "?.") and _at(tokens, place + 1) not in _LEADS_ON


def _is_compared(tokens: list[str], place: int) -> bool:
    before = _at(tokens, place - 1) in _EQUAL and _ends_a_path(tokens, place - 2)
    return before or (_at(tokens, place + 1) in _EQUAL and _at(tokens, place + 2) in ROOTS)


def _ends_a_path(tokens: list[str], place: int) -> bool:
    """Tell whether what ends at a place is one of a condition's names, or what it holds: `context.tests['passed']`."""
    while place >= 0:
        if tokens[place] == "]":
            while place >= 0 and tokens[place] != "[":
                place -= 1
            place -= 1
        elif _at(tokens, place - 1) in (".", "?."):
            place -= 2
        else:
            return tokens[place] in ROOTS
    return False


def _at(tokens: list[str], place: int) -> str:
    return tokens[place] if 0 <= place < len(tokens) else ""
