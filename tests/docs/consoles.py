"""Plays the commands that a page shows, in real processes at real terminals, and compares what they print.

A page is plain Markdown. What counts in it:

- A block ```console holds commands (lines that begin with `$ `) and, below each, all that it prints. A heredoc and
  what ends in a backslash go on with the next lines. Words behind `console` name the terminal; without any it is the
  first one. Each terminal has a shell and a session of its own; one whose name has the word `desktop` is on another
  machine. A new one takes the place of the one before it on its machine, which is closed. `# exit code 3` behind a
  command says how it ends; else it ends with 0.
- A block ```yaml title="FOLDER/FILE" (or any other language) is a file that the text tells its reader to write.

Nothing is set up that a reader does not see, but the folder `server` beside the homes: what lies below
`https://git.example.org/` is there, each repository that the page names with one commit in it.

A handle's last four letters differ, too: a page has `-k3f9` for the first run of a play, then those of `_MARKS`.

In what is shown `…` stands for anything within a line, and alone on a line for any number of lines. Times (`7 min ago`
is `just now`), ids in hexadecimal and the home folder (`~`) differ from run to run; numbers of bytes and characters may
differ by a quarter.
"""

import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from loomctl.kit import ids
from tests.helpers.scenes import CHECKOUT, MAIN

ANY = "…"
FIRST = "first"
PATIENCE = 60  # seconds for one command
_FENCE = re.compile(r"^(?P<mark>`{3,})(?P<info>[^`]*)$")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(?P<word>[A-Za-z_]+)['\"]?")
_EXIT = re.compile(r"\s+# exit code (?P<code>\d+)$")
_MARKS = ("k3f9", "p7wd", "2xm8", "q4tz")
_REPOSITORY = re.compile(r"https://git\.example\.org/(\w+\.git)")
_TITLE = re.compile(r'title="(?P<path>[^"]+)"')
_TIME = re.compile(r"(?!2000-01-01)\d{4}-\d\d-\d\dT\d\d([:-])\d\d\1\d\dZ")
_AGE = re.compile(r"just now|\b\d+ min ago")
_HEXADECIMAL = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7,64}\b")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?k?(?= (?:bytes|characters|of \d|tokens))|(?<= of )\d[\d,]*$")


class Command(NamedTuple):
    line: int
    terminal: str
    text: str
    code: int
    output: list[str]


class File(NamedTuple):
    line: int
    path: str
    text: str


def parse(text: str) -> Iterator[Command | File]:
    """Give a page's commands and files in their order."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is not None:
            end = lines.index(fence["mark"], at + 1)
            language, _, rest = fence["info"].strip().partition(" ")
            title = _TITLE.search(rest)
            if language == "console":
                yield from _commands(lines, at + 1, end, rest.strip() or FIRST)
            elif title is not None:
                yield File(at + 1, title["path"], "\n".join([*lines[at + 1 : end], ""]))
            at = end
        at += 1


def _commands(lines: list[str], at: int, end: int, terminal: str) -> Iterator[Command]:
    while at < end:
        assert lines[at].startswith("$ "), f"line {at + 1}: {lines[at]!r} is shown before any command"
        begun, words = at, [lines[at][2:]]
        heredoc = _HEREDOC.search(words[0])
        while words[-1].endswith("\\") or (heredoc is not None and words[-1] != heredoc["word"]):
            at += 1
            assert at < end, f"line {begun + 1}: the command does not end in its block"
            words.append(lines[at])
        at += 1
        shown = at
        while at < end and not lines[at].startswith("$ "):
            at += 1
        ending = _EXIT.search(words[0])
        words[0] = _EXIT.sub("", words[0])
        yield Command(begun + 1, terminal, "\n".join(words), int(ending["code"]) if ending else 0, lines[shown:at])


class Terminal:
    # The shell reads commands from another descriptor, so that what it runs has the terminal to itself.
    _LOOP = """
while IFS= read -r -d '' -u 3 command; do
    eval "$command" 3<&-
    printf '\\036%d\\036' "$?"
