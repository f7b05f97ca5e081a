"""The locks: complete, hashed, for every Python and platform, and true to their own names."""

import hashlib
import re
import sys
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.tables import each
from tests.launcher.world import CHECKOUT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-docs.lock")
RELEASE = "requirements-release.lock"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PLATFORMS = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")]


class Pin(NamedTuple):
    """requirement: the pinned package with its marker; hashes: how many files it may be."""

    requirement: Requirement
    hashes: int


def pins(lock: str) -> list[Pin]:
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9][^\s=]*==.*?)((?: \\\n +--hash=sha256:[0-9a-f]{64})*)$", text, re.MULTILINE)
    return [Pin(Requirement(pin), hashes.count("--hash")) for pin, hashes in found]


def chosen(lock: str, python: str, platform: tuple[str, str]) -> dict[str, str]:
    """Give the versions that a lock chooses on a Python and platform."""
    system, machine = platform
    marks = {
        "python_version": python, "python_full_version": f"{python}.5", "sys_platform": system,
        "platform_machine": machine, "os_name": "nt" if system == "win32" else "posix",
        "platform_python_implementation": "CPython",
    }  # fmt: skip
    wanted = [pin.requirement for pin in pins(lock)]
    there = [one for one in wanted if one.marker is None or one.marker.evaluate(marks)]
    versions: dict[str, str] = {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in there}
    assert len(versions) == len(there), "a package is pinned twice"
    return versions


def project() -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    return read


@each("lock", (*LOCKS, RELEASE))
@pytest.mark.shows("with hashes for every package")
def test_a_lock_names_what_is_below_it_no_address_and_wheels_with_hashes(lock: str) -> None:
    """The launcher tells environments apart by that line alone, so it must change with any other."""
    first, _, rest = (CHECKOUT / lock).read_text(encoding="utf-8").partition("\n")
    assert first == f"# lock-id: {hashlib.sha256(rest.encode()).hexdigest()[:16]}", "run scripts/lock"
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^ *(-i|-f|--(extra-)?index-url|--find-links|--trusted-host)\b", text, re.MULTILINE)
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    assert "\n--only-binary :all:\n" in text
    assert len(pins(lock)) == len(re.findall(r"^[a-z0-9].*==", text, re.MULTILINE))
    assert [str(pin.requirement) for pin in pins(lock) if not pin.hashes] == []


@each("platform", PLATFORMS)
@each("python", PYTHONS)
def test_the_lock_pins_what_the_package_asks_for(python: str, platform: tuple[str, str]) -> None:
    """Each dependency of pyproject.toml is pinned once, at a version that it allows, and alike in each lock."""
    runtime, *others = (chosen(lock, python, platform) for lock in LOCKS)
    for line in project()["project"]["dependencies"]:
        wanted = Requirement(line)
        assert runtime[canonicalize_name(wanted.name)] in wanted.specifier
    for other in others:
        assert {name: other[name] for name in runtime} == runtime


def test_a_release_is_built_by_what_the_tests_build_with() -> None:
    dev, release = (chosen(lock, "3.12", PLATFORMS[0]) for lock in (LOCKS[1], RELEASE))
    for name in ("build", "hatchling"):
        assert release[name] == dev[name]
