"""What the stages of a run touched and left, as it was written down at their ends; and assets copied out (D39, D40)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.changes import asset_files, track
from loomctl.kit import digests, files
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.quick_json import as_objects, as_texts
from loomctl.runs import stages
from loomctl.runs.model import visits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.runs.store.store import Run


class Asset(NamedTuple):
    """A captured file. stored: its path below the run's folder; there: whether it still is."""

    stage: str
    path: str
    bytes: int
    sha256: str
    stored: str
    there: bool


class PassedOver(NamedTuple):
    """A file that was not captured though it is an asset. bytes: None where that is unknown; reason: in words."""

    stage: str
    path: str
    bytes: int | None
    reason: str


class StageChanges(NamedTuple):
    """What one stage touched and left.

    ended: whether the stage is over; told: whether anything was written down at its end; files: `{path, by, change?,
    added?, removed?, by_time?}`; total: of all files; unknown: why only tool calls are known.
    """

    stage: str
    step_id: str
    status: str
    ended: bool
    told: bool
    files: Sequence[dict[str, Any]]
    total: int
    unknown: str
    warnings: Sequence[str]
    assets: Sequence[Asset]
    passed_over: Sequence[PassedOver]
    patch_path: str

    @property
    def unknown_line(self) -> str:
        """Say that git could not tell what the stage changed, and why; empty where it could."""
        if not self.unknown:
            return ""
        if self.total:
            return f"Loom only knows the files that tools were called for: {self.unknown}"
        return f"Loom does not know what it changed in your files: {self.unknown}"

    def patch(self) -> bytes | None:
        """Give the changes in git's words, as they were; None where there are none. Raises UNSAFE_LINK, TOO_LARGE."""
        files.refuse_links(os.path.dirname(os.path.dirname(os.path.dirname(self.patch_path))), self.patch_path)
        try:
            return files.read_bytes(self.patch_path)
        except FileNotFoundError:
            return None


def of_run(run: Run, named: str | None = None) -> list[StageChanges]:
    """Give a run's stages in the order in which they began, or the one of this name. Raises NO_SUCH_STAGE."""
    entries = stages.entries(run) if named is None else [stages.find_stage(run, named)]
    return [of_visit(run, entry) for entry in entries]


def of_visit(run: Run, entry: Mapping[str, Any]) -> StageChanges:
    """Give what one visit touched and left. Raises BAD_ID, UNSAFE_LINK, and what keeps its record from being read."""
    folder = stages.folder(run.folder, entry["stage"])
    raw = _record(os.path.join(folder, track.CHANGES))
    held = raw or {}
    count = held.get("count")
    touched = [one for one in as_objects(held.get("files")) if isinstance(one.get("path"), str)]
    return StageChanges(
        entry["stage"],
        str(entry["step_id"]),
        str(entry["status"]),
        ended=entry["status"] not in visits.OPEN,
        told=raw is not None,
        files=touched,
        total=count if type(count) is int else len(touched),
        unknown=str(held.get("files_unknown") or ""),
        warnings=as_texts(held.get("warnings")),
        assets=list(_assets(run, entry["stage"], held)),
        passed_over=list(_passed_over(entry["stage"], held)),
        patch_path=os.path.join(folder, track.PATCH),
    )


def _record(path: str) -> dict[str, Any] | None:
    files.refuse_links(os.path.dirname(os.path.dirname(os.path.dirname(path))), path)
    try:
        found = files.read_json(path)
    except FileNotFoundError:
        return None
    return found if isinstance(found, dict) else {}


def _assets(run: Run, stage: str, held: dict[str, Any]) -> Iterator[Asset]:
    for raw in as_objects(held.get("assets")):
        path, stored = raw.get("path"), raw.get("stored")
        if isinstance(path, str) and isinstance(stored, str) and _is_inside(stored):
            size, sha256 = raw.get("bytes"), raw.get("sha256")
            yield Asset(
                stage,
                path,
                size if type(size) is int else 0,
                sha256 if isinstance(sha256, str) else "",
                stored,
                os.path.isfile(os.path.join(run.folder, stored)),
            )


def _passed_over(stage: str, held: dict[str, Any]) -> Iterator[PassedOver]:
    for raw in as_objects(held.get("assets_passed_over")):
        path, size, reason = raw.get("path"), raw.get("bytes"), raw.get("reason")
        if isinstance(path, str):
            known = reason if isinstance(reason, str) else "unknown"
            yield PassedOver(stage, path, size if type(size) is int else None, known)


def _is_inside(stored: str) -> bool:
    parts = stored.split("/")
    return parts[0] == asset_files.FOLDER and len(parts) > 1 and not {"", ".", ".."} & set(parts) and "\0" not in stored


class Copied(NamedTuple):
    """What became of copies. written: paths; there: how many stood there already as they are; failed: asset and why."""

    written: Sequence[str]
    there: int
    failed: Sequence[tuple[Asset, str]]


def copy(run: Run, assets: Sequence[Asset], target: str, *, force: bool, again: str) -> Copied:
    """Copy assets below a folder, in the places that they have below the run's `assets`; each whole or not at all.

    force: what stands there with other content is replaced; else FILE_EXISTS is raised before anything is written.
    again: the command line that forces it. Raises OSError where nothing can be written.
    """
    places = [(asset, os.path.join(target, *asset.stored.split("/")[1:])) for asset in assets]
    contents: list[tuple[Asset, str, bytes]] = []
    failed: list[tuple[Asset, str]] = []
    taken: list[str] = []
    there = 0
    for asset, place in places:
        source = os.path.join(run.folder, asset.stored)
        try:
            files.refuse_links(run.folder, source)
            data = files.read_bytes(source, limit=asset_files.LARGEST)
        except (OSError, LoomError) as error:
            failed.append((asset, error.what if isinstance(error, LoomError) else error.strerror or str(error)))
            continue
        if asset.sha256 and digests.of_bytes(data) != asset.sha256:
            failed.append((asset, "it was changed after it was captured"))
        elif os.path.lexists(place) and _holds(place, data):
            there += 1
        else:
            if os.path.lexists(place):
                files.check_target(place)
                taken.append(place)
            contents.append((asset, place, data))
    if taken and not force:
        what = f"{len(taken)} of {len(places)} files exist there with other content; nothing was copied"
        why = "use --force to replace them, or name another folder"
        raise LoomError("FILE_EXISTS", what, where=taken[0], why=why, hint=again, exit_code=EXIT_USAGE)
    for _, place, data in contents:
        files.make_folder(os.path.dirname(place), mode=0o755)
        files.write_atomically(place, data, mode=0o644)
    return Copied([place for _, place, _ in contents], there, failed)


def _holds(place: str, data: bytes) -> bool:
    try:
        return not os.path.islink(place) and files.read_bytes(place, limit=len(data)) == data
    except (OSError, LoomError):
        return False


def listed_command(handle: str, target: str, stage: str | None) -> str:
    """Give the command line that copies by force."""
    chosen = f" --stage {quoted(stage)}" if stage else ""
    return f"loomctl show --assets cp {handle} {quoted(target)}{chosen} --force"
