"""The launcher notes each firing of a hook: with builtins, only where a store has room for it, through no link."""

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from loomctl import __version__
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.launcher_files import EVENTS
from tests.launcher.world import CHECKOUT, SESSION, SHELLS, World

# All that a hook which starts no Python may use of a system.
NOTHING = "/nonexistent"


@pytest.fixture
def project(world: World) -> Path:
    world.remember()
    project = world.root / "prö ject"
    for folder in (".git", ".loom/local/hooks", "src/deep"):
        (project / folder).mkdir(parents=True)
    return project


def beats(project: Path) -> dict[str, launcher_files.Beat]:
    """What the package reads of what the launcher noted."""
    return launcher_files.beats(str(project / ".loom/local"))


def test_each_firing_is_noted_with_session_version_and_launcher(world: World, project: Path) -> None:
    for event, shell in itertools.product(EVENTS, SHELLS):
        how = {} if event in ("session-start", "pre-tool-use") else {"PATH": NOTHING}  # which read it in any case
        world.hook(event, cwd=project / "src/deep", shell=shell, CLAUDE_CODE_SESSION_ID=SESSION, stdin=b"{}", **how)
        (name, beat), *others = beats(project).items()
        assert (name, others) == (event, [])
        assert beat[1:] == (SESSION, __version__, str(world.bundle / "bin/loomctl"))
        note = project / ".loom/local/hooks" / event
        assert beat.at == note.stat().st_mtime
        note.unlink()


def test_only_an_event_is_noted_with_a_fit_session_and_a_later_one_replaces_it(world: World, project: Path) -> None:
    for event in ["", "nonsense", "../../x", "skew-told", "session-start/../x"]:
        world.start("hook", event, cwd=project, CLAUDE_CODE_SESSION_ID=SESSION)
        assert list((project / ".loom/local/hooks").iterdir()) == []
    for event in EVENTS:
        world.hook(event, cwd=project, LOOM_DISABLED="1")
    assert beats(project) == {}
    for session in [None, "", "../x", "a b\nc"]:
        world.hook("pre-tool-use", cwd=project, CLAUDE_CODE_SESSION_ID=session)
        assert beats(project)["pre-tool-use"][1:3] == ("", __version__)
    path = project / ".loom/local/hooks/stop"
    sizes = []
    for session in ("first-and-much-longer", SESSION, SESSION):
        world.hook("stop", cwd=project, CLAUDE_CODE_SESSION_ID=session)
        assert beats(project)["stop"].session_id == session
        assert beats(project)["stop"].at > 1
        os.utime(path, (1, 1))
        sizes.append(path.stat().st_size)
    assert max(sizes) == sizes[0]
    for missing in [".loom/local/hooks", ".loom/local", ".loom"]:
        shutil.rmtree(project / missing)
        before = sorted(project.rglob("*"))
        for event in EVENTS:
            world.hook(event, cwd=project, CLAUDE_CODE_SESSION_ID=SESSION)
        assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize("link", [".loom", ".loom/local", ".loom/local/hooks", ".loom/local/hooks/stop"])
def test_no_link_is_followed(world: World, project: Path, link: str) -> None:
    outside = world.root / "outside"
    if link.endswith("stop"):
        outside.write_text("precious")
    else:
        shutil.move(project / link, outside)
    (project / link).symlink_to(outside)
    before = {path: path.read_text() if path.is_file() else "" for path in [outside, *outside.rglob("*")]}
    for shell in SHELLS:
        assert world.hook("stop", cwd=project, CLAUDE_CODE_SESSION_ID=SESSION, shell=shell) is None
    assert {path: path.read_text() if path.is_file() else "" for path in [outside, *outside.rglob("*")]} == before
    assert beats(project) == {}


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_note_that_cannot_be_taken_troubles_nobody(world: World, project: Path, kind: str) -> None:
    place = project / ".loom/local/hooks/stop"
    if kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    for shell in SHELLS:
        assert world.hook("stop", cwd=project, shell=shell, CLAUDE_CODE_SESSION_ID=SESSION) is None


def test_a_file_size_limit_ends_no_hook(world: World, project: Path) -> None:
    """The signal that a limit sends is not what a host gets to see."""
    for shell in SHELLS:
        command = [shutil.which(shell[0]) or shell[0], *shell[1:], str(world.bundle / "bin/loomctl"), "hook", "stop"]
        ended = subprocess.run(
            ["/bin/sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *command], cwd=project,
            env=world.environ(CLAUDE_CODE_SESSION_ID=SESSION), capture_output=True, check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_a_linked_worktrees_hooks_are_noted_in_the_main_checkout(world: World, project: Path) -> None:
    world.add_script("dd", 'exec /bin/dd "$@"')
    linked = world.root / "linked"
    git = project / ".git/worktrees/linked"
    git.mkdir(parents=True)
    for folder in (".loom/local/hooks", "src/deep"):
        (linked / folder).mkdir(parents=True)
    (linked / ".git").write_text(f"gitdir: {git}\n")
    world.add_script("dd", 'exec /bin/dd "$@"')
    world.hook("stop", cwd=linked / "src/deep", CLAUDE_CODE_SESSION_ID=SESSION)
    assert (list(beats(project)), beats(linked)) == (["stop"], {})


def test_the_nearest_store_of_the_launch_directory_is_the_one(world: World, project: Path) -> None:
    """Notes go where the package's own search ends: the launch directory first, the nearest folder first."""
    inner, other = project / "src", world.root / "other"
    for folder in (inner / ".loom/local/hooks", other / ".loom/local/hooks"):
        folder.mkdir(parents=True)
    world.hook("stop", cwd=other, CLAUDE_PROJECT_DIR=str(inner / "deep"), CLAUDE_CODE_SESSION_ID=SESSION)
    assert [list(beats(place)) for place in (inner, project, other)] == [["stop"], [], []]


def test_the_launcher_knows_the_bundles_version() -> None:
    assert f"\n    version={__version__} #" in (CHECKOUT / "bin/loomctl").read_text()
