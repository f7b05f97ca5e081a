"""Reading one critical artifact, whatever its type: bounded, confined, running nothing of the project's (D16, D17)."""

from __future__ import annotations

import os

from loomctl.kit import digests, git
from loomctl.kit.errors import LoomError
from loomctl.priming.artifact_texts import REFUSE_BYTES, Reading, read_file
from loomctl.runs.artifact_paths import Place, Roots, expanded, is_inside, locate, real

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    # By the name of a placeholder: the kind of text, and what gives it.
    Own = Mapping[str, tuple[str, Callable[[], str]]]

LISTED = 200
ASSISTANT_TYPES = ("work_plugin", "skill")
GIT_PATIENCE = 2.0  # seconds


def read(
    artifact: Mapping[str, Any],
    declared: str,
    known: Mapping[str, str | None],
    roots: Roots,
    own: Own | None = None,
) -> Reading:
    """Read an artifact. declared: its path, or its command for `git_info`. Never raises for what a project may hold.

    own: how the run's state and plan are shown, whose files hold more than an assistant reads, or another's form (D5).
    """
    try:
        if artifact["type"] == "git_info":
            return _git_info(expanded(declared, known), roots)
        place = locate(declared, known, roots)
        reading = _read_place(artifact, place, known, roots, own or {})
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
    known: Mapping[str, str | None],
    roots: Roots,
    own: Own,
) -> Reading:
    for name, (kind, how) in own.items():
        if place.path == real(known.get(name) or ""):
            text = how()
            return Reading(text, digests.of_text(text), len(text.encode()), kind=kind, rendered=True)
    if not os.path.lexists(place.path):
        return Reading(problem="missing", message="no such file")
    strategy = artifact.get("load_strategy")
    if os.path.isdir(place.path):
        if artifact["type"] != "directory":
            return Reading(problem="unreadable", message="it is a folder; the type directory reads folders")
        return _directory(place, strategy or "summary", roots, required=bool(artifact.get("required")))
    if artifact["type"] == "directory":
        return Reading(problem="unreadable", message="it is a file, not a folder")
    return read_file(place.path, "json" if artifact["type"] == "json" else "markdown", summary=strategy == "summary")


def _directory(place: Place, strategy: str, roots: Roots, *, required: bool) -> Reading:
    entries = _entries(place.path, roots)
    present = [entry for entry in entries if entry[2] is not None]
    lists_folders = strategy == "summary" and any(kind == "folder" for _, kind, _, _ in entries)
    if required and not present and not lists_folders:
        hidden = ", and hidden ones are not read" if any(kind == "hidden" for _, kind, _, _ in entries) else ""
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
        return Reading(bytes=total, problem="too_large", message=f"its files have {total:,} bytes together")
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
    """Tell a path, relative to a folder, that leads to a hidden file or through a hidden folder."""
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
    from loomctl.workflows.model import git_commands  # most artifacts are files

    problem = git_commands.git_command_problem(command)
    if problem:
        return Reading(path=command, problem="refused", message=problem)
    argv = git_commands.git_argv(command)
    answer = git.output(argv, roots.project, patience=GIT_PATIENCE, limit=REFUSE_BYTES + 1)
    if answer is None:
        return Reading(path=command, problem="missing", message="git gave no answer here")
    if len(answer) > REFUSE_BYTES:
        why = f"git says more than {REFUSE_BYTES:,} bytes; ask for less, as with -10 or --stat"
        return Reading(path=command, problem="too_large", message=why)
    text = answer.decode("utf-8", "replace")
    return Reading(text, digests.of_text(text), len(answer), path=command, of="command")
