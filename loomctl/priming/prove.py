"""What a run's compactions and starts kept, lost and got back, by its receipts; what it adds to what must survive."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import clock
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.secrets import mask
from loomctl.priming import receipts
from loomctl.runs import find, leases
from loomctl.runs.machine import session_notes
from loomctl.runs.model import sessions
from loomctl.runs.model.state import TERMINAL, handle
from loomctl.runs.store import event_log, events, recovery
from loomctl.runs.store.events import Event
from loomctl.workflows import survival
from loomctl.workflows.survival import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.priming.receipts import Compacted, Start
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run
    from loomctl.workflows.survival import Item

_CHECKED = "survival.checked"
_LOGGED = (_CHECKED, "survival.restored")
ADDED, BEGUN_WITH = "--add", "--must-survive"  # where an item stands that is wrong
_PASTED = 200  # characters of an item that a hint repeats
CLAIM = (
    "This proves that a text stood in the host's summary or in what Loom gave after it, apart from white space. Of an "
    "artifact it proves that the host recorded it. It does not prove that the assistant heeds it."
)


class Proof(NamedTuple):
    """items: what must survive now; compactions, starts: of all of the run's sessions, oldest first."""

    run_id: str
    handle: str
    items: Sequence[Item]
    compactions: Sequence[Compacted]
    starts: Sequence[Start]

    @property
    def lost(self) -> bool:
        """Tell whether something was lost, was not put back, and does not come back by itself."""
        return any(one.still_lost for one in self.compactions) or any(one.of("lost") for one in self.starts)

    @property
    def stale(self) -> bool:
        """Tell whether an older content of an artifact stood in a conversation as if it were the present one."""
        return any(one.of("stale") for one in self.starts)

    @property
    def pending(self) -> bool:
        """Tell whether something that was lost still comes back."""
        return any(one.pending for one in self.compactions)

    def to_dict(self) -> dict[str, Any]:
        """Give the document that `--json` prints."""
        return {
            "run_id": self.run_id,
            "handle": self.handle,
            "must_survive": [{"name": item.name, "kind": item.kind} for item in self.items],
            "compactions": [_document(one) for one in self.compactions],
            "starts": [{"session_id": one.session_id, **one.to_dict()} for one in self.starts],
            "lost": self.lost,
            "stale": self.stale,
            "pending": self.pending,
            "claim": CLAIM,
        }


def _document(one: Compacted) -> dict[str, Any]:
    document: dict[str, Any] = {"session_id": one.session_id, "at": one.at, "trigger": one.trigger}
    coming = {"pending": [*one.pending]} if one.pending else {}
    return {**document, **(one.receipt.to_dict() if one.receipt else {"proven": False}), **coming}


def proof(space: Workspace, named: str | None) -> Proof:
    """Gather the receipts of a run, those included whose sessions its state holds no more. Raises as `to_read`."""
    run_id = find.to_read(space, named).run_id
    assert run_id is not None  # to_read raises instead
    run = space.store.read(run_id, to_show=True)
    here = sessions.history(run.state)
    known = {record.get("session_id") for record in here}
    records = [
        *(one for one in recovery.earlier_sessions(space.store.run_dir(run_id)) if one["session_id"] not in known),
        *here,
    ]
    found = of_records(space, run, records)
    return Proof(run_id, run.handle, survival.items(run.plan, run.state), found, receipts.of_run(space, run))


def declare(space: Workspace, named: str | None, added: Sequence[str], dropped: Sequence[str]) -> list[Problem]:
    """Add items to what must survive in a run, and take such out again that were added so; gives warnings of them.

    dropped: as they were added, or by their names. Raises as `find.to_drive`; BAD_STATUS for a run that is over,
    NO_SUCH_ITEM, and for an item what `loomctl check` would say of it.
    """
    run_id = find.to_drive(space, named)
    run = space.store.read(run_id)
    for entry in added:
        _refuse(entry)

    def change(state: State) -> tuple[State, list[Event]]:
        if state["status"] in TERMINAL:
            what = f"the run {run.handle} is {state['status']}, so nothing of it will be compacted"
            raise LoomError("BAD_STATUS", what, hint=f"loomctl prove {run.handle}", exit_code=EXIT_USAGE)
        listed = state.get(KEY)
        before = listed if isinstance(listed, list) else []
        gone = [entry for name in dropped for entry in _named(run.plan, before, name, run.handle)]
        kept = [entry for entry in before if entry not in gone]
        known = {item.sought for item in survival.items(run.plan, {KEY: kept})}
        new = survival.items({**run.plan, KEY: []}, {KEY: list(added)})
        after = [*kept, *(item.value for item in new if item.sought not in known)]
        if len(after) > survival.MOST:
            what = f"there would be {len(after)} items; Loom looks for at most {survival.MOST}"
            raise LoomError("TOO_MANY", what, hint=f"loomctl prove {run.handle}", exit_code=EXIT_USAGE)
        if after == before:
            return state, []
        came = [entry for entry in after if entry not in before]
        went = [entry for entry in before if entry not in after]
        told = {"added": _names(run.plan, came), "dropped": _names(run.plan, went)}
        return {**state, KEY: after}, [Event("survival.declared", told, space.caller.session_id)]

    return warnings(run.plan, leases.setting(space, run_id).store.update(run_id, change), added)


