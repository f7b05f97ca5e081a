"""A lacking test runner is known by what shells, interpreters and build tools say; a failing test is none."""

from __future__ import annotations

from loomctl.flow.commands import missing_runners
from tests.helpers.tables import each

LACKING: list[tuple[str, str]] = [
    ("node --test test/add.js", "Error: Cannot find module '/p/test/add.js'"),
    ("node ./run.js", "Error: Cannot find module '/p/run.js'"),
    ("./run.sh", "./run.sh: line 3: node: No such file or directory"),
    ("python -mpytest", "/usr/bin/python: No module named pytest"),
    ("python3 -m pytest -q", "/usr/bin/python3.12: No module named pytest"),
    ("python3 -m green", "/usr/bin/python3: No module named green"),
    ("python -m tests", "python: No module named tests.__main__; 'tests' is a package and cannot be directly executed"),
    (
        "python -m x.y",
        "python: Error while finding module specification for 'x.y' (ModuleNotFoundError: No module named 'x')",
    ),
    ("python tests/run.py", "ModuleNotFoundError: No module named 'pytest'"),
    ("make test", "/usr/bin/python3: No module named pytest"),
    ("node node_modules/.bin/jest", "Error: Cannot find module '/p/node_modules/.bin/jest'"),
    ("node --test", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'vitest' imported from /p/a.test.mjs"),
    ("mocha -r ts-node/register", "Error: Cannot find module 'ts-node/register'"),
    ("ruby -Itest all.rb", "all.rb:1:in `require': cannot load such file -- minitest (LoadError)"),
    ("php vendor/bin/phpunit", "Could not open input file: vendor/bin/phpunit"),
    ("java org.junit.runner.JUnitCore", "Error: Could not find or load main class org.junit.runner.JUnitCore"),
    ("pytest -q || exit 1", "sh: 1: pytest: not found"),
    ("pytest -q || exit 1", "bash: line 1: pytest: command not found"),
    ("pytest -q || exit 1", "zsh:1: command not found: pytest"),
    ("CI=1 ./check.sh && echo ok || exit 1", "sh: 1: ./check.sh: Permission denied"),
    ("./check.sh; exit 1", "bash: ./check.sh: No such file or directory"),
    ("env CI=1 pytest || exit 1", "env: \u2018pytest\u2019: No such file or directory"),
    ("make test", "make: pytest: No such file or directory"),
    ("make test", "make: *** [Makefile:2: test] Error 127"),
    ("make -C sub test", "make[1]: *** [Makefile:2: test] Error 126"),
    ("make check", "make: *** No rule to make target 'check'.  Stop."),
    ("make check", "make: *** No rule to make target `check'.  Stop."),
    ("bmake check", "bmake: don't know how to make check. Stop"),
    ("make", "make: *** No targets specified and no makefile found.  Stop."),
    ("uv run pytest", "error: Failed to spawn: `pytest`"),
    ("poetry run pytest", "Command not found: pytest"),
    ("pipenv run pytest", "Error: the command pytest could not be found within PATH or Pipfile's [scripts]."),
    ("bundle exec rspec", "bundler: command not found: rspec"),
    ("npm test", 'npm error Missing script: "test"'),
    ("npm run unit", "npm ERR! missing script: unit"),
    ("npm test", "npm error code 127"),
    ("npm test", "npm error enoent Could not read package.json: Error: ENOENT: no such file or directory"),
    ("npx vitest", "npm error could not determine executable to run"),
    ("pnpm test", " ERR_PNPM_NO_SCRIPT  Missing script: test"),
    ("pnpm test", " ELIFECYCLE  Command failed with exit code 127."),
    ("yarn test", 'error Command "test" not found.'),
    ("yarn test", "error Command failed with exit code 127."),
    ("yarn test", 'Usage Error: Couldn\'t find a script named "test".'),
    ("bun run test", 'error: Script not found "test"'),
    ("node run.js", "Error: spawn jest ENOENT"),
    ("composer test", '  Command "test" is not defined.'),
    ("docker exec box pytest", 'OCI runtime exec failed: exec: "pytest": executable file not found in $PATH: unknown'),
    ("just test", "error: Justfile does not contain recipe `test`"),
    ("just test", "error: No justfile found"),
    ("rake test", "Don't know how to build task 'test' (See the list of available tasks with `rake --tasks`)"),
    ("./gradlew test", "Task 'test' not found in root project 'shop'."),
    ("mix unit", '** (Mix) The task "unit" could not be found'),
    ("cargo nextest run", "error: no such command: `nextest`"),
    ("mvn -q test", "[ERROR] The goal requires a project to execute but there is no POM in this directory (/p)."),
    ("dotnet test", "Could not execute because the specified command or file was not found."),
    ("pytest tests/unit", "ERROR: file or directory not found: tests/unit"),
]


@each(("command", "said"), LACKING)
def test_a_runner_that_is_lacking_is_known(command: str, said: str) -> None:
    assert missing_runners.missing(command, f"first\n{said}\nlast\n") == said.strip()


FAILING: list[tuple[str, str]] = [
    ("pytest", "ModuleNotFoundError: No module named 'dates'"),
    ("pytest dates", "E   ModuleNotFoundError: No module named 'dates'"),
    ("pytest", "/usr/bin/python3: No module named dates"),
    ("pytest", "E   ModuleNotFoundError: No module named 'pytest'"),
    ("node --test dates", "Error: Cannot find module './dates'"),
    ("jest dates", "    Cannot find module './dates' from 'dates.test.js'"),
    ("node --test", "Error: Cannot find module '/p/dates.js'"),
    ("pytest", "sh: 1: dates: not found"),
    ("make test", "make: *** [Makefile:2: test] Error 1"),
    ("make test", "make: *** No rule to make target 'dates.o', needed by 'all'.  Stop."),
    ("make build", "rm: build: No such file or directory"),
    ("pytest", "FileNotFoundError: [Errno 2] No such file or directory: 'dates.txt'"),
    ("pytest", "E   AssertionError: assert 'exit code 127' == 'exit code 0'"),
    ("npm test", "npm error Lifecycle script `test` failed with error:"),
    ("npm test", "npm error code 1"),
    ("npm test", "Error: spawn dates ENOENT"),
    ("cargo test", "error[E0432]: unresolved import `dates`"),
    ("go test ./...", "dates_test.go:3:8: package shop/dates is not in std"),
    ("go test ./...", "./dates_test.go:9:7: undefined: Parse"),
    ("bundle exec rspec", "cannot load such file -- dates (LoadError)"),
    ("node --test test/add.js", "Error: Cannot find module '/p/src/add.js'"),
    ("pytest -q", "cat: node: No such file or directory"),
    ("", ""),
]


@each(("command", "said"), FAILING)
def test_a_test_that_fails_is_not_a_runner_that_is_lacking(command: str, said: str) -> None:
    assert missing_runners.missing(command, said) == ""


def test_long_and_odd_lines_say_nothing() -> None:
    units = (": ", "a: ", "'", "`:", " make: ***", "spawn ", "not found: ")
    said = "\n".join(unit * (size // len(unit)) for unit in units for size in (480, 4000))
    assert missing_runners.missing("make " + "-m" * 1000, said) == ""
