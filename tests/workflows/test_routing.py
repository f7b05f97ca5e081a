"""Which transition follows an ended step: a table of choices, and of labels that mean the same (D45)."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomctl.runs.model import visits
from loomctl.workflows import routing
from tests.helpers.tables import each

# In the tables a transition is written `to`, then what it says: `[label]`, `?true` or `?false` (its condition), `!` for
# failure, `*5` its weight.
OK, BAD, PART, SKIP = "succeeded", "failed", "partially_succeeded", "skipped"


def transition(written: str) -> tuple[dict[str, Any], bool | None]:
    """Read a transition of the tables, and what its condition comes to."""
    made: dict[str, Any] = {}
    truth: bool | None = None
    for number, part in enumerate(written.split("|")):
        if number == 0:
            made["to"] = part if "/" in part or part == "end" else f"p/{part}"
        elif part in ("?true", "?false"):
            made["condition"], truth = part[1:], part == "?true"
        elif part == "!":
            made["on_failure"] = True
        elif part == "normal":
            made["on_failure"] = False
        elif part.startswith("*"):
            made["weight"] = float(part[1:])
        else:
            made["label"] = part
    return made, truth


def chosen(
    written: str, outcome: str = OK, label: str | None = None, suggested: tuple[str, ...] = ()
) -> routing.Choice | None:
    read = [transition(one) for one in written.split()]
    return routing.choose(
        {"transitions": [one for one, _ in read]}, outcome=outcome, label=label, suggested=suggested,
        truths=[truth for _, truth in read],
    )  # fmt: skip


ROWS: list[tuple[str, str, str | None, tuple[str, ...], str]] = [
    # transitions, outcome, label, suggested → where, and by what
    ("a", OK, None, (), "a unconditional"), ("a", PART, None, (), "a unconditional"),
    ("a", SKIP, None, (), "a unconditional"), ("a", BAD, None, (), "-"), ("a|normal", BAD, None, (), "-"),
    ("a b", OK, None, (), "a unconditional"), ("b a", OK, None, (), "a unconditional"),
    ("a b|*1", OK, None, (), "b unconditional"), ("a|*2 b|*1", OK, None, (), "a unconditional"),
    ("a|*-1 b", OK, None, (), "b unconditional"), ("a|*0 b|*-0", OK, None, (), "a unconditional"),
    ("a|*0.5 b|*0.25", OK, None, (), "a unconditional"), ("end", OK, None, (), "end unconditional"),
    ("end z", OK, None, (), "end unconditional"), ("end a/z", OK, None, (), "a/z unconditional"),
    # conditions
    ("a|?true b", OK, None, (), "a condition"), ("b|?true a", OK, None, (), "b condition"),
    ("a|?false b", OK, None, (), "b unconditional"), ("a|?false", OK, None, (), "none"),
    ("a|?false b|?false", OK, None, (), "none"), ("a|?true b|?true", OK, None, (), "a condition"),
    ("b|?true a|?true", OK, None, (), "a condition"), ("a|?true b|?true|*1", OK, None, (), "b condition"),
    ("a|?true b|*99", OK, None, (), "a condition"), ("end|?true a", OK, None, (), "end condition"),
    ("a|?true b", OK, "b", (), "a condition"), ("a|?true b|go", OK, "go", ("b",), "a condition"),
    # labels
    ("a|fix b|go", OK, "go", (), "b label"), ("a|fix b|go", OK, "GO", (), "b label"),
    ("a|fix b|go", OK, " go ", (), "b label"), ("a|fix b|go", OK, "stop", (), "a unconditional"),
    ("a|fix b|go", OK, "", (), "a unconditional"), ("a|fix b|go", OK, "  ", (), "a unconditional"),
    ("a|fix b|go", OK, None, (), "a unconditional"), ("a|fix b|go|*5", OK, "fix", (), "a label"),
    ("b|fix a|fix", OK, "fix", (), "a label"), ("a|fix b|fix|*1", OK, "fix", (), "b label"),
    ("a|fix|?false b", OK, "fix", (), "b unconditional"), ("a|fix|?true b", OK, "fix", (), "a condition"),
    ("a|fix|?false b|fix", OK, "fix", (), "b label"), ("a|fix|?false", OK, "fix", (), "none"),
    ("a|fix b|go", OK, "go", ("a",), "b label"), ("a|fix|! b", OK, "fix", (), "a label"),
    ("end|done a", OK, "done", (), "end label"),
    # suggestions
    ("a b", OK, None, ("b",), "b suggested"), ("a b", OK, None, ("p/b",), "b suggested"),
    ("a b", OK, None, ("q/b",), "a unconditional"), ("a b", OK, None, ("x", "b"), "b suggested"),
    ("a b c", OK, None, ("c", "b"), "c suggested"), ("a b", OK, None, (" b ",), "b suggested"),
    ("a b", OK, None, ("", "b"), "b suggested"), ("a b", OK, None, ("B",), "a unconditional"),
    ("a q/b", OK, None, ("b",), "q/b suggested"), ("q/b p/b", OK, None, ("b",), "b suggested"),
    ("q/b|*1 p/b", OK, None, ("b",), "q/b suggested"), ("q/b|*9 p/b", OK, None, ("p/b",), "b suggested"),
    ("a b|?false", OK, None, ("b",), "a unconditional"), ("a b|?true", OK, None, ("a",), "b condition"),
    ("a end", OK, None, ("end",), "end suggested"), ("b a|!", OK, None, ("a",), "a suggested"),
    ("a b", OK, "nothing", ("b",), "b suggested"),
    # what is for failure alone
    ("a|! b", OK, None, (), "b unconditional"), ("a|!|*9 b", OK, None, (), "b unconditional"),
    ("a|!", OK, None, (), "none"), ("a|! b", BAD, None, (), "a on_failure"),
    ("b|! a|!", BAD, None, (), "a on_failure"), ("a|! b|!|*1", BAD, None, (), "b on_failure"),
    ("end|! b", BAD, None, (), "end on_failure"), ("a b", BAD, None, (), "-"), ("a b", BAD, None, ("b",), "-"),
    ("a|! b", BAD, None, ("b",), "a on_failure"), ("a|?true b|!", BAD, None, (), "a condition"),
    ("a|?false b|!", BAD, None, (), "b on_failure"), ("a|?false b", BAD, None, (), "-"),
    ("a|fix b", BAD, "fix", (), "a label"), ("a|fix b|!", BAD, "fix", (), "a label"),
    ("a|fix b|!", BAD, "other", (), "b on_failure"), ("a|fix|?false b", BAD, "fix", (), "-"),
    ("a|?true|! b", OK, None, (), "a condition"),
]  # fmt: skip


@each(("written", "outcome", "label", "suggested", "wanted"), ROWS)
def test_the_choice(written: str, outcome: str, label: str | None, suggested: tuple[str, ...], wanted: str) -> None:
    """Conditions, then the label, then suggestions, then the rest; a failed step takes what is meant for it."""
    choice = chosen(written, outcome, label, suggested)
    if choice is None:
        said = "-"
    elif choice.reason == visits.NOWHERE:
        said = "none"
    else:
        said = f"{(choice.step_id or 'end').removeprefix('p/')} {choice.by}"
        assert choice.reason == (choice.by if choice.step_id else visits.END)
        assert choice.transition is not None
    assert said == wanted


def test_a_step_without_transitions_has_no_choice_and_a_choice_what_its_transition_says() -> None:
    steps: list[dict[str, Any]] = [{}, {"transitions": []}]
    for step in steps:
        assert routing.choose(step, outcome=OK, label="x", suggested=("y",), truths=()) is None
    step = {"transitions": [{"to": "p/a"}, {"to": "p/b", "label": "[G] Go", "fidelity": "full"}]}
    choice = routing.choose(step, outcome=OK, label="g", suggested=(), truths=[None, None])
    assert choice is not None
    assert (choice.transition, choice.label, choice.fidelity) == (1, "[G] Go", "full")


WEIGHED: list[tuple[str, str, str | None, tuple[str, ...], list[str]]] = [
    ("a|?true b|?true|*-1 c", OK, None, (), ["chosen: condition", "another", "a true condition"]),
    ("a|?false b", OK, None, (), ["its condition is false", "chosen: unconditional"]),
    ("a|go b|go|*-1 c", OK, "go", (), ["chosen: label", "another", "the given label"]),
    ("a b c|?false", OK, None, ("b",), ["a suggested step", "chosen: suggested", "its condition is false"]),
    ("a b|!", OK, None, (), ["chosen: unconditional", "it is only for failures"]),
    ("a b", OK, None, (), ["chosen: unconditional", "another"]),
    ("a b|! c|!|*-1", BAD, None, (), ["a way for failures", "chosen: on_failure", "another"]),
    ("a|?false b|!", OK, None, (), ["its condition is false", "it is only for failures"]),
]


@each(("written", "outcome", "label", "suggested", "wanted"), WEIGHED)
def test_what_became_of_each(
    written: str, outcome: str, label: str | None, suggested: tuple[str, ...], wanted: list[str]
) -> None:
    """Every transition is told with why it was taken or not."""
    choice = chosen(written, outcome, label, suggested)
    assert choice is not None
    assert [one["why"].startswith(why) for one, why in zip(choice.weighed, wanted, strict=True)] == [True] * len(wanted)


def test_of_a_failed_step_the_transitions_are_told_too_and_no_two_reasons_have_one_name() -> None:
    told = routing.weigh(
        [{"to": "p/a", "condition": "x"}, {"to": "end", "label": "Go"}], outcome=BAD, label=None, truths=[False, None]
    )
    assert told == [
        {"to": "p/a", "condition": "x", "truth": False, "why": "its condition is false"},
        {"to": "end", "label": "Go", "why": "the step failed, and this is not for failures"},
    ]
    assert len(set(visits.REASONS)) == len(visits.REASONS) == 12
    assert all(one != other for one, other in itertools.combinations(visits.REASONS, 2))


LABELS: list[tuple[str, str, str]] = [
    ("fix", "fix", ""),
    ("Fix", "fix", ""),
    ("  Fix  it ", "fix it", ""),
    ("Fix\tit\n", "fix it", ""),
    ("[F] Fix", "fix", "f"),
    ("[f]Fix", "fix", "f"),
    ("[ F ] Fix", "fix", "f"),
    ("[F2] Fix", "fix", "f2"),
    ("[Esc] Leave", "leave", "esc"),
    ("F) Fix", "fix", "f"),
    ("F)Fix", "fix", "f"),
    ("1) Fix", "fix", "1"),
    ("F - Fix", "fix", "f"),
    ("f  -  fix", "fix", "f"),
    ("[F]", "", "f"),
    ("F)", "", "f"),
    ("F -", "", "f"),
    ("F", "f", ""),
    ("F-Fix", "f-fix", ""),
    ("No - go back", "no - go back", ""),
    ("Yes) go", "yes) go", ""),
    ("[Fixed] it", "[fixed] it", ""),
    ("[] Fix", "[] fix", ""),
    ("[-] Fix", "[-] fix", ""),
    ("[F Fix", "[f fix", ""),
    ("- Fix", "- fix", ""),
    (") Fix", ") fix", ""),
    ("STRASSE", "strasse", ""),
    ("Straße", "strasse", ""),
    ("É) Été", "été", "é"),
    ("E\u0301) E\u0301te\u0301", "été", "é"),
    ("Fix\u00a0it", "fix it", ""),
    ("[F]\nFix", "fix", "f"),
    ("[F]ix", "ix", "f"),
    # no accelerator, and no other spelling of a word
    ("F: Fix", "f: fix", ""),
    ("F. Fix", "f. fix", ""),
    ("1. Fix", "1. fix", ""),
    ("(F) Fix", "(f) fix", ""),
    ("&Fix", "&fix", ""),
    ("F \u2013 Fix", "f \u2013 fix", ""),
    ("F -Fix", "f -fix", ""),
    ("[F] - Fix", "- fix", "f"),
    ("[F] F) Fix", "f) fix", "f"),
    ("[\U0001f600] Go", "[\U0001f600] go", ""),
    ("Fix!", "fix!", ""),
    ("**Fix**", "**fix**", ""),
    ("\u200bFix", "\u200bfix", ""),
    ("", "", ""),
    ("   ", "", ""),
]


@each(("text", "words", "key"), LABELS)
def test_what_a_label_means(text: str, words: str, key: str) -> None:
    """Its words without case, blanks and accelerator; and the accelerator."""
    assert routing.label_of(text) == (words, key)
    assert routing.normalise(text) == (words or key)


MATCHES: list[tuple[str, str, bool]] = [
    ("fix", "[F] Fix", True), ("[F] Fix", "fix", True), ("F) fix", "[X] Fix", True), ("f", "[F] Fix", True),
    ("F", "F - Fix", True), ("[F]", "F) Fix", True), ("F)", "[F] Fix", True), ("f", "fix", False),
    ("g", "[F] Fix", False), ("[F] Other", "[F] Fix", False), ("F", "F", True), ("[F]", "F", False),
    ("", "[F] Fix", False), ("", "", False), ("fix", "", False), ("fix it", "fix", False),
    ("e\u0301te\u0301", "[É] Été", True), ("É", "[E\u0301] Été", True), ("FIX\tIT", "[F] Fix it", True),
    ("[F] Fix", "[F] Fix it", False), ("[X]", "[F] Fix", False), ("Fix.", "Fix", False),
    ("'fix'", "Fix", False), ("fix-it", "Fix it", False), ("f) ", "[F] Fix", True), ("1", "1) Fix", True),
    ("01", "1) Fix", False), ("2", "[1] Fix", False), ("ﬁx", "Fix", True),
    ("approve", "[A] Approve & merge", False),
]  # fmt: skip


@each(("said", "label", "means"), MATCHES)
def test_whether_a_word_means_a_label(said: str, label: str, *, means: bool) -> None:
    assert routing.matches(said, label) is means


@given(st.text(), st.text(alphabet="abcXYZ[]()-é0 ", max_size=8))
def test_a_label_means_itself_however_it_is_written(text: str, other: str) -> None:
    for label in (text, other):
        if label.strip():
            assert routing.matches(label, label)
            assert routing.matches(f" {label}\n", label)


words = st.sampled_from(["a", "b", "end", "q/a"])
said = st.lists(st.sampled_from(["go", "stop", "?true", "?false", "!", "*1", "*2"]), max_size=3, unique=True)
transitions = st.lists(st.builds(lambda to, more: "|".join([to, *more]), words, said), min_size=1, max_size=4)
outcomes = st.sampled_from([OK, BAD, PART, SKIP])


@given(transitions, outcomes, st.sampled_from([None, "go", "stop", "x"]), st.lists(words, max_size=2), st.randoms())
def test_no_choice_goes_against_its_rules(
    written: list[str], outcome: str, label: str | None, suggested: list[str], random: Any
) -> None:
    """A false condition is never taken, nor by failure what is not meant for it; the order written decides nothing."""
    choice = chosen(" ".join(written), outcome, label, tuple(suggested))
    read = [transition(one) for one in written]
    if choice is None:
        assert outcome == BAD
        assert not any(truth for _, truth in read)
        return
    if choice.transition is None:
        assert outcome != BAD
        assert all(truth is False or (truth is None and one.get("on_failure")) for one, truth in read)
        return
    taken, truth = read[choice.transition]
    assert truth is not False
    assert (truth is True) == (choice.by == visits.CONDITION)
    if outcome == BAD:
        assert truth or taken.get("on_failure") or choice.by == visits.LABEL
    shuffled = list(written)
    random.shuffle(shuffled)
    again = chosen(" ".join(shuffled), outcome, label, tuple(suggested))
    assert again is not None
    assert (again.step_id, again.by) == (choice.step_id, choice.by)
