"""`loomctl tell`: a word to the assistant that works on a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import carried, command_line, output, person
from loomctl.cli.command_line import json_option
from loomctl.flow import tell as telling
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import counted, one_line
from loomctl.runs import find
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import driving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.machine.tells import Tell
    from loomctl.runs.project import Workspace

_SHOWN = 200


@click.command("tell", options_metavar="[OPTIONS]")
@click.argument("words", nargs=-1, metavar="[RUN] TEXT", shell_complete=command_line.complete_runs)
@click.option("--list", "lists", is_flag=True, help="List the messages that nobody has read yet.")
@click.option("--take-back", is_flag=True, help="Take those messages back.")
@json_option
def tell_command(words: tuple[str, ...], lists: bool, take_back: bool, as_json: bool) -> int:
    """Tell the assistant something while it works.

    It reads TEXT with its next tool result, once, as your word for the step that it works on. If it stops before that,
    it goes on with it. If nobody works on the run, TEXT waits until the run goes on here. With '-' as TEXT, Loom reads
    standard input.

    \b
    Examples:
      loomctl tell shop-258 "use blue"
      loomctl tell - < notes.md
      loomctl tell shop-258 --list
    """
    if lists or take_back:
        return _unread(words, take_back=take_back, as_json=as_json)
    named, text = _meant(words)
    space = command_line.space()
    run_id = find.to_drive(space, named, verb="tell", stranger=carried.brought(space, named))
    called = space.store.handle(run_id)
    person.must_decide(space, "tell", called, text)
    if text == command_line.STDIN:
        if sys.stdin.isatty():
            output.note("Type the message, then Ctrl-D in a line of its own.")
        text = command_line.read_text(text, hint='loomctl tell RUN "read notes.md"').rstrip("\n")
    telling.tell(space, run_id, text)
    heard = telling.is_heard(space, run_id)
    if heard:
        line = f"Loom: kept for {called}. The assistant reads it with its next tool result."
    else:
        way = find.way_in(space, run_id) if space.caller.host == TERMINAL else f"loomctl resume {called}"
        state = space.store.read_state(run_id)
        place = as_object(state.get(driving.FLEET))
        if place and not place.get("shared"):
            way = f"loomctl fleet retry {called}"
        elif place or find.is_left_by_a_drive(space, state):
            way = f"loomctl drive {called}{' --share' if place else ''}"
        line = f"Loom: kept for {called}, on which nobody works now. It is read when the run goes on: {way}"
    told = _document(space, run_id, telling.waiting(space, run_id))
    output.answer({**told, "heard": heard}, [line], as_json=as_json)
    return EXIT_OK


def _meant(words: Sequence[str]) -> tuple[str | None, str]:
    """Give the run that is named, if one is, and the text: words without quotes could go to the wrong run."""
    if len(words) in (1, 2):
        return (words[0] if len(words) == 2 else None), words[-1]
    what = "the text is missing" if not words else "the text has to stand in quotes"
    rest = " ".join(words[1:])
    hint = f"loomctl tell {quoted(words[0])} {quoted(rest)}" if words and len(rest) < _SHOWN else "loomctl tell --help"
    raise LoomError("USAGE", what, hint=hint, exit_code=EXIT_USAGE)


def _unread(words: Sequence[str], *, take_back: bool, as_json: bool) -> int:
    if len(words) > 1:
        why = "--list and --take-back take a run, and no text"
        raise LoomError("USAGE", "there is text too much", why=why, hint="loomctl tell --help", exit_code=EXIT_USAGE)
    space = command_line.space()
    named = words[0] if words else None
    if take_back:
        run_id = find.to_drive(space, named, verb="tell")
        person.must_decide(space, "tell", space.store.handle(run_id), "--take-back")
        unread = telling.take_back(space, run_id)
    else:
        run_id = command_line.run_id(space, named)
        unread = telling.waiting(space, run_id)
    called = space.store.handle(run_id)
    said = f"Loom: {called} has {counted(len(unread), 'unread message')}{', taken back' if take_back else ''}"
    lines = [f"  {output.when(one.at)}  {one_line(one.text, _SHOWN)}" for one in unread]
    if not unread:
        said = f"Loom: {called} has no unread messages."
    output.answer(_document(space, run_id, unread), [said, *lines], as_json=as_json)
    return EXIT_OK


def _document(space: Workspace, run_id: str, unread: Sequence[Tell]) -> dict[str, Any]:
    listed = [{"at": one.at, "text": one.text} for one in unread]
    return {"run_id": run_id, "handle": space.store.handle(run_id), "unread": listed}
