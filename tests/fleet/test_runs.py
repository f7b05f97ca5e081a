"""A run as a fleet knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loomctl.fleet import runs
from tests.helpers.scenes import Scene


def test_a_question_is_answered_where_the_word_is_kept() -> None:
    state: dict[str, Any] = {"run_id": "shop-258-run-1", "workflow_id": "core", "status": "awaiting_feedback"}
    state["feedback"] = {"message": "Which colour?", "at": "2026-11-26T10:00:00Z"}
    local, shared = (
        runs.row_of({**state, "fleet": runs.entry(host="claude-code", shared=shared)}, "a") for shared in (False, True)
    )
    name = local.handle
    assert (local.state, local.kind) == ("waits", "question")
    assert local.command == f'loomctl tell {name} "ANSWER" && loomctl fleet retry {name}'
    assert shared.command == f'loomctl tell {name} "ANSWER" && loomctl drive {name} --share'


def test_a_repository_has_one_name_wherever_and_however_it_was_cloned(scene: Scene, tmp_path: Path) -> None:
    space = scene.space()
    (tmp_path / "here").mkdir()
    (tmp_path / "shop.git").mkdir()
    alike = [
        [
            "https://example.org/Ada/shop.git", "https://ada@example.org/ada/shop", "ssh://git@example.org/ada/shop.git",
            "git@example.org:ada/shop.git", "git@example.org:/ada/shop",
        ],
        [f"{tmp_path}/shop.git", f"{tmp_path}/here/../shop.git", f"file://{tmp_path}/shop.git/"],
        ["git@example.org:ada/cart.git"], ["laptop:/home/ada/shop"], ["desktop:/home/ada/shop"], [""],
    ]  # fmt: skip
    names = [{runs.repository_of(space, address) for address in group} for group in alike]
    assert [len(one) for one in names] == [1] * len(alike)
    assert len(set[str]().union(*names)) == len(alike)
