"""`loomctl push` and `loomctl pull`: a run handed on through git, and taken."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import command_line, output, person
from loomctl.cli.command_line import Command, json_option, run_argument, yes_option
from loomctl.kit import ids
from loomctl.kit.errors import EXIT_HELD, EXIT_NO_RUN, EXIT_OK, EXIT_USAGE, ON_INTERRUPT, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import find
from loomctl.runs.model.state import TERMINAL as OVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loomctl.handoff.handoff import Desk
    from loomctl.handoff.pull import Pulled
    from loomctl.handoff.push import Parcel, Pushed
    from loomctl.handoff.work_parcel import Code
    from loomctl.handoff.work_restore import PutBack

_MOST = 10
# The beginning of a path: what stands there, in the order in which it is listed.
_KINDS = (
    ("run/state.json", "the state"),
    ("run/plan.json", "the plan"),
    ("run/events.jsonl", "the event log"),
    ("run/tool_steps.jsonl", "the tool calls"),
    ("run/sessions.jsonl", "earlier sessions"),
    ("run/stages/", "steps: prompts, results, changes"),
    ("run/assets/", "assets"),
    ("run/outputs/", "tool outputs"),
    ("blobs/", "large values"),
    ("run/", "other files of the run's folder"),
)


def _remote_option(command: Command) -> Command:
    return click.option("--remote", metavar="NAME|URL", help="The git remote.  [default: origin, or the only one]")(
        command
    )


@click.command("push")
@run_argument
@_remote_option
@click.option("--with-outputs", is_flag=True, help="Push the tools' outputs too, from now on always.")
@click.option("--release", is_flag=True, help="Give the run up, so that another machine continues it at once.")
@yes_option
@click.option("--dry-run", is_flag=True, help="List what would leave this machine; push nothing.")
@json_option
def push_command(
    run: str | None, remote: str | None, with_outputs: bool, release: bool, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Push a run to a git remote, for another machine to pull.

    Loom first lists what leaves this machine. It pushes to refs/loom/runs/, beside your branches, and touches none of
    your branches, commits and files. If the remote has a newer state of the run, it pushes nothing: pull first.

    Without --release another machine waits up to 30 minutes for this one's driver, or takes the run over.

    \b
    Examples:
      loomctl push
      loomctl push shop-258 --release
      loomctl push shop-258 --dry-run
      loomctl push shop-258 --remote backup --with-outputs --yes
    """
    from loomctl.handoff import handoff, push
    from loomctl.handoff.handoff import Desk
    from loomctl.runs import leases

    space = command_line.space()
    run_id = command_line.run_id(space, run)
    desk = Desk(space, remote, asks=output.may_ask(as_json=as_json))
    drives = leases.released_by_hand(space, run_id, space.store.read_state(run_id)) if release else None
    parcel = push.prepare(desk, run_id, outputs=with_outputs)
    if dry_run:
        damaged = handoff.log_warnings(space, run_id)
        told = {**_parcel_document(desk, parcel), "notes": [*damaged, *parcel.notes]}
        output.answer(told, [_listing(desk, parcel, "would push"), *told["notes"]], as_json=as_json)
        return EXIT_OK
    more = f"{desk.remote.option}{' --with-outputs' if with_outputs else ''}{' --release' if release else ''}"
    if parcel.is_due and not as_json:
        warned = [] if yes else handoff.log_warnings(space, run_id)
        output.note("\n".join([_listing(desk, parcel, "pushing" if yes else "would push"), *warned]))
    if (parcel.is_due or drives is not None) and not yes:
        output.must_agree(
            "Push it?",
            asks=output.may_ask(as_json=as_json),
            what="Loom pushed nothing",
            why="a person, or --yes, has to agree to what leaves this machine",
            hint=f"loomctl push {space.store.handle(run_id)}{more} --yes",
        )
    person.must_decide(space, "push", space.store.handle(run_id), *shlex.split(more))
    pushed = push.send(desk, parcel, release=release)
    told = {**_parcel_document(desk, pushed.parcel), "commit": pushed.commit, "notes": list(pushed.notes)}
    output.answer({**told, "released": pushed.released}, _pushed_lines(desk, pushed), as_json=as_json)
    return EXIT_OK


