"""Locales and encodings: what is said goes out whole, or with other signs, and never fails; JSON is the same in all."""

import json
import os
import subprocess
import sys

import pytest

from tests.helpers.scenes import MAIN, SESSION, Ended, Scene, artifact

LOCALES: dict[str, dict[str, str]] = {
    "C": {"LC_ALL": "C"},
    "POSIX": {"LANG": "POSIX"},
    "a locale that is not installed": {"LC_ALL": "xx_YY.ISO-8859-1"},
    "C, and Python told to take it at its word": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii"},
    "ascii, strict": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii:strict"},
    "latin-1": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"},
    "cp1252, strict": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "cp1252:strict"},
}
GOAL = "größe 🧵 “x”"


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", f"# {GOAL}\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin(GOAL)
    return scene


def start(scene: Scene, environ: dict[str, str], *words: str, given: bytes = b"", isolated: bool = False) -> Ended:
    """Run the package, not isolated, so that what a user sets for Python holds: as pip's script for it does."""
    kept = {name: value for name, value in scene.environ(SESSION).items() if not name.startswith(("LC_", "LANG"))}
    done = subprocess.run(
        [sys.executable, *(["-I"] if isolated else []), str(MAIN), *words], cwd=scene.root, env={**kept, **environ},
        input=given, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


@pytest.mark.parametrize("name", LOCALES)
def test_output_never_fails_and_json_is_always_whole(begun: Scene, name: str) -> None:
    environ = LOCALES[name]
    shown = start(begun, environ, "show")
    assert (shown.code, shown.stderr) == (0, "")
    assert "frame/ask" in shown.stdout
    document = start(begun, environ, "show", "--json")
    assert (document.code, document.stderr) == (0, "")
    assert document.json["state"]["goal"] == GOAL
    refused = start(begun, environ, "show", "grün").ends(2)
    assert refused.stderr.startswith("loomctl: BAD_ID: ")
    assert "Traceback" not in refused.stderr
    event = {"session_id": SESSION, "source": "resume", "cwd": str(begun.root)}
    answer = start(begun, environ, "hook", "session-start", given=json.dumps(event).encode())
    assert (answer.code, answer.stderr) == (0, "")
    assert GOAL in answer.context


def test_a_goal_keeps_its_letters_under_the_c_locale(scene: Scene) -> None:
    scene.workflow()
    assert start(scene, {"LC_ALL": "C"}, "run", GOAL, "--workflow", "tiny", isolated=True).code == 0
    assert scene.state["goal"] == GOAL
    assert scene.run_dir.name.startswith("shop-grosse-x-run-")
    assert start(scene, {"LC_ALL": "C"}, "done", given=GOAL.encode(), isolated=True).code == 0
    response = scene.run_dir / "stages" / "001-frame.ask@1" / "response.md"
    assert response.read_text(encoding="utf-8") == GOAL


def test_what_is_no_utf8_on_standard_input_is_taken_all_the_same(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    assert start(scene, {"LC_ALL": "C"}, "done", given="größe".encode("latin-1")).code == 0
    response = scene.run_dir / "stages" / "001-frame.ask@1" / "response.md"
    assert response.read_text(encoding="utf-8") == "gr\ufffd\ufffde"


@pytest.mark.skipif(sys.platform == "darwin", reason="this system takes no such name")
def test_a_name_that_is_no_text_survives_json(scene: Scene) -> None:
    """A path that is no UTF-8 stands escaped in a document, so that who reads it can open the file."""
    name = os.fsdecode(b"sch\xf6n.md")
    (scene.root / name).write_text("x")
    scene.workflow()
    scene.begin()
    start(
        scene, {"LC_ALL": "C.UTF-8"}, "done", "--artifact", f"spec={name}", "--json", given=b"x", isolated=True
    ).ends()
    shown = start(scene, {"LC_ALL": "C.UTF-8"}, "show", "--json", isolated=True)
    stored = shown.json["state"]["artifacts"]["spec"]
    assert (scene.root / stored.removeprefix("{project_root}/")).read_text() == "x"
