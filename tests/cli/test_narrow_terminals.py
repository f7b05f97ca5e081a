"""A terminal of 60 columns: prose fits it, and what people copy is in one piece."""

from __future__ import annotations

import re
import sys

import pytest

from loomctl.kit.text import fences
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal, at_a_terminal
from tests.helpers.scenes import MAIN, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds
from tests.helpers.verbs import begin, done

# A path, a handle, code in quotes, a hint or a line of code: nobody can break it and copy it.
COPIED = re.compile(r"\s*(?:- )?\S+|    .*|  (?:hint|where): .*|(?:folder|RANK) .*|\s*`[^`]*`\S*|\s*loomctl .*")
CORE = ("--workflow", "core")
VERBS = [
    ("run", "add dark mode", *CORE), ("next",), ("status",), ("show",), ("show", "--why"), ("show", "--stages"),
    ("steps",), ("runs",), ("prove",), ("check", "core"), ("done", "--outcome", "failed"), ("undo",), ("pause",),
    ("resume",), ("approve",), ("status", "nowhere"), ("report",), ("init", "--from", "bugfix", "--yes"), ("--help",),
    ("cancel",), ("next",),
]  # fmt: skip


@pytest.mark.slow
def test_every_day_verbs_fit_sixty_columns(scene: Scene) -> None:
    for words in VERBS:
        seen = at_a_terminal(scene, *words, COLUMNS="60", NO_COLOR="1")
        assert "Traceback" not in seen
        wide = [line for line in seen.splitlines() if fences.width(line) > 60 and not COPIED.fullmatch(line)]
        assert (words, wide) == (words, [])


def test_what_an_assistant_or_a_dumb_terminal_gets_is_not_broken(scene: Scene) -> None:
    long = 'loomctl: NO_ACTIVE_RUN: No active run\n  why: loomctl run "what to do" starts one, loomctl resume RUN '
    for environ in ({"TERM": "dumb"}, {"CLAUDE_CODE_SESSION_ID": "x"}):
        assert long in at_a_terminal(scene, "status", COLUMNS="60", **environ)
    assert long not in at_a_terminal(scene, "status", COLUMNS="60")


def on_a_small_screen(
    scene: Scene, commands: tuple[str, ...], high: int, wide: int = 70, environ: dict[str, str] | None = None
) -> list[list[str]]:
    """Type commands at one terminal; gives the lines of each."""
    loomctl = f"{sys.executable} -I {MAIN}"
    typed = ["/bin/sh", "-c", "; echo =====; ".join(f"{loomctl} {one}" for one in commands)]
    screen = Terminal(typed, scene, environ={"NO_COLOR": "1", "COLUMNS": str(wide), **(environ or {})})
    screen.resize(high, wide)
    return [seen.strip("\n").splitlines() for seen in screen.end().split("=====\n")]


@pytest.mark.slow(quick=1)
@each(
    ("high", "environ", "repeated"),
    [(20, {}, True), (100, {}, False), (20, {"CLAUDE_CODE_SESSION_ID": "x"}, False), (20, {"TERM": "dumb"}, False)],
)
def test_the_line_that_matters_is_the_last_where_the_screen_is_too_low(
    scene: Scene, high: int, environ: dict[str, str], *, repeated: bool
) -> None:
    """It is repeated at the end for a person alone, and only where it may have scrolled away."""
    steps = [{"id": name, "prompt": "Do it.\n\n" * 20} for name in ("one", "two", "three")]
    scene.workflow(phases={"frame": {"steps": steps}})
    scene.write("made.md", "made")
    verbs = ("run 'add dark mode' --workflow tiny", "next", "done --response-file made.md", "undo")
    started, upcoming, ended, undone = on_a_small_screen(scene, verbs, high, environ=environ)
    last = [started[-1], upcoming[-1], ended[-2], ended[-1], undone[-2], undone[-1]]
    begins = ["Loom: started ", "Next: frame/one", "✓ frame/one: succe", "Next: frame/two", "Undone: 001-", "Next: "]
    assert [line.startswith(word) for line, word in zip(last, begins, strict=True)] == [repeated] * 6


def test_a_list_of_tasks_names_each_task_and_a_failed_step_its_reason(
    scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write("todo.md", "- [ ] Add the parser\n- [ ] Sort it\n- [ ] Ship it\n")
    step = {"id": "implement", "name": "Implement", "prompt": "Do this: {task}", "for_each": "artifacts.spec"}
    begin(scene, "spec", step)
    done(scene, artifacts={"spec": "{project_root}/todo.md"})
    done(scene)
    monkeypatch.setenv("COLUMNS", "60")
    rows = cli("show", "--stages").stdout.splitlines()
    assert "task 1 of 3: Add" in rows[2]
    assert "task 2 of 3: Sort" in rows[3]
    open_one = "▸ build/implement  in_progress (003): task 2 of 3: Sort"
    holds(cli("show").stdout, "artifact  spec: todo.md\n", open_one, but=("2nd time",))
    assert cli("show", "3").stdout.startswith("stage     003-build.implement@2: build/implement\n")
    done(scene, outcome="failed", note="the port is taken")
    holds(cli("show").stdout, "✗ build/implement  failed (003): the port is taken: task 2")
