"""`loomctl statusline`: the line that an assistant's status line shows, and how it comes to show it."""

from __future__ import annotations

import json
import os
import shlex

import click

from loomctl.cli import caller, output
from loomctl.install import status_shim
from loomctl.kit.errors import EXIT_OK, EXIT_SETUP, LoomError
from loomctl.runs import find, project
from loomctl.runs.tools.savings import Tally
from loomctl.views import status_line, status_lines

_COMBINED = """\
Claude Code takes one status line. To keep your own, let one script show both, each on a line:

    #!/bin/sh
    given=$(cat)
    printf '%s' "$given" | YOUR-COMMAND
    printf '%s' "$given" | {command}

Loom's line is empty where no run is under way in a session. To remove it, take the key out again."""


@click.command()
@click.option("--snippet", is_flag=True, help="Print what shows the line in Claude Code, for your settings.json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def statusline(snippet: bool, as_json: bool) -> int:
    """Print where a run stands in one line of at most 80 columns.

    As the status line of Claude Code it is given the session on its standard input, and shows the session's run;
    nothing where there is none. In a terminal, and where its input is empty, it shows the current run. COLUMNS makes it
    shorter. An alarm stands first if hooks are silent: `loomctl doctor` says more.

    \b
    Examples:
      loomctl statusline
      loomctl statusline --snippet
    """
    if snippet:
        return _snippet(as_json=as_json)
    space = caller.space()
    space = space._replace(caller=space.caller._replace(conversation=caller.of_the_host()))
    run_id = find.to_read(space).run_id
    assert run_id is not None  # to_read raises instead
    run = space.store.read(run_id, to_show=True)
    session_id = space.caller.session_id if find.is_bound(space, run_id) else None
    told = status_lines.told(space, run, session_id, Tally(), now=status_lines.clock())
    line = status_line.fitting(status_line.forms(told), status_lines.room(os.environ.get("COLUMNS", "")))
    if as_json:
        output.document({"run_id": run_id, "line": line, "alarm": told.alarm or None})
    else:
        output.text(line)
    return EXIT_OK


def _snippet(*, as_json: bool) -> int:
    """Make the script that the settings name, and print the key for them; the settings themselves are the user's."""
    launcher = os.path.join(project.plugin_root(), "bin", "loomctl")
    if not os.access(launcher, os.X_OK):
        raise LoomError(
            "NO_BUNDLE",
            "this loomctl was started without its launcher, which a status line calls",
            where=launcher,
            hint="command -v loomctl",
            exit_code=EXIT_SETUP,
        )
    place = status_shim.write(launcher)
    if not place:
        raise LoomError(
            "NO_HOME",
            "there is nowhere to keep the script that a status line calls",
            why="neither HOME nor LOOM_STATE_HOME names a folder of your own",
            hint='export LOOM_STATE_HOME="$HOME/.loom-state"',
            exit_code=EXIT_SETUP,
        )
    command = shlex.quote(place)
    settings = {"statusLine": {"type": "command", "command": command}}
    if as_json:
        output.document({"script": place, "settings": settings})
        return EXIT_OK
    told = json.dumps(settings, indent=2, ensure_ascii=False)
    head = "For ~/.claude/settings.json, or a project's .claude/settings.json:"
    output.unmasked(f"{head}\n\n{told}\n\n{_COMBINED.replace('{command}', command)}")
    return EXIT_OK
