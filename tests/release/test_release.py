"""One command makes a version: all of it, the same from each machine, or nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl import __version__
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT
from tests.release.conftest import cloned, open_again
from tools import release

FRAGMENT = "- `loomctl graph` draws in red.\n"


def make(
    tools: Path, folder: Path, *arguments: str, umask: int = -1, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Call `scripts/release` in a clone."""
    whole = {**os.environ, "LOOM_TEST_CACHE": str(tools.parents[1]), "LOOM_PYTHON": sys.executable, **environ}
    command = [str(folder / "scripts/release"), *arguments]
    return subprocess.run(command, cwd=folder, env=whole, capture_output=True, text=True, check=False, umask=umask)


def standing(folder: Path) -> tuple[str, ...]:
    """Give all that a refused release must leave as it was: branch, tags, files, worktrees."""
    asked = ("show-ref", "symbolic-ref -q HEAD --", "status --porcelain --untracked-files=all", "worktree list")
    said = [
        subprocess.run(["git", *one.split()], cwd=folder, capture_output=True, text=True, check=False).stdout
        for one in asked
    ]
    return (*said, git(folder, "rev-parse", "HEAD"))


def commit(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")


def sections(folder: Path) -> list[str]:
    return re.findall(r"^## (.+)$", (folder / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_place_names_the_version_once() -> None:
    for name, form in release.PLACES.items():
        assert (CHECKOUT / name).read_text(encoding="utf-8").count(form.format(__version__)) == 1, name
    listed = git(CHECKOUT, "grep", "--fixed-strings", "--files-with-matches", __version__)
    shipped = [
        name for name in listed.splitlines() if not name.startswith(("tests/", "benchmarks/", "docs/", "changes.d/"))
    ]
    assert set(shipped) - {"CHANGELOG.md", "tools/release.py", "scripts/release"} - set(release.PLACES) <= {
        "requirements.lock", "requirements-dev.lock", "requirements-docs.lock", "requirements-release.lock",
    }  # fmt: skip


@pytest.mark.slow
def test_one_command_makes_the_open_version_and_the_next(tools: Path, clone: Path) -> None:
    before, fragments = standing(clone), [path.read_text(encoding="utf-8") for path in release.fragments(clone)]
    tried = make(tools, clone, __version__, "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert standing(clone) == before
    assert not (clone / "dist").exists()

    ended = make(tools, clone, __version__)
    assert ended.returncode == 0, ended.stderr
    text = (clone / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)$", text, re.MULTILINE)
    for fragment in fragments:
        assert fragment in text
    assert release.fragments(clone) == []
    assert git(clone, "cat-file", "-t", f"v{__version__}") == "tag"
    assert git(clone, "rev-parse", f"v{__version__}^{{commit}}") == git(clone, "rev-parse", "main")
    assert git(clone, "status", "--porcelain") == ""
    first = {path.name: path.read_bytes() for path in (clone / "dist").iterdir()}
    names = [f"loomctl-{__version__}{end}" for end in ("-py3-none-any.whl", ".cdx.json", ".tar.gz")]
    assert sorted(first) == ["SHA256SUMS", *names]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=clone / "dist", check=True)
    again = make(tools, clone, __version__)
    assert again.returncode == 0, again.stderr
    assert {path.name: path.read_bytes() for path in (clone / "dist").iterdir()} == first

    commit(clone, "changes.d/red.md", FRAGMENT)
    assert f"release {__version__} is not recorded" in make(tools, clone, "9.8.7").stderr
    (clone / release.RECORDED / __version__).mkdir()
    commit(clone, f"{release.RECORDED}/{__version__}/release.json", "{}")
    ended = make(tools, clone, "9.8.7")
    assert ended.returncode == 0, ended.stderr
    assert [title.split()[0] for title in sections(clone)][:2] == ["9.8.7", __version__]
    assert f")\n\n{FRAGMENT}\n## {__version__}" in (clone / "CHANGELOG.md").read_text(encoding="utf-8")
    changed = git(clone, "diff", "--name-only", "HEAD~1", "HEAD").splitlines()
    assert sorted(changed) == sorted([*release.PLACES, "CHANGELOG.md", "changes.d/red.md"])
    assert sorted(path.name for path in (clone / "dist").iterdir())[1].startswith("loomctl-9.8.7")
    with zipfile.ZipFile(next((clone / "dist").glob("*.whl"))) as wheel:
        assert '"version": "9.8.7"' in wheel.read("loomctl/_bundle/plugin.json").decode()
        assert "Version: 9.8.7\n" in wheel.read("loomctl-9.8.7.dist-info/METADATA").decode()


@pytest.fixture(scope="module")
def released(tools: Path, copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which the open version was made, by somebody who keeps their files to themselves."""
    folder = cloned(copy, tmp_path_factory.mktemp("released") / "clone", umask=0o077)
    ended = make(tools, folder, __version__, umask=0o077, TZ="Pacific/Auckland")
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.slow
def test_two_builds_of_a_commit_are_byte_for_byte_the_same(tools: Path, released: Path, tmp_path: Path) -> None:
    """In other folders, at other times, under other umasks and in other time zones."""
    other = cloned(released, tmp_path / "another folder" / "with a longer name", umask=0o002)
    git(other, "switch", "--quiet", "--detach", f"v{__version__}")
    for path in other.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            os.utime(path, (10**9, 10**9))
    ended = make(tools, other, __version__, umask=0o002, TZ="America/Lima", LC_ALL="C")
    assert ended.returncode == 0, ended.stderr
    one, two = ({path.name: path.read_bytes() for path in (of / "dist").iterdir()} for of in (released, other))
    assert sorted(one) == sorted(two)
    assert [name for name in one if one[name] != two[name]] == []


@pytest.mark.slow
def test_at_a_release_the_tests_of_releases_have_something_to_release(
    tools: Path, released: Path, tmp_path: Path
) -> None:
    """They are run at its commit before it is published, and at each later one until something changes."""
    folder = cloned(released, tmp_path / "clone")
    git(folder, "tag", "--delete", f"v{__version__}")
    refused = make(tools, folder, __version__)
    assert f"git tag --annotate v{__version__} " in refused.stderr
    open_again(folder)
    commit(folder, "changes.d/red.md", FRAGMENT)
    ended = make(tools, folder, __version__, "--dry-run")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_the_publisher_takes_what_was_built(released: Path) -> None:
    """It looks at the metadata before it uploads; a newer form than 2.5 needs a newer publisher than is pinned."""
    (wheel,) = (released / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        form = packed.read(f"loomctl-{__version__}.dist-info/METADATA").decode().partition("\n")[0]
    assert form in {f"Metadata-Version: 2.{minor}" for minor in range(6)}
    pinned = (CHECKOUT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    (version,) = re.findall(r"pypa/gh-action-pypi-publish@[0-9a-f]{40} # v(\S+)\n", pinned)
    assert release.numbers(version) >= (1, 14, 2)


@pytest.mark.slow
def test_the_wheel_is_small(released: Path) -> None:
    (wheel,) = (released / "dist").glob("*.whl")
    assert wheel.stat().st_size <= 1_500_000


@pytest.mark.slow
def test_the_bill_of_materials_has_what_the_lock_pins(released: Path) -> None:
    (path,) = (released / "dist").glob("*.cdx.json")
    bill = json.loads(path.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("loomctl", __version__)
    pinned = re.findall(r"^([a-z0-9-]+)==([^ ]+)", (CHECKOUT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert sorted((one["name"], one["version"]) for one in bill["components"]) == sorted(pinned)
    assert all(one["externalReferences"][0]["hashes"] for one in bill["components"])
    assert "/tmp" not in path.read_text(encoding="utf-8")


def dirty(folder: Path) -> None:
    (folder / "note.txt").write_text("x")


def tagged_elsewhere(folder: Path) -> None:
    git(folder, "tag", "v9.8.7")
    commit(folder, "a.txt", "x")


def tagged_later(folder: Path) -> None:
    git(folder, "tag", "v9.10.0")
    commit(folder, "a.txt", "x")


def detached(folder: Path) -> None:
    git(folder, "switch", "--quiet", "--detach", "HEAD")


def closed(folder: Path) -> None:
    text = (folder / "CHANGELOG.md").read_text(encoding="utf-8").replace(" (unreleased)", "")
    for fragment in release.fragments(folder):
        fragment.unlink()
    commit(folder, "CHANGELOG.md", text)


def without_a_name(folder: Path) -> None:
    commit(folder, "SECURITY.md", (folder / "SECURITY.md").read_text(encoding="utf-8") + "/OWNER/\n")


def untagged(folder: Path) -> None:
    text = (folder / "CHANGELOG.md").read_text(encoding="utf-8").replace("(unreleased)", "(2026-12-01)")
    commit(folder, "CHANGELOG.md", text)


def broken(folder: Path) -> None:
    text = (folder / "pyproject.toml").read_text(encoding="utf-8").replace('"hooks" = ', '"no_hooks" = ')
    commit(folder, "pyproject.toml", text)


def half_done(folder: Path) -> None:
    closed(folder)
    commit(folder, "a.txt", "x")
    git(folder, "tag", "v9.8.7")
    git(folder, "reset", "--quiet", "--hard", "HEAD~1")


def locked(folder: Path) -> None:
    """Another git holds the index at the very end, when the branch is to go on."""
    hook = folder / ".git/hooks/post-commit"
    hook.write_text(f"#!/bin/sh\n: >'{folder}/.git/index.lock'\n")
    hook.chmod(0o755)


REFUSED: list[tuple[Callable[[Path], None], str, str]] = [
    (dirty, __version__, "there are changes that are not committed"),
    (tagged_elsewhere, "9.8.7", "there is a tag v9.8.7, and it is not checked out; hint: to build it anew"),
    (half_done, "9.8.7", "hint: git merge --ff-only v9.8.7"),
    (tagged_later, "9.9.0", "9.9.0 is not newer than 9.10.0"),
    (detached, __version__, "no branch is checked out"),
    (closed, "9.8.7", "changes.d has no fragment: nothing changed"),
    (lambda _: None, "9.8.7", f"CHANGELOG.md has an open section for {__version__}"),
    (lambda _: None, "0.0.9", "0.0.9 is not newer than"),
    (without_a_name, __version__, "the repository is still named OWNER"),
    (untagged, __version__, f"CHANGELOG.md has {__version__} already; hint: if nobody has it yet"),
    (lambda _: None, "1.0", "'1.0' is no version"),
    (broken, __version__, "python -m build --no-isolation … ended with 1"),
    (locked, __version__, "git merge --quiet --ff-only … ended with"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("prepare", "version", "said"), REFUSED)
def test_what_cannot_be_released_is_refused_and_changes_nothing(
    tools: Path, clone: Path, prepare: Callable[[Path], None], version: str, said: str
) -> None:
    prepare(clone)
    before = standing(clone)
    ended = make(tools, clone, version)
    (clone / ".git/index.lock").unlink(missing_ok=True)
    assert ended.returncode == 1
    assert said in ended.stderr, ended.stderr
    assert "hint: " in ended.stderr
    assert standing(clone) == before


@pytest.mark.slow
def test_a_release_that_is_killed_is_made_by_the_next_call(tools: Path, clone: Path) -> None:
    """The hook ends the whole release in its midst, once: its commit is made, and nothing else."""
    hook = clone / ".git/hooks/post-commit"
    hook.write_text('#!/bin/sh\nrm "$0"\nkill -9 "$(ps -o ppid= -p "$PPID")"\n')
    hook.chmod(0o755)
    before = standing(clone)
    assert make(tools, clone, __version__).returncode == -9
    after = standing(clone)
    assert [after[number] for number in (0, 1, 2, 4)] == [before[number] for number in (0, 1, 2, 4)]
    assert not (clone / "dist").exists()
    ended = make(tools, clone, __version__)
    assert ended.returncode == 0, ended.stderr
    assert git(clone, "rev-parse", f"v{__version__}^{{commit}}") == git(clone, "rev-parse", "main")
    assert sections(clone)[0].startswith(f"{__version__} (2")


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("# Changes\n\n## 0.1.0 (unreleased)\n\n- A.\n", "0.1.0", "# Changes\n\n## 0.1.0 (DAY)\n\n- A.\n- B.\n"),
        (
            "# Changes\n\n## 0.1.0 (d)\n\n- A.\n",
            "0.2.0",
            "# Changes\n\n## 0.2.0 (DAY)\n\n- B.\n\n## 0.1.0 (d)\n\n- A.\n",
        ),
        ("# Changes\n", "0.1.0", "# Changes\n\n## 0.1.0 (DAY)\n\n- B.\n"),
        (
            "# C\n\n## 2 (unreleased)\n\n- A.\n\n## 1\n\n- Z.\n",
            "2",
            "# C\n\n## 2 (DAY)\n\n- A.\n- B.\n\n## 1\n\n- Z.\n",
        ),
    ],
)
def test_fragments_become_the_versions_section(tmp_path: Path, text: str, version: str, expected: str) -> None:
    (tmp_path / "changes.d").mkdir()
    (tmp_path / "changes.d/README.md").write_text("how to\n")
    (tmp_path / "changes.d/b.md").write_text("- B.\n\n")
    (tmp_path / "CHANGELOG.md").write_text(text)
    section = release.write_changelog(tmp_path, version, "DAY")
    assert (tmp_path / "CHANGELOG.md").read_text() == expected
    assert section in expected
    assert [path.name for path in (tmp_path / "changes.d").iterdir()] == ["README.md"]
