"""Whether Claude Code is here and lets the plugin's hooks run, as far as its settings tell. Reads two keys, no more."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from loomctl.care.hook_checks import beats_of
from loomctl.hosts.claude import transcript
from loomctl.kit import files
from loomctl.kit.bundle_lines import REINSTALL
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.findings import FAIL, PASS, WARN, Finding

if TYPE_CHECKING:
    from loomctl.care.patient import Patient

PLUGIN = "loom@"
LARGEST = 1 << 20


def assistant(patient: Patient) -> Finding:
    """Claude Code on PATH, and the plugin enabled in the settings of the user or the project."""
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
            if name.startswith(PLUGIN) and isinstance(value, bool):
                enabled = (value, source)
    where = f"Claude Code at {path}" if path else "no claude on PATH"
    details = [f"said in {enabled[1]}"] if enabled else []
    if enabled and not enabled[0]:
        return Finding(FAIL, f"{where}; the plugin is disabled", "claude plugin enable loom@loom", details)
    if enabled and path:
        return Finding(PASS, f"{where}, the plugin is enabled", "", details)
    if enabled:
        return Finding(PASS, f"the plugin is enabled in Claude Code, and there is {where}", "", details)
    if beats_of(patient):
        return Finding(PASS, f"{where}; settings do not name the plugin, and its hooks have fired here all the same")
    return Finding(WARN, f"{where}; whether the plugin is enabled cannot be told from its settings", REINSTALL)


def _sources(patient: Patient) -> list[str]:
    """Give the files that may say it, what counts most last."""
    folder = transcript.host_folder()
    found = [os.path.join(folder, "settings.json")] if folder else []
    if patient.project is not None:
        own = os.path.join(patient.project.root, ".claude")
        found += [os.path.join(own, "settings.json"), os.path.join(own, "settings.local.json")]
    return found


def _settings(path: str) -> dict[str, Any]:
    """Give the two keys that matter of a settings file; nothing else of it is kept."""
    try:
        raw = files.read_json(path, limit=LARGEST)
    except (OSError, LoomError):
        return {}
    keys = ("disableAllHooks", "enabledPlugins")
    return {key: raw[key] for key in keys if key in raw} if isinstance(raw, dict) else {}
