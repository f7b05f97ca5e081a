"""What the site has besides the pages of docs/: a first page, drawings of workflows, links that lead out of docs/."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).resolve().parent.parent
DOCS, BUILT = CHECKOUT / "docs", CHECKOUT / "build" / "docs"
HOME, GALLERY = "README.md", "workflows.md"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
# In a table a forge wants a bar escaped even in code; here that would be shown.
ROW, CODE = re.compile(r"^\|.*$", re.MULTILINE), re.compile(r"`[^`\n]+`")
# What a page says of its built copy: the site is made of that.
COPY = re.compile(r"(?:([;.]) )?`scripts/docs` [^.]*`build/docs`\.")
# Icons in the theme's style sheet for what no page of ours has.
ICONS = re.compile(
    r"--md-(?:admonition|annotation|post|source|status|tabbed|tag|tasklist|typeset-table-sort|version)"
    r"""[\w-]*:url\((?:"[^"]*"|'[^']*')\);?"""
)
PLACEHOLDER = "<this repository>"
OUT = re.compile(r"(?<=\]\()\.\./[^)\s#]*")


def on_config(config: MkDocsConfig) -> None:
    """Take the navigation from the index of docs/."""
    start, *others = _sections((DOCS / HOME).read_text(encoding="utf-8"))
    config.nav = [{"Home": HOME}, start, {"Workflows": GALLERY}, *others]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the gallery of workflows, which stands in no file."""
    files.append(File.generated(config, GALLERY, content=gallery()))


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:  # noqa: ARG001 - mkdocs hands it over
    """Take a page as `scripts/docs` built it, unless it was edited since."""
    source, built = DOCS / page.file.src_uri, BUILT / page.file.src_uri
    if source.exists() and built.exists() and built.stat().st_mtime >= source.stat().st_mtime:
        return built.read_text(encoding="utf-8")
    return None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - as above
    """Make of a page for a forge one for the site."""
    if page.file.src_uri in (HOME, GALLERY):
        page.meta["hide"] = ["navigation", "toc", "footer"]
    if page.file.src_uri == HOME:
        markdown = home()
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"boost": 0.5}  # what to do comes before why it is so
    markdown = OUT.sub(lambda link: _leading_out(link[0], page, str(config.repo_url)), markdown)
    markdown = COPY.sub(lambda said: "." if said[1] else "", markdown)
    markdown = ROW.sub(lambda row: CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)
    markdown = markdown.replace(PLACEHOLDER, str(config.repo_url))
    # What a forge passes over behind a block's language is a title here: which terminal, which machine.
    return re.sub(r'^(```+console) ([^"\n]+)$', r'\1 title="\2"', markdown, flags=re.MULTILINE)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - as above
    """Leave out what costs bytes alone: the theme's twenty palettes (loom.css has two), and room between tags."""
    output = re.sub(r'<link rel="stylesheet" href="[^"]*/palette\.\w+\.min\.css">', "", output)
    parts = re.split(r"(<pre.*?</pre>)", output, flags=re.DOTALL)
    return "".join(part if part.startswith("<pre") else re.sub(r"\s*\n\s*", "\n", part) for part in parts)


def on_post_build(config: MkDocsConfig) -> None:
    """Leave out a twelfth of the theme's style sheet: the first page is to be small from any server."""
    for sheet in (Path(config.site_dir) / "assets" / "stylesheets").glob("main.*.css"):
        sheet.write_text(ICONS.sub("", sheet.read_text(encoding="utf-8")), encoding="utf-8")


def _leading_out(target: str, page: Page, repository: str) -> str:
    """Lead to the forge where a link leaves docs/; what `scripts/docs` wrote is meant from build/docs."""
    for docs in (DOCS, BUILT):
        leads_to = Path(os.path.normpath(docs / page.file.src_uri / ".." / target))
        if leads_to.is_relative_to(docs):
            return target
        if leads_to.exists():
            return f"{repository}/blob/main/{leads_to.relative_to(CHECKOUT).as_posix()}"
    return target  # which mkdocs says is not there


def _sections(index: str) -> list[dict[str, list[dict[str, object]]]]:
    """Read the index: bold words begin a section, items are its pages, a row of a table is a group of them."""
    found: list[dict[str, list[dict[str, object]]]] = []
    for title, body in re.findall(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|\Z)", index, re.DOTALL | re.MULTILINE):
        pages: list[dict[str, object]] = []
        for line in body.splitlines():
            links = [{_titled(name): path} for name, path in LINK.findall(line) if not path.startswith("../")]
            if links and line.startswith("| "):
                pages.append({_titled(line.split("|")[1].strip()): links})
            else:
                pages.extend(links)
        found.append({title: pages})
    return found


def _titled(words: str) -> str:
    return words[:1].upper() + words[1:]


def home() -> str:
    """Compose the first page: a frame, and parts of the repository's README in it. The index became the navigation."""
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")

    def part(mark: re.Match[str]) -> str:
        section = re.search(rf"^#+ {re.escape(mark[1])}\n(.*?)(?=^#|\Z)", readme, re.DOTALL | re.MULTILINE)
        if section is None:
            raise PluginError(f"README.md has no section {mark[1]!r}, which website/home.md asks for")
        return "\n".join(line for line in section[1].strip().splitlines() if not line.startswith(("![", "<!--")))

    frame = (CHECKOUT / "website" / "home.md").read_text(encoding="utf-8")
    return re.sub(r"<!-- README: (.+) -->", part, frame)


@functools.cache
def gallery() -> str:
    """Give the page that draws each workflow of the bundle, in the order of the page that helps to choose one."""
    choose = (DOCS / "how-to" / "choose-a-workflow.md").read_text(encoding="utf-8")
    items = []
    for name in re.findall(r"^\| `(\S+)` \|", choose, re.MULTILINE):
        workflow = (CHECKOUT / "config" / "workflows" / f"{name}.yaml").read_text(encoding="utf-8")
        words = re.findall(r'^description: "(.*)"$', workflow, re.MULTILINE)
        source = f"[{name}.yaml](../config/workflows/{name}.yaml)"
        parts = ["<section markdown>", f"## {name}", *words, f"<figure>{drawing(name)}</figure>", source, "</section>"]
        items.append("\n\n".join(parts))
    frame = (CHECKOUT / "website" / GALLERY).read_text(encoding="utf-8")
    return frame.replace("<!-- gallery -->", "\n\n".join(items))


def drawing(workflow: str) -> str:
    """Draw a workflow as it comes with Loom, in the colours of the page around it, and without what is not seen."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "HOME": empty, "LOOM_STATE_HOME": empty, "PYTHONPATH": str(CHECKOUT)}
        command = [sys.executable, "-m", "loomctl", "graph", workflow, "--format", "svg"]
        ran = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise PluginError(f"loomctl graph {workflow} failed: {ran.stderr}")
    svg = re.sub(r"<!--.*?-->|<title>.*?</title>| id=\"[^\"]*\"", "", ran.stdout[ran.stdout.index("<svg") :])
    svg = re.sub(r'<polygon fill="white" stroke="transparent"[^>]*/>', "", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="The steps of {workflow} and the ways between them" ', 1)
    return re.sub(r"\s*\n\s*", "\n", svg).strip()
