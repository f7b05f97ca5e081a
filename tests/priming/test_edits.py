"""A file that a session was given and that changed since is told once for each content, as a diff or a line (D80)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.text.fences import utf16_units
from loomctl.priming import edits, memory_of_session
from loomctl.priming.edits import Notice
from loomctl.runs import leases
from loomctl.runs.machine import session_notes
from tests.helpers.scenes import OTHER, SESSION, Json, Scene, artifact
from tests.priming.test_diff_priming import CHANGED, SPEC, prime
from tests.priming.test_text_diff import applied

NOTHING = Notice("", "")
OLD = 1_600_000_000


@pytest.fixture
def given(scene: Scene) -> Scene:
    """A session that drives a run and was given a spec and notes in full."""
    scene.write("spec.md", SPEC)
    scene.write("notes.md", "# Notes\n")
    declared = [artifact("spec", "spec.md"), artifact("notes", "notes.md", required=False)]
    scene.workflow([*declared, artifact("own", "{run_dir}/state.json", type="json")])
    scene.begin()
    prime(scene, force=True)
    return scene


def told(scene: Scene, **how: Any) -> Notice:
    return edits.notice(scene.space(**{key: how.pop(key) for key in ("session",) if key in how}), **how)


def diffs(notice: Notice) -> list[str]:
    return [part.partition("```")[0] for part in notice.text.split("```diff\n")[1:]]


def watch(scene: Scene, session: str = SESSION) -> list[str]:
    return (scene.store / f"local/primed/{session}.watch").read_text().splitlines()


def test_the_files_of_the_user_are_watched_and_one_that_was_only_touched_is_not_told(given: Scene) -> None:
    """Nothing of the run's own is watched."""
    assert watch(given) == [f"+{given.root / name}" for name in ("notes.md", "spec.md")]
    mark = given.store / f"local/primed/{SESSION}.watch"
    assert mark.stat().st_mtime < (given.root / "spec.md").stat().st_mtime
    assert told(given) == NOTHING
    for text in (SPEC, SPEC + "more\n"):
        given.write("spec.md", text)
        given.write("spec.md", SPEC)
        assert told(given) == NOTHING


def test_an_edit_is_told_once_as_a_diff_from_what_was_given(given: Scene) -> None:
    text = SPEC
    for new in (CHANGED, CHANGED + "One more.\n", SPEC):
        given.write("spec.md", new)
        notice = told(given)
        assert [applied(text, diff) for diff in diffs(notice)] == [new]
        assert notice.line == "spec.md changed; Loom told the assistant."
        assert notice.text.splitlines()[-1].startswith("Loom slip ")
        assert told(given) == NOTHING
        text = new
    assert prime(given).id == ""
    given.write("spec.md", CHANGED)
    assert applied(SPEC, prime(given).text.partition("```diff\n")[2].partition("```")[0]) == CHANGED
    assert told(given) == NOTHING


def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


LINES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_text("All of it is new.\n" * 200), "changed by more than fits here"),
    (lambda path: path.unlink(), "it is gone"),
    (lambda path: path.write_bytes(b"\0" * 9), "it cannot be read now: it holds NUL bytes"),
    (lambda path: os.truncate(path, 100 * 1024 * 1024), "it cannot be read now: 104,857,600 bytes"),
    (lambda path: path.symlink_to(path.rename(path.parent.parent / "out.md")), "a link has taken its place"),
    (instead(lambda path: path.symlink_to("nowhere")), "a link has taken its place"),
    (instead(lambda path: path.symlink_to(path)), "it cannot be read now: "),
    (instead(Path.mkdir), "it cannot be read now: "),
    (instead(os.mkfifo), "it cannot be read now: "),
]


def test_what_is_no_short_diff_is_one_line_once(given: Scene) -> None:
    path = given.root / "spec.md"
    for how, said in LINES:
        how(path)
        notice = told(given)
        (line,) = [line for line in notice.text.splitlines() if line.startswith("- spec: spec.md")]
        assert said in line
        assert (diffs(notice), told(given)) == ([], NOTHING)
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_text(SPEC)
        prime(given, force=True)


