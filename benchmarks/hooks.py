"""What a hook costs: whole processes, medians of 30 interleaved runs, as ratios to `python -I -S -c pass`.

Run it with any Python 3.10 or later: `python benchmarks/hooks.py [--runs N] [--most N] [--against CHECKOUT] [--json]`.
It works in a temporary folder and uses the interpreter that it is run with for the hooks too. Ratios hold within one
run; milliseconds are this machine's. `--against` runs each hook of another checkout in turn with ours, and tells the
medians' ratio instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import stand
from benchmarks.stand import ROOT, SESSION, Case

ARTIFACTS = 10
ARTIFACT_BYTES = 20_000
FLAT = 1.2
FEW, MANY = 10, 100_000  # tool steps in a run's log


SMALL = "PostToolUse of a small result (2 KB)"
LINE = "the status line, as it was prepared"
LARGE = "PostToolUse of a result that is replaced live (60 KB)"
TURN = ("SessionStart, resumed", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
"""What a session calls, in this order, in a project of its own whose run has few or many steps behind it."""
GROWING = (SMALL, LARGE, *TURN)


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--most", type=int, help="cut every size to this one, to see that all is measured")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, to compare with")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    *_, many = stand.at_most([FEW, MANY], options.most)
    with stand.folder() as base:
        cases, modules = _prepare(base, many)
        if options.against:
            return _compare(cases[1:], options.against.resolve(), options.runs, as_json=options.json)
        stand.in_turn(cases, options.runs)
    return _tell(cases, modules, many, as_json=options.json)


def _prepare(base: Path, many: int) -> tuple[list[Case], list[str]]:
    python = os.path.realpath(sys.executable)
    project, empty = base / "shop", base / "nothing"
    for folder in (project, empty / "src", empty / ".git"):
        folder.mkdir(parents=True)
    cache = base / "home" / ".cache" / "loom"
    cache.mkdir(parents=True)
    (cache / "python").write_text(f"{python}\n")
    env = stand.environment(base)
    handle = begin_with_ten(project, env)["handle"]
    hook = _hook_of(ROOT)

    def event(name: str, **more: object) -> str:
        return json.dumps({"session_id": SESSION, "cwd": str(project), "hook_event_name": name, **more})

    def case(name: str, limit: float | None, word: str, given: str, cwd: Path = project, **more: str) -> Case:
        there = {**env, "CLAUDE_PROJECT_DIR": str(cwd), "PWD": str(cwd), **more}
        return Case(name, limit, [*hook, word], given, cwd, there)

    def after(text: str) -> str:
        response = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        return event("PostToolUse", tool_name="Bash", tool_input={"command": "make test"}, tool_response=response)

    def turn(project: Path, behind: str) -> list[Case]:
        given = (
            event("SessionStart", source="resume"),
            event("UserPromptSubmit", prompt="go on"),
            event("Stop", last_assistant_message="so far so good"),
            event("PreCompact", trigger="auto"),
            event("SessionEnd", reason="other"),
        )
        words = ("session-start", "user-prompt-submit", "stop", "pre-compact", "session-end")
        named = zip(TURN, words, given, strict=True)
        return [case(f"{name}{behind}", None, word, told, project) for name, word, told in named]

    other = {"CLAUDE_CODE_SESSION_ID": "another-session"}
    start = event("SessionStart", source="compact")
    long_command = event("PreToolUse", tool_name="Bash", tool_input={"command": "ls -l " + "x" * 2000})
    own_command = event("PreToolUse", tool_name="Bash", tool_input={"command": "loomctl next"})
    cases = [
        Case("baseline: python -I -S -c pass", None, [python, "-I", "-S", "-c", "pass"], "", project, env),
        case("any hook, no .loom upward", 0.4, "session-start", event("SessionStart"), empty / "src"),
        case("SessionStart that primes 10 artifacts, 200 KB", 5.0, "session-start", start),
        case("PreToolUse, a command without loomctl (2 KB)", None, "pre-tool-use", long_command),
        case("PreToolUse, loomctl next", None, "pre-tool-use", own_command),
        case("PreToolUse, a session that is not bound", None, "pre-tool-use", long_command, project, **other),
        case("Stop, a candidate is kept", 3.5, "stop", event("Stop", last_assistant_message="so far so good")),
        case("PreCompact", 4.5, "pre-compact", event("PreCompact", trigger="auto")),
    ]
    told, few, grown = (
        _grown(base / name, env, count) for name, count in (("told", FEW), ("few", FEW), ("many", many))
    )
    cases += [
        case("SessionStart, the same and the history of 10 tool steps", 6.0, "session-start", start, told),
        case(SMALL, 0.6, "post-tool-use", after(_lines(2_000)), few),
        case(LARGE, 2.5, "post-tool-use", after(_lines(60_000)), few),
        case(f"{SMALL}{_behind(many)}", None, "post-tool-use", after(_lines(2_000)), grown),
        case(f"{LARGE}{_behind(many)}", None, "post-tool-use", after(_lines(60_000)), grown),
    ]
    for name, count, behind in (("few turns", FEW, ""), ("many turns", many, _behind(many))):
        cases += turn(_grown(base / name, env, count), behind)
    cases += _prompts(base, env)
    cases += _status_lines(base, env)
    listed = Case(
        "modules",
        None,
        [python, "-I", "-S", "-X", "importtime", str(ROOT / "loomctl" / "__main__.py"), "hook", "session-start"],
        start,
        project,
        {**env, "CLAUDE_PROJECT_DIR": str(project)},
    )
    modules = _modules(listed, handle)
    return cases, modules


def _hook_of(checkout: Path) -> list[str]:
    """Give how a checkout's bundle calls its hooks."""
    with_host = ["--host", "claude-code"] if (checkout / "hooks" / "claude-code.json").exists() else []
    return [str(checkout / "bin" / "loomctl"), "hook", *with_host]


