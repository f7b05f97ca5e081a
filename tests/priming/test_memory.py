"""`.loom/now.md`: what it says of the run here, that it is kept current, and that hooks give only the rest (D62)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loomctl.hosts import asking, table
from loomctl.priming import memory, memory_switch
from loomctl.runs.machine import run_notes
from tests.helpers.errors import refusal
from tests.helpers.scenes import OTHER, SESSION, Json, Scene, TranscriptFile, artifact

LOCAL_FILE, RULE = table.CLAUDE.memory

SENTENCE = "The heliotrope switch survives a reload."


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run with a spec for every start and a guide for its second phase, and memory."""
    scene.write("specs/the spec.md", f"# The spec\n\n{SENTENCE}\n")
    scene.write("guide.md", "# The guide\n\nCerulean code is reviewed twice.\n")
    guide = artifact("guide", "guide.md", reload_triggers=["phase_start"])
    scene.workflow([artifact("spec", "specs/the spec.md")], by_phase={"build": [guide]})
    scene.begin()
    assert scene.loomctl("memory", "on", "--yes").code == 0
    return scene


def now(scene: Scene) -> str:
    return (scene.store / "now.md").read_text(encoding="utf-8")


def start(scene: Scene, source: str = "startup", **environ: str) -> str:
    """Start a session as the host does; gives what it is told."""
    ended = scene.hook("session-start", source=source, environ=environ or None)
    assert (ended.code, ended.stderr) == (0, "")
    return ended.context


def test_it_says_where_the_run_stands_imports_the_users_files_and_is_left_by_what_only_looks(begun: Scene) -> None:
    told = now(begun)
    assert "phase frame · step frame/ask · 0 of 4 steps done" in told
    assert "Ask what is wanted." in told
    assert "loomctl done --for 001 <<'LOOM'" in told
    assert [line for line in told.split("\n") if line.startswith("@")] == ["@../specs/the\\ spec.md"]
    assert SENTENCE not in told
    before = (begun.store / "now.md").stat()
    assert begun.loomctl("status").code == 0
    after = (begun.store / "now.md").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("done",), "step build/make"),
        (("pause",), "status paused"),
        (("cancel",), memory.NO_RUN),
        (("context", "set", "k", "1"), "step frame/ask"),
        (("run", "more work", "--workflow", "tiny"), "2 runs are active in this project"),
    ],
    ids=lambda words: words[0],
)
def test_each_command_leaves_it_current(begun: Scene, words: tuple[str, ...], said: str) -> None:
    assert begun.loomctl(*words, given="Done." if words == ("done",) else None).code == 0
    assert said in now(begun)
    assert now(begun) == memory.now(begun.space()).text


def test_a_phase_brings_its_files_and_undo_takes_them_back(begun: Scene) -> None:
    assert begun.loomctl("done").code == 0  # the next final message is its result
    begun.hook("stop", last_assistant_message="What was asked: " + "a switch that survives; " * 20)
    assert "@../guide.md" in now(begun)
    assert begun.loomctl("undo").code == 0
    assert "@../guide.md" not in now(begun)


def test_nothing_of_a_run_that_was_not_taken_up_here_gets_in(begun: Scene) -> None:
    """The store came with a copied project, `now.md` with it: the first start takes out what it says."""
    run_notes.forget_known(begun.run_dir.name, str(begun.store))
    told = start(begun)
    assert now(begun) == memory.NO_RUN
    assert "was not resumed here" in told
    assert SENTENCE not in told


def left_out(scene: Scene) -> dict[str, str]:
    return {one.id: one.why for one in memory.now(scene.space()).imports if not one.line}


SECRET = "token: ghp_" + "a1B2" * 9
CASES: list[tuple[str, str | bytes, str]] = [
    ("a.md", f"# A\n\n{SECRET}\n", "it holds what looks like a secret"),
    ("a.md", b"# A \xe9\n", "it is not UTF-8 text"),
    ("a.md", "see @other.md for the rest\n", "it imports other files itself, unmasked: @other.md"),
    ("a.md", "see @~/notes.md for the rest\n", "it imports other files itself, unmasked: @~/notes.md"),
    ("a.md", "---\n" + "a: b\n" * 1000 + "---\n# A\n", "the host would leave out its front matter"),
    ("a*b*.md", "# A\n", "the host does not import a file of that name"),
    ("a.markdown", "# A\n", "the host does not import a file of that name"),
]


