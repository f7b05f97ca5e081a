"""Memory by choice in the real assistant: what its memory imports stands in the next request, once and whole (D62)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loomctl.priming import memory
from tests.e2e.assistant import Assistant, Turn
from tests.e2e.scenes import done, run_folder, state_of, write_plain, write_spec
from tests.e2e.scripted_api import AUTO_COMPACT, bash, reply
from tests.e2e.terminal import PROMPT, assistant_terminal

FACTS = [f"Fact {number}: the colour of element {number} is heliotrope-{number:04}." for number in range(1000)]
LARGE = "# The spec\n\n" + "\n\n".join(FACTS) + "\n"
"""Of 60 kB, three to six times what hooks may give."""


def loomctl(assistant: Assistant, *words: str) -> str:
    launcher = f"{assistant.plugin_dir}/bin/loomctl"
    return assistant.machine.command(launcher, *words, cwd=assistant.project)


def begin(assistant: Assistant, words: str) -> Turn:
    write_spec(assistant.project, words)
    spec = {"id": "the-spec", "type": "markdown", "path": "specs/dark-mode.md", "description": "The spec"}
    rule = {**spec, "required": True, "reload_triggers": ["session_start", "compaction_detected"]}
    workflow = {"id": "told", "description": "Core", "extends": "core", "critical_artifacts": {"always_load": [rule]}}
    place = assistant.project / ".loom/workflows/told.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(workflow), encoding="utf-8")
    return assistant.run('/loom:run "add dark mode" --workflow told')


def counts(seen: str) -> set[int]:
    return {seen.count(fact) for fact in FACTS}


def test_a_large_spec_is_whole_after_a_compaction_and_stands_there_once(assistant: Assistant) -> None:
    first = begin(assistant, LARGE)
    (assistant.project / "CLAUDE.local.md").write_bytes(b"Use tabs.")
    loomctl(assistant, "memory", "on", "--yes")

    assistant.run("/compact", resume=first.session_id)
    after = assistant.run(
        "go on",
        resume=first.session_id,
        allowed_tools="Bash(true)",
        answers=[reply(bash("true"), usage=AUTO_COMPACT), reply(bash("true")), "finished"],
    )
    kinds = [request.kind for request in after.requests]
    compacted = after.requests[kinds.index("compaction") + 1]
    for request in (after.conversation[0], compacted):
        assert counts(request.seen()) == {1}
        assert "In your memory: the-spec (specs/dark-mode.md)." in request.seen()

    assert counts(assistant.run("hello", watch_hooks=True).conversation[0].seen()) == {1}

    loomctl(assistant, "memory", "off")
    assert (assistant.project / "CLAUDE.local.md").read_bytes() == b"Use tabs."
    assert FACTS[-1] not in assistant.run("hello").conversation[0].seen()


@pytest.mark.usefixtures("tmux")
def test_after_clear_in_a_terminal_it_is_there_once(installed: Assistant, bundle: Path) -> None:
    here = replace(installed, plugin_dir=bundle)
    write_plain(here.project)
    write_spec(here.project, LARGE)
    here.api.script(done(artifact="spec_path=specs/dark-mode.md"), "The first step is done.", "On it.")
    with assistant_terminal(installed) as terminal:
        terminal.wait_for(PROMPT)
        terminal.enter('/loom:run "add dark mode" --workflow plain')
        terminal.wait_for("The first step is done.")
        loomctl(here, "memory", "on", "--yes")
        terminal.enter("/clear")
        terminal.wait_for("in its memory: specification")
        terminal.enter("go on")
        terminal.wait_for("On it.")
        terminal.enter("/exit")
    last = [request for request in installed.api.requests if request.kind == "main"][-1]
    assert counts(last.seen()) == {1}


def test_a_new_session_reads_what_the_last_command_left(assistant: Assistant) -> None:
    """The host reads its memory before it calls hooks at a start: so it is the commands that keep it current."""
    begin(assistant, "# The spec\n")
    loomctl(assistant, "memory", "on", "--yes")
    loomctl(assistant, "pause", state_of(assistant.project)["run_id"])
    assert "status paused" in told_by_memory(assistant.run("hello"))


def test_no_imports_reach_a_session_below_the_folder_and_hooks_give_them(assistant: Assistant) -> None:
    """The host leaves out what lies outside of the folder it was started in."""
    begin(assistant, "# The spec\n\nThe heliotrope stays.\n")
    loomctl(assistant, "memory", "on", "--yes")
    below = assistant.project / "src"
    below.mkdir()
    seen = replace(assistant, project=below).run("hello").conversation[0].seen()
    assert seen.count("The heliotrope stays.") == 1
    assert "In your memory" not in seen


NAMES = [
    *("spec.md", "with space.md", "grün.md", "仕様.md", "😀.md", "a(1).md", "a,b.md", "a@b.md", "a&b.md", "a'b.md"),
    *("[a].md", "a$b.md", "~a~.md", "a%20b.md", "SPEC", "a.json", "a.MD", ".hidden.md", "a:b.md", "a+b=c.md"),
    *("snake_case_name.md", "_drafts/_x.md", "x y/z w.md", "a|b.md", "{a}.md", "1. a.md", "-a.md"),
    *("a#b.md", "a*b*.md", "_a_b_.md", "__init__.txt", "a<b>.md", "[a](b).md", "a\\b.md", "a`b`.md", "a\u00a0b.md"),
    *("a.markdown", "a.mdx", "a.jsonl", "v1.2", "trail.", "a\tb.md"),
]
CARRIED = NAMES[: NAMES.index("a#b.md")]


@pytest.mark.quick
def test_each_name_that_a_line_can_carry_is_imported(assistant: Assistant) -> None:
    """And a name that none can is known: the host imports no such file, or takes the name for Markdown."""
    lines = []
    for number, name in enumerate(NAMES):
        path = assistant.project / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"The content {number:03} is here.\n", encoding="utf-8")
        lines += [memory.import_line(f"../docs/{name}"), ""]
    assert [name for name, line in zip(NAMES, lines[::2], strict=True) if line] == CARRIED
    (assistant.project / ".loom").mkdir()
    (assistant.project / ".loom/now.md").write_text("\n".join(lines), encoding="utf-8")
    rule = assistant.project / ".claude/rules/loom.md"
    rule.parent.mkdir(parents=True)
    rule.write_text("@../../.loom/now.md\n", encoding="utf-8")
    seen = assistant.run("hello").conversation[0].seen()
    came = [name for number, name in enumerate(NAMES) if f"The content {number:03} is here." in seen]
    assert came == CARRIED


def test_what_the_host_leaves_out_is_told_and_a_goal_imports_nothing(assistant: Assistant) -> None:
    begin(assistant, "---\nstatus: heliotrope-approved\n---\n# The spec\n\n<!-- a heliotrope aside -->\n\nThe rest.\n")
    (assistant.project / "other.md").write_text("Imported by mistake.\n", encoding="utf-8")
    state = {**state_of(assistant.project), "goal": "see @../other.md <!-- now -->"}
    (run_folder(assistant.project) / "state.json").write_text(json.dumps(state), encoding="utf-8")
    loomctl(assistant, "memory", "on", "--yes")
    told = told_by_memory(assistant.run("hello"))
    assert told.count("status: heliotrope-approved") == 1
    assert "a heliotrope aside" not in told
    assert "its HTML comments are left out" in told
    assert "goal: see @../other.md <!-- now -->" in told
    assert "Imported by mistake." not in told
    assert "The rest." in told


def told_by_memory(turn: Turn) -> str:
    """Give what of a turn's first request the host took from memory files."""
    (memory,) = [words for _, words in turn.conversation[0].pieces() if "Contents of " in words]
    return memory
