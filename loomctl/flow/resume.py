"""Taking up a run again, here or on another machine: bound, recorded, primed, with what differs since."""

from __future__ import annotations

import os
import shlex
import shutil
from itertools import islice

from loomctl.changes import stage_changes
from loomctl.flow import lines, preambles, route, settle, turn_ends
from loomctl.flow.start import bind, others_under_way
from loomctl.kit import git, trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import memory_of_session, prime_run
from loomctl.runs import artifact_paths, find, leases, stages
from loomctl.runs.artifact_paths import Roots
from loomctl.runs.machine import run_notes
from loomctl.runs.machine.local import TERMINAL as TERMINAL_HOST
from loomctl.runs.model import frozen_plan, sessions, standing, visits
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store import run_index
from loomctl.runs.store.events import Event
from loomctl.runs.store.match import AmbiguousRunError
from loomctl.runs.tools import recording
from loomctl.workflows import refreeze, triggers

_VERB = "loomctl resume"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from loomctl.priming.slip import Slip
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Change, Run

_CHANGED = 3  # files with uncommitted changes that are named
_STAGES, _FILES, _NAMED = 20, 400, 5  # the last stages whose files are looked for, of each so many; how many are named


class Resumed(NamedTuple):
    """A run that was taken up; differences: what is not as the last session left it, a line each."""

    run: Run
    move: route.Move
    slip: Slip
    differences: list[str]
    notes: list[str]


def resume(
    space: Workspace, named: str | None = None, *, reopen: bool = False, take_over: bool = False, later: bool = False
) -> Resumed:
    """Take up a run: named, bound, or the only one that can be. Completed and cancelled ones only with `reopen` (D4).

    take_over: take it from a session that drives it and may live, whose later writes are refused. later: what is
    due is owed to the session until `next` gives it.
    Raises NO_ACTIVE_RUN, AMBIGUOUS_RUN, NO_SUCH_RUN, BAD_STATUS, BAD_PLAN for one whose steps nobody knows (D5), and
    HELD_BY_ANOTHER.
    """
    run = _to_take_up(space, _meant(space, named, reopen=reopen), reopen=reopen)
    space, run, driven = _to_drive(space, run, take_over=take_over, reopen=reopen)
    unnoted = run_notes.note_taken_up(run.run_id, space.store.folder, shut_in=space.caller.shut_in)
    notes = [*driven, *_ignored(run), *others_under_way(space, run), *leases.without_git(space)]
    notes += [unnoted] if unnoted else []
    space.store.prepare(commit_runs=space.settings.commit_runs)
    notes += recording.noted(space)
    environment = leases.surroundings(space)
    begun = "move" if sessions.was_elsewhere(run.state, environment) else "take_up"
    differs = differences(space, run, environment)
    paused = run.state["status"] == "paused"
    bound = space.local.binding(space.caller.session_id)
    bind(space, run.run_id)
    held: list[settle.Settled] = []
    came_from = run_notes.handoff(space.store.local, run.run_id)
    pulled = _pulled(space, run, came_from)
    found = turn_ends.ready(space, run, run.state) if turn_ends.is_closing_here(space, run.state) else None

    def change(state: State) -> tuple[State, list[Event]]:
        happened = refreeze.keep_migrated(run)
        if state["status"] in TERMINAL:
            state = _under_way(state, run.plan)
        state = _goes_on(space, state)
        if turn_ends.is_closing_here(space, state):
            ended, said = turn_ends.close(space, run, state, happened, found)
            state = ended.state if ended is not None else state
            notes.extend([said, ended.repair] if ended is not None and ended.repair else [said])
        state, came = leases.enter(space, state, "bound", environment)
        happened.extend(came)
        state = _under_way(lines.answered(space, state, happened), run.plan)
        settled = settle.settle(space, run, state) if state["status"] == "in_progress" else settle.rest(state)
        held[:] = [settled]
        before = {"status_before": run.state["status"]}
        resumed = Event("run.resumed", before, space.caller.session_id)
        return settled.state, [*pulled, *happened, resumed, *settled.happened]

    run = run._replace(state=_driven(space, run.run_id, change, bound))
    notes += _told(space, run.run_id, came_from)
    notes += settle.begun(space, run, held[0])
    made = _primed(space, run, held[0], begun, later=later)
    notes += leases.noted_stage(space, run.state)
    notes += _write_prompt_anew(space, run)
    notes += _kept_answer(run) if paused else []
    run = run._replace(state=space.store.read(run.run_id).state)
    return Resumed(run, held[0].move, made, differs, notes)


def _to_take_up(space: Workspace, run_id: str, *, reopen: bool) -> Run:
    run = space.store.read(run_id, to_show=True)
    if run.state["status"] in TERMINAL and not reopen:
        raise _over(run)
    return space.store.read(run_id) if frozen_plan.steps_unknown(run.plan) else run


