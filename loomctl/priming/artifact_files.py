"""Reading one critical artifact, whatever its type: bounded, confined, running nothing of the project's (D16, D17)."""

from __future__ import annotations

import os

from loomctl.kit import digests, files, git, quick_json
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import utf16_units
from loomctl.runs.artifact_paths import Place, Roots, expanded, is_inside, locate, real
from loomctl.runs.model import sessions, visits
from loomctl.runs.model.state import VOLATILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

LISTED = 200
ASSISTANT_TYPES = ("work_plugin", "skill")
GIT_PATIENCE = 2.0  # seconds
WARN_BYTES = 100 * 1024
REFUSE_BYTES = 1024 * 1024
# A summary is made of a file larger than what is given in full, but not of any file.
SUMMARY_BYTES = 16 * 1024 * 1024
_APART = (
    *(*VOLATILE, "schema_version", "run_id", "plan_id", "workflow_id", "created_at", "work_id", "goal", "status"),
    *("current_phase", "current_step", "phases", "steps", "approvals"),
)
"""Of a state what every priming says in its own head or history, and what only machines read."""


class Reading(NamedTuple):
    """What was found of one artifact.

    text: what a priming gives (None where there is none); sha256: of that text; bytes: of the source, as far as known;
    path: as shown to people; problem: a reason code (`missing`, `path_escape`, `too_large`, `unparsable`, …) or empty;
    message: the problem in words; kind: json, markdown, digest or text; rendered: a run's own file, shown for reading
    and not as its bytes; of: what it is of where it is no file's content (`packing.Piece`);
    warnings: `(code, message)`.
    """

    text: str | None = None
    sha256: str = ""
    bytes: int | None = None
    path: str = ""
    absolute: str = ""
    problem: str = ""
    message: str = ""
    kind: str = "text"
    rendered: bool = False
    of: str = ""
    warnings: tuple[tuple[str, str], ...] = ()


def roots_of(space: Workspace, run: Run) -> Roots:
    """Give where a run's artifacts may lie (D10)."""
    recorded = tuple(sessions.roots(run.state))
    return Roots(space.project.root, run.folder, space.project.plugin_root, space.settings.extra_roots, recorded)


def read(
    artifact: Mapping[str, Any],
    declared: str,
    known: Mapping[str, str | None],
    roots: Roots,
    run: Run | None = None,
) -> Reading:
    """Read an artifact. declared: its path, or its command for `git_info`. Never raises for what a project may hold.

    run: whose state and plan are shown for reading, for their files hold more than that, or another's form (D5).
    """
    try:
        if artifact["type"] == "git_info":
            return _git_info(expanded(declared, known), roots)
        place = locate(declared, known, roots)
        reading = _read_place(artifact, place, roots, run)
    except LoomError as error:
        return Reading(path=declared, problem=error.code.lower(), message=error.what)
    except OSError as error:
        return Reading(path=declared, problem="unreadable", message=error.strerror or str(error))
    if place.rebased:
        note = ("REBASED_PATH", f"{declared} was found here as {place.shown}")
        reading = reading._replace(warnings=(note, *reading.warnings))
    return reading._replace(path=place.shown, absolute=place.path)


def _read_place(
    artifact: Mapping[str, Any],
    place: Place,
    roots: Roots,
    run: Run | None,
) -> Reading:
    if run is not None and place.path in (real(run.state_path), real(run.plan_path)):
        is_state = place.path == real(run.state_path)
        text = readable_state(run.state) if is_state else readable_plan(run.plan, run.state)
        kind = "json" if is_state else "digest"
        return Reading(text, digests.of_text(text), len(text.encode()), kind=kind, rendered=True)
    if not os.path.lexists(place.path):
        return Reading(problem="missing", message="no such file")
    strategy = artifact.get("load_strategy")
    if os.path.isdir(place.path):
        if artifact["type"] != "directory":
            return Reading(problem="unreadable", message="it is a folder; give it the type directory")
        return _directory(place, strategy or "summary", roots, required=bool(artifact.get("required")))
    if artifact["type"] == "directory":
        return Reading(problem="unreadable", message="it is a file, not a folder")
    return read_file(place.path, "json" if artifact["type"] == "json" else "markdown", summary=strategy == "summary")


