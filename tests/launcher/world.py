"""A made-up machine for the launcher: a bundle, a home, a PATH that holds only what a test puts there."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
SHELLS = [
    shell.split()
    for shell in (
        "dash",
        "bash",
        "busybox sh",
        "zsh --emulate sh",
        "bash --posix -O compat32",  # the nearest to a Mac's sh, which is bash 3.2 in its POSIX mode
    )
    if shutil.which(shell.split()[0])
]
SESSION = "5e55-10n_A"

# What the launcher uses of a system, besides its builtins.
TOOLS = ("cat", "chmod", "find", "ls", "mkdir", "readlink", "rm", "sh", "sleep")

# Stands where the package's own __main__ does and tells, in one JSON document, how it was started.
REPORT = """
import hashlib, json, os, sys
is_quick = sys.argv[1:2] == ["hook"] or sys.argv[1:] == ["statusline"]
told = sys.stdin.buffer.read() if is_quick else b""
packages = None
if not is_quick:
    import click, jsonpath_ng, jsonschema, psutil, yaml
    packages = os.path.dirname(os.path.dirname(click.__file__))
    compiled = click.__cached__
print(json.dumps({
    "arguments": sys.argv[1:], "bytes": len(told), "sha256": hashlib.sha256(told).hexdigest(), "cwd": os.getcwd(),
    "python": os.path.realpath(sys.executable), "isolated": sys.flags.isolated, "no_site": sys.flags.no_site,
    "pycache_prefix": sys.pycache_prefix, "no_bytecode": sys.flags.dont_write_bytecode, "packages": packages,
    "LOOM": {name: value for name, value in os.environ.items() if name.startswith("LOOM_")},
    "compiled": packages and os.path.exists(compiled),
}))
sys.exit(int(os.environ.get("TEST_EXIT", "0")))
"""


@dataclass
class World:
    """root: a folder of the test's own; bundle: a plugin's root; home: HOME; tools: the only folder on PATH; compiled:
    where starts before this one compiled modules to.
    """

    root: Path
    bundle: Path
    home: Path
    tools: Path
    compiled: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> Path:
        """The folder in the user's cache that Loom keeps things in."""
        return self.home / ".cache" / "loom"

    @property
    def made(self) -> list[str]:
        if not self.kept.is_dir():
            return []
        return sorted(name for name in os.listdir(self.kept) if name.startswith(("env-", "making-")))

    def environ(self, **more: str | None) -> dict[str, str]:
        """Give an environment made from nothing; a None takes a name out of it."""
        all_of_it = {"PATH": str(self.tools), "HOME": str(self.home), "LANG": "C.UTF-8", **self.more, **more}
        return {name: value for name, value in all_of_it.items() if value is not None}

    def add_python(self, name: str = "python3", python: Path = PYTHON) -> None:
        (self.tools / name).symlink_to(python)

    def add_script(self, name: str, text: str) -> None:
        path = self.tools / name
        path.unlink(missing_ok=True)  # it may be a link to the system's own
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def remember(self, python: Path = PYTHON, folder: Path | None = None) -> None:
        """Write down a Python as a start before this one did, and have what it compiled."""
        folder = folder or self.kept
        self.have_compiled(folder)
        (folder / "python").write_text(f"{python}\n")

    def have_compiled(self, folder: Path | None = None) -> None:
        """Let a folder that Loom keeps things in lead to what starts before this one compiled."""
        way = (folder or self.kept) / "pycache"
        way.parent.mkdir(parents=True, exist_ok=True)
        if not way.is_symlink():
            way.symlink_to(self.compiled)

    def start(
        self,
        *arguments: str,
        cwd: Path | None = None,
        stdin: bytes = b"",
        shell: list[str] | None = None,
        launcher: str | Path | None = None,
        timeout: float = 120,
        settings: Mapping[str, str | None] | None = None,
        **environ: str | None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Start the launcher and wait for its end.

        shell: the shell that runs it, else the system's sh; settings and environ: what the environment has besides.
        """
        command = [*(shell or []), str(launcher or self.bundle / "bin" / "loomctl"), *arguments]
        if shell:
            command[0] = shutil.which(shell[0]) or shell[0]
        return subprocess.run(
            command, cwd=cwd or self.root, env=self.environ(**{**(settings or {}), **environ}), input=stdin,
            capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip

    def hook(self, event: str, **how: Any) -> dict[str, Any] | None:
        """Start a hook, which must end with 0 and an empty standard error; give what Python reported, if it ran."""
        ended = self.start("hook", event, **how)
        assert (ended.returncode, ended.stderr) == (0, b"")
        report: dict[str, Any] | None = json.loads(ended.stdout) if ended.stdout else None
        return report


def make_bundle(folder: Path) -> Path:
    """Lay out a plugin's root with this checkout's launcher and lock, and a package whose __main__ reports."""
    for part in ("bin/loomctl", "hosts/launcher.sh"):
        (folder / part).parent.mkdir(parents=True)
        shutil.copy(CHECKOUT / part, folder / part)
    shutil.copy(CHECKOUT / "requirements.lock", folder)
    shutil.copytree(CHECKOUT / "loomctl", folder / "loomctl", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "loomctl" / "__main__.py").write_text(REPORT)
    return folder


def touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
