"""What is well and what is not in an installation of Loom: a table of checks, each fenced, and those of the machine.

The standard library alone: the doctor must speak where no environment could be made. It changes nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from loomctl.care import project_checks
from loomctl.install import on_path
from loomctl.install.environment import MAKING
from loomctl.kit import files, git, machine, package, processes, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.machine import size_below, size_in_words
from loomctl.kit.package import __version__
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import mask
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding, gathered
from loomctl.runs import hook_health
from loomctl.runs.model.state import SCHEMA_VERSION, handle
from loomctl.runs.store import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from loomctl.care.project_checks import Patient

    Check: TypeAlias = Callable[[Patient], Finding]
    from collections.abc import Collection, Iterator

    from loomctl.care.project_checks import Patient

PATIENCE = 20.0  # seconds, for a Python that was never started before
# Below these many free bytes nothing can be recorded, or soon not any more.
NEARLY_NONE, LITTLE = 10_000_000, 200_000_000

# Asked of the environment's own Python: what can be imported there, and which versions are installed.
_PROGRAM = """
import importlib, importlib.metadata, json, sys
asked = json.load(sys.stdin)
broken = {}
for name in asked["modules"]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        broken[name] = f"{type(error).__name__}: {error}"
installed = {}
for name in asked["packages"]:
    try:
        installed[name] = importlib.metadata.version(name)
    except Exception:
        pass
print(json.dumps({"broken": broken, "installed": installed, "python": "%d.%d.%d" % sys.version_info[:3]}))
"""
_MODULES = ("click", "jsonpath_ng", "jsonschema", "psutil", "yaml", "quickjs")


def python(patient: Patient) -> Finding:
    """The Python that this process runs on, and the one that hooks remember (D58)."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    found = f"Python {version} at {sys.executable}"
    if sys.flags.no_site or patient.is_helper:  # as the launcher starts it, or a wheel's own
        found += ", which hooks use" if sys.flags.no_site else ", this helper's own"
    unsafe = machine.unsafe_folders()
    memory, remembered = _remembered(unsafe)
    facts = {"python": sys.executable, "version": version, "remembered": remembered}
    if unsafe:
        words = f"Loom does not use {unsafe[0]}: it is a link, another user owns it, or others can write to it"
        return Finding(WARN, words, f"ls -ld {shlex.quote(unsafe[0])}", [found, *unsafe[1:]], facts)
    if remembered and not os.access(remembered, os.X_OK):
        details = [f"the Python of the hooks is gone, so the next hook looks for another: {remembered}"]
        return Finding(PASS, found, "", details, facts)
    if not remembered or os.path.realpath(remembered) == os.path.realpath(sys.executable):
        return Finding(PASS, found, "", (), facts)
    if not _starts(remembered):
        words = f"the Python of the hooks does not start: {remembered}"
        return Finding(FAIL, words, f"rm {shlex.quote(memory)}", [found], facts)
    return Finding(PASS, found, "", [f"hooks use {remembered}"], facts)


def _remembered(unsafe: Collection[str]) -> tuple[str, str]:
    """Give `(file, Python)` of what hooks remember, in the order in which the launcher looks; empty if they do not."""
    for base in (os.environ.get(machine.PLUGIN_DATA, "").rstrip("/"), machine.cache_home()):
        if base in unsafe:
            continue
        memory = os.path.join(base, "python")
        try:
            line = (
                os.fsdecode(files.read_bytes(memory, limit=1 << 14).partition(b"\n")[0]) if os.path.isabs(base) else ""
            )
        except (OSError, LoomError):
            continue
        if os.path.isabs(line):
            return memory, line
    return "", ""


def _starts(python: str) -> bool:
    try:
        return (
            processes.run([python, "-I", "-S", "-c", ""], cwd=os.sep, environ=os.environ, patience=PATIENCE).code == 0
        )
    except OSError:
        return False


def environment(patient: Patient) -> Finding:
    """Loom's own environment: made, of the right lock, its packages importable. Hooks do without, commands do not."""
    python = patient.environment_python
    if not python:
        found = (
            "Loom's own environment does not exist yet; the first command that needs it makes it, hooks never need it"
        )
        return Finding(WARN, found, "loomctl --version")
    folder = os.path.dirname(os.path.dirname(python))
    anew = trouble.new_environment(patient.bundle, folder)
    locked = _locked(patient.bundle)
    asked = json.dumps({"modules": _MODULES, "packages": sorted(locked)}).encode()
    try:
        ended = processes.run(
            [python, "-I", "-B", "-c", _PROGRAM], cwd=os.sep, environ=os.environ, patience=PATIENCE, given=asked
        )
        told = json.loads(ended.stdout)
    except (OSError, ValueError) as error:
        return Finding(FAIL, f"the Python of Loom's own environment does not start: {error}", anew, [python])
    details = [f"{name} cannot be imported: {why}" for name, why in told["broken"].items()]
    if told["broken"] == {"quickjs": told["broken"].get("quickjs")}:
        found = "quickjs is missing, so Loom defers all but simple conditions (D12)"
        return Finding(WARN, found, anew, details)
    if told["broken"]:
        return Finding(FAIL, f"Loom's own environment is damaged: {', '.join(told['broken'])}", anew, details)
    other = [
        f"{name} is {told['installed'].get(name, 'missing')}"
        for name, wanted in locked.items()
        if name in told["installed"] and told["installed"][name] not in wanted
    ]
    facts = {"python": python}
    if other and not patient.is_helper:  # whoever installed a wheel chose what goes with it
        return Finding(WARN, f"{len(other)} packages differ from requirements.lock", anew, other, facts)
    return Finding(PASS, f"Python {told['python']} and all packages in {folder}", "", (), facts)


