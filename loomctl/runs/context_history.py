"""What became of a run's context: every change of a key, by whom, from what to what (D31, D37).

The log says in which order steps ended, were undone, and people set values; each stage's `status.json` says what its
end changed. What the two cannot explain is told as a change that is not on record.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked, masked_line
from loomctl.runs import context_values, stages
from loomctl.runs.model import run_context
from loomctl.runs.store import blobs, event_log, events

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from loomctl.runs.store.store import Run

USER, STEP, UNDO, UNKNOWN = "user", "step", "undo", "unknown"
EVENT, FORKED = "context.updated", "run.forked"


class Nothing:
    """What a key holds that is not set."""

    def __repr__(self) -> str:
        """Say so."""
        return "not set"


NOTHING = Nothing()
_LATER = Nothing()  # what the next change of the key tells, or the state


class Change(NamedTuple):
    """One change of one key.

    by: USER, STEP (the end of `stage`), UNDO (of that stage) or UNKNOWN; at: UTC, empty where it is not known; before,
    after: values as the state keeps them, NOTHING where the key was not set. What a person set is on record with its
    secrets masked, and a larger value by its reference.
    """

    key: str
    by: str
    at: str
    before: Any
    after: Any
    stage: str | None = None
    session_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON: `before` and `after` are left out where the key was not set."""
        told = {"key": self.key, "by": self.by, "at": self.at, "stage": self.stage, "session_id": self.session_id}
        ends = {"before": self.before, "after": self.after}
        return {**told, **{name: value for name, value in ends.items() if value is not NOTHING}}


def of_run(run: Run, key: str | None = None) -> list[Change]:
    """Give every change of a run's context, or of one key, oldest first. Raises OSError and UNSAFE_LINK."""
    rows: dict[str, list[tuple[float, Change]]] = {}
    for order, change in enumerate(_replayed(run)):
        if key is None or change.key == key:
            rows.setdefault(change.key, []).append((order, change))
    context = run.state["context"]
    names = dict.fromkeys([*rows, *context]) if key is None else {key: None}
    found = [row for name in names for row in _linked(rows.get(name, []), name, context.get(name, NOTHING))]
    return [change for _, change in sorted(found, key=lambda row: row[0])]


def setters(changes: list[Change]) -> dict[str, Change]:
    """Give of each key the change that made it what it is; what an undo took back counts as never done."""
    made: dict[str, list[Change]] = {}
    for change in changes:
        stack = made.setdefault(change.key, [])
        if change.by != UNDO:
            stack.append(change)
            continue
        while stack and stack.pop().stage != change.stage:
            pass
    return {key: stack[-1] for key, stack in made.items() if stack}


def by_hand_since(run: Run, at: str) -> list[str]:
    """Name the keys that hold what a person set at a time or later; none where the log cannot be read."""
    try:
        made = setters(of_run(run))
    except (OSError, LoomError):
        return []
    return sorted(
        key for key, last in made.items() if last.by == USER and last.at >= at and key in run.state["context"]
    )


def by_hand_in_branches(run: Run, at: str) -> list[str]:
    """Name what a person set in branches at a time or later, `BRANCH: KEY`; none where the log cannot be read."""
    found: list[str] = []
    try:
        for entry in _entries(run):
            properties = entry["properties"]
            branch, keys = properties.get("branch"), properties.get("keys")
            by_hand = entry["event"] == EVENT and properties.get("by") == USER and str(entry.get("ts") or "") >= at
            if by_hand and isinstance(branch, str) and isinstance(keys, list):
                found += [f"{branch}: {key}" for key in keys]
    except (OSError, LoomError):
        return []
    return list(dict.fromkeys(found))


def noted(key: str, value: Any) -> Any:
    """Give a value as the log may hold it: its secrets masked, as the log does to whatever it is given (D21)."""
    return masked({key: value})[key]


# ---- From the log and the stages.


