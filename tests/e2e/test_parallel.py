"""A parallel step in the real assistant: subagents work on its branches, and the run goes on at the join (D43)."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import gate_texts
from loomctl.runs.tools import tool_log
from tests.e2e.assistant import Assistant, Turn
from tests.e2e.scenes import run_folder, state_of
from tests.e2e.scripted_api import AUTO_COMPACT, Reply, Request, ScriptedApi, bash, refused, reply, tool
from tests.e2e.test_outcomes import step, workflow
from tests.helpers.texts import holds

Answers = list[Reply | str]


PLANNED = 'The switch is heliotrope. {"outcome": "succeeded"}'
LOOKED, DRAWN, CHECKED = "Two endpoints change.", "It stands on the left.", "All pages have it."
SUMMED = 'It is summed up. {"outcome": "succeeded"}'
API, WEB = gate_texts.task("api"), gate_texts.task("web")
FAN = "002-build.fan@1"
HANDED = [
    "Loom: build/plan succeeded. The next step is build/fan: run `loomctl next` and work on it.",
    "Loom: The next step is build/sum: run `loomctl next` and work on it.",
    "Loom: build/sum succeeded. The run is completed.",
]
"""What Stop hooks said in the whole run, where nothing went wrong."""
WHOLE = {
    "api": ("succeeded", [("build/fan.api.look", "succeeded")]),
    "web": ("succeeded", [("build/fan.web.draw", "succeeded"), ("build/fan.web.check", "succeeded")]),
}
"""Of each branch how it stands, and its visits, once both are worked through."""

HOWS = pytest.mark.parametrize(
    "how", [pytest.param({}, id="background"), pytest.param({"run_in_background": False}, id="foreground")]
)
"""How the conversation starts subagents: it goes on beside them, or waits for them."""


def two_sides(project: Path, *, level: str = "autonomous") -> None:
    """Write the workflow `flow`: plan, a parallel step of two branches, sum."""
    listed = [{"id": "api", "steps": [step("look")]}, {"id": "web", "steps": [step("draw"), step("check")]}]
    fan = {"id": "fan", "prompt": "Look from two sides.", "parallel": {"join": "wait_all", "branches": listed}}
    workflow(project, step("plan"), fan, step("sum"), level=level)


def subagent(branch: str, **how: Any) -> dict[str, Any]:
    """The tool call that starts a subagent, with the task that the step's text gives."""
    task = gate_texts.task(branch)
    return tool("Agent", description=f"branch {branch}", prompt=task, subagent_type="general-purpose", **how)


def opens(branch: str, *, held: threading.Barrier | None = None) -> Reply:
    """A subagent's call by which it is given its branch's step."""
    return reply(bash(f"loomctl next --branch {branch}"), held=held)


def ends(branch: str, words: str, **updates: Any) -> Reply:
    """A subagent's call by which it ends its branch's step."""
    said = f"{words}\n{json.dumps({'context_updates': updates})}"
    return reply(bash(f"loomctl done --branch {branch} <<'LOOM'\n{said}\nLOOM"))


def fanned(**how: Any) -> Answers:
    """Give the conversation's answers up to the one that starts both subagents, in one message."""
    return [PLANNED, reply(bash("loomctl next")), reply(subagent("api", **how), subagent("web", **how))]


def goes_on(api: ScriptedApi) -> None:
    """Let the conversation take up the step behind the join and end it, and say a word to all else."""
    api.react("The next step is build/sum", reply(bash("loomctl next")))
    api.react("Next: build/sum", SUMMED)
    api.react("", "All right.")


def started(assistant: Assistant, *answers: Reply | str) -> Turn:
    return assistant.run('/loom:run "x" --workflow flow', answers=answers, watch_hooks=True)


def shown(request: Request) -> str:
    """Give what the tool call that a request answers showed the model."""
    result = request.tool_results()[-1]
    assert not result.is_error, result.text
    return result.text


def stops(turn: Turn) -> list[str]:
    return [answer.get("reason") or answer["systemMessage"] for answer in turn.hook_answers("Stop")]


def branches(project: Path) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    (fan,) = [visit for visit in state_of(project)["steps"] if visit["step_id"] == "build/fan"]
    return {
        one["id"]: (one["status"], [(visit["step_id"], visit["status"]) for visit in one["steps"]])
        for one in fan["branches"]
    }