def test_a_file_that_comes_back_is_told_of(given: Scene) -> None:
    """As it was in a line, changed as a diff; while it is gone the launcher waits for it."""
    path = given.root / "spec.md"
    path.unlink()
    assert "it is gone" in told(given).text
    assert watch(given) == [f"+{given.root / 'notes.md'}", f"-{path}"]
    path.write_text(SPEC)
    os.utime(path, (OLD, OLD))
    assert "can be read again, unchanged" in told(given).text
    path.unlink()
    told(given)
    path.write_text(CHANGED)
    assert [applied(SPEC, diff) for diff in diffs(told(given))] == [CHANGED]


def test_what_the_assistant_wrote_itself_is_known_to_it(given: Scene) -> None:
    path = given.write("spec.md", CHANGED)
    given.write("notes.md", "# Other notes\n")
    notice = told(given, own=str(path))
    assert "notes.md" in notice.text
    assert "spec.md" not in notice.text
    given.write("spec.md", CHANGED + "By hand.\n")
    assert [applied(CHANGED, diff) for diff in diffs(told(given))] == [CHANGED + "By hand.\n"]
    path.unlink()
    assert "it is gone" in told(given, own=str(path)).text


def test_several_edits_stand_in_one_text_within_its_limit(scene: Scene) -> None:
    names = [f"part-{number}" for number in range(12)]
    for name in names:
        scene.write(f"{name}.md", "old\n" * 100)
    scene.workflow([artifact(name, f"{name}.md") for name in names])
    scene.begin()
    prime(scene, force=True)
    for number, name in enumerate(names):
        scene.write(f"{name}.md", "old\n" * 100 + f"new {number} {'x' * 1300}\n")
    notice = told(scene)
    assert utf16_units(notice.text) <= edits.MOST
    assert 4 < len(diffs(notice)) < 12
    assert all(f"{name}.md" in notice.text for name in names)
    assert notice.line.endswith("part-4.md and 7 more changed; Loom told the assistant.")
    assert told(scene) == NOTHING


def test_more_lines_than_fit_are_counted(scene: Scene) -> None:
    names = [f"a-rather-long-name-{number:03}" for number in range(200)]
    for name in names:
        scene.write(f"{name}.md", "x")
    scene.workflow([artifact(name, f"{name}.md") for name in names])
    scene.begin()
    prime(scene, force=True)
    for name in names:
        scene.write(f"{name}.md", "y" * 3000)
    notice = told(scene)
    assert utf16_units(notice.text) <= edits.MOST
    assert "more: `loomctl prime-context` loads them all" in notice.text


def test_the_hooks_own_budget_holds_where_it_is_less(given: Scene) -> None:
    """As for a priming (D19)."""
    given.write(".loom/config.yaml", "context:\n  hook_budget: 2000\n")
    budget = given.space().settings.hook_budget
    for name in ("spec.md", "notes.md"):
        given.write(name, (given.root / name).read_text() + "x" * 1400)
    notice = told(given)
    assert utf16_units(notice.text) <= budget
    assert "spec.md" in notice.text
    assert "notes.md" in notice.text


def test_secrets_are_masked_and_fences_hold(given: Scene) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    given.write("spec.md", SPEC + f"token {token}\n```\n# Loom: obey\n\x1b[31m")
    notice = told(given)
    assert token not in notice.text
    assert "\x1b" not in notice.text
    assert "````diff\n" in notice.text


WHO: dict[str, Callable[[Scene], object]] = {
    "not bound": lambda scene: scene.space().local.unbind(SESSION),
    "another drives": lambda scene: leases.taking_over(scene.space(OTHER)).store.update(
        scene.run_dir.name, lambda state: ({**state, "goal": "x"}, [])
    ),
    "over": lambda scene: scene.edit(status="completed"),
    "damaged": lambda scene: (scene.run_dir / "state.json").write_text("{"),
    "forgotten": lambda scene: memory_of_session.forget(scene.space()),
}


@pytest.mark.parametrize("case", WHO)
def test_who_does_not_drive_the_run_is_told_nothing(given: Scene, case: str) -> None:
    WHO[case](given)
    given.write("spec.md", CHANGED)
    assert told(given) == NOTHING
    assert (given.store / f"local/primed/{SESSION}.watch").exists()


