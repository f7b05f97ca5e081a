"""Every event that Loom writes, as its page tells it, and those that the source writes, found by reading it."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.helpers.scenes import CHECKOUT

_TOLD = r"""
run.created: a run begins | workflow_id | work_id | goal | plan = what the plan was made of: files with their hashes
run.resumed: a run is taken up again | status_before
run.paused: by `loomctl pause` or `reject`, or where the assistant may be sent on no more
    | before = the status before | reason = `stop_block_cap`, `rejected`, or `after_step`: the step had ended after
    which it was to
run.pause_asked: by `loomctl pause --after-step`: the run pauses when the open step has ended
    | stage = the open one; null: it does no more
run.awaiting_feedback: the assistant stopped twice without a result, or a command is not trusted: the user is waited
    for; or a permission was refused
    | stage | reason = `trust` or `denied`, if it is that
run.failed: a step failed for good, and its workflow stops there | step_id | failure_reason
run.cancelled: by `loomctl cancel` | before = the status before
run.completed: the last step is done
    | artifact_count = how many values of the run's context became blobs, each content counted once
run.forked: after `run.created` in a run that `loomctl fork --at STAGE` made of another one
    | from = the other run | at = the stage that had ended there | stages = those that came along, whose own events
    stand in the other run's log | context = what had made the context: `stage`, or `keys`, `values` and `before` of
    what was set by hand, each with `at` and `session_id`
run.pushed: `loomctl push` begins to hand the run on; one that did not arrive has a `run.push_failed` behind it
    | remote = its name, or its address without a password | machine = from where | outputs = whether what tools gave
    goes along | files = how many are new to the remote
run.push_failed: a push that was begun did not arrive | remote | machine | reason = the code of the error
run.pulled: a run that `loomctl pull` brought is taken up; a pull itself writes nothing into what it brings
    | remote | kind = `new`, `forward` or `took_theirs` | machine = from where it was pushed | by = who pushed it | at
    = when | commit | saved = the run that the state before was saved as, where that is no part of what came
run.saved_aside: a pull made this run of one of two states of another one, whose entries stand before this one
    | from = the other run | whose = `mine`: it was here; `theirs`: it was at the remote | remote | machine = where
    the state was, or from where it was pushed | by = of theirs: who pushed it
run.rewound: `loomctl rewind --to STAGE` took the run back, after a `stage.undone` for each end that it took back
    | to = the stage, which is open again | undone = the stages whose ends were taken back, newest first | gone = the
    stages that the run no longer has | context_left = the stages of which it cannot be read what the context was
    before
phase.started: a phase is entered | phase | before = the phase before, if there was one
phase.completed: a phase is left behind | phase
phase.skipped: a phase is passed, for nothing is done in it | phase
phase.set_back: the run goes back before a phase, which is to be done again | phase
step.primed: a step that is nothing but a priming is done by Loom itself; it has no stage
stage.started: a visit of a step begins
    | stage | visit = from 1 | files_sha256 = of `prompt.md` | task = of its step's list, if it goes through one:
    `number`, `of`, `text` | warnings = what of its preamble could not be told, if anything
tasks.none: a step that goes through a task list is come to, and no task is open: it ends without anybody's visit
    | status = `failed`; `skipped` where the list may be empty; else how its last task ended | why
stage.prompt_renewed: a resume writes the open step's prompt anew, with this machine's paths
    | stage | files_sha256 = of `prompt.md`
run.feedback_given: a run that waited for its user's answer goes on | stage
stage.asked: the assistant stopped without a result, and is asked for one | stage
stage.handed_on: the assistant is sent on to the next step in the same turn | stage = the next
stage.closing: `loomctl done` without a result: the final message will be the result | stage
stage.repair_requested: an answer does not hold what the step's schema asks for, or its evidence is missing: it is
    asked for again
    | stage | attempt = from 1 | of = repairs in all | errors = the codes of what is wrong
evidence.checked: what a step has to show was looked for as it was to end
    | stage | passed = whether all of it is there | items = `kind`: `file`, `command`, `state`; `name`, as it is
    declared; `passed`; `sha256` of the file, the command's output or the value; `why` it is missing, or how it was
    told
