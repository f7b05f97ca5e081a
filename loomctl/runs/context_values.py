"""The values of a run's context: large ones become blobs, and all of them are read as what they are (D37, D38, D42)."""

from __future__ import annotations

import os

from loomctl.kit import files, machine, trouble
from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.kit.processes import HOOK_PATIENCE, PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import project, stages
from loomctl.runs.artifact_paths import is_inside, real
from loomctl.runs.machine import run_notes
from loomctl.runs.model import sessions
from loomctl.runs.store import blobs, layouts, recovery
from loomctl.runs.store.blobs import Blobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

LARGEST_INLINE = 102_400  # bytes of compact UTF-8 JSON
ALWAYS_STORED = ("command.output",)
_STAGE, _FILE = "$stage", "file"


def stored(space: Workspace, updates: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Give the values as the state keeps them, and what is to be warned of: `{code, where, message}`.

    A value over LARGEST_INLINE becomes a reference to a blob of its JSON bytes, `command.output` always does. What
    could not be stored stays inline. A text that looks like a reference is passed on where it leads to a blob, and else
    becomes a blob itself, so that it reads as that text: no reference leads to nothing. So does an object that looks
    like the engine's own word for a stage's response.
    """
    store, values, warnings = Blobs(space.store.folder), {}, []
    for key, value in updates.items():
        values[key] = value
        data = encoded(value)
        if blobs.is_ref(value):
            data = _leads_to(store, value) or data
        elif len(data) <= LARGEST_INLINE and key not in ALWAYS_STORED and _response_of(value) is None:
            continue
        try:
            values[key] = store.put(data, patience=_patience(space))  # of a blob that is there: it counts as new
        except (OSError, LoomError) as error:
            warnings.append(_not_stored(key, len(data), error))
    return values, warnings


def _leads_to(store: Blobs, ref: str) -> bytes | None:
    try:
        return store.get(ref)
    except (OSError, LoomError):
        return None


def response_value(space: Workspace, stage: str, response: str) -> tuple[Any, list[dict[str, str]]]:
    """Give what the state keeps for a stage's response, which stands in its folder: a reference to that file (D38).

    Above the limit it is a reference to a blob; where that cannot be stored it stays the one to the file.
    """
    by_file = {_STAGE: stage, _FILE: stages.RESPONSE}
    data = encoded(response)
    if len(data) <= LARGEST_INLINE:
        return by_file, []
    try:
        return Blobs(space.store.folder).put(data, patience=_patience(space)), []
    except (OSError, LoomError) as error:
        return by_file, [_not_stored(f"response of {stage}", len(data), error)]


def encoded(value: Any) -> bytes:
    """Give a value's compact JSON in UTF-8, by which it is measured, hashed and stored."""
    return files.to_json_line(value)[:-1]


def _patience(space: Workspace) -> float:
    return HOOK_PATIENCE if space.caller.on_hook_path else PATIENCE


def _not_stored(key: str, size: int, error: OSError | LoomError) -> dict[str, str]:
    why = error.what if isinstance(error, LoomError) else str(error)
    return {"code": "NOT_OFFLOADED", "where": key, "message": f"{size:,} bytes stay in the state: {why}"}


def value_of(space: Workspace, run: Run, value: Any) -> Any:
    """Give what a value of the context stands for: a blob's content, a stage's response, else the value itself.

    Raises NO_SUCH_BLOB, DAMAGED_BLOB, RESPONSE_GONE and REF_NOT_HERE, which name what is missing, and BAD_JSON for a
    blob that holds no value.
    """
    if blobs.is_ref(value):
        return files.parse_json(content(space, run, value), where=Blobs(space.store.folder).path(value))
    stage = _response_of(value)
    if stage is None:
        return value
    text = stages.read_text(run.folder, stage, stages.RESPONSE)
    if text is None:
        what = f"the response of {stage} is missing"
        where = os.path.join(stages.folder(run.folder, stage), stages.RESPONSE)
        gone = LoomError("RESPONSE_GONE", what, where=where, hint=f"loomctl show {run.handle}")
        raise instead(gone, run.folder, f"stages/{stage}/{stages.RESPONSE}")
    return text


def place_of(space: Workspace, run: Run, value: Any) -> str | None:
    """Give the file in which stands what a value of the context stands for; None for a value that is itself.

    It may not be there. Raises BAD_ID and UNSAFE_LINK for a stage that leads away.
    """
    if blobs.is_ref(value):
        path = Blobs(space.store.folder).path(value)
        brought = os.path.join(run.folder, blobs.FOLDER, f"{blobs.sha256_of(value)}.json")
        return path if os.path.lexists(path) or not os.path.lexists(brought) else brought
    stage = _response_of(value)
    return None if stage is None else os.path.join(stages.folder(run.folder, stage), stages.RESPONSE)


def _response_of(value: Any) -> str | None:
    if not isinstance(value, dict) or value.keys() != {_STAGE, _FILE} or value[_FILE] != stages.RESPONSE:
        return None
    stage = value[_STAGE]
    return stage if isinstance(stage, str) else None


def text_of(space: Workspace, run: Run, value: Any) -> str:
    """Give what a value stands for as text: a text as it is, anything else as compact JSON. Raises as `value_of`."""
    read = value_of(space, run, value)
    return read if isinstance(read, str) else encoded(read).decode()


def read_all(space: Workspace, run: Run) -> tuple[dict[str, Any], list[LoomError]]:
    """Give the run's whole context with what its values stand for; what cannot be read stays a reference, and is named.

    The errors say in `where` which key, before the file.
    """
    values: dict[str, Any] = {}
    troubles: list[LoomError] = []
    for key, value in run.state["context"].items():
        try:
            values[key] = value_of(space, run, value)
        except LoomError as error:
            error.where = f"context {key}: {error.where}"
            troubles.append(error)
            values[key] = value
    return values, troubles


def content(space: Workspace, run: Run, ref: str) -> bytes:
    """Give a blob's bytes, the store's or those of a whole copy in the run's folder. Raises as `Blobs.get`."""
    try:
        return Blobs(space.store.folder).get(ref)
    except LoomError as error:
        copy = brought_along(run.folder, ref)
        if copy is None:
            raise instead(error, run.folder, ref) from None
        return copy


def brought_along(run_dir: str, ref: str) -> bytes | None:
    """Give the copy of a blob that stands in a run's folder, if it is whole (D42)."""
    path = os.path.join(run_dir, blobs.FOLDER, f"{blobs.sha256_of(ref)}.json")
    if files.leads_away(run_dir, path):
        return None
    try:
        data = files.read_bytes(path, limit=blobs.LARGEST)
    except (OSError, LoomError):
        return None
    return data if blobs.ref_of(data) == ref else None


# ---- For reading (D42).


def materialised(space: Workspace, run: Run, ref: str, workdir: str | None = None, *, as_text: bool = False) -> str:
    """Give the path of a file in which a blob, or what a `file://` reference names, can be read by who does the step.

    A blob's bytes stand in `{run_dir}/blobs/{sha256}.json`, made when they are first asked for. workdir: the step's, if
    it has one, relative to the project's root or absolute; where the store does not lie below it, the copy stands in
    `{workdir}/.loom/blobs/{sha256}.json`, and that of an artifact in `{workdir}/.loom/artifacts/{name}`; elsewhere a
    `file://` reference is the path that it names. as_text: a blob that is a text is given as `{sha256}.txt`, with the
    lines that its JSON has none of.

    Raises as `value_of`, OSError, BAD_REF, PATH_ESCAPE for a workdir or an artifact outside of what may be read (D10),
    BAD_WORKDIR, and UNSAFE_LINK.
    """
    folder = room_of(space, workdir)
    if folder is not None:
        folder = blobs.copy_room(os.path.dirname(folder))
    if ref.startswith(blobs.FILE_REF):
        path = blobs.path_in(ref)
        return path if folder is None else _artifact(space, run, path, folder)
    data, name = content(space, run, ref), f"{blobs.sha256_of(ref)}.json"
    if as_text:
        read = files.parse_json(data, where=Blobs(space.store.folder).path(ref))
        if isinstance(read, str):
            data, name = read.encode("utf-8", "backslashreplace"), f"{blobs.sha256_of(ref)}.txt"
    return blobs.keep_copy(folder or run.folder, blobs.FOLDER, name, data)


def room_of(space: Workspace, workdir: str | None) -> str | None:
    """Give the `.loom` folder for copies in a step's workdir, there or not; None where the store can be seen from it.

    Raises PATH_ESCAPE for a workdir outside of the project and the folders that the user allowed.
    """
    if not workdir:
        return None
    root = real(space.project.root)
    path = os.path.realpath(os.path.join(root, workdir))
    if not any(is_inside(path, real(one)) for one in (root, *space.settings.extra_roots)):
        raise _escape("the step's workdir leads out of the project", workdir)
    if is_inside(os.path.realpath(space.store.folder), path):
        return None
    return os.path.join(path, ".loom")


def _artifact(space: Workspace, run: Run, named: str, folder: str) -> str:
    path = os.path.realpath(os.path.join(space.project.root, named))
    roots = (space.project.root, run.folder, space.project.plugin_root, *space.settings.extra_roots)
    if not any(is_inside(path, real(one)) for one in roots):
        raise _escape("the file leads out of the project, the run's folder and the bundle", named)
    data = files.read_bytes(path, limit=blobs.LARGEST)
    return blobs.keep_copy_beside(folder, "artifacts", os.path.basename(path), data)


def _escape(what: str, named: str) -> LoomError:
    why = "Loom follows links first; you can allow a folder elsewhere with extra_roots in your own config.yaml"
    return LoomError("PATH_ESCAPE", what, where=masked_line(named, 300), why=why, hint="loomctl paths")


class _Copy(NamedTuple):
    """A copy that may be made. at: where; make: gives where it stands; otherwise: what is named without it."""

    at: str
    make: Callable[[], str]
    otherwise: str


class Readables:
    """What can be read by who does a step. workdir: the step's, if it has one. troubles: what cannot be read, in words.

    Each method gives the path to name; nothing is written before `make`.
    """

    def __init__(self, space: Workspace, run: Run, workdir: str | None) -> None:
        self._space, self._run, self._workdir = space, run, workdir
        self._copies: dict[str, _Copy] = {}
        self._stands: dict[str, str] = {}
        self.troubles: list[str] = []
        self._room: str | None = None
        try:
            self._room = room_of(space, workdir)
        except LoomError as error:
            self.troubles.append(trouble.said(error))

    def blob(self, ref: str) -> str:
        """Give the file in which a blob can be read; one that is gone by its reference."""
        at = os.path.join(self._room or self._run.folder, blobs.FOLDER, f"{blobs.sha256_of(ref)}.json")
        return self._copy(ref, at, lambda: self._materialised(ref), ref)

    def artifact(self, ref: str) -> str:
        """Give the file that a `file://` reference names, or its copy."""
        if ref in self._stands:
            return self._stands[ref]
        try:
            named = blobs.path_in(ref)
        except LoomError as error:
            self.troubles.append(f"{ref}: {trouble.said(error)}")
            return self._stands.setdefault(ref, ref)
        if self._room is None:
            return named
        at = os.path.join(self._room, "artifacts", os.path.basename(named))
        return self._copy(ref, at, lambda: self._materialised(ref), ref)

    def value(self, key: str, value: Any) -> str:
        """Give the file for a value of the context that is not told whole: a text with its lines, else its JSON."""
        data, ending = encoded(value), ".json"
        if isinstance(value, str):
            data, ending = value.encode("utf-8", "backslashreplace"), ".txt"
        name = blobs.sha256_of(blobs.ref_of(data)) + ending
        folder = self._room or self._run.folder
        at = os.path.join(folder, blobs.FOLDER, name)
        return self._copy(f"context {key}", at, lambda: self._kept(blobs.FOLDER, name, data), "")

    def of_stage(self, stage: str, at: str) -> str:
        """Give a file of a stage, which stands at `at`, or its copy."""
        if self._room is None:
            return at
        folder, name = os.path.join("stages", stage), os.path.basename(at)
        copy = os.path.join(self._room, folder, name)
        return self._copy(copy, copy, lambda: self._kept(folder, name, files.read_bytes(at, limit=blobs.LARGEST)), at)

    def make(self, text: str, named: Callable[[str], str]) -> bool:
        """Make the copies that a text names; tells whether it names them rightly, else it is to be made again.

        named: gives a path as the text names it.
        """
        is_right = True
        for what, copy in self._copies.items():
            if what in self._stands or named(copy.at) not in text:
                continue
            try:
                self._stands[what] = copy.make()
            except (OSError, LoomError) as error:
                self.troubles.append(f"{what}: {trouble.said(error)}")
                self._stands[what] = copy.otherwise
            is_right = is_right and self._stands[what] == copy.at
        return is_right

    def _copy(self, what: str, at: str, make: Callable[[], str], otherwise: str) -> str:
        if what in self._stands:
            return self._stands[what]
        self._copies[what] = _Copy(at, make, otherwise)
        return at

    def _materialised(self, ref: str) -> str:
        return materialised(self._space, self._run, ref, self._workdir)

    def _kept(self, folder: str, name: str, data: bytes) -> str:
        top = self._run.folder if self._room is None else blobs.copy_room(os.path.dirname(self._room))
        return blobs.keep_copy(top, folder, name, data)


# ---- What a run refers to and was not carried to this place (D47).


_GONE = ("REF_GONE", "NO_SUCH_BLOB", "RESPONSE_GONE")


def instead(error: LoomError, run_dir: str, ref: str, session_id: object = None, why: str = "") -> LoomError:
    """Give the error of what was never brought here, for one of a file that is gone; every other error as it is.

    run_dir: the run's folder in its store; ref: as the run names it; session_id: of whose work it is, if that is known;
    why: that it was left out on purpose.
    """
    if error.code not in _GONE:
        return error
    run_id = os.path.basename(run_dir)
    local = os.path.join(os.path.dirname(os.path.dirname(run_dir)), "local")
    note = run_notes.handoff(local, run_id)
    where = _place(run_dir, session_id, note)
    return (
        _error(ref, recovery.handle(layouts.at(run_dir, run_id)), where, why or _reason(note, ref), note)
        if where
        else error
    )


def of_blob(error: LoomError, store: str, ref: str) -> LoomError:
    """Give the same for a blob that some run of a store refers to, of which a pull said that it was left out."""
    if error.code not in _GONE:
        return error
    for note in run_notes.every_handoff(os.path.join(store, "local")):
        why = _reason(note, ref)
        if why:
            return _error(ref, "RUN", _noted(note) or "on another machine", why, note)
    return error


def _place(run_dir: str, session_id: object, note: Mapping[str, Any]) -> str:
    """Say where something was made; empty where that was here, or nobody knows of another place."""
    host, root = _session_of(run_dir, session_id) if isinstance(session_id, str) else ("", "")
    if host and host != machine.hostname():
        return _on(host)
    if host:
        return _another(root) if root and not _is_of(run_dir, root, came=bool(note)) else ""
    return _noted(note)


def _noted(note: Mapping[str, Any]) -> str:
    host = note.get("machine")
    if not isinstance(host, str):
        return ""
    return _on(host) if host != machine.hostname() else _another("")


def _on(host: str) -> str:
    return f"on {masked_line(host, 60)}"


def _another(root: str) -> str:
    return "in another copy of the project on this machine" + (f" ({masked_line(root, 200)})" if root else "")


def _is_of(run_dir: str, root: str, *, came: bool) -> bool:
    """Tell whether a project's root on a machine of this name leads to the store that a run stands in.

    came: a pull brought the run. A root that is gone is another copy's then; else the project was moved.
    """
    store = os.path.dirname(os.path.dirname(run_dir))
    found = project.find((root,))
    if found is None:
        return not came
    return os.path.realpath(found.store) == os.path.realpath(store)


def _session_of(run_dir: str, session_id: str) -> tuple[str, str]:
    try:
        state = files.read_json(os.path.join(run_dir, "state.json"))
        records = sessions.history(state) if isinstance(state, dict) else []
    except (OSError, LoomError, TypeError, AttributeError, KeyError):
        return "", ""
    for record in records:
        environment = record.get("environment")
        if record.get("session_id") == session_id and isinstance(environment, dict):
            return str(environment.get("hostname") or ""), sessions.root_of(record) or ""
    return "", ""


def _reason(note: Mapping[str, Any], ref: str) -> str:
    listed = note.get("left_out")
    last = ref.rpartition("/")[2]
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, list) and len(one) == 2 and str(one[0]).rpartition("/")[2] == last:
            return str(one[1])
    return ""


def _error(ref: str, handle: str, where: str, why: str, note: Mapping[str, Any]) -> LoomError:
    told = f"it is {where}"
    how = f"{told}; run this there: {_push(handle)}; then this here"
    if why:
        how = f"{told} and was left out: {masked_line(why, 120)}"
    remote = str(note.get("remote") or "origin")
    option = "" if remote == "origin" else f" --remote {quoted(masked_line(remote, 120))}"
    what = f"{masked_line(ref, 200)} was not carried here"
    hint = "loomctl runs --remote" if handle == "RUN" else f"loomctl pull {handle}{option}"
    return LoomError("REF_NOT_HERE", what, where=where, why=how, hint=hint, exit_code=EXIT_NO_RUN)


def _push(handle: str) -> str:
    return f"loomctl push {handle} --with-outputs"