def _listing(desk: Desk, parcel: Parcel, verb: str) -> str:
    size = f"{counted(len(parcel.new), 'file')}, {counted(parcel.bytes, 'byte')}"
    lines = [f"Loom: {verb} {desk.space.store.handle(parcel.run_id)} to {desk.remote.shown}: {size}"]
    left = list(parcel.new)
    for beginning, what in _KINDS:
        held = [one for one in left if one[0].startswith(beginning)]
        left = [one for one in left if one not in held] if held else left
        if held:
            count = "" if len(held) == 1 else f", {len(held):,} files"
            lines.append(f"  {what}{count}: {counted(sum(one[1] for one in held), 'byte')}")
    if parcel.is_due:
        told = parcel.message
        who = f"your name ({masked_line(told.by, 60)}), this machine ({masked_line(told.machine, 60)})"
        size = counted(parcel.message_bytes, "byte")
        lines.append(f"  a commit with {who}, the goal and the step: {size}")
    if parcel.code is not None:
        lines.append(_code_line(parcel.code))
    if any(path == "run/state.json" for path, _, _ in parcel.new):
        lines.append("These files contain paths of this machine.")
    hidden = [(path, count) for path, _, count in parcel.new if count]
    if hidden:
        lines.append(f"Loom masks {counted(sum(count for _, count in hidden), 'secret')} in")
        lines += _few(f"  {one_line(path, 200)}" for path, _ in hidden)
    if parcel.gone:
        lines.append(f"Removed from the remote: {counted(len(parcel.gone), 'file')}")
    of_code = parcel.code.left_out if parcel.code is not None else ()
    if parcel.left_out or of_code:
        lines.append("Stays here:")
        lines += _few(f"  {one_line(name, 200)}: {why}" for name, why in (*parcel.left_out, *of_code))
    if not parcel.outputs:
        lines.append("Tool outputs stay here; --with-outputs pushes them.")
    return "\n".join(lines)


def _code_line(code: Code) -> str:
    size = f"{counted(code.files, 'file')}, {counted(code.bytes, 'byte')}"
    if code.base is None:
        return f"  the code: {size}"
    own = "and the commits up to that" if code.commits is None else f"and {counted(code.commits, 'commit')} of yours"
    more = "" if code.commits == 0 else f", {own}"
    return f"  the code, where it differs from commit {code.base[:9]}: {size}{more}"


def _few(lines: Iterable[str]) -> list[str]:
    listed = list(lines)
    more = [f"  and {len(listed) - _MOST:,} more"] if len(listed) > _MOST else []
    return [*listed[:_MOST], *more]


def _parcel_document(desk: Desk, parcel: Parcel) -> dict[str, Any]:
    return {
        "run_id": parcel.run_id,
        "handle": desk.space.store.handle(parcel.run_id),
        "remote": desk.remote.shown,
        "commit": None,
        "files": [{"path": path, "bytes": size, "masked": count} for path, size, count in parcel.new],
        "bytes": parcel.bytes,
        "message_bytes": parcel.message_bytes if parcel.is_due else 0,
        "gone": list(parcel.gone),
        "left_out": [one._asdict() for one in parcel.left_out],
        "outputs": parcel.outputs,
        "code": parcel.code._asdict() if parcel.code is not None else None,
        "notes": list(parcel.notes),
    }


