"""Each bundled workflow, played to its end in the real assistant, with a compaction in its longest step."""

import json
from typing import Any, NamedTuple

import pytest

from loomctl.workflows.workflow_files import BASE
from tests.e2e.assistant import Assistant, Turn
from tests.e2e.scenes import run_folder, state_of
from tests.e2e.scripted_api import AUTO_COMPACT, Reply, bash, reply
from tests.helpers.scenes import CHECKOUT
from tests.helpers.texts import holds

WORK = "The heliotrope switch keeps its position."
ENGINE = "frame/auto-reload-context"
SUITE = "test ! -e broken"
"""The project's test command: red while a file is there."""


class Act(NamedTuple):
    """One visit of a step: what the model does in the shell, which files it registers, and its answer."""

    step: str
    shell: str = "true"
    registers: tuple[str, ...] = ()
    answer: str = "It is done."
    outcome: str = "succeeded"
    options: str = ""

    def reply(self) -> Reply:
        words = [f"--artifact {one}" for one in self.registers]
        told = " ".join(["loomctl done", f"--outcome {self.outcome}", self.options, *words])
        return reply(bash(f"{self.shell}\n{told} <<'LOOM'\n{self.answer}\nLOOM"))


class Person(NamedTuple):
    """What a person types in a terminal."""

    command: str
    step: str = ""


class Play(NamedTuple):
    """acts: all of a run; at: the act in the midst of which the conversation is compacted; back: what is seen then."""

    acts: tuple[Act | Person, ...]
    at: int
    back: tuple[str, ...]


def boxes(section: str, *tasks: str) -> str:
    return f"\n## {section}\n\n" + "".join(f"- [ ] {task}\n" for task in tasks)


def writes(path: str, more: str = "") -> str:
    return f"cat > {path} <<'END'\n# Work\n\n{WORK}\n{more}END"


TASKS = ("Parse the header", "Parse the body", "Parse the date", "Report what is wrong")
FRAME = Act("frame/fetch-work", writes("work.md"), ("work_path=work.md",))
SPEC = Act("architect/spec", writes("spec.md", boxes("Tasks", *TASKS)), ("spec_path=spec.md",))
TASK = Act("build/implement", "echo more >> code.txt")
VERIFY, SHIP = Act("evaluate/verify"), Act("release/ship")
APPROVE = Person("approve")
IN_THE_THIRD = ("task 3 of 4", "Parse the date", WORK, "Write the least code that makes it pass")


def cycle(red: str = "touch broken") -> tuple[Act, ...]:
    return Act("build/red", red), Act("build/green", "rm broken"), Act("build/tidy")


PLAYS = {
    "core": Play((FRAME, SPEC, TASK, TASK, TASK, TASK, VERIFY, APPROVE, SHIP), at=4, back=IN_THE_THIRD),
    "default": Play(
        (
            FRAME,
            Act("frame/prepare-workspace"),
            SPEC,
            Act("architect/review-spec"),
            *(TASK, TASK, TASK, TASK),
            VERIFY,
            Act("evaluate/review"),
            APPROVE,
            Act("release/prepare-release"),
            SHIP,
        ),
        at=6,
        back=IN_THE_THIRD,
    ),
    "refactor": Play(
        (
            Act("frame/pin-behaviour", writes("work.md"), ("work_path=work.md",)),
            Act("architect/plan-moves", writes("moves.md", boxes("Moves", *TASKS)), ("spec_path=moves.md",)),
            *[Act("build/move")] * 4,
            Act("evaluate/compare"),
        ),
        at=4,
        back=("task 3 of 4", "Parse the date", WORK, "take the move back"),
    ),
    "migration": Play(
        (
            Act(
                "frame/inventory",
                writes("work.md") + "\n" + writes("list.md", boxes("Migrate", *TASKS) + boxes("Verify", *TASKS)),
                ("work_path=work.md", "spec_path=list.md"),
            ),
            Act("build/pilot", "sed -i '0,/- \\[ \\]/s//- [x]/' list.md"),
            *[Act("build/migrate")] * 3,
            *[Act("evaluate/verify")] * 4,
            Act("evaluate/remove-old"),
        ),
        at=3,
        back=("task 3 of 4", "Parse the date", WORK, "by the recipe in `work.md`"),
    ),
    "docs": Play(
        (
            Act(
                "frame/outline",
                writes("work.md") + "\n" + writes("outline.md", boxes("Pages", *TASKS)),
                ("work_path=work.md", "spec_path=outline.md"),
            ),
            *[Act("build/write")] * 4,
            Act("evaluate/fresh-reader"),
        ),
        at=3,
        back=("task 3 of 4", "Parse the date", WORK, "Take every fact from the code"),
    ),
    "bugfix": Play(
        (
            Act("frame/reproduce", writes("work.md"), ("work_path=work.md",)),
            Act("build/failing-test", "touch broken; echo fails > test.txt", ("test_path=test.txt",)),
            Act("build/mend", "rm broken", answer='{"context_updates": {"cause": "The colour is read too early."}}'),
            Act("evaluate/verify"),
            Act("evaluate/review"),
        ),
        at=2,
        back=(WORK, "trace the wrong value back", "build/mend"),
    ),
    "tdd": Play(
        (
            Act(
                "frame/list-behaviours",
                writes("list.md", boxes("Behaviours", *TASKS[:2])),
                ("spec_path=list.md",),
            ),
            *cycle(),
            *cycle(),
            Act("build/red", outcome="skipped"),
            Act("evaluate/verify"),
        ),
        at=5,
        back=(WORK, "the least code that is honest", "build/green"),
    ),
    "review": Play(
        (
            Act("frame/scope", writes("work.md"), ("work_path=work.md",)),
            *(
                Act(f"evaluate/views.{name}.look", f"loomctl next --branch {name}", options=f"--branch {name}")
                for name in ("correctness", "security", "tests", "simplicity")
            ),
            Act("evaluate/judge", writes("review.md"), ("review_path=review.md",)),
        ),
        at=5,
        back=(WORK, "You judge; you did not review", "evaluate/judge"),
    ),
    "spike": Play(
        (
            Act(
                "frame/question",
                writes("work.md"),
                ("work_path=work.md",),
                '{"context_updates": {"question": "Does the switch hold 60 frames?"}}',
            ),
            Act("build/explore"),
            Act("evaluate/findings", writes("findings.md"), ("findings_path=findings.md",)),
            Person("choose L", "evaluate/decide"),
            Act("build/explore"),
            Act("evaluate/findings", writes("findings.md", "More.\n"), ("findings_path=findings.md",)),
            Person("choose B", "evaluate/decide"),
        ),
        at=1,
        back=(WORK, "Make the cheapest experiment first", "build/explore", "Does the switch hold 60 frames?"),
    ),
}


