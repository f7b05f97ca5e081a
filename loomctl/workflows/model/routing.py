"""Which step follows an ended one: conditions, then the label, then suggestions, then the rest (D45).

Pure: what the conditions come to is given.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.runs.model.visits import CONDITION, END, FAILED, LABEL, NOWHERE, ON_FAILURE, SUGGESTED, UNCONDITIONAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


_LONGEST_KEY = 3  # characters of an accelerator in brackets: `F`, `F2`, `Esc`
_CHOSEN_BEFORE = {
    CONDITION: "a condition that is true goes before it",
    LABEL: "the label that was said goes before it",
    ON_FAILURE: "what is meant for failure goes before it",
    SUGGESTED: "a suggested step goes before it",
}
_OUTWEIGHED = "another one weighs more, or as much and comes first by its name"


class Choice(NamedTuple):
    """The transition that was chosen.

    step_id: a step's key; None: the run ends (reason END), or nothing applies (NOWHERE). by: how it was chosen:
    CONDITION, LABEL, SUGGESTED, UNCONDITIONAL or ON_FAILURE. transition: its place in the step's list. label,
    fidelity: what it says. weighed: every transition with what became of it, `{to, label?, condition?, truth?, why}`.
    """

    step_id: str | None
    reason: str
    by: str
    transition: int | None
    label: str | None
    fidelity: str | None
    weighed: Sequence[Mapping[str, Any]]


class Label(NamedTuple):
    """A label as people mean it: its words without case and accelerator, and the accelerator; either may be empty."""

    words: str
    key: str


def label_of(text: str) -> Label:
    """Read a label: `[F] Fix`, `F) Fix`, `F - Fix` and ` fix ` are the same words, the first three with the key f.

    An é is an é, in one character or in two.
    """
    text = " ".join(text.split())
    if not text.isascii():
        import unicodedata  # few labels need it

        text = unicodedata.normalize("NFC", text)
    key, words = "", text
    if text.startswith("["):
        inner, closed, rest = text[1:].partition("]")
        if closed and 0 < len(inner.strip()) <= _LONGEST_KEY and inner.strip().isalnum():
            key, words = inner.strip(), rest
    elif text[:1].isalnum() and text[1:2] == ")":
        key, words = text[0], text[2:]
    elif text[:1].isalnum() and text[1:4] in (" - ", " -"):
        key, words = text[0], text[4:]
    return Label(words.strip().casefold(), key.casefold())


def normalised(label: str) -> str:
    """Give what a label is compared by: its words, or its accelerator where it has no words."""
    read = label_of(label)
    return read.words or read.key


def matches(said: str, label: str) -> bool:
    """Tell whether what somebody said means a label: the same words, or its accelerator alone."""
    asked, offered = label_of(said), label_of(label)
    meant = asked.words or asked.key
    if not meant:
        return False
    if asked.words and asked.words == offered.words:
        return True
    return meant == offered.key and not (asked.words and asked.key)


def choose(
    step: Mapping[str, Any],
    *,
    outcome: str,
    label: str | None,
    suggested: Sequence[str],
    truths: Sequence[bool | None],
) -> Choice | None:
    """Choose among a step's transitions, as a plan holds them.

    outcome: how the step ended; a failed one takes only what is meant for failure: a condition that is true, the label
    that was said, or `on_failure`. truths: what each condition comes to, None where a transition has none. Ties are
    broken by weight, the highest first, then by where a transition leads, then by its place.

    None: the step has no transitions, or it failed and none is meant for that.
    """
    transitions: Sequence[Mapping[str, Any]] = step.get("transitions") or ()
    if not transitions:
        return None
    index, by = _chosen(transitions, outcome, label, suggested, truths)
    if index is None and outcome == FAILED:
        return None
    told = weighed(transitions, outcome=outcome, label=label, truths=truths, index=index, by=by)
    if index is None:
        return Choice(None, NOWHERE, NOWHERE, None, None, None, told)
    taken = transitions[index]
    to = None if taken["to"] == END else str(taken["to"])
    return Choice(to, by if to else END, by, index, taken.get("label"), taken.get("fidelity"), told)


def _chosen(
    transitions: Sequence[Mapping[str, Any]],
    outcome: str,
    label: str | None,
    suggested: Sequence[str],
    truths: Sequence[bool | None],
) -> tuple[int | None, str]:
    """Give the place of the transition that is taken, and how it was chosen; (None, NOWHERE) where none applies."""
    every = range(len(transitions))
    free = [index for index in every if truths[index] is None]
    true = [index for index in every if truths[index]]
    if true:
        return _best(transitions, true), CONDITION
    named = [index for index in free if label and matches(label, str(transitions[index].get("label") or ""))]
    named = [index for index in free if label and transitions[index].get("label") == label] or named
    if named:
        return _best(transitions, named), LABEL
    if outcome == FAILED:
        meant = [index for index in free if transitions[index].get("on_failure") is True]
        return (_best(transitions, meant), ON_FAILURE) if meant else (None, NOWHERE)
    for name in suggested:
        there = [index for index in free if leads_to(str(transitions[index]["to"]), name)]
        if there:
            return _best(transitions, there), SUGGESTED
    others = [index for index in free if transitions[index].get("on_failure") is not True]
    return (_best(transitions, others), UNCONDITIONAL) if others else (None, NOWHERE)


def _best(transitions: Sequence[Mapping[str, Any]], indexes: Sequence[int]) -> int:
    return min(indexes, key=lambda index: (-(transitions[index].get("weight") or 0), str(transitions[index]["to"])))


def leads_to(to: str, name: str) -> bool:
    """Tell whether a suggested id means where a transition leads: its key, or its id within the phase."""
    return bool(name.strip()) and name.strip() in (to, to.partition("/")[2])


def weighed(
    transitions: Sequence[Mapping[str, Any]],
    *,
    outcome: str,
    label: str | None,
    truths: Sequence[bool | None],
    index: int | None = None,
    by: str = NOWHERE,
) -> list[dict[str, Any]]:
    """Tell of every transition what became of it: `{to, label?, condition?, truth?, why}`, in their order.

    index, by: the one that was taken, as `choose` gives it; None where none was.
    """
    told = []
    for number, transition in enumerate(transitions):
        one = {key: transition[key] for key in ("to", "label", "condition") if transition.get(key) is not None}
        truth = truths[number]
        if truth is not None:
            one["truth"] = truth
        said = bool(label) and matches(label or "", str(transition.get("label") or ""))
        why = f"chosen: {by}" if number == index else _passed_over(transition, outcome, by, truth=truth, said=said)
        told.append({**one, "why": why})
    return told


def _passed_over(transition: Mapping[str, Any], outcome: str, by: str, *, truth: bool | None, said: bool) -> str:
    """Say why a transition was not taken. said: its label was."""
    if truth is not None:
        return _OUTWEIGHED if truth else "its condition is false"
    for_failure = transition.get("on_failure") is True
    if (by == LABEL and said) or (by == ON_FAILURE and for_failure):
        return _OUTWEIGHED
    if by in _CHOSEN_BEFORE:
        return _CHOSEN_BEFORE[by]
    if outcome == FAILED:
        return "it is not meant for a step that failed"
    return "it is for a step that failed" if for_failure else _OUTWEIGHED
