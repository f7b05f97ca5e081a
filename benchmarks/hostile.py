"""How much of its time limit each hook uses with a 64 MB event of hostile text: whole processes, the worst of each row.

What is measured is the processor time of the hook and all that it starts, so that a busy machine changes little.

`python benchmarks/hostile.py [--megabytes N] [--text NAME] [--json]`. For each text, before each hook, an event of that
size with the text in it lies in the spool (a call's output; for those that digest also a failure, and a list), and
where the event of the hook itself bears a text (a prompt, a command, a final message, a summary, an output), it is that
text in that size. The exit code is 1 if a hook uses over half of its limit
(hooks/claude-code.json), or a priming is not whole.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import hooks, stand
from benchmarks.stand import ROOT, SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF = 0.5
LINES = 40  # of the artifacts' text that a priming has, at least; they may take half of its room
TEXTS = {
    "password files": "h:5432:d:u:p ",
    "colour codes": "\x1b[31m",
    "line ends": "\n",
    "errors": "error: x\n",
    "JSON in prose": '{"outcome": ',
    "backslashes": "\\",
    "private keys": "-----BEGIN ",
    "paths": "a/+",
    "settings": "[a]\npwd = ab!cdefg\n",
}
OWN = {
    "UserPromptSubmit": "prompt",
    "Stop": "last_assistant_message",
    "PostCompact": "compact_summary",
    "SessionEnd": "reason",
}
DIGESTING = ("SessionStart", "PreCompact", "Stop")  # what lies in the spool is nothing to the others
TOOLS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--text", choices=sorted(TEXTS), action="append", help="this one alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    worst: dict[str, tuple[float, str]] = {}
    parted: list[str] = []
    for name in options.text or TEXTS:
        with stand.folder() as base:
            for event, share, whole in _measured(base, TEXTS[name], options.megabytes * 1_000_000 - 1000):
                worst[event] = max(worst.get(event, (0.0, "")), (share, name))
                parted += [] if whole else [f"{event}, {name}"]
    if options.json:
        print(json.dumps({"share": worst, "not whole": parted}))
    else:
        print(f"| hook, {options.megabytes} MB of text | of its limit | with | number to hold |\n|---|---|---|---|")
        for event, (share, name) in worst.items():
            print(f"| {event} | {share:.2f} | {name} | ≤ {HALF:g}{'' if share <= HALF else '  OVER'} |")
        print(f"\nprimings that were not whole: {', '.join(parted) or 'none'}")
    return int(bool(parted) or any(share > HALF for share, _ in worst.values()))


def limits() -> dict[str, float]:
    """Give the seconds that hooks/claude-code.json allows each event."""
    told = json.loads((ROOT / "hooks" / "claude-code.json").read_text())["hooks"]
    return {event: float(groups[0]["hooks"][0]["timeout"]) for event, groups in told.items()}


def _measured(base: Path, unit: str, size: int) -> Iterator[tuple[str, float, bool]]:
    """Give for each hook which share of its limit it used, and whether what it promises came whole."""
    project = base / "shop"
    project.mkdir()
    cache = base / "home" / ".cache" / "loom"
    cache.mkdir(parents=True)
    (cache / "python").write_text(f"{os.path.realpath(sys.executable)}\n")
    env = {**stand.environment(base), "CLAUDE_PROJECT_DIR": str(project), "PWD": str(project)}
    handle = hooks.begin_with_ten(project, env)["handle"]
    text = _sized(unit, size)
    spooled = _spooled(project, unit, text, size)
    for event, limit in limits().items():
        more: dict[str, Any] = {"source": "compact"} if event == "SessionStart" else {}
        if event in OWN:
            more = {OWN[event]: text}
        elif event in TOOLS:
            response = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
            own: dict[str, dict[str, Any]] = {
                "PostToolUse": {"tool_response": response},
                "PostToolUseFailure": {"error": text},
            }
            command = text if event == "PreToolUse" else "make"
            more = {"tool_name": "Bash", "tool_input": {"command": command}, **own.get(event, {})}
        for kind in ("small", *spooled) if event in TOOLS else spooled:
            _lay(project, spooled.get(kind, b""))
            took, printed = _run(event, _event(project, event, **more), project, env)
            yield event, took / limit, event != "SessionStart" or _is_whole(printed, handle)
            if event not in DIGESTING:
                break


def _sized(unit: str, size: int) -> str:
    """Repeat a text so often that JSON of it has so many bytes."""
    return unit * (size // len(json.dumps(unit)[1:-1]))


def _event(project: Path, name: str, **more: Any) -> bytes:
    told = {"session_id": SESSION, "cwd": str(project), "hook_event_name": name, **more}
    return json.dumps(told, separators=(",", ":")).encode()


def _spooled(project: Path, unit: str, text: str, size: int) -> dict[str, bytes]:
    """Give the events that lie in the spool, by what is large in them."""
    call: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "toolu_large"}
    values = [unit] * (size // (len(json.dumps(unit)) + 1))
    half = text[: len(text) // 50]  # of those that are still parsed
    return {
        "an output": _event(project, "PostToolUse", **call, tool_response={"stdout": text, "stderr": ""}),
        "a failure": _event(project, "PostToolUseFailure", **call, error=text),
        "a list": _event(project, "PostToolUse", **{**call, "tool_name": "mcp__x__y"}, tool_response=values),
        "parsed": _event(project, "PostToolUse", **call, tool_response={"stdout": half, "stderr": half[:1000]}),
        "a parsed list": _event(
            project, "PostToolUse", **{**call, "tool_name": "mcp__x__y"}, tool_response=values[: len(values) // 50]
        ),
    }


def _lay(project: Path, event: bytes) -> None:
    """Let an event lie in the spool, and nothing else."""
    folder = project / ".loom" / "local" / "spool"
    for path in folder.iterdir():
        path.unlink()
    if event:
        path = folder / f"{SESSION}-1.json"
        path.write_bytes(event)
        os.utime(path, (time.time() - 100, time.time() - 100))


def _run(event: str, given: bytes, project: Path, env: dict[str, str]) -> tuple[float, bytes]:
    """Run a hook to its end; gives the seconds of processor time that it took, and what it printed."""
    word = "".join(f"-{one.lower()}" if one.isupper() else one for one in event)[1:]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = stand.output_of([str(ROOT / "bin" / "loomctl"), "hook", word], cwd=project, env=env, given=given)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, printed


def _is_whole(printed: bytes, handle: str) -> bool:
    """Tell whether a session start gave its run and every artifact, each in full or as far as there was room."""
    text = str(json.loads(printed)["hookSpecificOutput"]["additionalContext"])
    named = all(f"doc-{number}" in text for number in range(hooks.ARTIFACTS))
    return handle in text and named and text.count("line of document ") >= LINES


if __name__ == "__main__":
    sys.exit(main())
