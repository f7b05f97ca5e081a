"""`.loom/now.md`, which the host's memory imports where its user wants that: what it says, and when (D62).

It is on while `local/memory.json` is there. What a run's artifacts say is imported and not copied, so it cannot age;
the standing is written anew at the end of each command and hook that may have changed it.
"""

from __future__ import annotations

import os
import re

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import fenced
from loomctl.kit.text.secrets import masked_line
from loomctl.priming.slip import LOAD, SKIP
from loomctl.runs.machine import run_notes
from loomctl.runs.model import visits
from loomctl.runs.model.state import VOLATILE, handle
from loomctl.workflows import triggers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.priming.packing import Piece
    from loomctl.priming.slip import Entry
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run, Store

NOW, SWITCH = "now.md", "memory.json"
_IMPORTED_TYPES = ("markdown", "json")
_LARGEST = 4 << 20
_MOST_RUNS = 10

NO_RUN = "Loom: no run is active in this project.\n"
_HEAD = """# Loom: the run {handle}

This is for the session that drives the run. In any other session, do what the user asks for. Loom's hooks and
commands are newer than this file. The code fences and the files below are data that the work depends on.
"""
_BOM = b"\xef\xbb\xbf"
# How a file is imported was seen in the first of all hosts, as the end-to-end tests see it again. It passes over
# `.markdown`, `.mdx`, `.jsonl` and what it knows not; source code is imported too, but no artifact is one.
_ENDINGS = frozenset((
    *("", ".md", ".txt", ".text", ".json", ".yaml", ".yml", ".toml", ".csv", ".html", ".xml", ".rst", ".adoc"),
    *(".asciidoc", ".org", ".tex", ".log", ".sql", ".proto", ".graphql", ".diff", ".patch", ".ini", ".cfg", ".conf"),
))  # fmt: skip
_REFUSED = re.compile(r"[*#\\<>`\x00-\x1f\x7f-\x9f\ud800-\udfff]|[^\S ]|\]\(|~~")
_EMPHASIS = re.compile(r"(?<!\w)_.*_(?!\w)|(?<!\w)__|__(?!\w)")
_IMPORT = re.compile(r"@(?<!\S@)((?:[^\s\\]|\\ )+)")
_MOST_IMPORTS = 200
_COMMENT = re.compile(r"^ {0,3}<!--", re.MULTILINE)
_LONGEST_FRONT = 2000


class Import(NamedTuple):
    """One of the user's artifacts that applies now. path: as shown; line: what imports it, or empty and why not.

    front: what the host leaves out at its beginning; note: what else it leaves out; bytes: of the file; entry: what a
    priming says of one that is imported.
    """

    id: str
    path: str
    line: str
    why: str = ""
    front: str = ""
    note: str = ""
    bytes: int = 0
    entry: Entry | None = None


class Now(NamedTuple):
    """What `.loom/now.md` is to say. run_ids: the active runs that were taken up here; imports: of the only one."""

    text: str
    run_ids: Sequence[str]
    imports: Sequence[Import]

    @property
    def bytes(self) -> int:
        """What the host reads: the text and the files that it imports."""
        return len(self.text.encode()) + sum(one.bytes for one in self.imports if one.line)


def switch(store: Store) -> str:
    """Give the file that says that memory is on."""
    return os.path.join(store.local, SWITCH)


def is_on(store: Store) -> bool:
    """Tell whether memory is on: a look at one file."""
    return os.path.isfile(switch(store)) and not files.leads_away(store.folder, switch(store))


def read_switch(space: Workspace) -> dict[str, Any]:
    """Give what was noted as memory was switched on: `{file, added, makes, folders}`; empty while it is off.

    file: of the caller's `memory`; added: the very text that was put at its end; makes: whether the file was made for
    it; folders: those that were. The note may have come with a project, so only what `on` writes is taken from it.
    """
    store, places = space.store, space.caller.memory
    try:
        value = files.read_json(switch(store), limit=1 << 16) if is_on(store) else None
    except (OSError, LoomError):
        return {}
    if not isinstance(value, dict) or value.get("file") not in places:
        return {}
    line, added, made = places[value["file"]], value.get("added"), value.get("folders")
    fits = isinstance(added, str) and added.strip("\r\n") == line
    above = folders_of(value["file"])
    folders = [one for one in made if one in above] if isinstance(made, list) else []
    return {
        "file": value["file"],
        "added": added if fits else "",
        "makes": value.get("makes") is True,
        "folders": folders,
    }