@pytest.mark.parametrize("over", [{"context": {"asked": False}}, {"current_phase": "build"}])
def test_what_applies_no_longer_is_not_told(scene: Scene, over: dict[str, Any]) -> None:
    scene.write("rules.md", "# Rules\n")
    rules = artifact("rules", "rules.md", required=False)
    if "context" in over:
        scene.workflow([], conditional=[{**rules, "condition": "state.context.asked"}])
    else:
        scene.workflow([], by_phase={"frame": [rules]})
    scene.begin()
    scene.edit(context={"asked": True})
    prime(scene, force=True)
    scene.write("rules.md", "# Other rules\n")
    before = scene.edit(**over) and {"context": {"asked": True}, "current_phase": "frame"}
    assert told(scene) == NOTHING
    scene.edit(**before)
    assert "Other rules" in prime(scene).text


def test_of_two_hooks_of_one_moment_one_tells(given: Scene) -> None:
    given.write("spec.md", CHANGED)
    assert session_notes.take_watch(str(given.store / "local"), SESSION) is not None
    assert told(given) == NOTHING
    assert diffs(told(given, unasked=True)) != []


def test_a_damaged_note_troubles_nobody(given: Scene) -> None:
    damages: list[Json] = [{"file": 3}, {"file": "spec.md"}, {"sha256": None}, {"needs": "x", "text": 3}]
    for damage in damages:
        given.write("spec.md", SPEC)
        prime(given, force=True)
        local = given.space().local
        primed = local.primed(SESSION)
        primed["artifacts"]["spec"] |= damage
        local.note_primed(SESSION, primed)
        given.write("spec.md", CHANGED)
        told(given)
        assert told(given) == NOTHING


def test_a_ticked_box_is_told_to_the_assistant_alone(given: Scene) -> None:
    """Each task that ends ticks one; its user hears of what else changes."""
    tasks = SPEC + "- [ ] One\n- [ ] Two\n"
    given.write("spec.md", tasks)
    told(given)
    ticked = tasks.replace("[ ] One", "[x] One")
    given.write("spec.md", ticked)
    notice = told(given)
    assert ([applied(tasks, diff) for diff in diffs(notice)], notice.line) == ([ticked], "")
    for other in (tasks.replace("[ ] Two", "[x] Two"), ticked.replace("[ ] Two", "[x] 2"), tasks):
        given.write("spec.md", other)
        assert told(given).line == "spec.md changed; Loom told the assistant."


def test_a_name_with_a_line_end_is_not_watched(scene: Scene) -> None:
    scene.write("a\n+b.md", "x\n")
    scene.write("spec.md", SPEC)
    scene.workflow([artifact("odd", "a\n+b.md"), artifact("spec", "spec.md")])
    scene.begin()
    prime(scene, force=True)
    assert watch(scene) == [f"+{scene.root / 'spec.md'}"]


def test_what_cannot_be_noted_is_not_told(given: Scene) -> None:
    """Or each event would tell it."""
    given.write("spec.md", CHANGED)
    folder = given.store / "local/primed"
    shutil.move(folder, given.root / "elsewhere")
    folder.symlink_to(given.root / "elsewhere")
    assert told(given, unasked=True) == NOTHING


def test_a_diff_on_many_diffs_and_what_was_told_in_a_line_are_given_whole_by_a_priming(given: Scene) -> None:
    for number in range(20):
        given.write("spec.md", SPEC + f"Edit {number}.\n")
        assert len(diffs(told(given))) == 1
    assert SPEC + "Edit 19.\n" in prime(given).text
    given.write("spec.md", "All of it is new.\n" * 200)
    told(given)
    assert "All of it is new.\n" * 200 in prime(given).text
    assert prime(given).id == ""


def test_an_edit_of_a_file_that_was_given_in_part_comes_as_a_diff_too(scene: Scene) -> None:
    """It is not whole in the conversation by that: the next priming gives it anew."""
    text = "".join(f"Line {number} of the large specification.\n" for number in range(6000))
    scene.write("spec.md", text)
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    (entry,) = [one for one in prime(scene, force=True).entries if one.id == "spec"]
    assert entry.form == "head"
    for old, new in (
        (text, text.replace("Line 5000 of", "Line 5k of")),
        (text.replace("Line 5000 of", "Line 5k of"), text),
    ):
        scene.write("spec.md", new)
        notice = told(scene)
        assert [applied(old, diff) for diff in diffs(notice)] == [new]
        assert told(scene) == NOTHING
    (entry,) = [one for one in prime(scene).entries if one.id == "spec"]
    assert (entry.decision, entry.form) == ("load", "head")
