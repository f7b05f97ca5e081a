"""What of a piece of work stands in the model's next request after each event, in the real assistant.

    python benchmarks/survival.py [--sizes 4,12,30,60] [--who loom,memory,core,default,line,read,nothing] [--events …]
                                  [--bundle NAME=FOLDER] [--words] [--json]

The work has 100 facts, each a sentence of its own: 50 in a specification of so many kB, 20 decisions, 12 tasks, 13
criteria, the goal, and four in the next step. Each cell is a machine made from nothing, with the assistant that
LOOM_TEST_CLAUDE names (else the one that ./scripts/test has installed) and a scripted API on loopback.

Who: `loom`, this checkout, with a workflow that declares the four files; `memory`, the same after `loomctl memory on`;
`core`, `default`, `bugfix` and the others that are bundled, as they are, at their longest step: the specification, with
its task list of which three are done, and the work item, with all else, are registered, nothing is declared, and what
`loomctl done` asks for is read on before an edit;
`line`, a CLAUDE.md that imports the four files and holds the goal and the next step; `read`, no tool, the model has
Read the four files; `nothing`; a bundle is a plugin of another folder, the files lie in the project; one with a
loomctl in it is another Loom, and does what `loom` does.

Columns: the share of facts that stand in the next request, before the model does anything (after `/loom:resume`: behind
its first `loomctl next`); in brackets the share that
does or whose file is named there; sentences that an edit has outdated and that stand in it (in a diff: not the lines
that it takes out); bytes, the request's beyond what `nothing` has there; whether the user was told; and whether Loom's
receipt says what the request shows. Where a conversation goes on as it was (resumed, an edit between prompts), what was
given before is left out of stale and bytes. The exit code is 1 where Loom misses a goal: 100 present (on a new machine:
reachable, and present after `/loom:resume`; of more than its room: reachable), none stale, no more than 1.15 of the
files' bytes and 3,600, the list of Loom's skills among them (of a bundled workflow 13,000, for it gives its state,
plan and protocol, too), receipts that are right, the task at hand named. With --words the table gives instead how many
words were put in beside the lines of the files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import stand  # noqa: E402
from tests.e2e.assistant import Assistant, Conversation, Machine  # noqa: E402
from tests.e2e.scripted_api import AUTO_COMPACT, Reply, Request, ScriptedApi, bash, reply, tool  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Given = tuple[Sequence[Request], list[str]]

DONE = 3  # tasks of a bundled workflow's specification that are ticked


class Way(NamedTuple):
    """How a bundled workflow comes to the step at which it is measured: so many ends, the last one in branches.

    section: of the specification, which it goes through; more: what else that needs; registers: beside both files.
    """

    step: str
    ends: int
    section: str = "Tasks"
    more: str = ""
    registers: str = ""
    branches: tuple[str, ...] = ()


BUNDLED = {
    "core": Way("build/implement", 2),
    "default": Way("build/implement", 4),
    "bugfix": Way("build/mend", 2, registers="--artifact test_path=docs/test.txt"),
    "docs": Way("build/write", 1, "Pages"),
    "migration": Way("build/migrate", 2, "Migrate", "\n## Verify\n\n- [ ] Look at every lamp.\n"),
    "refactor": Way("build/move", 2, "Moves"),
    "review": Way("evaluate/judge", 1, branches=("correctness", "security", "tests", "simplicity")),
    "spike": Way("build/explore", 1),
    "tdd": Way("build/green", 2),
}
FILES = {"spec": "docs/spec.md", "decisions": "docs/decisions.md", "tasks": "docs/tasks.md", "criteria": "docs/done.md"}
ROOM = 30_000
"""Characters of a specification that Loom promises to bring back in full by its hooks."""
PRINTED = 20_000
"""Characters of a specification that `loomctl done` prints as it is registered; it asks for the rest to be read."""


def spec_facts(version: int = 0) -> list[str]:
    """Give the 50 facts of the specification; an edit changes every fifth."""
    limits = [113 + number * 7 + (version if number % 5 == 0 else 0) for number in range(50)]
    return [f"Relay {number:02} of the station answers within {limit} ms." for number, limit in enumerate(limits)]


def spec(kilobytes: int, version: int = 0) -> str:
    """Write a specification of so many kB (of 1,000), its facts spread over its sections."""
    room = kilobytes * 1_000 - 40
    parts = []
    for number, fact in enumerate(spec_facts(version)):
        head = f"\n## Section {number // 5 + 1}\n\n" if number % 5 == 0 else ""
        told = f"{head}- {fact}\n"
        words = f" How paragraph {number} came about is told here, so that the text has its size."
        missing = room // 50 - len(told) - 1
        parts.append(told + (words * (missing // len(words) + 1))[: max(0, missing)].strip() + "\n" * (missing > 0))
    return "# The relays of the station\n" + "".join(parts)


DECISIONS = [f"Decision {number:02}: channel {number * 31 % 97} is kept for maintenance." for number in range(20)]
TASKS = [f"Task {number:02}: wire the panel {number * 17 % 89} and label it." for number in range(12)]
CRITERIA = [f"Criterion {number:02}: lamp {number * 13 % 83} is lit after a cold start." for number in range(13)]
GOAL = "renew the relays of station 47 before the frost"
NEXT = [f"Look at cabinet {number} first, for its door stands open." for number in (71, 72, 73, 74)]


def facts(version: int = 0) -> dict[str, list[str]]:
    """Give all facts by the file that holds them; those of the run itself under ""."""
    kept = {"decisions": DECISIONS, "tasks": TASKS, "criteria": CRITERIA}
    return {
        "docs/spec.md": spec_facts(version),
        **{FILES[name]: told for name, told in kept.items()},
        "": [GOAL, *NEXT],
    }


REGISTERED = {"specification": "docs/spec.md", "work-item": "docs/work.md"}
"""Where a bundled workflow's files stand, by the critical artifact that stands for each."""


