"""`loomctl prove`: what survived, what was lost, what was put back, and what nobody can prove."""

import json
import shlex

import pytest

from loomctl.runs.model.sessions import KEPT
from loomctl.runs.store.events import Event
from tests.cli.conftest import Cli
from tests.helpers.scenes import SESSION, Json, Scene, artifact
from tests.helpers.texts import holds


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow(must_survive=["The deadline is 3 May"])
    scene.begin()
    return scene


def compactions(scene: Scene, *receipts: Json | None) -> None:
    state = scene.state
    (record,) = state["sessions"]["session_history"]
    entries = [{"at": f"2026-01-0{at}T00:00:00Z", "trigger": "auto"} for at in range(1, len(receipts) + 1)]
    told = [{**entry, **({"receipt": one} if one else {})} for entry, one in zip(entries, receipts, strict=True)]
    scene.edit(sessions={**state["sessions"], "session_history": [{**record, "compactions": told}]})


def receipt(kept: str = "", lost: str = "", restored: str = "", *, proven: bool = True) -> Json:
    return {"proven": proven, "kept": kept.split(), "lost": lost.split(), "restored": restored.split()}


def test_it_tells_each_compaction_and_each_item_and_no_damage(begun: Scene, cli: Cli) -> None:
    compactions(begun, receipt("a b", "c d", "c d"), receipt("a", proven=False), receipt("a b c d"), None)
    told = cli("prove").ends()
    assert told.stdout.splitlines()[1:-2] == [
        "  text: The deadline is 3 May",
        "  goal: add dark mode",
        "  step: frame/ask",
        f"2026-01-01: auto, session {SESSION[:7]}…: 4 of 4 survived: kept 2, lost 2, put back 2",
        "  kept: a",
        "  kept: b",
        "  lost, put back: c",
        "  lost, put back: d",
        f"2026-01-02: auto, session {SESSION[:7]}…: unproven, there is no summary; Loom gave 1 again",
        "  given: a",
        f"2026-01-03: auto, session {SESSION[:7]}…: 4 of 4 survived: kept 4, lost 0",
        "  kept: a",
        "  kept: b",
        "  kept: c",
        "  kept: d",
        f"2026-01-04: auto, session {SESSION[:7]}…: nothing recorded",
    ]
    document = cli("prove", begun.run_dir.name[:4], "--json").json
    assert document["must_survive"] == [
        {"name": "The deadline is 3 May", "kind": "text"}, *({"name": name, "kind": "run"} for name in ("goal", "step"))
    ]  # fmt: skip
    assert document["compactions"][0] == {
        "session_id": SESSION, "at": "2026-01-01T00:00:00Z", "trigger": "auto", **receipt("a b", "c d", "c d"),
    }  # fmt: skip
    assert [one["proven"] for one in document["compactions"]] == [True, False, True, False]
    compactions(begun, {**receipt(lost="c"), "kept": ["word " * 100 + "\n\x1b[31m"], "absent": ["$.context.budget"]})
    ended = cli("prove")
    assert (ended.code, cli("prove", "--json").code) == (1, 1)  # what is still lost is a finding
    lines = ended.stdout.splitlines()[4:-2]
    assert [line.partition(":")[0].strip() for line in lines[1:]] == ["kept", "lost", "absent"]
    assert lines[0].endswith("1 of 2 survived: kept 1, lost 1, put back 0, absent 1")
    assert lines[1].startswith("  kept: word word")
    assert len(lines[1]) < 120
    assert lines[3].endswith(": $.context.budget")
    for damage in [3, [3], [{"receipt": 3}], [{"at": [], "receipt": {"proven": "yes"}}]]:
        state = begun.state
        (record,) = state["sessions"]["session_history"]
        begun.edit(sessions={**state["sessions"], "session_history": [{**record, "compactions": damage}]})
        ended = cli("prove", "--json")
        assert ended.code in (0, 5), ended
        assert json.loads(ended.stdout)


def test_sessions_that_the_state_holds_no_more_are_told_too(begun: Scene, cli: Cli) -> None:
    """A long run's old compactions stand in sessions.jsonl; a session that came back counts once."""
    compactions(begun, receipt("a", "b"))
    first = begun.state["sessions"]["session_history"][0]
    others = [{"session_id": f"s{at}", "ended_at": "x", "environment": first["environment"]} for at in range(KEPT)]
    history = {"session_history": [{**first, "ended_at": "x"}, *others], "total_sessions": KEPT + 1}
    begun.edit(sessions={**begun.state["sessions"], **history})
    run_id = begun.state["run_id"]
    begun.space().store.update(run_id, lambda state: (state, [Event("session.lost", {}, SESSION)]))
    assert first["session_id"] not in [one["session_id"] for one in begun.state["sessions"]["session_history"]]
    assert cli("prove", run_id).code == 1
    begun.edit(sessions={**begun.state["sessions"], "session_history": [first]})
    assert len(cli("prove", run_id, "--json").json["compactions"]) == 1