def _directory(place: Place, strategy: str, roots: Roots, *, required: bool) -> Reading:
    entries = _entries(place.path, roots)
    present = [entry for entry in entries if entry[2] is not None]
    lists_folders = strategy == "summary" and any(kind == "folder" for _, kind, _, _ in entries)
    if required and not present and not lists_folders:
        has_hidden = any(kind == "hidden" for _, kind, _, _ in entries)
        hidden = " that Loom reads; hidden files are left out" if has_hidden else ""
        return Reading(problem="missing", message=f"the folder holds no files{hidden}", of="files")
    if strategy == "summary":
        return _listing(entries)
    left_out = [f"{name} ({kind})" for name, kind, size, _ in entries if size is None and kind != "folder"]
    if not present:
        return Reading("(no files)\n", digests.of_text("(no files)\n"), 0, of="files", warnings=_unread(left_out))
    if strategy == "latest_only":
        name = max(present, key=lambda entry: (entry[3], entry[0]))[0]
        reading = read_file(os.path.join(place.path, name), "markdown")
        if reading.text is None:
            return reading._replace(message=f"{name}: {reading.message}")
        text = f"newest file: {name}\n\n{reading.text}"
        warnings = (*reading.warnings, *_unread(left_out))
        return reading._replace(text=text, sha256=digests.of_text(text), of="newest", warnings=warnings)
    total = sum(entry[2] or 0 for entry in present)
    if total > REFUSE_BYTES:
        return Reading(bytes=total, problem="too_large", message=f"its files have {total:,} bytes in all")
    pieces: list[str] = []
    for name, _, _, _ in present:
        reading = read_file(os.path.join(place.path, name), "markdown")
        if reading.text is None:
            left_out.append(f"{name} ({reading.problem})")
        else:
            pieces.append(f"=== {name} ===\n{reading.text}")
    text = "\n".join(pieces)
    of = "some" if left_out else "files"
    return Reading(text, digests.of_text(text), total, of=of, warnings=_unread(left_out))


def _unread(left_out: Sequence[str]) -> tuple[tuple[str, str], ...]:
    more = f" and {len(left_out) - LISTED:,} more" if len(left_out) > LISTED else ""
    return (("LEFT_OUT", f"not read: {', '.join(left_out[:LISTED])}{more}"),) if left_out else ()


def _entries(folder: str, roots: Roots) -> list[tuple[str, str, int | None, int]]:
    """List a folder one level deep: `(name, kind, size or None, mtime in ns)`.

    A link that leads out is named so, and so is a hidden file, or a link to one, such as .env: neither is ever read.
    """
    found: list[tuple[str, str, int | None, int]] = []
    allowed = [real(root) for root in (roots.project, roots.run_dir, roots.plugin, *roots.extra) if root]
    with os.scandir(folder) as listing:
        for entry in listing:
            leads_to = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if not any(is_inside(leads_to, root) for root in allowed):
                found.append((entry.name, "link out of the project", None, 0))
                continue
            try:
                status = os.stat(leads_to)
            except OSError:
                found.append((entry.name, "broken link", None, 0))
                continue
            if status.st_mode & 0o170000 != 0o100000:
                found.append((entry.name, "folder" if entry.is_dir() else "special", None, status.st_mtime_ns))
            elif entry.name.startswith(".") or (entry.is_symlink() and _is_hidden(os.path.relpath(leads_to, folder))):
                found.append((entry.name, "hidden", None, status.st_mtime_ns))
            else:
                found.append((entry.name, "file", status.st_size, status.st_mtime_ns))
    return sorted(found)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part != os.pardir for part in path.split(os.sep))


