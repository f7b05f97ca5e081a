"""Where a command works, what it finds there, and what of its output is told (D10, D30)."""

import os
import sys

import pytest

from loomctl.priming.artifact_files import REFUSE_BYTES
from tests.cli.commands import AT_ONCE, begin, blob, record, steps
from tests.helpers.scenes import MAIN, Scene
from tests.helpers.texts import holds
from tests.helpers.waiting import until


@pytest.mark.slow
def test_a_command_works_in_the_projects_root_or_below(scene: Scene) -> None:
    (scene.root / "sub é").mkdir(parents=True)
    begin(scene, "pwd", {"run": "pwd", "workdir": "sub é"}, {"run": "pwd", "workdir": "{run_dir}"})
    told = scene.loomctl("next", "--json", cwd=scene.root / "sub é").json
    assert [one["tail"] for one in told["ran"]] == [str(scene.root), str(scene.root / "sub é"), str(scene.run_dir)]


@pytest.mark.parametrize("workdir", ["/", "link", "/etc"])
@pytest.mark.shows("in the project's root or a folder below it")
def test_a_workdir_outside_is_refused(scene: Scene, workdir: str) -> None:
    """Also by a link; nothing is run (D10)."""
    (scene.root / "link").symlink_to("/")
    begin(scene, {"run": "touch sprung", "workdir": workdir})
    assert scene.loomctl("next", "--json").json["error"]["code"] == "PATH_ESCAPE"


def test_a_workdir_that_is_not_there_fails_the_step(scene: Scene) -> None:
    begin(scene, {"run": "true", "workdir": "gone"})
    told = scene.loomctl("next", "--json").json
    assert told["ran"][0]["reason"].startswith("it could not be started: No such file or directory")


def test_a_command_knows_what_it_runs_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_ENV_PYTHON", "/cache/loom/env-1/bin/python")
    monkeypatch.setenv("LOOM_PLUGIN_ROOT", "/bundle")
    monkeypatch.setenv("VIRTUAL_ENV", "/cache/loom/env-1")
    monkeypatch.setenv("PATH", f"/cache/loom/env-1/bin:{os.environ['PATH']}")
    monkeypatch.setenv("MINE", "ä b")
    run_id = begin(scene, "env")
    scene.loomctl("next")
    log = (scene.run_dir / "stages/001-build.c1@1/command.log").read_text(encoding="utf-8")
    found = dict(line.partition("=")[::2] for line in log.splitlines())
    assert (found["LOOM_RUN_ID"], found["LOOM_STEP_ID"]) == (run_id, "build/c1")
    assert found["LOOM_STAGE_DIR"] == str(scene.run_dir / "stages/001-build.c1@1")
    assert (found["MINE"], found["PWD"]) == ("ä b", str(scene.root))
    assert len(found["LOOM_COMMAND_KEY"]) == 32
    assert not {"LOOM_ENV_PYTHON", "LOOM_PLUGIN_ROOT", "VIRTUAL_ENV"} & set(found)
    assert "/cache/loom/env-1/bin" not in found["PATH"].split(":")


SETS = f"env -u CLAUDE_CODE_SESSION_ID '{sys.executable}' -I '{MAIN}' context"
"""How a command that has the names of no session sets its run's context."""


@pytest.mark.slow
def test_a_runs_own_command_sets_its_context_beside_the_driver(scene: Scene) -> None:
    lines = [
        f'{SETS} set k 1 "$LOOM_RUN_ID"; echo $?',
        f'{SETS} set gone 1 "$LOOM_RUN_ID"; echo $?',
        f'{SETS} unset gone "$LOOM_RUN_ID"; echo $?',
        f'LOOM_RUN_ID="${{LOOM_RUN_ID}}x" {SETS} set k 2 {{run_id}}; echo $?',
        f'LOOM_COMMAND_KEY=guessed {SETS} set k 3 "$LOOM_RUN_ID"; echo $?',
        f'LOOM_STAGE_DIR=/ {SETS} set k 4 "$LOOM_RUN_ID"; echo $?',
    ]
    begin(scene, "\n".join(f"({one}) >> codes" for one in lines))
    driver = scene.state["lease"]
    assert scene.loomctl("next", "--json").json["ran"][0]["status"] == "succeeded"
    codes = [line for line in (scene.root / "codes").read_text().splitlines() if line.isdigit()]
    assert codes == ["0", "0", "0", "6", "6", "6"]
    assert (scene.state["context"]["k"], "gone" in scene.state["context"]) == (1, False)
    assert [scene.state["lease"][key] for key in ("epoch", "session_id")] == [driver["epoch"], driver["session_id"]]


