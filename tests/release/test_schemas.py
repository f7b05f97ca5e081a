"""The published schemas in the tools that read them: check-jsonschema, and the language server of the editors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS
from tests.helpers.scenes import CHECKOUT
from tests.release.conftest import fetched

FOLDER = DOCS / "schemas"
SITE = "https://OWNER.github.io/loom"
PAGE = (DOCS / "how-to/set-up-your-editor.md").read_text(encoding="utf-8")
SERVER = "yaml-language-server@1.25.0"


def snippet(title: str) -> str:
    found: list[str] = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE)
    return found[0]


def judged(tools: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(tools / "check-jsonschema"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_check_jsonschema_takes_the_schemas_and_the_bundled_workflows(tools: Path, tmp_path: Path) -> None:
    schemas = [path for path in FOLDER.glob("*.json") if path.stem != "catalog"]
    ended = judged(tools, "--check-metaschema", *schemas)
    assert ended.returncode == 0, ended.stdout
    schema = ("--schemafile", FOLDER / "workflow.json")
    ended = judged(tools, *schema, *(CHECKOUT / "config/workflows").glob("*.yaml"))
    assert ended.returncode == 0, ended.stdout
    (tmp_path / "wrong.yaml").write_text("id: wrong\nextends: core\nautonomy: sometimes\n")
    ended = judged(tools, *schema, tmp_path / "wrong.yaml")
    assert ended.returncode == 1
    assert "$.autonomy" in ended.stdout
    (tmp_path / "config.yaml").write_text("reduce:\n  tools:\n    Bash: {live: off}\n")
    assert judged(tools, "--schemafile", FOLDER / "config.json", tmp_path / "config.yaml").returncode == 0


class Editor:
    """The language server as an editor drives it: settings, open files, what it says of them."""

    def __init__(self, process: subprocess.Popen[bytes], project: Path, settings: dict[str, Any]) -> None:
        self.process, self.project, self.settings, self.last = process, project, settings, 0
        self.ask("initialize", processId=os.getpid(), rootUri=project.as_uri(),
                 workspaceFolders=[{"uri": project.as_uri(), "name": "shop"}],
                 capabilities={"workspace": {"configuration": True, "workspaceFolders": True}})  # fmt: skip
        self.send("initialized")

    def send(self, method: str, **params: Any) -> None:
        self._write({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Any:
        self.last += 1
        self._write({"id": self.last, "method": method, "params": params})
        return self.read(lambda one: one.get("id") == self.last and "method" not in one)["result"]

    def opened(self, name: str, text: str) -> list[str]:
        """Open a file; give what is marked in it."""
        uri = (self.project / name).as_uri()
        self.send("textDocument/didOpen", textDocument={"uri": uri, "languageId": "yaml", "version": 1, "text": text})
        said = self.read(
            lambda one: one.get("method") == "textDocument/publishDiagnostics" and one["params"]["uri"] == uri
        )
        return [one["message"] for one in said["params"]["diagnostics"]]

    def offered(self, name: str, line: int) -> list[str]:
        """Give the keys that are offered at the beginning of a line."""
        told = {"textDocument": {"uri": (self.project / name).as_uri()}, "position": {"line": line, "character": 0}}
        return [item["label"] for item in self.ask("textDocument/completion", **told)["items"]]

    def read(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read until something wanted comes; answer what the server asks for."""
        out = self.process.stdout
        assert out is not None
        while True:
            length = 0
            while (line := out.readline()) not in (b"\r\n", b""):
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            assert length, "the server ended"
            said: dict[str, Any] = json.loads(out.read(length))
            if wanted(said):
                return said
            if said.get("method") == "workspace/configuration":
                found = [self.settings.get(item.get("section", ""), {}) for item in said["params"]["items"]]
                self._write({"id": said["id"], "result": found})
            elif "id" in said and "method" in said:
                self._write({"id": said["id"], "result": None})

    def _write(self, message: dict[str, Any]) -> None:
        into = self.process.stdin
        assert into is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        into.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        into.flush()


@pytest.fixture(scope="session")
def server(cache: Path) -> Path:
    """The command of the language server, fetched once."""
    return fetched(cache, SERVER) / "yaml-language-server"


@contextmanager
def editing(server: Path, project: Path, schemas: dict[str, Any]) -> Iterator[Editor]:
    command = ["node", str(server), "--stdio"]
    settings = {"yaml": {"schemas": schemas, "schemaStore": {"enable": False}, "validate": True, "completion": True}}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Editor(process, project, settings)
        finally:
            process.kill()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that keeps the schema as the page says."""
    (tmp_path / ".loom/workflows").mkdir(parents=True)
    shutil.copy(CHECKOUT / "config/workflow.schema.json", tmp_path / ".loom/workflow.schema.json")
    return tmp_path


WRONG = "id: careful\nextends: core\nautonomy: sometimes\n\n"


@pytest.mark.slow
def test_the_line_that_the_page_shows_sets_the_language_server_up(server: Path, project: Path) -> None:
    name = ".loom/workflows/careful.yaml"
    text = snippet(name)
    with editing(server, project, {}) as editor:
        assert editor.opened(name, text) == []
        wrong = editor.opened(".loom/workflows/wrong.yaml", text.splitlines(keepends=True)[0] + WRONG)
        assert any("guarded" in said for said in wrong), wrong
        assert {"description", "phases", "critical_artifacts"} <= set(editor.offered(".loom/workflows/wrong.yaml", 4))


@pytest.mark.slow
def test_the_settings_that_the_page_shows_do_so_for_every_workflow(server: Path, project: Path) -> None:
    """The address of the site, which no test reaches, is that of the file that stands for it here."""
    told = json.loads(snippet(".vscode/settings.json"))
    site = {f"{SITE}/schemas/{path.name}": path.as_uri() for path in FOLDER.glob("*.json")}
    schemas = {site.get(name, name): patterns for name, patterns in told["yaml.schemas"].items()}
    assert all(name.startswith(("file://", "./.loom/")) for name in schemas)
    assert [one["url"] for one in told["json.schemas"]] == ["./.loom/workflow.schema.json"]
    with editing(server, project, schemas) as editor:
        assert any("guarded" in said for said in editor.opened(".loom/workflows/wrong.yml", WRONG))
        assert any("hook_budgets" in said for said in editor.opened(".loom/config.yaml", "hook_budgets: 500\n"))
        assert editor.opened("other.yaml", WRONG) == []
    with editing(server, project, schemas) as editor:
        assert editor.opened(".loom/config.yaml", "hook_budget: 500\nreduce: {live: off}\n") == []


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((CHECKOUT / "config/workflows").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_published_schema_marks_nothing_in_a_bundled_workflow(server: Path, project: Path, path: Path) -> None:
    schemas = {(FOLDER / "workflow.json").as_uri(): [".loom/workflows/*.yaml"]}
    with editing(server, project, schemas) as editor:
        assert editor.opened(f".loom/workflows/{path.name}", path.read_text(encoding="utf-8")) == []
