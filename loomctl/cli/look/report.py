"""`loomctl report`: a run as one page to read, keep or send on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from loomctl.changes import own_reports
from loomctl.cli.look import event_lines
from loomctl.cli.shell import asking, printing, retyped
from loomctl.cli.shell.options import json_option, run_argument
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line
from loomctl.runs.artifact_paths import is_inside
from loomctl.views.report import document as reporting
from loomctl.views.report import page as report_page
from loomctl.views.report import report_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.runs.caller import Workspace

STDOUT = "-"


@click.command("report")
@run_argument
@click.option("-o", "--output", metavar="FILE", help="The page's file, or - for standard output.")
@click.option(
    "--with-files", is_flag=True, help="Copy the stages' files, assets and artifacts beside the page, as they are."
)
@click.option("--force", is_flag=True, help="Replace a file that is no report.")
@json_option
def report(run: str | None, output: str | None, with_files: bool, force: bool, as_json: bool) -> int:
    """Write a run as one self-contained page: timeline, stages, sessions, compactions, savings, files, events.

    The page is `report-RUN.html` in this folder unless -o names another; a report that stands there is replaced. It
    needs no network and no other file. Within the project it links to the run's own files and its artifacts;
    --with-files copies these into `report-RUN_files` instead, so that both can be sent on. Secrets of known kinds are
    masked in the page, and folders of the machine are shortened; the copies are byte for byte what stands there. With
    --json the report's data is printed, and the page is written only where -o says so. A RUN may be archived, too. Exit
    code 1 if a part of the run cannot be read, or its log is not as it was written; the page names it.

    \b
    Examples:
      loomctl report
      loomctl report shop-258 -o report.html --with-files
      loomctl report shop-258 --json
    """
    _check_words(output, with_files=with_files, as_json=as_json)
    space = asking.space()
    with reporting.opened(space, run, partial(asking.run_to_show, space)) as (where, run_id):
        path = None if output == STDOUT or (as_json and output is None) else os.path.abspath(_name(output, run_id))
        if path is not None:
            kept = (space.store.folder, where.store.run_dir(run_id))
            _check_place(path, run_id, kept, with_files=with_files, force=force)
        document = reporting.gather(where, run_id, event_lines.said)
        with _noted(space, path, with_files=with_files):
            copies = _copied(where, run_id, document, path) if with_files and path is not None else None
            document = _with_links(where, run_id, document, path, copies)
            page = "" if as_json and path is None else _page(document)
            written = report_files.write(path, page) if path is not None else None
    return _said(document, page, path, written, copies, as_json=as_json)


def _check_words(output: str | None, *, with_files: bool, as_json: bool) -> None:
    what = ""
    if output == STDOUT and as_json:
        what = "-o - prints the page, --json the data"
    elif with_files and (output == STDOUT or (as_json and output is None)):
        what = "--with-files copies beside the page, and no page is written: name it with -o FILE"
    elif output is not None and os.path.basename(output) in ("", ".", ".."):
        what = f"{output[:120]!r} names no file"
    if what:
        raise LoomError("USAGE", what, hint="loomctl report --help", exit_code=EXIT_USAGE)


def _name(output: str | None, run_id: str) -> str:
    return f"report-{run_id}.html" if output is None else output


def _check_place(path: str, run_id: str, kept: Sequence[str], *, with_files: bool, force: bool) -> None:
    stem, extension = os.path.splitext(path)
    another = f"{stem}-2{extension}"
    again = retyped.line(output=another) or f"loomctl report {run_id} -o {quoted(another)}"
    printed = retyped.line(("with_files", "force"), output=STDOUT) or f"loomctl report {run_id} -o {STDOUT}"
    report_files.check_target(path, force=force, again=again, printed=printed, kept=kept)
    if with_files:
        report_files.check_folder(report_files.folder_beside(path), path)


@contextmanager
def _noted(space: Workspace, path: str | None, *, with_files: bool) -> Iterator[None]:
    """Note what is written in the block as Loom's own, so that it counts for no step; where it can be noted."""
    if path is None:
        yield
        return
    page = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    folder = report_files.folder_beside(page) if with_files else ""
    local = space.store.local
    before = own_reports.below(folder) | ({page} if os.path.lexists(page) else set())
    foreign = before - own_reports.standing(local)
    began = {one: own_reports.identity(one) for one in before}
    yield
    there = own_reports.below(folder) | {page}
    try:
        own_reports.note(local, [one for one in sorted(there) if began.get(one) != own_reports.identity(one)], foreign)
    except (OSError, LoomError):  # a project that cannot be written to has its report all the same
        pass


def _copied(space: Workspace, run_id: str, document: dict[str, Any], path: str) -> report_files.Copies:
    sources = reporting.files_of(document)
    return report_files.copy(space.store.run_dir(run_id), space.project.root, sources, path, run_id)


def _with_links(
    space: Workspace, run_id: str, document: dict[str, Any], path: str | None, copies: report_files.Copies | None
) -> dict[str, Any]:
    """Give the document with links to the copies, or to the run's own files where the page stands in the project."""
    if copies is not None:
        failed = [{"code": "NOT_COPIED", "what": f"{name}: {why}"} for name, why in copies.failed]
        document = {**document, "troubles": [*document["troubles"], *failed]}
        said = f"Files of the run are linked in {os.path.basename(copies.folder)}, which belongs to this page."
        return reporting.linked(document, copies.links, said)
    base = os.path.realpath(os.path.dirname(path)) if path is not None else ""
    root = os.path.realpath(os.path.dirname(space.store.folder))
    if base and is_inside(base, root) and space.store.folder.startswith(space.project.root):
        folders = {False: space.store.run_dir(run_id), True: space.project.root}
        there = {kind: os.path.relpath(os.path.realpath(folder), base) for kind, folder in folders.items()}
        links = {
            one: report_files.link(os.path.join(there[one.in_project], one.at)) for one in reporting.files_of(document)
        }
        return reporting.linked(document, links, "Files of the run are linked where they are, in the project.")
    return reporting.linked(document, {}, "Files of the run are not linked; --with-files brings them along.")


def _page(document: dict[str, Any]) -> str:
    style, script = report_files.part("report.css"), report_files.part("report.js")
    return report_page.page(document, style=style, script=script)


def _said(
    document: dict[str, Any],
    page: str,
    path: str | None,
    written: int | None,
    copies: report_files.Copies | None,
    *,
    as_json: bool,
) -> int:
    ends = EXIT_FINDINGS if document["troubles"] else EXIT_OK
    if as_json:
        beside = {"folder": copies.folder, "files": len(copies.links), "bytes": copies.bytes} if copies else None
        page_told = {"path": path, "bytes": written, "copies": beside} if path is not None else None
        printing.document({"run_id": document["run"]["run_id"], **document, "page": page_told})
        return ends
    if path is None:
        click.echo(page, nl=False)
        return ends
    lines = [f"! {one['code']}: {one_line(one['what'], 300)}" for one in document["troubles"]]
    beside_it = ""
    if copies is not None:
        size = f"{counted(len(copies.links), 'file')}, {counted(copies.bytes, 'byte')}"
        beside_it = f"; {size}, not masked, in {one_line(copies.folder, 300)}"
    shown = one_line(path, 300)
    lines.append(f"Loom: {document['run']['run_id']} written to {shown}, {counted(written or 0, 'byte')}{beside_it}")
    printing.text("\n".join(lines))
    return ends
