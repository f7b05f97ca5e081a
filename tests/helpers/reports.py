"""Runs that reports are made of: a rich one, one full of hostile text, one with many events."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.helpers.scenes import Scene, artifact

Json = dict[str, Any]

FORMS = ("full", "head", "pointer")
HOSTILE = (
    "</script><img src=x onerror=window.hit=1>", "<!--<script>window.hit=1</script>", '"><svg onload=window.hit=1>',
    "javascript:window.hit=1", "'onmouseover='window.hit=1", "abc\u202edcba\u2066x\u2069",
    "\x00\x1b[31mred\x07\u2028\u2029end", "🧵🧶👩🏽‍💻 ünïcödé العربية עברית", "W" * 10_000,
    "&lt;b&gt; &amp; {{x}} ${y}",
    "\ud800 half",
)  # fmt: skip
"""Texts that could break a page, if one of them were taken for markup."""


def stamp(day: int, hour: int, minute: int, second: int = 0) -> str:
    return f"2026-03-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def log(folder: Path, events: Iterable[Json]) -> None:
    lines, before, number = [], "", 0
    for number, one in enumerate(events, 1):
        entry = {"seq": number, "id": f"{number:06d}-0badcafe", "run_id": folder.name, "prev": before, **one}
        line = json.dumps({"seq": entry.pop("seq"), **entry}, ensure_ascii=False).encode("utf-8", "backslashreplace")
        before = hashlib.sha256(line).hexdigest()
        lines.append(line)
    (folder / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["ledger_head"] = {"seq": number, "sha256": before}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")


def event(at: str, name: str, /, **properties: Any) -> Json:
    beside: Json = {key: properties.pop(key) for key in ("session_id", "step_id") if key in properties}
    return {"ts": at, "event": name, **beside, "properties": properties}


def session(name: str, machine: str, begin: str, end: str | None, reason: str | None, *compactions: Json) -> Json:
    around = {
        "hostname": machine,
        "platform": "linux",
        "cwd": f"/home/ada/{machine}/shop",
        "git_branch": "dark-mode",
        "git_commit": hashlib.sha1(name.encode()).hexdigest(),  # the shape of git's own
        "dirty": machine == "loom-laptop",
    }
    return {
        "session_id": f"{name}-0000-4000-8000-000000000001",
        "host": "claude-code",
        "started_at": begin,
        "ended_at": end,
        "end_reason": reason,
        "last_activity": end or begin,
        "resumes": 0,
        "compactions": list(compactions),
        "phases_completed": ["frame"] if machine == "loom-laptop" else ["architect"],
        "artifacts_loaded": ["specification"],
        "environment": around,
    }


PLAN: Json = {
    "frame": {"steps": [{"id": "fetch-work", "name": "Read the issue", "prompt": "Read it."}]},
    "architect": {"steps": [{"id": "design", "name": "Write the specification", "prompt": "Write it."}]},
    "build": {
        "steps": [
            {"id": "implement", "name": "Build it", "prompt": "Build it."},
            {
                "id": "review",
                "name": "Review from three sides",
                "parallel": {
                    "join": "wait_all",
                    "branches": [
                        {"id": "api", "steps": [{"id": "read", "prompt": "Read the API."}]},
                        {"id": "web", "steps": [{"id": "read", "prompt": "Read the pages."}]},
                        {"id": "docs", "steps": [{"id": "read", "prompt": "Read the docs."}]},
                    ],
                },
            },
        ]
    },
    "evaluate": {"steps": [{"id": "test", "name": "Run the tests", "run": "pytest -q"}]},
    "release": {
        "steps": [
            {
                "id": "approve",
                "name": "A person decides",
                "kind": "human",
                "prompt": "Ship it?",
                "transitions": [{"to": "tag", "label": "[A] Approve"}, {"to": "build/implement", "label": "[F] Fix"}],
            },
            {"id": "tag", "name": "Tag the release", "prompt": "Tag it."},
        ]
    },
}


def visit(rank: int, key: str, status: str, begin: str, end: str | None, number: int = 1, **more: Any) -> Json:
    stage = f"{rank:03}-{key.replace('/', '.')}@{number}"
    return {
        "step_id": key, "phase": key.split("/", maxsplit=1)[0], "visit": number, "rank": rank, "stage": stage,
        "status": status, "started_at": begin, "completed_at": end, **more,
    }  # fmt: skip


def rich(scene: Scene) -> Path:
    """Make a run with machines, compactions, branches, a rewind, failures and a decision; gives its folder."""
    scene.write("specs/dark-mode.md", "# Dark mode\n\nThe contrast ratio is at least 7:1.\n" * 20)
    scene.write("docs/rules.md", "# Rules\n" * 50)
    scene.workflow(
        [artifact("specification", "specs/dark-mode.md"), artifact("house-rules", "docs/rules.md")],
        PLAN,
        description="shop",
    )
    scene.begin("258", workflow="tiny")
    folder = scene.run_dir
    steps = [
        visit(1, "frame/fetch-work", "succeeded", stamp(2, 9, 0), stamp(2, 9, 6)),
        visit(2, "architect/design", "succeeded", stamp(2, 9, 6), stamp(2, 9, 31)),
        visit(
            *(3, "build/implement", "failed", stamp(2, 9, 33), stamp(2, 10, 12)),
            failure_reason="Two contrast tests fail: the muted text is 4.1:1, the specification asks for 7:1.",
            next={"step_id": "build/implement", "reason": "retry"},
        ),
        visit(*(4, "build/implement", "succeeded", stamp(3, 8, 2), stamp(3, 8, 55), 2), attempt=2),
        {
            **visit(5, "build/review", "partially_succeeded", stamp(3, 8, 56), stamp(3, 9, 20)),
            "branches": [
                {
                    "id": name,
                    "index": index,
                    "status": status,
                    "steps": [
                        visit(
                            *(
                                6 + index, f"build/review.{name}.read", status, stamp(3, 8, 57),
                                stamp(3, 9, 3 + 7 * index),
                            ),
                            failure_reason="The how-to names a setting that is gone." if index == 2 else "",
                        )
                    ],
                }
                for index, (name, status) in enumerate((("api", "succeeded"), ("web", "succeeded"), ("docs", "failed")))
            ],
        },
        visit(9, "evaluate/test", "succeeded", stamp(3, 9, 21), stamp(3, 9, 29)),
        visit(10, "release/approve", "in_progress", stamp(3, 9, 30), None),
    ]  # fmt: skip
    receipt = {
        "proven": True,
        "kept": ["the contrast ratio is at least 7:1", "specification", "$.work_id"],
        "lost": ["no second stylesheet", "house-rules"],
        "restored": ["no second stylesheet", "house-rules"],
        "absent": ["$.context.budget"],
        "notes": {"$.context.budget": "the state has nothing there"},
        "pending": [],
    }
    held = [
        session(
            *("5f0c9a52", "loom-laptop", stamp(2, 8, 59), stamp(2, 10, 14), "lost"),
            {"at": stamp(2, 9, 52), "trigger": "auto", "receipt": receipt},
        ),
        session(
            *("9b1d77e0", "loom-desktop", stamp(3, 8, 0), stamp(3, 8, 40), "clear"),
            {"at": stamp(3, 8, 31), "trigger": "manual"},
        ),
        session(
            *("c44e0d19", "loom-desktop", stamp(3, 8, 40), None, None),
            {
                "at": stamp(3, 9, 10),
                "trigger": "auto",
                "receipt": {"proven": False, "kept": [], "lost": [], "restored": []},
            },
        ),
    ]
    phase = {
        name: {"status": status, "started_at": begin, "completed_at": end}
        for name, status, begin, end in (
            ("frame", "completed", stamp(2, 9, 0), stamp(2, 9, 6)),
            ("architect", "completed", stamp(2, 9, 6), stamp(2, 9, 31)),
            ("build", "completed", stamp(2, 9, 33), stamp(3, 9, 20)),
            ("evaluate", "completed", stamp(3, 9, 21), stamp(3, 9, 29)),
            ("release", "in_progress", stamp(3, 9, 30), None),
        )
    }
    scene.edit(
        goal="A visitor can switch the shop to dark colours, and the choice survives a reload",
        status="awaiting_feedback",
        created_at=stamp(2, 8, 59),
        updated_at=stamp(3, 9, 34),
        current_phase="release",
        current_step="release/approve",
        steps=steps,
        phases=phase,
        artifacts={"spec_path": "{project_root}/specs/dark-mode.md"},
        pending_approvals=[
            {
                "id": "human:010-release.approve@1",
                "reason": "Ship it? One reader found a how-to that names a setting that is gone.",
                "requested_at": stamp(3, 9, 30),
                "choices": ["[A] Approve", "[F] Fix"],
            }
        ],
        sessions={"current_session_id": held[-1]["session_id"], "total_sessions": 3, "session_history": held},
        context_metadata={
            "artifacts_in_context": [
                {
                    "artifact_id": "specification",
                    "loaded_at": stamp(3, 9, 10),
                    "load_trigger": "compact",
                    "form": "full",
                }
            ]
        },
    )
    _files(folder, steps)
    _calls(folder)
    log(folder, _story(steps, held))
    return folder


def _files(folder: Path, steps: list[Json]) -> None:
    inner = [one for step in steps for branch in step.get("branches", ()) for one in branch["steps"]]
    for number, one in enumerate([*steps, *inner]):
        where = folder / "stages" / one["stage"]
        where.mkdir(parents=True, exist_ok=True)
        (where / "prompt.md").write_text(f"# {one['step_id']}\n\nDo what the step says, then end with the outcome.\n")
        if one["completed_at"]:
            answer = (
                f"Done: {one['step_id']}.\n\n- The colours stand in `styles/variables.css`.\n- 41 tests pass.\n\n"
                '{"outcome": "succeeded"}\n'
            )
            (where / "response.md").write_text(answer)
            usage = {
                "models": ["claude-opus-4"],
                "input_tokens": 4_200 + 900 * number,
                "cache_creation_input_tokens": 11_000,
                "output_tokens": 1_800 + 350 * number,
            }
            status: Json = {
                "response_source": "conversation",
                "usage": usage,
                "context_updates": {"tests_passing": True},
            }
            if one["step_id"] == "evaluate/test":
                status |= {"response_source": "command", "command": {"exit_code": 0}}
                status["evidence"] = {
                    "passed": True,
                    "items": [
                        {"kind": "command", "name": "pytest -q", "passed": True},
                        {"kind": "file", "name": "coverage.xml", "passed": True, "sha256": "ab" * 32},
                    ],
                }
                (where / "command.log").write_text(
                    "".join(f"tests/test_{n}.py ....\n" for n in range(400)) + "41 passed\n"
                )
            (where / "status.json").write_text(json.dumps(status))
        if "implement" in one["step_id"]:
            touched = [
                {"path": "styles/variables.css", "change": "modified", "added": 48, "removed": 3},
                {"path": "src/theme.ts", "change": "added", "added": 61, "removed": 0},
                {"path": "tests/contrast.test.ts", "change": "added", "added": 90, "removed": 0},
            ]
            stored = f"assets/build.implement/retry_{one['visit']}/playwright-report/index #1.html"
            (folder / stored).parent.mkdir(parents=True, exist_ok=True)
            (folder / stored).write_text("<p>A report of the browser's tests</p>")
            asset = {"path": "playwright-report/index #1.html", "bytes": 38, "sha256": "", "stored": stored}
            told = {"files": touched, "count": 3, "assets": [asset]}
            (where / "changes.json").write_text(json.dumps(told))
            (where / "changes.patch").write_text("diff --git a/src/theme.ts b/src/theme.ts\n")


def _calls(folder: Path) -> None:
    lines = []
    for number in range(240):
        tool = ("Bash", "Read", "Grep", "Edit", "mcp__browser__snapshot")[number * 7 % 5]
        before = {"Bash": 2600, "Read": 1900, "Grep": 700, "Edit": 300, "mcp__browser__snapshot": 8000}[tool]
        step: Json = {
            "id": f"toolu-{number}", "tool_name": tool, "minimal_args": {}, "observation": "ok", "outcome_ref": None,
            "success": True, "tokens_before": before + number % 90, "tokens_after": 60 + number % 17,
        }  # fmt: skip
        lines.append(json.dumps(step))
    (folder / "tool_steps.jsonl").write_text("\n".join(lines) + "\n")


def _story(steps: list[Json], held: list[Json]) -> list[Json]:
    told = [event(held[0]["started_at"], "run.created", workflow_id="shop", work_id="258", goal="dark mode")]
    for one in held:
        beside = {"session_id": one["session_id"]}
        told.append(
            event(
                one["started_at"], "session.started", source="startup", hostname=one["environment"]["hostname"],
                **beside,
            )
        )  # fmt: skip
        told += [
            event(compaction["at"], "session.compacted", trigger=compaction["trigger"], **beside)
            for compaction in one["compactions"]
        ]
        for index, at in enumerate([one["started_at"], *(compaction["at"] for compaction in one["compactions"])]):
            told.append(
                event(
                    at,
                    "context.primed",
                    slip_id="slip",
                    event="compact" if index else "startup",
                    loaded={"specification": FORMS[index % 2], "house-rules": "full"} if index < 2 else {},
                    fresh=["house-rules"] if index else [],
                    not_loaded={} if index else {"screens": "condition_false"},
                    budget={"limit": 9500, "used": 7800 - 2100 * index},
                    warnings=[],
                    **beside,
                )
            )
    put_back = ["no second stylesheet", "house-rules"]
    beside = {"session_id": held[0]["session_id"]}
    told.append(event(stamp(2, 9, 53), "survival.restored", items=put_back, at="PostToolUse", tokens=412, **beside))
    for one in steps:
        beside = {"step_id": one["step_id"], "session_id": held[0]["session_id"]}
        told.append(event(one["started_at"], "stage.started", stage=one["stage"], visit=one["visit"], **beside))
        if one["completed_at"]:
            told.append(
                event(one["completed_at"], "stage.completed", stage=one["stage"], status=one["status"], **beside)
            )
    told.append(event(stamp(3, 8, 58), "stage.undone", stage="006-evaluate.test@1"))
    told.append(event(stamp(3, 8, 58), "run.rewound", to="005-build.review@1", undone=["006-evaluate.test@1"], gone=[]))
    told.append(
        event(stamp(2, 9, 32), "approval.granted", id="phase:build", by="Ada", note="the specification reads well")
    )
    return sorted(told, key=lambda one: one["ts"])


def hostile(scene: Scene) -> Path:
    """Make a run in which every text that somebody else wrote is hostile; gives its folder."""
    folder = rich(scene)
    text = " ".join(HOSTILE)
    state = scene.state
    for number, one in enumerate(state["steps"]):
        one["failure_reason"] = HOSTILE[number % len(HOSTILE)]
        for name in ("prompt.md", "response.md", "command.log"):
            data = text.encode("utf-8", "surrogatepass") + b"\xff\xfe\x00"
            (folder / "stages" / one["stage"] / name).write_bytes(data)
        stored = "assets/build.implement/retry_1/playwright-report/<img onerror=window.hit=1> 'x'.png"
        (folder / stored).write_bytes(b"\x89PNG")
        told = {
            "files": [{"path": hostile_text, "change": hostile_text} for hostile_text in HOSTILE],
            "assets": [{"path": text, "bytes": 4, "sha256": "", "stored": stored}],
            "passed_over": [{"path": text, "bytes": None, "reason": text}],
        }
        (folder / "stages" / one["stage"] / "changes.json").write_text(json.dumps(told))
    for one in state["sessions"]["session_history"]:
        one["environment"].update(hostname=HOSTILE[0] + HOSTILE[5], git_branch=text, platform=text)
        one.update(host=text, end_reason=text, started_at=one["started_at"])
        for compaction in one["compactions"]:
            compaction["receipt"] = {"proven": True, "kept": list(HOSTILE), "lost": list(HOSTILE), "restored": [text]}
    scene.edit(
        **{
            **state,
            "goal": text,
            "work_id": HOSTILE[2],
            "artifacts": dict.fromkeys(HOSTILE[:4], text),
            "errors": [{"message": text, "type": text, "step_id": HOSTILE[1]}, text],
            "pending_approvals": [
                {"id": "phase:build", "reason": text, "requested_at": text, "choices": list(HOSTILE)}
            ],
            "feedback": {"message": text},
        }
    )
    beside = {"session_id": HOSTILE[0], "step_id": HOSTILE[2]}
    events = [event(stamp(2, 9, number), "run.rewound", to=one, **beside) for number, one in enumerate(HOSTILE)]
    events += [event(text, f"x.{one}", **{one: {one: [one]}}, **beside) for one in HOSTILE]
    events += [
        event(stamp(2, 9, 1), "context.primed", event=one, loaded={one: one}, not_loaded={one: one}) for one in HOSTILE
    ]
    log(folder, events)
    calls: list[Json] = [
        {"id": "a", "tool_name": one, "minimal_args": {}, "observation": one, "success": True, "tokens_before": 9}
        for one in HOSTILE
    ]
    (folder / "tool_steps.jsonl").write_text("\n".join(map(json.dumps, calls)) + "\n")
    return folder


def large(scene: Scene, count: int = 10_000) -> Path:
    """Make the rich run with so many events; gives its folder."""
    folder = rich(scene)
    held = scene.state["sessions"]["session_history"]
    names = ("stage.started", "context.updated", "command.ended", "transition.chosen", "stage.completed")
    log(
        folder,
        (
            event(
                stamp(2, 9 + number // 3600, number // 60 % 60, number % 60),
                names[number % len(names)],
                stage=f"{number:05}-build.implement@{number}",
                reason=f"number {number} of many, in words that are as long as those of an event usually are",
                keys=["tests_passing", "coverage"],
                session_id=held[number % 3]["session_id"],
                step_id=f"build/step-{number % 40}",
            )
            for number in range(count)
        ),
    )
    return folder
