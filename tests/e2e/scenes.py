"""Scenes that several end-to-end tests begin with, and what they look at afterwards."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.e2e.assistant import Assistant, Conversation, Turn, entries
from tests.e2e.scripted_api import Reply, Request, bash, reply
from tests.helpers.scenes import PLAIN

SENTENCE = "The dark mode switch keeps its heliotrope position through a reload."
"""A sentence that stands in the spec and nowhere else."""

DECISIONS = "".join(
    f"- Decision {number}: element {number} takes its colours from variables on the root, never from a file.\n"
    for number in range(1, 31)
)
SPEC = f"# Dark mode\n\n## Decisions\n\n{DECISIONS}\n## Behaviour\n\n{SENTENCE}\n"
"""Of the size that a real one has (3 kB), with the sentence at its end."""

AT_A_START = "SessionStart hook additional context: "
"""What the host writes before the text of a session's start; it joins such pieces, and its own, by an empty line."""


def write_spec(project: Path, words: str = SPEC) -> Path:
    """Write the spec as the assistant's own work would."""
    spec = project / "specs" / "dark-mode.md"
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(words, encoding="utf-8")
    return spec


def write_plain(project: Path) -> None:
    """Write the workflow plain: the bundle's five phases, a step each, that end with any answer."""
    place = project / ".loom" / "workflows" / PLAIN.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(PLAIN.read_bytes())


def done(*, artifact: str = "", outcome: str = "succeeded", words: str = "Done as asked.") -> Reply:
    artifact = f" --artifact {artifact}" if artifact else ""
    return reply(bash(f"loomctl done --outcome {outcome}{artifact} <<'EOF'\n{words}\nEOF"))


InRun = tuple[Assistant, Turn]
"""What the fixture in_run gives: `start_run` was played, and this is its turn."""


def start_run(assistant: Assistant, *, work: str = '"add dark mode"') -> Turn:
    """Start a run, end its first step and register the spec; the session is bound to the run afterwards."""
    prompt, registered, said = _start(assistant.project, work)
    turn = assistant.run(prompt, answers=[registered, said])
    _registered(turn.conversation[-1])
    return turn


def stay_in_run(assistant: Assistant, allowed_tools: str) -> Conversation:
    """Start a run as `start_run` does, in a session that stays open for more prompts: one process for all of them."""
    session = assistant.conversation("--allowedTools", allowed_tools)
    _registered(session.ask(*_start(assistant.project, '"add dark mode"')))
    return session


def _start(project: Path, work: str) -> tuple[str, Reply, str]:
    write_plain(project)
    write_spec(project)
    registered = done(artifact="spec_path=specs/dark-mode.md")
    return f"/loom:run {work} --workflow plain", registered, "The first step is done."


def _registered(request: Request) -> None:
    (result,) = request.tool_results()
    assert not result.is_error, result.text


def run_folders(project: Path) -> list[Path]:
    return sorted((project / ".loom" / "runs").glob("*/"))


def run_folder(project: Path) -> Path:
    (folder,) = run_folders(project)
    return folder


def state_of(project: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((run_folder(project) / "state.json").read_text(encoding="utf-8"))
    return state


def fingerprint(project: Path) -> dict[str, str]:
    """Digest every file of every run, to tell whether anything was written."""
    files = [path for folder in run_folders(project) for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(project)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def set_status(project: Path, status: str) -> None:
    edit_state(project, status=status)


def edit_state(project: Path, **changed: Any) -> None:
    path = run_folder(project) / "state.json"
    path.write_text(json.dumps({**state_of(project), **changed}), encoding="utf-8")


def given_at_starts(turn: Turn) -> list[str]:
    """Give each text of a session's start that stands in a turn's first request, without the host's wrapper.

    Where one begins and ends is what the host's own record says; that the request holds just that, wrapped, is looked
    at.
    """
    request = turn.conversation[0]
    kept = [entry["attachment"] for entry in entries(turn.transcript) if entry["type"] == "attachment"]
    hooks = [one for one in kept if one["type"] == "hook_additional_context" and one["hookEvent"] == "SessionStart"]
    texts = [text for one in hooks for text in one["content"]]
    found = []
    for _, words in request.pieces():
        for rest in words.split(AT_A_START)[1:]:
            (text,) = [text for text in texts if rest == text or rest.startswith(f"{text}\n\n")]
            found.append(text)
    return found