def ended(project: Path) -> list[tuple[str, str]]:
    return [(visit["step_id"], visit["status"]) for visit in state_of(project)["steps"]]


def logged(project: Path, name: str) -> list[dict[str, Any]]:
    lines = (run_folder(project) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event["properties"] for event in map(json.loads, lines) if event["event"] == name]


def went_through(project: Path) -> None:
    """Say that the run is completed, with all branches whole and joined once."""
    assert branches(project) == WHOLE
    assert ended(project) == [(f"build/{name}", "succeeded") for name in ("plan", "fan", "sum")]
    assert state_of(project)["status"] == "completed"
    ends_of = [(one["branch"], one["stage"], one["status"]) for one in logged(project, "branch.ended")]
    assert sorted(ends_of) == [("api", FAN, "succeeded"), ("web", FAN, "succeeded")]
    assert [one["status"] for one in logged(project, "branches.joined")] == ["succeeded"]


def decided(turn: Turn) -> list[tuple[str, str]]:
    results = [one for one in turn.events if one["type"] == "user" and one.get("parent_tool_use_id")]
    told = [meta["permission_decision"] for one in results for meta in one.get("tool_result_meta") or ()]
    return [(one["decision"], one["source"]) for one in told]


@HOWS
def test_two_subagents_work_through_two_branches(assistant: Assistant, how: dict[str, Any]) -> None:
    two_sides(assistant.project)
    both = threading.Barrier(2)
    api, look = assistant.api, reply(bash("cat .loom/local/sessions/*.json"))
    api.script_subagent(API, opens("api", held=both), ends("api", LOOKED, endpoints=2, side="api"), "It is done.")
    drawn, checked = ends("web", DRAWN, pages=1, side="web"), ends("web", CHECKED)
    api.script_subagent(WEB, opens("web", held=both), drawn, look, checked, "It is done.")
    goes_on(api)
    turn = started(assistant, *fanned(**how))

    went_through(assistant.project)
    assert (stops(turn), decided(turn).count(("accept", "hook"))) == (HANDED, 5)
    holds(shown(turn.conversation[2]), API.replace(" api", " BRANCH"), "- `web`: draw → check")

    of_api, of_web = api.asked_by(API), api.asked_by(WEB)
    for first, prompt in ((of_api[1], "Do the look."), (of_web[1], "Do the draw.")):
        assert "The switch is heliotrope." in shown(first)
        assert prompt in shown(first)
    assert "Branch api has ended: succeeded." in shown(of_api[2])
    assert "Do the check." in shown(of_web[2])
    seen = [f"{requests[-1].seen()}{requests[-1].system()}" for requests in (of_api, of_web)]
    assert [word for word in (DRAWN, "Do the draw.", "Do the check.", "fan.web") if word in seen[0]] == []
    assert [word for word in (LOOKED, "Do the look.", "fan.api") if word in seen[1]] == []
    binding = json.loads(shown(of_web[3]))
    assert (binding["step"], binding["stage"]) == ("build/fan", FAN)

    context = state_of(assistant.project)["context"]
    assert (context["endpoints"], context["pages"], context["side"]) == (2, 1, "web")
    assert context["parallel.conflicts"] == [{"key": "side", "branches": ["api", "web"]}]
    assert context["parallel.results"] == [
        {"id": "api", "index": 0, "status": "succeeded", "context_updates": {"endpoints": 2, "side": "api"}},
        {"id": "web", "index": 1, "status": "succeeded", "context_updates": {"pages": 1, "side": "web"}},
    ]


@pytest.mark.quick
def test_what_subagents_do_is_recorded_as_theirs(assistant: Assistant) -> None:
    two_sides(assistant.project)
    api = assistant.api
    api.script_subagent(API, opens("api"), ends("api", LOOKED), "It is done.")
    api.script_subagent(WEB, opens("web"), ends("web", DRAWN), ends("web", CHECKED), "It is done.")
    goes_on(api)
    started(assistant, *fanned(run_in_background=False))
    steps = list(tool_log.read(str(run_folder(assistant.project))))
    own = [(one.tool_name, one.more["stage"]) for one in steps if not one.more.get("agent_id")]
    assert own == [("Bash", FAN), ("Agent", FAN), ("Agent", FAN), ("Bash", "006-build.sum@1")]
    theirs: dict[str, list[str]] = {}
    for one in steps:
        if one.more.get("agent_id"):
            assert one.more["stage"] == FAN
            theirs.setdefault(one.more["agent_id"], []).append(one.minimal_args["command"].split("\n")[0])
    done = "loomctl done --branch {} <<'LOOM'"
    assert sorted(theirs.values()) == [
        ["loomctl next --branch api", done.format("api")],
        ["loomctl next --branch web", done.format("web"), done.format("web")],
    ]


