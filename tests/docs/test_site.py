"""The site that is made of docs/: whole, strict, small, searchable from a folder, and open to everybody."""

from __future__ import annotations

import fcntl
import functools
import http.server
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.docs.pages import DOCS
from tests.helpers import graphviz
from tests.helpers.browser import Browser
from tests.helpers.scenes import CHECKOUT
from tests.helpers.texts import holds

pytestmark = pytest.mark.slow

PHONE, DESK = 390, 1440
HOME, GALLERY = "index.html", "workflows.html"
HOW_TO, WIDE, LONG = "how-to/run-a-fleet.html", "reference/assistants.html", "reference/cli.html"
MOST = 300_000
"""Bytes of the first page, with all that it loads, as they lie on the disk: a server that compresses sends fewer."""
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")


def needed(variable: str, pattern: str) -> str:
    """Give what scripts/test fetched; without it the test is skipped, in CI it fails."""
    cache = Path(os.environ.get("LOOM_TEST_CACHE") or Path.home() / ".cache" / "loom-tests")
    found = os.environ.get(variable) or next((str(path) for path in sorted(cache.glob(pattern), reverse=True)), "")
    if not os.path.isfile(found):
        if os.environ.get("CI") == "true":
            pytest.fail(f"{variable} is not here, and CI must not pass without it")
        pytest.skip(f"{variable} is not here; hint: scripts/test tests/docs/test_site.py fetches it")
    return found


