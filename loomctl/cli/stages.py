"""`loomctl show --stages`, `show RUN STAGE`, `show --why`: a run's stages, all of one, and how the run came to it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from loomctl.changes import stage_changes
from loomctl.cli import command_line, output
from loomctl.cli.command_line import json_option, run_argument
from loomctl.kit import clock, files
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_OK, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import command_runs, stages
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.store.match import match
from loomctl.workflows import gates, routing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.runs.project import Workspace
    from loomctl.runs.stages import Record
    from loomctl.runs.store.store import Run

_WEIGHED = 120  # UTF-16 units of a reason or a value
_LAST_LINES = 20  # of command.log
_SHOWN = 1 << 20  # bytes of a file that are shown; `--file` gives all of it
_HEADER = [
    *("RANK", "STEP", "VISIT", "STATUS", "STARTED", "TOOK", "MODEL", "TOKENS IN", "OUT", "FILES", "ASSETS", "REPAIRS"),
    *("NEXT", "NOTE"),
]
_SPARE = (7, 8, 6, 10, 11, 9, 2)  # columns that go first where a line is too narrow: tokens, model, files, visit
_ALWAYS = 6  # columns that stand there also where they are empty
_WIDE, _BESIDE_TASKS = 100, (2, 4, 5)  # columns of a screen; what goes on a narrower one in a list: visit, start, time


@click.command("stages")
@run_argument
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@json_option
def stages_command(run: str | None, last: int | None, as_json: bool) -> int:
    """List the steps done so far: times, outcomes, models, tokens.

    A step that ran again has several rows. RANK is the number that `loomctl show`, `rewind` and `fork` take. TOKENS IN
    leaves out tokens from the cache. Loom omits empty columns. --json has all columns, with times in UTC.

    \b
    Examples:
      loomctl show --stages
      loomctl show --stages --last 10
      loomctl show --stages shop-258 --json
    """
    space = command_line.space()
    run_id = command_line.shown_run_id(space, run)
    found = space.store.read(run_id, to_show=True)
    every = stages.entries(found)
    records = stages.of_run(found, last)
    if as_json:
        told = {"total": len(every), "stages": [_document(record) for record in records]}
        output.document({"run_id": run_id, "handle": found.handle, **told})
        return EXIT_OK
    if not records:
        output.text(f"{found.handle}: no step has begun yet")
        return EXIT_OK
    rows, always = [_row(record) for record in records], _ALWAYS
    if output.columns() < _WIDE and any(visits.task_of(record.entry) for record in records):
        always = 2  # so that there is room for the tasks' names
        rows = [["" if at in _BESIDE_TASKS else cell for at, cell in enumerate(row)] for row in rows]
    table = output.table(_HEADER, rows, always=always, spare=_SPARE)
    summary = output.beside("", f"{found.handle}: {_summary(every, len(records))}")
    output.prose("\n".join([table, "", *_unknown(found.handle, records), *summary]))
    return EXIT_OK


def _summary(every: Sequence[Mapping[str, Any]], shown: int) -> str:
    counts: dict[str, int] = {}
    for entry in every:
        status = one_line(str(entry["status"]), 40)
        counts[status] = counts.get(status, 0) + 1
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    left_out = f"the last {shown:,} of " if shown < len(every) else ""
    return f"{left_out}{counted(len(every), 'step')}: {told}"


def _unknown(handle: str, records: Sequence[Record]) -> list[str]:
    unknown = sum(1 for record in records if record.status.get("files_unknown") and not record.files_touched)
    if not unknown:
        return []
    why = f"To see why: loomctl show --diff {handle}"
    return output.beside("", f"Loom does not know what {counted(unknown, 'step')} changed in your files. {why}")


def _row(record: Record) -> list[str]:
    entry, tokens = record.entry, record.tokens
    notes = [
        record.command,
        visits.task_line(visits.task_of(entry)),
        record.reason,
        f"! {record.trouble.what}" if record.trouble else "",
    ]
    return [
        f"{entry['rank']:03}" if type(entry.get("rank")) is int else "-",
        one_line(str(entry["step_id"]), 40),
        one_line(str(entry.get("visit") or ""), 8),
        one_line(visits.how_it_ended(entry), 24),
        output.when(entry.get("started_at")),
        took(record.seconds),
        one_line(", ".join(record.models), 32),
        f"{tokens[0]:,}" if tokens else "",
        f"{tokens[1]:,}" if tokens else "",
        f"{record.files_touched:,}" if record.files_touched else "",
        f"{len(record.items('assets')):,}" if record.items("assets") else "",
        f"{record.repairs:,}" if record.repairs else "",
        _way(entry),
        masked_line("; ".join(dict.fromkeys(filter(None, notes))), 60),
    ]


_SAME = (visits.RETRY, visits.NEXT_TASK)


def _way(entry: Mapping[str, Any], limit: int = 60) -> str:
    """Tell where the run went on, where that is not the next in order, nor the same again; empty for others."""
    way = entry.get("next")
    how = routing.how(way) if isinstance(way, dict) and way.get("reason") not in _SAME else ""
    if not how or not isinstance(way, dict):
        return ""
    return masked_line(f"{way.get('step_id') or 'end'} {how}", limit)


def took(seconds: int | None) -> str:
    """Give a length of time for people: `4s`, `3m 12s`, `2h 05m`, `3d 04h`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    if seconds < 86400:
        return f"{seconds // 3600}h {seconds % 3600 // 60:02}m"
    return f"{seconds // 86400}d {seconds % 86400 // 3600:02}h"


