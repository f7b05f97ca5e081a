"""A terminal at which a person sits: what they see, and what they type."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests.helpers.scenes import MAIN, Scene
from tests.helpers.waiting import until

PATIENCE = 60.0  # seconds: a bound for what hangs, never a claim about speed
ALL = ("stdin", "stdout", "stderr")


class Terminal:
    """A process at a terminal of its own.

    streams: which of its streams the terminal is; the others are nothing to read, and a pipe in `child`.
    """

    def __init__(
        self, command: list[str], scene: Scene, *, streams: tuple[str, ...] = ALL, environ: dict[str, str] | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        others = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        ends = {name: theirs if name in streams else other for name, other in others.items()}
        self.child = subprocess.Popen(
            command, cwd=scene.root, env={**scene.environ(None), "TERM": "xterm", **(environ or {})},
            stdin=ends["stdin"], stdout=ends["stdout"], stderr=ends["stderr"], start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._seen = b""

    @property
    def seen(self) -> str:
        return self._seen.decode("utf-8", "replace").replace("\r\n", "\n")

    def type(self, text: str) -> None:
        """Type a text; U+0004 is the end of input, U+0003 an interrupt."""
        os.write(self._ours, text.encode())

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, *words: str, times: int = 1) -> str:
        """Read until each of the words stands there so many times."""
        while not all(self.seen.count(word) >= times for word in words):
            assert self._read(), f"{words} never came: {self.seen}"
        return self.seen

    def interrupt(self) -> None:
        """Interrupt the process as it waits for somebody to type; a moment before, Python would take no notice."""
        stat = Path(f"/proc/{self.child.pid}/stat")
        if stat.exists():  # of a process that nobody has waited for it stays: `S` sleeps, `Z` has ended
            until(lambda: stat.read_text().rpartition(")")[2].split()[0] in "SZ", "the process waits, or has ended")
        self.child.send_signal(signal.SIGINT)

    def end(self) -> str:
        while self._read():
            pass
        self.child.wait(timeout=PATIENCE)
        os.close(self._ours)
        return self.seen

    def _read(self) -> bool:
        assert select.select([self._ours], [], [], PATIENCE)[0], self.seen
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self._seen += part
        return bool(part)


def loomctl(*words: str) -> list[str]:
    return [sys.executable, "-I", str(MAIN), *words]


def at_a_terminal(scene: Scene, *words: str, typed: str = "", **environ: str) -> str:
    """Run a command on a terminal at which somebody has typed already; gives what they see."""
    terminal = Terminal(loomctl(*words), scene, environ=environ)
    terminal.type(typed)
    return terminal.end()


def python_at_a_terminal(scene: Scene, program: str, environ: dict[str, str]) -> str:
    """Run a line of Python on a terminal, with the package."""
    before = f"import sys; sys.path.insert(0, {str(MAIN.parents[1])!r}); "
    return Terminal([sys.executable, "-I", "-c", before + program], scene, environ=environ).end()
