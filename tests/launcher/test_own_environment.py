"""Loom's own environment: made once, by what the machine has, whole or not at all."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.texts import holds
from tests.launcher.world import CHECKOUT, PYTHON, SHELLS, World, touch

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LOCK_ID = (CHECKOUT / "requirements.lock").read_text().splitlines()[0].split()[-1]
NAME = f"env-{LOCK_ID}-{VERSION}"
UV = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def add_uv(world: World) -> None:
    assert UV is not None, "uv is in requirements-dev.lock"
    (world.tools / "uv").symlink_to(UV)


def python_without(folder: Path, *modules: str) -> Path:
    """Build a Python that lacks modules, as some systems ship it: the same interpreter over a thinned-out library."""
    library = Path(os.__file__).parent
    (folder / "bin").mkdir(parents=True)
    python = Path(shutil.copy(PYTHON, folder / "bin" / "python3"))
    ours = folder / "lib" / library.name
    ours.mkdir(parents=True)
    for entry in library.iterdir():
        if entry.name not in {*modules, "site-packages"}:
            (ours / entry.name).symlink_to(entry)
    (ours / "site-packages").mkdir()
    asked = subprocess.run([python, "-c", "import json, ssl"], capture_output=True, check=False)
    if asked.returncode != 0:
        pytest.skip("this Python cannot be copied to another folder")
    return python


def with_pip(python: Path, pip: str = "pip") -> Path:
    packages = next((python.parents[1] / "lib").iterdir()) / "site-packages"
    install = ["install", "--quiet", "--no-deps", "--target", str(packages), pip]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    return python


@pytest.mark.slow
def test_the_first_start_makes_the_environment_and_the_second_finds_it(online: World) -> None:
    shutil.rmtree(online.kept)
    online.add_python()
    first = online.start("run", "a b", "", "ü'\"$x")
    assert first.returncode == 0, first.stderr.decode()
    report = json.loads(first.stdout)
    assert report["arguments"] == ["run", "a b", "", "ü'\"$x"]
    assert (report["isolated"], report["no_site"]) == (1, 0)
    assert report["packages"].startswith(str(online.kept / NAME))
    assert report["compiled"], "the packages are compiled before the first start is over"
    assert report["LOOM"] == {
        "LOOM_PLUGIN_ROOT": str(online.bundle),
        "LOOM_PLUGIN_DATA": "",
        "LOOM_ENV_PYTHON": str(online.kept / NAME / "bin/python"),
    }
    assert "making Loom's own environment" in first.stderr.decode()
    assert online.made == [NAME]

    second = online.start("status", PATH="/nonexistent")
    assert (second.returncode, second.stderr) == (0, b"")
    assert json.loads(second.stdout)["packages"] == report["packages"]

    hooked = online.hook("session-start", cwd=touch(online.root / "p/.loom/x").parents[1])
    assert hooked is not None
    assert hooked["LOOM"]["LOOM_ENV_PYTHON"] == str(online.kept / NAME / "bin/python")


@pytest.mark.slow
def test_pythons_own_exit_code_is_the_launchers(world: World) -> None:
    python = touch(world.kept / NAME / "bin/python", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    for shell in SHELLS:
        ended = world.start("next", shell=shell, TEST_EXIT="5")
        assert (ended.returncode, ended.stderr) == (5, b""), shell
        assert json.loads(ended.stdout)["arguments"] == ["next"]


@pytest.mark.slow
@pytest.mark.shows("its Python environment, compiled modules")
def test_it_is_made_in_the_plugins_folder_and_found_in_the_cache(online: World) -> None:
    add_uv(online)
    online.add_python()
    data = online.root / "plugin data"
    first = online.start("x", CLAUDE_PLUGIN_DATA=str(data))
    assert first.returncode == 0, first.stderr.decode()
    assert json.loads(first.stdout)["packages"].startswith(str(data / NAME))
    assert online.made == []
    online.kept.mkdir(parents=True, exist_ok=True)
    shutil.move(data / NAME, online.kept / NAME)
    later = online.start("x", CLAUDE_PLUGIN_DATA=str(data))
    assert (later.returncode, later.stderr) == (0, b"")
    assert json.loads(later.stdout)["packages"].startswith(str(online.kept / NAME))


@pytest.mark.slow
def test_uv_makes_it_where_uv_is(online: World) -> None:
    add_uv(online)
    online.add_python(python=python_without(online.root / "thin", "ensurepip", "venv"))
    ended = online.start("x", UV_CACHE_DIR=str(online.root / "uv cache"))
    assert ended.returncode == 0, ended.stderr.decode()
    assert "with uv" in ended.stderr.decode()


@pytest.mark.slow
def test_a_uv_that_fails_leaves_the_work_to_pip(online: World) -> None:
    """A uv without the settings that pip has is no dead end."""
    online.add_script("uv", "echo error: no; exit 2")
    online.add_python()
    ended = online.start("x")
    assert ended.returncode == 0, ended.stderr.decode()
    holds(ended.stderr.decode(), "with uv", "with pip")


@pytest.mark.slow
def test_pip_comes_out_of_python_itself_where_none_is_installed(online: World) -> None:
    """A Python without pip brings one for the environment, which does not stay there."""
    online.add_python(python=python_without(online.root / "thin"))
    ended = online.start("x")
    assert ended.returncode == 0, ended.stderr.decode()
    packages = Path(json.loads(ended.stdout)["packages"])
    assert not (packages / "pip").exists()
    assert not (packages / "setuptools").exists()


@pytest.mark.slow
def test_pip_alone_is_enough(online: World) -> None:
    """A Python without venv and ensurepip, as some systems split it, makes the environment with pip."""
    online.add_python(python=with_pip(python_without(online.root / "thin", "ensurepip", "venv")))
    ended = online.start("x")
    assert ended.returncode == 0, ended.stderr.decode()
    assert online.made == [NAME]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pip of that age does not run on this Python")
def test_an_old_pip_alone_is_enough(online: World) -> None:
    """A pip from before it could fill another environment puts the packages where they belong."""
    online.add_python(python=with_pip(python_without(online.root / "thin", "ensurepip", "venv"), "pip==22.0.4"))
    ended = online.start("x")
    assert ended.returncode == 0, ended.stderr.decode()
    assert "old pip" in ended.stderr.decode()


def test_with_nothing_to_make_it_it_says_what_to_install(online: World) -> None:
    online.add_python(python=python_without(online.root / "thin", "ensurepip", "venv"))
    ended = online.start("x")
    assert (ended.returncode, ended.stdout) == (8, b"")
    holds(ended.stderr.decode(), "NO_INSTALLER", "python3-venv")
    assert online.made == []


@pytest.mark.slow
@pytest.mark.shows("The folder it is started in has no say in what that Python imports")
def test_the_folder_it_is_started_in_has_no_say_and_the_users_pip_settings_hold(online: World) -> None:
    online.add_python()
    for name in ("pip", "venv", "subprocess", "os", "json", "sitecustomize", "loomctl"):
        touch(online.root / "trap" / f"{name}.py", "open('sprung', 'w'); raise SystemExit(99)")
    odd = {"PIP_USER": "1", "PIP_REQUIRE_VIRTUALENV": "1", "PIP_NO_BINARY": ":all:", "PIP_DEFAULT_TIMEOUT": "180"}
    ended = online.start("x", cwd=online.root / "trap", settings=odd)
    assert ended.returncode == 0, ended.stderr.decode()
    assert not (online.root / "trap/sprung").exists()


@pytest.mark.slow
def test_an_environment_whose_python_is_gone_is_made_anew(online: World) -> None:
    add_uv(online)
    thin = python_without(online.root / "thin")
    online.add_python("python3.13", thin)
    assert online.start("x").returncode == 0
    shutil.rmtree(thin.parents[1])
    online.add_python("python3")
    ended = online.start("x")
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["python"] == str(PYTHON)
    assert online.made == [NAME]


@pytest.mark.slow
@pytest.mark.shows("with hashes for every package")
def test_altered_packages_are_refused(online: World, wheelhouse: Path) -> None:
    online.add_python()
    bad = online.root / "bad"
    shutil.copytree(wheelhouse, bad)
    wheel = next(bad.glob("click-*"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    ended = online.start("x", PIP_FIND_LINKS=bad.as_uri())
    assert ended.returncode == 8
    assert "SETUP_FAILED" in ended.stderr.decode()
    assert "HASH" in ended.stderr.decode().upper()
    assert online.made == []


@pytest.fixture
def silent_index() -> Iterator[str]:
    """An index that takes every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def unreachable(world: World, index: str) -> dict[str, str | None]:
    """Point pip and uv at an index, with the patience that some systems set."""
    world.add_python()
    world.more = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    return {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index, "PIP_DEFAULT_TIMEOUT": "180", "UV_HTTP_TIMEOUT": "180"}


