"""Plans to draw, in the shape of plan.json: the core workflow's, and one that loops, routes and works in parallel."""

from typing import Any

Json = dict[str, Any]


def frozen(raw: Json) -> Json:
    """Freeze a raw workflow with transitions into what a drawing needs of a plan."""
    phases = []
    for phase_id, phase in raw["phases"].items():
        steps = [_step(step, phase_id, step["id"], f"{phase_id}/") for step in phase["steps"]]
        phases.append({"id": phase_id, "steps": steps})
    plan: Json = {key: raw[key] for key in ("default_fidelity", "retry_target", "max_visits") if key in raw}
    return {**plan, "workflow_id": raw["id"], "description": raw.get("description", ""), "phases": phases}


def _step(step: Json, phase: str, name: str, siblings: str) -> Json:
    """Freeze one step. name: its id in the plan; siblings: what stands before a sibling's bare id in its key."""
    made = {**step, "id": name, "key": f"{phase}/{name}", "name": step.get("name") or step["id"]}
    made["kind"] = "command" if "run" in step else step.get("kind") or "agent"
    if "transitions" in step:
        made["transitions"] = [{**one, "to": _key(one["to"], siblings)} for one in step["transitions"]]
    if "retry_target" in step:
        made["retry_target"] = _key(step["retry_target"], siblings)
    if "parallel" in step:
        branches = [
            {
                "id": branch["id"],
                "steps": [
                    _step(inner, phase, f"{name}.{branch['id']}.{inner['id']}", f"{phase}/{name}.{branch['id']}.")
                    for inner in branch["steps"]
                ],
            }
            for branch in step["parallel"]["branches"]
        ]
        made["parallel"] = {"join": step["parallel"].get("join", "wait_all"), "branches": branches}
    return made


def _key(target: str, siblings: str) -> str:
    return target if target == "end" or "/" in target else siblings + target


LOOPING: Json = {
    "id": "review-loop",
    "description": "Build it, review it, ship it",
    "default_fidelity": "compact",
    "phases": {
        "plan": {"steps": [{"id": "plan", "name": "Plan", "kind": "prompt", "prompt": "Plan it."}]},
        "build": {
            "steps": [
                {
                    "id": "checks",
                    "name": "Look from two sides",
                    "kind": "parallel",
                    "parallel": {
                        "join": "wait_all",
                        "branches": [
                            {"id": "api", "steps": [{"id": "api", "prompt": "Look at the interface."}]},
                            {
                                "id": "web",
                                "steps": [
                                    {"id": "draw", "name": "Draw", "prompt": "Draw it."},
                                    {
                                        "id": "shoot", "name": "Take pictures", "run": "npm run shots", "timeout": 90,
                                        "transitions": [{"to": "end"}, {"to": "draw", "on_failure": True}],
                                    },
                                ],
                            },
                        ],
                    },
                },
                {"id": "implement", "name": "Implement", "prompt": "Implement it.", "max_visits": 5},
                {
                    "id": "test",
                    "name": "Run the tests",
                    "run": "pytest -q",
                    "transitions": [
                        {"to": "release/approve", "label": "Pass", "condition": 'outcome === "succeeded"'},
                        {"to": "implement", "label": "Fix"},
                        {"to": "implement", "on_failure": True},
                    ],
                },
            ]
        },
        "release": {
            "steps": [
                {
                    "id": "approve",
                    "name": "Approve?",
                    "kind": "human",
                    "prompt": "Look at it.",
                    "transitions": [
                        {"to": "tag", "label": "[A] Approve"},
                        {"to": "build/implement", "label": "[R] Revise", "weight": 2, "fidelity": "full"},
                    ],
                },
                {
                    "id": "tag",
                    "name": "Tag",
                    "run": "git tag v1",
                    "retry_target": "approve",
                    "transitions": [
                        {"to": "end", "condition": '(context.tests_passed === true || context.tests_passed === "true")'}
                    ],
                },
            ]
        },
    },
}  # fmt: skip

UNDER_WAY: Json = {
    "run_id": "shop-258-run-2026-01-01T00-00-00Z",
    "status": "in_progress",
    "steps": [
        {"step_id": "plan/plan", "visit": 1, "status": "succeeded"},
        {"step_id": "build/checks.api.api", "visit": 1, "status": "succeeded"},
        {"step_id": "build/checks.web.draw", "visit": 1, "status": "partially_succeeded"},
        {"step_id": "build/checks", "visit": 1, "status": "succeeded"},
        {"step_id": "build/implement", "visit": 1, "status": "succeeded"},
        {"step_id": "build/test", "visit": 1, "status": "failed"},
        {"step_id": "build/implement", "visit": 2, "status": "in_progress"},
    ],
}

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"]; click n "javascript:alert(1)"',
    "`**markdown**` _and_ more",
    "1. a list",
    "- a list",
    "end",
    "#35; #quot; &lt;b&gt;",
    "%%{init: {}}%%",
    "a|b|c ---> d",
    "line\nbreak \\n \\\\ \x1b[31m",
    "<img src=x onerror=alert(1)>",
    "漢字 é 😀",
    "x" * 500,
    "$$x^2$$",
    "fa:fa-ban icon",
    "subgraph x",
    "@{ shape: circle }",
    "\\N \\G \\l",
)


def hostile() -> Json:
    """Give a plan whose names, labels and conditions would all be something else."""
    steps = [
        {
            "id": f"s{index}",
            "name": name,
            "prompt": name,
            "transitions": [{"to": "end", "label": name, "condition": f"js {name}"}, {"to": f"s{index}", "label": "l"}],
        }
        for index, name in enumerate(HOSTILE_NAMES)
    ]
    return frozen({"id": 'a"b', "phases": {"main": {"steps": steps}}})
