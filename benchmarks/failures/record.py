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
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.failures import zoo
from loomctl.kit import processes

TOOLS = Path(os.environ.get("ZOO_TOOLS", "/opt/zoo"))
HOME = str(Path.home())
LONGEST = 400  # seconds of one case
HUGE = 2_000_000  # bytes
SETUP_LOG = ".setup.log"
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
    ended = _bash(command, Path.cwd())
    lines = [line for line in zoo.ANSI.sub("", ended.stdout.decode(errors="replace")).splitlines() if line.strip()]
    return lines[0].strip() if lines and ended.code == 0 else None


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
    _run_or_raise(tool.head.get("setup", ""), folder)
    try:
        ended = _bash(case.command, folder)
    finally:
        _run_or_raise(tool.head.get("teardown", ""), folder)
    if ended.code is None:
        raise ValueError(f"longer than {LONGEST} seconds")
    code = ended.code if ended.code >= 0 else 128 - ended.code
    return code, _neutral(ended.stdout.decode("utf-8", errors="replace"), folder)


def _run_or_raise(command: str, folder: Path) -> None:
    """Run a tool's setup or teardown; raise ValueError where it fails."""
    if command and _bash(command, folder, to=f">{SETUP_LOG}").code != 0:
        raise ValueError(f"setup: {(folder / SETUP_LOG).read_text(errors='replace')[-400:]}")


def _bash(command: str, folder: Path, *, to: str = "") -> processes.Ended:
    """Run a command, its errors among its output. to: a file; a server that the command leaves would hold a pipe."""
    whole = ["bash", "-c", f'exec bash -c "$1" </dev/null {to} 2>&1', "bash", command]
    return processes.run(whole, cwd=str(folder), environ=_environment(), patience=LONGEST)


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
