"""The reference of the command line is what the commands themselves say: help, arguments, options, examples."""

import inspect
import re

import click

from loomctl.cli.main import loomctl
from tests.cli.test_errors import FAILING
from tests.cli.test_exit_codes import CASES
from tests.cli.test_help import ALL
from tests.docs.pages import DOCS, make, table

PAGE = DOCS / "reference" / "cli.md"

# Exit codes beyond those that every command has (0, 2, 5, 7, 70), and what they mean for it.
NO_RUN = {3: "no such run, none active, or several"}
NO_QUEUE = {8: "the queue does not answer, has no tables, or its extra is not installed"}
NO_RUN_OF_IT = "no such run in the fleet, or several"
DRIVES = {3: "no such run, none active, or not this session's", 6: "another session holds the run or the step"}
LOADS = {4: "a required artifact is missing; the rest was loaded"}
DECIDES = {**DRIVES, **LOADS, 6: "another process is writing the run, or somebody else decided at the same time"}
ENDS: dict[str, dict[int, str]] = {
    "loomctl install": {8: "there is no home folder"},
    "loomctl run": {**LOADS, 3: "with `--resume`: as `loomctl resume`", 6: "the run is held"},
    "loomctl resume": {**NO_RUN, **LOADS, 6: "another session or process holds the run"},
    "loomctl drive": {
        **NO_RUN,
        1: "the run failed or is cancelled, or the assistant cannot be started",
        6: "another session drives the run",
        9: "the run waits for you or for a time; you ended the driver, or its leash is gone",
        10: "one of your limits is reached",
        130: "a second Ctrl-C",
    },
    "loomctl fleet": NO_QUEUE,
    "loomctl fleet add": {**NO_QUEUE, 3: "no such run to come after"},
    "loomctl fleet work": {**NO_QUEUE, 10: "`--max-cost` is reached", 130: "a second Ctrl-C"},
    **{f"loomctl fleet {verb}": {**NO_QUEUE, 3: NO_RUN_OF_IT} for verb in ("cancel", "pause", "resume", "retry")},
    **{f"loomctl fleet {verb}": NO_QUEUE for verb in ("status", "report", "board", "clean", "init", "rebuild")},
    "loomctl fleet doctor": {**NO_QUEUE, 1: "with `--dry-run`: queue and runs differ"},
    "loomctl next": {**DRIVES, **LOADS, 8: "a step's command could not be begun"},
    "loomctl done": {**DRIVES, **LOADS},
    "loomctl undo": DRIVES,
    "loomctl rewind": {3: "no such run or stage, none active, or not this session's", 6: DRIVES[6]},
    "loomctl approve": DECIDES,
    "loomctl reject": DECIDES,
    "loomctl choose": DECIDES,
    "loomctl fork": {3: "no such run or stage, none active, or several", 6: "another process is writing the run"},
    "loomctl pause": DRIVES,
    "loomctl stop": {**NO_RUN, 6: "its driver is another's, runs elsewhere, or does not end"},
    "loomctl release": {3: DRIVES[3], 6: "another session that lives drives the run"},
    "loomctl cancel": DRIVES,
    "loomctl trust": {**NO_RUN, 8: "this machine's own folder cannot be written"},
    "loomctl prime-context": {**NO_RUN, **LOADS},
    "loomctl memory on": {6: "another process is writing the memory"},
    "loomctl memory off": {6: "another process is writing the memory"},
    "loomctl debug preamble": {3: "no such run or step, none active, or several"},
    "loomctl status": NO_RUN,
    "loomctl tell": {3: NO_RUN[3], 6: "another machine drives the run"},
    "loomctl waits": {3: "no such run, or several"},
    "loomctl statusline": NO_RUN,
    "loomctl report": NO_RUN,
    "loomctl prove": NO_RUN,
    "loomctl prove --log": {**NO_RUN, 1: "a log or a file is not the one that was written"},
    "loomctl show --why": {3: "no such run or stage, none active, or several"},
    "loomctl push": {
        **NO_RUN,
        6: "the remote has a newer state; with `--release`: another session drives the run",
        8: "no git repository, or the remote does not answer",
    },
    "loomctl pull": {3: "no such run, or several", 8: "no git repository, or the remote does not answer"},
    "loomctl show": {3: "no such run, stage or file, none active, or several"},
    "loomctl graph": {3: "no run is named and none active, or several", 8: "Graphviz is not installed"},
    "loomctl show --stages": NO_RUN,
    "loomctl events": NO_RUN,
    "loomctl dump": {1: "something could not be brought along", 3: "no such run, or several"},
    "loomctl context get": {3: "no such run, key or blob, none active, or several"},
    "loomctl context list": NO_RUN,
    "loomctl context history": {3: "no such run or key, none active, or several"},
    "loomctl context set": {3: DRIVES[3], 6: "another process is writing the run"},
    "loomctl context unset": {
        3: "no such run or key, none active, or not this session's",
        6: "another process is writing the run",
    },
    "loomctl sessions": NO_RUN,
    "loomctl steps": NO_RUN,
    "loomctl steps show": {3: "no such run or step, none active, or several"},
    "loomctl steps --history": NO_RUN,
    "loomctl steps --savings": {**NO_RUN, 1: "an original is gone or damaged"},
    "loomctl show --diff": NO_RUN,
    "loomctl show --assets": NO_RUN,
    "loomctl show --assets cp": {**NO_RUN, 1: "an asset is gone or was changed"},
    "loomctl debug outcome": {1: "the response breaks the schema"},
    "loomctl debug state show": NO_RUN,
    "loomctl paths": {3: "no such run"},
    "loomctl runs rm": {3: "no such run", 6: "the run is under way"},
    "loomctl runs archive": {3: "no such run", 6: "the run is under way"},
    "loomctl runs restore": {3: "no such archive", 6: "the run's lock is held"},
    "loomctl debug state restore": {**NO_RUN, 6: "another process is writing the run"},
    "loomctl debug blob get": {3: "no such blob"},
    "loomctl clean": {1: "something could not be read or removed", 3: "no project with runs"},
    "loomctl doctor": {1: "at least one check failed", 8: "there is no Python 3.10 or newer"},
    "loomctl plugin install": {2: "nobody agreed; a file of yours cannot be changed", 8: "there is no home folder"},
    "loomctl plugin path": {8: "installed without its bundle"},
    "loomctl plugin remove": {2: "a file of yours cannot be changed", 8: "there is no home folder"},
    "loomctl plugin status": {1: "something is missing", 2: "a file cannot be read", 8: "there is no home folder"},
    "loomctl demo": {1: "something was lost", 8: "no git"},
}


