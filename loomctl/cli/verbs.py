"""The verbs of the command line: which there are, where the help lists them, and what old names mean now."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

AnyCommand = TypeVar("AnyCommand", bound=click.Command)
Places = dict[str, str]
"""A verb's name: the module of `loomctl.cli` that has its command, and the command's name there."""

FACE: dict[str, Places] = {
    "Every day": {
        "run": "run:run",
        "drive": "unattended.drive:drive_command",
        "next": "step:next_command",
        "done": "step:done",
        "undo": "step:undo_command",
        "status": "status:status",
        "resume": "run:resume_command",
        "approve": "decide:approve",
        "report": "report:report",
    },
    "Steer": {
        "reject": "decide:reject",
        "choose": "decide:choose",
        "trust": "decide:trust",
        "pause": "decide:pause",
        "cancel": "decide:cancel",
    },
    "Look": {
        "show": "show:show",
        "steps": "tools:steps",
        "prove": "prime:prove",
        "runs": "runs:runs",
    },
    "Workflows": {
        "init": "init:init_command",
        "check": "check:check",
        "graph": "report:graph",
        "simulate": "simulate:simulate",
    },
    "Hand on": {
        "push": "handoff:push_command",
        "pull": "handoff:pull_command",
    },
    "Care": {
        "install": "bundle:install_command",
        "doctor": "bundle:doctor",
        "clean": "care:clean",
        "demo": "bundle:demo",
    },
}
"""What `--help` lists, by groups."""

REST: dict[str, Places] = {
    "Steer": {"fork": "run:fork_command", "rewind": "run:rewind_command"},
    "Look": {
        "sessions": "runs:sessions_command",
        "events": "events:events",
        "context": "context:context",
        "dump": "report:dump_command",
    },
    "Unattended": {
        "waits": "unattended.waits:waits",
        "tell": "unattended.tell:tell_command",
        "stop": "unattended.stop:stop_command",
        "release": "run:release_command",
        "fleet": "fleet.care:fleet_command",
    },
    "Care": {"paths": "runs:paths", "plugin": "plugin:plugin", "debug": "verbs:debug"},
    "For the assistant": {
        "prime-context": "prime:prime_context",
        "memory": "prime:memory",
        "statusline": "status:statusline",
    },
}
"""What `--help --all` lists beside them, in groups of the same names or of their own."""

DEBUG: Places = {
    "outcome": "step:outcome",
    "preamble": "context:preamble",
    "reduce": "tools:reduce_command",
    "blob": "changes:blob",
    "state": "care:state",
    "schema": "bundle:schema",
    "hook": "bundle:hook",
}
"""What stands below `debug`."""

VIEWS: dict[str, dict[str, tuple[str, str]]] = {
    "show": {
        "--stages": ("stages:stages_command", "List the steps done so far: time, outcome, tokens."),
        "--diff": ("changes:diff", "Show what a step changed in your files, as a patch."),
        "--assets": ("changes:assets", "List or copy the screenshots and reports of a run."),
        "--why": ("stages:why", "Explain why a run came to a step or loads a file."),
    },
    "steps": {
        "--savings": ("tools:savings_command", "Count the tokens saved; check the originals."),
        "--history": ("tools:history_command", "Print the calls as a compaction gets them."),
    },
    "prove": {
        "--log": ("check:verify", "Check the log and files against their hashes."),
    },
}
"""Options that make another command of a verb, with arguments and options of its own: place and help."""

RENAMED = {
    "stages": "show --stages",
    "diff": "show --diff",
    "assets": "show --assets",
    "why": "show --why",
    "savings": "steps --savings",
    "history": "steps --history",
    "verify": "prove --log",
    **{name: f"debug {name}" for name in DEBUG if name != "hook"},
    "gc": "clean",
    "tidy": "clean",
}
"""Old names, which do what they did until 1.0: the words that stand for each now. Options are called as they were."""

COMMANDS: Places = {
    name: place for groups in (FACE, REST) for places in groups.values() for name, place in places.items()
}
VIEW_COMMANDS: Places = {f"{verb} {flag}": place for verb, flags in VIEWS.items() for flag, (place, _) in flags.items()}
PLACES: Places = {**COMMANDS, **VIEW_COMMANDS, "hook": DEBUG["hook"]}
"""All that can be called: verbs, their views, and what hosts' manifests call."""
MORE = "`loomctl --help --all` lists the rest. `loomctl help done` explains a command."
COMPLETION = """\
Completion: add a line to your shell's start-up file.
  eval "$(_LOOMCTL_COMPLETE=bash_source loomctl)"
  eval "$(_LOOMCTL_COMPLETE=zsh_source loomctl)"
  _LOOMCTL_COMPLETE=fish_source loomctl | source"""
_FLAGS = frozenset(flag for flags in VIEWS.values() for flag in flags)
_ALWAYS = frozenset({"--json", "-h, --help"})
_NAME = 13  # columns of a name in the lists, the longest's
_ALL = f"{__name__}.all"


