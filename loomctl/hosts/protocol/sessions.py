"""A session as it begins, comes back, or is compacted: what is recorded of it, and what it is given.

A compaction goes PreCompact → SessionStart(compact) → PostCompact; the last has the summary.
"""

from __future__ import annotations

import os

from loomctl.hosts import asking
from loomctl.hosts.asking import Answer, written
from loomctl.hosts.protocol import events
from loomctl.hosts.protocol.events import attempt, text
from loomctl.kit.errors import LoomError
from loomctl.kit.processes import HOOK_PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.priming.slip import Budget, Slip
    from loomctl.runs.find import Found
    from loomctl.runs.model.lease import Holder
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.events import Event as Happening
    from loomctl.runs.store.store import Run
    from loomctl.workflows.triggers import Event


class Given(NamedTuple):
    """What an event gives: text for the model, a line for people (each may be empty), and the slip that it came of."""

    text: str
    line: str
    slip: Slip | None = None


def start(space: Workspace, event: dict[str, Any], room: int = 0) -> Given | None:
    """Record and prime a session of a run; announce what may not be primed; say nothing where nothing is active.

    room: UTF-16 units of what is given; 0 for as much as the host takes at a start.
    """
    from loomctl.runs import find, leases
    from loomctl.runs.machine import run_notes

    source = text(event, "source")[:80] or "startup"
    session_id = space.caller.session_id
    notes = list(filter(None, [events.digest(space)]))
    attempt(notes, lambda: _inherit(space, source))
    before = space.local.primed(session_id)
    notes += filter(None, [text(before, "untold")])
    if source in ("compact", "clear"):
        from loomctl.priming import memory_of_session

        attempt(notes, lambda: memory_of_session.forget(space))
    found = find.find(space, over=False)
    run_id = found.run_id
    if run_id is None or not run_notes.is_known(run_id, space.store.folder):
        return _announce(space, found)
    damaged = space.local.damaged_binding(session_id)
    if damaged:
        way = f"loomctl resume {space.store.handle(run_id)}"
        notes.append(f"Loom cannot read which run this session works on: {damaged}; {way} repairs that")
    if asking.host().sandbox:
        from loomctl.runs import leases

        attempt(notes, lambda: leases.note_gone(space, run_id))
    if not found.may_write:
        holders = space.local.live_sessions(run_id, but=session_id, conversing=True)
        if holders:
            run = space.store.read(run_id)
            return _beside(space, run, holders, space.store.held(run_id, run.state))
        return prime(space, run_id, _facts(space, run_id, source), notes, may_write=False, begun=source, room=room)
    environment = leases.surroundings(space) if source != "compact" else {}
    path = text(event, "transcript_path") or None
    given = enter_and_prime(space, run_id, source, environment, text(before, "compacting"), path, notes, room)
    if source == "compact" and space.caller.conversation.summary():  # of which no event of its own tells
        attempt([], lambda: after_compaction(space, event))
    return given


def _announce(space: Workspace, found: Found) -> Given | None:

    if found.run_id is not None:
        line = unknown_run(space, found.run_id)
        return Given(line, line.partition("\n")[0])
    if not found.candidates and not found.unreadable:
        return None
    line = (
        candidates(space, found.candidates) if found.candidates else unreadable(space.store.handle(found.unreadable[0]))
    )
    return Given(line, line)


def _beside(space: Workspace, run: Run, holders: Sequence[str], driver: Holder | None) -> Given:

    from loomctl.runs import find

    line, way = held_elsewhere(space, run, holders, driver), find.way_in(space, run.run_id)
    return Given(beside(run, line, way), line)


