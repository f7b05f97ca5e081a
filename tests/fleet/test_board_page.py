"""The board's page: nothing that a run says becomes markup, it asks for nothing, and it fits a phone and a desk."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from loomctl.fleet import page
from loomctl.fleet.board import gather
from loomctl.fleet.model import WAITS
from tests.cli.test_report_in_a_browser import DESK, FAINT, FOCUS, PHONE, TOO_WIDE
from tests.fleet import boards
from tests.helpers.browser import Browser
from tests.helpers.scenes import CHECKOUT, Scene
from tests.helpers.texts import holds


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


def made(scene: Scene, say: str = "Approve the plan?", *, live: bool = False) -> str:
    queue = boards.fleet(scene)
    boards.every_kind(queue, say)
    return page.made(gather(queue, most=page.MOST), say[:100], live=live)


def test_nothing_that_a_run_says_becomes_markup(scene: Scene) -> None:
    told = made(scene, boards.LONG)
    holds(told, "&lt;img src=x onerror=", but=("<img", "<b>hit", "\x1b", "\x07", "\u202e", boards.SECRET, ">49<"))
    assert (told.count("<style"), told.count("</style"), told.count("<script")) == (1, 1, 0)
    assert len(told) < 100_000


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_pages_own_parts_alone(scene: Scene) -> None:
    told = made(scene, live=True)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', told)[1])  # type: ignore[index]
    (style,), (script,) = (re.findall(rf"<{one}>(.*?)</{one}>", told, re.DOTALL) for one in ("style", "script"))
    holds(policy, "default-src 'none'", hashed(style), hashed(script), "connect-src 'self'", but=("unsafe",))
    holds(page.policy(live=False), but=("connect-src", "script-src"))
    assert re.findall(r'(?:src|href|action)="(?!#)', told) == []
    assert " style=" not in told


def test_an_empty_fleet_says_how_to_begin(scene: Scene) -> None:
    told = page.made(gather(boards.fleet(scene)), "shop")
    holds(told, "The fleet is empty", "loomctl fleet work -j 4", but=("<nav", "<section"))


def test_the_pages_parts_are_shipped_with_the_package() -> None:
    folder = "loomctl/fleet/assets/"
    listed = subprocess.run(["git", "ls-files", folder], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == sorted(f"{folder}{path.name}" for path in (CHECKOUT / folder).iterdir())


def fitting(browser: Browser, place: Path) -> None:
    for width, dark in product((PHONE, DESK), (False, True)):
        browser.show(width, dark=dark)
        browser.open(place)
        assert browser.complaints == []
        assert {url for url in browser.requests if url != "about:blank"} == {place.as_uri()}
        assert browser.tell("window.hit === undefined && document.images.length === 0") is True
        assert (browser.tell("document.documentElement.scrollWidth"), browser.tell(TOO_WIDE)) == (width, [])
        assert browser.tell(FAINT) == []


@pytest.mark.slow
def test_a_page_fits_a_phone_and_a_desk_and_asks_for_nothing(scene: Scene, browser: Browser, tmp_path: Path) -> None:
    for name, say in (("plain", "Approve the plan?"), ("hostile", boards.LONG), ("wide", "深い" * 100 + "x" * 300)):
        queue = boards.fleet(scene)
        boards.every_kind(queue, say)
        queue.offer([boards.row(queue, f"x-{at}", state=WAITS, kind="approval", why=say) for at in range(200)])
        place = tmp_path / f"{name}.html"
        place.write_text(page.made(gather(queue, most=page.MOST), say[:100]), encoding="utf-8")
        browser.complaints.clear()
        browser.requests.clear()
        fitting(browser, place)


@pytest.mark.slow
def test_the_page_is_reached_with_keys_alone(scene: Scene, browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "board.html"
    place.write_text(made(scene), encoding="utf-8")
    browser.show(DESK)
    browser.open(place)
    browser.press("Tab")
    assert browser.tell(FOCUS) == "skip"
    stops = []
    for _ in range(40):
        browser.press("Tab")
        stops.append(browser.tell(FOCUS))
        assert stops[-1] == "BODY" or browser.tell(
            "parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2"
        )
    holds(stops, "A", "command", "scroll")
