"""Settings: the user's and the project's `config.yaml`, each compiled to a JSON file that hooks can read.

The user's is compiled into the user's own state folder: what it alone may say (`extra_roots`) is never taken from a
file that a repository could bring along (D10).
"""

from __future__ import annotations

import os

from loomctl.kit import digests, files, machine, package
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.quick_json import as_list, as_object
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LARGEST = 256 * 1024
DEPTH = 20
LONGEST_COMMAND = 500
CHILD_PATIENCE = 2.0  # seconds


class Settings(NamedTuple):
    """hook_budget: UTF-16 units of all parts together; command_budget: UTF-8 bytes.

    extra_roots: absolute, the user's word alone (D10). outputs_days, local_days, environments_days: how long `loomctl
    clean` leaves things (D56); None: for ever; that of environments is the user's word alone. reduce_live: `large` or
    `off`; reduce_live_threshold: characters; reduce_tools: the same two for tools by name (D48); reduce_rules: how
    calls of other tools are reduced, as `tool_steps.of_settings` reads them. test_command: empty where the project says
    that it has none, None where it says nothing. notify: what calls the user, by their word alone. warnings:
    `(code, message)` for what could not be used.
    """

    hook_budget: int = 38000
    command_budget: int = 24000
    default_workflow: str = "default"
    commit_runs: bool = False
    extra_roots: tuple[str, ...] = ()
    outputs_days: int | None = None
    local_days: int = 30
    environments_days: int = 30
    reduce_live: str = "large"
    reduce_live_threshold: int = 8000
    reduce_tools: dict[str, Any] = {}  # noqa: RUF012 - never changed
    reduce_rules: tuple[dict[str, Any], ...] = ()
    test_command: str | None = None
    notify: str | None = None
    warnings: tuple[tuple[str, str], ...] = ()


# name in config.yaml: (least, most). Hosts drop what is larger than their own limits.
_NUMBERS = {
    "hook_budget": (500, 38000),
    "command_budget": (1000, 25000),
    "reduce.live_threshold": (8000, 1_000_000),  # the launcher starts no Python for less
}
_RETENTION, _REDUCE = "retention", "reduce"
_DAYS = ("retention.outputs_days", "retention.local_days")
_REDUCING = ("reduce.live", "reduce.tools", "reduce.rules")
_USER = (*_NUMBERS, "default_workflow", "extra_roots", *_DAYS, "retention.environments_days", *_REDUCING, "notify")
_PROJECT = (*_NUMBERS, "default_workflow", "commit_runs", "test_command", *_DAYS, *_REDUCING)
_MOST_DAYS, _MOST_RULES = 36500, 100
_LIVE = ("large", "off")


UNKNOWN = "UNKNOWN_SETTING"  # the code of a warning


class _Level(NamedTuple):
    """One source and what it may say. path: None where only the last compilation knows it (a hook, the user's file)."""

    path: str | None
    compiled: str
    names: tuple[str, ...]


def load(store: str, *, with_yaml: bool, keep: bool = True) -> Settings:
    """Give the settings in force for a store; the project's word comes before the user's.

    with_yaml: compile a source that changed (needs PyYAML; raises BAD_CONFIG for one that cannot be read); without it
    the last compilation is used, and a source that changed since is told in a warning. keep: write what was compiled.
    """
    known: dict[str, Any] = {}
    warnings: list[tuple[str, str]] = []
    for level in _levels(store, with_yaml=with_yaml):
        settings, said = _read(level, with_yaml=with_yaml, keep=keep)
        known.update((field(name), value) for name, value in settings.items())
        warnings += said
    if "reduce_rules" in known:
        known["reduce_rules"] = tuple(known["reduce_rules"])
    if "extra_roots" in known:
        known["extra_roots"] = tuple(known["extra_roots"])
    return Settings(**known, warnings=tuple(warnings))


def field(name: str) -> str:
    """Give the field of `Settings` that holds a setting: `retention.local_days` is in `local_days`."""
    return name.removeprefix(f"{_RETENTION}.").replace(".", "_")


