"""Claude Code as it is here: its folder, its settings, and what the transcripts in it tell of its hooks.

No hook imports this but one that looks for another session's transcript, so what a doctor needs is imported there.
"""

from __future__ import annotations

import os

from loomctl.kit import clock, files, machine, quick_json
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from loomctl.care.project_checks import Patient
    from loomctl.kit.trouble import Finding

LARGEST_SETTINGS = 1 << 20
TAIL = 512 * 1024
"""Bytes of a transcript's end that are looked at: what was called before has been called again, or long ago."""
_HEAD = 64 * 1024
_SHELL = "Bash"  # the tool that the PreToolUse hook is for
_BOTH_ENDS = (2, 1, 76)  # the first release that calls hooks on both ends of a compaction, by the host's changelog


def host_folder() -> str:
    """Give the folder of Claude Code's settings and transcripts: CLAUDE_CONFIG_DIR, else `~/.claude`; "" without."""
    home = machine.home()
    return os.environ.get("CLAUDE_CONFIG_DIR") or (os.path.join(home, ".claude") if home else "")


def transcript_of(session_id: str) -> str | None:
    """Find a session's transcript where the host keeps them: `projects/*/{session_id}.jsonl` of its folder.

    Of several the newest; None where there is none, or no file can have its name.
    """
    folder = host_folder()
    base = os.path.join(folder, "projects")
    try:
        name = checked_id(session_id, what="session id") + ".jsonl"
        projects = os.listdir(base) if folder else []
    except (OSError, LoomError):
        return None
    times: list[tuple[float, str]] = []
    for path in (os.path.join(base, project, name) for project in projects):
        try:
            times += [(os.path.getmtime(path), path)] if os.path.isfile(path) else []
        except OSError:  # it is gone
            continue
    return max(times)[1] if times else None


def assistant(patient: Patient) -> Finding:
    """Look whether Claude Code is on PATH, and the plugin enabled in the settings of the user or the project."""
    import shutil

    from loomctl.care.project_checks import beats_of
    from loomctl.hosts.setup import install
    from loomctl.kit.errors import quoted
    from loomctl.kit.trouble import FAIL, PASS, WARN, Finding, plugin_command

    path = shutil.which("claude")
    enabled: tuple[bool, str] | None = None
    for source in _sources(patient):
        settings = _settings(source)
        if settings.get("disableAllHooks") is True:
            return Finding(
                FAIL, "disableAllHooks switches every hook off", f"grep -n disableAllHooks {quoted(source)}", [source]
            )
        said = settings.get("enabledPlugins")
        for name, value in said.items() if isinstance(said, dict) else ():
            if name.startswith("loom@") and isinstance(value, bool):
                enabled = (value, source)
    where = f"Claude Code at {path}" if path else "no claude on PATH"
    details = [f"set in {enabled[1]}"] if enabled else []
    if enabled and not enabled[0]:
        return Finding(FAIL, f"{where}; the plugin is disabled", "claude plugin enable loom@loom", details)
    if enabled and path:
        return Finding(PASS, f"{where}, the plugin is enabled", "", details)
    if enabled:
        return Finding(PASS, f"the plugin is enabled in Claude Code, but there is {where}", "", details)
    others = [] if path else [install.title_of(name) for name in install.HOSTS if shutil.which(name)]
    if others:
        return Finding(PASS, f"{where}, but {' and '.join(others)}")
    if beats_of(patient):
        return Finding(PASS, f"{where}; settings do not name the plugin, but its hooks have fired here")
    if not path:
        return Finding(WARN, f"{where}, so Loom cannot work in it. Without Claude Code there is nothing to do here")
    command = plugin_command("install")
    market = os.path.exists(os.path.join(patient.bundle, ".claude-plugin", "marketplace.json"))
    hint = f"claude plugin marketplace add {quoted(patient.bundle)} && {command}" if market else command
    return Finding(WARN, f"{where}; its settings do not say whether the plugin is enabled", hint)


