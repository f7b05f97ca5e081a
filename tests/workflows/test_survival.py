"""What must survive a compaction: how an item is told, and what counts as present in a text."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomctl.expressions.state_paths import compile_path, read
from loomctl.kit.text import secrets
from loomctl.workflows import survival
from loomctl.workflows.resolve import merge
from loomctl.workflows.survival import ARTIFACT, PATH, TEXT
from tests.helpers.tables import each

PLAN: dict[str, Any] = {"artifacts": [{"id": "spec"}, {"id": "$.odd"}]}
KINDS = [
    ("ship it", TEXT, "ship it", "ship it"), ("spec", ARTIFACT, "spec", "spec"), ("Spec", TEXT, "Spec", "Spec"),
    ("$.goal", PATH, "$.goal", "$.goal"), ("$['a b']", PATH, "$['a b']", "$['a b']"),
    ("$5 a month", TEXT, "$5 a month", "$5 a month"), ("$", TEXT, "$", "$"),
    ({"text": "spec"}, TEXT, "spec", "text:spec"), ({"text": "$.goal"}, TEXT, "$.goal", "text:$.goal"),
    ({"text": "plain"}, TEXT, "plain", "plain"), ({"path": "$.goal"}, PATH, "$.goal", "$.goal"),
    ({"artifact": "spec"}, ARTIFACT, "spec", "spec"), ({"artifact": "gone"}, ARTIFACT, "gone", "artifact:gone"),
]  # fmt: skip


@each(("entry", "kind", "value", "name"), KINDS)
def test_an_item_is_an_artifact_a_path_or_a_text(entry: object, kind: str, value: str, name: str) -> None:
    """A string is the artifact that is called so, a path where it begins like one, else a text; objects say it."""
    assert survival.items({**PLAN, "must_survive": [entry]}, {}) == [(kind, value, name)]


@each("entry", [None, 3, "", "  ", [], {}, {"text": ""}, {"text": 3}, {"text": "a", "path": "$.b"}, "x" * 2001])
def test_what_is_no_item_is_passed_over(entry: object) -> None:
    assert [item.value for item in survival.items({**PLAN, "must_survive": [entry, "kept"]}, {})] == ["kept"]


def test_items_of_a_run_and_of_a_child_come_after_and_nothing_stands_twice() -> None:
    plan = {**PLAN, "must_survive": ["a", {"text": "a"}, "spec"]}
    found = survival.items(plan, {"must_survive": [{"artifact": "spec"}, "b"]})
    assert [(item.kind, item.value) for item in found] == [(TEXT, "a"), (ARTIFACT, "spec"), (TEXT, "b")]
    merged = merge([("a", {"id": "a", "must_survive": ["x", "y"]}), ("b", {"id": "b", "must_survive": ["z", "x"]})])
    assert merged["must_survive"] == ["x", "y", "z"]


def test_long_names_and_what_is_masked_alike_stay_apart() -> None:
    """All else goes by the names: one of two secrets would be taken for the other. No name tells of its secret."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    plan = {**PLAN, "must_survive": ["a\nb " * 100 + "one", "a\nb " * 100 + "two", secret]}
    names = [item.name for item in survival.items(plan, {})]
    assert len(set(names)) == 3
    assert all("\n" not in name and len(name) < 120 for name in names)
    assert secret not in names[2]
    other = SECRET.replace("a", "c")
    longer = [
        f"{'The token of the staging deployment, which is not that of production, ' * 2}is {one}"
        for one in (SECRET, other)
    ]
    plan = {**PLAN, "must_survive": [f"token {SECRET}", f"token {other}", {"text": "$.goal"}, "text:$.goal", *longer]}
    names = [item.name for item in survival.items(plan, {})]
    assert names[:4] == [
        "token [masked: github token]", "token [masked: github token] #2", "text:$.goal", "text:$.goal #2",
    ]  # fmt: skip
    assert names[5] == f"{names[4]} #2"
    assert len(survival.items({**PLAN, "must_survive": ["x #2", "x", {"text": "x"}]}, {})) == 2


VALUES = [
    ("$.goal", "ship it", "ship it"), ("$.list[0]", ["a", "b"], None), ("$.n", 3, "3"),
    ("$.flag", True, "true"), ("$.deep", {"a": [1, "é"]}, '{"a":[1,"é"]}'), ("$.gone", None, None),
    ("$.blank", "  ", None),
]  # fmt: skip