def load_for_a_hook(store: str, environment_python: str | None) -> Settings:
    """Give the settings without PyYAML; what changed is compiled by the made environment, in one child process.

    Without an environment, or where it fails, the settings before are used, with a warning.
    """
    settings = load(store, with_yaml=False)
    if environment_python is None or not any(code == "STALE_CONFIG" for code, _ in settings.warnings):
        return settings
    import subprocess

    try:
        subprocess.run(
            [environment_python, "-I", package.MAIN, "settings", store],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=CHILD_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return settings
    return load(store, with_yaml=False)


def user_config() -> str:
    """Give the path of the user's own `config.yaml`, where their system keeps such files; empty without a home."""
    folder = machine.config_home()
    return os.path.join(folder, "config.yaml") if folder else ""


def project_config(store: str) -> str:
    """Give the path of the project's `config.yaml`."""
    return os.path.join(store, "config.yaml")


def troubles(store: str) -> list[LoomError]:
    """Give what is wrong with the sources of the settings, each file's first; needs PyYAML and writes nothing.

    What a source says and Loom does not use is a trouble with the code UNKNOWN.
    """
    found = []
    for level in _levels(store, with_yaml=True):
        if level.names is _PROJECT and _leads_out(level.path or ""):
            found.append(_led_out(level.path or ""))
            continue
        try:
            found += [LoomError(code, said) for code, said in _parsed(level.path or "", level.names)[1]]
        except LoomError as error:
            found.append(error)
    return found


def _levels(store: str, *, with_yaml: bool) -> list[_Level]:
    home = machine.state_home()
    levels = [_Level(project_config(store), os.path.join(store, "local", "config.json"), _PROJECT)]
    if home:
        levels.insert(0, _Level(user_config() if with_yaml else None, os.path.join(home, "config.json"), _USER))
    return levels


def _read(level: _Level, *, with_yaml: bool, keep: bool) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    compiled = _compiled(level)
    source = compiled.get("source")
    path = level.path if level.path is not None else as_object(source).get("path")
    leads_out = level.names is _PROJECT and level.path is not None and _leads_out(level.path)
    if leads_out and with_yaml:
        raise _led_out(level.path or "")
    now = {
        **_fingerprint("" if leads_out or not isinstance(path, str) else path),
        "names": list(level.names),
    }  # another Loom knew others
    if source == now:
        return _fit(compiled, level), _warnings(compiled)
    if with_yaml:
        settings, said = _parsed(now["path"], level.names)
        if keep:
            _keep(level, {"source": now, "settings": settings, "warnings": said})
        return settings, said
    if not now["size"]:
        return {}, []
    stale = (
        "STALE_CONFIG",
        f"{now['path']} changed since loomctl last ran, so the old settings still count: loomctl paths",
    )
    return _fit(compiled, level), [*_warnings(compiled), stale]


def _keep(level: _Level, compiled: dict[str, Any]) -> None:
    """Write what was compiled, if there is a place for it; where there is none, each command compiles anew."""
    folder = os.path.dirname(level.compiled)
    if level.names is _PROJECT and not os.path.isdir(os.path.dirname(folder)):
        return
    if level.names is _PROJECT:
        files.refuse_links(os.path.dirname(folder), level.compiled)
    try:
        if level.names is _PROJECT and not os.path.isdir(folder):
            from loomctl.runs.store import ignored  # a run has written it, where there was one

            ignored.write(os.path.dirname(folder), commit_runs=compiled["settings"].get("commit_runs", False))
        files.make_folder(folder)
        files.write_atomically(level.compiled, files.to_json(compiled), durable=False)
    except (OSError, LoomError):
        pass


def _parsed(path: str, names: tuple[str, ...]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    if not path or not os.path.isfile(path):
        return {}, []
    from loomctl.kit import strict
    from loomctl.kit.problems import shown
    from loomctl.kit.text.secrets import masked_line

    try:
        text = files.text_of(files.read_bytes(path, limit=LARGEST))
    except (UnicodeDecodeError, OSError) as error:
        hint = f"ls -l {quoted(path)}"
        raise LoomError("BAD_CONFIG", "the settings cannot be read", where=path, why=str(error), hint=hint) from None
    raw, problems = strict.parse_yaml(text, max_depth=DEPTH)
    if problems:
        where = f"{path} {problems[0].where}"
        raise LoomError("BAD_CONFIG", problems[0].message, where=where, why=problems[0].hint, hint=_edit(path))
    if raw is None:
        return {}, []
    if not isinstance(raw, dict):
        why = "each line gives one setting, such as hook_budget: 9500"
        raise LoomError("BAD_CONFIG", "settings must map names to values", where=path, why=why, hint=_edit(path))
    settings: dict[str, Any] = {}
    warnings: list[tuple[str, str]] = []
    for name, value in _each(raw):
        if name in names or name in (_RETENTION, _REDUCE):
            expected = _misfit(name, value)
            if expected:
                at = _first_misfit(value) if name == "reduce.rules" else ""
                place = f"{name}[{at}]" if at else name
                message = f"{place} is {masked_line(repr(value[int(at)] if at else value), 60)}"
                where, why = f"{path} $.{place}", f"expected {expected}"
                raise LoomError("BAD_CONFIG", message, where=where, why=why, hint=_edit(path))
            settings[name] = _kept(name, value)
        else:
            warnings.append((UNKNOWN, f"{path}: {shown(name)} {_unused(name, names)}"))
    return settings, warnings


def _unused(name: object, names: tuple[str, ...]) -> str:
    """Say why a source's word is no setting of its own, with the name that is near to it."""
    from loomctl.kit.problems import nearest

    if name in _USER:
        return "is allowed in your own config.yaml only"
    if name in _PROJECT:
        return "is allowed in a project's config.yaml only"
    meant = nearest(str(name), names)
    return "is not a setting" + (f"; did you mean {meant}?" if meant else "")


def _edit(path: str) -> str:
    return f"${{EDITOR:-vi}} {quoted(path)}"


def _each(raw: dict[str, Any]) -> list[tuple[str, Any]]:
    """Give each setting by its name, those below `retention:` and `reduce:` as `retention.local_days`."""
    found: list[tuple[str, Any]] = []
    for name, value in raw.items():
        if name in (_RETENTION, _REDUCE) and isinstance(value, dict):
            found += [(f"{name}.{inner}", below) for inner, below in value.items()]
        else:
            found.append((name, value))
    return found


def _kept(name: str, value: Any) -> Any:
    """Give a setting as hooks read it: `~` is a home, and `off`, which YAML takes for false, is a word again."""
    if name == "extra_roots":
        return [os.path.expanduser(item) for item in value]
    if name == "reduce.live":
        return _live_word(value)
    if name == "reduce.tools":
        return {
            tool: {key: _live_word(one) if key == "live" else one for key, one in said.items()}
            for tool, said in value.items()
        }
    return value


def _live_word(value: object) -> object:
    return "off" if value is False else value


def _misfit(name: str, value: Any) -> str:
    """Say what a setting's value should be; empty if it is that."""
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        return "" if type(value) is int and least <= value <= most else f"a whole number from {least} to {most}"
    if name in _EXPECTED:
        fits, expected = _EXPECTED[name]
        return "" if fits(value) else expected
    if name == "reduce.tools":
        return _misfit_tools(value)
    if name == "reduce.rules":
        if not isinstance(value, list):
            return f"a list of rules, each with {_A_RULE}"
        bad = _first_misfit(value)
        return (
            _misfit_rule(value[int(bad)])
            if bad
            else f"a list of at most {_MOST_RULES} rules" * (len(value) > _MOST_RULES)
        )
    return "" if type(value) is int and 1 <= value <= _MOST_DAYS else "a whole number of days, 1 or more"


def _are_roots(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(root, str) and os.path.isabs(os.path.expanduser(root)) for root in value
    )


def is_test_command(value: Any) -> bool:
    """Tell whether a value may be the project's test command."""
    return isinstance(value, str) and len(value) <= LONGEST_COMMAND and value.isprintable()


_A_RULE = "a tool: - {tool: 'weather:get', keep: [location], template: '…'}"
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    _RETENTION: (lambda _: False, "a mapping of outputs_days, local_days and environments_days to numbers"),
    _REDUCE: (lambda _: False, "a mapping of live, live_threshold, tools and rules"),
    "reduce.live": (lambda value: _live_word(value) in _LIVE, "large or off"),
    "commit_runs": (lambda value: isinstance(value, bool), "true or false"),
    "default_workflow": (lambda value: isinstance(value, str) and bool(value), "a workflow's id or path"),
    "extra_roots": (_are_roots, "a list of absolute folders"),
    "notify": (is_test_command, f"a command in one line of at most {LONGEST_COMMAND} characters; '' for silence"),
    "test_command": (is_test_command, f"a command in one line of at most {LONGEST_COMMAND} characters; '' for none"),
}


def _misfit_tools(value: Any) -> str:
    least, most = _NUMBERS["reduce.live_threshold"]
    for said in value.values() if isinstance(value, dict) else [None]:
        if not isinstance(said, dict) or not said.keys() <= {"live", "live_threshold"}:
            return "a mapping of tools to live and live_threshold: Bash: {live: off}"
        if "live" in said and _live_word(said["live"]) not in _LIVE:
            return "for live: large or off"
        number = said.get("live_threshold", least)
        if type(number) is not int or not least <= number <= most:
            return f"for live_threshold: a whole number from {least} to {most}"
    return ""


def _first_misfit(rules: Any) -> str:
    """Give the number of the first rule that is none; empty where they are no list, or too many."""
    if not isinstance(rules, list) or len(rules) > _MOST_RULES:
        return ""
    return next((str(number) for number, rule in enumerate(rules) if _misfit_rule(rule)), "")


def _misfit_rule(rule: Any) -> str:
    if not isinstance(rule, dict) or not isinstance(rule.get("tool"), str) or not rule["tool"]:
        return _A_RULE
    if not rule.keys() <= {"tool", "keep", "template", "threshold"}:
        return "tool, keep, template and threshold, and nothing else"
    keep = rule.get("keep", [])
    if not isinstance(keep, list) or not all(isinstance(name, str) and 0 < len(name) <= 200 for name in keep):
        return "for keep: a list of arguments, by name or by a JSON path such as $.unit.name"
    for name in keep:
        if name.startswith("$") and _is_no_path(name):
            return f"for keep: names and plain JSON paths such as $.unit.name or $.stops[0]; {name!r:.80} is neither"
    template = rule.get("template", "")
    if not isinstance(template, str) or len(template) > 400 or "\n" in template:
        return "for template: one line of text, with {argument} and {result.key}"
    for part in template.split("{")[1:]:
        named, closed, _ = part.partition("}")
        if not closed or _is_no_path(named.strip()):
            shown = repr("{" + named + closed)
            return f"for template: {{argument}} and {{result.key}} in one line of text; {shown:.80} is neither"
    threshold = rule.get("threshold", 0)
    fits = type(threshold) is int and 0 <= threshold <= 1_000_000
    return "" if fits else "for threshold: a number of bytes up to 1000000, 0 for always"


def _is_no_path(text: str) -> bool:
    from loomctl.expressions.state_paths import compile_path

    return not text or compile_path(text) is None


def _fit(compiled: dict[str, Any], level: _Level) -> dict[str, Any]:
    """Give of a compiled file what its level may say; the file may be damaged, or a repository's own."""
    settings = as_object(compiled.get("settings"))
    return {name: settings[name] for name in level.names if name in settings and not _misfit(name, settings[name])}


def _leads_out(path: str) -> bool:
    """Tell whether a project's settings are a link to somewhere outside of the project."""
    if not os.path.islink(path):
        return False
    root = os.path.realpath(os.path.dirname(os.path.dirname(path)))
    return not os.path.realpath(path).startswith(root.rstrip(os.sep) + os.sep)


def _led_out(path: str) -> LoomError:
    what = "the project's settings are a link that leads out of the project"
    why = "Loom does not read it; put a plain file there, or use your own config.yaml"
    return LoomError("UNSAFE_LINK", what, where=path, why=why, hint=f"ls -l {quoted(path)}")


def _warnings(compiled: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = as_list(compiled.get("warnings"))
    return [(str(pair[0]), str(pair[1])) for pair in pairs if isinstance(pair, list) and len(pair) == 2]


def _fingerprint(path: str) -> dict[str, Any]:
    """Name a source by path, size and hash, so that a touched file alone does not count as changed."""
    try:
        data = files.read_bytes(path, limit=LARGEST) if path else b""
    except OSError:
        data = b""
    except LoomError:  # too large to be read: no file is taken for it
        return {"path": path, "size": -1, "sha256": ""}
    return {"path": path, "size": len(data), "sha256": digests.of_bytes(data) if data else ""}


def _compiled(level: _Level) -> dict[str, Any]:
    try:
        if level.names is _PROJECT:
            files.refuse_links(os.path.dirname(os.path.dirname(level.compiled)), level.compiled)
        return as_object(files.read_json(level.compiled, limit=LARGEST))
    except (OSError, LoomError):
        return {}
