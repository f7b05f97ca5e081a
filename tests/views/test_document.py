"""What a report gathers of a run, whole or damaged, and what of the machine does not leave with it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import advance, start
from loomctl.runs.store.events import Event
from loomctl.views import document, page
from loomctl.views.document import MOST
from tests.helpers import reports
from tests.helpers.errors import refusal
from tests.helpers.scenes import OTHER, SESSION, Json, Scene

SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"


def gathered(scene: Scene, run_id: str = "") -> Json:
    return document.gather(scene.space(), run_id or scene.run_dir.name)


def codes(report: Json) -> list[str]:
    return [one["code"] for one in report["troubles"]]


def test_a_rich_run_is_told_whole(scene: Scene) -> None:
    folder = reports.rich(scene)
    for name in ("command.lock", "command.json"):
        (folder / "stages/009-evaluate.test@1" / name).write_text("{}", encoding="utf-8")
    report = gathered(scene)
    assert (codes(report), report["progress"]) == ([], {"done": 5, "steps": 7})
    assert [one["id"] for one in report["phases"]] == ["frame", "architect", "build", "evaluate", "release"]
    stages = {one["stage"]: one for one in report["stages"]}
    assert stages["008-build.review.docs.read@1"]["branch"] == {
        "of": "build/review",
        "stage": "005-build.review@1",
        "id": "docs",
    }
    assert [one["name"] for one in stages["009-evaluate.test@1"]["texts"]] == [
        "response.md", "prompt.md", "command.log", "status.json",
    ]  # fmt: skip
    others = {one["name"] for one in stages["009-evaluate.test@1"]["others"]}
    assert ("command.json" in others, "command.lock" in others) == (True, False)  # what only a process holds
    log = stages["009-evaluate.test@1"]["texts"][2]
    assert (log["cut"], log["text"].endswith("41 passed\n")) == ("end", True)
    assert [item["passed"] for item in stages["009-evaluate.test@1"]["evidence"]] == [True, True]
    assert {one["hostname"] for one in report["sessions"]} == {"loom-laptop", "loom-desktop"}
    assert report["sessions"][0]["compactions"][0]["receipt"]["lost"] == ["no second stylesheet", "house-rules"]
    assert report["sessions"][0]["compactions"][0]["receipt"]["absent"] == ["$.context.budget"]
    assert [one["kind"] for one in report["turns"]] == ["stage.undone", "run.rewound"]
    assert [one["what"] for one in report["decisions"]] == ["granted"]
    assert (report["savings"]["all"]["steps"], report["savings"]["over_time"][-1][0]) == (240, 240)
    assert len(report["savings"]["over_time"]) <= 202
    specification = report["artifacts"][0]
    assert (specification["form"], specification["forms"]) == ("full", {"full": 3, "head": 3})
    assert specification["bytes"] == os.path.getsize(scene.root / "specs/dark-mode.md")
    assert [one["path"] for one in report["files"]] == [
        "src/theme.ts",
        "styles/variables.css",
        "tests/contrast.test.ts",
    ]
    assert [one["added"] for one in report["files"]] == [122, 96, 180]


def test_what_was_mended_since_needs_nobody(scene: Scene) -> None:
    reports.rich(scene)
    told = {one["where"]: one["mended"] for one in gathered(scene)["errors"]}
    assert told == {"003-build.implement@1": True, "008-build.review.docs.read@1": False}
    scene.edit(errors=[{"step_id": "build/implement", "message": "no"}, {"message": "nowhere"}, "text"])
    told = {one["message"]: one["mended"] for one in gathered(scene)["errors"]}
    assert (told["no"], told["nowhere"], told["text"]) == (True, False, False)
    scene.edit(status="completed")
    assert all(one["mended"] for one in gathered(scene)["errors"])


def test_evidence_that_an_open_step_lacks_is_told_of_its_last_check(scene: Scene) -> None:
    step = {"id": "make", "prompt": "Make it.", "evidence": ["out.md", {"state": "$.context.cover"}]}
    scene.workflow(phases={"build": {"steps": [step]}})
    run_id = scene.begin().run.run_id
    advance.done(scene.space(), run_id, response="Made it.")
    scene.write("out.md", "x")
    advance.done(scene.space(), run_id, response="Made it.")
    (stage,) = gathered(scene)["stages"]
    assert [(one["name"], one["passed"]) for one in stage["evidence"]] == [("out.md", True), ("$.context.cover", False)]
    assert stage["evidence"][0]["sha256"] == hashlib.sha256(b"x").hexdigest()
    assert stage["evidence"][1]["why"]


def test_whoever_drives_is_told_in_parts(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    assert gathered(scene)["run"]["driver"]["since"] == scene.state["lease"]["since"]
    for lease in (None, 5, {}, {"session_id": None}, {"session_id": 5, "since": []}):
        scene.edit(lease=lease)
        assert gathered(scene)["run"]["driver"] is None


def test_who_drives_is_who_status_names(scene: Scene) -> None:
    scene.workflow()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as host:
        run_id = start.start(scene.space(pid=host.pid), "x", workflow="tiny").run.run_id
        for session, lives in ((OTHER, True), (SESSION, False), (OTHER, False)):
            if not lives:
                host.kill()
                host.wait()
            for status in ("in_progress", "paused", "completed", "failed", "cancelled"):
                scene.edit(status=status)
                told = scene.loomctl("status", run_id, "--json", session=session).json["driver"]
                held = scene.loomctl("report", run_id, "--json", session=session).json["run"]["driver"]
                assert held == (told and {key: told[key] for key in ("session_id", "hostname", "since")})
                named = status not in ("completed", "cancelled") and (lives or session == SESSION)
                assert (held is not None) is named, (status, session, lives)


def test_the_report_counts_steps_as_the_status_line_does(scene: Scene) -> None:
    prime = {"id": "prime", "prompt": "/loom:prime-context"}
    scene.workflow(phases={"build": {"pre_steps": [prime], "steps": [{"id": "one", "prompt": "Do it."}]}})
    scene.begin()
    report = gathered(scene)
    assert (report["progress"], codes(report)) == ({"done": 0, "steps": 1}, [])
    assert len(report["stages"]) == 1
    assert [step["key"] for step in report["phases"][0]["steps"]] == ["build/one"]


def broken_state(folder: Path) -> None:
    (folder / "state.backup.json").write_bytes((folder / "state.json").read_bytes())
    (folder / "state.json").write_text('{"run_id": ')


def no_state_at_all(folder: Path) -> None:
    for path in folder.glob("state*.json"):
        path.write_text("[]")


def broken_plan(folder: Path) -> None:
    (folder / "plan.json").write_text("no plan")


def broken_log(folder: Path) -> None:
    """A log with lines that are no entries, and a torn end."""
    path = folder / "events.jsonl"
    path.write_bytes(b'x\n{"seq": 0}\n' + path.read_bytes() + b'{"seq":99,')


def broken_stage(folder: Path) -> None:
    for name in ("status.json", "changes.json"):
        (folder / "stages" / "003-build.implement@1" / name).write_text("{")


def linked_log(folder: Path) -> None:
    (folder / "events.jsonl").unlink()
    (folder / "events.jsonl").symlink_to("/etc/passwd")


DAMAGE: list[tuple[Any, list[str], int, int]] = [
    (broken_state, ["BAD_JSON", "OLDER_STATE"], 10, 28), (no_state_at_all, ["BAD_STATE"], 0, 28),
    (broken_plan, ["BAD_JSON"], 10, 28), (broken_log, ["NO_ENTRY"], 10, 28),
    (broken_stage, ["BAD_JSON"], 10, 28), (linked_log, ["UNSAFE_LINK"], 10, 0),
]  # fmt: skip


def test_a_damaged_run_is_told_as_far_as_it_can_be_read(scene: Scene) -> None:
    folder = reports.rich(scene)
    copy = folder.parent.parent / "copy"
    shutil.copytree(folder, copy)
    whole = gathered(scene)["events"]["total"]
    for damage, known, stages, events in DAMAGE:
        damage(folder)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
        report = gathered(scene)
        assert set(known) <= set(codes(report)), damage
        assert (len(report["stages"]), report["events"]["total"]) == (stages, whole if events else 0), damage
        assert {path: path.read_bytes() for path in before} == before
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
    for change, code in (({"run_id": "x"}, "RUN_ID_MISMATCH"), ({"schema_version": 99}, "SCHEMA_TOO_NEW")):
        scene.edit(**change)
        assert refusal(gathered, scene, folder.name).code == code


def test_what_was_injected_is_told_in_tokens(scene: Scene) -> None:
    folder = reports.rich(scene)
    budget = {"limit": 9500, "used": 4001}
    told: list[tuple[str, Json]] = [
        ("context.primed", {"event": "compact", "budget": budget, "tokens": 900, "characters": 3_900}),
        ("context.primed", {"event": "compact", "budget": budget}),
        ("context.primed", {"event": "compact", "budget": budget, "characters": 3_600}),
        ("survival.restored", {"items": ["no second stylesheet"], "at": "PostToolUse", "tokens": 31}),
        ("survival.restored", {"items": ["abcde", "abc"], "at": "PostToolUse", "tokens": "many"}),
    ]
    reports.log(folder, [reports.event(reports.stamp(2, 9, 0), name, **properties) for name, properties in told])
    report = gathered(scene)
    assert [(one["tokens"], one["guessed"]) for one in report["primings"]] == [
        (900, False), (1001, True), (900, True), (31, False), (2, True),
    ]  # fmt: skip
    made = page.page(document.link(report, {}, ""))
    assert "about 2,834 tokens at 5 times; 3 of them (≈) guessed" in made
    assert "lost in a compaction: no second stylesheet" in made


def test_a_line_that_a_kill_tore_off_is_no_trouble(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    path = scene.run_dir / "events.jsonl"
    for total in (0, 1):
        with path.open("ab") as log:
            log.write(b'{"seq":99,"half')
        report = gathered(scene)
        assert (codes(report), report["ledger"]["ok"], report["events"]["broken"]) == ([], True, total + 1)
        scene.space().store.update(scene.run_dir.name, lambda state: (state, [Event("noise", {})]))
        report = gathered(scene)
        assert (codes(report), report["ledger"]["ok"], report["events"]["broken"]) == ([], True, total + 1)
    path.write_bytes(path.read_bytes().replace(b'99,"half', b'98,"half', 1))
    report = gathered(scene)
    assert (codes(report), report["ledger"]["ok"]) == (["NO_ENTRY"], False)
    assert f"loomctl prove --log {scene.handle}" in report["troubles"][0]["what"]


def test_a_log_of_which_a_line_was_changed_needs_attention(scene: Scene) -> None:
    folder = reports.rich(scene)
    path = folder / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b"dark mode", b"dork mode", 1))
    report = gathered(scene)
    assert codes(report) == ["CHANGED_ENTRY"]
    made = page.page(document.link(report, {}, ""))
    shown = made.split('id="attention"', 1)[1].split("</section>", 1)[0]
    assert "CHANGED_ENTRY" in shown


def test_no_secret_and_no_folder_of_a_machine_leaves_in_a_report(scene: Scene) -> None:
    folder = reports.rich(scene)
    text = f"{SECRET} at {scene.root}/src, /home/ada/loom-laptop/shop/a and /home/grace/notes, {Path.home()}/x"
    for stage in (folder / "stages").iterdir():
        for name in ("response.md", "prompt.md", "command.log"):
            (stage / name).write_text("a line of this file\n" * 20 + text + "\n")
    scene.edit(
        goal=text,
        errors=[{"message": text}],
        artifacts={"spec": text},
        feedback={"message": text},
        steps=[
            {**one, **({"failure_reason": text} if one["status"] == "failed" else {})} for one in scene.state["steps"]
        ],
    )
    reports.log(
        folder, [reports.event(reports.stamp(2, 9, 0), "run.failed", failure_reason=text, nested=[{"x": text}])]
    )
    told = json.dumps(gathered(scene))
    assert SECRET not in told
    assert "[masked: " in told
    assert str(scene.root) not in told
    assert "/home/" not in told
    assert "{project_root}/src" in told
    assert "~/notes" in told


@pytest.mark.slow
def test_a_secret_at_the_place_where_a_file_is_cut_is_not_cut_in_two(scene: Scene) -> None:
    folder = reports.rich(scene)
    stages = [one["stage"] for one in gathered(scene)["stages"]]
    shifts = list(range(-45, 5))
    for some in (shifts[at : at + len(stages)] for at in range(0, len(shifts), len(stages))):
        for stage, shift in zip(stages, some, strict=False):
            text = "x" * (8_000 + shift) + " " + SECRET + " " + "y" * 9_000
            (folder / "stages" / stage / "response.md").write_text(text)
        told = {one["stage"]: one["texts"][0] for one in gathered(scene)["stages"]}
        for stage, shift in zip(stages, some, strict=False):
            assert (told[stage]["name"], told[stage]["bytes"]) == ("response.md", 17_000 + shift + 42)
            assert SECRET[:12] not in json.dumps(told[stage]), shift


@pytest.mark.slow
def test_of_many_events_the_newest_are_kept(scene: Scene) -> None:
    reports.large(scene, MOST + 50)
    report = gathered(scene)
    assert report["events"]["total"] == MOST + 50
    rows = report["events"]["rows"]
    assert len(rows) <= MOST
    assert rows[-1]["seq"] == MOST + 50
    assert [row["seq"] for row in rows] == list(range(rows[0]["seq"], MOST + 51))


@pytest.mark.slow
def test_long_texts_of_many_stages_stay_below_a_bound(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    folder = scene.run_dir
    steps = [
        reports.visit(rank, "build/make", "succeeded", reports.stamp(2, 9, 0), reports.stamp(2, 9, 1), rank)
        for rank in range(1, 401)
    ]
    scene.edit(steps=steps)
    for one in steps:
        (folder / "stages" / one["stage"]).mkdir(parents=True, exist_ok=True)
        (folder / "stages" / one["stage"] / "response.md").write_text("words and words\n" * 6_000)
    report = gathered(scene)
    assert len(json.dumps(report)) < 4_000_000
    assert all(one["texts"][0]["bytes"] == 96_000 and one["texts"][0]["cut"] == "begin" for one in report["stages"])
