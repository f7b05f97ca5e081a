"""Kill a command in the middle of its work."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from tests.helpers.scenes import MAIN, Scene

_COMMAND = """
import sys
sys.path.insert(0, sys.argv[1])
from loomctl.cli.main import main
print("ready", flush=True)
sys.exit(main(sys.argv[2:]))
"""


def kill_after(scene: Scene, seconds: float, *words: str) -> None:
    """Start a command, and kill it so many seconds after all is imported."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _COMMAND, str(MAIN.parents[1]), *words],
        cwd=scene.root,
        env=scene.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