def _listing(entries: list[tuple[str, str, int | None, int]]) -> Reading:
    lines = [
        f"{name}/" if kind == "folder" else f"{name}  {size:,} bytes" if size is not None else f"{name}  ({kind})"
        for name, kind, size, _ in entries
    ]
    if len(lines) > LISTED:
        lines = [*lines[:LISTED], f"… and {len(lines) - LISTED} more"]
    text = "".join(f"{line}\n" for line in lines) or "(empty)\n"
    return Reading(text, digests.of_text(text), sum(entry[2] or 0 for entry in entries), of="listing")


def _git_info(command: str, roots: Roots) -> Reading:
    from loomctl.workflows import git_commands  # most artifacts are files

    problem = git_commands.git_command_problem(command)
    if problem:
        return Reading(path=command, problem="refused", message=problem)
    argv = git_commands.git_argv(command)
    answer = git.output(argv, roots.project, patience=GIT_PATIENCE, limit=REFUSE_BYTES + 1)
    if answer is None:
        return Reading(path=command, problem="missing", message="git failed here")
    if len(answer) > REFUSE_BYTES:
        why = f"git prints more than {REFUSE_BYTES:,} bytes; limit it, for example with -10 or --stat"
        return Reading(path=command, problem="too_large", message=why)
    text = answer.decode("utf-8", "replace")
    return Reading(text, digests.of_text(text), len(answer), path=command, of="command")


def read_file(path: str, kind: str, *, summary: bool = False) -> Reading:
    """Read a file that may be read. Raises OSError and LoomError."""
    size = os.stat(path).st_size
    limit = SUMMARY_BYTES if summary else REFUSE_BYTES
    if size > limit:
        why = f"{size:,} bytes; Loom reads at most {limit:,}" + ("" if summary else " without a summary strategy")
        return Reading(bytes=size, problem="too_large", message=why)
    data = files.read_bytes(path, limit=limit)
    warnings: list[tuple[str, str]] = []
    if len(data) > WARN_BYTES:
        warnings.append(("LARGE_ARTIFACT", f"{len(data):,} bytes; Loom seldom gives more than {WARN_BYTES:,} in full"))
    if kind == "json":
        try:
            files.parse_json(data, where=path)
        except LoomError as error:
            return Reading(bytes=len(data), problem="unparsable", message=error.why or error.what)
        text = files.text_of(data)
    elif b"\0" in data:
        return Reading(bytes=len(data), problem="binary", message="it holds NUL bytes, so it is not text")
    else:
        text = files.text_of(data, "replace")
        if "�" in text and b"\xef\xbf\xbd" not in data:
            warnings.append(("NOT_UTF8", "bytes that are not UTF-8 are shown as �"))
    return Reading(text, digests.of_text(text), len(data), kind=kind, warnings=tuple(warnings))


