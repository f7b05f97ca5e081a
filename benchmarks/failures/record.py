"""Make the zoo's recordings anew: run each case of each tool and store what it printed.

    python benchmarks/failures/record.py [TOOL[:KIND] ...]

`install.sh` installs the tools on Debian 12. They are looked for in PATH and in the folders `py/bin` and
`npm/node_modules/.bin` of $ZOO_TOOLS (/opt/zoo). A tool that is missing is named and keeps its recording, and so does a
case whose output misses what was planted; the exit code is then 1. The cases run programs that fail, crash and hang;
all of them are in `cases/`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.failures import zoo

TOOLS = Path(os.environ.get("ZOO_TOOLS", "/opt/zoo"))
HOME = str(Path.home())
LONGEST = 400  # seconds of one case
HUGE = 2_000_000  # bytes
DUE = {"warnings": 0, "timeout": 124}


def main() -> int:
    """Record the tools that were asked for, or all."""
    whole = [_record_tool(*asked.partition(":")[::2]) for asked in sys.argv[1:] or zoo.names()]
    return 0 if all(whole) else 1


def _record_tool(name: str, kind: str) -> bool:
    tool = zoo.tool(name)
    version = _version(tool)
    if version is None:
        print(f"{name:<14} missing; its recording stays")
        return False
    old = zoo.load(name) or {"cases": []}
    cases, faults = {case["kind"]: case for case in old["cases"]}, []
    for case in tool.cases:
        if kind in ("", case.kind):
            try:
                cases[case.kind] = _record(tool, case)
            except ValueError as error:
                faults.append(f"  {case.kind}: {error}")
    made = all("OUTPUT" in case.files for case in tool.cases)
    ordered = [cases[kind] for kind in zoo.KINDS if kind in cases]
    size = zoo.save(name, {"tool": name, "version": version, "made_by_us": made, "cases": ordered})
    lines = sum(len(case["must"]) for case in ordered)
    print(f"{name:<14} {len(ordered)} cases, {lines:>3} lines that matter, {size:>7,} bytes   {version}")
    print(*faults, sep="\n", end="\n" if faults else "", flush=True)
    return not faults


def _version(tool: zoo.Tool) -> str | None:
    command = tool.head["version"]
    if command.startswith("made by us"):
        return command
    done = subprocess.run(  # noqa: S602 - the zoo's own commands
        command, shell=True, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    lines = [line for line in zoo.ANSI.sub("", done.stdout.decode(errors="replace")).splitlines() if line.strip()]
    return lines[0].strip() if lines and done.returncode == 0 else None


def _record(tool: zoo.Tool, case: zoo.Case) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="zoo-"))
    try:
        code, output = case.exit or 0, case.files.get("OUTPUT", "")
        if not output:
            code, output = _run(tool, case, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    keep = os.environ.get("ZOO_KEEP")
    if keep:
        Path(keep, f"{tool.name}.{case.kind}").write_text(f"{output}\n[exit {code}]\n", encoding="utf-8")
    due = DUE.get(case.kind) if case.exit is None else case.exit
    if code != due if due is not None else code == 0:
        raise ValueError(f"exit code {code}: {output[-300:]!r}")
    if case.kind == "huge" and len(output.encode()) < HUGE:
        raise ValueError(f"{len(output.encode()):,} bytes, fewer than {HUGE:,}")
    return {
        "kind": case.kind,
        "note": case.note,
        "command": case.command,
        "exit": code,
        "output": output,
        "must": zoo.truth(case, output),
    }


def _run(tool: zoo.Tool, case: zoo.Case, folder: Path) -> tuple[int, str]:
    for path, text in case.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            target.chmod(0o755)
    _quietly(tool.head.get("setup", ""), folder)
    try:
        with subprocess.Popen(
            ["bash", "-c", case.command],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                raw, _ = process.communicate(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise ValueError(f"longer than {LONGEST} seconds") from None
    finally:
        _quietly(tool.head.get("teardown", ""), folder)
    code = process.returncode
    return code if code >= 0 else 128 - code, _neutral(raw.decode("utf-8", errors="replace"), folder)


def _quietly(command: str, folder: Path) -> None:
    if command:
        log = folder / ".setup.log"
        with log.open("wb") as to:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=to,
                stderr=to,
                check=False,
            )
        if done.returncode:
            raise ValueError(f"setup: {log.read_text(errors='replace')[-400:]}")


def _environment() -> dict[str, str]:
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "RUSTUP_HOME", "CARGO_HOME") if key in os.environ}
    more = [str(TOOLS / "py/bin"), str(TOOLS / "npm/node_modules/.bin"), f"{HOME}/.cargo/bin", "/usr/lib/go/bin"]
    return {
        **keep,
        "PATH": os.pathsep.join([*more, keep.get("PATH", "")]),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "ZOO_TOOLS": str(TOOLS),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_AUTHOR_NAME": "Dev",
        "GIT_AUTHOR_EMAIL": "dev@example.com",
        "GIT_COMMITTER_NAME": "Dev",
        "GIT_COMMITTER_EMAIL": "dev@example.com",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOCACHE": str(TOOLS / "cache/go"),
        "TF_CLI_CONFIG_FILE": "/dev/null",
    }


def _neutral(text: str, folder: Path) -> str:
    """Replace the paths and names of this machine."""
    for path, name in (
        (str(folder), "/src"),
        (folder.name, "src"),
        (str(TOOLS / "npm"), "/src"),
        (str(TOOLS / "py"), "/opt/venv"),
        (str(TOOLS), "/opt"),
        (HOME, "/home/dev"),
        (socket.gethostname(), "host"),
    ):
        text = text.replace(path, name) if len(path) > 3 else text
    return text


if __name__ == "__main__":
    sys.exit(main())
