"""How far one event walks through the code: the modules and functions of Loom that it enters, room by room.

Run it with a Python that has Loom's packages: `python benchmarks/walks.py [--json] [--names]`. Three walks are traced
in processes of their own by `sys.setprofile`: a SessionStart after a compaction that primes a run, a `done` with a
result, and a first `push`. A module counts when one of its functions is entered (importing it is not walking through
it), a room change each time that a call goes from one folder below `loomctl/` to another. Counts do not depend on the
machine; the exit code is 1 if a walk is longer than its number (design §7).
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import stand
from benchmarks.stand import MAIN, ROOT, SESSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGE = str(ROOT / "loomctl") + os.sep
MASKING = "mask"
LONGEST = {"SessionStart": (24, 180), "done": (40, 240), "push": (28, 200)}
"""The modules and functions that each walk may enter."""

# Runs the program that follows it and writes the calls into Loom's code: `[from file, file, function], …`.
_TRACER = """
import json, os, runpy, sys
package, out, main = sys.argv[1:4]
sys.argv = sys.argv[3:]
calls = []
def note(frame, what, argument):
    code = frame.f_code
    named = code.co_flags & 1 and not code.co_name.startswith("<")  # no class body, module, lambda or comprehension
    if what == "call" and named and code.co_filename.startswith(package):
        above = frame.f_back
        while above is not None and not above.f_code.co_filename.startswith(package):
            above = above.f_back
        name = f"{code.co_name}:{code.co_firstlineno}"
        calls.append((above.f_code.co_filename if above else "", code.co_filename, name))
def end(code, leave=os._exit):
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump(calls, file)
    leave(code)
os._exit = end
sys.setprofile(note)
try:
    runpy.run_path(main, run_name="__main__")
except SystemExit as ended:
    os._exit(ended.code or 0)
"""


class Walk(NamedTuple):
    """What one event entered. masked: how often `mask` was called."""

    what: str
    modules: int
    functions: int
    calls: int
    room_changes: int
    masked: int
    names: dict[str, int]

    @property
    def over(self) -> bool:
        """Tell whether the walk is longer than its number."""
        modules, functions = LONGEST[self.what]
        return self.modules > modules or self.functions > functions


def main() -> int:
    """Trace the walks and print the table; the exit code is 1 if a walk is over its number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--names", action="store_true", help="list the modules that each walk enters")
    options = parser.parse_args()
    with stand.folder() as base:
        walks = _walks(base)
    if options.json:
        print(json.dumps([walk._asdict() for walk in walks], indent=1))
    else:
        _print(walks, names=options.names)
    return int(any(walk.over for walk in walks))


def _print(walks: Sequence[Walk], *, names: bool) -> None:
    print(
        "| walk | modules | functions | calls | room changes | texts masked | to hold |\n|---|---|---|---|---|---|---|"
    )
    for walk in walks:
        modules, functions = LONGEST[walk.what]
        counts = f"{walk.modules} | {walk.functions} | {walk.calls:,} | {walk.room_changes:,} | {walk.masked:,}"
        print(f"| {walk.what} | {counts} | {modules} / {functions}{', missed' if walk.over else ''} |")
    for walk in walks if names else ():
        print(f"\n{walk.what}, functions entered by module:")
        for name, count in sorted(walk.names.items()):
            print(f"  {count:4} {name}")


def _walks(base: Path) -> list[Walk]:
    project = stand.project_of(base / "shop", stand.with_a_spec(base / "shop", 5))
    env = stand.environment(base, project)
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "begin"]):
        stand.output_of(["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words], cwd=project, env=env)
    stand.output_of(["git", "init", "--quiet", "--bare", str(base / "remote.git")], cwd=base, env=env)
    stand.output_of(["git", "remote", "add", "origin", str(base / "remote.git")], cwd=project, env=env)
    run_id = stand.begin(project, env)["run_id"]
    event = {"session_id": SESSION, "cwd": str(project), "hook_event_name": "SessionStart", "source": "compact"}
    start = _walk("SessionStart", base, project, env, ["hook", "session-start"], json.dumps(event), bare=True)
    ended = _walk("done", base, project, env, ["done"], "The step is done; nothing is left open.", bare=False)
    pushed = _walk(
        "push", base, project, {**env, "CLAUDE_CODE_SESSION_ID": ""}, ["push", run_id, "--yes"], "", bare=False
    )
    return [start, ended, pushed]


def _walk(
    what: str,
    base: Path,
    project: Path,
    env: Mapping[str, str],
    words: Sequence[str],
    given: str,
    *,
    bare: bool = False,
) -> Walk:
    out = base / f"{what}.json"
    command = [sys.executable, "-I", *(["-S"] if bare else []), "-c", _TRACER, PACKAGE, str(out), MAIN, *words]
    done = subprocess.run(command, input=given, cwd=project, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{what}: exit {done.returncode}: {done.stderr[-800:]}")
    calls: list[list[str]] = json.loads(out.read_text(encoding="utf-8"))
    return _counted(what, calls)


def _counted(what: str, calls: Sequence[Sequence[str]]) -> Walk:
    entered = {(path, name) for _, path, name in calls}
    modules = collections.Counter(path.removeprefix(PACKAGE) for path, _ in entered)
    changes = sum(_room(before) != _room(path) for before, path, _ in calls if before)
    masked = sum(name.partition(":")[0] == MASKING for _, _, name in calls)
    return Walk(what, len(modules), len(entered), len(calls), changes, masked, dict(modules))


def _room(path: str) -> str:
    return path.removeprefix(PACKAGE).partition(os.sep)[0]


if __name__ == "__main__":
    raise SystemExit(main())
