"""A run as a fleet knows it."""

from __future__ import annotations

from pathlib import Path

from loomctl.fleet import runs
from tests.helpers.scenes import Scene


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