def test_a_run_adds_items_and_takes_them_back(begun: Scene, cli: Cli) -> None:
    told = cli("prove", "--add", "Ask Ada", "--add", "$.goal", "--add", "The deadline is 3 May", "--json")
    names = ["The deadline is 3 May", "Ask Ada", "$.goal"]
    assert [one["name"] for one in told.json["must_survive"]] == [*names, "step"]
    assert begun.state["must_survive"] == ["Ask Ada", "$.goal"]
    assert begun.events()[-1]["properties"] == {"added": ["Ask Ada", "$.goal"], "dropped": []}
    assert cli("prove", "--drop", "Ask Ada").code == 0
    assert begun.state["must_survive"] == ["$.goal"]
    refused = cli("prove", "--drop", "The deadline is 3 May", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "NO_SUCH_ITEM")
    assert "workflow" in refused.json["error"]["why"]
    assert "every run" in cli("prove", "--drop", "step", "--json").json["error"]["why"]


def test_texts_that_differ_in_white_space_alone_are_one_item(scene: Scene, cli: Cli) -> None:
    scene.workflow()
    scene.begin()
    ended = cli("prove")
    told = f"{scene.handle}: 2 items must survive, 0 compactions so far\n  goal: add dark mode\n  step: frame/ask\n"
    told += "log: ✓ 6 events proven, up to the last checkpoint (loomctl prove --log)\n"
    assert (ended.code, ended.stdout) == (0, told)
    assert cli("prove", "--json").json["log"]["ok"] is True
    assert cli("prove", "--add", "x y", "--add", "x\ny", "--add", "keep this").code == 0
    assert scene.state["must_survive"] == ["x y", "keep this"]
    assert cli("prove", "--add", " x  y").code == 0
    assert scene.state["must_survive"] == ["x y", "keep this"]
    scene.edit(must_survive=["x\ny", "keep this", "x y"])
    assert [item["name"] for item in cli("prove", "--json").json["must_survive"]][:-2] == ["x y", "keep this"]
    assert cli("prove", "--drop", "x y").code == 0
    assert scene.state["must_survive"] == ["keep this"]


def test_a_run_begins_with_items_of_its_own(scene: Scene, cli: Cli) -> None:
    scene.workflow()
    refused = cli("run", "x", "--workflow", "tiny", "--must-survive", "$.a[*]", "--json")
    assert (refused.code, refused.json["error"]["hint"]) == (2, "loomctl run --help")
    assert cli("run", "x", "--workflow", "tiny", "--must-survive", "Ask Ada", "--must-survive", "Ask Ada").code == 0
    assert scene.state["must_survive"] == ["Ask Ada"]


DOUBTS = [
    ("token ghp_0123456789abcdefghijABCDEFGHIJ012345", "SECRET", "masked", ""),
    ("design-breif", "POSSIBLE_TYPO", "did you mean the artifact design-brief?", "design-brief"),
    ("specificaton", "POSSIBLE_TYPO", "did you mean the artifact specification?", "specification"),
    ("style_guide", "POSSIBLE_TYPO", "looks like an artifact's id", ""),
    ("spec", "POSSIBLE_TYPO", "did you mean the artifact specification?", "specification"),
    ("Specs", "POSSIBLE_TYPO", "did you mean the artifact specification?", "specification"),
    ("brief", "POSSIBLE_TYPO", "did you mean the artifact design-brief?", "design-brief"),
]


