"""`loomctl context` and `debug preamble`: what a run's steps share, read and set by hand; what opens a step (D46)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import command_line, output
from loomctl.cli.command_line import branch_option, completion, json_option, run_argument
from loomctl.cli.verbs import Group
from loomctl.flow import contexts, lines, preambles
from loomctl.kit import files
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import context_history, context_values, find
from loomctl.runs.context_history import NOTHING, STEP, UNDO, USER
from loomctl.runs.model import frozen_plan
from loomctl.runs.model.run_context import is_reserved
from loomctl.runs.store.match import match
from loomctl.workflows.routing import FIDELITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loomctl.flow.contexts import Held
    from loomctl.runs.context_history import Change
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_HELP = "loomctl context set --help"
_SHOWN = 60
_NEGATIVE = re.compile(r"-[0-9][0-9.eE+-]*")
_NUMBER = "\0"  # no word of a command line has one


@click.group(cls=Group)
def context() -> int:
    """Read and set the values that the steps of a run share.

    A key is a text, and a dot in it means nothing; a value is any JSON. A step sets values through `context_updates`
    in its result.

    \b
    Examples:
      loomctl context list
      loomctl context set coverage 81
    """
    return EXIT_OK


def _read(run: str | None, branch: str | None = None) -> tuple[Workspace, Run]:
    space = command_line.space()
    found = space.store.read(command_line.run_id(space, run), to_show=True)
    return space, found if branch is None else lines.seen(found, branch)


# ---- Reading.


@context.command()
@click.argument("key")
@run_argument
@branch_option
@json_option
def get(key: str, run: str | None, branch: str | None, as_json: bool) -> int:
    """Print the value of a key: a text as it is, else JSON.

    Loom masks secrets. `response.STEP` is the text of that step's last result. The built-in keys are
    `_current_node`, `_previous_node`, `_pipeline_name`, `_run_id`, `_retry_count`, `_start_time` and
    `_node_start_time`.

    \b
    Examples:
      loomctl context get coverage
      loomctl context get response.build/review shop-258
    """
    space, found = _read(run, branch)
    held = contexts.held(space, found, key)
    shown = context_history.noted(key, held.value)
    if as_json:
        output.document({"run_id": found.run_id, "handle": found.handle, **_document(held), "value": shown})
    else:
        output.text(shown) if isinstance(shown, str) else output.plain(shown)
    return EXIT_OK


@context.command("list")
@run_argument
@click.option("--all", "engine", is_flag=True, help="With the keys that Loom itself writes.")
@branch_option
@json_option
def list_command(run: str | None, engine: bool, branch: str | None, as_json: bool) -> int:
    """List a run's keys, their values and who set them.

    Each branch of an open parallel step has its own copy. The run gets the branch's values when the step ends.

    \b
    Examples:
      loomctl context list
      loomctl context list --all --json
    """
    space, found = _read(run, branch)
    every = contexts.listed(space, found, engine=True)
    held = [one for one in every if engine or not one.of_the_engine]
    setters = {} if branch else context_history.setters(context_history.of_run(found))
    if as_json:
        told = [{**_document(one), **_set_by(setters.get(one.key))} for one in held]
        output.document({"run_id": found.run_id, "handle": found.handle, "keys": told, "total": len(every)})
        return EXIT_OK
    if held:
        rows = [_row(one, setters.get(one.key)) for one in held]
        output.text(output.table(["KEY", "TYPE", "BYTES", "SET BY", "VALUE"], rows, keep=(0,), spare=(1, 2)) + "\n")
    others = len(every) - len(held)
    more = f" and {others:,} of Loom's own: loomctl context list --all {found.handle}" if others else ""
    output.text(f"{found.handle}: {counted(len(held), 'key')}{more}")
    return EXIT_OK


def _document(held: Held) -> dict[str, Any]:
    told = {"key": held.key, "type": held.type, "bytes": held.bytes, "engine": held.of_the_engine}
    ref = {"ref": held.ref} if held.ref is not None else {}
    return {**told, **ref, **({"trouble": held.trouble.to_dict()} if held.trouble is not None else {})}


def _set_by(change: Change | None) -> dict[str, Any]:
    if change is None:
        return {"by": None, "stage": None, "at": None}
    return {"by": change.by, "stage": change.stage, "at": change.at or None}


def _row(held: Held, change: Change | None) -> list[str]:
    value = _cell(held.key, held.value)
    if held.trouble is not None:
        value = masked_line(f"! {held.trouble.what}", _SHOWN)
    return [_word(held.key), held.type, f"{held.bytes:,}", "" if change is None else _who(change), value]


def _who(change: Change) -> str:
    stage = one_line(str(change.stage), 40)
    return {USER: "user", STEP: stage, UNDO: f"undo of {stage}"}.get(change.by, "unknown")


def _cell(key: str, value: Any) -> str:
    if value is NOTHING:
        return "not set"
    return masked_line(context_values.encoded(context_history.noted(key, value)).decode(), _SHOWN)


def _word(key: str) -> str:
    return one_line(key, 48)


@context.command()
@click.argument("words", nargs=-1, metavar="[KEY] [RUN]")
@click.option("--all", "engine", is_flag=True, help="With the keys that Loom itself writes.")
@json_option
def history(words: tuple[str, ...], engine: bool, as_json: bool) -> int:
    """Show every change of a key, or of all keys.

    It tells when a key changed, who changed it, and the value before and after; for one key also how to set it back. A
    single word is a KEY if the run ever had that key, else a RUN. Loom masks secrets in what a person set.

    \b
    Examples:
      loomctl context history
      loomctl context history coverage
      loomctl context history coverage shop-258 --json
    """
    if len(words) > 2:
        raise _usage("give one KEY and one RUN at most", "loomctl context history --help")
    key, found, changes = _meant(words)
    shown = [one for one in changes if engine or key is not None or not is_reserved(one.key)]
    back = contexts.way_back(found, changes[-1]) if key is not None else ""
    if as_json:
        told = {"key": key, "changes": [_masked(one).to_dict() for one in shown], "back": back or None}
        output.document({"run_id": found.run_id, "handle": found.handle, **told})
        return EXIT_OK
    if not shown:
        output.text(f"{found.handle}: no step and no person has set a key yet")
        return EXIT_OK
    header = ["AT", "BY", "KEY", "BEFORE", "AFTER"]
    rows = [
        [
            output.when(one.at) or "-",
            _who(one),
            _word(one.key),
            *(_cell(one.key, end) for end in (one.before, one.after)),
        ]
        for one in shown
    ]
    output.text(output.table(header, rows, keep=(0, 2), spare=(1,)))
    if back:
        output.text(f"\nTo set it back: {back}")
    return EXIT_OK


def _masked(change: Change) -> Change:
    ends = [one if one is NOTHING else context_history.noted(change.key, one) for one in (change.before, change.after)]
    return change._replace(before=ends[0], after=ends[1])


def _meant(words: Sequence[str]) -> tuple[str | None, Run, list[Change]]:
    if not words:
        _, found = _read(None)
        return None, found, context_history.of_run(found)
    if len(words) == 1:
        run = _run_alone(words[0])
        if run is not None:
            return None, run, context_history.of_run(run)
    space, found = _read(words[1] if len(words) == 2 else None)
    changes = context_history.of_run(found, words[0])
    if not changes:
        contexts.held(space, found, words[0])  # raises for a key that is not there either
        raise _usage(
            f"Loom computes {one_line(words[0], 80)} from the run, so it has no history",
            f"loomctl context get {words[0]} {found.handle}",
        )
    return words[0], found, changes


def _run_alone(word: str) -> Run | None:
    space = command_line.space()
    current = find.find(space).run_id
    if current is not None and context_history.of_run(space.store.read(current, to_show=True), word):
        return None
    try:
        return space.store.read(match(space.store, word), to_show=True)
    except LoomError as error:
        if error.code in ("NO_SUCH_RUN", "BAD_ID") and current is not None:
            return None
        raise


# ---- Setting.


class _WithNumbers(click.Command):
    """A command among whose words a negative number is a word, and no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_NUMBER + word if _NEGATIVE.fullmatch(word) else word for word in args])


