"""Projects, homes and temporary folders of every name that a file system takes: the main path works."""

import json
import os
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.helpers.scenes import CHECKOUT, OTHER
from tests.portability.places import Make

NAMES: dict[str, bytes] = {
    "blanks and quotes": b'it\'s a "test"  \xc3\xbc ',
    "what shells know": b"$HOME `id` $(id);&|*?[a]{b}<>#~!",
    "backslashes, placeholders and formats": b"a\\b\\n%s%n{run_id}{{x}}",
    "line ends and escapes": b"a\nb\tc\x1b[31md",
    "composed letters": unicodedata.normalize("NFC", "Grünkohl-Größe-日本").encode(),
    "decomposed letters and a picture": unicodedata.normalize("NFD", "Grünkohl-Größe-é🧵").encode(),
    "an option's name": b"-rf --json",
    "250 bytes of letters beyond ASCII": "ö".encode() * 125,
    "no UTF-8": b"sch\xf6n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_main_path_works_below_a_folder_of_any_name(tmp_path: Path, make_machine: Make, name: str) -> None:
    if name == "no UTF-8" and sys.platform == "darwin":
        pytest.skip("this system takes no such name")
    machine = make_machine(os.path.join(os.fsencode(tmp_path), NAMES[name]))
    machine.workflow()
    begun = machine.loomctl("run", "add dark mode", "--workflow", "tiny", "--json")
    assert (begun.code, begun.stderr) == (0, b""), begun
    (folder,) = machine.run_folders
    assert os.fsencode(begun.json["run_dir"]) == folder
    assert begun.json["step"]["prompt"].endswith(
        f"Ask in {os.fsdecode(machine.project)}, keep it in {os.fsdecode(folder)}."
    )
    assert "heliotrope" in begun.json["slip"]["text"]

    answer = machine.hook("session-start", source="resume")
    assert "heliotrope" in answer["hookSpecificOutput"]["additionalContext"]
    assert "1 artifact" in answer["systemMessage"]

    done = machine.loomctl("done", "--artifact", "spec_path=spec.md", "--json", given="Größe 🧵".encode())
    assert (done.code, done.stderr, done.json["next"]["id"]) == (0, b"", "frame/make"), done
    state = json.loads(Path(os.fsdecode(os.path.join(folder, b"state.json"))).read_text(encoding="utf-8"))
    assert state["artifacts"]["spec_path"] == "{project_root}/spec.md"
    state.pop("sessions")
    assert os.fsdecode(tmp_path) not in json.dumps(state), "no path of this machine outside of its sessions"

    resumed = machine.loomctl("resume", "--take-over", session=OTHER)
    assert (resumed.code, resumed.stderr) == (0, b""), resumed
    shown = machine.loomctl("show", session=None)
    assert (shown.code, shown.stderr) == (0, b""), shown
    assert "✓ frame/ask" in shown.text
    assert not any(sign in resumed.stdout + shown.stdout for sign in (b"\x1b", b"\xf6"))
    paths = machine.loomctl("paths", "--json").json["paths"]
    assert os.fsencode(paths["project_root"]) == machine.project
    assert os.fsencode(paths["machine_state"]).startswith(machine.home)


@pytest.mark.slow
def test_the_demo_plays_below_a_folder_of_any_name(tmp_path: Path, make_machine: Make) -> None:
    machine = make_machine(os.path.join(os.fsencode(tmp_path), NAMES["what shells know"]))
    ended = machine.loomctl("demo", "--json", session=None)
    assert (ended.code, ended.stderr) == (0, b""), ended
    assert ended.json["survived"] is True
    assert os.listdir(machine.temporary) == []


def test_a_path_in_a_hint_can_be_pasted(tmp_path: Path, make_machine: Make) -> None:
    """A hint that names a file below such a folder is one command to a shell, and works (D52)."""
    machine = make_machine(os.path.join(os.fsencode(tmp_path), NAMES["what shells know"]))
    machine.workflow()
    bad = machine.write(".loom/workflows/bad.json", '{"id": "bad", "phases": 5}')
    refused = machine.loomctl("run", "x", "--workflow", "bad", "--json").ends(5)
    hint = refused.json["error"]["hint"]
    tools = os.path.join(machine.root, b"bin")
    os.makedirs(tools)
    os.symlink(CHECKOUT / "bin" / "loomctl", os.path.join(tools, b"loomctl"))
    path = tools + b":" + os.fsencode(os.environ["PATH"])
    pasted = machine.start("sh", "-c", hint, PATH=path).ends(5)
    assert os.fsdecode(bad) in pasted.text


@pytest.mark.slow
def test_a_project_as_deep_as_paths_go(tmp_path: Path, make_machine: Make) -> None:
    most = os.pathconf("/", "PC_PATH_MAX")
    # 11 for .loom/runs, the run's name, a stage's at its longest, and what stands in it
    room = len("/.loom/runs/") + len("deep-x-run-2026-11-22T01-27-36Z") + len("999-frame.ask@99x") + 80
    machine = make_machine(os.fsencode(tmp_path / "m"))
    for spare, code in ((2, 0), (-30, 2)):
        at = machine.root
        while len(at) + 206 < most - room - spare - len("/deep"):
            at = os.path.join(at, b"d" * 100)
        at = os.path.join(at, b"e" * (most - room - spare - len("/deep") - len(at) - 1), b"deep")
        machine.project = at
        os.makedirs(os.path.join(at, b".git"))
        machine.workflow()
        begun = machine.loomctl("run", "x", "--workflow", "tiny", "--json").ends(code)
        if code:
            assert begun.json["error"]["code"] == "PATH_TOO_LONG"
            assert machine.run_folders == []
        else:
            assert (machine.loomctl("done", given=b"x").code, machine.loomctl("undo").code) == (0, 0)
            assert machine.loomctl("done", given=b"x").code == 0
            assert "heliotrope" in json.dumps(machine.hook("session-start", source="startup"))
