"""`loomctl simulate` over parallel steps: one stage with its branches' stages inside (D43, D45)."""

import json

from tests.cli.conftest import Cli
from tests.cli.test_simulate import FAILED, Json, played, said, way
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

ASK: Json = {
    "id": "ask",
    "kind": "human",
    "prompt": "Ship the pages?",
    "transitions": [{"to": "end", "label": "[Y] Yes"}, {"to": "again", "label": "[N] No"}],
}


def fan(join: str, *branches: Json, **more: object) -> Json:
    step = {"id": "fan", "parallel": {"join": join, "branches": list(branches)}, **more}
    return {"build": {"steps": [step, {"id": "sum", "prompt": "Sum it up."}]}}


def branch(name: str, *steps: str | Json) -> Json:
    """Make a branch of steps; a text is the id of one with a prompt."""
    every = [{"id": one, "prompt": "Do it."} if isinstance(one, str) else one for one in steps]
    return {"id": name, "steps": every}


API, WEB = branch("api", "look"), branch("web", "draw", "check")


def inside(told: Json, number: int = 0) -> list[tuple[str, str, str]]:
    """Give the branches of a stage as (id, status, way)."""
    return [(one["id"], one["status"], way(one)) for one in told["stages"][number]["branches"]]


def test_a_parallel_step_is_one_stage(scene: Scene, cli: Cli) -> None:
    outcomes = {
        "look": {"context_updates": {"n": 1, "a": 1}},
        "fan.web.draw": {"context_updates": {"n": 2}},
        "build/fan.web.check": {"outcome": "partially_succeeded"},
    }
    code, told = played(scene, cli, fan("wait_all", API, WEB), outcomes)
    assert (code, told["status"], way(told)) == (0, "completed", "fan:order sum:end")
    stage = told["stages"][0]
    assert (stage["step_id"], stage["visit"], stage["rank"], stage["outcome"], stage["fidelity"]) == (
        *("build/fan", 1, 1),
        *("partially_succeeded", "compact"),
    )
    assert inside(told) == [
        ("api", "succeeded", "fan.api.look:end"),
        ("web", "partially_succeeded", "fan.web.draw:order fan.web.check:end"),
    ]
    ranks = [[one["rank"] for one in each["stages"]] for each in stage["branches"]]
    assert ranks == [[2], [3, 4]]
    assert [each["index"] for each in stage["branches"]] == [0, 1]
    assert told["stages"][1]["rank"] == 5
    assert told["context"] == {
        "n": 2,
        "a": 1,
        "last_stage": "build/sum",
        "parallel.results": [
            {"id": "api", "index": 0, "status": "succeeded", "context_updates": {"n": 1, "a": 1}},
            {"id": "web", "index": 1, "status": "partially_succeeded", "context_updates": {"n": 2}},
        ],
        "parallel.conflicts": [{"key": "n", "branches": ["api", "web"]}],
    }
    assert told["warnings"] == []


JOINS: list[tuple[str, Json, str, list[str], set[str]]] = [
    ("wait_all", {}, "succeeded", ["succeeded", "succeeded", "succeeded"], {"api", "web", "data"}),
    ("first_success", {}, "succeeded", ["succeeded", "cancelled", "cancelled"], {"api"}),
    ("first_success", {"look": FAILED}, "succeeded", ["failed", "succeeded", "cancelled"], {"web"}),
    ("any", {"look": FAILED}, "failed", ["failed", "cancelled", "cancelled"], {"api"}),
    ("any", {"look": {"outcome": "skipped"}}, "skipped", ["skipped", "cancelled", "cancelled"], {"api"}),
    ("wait_all", {"look": FAILED}, "partially_succeeded", ["failed", "succeeded", "succeeded"], {"api", "web", "data"}),
]


@each("join, outcomes, outcome, statuses, merged", JOINS)
def test_joins(
    scene: Scene, cli: Cli, join: str, outcomes: Json, outcome: str, statuses: list[str], merged: set[str]
) -> None:
    phases = fan(join, API, branch("web", "draw"), branch("data", "tables"))
    outcomes = {
        name: {**outcomes.get(name, {}), "context_updates": {of: True}}
        for name, of in (("look", "api"), ("draw", "web"), ("tables", "data"))
    }
    _, told = played(scene, cli, phases, outcomes)
    stage = told["stages"][0]
    assert (stage["outcome"], [one["status"] for one in stage["branches"]]) == (outcome, statuses)
    assert [bool(one["stages"]) for one in stage["branches"]] == [one != "cancelled" for one in statuses]
    assert {key for key in told["context"] if key in ("api", "web", "data")} == merged


