"""What a report says of a run beside its stages and events: sessions, savings, what waits, who drives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.priming.survival import log_receipts, pending, receipts
from loomctl.runs import leases
from loomctl.runs.model import sessions
from loomctl.runs.tools import tool_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loomctl.priming.survival.receipts import Compacted
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

_POINTS = 200  # of the line that savings are drawn with
_WELL = ("succeeded", "partially_succeeded")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def session(record: Mapping[str, Any]) -> dict[str, Any]:
    """Give a session's record without the folder that it worked in."""
    around = _dict(record.get("environment"))
    held = record.get("compactions")
    return {
        "session_id": str(record.get("session_id") or ""),
        **{key: _text(record.get(key)) for key in ("host", "started_at", "ended_at", "end_reason", "last_activity")},
        **{key: _text(around.get(key)) for key in ("hostname", "platform", "git_branch", "git_commit")},
        "dirty": around.get("dirty") if isinstance(around.get("dirty"), bool) else None,
        "resumes": record["resumes"] if type(record.get("resumes")) is int else 0,
        "phases_completed": _texts(record.get("phases_completed")),
        "artifacts_loaded": _texts(record.get("artifacts_loaded")),
        "compactions": [_compaction(one) for one in held if isinstance(one, dict)] if isinstance(held, list) else [],
    }


def _compaction(one: Mapping[str, Any]) -> dict[str, Any]:
    receipt = one.get("receipt")
    told = _receipt(receipt) if isinstance(receipt, dict) else None
    return {"at": _text(one.get("at")), "trigger": _text(one.get("trigger")) or "unknown trigger", "receipt": told}


def _receipt(receipt: Mapping[str, Any]) -> dict[str, Any]:
    lists = {key: _texts(receipt.get(key)) for key in ("kept", "lost", "restored", "absent")}
    notes = receipts.read_notes(receipt)
    return {"proven": receipt.get("proven") is True, **lists, "pending": [], **({"notes": notes} if notes else {})}


def all_sessions(space: Workspace, run: Run, earlier: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give every session, those that went out of the state first."""
    held = sessions.history(run.state)
    names = {record.get("session_id") for record in held}
    records = [*(one for one in earlier if one["session_id"] not in names), *held]
    known = list(receipts.compactions(records))
    found = pending.marked(space, run.run_id, log_receipts.completed(run.folder, known))
    told = iter(found[: len(known)])
    every = [_with_receipts(session(one), told) for one in records]
    for one in found[len(known) :]:
        _add(every, one)
    return every


def _add(every: list[dict[str, Any]], found: Compacted) -> None:
    """Add a compaction that the log alone tells to its session: one that never drove the run has no record."""
    told = {"at": found.at, "trigger": found.trigger or "unknown trigger", "receipt": _told(found)}
    here = next((one for one in every if one["session_id"] == found.session_id), None)
    if here is None:
        here = session({"session_id": found.session_id})
        every.append(here)
    here["compactions"] = sorted([*here["compactions"], told], key=lambda one: str(one["at"]))


def _told(found: Compacted) -> dict[str, Any] | None:
    if found.receipt is None:
        return None
    return {**_receipt(found.receipt.to_dict()), "pending": [*found.pending]}


def _with_receipts(shown: dict[str, Any], told: Iterator[Compacted]) -> dict[str, Any]:
    """Give a session with the receipts of its compactions, those included that its run's log alone tells."""
    every = [
        {**one, "receipt": _told(found) or one["receipt"]}
        for one, found in zip(shown["compactions"], told, strict=False)
    ]
    return {**shown, "compactions": every}


def savings(folder: str) -> dict[str, Any]:
    """Sum up what the reduction of tool steps saved, by tool, and as it grew: `[calls, before, after]`."""
    by_tool: dict[str, list[int]] = {}
    whole = [0, 0, 0]
    grown: list[list[int]] = [[0, 0, 0]]
    for step in tool_log.read(folder):
        for sums in (whole, by_tool.setdefault(step.tool_name, [0, 0, 0])):
            sums[0] += 1
            sums[1] += step.tokens_before
            sums[2] += step.tokens_after
        grown.append(list(whole))
    every = max(1, -(-len(grown) // _POINTS))
    points = grown[::every] + ([grown[-1]] if (len(grown) - 1) % every else [])
    tools = [{"tool_name": name, **_sums(sums)} for name, sums in by_tool.items()]
    tools.sort(key=lambda one: (-one["tokens_before"], one["tool_name"]))
    return {"tools": tools, "all": _sums(whole), "over_time": points if whole[0] else []}


def _sums(sums: Sequence[int]) -> dict[str, Any]:
    return {"steps": sums[0], "tokens_before": sums[1], "tokens_after": sums[2]}


def approvals(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give what waits for a person, in the run and in its branches."""
    held = [
        one
        for visit in state["steps"]
        for branch in visit.get("branches", ())
        for one in branch.get("pending_approvals") or ()
    ]
    every = [*(state.get("pending_approvals") or ()), *held]
    return [
        {
            "id": str(one.get("id") or ""),
            "reason": _text(one.get("reason")),
            "at": _text(one.get("requested_at")),
            "choices": _texts(one.get("choices")),
        }
        for one in every
        if isinstance(one, dict)
    ]


def errors(state: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give what went wrong, as the run's state has it, and where it has nothing, as its failed stages do.

    mended: whether the step ended well since, or the run is completed.
    """
    told: list[dict[str, Any]] = []
    for one in state.get("errors") or ():
        raw = one if isinstance(one, dict) else {"message": one}
        where = next((str(raw[key]) for key in ("stage", "step_id", "step", "where") if raw.get(key)), "")
        said = next((str(raw[key]) for key in ("message", "failure_reason", "reason", "error") if raw.get(key)), "")
        told.append({"where": where, "type": _text(raw.get("type")), "message": said or str(one)})
    known = {one["where"] for one in told}
    done = _mended(stages, over=state.get("status") == "completed")
    untold = [one for one in stages if one["status"] == "failed" and not known & {one["stage"], one["step_id"]}]
    told += [
        {"where": one["stage"], "type": "", "message": one["reason"] or "failed, without a reason"} for one in untold
    ]
    return [{**one, "mended": done(one["where"])} for one in told]


def _mended(stages: Sequence[Mapping[str, Any]], *, over: bool) -> Callable[[str], bool]:
    """Give what tells of a stage or step whether its failure is behind the run.

    A later visit of its step ended well, or, whatever the place, the run is completed.
    """
    well = {one["step_id"]: one["rank"] for one in stages if one["status"] in _WELL}
    step_of = {one["stage"]: (one["step_id"], one["rank"]) for one in stages}
    last = {one["step_id"]: one["rank"] for one in stages if one["status"] == "failed"}

    def mended(where: str) -> bool:
        step_id, rank = step_of.get(where, (where, last.get(where, 0)))
        return over or well.get(step_id, -1) > rank

    return mended


def driver(space: Workspace, run: Run) -> dict[str, str] | None:
    """Give who drives a run, as `loomctl status` does: `session_id`, `hostname`, `since`; None where nobody may."""
    found = leases.document(space, run.run_id, run.state)
    return None if found is None else {key: str(found[key]) for key in ("session_id", "hostname", "since")}
