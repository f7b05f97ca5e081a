"""What each event puts into a conversation, in one run of each bundled workflow: real processes, real transcripts."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from loomctl.kit.text.fences import utf16_units
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Scene, TranscriptFile

WORK = "# Dark mode\n\n" + "A visitor asked for dark colours, and this is how the switch should look and behave.\n" * 6
SPEC_BYTES = 4000


class Cost(NamedTuple):
    """One event: what it is, how much text the model gets by it."""

    workflow: str
    event: str
    units: int
    tokens: int


@cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own vocabulary
        import bpe_openai

        return bpe_openai.get_encoding("o200k_base")


def count(text: str) -> int:
    return len(_encoding().encode(text))


def spec() -> str:
    """Give a specification of SPEC_BYTES bytes, in sentences that differ."""
    text = "# Dark mode\n\n## Tasks\n\n- [ ] Paint the header\n\n## Decisions\n\n"
    number = 0
    while len(text) < SPEC_BYTES:
        number += 1
        text += f"\n## Part {number // 12}\n\n" if number % 12 == 0 else ""
        text += f"- Element {number} takes its colour from a variable; the ratio is at least {4 + number % 4}:1.\n"
    return text


def listed() -> str:
    """Give what Claude Code lists of the bundle to the model: the skills, and the commands that it may start."""
    lines = []
    for path in [*sorted(CHECKOUT.glob("skills/*/SKILL.md")), *sorted(CHECKOUT.glob("commands/*.md"))]:
        head = path.read_text(encoding="utf-8").split("---\n")[1]
        fields = dict(line.split(": ", 1) for line in head.splitlines())
        if "disable-model-invocation" not in fields:
            lines.append(f"loom:{fields.get('name', path.stem)}: {fields['description']}")
    return "\n".join(lines)


class Told:
    """Plays one run and notes what the model is told at each event."""

    def __init__(self, base: Path, workflow: str) -> None:
        self._scene = Scene(base / "shop")
        self._workflow = workflow
        self._transcript = TranscriptFile(base / "transcript.jsonl")
        self.costs: list[Cost] = []

    def _note(self, event: str, text: str) -> None:
        self.costs.append(Cost(self._workflow, event, utf16_units(text), count(text)))

    def hook(self, event: str, name: str, *, session: str = SESSION, **told: Any) -> None:
        """Answer a hook event; what it gives stands in the transcript from then on."""
        path = str(self._transcript.path) if session == SESSION else ""
        ended = self._scene.hook(event, session=session, transcript_path=path, **told)
        text = ended.stdout if event == "pre-compact" else ended.context
        self._note(name, text)
        if text and event != "pre-compact" and session == SESSION:
            self._transcript.hook_text(text, "SessionStart")

    def command(self, name: str, *words: str, given: str | None = None) -> str:
        """Run a command as the assistant does, through its shell; gives what it printed. name: "" notes nothing."""
        ended = self._scene.loomctl(*words, given=given)
        assert ended.code == 0, ended
        self._transcript.calls("loomctl " + " ".join(words))
        self._transcript.result(ended.stdout)
        if name:
            self._note(name, ended.stdout)
        return ended.stdout

    def play(self) -> list[Cost]:
        """Play the run to its build phase, through a compaction, a new session and a pause."""
        self._note("The host's list of Loom's skills, in every session", listed())
        self.hook("session-start", "SessionStart without a run", source="startup")
        self.command("`loomctl run`", "run", "add dark mode to the shop", "--workflow", self._workflow)
        self.hook("session-start", "SessionStart (resume), all still in the conversation", source="resume")
        run_dir = self._scene.run_dir
        (run_dir / "work.md").write_text(WORK, encoding="utf-8")
        self._scene.write("specs/dark-mode.md", spec())
        registered = {
            "frame/fetch-work": f"work_path={run_dir}/work.md",
            "architect/spec": "spec_path=specs/dark-mode.md",
        }
        seen = set()
        while (step := str(self._scene.state["current_step"])) != "build/implement":
            phase, files = step.partition("/")[0], [registered[step]] if step in registered else []
            before = self._scene.state["current_phase"]
            words = ["done", *(word for file in files for word in ("--artifact", file))]
            printed = self.command("", *words, given="It is done, and written down.")
            after = self._scene.state["current_phase"]
            way = f"to the phase {after}" if before != after else f"within the phase {phase}"
            name = f"`loomctl done`, {way}"
            if name not in seen:
                seen.add(name)
                self._note(name, printed)
        self.command("`loomctl next`", "next")
        self.command("`loomctl prime-context`, nothing changed", "prime-context")
        self.hook("user-prompt-submit", "UserPromptSubmit", prompt="go on")
        self._scene.write("specs/dark-mode.md", spec().replace("Element 7 takes", "Element 7 loses"))
        self.hook("user-prompt-submit", "UserPromptSubmit, a line of the specification edited", prompt="go on")
        self.hook("pre-tool-use", "PreToolUse", tool_name="Bash", tool_input={"command": "loomctl next"})
        self.hook("stop", "Stop", last_assistant_message="I have looked at the header.")
        self.hook("pre-compact", "PreCompact (to the summariser)", trigger="auto")
        self._transcript.compacts()
        self.hook("session-start", "SessionStart (compact)", source="compact")
        self.hook("session-end", "SessionEnd", reason="prompt_input_exit")
        self.hook("session-start", "SessionStart (startup), a new session", session=OTHER, source="startup")
        return self.costs


def measure(base: Path) -> list[Cost]:
    """Measure both bundled workflows."""
    return [cost for workflow in ("core", "default") for cost in Told(base / workflow, workflow).play()]
