"""The command that runs a project's tests: what its settings say, else what its files show."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit import files
from loomctl.kit.errors import LoomError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from loomctl.runs.project import Workspace

SETTINGS = ".loom/config.yaml"
_LARGEST = 1 << 20
_PLACEHOLDER = "no test specified"  # what `npm init` writes
_RECIPE = re.compile(r"^@?test(?:[ \t][^:=\n]*)?:(?!=)", re.MULTILINE)
_TARGET = re.compile(r"^test[ \t]*:(?!=)", re.MULTILINE)

_FOLDERS, _MOST_FILES = ("tests", "test"), 50
_TEST_FILE = re.compile(r"(?:test_.*|.*_test)\.py")
_PYTEST_SHAPE = re.compile(r"^(?:async )?def test_|^(?:import|from) pytest\b", re.MULTILINE)
_UNITTEST_SHAPE = re.compile(r"^class \w+\(.*TestCase\b", re.MULTILINE)


class Suite(NamedTuple):
    """command: empty where none is known. source: the file that says so, from the project's root."""

    command: str
    source: str = ""


def of(space: Workspace) -> Suite:
    """Give the project's test command: that of its settings, else the one found."""
    said = space.settings.test_command
    return Suite(said.strip(), SETTINGS) if said is not None else found_in(space.project.root)


def lacking(space: Workspace, plan: Mapping[str, Any]) -> list[str]:
    """Say that a plan wants the tests to be run and nobody knows how; nothing where the project says it has none."""
    if plan.get("test_command") != "" or space.settings.test_command is not None:
        return []
    hint = "loomctl init --tests 'pytest -q'"
    return [f"Loom knows no test command, so it runs no tests in this run. Set one for later runs: {hint}"]


def found_in(root: str) -> Suite:
    """Find the test command by the files at a project's root; nothing outside of it is read."""
    try:
        names = frozenset(os.listdir(root))
    except OSError:
        return Suite("")

    def text_of(name: str) -> str:
        path = os.path.join(root, name)
        try:
            is_here = files.is_inside(path, root)
            return files.text_of(files.read_bytes(path, limit=_LARGEST), "replace") if is_here else ""
        except (OSError, LoomError):
            return ""

    return find([*names, *_test_files(root, names)], text_of)


def _test_files(root: str, names: Collection[str]) -> list[str]:
    """Name the first Python files in the folders of tests, as `tests/test_a.py`."""
    found: list[str] = []
    for folder in _FOLDERS:
        path = os.path.join(root, folder)
        try:
            inside = sorted(os.listdir(path)) if folder in names and files.is_inside(path, root) else []
        except OSError:
            continue
        found += [f"{folder}/{name}" for name in inside if _TEST_FILE.fullmatch(name)]
    return found[:_MOST_FILES]


def find(names: Collection[str], text_of: Callable[[str], str]) -> Suite:
    """Find the test command by the names at a project's root and what stands in its files. Pure.

    names: also those of test files, as `tests/test_a.py`.
    """
    for sources, command in _TABLE:
        for source in sources:
            told = command(names, text_of(source)) if source in names else ""
            if told:
                return Suite(told, source)
    return _of_test_files(names, text_of)


def _of_test_files(names: Collection[str], text_of: Callable[[str], str]) -> Suite:
    """Find the runner of Python tests that nothing else in the project names, by how they are written."""
    listed = [name for name in names if name.startswith(tuple(f"{folder}/" for folder in _FOLDERS))]
    texts = {name: text_of(name) for name in listed}
    runners = {"uv.lock": "uv run ", "poetry.lock": "poetry run "}
    runner = next((said for lock, said in runners.items() if lock in names), "")
    for name, text in texts.items():
        if _PYTEST_SHAPE.search(text):
            return Suite(f"{runner}pytest -q" if runner else "python3 -m pytest -q", name)
    for name, text in texts.items():
        if _UNITTEST_SHAPE.search(text):
            python = f"{runner}python" if runner else "python3"
            return Suite(f"{python} -m unittest discover -s {name.partition('/')[0]}", name)
    return Suite("")


def _pytest(names: Collection[str], text: str) -> str:
    if "pytest" not in text and not {"pytest.ini", "conftest.py"} & set(names):
        return ""
    if "uv.lock" in names:
        return "uv run pytest -q"
    return "poetry run pytest -q" if "poetry.lock" in names else "pytest -q"


def _package_json(names: Collection[str], text: str) -> str:
    script = _script(text)
    if not script or _PLACEHOLDER in script:
        return ""
    locks = {"pnpm-lock.yaml": "pnpm test", "yarn.lock": "yarn test", "bun.lock": "bun run test"}
    return next((command for lock, command in locks.items() if lock in names), "npm test")


def _composer(names: Collection[str], text: str) -> str:
    if _script(text):
        return "composer test"
    return "vendor/bin/phpunit" if {"phpunit.xml", "phpunit.xml.dist"} & set(names) else ""


def _script(text: str) -> str:
    """Give what the script `test` of a package.json or composer.json says; empty where there is none."""
    try:
        scripts = json.loads(text)["scripts"]
        return str(scripts.get("test") or "")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return ""


def _make(names: Collection[str], text: str) -> str:  # noqa: ARG001 - the shape of the table's
    return "make test" if _TARGET.search(text) else ""


def _just(names: Collection[str], text: str) -> str:  # noqa: ARG001 - likewise
    return "just test" if _RECIPE.search(text) else ""


def _gemfile(names: Collection[str], text: str) -> str:  # noqa: ARG001 - likewise
    if "spec" in names:
        return "bundle exec rspec"
    return "bundle exec rake test" if {"test", "Rakefile"} <= set(names) else ""


def _always(command: str, wrapper: str = "", wrapped: str = "") -> Callable[[Collection[str], str], str]:
    return lambda names, _: wrapped if wrapper and wrapper in names else command


_TABLE: Sequence[tuple[tuple[str, ...], Callable[[Collection[str], str], str]]] = (
    (("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py"), _pytest),
    (("requirements-dev.txt", "requirements.txt", "Pipfile", "setup.py"), _pytest),
    (("package.json",), _package_json),
    (("Cargo.toml",), _always("cargo test")),
    (("go.mod",), _always("go test ./...")),
    (("GNUmakefile", "makefile", "Makefile"), _make),
    (("justfile", "Justfile"), _just),
    (("pom.xml",), _always("mvn -q test", "mvnw", "./mvnw -q test")),
    (("build.gradle", "build.gradle.kts"), _always("gradle test", "gradlew", "./gradlew test")),
    (("composer.json",), _composer),
    (("mix.exs",), _always("mix test")),
    (("Package.swift",), _always("swift test")),
    (("build.sbt",), _always("sbt test")),
    (("Gemfile",), _gemfile),
)
"""For each kind of project, in this order: the files that tell it, and what they say of its tests."""