def _document(record: Record) -> dict[str, Any]:
    entry, usage = record.entry, record.section("usage")
    return {
        **{key: entry.get(key) for key in ("rank", "stage", "step_id", "phase", "visit", "status")},
        "reopened": bool(entry.get("reopened")),
        **{key: entry.get(key) for key in ("started_at", "completed_at")},
        "attempt": entry.get("attempt", 1),
        "task": visits.short_task(entry),
        "next": entry.get("next"),
        "error": entry.get("error"),
        "seconds": record.seconds,
        "failure_reason": record.of("failure_reason"),
        "note": record.of("note") or None,
        "usage": dict(usage) or None,
        "files_touched": record.files_touched,
        "assets": len(record.items("assets")),
        "repairs": record.repairs,
        "command": dict(record.section("command")) or None,
        "trouble": record.trouble.to_dict() if record.trouble else None,
    }


# ---- One stage.


def show_stage(found: Run, named: str, *, file: str | None, as_json: bool) -> int:
    """Show all of one stage, or print one of its files. Raises NO_SUCH_STAGE and NO_SUCH_FILE."""
    entry = stages.find_stage(found, named)
    folder = stages.folder(found.folder, entry["stage"])
    names = stages.names(found.folder, entry["stage"])
    logs = _evidence_logs(folder)
    if file is not None:
        return _print(found, entry["stage"], file, [*names, *logs])
    record = stages.of_visit(found, entry)
    parts, sizes = {}, {}
    for name in names:
        text, sizes[name] = _text(os.path.join(folder, name))
        if text is not None:
            parts[name] = text
    if as_json:
        trouble = record.trouble.to_dict() if record.trouble else None
        told = {
            "run_id": found.run_id,
            "handle": found.handle,
            "stage": entry["stage"],
            "entry": dict(entry),
            "trouble": trouble,
        }
        told |= {"status": dict(record.status) or None, "folder": folder, "files": parts, "sizes": sizes}
        output.document(told)
        return EXIT_OK
    blocks = ["\n".join(_lines(found, record))]
    shown = [name for name in names if _is_shown(name) and name in parts]
    blocks += [f"--- {name} ---\n{_cut(name, parts[name], sizes[name])}" for name in shown]
    others = [f"{name} ({counted(sizes[name], 'byte')})" for name in names if not _is_shown(name)] + logs
    if others:
        blocks.append(
            f"Other files: {', '.join(others)}. To print one: loomctl show {found.handle} {named} --file NAME"
        )
    output.text("\n\n".join(block.rstrip("\n") for block in blocks))
    return EXIT_OK


