"""The plugin is replaced while a session runs: its next hook is the new one's, and the run does not notice (D58)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.stand import RESPONSE, SENTENCE, sound
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Ended, Json, Scene, artifact, run

RULES = "plugins/loom/docs/rules.md"
MORE_THAN_A_PIPE_HOLDS = 1 << 20


def install(folder: Path, version: str) -> Path:
    """Lay out a plugin as a host installs one: this checkout's launcher and package, with a document of its version."""
    for name in ("bin", "config", "loomctl"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("plugin.json", "requirements.lock"):
        shutil.copy(CHECKOUT / name, folder / name)
    (folder / "docs").mkdir()
    (folder / "docs" / "rules.md").write_text(f"Rules of {version}.\n")
    texts = folder / "loomctl" / "priming" / "prime_run.py"
    texts.write_text(texts.read_text().replace('"# Loom: the run ', f'"# Loom {version}: the run '))
    return folder


class Host(NamedTuple):
    """A session's host: where it has the plugin, and what it starts of it."""

    scene: Scene
    plugins: Path
    data: Path

    def environ(self, session: str = SESSION) -> dict[str, str]:
        python = Path(sys.executable).parent
        path = f"{python}:{os.environ['PATH']}"
        return {**self.scene.environ(session), "PATH": path, "CLAUDE_PLUGIN_DATA": str(self.data)}

    def hook(self, plugin: Path, event: str, *, session: str = SESSION, **told: Any) -> Ended:
        body: Json = {"session_id": session, "cwd": str(self.scene.root), "transcript_path": "", **told}
        command = [str(plugin / "bin" / "loomctl"), "hook", event]
        return run(command, cwd=self.scene.root, environ=self.environ(session), given=json.dumps(body))

    def command(self, plugin: Path, *words: str) -> Ended:
        """Run a command of a plugin's package, as its launcher does in the environment that it has made."""
        environ = {**self.environ(), "LOOM_PLUGIN_ROOT": str(plugin)}
        command = [sys.executable, "-I", str(plugin / "loomctl" / "__main__.py"), *words]
        return run(command, cwd=self.scene.root, environ=environ)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin's own folder, in which what of the standard library was compiled is found by the next test, too."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def host(scene: Scene, tmp_path: Path, data: Path, user_folders: Path) -> Host:
    """A run that depends on a document of the plugin, and nothing installed yet: what is compiled is in `data`."""
    shutil.rmtree(user_folders / ".cache")
    scene.write("spec.md", f"# The spec\n\n{SENTENCE}\n")
    scene.workflow([artifact("spec", "spec.md"), artifact("rules", RULES)])
    scene.begin()
    return Host(scene, tmp_path / "plugins", data)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["2", "1"], ids=["beside the old one", "in its place"])
def test_hooks_go_on_from_the_new_plugin(host: Host, place: str) -> None:
    """The old folder is gone between two hooks of one session; the next hooks run the new code, not what was compiled
    of the old, give the new plugin's documents, and the session is still bound.
    """
    old = install(host.plugins / "loom" / "1", "1.0.0")
    first = host.hook(old, "session-start", source="startup")
    assert all(words in first.context for words in ("# Loom 1.0.0: the run", "Rules of 1.0.0."))
    assert list(host.data.rglob("*.pyc"))
    shutil.rmtree(old)
    new = install(host.plugins / "loom" / place, "2.0.0")
    for path in Path(new).rglob("*.py"):  # compiled modules tell versions apart by whole seconds and sizes
        os.utime(path, (time.time() + 5,) * 2)
    again = host.hook(new, "session-start", source="compact")
    assert (again.code, again.stderr) == (0, "")
    said = ("# Loom 2.0.0: the run", "Rules of 2.0.0.", "1.0.0")
    assert [words in again.context for words in said] == [True, True, False]
    done = host.command(new, "done", "--json")
    assert (done.code, done.json["closing"]) == (0, True)
    assert "frame/ask succeeded" in host.hook(new, "stop", last_assistant_message=RESPONSE).message
    assert host.hook(new, "session-end", reason="other").code == 0
    sound(host.scene)


