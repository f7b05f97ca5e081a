"""The context in memory: what may be in it, copies all the way, clones and merges, 32 threads at once (D43, D44)."""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl import Context
from loomctl.runs.model.context import DEEPEST, LONGEST_KEY, Snapshot
from loomctl.runs.model.run_context import same
from tests.helpers.errors import refusal
from tests.helpers.tables import each

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
)
KEYS = st.sampled_from(["a", "b", "auth.tests_passing", "auth", "é", "x y"])


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def code_of(deed: Callable[[], object]) -> str:
    """Do what is refused; gives the error's code."""
    refused = refusal(deed)
    assert refused.hint.startswith("loomctl ")
    return refused.code


# ---- What may be in it.


@given(VALUES)
def test_every_json_value_comes_back_as_itself_and_as_a_copy(value: Any) -> None:
    context = Context()
    context.set("k", value)
    first, again = context.get("k"), context.get("k")
    assert json.dumps(first) == json.dumps(value)
    if isinstance(value, (dict, list)):
        assert first is not value
        assert first is not again


def test_types_stay_apart_and_what_is_more_than_text_or_a_number_becomes_just_that() -> None:
    """True is not 1, 1 is not 1.0, null is a value and not a key that is not there."""
    context = Context({"t": True, "one": 1, "float": 1.0, "text": "1", "none": None, "empty": ""})
    kinds = [type(value) for _, value in context.items()]
    assert kinds == [bool, int, float, str, type(None), str]
    assert context.get("none", "default") is None
    assert context.get("gone", "default") == "default"
    assert ("none" in context, "gone" in context, len(context)) == (True, False, 6)
    context = Context()
    context.update({Word.A: {Word.A: [Word.A, Number.ONE]}})
    assert [type(key) for key, _ in context.items()] == [str]
    ((name, (text, number)),) = context.get("a").items()
    assert (name, text, number) == ("a", "a", 1)
    assert (type(name), type(text), type(number)) == (str, str, int)


CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})
BAD_VALUES = [
    (float("nan"), "nan is not a JSON number"), (float("inf"), "inf is not a JSON number"),
    ([1, {"a": float("-inf")}], "-inf is not a JSON number"),
    (b"bytes", "bytes is not a JSON value: give it as text, decoded"),
    ((1, 2), "tuple is not a JSON value: give a list"), ({1, 2}, "set is not a JSON value: give a list"),
    (object(), "object is not a JSON value: use text, numbers"), (1j, "complex is not a JSON value"),
    ({1: "a"}, "1 cannot be a key of an object: it must be text"), ({None: "a"}, "None cannot be a key of an object"),
    ({"\ud800": 1}, "cannot be a key of an object"), ("half \ud800", "half a character"),
    (10**400, "more than 400 digits"), (-(10**5000), "more than 400 digits"), (CYCLE, "it contains itself"),
    (nested(DEEPEST + 1), "nested deeper than 200 levels"),
]  # fmt: skip


@each(("value", "why"), BAD_VALUES)
def test_what_is_no_json_is_refused_with_words(value: Any, why: str) -> None:
    context = Context({"kept": 1})
    for deed in (
        lambda: context.set("k", value),
        lambda: context.update({"other": 1, "k": value}),
        lambda: context.change("k", lambda _: value),
        lambda: Context({"k": value}),
    ):
        refused = refusal(deed)
        assert refused.code == "BAD_VALUE"
        assert why in refused.why
        assert refused.where.startswith("k")
    assert context.items() == [("kept", 1)]


def test_the_place_of_what_is_refused_is_named_and_limits_are_reached_exactly() -> None:
    report = {"files": ["a", {"size": float("nan")}]}
    assert refusal(Context().set, "report", report).where == "report / files / 1 / size"
    assert len(refusal(Context().set, "deep", nested(500)).where) < 100
    inner = {"a": 1}
    context = Context()
    context.update({"deep": nested(DEEPEST), "long": 10**400 - 1, "k" * LONGEST_KEY: 1, "twice": [inner, inner]})
    assert context.get("twice") == [inner, inner]
    assert code_of(lambda: context.set("k" * (LONGEST_KEY + 1), 1)) == "BAD_KEY"