def _goes_on(space: Workspace, state: State) -> State:
    """Take away what made the run stand still, or was to: an assistant that goes on keeps a pause after its step."""
    keeps = state["status"] != "paused" and space.caller.host != TERMINAL_HOST
    return standing.unlimited(state if keeps else standing.pause_no_more(state))


def _kept_answer(run: Run) -> list[str]:
    """Name the last message at the open step of a run that was paused: nobody was asked whether it is the result."""
    entry = visits.open_visit(run.state)
    if entry is None or entry["status"] != "in_progress" or not entry.get("stage"):
        return []
    from loomctl.flow.outcomes import evidence  # most runs are not resumed from a pause

    try:
        if not os.path.isfile(os.path.join(stages.folder(run.folder, entry["stage"]), stages.CANDIDATE)):
            return []
        way = evidence.again(run, entry, None)
    except LoomError:  # a stage that somebody named, and that no folder can be: it is taken up by now
        return []
    return [f"Loom kept the last message at {masked_line(str(entry['step_id']), 120)}. If it is the result: {way}"]


def _over(run: Run) -> LoomError:
    what = f"the run is {run.state['status']}"
    why = "to continue it all the same, add --reopen"
    hint = f"loomctl resume {run.handle} --reopen"
    return LoomError("BAD_STATUS", what, where=run.state_path, why=why, hint=hint, exit_code=EXIT_USAGE)


def _primed(space: Workspace, run: Run, settled: settle.Settled, begun: str, *, later: bool) -> Slip:
    event = triggers.run_start(run.state.get("current_phase"))
    entered = (fact for fact in settled.facts if fact != triggers.MANUAL)
    event = settle.with_owed(event._replace(facts=(*event.facts, *entered)), run.state)
    if later:
        return prime_run.owe(space, run, event, begun)
    made = prime_run.prime(space, run, event, prime_run.command_budget(space), may_write=True)
    return memory_of_session.record(space, run.run_id, made, begun=begun)


def _pulled(space: Workspace, run: Run, came_from: Mapping[str, Any]) -> list[Event]:
    """Give the event of a pull that nobody wrote yet: what it brought was left as it came until now.

    None of one that a kill ended before it brought anything.
    """
    pulled = came_from.get("pulled")
    if not isinstance(pulled, dict) or not _is_here(run, came_from):
        return []
    told = {key: came_from.get(key) for key in ("remote", "machine", "by", "at", "commit")}
    return [Event("run.pulled", {**told, **pulled}, space.caller.session_id)]


def _is_here(run: Run, came_from: Mapping[str, Any]) -> bool:
    from loomctl.runs.store import event_log, events

    head = events.head_of(came_from.get("head"))
    try:
        return head is None or event_log.holds(run.folder, head)
    except (OSError, LoomError):  # a log that cannot be read does not gainsay the note
        return True


def _told(space: Workspace, run_id: str, came_from: Mapping[str, Any]) -> list[str]:
    if "pulled" not in came_from:
        return []
    try:
        kept = {key: value for key, value in came_from.items() if key not in ("pulled", "head")}
        run_notes.note_handoff(space.store.local, run_id, kept)
    except (OSError, LoomError) as error:
        return [f"Loom could not note this pull ({trouble.said(error)}); the log may record it twice."]
    return []


def _driven(space: Workspace, run_id: str, change: Change, bound: dict[str, Any] | None) -> State:
    """Change the run as its driver. bound: what the session is bound to again where somebody else was first."""
    try:
        return space.store.update(run_id, change)
    except LoomError as error:
        if error.code == leases.HELD_BY_ANOTHER and space.caller.session_id is not None:
            space.local.put_back(space.caller.session_id, bound)
        raise


def _to_drive(space: Workspace, run: Run, *, take_over: bool, reopen: bool) -> tuple[Workspace, Run, list[str]]:
    """Give the workspace that the run is taken up in, the run, and whom it is taken from. Raises HELD_BY_ANOTHER."""
    driver = space.store.held(run.run_id, run.state)
    if driver is not None and not take_over:
        leases.ask_driver_to_end(space, run.run_id, driver)
        run = _to_take_up(space, run.run_id, reopen=reopen)  # it may have ended meanwhile
        driver = space.store.held(run.run_id, run.state)
    space = leases.taking_over(space) if take_over else space
    space.store.refuse_held(run.run_id, run.state)
    if driver is None:
        return space, run, []
    from loomctl.runs.machine import drivers

    fate = drivers.fate(is_here=drivers.is_here(space.local.folder, run.run_id, driver))
    return space, run, [f"Taken from {drivers.told(driver)}, {fate}."]