def test_a_hook_of_the_plugin_that_is_gone_fails_nobody(host: Host) -> None:
    """A host that still names the old folder gets nothing it could take for a block; the session goes on later."""
    old = install(host.plugins / "loom" / "1", "1.0.0")
    launcher = old / "bin" / "loomctl"
    kept = host.plugins / "launcher"
    shutil.copy(launcher, kept)
    shutil.rmtree(old)
    event = json.dumps({"session_id": SESSION, "cwd": str(host.scene.root), "source": "compact"})
    (old / "bin").mkdir(parents=True)
    shutil.copy(kept, launcher)  # the launcher alone, in the middle of a replacement
    for name in ("session-start", "stop", "session-end", "pre-compact"):
        ended = run([str(launcher), "hook", name], cwd=host.scene.root, environ=host.environ(), given=event)
        assert (ended.code, ended.stdout, ended.stderr) == (0, "", "")
    new = install(host.plugins / "loom" / "2", "2.0.0")
    assert SENTENCE in host.hook(new, "session-start", source="resume").context


def test_a_bundle_that_vanishes_while_a_hook_runs_takes_nothing_with_it(host: Host) -> None:
    """A hook that has begun before its plugin was deleted ends with 0, without a traceback; the state is old or new."""
    old = install(host.plugins / "loom" / "1", "1.0.0")
    command = [str(old / "bin" / "loomctl"), "hook", "session-start"]
    before = host.scene.state["steps"]
    pipes: Json = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process: Any = subprocess.Popen(command, cwd=host.scene.root, env=host.environ(), text=True, **pipes)
    event = json.dumps({"session_id": SESSION, "cwd": str(host.scene.root), "source": "compact"})[:-1]
    process.stdin.write(event + " " * MORE_THAN_A_PIPE_HOLDS)
    process.stdin.flush()  # so it reads by now, and waits for the rest of its event
    shutil.rmtree(old)
    out, errors = process.communicate("}", timeout=60)
    assert (process.returncode, host.scene.state["steps"]) == (0, before)
    assert out == "" or json.loads(out)
    assert ("block" in out, "Traceback" in errors) == (False, False)
    sound(host.scene)


@pytest.mark.parametrize("gone", ["hosts", "flow", "runs", "kit"])
def test_a_hook_of_a_plugin_that_is_not_whole_says_so(host: Host, gone: str) -> None:
    """Whatever part of the package is missing, hooks end with 0 and one line for the user at a session's start."""
    plugin = install(host.plugins / "loom" / "1", "1.0.0")
    shutil.rmtree(plugin / "loomctl" / gone)
    for event in ("session-start", "stop", "session-end", "pre-compact"):
        ended = host.hook(plugin, event, source="resume", last_assistant_message=RESPONSE, reason="other")
        assert (ended.code, ended.stderr) == (0, ""), event
        if event == "session-start":
            assert ended.message.startswith("Loom: ")
            assert "No module named" in ended.message
    sound(host.scene)


@pytest.mark.slow
def test_a_new_lock_makes_the_old_environment_no_longer_count(host: Host) -> None:
    """A plugin with other packages does not run in the environment of the old one: hooks do without, as on a first day,
    and what needs it is told.
    """
    old = install(host.plugins / "loom" / "1", "1.0.0")
    lock_id = (old / "requirements.lock").read_text().splitlines()[0].split()[-1]
    made = host.data / f"env-{lock_id}-3" / "bin" / "python"
    made.parent.mkdir(parents=True)
    made.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    made.chmod(0o755)
    host.scene.write(".loom/config.yaml", "hook_budget: 4000\n")
    assert "changed since" not in host.hook(old, "session-start", source="resume").message
    new = install(host.plugins / "loom" / "2", "2.0.0")
    lock = new / "requirements.lock"
    lock.write_text(lock.read_text().replace(lock_id, "0" * 16))
    host.scene.write(".loom/config.yaml", "hook_budget: 5000\n")
    answer = host.hook(new, "session-start", source="compact")
    assert SENTENCE in answer.context
    assert "changed since loomctl last ran" in answer.message


@pytest.mark.slow
def test_two_sessions_on_two_versions_share_a_run(host: Host) -> None:
    """While one session still has the old plugin another has the new one; who drives is primed, neither is lost."""
    old, new = install(host.plugins / "1", "1.0.0"), install(host.plugins / "2", "2.0.0")
    assert "# Loom 1.0.0" in host.hook(old, "session-start", source="compact").context
    command = [sys.executable, "-I", str(new / "loomctl" / "__main__.py"), "resume", "--take-over"]
    assert run(command, cwd=host.scene.root, environ=host.scene.environ(OTHER)).code == 0
    assert "--take-over takes it over" in host.hook(old, "session-start", source="compact").context
    assert "# Loom 2.0.0" in host.hook(new, "session-start", session=OTHER, source="compact").context
    sound(host.scene)
    assert len(host.scene.state["sessions"]["session_history"]) == 2