def registered_facts(version: int = 0) -> dict[str, list[str]]:
    """Give all facts by the registered file that holds them."""
    return {
        REGISTERED["specification"]: [*spec_facts(version), *TASKS],
        REGISTERED["work-item"]: [*DECISIONS, *CRITERIA, *NEXT],
        "": [GOAL],
    }


LATER = ("resumed, changed", "edited between prompts")
"""Events after which the conversation stands as it was: what is outdated in it is asked of the news alone."""


class Cell(NamedTuple):
    """What was seen. room: bytes that are allowed; told: lines to the user; receipt: None where there is none.

    words: of all that was put in, but for what are lines of the files; task: whether the one at hand, if any, is named.
    """

    who: str
    event: str
    size: int
    present: int
    reachable: int
    stale: int
    bytes: int
    room: int
    told: int
    receipt: bool | None
    words: int
    task: bool = True


class Size(NamedTuple):
    """How long a request is."""

    bytes: int = 0
    words: int = 0


class Work:
    """One contender's work in a project on a machine of its own."""

    def __init__(self, base: Path, who: str, plugin: Path | None, api: ScriptedApi, kilobytes: int) -> None:
        self.who, self.kilobytes, self.version = who, kilobytes, 0
        self.is_looms = plugin is not None and (plugin / "bin" / "loomctl").is_file()
        self.files = REGISTERED if who in BUNDLED else FILES
        machine = Machine(root=base / "a", cache=Path(os.environ["XDG_CACHE_HOME"]))
        self.assistant = Assistant(
            binary=os.environ["LOOM_TEST_CLAUDE"],
            machine=machine,
            project=machine.project(),
            api=api,
            plugin_dir=plugin,
        )
        self._write()

    def _write(self) -> None:
        listed = {"decisions": DECISIONS, "tasks": TASKS, "criteria": CRITERIA}
        (self.project / "docs").mkdir()
        if self.who in BUNDLED:
            listed = {}
            said = "\n".join(f"- {fact}" for fact in (*DECISIONS, *CRITERIA, *NEXT))
            (self.project / REGISTERED["work-item"]).write_text(f"# The work\n\n{said}\n", encoding="utf-8")
            (self.project / "docs/test.txt").write_text("It fails.\n", encoding="utf-8")
        for name, told in listed.items():
            lines = "\n".join(f"- {fact}" for fact in told)
            (self.project / FILES[name]).write_text(f"# The {name}\n\n{lines}\n", encoding="utf-8")
        self.edit(0)
        if self.who == "line":
            imports = "\n".join(f"@{path}" for path in FILES.values())
            (self.project / "CLAUDE.md").write_text(f"{imports}\n\n{GOAL}\n\n{' '.join(NEXT)}\n", encoding="utf-8")
        if self.is_looms and self.who not in BUNDLED:
            rules = [
                {"id": name, "type": "markdown", "path": path, "description": f"the {name}", "required": name == "spec"}
                for name, path in FILES.items()
            ]
            triggers = ["session_start", "compaction_detected", "phase_start"]
            always = [{**rule, "reload_triggers": triggers} for rule in rules]
            steps = [{"id": "look", "prompt": " ".join(NEXT)}, {"id": "wire", "prompt": "Wire it."}]
            workflow = {"critical_artifacts": {"always_load": always}, "phases": {"build": {"steps": steps}}}
            place = self.project / ".loom/workflows/survival.json"
            place.parent.mkdir(parents=True)
            place.write_text(json.dumps({"id": "survival", "description": "Relays", **workflow}), encoding="utf-8")
        self.assistant.machine.command("git", "add", "-A", cwd=self.project)
        self.assistant.machine.command("git", "commit", "-q", "-m", "Plan", cwd=self.project)

    @property
    def project(self) -> Path:
        """The project's folder on the machine that works on it now."""
        return self.assistant.project

    def edit(self, version: int) -> None:
        """Give the specification other facts."""
        self.version = version
        (self.project / FILES["spec"]).write_text(self.spec(version), encoding="utf-8")

    def spec(self, version: int) -> str:
        """Write the specification, of a bundled workflow with its task list."""
        text = spec(self.kilobytes, version)
        if self.who in BUNDLED:
            boxes = (f"- [{'x' if at < DONE else ' '}] {fact}\n" for at, fact in enumerate(TASKS))
            way = BUNDLED[self.who]
            text += f"\n## {way.section}\n\n{''.join(boxes)}{way.more}"
        return text

    @property
    def facts(self) -> dict[str, list[str]]:
        """The facts as they are now, by the file that holds them."""
        return registered_facts(self.version) if self.who in BUNDLED else facts(self.version)

    def _to_its_step(self) -> list[Reply | str]:
        """End every step before the one that is measured, and register both files."""
        way = BUNDLED[self.who]
        options = f"--artifact work_path=docs/work.md --artifact spec_path=docs/spec.md {way.registers}"
        ends = [f"loomctl done {options}"] * way.ends
        ends += [f"loomctl next --branch {name}\nloomctl done --branch {name}" for name in way.branches]
        # Each call has an id of its own.
        return [reply(bash(f"{end} <<'EOF'\nDone as asked.\nEOF")) for end in ends]

    def begin(self) -> Conversation:
        """Open a session and let it take up the work."""
        session = self.assistant.conversation("--allowedTools", "Bash,Read")
        answers: list[Reply | str] = ["Under way."]
        if self.is_looms:
            answers.insert(0, reply(bash("loomctl next")))
        if self.who in BUNDLED:
            answers[1:1] = self._to_its_step()
        workflow = self.who if self.who in BUNDLED else "survival"
        if self.who == "read":
            answers[:0] = [reply(tool("Read", file_path=str(self.project / path))) for path in FILES.values()]
        session.say(f"/loom:run {GOAL} --workflow {workflow}" if self.is_looms else "begin", *answers)
        if self.who in BUNDLED and self._state()["current_step"] != BUNDLED[self.who].step:
            raise SystemExit(f"{self.who} stands at {self._state()['current_step']}")
        if self.who == "memory":
            self.loomctl("memory", "on", "--yes")
        return session

    def rest_that_is_asked_for(self) -> list[Reply | str]:
        """Read on in a specification of which `loomctl done` printed the beginning, as it asks."""
        if self.who not in BUNDLED or len(self.spec(self.version)) <= PRINTED:
            return []
        return [reply(tool("Read", file_path=str(self.project / FILES["spec"])))]

    def _state(self) -> dict[str, Any]:
        (state,) = self.project.glob(".loom/runs/*/state.json")
        found: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
        return found

    def loomctl(self, *words: str) -> str:
        """Run a command of Loom as the user would in a terminal."""
        launcher = f"{self.assistant.plugin_dir}/bin/loomctl"
        return self.assistant.machine.command(launcher, *words, cwd=self.project)

    def move(self, how: str) -> None:
        """Take the project to another machine: copied with all that is in it, or by `git clone` (Loom: push, pull)."""
        old = self.assistant
        machine = Machine(root=old.machine.root.parent / "b", cache=old.machine.cache, name="machine-b")
        there = machine.root / "elsewhere" / "project"
        if how == "copy":
            shutil.copytree(old.project, there, symlinks=True)
        else:
            bare = machine.root / "origin.git"
            machine.command("git", "clone", "-q", "--bare", str(old.project), str(bare), cwd=machine.root)
            old.machine.command("git", "remote", "add", "origin", str(bare), cwd=old.project)
            if self.is_looms:
                self.loomctl("push", "--yes")
            machine.command("git", "clone", "-q", str(bare), str(there), cwd=machine.root)
        self.assistant = replace(old, machine=machine, project=there)
        if how == "clone" and self.is_looms:
            self.loomctl("pull")


