"""What every adapter of a real assistant offers to the promises: a machine from nothing, prompts, answers, requests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import Self

from loomctl import __version__
from loomctl.hosts import table
from tests.e2e.assistant import searched_folders
from tests.e2e.clients.models import Asked, Says, ScriptedModel
from tests.helpers import bytecode

TIME_LIMIT = 120
"""Seconds that one prompt may take."""

GIT = "[user]\n\tname = A Tester\n\temail = tester@example.invalid\n[init]\n\tdefaultBranch = main\n"
VERSION, NEW_VERSION = __version__, "99.0.0"
EXTENSIONS = ("qwen-extension.json", "gemini-extension.json")
PROFILE = 'PATH="$HOME/.local/bin:$PATH"\n'


@dataclass(frozen=True, slots=True)
class Turn:
    """What one prompt led to. shown: all that its user was shown."""

    session_id: str
    requests: tuple[Asked, ...]
    shown: str = ""

    @property
    def conversation(self) -> list[Asked]:
        """The requests of the conversation itself."""
        return [request for request in self.requests if request.kind == "main"]


class Talk(ABC):
    """A session that stays open for several prompts."""

    @abstractmethod
    def say(self, prompt: str, *answers: Says | str) -> Turn:
        """Give a prompt and wait until its turn has ended."""

    @abstractmethod
    def compact(self) -> None:
        """Compact as the user does, and wait."""

    @abstractmethod
    def clear(self) -> None:
        """Begin a new conversation as the user does, in the same process."""


class Client(ABC):
    """A real assistant on a machine made from nothing, in a git project, with Loom installed as its users do."""

    host: ClassVar[str]
    folder: ClassVar[str]
    """The folder of the tests' cache in which its package is installed."""

    def __init__(self, bundle: Path, cache: Path, *, beside: Client | None = None) -> None:
        """Make a machine, or share another client's with its project."""
        self.begun: list[Turn] = []
        self.played: dict[str, object] = {}
        self.compiled: set[Path] = set()
        self.root: Path
        self.bundle: Path
        self.project: Path
        self.cache, self.shares = cache, beside is not None
        if beside is not None:
            self.root, self.bundle, self.project = beside.root, beside.bundle, beside.project
            self.prepare()
            return
        # Some clients shut what they run out of /tmp and its like, or let it write there, as in no user's home.
        self.root = Path(tempfile.mkdtemp(prefix=f"loom-{self.host}-", dir="/var/tmp"))
        for folder in (self.home, self.temp, self.home / ".local" / "bin"):
            folder.mkdir(parents=True)
        (self.home / ".gitconfig").write_text(GIT, encoding="utf-8")
        (self.home / ".profile").write_text(PROFILE, encoding="utf-8")
        (self.home / ".local" / "bin" / "loomctl").symlink_to(self.root / "bundle" / "bin" / "loomctl")
        self.bundle = self.root / "bundle"
        shutil.copytree(bundle, self.bundle)
        self.compiled.add(bytecode.share(cache, self.bundle))
        self.project = self.make_project("project")
        self.prepare()

    def __enter__(self) -> Self:
        self.start_model()
        self.install()
        return self

    def __exit__(self, *ended: object) -> None:
        self.stop_model()
        for link in self.compiled:
            bytecode.forget(link)
        if not self.shares:
            shutil.rmtree(self.root, ignore_errors=True)
            shutil.rmtree(self.kept, ignore_errors=True)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def temp(self) -> Path:
        return self.root / "temp"

    @classmethod
    def program(cls, *parts: str) -> Path:
        """Give a file of the installed package. Fails the test where it is not there."""
        path = Path(os.environ["LOOM_TEST_CACHE"], cls.folder, "node_modules", *parts)
        assert path.exists(), f"{path} is not there: scripts/test --all fetches it"
        return path

    def prepare(self) -> None:
        """Make what answers for the model, and what else stands before Loom is installed."""
        self.model = ScriptedModel(self.kind, self.shell_tool)

    def start_model(self) -> None:
        self.model.start()

    def stop_model(self) -> None:
        self.model.stop()

    # ---- What an adapter says.

    compacts_at = 60_000
    """What the API must say that it was given for the client to compact by itself before its next request."""

    @abstractmethod
    def kind(self, body: dict[str, Any]) -> str:
        """Tell what a request is for: main, compaction, or a side question."""

    @abstractmethod
    def shell_tool(self, command: str) -> tuple[str, dict[str, Any]]:
        """Give the name and the arguments with which its model runs a command."""

    @abstractmethod
    def install(self) -> None:
        """Install Loom as the page of hosts says."""

    @abstractmethod
    def silence_hooks(self) -> None:
        """Let the host call no hook from now on, and say nothing of it."""

    @abstractmethod
    def renew(self) -> None:
        """Install what the bundle's folder holds now, as the host's users update a plugin."""

    def update(self) -> None:
        """Give the bundle's folder another version, its launcher's, too, and update to it as the host's users do."""
        manifests = (".claude-plugin/plugin.json", ".codex-plugin/plugin.json", ".plugin/plugin.json")
        for name in ("plugin.json", *manifests, *EXTENSIONS):
            self._change(name, f'"{VERSION}"', f'"{NEW_VERSION}"')
        self._change("bin/loomctl", f"version={VERSION}", f"version={NEW_VERSION}")
        self.renew()

    def _change(self, name: str, before: str, after: str) -> None:
        """Put another file in a file's place, as git does: what runs goes on with the one that it reads."""
        place, fresh = self.bundle / name, self.bundle / f"{name}.new"
        said = place.read_text(encoding="utf-8")
        assert before in said, name
        fresh.write_text(said.replace(before, after), encoding="utf-8")
        fresh.chmod(place.stat().st_mode)
        fresh.replace(place)

    @abstractmethod
    def tell(self, prompt: str, *answers: Says | str, session: str = "") -> Turn:
        """Give one prompt without a terminal and wait until its turn has ended. session: that is resumed."""

    @abstractmethod
    def open(self, session: str = "") -> AbstractContextManager[Talk]:
        """Open a session that takes prompts until the block ends; then it is killed."""

    def begin(self, words: str, *answers: Says | str) -> Turn:
        """Let the model begin a run of its own accord. words: behind `loomctl run`."""
        return self.tell("Begin the work.", Says(shell=f"loomctl run {words}"), *answers)

    def environment(self) -> dict[str, str]:
        """Give the whole environment of a process on this machine."""
        return {
            "PATH": f"{self.home}/.local/bin:{searched_folders()}", "HOME": str(self.home), "TMPDIR": str(self.temp),
            "LANG": "C.UTF-8", "XDG_CACHE_HOME": str(self.cache),
            # Whatever would leave this machine ends at a port where nobody listens.
            "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost",
        }  # fmt: skip

    told_after = 0
    """Requests that come behind a compaction in mid-turn before the first one in which something can be told."""
    tells_failures = True
    """Whether a hook hears that a command failed."""
    shows_lines = True
    """Whether what its user is shown of a hook can be read where no terminal is."""
    grows = 0
    """Prompts after which it compacts by itself at all."""

    def drive(self, words: str, says: Sequence[Says | str]) -> Turn:
        """Begin a run by its user's word, so that Loom drives the turn; the model says one thing after the other."""
        answers: list[Says | str] = [Says(shell=f"loomctl run {words}"), *says]
        return self.tell(self.typed("run", words), *answers)

    def typed(self, verb: str, words: str) -> str:
        """Give a command of Loom's as its user types it."""
        return f"{table.HOSTS[self.host].typed.format(verb)} {words}"

    def move_to(self, project: Path) -> None:
        """Work in another folder from now on."""
        self.project = project

    # ---- What is the same for all.

    def keep(self, moment: str) -> None:
        """Keep all that stands on the machine, to come back to it; no process of the assistant's may run."""
        shutil.copytree(self.root, self.kept / moment, symlinks=True)

    def come_back(self, moment: str) -> bool:
        """Let the machine be as it was then, at the same paths; False where that was not kept."""
        if not (self.kept / moment).is_dir():
            return False
        # What was killed just now may still write, or take its own files away.
        wait_until(lambda: is_made_alike(self.root, self.kept / moment), "the machine is as it was")
        self.move_to(self.root / "project")
        return True

    @property
    def kept(self) -> Path:
        return self.root.with_name(f"{self.root.name}.kept")

    def make_project(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir()
        (folder / "README.md").write_text("# A project\n", encoding="utf-8")
        for words in (["init", "-q"], ["add", "README.md"], ["commit", "-q", "-m", "Start"]):
            self.command("git", *words, cwd=folder)
        return folder

    def command(self, *words: str | Path, cwd: Path | None = None, check: bool = True) -> str:
        """Run a program as the user would in a terminal; give what it printed. Raises if it failed, where asked."""
        done = subprocess.run(
            words, cwd=cwd or self.project, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=TIME_LIMIT, check=False,
        )  # fmt: skip
        told = done.stdout + done.stderr
        assert not check or done.returncode == 0, f"{words} gave {done.returncode}:\n{told}"
        return told

    def loomctl(self, *words: str, check: bool = True) -> str:
        """Run loomctl in a terminal of the user's, outside of any session."""
        return self.command("loomctl", *words, check=check)

    def finished(self, words: Sequence[str | Path], *, cwd: Path | None = None) -> tuple[str, str]:
        """Run the assistant to its end; give both of its outputs. Ends all that it started when the time is up."""
        with self.started(words, cwd=cwd) as process:
            printed, complaint = process.communicate(timeout=TIME_LIMIT)
        assert process.returncode == 0, f"{words} gave {process.returncode}:\n{printed}\n{complaint}"
        return printed, complaint

    @contextmanager
    def started(self, words: Sequence[str | Path], *, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
        """Start the assistant, leading a process group that is killed when the block ends."""
        process = subprocess.Popen(
            words, cwd=cwd or self.project, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()

    def living(self, program: str) -> list[int]:
        """Give this machine's processes that have a word in their command line."""
        home, found = f"HOME={self.home}\0".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if program.encode() in (process / "cmdline").read_bytes():
                    found += [int(process.name)] if home in (process / "environ").read_bytes() else []
            except OSError:
                continue
        return found

    def kill(self, program: str) -> None:
        """Kill these, and wait until they and their hooks are gone: a client may be two processes that outlive it."""
        for process in self.living(program):
            os.kill(process, signal.SIGKILL)
        wait_until(lambda: not self.living(program) and not self.living("/loomctl"), f"{program} has ended")

    def asked(self, before: int) -> tuple[Asked, ...]:
        """Give the requests since there were so many."""
        return tuple(self.model.requests[before:])


def is_made_alike(folder: Path, kept: Path) -> bool:
    """Make a folder what a kept copy of it is, by sizes and times; tells whether nothing had to be done.

    Some thousand files stand on a machine, of which a scene changes a few.
    """
    try:
        return not _make_alike(folder, kept)
    except FileNotFoundError:
        return False


def _make_alike(folder: Path, kept: Path) -> bool:
    here = {entry.name: entry for entry in os.scandir(folder)}
    differed = False
    for entry in os.scandir(kept):
        there = here.pop(entry.name, None)
        if there is not None and not _is_alike(there, entry):
            _take_away(there)
            there = None
        if there is None:
            differed = True
            if entry.is_dir(follow_symlinks=False):
                shutil.copytree(entry.path, folder / entry.name, symlinks=True)
            else:
                shutil.copy2(entry.path, folder / entry.name, follow_symlinks=False)
        elif entry.is_dir(follow_symlinks=False):
            differed |= _make_alike(folder / entry.name, Path(entry.path))
    for left in here.values():
        _take_away(left)
    return differed or bool(here)


def _is_alike(one: os.DirEntry[str], other: os.DirEntry[str]) -> bool:
    first, second = one.stat(follow_symlinks=False), other.stat(follow_symlinks=False)
    if first.st_mode != second.st_mode:
        return False
    if one.is_symlink():
        return os.readlink(one.path) == os.readlink(other.path)
    alike = (first.st_size, first.st_mtime_ns) == (second.st_size, second.st_mtime_ns)
    return alike or one.is_dir(follow_symlinks=False)


def _take_away(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        Path(entry.path).unlink(missing_ok=True)


def wait_until(holds: Callable[[], object], what: str, within: float = TIME_LIMIT) -> None:
    """Wait until something comes to hold; fails with what that was."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to hold: {what}"
        time.sleep(0.05)