@context.command("set", cls=_WithNumbers)
@click.argument("words", nargs=-1, metavar="KEY VALUE [RUN]")
@click.option("--text", "as_text", is_flag=True, help="Take VALUE as a text, whatever it looks like.")
@click.option("--from", "source", metavar="FILE", help="Read VALUE from FILE ('-': standard input).")
@branch_option
@json_option
def set_command(words: tuple[str, ...], as_text: bool, source: str | None, branch: str | None, as_json: bool) -> int:
    """Set a key of a run's context.

    VALUE is JSON; anything else is a text. The change goes into the run's events, and `loomctl context history KEY`
    shows how to set it back. You cannot set keys that Loom itself writes, nor change a run that is over.

    \b
    Examples:
      loomctl context set coverage 87
      loomctl context set auth.module_path src/auth.py
      loomctl context set build.version --text 1.10
      loomctl context set report --from report.json
    """
    given = [word.removeprefix(_NUMBER) for word in words]
    least = 1 if source is not None else 2
    if not least <= len(given) <= least + 1:
        wanted = "KEY [RUN]" if source is not None else "KEY VALUE [RUN]"
        raise _usage(f"{counted(len(given), 'word')} given, expected {wanted}", _HELP)
    key, run = given[0], given[least] if len(given) > least else None
    text = _read_value(source) if source is not None else given[1]
    value = text if as_text else _value(text, source)
    space = command_line.space()
    done = contexts.put(space, contexts.to_change(space, run), {key: value}, branch=branch)
    return _told(done, key, value, as_json=as_json)


