"""Every command that reads a file which a person names: what it says of one that it cannot read (D52)."""

import os
from typing import NamedTuple

from loomctl.cli import command_line
from loomctl.expressions import output_schemas
from loomctl.flow.outcomes import answers
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE
from loomctl.workflows import workflow_files
from tests.cli.conftest import Cli
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

GOOD = '{"outcome": "succeeded"}'


class Reader(NamedTuple):
    """A command line in which FILE is read. good: what it takes; largest: the most that it reads, in bytes."""

    words: str
    good: str = GOOD
    largest: int = command_line.LARGEST
    of_a_run: bool = False


READERS = [
    Reader("done --response-file FILE", of_a_run=True),
    Reader("context set k --from FILE", of_a_run=True),
    Reader("outcome --from FILE"),
    Reader("outcome --from good --status-json FILE", largest=answers.LARGEST_SOURCE),
    Reader("outcome --from good --last-file FILE", largest=answers.LARGEST_SOURCE),
    Reader("outcome --from good --schema FILE", good="{}", largest=output_schemas.LARGEST),
    Reader("simulate core --outcomes FILE", good="{}", largest=workflow_files.LARGEST_JSON),
    Reader("simulate core --context FILE", good="{}", largest=workflow_files.LARGEST_JSON),
]
every_reader = each("reader", READERS)


def called(scene: Scene, reader: Reader, name: str) -> list[str]:
    scene.write("good", GOOD)
    scene.workflow()
    if reader.of_a_run:
        scene.begin()
    return [name if word == "FILE" else word for word in reader.words.split()]


@every_reader
def test_a_file_and_standard_input_are_read_alike(scene: Scene, cli: Cli, reader: Reader) -> None:
    scene.write("file", reader.good)
    assert cli(*called(scene, reader, "file"), "--json").code == EXIT_OK
    assert cli(*called(scene, reader, "-"), "--json", given=reader.good).code == EXIT_OK


@every_reader
@each("what", ["nothing", "a folder", "a pipe", "a name that is too long"])
def test_a_file_that_cannot_be_read_is_a_matter_of_usage(scene: Scene, cli: Cli, reader: Reader, what: str) -> None:
    name = "y" * 300 if what == "a name that is too long" else "file"
    if what == "a folder":
        (scene.root / "file").mkdir()
    elif what == "a pipe":
        os.mkfifo(scene.root / "file")
    ended = cli(*called(scene, reader, name), "--json")
    said = ended.json["error"]
    assert (ended.code, said["code"], said["where"]) == (EXIT_USAGE, "UNREADABLE", name)
    assert said["hint"].startswith("ls -l ")


@every_reader
@each("source", ["file", "-"])
def test_what_is_too_large_is_said_before_it_is_looked_at(scene: Scene, cli: Cli, reader: Reader, source: str) -> None:
    data = b" " * (reader.largest + 1)
    scene.write("file", data)
    ended = cli(*called(scene, reader, source), "--json", given=data if source == "-" else None)
    said = ended.json["error"]
    assert (ended.code, said["code"], said["where"]) == (EXIT_USAGE, "TOO_LARGE", command_line.source_name(source))
    assert f"{reader.largest:,}" in said["message"]
    assert said["hint"]


@each("words", ["outcome --status-json -", "outcome --from - --schema -", "simulate core --outcomes - --context -"])
def test_standard_input_is_read_but_once(cli: Cli, words: str) -> None:
    ended = cli(*words.split(), "--json", given="{}")
    assert (ended.code, ended.json["error"]["code"]) == (EXIT_USAGE, "USAGE")
