"""Workflow files: where they are found (by id, `loom:id`, `project:id` or path), how JSON, YAML and DOT are read.

What a workflow keeps in files beside it is read here, too: prompts and output schemas.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import digests, files, strict, trouble
from loomctl.kit.errors import EXIT_INVALID, EXIT_USAGE, LoomError, quoted
from loomctl.kit.files import is_inside
from loomctl.kit.problems import at, choices, error, is_id, nearest, shown
from loomctl.kit.strict import DEEPEST
from loomctl.workflows.steps import map_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.runs.project import Project

YAML = (".yaml", ".yml")
DOT = (".dot", ".gv", ".fabro")
SUFFIXES = (".json", *YAML, *DOT)
LARGEST_JSON = 1 << 20
LARGEST_YAML = LARGEST_DOT = 256 << 10
LARGEST_PROMPT = 256 << 10
_LARGEST_TOGETHER = 8 << 20  # prompts of one workflow: a file may be named by every step
SCHEMA = "schema"  # of a step in the plan: what its output_schema names
# FABER's own workflows go by these names; where FABER is not there, the bundle's of the same name stands in (D5).
_FABER_PLUGINS = ("fractary-faber", "faber")
BASE = "base"  # the bundle's: what its workflows extend; no run can be made of it
FABER_FOLDERS = (".fractary/faber/workflows", "plugins/faber/config/workflows")


class Places(NamedTuple):
    """Where to look. project_dir: the store's parent; store: `.loom`; bundle: the plugin's folder. All absolute."""

    project_dir: str
    store: str
    bundle: str

    @property
    def bundled(self) -> str:
        """The bundle's own workflows."""
        return os.path.join(self.bundle, "config", "workflows")


def places_of(project: Project) -> Places:
    """Give where the workflows of a project are looked for."""
    return Places(os.path.dirname(project.store), project.store, project.plugin_root)


class Found(NamedTuple):
    """path: absolute; stands_in: the bundle's workflow was taken for one of FABER's that is not here."""

    path: str
    stands_in: bool = False


class Loaded(NamedTuple):
    """What a file holds: raw is None if a problem is an error; sha256 is of the file's bytes, empty if unreadable.

    places: of a file in DOT, JSON paths of raw with the line and column that each comes from.
    """

    raw: Any
    problems: list[Problem]
    sha256: str
    places: Mapping[str, str] = {}


def locate(ref: str, places: Places, *, base: str | None = None, named_in: str | None = None) -> Found:
    """Find the workflow that `ref` names.

    ref: an id (the project's workflows first, then the bundle's), `loom:id` (the bundle's), `project:id`, or a path
    (with a separator or a known ending), relative to `base`, the current directory by default. Raises UNKNOWN_WORKFLOW
    with what there is, AMBIGUOUS_WORKFLOW, or BAD_ID.

    named_in: the file that says `extends`. Its folder is the base, a file of the bundle means the bundle's ids first,
    and FABER's names are looked for beside it too.
    """
    base = os.path.dirname(named_in) if named_in else base
    if "/" in ref or "\\" in ref or ref.endswith(SUFFIXES):
        path = os.path.normpath(os.path.join(base or os.getcwd(), ref))
        if not os.path.isfile(path):
            what = f"there is no workflow file {shown(ref, 200)}"
            why = "a path starts at the file that names it, or here; an id has no ending and no slash"
            hint = trouble.look(path)
            raise LoomError("UNKNOWN_WORKFLOW", what, where=path, why=why, hint=hint, exit_code=EXIT_USAGE)
        return Found(path)
    name, folders, faber = _folders(ref, places, os.path.dirname(named_in) if named_in else None)
    if not is_id(name):
        why = "write an id, loom:id, project:id or a path; Loom reads no workflows of other plugins"
        what = f"{shown(ref)} is not a valid workflow name"
        raise LoomError("BAD_ID", what, why=why, hint="loomctl check core", exit_code=EXIT_USAGE)
    for folder in folders:
        present = _in_folder(folder, name)
        if present is not None:
            return Found(present, stands_in=faber and folder == places.bundled)
    known = _runnable(folders, places)
    why = (choices(name, known) if known else "there is none yet") + "; Loom looked in " + ", ".join(folders)
    hint = f"loomctl check {nearest(name, known) or 'core'}"
    what = f"there is no workflow {shown(ref)}"
    raise LoomError("UNKNOWN_WORKFLOW", what, why=why, hint=hint, exit_code=EXIT_USAGE)