def _print(found: Run, stage: str, name: str, names: Sequence[str]) -> int:
    if name not in names:
        what = f"stage {stage} has no file {name!r:.80}"
        why = f"its files are: {', '.join(names) or 'none'}"
        hint = f"loomctl show {found.handle} {stage}"
        where = stages.folder(found.folder, stage)
        raise LoomError("NO_SUCH_FILE", what, where=where, why=why, hint=hint, exit_code=EXIT_NO_RUN)
    path = os.path.join(stages.folder(found.folder, stage), name)
    files.refuse_links(found.folder, path)
    with os.fdopen(files.open_regular(path), "rb") as source:
        output.raw(iter(lambda: source.read(1 << 20), b""))
    return EXIT_OK


def _evidence_logs(folder: str) -> list[str]:
    """Name the outputs of commands that ran as evidence, in a stage's folder: `evidence-1.2/command.log`."""
    try:
        held = [name for name in os.listdir(folder) if name.startswith("evidence-")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    logs = [f"{name}/{command_runs.LOG}" for name in held if not os.path.islink(os.path.join(folder, name))]
    return sorted((name for name in logs if os.path.isfile(os.path.join(folder, name))), key=_numbers)


def _numbers(name: str) -> list[int]:
    parts = name.partition("/")[0].removeprefix("evidence-").split(".")
    return [int(part) if part.isascii() and part.isdigit() and len(part) < 10 else 0 for part in parts]


def _text(path: str) -> tuple[str | None, int]:
    """Give a file's text, of a long one the end, and its size in bytes; None where it cannot be read as a text."""
    try:
        descriptor = files.open_regular(path)
    except OSError:
        return None, 0
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, _SHOWN, max(0, size - _SHOWN)).decode("utf-8", "replace"), size
    finally:
        os.close(descriptor)


def _is_shown(name: str) -> bool:
    """Tell which files are shown in full; the status is told in words, changes by their files."""
    if ".undone-" in name:
        return False
    whole = (stages.PROMPT, stages.RESPONSE, stages.CANDIDATE, command_runs.LOG)
    return name in whole or (name.startswith((stages.REPAIRED, stages.ASKED)) and name.endswith(".md"))


def _cut(name: str, text: str, size: int) -> str:
    if name == command_runs.LOG:
        lines = text.splitlines()
        last = "\n".join(lines[-_LAST_LINES:])
        return last if len(lines) <= _LAST_LINES and size <= _SHOWN else f"… {size:,} bytes, the last lines:\n{last}"
    return text if size <= _SHOWN else f"… {size:,} bytes, the end:\n{text}"


def _lines(found: Run, record: Record) -> list[str]:
    entry = record.entry
    reason = f": {_words(record.reason)}" if record.reason else ""
    spent = f", took {took(record.seconds)}" if record.seconds is not None else ""
    trouble = record.trouble
    keys = ", ".join(str(key) for key in record.section("context_updates"))
    told: list[tuple[str, str]] = [
        ("stage", f"{record.stage}: {one_line(str(entry['step_id']), 120)}{_again(entry)}"),
        ("task", _words(visits.task_line(visits.task_of(entry)).removeprefix("task "))),
        ("status", f"{one_line(visits.how_it_ended(entry), 40)}{reason}"),
        ("rejected", _rejected(found, entry)),
        ("started", f"{output.when(entry.get('started_at')) or '-'}{spent}"),
        ("next", _way(entry, 200)),
        ("!", f"{trouble.what}: {one_line(trouble.where, 300)}" if trouble is not None else ""),
        *_answer(record),
        ("output", _words(_json(record.status.get("output")))),
        ("context", _words(keys)),
        *_changes(found, record),
        ("model", _model(record)),
        ("command", _command(record)),
        *_evidence(found, record),
        *((kind[:-1], _problem(one)) for kind in ("errors", "warnings") for one in record.items(kind)),
    ]
    return [f"{label} {text}" if label == "!" else f"{label:<9} {text}" for label, text in told if text]


def _again(entry: Mapping[str, Any]) -> str:
    count = entry.get("visit") if visits.task_of(entry) is None else None
    return f", {visits.nth(count)}" if isinstance(count, int) and count > 1 else ""


def _rejected(found: Run, entry: Mapping[str, Any]) -> str:
    said = gates.refusal_of(found.state, entry)
    by, note = (str(said.get(key) or "") for key in ("by", "note"))
    return _words(f"by {by or 'the user'}{f': {note}' if note else ''}") if said else ""


def _words(text: str) -> str:
    return masked_line(text, 300)