def loomctl(assistant: Assistant, *words: str) -> str:
    launcher = f"{assistant.plugin_dir}/bin/loomctl"
    return assistant.machine.command(launcher, *words, cwd=assistant.project)


def played(assistant: Assistant, workflow: str, play: Play) -> list[Turn]:
    """Play a run to its end: a turn of the conversation up to each thing that a person types."""
    turns: list[Turn] = []
    answers: list[Reply | str] = []

    def turn() -> None:
        resume = turns[-1].session_id if turns else None
        prompt = "go on" if turns else f'/loom:run "add dark mode" --workflow {workflow}'
        turns.append(assistant.run(prompt, answers=answers, resume=resume, allowed_tools="Bash", seconds=240))
        answers.clear()

    for number, act in enumerate(play.acts):
        if isinstance(act, Person):
            answers.append("It waits for you.")
            turn()
            verb, *words = act.command.split()
            loomctl(assistant, verb, *words, run_folder(assistant.project).name)
            answers.append(reply(bash("loomctl next")))
            continue
        if number == play.at:
            answers.append(reply(bash("true"), usage=AUTO_COMPACT))
        answers.append(act.reply())
    if not isinstance(play.acts[-1], Person):
        answers.append("All is done.")
        turn()
    return turns


def visited(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Give the visits of a run in the order of their ranks, those of branches in place of their step."""
    found = []
    for entry in state["steps"]:
        if entry["step_id"] == ENGINE:
            continue
        inner = [visit for branch in entry.get("branches", ()) for visit in branch["steps"]]
        found += [(one["step_id"], one["status"]) for one in (inner or [entry])]
    return found


@pytest.mark.parametrize("workflow", PLAYS)
def test_it_is_played_to_its_end_through_a_compaction(assistant: Assistant, workflow: str) -> None:
    """Every step once its evidence is there; behind the summary stand the step's text, the task and the files."""
    play = PLAYS[workflow]
    loomctl(assistant, "init", "--tests", SUITE)
    turns = played(assistant, workflow, play)
    state = state_of(assistant.project)
    expected = [(act.step, getattr(act, "outcome", "succeeded")) for act in play.acts if act.step]
    assert (state["status"], visited(state)) == ("completed", expected)
    requests = [request for turn in turns for request in turn.requests]
    kinds = [request.kind for request in requests]
    assert kinds.count("compaction") == 1
    holds(requests[kinds.index("compaction") + 1].seen(), *play.back)
    (proof,) = json.loads(loomctl(assistant, "prove", run_folder(assistant.project).name, "--json"))["compactions"]
    assert (proof["proven"], set(proof["lost"]) - set(proof["restored"])) == (True, set())
    assert {"goal", "step"} <= {*proof["kept"], *proof["restored"]}


def test_every_bundled_workflow_is_played() -> None:
    bundled = {path.stem for path in (CHECKOUT / "config" / "workflows").iterdir()}
    assert set(PLAYS) == bundled - {BASE}
