"""Switching the memory on and off: one line in a file of the user's, put there and taken away again whole (D62).

The note comes first and goes last, so that what a kill leaves is finished by doing it again, or undone by `off`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit import files, git
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.processes import Lock
from loomctl.priming import memory

if TYPE_CHECKING:
    from loomctl.runs.project import Workspace

_LARGEST = 16 << 20
_PATIENCE = 2.0  # seconds for git
_BESIDE = ".loom-tmp"


class Standing(NamedTuple):
    """Where memory stands, or would. file: the user's; line: what imports `now.md` in it.

    is_on: as it was switched; has_line: whether the line is in the file; makes: whether the file would be made, or was
    by `on`; ignored: whether git leaves the file alone, None where there is no git; now: what `now.md` is to say.
    """

    is_on: bool
    file: str
    line: str
    has_line: bool
    makes: bool
    ignored: bool | None
    now: memory.Now


def standing(space: Workspace, file: str, again: str = "") -> Standing:
    """Look how memory stands; reads alone.

    file: where it would be switched on. again: the command line that would do so; empty where nobody wants to.

    Raises MEMORY_IS_ON where it is on in another file.
    """
    noted = memory.read_switch(space)
    if noted and again and file != noted["file"]:
        raise LoomError(
            "MEMORY_IS_ON",
            f"memory is on already, in {noted['file']}",
            why="with two lines, every session would read the same text twice",
            hint=f"loomctl memory off && {again}",
            exit_code=EXIT_USAGE,
        )
    chosen = noted["file"] if noted else file
    path = os.path.join(_home(space), chosen)
    content = _content(space, chosen)
    line = space.caller.memory[chosen]
    has_line = content is not None and memory.has_line(content, line)
    makes = noted["makes"] if noted else content is None
    return Standing(memory.is_on(space.store), chosen, line, has_line, makes, _ignored(path), memory.now(space))


def on(space: Workspace, file: str, again: str = "loomctl memory on") -> Standing:
    """Write `now.md`, and the line that imports it; what is there already stays as it is.

    Raises IN_A_WORKTREE, MEMORY_IS_ON, UNSAFE_LINK, and OSError.
    """
    refuse_a_worktree(space)
    found = standing(space, file, again)
    store, path = space.store, os.path.join(_home(space), file)
    store.prepare(commit_runs=space.settings.commit_runs)
    files.refuse_links(_home(space), memory.switch(store))
    with Lock(memory.lock_path(store), what="the memory's lock"):
        content = _content(space, file)
        noted = memory.read_switch(space)
        is_there = content is not None and memory.has_line(content, found.line)
        added = memory.addition(content or b"", found.line)
        if not noted or not is_there:
            ours = noted["folders"] if noted else []  # a kill may have come between
            folders = [
                one
                for one in memory.folders_of(file)
                if one in ours or not os.path.isdir(os.path.join(_home(space), one))
            ]
            note = {
                "schema_version": 1,
                "file": file,
                "added": "" if is_there else added.decode(),
                "makes": content is None or (bool(noted) and noted["makes"] and not content),
                "folders": folders,
            }
            files.write_atomically(memory.switch(store), files.to_json(note), locked=True)
        memory.write(space)
        if not is_there:
            files.make_folder(os.path.dirname(path), mode=0o755)
            _write(path, (content or b"") + added)
    return standing(space, file)


def off(space: Workspace) -> bool:
    """Take away what `on` wrote and nothing else; tells whether it was on.

    Raises IN_A_WORKTREE, UNSAFE_LINK, and OSError.
    """
    refuse_a_worktree(space)
    store, home = space.store, _home(space)
    if not memory.is_on(store):
        return False
    noted = memory.read_switch(space)
    with Lock(memory.lock_path(store), what="the memory's lock") as held:
        if noted:
            content = _content(space, noted["file"])
            path = os.path.join(home, noted["file"])
            if content is not None and noted["added"]:
                left = memory.without(content, space.caller.memory[noted["file"]], noted["added"].encode())
                if noted["makes"] and not left.strip():
                    files.remove(path)
                elif left != content:
                    _write(path, left)
            for folder in reversed(noted["folders"]):
                try:
                    os.rmdir(os.path.join(home, folder))
                except OSError:  # something else is in it by now
                    break
            files.remove(path + _BESIDE)
        files.refuse_links(home, memory.now_path(store))
        for path in (memory.now_path(store), memory.switch(store)):
            files.remove(f"{path}.tmp")  # what a kill left
            files.remove(path)
        held.remove()
    return True


def refuse_a_worktree(space: Workspace) -> None:
    """Refuse a linked worktree: its runs lie in the main checkout, and the host asks before it imports from there."""
    home = _home(space)
    if space.project.root != home:
        raise LoomError(
            "IN_A_WORKTREE",
            "you cannot switch memory on or off in a linked worktree",
            where=space.project.root,
            why="its runs are in the main checkout, and an assistant asks before it imports from there",
            hint=f"cd {quoted(home)} && loomctl memory",
            exit_code=EXIT_USAGE,
        )


def _home(space: Workspace) -> str:
    return os.path.dirname(space.store.folder)


def _content(space: Workspace, file: str) -> bytes | None:
    """Read a file of the user's; None where there is none. Raises UNSAFE_LINK, TOO_LARGE and OSError."""
    path = os.path.join(_home(space), file)
    files.refuse_links(_home(space), path)
    try:
        return files.read_bytes(path, limit=_LARGEST)
    except FileNotFoundError:
        return None


def _write(path: str, data: bytes) -> None:
    """Replace a file of the user's, which keeps its mode."""
    try:
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644
    files.write_atomically(path, data, mode=mode, locked=True, beside=path + _BESIDE)


def _ignored(path: str) -> bool | None:
    """Tell whether git leaves a file alone; None outside of a repository, and where git cannot tell in time."""
    folder = path
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if git.top_of(folder) is None:
        return None
    asked = ["check-ignore", "--quiet", "--no-index", "--", path]
    if git.output(asked, folder, patience=_PATIENCE) is not None:
        return True
    return False if git.output(["rev-parse", "--git-dir"], folder, patience=_PATIENCE) is not None else None