@pytest.mark.slow
@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv and pip"])
@pytest.mark.parametrize("answer", ["refused", "silent"])
def test_without_an_index_it_says_so_soon_and_leaves_nothing(
    world: World, silent_index: str, answer: str, uv: bool
) -> None:
    index = silent_index if answer == "silent" else "http://127.0.0.1:9/simple"
    settings = {**unreachable(world, index), "LOOM_SETUP_TIMEOUT": "2"}
    if uv:
        add_uv(world)
    ended = world.start("status", "--json", settings=settings)
    assert ended.returncode == 8
    holds(ended.stderr.decode(), "INDEX_UNREACHABLE", "hint:")
    assert (json.loads(ended.stdout)["error"]["code"], world.made) == ("INDEX_UNREACHABLE", [])


@pytest.mark.slow
def test_a_password_in_an_index_address_is_not_shown(world: World) -> None:
    """What pip says about an index is passed on without what stands before its `@`."""
    ended = world.start("x", settings=unreachable(world, "http://me:s3cret@127.0.0.1:9/simple"))
    assert ended.returncode == 8
    holds(ended.stderr, b"127.0.0.1:9", but=(b"s3cret",))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_a_set_up_that_is_ended_leaves_nothing_in_the_way(
    online: World, silent_index: str, how: signal.Signals
) -> None:
    settings = dict(online.more)
    waiting = {**unreachable(online, silent_index), "LOOM_SETUP_TIMEOUT": "60"}
    launcher = [str(online.bundle / "bin/loomctl"), "x"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would hand on "ignore"
    process = subprocess.Popen(
        launcher, env=online.environ(**waiting), cwd=online.root, stderr=subprocess.DEVNULL, start_new_session=True
    )
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 30
    while not (online.made and fetching(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert online.made[0].startswith("making-")
    everything = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, how)
    assert process.wait(20) != 0
    if how == signal.SIGKILL:
        for orphan in everything:
            if orphan.is_running():
                orphan.kill()
        psutil.wait_procs(everything, 10)
        assert online.made != []
    else:
        assert psutil.wait_procs(everything, 10)[1] == [], "the tool that was at work ends too"
        assert online.made == []
    online.more = settings
    add_uv(online)
    assert online.start("x").returncode == 0
    assert online.made == [NAME]


def fetching(pid: int) -> bool:
    """Tell whether pip is at work somewhere below a process."""
    try:
        below = psutil.Process(pid).children(recursive=True)
        return any("--require-hashes" in process.cmdline() for process in below)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_two_first_starts_make_one_environment(online: World) -> None:
    add_uv(online)
    online.add_python()
    launcher = [str(online.bundle / "bin/loomctl"), "x"]
    processes = [
        subprocess.Popen(
            launcher, env=online.environ(), cwd=online.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    ended = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    assert len({json.loads(out)["packages"] for out, _ in ended}) == 1
    assert ("".join(words for _, words in ended).count("first start"), online.made) == (1, [NAME])


def test_no_python_is_said_with_what_was_looked_for(world: World) -> None:
    world.add_script("python3", 'echo "old 3.8"')
    ended = world.start("status", "--json")
    assert ended.returncode == 8
    words = ended.stderr.decode()
    for part in ("NO_PYTHON", "python3.13", "python3 is 3.8", "LOOM_PYTHON", "hint: command -v"):
        assert part in words
    assert json.loads(ended.stdout)["error"]["code"] == "NO_PYTHON"


@pytest.mark.slow
def test_a_python_off_the_path_can_be_named(online: World) -> None:
    add_uv(online)
    online.add_script("python3", 'echo "old 3.8"')
    ended = online.start("x", LOOM_PYTHON=str(PYTHON))
    assert ended.returncode == 0, ended.stderr.decode()


def test_a_home_or_a_bundle_that_is_not_there_is_said(world: World) -> None:
    world.add_python()
    for home in (None, "", "relative"):
        ended = world.start("status", HOME=home, XDG_CACHE_HOME="also/relative")
        assert ended.returncode == 8, home
        assert "NO_HOME" in ended.stderr.decode()
    (world.root / "file").touch()
    ended = world.start("status", HOME=str(world.root / "file"))
    assert ended.returncode == 8
    holds(ended.stderr.decode(), "file/.cache", "hint:")
    copy = touch(world.root / "bin/loomctl", (world.bundle / "bin/loomctl").read_text())
    copy.chmod(0o755)
    ended = world.start("status", launcher=copy)
    assert ended.returncode == 8
    assert "PACKAGE_MISSING" in ended.stderr.decode()


def test_the_bundle_is_found_however_the_launcher_is_called(world: World) -> None:
    world.remember()
    (world.root / "p/.loom").mkdir(parents=True)
    (world.root / "one").symlink_to(world.bundle / "bin/loomctl")
    (world.root / "links").mkdir()
    (world.root / "links/two").symlink_to("../one")
    ways: list[tuple[str, Path]] = [
        (str(world.root / "one"), world.root),
        ("links/two", world.root),
        ("bin/loomctl", world.bundle),
        ("./loomctl", world.bundle / "bin"),
        (f"{world.bundle}/bin/../bin/./loomctl", world.root),
    ]
    hook = ["hook", "session-start"]
    calls = [(shell, launcher, hook, cwd) for shell in SHELLS for launcher, cwd in ways]
    on_path = (["sh"], "-c", ["loomctl hook session-start"], world.root)
    path = f"{world.tools}:{world.bundle}/bin"
    how = {"CLAUDE_PROJECT_DIR": str(world.root / "p"), "PATH": path}
    for shell, launcher, arguments, cwd in (on_path, *calls):
        ended = world.start(*arguments, launcher=launcher, shell=shell, cwd=cwd, settings=how)
        assert json.loads(ended.stdout)["LOOM"]["LOOM_PLUGIN_ROOT"] == str(world.bundle), (shell, launcher)


def test_a_python_for_windows_is_none(world: World) -> None:
    """As the launcher meets it in Git Bash: it runs, and its own path is no path there."""
    for name in ("python3", "python"):
        world.add_script(name, r"printf 'ok C:\\Python313\\python.exe'")
    ended = world.start("status", "--json")
    assert (ended.returncode, json.loads(ended.stdout)["error"]["code"]) == (8, "NO_PYTHON")