@context.command()
@click.argument("key")
@run_argument
@branch_option
@json_option
def unset(key: str, run: str | None, branch: str | None, as_json: bool) -> int:
    """Remove a key from a run's context.

    `loomctl context history KEY` shows how to set it again.

    \b
    Examples:
      loomctl context unset coverage
      loomctl context unset coverage shop-258
    """
    space = command_line.space()
    done = contexts.take_away(space, contexts.to_change(space, run), key, branch=branch)
    return _told(done, key, NOTHING, as_json=as_json)


def _told(done: contexts.Set, key: str, value: Any, *, as_json: bool) -> int:
    before = done.before[key]
    ends = {"before": before, "value": value}
    if as_json:
        told = {name: context_history.noted(key, one) for name, one in ends.items() if one is not NOTHING}
        output.document(
            {
                "run_id": done.run_id,
                "handle": done.handle,
                "key": key,
                **told,
                "warnings": list(done.warnings),
            }
        )
        return EXIT_OK
    now = "removed" if value is NOTHING else f"= {_cell(key, value)}"
    output.text(f"Loom: {_word(key)} {now} (was {_cell(key, before)})")
    for one in done.warnings:
        output.note(f"loomctl: {one['code']}: {one['where']}: {one['message']}")
    return EXIT_OK


def _value(text: str, source: str | None) -> Any:
    """Give the JSON that a text is, else the text; what only looks like an object, a list or a text is refused."""
    try:
        return files.parse_json(text.encode(), where=source or "VALUE")
    except UnicodeEncodeError:
        return text  # no Unicode, which is refused as a value
    except LoomError as error:
        if text.lstrip()[:1] not in ("{", "[", '"'):
            return text
        why = f"{error.why or error.what}; --text takes it as a text"
        raise _bad_value("this looks like JSON but is not valid", error.where, why) from None


def _read_value(source: str) -> str:
    data = command_line.read(source, hint=_HELP)
    try:
        return files.text_of(data)
    except UnicodeDecodeError as error:
        raise _bad_value("the value is not UTF-8 text", command_line.source_name(source), str(error)) from None


def _bad_value(what: str, where: str, why: str) -> LoomError:
    return LoomError("BAD_VALUE", what, where=where, why=why, hint=_HELP, exit_code=EXIT_USAGE)


def _usage(what: str, hint: str) -> LoomError:
    return LoomError("USAGE", what, hint=hint, exit_code=EXIT_USAGE)


# ---- What opens a step.


@completion
def _complete_steps(space: Workspace, context: click.Context, incomplete: str) -> Iterable[str]:
    run = space.store.read(find.run_to_read(space, context.params.get("run")), to_show=True)
    return [place.key for place in frozen_plan.places(run.plan)]


@click.command()
@run_argument
@click.option(
    "--step",
    metavar="STEP",
    shell_complete=_complete_steps,
    help="The step, e.g. build/review.  [default: the open or next one]",
)
@click.option(
    "--fidelity", type=click.Choice(FIDELITIES), help="How much it tells of earlier steps, whatever the plan says."
)
@branch_option
@json_option
def preamble(run: str | None, step: str | None, fidelity: str | None, branch: str | None, as_json: bool) -> int:
    """Print a step's background: goal, earlier results, context.

    A step's prompt.md begins with exactly this text. `loomctl next` prints only what the conversation does not know
    yet.

    \b
    Examples:
      loomctl debug preamble
      loomctl debug preamble --step build/review --fidelity summary:high
    """
    space, found = _read(run, branch)
    made = preambles.of(space, found, step, fidelity)
    if as_json:
        output.document(made.to_dict())
        return EXIT_OK
    for warning in made.warnings:
        output.note(f"loomctl: {warning}")
    output.text(made.text)
    return EXIT_OK
