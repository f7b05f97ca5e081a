"""A run as a report tells it: one document made of all that can be read of it, for the page and for scripts.

A run that is damaged is told as far as it can be read, and the document says what could not be (`troubles`). Nothing
of a run is changed; only what hooks put aside is recorded first, as for `loomctl steps --savings`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import deque
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from loomctl.kit import clock, files, ids
from loomctl.kit.errors import LoomError
from loomctl.kit.package import __version__
from loomctl.kit.quick_json import as_object, as_texts
from loomctl.kit.text.secrets import masked
from loomctl.runs import archives, log_verdict
from loomctl.runs.model import frozen_plan, sessions, standing
from loomctl.runs.model.state import handle
from loomctl.runs.store import event_log, events, recovery
from loomctl.runs.store.store import Run, Store
from loomctl.runs.tools import recording
from loomctl.views import explain, facts, overview
from loomctl.views.dump import Source
from loomctl.views.facts import number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.event_log import Line

    Fail = Callable[[LoomError | OSError], None]

SCHEMA_VERSION = 1
MOST = 20_000  # events that a report holds
_LARGEST = 6_000_000  # bytes of their lines, together
_AT_ONCE = 500  # entries in which secrets are looked for together
_GAP = 1800  # seconds: moments that are nearer to each other need not all be known
_OF_A_TOKEN = 4  # characters of an event that does not tell its tokens
_LONGEST, _EXCERPT = 1_000, 10_000  # characters of a text, and of the part of a file that is shown
_FILES = 500  # files touched that a report lists
_NEVER_READ = ("SCHEMA_TOO_NEW", "RUN_ID_MISMATCH")  # whole, but not to be told as this run by this version
_HOMES = re.compile(r"(?<![\w.}~-])(?:/home|/Users|/var/home)/[^/\s\"'<>:;,)\]]+")
_TURNS = ("run.rewound", "run.forked", "stage.undone", "phase.set_back", "state.restored", "lease.taken_over")
_PRIMED, _PUT_BACK, _EVIDENCE = "context.primed", "survival.restored", "evidence.checked"
_DECIDED = {"approval.granted": "granted", "approval.rejected": "rejected", "approval.chosen": "chosen"}
_PLAYED = "turn.ended"
_DENIED = 50
_NOTED = {_PLAYED, _PRIMED, _PUT_BACK, _EVIDENCE, *_TURNS, *_DECIDED}


@contextmanager
def open_run(space: Workspace, named: str | None, find: Callable[[str | None], str]) -> Iterator[tuple[Workspace, str]]:
    """Give the workspace and the id of the run that is meant; an archived run is unpacked into a folder that goes.

    find: gives a run's id, or raises NO_SUCH_RUN. Raises what it does, and BAD_ARCHIVE.
    """
    try:
        run_id = find(named)
    except LoomError as error:
        path = _archive(space, named) if error.code in ("NO_SUCH_RUN", "BAD_ID") and named else None
        if path is None:
            raise
        with tempfile.TemporaryDirectory(prefix="loom-report-") as folder:
            into = os.path.join(folder, "runs")
            os.mkdir(into)
            unpacked = archives.unpack(path, into)
            yield space._replace(store=Store(folder)), ids.checked_id(unpacked.run_id)
        return
    recording.digest(space)  # what waits belongs into it
    yield space, run_id


def _archive(space: Workspace, named: str) -> str | None:
    try:
        return archives.named_archive(space.store.folder, named)
    except LoomError:
        return None


def gather(space: Workspace, run_id: str) -> dict[str, Any]:
    """Give the report's document (docs/reference/report.md has its keys).

    Its secrets are masked, and paths of this machine and of those that the run's sessions were on are shortened (D9,
    D21). Raises what finding the run does, SCHEMA_TOO_NEW and RUN_ID_MISMATCH; all else that cannot be read is said.
    """
    troubles: list[dict[str, str]] = []

    def fail(error: LoomError | OSError) -> None:
        if isinstance(error, LoomError):
            code, what, where = error.code, error.what, error.where
        else:
            code, what, where = "UNREADABLE", error.strerror or str(error), str(error.filename or "")
        trouble = {"code": code, "what": f"{what}: {where}" if where else what}
        if trouble not in troubles:
            troubles.append(trouble)

    run, log = _read(space, run_id, fail), _Log()
    try:
        files.refuse_links(run.folder, path := os.path.join(run.folder, events.FILE))
        log.read(event_log.all_of(path))
    except (LoomError, OSError) as error:
        fail(error)
    every, touched = facts.all_stages(run, log.evidence, fail)
    artifacts = facts.artifacts(space, run)
    document = {
        "schema_version": SCHEMA_VERSION,
        "made_at": clock.now(),
        "made_by": __version__,
        "run": _run(space, run),
        "ledger": _ledger(run, fail),
        "progress": facts.progress(run),
        "troubles": troubles,
        "phases": facts.phases(run),
        "stages": every,
        "sessions": facts.all_sessions(space, run, _earlier(space, run_id, fail)),
        "turns": log.turns,
        "driven": log.driven,
        "decisions": log.decisions,
        "approvals": facts.approvals(run.state),
        "errors": facts.errors(run.state, every),
        "primings": log.primings,
        "savings": facts.savings(run.folder),
        "artifacts": artifacts.critical(log.primings),
        "made": {str(name): str(path) for name, path in run.state["artifacts"].items()},
        "made_files": artifacts.made(),
        "files": touched[:_FILES],
        "files_total": len(touched),
        "moments": log.moments(),
    }
    short = _shortener(space, run)
    rows = _shortened(log.rows(), short)
    return {**_fit_to_show(document, short), "events": {"total": log.total, "broken": log.broken, "rows": rows}}


def _ledger(run: Run, fail: Fail) -> dict[str, Any] | None:
    """Give the verdict on the run's log (D54), which alone says what of it is damaged; None where there is none."""
    try:
        found = log_verdict.of_log(
            os.path.join(run.folder, events.FILE), run.run_id, run.state, event_log.every(run.folder)
        )
    except (LoomError, OSError) as error:
        fail(error)
        return None
    if (fault := found.fault) is not None:
        what = f"line {fault.line:,} of {events.FILE}: {fault.what}. For more: loomctl prove --log {run.handle}"
        fail(LoomError(fault.code, what))
    return overview.verdict(found)


