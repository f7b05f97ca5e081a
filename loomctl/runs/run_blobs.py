"""The blobs that runs refer to: which can go, and those that a run takes along in its own folder (D38, D42, D56).

A reference is looked for in every byte of what runs keep, not in what can be parsed: states and their backups, kept
broken ones, logs, stages, plans, FABER's own files, runs without a state. Where something cannot be read, or a run's
state cannot be used, nothing goes. A blob that was put within the last hour stays whoever refers to it, for its writer
may be about to name it; whoever puts a blob that is there makes it young again, under the lock that a removal holds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit import files, git
from loomctl.kit.errors import LoomError
from loomctl.runs import context_values
from loomctl.runs.store import blobs, layouts, leftovers
from loomctl.runs.store.blobs import Blobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loomctl.runs.project import Workspace

YOUNG = 60 * 60  # seconds
_LONGEST = 6 + 12 + 64
_ENDING = ".json"
_PIECE = 1 << 20


class Blob(NamedTuple):
    """A blob in the store. put: when it was last put, in seconds since 1970."""

    ref: str
    path: str
    bytes: int
    put: float


class Look(NamedTuple):
    """going: what no run refers to; kept: what a run does; young: what was put within the last hour.

    unsure: what could not be read, each with the reason, so that everything stays.
    """

    going: Sequence[Blob]
    kept: Sequence[Blob]
    young: Sequence[Blob]
    unsure: Sequence[tuple[str, str]]


class Collected(NamedTuple):
    """What was done; what somebody put again meanwhile just stays."""

    removed: Sequence[Blob]
    failed: Sequence[tuple[Blob, str]]


def look(space: Workspace, *, now: float) -> Look:
    """Tell which blobs can go; reads alone. now: seconds since 1970."""
    there = {blob.ref: blob for blob in stored(space.store.folder)}
    old = {ref: blob for ref, blob in there.items() if blob.put < now - YOUNG}
    young = [blob for ref, blob in there.items() if ref not in old]
    if not old:
        return Look([], [], young, [])
    unsure: list[tuple[str, str]] = [*_unusable(space)]
    named = _named_by(_roots(space), unsure)
    waiting = [ref for ref in there if ref in named or ref not in old]
    while waiting:  # a value may itself hold a reference
        inside = _named_by([there[waiting.pop()].path], unsure) - named
        named |= inside
        waiting += [ref for ref in inside if ref in old]
    if unsure:
        return Look([], list(old.values()), young, unsure)
    going = [blob for ref, blob in old.items() if ref not in named]
    return Look(going, [blob for ref, blob in old.items() if ref in named], young, [])


def collect(space: Workspace, found: Look, *, now: float) -> Collected:
    """Remove what can go, as far as nobody put it again meanwhile. now: as `look` was given."""
    store = Blobs(space.store.folder)
    removed: list[Blob] = []
    failed: list[tuple[Blob, str]] = []
    for blob in found.going:
        try:
            if store.discard(blob.ref, before=now - YOUNG):
                removed.append(blob)
        except (OSError, LoomError) as error:
            failed.append((blob, error.what if isinstance(error, LoomError) else error.strerror or str(error)))
    return Collected(removed, failed)


def stored(store: str) -> Iterator[Blob]:
    """Give every blob of a store; what stands there under another name is somebody else's."""
    folder = os.path.join(store, blobs.FOLDER)
    files.refuse_links(os.path.dirname(store), os.path.join(folder, "sha256"))
    for found in leftovers.below(os.path.join(folder, "sha256")):
        above, name = os.path.split(found.path)
        if blobs.is_sha256(name) and os.path.basename(above) == name[:2]:
            yield Blob(blobs.ref_to(name), found.path, found.bytes, found.changed)


def named_below(path: str) -> set[str]:
    """Give the references that may stand in a file or in all files below a folder. Raises OSError."""
    unsure: list[tuple[str, str]] = []
    found = _named_by([path], unsure)
    if unsure:
        raise OSError(f"{unsure[0][0]}: {unsure[0][1]}")
    return found


