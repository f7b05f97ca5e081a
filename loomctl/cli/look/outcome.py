"""`loomctl outcome`: what a response would mean, without a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import arguments, output
from loomctl.cli.arguments import json_option
from loomctl.expressions import output_schemas
from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.directives import ROUTING
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.kit.problems import refusal
from loomctl.kit.text.fences import one_line

if TYPE_CHECKING:
    from loomctl.flow.outcomes.directives import Reading

_HELP = "loomctl outcome --help"
_SHOWN = 200


@click.command()
@click.option(
    "--from", "source", default="-", show_default=True, metavar="FILE", help="The response; -: standard input."
)
@click.option(
    "--schema", default=None, metavar="routing|FILE", help="Hold it to the routing schema, or to a JSON Schema."
)
@click.option("--status-json", default=None, metavar="FILE", help="The status.json to fall back on.")
@click.option("--last-file", default=None, metavar="FILE", help="The file touched last, the fallback after that.")
@json_option
def outcome(source: str, schema: str | None, status_json: str | None, last_file: str | None, as_json: bool) -> int:
    """Say what a response would mean as the end of a step: the directive in it, or the object for its schema.

    Nothing is written and no run is needed. Exit code 1 if the response breaks the schema.

    \b
    Examples:
      loomctl outcome --from response.md
      loomctl outcome --from - --schema routing --status-json status.json --json
      loomctl outcome --from response.md --schema schemas/audit.schema.json
    """
    arguments.only_one_from_stdin(source, schema, status_json, last_file, hint=_HELP)
    step: dict[str, Any] = {"kind": "agent", "output_schema": schema}
    if schema is not None and schema != ROUTING:
        step = {**step, "output_schema": f"@{schema}", "schema": _schema(schema)}
    touched = None if last_file is None else _fallback(last_file)
    counts = last_file is None or last_file == arguments.STDIN or last_file.endswith(answers.ENDINGS)
    if not counts:
        ends = " and ".join(answers.ENDINGS)
        output.note(
            f"loomctl: {arguments.source_name(last_file or '')} is not read: of the file touched last {ends} count"
        )
    reading = answers.understood(
        step,
        arguments.read_text(source, hint=_HELP),
        status_json=None if status_json is None else _fallback(status_json),
        last_file=touched if counts else None,
    )
    output.answer(reading.to_dict(), _lines(reading), as_json=as_json)
    return EXIT_FINDINGS if reading.errors else EXIT_OK


def _fallback(source: str) -> str:
    """Read what may stand in for a response; a run reads no more of it either."""
    return arguments.read_text(source, hint=_HELP, largest=answers.LARGEST_SOURCE)


def _schema(path: str) -> dict[str, Any]:
    data = arguments.read(path, hint=_HELP, largest=output_schemas.LARGEST)
    loaded = output_schemas.loaded(data, name=arguments.source_name(path))
    for problem in loaded.problems:
        if problem.severity != "error":
            output.note(f"loomctl: {problem.code}: {problem.message}")
    refused = refusal(
        loaded.problems, what="this schema cannot be used", where=arguments.source_name(path), code="BAD_SCHEMA"
    )
    if refused is not None:
        refused.hint = _HELP if path == arguments.STDIN else trouble.look(path)
        raise refused
    assert loaded.schema is not None
    return loaded.schema


def _lines(reading: Reading) -> list[str]:
    said = reading.to_dict()
    lines = [f"found in: {reading.source}" if reading.found else "no directive found"]
    texts = ("outcome", "failure_reason", "preferred_next_label")
    lines += [f"{key}: {one_line(said[key], _SHOWN)}" for key in texts if said[key] is not None]
    if reading.suggested_next_ids:
        lines.append(f"suggested_next_ids: {one_line(', '.join(reading.suggested_next_ids), _SHOWN)}")
    lines += [f"context {one_line(key, _SHOWN)} = {_brief(value)}" for key, value in reading.context_updates.items()]
    if reading.output is not None:
        lines.append(f"output: {_brief(reading.output)}")
    for kind, found in (("error", reading.errors), ("warning", reading.warnings)):
        lines += [f"{kind}: {one.code} at {one.where or 'the object'}: {one_line(one.message, 400)}" for one in found]
    return lines


def _brief(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False), _SHOWN)
