"""Runs as people call them, and which run a word means (D4, D69)."""

import json
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit import clock, digests, ids
from loomctl.kit.errors import LoomError
from loomctl.runs.model.state import handle
from loomctl.runs.store.layouts import Home
from loomctl.runs.store.match import AmbiguousRunError, match
from loomctl.runs.store.store import Store
from tests.helpers.runs import make_run
from tests.helpers.tables import each

DARK: dict[str, Any] = {"work_id": None, "goal": "add dark mode"}
TOKEN = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z04"


@each(
    ("work", "words"),
    [
        ({"work_id": "258"}, "258"),
        ({"work_id": "ABC-12", "goal": "x"}, "abc-12"),
        ({"goal": "Add dark mode"}, "add-dark-mode"),
        ({"goal": "Move every page of the settings to the new form"}, "move-every-page-of-the"),
        ({"goal": "Donaudampfschifffahrtsgesellschaft"}, "donaudampfschifffahrtsge"),
        ({"goal": "日本語"}, "run"),
        ({}, "run"),
    ],
)
def test_a_handle_is_the_work_in_words_and_four_letters_of_the_id(work: dict[str, str], words: str) -> None:
    made = handle({"run_id": "shop-x-run-2026-01-01T00-00-00Z", **work})
    assert made == f"{words}-{ids.mark('shop-x-run-2026-01-01T00-00-00Z')}"
    assert len(made) <= 29
    assert made.isascii()


def test_the_letters_are_the_ids_alone_and_nobody_confuses_them() -> None:
    marks = [ids.mark(f"shop-run-{number}") for number in range(2000)]
    assert not set("ilou") & set("".join(marks))
    assert len(set(marks)) > 1990
    assert ids.mark("shop-258-run-2026-01-01T00-00-00Z") == "8ny1"
    assert ids.mark("x", 6).startswith(ids.mark("x"))


def test_no_secret_is_in_a_handle() -> None:
    assert TOKEN[4:20].lower() not in handle({"run_id": "r", "goal": f"use {TOKEN}"})


def test_a_handle_or_the_beginning_of_one_means_its_run(tmp_path: Path) -> None:
    first, second = "shop-add-dark-mode-run-2026-01-01T00-00-00Z", "shop-mend-it-run-2026-01-01T00-00-00Z"
    make_run(tmp_path, first, **DARK)
    store, _ = make_run(tmp_path, second, work_id=None, goal="mend it")
    called = store.handle(first)
    assert called == ids.handle(first, "add dark mode")
    for word in (called, called[:-1], "add", "add-dark", ids.handle(first, "add dark mode", 8), "shop-add", first):
        assert match(store, word) == first, word
    assert match(store, "mend") == second
    assert not Path(store.local, "runs.json").exists()  # a look writes nothing
    for word in ("shop", f"mend-it-{ids.mark(first)}", "dark"):
        with pytest.raises(LoomError) as error:
            match(store, word)
        assert error.value.code == ("AMBIGUOUS_RUN" if word == "shop" else "NO_SUCH_RUN")


def test_the_beginning_of_one_handle_comes_before_the_ids_that_nobody_sees(tmp_path: Path) -> None:
    """Each id begins with the folder's name, also where one run's work begins with it."""
    first, second = "inv-invoices-run-1", "inv-mend-it-run-2"
    make_run(tmp_path, first, work_id=None, goal="invoices as PDF")
    store, _ = make_run(tmp_path, second, work_id=None, goal="mend it")
    assert [match(store, word) for word in ("inv", "invo", "inv-invoices", "inv-m")] == [first, first, first, second]
    make_run(tmp_path, "inv-third-run-3", work_id=None, goal="invite people")
    with pytest.raises(AmbiguousRunError) as error:
        match(store, "inv")
    assert sorted(error.value.found) == [first, "inv-third-run-3"]


def test_a_whole_handle_costs_no_look_into_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        store, run = make_run(tmp_path, f"shop-run-{number}", **DARK)
    looked: list[str] = []
    glance = Store.glance

    def look(self: Store, home: Home) -> dict[str, Any]:
        looked.append(home.run_id)
        return glance(self, home)

    monkeypatch.setattr(Store, "glance", look)
    assert (match(store, run.handle), looked) == ("shop-run-4", ["shop-run-4"])
    assert (match(store, "shop-run-2"), looked) == ("shop-run-2", ["shop-run-4"])


def test_two_that_would_be_called_alike_get_more_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "mark", lambda run_id, letters=4: "kkkk" + digests.of_text(run_id)[: letters - 4])
    make_run(tmp_path, "shop-run-1", **DARK)
    store, _ = make_run(tmp_path, "shop-run-2", **DARK)
    with pytest.raises(AmbiguousRunError) as error:
        match(store, "add-dark-mode-kkkk")
    listed = [line.split()[0] for line in error.value.why.splitlines()[1:]]
    assert len({*listed}) == 2
    assert [match(store, one) for one in listed] == ["shop-run-1", "shop-run-2"]
    assert all("add dark mode, " in line for line in error.value.why.splitlines()[1:])


def test_a_run_that_cannot_be_read_is_called_as_before_and_found(tmp_path: Path) -> None:
    store, run = make_run(tmp_path, **DARK)
    store.update(run.run_id, lambda state: ({**state, "status": "in_progress"}, []))
    called, state = run.handle, Path(run.folder, "state.json")
    state.write_text("{")
    assert (store.handle(run.run_id), match(store, called)) == (called, run.run_id)
    Path(run.folder, "state.backup.json").write_text("[]")
    assert (store.handle(run.run_id), match(store, called)) == (run.run_id, run.run_id)
    state.write_text(json.dumps({"goal": ["x"]}))
    assert store.handle(run.run_id) == run.run_id


def test_a_new_run_takes_an_id_whose_letters_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "run_stamp", lambda: "2026-01-01T00-00-00Z")
    store, _ = make_run(tmp_path, "other-run-1", **DARK)
    assert store.free_id("shop") == "shop-run-2026-01-01T00-00-00Z"
    monkeypatch.setattr(ids, "mark", lambda run_id: "k" if run_id.endswith(("-1", "Z")) else run_id[-4:])
    assert store.free_id("shop") == "shop-run-2026-01-01T00-00-00Z-2"
