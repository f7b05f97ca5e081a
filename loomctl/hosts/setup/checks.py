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
from loomctl.kit import commented_json, files, processes, trouble
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.package import __version__
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
    if not is_there and not troubles and standing.plan.then:
        troubles = [Finding(FAIL, f"{title} has no plugin of Loom's to call its hooks", standing.plan.then[0])]
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
    listed, warned = _hooks_listed(program, patient.cwd or os.sep)
    title = install.title_of("codex")
    if listed is None:
        return False, [Finding(WARN, f"{title} does not say which hooks it calls", f"{program} --version")]
    own = [hook for hook in listed if " hook --host codex " in str(hook.get("command"))]
    users = [hook for hook in own if hook.get("source") == "user"]
    folder = install.folder_of("codex")
    gives_way = os.path.isfile(os.path.join(folder, "loom-hooks"))
    answering = users if gives_way else own
    if own and not answering:
        said = f"{title}: the plugin's hooks give way to hooks.json, of which it calls none"
        return True, [Finding(FAIL, said, _look(folder, warned) or "loomctl plugin install codex", warned)]
    if not own and (gives_way or _has_codex_plugin(folder)):
        return True, [Finding(FAIL, f"{title} calls none of Loom's hooks", _look(folder, warned), warned)]
    return bool(own), list(_silent_in_codex(title, patient.bundle, answering, gives_way=gives_way)) if own else []


def _silent_in_codex(title: str, bundle: str, answering: list[dict[str, Any]], *, gives_way: bool) -> Iterator[Finding]:
    """Name the hooks that it does not have, and those that its user has not trusted."""
    wanted = [f"{event[:1].lower()}{event[1:]}" for event in _events(os.path.join(bundle, "hooks", "codex.json"))]
    missing = [event for event in wanted if event not in {hook.get("eventName") for hook in answering}]
    if missing:
        said = f"{title} lacks {len(missing)} of Loom's {len(wanted)} hooks"
        mended = "loomctl plugin install codex" if gives_way else "codex plugin add loom@loom"
        yield Finding(FAIL, said, mended, [", ".join(missing)])
    silent = [hook for hook in answering if not _is_called(hook)]
    if silent:
        names = ", ".join(sorted({str(hook.get("eventName")) for hook in silent}))
        said = f"{title} skips {len(silent)} of Loom's {len(answering)} hooks: you have not trusted them"
        yield Finding(FAIL, said, "codex", [f"type /hooks in it and trust them: {names}"])


def _events(path: str) -> list[str]:
    try:
        return list(files.read_json(path, limit=1 << 20)["hooks"])
    except (OSError, LoomError, KeyError, TypeError):  # the doctor looks at the bundle, too
        return []


def _look(folder: str, warned: list[str]) -> str:
    """Give the line that shows what its user has to look at: hooks that it cannot read, or the switch for all."""
    if any("hooks.json" in one for one in warned):
        return f"cat {quoted(os.path.join(folder, 'hooks.json'))}"
    text = _text(os.path.join(folder, "config.toml"))
    return f"grep -n hooks {quoted(os.path.join(folder, 'config.toml'))}" if "hooks" in text else ""


def _has_codex_plugin(folder: str) -> bool:
    return re.search(r'^\[plugins\."?loom@', _text(os.path.join(folder, "config.toml")), re.MULTILINE) is not None


def _is_called(hook: dict[str, Any]) -> bool:
    return hook.get("enabled") is not False and hook.get("trustStatus") in ("trusted", "managed")


def _hooks_listed(program: str, cwd: str) -> tuple[list[dict[str, Any]] | None, list[str]]:
    """Give the hooks, None where it does not say, and what it warns of."""
    about = {"clientInfo": {"name": "loomctl", "version": "1"}}
    answer = _called(program, cwd, [("initialize", about), ("hooks/list", {"cwds": [cwd]})])
    try:
        found = answer["data"] if answer else None
        if found is None:
            return None, []
        hooks = [hook for one in found for hook in one["hooks"] if isinstance(hook, dict)]
        return hooks, [str(told) for one in found for told in one.get("warnings") or ()]
    except (KeyError, TypeError, AttributeError):
        return None, []


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
    lines = ended.stdout.decode("utf-8", "replace").split("\n")
    at = next((number for number, line in enumerate(lines) if _names_loom(line)), -1)
    if at < 0:
        return False, []
    if re.search(r"[\[(]disabled[\])]", lines[at]):
        return True, [Finding(FAIL, f"{title} has the plugin switched off", "copilot plugin enable loom@loom")]
    folder = install.folder_of("copilot")
    bundle = _copilots_bundle(folder, "".join(lines[at + 1 : at + 2]))
    if not bundle:
        said = f"{title} does not say where it reads the plugin"
        return True, [Finding(WARN, said, "copilot plugin install loom@loom")]
    troubles = list(_hooks_of(title, bundle, "copilot"))  # its disableAllHooks leaves a plugin's alone
    refused = _refused(os.path.join(folder, "logs"), bundle)
    if refused:
        dropped = f"{title} has dropped all of Loom's hooks"
        troubles.insert(0, Finding(FAIL, dropped, troubles[0].hint if troubles else "copilot plugin list", [refused]))
    return True, troubles


def _names_loom(line: str) -> bool:
    return re.search(r"(?:^|\s)loom(?:@\S+)?(?:\s|$)", line) is not None


