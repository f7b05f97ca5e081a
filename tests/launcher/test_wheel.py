"""The wheel and the source archive: they ship the bundle, and an installed one starts from it without a set-up."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from loomctl import __version__
from tests.helpers import wheels
from tests.launcher.world import CHECKOUT, REPORT, World, touch

BUNDLE = (
    ".claude-plugin", ".codex-plugin", ".plugin", "bin", "commands", "config", "docs",
    "gemini-extension.json", "hooks", "hosts", "plugin.json", "qwen-extension.json", "requirements.lock",
    "skills",
)  # fmt: skip
DOCS = ("docs/reference/", "docs/workflow-orchestration-protocol.md")
"""What commands and skills name of the documentation; pictures and other pages would be half a megabyte more."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive of this checkout, and the wheel that was built from it."""
    return wheels.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that the wheel was installed into, as pipx would; its __main__ replaced by a report."""
    folder = tmp_path_factory.mktemp("pipx") / "vénv of loom"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--find-links", wheelhouse.as_uri(), str(wheel)]
    subprocess.run([folder / "bin/python", *install], check=True)
    main = next(folder.glob("lib/python*/site-packages/loomctl/__main__.py"))
    main.write_text(REPORT)
    return folder


def bundle_files() -> dict[str, Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *BUNDLE]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    there = [name for name in listed.split("\0") if name and (CHECKOUT / name).is_file()]
    there = [name for name in there if not name.startswith("docs/") or name.startswith(DOCS)]
    return {f"loomctl/_bundle/{name}": CHECKOUT / name for name in there}


@pytest.mark.slow
def test_the_wheel_ships_the_whole_bundle_byte_for_byte(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist() if name.startswith("loomctl/_bundle/")}
    assert inside == {name: path.read_bytes() for name, path in bundle_files().items()}
    assert {name.split("/")[2] for name in inside} == set(BUNDLE)


def test_the_wheel_ships_the_package_its_assets_and_what_can_be_executed(wheel: Path) -> None:
    folder = "loomctl/views/assets/"
    with zipfile.ZipFile(wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist() if name.startswith(folder)}
    assert inside == {f"{folder}{path.name}": path.read_bytes() for path in (CHECKOUT / folder).iterdir()}
    assert {"page.html", "report.css", "report.js"} <= {name.removeprefix(folder) for name in inside}
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"loomctl"}
    with zipfile.ZipFile(wheel) as archive:
        modes = {name: archive.getinfo(name).external_attr >> 16 for name in archive.namelist()}
    for name, path in bundle_files().items():
        assert bool(modes[name] & 0o111) == os.access(path, os.X_OK), name
    assert modes["loomctl/_bundle/bin/loomctl"] & 0o111


def test_an_index_shows_the_readme_with_links_that_lead_somewhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        shown = archive.read(name).decode().partition("\n\n")[2]
    links = re.findall(r"\]\(([^)#]*)[^)]*\)", shown)
    at = re.compile(rf"https://github\.com/[^/]+/loom/(raw|blob)/v{re.escape(__version__)}/(.+)")
    found = [at.fullmatch(link) for link in links]
    assert all(one and (CHECKOUT / one[2]).is_file() for one in found), links
    assert {one[2]: one[1] for one in found if one}["docs/demo.svg"] == "raw"
    assert len(links) > 20


def test_the_source_archive_can_be_tested(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"requirements-dev.lock", "scripts/test", "noxfile.py", "tests/test_imports.py", "LICENSE", "README.md"}
    assert wanted | {str(path.relative_to(CHECKOUT)) for path in bundle_files().values()} <= names


@pytest.mark.slow
def test_an_installed_bundle_runs_in_the_environment_it_was_installed_into(installed: Path, world: World) -> None:
    """Its launcher needs no Python on PATH and sets nothing up: the wheel's own environment has everything."""
    launcher = next(installed.glob("lib/python*/site-packages/loomctl/_bundle/bin/loomctl"))
    ended = world.start("x", launcher=launcher, PATH="/nonexistent")
    assert (ended.returncode, ended.stderr) == (0, b"")
    report = json.loads(ended.stdout)
    assert report["packages"].startswith(str(installed))
    assert report["LOOM"] == {
        "LOOM_PLUGIN_ROOT": str(launcher.parents[1]),
        "LOOM_PLUGIN_DATA": "",
        "LOOM_ENV_PYTHON": str(installed / "bin/python"),
    }
    assert world.made == []


def test_an_installed_bundles_hooks_use_that_environments_python(installed: Path, world: World) -> None:
    launcher = next(installed.glob("lib/python*/site-packages/loomctl/_bundle/bin/loomctl"))
    project = touch(world.root / "p/.loom/x").parents[1]
    report = world.hook("session-start", cwd=project, launcher=launcher, PATH="/nonexistent")
    assert report is not None
    assert report["no_site"] == 1
    assert report["LOOM"]["LOOM_ENV_PYTHON"] == str(installed / "bin/python")


@pytest.mark.slow
def test_an_installed_bundle_without_its_packages_makes_an_environment(
    installed: Path, online: World, tmp_path: Path
) -> None:
    """A wheel that was only unpacked (`pip install --no-deps --target`) sets itself up like a plugin."""
    import shutil

    site_packages = next(installed.glob("lib/python*/site-packages"))
    lonely = tmp_path / "lib" / site_packages.parent.name / "site-packages"
    shutil.copytree(site_packages / "loomctl", lonely / "loomctl")
    online.add_python()
    ended = online.start("x", launcher=lonely / "loomctl/_bundle/bin/loomctl")
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["packages"].startswith(str(online.kept))
