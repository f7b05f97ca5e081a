"""What items that must survive stand for: values held elsewhere, files that cannot be read, secrets, large texts."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.text.fences import utf16_units
from loomctl.priming import survive
from loomctl.priming.prime_run import hook_budget
from loomctl.runs import context_values
from loomctl.runs.machine import session_notes
from loomctl.workflows import survival
from tests.helpers.compactions import compact, hook, prompted, receipt, survived, tool
from tests.helpers.scenes import SESSION, Scene, TranscriptFile, artifact

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
OTHER_SECRET = SECRET.replace("a1", "z9")
RESPONSE = "Decided: the heliotrope switch survives a reload."


def begin(scene: Scene, *items: Any, artifacts: list[Any] | None = None) -> None:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md"), *(artifacts or [])], must_survive=list(items))
    scene.begin()


def becomes(scene: Scene, summary: str = "nothing") -> str:
    """Compact, and let a prompt come; gives what it brings."""
    compact(scene, compact_summary=summary)
    return prompted(scene).context


# ---- Values that the state holds by reference (D38)


def set_in_context(scene: Scene, **values: Any) -> None:
    """Set keys of the context as the engine stores them."""
    kept, _ = context_values.stored(scene.space(), {key.replace("_", "."): value for key, value in values.items()})
    scene.edit(context={**scene.state["context"], **kept})


def responds(scene: Scene) -> str:
    """End the step with a response, which stands in its folder; gives the path to it."""
    assert scene.loomctl("done", given=RESPONSE).code == 0
    return "$.context['response.frame/ask']"


def a_blob(scene: Scene) -> str:
    set_in_context(scene, command_output=RESPONSE)
    return "$.context['command.output']"


def within_a_blob(scene: Scene) -> str:
    set_in_context(scene, facts={"decided": RESPONSE, "rest": "word " * 25_000})
    return "$.context.facts.decided"


HELD = [responds, a_blob, within_a_blob]


@pytest.mark.parametrize("held", HELD)
def test_a_value_held_elsewhere_is_looked_for_and_comes_back(scene: Scene, held: Any) -> None:
    begin(scene)
    path = held(scene)
    scene.edit(must_survive=[path])
    asked = hook(scene, "pre-compact", trigger="auto").stdout
    assert "$stage" not in asked
    assert "blob://" not in asked
    assert (f"- {RESPONSE}" in asked) is (held is not within_a_blob)
    text = becomes(scene)
    assert RESPONSE in text
    assert "$stage" not in text
    assert "blob://" not in text
    assert receipt(scene)["restored"] == receipt(scene)["lost"] == [path]
    assert (becomes(scene, f"We said: {RESPONSE}"), receipt(scene)["kept"]) == ("", [path])


def test_the_whole_context_has_no_references(scene: Scene) -> None:
    begin(scene, "$.context")
    responds(scene)
    text = becomes(scene)
    assert RESPONSE in text
    assert "$stage" not in text


def test_a_text_that_looks_like_a_reference_is_one_only_where_loom_writes_them(scene: Scene) -> None:
    begin(scene, "$.context.said.ref")
    ref = "blob://sha256/" + "ab" * 32
    scene.edit(context={"said": {"ref": ref}})
    assert (becomes(scene, ref), receipt(scene)["kept"]) == ("", ["$.context.said.ref"])


@pytest.mark.slow
def test_a_value_that_is_too_large_is_lost_and_named_with_its_place(scene: Scene) -> None:
    begin(scene, "$.context.big", "$.context.vast")
    set_in_context(scene, big="word " * 25_000, vast="word " * 250_000)
    assert "word word" not in hook(scene, "pre-compact", trigger="auto").stdout
    text = becomes(scene)
    assert utf16_units(text) < 2000
    assert "$.context.big: `loomctl context get big " in text
    assert "$.context.vast: too_large: 1,250,002 bytes; Loom looks for at most 1,048,576 (.loom/blobs/" in text
    assert receipt(scene)["lost"] == ["$.context.big", "$.context.vast"]
    assert list(receipt(scene)["notes"]) == ["$.context.vast"]
    assert str(scene.root) not in json.dumps(scene.state["sessions"]["session_history"][0]["compactions"])
    code, document, shown, _ = survived(scene)
    assert (code, document["pending"]) == (1, False)
    assert "lost, too_large: 1,250,002 bytes" in shown


def found(scene: Scene) -> dict[str, survive.Survivor]:
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    return survive.look_up(space, run, survival.items(run.plan, run.state))


def test_of_many_large_values_only_so_many_bytes_are_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(scene, "$.context.a", "$.context.b.whole", "$.context.c", "$.context.a.whole")
    response = responds(scene)
    scene.edit(must_survive=[response])
    set_in_context(scene, **{key: {"whole": f"{key} word " * 30_000} for key in "abc"})
    monkeypatch.setattr(survive, "ALL", 300_000)
    every = found(scene)
    unread = [name for name, one in every.items() if one.text is None]
    assert unread == ["$.context.b.whole", "$.context.c"]
    for name in unread:
        assert not every[name].absent
        assert "bytes; Loom reads at most 300,000 for all items together (.loom/blobs/" in every[name].note
        assert every[name].pointer.startswith(f"{name}: too_large: ")
    assert every[response].text == RESPONSE


def test_of_many_large_artifacts_only_so_many_bytes_are_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["one", "two", "three"]
    for name in names:
        scene.write(f"{name}.txt", "é" * 30_000)
    begin(scene, *names, artifacts=[artifact(name, f"{name}.txt") for name in names])
    monkeypatch.setattr(survive, "ALL", 100_000)
    every = found(scene)
    assert [every[name].text is None for name in names] == [False, False, True]
    assert every["three"].note == "too_large: Loom reads at most 100,000 bytes for all items together"
    assert every["three"].pointer == f"three: {every['three'].note}"
    assert not every["three"].absent


def gone(path: Path) -> None:
    path.unlink()


def damaged(path: Path) -> None:
    path.write_bytes(b"{")


def elsewhere(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.slow
@pytest.mark.parametrize(("held", "happens", "said"), [
    (responds, gone, "response_gone"), (responds, elsewhere, "unsafe_link"), (a_blob, gone, "no_such_blob"),
    (a_blob, damaged, "damaged_blob"), (a_blob, elsewhere, "unsafe_link"),
])  # fmt: skip
def test_a_value_that_cannot_be_read_is_lost_and_told_as_such(scene: Scene, held: Any, happens: Any, said: str) -> None:
    """Nobody can tell whether it survived: that is a finding, and the reference is not given instead."""
    begin(scene)
    path = held(scene)
    scene.edit(must_survive=[path])
    (file,) = (
        (scene.run_dir / "stages").glob("*/response.md") if held is responds else scene.store.glob("blobs/sha256/*/*")
    )
    happens(file)
    assert "Keep these texts" not in hook(scene, "pre-compact", trigger="auto").stdout
    text = becomes(scene)
    assert f"- {path}: {said}" in text
    assert "```" not in text
    assert said in receipt(scene)["notes"][path]
    assert survived(scene)[0] == 1


# ---- Artifacts that cannot be read


def too_large(path: Path) -> None:
    path.write_text("a line of text\n" * 80_000)


def no_json(path: Path) -> None:
    path.write_text('{"a": 1,}')


def binary(path: Path) -> None:
    path.write_bytes(b'"\0"')


def leads_out(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


@pytest.mark.slow
@pytest.mark.parametrize(("happens", "said"), [
    (too_large, "too_large: "), (no_json, "unparsable: "), (leads_out, "path_escape: "),
])  # fmt: skip
def test_an_artifact_that_is_there_and_cannot_be_read_is_lost(scene: Scene, happens: Any, said: str) -> None:
    """The conversation had it once; `prove` says why nobody can tell, with 1."""
    facts = artifact("facts", "facts.json", type="json", required=False)
    begin(scene, "facts", artifacts=[facts])
    happens(scene.write("facts.json", "{}"))
    text = becomes(scene)
    assert f"- facts: {said}" in text
    assert receipt(scene)["lost"] == ["facts"]
    assert receipt(scene)["notes"]["facts"].startswith(said)
    code, document, shown, _ = survived(scene)
    assert (code, document["pending"]) == (1, False)
    assert f"  lost, {said}" in shown
    assert (prompted(scene).stdout, tool(scene)[0].stdout) == ("", "")


def test_an_artifact_that_only_the_assistant_loads_is_lost(scene: Scene) -> None:
    skill = {"id": "how", "type": "skill", "command": "some-skill", "description": "how", "required": False}
    begin(scene, "how", artifacts=[{**skill, "reload_triggers": ["session_start"]}])
    assert "- how: Loom cannot load it; to load it" in becomes(scene)
    assert receipt(scene)["lost"] == ["how"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["condition", "phase", "no file"])
def test_what_does_not_apply_is_absent(scene: Scene, way: str) -> None:
    """It cannot have been lost: a condition that does not hold, another phase, no file."""
    scene.write("spec.md", "# The spec\n")
    scene.write("rules.md", "# Rules\n")
    rules = artifact("rules", "gone.md" if way == "no file" else "rules.md", required=False)
    unless: dict[str, dict[str, Any]] = {
        "condition": {"conditional": [{**rules, "condition": "state.context.x == 1"}]},
        "phase": {"by_phase": {"ship": [rules]}},
        "no file": {"artifacts": [rules]},
    }
    scene.workflow(**unless[way], must_survive=["rules"])
    scene.begin()
    assert (becomes(scene), receipt(scene)["absent"], survived(scene)[0]) == ("", ["rules"], 0)


FOLDERS = [
    ("summary", "A folder's listing, without the content of its files:", "a listing of the folder, not its files"),
    ("latest_only", "A folder's newest file, in full:", "the folder's newest file"),
    ("all", "A folder's files, in full:", ""),
    ("some", "The readable files of a folder, in full:", "those of the folder's files"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "heading", "note"), FOLDERS)
@pytest.mark.parametrize("given", [True, False])
def test_of_a_folder_what_its_strategy_gives_must_survive(
    scene: Scene, strategy: str, heading: str, note: str, *, given: bool
) -> None:
    scene.write("notes/a.md", "cobalt\n")
    if strategy == "some":
        scene.write("notes/b.md", b"\0")
    said = {"type": "directory", "load_strategy": "all" if strategy == "some" else strategy, "required": False}
    when = ["compaction_detected"] if given else ["manual"]
    begin(scene, "notes", artifacts=[artifact("notes", "notes", **said, reload_triggers=when)])
    primed = hook(scene, "session-start", source="compact").context
    assert (heading in primed) is given
    text = becomes(scene)
    assert ("notes" in text) is not given
    assert receipt(scene)["kept" if given else "restored"] == ["notes"]
    assert receipt(scene).get("notes", {}).get("notes", "").startswith(note)
    assert survived(scene)[0] == 0
    assert note in text or given
    if given and note:
        assert f"  kept, {note}" in survived(scene)[2]
    assert ("cobalt" in primed + text) is (strategy != "summary")


# ---- Secrets


@pytest.mark.slow
def test_a_secret_is_neither_asked_for_nor_kept_nor_restored(scene: Scene) -> None:
    """Whatever a summary says of it, masked or not: nothing is claimed."""
    scene.write(".env", f"TOKEN={SECRET}\n")
    begin(scene, "$.context.db_password", f"token {SECRET}", "env", artifacts=[artifact("env", ".env")])
    scene.edit(context={"db_password": "hunter2-hunter2"})
    asked = hook(scene, "pre-compact", trigger="auto").stdout
    assert "masked" not in asked
    assert "Keep these texts" not in asked
    assert becomes(scene, f"[masked: password] hunter2-hunter2 token {SECRET} token [masked: github token]") == ""
    masked = ["$.context.db_password", "token [masked: github token]", "env"]
    assert receipt(scene)["absent"] == masked
    assert receipt(scene)["kept"] == receipt(scene)["lost"] == []
    code, _, shown, _ = survived(scene)
    assert code == 0
    assert all(f"  absent, masked: Loom does not look for secrets: {name}" in shown for name in masked)


SAID = "The token of the staging deployment is {}, ask Ada for another"
SHOWN = SAID.format("[masked: github token]")


@pytest.mark.parametrize(("summary", "is_kept"), [
    (f"We said: {SAID.format(SECRET)}.", True),
    (SHOWN, True),
    (SAID.format("not to be told"), False),
    (SAID.format("gone. We spoke of food for long"), False),
])  # fmt: skip
def test_a_text_with_a_secret_in_it_is_kept_where_a_secret_stands_in_its_place(
    scene: Scene, summary: str, *, is_kept: bool
) -> None:
    """Or its mask; whatever else the summary says between its words."""
    begin(scene, SAID.format(SECRET), "The ledger is closed")
    text = becomes(scene, summary)
    assert receipt(scene)["kept"] == ([SHOWN] if is_kept else [])
    assert receipt(scene)["lost"] == [*([] if is_kept else [SHOWN]), "The ledger is closed"]
    assert SECRET not in text
    assert (SHOWN in text) is not is_kept


def test_of_texts_that_differ_in_their_secrets_none_is_claimed(scene: Scene) -> None:
    """Which of them the summary has, nobody can tell who sees the masks alone."""
    begin(scene, SAID.format(SECRET), SAID.format(OTHER_SECRET))
    becomes(scene, f"{SAID.format(SECRET)} {SAID.format(SECRET)}")
    assert receipt(scene)["kept"] == []
    assert len(receipt(scene)["lost"]) == len(receipt(scene)["restored"]) == 2


def test_an_item_with_a_number_behind_its_name_is_taken_back_by_it(scene: Scene) -> None:
    begin(scene, "text:$.goal")
    scene.edit(must_survive=[{"text": "$.goal"}, "Ask Ada"])
    assert "text:$.goal #2" in scene.loomctl("prove").stdout
    assert scene.loomctl("prove", "--drop", "text:$.goal #2").code == 0
    assert scene.state["must_survive"] == ["Ask Ada"]


def test_what_is_taken_back_before_it_came_leaves_the_others_their_names(scene: Scene) -> None:
    begin(scene)
    scene.edit(must_survive=["x y", "x\ny", "x y z", "keep this"])
    compact(scene, compact_summary="nothing")
    assert receipt(scene)["lost"] == ["x y", "x y z", "keep this"]
    assert scene.loomctl("prove", "--drop", "x y").code == 0
    text = tool(scene)[0].context
    assert "x y z" in text
    assert "x\ny" not in text
    assert receipt(scene)["restored"] == ["x y z", "keep this"]


# ---- Compactions of one second


def numbered(scene: Scene, at: str = "2026-11-23T01:00:00Z") -> None:
    """Let all compactions of the session have been of one second, in the state and in what is owed."""
    state = scene.state
    (record,) = state["sessions"]["session_history"]
    entries = [{**entry, "at": at} for entry in record["compactions"]]
    scene.edit(sessions={**state["sessions"], "session_history": [{**record, "compactions": entries}]})
    local = str(scene.store / "local")
    noted = session_notes.read_owed(local, SESSION)
    if noted is not None:
        session_notes.note_owed(local, SESSION, {**noted, "at": at})


@pytest.mark.slow
def test_compactions_of_one_second_have_their_own_receipts(scene: Scene) -> None:
    begin(scene, "AAA one", "BBB two", "CCC three")
    compact(scene, compact_summary="AAA one")
    compact(scene, compact_summary="BBB two")
    numbered(scene)
    first, second = survived(scene)[1]["compactions"]
    assert "pending" not in first
    assert second["pending"] == ["AAA one", "CCC three"]
    assert scene.loomctl("status", "--json").json["compactions"]["last"]["pending"] == second["pending"]
    prompted(scene)
    first, second = survived(scene)[1]["compactions"]
    assert (first["restored"], second["restored"]) == ([], ["AAA one", "CCC three"])


@pytest.mark.slow
def test_one_that_nobody_looked_at_stays_unproven_beside_another_of_its_second(scene: Scene) -> None:
    begin(scene, "AAA one", "BBB two")
    compact(scene, compact_summary="AAA one")
    hook(scene, "session-start", source="compact")
    numbered(scene, scene.state["sessions"]["session_history"][0]["compactions"][0]["at"])
    first, second = survived(scene)[1]["compactions"]
    assert (first["proven"], first["lost"]) == (True, ["BBB two"])
    assert second["proven"] is False


# ---- What does not fit together


def long_texts(count: int) -> list[str]:
    """Texts of which a few fill what a hook may give."""
    return [f"item {number} " + f"w{number} " * 450 for number in range(count)]


@pytest.mark.slow
def test_what_did_not_fit_comes_with_the_next_tool_results(scene: Scene, tmp_path: Path) -> None:
    begin(scene, *long_texts(20))
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(scene, file, compact_summary="nothing")
    given = []
    for _ in range(20):
        text = tool(scene)[0].context
        if not text:
            break
        assert utf16_units(text) <= 9500
        given.append(text)
    assert 1 < len(given) < 20
    assert [sum(f"item {number} " in text for text in given) for number in range(20)].count(0) == 0
    assert sum(text.count("### What must survive") for text in given) == 20
    assert len(receipt(scene)["restored"]) == 20
    for text in given:
        file.hook_text(text, "PostToolUse")
    assert prompted(scene, file).context == ""
    assert not list((scene.store / "local/owed").iterdir())


def test_of_several_parts_what_waits_is_pending_and_what_did_not_arrive_comes_again(
    scene: Scene, tmp_path: Path
) -> None:
    begin(scene, *long_texts(9))
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(scene, file, compact_summary="nothing")
    brought = tool(scene)[0].context.count("### What must survive")  # its answer is dropped
    code, document, _, _ = survived(scene)
    assert (code, len(document["compactions"][0]["pending"])) == (0, 9 - brought)
    second = tool(scene)[0].context
    assert second
    file.hook_text(second, "PostToolUse")
    again = prompted(scene, file).context
    assert ("item 0 " in again, "item 8 " in again, prompted(scene, file).stdout) == (True, False, "")
    assert not list((scene.store / "local/owed").iterdir())


def test_many_hooks_at_once_bring_each_part_once(scene: Scene) -> None:
    begin(scene, *long_texts(20))
    compact(scene, compact_summary="nothing")
    said: list[str] = []

    def asks() -> None:
        for _ in range(4):
            space = scene.space()
            said.append(survive.put_back(space, hook_budget(space), "PostToolUse"))

    threads = [threading.Thread(target=asks) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while text := tool(scene)[0].context:
        said.append(text)
    assert "".join(said).count("### What must survive") == 20
    assert all(sum(f"\nitem {number} " in text for text in said) == 1 for number in range(20))


def test_where_nothing_can_be_noted_not_every_event_brings_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: the first part is given, and the rest waits for the next prompt."""
    begin(scene, *long_texts(9))
    compact(scene, compact_summary="nothing")

    def full(*_: object) -> None:
        raise OSError("no space left")

    space = scene.space()
    with monkeypatch.context() as patched:
        patched.setattr(session_notes, "note_given", full)
        said = [survive.put_back(space, hook_budget(space), "PostToolUse") for _ in range(3)]
    assert [bool(text) for text in said] == [True, False, False]
    assert not session_notes.is_owed(str(scene.store / "local"), SESSION)
    assert session_notes.read_owed(str(scene.store / "local"), SESSION) is not None