def warnings(
    plan: Mapping[str, Any], state: Mapping[str, Any], entries: Sequence[str], where: str = ADDED
) -> list[Problem]:
    """Give what is doubtful about items of a run: what looks like a secret, or like the id of an artifact.

    state: with the items added. where: the option that they were given by. A hint is the command that takes an item
    back, which names one that looks like a secret as `prove` does; for one of the workflow's, it shows the items.
    """
    from loomctl.workflows import artifacts  # `status` looks at receipts alone

    ids = [str(artifact["id"]) for artifact in plan.get("artifacts", ())]
    told = {key: state.get(key) for key in ("goal", "work_id", "context")}
    said = artifacts.everything_said(plan) + artifacts.everything_said(told)

    plans = {item.sought for item in survival.items(plan, {})}
    names = {item.sought: item.name for item in survival.items(plan, state) if item.sought not in plans}

    def taken_back(entry: str, meant: str = "") -> str:
        asks = f"loomctl prove {handle(state)}"
        is_plain = not mask(entry)[1] and len(entry) <= _PASTED and entry.isprintable()
        name = names.get(_sought(plan, entry) or ("", ""), "")
        if not name:
            return asks
        return f"{asks} --drop {quoted(entry if is_plain else name)}" + (f" --add {quoted(meant)}" if meant else "")

    return [
        problem._replace(hint=taken_back(entry)) if problem.code == "SECRET" else problem
        for entry in dict.fromkeys(entries)
        for each in (
            artifacts.entry_problems(entry, where),
            artifacts.unknown_artifact(entry, where, ids, said, taken_back),
        )
        for problem in each
        if problem.severity == "warning"
    ]


def checked(entries: Sequence[str]) -> list[str]:
    """Give items for a run that begins, each once. Raises what `loomctl check` would say of one."""
    for entry in entries:
        _refuse(entry, "loomctl run --help")
    return list(dict.fromkeys(entries))


def _refuse(entry: str, hint: str = "loomctl prove --help") -> None:
    from loomctl.kit.problems import errors
    from loomctl.workflows import artifacts

    found = errors(artifacts.entry_problems(entry, "$"))
    if found:
        raise LoomError(found[0].code, found[0].message, why=found[0].hint, hint=hint, exit_code=EXIT_USAGE)


def _names(plan: dict[str, Any], entries: Sequence[Any]) -> list[str]:
    return [item.name for item in survival.items({**plan, KEY: []}, {KEY: list(entries)})]


def _sought(plan: Mapping[str, Any], entry: Any) -> tuple[str, str] | None:
    return next((item.sought for item in survival.items({**plan, KEY: []}, {KEY: [entry]})), None)


def _named(plan: dict[str, Any], entries: Sequence[Any], name: str, handle: str) -> list[Any]:
    """Give the entries of an item that is called so, or is written so: all that say it. Raises NO_SUCH_ITEM."""
    told = next((item.sought for item in survival.items(plan, {KEY: entries}) if item.name == name), None)
    each = [(entry, _sought(plan, entry)) for entry in entries]
    meant = [sought for entry, sought in each if entry == name] or [told]
    found = [entry for entry, sought in each if entry == name or (sought is not None and sought in meant)]
    if found:
        return found
    ours = any(item.name == name for item in survival.items(plan, {}))
    why = f"added items: {', '.join(_names(plan, entries)) or 'none'}"
    if ours or name in survival.OWN:
        why = "the run's workflow declares it" if ours else "every run has it"
    hint = f"loomctl prove {handle}"
    raise LoomError("NO_SUCH_ITEM", f"no item {name!r:.100} was added", why=why, hint=hint, exit_code=EXIT_USAGE)