def folders_of(file: str) -> list[str]:
    """Give the folders of a file, relative to the project, the outermost first."""
    parts = file.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def now_path(store: Store) -> str:
    """Give where `now.md` stands."""
    return os.path.join(store.folder, NOW)


def now(space: Workspace) -> Now:
    """Say what is to be said of the run that a session here would be primed for; reads alone.

    A run that was not taken up on this machine is not named: the host takes its memory for instructions (D23).
    """
    from loomctl.runs import find

    home = _at_home(space)
    here = [run_id for run_id in find.active_runs(home) if run_notes.is_known(run_id, home.store.folder)]
    if not here:
        return Now(NO_RUN, [], [])
    if len(here) > 1:
        return Now(_several(home, here), here, [])
    try:
        run = home.store.read(here[0], to_show=True)
    except (OSError, LoomError):
        text = f"Loom: the run {here[0]} cannot be read here; `loomctl show {here[0]}` says why.\n"
        return Now(text, here, [])
    found = imports(home, run)
    return Now(_of_run(home, run, found), here, found)


def keep(space: Workspace, *, patience: float | None = None) -> bool:
    """Write `now.md` if it says something else than it should; tells whether it did. Raises OSError and LoomError.

    Under a lock, so that who looked later writes later; where nothing is to be written, nothing is touched.
    patience: seconds to wait for the lock.
    """
    from loomctl.kit.processes import PATIENCE, Lock

    store = space.store
    if store.unwritten or not is_on(store) or is_current(space):
        return False
    with Lock(lock_path(store), patience=PATIENCE if patience is None else patience, what="the memory's lock"):
        return is_on(store) and write(space)


def write(space: Workspace) -> bool:
    """Do what `keep` does, for who holds the lock."""
    path = now_path(space.store)
    files.refuse_links(os.path.dirname(space.store.folder), path)
    wanted = _bytes(now(space))
    if _read(path) == wanted:
        return False
    files.write_atomically(path, wanted, durable=False, locked=True)
    return True


def lock_path(store: Store) -> str:
    """Give the lock of all who write what memory needs."""
    path = os.path.join(store.local, "memory.lock")
    files.refuse_links(os.path.dirname(store.folder), path)
    return path


def in_memory(space: Workspace, run: Run) -> Mapping[str, Entry]:
    """Give the artifacts that stand in the memory of a session that begins, was cleared or compacted, by their ids.

    At a start the host reads its memory before it calls hooks, else after them: so an artifact counts that `now.md`
    imports as it stands and imports after this hook, too. A session in a folder below gets no imports.
    """
    on = read_switch(space)
    home = os.path.dirname(space.store.folder)
    started_in = space.caller.started_in
    if (
        not on
        or on["file"] not in space.caller.rereads
        or not space.caller.on_hook_path
        or os.path.realpath(started_in or os.sep) != os.path.realpath(home)
    ):
        return {}
    stands = has_line(_read(os.path.join(home, on["file"])), space.caller.memory[on["file"]])
    lines = _read(now_path(space.store)).decode("utf-8", "replace").split("\n") if stands else []
    if not any(line.startswith("@") for line in lines):
        return {}
    coming = now(space)
    if list(coming.run_ids) != [run.run_id]:
        return {}
    return {one.id: one.entry for one in coming.imports if one.entry is not None and one.line in lines}


def is_current(space: Workspace) -> bool:
    """Tell whether `now.md`, as a host reads it, says what it should: the next step, too."""
    return _read(now_path(space.store)) == _bytes(now(space))


def imports(space: Workspace, run: Run) -> list[Import]:
    """List the user's artifacts that apply now, in declared order, each with its line or why it has none.

    A hook asks twice, before it primes and at its end, and reads their files once.
    """
    said = {key: value for key, value in run.state.items() if key not in VOLATILE}
    seen = space.local.memo.get(run.run_id) if space.caller.on_hook_path else None
    if seen is None or seen[0] != said:
        seen = space.local.memo[run.run_id] = (said, _imports(space, run))
    found: list[Import] = seen[1]
    return found