stage.completed: a visit of a step ends, well or not
    | stage | status = `succeeded`, `failed`, `partially_succeeded`, `skipped` | response_source = `done`,
    `conversation`, `transcript`, `candidate`, `command`, `decision`, `none` | response_sha256 = of `response.md`,
    where there is one | files_sha256 = of `status.json`, `changes.json` and `changes.patch`, by name | follows =
    `done`, `retry`, `prompt`, `stop` | next = where the run goes on: `step_id` and `reason`, as the visit keeps it in
    `state.json` | files_touched = the first 200 | files_touched_count = where there are more | directive_file = which
    file says how it ended, where the response does not | task = of its step's list, if it goes through one: `number`,
    `of`, `text`, and `ticked` for its box | failure_reason = of a failed one | usage = `models`,
    `messages` and tokens, where the transcript tells them
stage.undone: `loomctl undo` takes the end of a stage back, `loomctl rewind --to STAGE` one after the other
    | stage | gone = stages that had begun after it | phases = phases that are not what they were: their status
transition.chosen: a step that has transitions ended, or a retry target or `max_visits` decided on the way on
    | stage | step_id = the next step; null: the run is over, or failed | reason = `condition`, `label`, `suggested`,
    `unconditional`, `on_failure`, `order`, `retry`, `retry_target`, `end`, `none`, `max_visits` | by = how an end was
    chosen, or the step that was visited too often; else the same as `reason` | to = the step that was visited too
    often | weighed = each transition with what became of it: `to`, `label`, `condition`, `truth`, `why`
branch.ended: a branch of a parallel step ended, or its join went on without it
    | branch | stage = the parallel step's | status = an outcome, or `cancelled` | failure_reason = why it failed
branches.joined: the branches of a parallel step come together
    | stage = the parallel step's | status = its outcome | results = of each branch: `id`, `index`, `status` |
    conflicts = keys that branches left with different values: `key`, `branches`
context.updated: a step's end sets values of the context, or somebody does by hand
    | stage = of a step's end | keys | by = `user`, by hand | values = by hand: what the keys hold, larger ones by a
    reference; none of a key that was taken away | before = by hand: what they held, in the same form; none of a key
    that was not set
asset.captured: a file that a stage left is kept, one event for each
    | stage | path | bytes | sha256 | stored = below the run's folder
command.started: the command of a step is run
    | stage | timeout = seconds, if there is one | supervisor = number of the process that watches it
command.ended: it ended, in whatever way; told once for each that was started
    | stage | exit_code | signal = what killed it | duration_ms | timed_out | stopped = with its run, by an undo or by
    hand | lost = what watched it was killed: how it ended is not known | bytes = printed | supervisor = as it was
    started | error = why it could not be started
approval.requested: somebody must approve before the run goes on
    | id = `phase:…`, `step:…`, `result:…`, or `human:…` with the stage of a step that a person decides | reason = the
    question, in a line | requested_at | step_id = of such a step | stage = of such a step | choices = of such a step:
    the labels of its transitions
approval.granted: by `loomctl approve`
    | id | by = who | label = of a choice, as the workflow writes it | note = what they said, in a line
approval.rejected: by `loomctl reject`
    | id | by = who | label = of a choice, as the workflow writes it | note = what they said, in a line
approval.chosen: by `loomctl choose LABEL`
    | id | by = who | label = of a choice, as the workflow writes it | note = what they said, in a line
approval.lapsed: the run goes back before what was approved, and will ask again | id
lease.taken: a session drives the run from here on, for nobody did, or who did is gone
    | why = `free`, `gone`, `over` (the run was), `restarted` (its own process was), `inherited` (`/clear`),
    `terminal` (of the same user: nothing works there by
    itself) | epoch = of the lease, from here on | host | hostname | from = who drove it
    until then: `session_id`, `host`, `hostname`, `since`, `seen`
lease.taken_over: a session took the run from another that may live, whose later writes of the state are refused
    | epoch | host | hostname | from = as above
lease.released: who drove the run gives it up: its conversation ended, or took up another run; or somebody releases it
    | epoch = it stays until the next one | reason = the host's word, `left`, `drive`, or `by_hand` | how = by hand:
    `mine`, `terminal` (another of the same user), `gone` | from = by hand: who drove before