@pytest.mark.slow
def test_what_a_command_left_behind_is_not_the_runs_command(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of its own that goes on when the command has ended; nor a shell that has the names of one that runs."""
    late = f': > apart; until test -f go; do sleep 0.02; done; {SETS} set late 1 "$LOOM_RUN_ID"; echo $? > code'
    run_id = begin(
        scene,
        # What has left the command's group by then is not ended with it.
        f"setsid sh -c '{late.replace(chr(39), chr(34))}' & until test -f apart; do sleep 0.02; done",
        "until test -f end; do sleep 0.02; done",
    )
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    second = scene.run_dir / "stages" / "002-build.c2@1"
    until(lambda: scene.loomctl("next").code == 0 and (second / "command.json").exists())
    assert record(scene, "002-build.c2@1")["result"] is None  # a command of the run runs
    scene.write("go", "")
    until(lambda: (scene.root / "code").exists() and (scene.root / "code").read_text().endswith("\n"))
    assert (scene.root / "code").read_text() == "6\n"
    monkeypatch.setenv("LOOM_RUN_ID", run_id)
    monkeypatch.setenv("LOOM_STAGE_DIR", str(second))
    for key in ("", "guessed", record(scene, "002-build.c2@1")["key_sha256"]):
        monkeypatch.setenv("LOOM_COMMAND_KEY", key)
        assert scene.loomctl("context", "set", "k", "1", run_id, session=None).code == 6
    scene.write("end", "")
    assert not {"late", "k"} & set(scene.state["context"])


@pytest.mark.slow
def test_a_command_cannot_wait_for_itself(scene: Scene) -> None:
    begin(scene, f"'{sys.executable}' -I '{MAIN}' next")
    told = scene.loomctl("next", "--json").json
    assert told["ran"][0]["status"] == "failed"
    assert "WITHIN_COMMAND" in told["ran"][0]["tail"]


@pytest.mark.slow
def test_what_a_command_printed_is_told_masked_and_bounded(scene: Scene) -> None:
    begin(
        scene,
        "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; "
        "echo token gh''p_0123456789abcdefghijABCDEFGHIJ012345; "
        "printf '10%%\\r50%%\\r100%%\\n\\033[1mbold\\n```\\n'; exit 1",
    )
    told = scene.loomctl("next").stdout
    holds(told, "\n100%\n␛[1mbold\n```\n", "line 2999", "````text", but=("ghp_0123", "line 100\n"))
    assert b"10%\r50%" in (scene.run_dir / "stages/001-build.c1@1/command.log").read_bytes()


@pytest.mark.slow
def test_one_endless_line_is_told_by_its_end(scene: Scene) -> None:
    begin(scene, f"head -c {4 * REFUSE_BYTES} /dev/zero | tr '\\000' ä; echo END; exit 1")
    told = scene.loomctl("next").stdout
    assert "END" in told
    assert len(told.encode()) < 8000


def test_nothing_printed_is_said(scene: Scene) -> None:
    begin(scene, "true")
    assert "It printed nothing." in scene.loomctl("next").stdout
    assert blob(scene, scene.state["context"]["command.output"]) == ""


def test_a_step_that_needs_what_the_run_lacks_is_no_run(scene: Scene) -> None:
    scene.workflow(phases=steps("echo {work_id}"))
    refused = scene.loomctl("run", "no id", "--workflow", "tiny", "--json").json["error"]
    assert refused["code"] == "UNRESOLVED_PLACEHOLDER"
    odd = Scene(scene.root.parent / "an odd $place")
    odd.workflow(phases=steps("cat <<X\n{project_root}\nX"))
    refused = odd.loomctl("run", "x", "--workflow", "tiny", "--json").json["error"]
    assert (refused["code"], odd.run_dirs) == ("PLACEHOLDER_UNQUOTABLE", [])


def test_a_project_in_an_odd_place_runs_its_commands(scene: Scene) -> None:
    odd = Scene(scene.root.parent / 'mein Gärtchen\'s "$HOME"')
    odd.workflow(
        phases=steps("test -d {project_root} && test -d \"{project_root}\" && test -d '{run_dir}' && echo all")
    )
    odd.begin()
    odd.loomctl("trust", "--yes")
    assert odd.loomctl("next", "--json").json["ran"][0]["tail"] == "all"