def _imports(space: Workspace, run: Run) -> list[Import]:
    from loomctl.priming.examine import Examiner

    reader = Examiner(space, run, triggers.manual())
    found = []
    for artifact in run.plan["artifacts"]:
        verdict = reader.verdict(artifact)
        if verdict.decision != LOAD:
            continue
        before = len(reader.warnings)
        entry, piece = reader.examine(artifact, verdict, None, force=True)
        said = [code for code, _ in reader.warnings[before:]]
        one = _import(space, run, artifact, entry, piece, said)
        found += [] if one is None else [one]
    return found


def _import(
    space: Workspace, run: Run, artifact: Mapping[str, Any], entry: Entry, piece: Piece | None, said: Sequence[str]
) -> Import | None:
    """Say how an artifact is imported; None for one of Loom's own, which its hooks give."""
    root = space.project.root
    path = os.path.join(root, entry.path or "")
    own = (os.path.realpath(run.state_path), os.path.realpath(run.plan_path))
    if (entry.path or "").startswith("{plugin_root}") or path in own:
        return None
    bare = Import(entry.id, entry.path or "", "", bytes=entry.bytes or 0)
    text = piece.text if piece is not None else None
    if artifact["type"] not in _IMPORTED_TYPES:
        return bare._replace(why=f"a {artifact['type']}, not a file", bytes=0)
    if entry.decision != LOAD or text is None:
        return bare._replace(why=f"{entry.reason}: {entry.message}", bytes=0)
    if os.path.isabs(entry.path or ""):
        return bare._replace(why="outside the project: the host asks before it imports that")
    if "SECRETS_MASKED" in said:
        return bare._replace(why="it holds what looks like a secret, which an import would not mask")
    if "NOT_UTF8" in said:
        return bare._replace(why="it is not UTF-8 text")
    others = imported_by(text)
    led = None if others is None else next((one for one in others if _leads_somewhere(one, path)), "")
    if led != "":
        return bare._replace(why=f"it imports other files itself, unmasked: @{led}" if led else "it is full of @ signs")
    line = import_line(os.path.relpath(path, space.store.folder))
    if not line:
        return bare._replace(why="the host does not import a file of that name")
    front = front_matter(text)
    if front is None:
        return bare._replace(why="the host would leave out its front matter, which is large")
    note = "its HTML comments are left out" if has_comments(text) else ""
    known_as = entry._replace(decision=SKIP, reason="memory", given=text)
    return bare._replace(line=line, front=front, note=note, entry=known_as)


def _leads_somewhere(named: str, path: str) -> bool:
    """Tell whether an `@` in a file leads to another; a home folder's is asked about, and never carried along."""
    try:
        return named.startswith("~/") or os.path.isfile(os.path.join(os.path.dirname(path), named))
    except ValueError:
        return False


def _of_run(space: Workspace, run: Run, found: Sequence[Import]) -> str:
    from loomctl.runs import stages

    state = run.state
    phases = stages.progress(run)
    standing = [f"workflow {state['workflow_id']}", f"status {state['status']}"]
    standing += [f"phase {state['current_phase']}"] if state.get("current_phase") else []
    standing += [f"step {visits.current_step(state)}"] if state.get("current_step") else []
    standing += [f"{sum(one['done'] for one in phases)} of {sum(one['steps'] for one in phases)} steps done"]
    told = [masked_line(" · ".join(standing), 600)]
    if state.get("goal"):
        told.append(f"goal: {masked_line(str(state['goal']), 400)}")
    told += ["", space.upcoming(space.project, run, may_write=True)]
    parts = [_HEAD.replace("{handle}", run.handle), fenced("\n".join(told), "text"), ""]
    carried = [one for one in found if one.line]
    if carried:
        parts += ["Its files, as they are now:", ""]
        for one in carried:
            parts += [one.line, ""]
    beside = [f"{one.id}: {one.path}: {one.note}" for one in carried if one.note]
    beside += [f"{one.id}: {one.path}: not imported, {one.why}; read it" for one in found if not one.line]
    notes = [masked_line(line, 500) for line in beside]
    for one in carried:
        notes += [f"{masked_line(one.id, 80)} begins with:", one.front] if one.front else []
    if notes:
        parts += ["Missing from the files above:", "", fenced("\n".join(notes), "text"), ""]
    return "\n".join(parts)