def _earlier(space: Workspace, run_id: str, fail: Fail) -> list[dict[str, Any]]:
    try:
        return recovery.earlier_sessions(space.store.run_dir(run_id))
    except (LoomError, OSError) as error:
        fail(error)
        return []


def _run(space: Workspace, run: Run) -> dict[str, Any]:
    state = run.state
    forked, waits = state.get("forked_from"), state.get("feedback")
    names = ("work_id", "goal", "created_at", "updated_at", "completed_at")
    return {
        "run_id": run.run_id,
        "handle": run.handle,
        "plan_id": str(state.get("plan_id") or ""),
        "workflow_id": str(state.get("workflow_id") or ""),
        "status": str(state["status"]),
        **{key: str(state.get(key) or "") for key in names},
        "phase": str(state.get("current_phase") or ""),
        "step": str(state.get("current_step") or ""),
        "forked_from": {
            "handle": handle({**state, "run_id": forked.get("run_id")}),
            **{key: str(forked.get(key) or "") for key in ("run_id", "stage", "at")},
        }
        if isinstance(forked, dict)
        else None,
        "saved_from": standing.saved_from(state),
        "waits_for": str(waits.get("message") or waits.get("kind") or "an answer") if isinstance(waits, dict) else "",
        "driver": facts.driver(space, run),
    }


# ---- The log.

_UNDRIVEN: dict[str, Any] = {"turns": 0, "cost": 0.0, "tokens": 0, "calls": 0, "killed": 0, "denied": []}


def _with_turn(so_far: Mapping[str, Any], turn: Mapping[str, Any]) -> dict[str, Any]:
    """Add a turn of `loomctl drive` to what came of those before."""
    sums = {key: so_far[key] + (facts.number(turn.get(key)) or 0) for key in ("tokens", "calls", "killed")}
    cost = turn.get("cost")
    spent = round(so_far["cost"] + (cost if isinstance(cost, (int, float)) else 0.0), 6)
    denied = list(dict.fromkeys([*so_far["denied"], *as_texts(turn.get("denials"))]))[:_DENIED]
    return {"turns": so_far["turns"] + 1, "cost": spent, **sums, "denied": denied}


