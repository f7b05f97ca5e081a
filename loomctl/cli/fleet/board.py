"""`loomctl fleet status`, `report` and `board`: a fleet on a screen, as a page, and as a page that follows it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from loomctl.cli import command_line, following, output, person
from loomctl.cli.command_line import json_option
from loomctl.cli.fleet.commands import fleet_command, limit, opened, queue_option
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.fences import counted, one_line

if TYPE_CHECKING:
    from loomctl.cli.fleet.commands import Fleet

_EVERY = 2.0  # seconds between two drawings
_STDOUT = "-"
__all__ = ["fleet_command"]


@fleet_command.command()
@click.option("--watch", is_flag=True, help="Draw it anew every 2 seconds, until Ctrl-C.")
@queue_option
@json_option
def status(queue: str | None, watch: bool, as_json: bool) -> int:
    """Show how the fleet stands, and what waits for you.

    It begins with what needs you, each with the command that goes on: paused workflows, questions, failures. Then come
    the runs that are driven, the next ones, and the machines. Without a screen, --watch prints it once.

    \b
    Examples:
      loomctl fleet
      loomctl fleet status --watch
      loomctl fleet status --json
    """
    from loomctl.cli.fleet import screen
    from loomctl.fleet import board

    fleet, seconds = opened(queue), limit()
    if watch and not as_json and following.may_draw():
        return _watch(fleet, seconds)
    seen = board.gather(fleet.queue, limit=seconds)
    if as_json:
        output.document(seen.to_dict())
        return EXIT_OK
    for line, style in screen.lines(seen):
        output.text(line, style=style)
    return EXIT_OK


def _watch(fleet: Fleet, seconds: float) -> int:
    from loomctl.cli.fleet import screen
    from loomctl.fleet import board

    size: tuple[int, int] = (0, 0)
    try:
        while True:
            was, size = size, following.size()
            lines = [*screen.lines(board.gather(fleet.queue, limit=seconds))]
            following.draw(lines, *size, is_new=size != was)
            time.sleep(_EVERY)
    except KeyboardInterrupt:
        click.echo()
        return EXIT_OK


def _page(fleet: Fleet, *, live: bool) -> str:
    from loomctl.fleet import board, page

    name = os.path.basename(os.path.realpath(fleet.space.project.root))
    return page.made(board.gather(fleet.queue, most=page.MOST, limit=limit()), name or "/", live=live)


@fleet_command.command()
@click.option("-o", "--output", "target", metavar="FILE", help="Write the page to FILE ('-': standard output).")
@click.option("--force", is_flag=True, help="Replace FILE even if it is not a report.")
@queue_option
@json_option
def report(target: str | None, force: bool, queue: str | None, as_json: bool) -> int:
    """Write one HTML page that shows how the fleet stands.

    The page goes to `fleet.html` in this folder and replaces an older one there. It needs no network and no other file,
    and lists up to 100 runs of each kind. It masks secrets that Loom recognises.

    \b
    Examples:
      loomctl fleet report
      loomctl fleet report -o board.html
    """
    if target == _STDOUT and as_json:
        what = "-o - prints the page and --json where it is; give one of them"
        raise LoomError("USAGE", what, hint="loomctl fleet report --help", exit_code=EXIT_USAGE)
    fleet = opened(queue)
    if target == _STDOUT:
        click.echo(_page(fleet, live=False), nl=False)
        return EXIT_OK
    from loomctl.cli.report import noted_as_own
    from loomctl.views import dump

    path = os.path.abspath(target or "fleet.html")
    person.refuse_beyond(path)
    stem, extension = os.path.splitext(path)
    again = f"loomctl fleet report -o {quoted(f'{stem}-2{extension}')}"
    dump.check_target(
        path,
        force=force,
        again=command_line.again(target=f"{stem}-2{extension}") or again,
        printed=f"loomctl fleet report -o {_STDOUT}",
        own=[fleet.space.store.folder],
    )
    with noted_as_own(fleet.space, path, with_files=False):
        written = dump.write(path, _page(fleet, live=False))
    lines = [f"Loom: wrote {one_line(path, 300)}, {counted(written, 'byte')}"]
    output.answer({"path": path, "bytes": written}, lines, as_json=as_json)
    return EXIT_OK


@fleet_command.command("board")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Listen at this port.  [default: a free one]")
@queue_option
@json_option
def board_command(port: int, queue: str | None, as_json: bool) -> int:
    """Show the board in your browser, as long as this runs.

    It prints an address that only you know. The page is served to this machine alone, changes nothing, and follows the
    fleet every 3 seconds. Ctrl-C ends it.

    \b
    Examples:
      loomctl fleet board
      loomctl fleet board --port 8080
    """
    from loomctl.fleet.serve import Server

    fleet = opened(queue)
    with Server(lambda: _page(fleet, live=True), port) as server:
        output.answer({"url": server.url}, [server.url], as_json=as_json)
        output.note("Everybody on this machine who has this address sees the board. Ctrl-C ends this.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo()
    return EXIT_OK