class Word(str, enum.Enum):
    """Text with a name."""

    A = "a"


class Number(enum.IntEnum):
    """A number with a name."""

    ONE = 1


@each("key", ["", 1, None, b"k", ("a",), "\ud800"])
def test_what_is_no_key_is_refused(key: Any) -> None:
    assert code_of(lambda: Context().set(key, 1)) == "BAD_KEY"
    assert code_of(lambda: Context().unset(key)) == "BAD_KEY"
    assert code_of(lambda: Context(cast("Mapping[str, Any]", {key: 1}))) == "BAD_KEY"


RESERVED = [
    *("_current_node", "_previous_node", "_pipeline_name", "_run_id", "_retry_count", "_start_time"),
    *(
        "_node_start_time", "_", "_mine", "last_stage", "last_response", "response.build/x", "output.x",
        "command.output",
    ),
    *("parallel.results", "parallel.conflicts", "internal.x", "response.", "command."),
]  # fmt: skip


@each("key", RESERVED)
def test_keys_of_the_engine_are_its_alone(key: str) -> None:
    """Set by hand they are refused, in whatever company; the engine sets them, a run begins with them (D37, D44)."""
    context = Context({key: "old"})
    for deed in (
        lambda: context.set(key, 1),
        lambda: context.update({"a": 1, key: 1}),
        lambda: context.change(key, lambda _: 1),
        lambda: context.unset(key),
    ):
        assert code_of(deed) == "RESERVED_KEY"
    assert context.items() == [(key, "old")]
    context.set(key, "new", by_engine=True)
    assert context.get(key) == "new"
    assert context.unset(key, by_engine=True)


@each("key", ["response", "output", "commands.x", "parallels", "x_", "last", "last_responses", "a._b"])
def test_keys_that_only_look_like_it_are_everybodys(key: str) -> None:
    context = Context()
    context.set(key, 1)
    assert context.get(key) == 1


def test_dotted_keys_are_flat_and_what_was_set_last_stands_last() -> None:
    context = Context({"auth": {"ok": 1}, "auth.ok": 2})
    context.set("auth.ok", 3)
    assert context.get("auth") == {"ok": 1}
    assert context.unset("auth")
    assert context.items() == [("auth.ok", 3)]
    context = Context({"a": 1, "b": 2, "c": 3})
    context.set("a", 4)
    assert context.keys() == ["b", "c", "a"]
    assert (context.unset("b"), context.unset("b")) == (True, False)
    context.set("b", 5)
    assert context.keys() == ["c", "a", "b"]


# ---- Copies.


def test_nothing_that_is_held_elsewhere_changes_a_context_nor_it_a_snapshot() -> None:
    given_value: dict[str, Any] = {"list": [1, {"deep": 1}]}
    context = Context({"first": given_value})
    context.set("k", given_value)
    context.change("c", lambda _: given_value)
    given_value["list"][1]["deep"] = 2
    context.get("k")["list"].append(9)
    context.snapshot()["k"]["list"].append(9)
    context.snapshot().to_dict()["k"]["list"].append(9)
    dict(context.items())["k"]["list"].append(9)
    context.changes().set["k"]["list"].append(9)
    for key in ("first", "k", "c"):
        assert context.get(key) == {"list": [1, {"deep": 1}]}
    context = Context({"a": [1], "b": 2})
    before = context.snapshot()
    context.set("a", 9)
    context.unset("b")
    assert dict(before) == {"a": [1], "b": 2} == before.to_dict()
    assert (list(before), len(before), "b" in before, before.get("c")) == (["a", "b"], 2, True, None)
    assert isinstance(before, Mapping)
    assert not hasattr(Snapshot, "__setitem__")
    with pytest.raises(KeyError):
        before["c"]