class _Applied(NamedTuple):
    """What a stage's end did. status: its `status.json`; at: its first place among the changes."""

    status: Mapping[str, Any]
    at: int

    @property
    def before(self) -> dict[str, Any]:
        """What each key held that it changed."""
        raw = self.status.get("context_before")
        held = raw if isinstance(raw, dict) else {}
        values, gone = held.get("set"), held.get("gone")
        absent = dict.fromkeys((one for one in gone if isinstance(one, str)), NOTHING) if isinstance(gone, list) else {}
        return {**(values if isinstance(values, dict) else {}), **absent}

    def after(self, key: str) -> Any:
        """What a key held then; the engine's own keys are not written down with it."""
        raw = self.status.get("context_updates")
        return raw.get(key, _LATER) if isinstance(raw, dict) else _LATER


def _replayed(run: Run) -> list[Change]:
    found: list[Change] = []
    applied: dict[str, _Applied] = {}  # by stage, those that were not undone
    undone: dict[str, int] = {}
    for entry in _entries(run):
        properties, at = entry["properties"], str(entry.get("ts") or "")
        stage, session = properties.get("stage"), entry.get("session_id")
        if properties.get("branch"):  # it changed its own context; the join tells what came of it (D43)
            continue
        if entry["event"] == EVENT and properties.get("by") == USER:
            found += _by_hand(properties, at, session)
        elif entry["event"] == "stage.completed" and isinstance(stage, str):
            if stage in applied:  # told before a kill, and done after it
                again = applied[stage].at
                found[again:] = [one for one in found[again:] if (one.by, one.stage) != (STEP, stage)]
            end = applied[stage] = _Applied(_status(run, stage, undone.get(stage, 0)), len(found))
            found += [Change(key, STEP, at, old, end.after(key), stage, session) for key, old in end.before.items()]
        elif entry["event"] == "stage.undone" and stage in applied:
            end = applied.pop(stage)
            undone[stage] = undone.get(stage, 0) + 1
            found += [Change(key, UNDO, at, _LATER, old, stage, session) for key, old in end.before.items()]
    return found


def _entries(run: Run) -> Iterator[dict[str, Any]]:
    """Give the log's entries; what a fork brought along stands as the entries of its origin did (`brought_along`)."""
    path = os.path.join(run.folder, events.FILE)
    files.refuse_links(os.path.dirname(os.path.dirname(run.folder)), path)
    for line in event_log.all_of(path):
        if line.entry is None or not isinstance(line.entry.get("properties"), dict):
            continue
        if line.entry["event"] == FORKED:
            brought = line.entry["properties"].get("context")
            for one in brought if isinstance(brought, list) else ():
                if isinstance(one, dict):
                    yield _as_told(one)
        yield line.entry


def _as_told(brought: dict[str, Any]) -> dict[str, Any]:
    of_stage = "stage" in brought
    told = {"stage": brought["stage"]} if of_stage else {**brought, "by": USER}
    name = "stage.completed" if of_stage else EVENT
    return {"event": name, "ts": brought.get("at"), "session_id": brought.get("session_id"), "properties": told}


def brought_along(run: Run, kept: Collection[str]) -> list[dict[str, Any]]:
    """Give what made the context, oldest first, as the log of a fork that keeps these stages alone tells it.

    Each is `{stage, at, session_id}` for the end of a stage, or `{keys, values, before, at, session_id}` for what
    somebody set by hand. What was taken back again, or is for a fork, is not among them. Raises OSError, UNSAFE_LINK.
    """
    found: list[dict[str, Any]] = []
    undone: dict[str, int] = {}
    for entry in _entries(run):
        properties, at, session = entry["properties"], entry.get("ts"), entry.get("session_id")
        stage = properties.get("stage")
        if entry["event"] == EVENT and properties.get("by") == USER:
            told = {name: properties[name] for name in ("keys", "values", "before") if name in properties}
            found.append({**told, "at": at, "session_id": session})
        elif entry["event"] == "stage.completed" and isinstance(stage, str):
            found = [one for one in found if one.get("stage") != stage]
            found.append({"stage": stage, "at": at, "session_id": session})
        elif entry["event"] == "stage.undone" and any(one.get("stage") == stage for one in found):
            found = _without(found, stage, _Applied(_status(run, stage, undone.get(stage, 0)), 0))
            undone[stage] = undone.get(stage, 0) + 1
    for stage in reversed([one["stage"] for one in found if "stage" in one and one["stage"] not in kept]):
        found = _without(found, stage, _Applied(_status(run, stage, undone.get(stage, 0)), 0))
    return found