@pytest.mark.slow
def test_what_an_older_loom_noted_is_given_and_recorded(scene: Scene) -> None:
    begin(scene, "AAA one", "BBB two")
    compact(scene, compact_summary="AAA one")
    local = str(scene.store / "local")
    noted = session_notes.read_owed(local, SESSION)
    assert noted is not None
    new = ("left", "parts", "never", "number", "proven", "restored")
    session_notes.note_owed(
        local, SESSION, {**{key: value for key, value in noted.items() if key not in new}, "tries": 0}
    )
    assert survived(scene)[1]["compactions"][0]["pending"] == ["BBB two"]
    assert "BBB two" in prompted(scene).context
    assert receipt(scene)["restored"] == ["BBB two"]


@pytest.mark.slow
@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("arrived", [True, False])
def test_what_an_older_loom_gave_comes_again_only_if_it_did_not_arrive(
    scene: Scene, tmp_path: Path, *, arrived: bool, is_recorded: bool
) -> None:
    begin(scene, "AAA one", "BBB two")
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(scene, file, compact_summary="nothing")
    text = tool(scene)[0].context
    if arrived:
        file.hook_text(text, "PostToolUse")
    local = str(scene.store / "local")
    noted = session_notes.read_owed(local, SESSION)
    assert noted is not None
    (part,) = session_notes.parts(noted)
    was = {key: noted[key] for key in ("run_id", "at", "kept", "lost")}
    given = {"mark": part["mark"], "given": ["AAA one"], "by": "PostToolUse", "characters": 9, "tries": 1}
    session_notes.note_given(local, SESSION, {**was, **given, **({"recorded": ["AAA one"]} if is_recorded else {})})
    told = prompted(scene, file).context
    assert ("AAA one" in told) is not arrived
    assert "BBB two" in told
    file.hook_text(told)
    assert prompted(scene, file).context == ""
    assert not session_notes.is_owed(local, SESSION)