done
"""

    def __init__(self, cwd: Path, environ: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        modes = termios.tcgetattr(theirs)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        reading, self._commands = os.pipe()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", f"exec 3<&{reading}; {self._LOOP}"],
            cwd=cwd,
            env=environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            pass_fds=(reading,),
            start_new_session=True,
        )
        os.close(reading)
        os.close(theirs)

    def run(self, command: str) -> tuple[int, str]:
        os.write(self._commands, command.encode() + b"\0")
        seen = b""
        until = time.monotonic() + PATIENCE
        while not seen.endswith(b"\036") or seen.count(b"\036") < 2:
            assert select.select([self._ours], [], [], max(0.0, until - time.monotonic()))[0], (
                f"no end of {command!r} in {PATIENCE} s: {seen.decode(errors='replace')}"
            )
            seen += os.read(self._ours, 65536)
        printed, code, _ = seen.decode().rsplit("\036", 2)
        return int(code), printed.replace("\r\n", "\n")

    def close(self) -> None:
        os.close(self._commands)
        os.close(self._ours)
        self._shell.wait(timeout=PATIENCE)


class Stage:
    """Two machines' home folders, and the terminals that a page opens in them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._terminals: dict[str, Terminal] = {}
        self._marks: dict[str, str] = {}
        folder = base / "bin"
        folder.mkdir(parents=True)
        launcher = folder / "loomctl"
        launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I {shlex.quote(str(MAIN))} "$@"\n')
        launcher.chmod(0o755)
        python = folder / "python"  # in which the package is installed
        checkout = shlex.quote(str(CHECKOUT))
        python.write_text(f'#!/bin/sh\nPYTHONPATH={checkout} exec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        for machine in ("laptop", "desktop"):
            self.home(machine).mkdir()
            config = "[user]\n\tname = You\n\temail = you@example.org\n[init]\n\tdefaultBranch = main\n"
            config += f'[url "{base}/server/"]\n\tinsteadOf = https://git.example.org/\n[pull]\n\trebase = false\n'
            (self.home(machine) / ".gitconfig").write_text(config)

    def home(self, machine: str) -> Path:
        return self.base / machine

    def machine(self, terminal: str) -> str:
        return "desktop" if "desktop" in terminal else "laptop"

    def play(self, step: Command | File) -> tuple[int, str]:
        """Run a command or write a file; gives the exit code and what was printed, with `~` for home."""
        if isinstance(step, File):
            path = self._folder() / step.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
            return 0, ""
        if step.terminal not in self._terminals:
            machine = self.machine(step.terminal)
            environ = {
                "PATH": f"{self.base / 'bin'}:{os.environ.get('PATH', '')}", "HOME": str(self.home(machine)),
                "LOOM_HOSTNAME": machine, "LANG": "C.UTF-8", "TERM": "dumb", "COLUMNS": "120", "GIT_PAGER": "cat",
            }  # fmt: skip
            here = self._folder() if machine == "laptop" else self.home(machine)
            for name in [one for one in self._terminals if self.machine(one) == machine]:
                self._terminals.pop(name).close()
            self._terminals[step.terminal] = Terminal(here, environ)
        code, printed = self._terminals[step.terminal].run(step.text)
        for machine in ("laptop", "desktop"):
            home = self.home(machine)
            for name in (os.path.realpath(home), str(home)):
                printed = printed.replace(name, "~")
        for run in sorted(self._runs()):
            self._marks.setdefault(ids.mark(run), _MARKS[len(self._marks) % len(_MARKS)])
        for mark, shown in self._marks.items():
            printed = printed.replace(f"-{mark}", f"-{shown}")
        return code, printed

    def _runs(self) -> Iterator[str]:
        yield from (run.name for run in self.base.glob("*/*/.loom/runs/*"))
        for state in self.base.glob("*/*/.fractary/faber/runs/*/state-*.json"):
            yield f"{state.parent.name}-run-{state.stem.removeprefix('state-')}"

    def _folder(self) -> Path:
        """Give the folder in which the first terminal stands now."""
        if FIRST not in self._terminals:
            return self.home("laptop")
        return Path(self._terminals[FIRST].run("pwd")[1].strip())

    def close(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()


def _serve(repository: Path) -> None:
    """Make a bare repository with one commit, which is empty."""
    repository.mkdir(parents=True)
    git = ["git", "--git-dir", str(repository), "-c", "user.name=You", "-c", "user.email=you@example.org"]

    def told(*words: str) -> str:
        return subprocess.run([*git, *words], input="", capture_output=True, text=True, check=True).stdout.strip()

    told("init", "--quiet", "--bare", "--initial-branch", "main")
    told("update-ref", "refs/heads/main", told("commit-tree", "-m", "Begin", told("mktree")))


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")] if text.strip() else []


def misfit(shown: list[str], printed: str) -> str:
    """Say in what way an output is not what is shown; empty where it is."""
    got = plain(printed)
    pieces: list[list[str]] = [[]]
    for line in plain("\n".join(shown)):
        if line.strip() == ANY:
            pieces.append([])
        else:
            pieces[-1].append(line)
    at = 0
    for number, piece in enumerate(pieces):
        first = at if number == 0 else next((start for start in range(at, len(got)) if _fits(piece, got, start)), at)
        first = len(got) - len(piece) if number == len(pieces) - 1 and number > 0 else first
        if first < at or not _fits(piece, got, first):
            return "shown:\n" + "\n".join(shown) + "\n\nprinted:\n" + "\n".join(got)
        at = first + len(piece)
    return "" if at == len(got) else f"printed besides: {got[at:]}"


def _fits(piece: list[str], got: list[str], at: int) -> bool:
    return len(piece) <= len(got) - at and all(_is(line, got[at + n]) for n, line in enumerate(piece))


def _is(shown: str, printed: str) -> bool:
    numbers: list[float] = []
    parts = []
    at = 0
    shown = _general(shown)
    for match in _NUMBER.finditer(shown):
        parts += [re.escape(shown[at : match.start()]), r"(\d[\d,]*(?:\.\d+)?k?)"]
        numbers.append(_value(match[0]))
        at = match.end()
    pattern = ("".join(parts) + re.escape(shown[at:])).replace(re.escape(ANY), ".*?")
    found = re.fullmatch(pattern, _general(printed))
    if found is None:
        return False
    close = [
        abs(_value(got) - number) <= max(number / 4, 50) for number, got in zip(numbers, found.groups(), strict=True)
    ]
    return all(close)


def _general(text: str) -> str:
    return _AGE.sub("just now", _HEXADECIMAL.sub("0000000", _TIME.sub(lambda match: f"T{match[1]}", text)))


def steady(text: str) -> str:
    """Give an output as a page shows it: with one time throughout, so that writing it anew changes nothing."""
    return _AGE.sub("just now", _TIME.sub(lambda match: f"2026-01-15T09{match[1]}30{match[1]}00Z", text))


def _value(number: str) -> float:
    return float(number.replace(",", "").removesuffix("k")) * (1000 if number.endswith("k") else 1)


def played(page: Path, base: Path) -> tuple[str, list[str]]:
    """Play a page from beginning to end; gives the page as it should be, and what did not fit, a text each."""
    text = page.read_text(encoding="utf-8")
    lines = text.split("\n")
    faults: list[str] = []
    stage = Stage(base)
    for repository in sorted(set(_REPOSITORY.findall(text))):
        _serve(base / "server" / repository)
    moved = 0
    try:
        for step in parse(text):
            code, printed = stage.play(step)
            if isinstance(step, File):
                continue
            where = f"{page.name}:{step.line}: $ {step.text}"
            if code != step.code:
                faults.append(f"{where}\nended with {code}, not {step.code}:\n{printed}")
                break
            problem = misfit(step.output, printed)
            if problem:
                faults.append(f"{where}\n{problem}")
                begin = step.line + step.text.count("\n") + moved
                new = plain(steady(printed))
                lines[begin : begin + len(step.output)] = new
                moved += len(new) - len(step.output)
    finally:
        stage.close()
    return "\n".join(lines), faults