def _pushed_lines(desk: Desk, pushed: Pushed) -> list[str]:
    called = desk.space.store.handle(pushed.parcel.run_id)
    if pushed.commit is None:
        return [f"Loom: {desk.remote.shown} already has {called} as it is here", *pushed.notes]
    size = f"{counted(pushed.files, 'file')}, {counted(pushed.parcel.bytes, 'byte')}"
    how = ", and nobody drives it here" if pushed.released else ""
    with_code, place = (" with its code", f" --worktree ../{called}") if pushed.parcel.code is not None else ("", "")
    return [
        f"Loom: pushed {called}{with_code} to {desk.remote.shown} ({size}){how}",
        f"To continue it elsewhere: loomctl pull {called}{desk.remote.elsewhere}{place}",
        *pushed.notes,
    ]


@click.command("pull")
@run_argument
@_remote_option
@click.option("--all", "every", is_flag=True, help="Pull every run of the remote.")
@click.option("--keep-mine", is_flag=True, help="Keep this machine's state; save theirs as another run.")
@click.option("--take-theirs", is_flag=True, help="Take the remote's state; save mine as another run.")
@click.option("--worktree", metavar="DIR", help="Put the run's code into a new worktree, too.")
@json_option
def pull_command(
    run: str | None,
    remote: str | None,
    every: bool,
    keep_mine: bool,
    take_theirs: bool,
    worktree: str | None,
    as_json: bool,
) -> int:
    """Pull a run from a git remote.

    `loomctl resume` then continues it. Loom updates a run that nobody worked on here. It does not merge a run that went
    on both here and there. For that, choose --keep-mine or --take-theirs, and Loom saves the other state as another
    run.

    It does not replace a run that another session drives here, or whose command is running.

    --worktree puts the files that the run's last step left into DIR, on the branch loom/RUN, if they were pushed.

    \b
    Examples:
      loomctl pull
      loomctl pull shop-258 --worktree ../shop-258
      loomctl pull shop-258 --remote backup
      loomctl pull shop-258 --keep-mine
      loomctl pull --all
    """
    from loomctl.handoff import pull
    from loomctl.handoff.handoff import Desk

    if (keep_mine and take_theirs) or (every and (run or worktree)):
        what = "one of --keep-mine and --take-theirs" if keep_mine and take_theirs else "a run or --all"
        what = "--worktree or --all" if every and worktree else what
        raise LoomError("USAGE", f"give {what}", hint="loomctl pull --help", exit_code=EXIT_USAGE)
    keep = pull.KEPT_MINE if keep_mine else pull.TOOK_THEIRS if take_theirs else ""
    desk = Desk(command_line.space(make=True), remote, asks=output.may_ask(as_json=as_json))
    there = desk.list_runs()
    if not every:
        run_id = _meant(desk, run, there)
        code = _code_to_come(desk, run_id, worktree)
        pulled = pull.pull(desk, run_id, there[run_id], keep=keep)
        back = _put_back(desk, pulled, code)
        lines = [] if as_json else [*_pulled_lines(desk, pulled), *_back_lines(desk, back)]
        output.answer({**_pulled_document(desk, pulled), "code": _back_document(back)}, lines, as_json=as_json)
        return EXIT_OK
    return _pull_all(desk, there, keep, as_json=as_json)


def _code_to_come(desk: Desk, run_id: str, worktree: str | None) -> tuple[str, str] | None:
    """Give the remote's commit of a run's code and where its worktree goes, before anything is written."""
    if worktree is None:
        return None
    from loomctl.handoff import work_restore

    place = work_restore.check_place(desk, run_id, worktree)
    return work_restore.find(desk, run_id), place


def _put_back(desk: Desk, pulled: Pulled, code: tuple[str, str] | None) -> PutBack | str | None:
    """Make the worktree of the state that came; a text says why there is none."""
    from loomctl.handoff import pull, work_restore

    if code is None:
        return None
    if pulled.kind in (pull.AHEAD, pull.KEPT_MINE):
        return "The state here is newer than the code that was pushed, so Loom made no worktree"
    return work_restore.put_back(desk, pulled.run_id, *code)


