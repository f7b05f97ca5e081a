"""How shells, interpreters and build tools say that they lack the tests' own runner. Pure: texts in, a line out.

Tests that are to fail have to run: what could not be started has not failed. A test may fail for want of a program or
a module, too, so a name counts only where the command itself calls it, or where it is a well-known runner's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NOT_STARTED = (126, 127)
"""Exit codes by which a shell says that it could not start a program."""

CALLED, PROGRAM, RUNNER, ALWAYS = "called", "program", "runner", "always"


class Shape(NamedTuple):
    """A line that says what is lacking. pattern: of the whole line, the name of what is lacking its first group.

    counts: where the name is one of the command's words (CALLED), a program that it starts (PROGRAM), or always; a
    well-known runner's name counts in each. RUNNER: that alone.
    """

    counts: str
    pattern: str


_NAME = r"[\"'`\u2018]?([^\s\"'`\u2018\u2019;,)]+)[\"'`\u2019]?"
_BY = r"(?:(?:[\w./-]*/)?(?:\w*sh|env|g?make(?:\[\d+\])?|sudo|xargs|[\w.-]+\.sh): )?(?:(?:line )?\d+: )?(?:exec: )?"
_NPM = r"(?:npm|pnpm) (?:error|ERR!) "
SHAPES = (
    # Interpreters.
    Shape(CALLED, rf"\S*(?:python|pypy)[\w.-]*: (?:.*\(ModuleNotFoundError: )?No module named {_NAME}(?:; .*|\))?"),
    Shape(RUNNER, rf"ModuleNotFoundError: No module named {_NAME}"),
    Shape(CALLED, r"(?:Uncaught )?Error(?: \[\w+\])?: Cannot find (?:module|package) '([^'.][^']*)'(?: imported .*)?"),
    Shape(RUNNER, r".*cannot load such file -- (\S+)(?: \(LoadError\))?"),
    Shape(CALLED, r"Could not open input file: (\S+)"),
    Shape(CALLED, r"Error: Could not find or load main class (\S+)"),
    # Shells, and what starts programs in their stead.
    Shape(PROGRAM, rf"(?:.*: )?{_NAME}: (?:command )?not found"),
    Shape(PROGRAM, rf"(?:.*: )?[Cc]ommand not found: {_NAME}"),
    Shape(PROGRAM, rf"{_BY}{_NAME}: (?:No such file or directory|Permission denied)"),
    Shape(PROGRAM, rf"error: Failed to spawn: {_NAME}"),
    Shape(PROGRAM, r".*\bspawn(?:Sync)? (\S+) (?:ENOENT|EACCES).*"),
    Shape(PROGRAM, r'.*exec: "([^"]+)": executable file not found in .*'),
    Shape(PROGRAM, r".*the command (\S+) could not be found within PATH.*"),
    Shape(ALWAYS, r"Could not execute because the specified command or file was not found\."),
    # Runners of scripts and tasks, where the script, the task or their file is lacking.
    Shape(CALLED, rf"(?:.* )?[Mm]issing script: {_NAME}"),
    Shape(CALLED, rf".*Couldn't find a script named {_NAME}\.?"),
    Shape(CALLED, rf"error: Script not found {_NAME}"),
    Shape(CALLED, rf"error Command {_NAME} not found\."),
    Shape(CALLED, rf"\s*Command {_NAME} is not defined\."),
    Shape(CALLED, rf"g?make(?:\[\d+\])?: \*\*\* No rule to make target {_NAME}(?:, needed by .*)?\.(?:\s+Stop\.)?"),
    Shape(CALLED, rf"\S*make: don't know how to make {_NAME}\.?(?: Stop\.?)?"),
    Shape(CALLED, rf"error: Justfile does not contain recipes? {_NAME}\.?.*"),
    Shape(CALLED, rf".*Don't know how to build task {_NAME}.*"),
    Shape(CALLED, rf".*Task {_NAME} not found in (?:root )?project.*"),
    Shape(CALLED, rf"\*\* \(Mix\) The task {_NAME} could not be found.*"),
    Shape(CALLED, rf"error: no such (?:sub)?command: {_NAME}"),
    Shape(CALLED, rf"ERROR: file or directory not found: {_NAME}"),
    Shape(ALWAYS, r"g?make: \*\*\* No targets specified and no makefile found\..*"),
    Shape(ALWAYS, r"error: No justfile found.*"),
    Shape(ALWAYS, r".*there is no POM in this directory.*"),
    Shape(ALWAYS, rf"{_NPM}.*\bcould not determine executable to run.*"),
    Shape(ALWAYS, rf"{_NPM}enoent .*package\.json.*"),
    # The same exit codes, told by what stands between.
    Shape(ALWAYS, r"g?make(?:\[\d+\])?: \*\*\* \[.*\] Error 12[67]"),
    Shape(ALWAYS, rf"(?:{_NPM}|error |\s*ELIFECYCLE).*\b(?:code|status) 12[67]\.?"),
)
"""What says that a runner is lacking; the first that fits counts."""

RUNNERS = frozenset(
    {
        *("pytest", "unittest", "nose", "nose2", "tox", "nox", "coverage", "trial", "behave", "robot", "jest"),
        *("vitest", "mocha", "ava", "tap", "jasmine", "karma", "playwright", "cypress", "c8", "nyc", "ts-node", "tsx"),
        *("rspec", "minitest", "cucumber", "phpunit", "pest", "bats", "ctest", "cargo", "dotnet", "go", "gradle"),
        *("mvn", "mix", "rake", "sbt", "swift", "deno", "bun", "node", "npm", "npx", "pnpm", "yarn"),
    }
)
_LONGEST = 500  # characters of a line that says it
_BEFORE = frozenset(("env", "exec", "time", "nice", "command", "sudo"))


def missing(command: str, said: str) -> str:
    """Give the line in which somebody says that what a command calls is lacking; empty where nobody does."""
    called = _words(command)
    counted = {CALLED: called | RUNNERS, PROGRAM: _programs(command) | RUNNERS, RUNNER: RUNNERS}
    for line in map(str.rstrip, said.splitlines()):
        for shape in SHAPES if len(line) <= _LONGEST else ():
            found = re.fullmatch(shape.pattern, line)
            if found is None or (shape.counts == CALLED and not _may_be_called(found[1], command)):
                continue
            if shape.counts == ALWAYS or not counted[shape.counts].isdisjoint(_names(found[1])):
                return line.strip()
    return ""


def _may_be_called(named: str, command: str) -> bool:
    """Tell a file in a folder that no word of the command leads to: a test asked for that one."""
    words = (word.strip("'\"`").removeprefix("./") for word in command.split())
    return not named.startswith("/") or any(word and f"/{named}".endswith(f"/{word}") for word in words)


def _words(command: str) -> set[str]:
    """Give what a command's words may name: a word, a module behind `-m`, what follows `=`, a path's last part."""
    words = {word.strip("'\"`") for word in command.split()}
    words |= {word.partition("=")[2] for word in words}
    modules = set(re.findall(r"(?<!\S)-m\s*([\w.]+)", command))
    words |= modules | {module.partition(".")[0] for module in modules}
    return {name for word in words for name in _names(word)}


def _programs(command: str) -> set[str]:
    """Give the programs that a command line starts: the first words of its parts."""
    programs: set[str] = set()
    for part in re.split(r"[;&|\n()]+", command):
        words = [word.strip("'\"`") for word in part.split()]
        while words and (words[0] in _BEFORE or re.fullmatch(r"\w+=.*", words[0])):
            words.pop(0)
        programs |= set(_names(words[0])) if words else set()
    return programs


def _names(word: str) -> set[str]:
    """Give a name as it stands, without a sentence's full stop, and the last part of a path."""
    name = word.rstrip(".").removesuffix(".__main__")
    return {name, name.rpartition("/")[2]} - {""}
