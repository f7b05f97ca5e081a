"""What a report says of a run beside its log and stages: sessions, savings, what waits, artifacts and their files."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.expressions import state_paths
from loomctl.kit.errors import LoomError
from loomctl.priming import artifact_files, prove, receipts
from loomctl.runs import artifact_paths, leases
from loomctl.runs.artifact_paths import Roots, is_inside, locate, real
from loomctl.runs.model import sessions
from loomctl.runs.tools import tool_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loomctl.priming.receipts import Compacted
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

RUN, PROJECT = "run", "project"
"""What a file's path is below: the run's folder, or the project's."""
_POINTS = 200  # of the line that savings are drawn with
_WELL = ("succeeded", "partially_succeeded")
_SIZED = ("json", "markdown", "directory")
_NEVER = ".git"  # what is in it is git's, and may hold a password of a remote


def text(value: object) -> str:
    """Give a text, empty for what is none."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int | None:
    """Give a whole number; None for what is none."""
    return value if type(value) is int else None


def objects(value: object) -> list[dict[str, Any]]:
    """Give the objects of what should be a list of them."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def section(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Give an object that stands under a key, an empty one for what is none."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


# ---- Sessions.


def all_sessions(space: Workspace, run: Run, earlier: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give every session, those that went out of the state first, with the receipts that the log alone tells."""
    held = sessions.history(run.state)
    names = {record.get("session_id") for record in held}
    records = [*(one for one in earlier if one["session_id"] not in names), *held]
    known = prove.completed(run.folder, list(receipts.compactions(records)))
    told = iter(prove.with_pending(space, run.run_id, known))
    return [_session(one, islice(told, len(objects(one.get("compactions"))))) for one in records]


def _session(record: Mapping[str, Any], compactions: islice[Compacted]) -> dict[str, Any]:
    """Give a session's record without the folder that it worked in."""
    around = section(record, "environment")
    return {
        "session_id": str(record.get("session_id") or ""),
        **{key: text(record.get(key)) for key in ("host", "started_at", "ended_at", "end_reason", "last_activity")},
        **{key: text(around.get(key)) for key in ("hostname", "platform", "git_branch", "git_commit")},
        "dirty": around.get("dirty") if isinstance(around.get("dirty"), bool) else None,
        "resumes": number(record.get("resumes")) or 0,
        "phases_completed": receipts.texts(record.get("phases_completed")),
        "artifacts_loaded": receipts.texts(record.get("artifacts_loaded")),
        "compactions": [
            {"at": one.at, "trigger": one.trigger or "unknown trigger", "receipt": _receipt(one)} for one in compactions
        ],
    }


def _receipt(one: Compacted) -> dict[str, Any] | None:
    if one.receipt is None:
        return None
    return {"absent": [], **one.receipt.to_dict(), "pending": [*one.pending]}


def driver(space: Workspace, run: Run) -> dict[str, str] | None:
    """Give who drives a run, as `loomctl status` does: `session_id`, `hostname`, `since`; None where nobody may."""
    found = leases.document(space, run.run_id, run.state)
    return None if found is None else {key: str(found[key]) for key in ("session_id", "hostname", "since")}


# ---- Savings.


def savings(folder: str) -> dict[str, Any]:
    """Sum up what the reduction of tool steps saved, by tool, and as it grew: `[calls, before, after]`."""
    by_tool: dict[str, list[int]] = {}
    whole, grown = [0, 0, 0], [[0, 0, 0]]
    for step in tool_log.read(folder):
        for sums in (whole, by_tool.setdefault(step.tool_name, [0, 0, 0])):
            for at, more in enumerate((1, step.tokens_before, step.tokens_after)):
                sums[at] += more
        grown.append([*whole])
    every = max(1, -(-len(grown) // _POINTS))
    points = grown[::every] + ([grown[-1]] if (len(grown) - 1) % every else [])
    tools = [{"tool_name": name, **_sums(sums)} for name, sums in by_tool.items()]
    tools.sort(key=lambda one: (-one["tokens_before"], one["tool_name"]))
    return {"tools": tools, "all": _sums(whole), "over_time": points if whole[0] else []}


def _sums(sums: Sequence[int]) -> dict[str, Any]:
    return dict(zip(("steps", "tokens_before", "tokens_after"), sums, strict=True))


# ---- What needs somebody.


def approvals(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give what waits for a person, in the run and in its branches."""
    branches = [branch for visit in state["steps"] for branch in visit.get("branches", ())]
    return [
        {
            "id": str(one.get("id") or ""),
            "reason": text(one.get("reason")),
            "at": text(one.get("requested_at")),
            "choices": receipts.texts(one.get("choices")),
        }
        for holder in (state, *branches)
        for one in objects(holder.get("pending_approvals"))
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
        told.append({"where": where, "type": text(raw.get("type")), "message": said or str(one)})
    known = {one["where"] for one in told}
    untold = [one for one in stages if one["status"] == "failed" and not known & {one["stage"], one["step_id"]}]
    told += [
        {"where": one["stage"], "type": "", "message": one["reason"] or "failed, without a reason"} for one in untold
    ]
    is_mended = _mended(stages)
    return [{**one, "mended": state.get("status") == "completed" or is_mended(one["where"])} for one in told]


def _mended(stages: Sequence[Mapping[str, Any]]) -> Callable[[str], bool]:
    well = {one["step_id"]: one["rank"] for one in stages if one["status"] in _WELL}
    step_of = {one["stage"]: (one["step_id"], one["rank"]) for one in stages}
    last = {one["step_id"]: one["rank"] for one in stages if one["status"] == "failed"}

    def mended(where: str) -> bool:
        step_id, rank = step_of.get(where, (where, last.get(where, 0)))
        return bool(well.get(step_id, -1) > rank)

    return mended


# ---- Artifacts.


class Artifacts(NamedTuple):
    """The artifacts of a run. own: the store's folder, of which the run's alone is anybody's to see."""

    run: Run
    values: Mapping[str, str | None]
    roots: Roots
    own: str

    def critical(self, primings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Give each critical one: in which forms it was given, which one is in context, when; its file and size."""
        held = objects(section(self.run.state, "context_metadata").get("artifacts_in_context"))
        current = {str(one.get("artifact_id")): one for one in held}
        return [self._critical(one, current.get(str(one["id"]), {}), primings) for one in self.run.plan["artifacts"]]

    def _critical(
        self, one: Mapping[str, Any], now: Mapping[str, Any], primings: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        name = str(one["id"])
        given = [(priming["loaded"][name], priming) for priming in primings if name in priming["loaded"]]
        last = given[-1][1] if given else {"at": "", "event": ""}
        forms: dict[str, int] = {}
        for form, _ in given:
            forms[form] = forms.get(form, 0) + 1
        size, path = self._on_disk(one)
        return {
            "id": name,
            "type": text(one.get("type")),
            "description": text(one.get("description")),
            "required": one.get("required") is True,
            "forms": forms,
            "form": text(now.get("form")),
            "at": text(now.get("loaded_at")) or last["at"],
            "event": text(now.get("load_trigger")) or last["event"],
            "bytes": size,
            "file": self._file(path),
        }

    def _on_disk(self, one: Mapping[str, Any]) -> tuple[int | None, str]:
        """Give an artifact's size and its path, links followed; None and empty where it is no file, or is not here."""
        declared = one.get("path")
        if one.get("path_from_state"):
            steps = one.get("path_steps")
            declared = state_paths.read(steps, self.run.state) if steps is not None else None
        if one.get("type") not in _SIZED or not isinstance(declared, str) or not declared:
            return None, ""
        found = artifact_files.read(one, declared, self.values, self.roots)
        return found.bytes, found.absolute

    def made(self) -> list[dict[str, Any]]:
        """Give what the run registered: its name, the path as it was said, its file."""
        held = self.run.state["artifacts"].items()
        return [{"name": str(name), "path": str(path), "file": self._made_file(path)} for name, path in held]

    def _made_file(self, path: object) -> dict[str, str] | None:
        try:
            return self._file(locate(path, self.values, self.roots).path) if isinstance(path, str) else None
        except (LoomError, OSError):
            return None

    def _file(self, path: str) -> dict[str, str] | None:
        """Give where a file lies, by a path without links: `below` the run's folder or the project's, and `at`.

        None for what is no file, lies elsewhere, in git's folder, or in Loom's own for another run or this machine.
        """
        if not path or not os.path.isfile(path):
            return None
        run, project = real(self.roots.run_dir), real(self.roots.project)
        if is_inside(path, run):
            return {"below": RUN, "at": os.path.relpath(path, run)}
        if not is_inside(path, project) or is_inside(path, real(self.own)):
            return None
        at = os.path.relpath(path, project)
        return None if _NEVER in at.split(os.sep) else {"below": PROJECT, "at": at}


def artifacts(space: Workspace, run: Run) -> Artifacts:
    """Give the artifacts of a run, to be read."""
    recorded = tuple(sessions.roots(run.state))
    roots = Roots(space.project.root, run.folder, space.project.plugin_root, space.settings.extra_roots, recorded)
    return Artifacts(run, artifact_paths.placeholder_values(space.project, run), roots, space.project.store)