class _Log:
    """What a log tells, gathered in one pass: its newest events, primings, what was taken back, what was decided."""

    def __init__(self) -> None:
        self._newest: deque[tuple[int, dict[str, Any]]] = deque()
        self._held = 0
        self._moments: set[int] = set()
        self.total = self.broken = 0
        self.primings: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self.driven: dict[str, Any] | None = None
        self.decisions: list[dict[str, Any]] = []
        self.evidence: dict[str, Any] = {}  # by stage: the items of the last check

    def read(self, lines: Iterable[Line]) -> None:
        """Go through a log's lines, oldest first."""
        for line in lines:
            if line.entry is None:
                self.broken += 1
                continue
            self.total += 1
            self._keep(line.bytes, line.entry)
            self._moments.add(clock.seconds_of(text(line.entry.get("ts"))))
            if line.entry["event"] in _NOTED:
                self._note(masked(line.entry))

    def _keep(self, size: int, entry: dict[str, Any]) -> None:
        self._newest.append((size, entry))
        self._held += size
        while len(self._newest) > MOST or (self._held > _LARGEST and len(self._newest) > 1):
            self._held -= self._newest.popleft()[0]

    def _note(self, entry: Mapping[str, Any]) -> None:
        name, at, properties = entry["event"], text(entry.get("ts")), as_object(entry.get("properties"))
        if name in (_PRIMED, _PUT_BACK):
            self.primings.append(_priming(at, entry, properties))
        elif name == _EVIDENCE:
            self.evidence[str(properties.get("stage"))] = properties.get("items")
        elif name == _PLAYED:
            self.driven = _with_turn(self.driven or _UNDRIVEN, properties)
        elif name in _TURNS:
            self.turns.append({"at": at, "kind": name, "said": explain.line_of(entry)})
        else:
            told = {key: text(properties.get(key)) for key in ("id", "by", "label", "note")}
            self.decisions.append({"at": at, "what": _DECIDED[name], **told})

    def rows(self) -> list[dict[str, Any]]:
        """Give the newest events, oldest first, their secrets masked before anything of them is put into words."""
        held = (entry for _, entry in self._newest)
        shown: list[dict[str, Any]] = []
        while some := list(islice(held, _AT_ONCE)):
            shown += explain.without_secrets(some)
        return [
            {
                "seq": entry["seq"],
                "at": text(entry.get("ts")),
                "event": entry["event"],
                "step_id": text(entry.get("step_id")),
                "session_id": text(entry.get("session_id")),
                "said": explain.line_of(entry),
                "properties": as_object(entry.get("properties")),
            }
            for entry in shown
        ]

    def moments(self) -> list[int]:
        """Give times, in seconds since the epoch, at which something was, as far as stretches without need them."""
        held = sorted(moment for moment in self._moments if moment)
        inner = [
            moment
            for before, moment, after in zip(held, held[1:], held[2:], strict=False)
            if moment - before > _GAP or after - moment > _GAP
        ]
        return [*held[:1], *inner, *held[1:][-1:]]