@pytest.mark.parametrize(("path", "content", "why"), CASES, ids=[f"{path}: {why[:30]}" for path, _, why in CASES])
def test_what_an_import_would_not_carry_as_it_is_is_named_and_given_by_hooks(
    scene: Scene, path: str, content: str | bytes, why: str
) -> None:
    scene.write(path, content)
    scene.write("other.md", "# Another\n")
    scene.workflow([artifact("a", path)])
    scene.begin()
    assert scene.loomctl("memory", "on", "--yes").code == 0
    assert left_out(scene)["a"].startswith(why)
    assert f"a: {path}: not imported, {why}" in now(scene)
    told = start(scene, "clear")
    assert "In your memory" not in told
    assert SECRET not in now(scene) + told


def test_no_file_from_outside_and_none_of_looms_own_is_imported(scene: Scene) -> None:
    scene.write("docs/a.md", "# A\n")
    rules: list[Json] = [
        artifact("folder", "docs", type="directory"),
        artifact("gone", "gone.md"),
        artifact("state", "{state_path}", type="json"),
        artifact("plan", "{plan_path}", type="json"),
        artifact("protocol", "{plugin_root}/docs/reference/context-reload-protocol.md"),
    ]
    scene.workflow(rules)
    scene.begin()
    assert list(left_out(scene)) == ["folder", "gone"]
    assert not any(one.line for one in memory.now(scene.space()).imports)


def test_hooks_give_only_what_the_memory_has_not(begun: Scene, tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path / "transcript.jsonl")
    ended = begun.hook("session-start", source="compact", transcript_path=str(file.path))
    assert SENTENCE not in ended.context
    assert "In your memory: spec (specs/the spec.md)." in ended.context
    assert "in its memory: spec" in ended.message
    assert "The next step stands in your memory (.loom/now.md)." in ended.context
    assert "loomctl done" not in ended.context
    file.hook_text(ended.context)
    told = begun.loomctl("prime-context", "--json").json
    assert {one["id"]: one["reason"] for one in told["artifacts"]}["spec"] == "fresh"
    forced = begun.loomctl("prime-context", "--force", "--json").json
    assert SENTENCE in forced["text"]


@pytest.mark.parametrize("way", ["below", "line gone", "now.md gone", "another run's", "off"])
def test_what_is_not_sure_to_be_in_memory_is_given(begun: Scene, way: str) -> None:
    environ = {}
    if way == "below":
        (begun.root / "src").mkdir()
        environ = {"CLAUDE_PROJECT_DIR": str(begun.root / "src")}
    if way == "line gone":
        (begun.root / "CLAUDE.local.md").write_text("mine\n")
    if way == "now.md gone":
        (begun.store / "now.md").unlink()
    if way == "another run's":
        (begun.store / "now.md").write_text("@../other.md\n")
    if way == "off":
        assert begun.loomctl("memory", "off").code == 0
    assert SENTENCE in start(begun, "compact", **environ)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text(alphabet="ab\n\r\ufeff ", max_size=40).map(str.encode))
@example(b"\xef\xbb\xbfUse tabs.\r\n")
@example(b"")
@pytest.mark.shows("which `loomctl memory off` takes out again")
def test_off_restores_any_file_byte_for_byte(scene: Scene, content: bytes) -> None:
    """On twice, then off: the file has its bytes and its mode, and nothing of Loom's is left beside it."""
    place = scene.write("CLAUDE.local.md", content)
    place.chmod(0o640)
    space = scene.space()
    memory_switch.on(space, LOCAL_FILE)
    written = place.read_bytes()
    memory_switch.on(space, LOCAL_FILE)
    assert place.read_bytes() == written
    assert memory_switch.off(space)
    assert (place.read_bytes(), place.stat().st_mode & 0o777) == (content, 0o640)
    assert {path.name for path in scene.root.iterdir()} == {".git", ".loom", "CLAUDE.local.md"}


def test_off_takes_away_what_on_put_there_and_nothing_of_the_users_own(scene: Scene) -> None:
    space = scene.space()
    memory_switch.on(space, RULE)
    rule = scene.root / RULE
    assert rule.read_text() == "@../../.loom/now.md\n"
    memory_switch.off(space)
    assert not (scene.root / ".claude").exists()
    memory_switch.on(space, RULE)
    rule.write_text("My rule.\n" + rule.read_text() + "More of it.\n")
    memory_switch.off(space)
    assert rule.read_text() == "My rule.\nMore of it.\n"
    place = scene.write("CLAUDE.local.md", "@.loom/now.md\n")
    memory_switch.on(scene.space(), LOCAL_FILE)
    memory_switch.off(scene.space())
    assert place.read_text() == "@.loom/now.md\n"


