"""`loomctl outcome`: what a response would mean, without a run."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import printing
from loomctl.cli.options import json_option
from loomctl.disk import files, output_schemas, trouble
from loomctl.engine import outcomes
from loomctl.model.directives import ROUTING
from loomctl.model.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.model.fences import one_line
from loomctl.model.problems import refusal

if TYPE_CHECKING:
    from loomctl.model.directives import Reading

LARGEST = 16 << 20
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
    step: dict[str, Any] = {"kind": "agent", "output_schema": schema}
    if schema is not None and schema != ROUTING:
        step = {**step, "output_schema": f"@{schema}", "schema": _schema(schema)}
    reading = outcomes.understood(
        step,
        _text(source),
        status_json=None if status_json is None else _text(status_json),
        last_file=None if last_file is None else _text(last_file),
    )
    if as_json:
        printing.document(reading.to_dict())
    else:
        printing.text("\n".join(_lines(reading)))
    return EXIT_FINDINGS if reading.errors else EXIT_OK


def _schema(path: str) -> dict[str, Any]:
    loaded = output_schemas.load_file(path)
    for problem in loaded.problems:
        if problem.severity != "error":
            printing.note(f"loomctl: {problem.code}: {problem.message}")
    refused = refusal(loaded.problems, what="this schema cannot be used", where=path, code="BAD_SCHEMA")
    if refused is not None:
        refused.hint = trouble.look(path)
        raise refused
    assert loaded.schema is not None
    return loaded.schema


def _text(path: str) -> str:
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else files.read_bytes(path, limit=LARGEST)
    except OSError as error:
        raise LoomError(
            "UNREADABLE",
            "the file cannot be read",
            where=path,
            why=error.strerror or str(error),
            hint=trouble.look(path),
            exit_code=EXIT_USAGE,
        ) from None
    if len(data) > LARGEST:
        raise LoomError(
            "TOO_LARGE",
            f"a response has at most {LARGEST:,} bytes",
            where="standard input",
            hint="loomctl outcome --help",
            exit_code=EXIT_USAGE,
        )
    return files.text_of(data, "replace")


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