def _json(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _model(record: Record) -> str:
    usage = record.section("usage")
    if not record.tokens:
        return ""
    into, out = record.tokens
    held = usage.get("cache_read_input_tokens")
    cached = f" (and {held:,} from the cache)" if type(held) is int and held > 0 else ""
    more = ", without what another session used" if usage.get("partial") is True else ""
    models = one_line(", ".join(record.models), 80) or "unknown model"
    return f"{models}, {into:,} tokens in{cached}, {out:,} out{more}"


def _command(record: Record) -> str:
    command = record.section("command")
    if not command:
        return ""
    spent = command.get("duration_ms")
    time = f", {spent / 1000:.1f} s" if isinstance(spent, (int, float)) else ""
    return f"{_words(str(command.get('script')))}: {record.command}{time}"


def _evidence(found: Run, record: Record) -> Iterator[tuple[str, str]]:
    is_well = record.entry["status"] in ("succeeded", "partially_succeeded")
    if is_well and frozen_plan.is_untested(found.plan, str(record.entry["step_id"])):
        yield "evidence", "none: Loom knew no test command, so it ran no tests"
    listed = record.section("evidence").get("items")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            mark, why, sha256 = "✓" if one.get("passed") is True else "✗", one.get("why"), one.get("sha256")
            told = f"{mark} {one.get('kind')} {one.get('name')}{f': {why}' if why else ''}"
            yield "evidence", _words(told) + (f" ({sha256[:12]}…)" if isinstance(sha256, str) else "")


def _problem(one: object) -> str:
    told = one if isinstance(one, dict) else {"message": one}
    code = " ".join(str(told[key]) for key in ("code", "where") if told.get(key))
    return _words(": ".join(filter(None, (code, str(told.get("message") or "")))))


def _answer(record: Record) -> Iterator[tuple[str, str]]:
    source, said = record.status.get("response_source"), record.section("directive")
    if isinstance(source, str):
        repaired = f", after {counted(record.repairs, 'repair')}" if record.repairs else ""
        yield "response", f"{'none' if source == 'none' else f'from {one_line(source, 40)}'}{repaired}"
    if said:
        told = [f"{key} {_words(str(said[key]))}" for key in ("outcome", "preferred_next_label") if said.get(key)]
        suggested = said.get("suggested_next_ids")
        if isinstance(suggested, list) and suggested:
            told.append(f"suggested_next_ids {_words(', '.join(map(str, suggested)))}")
        sources = dict.fromkeys(one_line(str(said[key]), 200) for key in ("source", "file") if said.get(key))
        yield "directive", f"from {' '.join(sources) or 'nothing'}: {'; '.join(told) or 'only context'}"


def _changes(found: Run, record: Record) -> Iterator[tuple[str, str]]:
    try:
        (told,) = stage_changes.of_run(found, record.stage)
    except LoomError as error:
        yield "!", f"{error.what}: {one_line(error.where, 300)}"
        return
    if told.total:
        yield "files", f"{told.total:,}" + (f" ({told.unknown})" if told.unknown else "")
    elif told.unknown:
        yield "files", f"unknown: {_words(told.unknown)}"
    for one in told.files[:20]:
        added, removed = one.get("added"), one.get("removed")
        lines = f" +{added} -{removed}" if type(added) is int and type(removed) is int else ""
        path = one_line(str(one["path"]).replace("\n", "␤"), 200)
        yield "", f"{path} ({one_line(str(one.get('change') or 'by a tool'), 40)}){lines}"
    if told.total > 20:
        yield "", f"and {told.total - 20:,} more: loomctl show --diff {found.handle} {record.stage} --stat"
    if told.assets:
        size = counted(sum(one.bytes for one in told.assets), "byte")
        yield "assets", f"{len(told.assets):,}, {size}"
    if told.passed_over:
        yield "", f"{len(told.passed_over):,} not captured: loomctl show --assets {found.handle}"


# ---- Why a run came to a stage.


@click.command()
@click.argument("named", metavar="[STEP|ARTIFACT]", required=False)
@run_argument
@json_option
def why(named: str | None, run: str | None, as_json: bool) -> int:
    """Explain why a run came to a step, or loads an artifact.

    For a STEP it shows the step before it, the transition that led there, and why no other did. STEP is an id
    (build/fix, the last time), which time (build/fix@2), a number, or the step that comes next. Without one it explains
    the current step; so it does where RUN stands alone.

    For an ARTIFACT it shows its triggers, its condition with the present values, and when Loom last loaded it.

    \b
    Examples:
      loomctl show --why
      loomctl show --why review
      loomctl show --why build/fix@2
      loomctl show shop-258 --why 007 --json
      loomctl show --why spec
    """
    from loomctl.views import explain

    space = command_line.space()
    if named and run and _is_run(space, named) and not _is_run(space, run):  # as in `show RUN STAGE`
        named, run = run, named
    elif named and run is None and _is_run(space, named, in_full=True):
        named, run = None, named
    run_id = command_line.shown_run_id(space, run)
    found = space.store.read(run_id, to_show=True)
    told = explain.why(space, found, named)
    lines = _artifact_lines(told) if "artifact_id" in told else [*_way_lines(told), *_driven_lines(told)]
    output.answer({"run_id": run_id, "handle": found.handle, **told}, lines, as_json=as_json)
    return EXIT_OK


def _is_run(space: Workspace, word: str, *, in_full: bool = False) -> bool:
    """Tell whether a word means a run. in_full: as its id or its handle, and not as the beginning of one."""
    try:
        run_id = match(space.store, word)
    except LoomError:
        return False
    return not in_full or word in (run_id, space.store.handle(run_id))


def _way_lines(told: Mapping[str, Any]) -> list[str]:
    after, is_ahead = told["after"], told["visit"] is None
    name = told["step_id"] if is_ahead else f"{told['step_id']}@{told['visit']}"
    if after is None:
        return [f"The run began with {name}, the first step of its plan."]
    ended = f"{after['step_id']}@{after['visit']}, which ended {one_line(str(after['status']), 40)}"
    if not told["way"]:
        return [f"{name} came after {ended}, because somebody resumed the run there."]
    how = routing.how(told["way"], at=lambda stamped: clock.day_and_time(stamped)[1]) or "the next step in order"
    came = "comes next" if is_ahead else "came"
    lines = output.beside("", f"{name} {came} after {ended}, {masked_line(how, _WEIGHED)}")
    rows = [_transition_row(one) for one in told["weighed"]]
    return [*lines, "", output.table(["LEADS TO", "LABEL", "CONDITION", "IS", "WHY"], rows)] if rows else lines


def _driven_lines(told: Mapping[str, Any]) -> list[str]:
    """Tell what the assistant was refused in a step, and why nobody drives it on."""
    denied, drive = told["denied"], told["drive"]
    lines = output.beside("", f"The assistant was refused {masked_line('; '.join(denied), 300)}.") if denied else []
    ended = f"loomctl drive ended {output.when(drive['at'])}: {masked_line(drive['why'], 300)}" if drive else ""
    return [*lines, *(output.beside("", ended) if ended else [])]


def _transition_row(one: Mapping[str, Any]) -> list[str]:
    truth = "" if one.get("truth") is None else "true" if one["truth"] else "false"
    texts = [masked_line(str(one.get(key) or ""), 60) for key in ("to", "label", "condition")]
    return [*texts, truth, masked_line(str(one.get("why") or ""), _WEIGHED)]


def _artifact_lines(told: Mapping[str, Any]) -> list[str]:
    phase = f" in phase {told['phase']}" if told["phase"] else ""
    lines = [f"Loom loads {told['artifact_id']} at {', '.join(told['triggers'] or ()) or 'no trigger'}{phase}"]
    if told["condition"]:
        lines.append(f"if {masked_line(told['condition'], _WEIGHED)}, which is {told['holds']} now")
        lines += [f"  {path} = {masked_line(json.dumps(value), _WEIGHED)}" for path, value in told["values"].items()]
    lines += [masked_line(text, 400) for text in told["warnings"]]
    last = told["last"]
    if last is None:
        return [*lines, "this run has not loaded it yet"]
    fired = f", trigger {last['fired']}" if last["fired"] else ""
    became = "unchanged" if last["became"] == "fresh" else last["became"]
    told_last = f"last {output.when(last['at'])}, {masked_line(last['event'], 80)}{fired}: {became}"
    return [*lines, *output.beside("", told_last)]
