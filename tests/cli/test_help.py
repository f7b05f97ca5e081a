"""What a person reads: help with examples, and no `loomctl …` line in any text that would not be understood."""

import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from loomctl.cli.main import loomctl
from loomctl.cli.verbs import COMMANDS, FACE, RENAMED, VIEW_COMMANDS, current, joined
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
    for word in [*group.list_commands(context), *(VIEW_COMMANDS if group is loomctl else ())]:
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
    words = joined([*words[1:], "--help"] if words[:1] == ["help"] else words)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        called = command.get_command(context, words[0])
        if called is None:
            if any(isinstance(one, click.Argument) for one in command.params):
                break
            raise click.UsageError(f"no command {words[0]!r}")
        command = called
        words.pop(0)
    if words in (["--help"], ["--version"], ["--debug"], ["--help", "--all"]):
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
    if name == "loomctl debug hook":  # for the files in hooks/, not for people
        return
    takes_words = any(isinstance(one, click.Argument) for one in ALL.get(name, loomctl).params)
    assert len(examples) >= 2 or not takes_words, "two examples, unless there is nothing to be said behind it"
    own = [line for line in examples if line.startswith(f"{name} ") or name in (line, "loomctl")]
    if name != "loomctl plugin path":  # its example is a host's command line
        assert own or name in ("loomctl plugin", "loomctl debug state", "loomctl runs list"), ended.stdout
    for line in examples:
        understood(line)


@each("path", TEXTS)
def test_every_line_in_a_text_is_understood(path: Path) -> None:
    for line in lines_of(path):
        understood(line)


def test_lines_are_found_and_the_check_of_them_can_fail() -> None:
    found = {path.name: lines_of(path) for path in TEXTS}
    assert "loomctl install --remove" in lines_of(CHECKOUT / "README.md")
    assert "loomctl show" in found["core.yaml"]
    assert "loomctl resume shop-258" in lines_of(CHECKOUT / "skills" / "loom-resume" / "SKILL.md")
    assert found["run.md"]
    for line in (
        "loomctl nonsense",
        "loomctl done --nonsense",
        "loomctl done --outcome maybe",
        "loomctl debug schema x",
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
    assert "Every day:" in cli().ends(2).stdout
    promised = (
        "run next done undo resume pause cancel approve reject choose trust prime-context runs show sessions check "
        "paths clean demo plugin doctor steps status statusline debug"
    )
    assert {f"loomctl {word}" for word in promised.split()} <= set(ALL)
    assert {f"loomctl runs {word}" for word in ("list", "rm", "archive", "restore")} <= set(ALL)
    assert {"loomctl steps show", "loomctl debug blob get"} <= set(ALL)
    assert {"loomctl debug state show", "loomctl debug state restore"} <= set(ALL)


def test_the_help_is_a_screen_of_groups_with_whole_summaries(cli: Cli) -> None:
    """At most 28 verbs, none of whose summaries is cut at 80 columns; `--all` has every verb."""
    for words, verbs in (
        (["--help"], [name for places in FACE.values() for name in places]),
        (["--help", "--all"], list(COMMANDS)),
        (["help", "--all"], list(COMMANDS)),
    ):
        told = cli(*words).ends().stdout
        assert max(map(len, told.splitlines())) <= 80
        listed = re.findall(r"^  ([a-z-]+)  +([A-Z].*)$", told.partition("Every day:")[2], re.MULTILINE)
        assert sorted(name for name, _ in listed) == sorted(verbs)
        for name, summary in listed:
            assert inspect.cleandoc(ALL[f"loomctl {name}"].help or "").startswith(summary)
            assert summary.endswith(".")
    assert sum(map(len, FACE.values())) <= 28


def test_help_is_also_asked_for_by_its_name(cli: Cli) -> None:
    for words, same in (
        ([], []),
        (["done"], ["done"]),
        (["steps", "show"], ["steps", "show"]),
        (["show", "--diff"], ["show", "--diff"]),
    ):
        assert cli("help", *words).ends().stdout == cli(*same, "--help").stdout


def test_a_view_is_found_wherever_its_option_stands(cli: Cli) -> None:
    for words in (["show", "--stages", "shop"], ["show", "shop", "--stages"]):
        assert joined(words) == ["show --stages", "shop"]
    assert joined(["show", "--", "--stages"]) == ["show", "--", "--stages"]
    for verb, *flags in (
        ["show", "--stages", "--diff", "--assets", "--why"],
        ["steps", "--savings", "--history"],
        ["prove", "--log"],
    ):
        told = cli(verb, "--help").ends().stdout
        assert all(f"  {flag}" in told for flag in flags)


def test_a_verb_that_is_not_there_is_answered_with_the_nearest(cli: Cli) -> None:
    """By what it is called now."""
    for word, meant in (("nxet", "'next'"), ("stagse", "'show --stages'"), ("savngs", "'steps --savings'")):
        assert meant in cli(word).ends(2).stderr
    assert cli("debug", "shema").ends(2).stderr.splitlines() == [
        "loomctl: USAGE: No such command 'shema'. (Did you mean 'schema'?)", "  hint: loomctl debug --help",
    ]  # fmt: skip


# What `--help` listed before the commands were made fewer: each command, with its options.
OLD: dict[str, list[str]] = json.loads((CHECKOUT / "tests/cli/old_commands.json").read_text(encoding="utf-8"))
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
        words = current(name.split()[1:])[0] if name != "loomctl hook" else ["debug", "hook"]
        command = now.get(" ".join(["loomctl", *words]))
        missing = ["the command"] if command is None else sorted(set(known) - options(command))
        if missing:
            gone[name] = missing
    assert gone == GONE
    assert [name for name in RENAMED if f"loomctl {name}" in now] == [], "a name that is back"


def test_the_changelog_tells_of_each() -> None:
    lines = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    for old, new in RENAMED.items():
        words = [f"`{name}`" for name in (old, new)]
        assert any(all(word in line for word in words) for line in lines), old
