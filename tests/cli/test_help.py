"""What a person reads: help with examples, and no `loomctl …` line in any text that would not be understood."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from loomctl.cli.main import COMMANDS, loomctl
from tests.cli.conftest import Cli
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

TEXTS = sorted(
    [
        CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("skills/*/SKILL.md"),
        *CHECKOUT.glob("commands/*.md"), *CHECKOUT.glob("config/workflows/*.yaml"),
    ]
)  # fmt: skip
SOURCES = sorted(CHECKOUT.glob("loomctl/**/*.py"))


def commands(group: click.Group, name: str = "loomctl") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for word in group.commands or COMMANDS:
        command = group.get_command(context, word)
        assert command is not None
        yield f"{name} {word}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")


ALL = dict(commands(loomctl))


def understood(line: str) -> None:
    """Parse a command line as far as that goes without running it. Raises click's errors."""
    bare = re.split(r"<<| < |[|;#]|&&|\b2?>(?!=)|>(?!=)| {2,}", line.replace("->", "-"))[0]
    words = shlex.split(bare)[1:]
    command: click.Command = loomctl
    context = click.Context(loomctl, info_name="loomctl")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        called = command.get_command(context, words[0])
        if called is None:
            if any(isinstance(one, click.Argument) for one in command.params):
                break
            raise click.UsageError(f"no command {words[0]!r}")
        command = called
        words.pop(0)
    if words in (["--help"], ["--version"], ["--debug"]):
        return
    command.make_context(command.name, [word for word in words if word != "--arguments-from-stdin"], parent=context)


def lines_of(path: Path) -> list[str]:
    """Give every `loomctl …` of a text: in code spans, in code blocks, in JSON strings."""
    text = path.read_text(encoding="utf-8").replace("\\n", "\n").replace('\\"', '"')
    spans = [span.strip() for span in re.findall(r"`([^`\n]+)`", text)]
    block = [line.strip().removeprefix("$ ").removeprefix("./bin/") for line in text.splitlines()]
    found = [line for line in (*spans, *block) if re.match(r"loomctl [a-z-]", line) and not line.endswith(("`",))]
    return [line.replace("…", "WORD").replace("[", "").replace("]", "") for line in found if "` " not in line]


@each("name", ["loomctl", *ALL])
def test_every_command_has_help_with_an_example(cli: Cli, name: str) -> None:
    ended = cli(*name.split()[1:], "--help").ends()
    examples = [line.strip() for line in ended.stdout.splitlines() if line.strip().startswith("loomctl ")]
    if name == "loomctl hook":  # for hooks.json, not for people
        return
    own = [line for line in examples if line.startswith(f"{name} ") or name in (line, "loomctl")]
    if name != "loomctl plugin path":  # its example is a host's command line
        assert own or name in ("loomctl plugin", "loomctl state", "loomctl runs list"), ended.stdout
    for line in examples:
        understood(line)


@each("path", TEXTS)
def test_every_line_in_a_text_is_understood(path: Path) -> None:
    for line in lines_of(path):
        understood(line)


def test_lines_are_found_and_the_check_of_them_can_fail() -> None:
    found = {path.name: lines_of(path) for path in TEXTS}
    assert "loomctl runs rm RUN" in lines_of(CHECKOUT / "README.md")
    assert "loomctl show" in found["core.yaml"]
    assert "loomctl resume shop-258" in lines_of(CHECKOUT / "skills" / "resume" / "SKILL.md")
    assert found["run.md"]
    for line in (
        "loomctl nonsense",
        "loomctl done --nonsense",
        "loomctl done --outcome maybe",
        "loomctl schema x",
        "loomctl runs x",
    ):
        with pytest.raises(click.UsageError):
            understood(line)


HINTS = re.compile(r'hint=f?(?:"(loomctl [^"]*)"|\'(loomctl [^\']*)\')')


@each("path", SOURCES)
def test_every_hint_can_be_pasted(path: Path) -> None:
    """A hint that begins with a command is one (D52)."""
    for match in HINTS.finditer(path.read_text(encoding="utf-8")):
        hint = re.sub(r"\{[^}]*\}", "shop-258", match[1] or match[2])
        if not hint.startswith("loomctl shop-258"):  # the verb is the caller's own
            understood(hint)


def test_a_bare_loomctl_shows_its_help_and_every_promised_command_is_there(cli: Cli) -> None:
    assert "Commands:" in cli().ends(2).stdout
    promised = (
        "run next done undo resume pause cancel approve reject choose trust prime-context runs show sessions check "
        "schema paths preamble state clean demo plugin hook doctor steps history reduce savings blob "
        "status statusline"
    )
    assert {f"loomctl {word}" for word in promised.split()} <= set(ALL)
    assert {f"loomctl runs {word}" for word in ("list", "rm", "archive", "restore")} <= set(ALL)
    assert {"loomctl steps show", "loomctl blob get"} <= set(ALL)
    assert {"loomctl state show", "loomctl state restore"} <= set(ALL)


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