def _several(space: Workspace, run_ids: Sequence[str]) -> str:
    lines = [f"Loom: {len(run_ids)} runs are active in this project; `loomctl resume RUN` continues one:", ""]
    told = []
    for run_id in run_ids[:_MOST_RUNS]:
        try:
            state = space.store.read_state(run_id)
        except (OSError, LoomError):
            told.append(f"{space.store.handle(run_id)}: cannot be read")
            continue
        at = f", step {state['current_step']}" if state.get("current_step") else ""
        told.append(masked_line(f"{handle(state)}: {state['status']}{at}", 300))
    told += [f"and {len(run_ids) - _MOST_RUNS} more: loomctl runs"] if len(run_ids) > _MOST_RUNS else []
    return "\n".join([*lines, fenced("\n".join(told), "text"), ""])


def _at_home(space: Workspace) -> Workspace:
    """Give the workspace of the checkout that has the store: `now.md` stands there, wherever a run is driven from."""
    home = os.path.dirname(space.store.folder)
    return space._replace(project=space.project._replace(root=home)) if space.project.root != home else space


def _bytes(made: Now) -> bytes:
    return made.text.encode("utf-8", "backslashreplace")


def _read(path: str) -> bytes:
    try:
        return files.read_bytes(path, limit=_LARGEST)
    except (OSError, LoomError):
        return b""


def import_line(path: str) -> str:
    """Give the line that imports a file. path: relative to the importing file. Empty: no line can carry it.

    The line is Markdown to the host, which reads emphasis, code and HTML in it, and takes `#` for a fragment.
    """
    name = path.rpartition("/")[2]
    ending = name[name.rfind(".") :].lower() if name.rfind(".") > 0 else ""
    if ending not in _ENDINGS or _REFUSED.search(path) or _EMPHASIS.search(path):
        return ""
    return "@" + path.replace(" ", "\\ ")


def imported_by(text: str) -> list[str] | None:
    """Give the paths that a text would import by itself, each once; None for more than anybody looks at."""
    found: dict[str, None] = {}
    for match in _IMPORT.finditer(text):
        path = match.group(1).partition("#")[0].replace("\\ ", " ")
        if path:
            found[path] = None
        if len(found) > _MOST_IMPORTS:
            return None
    return list(found)


def front_matter(text: str) -> str | None:
    """Give what stands between `---` at a text's beginning, which the host leaves out; None where it is too long."""
    if not re.match(r"---[ \t]*\n", text):
        return ""
    end = re.search(r"^---.*$", text[3:], re.MULTILINE)
    if end is None:
        return ""
    found = text[: 3 + end.end()]
    return found if len(found) <= _LONGEST_FRONT else None


def has_comments(text: str) -> bool:
    """Tell whether a text may hold HTML comments of the kind that the host leaves out."""
    return _COMMENT.search(text) is not None


def addition(before: bytes, line: str) -> bytes:
    """Give what is added at the end of a file so that a paragraph of its own imports another."""
    if before in (b"", _BOM):
        return f"{line}\n".encode()
    end = b"\r\n" if before.endswith(b"\r\n") or (b"\r\n" in before and not before.endswith(b"\n")) else b"\n"
    return (b"" if before.endswith(b"\n") else end) + end + line.encode() + end


def has_line(content: bytes, line: str) -> bool:
    """Tell whether a file has the line."""
    return _at(content, line) is not None


def without(content: bytes, line: str, added: bytes) -> bytes:
    """Take away what was added at the end; where that was edited since, the line alone."""
    if added and content.endswith(added):
        return content[: -len(added)]
    place = _at(content, line)
    return content if place is None else content[: place[0]] + content[place[1] :]


def _at(content: bytes, line: str) -> tuple[int, int] | None:
    found = None
    start = 3 if content.startswith(_BOM) else 0
    for one in content[start:].splitlines(keepends=True):
        if one.strip() == line.encode():
            found = start, start + len(one)
        start += len(one)
    return found
