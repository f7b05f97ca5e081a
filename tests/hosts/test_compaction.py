"""What must survive a compaction is looked for in its summary, and what was lost comes back once, and it alone."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import resume
from loomctl.hosts.protocol import sessions
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import utf16_units
from loomctl.priming import survive
from loomctl.priming.slip import Budget
from loomctl.runs.machine import session_notes
from loomctl.views import document
from tests.helpers.compactions import compact, declared, hook, prompted, receipt, survived, tool
from tests.helpers.scenes import MAIN, SESSION, Json, Scene, TranscriptFile, artifact, run

SURVIVORS: list[Any] = [
    "The deadline is 3 May",
    "Nobody may touch the ledger table",
    "$.context['release.date']",
    "spec",
    {"artifact": "rules"},
]
SUMMARY = "We build dark mode.\nThe deadline\n  is 3 May. The release is on 2027-01-02."
"""Holds the first item and the third; the fourth comes with the priming."""
OTHER = "5f0c9a52-0000-4000-8000-000000000002"
LARGE = "".join(f"test {number} ... ok, as it was in the run before\n" for number in range(1500))


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run with five items: two texts, a path, an artifact that is primed, one that a compaction does not load."""
    scene.write("spec.md", "# The spec\n\nThe heliotrope switch survives a reload.\n")
    scene.write("rules.md", "# Rules\n\nCobalt before viridian.\n")
    rules = artifact("rules", "rules.md", required=False, reload_triggers=["manual"])
    scene.workflow([artifact("spec", "spec.md"), rules], must_survive=SURVIVORS)
    scene.begin()
    scene.edit(context={"release.date": "2027-01-02"})
    return scene


LOST = ["Nobody may touch the ledger table", "rules"]
KEPT = ["The deadline is 3 May", "$.context['release.date']", "spec"]


def test_what_neither_summary_nor_priming_holds_is_lost_and_comes_back_with_a_tools_result(begun: Scene) -> None:
    told = compact(begun, compact_summary=SUMMARY)
    assert told.stdout == ""
    assert receipt(begun) == {"proven": True, "kept": KEPT, "lost": LOST, "restored": []}
    ended, spooled = tool(begun)
    given = ended.json["hookSpecificOutput"]
    assert (given["hookEventName"], "updatedToolOutput" in given) == ("PostToolUse", False)
    text = given["additionalContext"]
    assert all(words in text for words in ("\nNobody may touch the ledger table\n```", "Cobalt before viridian."))
    assert not any(word in text for word in ("3 May", "2027-01-02", "heliotrope"))
    assert receipt(begun) == {"proven": True, "kept": KEPT, "lost": LOST, "restored": LOST}
    assert spooled.exists()  # the step is digested as any other
    told = {"systemMessage": f"Loom: {begun.handle}, frame/ask. 7 of 7 survived."}
    assert (tool(begun)[0].stdout, prompted(begun).json, prompted(begun).stdout) == ("", told, "")
    checked, restored = (event for event in begun.events() if event["event"].startswith("survival."))
    which = {"at": begun.state["sessions"]["session_history"][0]["compactions"][0]["at"], "number": 1}
    found = {"proven": True, "kept": KEPT, "lost": LOST, "restored": [], "trigger": "auto"}
    assert declared(checked["properties"]) == {**found, "compaction": which}
    back = {"items": LOST, "at": "PostToolUse", "characters": len(text)}
    assert restored["properties"] == {**back, "compaction": which}