def copied(folder: Path) -> Path:
    """Copy what the repository has, and nothing that was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=CHECKOUT, check=True, capture_output=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name, follow_symlinks=False)
    return folder


def mkdocs(tree: Path) -> subprocess.CompletedProcess[str]:
    lock = (CHECKOUT / "requirements-docs.lock").read_text(encoding="utf-8").split()[2]
    command = [needed("LOOM_TEST_SITE", f"docs-{lock}-*/bin/python"), "-m", "mkdocs", "build"]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    graphviz.program()  # draws the gallery
    return subprocess.run(
        [*command, "--config-file", "website/mkdocs.yml"],
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the site in a clean tree, as scripts/docs --site does: once, whichever process of the tests asks first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "build" / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            copied(folder)
            shutil.copytree(folder / "docs", folder / "build" / "docs")
            makers = [
                path.relative_to(folder).as_posix()
                for path in sorted((folder / "tests" / "docs").glob("test_*.py"))
                if path.name != Path(__file__).name and re.search(r"\b(make|built)\(", path.read_text(encoding="utf-8"))
            ]
            environ = {key: value for key, value in os.environ.items() if key != "LOOM_TEST_QUICK"}
            subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *makers],
                cwd=folder,
                env={**environ, "LOOM_WRITE_DOCS": "1"},
                check=True,
            )
            built = mkdocs(folder)
            assert built.returncode == 0, built.stderr
            (folder / "build" / "complete").touch()
    return folder


class Site(NamedTuple):
    """address: of its server, with the last slash; sent: what was asked for, and how many bytes it was."""

    address: str
    sent: dict[str, int]


class Server(http.server.ThreadingHTTPServer):
    """Let all connections of a page wait: with five, a busy machine resets one now and then."""

    request_queue_size = 128


@pytest.fixture
def site(tree: Path) -> Iterator[Site]:
    sent: dict[str, int] = {}

    class Handler(http.server.SimpleHTTPRequestHandler):
        def copyfile(self, source: Any, outputfile: Any) -> None:
            data = source.read()
            sent[self.path] = len(data)
            outputfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(tree / "build" / "site"))
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Site(f"http://127.0.0.1:{server.server_port}/", sent)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


def test_every_page_is_there_whole(tree: Path) -> None:
    """No part that is made from the code is left out, and no link leads to a file that the site has not."""
    built = tree / "build" / "site"
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix().replace("README.md", "index.html")
        text = (built / name).with_suffix(".html").read_text(encoding="utf-8")
        assert "made by scripts/docs" not in text, name
        assert re.findall(r'href="[^"]*\.md["#]', re.sub(r'"https://[^"]*"', "", text)) == [], name
    assert (built / GALLERY).read_text(encoding="utf-8").count("<svg role=") == 9


def test_what_is_broken_or_lost_fails(tmp_path: Path) -> None:
    """A page that the index does not name; links to a page, an anchor and a file outside docs/ that are not there."""
    for name in ("config", "docs", "loomctl", "website"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/kit/test_masking_is_linear.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / path, tmp_path / path)
    page = tmp_path / "docs" / "how-to" / "lost.md"
    page.write_text("# Lost\n\n[a](nowhere.md) [b](install.md#nowhere) [c](../../NOWHERE.md)\n", encoding="utf-8")
    built = mkdocs(tmp_path)
    assert (built.returncode, built.stderr.count("WARNING")) == (1, 4), built.stderr
    holds(built.stderr, "- how-to/lost.md", "'nowhere.md'", "'#nowhere'", "'../../NOWHERE.md'")


def test_a_page_fits_a_phone_and_a_desk_and_asks_nobody_else(site: Site, browser: Browser) -> None:
    for width, dark, page in itertools.product(
        (PHONE, DESK), (False, True), (HOME, GALLERY, HOW_TO, WIDE, LONG, "404.html")
    ):
        browser.show(width, dark=dark)
        browser.requests.clear()
        browser.open(site.address + page)
        assert browser.complaints == [], page
        assert browser.tell("document.documentElement.scrollWidth") == width, page
        asked = [url for url in browser.requests if not url.startswith((site.address, "data:", "about:"))]
        assert asked == [], page


def test_the_first_page_is_small(site: Site, browser: Browser) -> None:
    browser.show(DESK)
    browser.open(site.address + HOME)
    browser.tell("scrollTo(0, document.body.scrollHeight)")
    assert "/demo.svg" in site.sent
    sent = sum(site.sent.values())
    sys.stdout.write(f"{sent:,} bytes of at most {MOST:,}\n")  # for docs/reference/figures.md
    assert sent <= MOST, site.sent


def found(browser: Browser, words: str) -> Any:
    """Search; give the titles of what was found."""
    browser.tell("document.querySelector('.md-search__input').focus()")
    browser.type(words)
    return browser.tell(
        "new Promise((resolve) => { const look = () => {"
        " const found = [...document.querySelectorAll('.md-search-result__link h1')].map((one) => one.textContent);"
        " found.length ? resolve(found) : setTimeout(look, 20); }; look(); })"
    )


def test_search_finds_a_word_from_a_server_and_from_a_folder(tree: Path, site: Site, browser: Browser) -> None:
    browser.show(DESK)
    for page in (site.address + HOME, tree / "build" / "site" / HOME, tree / "build" / "site" / WIDE):
        browser.open(page)
        assert "Glossary" in found(browser, "glossary")
        assert browser.complaints == []


SCHEME = "document.body.getAttribute('data-md-color-scheme')"
TOGGLE = "document.querySelector('form[data-md-component=palette] label:not([hidden])').click()"


def test_the_palette_follows_the_system_until_it_is_chosen(site: Site, browser: Browser) -> None:
    browser.show(DESK, dark=True)
    browser.open(site.address + HOME)
    browser.tell("localStorage.clear()")
    browser.open(site.address + HOME)
    seen = [browser.tell(SCHEME)]
    for _ in range(3):
        browser.tell(TOGGLE)
        seen.append(browser.tell(SCHEME))
    assert seen == ["slate", "default", "slate", "slate"]
    browser.show(DESK, dark=False)
    browser.tell(
        "new Promise((seen) => { const look = () =>"
        f" {SCHEME} === 'default' ? seen() : setTimeout(look, 20); look(); }})"
    )
    browser.tell("localStorage.clear()")


def test_axe_finds_nothing(site: Site, browser: Browser) -> None:
    """Neither on the pages, in both palettes, nor in what opens over them."""
    axe = Path(needed("LOOM_TEST_AXE", "axe-core-*/node_modules/axe-core/axe.min.js")).read_text(encoding="utf-8")

    def violations() -> Any:
        browser("Runtime.evaluate", expression=axe)
        return browser.tell(
            f"axe.run(document, {{runOnly: {list(RULES)}}}).then((told) => told.violations.map((one) =>"
            " [one.id, ...one.nodes.slice(0, 5).map((node) => node.html.slice(0, 200) + ' ' + node.failureSummary)]))"
        )

    said: dict[str, Any] = {}
    for (width, dark), page in itertools.product(
        ((DESK, False), (DESK, True), (PHONE, False)), (HOME, GALLERY, HOW_TO, WIDE)
    ):
        browser.show(width, dark=dark)
        browser.open(site.address + page)
        said[f"{page} {width} {dark}"] = violations()
        if page == HOW_TO and width == PHONE:
            browser.tell("document.getElementById('__drawer').click()")
            said["the drawer"] = violations()
        if page == WIDE and width == DESK:
            found(browser, "lease")
            said[f"search {dark}"] = violations()
    assert {place: one for place, one in said.items() if one} == {}


def test_the_keyboard_reaches_everything(site: Site, browser: Browser) -> None:
    """And shows where it is; what scrolls is among it."""
    browser.show(DESK)
    browser.open(site.address + HOW_TO)
    focused = """(() => { const one = document.activeElement, style = getComputedStyle(one);
        return [`${one.tagName} ${one.className}`, one.matches("input") || style.outlineStyle]; })()"""
    reached = []
    for _ in range(80):
        browser.press("Tab")
        reached.append(browser.tell(focused))
    assert "md-skip" in reached[0][0]
    for place in ("md-search__input", "md-tabs__link", "md-nav__link", "headerlink", "CODE", "md-source", "md-option"):
        assert any(place in one for one, _ in reached), (place, reached)
    assert {outline for one, outline in reached if "md-" in one} <= {True, "solid"}, reached
