"""`loomctl report`, `dump` and `graph`: a run as one page, as files, as a drawing, to read, keep or send on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from loomctl.changes import evidence_files
from loomctl.cli import command_line, output, person
from loomctl.cli.command_line import complete_runs, complete_workflows, json_option, run_argument
from loomctl.kit import files
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import mask
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.store.match import match
from loomctl.views import document, dump, page
from loomctl.workflows import draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from click.shell_completion import CompletionItem

    from loomctl.runs.project import Workspace

STDOUT = "-"


@click.command("report")
@run_argument
@click.option("-o", "--output", "target", metavar="FILE", help="Write the page to FILE ('-': standard output).")
@click.option("--with-files", is_flag=True, help="Also copy the steps' files, assets and artifacts, unmasked.")
@click.option("--force", is_flag=True, help="Replace FILE even if it is not a report.")
@json_option
def report(run: str | None, target: str | None, with_files: bool, force: bool, as_json: bool) -> int:
    """Write one HTML page that shows everything of a run.

    Timeline, steps, sessions, compactions, savings, files, events. The page goes to `report-RUN.html` in this folder
    and replaces an older report there. It needs no network and no other file. RUN may be an archived one.

    Inside the project it links to the run's files. To send it to somebody, --with-files copies them to
    `report-RUN_files` and links there. The page masks secrets that Loom recognises; the copies do not.

    --json prints the data; then only -o writes the page. Exit code 1 if Loom cannot read a part of the run, or if the
    log was changed. The page says which.

    \b
    Examples:
      loomctl report
      loomctl report shop-258 -o report.html --with-files
      loomctl report shop-258 --json
    """
    _check_words(target, with_files=with_files, as_json=as_json)
    space = command_line.space()
    with document.open_run(space, run, partial(command_line.shown_run_id, space)) as (where, run_id):
        called = where.store.handle(run_id)
        path = (
            None
            if target == STDOUT or (as_json and target is None)
            else os.path.abspath(target or f"report-{space.store.handle(run_id)}.html")
        )
        if path is not None:
            person.refuse_beyond(path)
            own = (space.store.folder, where.store.run_dir(run_id))
            _check_place(path, space.store.handle(run_id), own, with_files=with_files, force=force)
        told = document.gather(where, run_id)
        with noted_as_own(space, path, with_files=with_files):
            copies = _copy(where, run_id, told, path) if with_files and path is not None else None
            _link(where, run_id, told, path, copies)
            made = "" if as_json and path is None else page.page(told)
            written = dump.write(path, made) if path is not None else 0
    beside = {"folder": copies.folder, "files": len(copies.links), "bytes": copies.bytes} if copies else None
    if as_json:
        printed = {"path": path, "bytes": written, "copies": beside} if path is not None else None
        output.document({"run_id": run_id, "handle": called, **told, "page": printed})
    elif path is None:
        click.echo(made, nl=False)
    else:
        lines = [f"! {one['code']}: {one_line(one['what'], 300)}" for one in told["troubles"]]
        size = f"; {_size(beside)}, unmasked, in {one_line(copies.folder, 300)}" if copies and beside else ""
        lines.append(f"Loom: wrote {one_line(path, 300)}, {counted(written, 'byte')}{size}")
        output.prose("\n".join(lines))
    return EXIT_FINDINGS if told["troubles"] else EXIT_OK


def _size(told: dict[str, Any]) -> str:
    return f"{counted(told['files'], 'file')}, {counted(told['bytes'], 'byte')}"


def _check_words(target: str | None, *, with_files: bool, as_json: bool) -> None:
    what = ""
    if target == STDOUT and as_json:
        what = "-o - prints the page and --json the data; give one of them"
    elif with_files and (target == STDOUT or (as_json and target is None)):
        what = "--with-files needs a page to stand beside: add -o FILE"
    elif target is not None and os.path.basename(target) in ("", ".", ".."):
        what = f"{target[:120]!r} is not a file's name"
    if what:
        raise LoomError("USAGE", what, hint="loomctl report --help", exit_code=EXIT_USAGE)


def _check_place(path: str, handle: str, own: Sequence[str], *, with_files: bool, force: bool) -> None:
    stem, extension = os.path.splitext(path)
    another = f"{stem}-2{extension}"
    again = command_line.again(target=another) or f"loomctl report {handle} -o {quoted(another)}"
    printed = command_line.again(("with_files", "force"), target=STDOUT) or f"loomctl report {handle} -o {STDOUT}"
    dump.check_target(path, force=force, again=again, printed=printed, own=own)
    if with_files:
        dump.check_folder(dump.folder_beside(path), path)


@contextmanager
def noted_as_own(space: Workspace, path: str | None, *, with_files: bool) -> Iterator[None]:
    """Note what is written in the block as Loom's own, so that it counts for no step; where it can be noted."""
    if path is None:
        yield
        return
    page = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    folder = dump.folder_beside(page) if with_files else ""
    local = space.store.local
    before = evidence_files.files_below(folder) | ({page} if os.path.lexists(page) else set())
    foreign = before - evidence_files.own_reports(local)
    began = {one: evidence_files.identity(one) for one in before}
    yield
    there = evidence_files.files_below(folder) | {page}
    try:
        evidence_files.note_reports(
            local, [one for one in sorted(there) if began.get(one) != evidence_files.identity(one)], foreign
        )
    except (OSError, LoomError):  # a project that cannot be written to has its report all the same
        pass