@pytest.mark.slow
@given(st.dictionaries(KEYS, VALUES), st.lists(st.tuples(KEYS, VALUES)), st.lists(st.tuples(KEYS, VALUES)))
def test_a_clone_and_its_parent_never_see_each_others_changes(
    values: dict[str, Any], here: list[tuple[str, Any]], there: list[tuple[str, Any]]
) -> None:
    parent = Context(values)
    child = parent.clone()
    grandchild = child.clone()
    for context, changes in ((parent, here), (child, there)):
        for key, value in changes:
            context.set(key, value)
    assert same(dict(parent.items()), {**values, **dict(here)})
    assert same(dict(child.items()), {**values, **dict(there)})
    assert same(dict(grandchild.items()), values)
    assert same(dict(child.changes().set), dict(there))


# ---- Branches that come together.

BOTH = [{"key": "k", "branches": ["0", "1"]}]
# what each branch sets and takes away → the context and the conflicts
MERGES: list[tuple[str, list[tuple[dict[str, Any], list[str]]], dict[str, Any], list[dict[str, Any]]]] = [
    ("no branch did anything", [({}, []), ({}, [])], {"base": 0, "k": 0}, []),
    ("each its own", [({"a": 1}, []), ({"b": 2}, [])], {"base": 0, "k": 0, "a": 1, "b": 2}, []),
    ("the last one wins", [({"k": 1}, []), ({"k": 2}, []), ({"k": 3}, [])], {"base": 0, "k": 3},
     [{"key": "k", "branches": ["0", "1", "2"]}]),
    ("what is equal is no conflict", [({"k": [1, {"a": 1}]}, []), ({"k": [1, {"a": 1.0}]}, [])],
     {"base": 0, "k": [1, {"a": 1.0}]}, []),
    ("true is not 1", [({"k": 1}, []), ({"k": True}, [])], {"base": 0, "k": True}, BOTH),
    ("null is a value", [({"k": None}, []), ({"k": 0}, [])], {"base": 0, "k": 0}, BOTH),
    ("what was not touched is not set back", [({"k": 5}, []), ({"a": 1}, [])], {"base": 0, "k": 5, "a": 1}, []),
    ("what one takes away goes", [({}, ["k"]), ({"a": 1}, [])], {"base": 0, "a": 1}, []),
    ("both take it away", [({}, ["k"]), ({}, ["k"])], {"base": 0}, []),
    ("taken away, then set", [({}, ["k"]), ({"k": 1}, [])], {"base": 0, "k": 1}, BOTH),
    ("set, then taken away", [({"k": 1}, []), ({}, ["k"])], {"base": 0}, BOTH),
    ("only who wrote it is named", [({"k": 1}, []), ({"a": 1}, []), ({"k": 2}, [])], {"base": 0, "k": 2, "a": 1},
     [{"key": "k", "branches": ["0", "2"]}]),
]  # fmt: skip


@each(("branches", "expected", "conflicts"), [row[1:] for row in MERGES])
def test_branches_are_merged_as_they_were_declared(
    branches: list[tuple[dict[str, Any], list[str]]], expected: dict[str, Any], conflicts: list[dict[str, Any]]
) -> None:
    """Last wins, and keys that branches left with different values are named with those who wrote them (D43)."""
    parent = Context({"base": 0, "k": 0})
    clones = []
    for name, (values, gone) in enumerate(branches):
        clone = parent.clone()
        clone.update(values)
        for key in gone:
            clone.unset(key)
        clones.append((str(name), clone))
    assert parent.merge(clones) == conflicts
    assert same(dict(parent.items()), expected)
    for _, clone in clones:  # a merge shares nothing
        clone.set("k", "later")
    assert same(dict(parent.items()), expected)


