"""Projects that FABER worked in, small and of our own: every layout of its files, every era of its states (D5)."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loomctl.kit import ids
from tests.helpers.scenes import Scene

PLAN_ID = "acme-shop-dark-mode-20260107T100000"
SUFFIX = "2026-01-07T10-05-00Z"
RUN_ID = f"{PLAN_ID}-run-{SUFFIX}"
HANDLE = ids.handle(RUN_ID, "7")
WORKFLOW = "fractary-faber:default"

Json = dict[str, Any]

PHASES: dict[str, list[Json]] = {
    "frame": [
        {"id": "reload", "name": "Reload", "prompt": "/fractary-faber:prime-context", "position": "pre_step"},
        {"id": "fetch", "name": "Fetch", "prompt": "/fractary-work:issue-fetch {work_id}", "position": "pre_step"},
        {"id": "push-frame", "name": "Push", "prompt": "/fractary-repo:commit-push", "position": "post_step"},
    ],
    "build": [
        {"id": "implement", "name": "Implement", "prompt": "Build what the specification says.", "position": "step"},
        {"id": "push-build", "name": "Push", "prompt": "/fractary-repo:commit-push", "position": "post_step"},
    ],
    "release": [
        {"id": "merge", "name": "Merge", "prompt": "/fractary-repo:pr-merge {pr_number}", "position": "post_step"}
    ],
}
ORDER = [f"{phase}/{step['id']}" for phase, steps in PHASES.items() for step in steps]

PLAN: Json = {
    "id": PLAN_ID,
    "created_by": "faber-planner",
    "workflow": {
        "id": WORKFLOW,
        "inheritance_chain": [WORKFLOW],
        "phases": {name: {"enabled": True, "steps": steps} for name, steps in PHASES.items()},
    },
    "autonomy": "guarded",
    "items": [{"target": "dark mode"}],
    "execution": {"mode": "parallel", "status": "pending"},
}

_ODD: Json = {  # what no version of Loom's knows, at every level
    "pr_number": 42,
    "work_items": [{"target": "x", "issue": {"number": 7, "title": "Dark mode", "labels": ["ui"]}}],
    "clarified_requirements": {"priority": "active", "scope": {"toggle": True}},
    "branch": "feat/7-dark-mode",
    "odd": [1, {"two": [None, 3.5, "ü"]}],
}


def in_list(at: str = "build") -> Json:
    """Give a state of the era in which phases and steps were lists, under way in a phase."""
    before = [name for name in PHASES if list(PHASES).index(name) < list(PHASES).index(at)]
    done = [(name, step["id"]) for name in before for step in PHASES[name]]
    return {
        "run_id": RUN_ID,
        "plan_id": PLAN_ID,
        "workflow_id": WORKFLOW,
        "workflow_name": WORKFLOW,
        "status": "in_progress",
        "current_phase": at,
        "current_step": PHASES[at][0]["id"],
        "work_id": "7",
        "autonomy": "guarded",
        **copy.deepcopy(_ODD),
        "phases": [
            {
                "name": name,
                "status": "completed" if name in before else "in_progress" if name == at else "pending",
                "enabled": True,
                "max_retries": 0,
                "retry_count": 0,
                "odd": {"kept": name},
            }
            for name in PHASES
        ],
        "steps": [
            {"step_id": step_id, "phase": name, "status": "success", "message": f"{step_id} ü", "odd": 1}
            for name, step_id in done
        ],
        "artifacts": {"spec_path": "specs/7.md", "odd": True},
        "started_at": "2026-01-07T10:05:00Z",
        "updated_at": "2026-01-07T10:20:00Z",
        "sessions": {
            "current_session_id": "claude-session-1",
            "total_sessions": 1,
            "odd": "kept",
            "session_history": [
                {
                    "session_id": "claude-session-1",
                    "started_at": "2026-01-07T10:05:00Z",
                    "environment": {"hostname": "LAPTOP", "platform": "Linux", "cwd": "/mnt/c/GitHub/shop"},
                    "artifacts_loaded": ["workflow-state"],
                    "odd": 2,
                }
            ],
        },
        "context_metadata": {
            "reload_count": 1,
            "artifacts_in_context": [{"artifact_id": "workflow-state", "load_trigger": "workflow_start", "odd": 3}],
            "compaction_events": [{"detected_at": "2026-01-07T10:10:00Z"}],
        },
    }


def in_object(at: str = "build") -> Json:
    """Give a state of the era in which phases were an object, with counters of completed steps."""
    state = in_list(at)
    for key in ("steps", "sessions", "context_metadata", "current_step"):
        del state[key]
    state["current_step_id"] = f"{at}:{PHASES[at][0]['id']}"
    state["phases"] = {
        phase["name"]: {
            **{key: value for key, value in phase.items() if key != "name"},
            "completed_steps": [step["id"] for step in PHASES[phase["name"]] if phase["status"] == "completed"],
            "completed_step_ids": [
                f"{phase['name']}:{step['id']}" for step in PHASES[phase["name"]] if phase["status"] == "completed"
            ],
        }
        for phase in state["phases"]
    }
    return state


def below_phases(at: str = "build") -> Json:
    """Give a state of the era in which each step stands below its phase."""
    state = in_list(at)
    for key in ("steps", "sessions", "context_metadata", "current_step"):
        del state[key]
    state["current_step_id"] = f"{at}:{PHASES[at][0]['id']}"
    ended: list[str] = []
    phases: Json = {}
    for phase in state["phases"]:
        name, is_over = phase.pop("name"), phase["status"] == "completed"
        steps = {}
        for step in PHASES[name]:
            steps[step["id"]] = (
                {"status": "completed", "result": "success", "odd": 4} if is_over else {"status": "pending"}
            )
            ended += [f"{name}:{step['id']}"] if is_over else []
        phases[name] = {**phase, "steps": steps, "retry_count": 0}
    return {**state, "phases": phases, "steps_completed": ended}


ERAS: dict[str, Callable[..., Json]] = {"list": in_list, "object": in_object, "below": below_phases}

# Where a state and its plan stand, in every layout.
LAYOUTS = {
    "runs": (f".fractary/runs/{RUN_ID}/state.json", f"logs/fractary/plugins/faber/plans/{PLAN_ID}.json"),
    "faber-runs": (f".fractary/faber/runs/{RUN_ID}/state.json", f".fractary/faber/runs/{PLAN_ID}/plan.json"),
    "by-plan": (f".fractary/faber/runs/{PLAN_ID}/state-{SUFFIX}.json", f".fractary/faber/runs/{PLAN_ID}/plan.json"),
}


def lay(scene: Scene, layout: str = "runs", state: Json | None = None, plan: Json | None = PLAN) -> Path:
    """Write a run of FABER's into a project, with the specification that it names; gives the state's path."""
    state_path, plan_path = LAYOUTS[layout]
    if plan is not None:
        scene.write(plan_path, json.dumps(plan, indent=2))
    scene.write("specs/7.md", "# Dark mode\n\nA switch in the header.\n")
    return scene.write(state_path, json.dumps(state or in_list(), indent=2, ensure_ascii=False) + "\n")


def unknown_is_kept(before: Any, after: Any, path: str = "$") -> list[str]:
    """List what stood in a state before and is gone or changed after, but for what a run's way through it changes."""
    moving = ("status", "current_phase", "current_step", "current_step_id", "updated_at", "total_sessions")
    counted = (
        "current_session_id", "reload_count", "last_artifact_reload", "completed_at", "started_at", "attempts",
        "load_trigger", "loaded_at",
    )  # fmt: skip
    if isinstance(before, dict) and isinstance(after, dict):
        lost = [f"{path}.{key} is gone" for key in before if key not in after]
        kept = [key for key in before if key in after and key not in (*moving, *counted)]
        return lost + [found for key in kept for found in unknown_is_kept(before[key], after[key], f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list):
        if len(after) < len(before):
            return [f"{path} lost entries"]
        pairs = zip(before, after, strict=False)
        return [found for n, (one, other) in enumerate(pairs) for found in unknown_is_kept(one, other, f"{path}[{n}]")]
    return [] if before == after else [f"{path} was {before!r}, is {after!r}"]