class Group(click.Group):
    """Lists its commands with their whole summaries."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names but for those that are no person's to type."""
        return [name for name in super().list_commands(ctx) if not self.commands[name].hidden]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands below one title."""
        self.format_list(ctx, formatter, "Commands", self.list_commands(ctx))

    def format_list(self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: list[str]) -> None:
        """Write names with their whole summaries, below a title."""
        commands = {name: self.get_command(ctx, name) for name in names}
        rows = [(f"{name:{_NAME}}", one.get_short_help_str(1000)) for name, one in commands.items() if one is not None]
        with formatter.section(title):
            formatter.write_dl(rows)


class Verbs(Group):
    """Imports a command when it is asked for: each stands on a part of the engine that most others never need."""

    renamed: Mapping[str, str] = {}

    def __init__(self, *args: Any, places: Places, **more: Any) -> None:
        super().__init__(*args, **more)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the shape of click's own
        """List the names, in the order of the table."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """Import a command; None for a name that is none."""
        if cmd_name not in self.places:
            return None
        module, attribute = self.places[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(f"loomctl.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called. Raises an error that names the near ones where there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click looks for the near one among what is imported
            import difflib

            near = difflib.get_close_matches(error.command_name, [*self.list_commands(ctx), *self.renamed])
            names = dict.fromkeys(self.renamed.get(name, name) for name in near)
            meant = f" (Did you mean {' or '.join(repr(name) for name in names)}?)" if names else ""
            raise click.UsageError(error.message + meant, ctx) from None


class Face(Verbs):
    """The verbs themselves: `--help` lists those of most days, `--help --all` all of them."""

    renamed = RENAMED

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the shape of click's own
        """List the verbs, without views and what hosts call."""
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called, a view of a verb among them."""
        return super().resolve_command(ctx, joined(args))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note `--all` beside `--help`, which click answers before it reads any other option."""
        options, rest = args[: _verb_at(args)], args[_verb_at(args) :]
        if "--all" in options and not {"-h", "--help"}.isdisjoint(options):
            ctx.meta[_ALL] = True
            options.remove("--all")
        return super().parse_args(ctx, [*options, *rest])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs by groups."""
        rest = REST if ctx.meta.get(_ALL) else {}
        for title in dict.fromkeys([*FACE, *rest]):
            self.format_list(ctx, formatter, title, [*FACE.get(title, ()), *rest.get(title, ())])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say where the rest is, or how completion is set up."""
        said = COMPLETION if ctx.meta.get(_ALL) else MORE
        formatter.write("\n")
        formatter.write_text(said) if said == MORE else formatter.write(f"{said}\n")


class Page(click.HelpFormatter):
    """Sets the options that other commands have, too, and those that make another command, behind a verb's own."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write options, or other rows, aligned and in groups."""
        groups: dict[str, list[tuple[str, str]]] = {
            "": [],
            "Other views (each has its own --help)": [],
            "Always": [],
        }
        own, views, always = groups.values()
        for row in rows:
            (views if row[0] in _FLAGS else always if row[0] in _ALWAYS else own).append(row)
        if not own or not (views or len(own) > 2):
            return super().write_dl(rows, col_max, col_spacing)
        for title, group in groups.items():
            if group and title:
                self.dedent()
                self.write(f"\n{title}:\n")
                self.indent()
            if group:
                super().write_dl(group, col_max, col_spacing)
        return None


click.Context.formatter_class = Page


def joined(args: list[str]) -> list[str]:
    """Make one word of a verb and the option that makes another command of it, wherever that stands behind it."""
    verb, *rest = args
    before = rest[: rest.index("--")] if "--" in rest else rest
    flag = next((word for word in before if word in VIEWS.get(verb, ())), None)
    if flag is None:
        return args
    rest.remove(flag)
    return [f"{verb} {flag}", *rest]


def views_of(verb: str) -> Callable[[AnyCommand], AnyCommand]:
    """Add the options of a verb that make another command of it, for the help and completion: `joined` takes them."""

    def add(command: AnyCommand) -> AnyCommand:
        for flag, (_, said) in VIEWS[verb].items():
            command.params.append(click.Option([flag], is_flag=True, expose_value=False, help=said))
        return command

    return add


def current(words: list[str]) -> tuple[list[str], str]:
    """Give a command line in the words of today, and what is to be said of an old name in it; `help done` likewise."""
    at = _verb_at(words)
    verb, rest = words[at : at + 1], words[at + 1 :]
    if verb == ["help"]:
        line, said = current(rest)
        return [*words[:at], *line, "--help"], said
    now = RENAMED.get(verb[0]) if verb else None
    if now is None:
        return words, ""
    return [*words[:at], *now.split(), *rest], f"`loomctl {verb[0]}` is now `loomctl {now}`"


def _verb_at(words: list[str]) -> int:
    return next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))


@click.group(cls=Verbs, places=DEBUG)
def debug() -> int:
    """Look inside: a run's state, answers, large values, schemas.

    \b
    Examples:
      loomctl debug state show
      loomctl debug outcome < answer.md
    """
    return 0
