"""The command line that runs now, to be given once more with some of its words changed: what a hint is made of."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from loomctl.runs.store import layouts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LONGEST = 600  # characters of a line that is worth a paste
_RUNS = ("run", "run_id", "resumed")  # what commands call the parameter that names a run
_LEFT_OUT = ("as_json",)  # a hint is the same in both forms of an error


def line(without: Collection[str] = (), /, **changed: str) -> str:
    """Give the command line as it was typed but for `changed`, by the names of its parameters; "" where there is none.

    without: options that are left out. Where an option has several names the first is written. Empty, too, for a line
    that is too long to be pasted, and for one in which a word would stand in another's place, for one before it is not
    said.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    words: list[str] = []
    options: list[str] = []
    has_gap = False
    for param in context.command.get_params(context):
        name = param.name or ""
        is_said = name in changed or context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        value = changed.get(name, context.params.get(name))
        if isinstance(param, click.Option):
            options += _option(param, value) if is_said and name not in (*_LEFT_OUT, *without) else ()
        elif is_said and has_gap:
            return ""
        elif is_said:
            words += [str(one) for one in (value if isinstance(value, tuple) else (value,))]
        else:
            has_gap = True
    mark = ["--"] if any(word.startswith("-") for word in words) else []
    made = shlex.join([*_path(context), *(options if mark else ()), *mark, *words, *(() if mark else options)])
    return made if len(made) <= LONGEST else ""


def naming(run_id: str, **changed: str) -> str:
    """Give the command line with the run named; one that shows it where the command takes no run by a word of its own.

    changed: other words that are changed, by the names of their parameters.

    For what reads and what takes up: nothing that ends or removes a run is offered with one that was guessed (D1).
    """
    context = click.get_current_context(silent=True)
    params = [one.name for one in context.command.get_params(context)] if context is not None else []
    named = next((name for name in _RUNS if name in params), None)
    return (line(**{**changed, named: run_id}) if named else "") or layouts.shown(run_id)


def _path(context: click.Context) -> list[str]:
    """Give the names of the command and its groups; a path of click's own names the groups' arguments, too."""
    above = _path(context.parent) if context.parent is not None else []
    return [*above, context.info_name or ""]


def _option(param: click.Option, value: object) -> Iterator[str]:
    """Give the words of an option that was typed."""
    if param.is_flag:
        yield param.opts[0] if value or not param.secondary_opts else param.secondary_opts[0]
        return
    for one in value if isinstance(value, tuple) else (value,):
        name, text = param.opts[0], str(one)
        if name.startswith("--") and text.startswith("-"):
            yield f"{name}={text}"
        else:
            yield from (name, text)
