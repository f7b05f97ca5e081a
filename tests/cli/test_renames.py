"""Every command and option that once was is there still, or the changelog says what became of it."""

import json

import click

from loomctl.cli.main import loomctl
from tests.cli.test_help import ALL
from tests.helpers.scenes import CHECKOUT

# What `--help` listed before the commands were made fewer: each command, with its options.
OLD: dict[str, list[str]] = json.loads((CHECKOUT / "tests/cli/old_commands.json").read_text(encoding="utf-8"))
RENAMED = {"loomctl gc": "loomctl clean", "loomctl tidy": "loomctl clean"}
GONE: dict[str, list[str]] = {}


def options(command: click.Command) -> set[str]:
    return {
        name for one in command.params if isinstance(one, click.Option) for name in (*one.opts, *one.secondary_opts)
    }


def test_what_was_there_is_there_or_is_told() -> None:
    """A command under its name or its new one, with every option that it had; what is not is listed here."""
    now = {"loomctl": loomctl, **ALL}
    gone: dict[str, list[str]] = {}
    for name, known in OLD.items():
        command = now.get(RENAMED.get(name, name))
        missing = ["the command"] if command is None else sorted(set(known) - options(command))
        if missing:
            gone[name] = missing
    assert gone == GONE
    assert [name for name in RENAMED if name in now] == [], "a name that is back"


def test_the_changelog_tells_of_each() -> None:
    lines = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    for old, new in RENAMED.items():
        words = [f"`{name.removeprefix('loomctl ')}`" for name in (old, new)]
        assert any(all(word in line for word in words) for line in lines), old
