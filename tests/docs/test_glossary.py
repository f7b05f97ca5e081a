"""The glossary has Loom's words, and no others."""

import re

import click

from loomctl.runs.model import state
from loomctl.runs.model.visits import OUTCOMES
from tests.cli.test_help import ALL
from tests.docs.pages import DOCS, pages
from tests.helpers.tables import each

PAGE = DOCS / "reference" / "glossary.md"
TERMS = re.findall(r"^\*\*([a-z -]+)\*\*: ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
# Words in the commands' help that anybody knows, or that their own sentence explains.
PLAIN = {"assistant", "command", "conversation", "document", "file", "folder", "line", "machine", "user", "settings"}
NOUNS = PLAIN | {
    "approval", "artifact", "autonomy", "binding", "blob", "budget", "bundle", "compaction", "directory", "event",
    "fresh", "hook", "host", "outcome", "packing slip", "phase", "placeholder", "plan", "priming", "project",
    "response", "run", "session", "stage", "state", "status", "step", "store", "transition", "trigger", "visit",
    "work item", "workflow", "node", "edge", "pipeline", "checkpoint", "snapshot", "thread",
}  # fmt: skip


def helps() -> str:
    texts = [command.help or "" for command in ALL.values()]
    texts += [getattr(one, "help", None) or "" for command in ALL.values() for one in command.params]
    return "\n".join(texts).lower()


def test_the_words_of_the_help_are_in_the_glossary() -> None:
    used = {noun for noun in NOUNS if re.search(rf"\b{noun}s?\b", helps())}
    assert isinstance(next(iter(ALL.values())), click.Command)
    assert used - PLAIN - set(TERMS) == set()


@each("term", TERMS)
def test_every_term_is_used(term: str) -> None:
    texts = [page.read_text(encoding="utf-8").lower() for page in pages() if page != PAGE]
    word = term.removesuffix("directory of a run") or "run_dir"
    assert any(re.search(rf"\b{re.escape(word)}", text) for text in [*texts, helps()])


def test_the_terms_are_in_order_and_once() -> None:
    assert sorted(set(TERMS)) == TERMS


def test_statuses_and_outcomes_are_all_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{word}`" in text for word in (*state.STATUSES, *OUTCOMES))