@pytest.mark.parametrize(("item", "code", "said", "meant"), DOUBTS)
@pytest.mark.parametrize("words", [["prove", "--add"], ["run", "x", "--workflow", "tiny", "--must-survive"]])
def test_what_is_doubtful_is_added_with_a_warning(
    scene: Scene, cli: Cli, words: list[str], item: str, code: str, said: str, meant: str
) -> None:
    """A typo would silently be looked for as a text, and never be found."""
    for name in ("spec.md", "design.md"):
        scene.write(name, "x")
    phases = {"spec": {"steps": [{"id": "spec", "prompt": "Write the spec."}]}}  # a step's name is no artifact's
    scene.workflow([artifact("specification", "spec.md"), artifact("design-brief", "design.md")], phases)
    if words[0] == "prove":
        scene.begin()
    ended = cli(*words, item).ends()
    told = ended.stdout + ended.stderr
    assert said in told
    assert "workflow for all" not in told  # it stands in the run's state
    assert words[0] == "prove" or "--add:" not in told
    assert (code in told) or words[0] == "run"
    assert "ghp_0123456789" not in told
    assert scene.state["must_survive"] == [item]
    mends = f"loomctl prove {scene.handle} --drop {item}"
    assert (mends in told) == (code == "POSSIBLE_TYPO")
    begins = f"loomctl prove {scene.handle} --drop "  # the item is there by now, so that this takes it back
    assert cli(*shlex.split(told[told.index(begins) :].partition("\n")[0])[1:]).code == 0
    assert scene.state["must_survive"] == ([meant] if meant else [])


@pytest.mark.parametrize("words", [["prove"], ["run", "x", "--workflow", "tiny", "--must-survive"]])
def test_each_of_two_secrets_is_taken_back_by_its_name(scene: Scene, cli: Cli, words: list[str]) -> None:
    """They are masked alike; what the workflow declares cannot be taken back, and the items are shown."""
    first, second = (f"the token\nof Ada: ghp_0123456789abcdefghijABCDEFGHIJ{end:06}" for end in (1, 2))
    scene.workflow(must_survive=["token ghp_0123456789abcdefghijABCDEFGHIJ000003"])
    if words[0] == "prove":
        scene.begin()
        told = cli("prove", "--add", first, "--add", second, "--add", "token ghp_0123456789abcdefghijABCDEFGHIJ000003")
    else:
        told = cli(*words, first, "--must-survive", second)
    asks = f"loomctl prove {scene.handle}"
    lines = [line for line in (told.stdout + told.stderr).splitlines() if asks in line]
    drops = [line[line.index(asks) :] for line in lines if "--drop" in line]
    assert [shlex.split(line)[-1] for line in drops] == [
        "the token of Ada: [masked: github token]",
        "the token of Ada: [masked: github token] #2",
    ]
    assert all("ghp_" not in line for line in lines)
    if words[0] == "prove":
        assert lines[-1].strip() == f"hint: {asks}"
    for line in reversed(drops):
        assert cli(*shlex.split(line)[1:]).code == 0
    assert scene.state["must_survive"] == []


def test_a_run_that_was_not_begun_has_nothing_to_take_back_and_no_hint_ends_in_nothing(scene: Scene, cli: Cli) -> None:
    scene.write("spec.md", "x")
    scene.workflow([artifact("specification", "spec.md")])
    told = cli("run", "x", "--workflow", "tiny", "--must-survive", "spec", "--dry-run").stdout
    holds(told, "did you mean the artifact specification?", but=("--drop",))
    scene.workflow(must_survive=[{"artifact": "spec"}, "style-guide"])
    told = cli("check", "tiny")
    holds(told.stdout + told.stderr, "there are none", but=("known: \n",))


def test_what_is_not_doubtful_is_added_in_silence(scene: Scene, cli: Cli) -> None:
    scene.write("spec.md", "x")
    phases = {"one": {"steps": [{"id": "a", "prompt": "Keep max_retries as it is."}]}}
    scene.workflow([artifact("spec", "spec.md")], phases)
    scene.begin("add dark-mode")
    for item in ("spec", "Ask Ada", "heliotrope", "max_retries", "dark-mode", "$.context.budget", "3 May"):
        assert cli("prove", "--add", item).stderr == "", item


def test_each_item_is_told_with_its_kind(scene: Scene, cli: Cli) -> None:
    scene.write("spec.md", "x")
    scene.workflow([artifact("spec", "spec.md")], must_survive=["spec", "$.goal", "Ask Ada", {"text": "spec"}])
    scene.begin()
    lines = cli("prove").stdout.splitlines()[1:-1]
    assert lines == ["  artifact: spec", "  path: $.goal", "  text: Ask Ada", "  text: text:spec", "  step: frame/ask"]


def test_a_damaged_log_is_a_finding(begun: Scene, cli: Cli) -> None:
    log = begun.run_dir / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"add dark mode", b"add dank mode", 1))
    ended = cli("prove")
    assert (ended.code, "log: ✗ " in ended.stdout) == (1, True)
    assert cli("prove", "--json").json["log"]["ok"] is False