def _locked(bundle: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    try:
        text = files.read_bytes(os.path.join(bundle, "requirements.lock"), limit=1 << 20).decode()
    except (OSError, LoomError, UnicodeDecodeError):
        return {}
    for line in text.splitlines():
        name, pinned, rest = line.partition("==")
        if pinned and not line.startswith((" ", "#", "-")):
            found.setdefault(name, set()).add(rest.split()[0])
    return found


def versions(patient: Patient) -> Finding:
    """Whether loomctl, its bundle, the hooks that fired and the runs' last writer are of one age."""
    troubles = [*_bundle_skew(patient), *_hook_skew(patient), *_run_skew(patient)]
    return gathered(
        troubles,
        f"loomctl {__version__}, with its bundle in {patient.bundle}",
        facts={"version": __version__, "state_schema": SCHEMA_VERSION},
    )


def _bundle_skew(patient: Patient) -> Iterator[Finding]:
    version = _bundle_version(patient.bundle)
    if not version:
        mended = trouble.repair(patient.bundle, "plugin.json")
        yield Finding(FAIL, "Loom cannot read the bundle's plugin.json", mended, [patient.bundle])
    elif version != __version__:
        hint = trouble.update(patient.bundle)
        yield Finding(WARN, f"the bundle is {version}, but its loomctl is {__version__}", hint, [patient.bundle])


def _bundle_version(root: str) -> str:
    try:
        manifest = files.read_json(os.path.join(root, "plugin.json"), limit=1 << 20)
    except (OSError, LoomError):
        return ""
    version = manifest.get("version") if isinstance(manifest, dict) else None
    return version if isinstance(version, str) else ""


def path(patient: Patient) -> Finding:
    """Whether `loomctl`, where it is typed, is this one. A plugin's `bin` stands last on PATH."""
    first = on_path.first()
    if first is None:
        words = "loomctl is not on PATH, so you cannot type it in a terminal"
        return Finding(WARN, words, f"{shlex.quote(patient.launcher)} install")
    if any(on_path.leads_to(first, own) for own in (patient.launcher, patient.program) if own):
        return Finding(PASS, f"loomctl is {first}")
    return gathered([*_path_skew(first, patient)], f"loomctl is {first}, another copy of this version")


def _path_skew(first: str, patient: Patient) -> Iterator[Finding]:
    version = _version_of(first, patient)
    if not version:
        hint = f"{shlex.quote(first)} --version"
        yield Finding(WARN, f"the first loomctl on PATH is another one and does not say its version: {first}", hint)
    elif version != __version__:
        older = package.is_older(version, __version__)
        is_bundle = bool(_bundle_version(_bundle_of(first)))
        helper_is_older = older and not is_bundle
        behind = _bundle_of(first) if older else patient.bundle
        hint = trouble.UPDATE_HELPER if helper_is_older else trouble.update(behind)
        yield Finding(WARN, f"the first loomctl on PATH is {version}, this one is {__version__}: {first}", hint)


def _bundle_of(launcher: str) -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(launcher)))


def _version_of(program: str, patient: Patient) -> str:
    """Give a loomctl's version; of a launcher from its bundle, for to start one may set it up."""
    version = _bundle_version(_bundle_of(program))
    root = os.path.realpath(patient.project.root) if patient.project else ""
    if version or (root and os.path.realpath(program).startswith(root + os.sep)):  # what a project brings is not run
        return version
    try:
        ended = processes.run([program, "--version"], cwd=os.sep, environ=os.environ, patience=PATIENCE)
    except OSError:
        return ""
    words = ended.stdout.decode("utf-8", "replace").split()
    return words[-1][:40] if ended.code == 0 and words else ""


def _hook_skew(patient: Patient) -> Iterator[Finding]:
    beats = project_checks.beats_of(patient)
    for skew in hook_health.skews(beats, None):
        latest = max(beats.values(), key=lambda beat: beat.at)
        behind = patient.is_helper and skew.newer
        found = f"the hooks that last fired here are {skew.version}, but this loomctl is {__version__}"
        own = patient.bundle if skew.newer or not os.path.isabs(latest.launcher) else _bundle_of(latest.launcher)
        hint = trouble.UPDATE_HELPER if behind else trouble.update_plugin(own)
        yield Finding(WARN, found, hint, [f"they are {latest.launcher}"])


