"""Set a project up: a workflow of its own that extends a bundled one, and the command that runs its tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.flow import start
from loomctl.kit import files
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.problems import ID_RULE, choices, is_id, shown
from loomctl.runs import config, config_edit, find
from loomctl.runs.machine import allowances
from loomctl.workflows import scaffold, workflow_files
from loomctl.workflows.resolve import resolve
from loomctl.workflows.workflow import build_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.runs.project import Workspace

FALLBACK = "core"
TESTS, DEFAULT = "test_command", "default_workflow"  # what init sets
_MOST_RUNS = 20
_SETTINGS = "# This project's settings for Loom; all names: docs/reference/configuration.md (loomctl plugin path)\n"


class Wanted(NamedTuple):
    """What a person decided. base: a bundled workflow, empty for none; tests: None where nothing is said of them."""

    base: str
    name: str
    tests: str | None
    force: bool = False


class Made(NamedTuple):
    """What was written. path: of the workflow, empty where none was; copy: of the file before it.

    settings: the path of the settings, empty where none was written; wrote: their names. tests_before: the test command
    as it was, None where there was none. default: the workflow that runs take from now on.
    """

    path: str = ""
    copy: str = ""
    settings: str = ""
    wrote: tuple[str, ...] = ()
    default: str = ""
    tests_before: str | None = None
    notes: tuple[str, ...] = ()


def bundled(space: Workspace) -> dict[str, str]:
    """Give the bundled workflows that a run can follow, by id, with their descriptions."""
    folder = workflow_files.places_of(space.project).bundled
    found = {}
    for file in sorted(os.listdir(folder)):
        name, suffix = os.path.splitext(file)
        if suffix in workflow_files.SUFFIXES:
            raw = workflow_files.load(os.path.join(folder, file)).raw
            if isinstance(raw, dict) and raw.get("phases"):
                found[name] = str(raw.get("description") or "")
    return found


def check(space: Workspace, wanted: Wanted) -> None:
    """Refuse what cannot be written, before anything is. Raises UNKNOWN_WORKFLOW, BAD_ID, BAD_CONFIG, FILE_EXISTS."""
    if wanted.tests is not None and not config.is_test_command(wanted.tests):
        what = "a test command must be one line of text"
        why = f"it may have {config.LONGEST_COMMAND} characters and no control characters"
        raise LoomError("BAD_CONFIG", what, why=why, hint="loomctl init --help")
    if not wanted.base:
        return
    known = bundled(space)
    if wanted.base not in known:
        what = f"there is no bundled workflow {shown(wanted.base)}"
        why = choices(wanted.base, list(known))
        raise LoomError("UNKNOWN_WORKFLOW", what, why=why, hint="loomctl init --help", exit_code=EXIT_USAGE)
    if not is_id(wanted.name):
        what = f"{shown(wanted.name)} is not a valid workflow name"
        raise LoomError("BAD_ID", what, why=ID_RULE, hint="loomctl init --name my-flow", exit_code=EXIT_USAGE)
    present = _present(space, wanted.name)
    if present and not wanted.force:
        why = "to keep a copy and replace it, add --force; to take another name, add --name"
        hint = f"loomctl init --from {wanted.base} --name {wanted.name} --force --yes"
        what = f"refusing to replace the workflow {wanted.name}"
        raise LoomError("FILE_EXISTS", what, where=present, why=why, hint=hint, exit_code=EXIT_USAGE)


def init(space: Workspace, wanted: Wanted) -> Made:
    """Write what is wanted. Raises as `check`, NOT_EDITABLE, NO_PROJECT, UNSAFE_LINK, OSError."""
    check(space, wanted)
    settings, wrote = _settings(space, wanted)
    notes = start.new_store(space)
    space.store.prepare(commit_runs=space.settings.commit_runs)
    path = copy = ""
    if wanted.base:
        path, copy = _write_workflow(space, wanted)
    where = config.project_config(space.store.folder) if wrote else ""
    if wrote:
        _write(space, where, settings)
    default = wanted.name if DEFAULT in wrote else space.settings.default_workflow
    return Made(path, copy, where, wrote, default, space.settings.test_command, tuple(notes))


def keeping(space: Workspace, tests: str) -> list[str]:
    """Name the open runs whose steps go on with another test command than the new one; at most 20 are read."""
    found = []
    for run_id in find.active_runs(space)[-_MOST_RUNS:]:
        try:
            run = space.store.read(run_id)
        except (LoomError, OSError):
            continue
        if run.plan.get(TESTS, tests) != tests:
            found.append(run.handle)
    return found


def is_allowed(space: Workspace, command: str) -> bool:
    """Tell whether somebody here let Loom execute the test command."""
    return allowances.is_allowed(space.store.folder, command)


def allow(space: Workspace, command: str) -> str:
    """Let runs that begin from now on execute the test command here; gives what went wrong, or an empty string."""
    return allowances.allow(space.store.folder, command)


def _settings(space: Workspace, wanted: Wanted) -> tuple[str, tuple[str, ...]]:
    """Give the new text of the project's settings, and the names of what is new in it. Raises NOT_EDITABLE.

    A default workflow that is set already stays.
    """
    path = config.project_config(space.store.folder)
    try:
        text = files.read_bytes(path, limit=config.LARGEST).decode("utf-8")
    except FileNotFoundError:
        text = _SETTINGS
    wrote = []
    if wanted.tests is not None and space.settings.test_command != wanted.tests:
        text = config_edit.with_setting(text, TESTS, wanted.tests, where=path)
        wrote.append(TESTS)
    is_set = space.settings.default_workflow != config.Settings().default_workflow or config_edit.has(text, DEFAULT)
    if wanted.base and not is_set:
        try:
            text = config_edit.with_setting(text, DEFAULT, wanted.name, where=path)
            wrote.append(DEFAULT)
        except LoomError:  # the workflow is of use without it
            pass
    return text, tuple(wrote)


def _present(space: Workspace, name: str) -> str:
    folder = _folder(space)
    paths = (os.path.join(folder, name + suffix) for suffix in workflow_files.SUFFIXES)
    return next((path for path in paths if os.path.lexists(path)), "")


def _folder(space: Workspace) -> str:
    return os.path.join(space.store.folder, "workflows")


def _write_workflow(space: Workspace, wanted: Wanted) -> tuple[str, str]:
    """Write the workflow and the schema that its first line names for editors; gives its path and the copy's."""
    present, copy = _present(space, wanted.name), ""
    path = os.path.join(_folder(space), f"{wanted.name}.yaml")
    if present:
        number = 1
        while os.path.lexists(copy := f"{present}.before-{number}"):
            number += 1
        os.rename(present, copy)
    _write(space, path, scaffold.text(wanted.name, wanted.base, _phases(space, wanted.base)))
    schema = files.read_bytes(os.path.join(space.project.plugin_root, "config", scaffold.SCHEMA))
    _write(space, os.path.join(space.store.folder, scaffold.SCHEMA), schema.decode())
    return path, copy


def _phases(space: Workspace, base: str) -> Mapping[str, list[str]]:
    merged = resolve(f"loom:{base}", workflow_files.places_of(space.project)).checked()
    plan = build_plan(merged, plan_id="init", created_at="", sources=[])
    return {
        phase["id"]: [step["id"] for step in phase["steps"] if not step["engine"]]
        for phase in plan["phases"]
        if phase["steps"]
    }


def _write(space: Workspace, path: str, text: str) -> None:
    files.refuse_links(os.path.dirname(space.store.folder), path)
    if os.path.lexists(path):
        files.check_target(path, f"ls -l {quoted(path)}")
    files.make_folder(os.path.dirname(path), mode=0o755)
    files.write_atomically(path, text.encode(), mode=0o644)