def _inherit(space: Workspace, source: str) -> None:
    """Bind a new session as the one it comes from (D2): of the same process, as after `/clear`, or a fork's parent."""
    session_id, pid = space.caller.session_id, space.caller.pid
    if session_id is None or space.local.binding(session_id) is not None:
        return
    parent = None
    if source == "fork":
        parent = space.local.binding(_parent_session(pid))
    elif pid is not None and (source == "clear" or not space.caller.shared):
        parent = space.local.of_process(pid)
        if parent is not None and not asking.host().clears and not parent.get("ended"):
            parent = None  # a second conversation of the process, and not the one after a clear
        if parent is not None and space.caller.shared and _worked_since(space, parent["session_id"]):
            parent = None  # another of the process, in another terminal, was cleared
    if parent is not None:
        origin, run_id = parent["session_id"], parent["run_id"]
        if source != "fork" and asking.host().sandbox:
            from loomctl.runs import leases

            attempt([], lambda: leases.note_process(space, run_id, origin))
        shared = {"shared": True} if space.caller.shared else {}
        space.local.bind(session_id, run_id, host=space.caller.host, pid=pid, inherited_from=origin, **shared)
        if shared:
            space.local.mark_ended(origin)  # elsewhere a process has one session, its latest


def _worked_since(space: Workspace, session_id: str) -> bool:
    """Tell whether the last turn here was another session's."""
    from loomctl.runs.machine import launcher_files

    beats = launcher_files.beats(space.store.local)
    turns = [beat for event, beat in beats.items() if event in ("user-prompt-submit", "stop")]
    return bool(turns) and max(turns, key=lambda beat: beat.at).session_id != session_id


def _parent_session(pid: int | None) -> str | None:
    """Find a fork's parent in the host's arguments: `--resume ID`, `--resume=ID`, `-r ID`."""
    from loomctl.kit import processes

    arguments = processes.arguments(pid) if pid else []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument in ("--resume", "-r") or argument.startswith("--resume="):
            said = following if "=" not in argument else argument.partition("=")[2]
            fits = 0 < len(said) <= 100 and all(c.isascii() and (c.isalnum() or c in "-_") for c in said)
            return said if fits else None
    return None


def enter_and_prime(
    space: Workspace,
    run_id: str,
    source: str,
    environment: Mapping[str, Any],
    compaction: str,
    transcript_path: str | None,
    notes: list[str],
    room: int = 0,
) -> Given:
    """Record the session and prime it in one update of the state; the text goes out even if it cannot be recorded.

    environment: this machine, as the session's record describes it. compaction: "auto" or "manual", as PreCompact said;
    after an automatic one the turn goes on, and the final message of a closing step is still to come (D27).
    """
    from loomctl.priming import memory_of_session, prime_run
    from loomctl.runs import leases

    space = leases.entering(space)
    run = space.store.read(run_id)

    def enter(state: State) -> tuple[State, list[Happening]]:
        return leases.enter(space, state, source, environment, compaction=compaction or "auto")

    driver = space.store.held(run_id, run.state)
    if driver is not None:
        attempt(notes, lambda: space.store.update(run_id, enter, durable=False, patience=HOOK_PATIENCE))
        given = _beside(space, run, (), driver)
        return given._replace(line="; ".join([given.line, *notes]))
    entry = visits.open_visit(run.state)
    in_a_turn = source == "compact" and compaction == "auto"
    if entry is not None and entry["status"] == "closing" and not in_a_turn:
        # Before the priming, which shows what stands on disk.
        from loomctl.hosts.protocol import stop

        closed = attempt(notes, lambda: stop.close_at_a_start(space, run))
        notes.extend([closed.removeprefix("Loom: ")] if closed else [])
        run = space.store.read(run_id)
    made = list["Slip"]()
    notes += prime_run.newer_writer(run.state)
    budget, started = _budget(space, room=room), _facts(space, run_id, source)

    def change(state: State) -> tuple[State, list[Happening]]:
        state, came = enter(state)
        here = run._replace(state=state)
        made[:] = [prime_run.prime(space, here, _with_owed(started, state), budget, may_write=True)]
        if source == "compact":
            from loomctl.priming import survive  # most starts follow no compaction

            state = survive.with_receipt(space, here, made[0])
        state, primed = memory_of_session.with_priming(space, state, made[0])
        return state, [*came, *primed]

    after = attempt(notes, lambda: space.store.update(run_id, change, durable=False, patience=HOOK_PATIENCE))
    if not made:
        made.append(prime_run.prime(space, run, started, budget, may_write=True))
    state = run.state if after is None else after
    attempt(notes, lambda: leases.note_stage(space, state, transcript_path=transcript_path, told=bool(made[0].text)))
    return _deliver(space, made[0], notes, source)