@pytest.mark.slow
def test_a_kill_before_the_rest_is_owed_forgets_nothing(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(scene, *long_texts(9))
    file = TranscriptFile(tmp_path / "t.jsonl")
    compact(scene, file, compact_summary="nothing")
    with monkeypatch.context() as patched:
        patched.setattr(session_notes, "owe_on", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        space = scene.space()
        first = survive.put_back(space, hook_budget(space), "PostToolUse")
    file.hook_text(first, "PostToolUse")
    assert tool(scene)[0].stdout == ""
    text = prompted(scene, file).context
    assert "item 8 " in text
    assert "item 0 " not in text


@pytest.mark.slow
def test_where_nothing_fits_it_is_said_where_each_stands(scene: Scene) -> None:
    scene.write("rules.md", "cobalt " * 8000)
    begin(scene, "rules", "$.context.plan", artifacts=[artifact("rules", "rules.md", reload_triggers=["manual"])])
    scene.edit(context={"plan": "viridian " * 2000})
    text = becomes(scene)
    assert "- rules: not in full: no room (56,000 bytes, " in text
    assert "; read rules.md" in text
    assert f"- $.context.plan: `loomctl context get plan {scene.handle}`" in text
    assert "loomctl show" not in text
    assert (tool(scene)[0].stdout, prompted(scene).stdout, survived(scene)[0]) == ("", "", 1)


@pytest.mark.slow
def test_many_that_do_not_fit_are_counted(scene: Scene) -> None:
    keys = [f"key-{number}-{'x' * 120}" for number in range(90)]
    begin(scene, *(f"$.context['{key}']" for key in keys))
    scene.edit(context=dict.fromkeys(keys, "viridian " * 1200))
    text = becomes(scene)
    assert utf16_units(text) <= 9500
    assert " more: `loomctl prove " in text
    assert os.linesep.join(text.splitlines()[-1:]).startswith("Loom slip ")