def test_a_merge_takes_over_what_branches_set_and_what_the_engine_writes_is_no_conflict() -> None:
    outer = Context({"k": 0})
    parent = outer.clone()
    clone = parent.clone()
    parent.update({"meanwhile": 1, "both": "parent"})
    clone.update({"k": 1, "both": "branch"})
    assert parent.merge([("a", clone)]) == []
    assert dict(parent.items()) == {"k": 1, "meanwhile": 1, "both": "branch"}
    outer.merge([("parent", parent)])
    assert dict(outer.items()) == {"k": 1, "meanwhile": 1, "both": "branch"}
    parent = Context()
    clones = [(name, parent.clone()) for name in ("a", "b")]
    for name, clone in clones:
        clone.update({"last_stage": name, "last_response": name, f"response.{name}": name}, by_engine=True)
    assert parent.merge(clones) == []
    assert dict(parent.items()) == {"response.a": "a", "last_stage": "b", "last_response": "b", "response.b": "b"}


# ---- Threads.

THREADS, TIMES = 32, 200


def at_once(work: Callable[[int], None]) -> None:
    """Let threads begin together; raises what one of them raised."""
    begin = threading.Barrier(THREADS)
    failed: list[BaseException] = []

    def body(who: int) -> None:
        begin.wait()
        try:
            work(who)
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=body, args=(who,)) for who in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.slow
def test_32_threads_lose_nothing() -> None:
    """Every key, every count and every update of several keys is there, and no reader sees half an update."""
    context = Context({"count": 0, "left": 0, "right": 0})

    def work(who: int) -> None:
        for number in range(TIMES):
            context.set(f"{who}.{number}", {"who": who, "number": number})
            context.change("count", lambda value: value + 1)
            context.update({"left": (who, number).__hash__(), "right": (who, number).__hash__()})
            if number % 20 == 0:
                seen = context.snapshot()
                assert seen["left"] == seen["right"]
            if number % 2:
                assert context.unset(f"{who}.{number}")

    at_once(work)
    assert context.get("count") == THREADS * TIMES
    kept = {
        f"{who}.{number}": {"who": who, "number": number} for who in range(THREADS) for number in range(0, TIMES, 2)
    }
    assert {key: value for key, value in context.items() if "." in key} == kept


def test_32_branches_at_once_and_a_parent_that_is_read_meanwhile() -> None:
    parent = Context({"list": [0]})

    def work(who: int) -> None:
        for number in range(20):
            clone = parent.clone()
            clone.set(f"{who}.{number}", number)
            clone.set("list", [*clone.get("list"), who])
            parent.merge([(str(who), clone)])

    at_once(work)
    assert {key for key in parent if "." in key} == {
        f"{who}.{number}" for who in range(THREADS) for number in range(20)
    }
    assert parent.get("list")[0] == 0


def test_32_threads_change_clones_of_clones_to_the_bottom_and_the_parent_never_learns_of_it() -> None:
    given = {"deep": [{"list": [0], "object": {"k": 0}}]}
    parent = Context({"own": given, "count": 0})
    before = json.dumps(parent.snapshot().to_dict())

    def work(who: int) -> None:
        held = parent.snapshot()
        clone = parent.clone()
        grandchild = clone.clone()
        for number in range(TIMES // 10):
            for context in (clone, grandchild):
                value = context.get("own")
                value["deep"][0]["list"].append((who, number).__hash__())
                value["deep"][0]["object"]["k"] = who
                context.set("own", value)
                value["deep"].clear()
                context.change("count", lambda count: count + 1)
            parent.get("own")["deep"].append(who)
            held["own"]["deep"].clear()
        clone.merge([(str(who), grandchild)])
        assert clone.get("count") == grandchild.get("count") == TIMES // 10
        assert len(clone.get("own")["deep"][0]["list"]) == TIMES // 10 + 1
        assert (clone.get("own")["deep"][0]["object"], json.dumps(held.to_dict())) == ({"k": who}, before)

    at_once(work)
    given["deep"].clear()
    assert (json.dumps(parent.snapshot().to_dict()), parent.changes().set) == (before, {})