def test_rounds_failures_and_left_over_outcomes_are_told(scene: Scene, cli: Cli) -> None:
    """Visits of a branch's step are counted over all rounds, so a script says each; max_visits is of one round."""
    ways = [{"to": "fan", "condition": "outcome == 'partially_succeeded'"}, {"to": "sum"}]
    phases = fan("wait_all", API, branch("web", {"id": "draw", "prompt": "x", "max_visits": 1}), transitions=ways)
    _, told = played(scene, cli, phases, {"look": [FAILED, {}]})
    assert way(told) == "fan:condition fan:unconditional sum:end"
    assert [inside(told, number)[0][1] for number in (0, 1)] == ["failed", "succeeded"]
    assert [each["branches"][1]["stages"][0]["visit"] for each in told["stages"][:2]] == [1, 2]
    loop = {"id": "draw", "prompt": "x", "max_visits": 2, "transitions": [{"to": "out"}]}
    out = {"id": "out", "prompt": "x", "transitions": [{"to": "draw", "label": "more"}, {"to": "end"}]}
    phases = fan("wait_all", API, branch("web", loop, out))
    _, told = played(scene, cli, phases, {"look": FAILED, "out": {"preferred_next_label": "more"}})
    api, web = told["stages"][0]["branches"]
    assert api["why"] == "build/fan.api.look: it broke"
    assert web["why"] == "build/fan.web.draw has run 2 times, its max_visits"
    assert (told["status"], told["why"]) == ("failed", "build/fan: api: failed, web: failed")
    assert told["stages"][0]["failure_reason"] == "api: failed, web: failed"
    _, told = played(scene, cli, fan("any", API, WEB), {"look": [{}, {}], "check": {}})
    assert [(one["code"], one["where"]) for one in told["warnings"]] == [
        ("NOT_PLAYED", "build/fan.api.look"),
        ("NOT_PLAYED", "build/fan.web.check"),
    ]


def test_people_in_branches_choose_or_are_warned_of(scene: Scene, cli: Cli) -> None:
    gated = {"id": "risky", "prompt": "x", "require_approval": True}
    phases = fan("wait_all", branch("api", gated), branch("web", ASK, "again"))
    _, told = played(scene, cli, phases, {"ask": {"preferred_next_label": "n"}})
    assert [(one["id"], one["branch"]) for one in told["approvals"]] == [
        ("step:build/fan.api.risky", "api"),
        ("human:003-build.fan.web.ask@1", "web"),
    ]
    assert inside(told)[1] == ("web", "succeeded", "fan.web.ask:label fan.web.again:end")
    assert told["context"]["human.gate.label"] == "[N] No"
    _, told = played(scene, cli, phases, {"ask": {"preferred_next_label": "later"}})
    assert [(one["code"], one["where"]) for one in told["warnings"]] == [("UNKNOWN_LABEL", "build/fan.web.ask")]
    no_yes = {**ASK, "transitions": [{"to": "end", "label": "now"}, {"to": "again", "label": "later"}]}
    phases = fan("wait_all", branch("web", no_yes, "again"))
    for words, code in (({}, ["CHOICE_NEEDED"]), ({"preferred_next_label": "now"}, []), ({"outcome": "failed"}, [])):
        _, told = played(scene, cli, phases, {"ask": words} if words else {})
        assert [one["code"] for one in told["warnings"]] == code


@each(
    "name, words",
    [
        (
            "fan",
            "is a parallel step, and its branches decide how it ends; write build/fan.api.look or build/fan.web.look",
        ),
        ("look", "2 steps are called 'look'; write build/fan.api.look or build/fan.web.look"),
        ("lokk", "did you mean look?"),
        ("fan.web.lok", "did you mean fan.web.look?"),
    ],
)
def test_names_that_mean_no_step(scene: Scene, cli: Cli, name: str, words: str) -> None:
    scene.workflow(phases=fan("wait_all", API, branch("web", "look")))
    ended = cli("simulate", "tiny", "--outcomes", "-", "--json", given=json.dumps({name: {}}))
    assert (ended.code, ended.json["error"]["code"]) == (5, "BAD_OUTCOMES")
    assert words in ended.json["error"]["why"]


def test_lines_for_people(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases=fan("first_success", API, branch("web", ASK, "again"), branch("data", "tables")))
    ended = cli("simulate", "tiny", "--outcomes", "-", given=json.dumps({"look": FAILED, "ask": said("y")}))
    assert ended.stdout.splitlines()[:11] == [
        "RANK  STEP                      OUTCOME    NEXT",
        "001   build/fan@1               succeeded  → build/sum (order)",
        "        api                     failed     build/fan.api.look: it broke",
        "002       build/fan.api.look@1  failed     → failed (none)",
        "        web                     succeeded",
        "003       build/fan.web.ask@1   succeeded  → end (label: [Y] Yes)",
        "        data                    cancelled",
        "004   build/sum@1               succeeded  → end (order)",
        "",
        "a person would decide in branch web: human:003-build.fan.web.ask@1: Ship the pages? ([Y] Yes · [N] No)",
        "completed",
    ]
