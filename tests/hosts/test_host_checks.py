"""The doctor asks each assistant that is here whether Loom's promises hold there (D72)."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.care.project_checks import Patient
from loomctl.hosts.setup import checks, install
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding
from tests.helpers.scenes import CHECKOUT

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


def codex(folder: Path, hooks: list[dict[str, Any]], *warnings: str) -> None:
    answer = folder / "hooks"
    answer.write_text(json.dumps({"data": [{"hooks": hooks, "warnings": warnings}]}))
    program(folder, "codex", SERVER.format(python=sys.executable, answer=str(answer)))


def hook(event: str, status: str = "trusted", source: str = "user", **more: Any) -> dict[str, Any]:
    command = f"/x/loomctl hook --host codex {event}"
    return {"eventName": event, "command": command, "source": source, "trustStatus": status, "enabled": True, **more}


def copied(host: str) -> Path:
    """Let an assistant that takes extensions have its copy of the bundle."""
    copy = Path(install.folder_of(host)) / "extensions" / "loom"
    if host in ("gemini", "qwen"):
        for part in ("hooks", "bin"):
            shutil.copytree(CHECKOUT / part, copy / part)
        shutil.copy(CHECKOUT / "plugin.json", copy)
    return copy


EVENTS = ("sessionStart", "userPromptSubmit", "preToolUse", "postToolUse", "preCompact", "stop", "sessionEnd")


def hooks_of(status: str = "trusted", source: str = "user", but: str = "", **more: Any) -> list[dict[str, Any]]:
    """All of Loom's hooks. but: the one that is left out."""
    return [hook(event, status, source, **more) for event in EVENTS if event != but]


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
        (hooks_of(), PASS, "its hooks are called, and it finds loomctl"),
        ([*hooks_of(but="stop"), hook("stop", "untrusted")], FAIL, "skips 1 of Loom's 7 hooks"),
        ([*hooks_of(but="stop"), hook("stop", "modified")], FAIL, "skips 1 of Loom's 7 hooks"),
        ([*hooks_of(but="stop"), hook("stop", enabled=False)], FAIL, "skips 1 of Loom's 7 hooks"),
        (hooks_of(but="preCompact"), FAIL, "lacks 1 of Loom's 7 hooks"),
        ([hook("stop"), hook("sessionStart")], FAIL, "lacks 5 of Loom's 7 hooks"),
        ([*hooks_of(), *hooks_of("untrusted", "plugin")], PASS, "its hooks are called"),
        (
            hooks_of(source="plugin"),
            FAIL,
            "give way to hooks.json, of which it calls none",
        ),
        ([], FAIL, "calls none of Loom's hooks"),
    ],
)
def test_codex_is_asked_which_hooks_it_calls(
    hooks: list[dict[str, Any]], status: str, said: str, programs: Path
) -> None:
    codex(programs, hooks)
    install.install(install.look("codex"))

    found = examined("codex")

    assert (found.status, said in found.found) == (status, True), found


def test_a_hook_that_codex_lacks_is_named_with_what_brings_it(programs: Path) -> None:
    codex(programs, hooks_of(source="plugin", but="sessionStart"))

    found = examined("codex")

    assert (found.status, found.hint, found.details[0]) == (FAIL, "codex plugin add loom@loom", "sessionStart")


def test_codex_says_itself_why_it_cannot_read_the_users_hooks(programs: Path) -> None:
    said = "failed to parse hooks config /x/hooks.json: unknown field `my`"
    codex(programs, [hook("stop", "trusted", "plugin")], said)
    install.install(install.look("codex"))

    found = examined("codex")

    assert (found.status, found.details[0]) == (FAIL, said)
    assert found.hint.startswith("cat ")


def test_codex_without_hooks_is_a_failure_where_the_plugin_is_in_it(programs: Path, home: Path) -> None:
    codex(programs, [])
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text('[features]\nhooks = false\n[plugins."loom@loom"]\nenabled = true\n')

    found = examined("codex")

    assert (found.status, found.hint) == (FAIL, f"grep -n hooks {home}/.codex/config.toml")