def main_request(requests: Sequence[Request], *, after_compactions: int = 0) -> Request:
    """Give the first request of the conversation; after so many compactions of that turn."""
    for at, request in enumerate(requests):
        if request.kind == "main" and [one.kind for one in requests[:at]].count("compaction") >= after_compactions:
            return request
    raise SystemExit(f"no such request among {[request.kind for request in requests]}")


def compact(work: Work) -> Given:
    """`/compact`, then a prompt."""
    session = work.begin()
    _, told = session.say("/compact")
    requests, more = session.say("go on")
    session.end()
    return [main_request(requests)], told + more


def automatic(work: Work) -> Given:
    """An automatic compaction in the middle of a turn."""
    session = work.begin()
    answers: list[Reply | str] = [reply(bash("true"), usage=AUTO_COMPACT), reply(bash("true")), "finished"]
    requests, told = session.say("go on", *answers)
    session.end()
    return [main_request(requests, after_compactions=1)], told


def thrice(work: Work) -> Given:
    """Three automatic compactions in one turn, the specification changed by the assistant before each."""
    session = work.begin()
    answers: list[Reply | str] = []
    for version in (1, 2, 3):
        changed = work.assistant.machine.root / f"spec-{version}.md"
        changed.write_text(work.spec(version), encoding="utf-8")
        answers += [reply(bash(f"cp '{changed}' {FILES['spec']}")), reply(bash("true"), usage=AUTO_COMPACT)]
    work.version = 3
    requests, told = session.say("go on", *answers, reply(bash("true")), "finished")
    session.end()
    return [main_request(requests, after_compactions=3)], told


