"""What changed since a conversation was given it comes as a diff where that is shorter; new and gone ones are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loomctl.cli import answer
from loomctl.priming import memory_of_session, prime_run
from loomctl.priming.slip import Slip
from loomctl.runs.machine import session_notes
from loomctl.runs.project import Conversation
from loomctl.workflows import triggers
from tests.helpers.scenes import SESSION, Scene, artifact
from tests.priming.test_text_diff import applied

SPEC = "".join(f"Line {number} of the specification.\n" for number in range(60))
CHANGED = SPEC.replace("Line 30 of", "Line thirty of")


@pytest.fixture
def primed(scene: Scene) -> Scene:
    scene.write("spec.md", SPEC)
    scene.workflow([artifact("spec", "spec.md"), artifact("notes", "notes.md", required=False)])
    scene.begin()
    return scene


def prime(scene: Scene, *, conversation: Conversation | None = None, **more: Any) -> Slip:
    space = scene.space(conversation=conversation)
    run = space.store.read(scene.state["run_id"])
    made = prime_run.prime(space, run, triggers.manual(), prime_run.command_budget(space), may_write=True, **more)
    return memory_of_session.record(space, run.run_id, made)


def forms(made: Slip) -> dict[str, str | None]:
    return {entry.id: entry.form for entry in made.loaded}


def fenced(made: Slip) -> str:
    return made.text.partition("```diff\n")[2].partition("```")[0]


def test_what_changed_is_sent_as_a_diff_that_gives_the_new_text(primed: Scene) -> None:
    base = next(one for one in prime(primed, force=True).entries if one.id == "spec").sha256
    primed.write("spec.md", CHANGED)
    made = prime(primed)
    assert (forms(made), applied(SPEC, fenced(made))) == ({"spec": "diff"}, CHANGED)
    assert "as a diff: spec" in prime_run.one_line_for_people(made)
    assert made.to_dict()["artifacts"][0]["base"] == base
    assert str(base)[:8] in made.text
    (told,) = [line for line in answer.slip_lines(made) if "spec" in line]
    assert "✓ spec, as a diff" in told
    assert "lack of room" not in told
    assert (primed.events()[-1]["properties"]["loaded"], prime(primed).id) == ({"spec": "diff"}, "")
    assert not prime(primed).loaded


def test_diffs_build_on_one_another_and_then_it_is_whole_again(primed: Scene) -> None:
    prime(primed, force=True)
    text, told = SPEC, []
    for number in range(6):
        new = text.replace(f"Line {number} of", f"Line no. {number} of")
        primed.write("spec.md", new)
        made = prime(primed)
        told.append(forms(made)["spec"])
        if told[-1] == "diff":
            assert applied(text, fenced(made)) == new
        text = new
    assert told == ["diff"] * 4 + ["full", "diff"]


class Only(Conversation):
    """A conversation in which some slips stand."""

    def __init__(self, *live: str) -> None:
        self.live = live

    def holds(self, slips: Any) -> frozenset[str]:
        """Give those."""
        return frozenset(slips) & frozenset(self.live)


def test_a_diff_is_sent_only_where_its_base_stands(primed: Scene) -> None:
    first = prime(primed, force=True)
    primed.write("spec.md", CHANGED)
    second = prime(primed)
    assert forms(second) == {"spec": "diff"}
    assert forms(prime(primed, conversation=Only(second.id)))["spec"] == "full"
    primed.write("spec.md", SPEC + "more\n")
    assert forms(prime(primed, conversation=Only()))["spec"] == "full"
    assert first.id != second.id
    primed.write("spec.md", SPEC + "again\n")
    assert forms(prime(primed, force=True))["spec"] == "full"
    primed.write("spec.md", SPEC + "once more\n")
    memory_of_session.forget(primed.space())
    assert forms(prime(primed))["spec"] == "full"


@pytest.mark.parametrize("damage", ["gone", "changed", "link"])
def test_a_base_that_is_not_what_was_given_is_not_used(primed: Scene, damage: str) -> None:
    prime(primed, force=True)
    for path in (primed.store / "local/given").iterdir():
        path.unlink()
        if damage == "changed":
            path.write_text(SPEC + "x")
        elif damage == "link":
            path.symlink_to(primed.write("elsewhere.md", SPEC))
    primed.write("spec.md", CHANGED)
    assert forms(prime(primed)) == {"spec": "full"}


def test_a_diff_that_is_longer_is_not_sent_and_new_and_gone_are_named_once(primed: Scene) -> None:
    prime(primed, force=True)
    primed.write("spec.md", "Something else.\n")
    assert forms(prime(primed)) == {"spec": "full"}
    primed.write("notes.md", "# Notes\n")
    assert "New here: notes." in prime(primed).text
    (primed.root / "notes.md").unlink()
    assert "Given here before, now gone: notes." in prime(primed).text
    assert prime(primed).id == ""


@pytest.mark.parametrize("over", [{"context": {"asked": False}}, {"current_phase": "build"}])
def test_what_applies_no_longer_is_named_once(scene: Scene, over: dict[str, Any]) -> None:
    scene.write("spec.md", SPEC)
    scene.write("rules.md", "# Rules\n")
    rules = artifact("rules", "rules.md", required=False)
    if "context" in over:
        scene.workflow([artifact("spec", "spec.md")], conditional=[{**rules, "condition": "state.context.asked"}])
    else:
        scene.workflow([artifact("spec", "spec.md")], by_phase={"frame": [rules]})
    scene.begin()
    scene.edit(context={"asked": True})
    assert forms(prime(scene, force=True)) == {"spec": "full", "rules": "full"}
    before = {"context": {"asked": True}, "current_phase": "frame"}
    scene.edit(**over)
    made = prime(scene)
    assert "Given here before, no longer applies: rules." in made.text
    assert "# Rules" not in made.text
    assert prime(scene).id == ""
    scene.edit(**before)
    made = prime(scene)
    assert "New here: rules." in made.text
    assert forms(made) == {"rules": "full"}


def test_secrets_are_masked_in_what_is_kept(primed: Scene) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    primed.write("spec.md", SPEC + f"token {token}\n")
    prime(primed, force=True)
    assert all(token not in path.read_text() for path in (primed.store / "local/given").iterdir())
    primed.write("spec.md", CHANGED + f"token {token}\n")
    made = prime(primed)
    assert forms(made) == {"spec": "diff"}
    assert token not in made.text


def test_few_texts_are_kept(primed: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go; what is too long is not kept."""
    monkeypatch.setattr(session_notes, "MOST_TEXTS", 3)
    local = str(primed.store / "local")
    names = [session_notes.keep_text(local, f"text {number}") for number in range(9)]
    assert len(list((primed.store / "local/given").iterdir())) == 3
    assert session_notes.read_text(local, names[-1]) == "text 8"
    assert session_notes.keep_text(local, "x" * (session_notes.LARGEST_TEXT + 1)) == ""
    assert [session_notes.read_text(local, name) for name in ("", "../../x", "0" * 64)] == [None] * 3


def test_a_damaged_note_of_what_was_given_is_no_base(primed: Scene) -> None:
    before = (primed.root / "spec.md").read_text()
    damages: list[dict[str, Any]] = [{"text": 3}, {"needs": [3, None]}, {"needs": "x"}, {"text": "../x"}]
    for damage in damages:
        primed.write("spec.md", before)
        prime(primed, force=True)
        path = primed.store / f"local/primed/{SESSION}.json"
        noted = json.loads(path.read_text())
        noted["artifacts"]["spec"] |= {"text": "", **damage}
        path.write_text(json.dumps(noted))
        primed.write("spec.md", CHANGED)
        assert forms(prime(primed)) == {"spec": "full"}