def _sources(patient: Patient) -> list[str]:
    folder = host_folder()
    found = [os.path.join(folder, "settings.json")] if folder else []
    if patient.project is not None:
        own = os.path.join(patient.project.root, ".claude")
        found += [os.path.join(own, "settings.json"), os.path.join(own, "settings.local.json")]
    return found


def _settings(path: str) -> dict[str, Any]:
    try:
        raw = files.read_json(path, limit=LARGEST_SETTINGS)
    except (OSError, LoomError):
        return {}
    keys = ("disableAllHooks", "enabledPlugins")
    return {key: raw[key] for key in keys if key in raw} if isinstance(raw, dict) else {}


def calls_of(path: str | None) -> Mapping[str, float]:
    """Tell when the host must have called its hooks last, as the end of a transcript shows it, in seconds since 1970.

    A prompt, a tool that was used, a turn that came to its end, a compaction: each is written with its time, whether or
    not a hook answered; a compaction calls PreCompact and PostCompact where the release of the host that wrote its
    entry does. What may have had no hook counts nothing: calls that failed or were refused, what a command of the
    host's own left, what the host said in the assistant's name, subagents' turns.
    """
    if not path:
        return {}
    try:
        head, tail = _ends(path)
    except (OSError, LoomError):
        return {}
    called: dict[str, float] = {}
    shells: dict[str, float] = {}
    for at, _ in _entries(head):
        called["session-start"] = at
        break
    for at, entry in _entries(tail):
        if not entry.get("isSidechain"):
            _note(called, shells, entry, at)
    return called


def _ends(path: str) -> tuple[bytes, bytes]:
    descriptor = files.open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, _HEAD, 0)
        at = max(0, size - TAIL)
        tail = os.pread(descriptor, TAIL, at)
    finally:
        os.close(descriptor)
    return head, tail[tail.find(b"\n") + 1 :] if at else tail


def _note(called: dict[str, float], shells: dict[str, float], entry: dict[str, Any], at: float) -> None:
    kind = entry.get("type")
    if kind == "system" and entry.get("subtype") == "compact_boundary":
        called["session-start"] = at
        if _release(entry) >= _BOTH_ENDS:
            called["pre-compact"] = called["post-compact"] = at
    elif kind == "assistant":
        message, blocks = _message(entry)
        if message.get("model") == "<synthetic>":
            return
        for block in blocks:
            if block.get("type") == "tool_use" and block.get("name") == _SHELL:
                shells[str(block.get("id"))] = at
        if message.get("stop_reason") == "end_turn":
            called["stop"] = at
    elif kind == "user" and not entry.get("isMeta") and not entry.get("isCompactSummary"):
        _note_user(called, shells, entry, at)


def _note_user(called: dict[str, float], shells: dict[str, float], entry: dict[str, Any], at: float) -> None:
    message, blocks = _message(entry)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for result in results:
        if result.get("is_error"):
            continue
        called["post-tool-use"] = at
        asked = shells.get(str(result.get("tool_use_id")))
        if asked:
            called["pre-tool-use"] = asked
    said = message.get("content")
    if isinstance(said, list) and not results:
        said = next((block.get("text") for block in said if isinstance(block, dict) and block.get("text")), None)
    # What begins with these is a command of the host's own and what it printed, or says that a turn was broken off.
    if isinstance(said, str) and said.strip() and not said.lstrip().startswith(("<", "[Request interrupted")):
        called["user-prompt-submit"] = at


def _release(entry: dict[str, Any]) -> tuple[int, ...]:
    import re

    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", str(entry.get("version")), re.ASCII)
    return tuple(map(int, found.groups())) if found else ()


def _message(entry: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Give an entry's message and its blocks."""
    raw = entry.get("message")
    message = raw if isinstance(raw, dict) else {}
    content = message.get("content")
    return message, [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _entries(data: bytes) -> Iterator[tuple[float, dict[str, Any]]]:
    """Give the entries that have a time, each with it."""
    for line in data.split(b"\n"):
        try:
            entry = quick_json.loads(line.decode("utf-8", "surrogatepass")) if b'"timestamp"' in line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and (at := clock.seconds_of(str(entry.get("timestamp")))):
            yield float(at), entry