def _unusable(space: Workspace) -> Iterator[tuple[str, str]]:
    for home in space.store.homes():
        try:
            space.store.read_home(home)
        except LoomError as error:
            yield home.state, f"{error.code}: {error.what}"


def _roots(space: Workspace) -> list[str]:
    """Give the folders in which references may stand: the runs', this machine's own, and FABER's in every worktree."""
    owner = os.path.dirname(space.store.folder)
    top = git.top_of(owner)
    others = git.worktrees(top) if top is not None else ()
    roots = [
        *space.project.faber_roots,
        *(os.path.normpath(os.path.join(other, os.path.relpath(owner, top))) for other in others if top is not None),
    ]
    fabers = [os.path.join(root, layouts.FABER) for root in roots]
    return list(dict.fromkeys([space.store.runs_folder, space.store.local, *fabers]))


def _named_by(paths: Iterable[str], unsure: list[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        for file in _files(path, unsure):
            try:
                found |= _named_in(file)
            except FileNotFoundError:  # it went meanwhile, or was replaced by what is read in its place
                continue
            except OSError as error:
                unsure.append((file, error.strerror or str(error)))
    return found


def _files(path: str, unsure: list[tuple[str, str]]) -> Iterator[str]:
    if os.path.islink(path):
        return
    try:
        with os.scandir(path) as entries:
            inside = list(entries)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        yield path
        return
    except OSError as error:
        unsure.append((path, error.strerror or str(error)))
        return
    for entry in inside:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, unsure)
        elif entry.is_file(follow_symlinks=False):
            yield entry.path


def _named_in(path: str) -> set[str]:
    found: set[str] = set()
    with os.fdopen(files.open_regular(path), "rb") as source:
        rest = b""
        while piece := source.read(_PIECE):
            data = rest + piece
            found |= blobs.named_in(data)
            rest = data[-_LONGEST:]
    return found


def put_in(space: Workspace, folder: str) -> None:
    """Copy every whole blob that a run's folder names, and those that they name, into the folder. Raises OSError."""
    for ref, data in named(space, folder, named_below(folder)):
        blobs.keep_copy(folder, blobs.FOLDER, blobs.sha256_of(ref) + _ENDING, data)


def named(space: Workspace, run_dir: str, refs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Give each whole blob of these, and of those that they name in turn: the store's, or the run's own copy of it.

    One that is missing or damaged is left out: whether it is missed, `trouble` says.
    """
    store = Blobs(space.store.folder)
    seen: set[str] = set()
    waiting = sorted(refs)
    while waiting:
        ref = waiting.pop()
        if ref in seen:
            continue
        seen.add(ref)
        try:
            data: bytes | None = store.get(ref)
        except LoomError:
            data = context_values.brought_along(run_dir, ref)
        if data is not None:
            yield ref, data
            waiting += blobs.named_in(data)


def take_out(space: Workspace, folder: str) -> None:
    """Put the whole copies that a run's folder holds into the store; one whose bytes are not its name's is nothing."""
    store = Blobs(space.store.folder)
    for ref in _copies(folder):
        data = context_values.brought_along(folder, ref)
        if data is not None:
            store.put(data)


def _copies(folder: str) -> Iterator[str]:
    for found in leftovers.below(os.path.join(folder, blobs.FOLDER)):
        name = os.path.basename(found.path).removesuffix(_ENDING)
        if blobs.is_sha256(name):
            yield blobs.ref_to(name)


def lost(space: Workspace, folder: str) -> tuple[str, ...]:
    """Give the references in a run's context behind which no whole blob is; none where its state cannot be read."""
    try:
        state = files.read_json(os.path.join(folder, "state.json"))
    except (OSError, LoomError):
        return ()
    return tuple(ref for ref in blobs.refs_of_state(state) if trouble(space.store.folder, folder, ref) is not None)


def trouble(store: str, run_dir: str, ref: str) -> LoomError | None:
    """Say what is wrong with a blob that a run refers to; None where it, or a copy in the run's folder, is whole."""
    try:
        Blobs(store).get(ref)
    except LoomError as error:
        is_here = context_values.brought_along(run_dir, ref) is not None
        return None if is_here else context_values.instead(error, run_dir, ref)
    return None
