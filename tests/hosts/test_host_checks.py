"""The doctor asks each assistant that is here whether Loom's promises hold there (D72)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.care.project_checks import Patient
from loomctl.hosts.setup import checks, install
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding

SERVER = """#!{python}
import json, os, sys
for line in sys.stdin:
    told = json.loads(line)
    if "id" in told:
        held = json.load(open({answer!r})) if told["method"] == "hooks/list" else {{}}
        print("a line that is no JSON")
        print(json.dumps({{"id": told["id"], "result": held}}), flush=True)
"""


@pytest.fixture
def programs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH for assistants; beside them there is what a login shell needs."""
    folder = home / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def codex(folder: Path, hooks: list[dict[str, Any]]) -> None:
    answer = folder / "hooks"
    answer.write_text(json.dumps({"data": [{"hooks": hooks}]}))
    program(folder, "codex", SERVER.format(python=sys.executable, answer=str(answer)))


def hook(event: str, status: str = "trusted", source: str = "user", **more: Any) -> dict[str, Any]:
    command = f"/x/loomctl hook --host codex {event}"
    return {"eventName": event, "command": command, "source": source, "trustStatus": status, "enabled": True, **more}


def examined(name: str, environment_python: str = sys.executable) -> Finding:
    patient = Patient(
        cwd=os.getcwd(), project=None, environment_python=environment_python, session_id="", now=time.time(), program=""
    )
    return checks.here()[name](patient)


def test_only_assistants_on_path_are_looked_at(programs: Path) -> None:
    assert checks.here() == {}
    program(programs, "gemini", "#!/bin/sh\n")
    assert list(checks.here()) == ["gemini"]
    found = examined("gemini")
    assert (found.status, found.found.endswith("is here without Loom")) == (PASS, True)


@pytest.mark.parametrize(
    ("hooks", "status", "said"),
    [
        ([hook("stop"), hook("sessionStart")], PASS, "its hooks are called, and it finds loomctl"),
        ([hook("stop"), hook("sessionStart", "untrusted")], FAIL, "skips 1 of Loom's 2 hooks"),
        ([hook("stop", "modified")], FAIL, "skips 1 of Loom's 1 hooks"),
        ([hook("stop", enabled=False)], FAIL, "skips 1 of Loom's 1 hooks"),
        ([hook("stop"), hook("stop", "untrusted", "plugin")], PASS, "its hooks are called"),
        ([hook("stop", "trusted", "plugin")], FAIL, "the plugin's hooks give way to hooks.json, which has none"),
    ],
)
def test_codex_is_asked_which_hooks_it_calls(
    hooks: list[dict[str, Any]], status: str, said: str, programs: Path
) -> None:
    codex(programs, hooks)
    install.install(install.look("codex"))

    found = examined("codex")

    assert (found.status, said in found.found) == (status, True), found


def test_a_plugins_own_hooks_count_where_nothing_else_was_set_up(programs: Path) -> None:
    codex(programs, [hook("stop", "trusted", "plugin")])
    found = examined("codex")
    assert found.status == FAIL
    assert "its shell finds no loomctl" in found.found
    codex(programs, [])
    assert examined("codex").found.endswith("is here without Loom")


def test_an_app_server_that_says_nothing_in_time_is_left(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PATIENCE", 0.2)
    program(programs, "codex", "#!/bin/sh\nexec sleep 60\n")

    found = examined("codex")

    assert (found.status, "does not say which hooks" in found.found) == (WARN, True)


def test_a_sandbox_needs_an_environment_that_is_there(programs: Path) -> None:
    codex(programs, [hook("stop")])
    install.install(install.look("codex"))

    found = examined("codex", environment_python="")

    assert (found.status, found.hint) == (FAIL, "loomctl --version")


@pytest.mark.parametrize("host", ["gemini", "opencode", "qwen"])
def test_what_was_set_up_and_has_gone_is_a_failure(host: str, programs: Path) -> None:
    program(programs, host, "#!/bin/sh\n")
    install.install(install.look(host))
    assert examined(host).status == PASS
    (piece,) = install.look(host).pieces
    Path(piece.part.path).unlink()

    found = examined(host)

    assert (found.status, found.found.endswith(" has gone")) == (FAIL, True)


def test_a_link_that_only_its_shell_does_not_find_is_put_on_path(programs: Path, home: Path) -> None:
    """To link it once more would mend nothing."""
    codex(programs, [hook("stop")])
    install.install(install.look("codex"))
    for name in (".profile", ".bash_profile", ".zprofile"):
        (home / name).unlink(missing_ok=True)

    found = examined("codex")

    assert (found.status, found.hint) == (FAIL, install.look("codex").to_find)
    assert not install.look("codex").makes_link
    assert ">> ~/." in found.hint


@pytest.mark.parametrize("host", ["copilot", "gemini", "qwen"])
def test_an_assistant_whose_shell_is_like_the_users_own_finds_what_that_finds(
    host: str, programs: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".profile").unlink(missing_ok=True)
    program(programs, host, "#!/bin/sh\necho '  loom (v0.1.0)'\n")
    install.install(install.look(host))
    assert not install.look(host).link
    monkeypatch.setenv("PATH", f"{home}/.local/bin:{os.environ['PATH']}")
    assert examined(host).status == PASS


def test_settings_that_switch_hooks_off_are_a_failure(programs: Path) -> None:
    program(programs, "qwen", "#!/bin/sh\n")
    install.install(install.look("qwen"))
    folder = Path(install.folder_of("qwen"))
    (folder / "extensions" / "loom").mkdir(parents=True)
    settings = json.loads((folder / "settings.json").read_text())
    text = json.dumps({**settings, "disableAllHooks": True})
    for written in (text, f"// the host reads comments\n{text[:-1]},}}"):
        (folder / "settings.json").write_text(written)
        assert (examined("qwen").status, "switch every hook off" in examined("qwen").found) == (FAIL, True)


def test_copilots_log_tells_that_it_dropped_the_hooks(programs: Path) -> None:
    program(programs, "copilot", "#!/bin/sh\necho '  loom (v0.1.0)'\n")
    install.install(install.look("copilot"))
    assert examined("copilot").status == PASS
    logs = Path(install.folder_of("copilot")) / "logs"
    logs.mkdir(parents=True)
    refused = 'Invalid hooks config for plugin "loom": hooks.postToolUse[0].matcher: matcher cannot be empty'
    (logs / "process-1.log").write_text(f"x\n[ERROR] {refused}\n")

    found = examined("copilot")

    assert (found.status, found.details[0]) == (FAIL, refused)
    program(programs, "copilot", "#!/bin/sh\necho '  loom (v0.1.0) [disabled]'\n")
    assert "switched off" in examined("copilot").found


@pytest.mark.parametrize(("version", "status"), [("1.18.33", PASS), ("2.0.14", FAIL), ("local", PASS)])
def test_an_opencode_of_another_plugin_api_is_told(programs: Path, version: str, status: str) -> None:
    program(programs, "opencode", f"#!/bin/sh\necho {version}\n")
    assert examined("opencode").status == PASS  # Loom is not in it
    install.install(install.look("opencode"))
    assert examined("opencode").status == status