def clear(work: Work) -> Given:
    """`/clear`, then a prompt."""
    session = work.begin()
    _, told = session.say("/clear")
    requests, more = session.say("go on")
    session.end()
    return [main_request(requests)], told + more


def killed(work: Work) -> Given:
    """The session is killed; a new one begins."""
    session = work.begin()
    session.kill()
    fresh = work.assistant.conversation()
    requests, told = fresh.say("go on")
    fresh.end()
    return [main_request(requests)], told


def resumed(work: Work) -> Given:
    """The session ends; it is resumed, the specification changed in between."""
    session = work.begin()
    session.end()
    work.edit(1)
    again = work.assistant.conversation("--resume", session.session_id)
    requests, told = again.say("go on")
    again.end()
    return [main_request(requests)], told


def edited(work: Work) -> Given:
    """Somebody edits the specification between two prompts."""
    session = work.begin()
    session.say("go on", *work.rest_that_is_asked_for(), "Under way.")
    work.edit(1)
    requests, told = session.say("and on")
    session.end()
    return [main_request(requests)], told


def moved(how: str, *, taken_up: bool) -> Callable[[Work], Given]:
    """Make an event: the project on another machine, a new session there; taken_up: after `/loom:resume`."""

    def happens(work: Work) -> Given:
        session = work.begin()
        session.say("go on")
        session.end()
        work.move(how)
        session = work.assistant.conversation("--allowedTools", "Bash")
        prompt = "go on"
        answers: list[Reply | str] = []
        if taken_up and work.is_looms:
            prompt = "/loom:resume"
            answers = [reply(bash("loomctl next")), "Under way."]
        requests, told = session.say(prompt, *answers)
        session.end()
        main = [request for request in requests if request.kind == "main"]
        return [main[len(answers[:1])]], told

    return happens