def _back_document(back: PutBack | str | None) -> dict[str, Any] | None:
    if back is None or isinstance(back, str):
        return None
    said = back.message
    told = {"path": back.path, "branch": back.branch, "base": said.base, "step": said.step, "at": said.at}
    left_out = [{"name": name, "why": why} for name, why in said.left_out]
    return {**told, "machine": said.machine, "left_out": left_out, "notes": list(back.notes)}


def _back_lines(desk: Desk, back: PutBack | str | None) -> list[str]:
    from loomctl.kit import clock

    if back is None or isinstance(back, str):
        return [back] if back else []
    said = back.message
    when = f"{clock.ago(masked_line(said.at, 30))} on {masked_line(said.machine, 60)}"
    step = f" at {masked_line(said.step, 80)}" if said.step else ""
    lines = [f"Put the code into {back.path}, on branch {back.branch}", f"  saved {when}{step}"]
    if said.left_out:
        lines.append("Not in it:")
        lines += _few(f"  {one_line(name, 200)}: {one_line(why, 120)}" for name, why in said.left_out)
    return [*lines, *back.notes, f"To work there: cd {shlex.quote(back.path)}"]


def _pull_all(desk: Desk, there: Mapping[str, str], keep: str, *, as_json: bool) -> int:
    """Take every run, whatever becomes of another; gives the exit code of the worst, two states that differ least."""
    told: list[dict[str, Any]] = []
    codes: list[int] = []
    for run_id in sorted(there):
        found = _tried(desk, run_id, there[run_id], keep)
        if isinstance(found, LoomError):
            codes.append(found.exit_code)
            told.append({"run_id": run_id, "kind": "refused", "error": found.to_dict()})
            if not as_json:
                output.note(f"{one_line(desk.space.store.handle(run_id), 200)}: {found}")
        else:
            told.append(_pulled_document(desk, found))
            if not as_json:
                output.prose("\n".join(_pulled_lines(desk, found)))
        if codes and codes[-1] == ON_INTERRUPT:
            break
    if as_json:
        output.document({"remote": desk.remote.shown, "runs": told})
    elif not there:
        output.text(f"Loom: {desk.remote.shown} has no runs")
    return max(codes, key=lambda code: (code != EXIT_HELD, code), default=EXIT_OK)


def _tried(desk: Desk, run_id: str, commit: str, keep: str) -> Pulled | LoomError:
    """Take one of several runs; what goes wrong with it is its own result."""
    from loomctl.handoff import pull

    again = f"loomctl --debug pull {desk.space.store.handle(run_id)}{desk.remote.option}"
    try:
        return pull.pull(desk, run_id, commit, keep=keep)
    except LoomError as error:
        return error
    except KeyboardInterrupt:
        return LoomError("INTERRUPTED", "interrupted", hint="loomctl runs", exit_code=ON_INTERRUPT)
    except OSError as error:
        return output.in_words(error, again)
    except Exception as error:  # noqa: BLE001 - a bug that one run shows keeps no other from coming
        return output.bug(error, again)


def _meant(desk: Desk, named: str | None, there: Mapping[str, str]) -> str:
    if named is not None:
        found = _named(desk, named, there)
    else:
        current = find.find(desk.space, None).run_id
        found = [current] if current in there and current is not None else list(there)
    if len(found) == 1:
        return found[0]
    if found:
        from loomctl.handoff import copies

        called = sorted(one.handle for one in copies.list_runs(desk) if one.run_id in found)
        listed = "\n".join(f"    {handle}" for handle in called[:20])
        raise LoomError(
            "AMBIGUOUS_RUN",
            f"{desk.remote.shown} has {len(found)} runs that you could mean",
            why=f"name one of these, or pull --all\n{listed}",
            hint=command_line.again(run=called[0]) or f"loomctl pull {called[0]}",
            exit_code=EXIT_NO_RUN,
        )
    shown = desk.remote.shown
    what = f"the remote {shown} has no run {one_line(named, 80)!r}" if named else f"the remote {shown} has no runs"
    why = f"on the machine that has the run, loomctl push{desk.remote.option} puts it there"
    hint = desk.remote.listing if there else f"git ls-remote {desk.remote.read_at}"
    raise LoomError("NO_SUCH_RUN", what, why=why, hint=hint, exit_code=EXIT_NO_RUN)


