"""An environment that lost a package is said in words, with the line that makes it anew, by whatever needs it (D52)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_SETUP
from tests.helpers.scenes import CHECKOUT, MAIN, Scene


@pytest.mark.parametrize("words", [["show"], ["run", "add dark mode"], ["--help"]])
def test_a_command_without_its_packages_says_so(scene: Scene, words: list[str]) -> None:
    environ = {**scene.environ(None), "LOOM_ENV_PYTHON": "/x/env-1/bin/python"}
    command = [sys.executable, "-I", "-S", str(MAIN), *words]
    done = subprocess.run(command, cwd=scene.root, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (EXIT_SETUP, "")
    assert done.stderr.startswith("loomctl: ENVIRONMENT_DAMAGED: ")
    assert "No module named 'click'" in done.stderr
    assert done.stderr.endswith("hint: rm -r /x/env-1 && loomctl --version\n")
    command.append("--json")
    done = subprocess.run(command, cwd=scene.root, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_SETUP, "")
    assert json.loads(done.stdout)["error"]["code"] == "ENVIRONMENT_DAMAGED"


def test_a_package_that_one_command_needs_is_named(scene: Scene) -> None:
    scene.write("flow.yaml", "id: x\n")
    program = (
        "import sys; sys.modules['yaml'] = None; sys.path.insert(0, sys.argv.pop(1)); "
        "from loomctl.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-I", "-c", program, str(CHECKOUT), "check", "flow.yaml", "--json"]
    environ = {name: value for name, value in scene.environ(None).items() if name != "LOOM_ENV_PYTHON"}
    done = subprocess.run(command, cwd=scene.root, env=environ, capture_output=True, text=True, check=False)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"], error["hint"]) == (EXIT_SETUP, "ENVIRONMENT_DAMAGED", "loomctl doctor")


def test_a_module_of_looms_own_is_brought_back_by_git(scene: Scene, tmp_path: Path) -> None:
    bundle = tmp_path / "clone"
    shutil.copytree(CHECKOUT / "loomctl", bundle / "loomctl")
    (bundle / ".git").mkdir()
    (bundle / "loomctl/cli/show.py").unlink()
    command = [sys.executable, "-I", str(bundle / "loomctl/__main__.py"), "show"]
    environ = {**scene.environ(None), "LOOM_PLUGIN_ROOT": str(bundle)}
    done = subprocess.run(command, cwd=scene.root, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_SETUP
    assert done.stderr.endswith(f"hint: git -C {bundle} checkout -- loomctl\n")