def available(places: Places) -> list[str]:
    """List the ids that `locate` knows, for completion and messages."""
    return _runnable((*project_folders(places), places.bundled), places)


def load(path: str, *, max_depth: int = DEEPEST, largest: int = LARGEST_JSON) -> Loaded:
    """Read a file with one of SUFFIXES; everything that is wrong with it becomes a problem."""
    yaml, dot = path.endswith(YAML), path.endswith(DOT)
    try:
        data = files.read_bytes(path, limit=LARGEST_YAML if yaml else LARGEST_DOT if dot else largest)
    except LoomError as problem:
        return Loaded(None, [error(problem.code, "$", problem.what)], "")
    except (OSError, ValueError) as problem:
        said = getattr(problem, "strerror", None) or "not a path"
        return Loaded(None, [error("UNREADABLE", "$", f"Loom cannot read the file: {said}")], "")
    sha256 = digests.of_bytes(data)
    try:
        text = files.text_of(data)
    except UnicodeDecodeError as problem:
        where = strict.position(data.decode("latin-1"), problem.start)
        return Loaded(None, [error("NOT_UTF8", where, "the file is not UTF-8 text", "save it as UTF-8")], sha256)
    if dot:
        from loomctl.workflows import dot_workflow

        made = dot_workflow.convert(text, name=os.path.splitext(os.path.basename(path))[0])
        return Loaded(made.raw, made.problems, sha256, made.places)
    if yaml:
        raw, problems = strict.parse_yaml(text, max_depth=max_depth)
    else:
        raw, problems = strict.parse_json(text, max_depth=max_depth)
    return Loaded(raw, problems, sha256)


def portable(path: str, places: Places) -> str:
    """Name a file without this machine in it: under `{plugin_root}` or `{project_root}`, else by its bare name."""
    for root, name in ((places.bundle, "{plugin_root}"), (places.project_dir, "{project_root}")):
        if is_inside(path, root):
            return name + "/" + os.path.relpath(os.path.realpath(path), os.path.realpath(root)).replace(os.sep, "/")
    return os.path.basename(path)


def _folders(ref: str, places: Places, beside: str | None) -> tuple[str, list[str], bool]:
    """Give the id in `ref`, the folders to look for it in, and whether `ref` means one of FABER's."""
    project, bundled = project_folders(places), places.bundled
    if ref.startswith("loom:"):
        return ref[len("loom:") :], [bundled], False
    if ref.startswith("project:"):
        return ref[len("project:") :], project, False
    ours = is_id(ref) and any(_in_folder(folder, ref) for folder in project)
    name = faber_name(ref)
    if name is not None and not ours:
        return name, [*project[1:], *([beside] if beside else []), bundled], True
    if beside is not None and is_inside(beside, bundled):
        return ref, [bundled, *project], False
    return ref, [*project, bundled], False


def faber_name(ref: str) -> str | None:
    """Give the name of a workflow of FABER's, without the plugin's: `plugin:core`, `plugin@marketplace:core`."""
    plugin, colon, name = ref.partition(":")
    if colon and plugin.partition("@")[0] in _FABER_PLUGINS:
        return name
    return ref.removeprefix("fractary-faber-") if ref.startswith("fractary-faber-") else None


def project_folders(places: Places) -> list[str]:
    """List the folders of the project's own workflows, Loom's, then FABER's; links out of the project are left out."""
    faber = (os.path.join(places.project_dir, *folder.split("/")) for folder in FABER_FOLDERS)
    folders = [os.path.join(places.store, "workflows"), *faber]
    return [folder for folder in folders if is_inside(folder, places.project_dir)]


