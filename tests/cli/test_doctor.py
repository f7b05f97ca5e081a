"""`loomctl doctor` as its user meets it: words or a document, an exit code, and an answer wherever it is asked."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.cli.doctor import CHECKS
from tests.cli.conftest import Cli
from tests.helpers.scenes import MAIN, SESSION, Ended, Json, Scene, artifact, run
from tests.helpers.texts import holds

BARE = [sys.executable, "-I", "-S", "-B", str(MAIN)]
"""How the launcher starts the doctor: the standard library alone."""


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    return scene


def doctor(scene: Scene, *arguments: str, cwd: Path | None = None, **environ: str) -> Ended:
    return run([*BARE, "doctor", *arguments], cwd=cwd or scene.root, environ=scene.environ(SESSION, **environ))


def by_id(ended: Ended) -> dict[str, Json]:
    return {check["id"]: check for check in ended.json["checks"]}


def test_lines_and_a_document_say_the_same_in_any_locale(begun: Scene) -> None:
    ended = doctor(begun, cwd=begun.root)
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    told = [line.split()[1] for line in lines if line.split()[0] in ("PASS", "WARN", "FAIL")]
    assert told == list(CHECKS)
    assert any(line.strip().startswith("hint: ") for line in lines)
    assert lines[-1].endswith(" 0 failed")
    ended = doctor(begun, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert (ended.json["schema_version"], ended.json["ok"]) == (1, True)
    assert list(by_id(ended)) == list(CHECKS)
    for check in ended.json["checks"]:
        assert check["status"] in ("PASS", "WARN", "FAIL")
        assert check["found"]
        assert check.get("hint", "x")
    assert by_id(ended)["round-trip"]["milliseconds"] > 0
    folder = begun.root / "dossier é"
    folder.mkdir()
    ended = doctor(begun, "--json", cwd=folder, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert json.loads(ended.stdout)["ok"] in (True, False)


@pytest.mark.slow
def test_through_click_it_is_the_same_command(begun: Scene, cli: Cli) -> None:
    assert by_id(cli("doctor", "--json")).keys() == CHECKS.keys()
    assert cli("--debug", "doctor").stdout.splitlines()[-1].endswith("failed")
    assert (cli("doctor", "--nonsense").code, begun.loomctl("doctor", "now").code) == (2, 2)


def broken_state(scene: Scene) -> Json:
    (scene.run_dir / "state.json").write_text("{")
    return {}


def newer_state(scene: Scene) -> Json:
    scene.edit(schema_version=99)
    return {}


RED: dict[str, tuple[str, Callable[[Scene], Json]]] = {
    "hooks switched off": ("switch", lambda _: {"LOOM_DISABLED": "1"}),
    "a state that cannot be read": ("states", broken_state),
    "a state of a newer Loom": ("states", newer_state),
    "a machine that cannot remember": ("known", lambda _: {"LOOM_STATE_HOME": "/dev/null/nowhere"}),
    "no home": ("known", lambda _: {"LOOM_STATE_HOME": "", "HOME": ""}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RED)
def test_it_is_red_where_a_hook_would_not_do_its_work(begun: Scene, name: str) -> None:
    """Exit code 1, whatever failed, and the check that says why (D52)."""
    check, damage = RED[name]
    environ = damage(begun)
    ended = doctor(begun, "--json", **environ)
    assert (ended.code, ended.json["ok"]) == (1, False)
    assert by_id(ended)[check]["status"] == "FAIL"
    assert doctor(begun, **environ).code == 1


@pytest.mark.slow
def test_warnings_alone_are_no_failure(begun: Scene) -> None:
    remembered = Path(os.environ["HOME"]) / ".cache/loom/python"
    remembered.unlink()
    ended = doctor(begun, "--json", PATH="/nonexistent", LOOM_ENV_PYTHON="")
    checks = by_id(ended)
    assert (checks["git"]["status"], checks["environment"]["status"]) == ("WARN", "WARN")
    assert [one["id"] for one in ended.json["checks"] if one["status"] == "FAIL"] == ["round-trip"]  # no Python there
    remembered.write_text(f"{sys.executable}\n")
    assert doctor(begun, PATH="/nonexistent", LOOM_ENV_PYTHON="").code == 0


@pytest.mark.slow
def test_it_speaks_where_there_is_nothing(tmp_path: Path, scene: Scene) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = run([*BARE, "doctor"], cwd=empty, environ={"LC_ALL": "C", "PATH": os.environ["PATH"]})
    assert "no project with a .loom folder" in ended.stdout
    command = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    ended = run(["/bin/sh", "-c", command, "sh", *BARE, "doctor", "--json"], cwd=empty, environ=dict(os.environ))
    assert (ended.code, by_id(ended)["project"]["found"]) == (1, "the working directory is gone")
    assert list(empty.iterdir()) == []
    assert not scene.store.exists()


@pytest.mark.slow
def test_nothing_hostile_is_shown_raw(begun: Scene) -> None:
    token = "ghp_" + "a1B2" * 9
    begun.edit(status="paused", current_step=f"\x1b[31m {token}\nPASS  fake")
    (begun.store / "local/hooks/stop").write_bytes(b"9.9.9\x1b[2J evil\x07 /x\x1b]0;title\x07\n")
    begun.write(".loom/config.yaml", f'hook_budget: "\\e[31m {token}"\n')
    for ended in (
        doctor(begun, LOOM_ENV_PYTHON=sys.executable),
        doctor(begun, "--json", LOOM_ENV_PYTHON=sys.executable),
    ):
        assert not set(ended.stdout) & {"\x1b", "\x07"}
        holds(ended.stdout, "masked", but=("\\u001b", token))
        assert not any(line.startswith("PASS  fake") for line in ended.stdout.splitlines())


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error_and_a_full_disk_is(begun: Scene) -> None:
    line = '"$@" 2>err | head -c 1 >/dev/null; cat err'
    ended = run(["/bin/sh", "-c", line, "sh", *BARE, "doctor"], cwd=begun.root.parent, environ=begun.environ())
    assert ended.stdout == ""
    full = '"$@" >/dev/full'
    for more in ([], ["--json"]):
        words = ["/bin/sh", "-c", full, "sh", *BARE, "doctor", *more]
        ended = run(words, cwd=begun.root, environ=begun.environ())
        assert (ended.code, "standard output" in ended.stderr, "Traceback" in ended.stderr) == (5, True, False)