def test_the_reference_is_what_the_commands_say() -> None:
    sections = [_section(name, command) for name, command in _all()]
    make(PAGE, "commands", "\n\n".join(sections))


def test_the_list_is_what_the_help_lists() -> None:
    rows = [[f"[{name}](#{name.replace(' ', '-')})", _first(command)] for name, command in _all()]
    make(PAGE, "list", table(["command", "does"], rows))


def test_exit_codes_that_were_seen_are_listed() -> None:
    """What the command line's own tests see stands at the command, or belongs to all."""
    for code, words in [*((one[0], one[1]) for one in CASES), *((one.code, one.words) for one in FAILING)]:
        line = f"loomctl {' '.join(words)} "
        name = next((name for name in sorted(ALL, key=len, reverse=True) if line.startswith(f"{name} ")), "")
        if name and code not in (0, 2, 5, 7, 70):
            assert code in ENDS.get(name, {}), (name, code)
    assert set(ENDS) <= set(ALL)


def _all() -> list[tuple[str, click.Command]]:
    return [(name, command) for name, command in ALL.items()]


def _first(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "").split("\n\n")[0].replace("\n", " ")


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    takes_words = not isinstance(command, click.Group)
    if isinstance(command, click.Group) and any(isinstance(one, click.Argument) for one in command.params):
        takes_words, pieces = True, pieces[:-1]  # a listing with sub-commands, which are named below
    usage = " ".join(piece.strip("{}") for piece in pieces)
    parts = [f"## {name}", *_prose(command)]
    if takes_words:
        parts.insert(1, f"```text\n{f'{name} {usage}'.strip()}\n```")
    rows = [_option(parameter, context) for parameter in command.params if isinstance(parameter, click.Option)]
    rows = [row for row in rows if row]
    if rows:
        parts.append(table(["option", "does"], rows))
    if isinstance(command, click.Group):
        listed = [f"[{name} {word}](#{f'{name} {word}'.replace(' ', '-')})" for word in command.list_commands(context)]
        parts.append(f"Its commands: {', '.join(listed)}.")
    if name in ENDS:
        ends = "; ".join(f"{code}: {meaning}" for code, meaning in sorted(ENDS[name].items()))
        parts.append(f"Exit codes of its own: {ends}.")
    return "\n\n".join(parts)


def _prose(command: click.Command) -> list[str]:
    parts = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if not paragraph.startswith("\b\n"):
            parts.append(paragraph.replace("\n", " "))
            continue
        head, *lines = paragraph.removeprefix("\b\n").split("\n")
        if re.match(r"[A-Z][a-z ]+:$", head):
            parts += [head, "```sh\n" + inspect.cleandoc("\n".join(lines)) + "\n```"]
        else:
            parts.append(" ".join([head, *lines]))
    return parts


def _option(option: click.Option, context: click.Context) -> list[str]:
    record = option.get_help_record(context)
    if record is None:
        return []
    return [f"`{record[0]}`", record[1]]


def test_the_group_itself_is_in_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for parameter in loomctl.params:
        assert f"`{parameter.opts[-1]}`" in page