def _without(found: list[dict[str, Any]], stage: str, end: _Applied) -> list[dict[str, Any]]:
    """Leave out a stage's end, and of what was set by hand after it the keys that go back with it."""
    at = next(index for index, one in enumerate(found) if one.get("stage") == stage)
    later = []
    for one in found[at + 1 :]:
        if "stage" in one:
            later.append(one)
            continue
        names = one.get("keys")
        keys = [key for key in names if key not in end.before] if isinstance(names, list) else []
        if keys:
            later.append({**one, "keys": keys})
    return [*found[:at], *later]


def _by_hand(properties: Mapping[str, Any], at: str, session: str | None) -> list[Change]:
    values, before, keys = (properties.get(name) for name in ("values", "before", "keys"))
    values = values if isinstance(values, dict) else {}
    before = before if isinstance(before, dict) else {}
    names = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
    return [
        Change(key, USER, at, before.get(key, NOTHING), values.get(key, NOTHING), session_id=session) for key in names
    ]


def _status(run: Run, stage: str, undone: int) -> Mapping[str, Any]:
    try:
        there = [*reversed(stages.aside(run.folder, stage, stages.STATUS)), stages.STATUS]
        text = stages.read_text(run.folder, stage, there[undone]) if undone < len(there) else None
        status = files.parse_json((text or "{}").encode(), where=stages.STATUS)
    except LoomError:
        return {}
    return status if isinstance(status, dict) else {}


# ---- One change after the other.


def _linked(rows: list[tuple[float, Change]], key: str, now: Any) -> list[tuple[float, Change]]:
    """Join a key's changes: each begins with what the one before left, and the last one leaves what is there now.

    A change that the log tells, and a kill kept from being made, goes; what is not on record is put between.
    """
    kept: list[tuple[float, Change]] = []
    for order, change in rows:
        start = kept[-1][1].after if kept else NOTHING
        before = start if change.before is _LATER else change.before
        _join(kept, key, before, order - 0.5, change.at)
        kept.append((order, change._replace(before=before)))
    _join(kept, key, now, float("inf"), "")
    return kept


def _join(kept: list[tuple[float, Change]], key: str, value: Any, order: float, at: str) -> None:
    """Let the last change leave a value, whatever that takes."""
    last = kept[-1] if kept else None
    if last is not None and last[1].after is _LATER:
        kept[-1] = (last[0], last[1]._replace(after=value))
        return
    held = last[1].after if last is not None else NOTHING
    if _alike(key, held, value):
        return
    if last is not None and last[1].by == USER and _alike(key, last[1].before, value):
        kept.pop()
        return
    kept.append((order, Change(key, UNKNOWN, at, held, value)))


def _alike(key: str, one: Any, other: Any) -> bool:
    """Tell whether two records are of one value: masked or not, by reference or in full."""
    if one is NOTHING or other is NOTHING:
        return one is other
    if blobs.is_ref(one) != blobs.is_ref(other):
        return _ref(one) == _ref(other)
    return run_context.same(noted(key, one), noted(key, other))


def _ref(value: Any) -> str:
    return str(value) if blobs.is_ref(value) else blobs.ref_of(context_values.encoded(value))


def set_by_hand(run: Run, since: str) -> list[str]:
    """Say which values of the context somebody set by hand since a time.

    They are no stage's, and stay; those of a branch are its own, and are gone with it.
    """
    look = f"(loomctl context history {run.handle})"
    kept = _listed(by_hand_since(run, since))
    gone = _listed(by_hand_in_branches(run, since))
    return [
        *([f"set by hand since then, and kept: {kept} {look}"] if kept else []),
        *([f"set by hand in branches since then, and gone with them: {gone}"] if gone else []),
    ]


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(masked_line(key, 80) for key in keys[:10]) + (f", and {len(keys) - 10} more" if keys[10:] else "")