def _compare(cases: list[Case], checkout: Path, runs: int, *, as_json: bool) -> int:
    """Time the hooks in turn with those of another checkout, in the same projects; the ratio is ours to theirs."""
    ours, rows = _hook_of(ROOT), list[stand.Row]()
    for case in cases:
        if case.command[: len(ours)] != ours:
            continue
        command = [*_hook_of(checkout), *case.command[len(ours) :]]
        theirs = type(case)(case.name, None, command, case.given, case.cwd, case.env)
        stand.in_turn([theirs, case], runs)
        rows.append(stand.Row(case.name, case.median(), case.median() / theirs.median(), None))
    return stand.tell(rows, as_json=as_json)


def _behind(many: int) -> str:
    return f", {many:,} steps before it"


class _Compacted(Case):
    """A case whose session was compacted each time."""

    def run(self) -> None:
        (self.cwd / ".loom" / "local" / "primed" / f"{SESSION}.unsure").touch()
        super().run()


class _Edited(Case):
    """A case whose project has another specification each time."""

    def run(self) -> None:
        (self.cwd / "spec.md").write_text(f"# What is wanted, version {len(self.times)}\n\n" + "a line\n" * 100)
        super().run()


def _prompts(base: Path, env: dict[str, str]) -> list[Case]:
    """Give the rows of a prompt: the first in a session or after a compaction, any other, and one after an edit."""
    given = json.dumps({"session_id": SESSION, "hook_event_name": "UserPromptSubmit", "prompt": "go on"})
    found: list[Case] = []
    for name, limit, kind in (
        ("UserPromptSubmit, the first after a compaction", None, _Compacted),
        ("UserPromptSubmit, nothing to tell", 0.8, Case),
        ("UserPromptSubmit, an artifact has changed", 3.5, _Edited),
    ):
        project = base / f"prompts-{len(found)}"
        stand.project_of(project, stand.with_a_spec(project, 1))
        os.utime(project / "spec.md", (1_600_000_000, 1_600_000_000))
        began = stand.begin(project, {**env, "PYTHONDONTWRITEBYTECODE": "1"})
        there = {**env, "CLAUDE_PROJECT_DIR": str(project), "PWD": str(project)}
        stand.output_of([sys.executable, "-I", stand.MAIN, "resume", began["run_id"]], cwd=project, env=there)
        found.append(kind(name, limit, [*_hook_of(ROOT), "user-prompt-submit"], given, project, there))
    return found