def readable_plan(plan: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Render a plan with a line for each step, done, current or open: `✓ frame/fetch-work: Fetch the work` (D63).

    What a step asks for stands in its own prompt, once, when it is its turn.
    """
    return "\n".join(_plan_lines(plan, state)) + "\n"


def _plan_lines(plan: Mapping[str, Any], state: Mapping[str, Any]) -> Iterator[str]:
    gated = (plan.get("autonomy") or {}).get("require_approval_for") or ()
    last = visits.last_of_each(state)
    for phase in plan["phases"]:
        gate = " (after approval)" if phase.get("require_approval") or phase["id"] in gated else ""
        for step in phase["steps"]:
            if step.get("engine"):
                continue
            branches = [str(one["id"]) for one in (step.get("parallel") or {}).get("branches") or ()]
            among = f" ({', '.join(branches)} in parallel)" if branches else ""
            name = " ".join(str(step.get("name") or step.get("id")).split())
            yield f"{_sign_of_step(last.get(step['key']))} {step['key']}: {name}{among}{gate}"
            gate = ""


def _sign_of_step(last: Mapping[str, Any] | None) -> str:
    if last is None:
        return "·"
    if last["status"] in visits.OPEN:
        return "▸"
    return "✓" if visits.is_done(last) else "✗"


def readable_state(state: Mapping[str, Any]) -> str:
    """Render a state as JSON with a line for each key.

    What a step noted and when it ended stands in the history of a priming, or in the file; what it said is for a
    preamble to tell (D46).
    """
    shown: dict[str, Any] = {key: value for key, value in state.items() if key not in _APART and value not in ([], {})}
    context = state.get("context")
    if isinstance(context, dict):
        apart = ("last_stage", "last_response")
        told = {key: value for key, value in context.items() if key not in apart and not key.startswith("response.")}
        shown["context"] = told
        if not told:
            del shown["context"]
    by_faber = {entry["step_id"]: entry["status"] for entry in visits.recent(state) if entry.get("by") == "faber"}
    if by_faber:
        shown["steps"] = by_faber
    lines = [f"{quick_json.plain(key)}: {quick_json.plain(value)}" for key, value in shown.items()]
    return "{\n" + ",\n".join(lines) + "\n}" if lines else "{}"


# ---- What changed in a text, as a unified diff that leads from the old one to the new one exactly. Lines end at `\n`
# alone. `difflib` is imported only where there is something to compare.

# Pairs of lines that are compared at most, for that takes time that grows with their product; beyond, what differs is
# one change.
MOST_PAIRS = 250_000
_FEW = 4  # pairs that are one change too: most edits are of a line, and comparing takes a module more
NO_END = "\\ No newline at end of file"


def unified_diff(old: str, new: str, *, context: int = 3) -> str:
    """Give the hunks that lead from one text to the other, without headers; empty where they are equal.

    context: lines around a change.
    As `diff -U3` writes them: `@@ -start,count +start,count @@`, then lines that begin with a space, `-` or `+`.
    """
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    groups = _groups(list(_changes(before, after)), context)
    hunks = [line for group in groups for line in _hunk(group, before, after, context)]
    return "\n".join(hunks) + "\n"


def diff_within(old: str, new: str, limit: int) -> str:
    """Give the diff with context if that has fewer than `limit` UTF-16 units, else without: lines may be long."""
    diff = unified_diff(old, new)
    return diff if utf16_units(diff) < limit else unified_diff(old, new, context=0)


def _lines(text: str) -> list[str]:
    """Give the lines, each with its end; only the last may lack one."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Give what differs as ranges of lines, of the old and of the new text; what begins and ends alike comes off."""
    top = 0
    while top < min(len(before), len(after)) and before[top] == after[top]:
        top += 1
    tail = 0
    while tail < min(len(before), len(after)) - top and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[top : len(before) - tail], after[top : len(after) - tail]
    if not old or not new or not _FEW < len(old) * len(new) <= MOST_PAIRS:
        yield top, top + len(old), top, top + len(new)
        return
    from difflib import SequenceMatcher

    for tag, a1, a2, b1, b2 in SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            yield top + a1, top + a2, top + b1, top + b2


def _groups(changes: Sequence[tuple[int, int, int, int]], context: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Put changes together whose context meets."""
    group: list[tuple[int, int, int, int]] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(
    group: Sequence[tuple[int, int, int, int]], before: Sequence[str], after: Sequence[str], context: int
) -> Iterator[str]:
    above = min(context, group[0][0], group[0][2])
    a1, b1 = group[0][0] - above, group[0][2] - above
    below = min(context, len(before) - group[-1][1])
    a2, b2 = group[-1][1] + below, group[-1][3] + below
    yield f"@@ -{_range(a1, a2)} +{_range(b1, b2)} @@"
    at = a1
    for old_from, old_to, new_from, new_to in group:
        for line in before[at:old_from]:
            yield from _told(" ", line)
        for line in before[old_from:old_to]:
            yield from _told("-", line)
        for line in after[new_from:new_to]:
            yield from _told("+", line)
        at = old_to
    for line in before[at:a2]:
        yield from _told(" ", line)


def _range(start: int, end: int) -> str:
    """Give a range of lines as a diff writes it: an empty one names the line before it."""
    count = end - start
    return f"{start + 1 if count else start},{count}"


def _told(sign: str, line: str) -> Iterator[str]:
    yield sign + line.removesuffix("\n")
    if not line.endswith("\n"):
        yield NO_END