def test_a_plugins_own_hooks_count_where_nothing_else_was_set_up(programs: Path) -> None:
    codex(programs, hooks_of(source="plugin"))
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
    codex(programs, hooks_of())
    install.install(install.look("codex"))

    found = examined("codex", environment_python="")

    assert (found.status, found.hint) == (FAIL, "loomctl --version")


@pytest.mark.parametrize("host", ["gemini", "opencode", "qwen"])
def test_what_was_set_up_and_has_gone_is_a_failure(host: str, programs: Path) -> None:
    program(programs, host, "#!/bin/sh\n")
    install.install(install.look(host))
    copied(host)
    assert examined(host).status == PASS
    (piece,) = install.look(host).pieces
    Path(piece.part.path).unlink()

    found = examined(host)

    assert (found.status, found.found.endswith(" has gone")) == (FAIL, True)


def test_a_link_that_only_its_shell_does_not_find_is_put_on_path(programs: Path, home: Path) -> None:
    """To link it once more would mend nothing."""
    codex(programs, hooks_of())
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
    program(programs, host, f"#!/bin/sh\necho '{LIVE}'\necho '      from {CHECKOUT}'\n")
    install.install(install.look(host))
    copied(host)
    assert not install.look(host).link
    monkeypatch.setenv("PATH", f"{home}/.local/bin:{os.environ['PATH']}")
    assert examined(host).status == PASS


@pytest.fixture(params=["gemini", "qwen"])
def extension(request: pytest.FixtureRequest, programs: Path) -> Path:
    """An assistant with its own copy of the bundle; its folder is called as the assistant is."""
    host = str(request.param)
    program(programs, host, "#!/bin/sh\n")
    install.install(install.look(host))
    copy = copied(host)
    assert examined(host).status == PASS
    return copy


def of(extension: Path) -> str:
    return extension.parts[-3].removeprefix(".")


SWITCHES: list[tuple[dict[str, Any], str]] = [
    ({"disableAllHooks": True}, "switch every hook off"),
    ({"hooksConfig": {"enabled": False}}, "switch every hook off"),
    ({"hooksConfig": {"disabled": ["mine", "loom"]}}, "switch Loom's hooks off"),
]


@pytest.mark.parametrize(("switch", "said"), SWITCHES)
def test_settings_that_switch_hooks_off_are_a_failure(switch: dict[str, Any], said: str, extension: Path) -> None:
    place = extension.parents[1] / "settings.json"
    settings = json.loads(place.read_text()) if place.exists() else {}
    text = json.dumps({**settings, **switch})
    for written in (text, f"// the host reads comments\n{text[:-1]},}}"):
        place.write_text(written)
        found = examined(of(extension))
        assert (found.status, said in found.found) == (FAIL, True)


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        (["!/*"], FAIL), (["/*"], PASS), (["/*", "!{here}/*"], FAIL), (["!/*", "{here}"], PASS),
        (["!/elsewhere/*"], PASS),
    ],
)  # fmt: skip
def test_an_extension_that_is_switched_off_here_is_a_failure(rules: list[str], status: str, extension: Path) -> None:
    listed = [rule.format(here=os.getcwd()) for rule in rules]
    told = {"loom": {"overrides": listed}}
    (extension.parent / "extension-enablement.json").write_text(json.dumps(told))
    assert examined(of(extension)).status == status


def test_an_extension_that_is_gone_is_a_failure_though_its_permission_is_left(extension: Path) -> None:
    shutil.rmtree(extension)
    found = examined(of(extension))
    assert found.status == FAIL
    assert found.hint.startswith(f"{of(extension)} extensions link ")


@pytest.mark.parametrize("content", [None, "{", "[]", '{"hooks": {}}'])
def test_a_copy_whose_hooks_cannot_be_read_is_a_failure(content: str | None, extension: Path) -> None:
    place = extension / "hooks" / ("hooks.json" if of(extension) == "gemini" else "qwen.json")
    place.unlink() if content is None else place.write_text(content)

    found = examined(of(extension))

    assert found.status == FAIL
    assert found.hint.startswith(f"{of(extension)} extensions ")


def test_a_copy_of_another_version_is_to_be_updated(extension: Path) -> None:
    (extension / "plugin.json").write_text('{"version": "0.0.9"}')
    found = examined(of(extension))
    assert (found.status, found.hint) == (WARN, f"{of(extension)} extensions update loom")