def _run_skew(patient: Patient) -> Iterator[Finding]:
    for state in patient.active.values():
        for skew in hook_health.skews({}, state):
            hint = trouble.update(patient.bundle)
            found = f"loomctl {skew.version} last worked on the run {handle(state)}, but this is {__version__}"
            yield Finding(WARN, found, hint)


def disk(patient: Patient) -> Finding:
    """What Loom's files take, and what is free where it writes."""
    places = [machine.state_home(), *([patient.store.folder] if patient.store else [])]
    troubles = [finding for place in dict.fromkeys(filter(None, places)) for finding in _full(place)]
    details = []
    facts: dict[str, object] = {}
    if patient.store:
        folder = patient.store.folder
        runs, local = (size_below(os.path.join(folder, name)) for name in ("runs", "local"))
        outputs = sum(size_below(os.path.join(folder, "runs", run_id, "outputs")) for run_id in patient.store.run_ids())
        whole = size_below(folder)
        told = f"runs {size_in_words(runs)}, including outputs {size_in_words(outputs)}; local {size_in_words(local)}"
        details.append(f"{folder}: {size_in_words(whole)} ({told})")
        begun = [os.path.basename(one.path) for one in leftovers.half_made(patient.store.runs_folder, patient.states)]
        if begun:
            named = ", ".join(begun[:5])
            details.append(f"half-written runs without a state: {named}; loomctl clean removes them after a day")
        facts["store"] = {"bytes": whole, "runs": runs, "outputs": outputs, "local": local}
    cache = machine.cache_home()
    made = _environments(cache)
    if made:
        details.append(f"{cache}: {size_in_words(size_below(cache))}, {len(made)} environment{'s' * (len(made) != 1)}")
        facts["cache"] = {"bytes": size_below(cache), "environments": len(made)}
    free = machine.room(places[-1] or os.sep).free
    facts["free"] = free
    return gathered(troubles, f"{size_in_words(free)} are free", details=details, facts=facts)


def _full(place: str) -> Iterator[Finding]:
    room = machine.room(place)
    where = machine.nearest(place)
    hint = f"loomctl clean; df {shlex.quote(where)}"
    if room.free < NEARLY_NONE or room.files == 0:
        what = "no more files can be made" if room.files == 0 else f"only {size_in_words(room.free)} are free"
        yield Finding(FAIL, f"{what} where Loom writes: {where}", hint)
    elif room.free < LITTLE:
        yield Finding(WARN, f"{size_in_words(room.free)} are free where Loom writes: {where}", hint)


def _environments(cache: str) -> list[str]:
    try:
        return [name for name in os.listdir(cache) if name.startswith(("env-", MAKING))] if cache else []
    except OSError:
        return []


def git_found(patient: Patient) -> Finding:  # noqa: ARG001 - all checks have one shape
    """Git, which tells what changed and answers git_info artifacts; branch and commit are read without it."""
    path = shutil.which("git")
    if path is None:
        return Finding(WARN, "git is not on PATH: Loom sees no uncommitted changes and loads no git_info")
    said = git.said("--version", patience=5)
    if said is None:
        return Finding(WARN, f"{path} does not answer", f"{shlex.quote(path)} --version")
    return Finding(PASS, f"{said.decode('utf-8', 'replace').strip()} at {path}")


# A line of a finding has at most this many UTF-16 units.
LONGEST = 600

CHECKS: dict[str, Check] = {
    "python": python,
    "environment": environment,
    "versions": versions,
    "path": path,
    "project": project_checks.project,
    "config": project_checks.config,
    "runs": project_checks.runs,
    "states": project_checks.states,
    "ledgers": project_checks.ledgers,
    "blobs": project_checks.blobs,
    "known": project_checks.known,
    "tool-calls": project_checks.tool_calls,
    "locks": project_checks.locks,
    "disk": disk,
    "git": git_found,
}
"""By id; docs/reference/doctor.md says what each means."""


def examine(patient: Patient, checks: Mapping[str, Check]) -> dict[str, Finding]:
    """Run each check; one that fails by itself is a FAIL that says so, and the others go on."""
    return {name: _shown(_fenced(check, patient)) for name, check in checks.items()}


def _fenced(check: Check, patient: Patient) -> Finding:
    try:
        return check(patient)
    except LoomError as refused:
        error = trouble.fitting(refused, patient.bundle)
        return Finding(
            FAIL, f"{error.code}: {error.what}", error.hint, [part for part in (error.where, error.why) if part]
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the other checks shall speak
        return Finding(FAIL, f"this check crashed: {type(error).__name__}: {error}", "loomctl --debug paths")


def _shown(finding: Finding) -> Finding:
    details = [_line(detail) for detail in finding.details]
    return Finding(finding.status, _line(finding.found), _line(finding.hint), details, _facts(finding.facts))


def _facts(value: Any) -> Any:
    if isinstance(value, str):
        return _line(value)
    if isinstance(value, dict):
        return {key: _facts(part) for key, part in value.items()}
    return [_facts(part) for part in value] if isinstance(value, (list, tuple)) else value


def _line(text: str) -> str:
    return one_line(mask(text)[0], LONGEST)