drive.started: `loomctl drive` begins to drive the run | host = the assistant that works | limits = in seconds, USD
    and turns: `time`, `cost`, `turns`, `silence`, `turn`, `lingers`, `wait`
turn.started: a driver starts an assistant's process
    | turn = of this drive, from 1 | conversation = its id | goes_on = whether the conversation is an earlier turn's
turn.ended: that process has ended, and nothing of it runs any more
    | turn | class = `done`, `infra` (its API, process or host failed, or nothing was heard of it), `limit` (its API
    names a time), `refused` (by its API), `stuck`, `spent` (a limit of the driver's) or `stopped` | why = in words
    | tokens = of its answers | calls = of tools | seconds | cost = in USD that the turn added, null where its host
    did not say it | estimated = the cost is, from its tokens: it was ended before its host said it
    | made_up = USD of turns before, of which no price was known until now, estimated | killed = processes
    that would not end | denials = the calls that its host refused | conversation = its id
drive.told: the assistant is given what `loomctl tell` keeps for it | text = its secrets masked | said_at | by = `user`
    or `loom` | with = what carried it: `tool result`, `prompt`, `stop`, `start` or `command` | again = whether it was
    given before, to a conversation that was killed or another one
drive.ended: `loomctl drive` ends | code = its exit code | kind = in a word what it ended for | why = in a sentence
fleet.marked: somebody changes what the run's state says of its place in the fleet, or a worker does
    | priority | after | host | added_at | shared | paused | failed | again: those that changed, as
    [the state](fleet.md#in-a-runs-state) has them, null for what was taken away
lease.refused: a write of the state was refused, for another drives the run, or drove it since the writer began
    | began = the epoch under which the writer began | epoch = the lease's | holder = who drives, as above
session.started: a session is bound to the run, or begins bound to it
    | source = `startup`, `resume`, `clear`, `bound`, … | hostname | inherited_from = the session whose run it took
    over, as after `/clear`
session.resumed: a session that the run knows goes on | source
session.compacted: its conversation was compacted | trigger = `auto` or `manual`
survival.checked: after a compaction it was looked for what must survive
    | proven = `false` where the host gave no summary to look into | kept = names of the items that stood in the
    summary or in what Loom gave | lost = of those that stood in neither | restored = of the lost ones those that were
    put back already: none as yet | absent = of those that had nothing to look for; left out where there are none |
    notes = of some by name: why one could not be looked for, or what of an artifact it is | trigger = `auto` or
    `manual` | compaction = which it was: `at`, and its `number` in the session's record
survival.restored: what a compaction lost was put back
    | items = their names | at = the hook: `PostToolUse` or `UserPromptSubmit` | compaction = which lost them: `at`,
    and its `number` in the session's record | characters = of the text that was given
survival.declared: what must survive was added to the run, or taken from it
    | added = names of items | dropped = names of items
session.ended: it ended, and its host said so | reason
session.lost: it ended without a word, as the next one finds | session_id = the lost one's
context.primed: artifacts were due to a session, and what it had not yet was given
    | slip_id = `null` where nothing was given | event = what triggered it | loaded = id: `full`, `diff`, `head` or
    `pointer` | fresh = what it has already, unchanged | not_loaded = id: the reason | budget = `limit` and `used`, in
    the measure of the budget: UTF-16 units of a hook, bytes of a command | tokens = what the text cost, estimated;
    none where nothing was given, of hooks, and of older events | characters = of that text | tool_history = what was
    told of tool steps, where it was | warnings = codes
context.checked: it was looked whether a conversation has the artifacts that were due at its start
    | at = when that was | event = `startup`, `resume`, `clear`, `fork`, `compact`, `run`, `take_up` or `move` |
    artifacts = id: `present`, `restored`, `reachable`, `stale` or `lost`
hook.failed: a hook of the session could not do its work; the assistant goes on without it
    | hook = such as `stop` | error = what went wrong
tools.unfinished: whoever recorded a tool call was killed while doing so; it is set aside until a command records it
    | file | bytes
tools.unreadable: what a hook put aside of a tool call is no event; it stays aside | file | bytes
outputs.removed: `loomctl clean` removes outputs, before it does
    | files | bytes | older_than_days | by = `retention` | at
state.restored: `loomctl debug state restore` put another state in the place of the run's
    | source = the file | kept = the name of what stood there | reason = `asked`, or the error's code | revision =
    `before` and `restored` | events_after = how many events came after what was put back
plan.restored: a damaged plan was made anew
    | kept = the damaged one's name | same = whether it says what the first one did | sources = files | sha256
plan.frozen: a FABER run's plan is frozen, at first or because FABER's file is another | sha256
state.changed: a write that nothing else tells of changed what the state's checksum covers
state.migrated: a state of an older schema is written in today's
    | from | to | steps = of the migration | kept = the original's name | sha256 = of what became of it
plan.migrated: the same of a plan | from | to | steps | kept | sha256
ledger.torn_line: a kill tore off the line before this one | bytes | sha256
ledger.mismatch: the log does not end as the state remembers it | expected = `seq` and `sha256` | found = the same
ledger.damaged: this log is a copy, chained anew, of one that was not as it was written
    | of = the run whose log it was | line = of the first fault there | code | what | faults = how many
"""


def _read(told: str) -> dict[str, tuple[str, dict[str, str]]]:
    found = {}
    for event in re.split(r"\n(?=\S)", told.strip()):
        head, *properties = " ".join(event.split()).split(" | ")
        name, _, when = head.partition(": ")
        found[name] = (when, {key: meaning for key, _, meaning in (one.partition(" = ") for one in properties)})
    return found


EVENTS = _read(_TOLD)
"""name: (when it is written, its properties)"""


# Names that are put together, and what they become.
class Written(NamedTuple):
    """A place that writes an event. properties: the names that can be read from the source."""

    name: str
    properties: frozenset[str]


def written() -> list[Written]:
    return sorted({one for path in CHECKOUT.glob("loomctl/**/*.py") for one in _in_module(path)})


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _in_module(path: Path) -> Iterator[Written]:
    tree = _tree(path)
    known_as = _event_names(tree, path)
    for function in [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known_as:
                keys = frozenset(_keys(node.args[1], function)) if len(node.args) > 1 else frozenset()
                for name in _names(node.args[0], function):
                    yield Written(name, keys)


def _event_names(tree: ast.Module, path: Path) -> set[str]:
    """Give what a module calls the events of a run: under whichever name it imports them, and none of a trigger's."""
    own = {"Event"} if path.name == "events.py" and path.parent.name == "store" else set()
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    every = [one for node in imports if node.module == "loomctl.runs.store.events" for one in node.names]
    return own | {one.asname or one.name for one in every if one.name == "Event"}


def _names(node: ast.expr, function: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from (*_names(node.body, function), *_names(node.orelse, function))
    else:  # the parameter of a function: what its callers give for it
        assert isinstance(node, ast.Name)
        assert isinstance(function, ast.FunctionDef)
        yield from _given(function)


def _given(called: ast.FunctionDef) -> Iterator[str]:
    """Give the dotted names that the callers of a function pass to it, and the callers of those that pass them on."""
    for function, node in _calls():
        if called.name not in _words(node.func):
            continue
        texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
        yield from (text for text in texts if isinstance(text, str) and "." in text)
        if any(isinstance(one, ast.Name) and one.id == "event" for one in node.args):
            yield from _given(function)


@functools.cache
def _calls() -> list[tuple[ast.FunctionDef, ast.Call]]:
    return [
        (function, node)
        for path in CHECKOUT.glob("loomctl/**/*.py")
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    ]


def _words(node: ast.expr) -> tuple[str, ...]:
    return tuple(str(getattr(node, key, "")) for key in ("attr", "id"))


def _keys(node: ast.expr, function: ast.AST) -> Iterator[str]:
    """Give the names in an object, through the names that it was assigned to."""
    if isinstance(node, ast.Name):
        for other in ast.walk(function):
            targets = other.targets if isinstance(other, ast.Assign) else []
            if any(isinstance(one, ast.Name) and one.id == node.id for one in targets):
                assert isinstance(other, ast.Assign)
                yield from _keys(other.value, function)
            for one in targets:
                if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name) and one.value.id == node.id:
                    assert isinstance(one.slice, ast.Constant)
                    yield str(one.slice.value)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value)
            elif key is None:
                yield from _keys(value, function)
    elif isinstance(node, ast.IfExp):
        yield from _keys(node.body, function)