def _facts(space: Workspace, run_id: str, source: str) -> Event:
    """Give what a start makes happen.

    One that resumes a conversation in which a compaction left nothing of Loom's is the first to see that.
    """
    from loomctl.priming import memory_of_session
    from loomctl.workflows import triggers

    was_primed = source == "resume" and space.local.primed(space.caller.session_id).get("run_id") == run_id
    was_compacted = was_primed and space.caller.conversation.boundary() is not None
    if was_compacted and not memory_of_session.held(space, run_id).any_slip:  # it looks behind the boundary alone
        source = "compact"
    return triggers.session_start(source)


def _with_owed(event: Event, state: State) -> Event:
    if "pending_triggers" not in state:
        return event
    from loomctl.flow import settle  # most runs owe nothing

    return settle.with_owed(event, state)


def prime(
    space: Workspace, run_id: str, event: Event, notes: list[str], *, may_write: bool, begun: str, room: int = 0
) -> Given:
    """Prime a session whose record need not change. begun: as `memory_of_session.remember` has it; room: as `start`."""
    from loomctl.priming import memory_of_session, prime_run
    from loomctl.runs import leases

    run = space.store.read(run_id)
    may_write = may_write and space.store.held(run_id, run.state) is None
    event = _with_owed(event, run.state) if may_write else event
    made = prime_run.prime(space, run, event, _budget(space, room=room), may_write=may_write)

    def change(state: State) -> tuple[State, list[Happening]]:
        return memory_of_session.with_priming(space, state, made)

    if may_write:
        store = leases.watching(space).store
        attempt(notes, lambda: store.update(run_id, change, durable=False, patience=HOOK_PATIENCE))
        if made.text:
            attempt(notes, lambda: leases.note_stage(space, run.state))
    return _deliver(space, made, notes, begun)


def _budget(space: Workspace, parts: int = 0, room: int = 0) -> Budget:
    """Give how much the host takes of what is told now, or of so many parts, each of so much room."""
    from loomctl.priming import prime_run

    return prime_run.hook_budget(space, parts or space.caller.parts, room or asking.host().room)


def _deliver(space: Workspace, made: Slip, notes: list[str], begun: str) -> Given:
    from loomctl.priming import memory_of_session, prime_run

    attempt(notes, lambda: memory_of_session.remember(space, made, begun))
    line = "; ".join([prime_run.one_line_for_people(made), *(masked_line(note, 600) for note in notes)])
    return Given(made.text, line, made)


def before_compaction(space: Workspace, event: dict[str, Any]) -> str | None:
    """Tell the summariser, in plain text, what must be kept; note who asked for the compaction."""
    from loomctl.priming import prime_run
    from loomctl.runs import find
    from loomctl.runs.machine import run_notes
    from loomctl.workflows import triggers

    recorded = events.digest(space)
    is_manual = event.get("trigger") == "manual"
    untold = "; ".join(filter(None, (_judge_start(space, is_manual=is_manual), recorded)))
    found = find.find(space, over=False)
    if found.run_id is None or not run_notes.is_known(found.run_id, space.store.folder):
        return None
    session_id = space.caller.session_id
    if session_id is not None:
        noted = {**space.local.primed(session_id), "compacting": "manual" if is_manual else "auto", "untold": untold}
        attempt([], lambda: space.local.note_primed(session_id, noted))
    if os.path.isdir(os.path.join(space.store.local, "tells")):
        from loomctl.priming import messages

        attempt([], lambda: messages.look(space))
    host = asking.host()
    if host.primes_at and session_id is not None:
        from loomctl.runs.machine import session_notes

        session_notes.note_compacted(space.store.local, session_id)
    if not asking.can(host, asking.TELLS_SUMMARISER):
        return None
    run = space.store.read(found.run_id)
    budget, started = _budget(space, host.parts), triggers.session_start("compact")
    coming = prime_run.prime(space, run, started, budget, may_write=found.may_write, force=True)
    remembered = prime_run.in_memory(space, run)
    back = [entry.id for entry in coming.loaded if entry.form == "full" or entry.id in remembered]
    told = for_the_summary(run, back)
    if is_manual and host.repeats:
        return told  # the items would stand there twice
    from loomctl.priming import survive

    return told + "".join(f"{line}\n" for line in survive.for_the_summary(space, run, coming))


