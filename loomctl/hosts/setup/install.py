"""A host's setup on disk: looked at, made, and undone to the byte (D72).

What stood in a file before is kept beside Loom's state. A file that nobody changed since is put back as it was; from
one that was changed Loom's part alone is taken.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.hosts import table
from loomctl.install import on_path
from loomctl.kit import digests, files, machine, package, processes
from loomctl.kit.errors import EXIT_SETUP, EXIT_SKEW, UPDATE, LoomError
from loomctl.runs import project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.hosts.setup.plans import Part, Plan

HOSTS = tuple(name for name in table.HOSTS if name != table.CLAUDE.name)  # whose own install does all
SCHEMA = 1  # of the records
_LARGEST = 16 << 20
_PATIENCE = 5.0  # seconds for a login shell
MISSING, OTHER, THERE = "missing", "other", "there"


class Piece(NamedTuple):
    """A file of a setup as it is here. state: MISSING, OTHER (an older one of Loom's, or a part of it) or THERE."""

    part: Part
    state: str
    before: bytes | None
    after: bytes


class Standing(NamedTuple):
    """What is there of a host's setup.

    link: the `loomctl` that its shell finds, empty for none; makes_link: whether `install` would make one; to_find: the
    line with which its user lets that be found.
    """

    host: str
    title: str
    plan: Plan
    pieces: Sequence[Piece]
    link: str
    makes_link: bool
    to_find: str

    @property
    def missing(self) -> list[Piece]:
        """Give the files that `install` would write."""
        return [piece for piece in self.pieces if piece.state != THERE]

    @property
    def is_whole(self) -> bool:
        """Tell whether all is there."""
        return not self.missing and (bool(self.link) or not self.plan.needs_link)


def title_of(host: str) -> str:
    """Give a host's name for people."""
    return table.HOSTS[host].title


def folder_of(host: str) -> str:
    """Give the folder of a host's settings. Raises NO_HOME."""
    variable, below = _module(host).FOLDER
    home = machine.home()
    named = os.environ.get(variable, "") if variable else ""
    if not named and below.startswith(".config/") and os.path.isabs(os.environ.get("XDG_CONFIG_HOME", "")):
        named = os.path.join(os.environ["XDG_CONFIG_HOME"], below.partition("/")[2])
    if not named and not home:
        why = "HOME is empty or not an absolute path"
        raise LoomError("NO_HOME", "there is no home folder", why=why, hint="loomctl paths", exit_code=EXIT_SETUP)
    return os.path.abspath(named or os.path.join(home, *below.split("/")))


def look(host: str) -> Standing:
    """Look what there is; writes nothing. Raises NOT_JSON, FILE_EXISTS, TOO_LARGE and OSError."""
    link = found_by(host)
    plan = plan_of(host, link)
    pieces = [_piece(part) for part in plan.parts]
    if not plan.needs_link or _is_helper():
        return Standing(host, title_of(host), plan, pieces, link, makes_link=False, to_find="pipx ensurepath")
    folder, launcher = on_path.default_folder(), os.path.join(project.plugin_root(), "bin", on_path.NAME)
    is_made = on_path.leads_to(os.path.join(folder, on_path.NAME), launcher)
    to_find = on_path.line_for_login(folder)
    return Standing(host, title_of(host), plan, pieces, link, makes_link=not link and not is_made, to_find=to_find)


def plan_of(host: str, link: str) -> Plan:
    """Give a host's plan for this machine and this bundle. link: the `loomctl` that a login shell finds."""
    from loomctl.hosts.setup.plans import Places

    bundle = project.plugin_root()
    launcher = os.path.join(bundle, "bin", on_path.NAME)
    if link and not _is_helper() and on_path.leads_to(link, launcher):
        launcher = link  # a plugin's own folder is another one after each update
    elif not link and not _is_helper():
        launcher = os.path.join(on_path.default_folder(), on_path.NAME)
    made: Plan = _module(host).plan(Places(folder_of(host), launcher, bundle))
    return made


def _piece(part: Part) -> Piece:
    before = _content(part.path)
    after = part.put(before)
    if before == after:
        return Piece(part, THERE, before, after)
    return Piece(part, OTHER if before is not None and part.take(before) != before else MISSING, before, after)


def install(standing: Standing) -> Standing:
    """Write what is missing, and note how it was. Raises OSError, SCHEMA_TOO_NEW and what `on_path.place` does."""
    record = _record(standing.host)
    noted = {one["path"]: one for one in _read(record)["files"]}
    for piece in standing.missing:
        path = piece.part.path
        known = noted.get(path)
        # What Loom wrote itself is not what the user had.
        is_ours = known is not None and piece.before is not None and known["after"] == digests.of_bytes(piece.before)
        if known is None or not is_ours:
            kept = None if piece.before is None else piece.part.take(piece.before)
            known = {"path": path, "before": None if kept is None else base64.b64encode(kept).decode()}
            known["folders"] = _new_folders(path)
        noted[path] = {**known, "after": digests.of_bytes(piece.after)}
        _write_record(record, {**_read(record), "files": list(noted.values())})
        files.make_folder(os.path.dirname(path), mode=0o700)
        _write(path, piece.after)
    if standing.makes_link:
        launcher = os.path.join(project.plugin_root(), "bin", on_path.NAME)
        folders = _new_folders(os.path.join(on_path.default_folder(), on_path.NAME))
        placed = on_path.place(on_path.default_folder(), launcher)
        if placed.changed and not placed.before:
            _write_record(record, {"files": list(noted.values()), "link": placed.path, "folders": folders})
    return look(standing.host)


def remove(host: str) -> list[str]:
    """Take away what `install` wrote; gives the paths that were changed.

    Raises NOT_JSON, SCHEMA_TOO_NEW and OSError.
    """
    record = _record(host)
    known = _read(record)
    noted = {one["path"]: one for one in known["files"]}
    changed = []
    for part in plan_of(host, found_by(host)).parts:
        content = _content(part.path)
        entry = noted.get(part.path)
        if content is None:
            continue
        if entry is not None and entry["after"] == digests.of_bytes(content):
            left = None if entry["before"] is None else base64.b64decode(entry["before"])
        else:
            left = part.take(content)
        if left != content:
            changed.append(part.path)
            if left is None:
                files.remove(part.path)
            else:
                _write(part.path, left)
    for entry in reversed(known["files"]):
        _remove_folders(entry["folders"])
    if known["link"] and os.path.lexists(known["link"]) and not _others_need_it(host):
        changed += [known["link"]] if on_path.remove(os.path.dirname(known["link"])).changed else []
        _remove_folders(known["folders"])
    files.remove(record)
    return changed


def _remove_folders(made: Sequence[str]) -> None:
    for folder in reversed(made):
        try:
            os.rmdir(folder)
        except OSError:  # something else is in it by now
            break


def is_noted(host: str) -> bool:
    """Tell whether `install` has set a host up."""
    return os.path.isfile(_record(host))


def _others_need_it(host: str) -> bool:
    """Tell whether another host's setup, which is there, uses the link, too."""
    others = [one for one in HOSTS if one != host and os.path.isfile(_record(one))]
    try:
        return any(_read(_record(one))["files"] or _read(_record(one))["link"] for one in others)
    except LoomError:  # a newer Loom's
        return True


def found_by(host: str) -> str:
    """Give the `loomctl` that a host's shell finds: one like the user's own, or a login shell; empty for none."""
    found = in_a_login_shell()
    if not found and not getattr(_module(host), "LOGIN_SHELL", False):
        found = on_path.first() or ""
    return found


def in_a_login_shell() -> str:
    """Give the `loomctl` that a login shell of the user's finds, as hosts start one; empty for none."""
    shell = os.environ.get("SHELL", "")
    if os.path.basename(shell) not in ("bash", "zsh", "sh", "dash", "ksh") or not os.access(shell, os.X_OK):
        shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LOOM_")}
    try:
        ended = processes.run(
            [shell, "-lc", f"command -v {on_path.NAME}"], cwd=os.sep, environ=environ, patience=_PATIENCE
        )
    except OSError:
        return ""
    lines = ended.stdout.decode("utf-8", "replace").strip().split("\n") if ended.code == 0 else []
    found = lines[-1] if lines else ""
    return found if os.path.isabs(found) and os.access(found, os.X_OK) else ""


def _is_helper() -> bool:
    """Tell a loomctl of pipx or uv, which puts it on PATH itself."""
    return project.plugin_root() == os.path.join(package.FOLDER, "_bundle")


def _module(host: str) -> Any:
    return __import__(f"loomctl.hosts.setup.{host}", fromlist=("",))


# ---- What stood there before.


def _record(host: str) -> str:
    home = machine.state_home()
    if not home:
        why = "Loom keeps what stood in a file before, and has no folder for it"
        raise LoomError("NO_HOME", "there is no state folder", why=why, hint="loomctl paths", exit_code=EXIT_SETUP)
    return os.path.join(home, "setup", f"{host}.json")


def _read(record: str) -> dict[str, Any]:
    """Read what stood in files before; empty where it cannot be read. Raises SCHEMA_TOO_NEW."""
    try:
        value = files.read_json(record, limit=_LARGEST)
    except (OSError, LoomError):
        value = {}
    version = value.get("schema_version") if isinstance(value, dict) else None
    if type(version) is int and version > SCHEMA:
        said = f"this record of what a setup changed has schema {version}, but this loomctl reads at most {SCHEMA}"
        raise LoomError("SCHEMA_TOO_NEW", said, where=record, hint=UPDATE, exit_code=EXIT_SKEW)
    found = value.get("files") if isinstance(value, dict) else None
    entries = [one for one in found if isinstance(one, dict) and _is_whole(one)] if isinstance(found, list) else []
    link, folders = (value.get("link"), value.get("folders")) if isinstance(value, dict) else ("", [])
    folders = [one for one in folders if isinstance(one, str)] if isinstance(folders, list) else []
    return {"files": entries, "link": link if isinstance(link, str) else "", "folders": folders}


def _is_whole(entry: dict[str, Any]) -> bool:
    folders, before = entry.get("folders"), entry.get("before")
    texts = all(isinstance(entry.get(name), str) for name in ("path", "after"))
    return texts and (before is None or isinstance(before, str)) and isinstance(folders, list)


def _write_record(record: str, value: dict[str, Any]) -> None:
    files.make_folder(os.path.dirname(record))
    files.write_atomically(record, files.to_json({"schema_version": SCHEMA, **value}))


def _new_folders(path: str) -> list[str]:
    """Give the folders that do not exist yet on the way to a file, the outermost first."""
    found: list[str] = []
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        found.insert(0, folder)
        folder = os.path.dirname(folder)
    return found


def _content(path: str) -> bytes | None:
    try:
        return files.read_bytes(path, limit=_LARGEST)
    except FileNotFoundError:
        return None


def _write(path: str, data: bytes) -> None:
    """Replace a file of the user's, which keeps its mode; behind a link, the file that it leads to."""
    path = os.path.realpath(path)
    try:
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o600
    files.write_atomically(path, data, mode=mode)