def _named(desk: Desk, named: str, there: Mapping[str, str]) -> list[str]:
    """Give the runs of a remote that a word may mean, as `runs.store.match` has it of those here."""
    from loomctl.handoff import copies

    end = named.rpartition("-")[2]
    if named in there:
        return [named]
    begun = [run_id for run_id in there if run_id.startswith(named)]
    if len(end) >= ids.MARK:
        begun += [run_id for run_id in there if ids.mark(run_id, len(end)) == end and run_id not in begun]
    return begun or [one.run_id for one in copies.list_runs(desk) if one.handle.startswith(named)]


def _pulled_document(desk: Desk, pulled: Pulled) -> dict[str, Any]:
    told = pulled.message
    return {
        "run_id": pulled.run_id,
        "handle": desk.space.store.handle(pulled.run_id),
        "remote": desk.remote.shown,
        "kind": pulled.kind,
        "saved": pulled.saved,
        "files": pulled.files,
        "bytes": pulled.bytes,
        "pushed": {"by": told.by, "machine": told.machine, "at": told.at} if told is not None else None,
        "outputs": told.outputs if told is not None else None,
        "left_out": [{"name": name, "why": why} for name, why in pulled.left_out],
        "brought": list(pulled.brought),
        "notes": list(pulled.notes),
    }


def _pulled_lines(desk: Desk, pulled: Pulled) -> list[str]:
    from loomctl.handoff import handoff, pull

    store, run_id, saved = desk.space.store, pulled.run_id, pulled.saved
    called, kept = store.handle(run_id), store.handle(saved) if saved is not None else ""
    who = handoff.who(pulled.message)
    brought = [f"Fetched {counted(len(pulled.brought), 'file')} that the run refers to"] if pulled.brought else []
    if pulled.kind == pull.NOTHING:
        return [f"Loom: {called} is up to date with {desk.remote.shown}", *brought, *_taken_up(desk, run_id)]
    if pulled.kind == pull.AHEAD:
        return [f"Loom: {called} is newer here. To push it: loomctl push {called}{desk.remote.option}", *brought]
    if pulled.kind == pull.KEPT_MINE:
        return [
            f"Loom: kept {called}; saved the state of {desk.remote.shown} as {kept}",
            f"  {who}",
            *brought,
            f"To push this state: loomctl push {called}{desk.remote.option}",
            *pulled.notes,
        ]
    lines = [f"Loom: pulled {called} from {desk.remote.shown} ({counted(pulled.files, 'file')})", f"  {who}"]
    if saved is not None:
        why = ", which the pulled one does not contain," if pulled.kind == pull.FORWARD else ""
        lines.append(f"Saved the earlier state{why} as {kept}")
    if pulled.left_out:
        lines.append("Not pulled:")
        lines += _few(f"  {one_line(name, 200)}: {one_line(why, 120)}" for name, why in pulled.left_out)
    lines += pulled.notes
    return [*lines, *_taken_up(desk, run_id)]


def _taken_up(desk: Desk, run_id: str) -> list[str]:
    from loomctl.runs.machine import drivers, run_notes

    store = desk.space.store
    if run_notes.is_known(run_id, store.folder):
        return []
    state = store.read_state(run_id)
    if state["status"] in OVER:
        return [f"It is {state['status']}. To look at it: loomctl show {store.handle(run_id)}"]
    driver = store.held(run_id, state)  # where it came from, within the last half hour
    resume = f"To continue it here: loomctl resume {store.handle(run_id)}"
    return [resume] if driver is None else [f"{drivers.told(driver)} still drives it", f"{resume} --take-over"]