def _priming(at: str, entry: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    put_back = entry["event"] == _PUT_BACK
    budget = as_object(properties.get("budget"))
    items = as_texts(properties.get("items"))
    tokens = number(properties.get("tokens"))
    known = tokens is not None and tokens >= 0
    characters = properties.get("characters") or (sum(map(len, items)) if put_back else budget.get("used"))
    guessed = -(-max(0, number(characters) or 0) // _OF_A_TOKEN)
    return {
        "at": at,
        "session_id": text(entry.get("session_id")),
        "event": _PUT_BACK if put_back else str(properties.get("event") or ""),
        "tokens": tokens if known else guessed,
        "guessed": not known and guessed > 0,
        "restored": items if put_back else [],
        **{key: max(0, number(budget.get(key)) or 0) for key in ("used", "limit")},
        **{
            key: {name: str(how) for name, how in as_object(properties.get(key)).items()}
            for key in ("loaded", "not_loaded")
        },
        "fresh": as_texts(properties.get("fresh")),
        "tool_history": isinstance(properties.get("tool_history"), dict),
    }


# ---- Reading what may be damaged.


def _read(space: Workspace, run_id: str, fail: Fail) -> Run:
    """Read a run; in the place of a state or plan that cannot be read, the newest that can, or an empty one."""
    home = space.store.home(run_id)
    try:
        return space.store.read(run_id, to_show=True)
    except LoomError as error:
        if error.code in _NEVER_READ:
            raise
        fail(error)
    state = None
    for name in (os.path.basename(home.state), *recovery.kept_states(home)):
        try:
            own = name == os.path.basename(home.state)
            state = space.store.read_home(home if own else recovery.kept_home(home, name))
            if not own:
                fail(
                    LoomError("OLDER_STATE", f"this shows the run as {name} has it", hint="loomctl debug state restore")
                )
            break
        except LoomError as error:
            if error.code in _NEVER_READ:
                raise
            fail(error)
    path = os.path.join(home.folder, "plan.json")
    try:
        files.refuse_links(home.folder, path)
        plan = frozen_plan.accepted(files.read_json(path), where=path)
    except (LoomError, OSError) as error:
        fail(error)
        plan = {"plan_id": run_id, "workflow_id": "", "phases": [], "artifacts": []}
    return Run(run_id, home.folder, state or _unknown(run_id), plan, home.state, path)


def _unknown(run_id: str) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "plan_id": ids.split_run_id(run_id)[0],
        "workflow_id": "",
        "status": "unknown",
        **{key: {} for key in ("phases", "context", "artifacts", "context_metadata")},
        **{key: [] for key in ("steps", "errors", "pending_approvals")},
        "sessions": {"session_history": [], "total_sessions": 0},
    }


# ---- What leaves the machine.


def _shortener(space: Workspace, run: Run) -> Callable[[str], str]:
    """Give what writes a machine's own folders short: the project as `{project_root}`, a home as `~`."""
    known = {root: "{project_root}" for root in (space.project.root, *sessions.roots(run.state)) if len(root) > 1}
    known[os.path.dirname(run.folder)] = "{runs}"
    for home in (os.path.expanduser("~"), "/root"):
        if len(home) > 1:
            known.setdefault(home, "~")
    roots = sorted(known, key=len, reverse=True)
    pattern = re.compile("(?:" + "|".join(map(re.escape, roots)) + r")(?![\w.-])")

    def short(text: str) -> str:
        if "/" not in text:
            return text
        return _HOMES.sub("~", pattern.sub(lambda found: known[found.group()], text))

    return short


def _fit_to_show(document: dict[str, Any], short: Callable[[str], str]) -> dict[str, Any]:
    """Mask secrets and shorten paths in every text; where a file is (its `at`) stays, for links are made of it."""
    kept = [one["at"] for one in _every_file(document)]
    shown: dict[str, Any] = _shortened(masked(document), short)
    for one, at in zip(_every_file(shown), kept, strict=True):
        one["at"] = at
    return shown


def _every_file(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    held = [one for stage in document["stages"] for key in ("texts", "others", "assets") for one in stage[key]]
    artifacts = [*document["artifacts"], *document["made_files"]]
    return held + [one["file"] for one in artifacts if one["file"] is not None]


def _shortened(value: Any, short: Callable[[str], str], most: int = _LONGEST) -> Any:
    if isinstance(value, str):
        told = short(value)
        return told if len(told) <= most else f"{told[:most]}…"
    if isinstance(value, dict):
        return {
            short(key)[:_LONGEST]: _shortened(child, short, _EXCERPT if key == "text" else _LONGEST)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_shortened(child, short) for child in value]
    return value


# ---- Files beside the page.


def files_of(document: Mapping[str, Any]) -> list[Source]:
    """Name every file that a report leads to."""
    there = [one for one in _every_file(document) if one.get("there", True)]
    return list(dict.fromkeys(map(_source, there)))


def _source(one: Mapping[str, Any]) -> Source:
    return Source(one.get("below") == facts.PROJECT, str(one["at"]))


def link(document: dict[str, Any], links: Mapping[Source, str], said: str) -> dict[str, Any]:
    """Put the links of its files into the document, and `linked`. said: where they lead."""
    for one in _every_file(document):
        href = links.get(_source(one))
        if href is not None:
            one["href"] = href
    document["linked"] = {"files": len(links), "said": said}
    return document