def of_records(
    space: Workspace, run: Run, records: Iterable[Mapping[str, Any]], *, largest: int | None = None
) -> list[Compacted]:
    """Give every compaction of a run that its sessions' records and its log tell, oldest first, with what comes back.

    largest: for a glance, bytes of a log that is looked through; None: of any.
    """
    found = sorted(receipts.compactions(records), key=lambda one: one.at)
    if largest is None or (found and _size(run.folder) <= largest):
        found = completed(run.folder, found)
    return sorted(with_pending(space, run.run_id, found), key=lambda one: one.at)


def with_pending(space: Workspace, run_id: str, compactions: Sequence[Compacted]) -> list[Compacted]:
    """Give compactions, each session's in their order, with what of them is still put back.

    It is read from what the hooks keep for themselves (`runs/machine/session_notes`), so another machine knows of none.
    """
    last = {(one.session_id, one.at): at for at, one in enumerate(compactions)}
    return [
        one._replace(pending=_pending(space, run_id, one, is_last=last[(one.session_id, one.at)] == at))
        for at, one in enumerate(compactions)
    ]


def _pending(space: Workspace, run_id: str, one: Compacted, *, is_last: bool) -> list[str]:
    """Name what of a compaction's losses is put back yet: with the next tool result or prompt of its session.

    is_last: whether none of its session came later in the same second, which tells where no record numbers it. Empty
    once the session has ended. What never fits is none of it as soon as that was found.
    """
    lost = one.receipt.still_lost if one.receipt is not None else []
    noted = session_notes.read_owed(space.store.local, one.session_id) if lost else None
    if noted is None or noted.get("run_id") != run_id or noted.get("at") != one.at:
        return []
    if noted["number"] != one.number if noted.get("number") else not is_last:
        return []
    binding = space.local.binding(one.session_id)
    if binding is None or binding["run_id"] != run_id or not space.local.is_alive(binding):
        return []
    coming = {
        *session_notes.left(noted),
        *(name for part in session_notes.parts(noted) for name in session_notes.names(part, "given")),
    }
    return [name for name in lost if name in coming.difference(session_notes.names(noted, "never"))]


def _size(run_dir: str) -> int:
    try:
        return os.stat(os.path.join(run_dir, events.FILE)).st_size
    except OSError:
        return 0


def completed(run_dir: str, compactions: Sequence[Compacted]) -> list[Compacted]:
    """Give compactions with the receipts that the log tells, where the state has none that is proven.

    A session whose run was taken over meanwhile writes events alone. compactions: oldest first. A log that cannot be
    read tells nothing.
    """
    every = list(compactions)
    open_ones = {at for at, one in enumerate(every) if one.receipt is None or not one.receipt.proven}
    try:
        lines = event_log.tail(
            run_dir, sys.maxsize, lambda entry: entry.get("event") in _LOGGED, tuple(name.encode() for name in _LOGGED)
        )
        entries = [line.entry for line in lines if line.entry is not None]
    except (OSError, LoomError):
        return every
    for entry in entries:
        raw = entry.get("properties")
        properties = raw if isinstance(raw, dict) else {}
        at = _place(every, entry, properties)
        if at not in open_ones:
            continue
        if entry["event"] == _CHECKED:
            receipt = receipts.read(properties) or every[at].receipt
        else:
            receipt = receipts.with_restored(every[at].receipt, receipts.texts(properties.get("items")))
        every[at] = every[at]._replace(receipt=receipt)
    return every


def _place(every: Sequence[Compacted], entry: Mapping[str, Any], properties: Mapping[str, Any]) -> int:
    """Give the place of the compaction that an event tells of; -1 where there is none.

    It says which by its moment and its number, if its session's record numbers it. An older Loom's says neither: then
    it is the last that was before the event.
    """
    own = [place for place, one in enumerate(every) if one.session_id == entry.get("session_id")]
    which = properties.get("compaction")
    if isinstance(which, dict) and which.get("at"):
        number = which.get("number", 0)
        same = [place for place in own if every[place].at == which["at"]]
        places = [place for place in same if every[place].number == number] or ([] if number else same)
        return places[-1] if places else -1
    when = clock.seconds_of(str(entry.get("ts") or ""))
    places = [place for place in own if clock.seconds_of(every[place].at) <= when]
    return places[-1] if places else -1