@each(("path", "value", "text"), VALUES)
def test_a_paths_text_is_its_present_value(path: str, value: object, text: str | None) -> None:
    """Text as it is, anything else as compact JSON; what is not there cannot be lost."""
    key = path[2:].partition("[")[0]
    steps = compile_path(path)
    assert steps is not None
    assert survival.text_of(read(steps, {key: value} if path != "$.list[0]" else {})) == text


PRESENT = [
    ("ship it", "we must ship it today", True), ("ship it", "we must ship\n   it today", True),
    ("ship it\n", "ship it", True), ("ship it", "we must Ship it", False), ("v1.2", "use v1.23", False),
    ("v1.2", "use v1.23, or v1.2.", True), ("3", "13 of 30", False), ("3", "13 of 3", True),
    ("id", "my_id", False), ("必须", "我们必须做", True), ("(a)", "f(a)g", True), ("a" * 5, "a" * 6, False),
    ("x", "", False),
]  # fmt: skip


@each(("wanted", "text", "present"), PRESENT)
def test_presence_is_of_whole_words_and_any_white_space(wanted: str, text: str, present: bool) -> None:
    assert survival.stands_in(wanted, [survival.flatten(text)]) is present


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
OTHER = SECRET.replace("a1", "z9")
MASK = "[masked: github token]"
ADA = f"The deploy token of Ada is {SECRET}, ask her"
WITH_SECRETS = [
    (ADA, f"{ADA}.", True),
    (ADA, f"The deploy\n  token of Ada is {MASK}, ask her.", True),
    (ADA, f"The deploy token of Ada is {OTHER}, ask her", True),
    (ADA, "The deploy token of Ada is [masked: password], ask her", False),
    (ADA, f"We know: the deploy token of Ada is {SECRET}, ask her.", False),
    (ADA, f"The deploy token of Adam is {SECRET}, ask her", False),
    (ADA, "The deploy token of Ada is known, ask her", False),
    (ADA, "The deploy token of Ada is, ask her", False),
    (ADA, "The deploy token of Ada is lost. We spoke of food. Whoever wants one, ask her", False),
    (ADA, "ask her! The deploy token of Ada is", False),
    (f"Use {SECRET} in the staging environment", f"Use {SECRET} or {SECRET} in the staging environment", False),
    (f"The staging environment takes {SECRET}", "The staging environment takes long", False),
    (f"The staging environment takes {SECRET}", "The staging environment takes", False),
    (f"The staging environment takes {SECRET}", f"The staging environment takes {MASK}", True),
    (f"{SECRET} is of the staging environment", "What is of the staging environment", False),
    (f"{SECRET} is of the staging environment", f"So {SECRET} is of the staging environment", True),
    (f"token {SECRET}", f"token {SECRET}", False),
    (f"token {SECRET}", f"token {MASK}", False),
    (f"{SECRET} {SECRET}", f"{SECRET} {SECRET}", False),
]


@each(("wanted", "text", "present"), WITH_SECRETS)
def test_a_secret_or_its_mask_stands_in_a_secrets_place(wanted: str, text: str, *, present: bool) -> None:
    """Nothing else does, neither nothing; of a text that is a secret nothing is claimed."""
    shown, count = secrets.mask(wanted)
    assert count
    assert survival.stands_in(shown, survival.search_forms(text)) is present
    assert survival.is_secret(shown) is (len(wanted) < 50 or wanted == f"{SECRET} {SECRET}")


MASKED_BY_HAND = "our CLI prints [masked: token] and this must never change in v2"


@each(("text", "present"), [
    (f"We said: {MASKED_BY_HAND}.", True),
    (MASKED_BY_HAND.replace("token", "password"), False),
    (MASKED_BY_HAND.replace("[masked: token]", SECRET), False),
    ("our CLI prints everything. Nobody cares, and this must never change in v2", False),
])  # fmt: skip
def test_a_mask_that_a_text_was_written_with_is_compared_as_it_is_written(text: str, *, present: bool) -> None:
    """It stands for nothing else."""
    assert survival.stands_in(secrets.mask(MASKED_BY_HAND)[0], survival.search_forms(text)) is present