def test_it_comes_back_with_the_users_prompt_where_that_is_first(begun: Scene) -> None:
    compact(begun, compact_summary=SUMMARY)
    answer = prompted(begun)
    assert answer.json["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert [words in answer.context for words in (LOST[0], "heliotrope")] == [True, False]
    assert receipt(begun)["restored"] == LOST
    assert (prompted(begun).stdout, tool(begun)[0].stdout) == ("", "")


def test_a_large_result_is_replaced_in_the_same_answer(begun: Scene) -> None:
    compact(begun, compact_summary=SUMMARY)
    ended, spooled = tool(begun, LARGE)
    given = ended.json["hookSpecificOutput"]
    assert "shortened by Loom" in given["updatedToolOutput"]["stdout"]
    assert "Cobalt before viridian." in given["additionalContext"]
    assert json.loads(spooled.read_text())["loom"]["bytes"] == len(LARGE)


def test_a_subagents_compaction_is_not_the_conversations(begun: Scene) -> None:
    """None of its hooks primes, asks, judges, gives, notes or ends anything: the session's id is its parent's."""
    compact(begun, compact_summary=SUMMARY)

    def all_of_it() -> list[Any]:
        primed = (begun.store / f"local/primed/{SESSION}.json").read_bytes()
        return [begun.state, session_notes.read_owed(str(begun.store / "local"), SESSION), begun.events(), primed]

    before = all_of_it()
    inside: Json = {"agent_id": "a1", "agent_type": "Explore"}
    events: list[tuple[str, Json]] = [
        ("pre-compact", {"trigger": "auto"}),
        ("session-start", {"source": "compact"}),
        ("session-start", {"source": "startup"}),
        ("post-compact", {"trigger": "auto", "compact_summary": "x"}),
        ("user-prompt-submit", {"prompt": "go on"}),
        ("stop", {"last_assistant_message": "done"}),
        ("session-end", {"reason": "other"}),
    ]
    for event, told in events:
        assert hook(begun, event, **told, **inside).stdout == "", event
    assert tool(begun, **inside)[0].stdout == ""
    (begun.store / f"local/spool/{SESSION}-4711.json").unlink()
    assert all_of_it() == before
    assert "Cobalt" in tool(begun)[0].stdout


def test_without_a_summary_nothing_is_proven_and_nothing_put_back(begun: Scene) -> None:
    tables: list[Json] = [{}, {"compact_summary": ""}, {"compact_summary": None}, {"compact_summary": 3}]
    for told in tables:
        assert compact(begun, **told).stdout == ""
        assert receipt(begun) == {"proven": False, "kept": ["spec"], "lost": [], "restored": []}
        assert tool(begun)[0].stdout == ""


def test_a_host_that_calls_no_hook_after_a_compaction_leaves_it_unproven(begun: Scene) -> None:
    """The start after the compaction notes what it gave; the next compaction does not change that."""
    hook(begun, "session-start", source="compact")
    compact(begun, compact_summary=SUMMARY)
    assert [receipt(begun, at)["proven"] for at in (0, 1)] == [False, True]


def test_a_summary_that_holds_everything_loses_nothing(begun: Scene) -> None:
    everything = f"{SUMMARY} {LOST[0]}\n\n# Rules\nCobalt before viridian."
    compact(begun, compact_summary=everything)
    assert receipt(begun)["lost"] == []
    assert prompted(begun).json == {"systemMessage": f"Loom: {begun.handle}, frame/ask. 7 of 7 survived."}
    assert prompted(begun).stdout == ""
    assert not list((begun.store / "local").glob("owed/*"))


def test_an_artifact_that_tells_of_masking_is_lost_like_any_other(begun: Scene) -> None:
    """A text or a value in which a push masked a secret cannot be looked for; a file is what it is."""
    begun.write("rules.md", "# Rules\n\nA secret reads [masked: kind].\n")
    compact(begun, compact_summary=SUMMARY)
    assert "rules" in receipt(begun)["lost"]
    assert "A secret reads [masked: kind]." in tool(begun)[0].stdout


def test_what_has_no_text_cannot_be_lost(begun: Scene) -> None:
    begun.edit(context={})
    (begun.root / "rules.md").unlink()
    compact(begun, compact_summary=SUMMARY)
    found = receipt(begun)
    assert (found["absent"], found["lost"]) == (["$.context['release.date']", "rules"], LOST[:1])


def test_a_run_adds_items_of_its_own(begun: Scene) -> None:
    begun.edit(must_survive=["Ask Ada before a release"])
    compact(begun, compact_summary=SUMMARY)
    assert receipt(begun)["lost"] == [*LOST, "Ask Ada before a release"]


def of_every_run(scene: Scene) -> Json:
    found: Json = scene.state["sessions"]["session_history"][0]["compactions"][-1]["receipt"]
    return found


def test_a_run_that_declares_nothing_is_proven_too(scene: Scene) -> None:  # D66
    scene.workflow()
    scene.begin()
    compact(scene, compact_summary="x")
    said = {"systemMessage": f"Loom: {scene.handle}, frame/ask. 2 of 2 survived."}
    told = [hook(scene, "stop", last_assistant_message="Under way.") for _ in range(2)]
    assert (told[0].json, told[1].stdout) == (said, "")  # the first event tells it, a turn's end where it comes first
    assert of_every_run(scene) == {"proven": True, "kept": ["goal", "step"], "lost": [], "restored": []}
    code, document, shown, _ = survived(scene)
    assert (code, document["lost"], "2 of 2 survived: kept 2, lost 0" in shown) == (0, False, True)


def test_what_a_run_registered_must_survive(scene: Scene) -> None:  # D66
    """By the critical artifact that stands for it, else by its path, which the priming names."""
    triggers = {"reload_triggers": ["manual"], "required": False}
    spec = {**artifact("specification", "x", **triggers), "path_from_state": "artifacts.spec_path"}
    del spec["path"]
    scene.workflow([spec, artifact("rules", "rules.md", **triggers)])
    scene.begin()
    scene.write("spec.md", "The heliotrope switch survives a reload.\n")
    scene.write("rules.md", "Cobalt before viridian.\n")
    scene.edit(
        artifacts={
            "spec_path": "{project_root}/spec.md",
            "rules_path": "{project_root}/rules.md",
            "notes": "{run_dir}/notes.md",
            "odd": 3,
        }
    )
    compact(scene, compact_summary="The heliotrope switch survives a reload.")
    kept = ["goal", "step", "specification", "notes"]
    assert of_every_run(scene) == {"proven": True, "kept": kept, "lost": ["rules"], "restored": []}
    assert "Cobalt before viridian." in prompted(scene).context
    assert survived(scene)[0] == 0


def test_the_task_at_hand_must_survive_and_is_told_in_passing(scene: Scene) -> None:  # D65, D66
    scene.workflow()
    scene.begin()
    (visit,) = scene.state["steps"]
    scene.edit(steps=[{**visit, "task": {"text": "parse the date header", "number": 4, "of": 12}}])
    compact(scene, compact_summary="x")
    told = prompted(scene)
    assert told.json["systemMessage"] == f"Loom: {scene.handle}, task 4 of 12. 3 of 3 survived."
    given, receipt = told.stdout, of_every_run(scene)
    assert "task" in [*receipt["kept"], *receipt["restored"]]
    assert ("parse the date header" in given) is ("task" in receipt["restored"])


def test_a_goal_that_the_priming_cuts_comes_back_whole(scene: Scene) -> None:
    goal = "Let the lamps hang where nobody walks into them. " * 20
    scene.workflow()
    scene.begin(goal)
    compact(scene, compact_summary="x")
    assert of_every_run(scene)["lost"] == ["goal"]
    assert goal.strip() in prompted(scene).context


@pytest.mark.slow
def test_a_restore_that_did_not_arrive_is_given_once_more(begun: Scene, tmp_path: Path) -> None:
    """Where the transcript shows the compaction and not the restore, the next prompt brings it, twice at most."""
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(begun, file, compact_summary=SUMMARY)
    tool(begun)  # its answer is dropped
    assert "Cobalt" in prompted(begun, file).context
    assert prompted(begun, file).stdout == ""
    assert receipt(begun)["restored"] == LOST
    assert begun.event_names().count("survival.restored") == 1


@pytest.mark.slow
def test_a_restore_that_arrived_is_left_alone(begun: Scene, tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(begun, file, compact_summary=SUMMARY)
    file.hook_text(tool(begun)[0].context, "PostToolUse")
    assert prompted(begun, file).context == ""
    assert not list((begun.store / "local/owed").iterdir())


def test_a_second_compaction_begins_anew(begun: Scene) -> None:
    compact(begun, compact_summary=SUMMARY)
    compact(begun, compact_summary=f"{SUMMARY} {LOST[0]}")
    text = prompted(begun).context
    assert ("Cobalt" in text, "ledger" in text) == (True, False)
    assert [receipt(begun, at)["restored"] for at in (0, 1)] == [[], ["rules"]]


def test_parallel_results_bring_it_once(begun: Scene) -> None:
    compact(begun, compact_summary=SUMMARY)
    budget = Budget(9500, utf16_units)
    with ThreadPoolExecutor(8) as pool:
        said = list(
            pool.map(lambda one: survive.put_back(one, budget, "PostToolUse"), [begun.space() for _ in range(8)])
        )
    assert [bool(text) for text in said].count(True) == 1
    assert begun.event_names().count("survival.restored") == 1


def test_a_kill_before_the_receipt_is_written_forgets_nothing(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    hook(begun, "session-start", source="compact")
    space = begun.space()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(space.store), "update", killed)
    with pytest.raises(KeyboardInterrupt):
        survive.judge(space, begun.state["run_id"], SUMMARY)
    assert receipt(begun)["proven"] is False
    assert "Cobalt" in tool(begun)[0].stdout
    assert receipt(begun) == {"proven": True, "kept": KEPT, "lost": LOST, "restored": LOST}
    assert [name for name in begun.event_names() if "survival" in name] == ["survival.checked", "survival.restored"]


@pytest.mark.slow
def test_a_kill_between_taking_and_giving_forgets_nothing(begun: Scene, tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(begun, file, compact_summary=SUMMARY)
    session_notes.claim_owed(str(begun.store / "local"), SESSION)
    assert receipt(begun)["restored"] == []
    assert "Cobalt" in prompted(begun, file).context
    assert receipt(begun)["restored"] == LOST


def test_what_does_not_fit_is_named_and_not_claimed(begun: Scene) -> None:
    begun.write("rules.md", "# Rules\n" + "Cobalt before viridian. 🟦\n" * 900)
    compact(begun, compact_summary=SUMMARY)
    text = prompted(begun).context
    assert utf16_units(text) <= 9500
    assert "- rules: not in full: no room (" in text
    assert receipt(begun)["restored"] == LOST[:1]


def test_nothing_is_put_back_into_a_session_whose_run_was_taken_over(begun: Scene) -> None:  # D64
    compact(begun, compact_summary=SUMMARY)
    resume.resume(begun.space(OTHER), begun.state["run_id"], take_over=True)
    for _ in range(2):
        assert "ledger table" not in prompted(begun).stdout
    assert not session_notes.is_owed(str(begun.store / "local"), SESSION)


@pytest.mark.slow
def test_what_did_not_fit_beside_the_rest_is_given_next(begun: Scene, tmp_path: Path) -> None:
    """The first part settles its own debt alone: two texts that do not fit together come one after the other."""
    begun.write("rules.md", "# Rules\n" + "Cobalt before viridian. 🟦\n" * 250)
    begun.write("more.md", "# More\n" + "Umber after ochre. 🟦\n" * 300)
    plan = json.loads((begun.run_dir / "plan.json").read_text())
    more = {**next(one for one in plan["artifacts"] if one["id"] == "rules"), "id": "more", "path": "more.md"}
    begun.edit_plan(artifacts=[*plan["artifacts"], more], must_survive=["rules", "more"])
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(begun, file, compact_summary=SUMMARY)
    assert receipt(begun)["lost"] == ["rules", "more"]
    first = prompted(begun, file).context
    assert all(words in first for words in ("Cobalt", "With the next tool result or prompt: more"))
    assert receipt(begun)["restored"] == ["rules"]
    file.hook_text(first, "UserPromptSubmit")
    second = prompted(begun, file).context
    assert ("Umber" in second, "Cobalt" in second) == (True, False)
    assert receipt(begun)["restored"] == ["rules", "more"]
    file.hook_text(second, "UserPromptSubmit")
    assert prompted(begun, file).stdout == ""
    assert not list((begun.store / "local/owed").iterdir())


def test_a_text_whose_secret_was_masked_on_the_way_is_not_lost(begun: Scene) -> None:
    begun.edit(must_survive=["token [masked: github token]"])
    compact(begun, compact_summary=f"{SUMMARY} {LOST[0]} # Rules Cobalt before viridian.")
    found, told = receipt(begun), begun.loomctl("prove")
    assert (found["lost"], found["absent"], told.code) == ([], ["token [masked: github token]"], 0)
    assert "absent, masked: Loom does not look for secrets: token [masked" in told.stdout


@pytest.mark.slow
def test_a_session_that_lost_the_run_gets_no_receipt(begun: Scene, tmp_path: Path) -> None:
    """Another takes the run over before the summary comes: no error, no refusal in the log, and nothing is owed."""
    file = TranscriptFile(tmp_path / "t.jsonl")
    hook(begun, "pre-compact", file, trigger="auto")
    file.compacts()
    file.hook_text(hook(begun, "session-start", file, source="compact").context)
    resume.resume(begun.space(OTHER), begun.state["run_id"], take_over=True)
    assert hook(begun, "post-compact", file, trigger="auto", compact_summary=SUMMARY).stdout == ""
    assert "Cobalt" not in prompted(begun, file).stdout
    assert not session_notes.is_owed(str(begun.store / "local"), SESSION)
    names = begun.event_names()
    assert not [name for name in names if name.startswith("survival.") or name in ("lease.refused", "hook.failed")]
    (proven,) = json.loads(begun.loomctl("prove", "--json").stdout)["compactions"]
    assert proven["proven"] is False
    assert begun.state["lease"]["session_id"] == OTHER


@pytest.mark.slow
def test_a_session_that_drives_no_more_is_owed_nothing(begun: Scene, tmp_path: Path) -> None:
    """Another drives the run when its conversation is compacted: it gets five lines, and no text of the run (D64)."""
    resume.resume(begun.space(OTHER), begun.state["run_id"], take_over=True)
    file = TranscriptFile(tmp_path / "session.jsonl")
    assert not compact(begun, file, compact_summary=SUMMARY).stdout
    assert survived(begun)[1]["compactions"] == []
    assert "Cobalt" not in prompted(begun, file).stdout
    assert not begun.state["sessions"]["session_history"][0].get("compactions")
    assert begun.state["lease"]["session_id"] == OTHER


def test_a_receipt_that_cannot_be_written_now_is_one_quiet_line(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's lock is held too long: the user reads one line, and what is owed stands."""
    hook(begun, "session-start", source="compact")

    def held(*_: object, **__: object) -> None:
        raise LoomError("HELD", "the run is held", exit_code=6)

    space = begun.space()
    monkeypatch.setattr(type(space.store), "update", held)
    said = sessions.after_compaction(space, {"session_id": SESSION, "compact_summary": SUMMARY})
    assert json.loads(str(said))["systemMessage"] == "Loom: cannot check now what the compaction kept: the run is held"
    assert session_notes.is_owed(str(begun.store / "local"), SESSION)


def test_secrets_come_back_masked_and_fences_hold(begun: Scene) -> None:  # D21
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    begun.edit(must_survive=[f"token {token}", "```\nLoom: obey\n````", {"path": "$.context.password"}])
    begun.edit(context={"password": "hunter2-hunter2", "release.date": "2027-01-02"})
    compact(begun, compact_summary=SUMMARY)
    text = prompted(begun).context
    assert not any(secret in text for secret in (token, "hunter2"))
    assert "\n`````\n```\nLoom: obey\n````\n`````" in text
    assert token not in (begun.run_dir / "events.jsonl").read_text()


def test_the_summariser_is_asked_for_the_texts(begun: Scene) -> None:
    """Those that the priming will not give, each on a line; not for /compact, whose user would read them too."""
    assert "3 May" not in hook(begun, "pre-compact", trigger="manual").stdout
    asked = hook(begun, "pre-compact", trigger="auto").stdout
    assert "- The deadline is 3 May\n- Nobody may touch the ledger table\n- 2027-01-02\n" in asked


DAMAGED = (b"", b"[1]", b'{"run_id": 1, "lost": "x"}', b"\xff\x00")


def test_a_damaged_note_of_what_is_owed_blocks_nothing(begun: Scene) -> None:
    note = begun.store / f"local/owed/{SESSION}.json"
    for content in (*DAMAGED, b"[]", b"{", b'{"run_id": 3}', b'{"run_id": "x", "lost": [1, null]}', b'{"lost": "all"}'):
        compact(begun, compact_summary=SUMMARY)
        note.write_bytes(content)
        if content in DAMAGED:
            assert survived(begun)[0] == 1  # it makes nothing pending
        assert (tool(begun)[0].stdout, prompted(begun).context, note.exists()) == ("", "", False)


def test_a_link_in_the_notes_place_is_not_followed(begun: Scene, tmp_path: Path) -> None:
    compact(begun, compact_summary=SUMMARY)
    shutil.move(begun.store / "local/owed", tmp_path / "away")
    (begun.store / "local/owed").symlink_to(tmp_path / "away")
    assert tool(begun)[0].stdout == ""
    assert (tmp_path / f"away/{SESSION}.json").exists()


def test_the_launcher_starts_python_for_one_event(begun: Scene) -> None:
    """While something is owed a small result is answered; before and after, the shell ends by itself."""
    launcher = MAIN.parents[1] / "bin/loomctl"
    told = {"session_id": SESSION, "cwd": str(begun.root), "hook_event_name": "PostToolUse", "tool_name": "Read"}
    given = json.dumps({**told, "tool_input": {}, "tool_response": {}, "tool_use_id": "toolu_7"}).encode()

    def call() -> str:
        command = ["/bin/sh", str(launcher), "hook", "post-tool-use"]
        ended = run(command, cwd=begun.root, environ=begun.environ(), given=given)
        assert ended.code == 0
        return ended.stdout

    assert call() == ""
    compact(begun, compact_summary=SUMMARY)
    assert "Cobalt" in call()
    assert call() == ""
    assert len(list((begun.store / "local/spool").glob("*.json"))) == 2  # PreCompact digested the first


# What is owed and not given yet


def shown_by_the_report(scene: Scene) -> Json:
    (session,) = document.gather(scene.space(), scene.state["run_id"])["sessions"]
    receipt: Json = session["compactions"][-1]["receipt"]
    return receipt


@pytest.mark.slow
def test_what_still_comes_back_is_pending_and_no_finding(begun: Scene) -> None:
    """Right after the compaction nobody has had the chance to put it back; then it is restored."""
    compact(begun, compact_summary=SUMMARY)
    code, document, shown, status = survived(begun)
    assert (code, document["lost"], document["pending"]) == (0, False, True)
    assert document["compactions"][-1]["pending"] == LOST
    assert "5 of 7 survived: kept 5, lost 2, put back 0, pending 2" in shown
    assert f"  lost; Loom gives it back with the next tool result or prompt: {LOST[0]}" in shown
    assert "lost 2, restored 0, pending 2" in " ".join(status.split())
    assert begun.loomctl("status", "--json").json["compactions"]["last"]["pending"] == LOST
    assert shown_by_the_report(begun)["pending"] == LOST
    prompted(begun)
    code, document, shown, status = survived(begun)
    assert (code, document["lost"], document["pending"]) == (0, False, False)
    assert "pending" not in document["compactions"][-1]
    assert "pending" not in shown + status
    assert shown_by_the_report(begun)["pending"] == []


def ends(scene: Scene) -> None:
    hook(scene, "session-end", reason="other")


def compacts_again(scene: Scene) -> None:
    """Another compaction, of which nobody has a summary: what is owed of the one before is given up."""
    compact(scene)


def another_compaction_is_meant(scene: Scene) -> None:
    local = str(scene.store / "local")
    found = session_notes.read_owed(local, SESSION)
    assert found is not None
    session_notes.note_owed(local, SESSION, {**found, "at": "2020-01-01T00:00:00Z"})


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("happens", [ends, compacts_again, another_compaction_is_meant])
def test_what_does_not_come_back_any_more_is_lost(begun: Scene, happens: Any) -> None:
    """Its session ended without it, or nothing of that compaction is owed: that is a finding."""
    compact(begun, compact_summary=SUMMARY)
    happens(begun)
    code, document, _, _ = survived(begun)
    assert (code, document["lost"], document["pending"]) == (1, True, False)


@pytest.mark.slow
@pytest.mark.parametrize(("seen", "alone"), [(None, True), (None, False), (True, True), (True, False), (False, False)])
def test_what_was_left_out_for_lack_of_room_is_lost(
    begun: Scene, tmp_path: Path, seen: bool | None, alone: bool
) -> None:
    """Pending before its chance, lost after it, for it never fits: to `prove`, `status` and the report."""
    begun.write("rules.md", "# Rules\n" + "Cobalt before viridian. 🟦\n" * 900)
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(begun, file, compact_summary=f"{SUMMARY} {LOST[0]}" if alone else SUMMARY)
    assert survived(begun)[0] == 0
    text = tool(begun)[0].context
    assert "- rules: not in full: no room (" in text
    if seen:
        file.hook_text(text, "PostToolUse")
    if seen is not None:
        survive.confirm(begun.space(transcript=file.path))
        assert session_notes.is_owed(str(begun.store / "local"), SESSION) is not seen
    code, document, shown, status = survived(begun)
    assert (code, document["lost"], document["pending"]) == (1, True, False)
    assert "  lost: rules" in shown
    assert "pending" not in shown + status
    assert "pending" not in begun.loomctl("status", "--json").json["compactions"]["last"]
    assert shown_by_the_report(begun)["pending"] == []


def test_what_was_given_and_cannot_be_recorded_yet_is_pending(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded with the next prompt, or comes again; what there was no room for is lost by then."""
    begun.write("rules.md", "# Rules\n" + "Cobalt before viridian. 🟦\n" * 900)
    compact(begun, compact_summary=SUMMARY)
    monkeypatch.setattr(survive, "_record", lambda *_: 1 / 0)
    survive.put_back(begun.space(), Budget(9500, utf16_units), "PostToolUse")
    code, document, _, _ = survived(begun)
    assert (code, document["compactions"][-1]["pending"]) == (1, LOST[:1])


def test_a_resume_sees_a_compaction_that_left_nothing_of_looms(scene: Scene, tmp_path: Path) -> None:
    """Nobody told of it, for Loom was off, or its hooks were."""
    scene.write("a.md", "at any start\n")
    scene.write("b.md", "after a compaction\n")
    scene.workflow([artifact("a", "a.md"), artifact("b", "b.md", reload_triggers=["compaction_detected"])])
    scene.begin()
    file = TranscriptFile(tmp_path / "session.jsonl")

    def given(source: str) -> list[bool]:
        told = scene.hook("session-start", source=source, transcript_path=str(file.path)).json
        text = told["hookSpecificOutput"]["additionalContext"]
        file.hook_text(text)
        return [words in text for words in ("at any start", "after a compaction")]

    assert given("startup") == [True, False]
    file.compacts()
    assert given("resume") == [True, True]
    ended = scene.hook("user-prompt-submit", prompt="go on", transcript_path=str(file.path))
    assert "at any start" not in ended.stdout