@pytest.mark.shows("a link in the place of either is refused")
def test_a_link_in_the_place_of_a_file_is_refused_and_nothing_is_written(scene: Scene, tmp_path: Path) -> None:
    """What came with a project must not steer what Loom writes."""
    target = tmp_path / "elsewhere.md"
    target.write_text("mine\n")
    for name in ("CLAUDE.local.md", ".claude", ".loom/now.md", ".loom/local/memory.json"):
        place = scene.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(tmp_path if name == ".claude" else target)
        file = RULE if name == ".claude" else LOCAL_FILE
        assert refusal(memory_switch.on, scene.space(), file).code == "UNSAFE_LINK"
        place.unlink()
        assert target.read_text() == "mine\n"
        assert not (scene.root / "CLAUDE.local.md").exists()
        memory_switch.off(scene.space())


def test_a_note_that_came_with_a_project_takes_nothing_of_the_users_away(scene: Scene) -> None:
    place = scene.write("CLAUDE.local.md", "Use tabs.\n")
    (scene.root / "src").mkdir()
    for note in [
        "{",
        "[]",
        '{"file": "../../secret.md", "added": "@.loom/now.md\\n"}',
        '{"file": "CLAUDE.local.md", "added": "Use tabs.\\n", "makes": true, "folders": ["/", "src", ".."]}',
    ]:
        scene.write(".loom/local/memory.json", note)
        assert memory_switch.off(scene.space())
        assert place.read_text() == "Use tabs.\n"
        assert (scene.root / "src").is_dir()
        assert not memory.is_on(scene.space().store)


def test_a_worktree_of_a_run_is_told_where_memory_is_switched(begun: Scene, tmp_path: Path) -> None:
    git = begun.root / ".git"
    (git / "worktrees/beside").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / ".git").write_text(f"gitdir: {git}/worktrees/beside\n")
    (git / "worktrees/beside/commondir").write_text("../..\n")
    (git / "worktrees/beside/gitdir").write_text(f"{beside}/.git\n")
    (git / "worktrees/beside/HEAD").write_text("ref: refs/heads/beside\n")
    space = begun.space(cwd=beside)
    assert (space.project.root, space.store.folder) == (str(beside), str(begun.store))
    for verb in ("on", "off"):
        ended = begun.loomctl("memory", verb, "--json", cwd=beside)
        assert (ended.code, ended.json["error"]["code"]) == (2, "IN_A_WORKTREE")
    before = now(begun)
    assert not memory.keep(space)
    assert now(begun) == before


def test_two_runs_are_listed_and_an_unreadable_one_is_named(begun: Scene) -> None:
    assert begun.loomctl("run", "more work", "--workflow", "tiny", session=OTHER).code == 0
    told = now(begun)
    assert [line.split(": ", 1)[1] for line in told.split("\n") if ": in_progress" in line] == [
        "in_progress, step frame/ask"
    ] * 2
    assert "@" not in told


def test_a_goal_cannot_leave_its_fence(scene: Scene) -> None:
    """An `@` in it, or in a step's prompt, imports nothing: the host looks for none in a fence."""
    phases: Json = {"frame": {"steps": [{"id": "ask", "prompt": "```\n@../a.md\n```\n~~~~\n@../b.md"}]}}
    scene.workflow(phases=phases)
    scene.begin("see @../c.md\n```")
    told = memory.now(scene.space()).text
    fence = next(line for line in told.split("\n") if line.endswith("text"))[: -len("text")]
    outside = told.split(f"{fence}text\n", 1)[0] + told.split(f"\n{fence}\n", 1)[1]
    assert "@" not in outside


def test_receipts_count_what_the_memory_holds(begun: Scene, tmp_path: Path) -> None:
    begun.edit_plan(must_survive=[{"artifact": "spec"}])
    file = TranscriptFile(tmp_path / "transcript.jsonl")
    begun.hook("pre-compact", trigger="manual", transcript_path=str(file.path))
    begun.hook("session-start", source="compact", transcript_path=str(file.path))
    compaction = begun.state["sessions"]["session_history"][0]["compactions"][-1]
    assert compaction["receipt"]["kept"] == ["spec", "goal", "step"]
    assert begun.space().local.primed(SESSION)["artifacts"]["spec"]["form"] == "full"


@pytest.mark.parametrize("host", [host for host in table.MEMORY if host != table.CLAUDE.name])
def test_other_assistants_are_led_to_it_by_a_line_in_their_own_file(host: str, scene: Scene) -> None:
    (file,) = table.MEMORY[host]
    line = asking.MEMORY_LINES[file]
    place = scene.write(file, "# Mine\n")
    space = scene.space()

    memory_switch.on(space, file)

    assert place.read_text() == f"# Mine\n\n{line}\n"
    assert (scene.store / "now.md").exists()
    assert refusal(memory_switch.on, space, RULE, "again").code == "MEMORY_IS_ON"
    assert memory_switch.off(space)
    assert place.read_text() == "# Mine\n"
