"""Settings: the user's and the project's `config.yaml`, compiled to one JSON file that hooks can read (design §3)."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from loomctl.disk import digests, files
from loomctl.model.errors import LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 256 * 1024


class Settings(NamedTuple):
    """hook_budget: UTF-16 units; command_budget: UTF-8 bytes; extra_roots: absolute, the user's word alone (D10).

    warnings: `(code, message)` for what could not be used.
    """

    hook_budget: int = 9500
    command_budget: int = 24000
    default_workflow: str = "default"
    commit_runs: bool = False
    extra_roots: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()


# name in config.yaml: (field, least, most). Hosts drop what is larger than their own limits.
_NUMBERS = {"hook_budget": (500, 9900), "command_budget": (1000, 29000)}


def load(store: str, *, with_yaml: bool) -> Settings:
    """Give the settings in force for a store.

    with_yaml: compile the sources if they changed (needs PyYAML); without it the compiled file is used, and a source
    that changed since is told in a warning.
    """
    compiled = _compiled(store)
    user_path = user_config() if with_yaml else _user_path_of(compiled)
    sources = [_fingerprint(path) for path in (user_path, _project_path(store))]
    if compiled is not None and compiled.get("sources") == sources:
        return _settings(compiled)
    if with_yaml:
        return _settings(compile_sources(store, sources))
    if compiled is None and not any(source["size"] for source in sources):
        return Settings()
    stale = (
        "STALE_CONFIG",
        "config.yaml changed since loomctl last ran; the settings before are used: run loomctl paths",
    )
    settings = _settings(compiled) if compiled is not None else Settings()
    return settings._replace(warnings=(*settings.warnings, stale))


def user_config() -> str:
    """Give the path of the user's own `config.yaml`, where their system keeps such files."""
    import platformdirs

    return os.path.join(platformdirs.user_config_dir("loom", appauthor=False), "config.yaml")


def compile_sources(store: str, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Read both YAML files and write `local/config.json`; gives what was compiled. A bad file is an error (BAD_CONFIG).

    sources: the fingerprints of the user's file and the project's, in that order.
    """
    user_path, project_path = (source["path"] for source in sources)
    warnings: list[list[str]] = []
    user = _parsed(user_path, allowed=(*_NUMBERS, "default_workflow", "extra_roots"), warnings=warnings)
    project = _parsed(project_path, allowed=(*_NUMBERS, "default_workflow", "commit_runs"), warnings=warnings)
    compiled = {
        "sources": sources,
        "settings": {**user, **project, "extra_roots": user.get("extra_roots", [])},
        "warnings": warnings,
    }
    try:
        if os.path.isdir(store):
            files.make_folder(os.path.join(store, "local"))
            files.write_atomically(os.path.join(store, "local", "config.json"), files.to_json(compiled), durable=False)
    except OSError:  # a project that cannot be written works from its sources
        pass
    return compiled


def _parsed(path: str, *, allowed: tuple[str, ...], warnings: list[list[str]]) -> dict[str, Any]:
    if not path or not os.path.isfile(path):
        return {}
    import yaml

    try:
        text = files.read_bytes(path, limit=LARGEST).decode("utf-8-sig")
        if re.search(r"(^|[\s\[,:-])[&*][A-Za-z0-9_]", text):
            raise LoomError("BAD_CONFIG", "anchors and aliases are not used in config.yaml", where=path)
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        why = " ".join(str(error).split())[:300]
        raise LoomError("BAD_CONFIG", "the settings cannot be read", where=path, why=why) from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise LoomError("BAD_CONFIG", "settings are a mapping of names to values", where=path)
    settings: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in allowed:
            note = "is allowed in your own config.yaml only (D10)" if name == "extra_roots" else "is no setting here"
            warnings.append(["UNKNOWN_SETTING", f"{path}: {str(name)[:60]} {note}"])
            continue
        settings[name] = _checked(name, value, path)
    return settings


def _checked(name: str, value: object, path: str) -> Any:
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        if type(value) is int and least <= value <= most:
            return value
        expected = f"a whole number from {least} to {most}"
    elif name == "commit_runs":
        if isinstance(value, bool):
            return value
        expected = "true or false"
    elif name == "default_workflow":
        if isinstance(value, str) and value:
            return value
        expected = "a workflow's id or path"
    else:
        if isinstance(value, list) and all(
            isinstance(item, str) and os.path.isabs(os.path.expanduser(item)) for item in value
        ):
            return [os.path.expanduser(item) for item in value]
        expected = "a list of absolute folders"
    raise LoomError("BAD_CONFIG", f"{name} is {value!r:.60}", where=f"{path} $.{name}", why=f"it is {expected}")


def _settings(compiled: dict[str, Any]) -> Settings:
    known = compiled.get("settings")
    known = known if isinstance(known, dict) else {}
    raw_warnings = compiled.get("warnings")
    warnings = tuple((str(pair[0]), str(pair[1])) for pair in raw_warnings) if isinstance(raw_warnings, list) else ()
    numbers: dict[str, int] = {}
    for name, (least, most) in _NUMBERS.items():
        value = known.get(name)
        if type(value) is int and least <= value <= most:
            numbers[name] = value
    settings = Settings(
        hook_budget=numbers.get("hook_budget", Settings().hook_budget),
        command_budget=numbers.get("command_budget", Settings().command_budget),
        warnings=warnings,
    )
    if isinstance(known.get("default_workflow"), str):
        settings = settings._replace(default_workflow=known["default_workflow"])
    roots = known.get("extra_roots")
    if isinstance(roots, list):
        settings = settings._replace(extra_roots=tuple(str(root) for root in roots))
    return settings._replace(commit_runs=known.get("commit_runs") is True)


def _project_path(store: str) -> str:
    return os.path.join(store, "config.yaml")


def _user_path_of(compiled: dict[str, Any] | None) -> str:
    """Give the user's file as the last compilation found it; a hook cannot ask the library where it is."""
    sources = (compiled or {}).get("sources")
    first = sources[0] if isinstance(sources, list) and sources else None
    path = first.get("path") if isinstance(first, dict) else None
    return path if isinstance(path, str) else ""


def _fingerprint(path: str) -> dict[str, Any]:
    """Name a source by size, time and hash, so that a touched file alone does not count as changed."""
    try:
        data = files.read_bytes(path, limit=LARGEST) if path else b""
    except (OSError, LoomError):
        data = b""
    return {"path": path, "size": len(data), "sha256": digests.of_bytes(data) if data else ""}


def _compiled(store: str) -> dict[str, Any] | None:
    try:
        value = files.read_json(os.path.join(store, "local", "config.json"), limit=LARGEST)
    except (OSError, LoomError):
        return None
    return value if isinstance(value, dict) else None
