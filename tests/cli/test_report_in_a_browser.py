"""The report's page in a real browser: on a phone and a desk, light and dark, with keys alone, hostile, large."""

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path

import pytest

from loomctl.runs.store import events
from loomctl.runs.store.events import Event
from tests.helpers import reports
from tests.helpers.browser import Browser
from tests.helpers.scenes import Scene

PHONE, DESK = 390, 1440


def small(scene: Scene) -> Path:
    scene.workflow()
    scene.begin()
    return scene.run_dir


def long_words(scene: Scene) -> Path:
    folder = small(scene)
    names = [f"{at:03}-architecture.design-the-whole@1" for at in range(12)]
    undone = {"stage": names[0], "gone": names, "phases": {"build": "in_progress"}}
    loaded = {f"specification-{at}": "head" for at in range(12)}
    primed = {"slip_id": "0123", "loaded": loaded, "budget": {"limit": 9500, "used": 9000}, "characters": 9000}
    told = [Event("context.primed", {**primed, "event": name}) for name in ("compaction_detected", _ENTERED)]
    events.append(str(folder), folder.name, [Event("stage.undone", undone), *told], durable=False)
    return folder


_ENTERED = "phase_transition:frame->build"
MAKERS: dict[str, Callable[[Scene], Path]] = {
    "small": small, "rich": reports.rich, "hostile": reports.hostile, "large": reports.large,
    "long words": long_words,
}  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, make in MAKERS.items():
        scene = Scene(tmp_path_factory.mktemp("runs") / name)
        make(scene)
        scene.loomctl("report", "-o", "report.html", "--with-files").ends()
        made[name] = scene.root / "report.html"
    return made


@pytest.fixture(autouse=True)
def afresh(browser: Browser) -> None:
    """No test hears what another one's page said."""
    browser.complaints.clear()
    browser.requests.clear()


OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true; document.body.offsetHeight"
# What reaches beyond the window's right edge, though no box of its own scrolls it.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter((one) => {
  if (one.closest('svg, pre, .scroll, .skip, .label, noscript')) return false;
  const box = one.getBoundingClientRect();
  return box.width > 0 && box.right > innerWidth + 1;
}).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_a_page_opens_without_a_complaint_and_asks_for_nothing(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    for width, dark in product((PHONE, DESK), (False, True)):
        browser.show(width, dark=dark)
        browser.open(pages[name])
        assert browser.tell(OPEN_ALL) > 0
        assert browser.complaints == []
        assert {url for url in browser.requests if url != "about:blank"} == {pages[name].as_uri()}
        assert browser.tell("window.hit === undefined && document.images.length === 0") is True
        assert (browser.tell("document.documentElement.scrollWidth"), browser.tell(TOO_WIDE)) == (width, [])
        ground = browser.tell("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (sum(ground) < 200) is dark


# Loom's own names that are broken within a word.
BROKEN = """[...document.querySelectorAll('.term')].flatMap((one) => [...one.childNodes]).filter((one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return one.nodeType === 3 && range.getClientRects().length > 1;
}).map((one) => one.data)"""


def test_sections_are_seen_in_the_bar_and_names_are_whole_words(browser: Browser, pages: dict[str, Path]) -> None:
    for width in [PHONE, 800, DESK]:
        browser.show(width)
        browser.open(pages["long words"])
        assert browser.tell("document.querySelectorAll('.term').length") > 5
        assert (browser.tell(BROKEN), browser.tell("document.documentElement.scrollWidth")) == ([], width)
    for width in [PHONE, 800, DESK]:
        browser.show(width)
        browser.open(pages["rich"])
        outside = (
            "[...document.querySelectorAll('nav a')].filter((one) => one.getBoundingClientRect().right > innerWidth)"
        )
        assert browser.tell(f"{outside}.length") == 0
        browser.tell("document.documentElement.style.scrollBehavior = 'auto'; location.hash = '#stages'")
        place = "document.querySelector('#stages h2').getBoundingClientRect().top"
        bar = "Math.max(0, document.querySelector('nav').getBoundingClientRect().bottom)"
        assert browser.tell(f"{place} >= {bar}") is True


# Every text that is shown, with the contrast that it has to what is behind it, where that is too low (WCAG 2.2 AA).
FAINT = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => {
    const linear = (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.map((one) => linear(one / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const found = channels(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !one.checkVisibility()) continue;
    if (one.closest('script, noscript, :disabled')) continue;
    const style = getComputedStyle(one);
    const colour = channels(one.closest('svg') ? style.fill : style.color);
    const pair = [light(colour.slice(0, 3)), light(behind(one).slice(0, 3))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${one.outerHTML.slice(0, 90)}`);
  }
  return [...new Set(faint)];
})()"""


def test_every_text_stands_out_and_on_paper_there_are_no_controls(browser: Browser, pages: dict[str, Path]) -> None:
    for dark in [False, True]:
        browser.show(DESK, dark=dark)
        browser.open(pages["rich"])
        browser.tell(OPEN_ALL)
        assert browser.tell(FAINT) == []
    browser.show(DESK, dark=True, media="print")
    try:
        browser.open(pages["rich"])
        assert browser.tell("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shown = "getComputedStyle(document.querySelector('{}')).display"
        assert [browser.tell(shown.format(one)) for one in ("nav", "#filter", "#pages")] == ["none"] * 3
        assert browser.tell(FAINT) == []
    finally:
        browser.show(DESK)


FOCUS = "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"


@pytest.mark.slow
def test_the_page_is_used_with_keys_alone(browser: Browser, pages: dict[str, Path]) -> None:
    """The first key leads past the head; each stop shows that it has the focus; a stage opens; events are filtered."""
    browser.show(DESK)
    browser.open(pages["rich"])
    browser.press("Tab")
    assert browser.tell(FOCUS) == "skip"
    assert browser.tell("document.activeElement.getBoundingClientRect().top >= 0") is True
    browser.press("Enter")
    assert browser.tell("location.hash") == "#main"
    stops = []
    for _ in range(200):
        browser.press("Tab")
        stops.append(browser.tell(FOCUS))
        assert browser.tell("parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2") is True, stops[-1]
        if browser.tell("document.activeElement.matches('.stage > summary')") and stops.count("opened") == 0:
            browser.press("Enter")
            assert browser.tell("document.activeElement.parentElement.open") is True
            stops.append("opened")
        if stops[-1] == "by-text":
            break
    assert stops[-1] == "by-text"
    assert "opened" in stops
    before = browser.tell("document.querySelector('#event-table').tBodies[0].rows.length")
    browser.type("session.compacted")
    browser.press("Enter")
    assert browser.tell("document.querySelector('#event-table').tBodies[0].rows.length") == 3 < before
    assert browser.tell("document.querySelector('#shown').textContent") == "1 to 3 of 3 events (chosen from 30)"


def choose(browser: Browser, **values: str) -> str:
    for key, value in values.items():
        browser.tell(
            f"(() => {{ const one = document.getElementById('by-{key}');"
            f" one.value = [...one.options].find((option) => option.textContent === {value!r}).value;"
            " one.dispatchEvent(new Event('change')); })()"
        )
    return str(browser.tell("document.querySelector('#shown').textContent"))


@pytest.mark.slow
def test_many_events_cost_no_more_than_a_page_of_them(browser: Browser, pages: dict[str, Path]) -> None:
    """Of 10,000 a hundred stand in the page; all are found by text, kind, step and session, and leafed through."""
    browser.show(DESK)
    browser.open(pages["rich"])
    few = browser.tell("document.getElementsByTagName('*').length")
    browser.open(pages["large"])
    assert browser.tell("document.querySelectorAll('#event-table tbody tr').length") == 100
    assert browser.tell("document.getElementsByTagName('*').length") < few + 2_000
    assert browser.tell("document.querySelector('#shown').textContent") == "9,901 to 10,000 of 10,000 events"
    browser.tell("document.querySelector('#page-before').click()")
    assert browser.tell("document.querySelector('#shown').textContent") == "9,801 to 9,900 of 10,000 events"
    assert choose(browser, kind="command.*") == "1,901 to 2,000 of 2,000 events (chosen from 10,000)"
    assert choose(browser, step="build/step-2") == "151 to 250 of 250 events (chosen from 10,000)"
    assert choose(browser, kind="all", step="all", session="5f0c9a52-0000-4000-8000-000000000001").startswith(
        "3,235 to 3,334"
    )
    browser.tell("document.querySelector('#clear-filter').click()")
    browser.tell("document.querySelector('#by-text').focus()")
    browser.type("number 7777 of")
    browser.press("Enter")
    assert browser.tell("document.querySelector('#event-table tbody th').textContent") == "7778"
    assert browser.tell("document.querySelectorAll('#event-table tbody tr').length") == 1


def test_properties_are_shown_as_text_and_the_policy_is_in_force(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(DESK)
    browser.open(pages["hostile"])
    browser.tell("for (const one of document.querySelectorAll('#event-table details')) one.open = true")
    browser.tell("new Promise((done) => setTimeout(done, 50))")
    shown = browser.tell("document.querySelector('#event-table').textContent")
    assert "</script><img src=x onerror=window.hit=1>" in shown
    assert "\\u202e" in shown
    assert not {"\u202e", "\u2066", "\x00"} & set(shown)
    assert browser.tell("window.hit === undefined") is True
    assert browser.complaints == []
    browser.show(DESK)
    browser.open(pages["small"])
    browser.tell("document.body.insertAdjacentHTML('beforeend', '<img src=data:x onerror=window.hit=1>')")
    browser.tell("new Promise((done) => setTimeout(done, 50))")
    assert browser.tell("window.hit === undefined") is True
    assert browser.complaints != []


def test_times_are_told_in_the_readers_own_time_too(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(DESK)
    browser("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    try:
        browser.open(pages["rich"])
        first = "document.querySelector('header time')"
        assert browser.tell(f"{first}.textContent") == "2026-03-02 08:59:00 UTC"
        assert browser.tell(f"{first}.title") == "2026-03-02 17:59:00 local time"
        browser.tell("document.querySelector('#clock').click()")
        assert browser.tell(f"{first}.textContent") == "2026-03-02 17:59:00"
        assert browser.tell("document.querySelector('.tick').textContent") == "2026-03-02 17:59"
    finally:
        browser("Emulation.setTimezoneOverride", timezoneId="")


@pytest.mark.slow
def test_the_essentials_need_no_script(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(PHONE)
    browser("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["large"])
        root = browser("DOM.getDocument", depth=0)["root"]["nodeId"]

        def count(selector: str) -> int:
            return len(browser("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"])

        assert (count("details.stage"), count("#event-table tbody tr"), count(".timeline .row")) == (10, 50, 18)
        assert (count("#filter[hidden]"), count("#pages[hidden]"), count("#clock[hidden]")) == (1, 1, 1)
    finally:
        browser("Emulation.setScriptExecutionDisabled", value=False)


def test_the_page_has_what_a_screen_reader_goes_by(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(DESK)
    browser.open(pages["rich"])
    count = "document.querySelectorAll('{}').length"
    assert [browser.tell(count.format(tag)) for tag in ("main", "h1", "header", "nav", "footer")] == [1, 1, 1, 1, 1]
    levels = browser.tell("[...document.querySelectorAll('h1,h2,h3,h4')].map((one) => Number(one.tagName[1]))")
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert browser.tell(count.format("table:not(:has(caption))")) == 0
    assert browser.tell(count.format('svg[role="img"]:not([aria-label])')) == 0
    assert (
        browser.tell("[...document.querySelectorAll('input, select')].every((one) => one.labels.length === 1)") is True
    )
    ids = browser.tell("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    led = "[...document.querySelectorAll('a[href^=\"#\"]')].every((one) => document.getElementById(one.hash.slice(1)))"
    assert browser.tell(led) is True


def test_an_address_opens_its_stage_and_one_that_leads_nowhere_breaks_nothing(
    browser: Browser, pages: dict[str, Path]
) -> None:
    """A stage within a branch opens the parallel step around it; whatever else stands there, nobody complains."""
    browser.show(PHONE)
    browser.open(pages["rich"], "#stage-007-build.review.web.read.1")
    assert browser.tell("document.querySelectorAll('details.stage[open]').length") == 2
    for fragment in ["#%zz", "#%E0%A4%A", "#%00", "#nothing", "#event-data", "#stage-%27%22"]:
        browser.show(DESK)
        browser.open(pages["rich"], fragment)
        assert browser.complaints == []
        assert browser.tell("document.querySelectorAll('#event-table tbody tr').length") > 0
        browser.tell("location.hash = '%zz%'; new Promise((done) => setTimeout(done, 50))")
        assert browser.complaints == []