def _write_prompt_anew(space: Workspace, run: Run) -> list[str]:
    """Write the prompts of open visits with this machine's paths; gives what went wrong, for it is taken up by now."""
    for line in lines.every(run):
        entry = visits.open_visit(line.state)
        place = frozen_plan.place_of(line.plan, entry["step_id"]) if entry else None
        if entry is not None and place is not None and entry.get("stage"):
            try:
                prompt, _ = preambles.opening(space, line, line.state, place, entry["visit"])
                if prompt != stages.read_text(run.folder, entry["stage"], stages.PROMPT):
                    told = {"stage": entry["stage"], "files_sha256": {stages.PROMPT: stages.sha256_of(prompt)}}
                    renewed = Event("stage.prompt_renewed", told, space.caller.session_id, entry["step_id"])
                    _tell(space, run.run_id, renewed)  # first: no kill leaves it untold
                    stages.write_prompt(run.folder, entry["stage"], prompt)
            except OSError as error:
                return [f"Loom could not write this machine's paths to the step's prompt ({trouble.said(error)})."]
    return []


def _tell(space: Workspace, run_id: str, happened: Event) -> None:
    space.store.tell(run_id, lambda _: [happened])


def _ignored(run: Run) -> list[str]:
    made_of = run.plan.get("faber")
    found = made_of.get("ignored") if isinstance(made_of, dict) else None
    names = [masked_line(str(one), 120) for one in found or ()]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return [f"Loom ignores these fields of FABER's plan: {', '.join(names[:8])}{more}"] if names else []


def _meant(space: Workspace, named: str | None, *, reopen: bool) -> str:
    try:
        found = find.find(space, named, over=reopen)
    except AmbiguousRunError as error:
        raise AmbiguousRunError(space.store, error.found, _VERB) from None
    if found.run_id is not None:
        return found.run_id
    if found.candidates:
        raise AmbiguousRunError(space.store, found.candidates, _VERB)
    dormant = [one["run_id"] for one in run_index.summaries(space.store) if one["status"] in ("failed", "pending")]
    if len(dormant) == 1:
        return str(dormant[0])
    if dormant:
        raise AmbiguousRunError(space.store, dormant, _VERB)
    none = find.none(space, found)
    none.meant = {}  # one that is over is not taken up by a hint
    raise none


def _under_way(state: State, plan: Mapping[str, Any]) -> State:
    if state["status"] == "awaiting_feedback" and state["pending_approvals"]:
        return state
    if state["status"] == "completed":
        state = route.reopened_step(state, plan)
        state = {key: value for key, value in state.items() if key != "completed_at"}
    return {**state, "status": "in_progress"}


def differences(space: Workspace, run: Run, environment: Mapping[str, Any]) -> list[str]:
    """Say what is not as the last session on record left it, and what the run needs that is not here.

    environment: of the session that takes it up. The caller's own record counts like any other: it may be of another
    place, for a host resumes a conversation where it is moved to, and where it was the last here nothing differs.
    """
    last = _last(run.state)
    said: list[str] = []
    if last:
        if last.get("hostname") != environment["hostname"]:
            said.append(f"machine: {environment['hostname']}, before {masked_line(str(last.get('hostname')), 80)}")
        if last.get("project_root") and last.get("project_root") != space.project.root:
            said.append("the project is at another path; Loom has adapted the run's paths")
        said += _commits(space.project.root, last["last_commit"] or last.get("git_commit"), environment["git_commit"])
    return [*said, *_files(space, run, is_dirty=bool(last and environment["dirty"])), *_tools(run)]


def _last(state: State) -> dict[str, Any]:
    record = sessions.last(state)
    environment = record.get("environment")
    return {"last_commit": record.get("last_commit"), **environment} if isinstance(environment, dict) else {}


def _commits(root: str, before: object, now: str | None) -> list[str]:
    if not isinstance(before, str) or not git.is_oid(before) or now is None or before == now:
        return []
    answer = git.output(["rev-list", "--count", "--left-right", f"{before}...{now}"], root, patience=2.0)
    if answer is None:
        return [f"git: the last session's commit {before[:10]} is not in this repository"]
    behind, _, ahead = answer.decode("ascii", "replace").strip().partition("\t")
    if behind == "0":
        return [f"git: {ahead} commit(s) ahead of the last session's {before[:10]}"]
    if ahead == "0":
        return [f"git: {behind} commit(s) behind the last session's {before[:10]}"]
    return [f"git: diverged from the last session's {before[:10]}: {ahead} ahead, {behind} behind"]


def _files(space: Workspace, run: Run, *, is_dirty: bool) -> list[str]:
    said = _changed(space) if is_dirty else []
    missing = list(dict.fromkeys([*_artifacts(space, run), *_touched(space, run)]))
    if missing:
        said.append(f"these files of the run are missing here: {_few(missing)}")
    return ["; ".join(said)] if said else []