def _copilots_bundle(folder: str, below: str) -> str:
    """Give the folder that it reads the plugin from; empty where that is not known.

    A marketplace on this machine is read where it lies, as the line below the plugin's says; others are copied.
    """
    begins, _, path = below.strip().partition("from ")
    if not begins and os.path.isabs(path):
        return path
    listed = _settings(os.path.join(folder, "config.json")).get("installedPlugins")
    own = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    noted = [str(one.get("cache_path")) for one in own if one.get("name") == "loom"]
    places = [*noted, os.path.join(folder, "installed-plugins", "loom", "loom")]
    return next((place for place in places if os.path.isabs(place) and os.path.isdir(place)), "")


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

    def look(_: str, patient: Patient) -> tuple[bool, list[Finding]]:
        title = install.title_of(host)
        folder = os.path.join(install.folder_of(host), "extensions")
        own = os.path.join(folder, "loom")
        if not os.path.lexists(own):
            return False, []
        troubles = list(_switched_off(host, patient))
        if not _is_enabled(_settings(os.path.join(folder, "extension-enablement.json")), patient.cwd or os.sep):
            said = f"{title} has the extension switched off here"
            troubles.append(Finding(FAIL, said, f"{host} extensions enable loom"))
        troubles += _hooks_of(title, _linked(own), host)
        version = _settings(os.path.join(_linked(own), "plugin.json")).get("version")
        if version != __version__:
            said = f"{title} has Loom {str(version)[:40]}, and this is {__version__}"
            troubles.append(Finding(WARN, said, f"{host} extensions update loom"))
        return True, troubles

    return look


def _linked(folder: str) -> str:
    """Give the folder that an extension is read from, where it is only linked."""
    for name in (".gemini-extension-install.json", ".qwen-extension-install.json"):
        said = _settings(os.path.join(folder, name))
        if said.get("type") == "link" and isinstance(said.get("source"), str):
            return str(said["source"])
    return folder


def _is_enabled(rules: dict[str, Any], cwd: str) -> bool:
    """Tell whether an extension is enabled in a folder: the last rule that fits it counts."""
    own = rules.get("loom")
    listed = own.get("overrides") if isinstance(own, dict) else None
    enabled = True
    for rule in map(str, listed) if isinstance(listed, list) else ():
        place = rule.removeprefix("!")
        above = place.removesuffix("*").rstrip("/")
        if cwd.rstrip("/") == above or (place.endswith("*") and cwd.startswith(above + "/")):
            enabled = not rule.startswith("!")
    return enabled


def _switched_off(host: str, patient: Patient) -> Iterator[Finding]:
    """Look into the settings of the user and of the project whether hooks are off, or Loom's."""
    folder = install.folder_of(host)
    places = [folder, *([os.path.join(patient.project.root, os.path.basename(folder))] if patient.project else [])]
    for where in (os.path.join(place, "settings.json") for place in places):
        settings = _settings(where)
        switch = settings.get("hooksConfig")
        switch = switch if isinstance(switch, dict) else {}
        listed = switch.get("disabled")
        if settings.get("disableAllHooks") is True or switch.get("enabled") is False:
            said = f"{install.title_of(host)}: its settings switch every hook off"
        elif isinstance(listed, list) and any(one == "loom" or f" hook --host {host} " in str(one) for one in listed):
            said = f"{install.title_of(host)}: its settings switch Loom's hooks off"
        else:
            continue
        yield Finding(FAIL, said, f"grep -n -i hooks {quoted(where)}")


_HOOKS = {"copilot": "copilot.json", "gemini": "hooks.json", "qwen": "qwen.json"}


def _hooks_of(title: str, bundle: str, host: str) -> Iterator[Finding]:
    """Look into the hooks that a host reads: one file of another form, or an empty matcher, and it calls none."""
    path = os.path.join(bundle, "hooks", _HOOKS[host])
    mended = trouble.repair(bundle, "hooks")
    if mended == trouble.plugin_command("install"):  # another assistant's: this one has no copy of its own
        mended = trouble.look(path)
    try:
        groups = [group for listed in files.read_json(path, limit=1 << 20)["hooks"].values() for group in listed]
        called = [entry["command"] for group in groups for entry in group["hooks"]]
        has_empty = any(group.get("matcher") == "" for group in groups)
    except (OSError, LoomError, KeyError, TypeError, AttributeError):
        yield Finding(FAIL, f"{title}: Loom cannot read its hooks there", mended, [path])
        return
    if has_empty and host == "copilot":
        yield Finding(FAIL, f"{title} drops all of Loom's hooks, for one has an empty matcher", mended, [path])
    if not any(f" hook --host {host} " in str(command) for command in called):
        yield Finding(FAIL, f"{title}: none of its hooks there calls Loom", mended, [path])
    launcher = os.path.join(bundle, "bin", "loomctl")
    if not os.access(launcher, os.X_OK):
        yield Finding(FAIL, f"{title}: its hooks call {launcher}, which cannot be executed", mended)


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


def _text(path: str) -> str:
    return _content(path).decode("utf-8", "replace")


def _settings(path: str) -> dict[str, Any]:
    return commented_json.settings(_content(path))


def _content(path: str) -> bytes:
    try:
        return files.read_bytes(path, limit=1 << 20)
    except (OSError, LoomError):
        return b""


_ASKED: dict[str, Callable[[str, Patient], tuple[bool, list[Finding]]]] = {
    "codex": _codex,
    "copilot": _copilot,
    "opencode": _opencode,
    "gemini": _extension("gemini"),
    "qwen": _extension("qwen"),
}