def _in_folder(folder: str, name: str) -> str | None:
    present = [path for suffix in SUFFIXES if os.path.isfile(path := os.path.join(folder, name + suffix))]
    if len(present) > 1:
        why = "remove one, or name the file by its path"
        hint = "ls -l " + " ".join(quoted(path) for path in present)
        what = f"two files define the workflow {name}"
        where = ", ".join(present)
        raise LoomError("AMBIGUOUS_WORKFLOW", what, where=where, why=why, hint=hint, exit_code=EXIT_INVALID)
    return present[0] if present else None


def _runnable(folders: Iterable[str], places: Places) -> list[str]:
    return sorted({name for folder in folders for name in _listed(folder) if name != BASE or folder != places.bundled})


def _listed(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in SUFFIXES and is_id(stem):
            yield stem


# ---- What a workflow keeps in files beside it.


def with_prompts(raw: Mapping[str, Any], path: str, roots: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """Give a workflow from DOT with the text of each prompt's file (`prompt="@prompts/plan.md"`); others as they are.

    raw: as it was read from `path`; it is not changed. roots: folders that the files must lie in, links followed (D10).
    What cannot be read stays a reference.
    """
    if not path.endswith(DOT):
        return dict(raw), []
    from loomctl.workflows.dot_steps import prompt_text

    problems: list[Problem] = []
    left = _LARGEST_TOGETHER

    def fill(step: dict[str, Any], where: str) -> dict[str, Any]:
        nonlocal left
        reference = step.get("prompt")
        if not isinstance(reference, str) or not reference.startswith("@"):
            return step
        try:
            data = _prompt(reference[1:].strip(), path, roots, min(LARGEST_PROMPT, left))
            left -= len(data)
            return {**step, "prompt": prompt_text(files.text_of(data), has_task="for_each" in step)}
        except UnicodeDecodeError:
            message = f"{shown(reference[1:].strip(), 200)} is not UTF-8 text"
            problems.append(error("NOT_UTF8", at(where, "prompt"), message, "save it as UTF-8"))
        except LoomError as problem:
            problems.append(error(problem.code, at(where, "prompt"), problem.what, problem.hint))
        return step

    return map_steps(raw, fill), problems


def _prompt(name: str, of: str, roots: Sequence[str], limit: int) -> bytes:
    path = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(of)), name))
    told = shown(name, 200)
    if "\0" in name or not any(is_inside(path, root) for root in roots):
        what = f"{told} is outside of the project and the bundle; Loom does not read it"
        raise LoomError("PATH_ESCAPE", what, hint="copy it beside the workflow")
    try:
        return files.read_bytes(path, limit=limit)
    except LoomError as problem:
        raise LoomError(problem.code, f"{told}: {problem.what}") from None
    except OSError as problem:
        what = f"Loom cannot read the prompt's file {told}: {problem.strerror}"
        raise LoomError("UNKNOWN_PROMPT", what, hint="the path starts at the workflow's own file") from None


def with_schemas(raw: Mapping[str, Any], path: str, roots: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """Give a workflow with each `"@file"` schema of its steps in the step's `schema` (D35).

    raw: as it was read from `path`, of whatever shape; it is not changed. roots: as workflow files may lie in.
    """
    from loomctl.expressions import conditions, engine, output_schemas

    problems: list[Problem] = []

    def fill(step: dict[str, Any], where: str) -> dict[str, Any]:
        if "parallel" in step or not output_schemas.is_reference(step.get("output_schema")):
            return step
        where = at(where, "output_schema")
        loaded = output_schemas.load(step["output_schema"], path, roots, where)
        problems.extend(loaded.problems)
        if loaded.schema is None:
            return step
        tried = engine.held_against({}, loaded.schema, environment_python=None)
        if tried.status == "threw":
            message = f"the schema cannot check an object: {conditions.one_line(tried.message)}"
            problems.append(error("BAD_SCHEMA", where, message, "a $ref that leads to itself goes in circles"))
        return {**step, SCHEMA: loaded.schema}

    return map_steps(raw, fill), problems