def _changed(space: Workspace) -> list[str]:
    """Say which files have uncommitted changes; reports that Loom wrote are none of them."""
    from loomctl.changes import evidence_files  # only in a tree that is not clean

    root, said = space.project.root, "the working tree has uncommitted changes"
    names, own = git.changed(root), evidence_files.own_reports(space.store.local)
    top = os.path.realpath(git.top_of(root) or root) if own else ""

    def is_own(name: str) -> bool:
        path = os.path.join(top, name)
        if not name.endswith("/"):
            return path in own
        return any(one.startswith(path) for one in own) and evidence_files.files_below(path) <= own

    others = [name for name in names if not (own and is_own(name))]
    if not others:
        return [] if names else [said]
    return [f"{said}: {_few(others, _CHANGED)}"]


def _few(names: list[str], most: int = _NAMED) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(masked_line(name, 60) for name in names[:most]) + more


def _artifacts(space: Workspace, run: Run) -> Iterator[str]:
    known = artifact_paths.placeholder_values(space.project, run)
    roots = Roots(
        space.project.root,
        run.folder,
        space.project.plugin_root,
        tuple(space.settings.extra_roots),
        tuple(sessions.roots(run.state)),
    )
    for value in islice(run.state["artifacts"].values(), _FILES):
        if not isinstance(value, str) or "://" in value or not value:
            continue
        try:
            place = artifact_paths.locate(value, known, roots)
        except (LoomError, ValueError):
            continue
        if not os.path.lexists(place.path):
            yield value.replace("{project_root}/", "")


def _touched(space: Workspace, run: Run) -> Iterator[str]:
    left: dict[str, bool] = {}
    newest = list(islice(visits.readable(reversed(run.state["steps"])), _STAGES))[::-1]
    for entry in [one for one in visits.every({"steps": newest}) if one.get("stage")][-_STAGES:]:
        try:
            changes = stage_changes.of_visit(run, entry)
        except (LoomError, OSError):  # who reads the stage is told
            continue
        for one in changes.files[:_FILES]:
            left[one["path"]] = one.get("change") not in ("deleted", "D")
    for path, is_left in left.items():
        if is_left and _is_inside(path) and not os.path.lexists(os.path.join(space.project.root, path)):
            yield path


def _is_inside(path: str) -> bool:
    return not os.path.isabs(path) and ".." not in path.split("/") and not path.startswith("{") and "\0" not in path


def _tools(run: Run) -> list[str]:
    missing = [name for name in dict.fromkeys(_programs(run.plan)) if shutil.which(name) is None]
    return [f"these tools are not on PATH here: {_few(missing)}"] if missing else []


def _programs(plan: Mapping[str, Any]) -> Iterator[str]:
    for place in frozen_plan.with_branches(plan):
        if place.step.get("kind") == "command":
            yield from named_in(str(place.step.get("run") or ""))
        evidence = place.step.get("evidence")
        for item in evidence if isinstance(evidence, list) else ():
            if isinstance(item, dict) and isinstance(item.get("run"), str):
                yield from named_in(item["run"])
    artifacts = plan.get("artifacts")
    for one in artifacts if isinstance(artifacts, list) else ():
        if isinstance(one, dict) and one.get("type") == "git_info" and isinstance(one.get("command"), str):
            yield "git"


_BETWEEN = frozenset({";", "&", "|", "&&", "||", "|&", ";;", "(", ")", "\n", "!", "{", "}"})


# Words of the shell's own before or instead of a program.
_LEADING = "if then else elif do while until time exec command env nohup"


_BUILT_IN = """fi done for case esac in function select [ [[ ]] : . source cd echo printf test true false export set
unset exit return read eval trap shift umask ulimit wait kill pwd type alias local declare break continue"""


_BEFORE, _OWN = frozenset(_LEADING.split()), frozenset(_BUILT_IN.split())


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-")


def named_in(command: str) -> list[str]:
    """List the programs that a command would look for on PATH, each once; nothing of what cannot be read.

    A word that names a path, that a variable or a substitution makes, or that is the shell's own is none.
    """
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote that does not end
        return []
    found: dict[str, None] = {}
    first, target = True, False
    for word in words:
        if target:  # of a redirection
            target = False
        elif word and not set(word) - set("<>&|") and ("<" in word or ">" in word):
            target = True
        elif word in _BETWEEN or not set(word) - set(";&|()"):
            first = True
        elif first and word not in _BEFORE and not _assigns(word):
            first = False
            if word not in _OWN and _PLAIN.issuperset(word) and not word.startswith(("-", ".")):
                found[word] = None
    return list(found)


def _assigns(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