def _judge_start(space: Workspace, *, is_manual: bool) -> str:
    """Judge a start whose turn has not ended; gives what its user is to be told with the next start.

    A person asks for a compaction between turns. What no turn has ended since, the host has not written down yet.
    """
    session_id = space.caller.session_id
    if session_id is None or space.local.opened(session_id) is None:
        return ""
    if is_manual:
        attempt([], lambda: space.local.drop_opened(session_id))
        return ""
    from loomctl.priming import receipts  # most compactions come after a turn's end

    return attempt([], lambda: receipts.settle(space, patience=receipts.PATIENCE)) or ""


def after_compaction(space: Workspace, event: dict[str, Any]) -> str | None:
    """Look into the summary for what must survive; the next prompt, or the turn's end, tells the user what did."""
    from loomctl.priming import receipts, survive

    binding = space.local.binding(space.caller.session_id)
    if binding is None or not space.store.has(binding["run_id"]):
        return None
    if space.store.held(binding["run_id"], space.store.read_state(binding["run_id"])) is not None:
        return None  # it was taken over meanwhile, and what is lost here is nobody's loss (D64)
    try:
        summary = text(event, "compact_summary") or space.caller.conversation.summary()
        receipt = survive.judge(space, binding["run_id"], summary)
    except LoomError as error:
        if error.code != "HELD":  # else another writes just now: what is owed is noted all the same
            raise
        line = f"Loom: cannot check now what the compaction kept: {error.what}"
        return written(Answer("PostCompact", line=line))
    if receipt is not None and receipt.proven:  # what is said here, the host shows to nobody
        session_id = binding["session_id"]
        noted = {**space.local.primed(session_id), receipts.JUDGED: True}
        attempt([], lambda: space.local.note_primed(session_id, noted))
    return None


# ---- Short texts about runs that are not primed: lists, announcements, and what a summariser is told (D1, D23).

_LONGEST_NAME, _LONGEST_NAMES = 120, 300


def _typed(way: str) -> str:
    """Give a command of Loom's with its words as the host's user types it."""
    verb, space, words = way.partition(" ")
    return f"{asking.host().typed.format(verb)}{space}{words}"


def candidates(space: Workspace, run_ids: Sequence[str]) -> str:
    """List several active runs, a line each; none is guessed (D1)."""
    shown = "\n".join(f"  {space.store.handle(run_id)}" for run_id in run_ids[:10])
    more = f"\n  and {len(run_ids) - 10} more: loomctl runs" if len(run_ids) > 10 else ""
    return f"Loom: {len(run_ids)} runs are active here; {_typed('resume')} RUN continues one:\n{shown}{more}"


def unreadable(handle: str) -> str:
    """Say that a run cannot be read, instead of staying silent as if there were none."""
    return f"Loom: cannot read the state of the run {handle}; `loomctl show {handle}` says why"


def unknown_run(space: Workspace, run_id: str) -> str:
    """Announce a run that was not taken up here, with the way that is open, its step and its files' paths (D23).

    Not a word of what the files hold is given, and no path that names nothing here.
    """
    from loomctl.runs import find

    called = space.store.handle(run_id)
    way = find.way_in(space, run_id).removeprefix("loomctl ")
    held = find.driver(space, run_id) is not None
    driven = f" (another session drives it: loomctl show {called})" if held else ""
    does = "takes it over" if held else "continues it"
    line = f"Loom: the run {called} was not resumed here{driven}; {_typed(way)} {does}"
    try:
        run = space.store.read(run_id, to_show=True)
        told = [*_at_its_step(run), *_its_files(space, run)]
    except (OSError, LoomError):
        told = []
    return f"{line}\n{'; '.join(told)}" if told else line


def _at_its_step(run: Run) -> list[str]:
    from loomctl.runs.model import frozen_plan

    place = frozen_plan.place_of(run.plan, str(run.state.get("current_step") or ""))
    return [f"At step {masked_line(visits.current_step(run.state), 240)}"] if place is not None else []