EVENTS: dict[str, Callable[[Work], Given]] = {
    "/compact": compact,
    "automatic compaction": automatic,
    "three in a turn, changed": thrice,
    "/clear": clear,
    "killed, new session": killed,
    "resumed, changed": resumed,
    "edited between prompts": edited,
    "laptop, copied": moved("copy", taken_up=False),
    "laptop, cloned": moved("clone", taken_up=False),
    "copied, /loom:resume": moved("copy", taken_up=True),
    "cloned, /loom:resume": moved("clone", taken_up=True),
}


def judged(work: Work, event: str, given: Given, empty: Size) -> Cell:
    """Look at the request. empty: its size where nothing was put in."""
    (request,), told = given
    whole = f"{request.system()}\n{request.seen()}"
    every = work.facts
    present = sum(fact in whole for listed in every.values() for fact in listed)
    named = sum(fact in whole or is_named(path, whole) for path, listed in every.items() for fact in listed)
    window = request.news() if event in LATER else whole
    old = {fact for version in range(work.version) for fact in spec_facts(version)} - set(spec_facts(work.version))
    lines = [line for line in window.splitlines() if not line.startswith("-- ")]
    stale = sum(line.count(fact) for line in lines for fact in old if fact in line)
    files = sum((work.project / path).stat().st_size for path in work.files.values())
    receipt = receipt_is_right(work, event, whole) if work.is_looms else None
    put_in = window if event in LATER else whole
    size = len(put_in.encode()) - empty.bytes
    words = len(put_in.split()) - empty.words - words_of_files(work, put_in)
    room = int(files * 1.15) + (13_000 if work.who in BUNDLED else 3_600)
    task = task_is_named(work, whole)
    return Cell(work.who, event, work.kilobytes, present, named, stale, size, room, len(told), receipt, words, task)


def task_is_named(work: Work, seen: str) -> bool:
    """Tell whether the task at hand is named; True where there is none."""
    states = sorted(work.project.glob(".loom/runs/*/state.json")) if work.who in BUNDLED else []
    steps = json.loads(states[-1].read_text(encoding="utf-8"))["steps"] if states else []
    task = steps[-1].get("task") if steps else None
    return not task or f"task {task['number']} of {task['of']}" in seen


def words_of_files(work: Work, seen: str) -> int:
    """Count the words of the files' lines that stand in a text, each line once."""
    lines = {
        line for path in work.files.values() for line in (work.project / path).read_text(encoding="utf-8").splitlines()
    }
    return sum(len(line.split()) for line in lines if line.strip() and line in seen)


def is_named(path: str, seen: str) -> bool:
    """Tell whether a file is named; what the run itself holds is reached by the command that takes it up."""
    return path in seen if path else "/loom:resume" in seen or "loomctl next" in seen


STARTS = {
    "/compact": "compact",
    "automatic compaction": "compact",
    "three in a turn, changed": "compact",
    "/clear": "clear",
    "killed, new session": "startup",
    "resumed, changed": "resume",
    "copied, /loom:resume": "move",
    "cloned, /loom:resume": "move",
}
"""The receipt that is looked for after an event. A run that was not taken up here is announced, and has none yet."""


