"""The context-reload protocol is the code's: facts of events, reasons, forms, limits, hooks."""

import ast
import json
import re
from collections.abc import Iterator

import pytest

from loomctl.cli import answer
from loomctl.hosts import tool_calls
from loomctl.priming import artifact_files, slip
from loomctl.runs.config import Settings
from loomctl.workflows import triggers
from tests.cli.test_help import ALL
from tests.docs.pages import DOCS
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

PAGE = (DOCS / "reference" / "context-reload-protocol.md").read_text(encoding="utf-8")


def row(beginning: str) -> list[str]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {beginning}")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@each(
    ("beginning", "event"),
    [
        ("a session starts", triggers.session_start()),
        ("the conversation was compacted", triggers.session_start("compact")),
        ("`loomctl run` or `loomctl resume`, with", triggers.run_start("P")),
        ("the run goes from phase A", triggers.phase_transition("A", "B")),
        ("the run enters its first phase", triggers.phase_transition(None, "P")),
        ("`loomctl prime-context` |", triggers.manual()),
    ],
)
def test_each_event_has_the_facts_that_the_page_says(beginning: str, event: triggers.Event) -> None:
    assert tuple(re.findall(r"`([^`]+)`", row(beginning)[1])) == event.facts


@each("word", ["session_start", "compaction_detected", "manual", "phase_start:P", "phase_transition:A->B"])
def test_each_word_of_the_page_is_a_trigger(word: str) -> None:
    assert triggers.is_trigger(word)
    assert f"`{word}`" in PAGE


def reasons() -> Iterator[tuple[str, str]]:
    for path in CHECKOUT.glob("loomctl/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            first = getattr(node.args[0], "id", "") if node.args else ""
            if called == "Verdict" and first in ("LOAD", "SKIP", "DEFER", "ERROR"):  # a command line is judged, too
                yield from ((first.lower(), word) for word in _words(node.args[1]))
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            if called == "Reading" and "problem" in named:
                yield from (("error", word) for word in _words(named["problem"]))
            if called == "_replace" and "reason" in named and isinstance(named.get("decision"), ast.Name):
                decision = named["decision"]
                assert isinstance(decision, ast.Name)
                yield from ((decision.id.lower(), word) for word in _words(named["reason"]))
            if called == "Entry" and len(node.args) > 2:
                yield from (("error", word) for word in _words(node.args[2]))


def _words(node: ast.expr) -> list[str]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


@pytest.mark.slow
def test_every_reason_is_in_the_table() -> None:
    listed = {
        (cells[0].strip(), reason)
        for line in PAGE.splitlines()
        if re.match(r"\| (load|skip|defer|error) \|", line)
        for cells in [line.strip("|").split(" | ")]
        for reason in re.findall(r"`([a-z_]+)`", cells[1])
    }
    found = set(reasons())
    assert ("skip", "fresh") in found
    elsewhere = {("error", word) for word in ("path_escape", "bad_path", "unresolved_placeholder")}
    assert found | elsewhere == listed


def test_the_limits_are_those_of_the_code() -> None:
    settings = Settings()
    assert f"{settings.hook_budget:,} UTF-16 units" in row("what a hook gives")[1]
    assert f"{settings.command_budget:,} UTF-8 bytes" in row("the slip's text from a command")[1]
    assert f"{answer.BESIDE:,} UTF-8 bytes" in row("a command's own lines")[1]
    for beginning, share in (("the next thing to do", slip.NEXT_SHARE), ("head, and history", slip.HISTORY_SHARE)):
        assert row(beginning)[1] == f"{round(share * 9500):,} of 9,500"
    assert row("one part of it")[1] == f"{slip.PART:,} UTF-16 units"
    assert (artifact_files.WARN_BYTES, artifact_files.REFUSE_BYTES) == (100 * 1024, 1024 * 1024)
    assert artifact_files.SUMMARY_BYTES == 16 * 1024 * 1024


def test_what_is_put_to_the_user_is_said() -> None:
    """The protocol and the page on security name each command that an assistant cannot give by itself."""
    security = (DOCS / "explanation" / "security.md").read_text(encoding="utf-8")
    asked = [*tool_calls._ASK, *(" ".join(verbs) for verbs in tool_calls._ASK_BOTH)]
    for verb in (verb for verb in asked if f"loomctl {verb}" in ALL):
        assert f"`{verb}`" in row("PreToolUse")[1]
        assert re.search(rf"`(loomctl )?{verb}`", security), verb


def test_every_hook_of_the_bundle_is_in_the_table() -> None:
    hooks = json.loads((CHECKOUT / "hooks" / "claude-code.json").read_text(encoding="utf-8"))["hooks"]
    table = PAGE[PAGE.index("### Hooks of Claude Code") : PAGE.index("Where a phase is entered at a Stop")]
    assert {line.split()[1] for line in table.splitlines() if line.startswith("| ")} - {"hook"} == set(hooks)