def test_what_a_text_says_is_looked_for_as_it_is_too_and_a_run_of_one_letter_once() -> None:
    said = "password = heliotrope-9switch-4on"
    assert secrets.mask(said)[1]
    assert survival.stands_in("heliotrope-9switch-4on", survival.search_forms(said))
    assert not survival.stands_in("a" * 2000, ["a" * 1_000_000])
    assert survival.stands_in("a" * 2000, [f"{'a' * 1_000_000} {'a' * 2000}"])
    assert not survival.stands_in(f"-{'aa-' * 600}a", ["-aa" * 300_000])


@each("text", ["", "[masked: ", "[masked: " * 9, "a]b", "[masked: x", "[masked: " + "x" * 80 + "]"])
def test_what_only_looks_like_a_mask_is_a_text(text: str) -> None:
    assert not survival.is_secret(text)
    assert survival.stands_in(text, [survival.flatten(f"so: {text} .")]) is bool(text)


PLAIN = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"], max_codepoint=0xDFFFF))


@given(PLAIN, PLAIN, st.text(alphabet=" \n\t"))
def test_any_text_is_present_in_what_holds_it_apart(wanted: str, around: str, blank: str) -> None:
    spaced = blank.join(f" {word} " for word in wanted.split())
    assert not wanted.split() or survival.stands_in(wanted, [survival.flatten(f"{around} {spaced} {around}")])


@given(st.text("a_ -", min_size=1, max_size=4), st.text("a_ -", max_size=40))
def test_presence_is_what_a_plain_reading_says(wanted: str, text: str) -> None:
    wanted, text = survival.flatten(wanted), survival.flatten(text)
    begins = r"(?<![A-Za-z0-9_])" if wanted[:1].isalnum() or wanted[:1] == "_" else ""
    ends = r"(?![A-Za-z0-9_])" if wanted[-1:].isalnum() or wanted[-1:] == "_" else ""
    plain = bool(wanted) and re.search(f"{begins}{re.escape(wanted)}{ends}", text) is not None
    assert survival.stands_in(wanted, [text]) is plain


# ---- What every run has (D66)

GOAL_AND_STEP = [("run", "add dark mode", "goal"), ("run", "build/make", "step")]
COVERING: dict[str, Any] = {"id": "specification", "path_steps": ["artifacts", "spec_path"]}
REGISTERED: list[tuple[list[dict[str, Any]], dict[str, Any], list[tuple[str, str, str]]]] = [
    ([], {"spec_path": "{project_root}/a b.md"}, [("run", "a b.md", "spec_path")]),
    ([], {"spec_path": "{run_dir}/work.md"}, [("run", ".loom/runs/r/work.md", "spec_path")]),
    ([COVERING], {"spec_path": "{project_root}/spec.md"}, [("artifact", "specification", "specification")]),
    ([{"id": "spec", "path": "./spec.md"}], {"x": "{project_root}/spec.md"}, [("artifact", "spec", "spec")]),
    ([COVERING], {"other": "{project_root}/spec.md"}, [("run", "spec.md", "other")]),
    ([{"id": "s", "path_steps": ["context", "spec_path"]}], {"spec_path": "s.md"}, [("run", "s.md", "spec_path")]),
    ([], {"odd": 3, "none": None, "blank": " ", "goal": "g.md"}, [("run", "g.md", "goal #2")]),
]


@each(("artifacts", "registered", "found"), REGISTERED)
def test_what_is_registered_must_survive(artifacts: Any, registered: Any, found: Any) -> None:
    state = {"run_id": "r", "goal": "add dark mode", "current_step": "build/make", "artifacts": registered}
    assert [tuple(item) for item in survival.items({"artifacts": artifacts}, state)] == [*GOAL_AND_STEP, *found]


@each(
    ("declared", "names"),
    [
        (["$.goal"], ["$.goal", "step"]),
        (["add  dark mode"], ["add dark mode", "step"]),
        (["goal"], ["goal", "goal #2", "step"]),
        ([{"path": "$.current_step"}], ["$.current_step", "goal"]),
    ],
)
def test_what_is_declared_too_counts_once(declared: list[Any], names: list[str]) -> None:
    state = {"goal": "add dark mode", "current_step": "build/make", "artifacts": {}, "steps": []}
    assert [item.name for item in survival.items({"must_survive": declared}, state)] == names


def test_a_run_without_goal_and_step_has_none() -> None:
    assert survival.items({}, {"goal": None, "current_step": None, "artifacts": {}, "steps": []}) == []
