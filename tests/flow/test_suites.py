"""A project's test command is the one its settings say, else the one its files show."""

from __future__ import annotations

import json

from loomctl.flow import suites
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

NPM = json.dumps({"scripts": {"test": "vitest"}})
A_FUNCTION = "import a\n\n\ndef test_a():\n    assert a.b() == 1\n"
A_CASE = "import unittest\n\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        pass\n"
NONE = json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})

FOUND: list[tuple[dict[str, str], str]] = [
    ({}, ""),
    ({"README.md": "pytest"}, ""),
    ({"pyproject.toml": "[tool.pytest.ini_options]"}, "pytest -q"),
    ({"pyproject.toml": 'dev = ["pytest>=8"]', "uv.lock": ""}, "uv run pytest -q"),
    ({"pyproject.toml": "pytest", "poetry.lock": ""}, "poetry run pytest -q"),
    ({"pyproject.toml": "[project]"}, ""),
    ({"pyproject.toml": "[project]", "conftest.py": ""}, "pytest -q"),
    ({"pytest.ini": ""}, "pytest -q"),
    ({"tox.ini": "[pytest]"}, "pytest -q"),
    ({"package.json": NPM}, "npm test"),
    ({"package.json": NPM, "pnpm-lock.yaml": ""}, "pnpm test"),
    ({"package.json": NPM, "yarn.lock": ""}, "yarn test"),
    ({"package.json": NPM, "bun.lock": ""}, "bun run test"),
    ({"package.json": NONE}, ""),
    *[({"package.json": text}, "") for text in ("", "[]", "{", '{"scripts": []}', '{"scripts": {"test": null}}')],
    ({"package.json": NONE, "Makefile": "test: all\n\tx\n"}, "make test"),
    ({"Makefile": "build:\n\ttest: x\n"}, ""),
    ({"Makefile": "test := x\n"}, ""),
    ({"requirements.txt": "flask\npytest==8\n"}, "pytest -q"),
    ({"requirements.txt": "flask\n"}, ""),
    ({"Pipfile": 'pytest = "*"'}, "pytest -q"),
    ({"justfile": "default:\n  just --list\n@test *args: build\n  x\n"}, "just test"),
    ({"justfile": "test := 'x'\nbuild:\n  test: x\n"}, ""),
    ({"Package.swift": ""}, "swift test"),
    ({"build.sbt": ""}, "sbt test"),
    ({"Cargo.toml": "[package]"}, "cargo test"),
    ({"go.mod": "module x"}, "go test ./..."),
    ({"pom.xml": ""}, "mvn -q test"),
    ({"pom.xml": "", "mvnw": ""}, "./mvnw -q test"),
    ({"build.gradle.kts": "", "gradlew": ""}, "./gradlew test"),
    ({"composer.json": NPM}, "composer test"),
    ({"composer.json": "{}", "phpunit.xml.dist": ""}, "vendor/bin/phpunit"),
    ({"mix.exs": ""}, "mix test"),
    ({"Gemfile": "", "spec": ""}, "bundle exec rspec"),
    ({"Gemfile": "", "test": "", "Rakefile": ""}, "bundle exec rake test"),
    ({"Gemfile": ""}, ""),
    ({"pyproject.toml": "[project]", "tests/test_a.py": A_FUNCTION}, "python3 -m pytest -q"),
    ({"pyproject.toml": "[project]", "uv.lock": "", "tests/test_a.py": A_FUNCTION}, "uv run pytest -q"),
    ({"tests/test_a.py": A_CASE}, "python3 -m unittest discover -s tests"),
    ({"poetry.lock": "", "test/test_a.py": A_CASE}, "poetry run python -m unittest discover -s test"),
    ({"tests/a_test.py": A_CASE, "tests/b_test.py": "import pytest\n"}, "python3 -m pytest -q"),
    ({"tests/test_a.py": "VALUE = 1\n"}, ""),
    ({"Makefile": "test:\n\tx\n", "tests/test_a.py": A_FUNCTION}, "make test"),
]


@each(("project", "command"), FOUND)
def test_the_test_command_is_found_by_a_projects_files(project: dict[str, str], command: str) -> None:
    assert suites.find(project, project.__getitem__).command == command


def test_nothing_outside_of_the_project_is_read(scene: Scene) -> None:  # D10
    outside = scene.root.parent / "outside.toml"
    outside.write_text("pytest", encoding="utf-8")
    (scene.root / "pyproject.toml").symlink_to(outside)
    assert suites.found_in(str(scene.root)) == suites.Suite("")


def test_test_files_tell_the_runner_that_no_other_file_names(scene: Scene) -> None:
    """Each in its folder; a folder that leads out of the project is not read."""
    outside = scene.root.parent / "outside"
    outside.mkdir()
    (outside / "test_a.py").write_text(A_FUNCTION, encoding="utf-8")
    (scene.root / "test").symlink_to(outside)
    scene.write("tests/helper.py", A_FUNCTION)
    assert suites.found_in(str(scene.root)) == suites.Suite("")
    scene.write("tests/test_a.py", A_FUNCTION)
    assert suites.found_in(str(scene.root)) == suites.Suite("python3 -m pytest -q", "tests/test_a.py")


def test_the_settings_come_first(scene: Scene) -> None:
    scene.write("Cargo.toml", "")
    assert suites.of(scene.space()) == suites.Suite("cargo test", "Cargo.toml")
    scene.write(".loom/config.yaml", "test_command: make check\n")
    assert suites.of(scene.space()) == suites.Suite("make check", ".loom/config.yaml")
    scene.write(".loom/config.yaml", "test_command: ''\n")
    assert suites.of(scene.space()).command == ""