def test_an_extension_that_is_only_linked_is_read_where_it_is(extension: Path) -> None:
    shutil.rmtree(extension)
    extension.mkdir()
    named = f".{of(extension)}-extension-install.json"
    (extension / named).write_text(json.dumps({"type": "link", "source": str(CHECKOUT)}))
    assert examined(of(extension)).status == PASS


def copilot(folder: Path, *lines: str) -> None:
    listed = "\n".join(lines)
    program(folder, "copilot", f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\n")


LIVE, COPIED = "  \u2022 loom@loom (v0.1.0) (enabled)", "  \u2022 loom@loom (v0.1.0)"


@pytest.fixture(params=["live", "direct", "market"])
def copy_of_copilots(request: pytest.FixtureRequest, programs: Path, home: Path) -> Path:
    """The bundle as Copilot CLI reads it: where it lies, or a copy of its own."""
    kind = str(request.param)
    install.install(install.look("copilot"))
    folder = Path(install.folder_of("copilot"))
    copies = {"live": home / "bundle", "direct": folder / "installed-plugins/_direct/g"}
    copy = copies.get(kind, folder / "installed-plugins/loom/loom")
    for part in ("hooks", "bin"):
        shutil.copytree(CHECKOUT / part, copy / part)
    if kind == "live":
        copilot(programs, LIVE, f"      from {copy}")
    else:
        copilot(programs, COPIED)
    if kind == "direct":
        known = json.dumps({"installedPlugins": [{"name": "loom", "marketplace": "", "cache_path": str(copy)}]})
        (folder / "config.json").write_text(f"// This file is managed automatically.\n{known}\n")
    assert examined("copilot").status == PASS
    return copy


def test_an_empty_matcher_is_a_failure_before_copilot_drops_the_hooks(copy_of_copilots: Path) -> None:
    raw = json.loads((copy_of_copilots / "hooks/copilot.json").read_text())
    raw["hooks"]["PostToolUse"][0]["matcher"] = ""
    (copy_of_copilots / "hooks/copilot.json").write_text(json.dumps(raw))

    found = examined("copilot")

    assert (found.status, "empty matcher" in found.found) == (FAIL, True)


def test_a_copy_of_copilots_without_its_hooks_is_a_failure(copy_of_copilots: Path) -> None:
    (copy_of_copilots / "hooks/copilot.json").unlink()

    found = examined("copilot")

    assert (found.status, found.details[0]) == (FAIL, str(copy_of_copilots / "hooks/copilot.json"))
    is_its = "installed-plugins" in str(copy_of_copilots)
    assert found.hint.startswith("copilot plugin install" if is_its else "ls -l ")


def test_a_plugin_of_copilots_that_is_nowhere_is_said(programs: Path) -> None:
    install.install(install.look("copilot"))
    copilot(programs, COPIED)

    found = examined("copilot")

    assert (found.status, found.hint) == (WARN, "copilot plugin install loom@loom")


def test_copilots_log_tells_that_it_dropped_the_hooks(programs: Path) -> None:
    copilot(programs, LIVE, f"      from {CHECKOUT}")
    install.install(install.look("copilot"))
    assert examined("copilot").status == PASS
    logs = Path(install.folder_of("copilot")) / "logs"
    logs.mkdir(parents=True)
    refused = 'Invalid hooks config for plugin "loom": hooks.postToolUse[0].matcher: matcher cannot be empty'
    (logs / "process-1.log").write_text(f"x\n[ERROR] {refused}\n")

    found = examined("copilot")

    assert (found.status, found.details[0]) == (FAIL, refused)
    for mark in ("[disabled]", "(disabled)"):
        copilot(programs, f"{COPIED} {mark}")
        assert "switched off" in examined("copilot").found


@pytest.mark.parametrize(("version", "status"), [("1.18.33", PASS), ("2.0.14", FAIL), ("local", PASS)])
def test_an_opencode_of_another_plugin_api_is_told(programs: Path, version: str, status: str) -> None:
    program(programs, "opencode", f"#!/bin/sh\necho {version}\n")
    assert examined("opencode").status == PASS  # Loom is not in it
    install.install(install.look("opencode"))
    assert examined("opencode").status == status