def _status_lines(base: Path, env: dict[str, str]) -> list[Case]:
    """Give the rows of the status line: as settings name it, drawn from what stands ready, and made anew each time."""
    project = base / "line"
    project.mkdir()
    begin_with_ten(project, env)
    there = {**env, "CLAUDE_PROJECT_DIR": str(project), "PWD": str(project), "COLUMNS": "80"}
    loomctl = [sys.executable, "-I", stand.MAIN]
    stand.output_of([*loomctl, "statusline", "--snippet"], cwd=project, env=there)
    script = str(base / "home" / "state" / "statusline")
    transcript = base / "transcript.jsonl"
    transcript.write_text("{}\n")
    given = {"session_id": SESSION, "transcript_path": str(transcript), "cwd": str(project), "cost": {"x": "y" * 900}}
    told = json.dumps(given, separators=(",", ":"))
    drawn = Case(LINE, 0.8, [script], told, project, there)
    alone = [sys.executable, "-I", "-S", stand.MAIN, "statusline"]
    return [drawn, Case("the status line, made anew", None, alone, told, project, there)]


def begin_with_ten(project: Path, env: dict[str, str]) -> dict[str, Any]:
    """Start a run with ten required artifacts of 20 KB, through the command line. No git: its time is not Loom's."""
    artifacts = []
    for number in range(ARTIFACTS):
        path = project / f"doc-{number}.md"
        line = f"line of document {number}, with `code`, a path src/module_{number}.py and some prose\n"
        path.write_text(f"# Document {number}\n\n" + line * (ARTIFACT_BYTES // len(line)))
        artifacts.append(
            {
                "id": f"doc-{number}",
                "type": "markdown",
                "path": path.name,
                "description": f"document {number}",
                "required": True,
                "reload_triggers": ["session_start"],
            }
        )
    steps = [{"id": "implement", "prompt": "Build it."}]
    critical = {"always_load": artifacts}
    stand.project_of(project, {"critical_artifacts": critical, "phases": {"build": {"steps": steps}}})
    return stand.begin(project, {**env, "PYTHONDONTWRITEBYTECODE": "1"})


def _lines(size: int) -> str:
    line = "test_module_%05d.py::test_a_claim PASSED in 0.%02d s\n"
    return "".join(line % (number, number % 100) for number in range(size // len(line % (0, 0)) + 1))[:size]


def _grown(project: Path, env: dict[str, str], count: int) -> Path:
    """Start a run whose log holds so many steps, as digesting would have appended them."""
    project.mkdir()
    run_id = begin_with_ten(project, env)["run_id"]
    step = {
        "id": "toolu_01",
        "tool_name": "Bash",
        "minimal_args": {"command": "make test"},
        "observation": "make: exit 0, 20 lines output",
        "outcome_ref": "outputs/toolu_01.log",
        "success": True,
        "rest": {"result": {"stdout": "", "stderr": "", "interrupted": False, "isImage": False}},
        "bytes": 2000,
        "session_id": SESSION,
    }
    with (project / ".loom" / "runs" / run_id / "tool_steps.jsonl").open("w") as log:
        log.writelines(
            json.dumps({**step, "id": f"toolu_{number}", "number": number}) + "\n" for number in range(count)
        )
    return project


def _modules(case: Case, handle: str) -> list[str]:
    done = subprocess.run(
        case.command, input=case.given.encode(), cwd=case.cwd, env=case.env, capture_output=True, check=False
    )
    assert handle.encode() in done.stdout, "the hook did not prime the run that was started"
    lines = done.stderr.decode().splitlines()
    return sorted(
        {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:") and "[us]" not in line}
    )


def _tell(cases: list[Case], modules: list[str], many: int, *, as_json: bool) -> int:
    costs = {case.name: case.median() for case in cases}
    growth = {name: costs[f"{name}{_behind(many)}"] / costs[name] for name in GROWING}
    steep = any(ratio > FLAT for ratio in growth.values())
    over = stand.tell(stand.rows_of(cases), as_json=as_json, growth=growth, modules=modules)
    if not as_json:
        print(f"\n| as a run grows | {many:,} steps against {FEW} | number to hold |\n|---|---|---|")
        for name, ratio in growth.items():
            print(f"| {name} | {ratio:.2f} | ≤ {FLAT:g}{'' if ratio <= FLAT else '  OVER'} |")
        print(f"\nmodules that SessionStart imports ({len(modules)}): {' '.join(modules)}")
    return int(over or steep)


if __name__ == "__main__":
    sys.exit(main())
