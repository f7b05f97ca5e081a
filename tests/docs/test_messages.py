"""What Loom says to people and to the assistant is plain: each room of the catalogue of messages keeps the rules."""

from pathlib import Path

import pytest

from tests.docs import messages
from tests.docs.messages import Message


@pytest.mark.parametrize("room", messages.rooms())
def test_a_room_speaks_plainly(room: str) -> None:
    """No word of our insides, no sentence of more than 25 words, none that begins without its subject."""
    assert messages.of(room)
    broken = [str(one) for one in messages.faults(messages.of(room))]
    assert not broken, "\n".join(broken)


def test_no_message_is_outside_the_rooms() -> None:
    assert {one.room for one in messages.catalogue()} == {*messages.rooms()}


def test_every_exception_is_still_needed() -> None:
    unused = {*messages.EXCEPTIONS} - {messages.excepted(one) for one in messages.catalogue()}
    assert not unused


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("raise LoomError('A_CODE', f'{name} is gone', why='nobody has it')", "what", "X is gone"),
        ("yield Finding(FAIL, f'{name} is gone', 'ls')", "what", "X is gone"),
        ("note.warn('A_CODE', 'key', 'it is gone' if gone else 'it is here')", "what", "it is here"),
        ("what, why = 'it is gone', f'{who} took it'", "why", "X took it"),
        ("hint = 'loomctl run' if new else f'loomctl resume {name}'", "hint", "loomctl resume X"),
        ("say('One.' + f' Two of {count}.')", "text", "One. Two of X."),
        ("LINE = 'the run {handle} is over'", "text", "the run X is over"),
        ("say(counted(len(held), 'visit'))", "text", "X visits"),
        ("say(f'{head}: {\"not here\" if gone else one}')", "text", "not here"),
        ("@cli.command('go')\ndef go():\n    '''Go on with it.'''", "help", "Go on with it."),
        ("@option('--on', help='Where to go on.')\ndef go():\n    pass", "help", "Where to go on."),
    ],
)
def test_the_catalogue_finds_each_way_to_say_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, kind: str, text: str
) -> None:
    file = tmp_path / "loomctl" / "room" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(source, encoding="utf-8")
    monkeypatch.setattr(messages, "CHECKOUT", tmp_path)
    assert (kind, text) in [(one.kind, one.text) for one in messages.in_module(file)]


@pytest.mark.parametrize(
    "source",
    [
        "'''A docstring of two words.'''",
        "pattern = re.compile(r'one or two')",
        "value = texts['one two']",
        "found = text.startswith('one two')",
        "found = 'one two' in text",
    ],
)
def test_what_nobody_reads_is_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    file = tmp_path / "loomctl" / "room" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(source, encoding="utf-8")
    monkeypatch.setattr(messages, "CHECKOUT", tmp_path)
    assert not list(messages.in_module(file))


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [
        ("text", "Packing slip (X): X loaded", "a word of our insides"),
        ("why", "the lease is held by X", "a word of our insides"),
        ("text", "X loaded, X fresh", "fresh as a state"),
        ("text", "X is closing", "closing as a state"),
        ("text", "the fence was left open", "a fence of ours"),
        ("why", "no stage has begun yet", "stage where step will do"),
        ("text", "What was here is saved as X.", "a sentence without a subject"),
        ("what", "word " * 17, "over 80 columns"),
        ("text", "It goes on. " + "word " * 26, "a sentence over 25 words"),
        ("text", "One; two; " + "word " * 26, "a sentence over 25 words"),
    ],
)
def test_a_rule_finds_what_breaks_it(kind: str, text: str, rule: str) -> None:
    broken = list(messages.faults([Message("room", "loomctl/room/a.py", 1, kind, text)]))
    assert [one.rule for one in broken] == [rule]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("hint", "loomctl show RUN --stage X"),
        ("text", "the file stages.md of X"),
        ("text", "`loomctl stages` lists them"),
        ("what", "there is no stage X"),
        ("text", "start from a fresh clone"),
        ("text", "What is to be built?"),
        ("text", "X wrote a code fence"),
        ("text", "Write, one a line: " + "; ".join(["six words are in this one"] * 6)),
    ],
)
def test_plain_words_pass(kind: str, text: str) -> None:
    assert not list(messages.faults([Message("room", "loomctl/room/a.py", 1, kind, text)]))
