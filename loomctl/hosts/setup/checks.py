"""What the doctor asks each assistant that is here itself: would its hooks be called, and `loomctl` be found (D72).

The standard library alone. A host without Loom is named and no more; one that is not on PATH is not mentioned.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from loomctl.hosts import table
from loomctl.hosts.setup import install
from loomctl.kit import commented_json, files, processes
from loomctl.kit.errors import LoomError
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding, gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loomctl.care.project_checks import Patient

PATIENCE = 10.0  # seconds for an answer of a host's
_NEWEST_LOGS = 20
_REFUSED = re.compile(r'Invalid hooks config for plugin "loom"[^\n]{0,300}')


def here() -> dict[str, Callable[[Patient], Finding]]:
    """Give the checks of the assistants that are on PATH, by their names."""
    return {name: _checking(name) for name in install.HOSTS if shutil.which(name)}


def _checking(host: str) -> Callable[[Patient], Finding]:
    def check(patient: Patient) -> Finding:
        return _examined(host, patient)

    return check


def _examined(host: str, patient: Patient) -> Finding:
    program = shutil.which(host) or host
    title = install.title_of(host)
    try:
        is_there, troubles = _ASKED[host](program, patient)
        standing = install.look(host)
    except LoomError as error:
        return Finding(FAIL, f"{title}: {error.what}", error.hint, [error.where, error.why])
    is_set_up = install.is_noted(host) or any(piece.state != install.MISSING for piece in standing.pieces)
    if not (is_there or is_set_up):
        if troubles:
            return gathered(troubles, "")
        return Finding(PASS, f"{title} is here without Loom", "", [f"to set it up: loomctl plugin install {host}"])
    troubles = [*troubles, *_set_up(standing), *_findable(host, standing, patient)]
    return gathered(troubles, f"{title}: its hooks are called, and it finds loomctl", details=[f"it is {program}"])


def _set_up(standing: install.Standing) -> Iterator[Finding]:
    """Look at the files of `loomctl plugin install`; one that a user did not want is no failure."""
    again = f"loomctl plugin install {standing.host}"
    lacking = [piece for piece in standing.pieces if piece.state == install.MISSING]
    if lacking and not install.is_noted(standing.host):
        yield Finding(WARN, f"{standing.title} lacks what {lacking[0].part.what}", again)
    for piece in standing.pieces:
        if piece.state == install.OTHER:
            yield Finding(FAIL, f"{standing.title}: another Loom wrote {piece.part.path}", again)
        elif piece.state == install.MISSING and install.is_noted(standing.host):
            yield Finding(FAIL, f"{standing.title}: {piece.part.path} has gone", again)


def _findable(host: str, standing: install.Standing, patient: Patient) -> Iterator[Finding]:
    if standing.plan.needs_link and not standing.link:
        said = f"{standing.title}: its shell finds no loomctl, so the assistant cannot call it"
        yield Finding(FAIL, said, f"loomctl plugin install {host}" if standing.makes_link else standing.to_find)
    row = table.HOSTS.get(host)
    if row is not None and row.sandbox and not patient.environment_python:
        said = f"{standing.title} has no network in its sandbox, where loomctl would make its environment"
        yield Finding(FAIL, said, "loomctl --version")


# ---- Each host, asked: whether Loom is in it, and what is amiss.


def _codex(program: str, patient: Patient) -> tuple[bool, list[Finding]]:
    """Ask its app-server which hooks there are and whether they are trusted; untrusted ones are skipped in silence."""
    asked = _hooks_listed(program, patient.cwd or os.sep)
    title = install.title_of("codex")
    if asked is None:
        return False, [Finding(WARN, f"{title} does not say which hooks it calls", f"{program} --version")]
    own = [hook for hook in asked if " hook --host codex " in str(hook.get("command"))]
    users = [hook for hook in own if hook.get("source") == "user"]
    folder = install.folder_of("codex")
    gives_way = os.path.isfile(os.path.join(folder, "loom-hooks"))
    answering = users if gives_way else own
    if own and not answering:
        said = f"{title}: the plugin's hooks give way to hooks.json, which has none of Loom's"
        return True, [Finding(FAIL, said, "loomctl plugin install codex")]
    silent = [hook for hook in answering if not _is_called(hook)]
    if not silent:
        return bool(own), []
    names = ", ".join(sorted({str(hook.get("eventName")) for hook in silent}))
    said = f"{title} skips {len(silent)} of Loom's {len(answering)} hooks: you have not trusted them"
    return True, [Finding(FAIL, said, "codex", [f"type /hooks in it and trust them: {names}"])]


def _is_called(hook: dict[str, Any]) -> bool:
    return hook.get("enabled") is not False and hook.get("trustStatus") in ("trusted", "managed")


def _hooks_listed(program: str, cwd: str) -> list[dict[str, Any]] | None:
    about = {"clientInfo": {"name": "loomctl", "version": "1"}}
    answer = _called(program, cwd, [("initialize", about), ("hooks/list", {"cwds": [cwd]})])
    try:
        return [hook for one in answer["data"] for hook in one["hooks"] if isinstance(hook, dict)] if answer else None
    except (KeyError, TypeError):
        return None


def _called(program: str, cwd: str, calls: list[tuple[str, dict[str, Any]]]) -> Any:
    """Call an app-server, JSON-RPC on lines; gives the result of the last call, None where it gives none in time."""
    told = [{"id": number, "method": method, "params": given} for number, (method, given) in enumerate(calls)]
    lines = [json.dumps(one) for one in (told[0], {"method": "initialized"}, *told[1:])]
    with subprocess.Popen(
        [program, "app-server"], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(("\n".join(lines) + "\n").encode())
            server.stdin.flush()
            return _answer(server.stdout.fileno(), len(calls) - 1)
        except OSError:
            return None
        finally:
            server.kill()


def _answer(descriptor: int, wanted: int) -> Any:
    until = time.monotonic() + PATIENCE
    data = b""
    while (left := until - time.monotonic()) > 0 and select.select([descriptor], [], [], left)[0]:
        more = os.read(descriptor, 1 << 16)
        if not more:
            return None
        data += more
        *whole, data = data.split(b"\n")
        for line in whole:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict) and said.get("id") == wanted:
                return said.get("result")
    return None


def _copilot(program: str, patient: Patient) -> tuple[bool, list[Finding]]:
    """Ask for its plugins; look whether its log says that it dropped a whole hooks file."""
    title = install.title_of("copilot")
    ended = processes.run([program, "plugin", "list"], cwd=os.sep, environ=os.environ, patience=PATIENCE)
    if ended.code != 0:
        return False, [Finding(WARN, f"{title} does not say which plugins it has", f"{program} plugin list")]
    said = next((line for line in ended.stdout.decode("utf-8", "replace").split("\n") if _names_loom(line)), "")
    if not said:
        return False, []
    if "[disabled]" in said:
        return True, [Finding(FAIL, f"{title} has the plugin switched off", "copilot plugin enable loom")]
    refused = _refused(os.path.join(install.folder_of("copilot"), "logs"), patient.bundle)
    dropped = Finding(FAIL, f"{title} has dropped all of Loom's hooks", "copilot plugin list", [refused])
    return True, [dropped] if refused else []


def _names_loom(line: str) -> bool:
    return re.search(r"(?:^|\s)loom(?:@\S+)?(?:\s|$)", line) is not None


def _refused(logs: str, bundle: str) -> str:
    """Give what the log says of a refused hooks file, if it is as old as the file is now."""
    try:
        changed = os.stat(os.path.join(bundle, "hooks", "copilot.json")).st_mtime
        paths = [os.path.join(logs, name) for name in os.listdir(logs) if name.endswith(".log")]
        times = sorted(((os.path.getmtime(path), path) for path in paths), reverse=True)[:_NEWEST_LOGS]
    except OSError:
        return ""
    for at, path in times:
        try:
            found = _REFUSED.search(files.read_bytes(path, limit=64 << 20).decode("utf-8", "replace"))
        except (OSError, LoomError):
            continue
        if found and at >= changed:
            return found.group()
    return ""


def _extension(host: str) -> Callable[[str, Patient], tuple[bool, list[Finding]]]:
    """Give the check of a host whose extensions stand in a folder of its settings."""

    def look(_: str, __: Patient) -> tuple[bool, list[Finding]]:
        folder = install.folder_of(host)
        title = install.title_of(host)
        is_there = os.path.lexists(os.path.join(folder, "extensions", "loom"))
        troubles = []
        settings = _settings(os.path.join(folder, "settings.json"))
        switch = settings.get("hooksConfig")
        off = settings.get("disableAllHooks") is True or (isinstance(switch, dict) and switch.get("enabled") is False)
        if is_there and off:
            where = os.path.join(folder, "settings.json")
            troubles.append(Finding(FAIL, f"{title}: its settings switch every hook off", f"grep -n -i hooks {where}"))
        return is_there, troubles

    return look


def _opencode(program: str, _: Patient) -> tuple[bool, list[Finding]]:
    """Ask for its version: 2 has another plugin API, and loads no plugin of 1; `_set_up` looks at the plugin's file."""
    if all(piece.state == install.MISSING for piece in install.look("opencode").pieces):
        return False, []
    ended = processes.run([program, "--version"], cwd=os.sep, environ=os.environ, patience=PATIENCE)
    major = ended.stdout.decode("utf-8", "replace").strip().partition(".")[0]
    if not major.isdecimal() or int(major) < 2:
        return True, []
    said = f"{install.title_of('opencode')} {major} has another plugin API than 1, and loads none of Loom's hooks"
    return True, [Finding(FAIL, said, "loomctl memory on --host opencode", ["OpenCode 1.18 loads them"])]


def _settings(path: str) -> dict[str, Any]:
    try:
        raw = commented_json.read(files.read_bytes(path, limit=1 << 20).decode("utf-8", "replace"))
    except (OSError, LoomError, ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


_ASKED: dict[str, Callable[[str, Patient], tuple[bool, list[Finding]]]] = {
    "codex": _codex,
    "copilot": _copilot,
    "opencode": _opencode,
    "gemini": _extension("gemini"),
    "qwen": _extension("qwen"),
}