def _copy(space: Workspace, run_id: str, told: dict[str, Any], path: str) -> dump.Copies:
    sources = document.files_of(told)
    copies = dump.copy(space.store.run_dir(run_id), space.project.root, sources, path, run_id)
    told["troubles"] += [{"code": "NOT_COPIED", "what": f"{name}: {why}"} for name, why in copies.failed]
    return copies


def _link(space: Workspace, run_id: str, told: dict[str, Any], path: str | None, copies: dump.Copies | None) -> None:
    """Link the document's files to their copies, or to the run's own where the page stands in the project."""
    if copies is not None:
        said = f"The links lead to {os.path.basename(copies.folder)}, which belongs to this page."
        document.link(told, copies.links, said)
        return
    base = os.path.realpath(os.path.dirname(path)) if path is not None else ""
    root = os.path.realpath(os.path.dirname(space.store.folder))
    if not base or not is_inside(base, root) or not space.store.folder.startswith(space.project.root):
        document.link(told, {}, "This page has no links to the run's files; --with-files adds them.")
        return
    folders = {False: space.store.run_dir(run_id), True: space.project.root}
    there = {kind: os.path.relpath(os.path.realpath(folder), base) for kind, folder in folders.items()}
    links = {one: dump.href(os.path.join(there[one.in_project], one.at)) for one in document.files_of(told)}
    document.link(told, links, "The links lead to the run's files in the project.")


@click.command("dump")
@click.argument("run", shell_complete=complete_runs)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--force", is_flag=True, help="Replace an older dump.")
@json_option
def dump_command(run: str, folder: str, force: bool, as_json: bool) -> int:
    """Copy everything of a run into a folder.

    \b
    DIR gets
      the run's files  state.json, events.jsonl, stages/ …
      context.json     the context with all large values
      blobs/           the large values
      dump.json        a list with sizes and hashes

    DIR must be new or empty. The run stays as it is. Nothing is masked: keep the folder to yourself. Exit code 1 if
    Loom could not copy something; dump.json says what.

    \b
    Examples:
      loomctl dump shop-258 ./shop-258
      loomctl dump shop-258 ./shop-258 --force
    """
    person.refuse_beyond(folder)
    space = command_line.space()
    made = dump.dump(space, command_line.run_id(space, run), folder, force=force)
    run_id = match(space.store, run)
    called = space.store.handle(run_id)
    told = {"run_id": run_id, "handle": called, **made._asdict(), "troubles": [one.to_dict() for one in made.troubles]}
    lines = [f"! {one.code}: {one_line(one.what, 300)}" for one in made.troubles]
    counts = f"{counted(made.stages, 'step')}, {counted(made.events, 'event')}, {counted(made.blobs, 'large value')}"
    lines.append(f"Loom: copied {called} to {one_line(made.path, 300)}: {counts}; {_size(made._asdict())}")
    output.answer(told, lines, as_json=as_json)
    return EXIT_FINDINGS if made.troubles else EXIT_OK


def _complete_drawn(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [*complete_workflows(ctx, param, incomplete), *complete_runs(ctx, param, incomplete)]


@click.command()
@click.argument("target", required=False, metavar="WORKFLOW|RUN", shell_complete=_complete_drawn)
@click.option(
    "--format",
    "form",
    type=click.Choice(draw.FORMATS),
    default="mermaid",
    show_default=True,
    help="mermaid for Markdown, dot to edit as a workflow, svg to look at (needs Graphviz).",
)
@click.option("--output", "path", metavar="FILE", type=click.Path(dir_okay=False), help="Write it to FILE.")
@json_option
def graph(target: str | None, form: str, path: str | None, as_json: bool) -> int:
    """Draw a workflow, or a run with its finished and failed steps.

    Phases and branches are boxes. Each kind of step has its own shape. A dashed arrow is a way that only a failure
    takes. Without a target it draws the current run. If a workflow and a run both match, it draws the workflow.

    \b
    Examples:
      loomctl graph core
      loomctl graph review.fabro --format svg --output review.svg
      loomctl graph shop-258 --format dot
    """
    if path is not None:
        person.refuse_beyond(path)
        files.check_target(path, command_line.again(("path",)))
    with command_line.offered_again():
        found = draw.draw(command_line.space(make=True), target, form)
    if path is not None:
        files.write_atomically(path, mask(found.text)[0].encode(), mode=0o644)
    if as_json:
        told = {"workflow_id": found.workflow_id, "run_id": found.run_id, "format": form, "output": path}
        output.document({**told, "text": None if path is not None else found.text})
    elif path is None:
        output.text(found.text.removesuffix("\n"))
    return EXIT_OK