@pytest.mark.parametrize(
    ("last", "how"),
    [
        pytest.param(refused(), {"run_in_background": False}, id="refused"),
        pytest.param("I cannot go on.", {}, id="gave-up"),
    ],
)
def test_a_subagent_that_dies_leaves_its_branch_to_another(
    assistant: Assistant, last: Reply | str, how: dict[str, Any]
) -> None:
    two_sides(assistant.project)
    api = assistant.api
    api.script_subagent(API, opens("api"), ends("api", LOOKED, endpoints=2), "It is done.")
    second: Answers = [opens("web"), ends("web", CHECKED), "It is done."]
    api.script_subagent(WEB, opens("web"), ends("web", DRAWN, pages=1), last, *second)
    asked = "The parallel step build/fan is open, and so are its branches web."
    api.react(asked, reply(subagent("web", **how)))
    goes_on(api)
    turn = started(assistant, *fanned(**how))

    went_through(assistant.project)
    handed, question, *behind = stops(turn)
    assert [handed, *behind] == HANDED
    assert asked in question
    assert [one["stage"] for one in logged(assistant.project, "stage.asked")] == [FAN]
    taken_up = shown(next(one for one in api.asked_by(WEB) if DRAWN in one.seen() and "Do the draw." not in one.seen()))
    assert "Next: build/fan.web.check" in taken_up
    assert "Do the check." in taken_up
    assert "| pages | 1 |" in taken_up
    assert "**build/plan**: succeeded" in taken_up
    assert LOOKED not in taken_up
    context = state_of(assistant.project)["context"]
    assert (context["endpoints"], context["pages"]) == (2, 1)


STANDING = "- `api`: ended, succeeded\n- `web`: at build/fan.web.check"


def test_a_compaction_while_a_subagent_works(assistant: Assistant) -> None:
    two_sides(assistant.project)
    compacted = threading.Event()
    api = assistant.api
    api.script_subagent(API, opens("api"), ends("api", LOOKED), "Nothing is left here.")
    waits = reply("", bash("loomctl next --branch web"), held=compacted)
    api.script_subagent(WEB, opens("web"), ends("web", DRAWN), waits, ends("web", CHECKED), "It is done.")
    api.react(STANDING, reply("They go on.", frees=compacted))
    api.react("Nothing is left here.", reply(bash("loomctl show --assets"), usage=AUTO_COMPACT))
    goes_on(api)
    turn = started(assistant, *fanned())
    went_through(assistant.project)
    assert [line for line in stops(turn) if "survived" not in line] == HANDED
    kinds = [request.kind for request in turn.requests]
    assert kinds.count("compaction") == 1
    behind = next(one for one in turn.requests[kinds.index("compaction") + 1 :] if one.kind == "main").seen()
    assert behind.count(STANDING) == 1
    holds(behind, API.replace(" api", " BRANCH"), gate_texts.STANDING, but=(DRAWN,))


def test_a_compaction_between_two_prompts(assistant: Assistant) -> None:
    two_sides(assistant.project, level="guarded")
    api, waits = assistant.api, {"run_in_background": False}
    api.script_subagent(API, opens("api"), ends("api", LOOKED), "It is done.")
    second: Answers = [opens("web"), ends("web", CHECKED), "It is done."]
    api.script_subagent(WEB, opens("web"), ends("web", DRAWN), "I cannot go on.", *second)
    first = started(assistant, *fanned(**waits), "One of them gave up.")
    assert branches(assistant.project)["web"][0] == "in_progress"
    assistant.run("/compact", resume=first.session_id)
    goes_on(api)
    answers = [reply(subagent("web", **waits)), reply(bash("loomctl next"))]
    turn = assistant.run("go on", resume=first.session_id, answers=answers)
    assert turn.conversation[0].seen().count(STANDING) == 1
    went_through(assistant.project)