def receipt_is_right(work: Work, event: str, seen: str) -> bool | None:
    """Hold Loom's newest receipt against what the request shows, artifact by artifact; None where none is due.

    Of another Loom, that knows none, there is none either.
    """
    if event not in STARTS:
        return None
    launcher = f"{work.assistant.plugin_dir}/bin/loomctl"
    shown = subprocess.run(
        [launcher, "prove", "--json"],
        cwd=work.project,
        env=work.assistant.machine.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    proof = json.loads(shown.stdout)
    if "starts" not in proof:
        return None
    newest: dict[str, Any] = proof["starts"][-1] if proof["starts"] else {"event": "", "artifacts": {}}
    every = work.facts
    fates = {}
    for name, path in work.files.items():
        whole = all(fact in seen for fact in every[path])
        fates[name] = ("present", "restored") if whole else ("reachable",) if path in seen else ("lost",)
    told = newest["artifacts"]
    return newest["event"] == STARTS[event] and all(told.get(name) in fates[name] for name in work.files)


def measured(base: Path, who: str, plugin: Path | None, event: str, size: int, empty: Size) -> Cell:
    """Play one event for one contender."""
    base.mkdir()
    with ScriptedApi() as api:
        work = Work(base, who, plugin, api, size)
        try:
            return judged(work, event, EVENTS[event](work), empty)
        finally:
            shutil.rmtree(base, ignore_errors=True)


def misses(cell: Cell) -> list[str]:
    """Say which goals one of Loom's cells misses."""
    by_hooks = cell.who != "memory" or cell.event in ("edited between prompts", "cloned, /loom:resume")
    is_far = cell.event.startswith("laptop") or (by_hooks and cell.size * 1_000 > ROOM)
    share = cell.reachable if is_far else cell.present
    found = [] if share == 100 else ["facts"]
    found += ["stale"] if cell.stale else []
    found += ["bytes"] if cell.bytes > cell.room else []
    found += ["receipt"] if cell.receipt is False else []
    return found if cell.task else [*found, "task"]


def shown(cells: Sequence[Cell], *, words: bool = False) -> str:
    """Lay the cells out as a table of Markdown, a row for each event and contender, a column for each size."""
    if words:
        return in_words(cells)
    sizes = sorted({cell.size for cell in cells})
    rows = list(dict.fromkeys((cell.event, cell.who) for cell in cells))
    lines = ["| after | who | " + " | ".join(f"{size} kB" for size in sizes) + " | user told | receipts |"]
    lines.append("|" + "---|" * (len(sizes) + 4))
    for event, who in rows:
        of_row = {cell.size: cell for cell in cells if (cell.event, cell.who) == (event, who)}
        told = "yes" if all(cell.told for cell in of_row.values()) else "-"
        known = [cell.receipt for cell in of_row.values()]
        right = "-" if None in known or not known else "right" if all(known) else "WRONG"
        told_of = " | ".join(_said(of_row[size]) if size in of_row else "" for size in sizes)
        lines.append(f"| {event} | {who} | {told_of} | {told} | {right} |")
    return "\n".join(lines)


def in_words(cells: Sequence[Cell]) -> str:
    """Lay out the words of each contender beside the files', a row for each event, at the smallest size."""
    smallest = [cell for cell in cells if cell.size == min(one.size for one in cells)]
    whos = list(dict.fromkeys(cell.who for cell in smallest))
    lines = ["| words after | " + " | ".join(whos) + " |", "|" + "---|" * (len(whos) + 1)]
    for event in dict.fromkeys(cell.event for cell in smallest):
        of_event = {cell.who: f"{cell.words:,}" for cell in smallest if cell.event == event}
        lines.append(f"| {event} | " + " | ".join(of_event.get(who, "") for who in whos) + " |")
    return "\n".join(lines)


def _said(cell: Cell) -> str:
    reach = f" ({cell.reachable})" if cell.reachable != cell.present else ""
    stale = f", {cell.stale} stale" if cell.stale else ""
    return f"{cell.present}{reach}{stale}; {cell.bytes / 1_000:.1f} kB"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4,12,30,60")
    parser.add_argument("--who", default="loom,memory,core,default,line,read,nothing")
    parser.add_argument("--events", default=",".join(event.replace(",", "") for event in EVENTS))
    parser.add_argument("--bundle", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [event for event in EVENTS if event.replace(",", "") in options.events.split(",")]
    sizes = [int(size) for size in options.sizes.split(",")]
    cells = list[Cell]()
    with stand.folder() as base:
        bundle = stand.clean_copy(base / "loom")
        stand.prepared(base, bundle)
        plugins: dict[str, Path | None] = dict.fromkeys(options.who.split(","))
        plugins |= {who: bundle for who in ("loom", "memory", *BUNDLED) if who in plugins}
        plugins |= {name: Path(folder) for name, _, folder in (one.partition("=") for one in options.bundle)}
        for event in chosen:
            bare = measured(base / "cell", "nothing", None, event, sizes[0], Size())
            empty = Size(bare.bytes, bare.words)
            for who, plugin in plugins.items():
                for size in sizes:
                    cells.append(measured(base / "cell", who, plugin, event, size, empty))
                    print(" ".join(map(str, cells[-1])), file=sys.stderr)
    missed = [(cell, misses(cell)) for cell in cells if cell.who in ("loom", "memory", *BUNDLED) and misses(cell)]
    if options.json:
        print(json.dumps({"cells": [cell._asdict() for cell in cells], "missed": len(missed)}))
    else:
        print(shown(cells, words=options.words))
        print(
            *(f"missed: {cell.who}, {cell.event}, {cell.size} kB: {', '.join(what)}" for cell, what in missed), sep="\n"
        )
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
