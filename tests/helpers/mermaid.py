"""The real Mermaid, in a real browser without a window: never skipped in CI."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
_PAGE = """<!doctype html><meta charset="utf-8"><body><script src="{script}"></script><script>
mermaid.initialize({{startOnLoad: false, securityLevel: "strict"}});
(async () => {{
  const drawn = [];
  for (const [index, text] of {texts}.entries()) {{
    try {{ drawn.push((await mermaid.render("g" + index, text)).svg); }}
    catch (error) {{ drawn.push("error: " + error.message); }}
  }}
  document.body.innerHTML = drawn.map((svg) => "<section>" + svg + "</section>").join("");
  document.body.id = "drawn";
}})();
</script></body>"""


def rendered(texts: list[str], folder: Path) -> list[str]:
    """Draw each text; gives the SVG as the browser has it. Raises AssertionError with what Mermaid says against it."""
    page = folder / "page.html"
    script = _needed("LOOM_TEST_MERMAID", os.environ.get("LOOM_TEST_MERMAID") or _cached())
    escaped = json.dumps(texts).replace("</", "<\\/")
    page.write_text(_PAGE.format(script=Path(script).as_uri(), texts=escaped), encoding="utf-8")
    browser = _needed("chromium", shutil.which("chromium") or shutil.which("chromium-browser") or "")
    flags = [*_FLAGS, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=60000", "--dump-dom"]
    ended = subprocess.run([browser, *flags, page.as_uri()], capture_output=True, encoding="utf-8", check=False)
    assert 'id="drawn"' in ended.stdout, ended.stderr[-2000:]
    drawn = re.findall(r"<section>(.*?)</section>", ended.stdout, re.DOTALL)
    assert len(drawn) == len(texts)
    for one in drawn:
        assert one.startswith("<svg"), one
    return drawn


def words(svg: str) -> list[str]:
    """Give the texts of a drawing's labels."""
    labels = re.findall(r'<span[^>]*class="(?:nodeLabel|edgeLabel)[^>]*>(.*?)</span>', svg, re.DOTALL)
    return [html.unescape(re.sub(r"<br[^>]*>", "\n", re.sub(r"</?p>", "", one))).strip() for one in labels]


def _cached() -> str:
    cache = os.environ.get("LOOM_TEST_CACHE") or str(Path.home() / ".cache" / "loom-tests")
    found = sorted(Path(cache).glob("mermaid-*/node_modules/mermaid/dist/mermaid.min.js"))
    return str(found[-1]) if found else ""


def _needed(what: str, path: str) -> str:
    if not os.path.isfile(path):
        if os.environ.get("CI") == "true":
            pytest.fail(f"{what} is not here, and CI must not pass without it")
        pytest.skip(f"{what} is not here; hint: scripts/test fetches Mermaid, apt-get install chromium the browser")
    return path
