"""What a command's process imports: its own part of Loom, and no package that it does not use."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from loomctl.cli.main import loomctl
from loomctl.cli.verbs import COMMANDS, DEBUG, PLACES
from tests.helpers.scenes import MAIN, Scene, artifact
from tests.test_hook_imports import PROGRAM

# Slow to import, and needed by few commands.
PACKAGES = {"yaml", "jinja2", "jsonschema", "jsonpath_ng", "markupsafe", "psutil", "quickjs"}
# Those of the extra `fleet`, which most installations lack, and what they bring along.
EXTRA = {"psycopg", "psycopg_binary"}
LIBRARY = {
    *("asyncio", "dataclasses", "difflib", "hashlib", "importlib.metadata", "logging", "pathlib", "shutil", "socket"),
    *("ssl", "tarfile", "tempfile", "traceback", "urllib.parse"),
}
RESOLVING = {"loomctl.workflows.resolve", "loomctl.workflows.workflow", "loomctl.workflows.workflow_files"}
DRIVING = {
    "loomctl.flow.commands.run_commands",
    "loomctl.flow.advance",
    "loomctl.priming.prime_run",
    "loomctl.flow.finish",
}
REDUCING = {"loomctl.runs.tools.reducer", "loomctl.reduction.calls", "loomctl.reduction.signal"}
EXAMINING = {"loomctl.care.doctor", "loomctl.workflows.check"}
KEEPING = {"loomctl.care.keep", "loomctl.care.clean", "loomctl.runs.archives"}
FORBIDDEN = PACKAGES | EXTRA | LIBRARY | RESOLVING | REDUCING | EXAMINING | KEEPING
MODULES = {f"loomctl.cli.{place.partition(':')[0]}" for place in (PLACES | DEBUG).values()} - {"loomctl.cli.verbs"}
CASES = [
    ("show", "show", DRIVING),
    ("sessions", "runs", DRIVING),
    ("paths", "runs", DRIVING),
    ("next", "step", set()),
    ("done", "step", set()),
    ("prime-context", "prime", {"loomctl.flow.advance"}),
    ("debug preamble", "context", DRIVING),
    ("status", "status", DRIVING),
    ("statusline", "status", DRIVING),
    ("runs", "runs", DRIVING),
    ("show --stages", "stages", DRIVING),
    ("events", "events", DRIVING),
    ("steps", "tools", DRIVING),
    ("steps --history", "tools", DRIVING),
    ("steps --savings", "tools", DRIVING),
    ("show --assets", "changes", DRIVING),
    ("context list", "context", DRIVING),
    ("context set k 1", "context", DRIVING),
    ("plugin path", "plugin", DRIVING),
]


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run at its first step, with an artifact."""
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    return scene


def modules_of(scene: Scene, *words: str, given: str = "") -> set[str]:
    """Run a command as the launcher does; gives the modules that its process ended with."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(MAIN), *words],
        cwd=scene.root,
        env={**scene.environ(), "CLAUDE_PID": str(os.getpid())},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize(("words", "own", "more"), CASES, ids=[case[0] for case in CASES])
def test_a_small_command_imports_what_it_needs(begun: Scene, words: str, own: str, more: set[str]) -> None:
    """No other command, no package but click, and no part of the engine that others stand on."""
    loaded = modules_of(begun, *words.split())
    assert loaded & MODULES == {f"loomctl.cli.{own}"}
    assert sorted(loaded & (FORBIDDEN | more)) == []


def test_a_step_is_ended_without_resolving_or_reducing(begun: Scene) -> None:
    """With a result on standard input, and what the next step begins with."""
    assert not modules_of(begun, "done", given="the spec is read") & FORBIDDEN
    assert not modules_of(begun, "next") & FORBIDDEN


def test_the_version_is_told_without_any_command(begun: Scene) -> None:
    """Neither a command nor the engine is needed for it."""
    loaded = modules_of(begun, "--version")
    assert not {name for name in loaded if name.startswith(("loomctl.flow", "loomctl.priming"))} | (loaded & MODULES)


def test_the_help_imports_every_command(begun: Scene) -> None:
    """So a set-up that starts it has compiled what any command begins with."""
    every = {f"loomctl.cli.{place.partition(':')[0]}" for place in COMMANDS.values()}
    assert modules_of(begun, "--help", "--all") >= every


def test_no_help_imports_what_an_extra_brings(begun: Scene) -> None:
    """Not the front page, which imports every command, and not a group's own help."""
    assert sorted(modules_of(begun, "--help", "--all") & EXTRA) == []
    context = click.Context(loomctl)
    groups = [name for name in PLACES if isinstance(loomctl.get_command(context, name), click.Group)]
    assert groups
    for name in groups:
        assert sorted(modules_of(begun, name, "--help") & EXTRA) == []


def test_the_table_of_commands_names_them() -> None:
    """Each place holds the command of that name."""
    context = click.Context(loomctl)
    for name in loomctl.list_commands(context):
        command = loomctl.get_command(context, name)
        assert command is not None
        assert command.name == name
    assert loomctl.get_command(context, "nonsense") is None


def test_no_command_is_left_out_of_the_table() -> None:
    """Each command that a module of the command line makes stands in the table or in a group of it."""
    context = click.Context(loomctl)
    top = [command for name in PLACES if (command := loomctl.get_command(context, name)) is not None]
    listed: set[int] = set()
    while top:
        one = top.pop()
        listed.add(id(one))
        if isinstance(one, click.Group):
            top += filter(None, (one.get_command(context, name) for name in one.list_commands(context)))
    made = {
        f"{module}:{name}": one
        for module in MODULES
        for name, one in vars(sys.modules[module]).items()
        if isinstance(one, click.Command)
    }
    assert {place for place, one in made.items() if id(one) not in listed} == set()