def _its_files(space: Workspace, run: Run) -> list[str]:
    """Name a run's files that are here, as far as a short line goes. Whoever made the project chose their names."""
    from loomctl.expressions import state_paths
    from loomctl.priming import artifact_files
    from loomctl.runs import artifact_paths
    from loomctl.runs.artifact_paths import locate

    known = artifact_paths.placeholder_values(space.project, run)
    roots = artifact_files.roots_of(space, run)
    own = (os.path.realpath(run.state_path), os.path.realpath(run.plan_path))
    names: dict[str, None] = {}
    for artifact in run.plan["artifacts"]:
        declared = artifact.get("path")
        if artifact.get("path_steps") is not None:
            declared = state_paths.read(artifact["path_steps"], run.state)
        try:
            place = locate(declared, known, roots) if isinstance(declared, str) else None
        except LoomError:
            continue
        if place is None or place.path in own or place.shown.startswith("{plugin_root}"):
            continue
        name = masked_line(place.shown, _LONGEST_NAME + 1)
        if len(name) <= _LONGEST_NAME and "`" not in name and os.path.isfile(place.path):
            names[f"`{name}`"] = None
    fit: list[str] = []
    room = _LONGEST_NAMES
    for name in names:
        room -= len(name)
        if room < 0:
            break
        fit.append(name)
    more = f" and {len(names) - len(fit)} more" if len(names) > len(fit) else ""
    return [f"its files: {', '.join(fit)}{more}"] if fit else []


def held_elsewhere(space: Workspace, run: Run, holders: Sequence[str], driver: Holder | None) -> str:
    """Say that another live session drives a run; driver: who has its lease, if anybody."""
    if driver is not None:
        from loomctl.runs import leases

        return f"Loom: {leases.line(space, run.run_id, driver)}. Nothing of it is loaded here"
    whose = f"another session ({masked_line(holders[0], 60)})"
    return f"Loom: {whose} drives the run {run.handle}. Nothing of it is loaded here"


def beside(run: Run, line: str, way: str) -> str:
    """Tell an assistant of a run that another session drives: which, where it stands, how it is taken up (D64).

    line: who drives it; way: the command that takes it up. Its files are for those who work on it.
    """
    state = run.state
    goal = f"goal: {masked_line(str(state['goal']), 300)}" if state.get("goal") else "no goal was given"
    steps = [step for phase in run.plan["phases"] for step in phase["steps"] if not step.get("engine")]
    last = visits.last_of_each(state)
    ended = sum(visits.is_done(last.get(step["key"])) for step in steps)
    at = f", at {masked_line(visits.current_step(state), 240)}" if state.get("current_step") else ""
    standing = f"workflow {masked_line(state['workflow_id'], 120)} · {state['status']}{at}"
    typed = f"{_typed(way.removeprefix('loomctl '))} takes it over, if the user wants that"
    return "\n".join(
        [
            line,
            goal,
            f"{standing} · {ended} of {len(steps)} steps",
            "Do here what the user asks for, not that run's step. Its files go to the session that drives it.",
            f"`loomctl show {run.handle}` shows it; {typed}.",
        ]
    )


def for_the_summary(run: Run, given: Sequence[str]) -> str:
    """Tell a summariser which run this is and what must be kept; plain text.

    given: the ids of the artifacts that the priming after the compaction will give in full.
    """
    state = run.state
    at = f", step {visits.current_step(state)}".rstrip(".") if state.get("current_step") else ""
    lines = [masked_line(f"This conversation works on the Loom run {run.handle}{at}.", 500)]
    lines.append(
        "Keep in the summary: what is done and open in the step; decisions and their reasons; exact paths, names, "
        "numbers and errors that are still needed; what the user wants."
    )
    names = ", ".join(masked_line(name, 60) for name in given[:20])
    if names:
        lines.append(f"Loom loads these again in full, so do not retell them: {names}.")
    entry = visits.open_visit(state)
    if entry is not None and entry["status"] == "closing":
        key = masked_line(entry["step_id"], 120)
        lines.append(f"The step {key} has no result yet: the final message will be its result.")
    return "\n".join(lines) + "\n"
