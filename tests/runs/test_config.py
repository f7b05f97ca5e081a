"""Settings are read from two YAML files, and what is the user's alone is never taken from a project (D10)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from loomctl.kit import files
from loomctl.kit.errors import EXIT_INVALID, LoomError
from loomctl.runs import config
from loomctl.runs.config import Settings, load
from loomctl.runs.store import ignored
from tests.helpers.errors import refusal


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / ".loom").mkdir()
    return tmp_path / ".loom"


@pytest.fixture
def user(user_folders: Path) -> Path:
    path = Path(config.user_config())
    assert user_folders in path.parents
    path.parent.mkdir(parents=True)
    return path


def test_without_settings_the_defaults_hold(store: Path) -> None:
    """On the command line and in a hook, before and after a compilation, without a file and with an empty one."""
    assert (load(str(store), with_yaml=False), load(str(store), with_yaml=True)) == (Settings(), Settings())
    assert load(str(store), with_yaml=False) == Settings()
    assert load(str(store / "none"), with_yaml=True) == Settings()
    (store / "config.yaml").write_text("\ufeff# hook_budget: 5000\n")
    assert load(str(store), with_yaml=True) == Settings()


@pytest.mark.shows("set smaller budgets, another default workflow, and `commit_runs`")
def test_the_projects_word_comes_before_the_users(store: Path, user: Path) -> None:
    user.write_text("hook_budget: 5000\ncommand_budget: 9000\nextra_roots: [/srv/docs, ~/notes]\n")
    (store / "config.yaml").write_text("hook_budget: 6000\ndefault_workflow: mine\ncommit_runs: true\n")
    loaded = load(str(store), with_yaml=True)
    assert loaded == Settings(6000, 9000, "mine", True, ("/srv/docs", f"{os.environ['HOME']}/notes"))
    assert load(str(store), with_yaml=False) == loaded


def test_what_is_compiled_before_a_first_run_stays_out_of_git(store: Path) -> None:
    """As a run would write it: with the runs, where the settings say so."""
    subprocess.run(["git", "init", "-q"], cwd=store.parent, check=True)
    for said, runs in (("hook_budget: 5000\n", []), ("commit_runs: true\n", [".loom/runs/a/state.json"])):
        shutil.rmtree(store / "local", ignore_errors=True)
        (store / "config.yaml").write_text(said)
        (store / "runs/a").mkdir(parents=True, exist_ok=True)
        (store / "runs/a/state.json").write_text("{}")
        load(str(store), with_yaml=True)
        assert (store / "local/config.json").is_file()
        shown = ["git", "ls-files", "--others", "--exclude-standard"]
        seen = subprocess.run(shown, cwd=store.parent, check=True, capture_output=True, text=True).stdout.split()
        assert seen == [".loom/.gitignore", ".loom/config.yaml", *runs]


@pytest.mark.parametrize("error", [OSError(28, "no space"), LoomError("UNSAFE_LINK", "a link")])
def test_settings_count_where_what_was_compiled_cannot_be_kept(
    store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    (store / "config.yaml").write_text("hook_budget: 5000\n")
    monkeypatch.setattr(ignored, "write", fails)
    assert load(str(store), with_yaml=True) == Settings(hook_budget=5000)


def test_a_link_in_the_gitignores_place_stays_before_a_first_run(store: Path) -> None:
    (store / "config.yaml").write_text("hook_budget: 5000\n")
    (store / ".gitignore").symlink_to(store.parent / "nowhere")
    assert load(str(store), with_yaml=True) == Settings(hook_budget=5000)
    assert ((store / ".gitignore").is_symlink(), (store.parent / "nowhere").exists()) == (True, False)


@pytest.mark.parametrize("source", ["project", "user"])
def test_a_hook_works_with_the_last_good_settings(store: Path, user: Path, source: str) -> None:
    path = store / "config.yaml" if source == "project" else user
    path.write_text("hook_budget: 5000\n")
    load(str(store), with_yaml=True)
    os.utime(path, (1, 1))
    assert load(str(store), with_yaml=False) == Settings(hook_budget=5000)
    path.write_text("hook_budget: 7000\n")
    stale = load(str(store), with_yaml=False)
    assert (stale.hook_budget, [code for code, _ in stale.warnings]) == (5000, ["STALE_CONFIG"])
    assert load(str(store), with_yaml=True) == Settings(hook_budget=7000)
    path.unlink()
    assert load(str(store), with_yaml=False).hook_budget == Settings().hook_budget
    assert load(str(store), with_yaml=True) == Settings()


def test_a_hook_that_no_command_came_before_says_so(store: Path) -> None:
    (store / "config.yaml").write_text("hook_budget: 5000\n")
    loaded = load(str(store), with_yaml=False)
    assert (loaded.hook_budget, [code for code, _ in loaded.warnings]) == (38000, ["STALE_CONFIG"])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("hook_budgt: 9500", "'hook_budgt' is not a setting; did you mean hook_budget?"),
        ("retention: {local_day: 9}", "'retention.local_day' is not a setting; did you mean retention.local_days?"),
        ("colour: red", "'colour' is not a setting"),
    ],
)
def test_a_slip_in_a_settings_name_is_told_with_the_name_that_is_near(store: Path, said: str, message: str) -> None:
    (store / "config.yaml").write_text(f"{said}\n")
    assert [one.what for one in config.troubles(str(store))] == [f"{store}/config.yaml: {message}"]


@pytest.mark.shows("in a project's settings the word means nothing")
def test_what_a_project_may_not_say_is_told_and_has_no_effect(store: Path) -> None:
    """A root that a project would allow itself, and a word that is no setting, are warnings."""
    for name in ["extra_roots", "no_such_setting"]:
        (store / "config.yaml").write_text(f"{name}: [/]\n")
        for with_yaml in (True, False):
            loaded = load(str(store), with_yaml=with_yaml)
            assert loaded.extra_roots == ()
            ((code, message),) = loaded.warnings
            assert code == "UNKNOWN_SETTING"
            assert name in message


@pytest.mark.shows("in a project's settings the word means nothing")
def test_a_compiled_file_that_a_repository_brings_allows_no_root(store: Path) -> None:
    """Whatever a project's own compiled file says, its roots are not the user's word: neither a hook nor a command
    reads a file that it allows.
    """
    for key in ["source", "sources"]:
        (store / "local").mkdir(exist_ok=True)
        paths = [str(store / "config.yaml"), config.user_config(), ""]
        for path in paths:
            source = {"path": path, "size": 0, "sha256": ""}
            brought = {
                key: source if key == "source" else [source, source],
                "settings": {"extra_roots": ["/"], "hook_budget": 10**9, "commit_runs": "yes", "x": 1},
                "warnings": [["X"], "Y", ["CODE", "text"]],
            }
            (store / "local" / "config.json").write_text(json.dumps(brought))
            for with_yaml in (False, True):
                loaded = load(str(store), with_yaml=with_yaml)
                assert (loaded.extra_roots, loaded.hook_budget, loaded.commit_runs) == ((), 38000, False)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"source": 1, "settings": 2, "warnings": 3}'])
def test_a_damaged_compiled_file_is_made_anew(store: Path, content: bytes) -> None:
    """What cannot be read of a compilation counts for nothing, and the next command mends it."""
    (store / "config.yaml").write_text("hook_budget: 5000\n")
    (store / "local").mkdir()
    (store / "local" / "config.json").write_bytes(content)
    assert load(str(store), with_yaml=False).hook_budget == 38000
    assert load(str(store), with_yaml=True) == Settings(hook_budget=5000)
    assert load(str(store), with_yaml=False) == Settings(hook_budget=5000)


def test_bad_settings_are_named_with_their_place(store: Path) -> None:
    for text, where in [
        ("hook_budget: 100", "$.hook_budget"), ("hook_budget: 38001", "$.hook_budget"),
        ("hook_budget: true", "$.hook_budget"), ("hook_budget: '5000'", "$.hook_budget"),
        ("hook_budget: 5000.0", "$.hook_budget"), ("command_budget: 30000", "$.command_budget"),
        ("commit_runs: 1", "$.commit_runs"), ("default_workflow: ''", "$.default_workflow"),
        ("default_workflow:", "$.default_workflow"), ("hook_budget: 1000\nhook_budget: 2000", "line 2"),
        ("a: &x 1\nb: *x", "line 1"), ("a: !!python/object/apply:os.system [id]", "line 1"),
        ("{{ x }}", "line 1"), ("a:\n\tb: 1", "line 2"), ("[1, 2", "line 1"), ("- a", ""), ("just words", ""),
        ("[" * 5000, "line 1"), ("\x07", ""),
    ]:  # fmt: skip
        (store / "config.yaml").write_text("hook_budget: 5000\n")
        load(str(store), with_yaml=True)
        (store / "config.yaml").write_text(text)
        error = refusal(load, str(store), with_yaml=True)
        assert (error.code, error.exit_code) == ("BAD_CONFIG", EXIT_INVALID)
        assert str(store / "config.yaml") in error.where
        assert where in error.where
        hook = load(str(store), with_yaml=False)
        assert (hook.hook_budget, [code for code, _ in hook.warnings]) == (5000, ["STALE_CONFIG"])


def test_settings_that_are_no_text_or_too_much_are_refused(store: Path) -> None:
    load(str(store), with_yaml=True)
    (store / "config.yaml").write_bytes(b"a: \xff")
    assert refusal(load, str(store), with_yaml=True).code == "BAD_CONFIG"
    (store / "config.yaml").write_text("# " + "x" * config.LARGEST)
    assert refusal(load, str(store), with_yaml=True).code == "TOO_LARGE"
    assert load(str(store), with_yaml=False).warnings


def test_an_extra_root_is_an_absolute_folder(store: Path, user: Path) -> None:
    for value in ["[relative]", "/srv", "[1]", "['~nobody-of-that-name/x']", "[[/]]"]:
        user.write_text(f"extra_roots: {value}\n")
        with pytest.raises(LoomError, match="extra_roots"):
            load(str(store), with_yaml=True)


def test_where_nothing_can_be_written_settings_hold_all_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "config.yaml").write_text("hook_budget: 5000\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(files, "write_atomically", refuse)
    assert load(str(store), with_yaml=True) == Settings(hook_budget=5000)
    monkeypatch.setenv("LOOM_STATE_HOME", "")
    monkeypatch.setenv("HOME", "")
    assert load(str(store), with_yaml=True) == Settings(hook_budget=5000)


def test_how_long_things_are_kept_is_said_by_both(store: Path, user: Path) -> None:
    user.write_text("retention: {outputs_days: 90, local_days: 7, environments_days: 3}\n")
    (store / "config.yaml").write_text("retention:\n  local_days: 14\n")
    for with_yaml in (True, False):
        loaded = load(str(store), with_yaml=with_yaml)
        assert (loaded.outputs_days, loaded.local_days, loaded.environments_days, loaded.warnings) == (90, 14, 3, ())
    (store / "config.yaml").write_text("retention: {environments_days: 1, nonsense: 2}\nlocal_days: 5\n")
    loaded = load(str(store), with_yaml=True)
    assert (loaded.local_days, loaded.environments_days) == (7, 3)
    said = [message.partition(": ")[2] for _, message in loaded.warnings]
    assert said == [
        "'retention.environments_days' is allowed in your own config.yaml only",
        "'retention.nonsense' is not a setting",
        "'local_days' is not a setting",
    ]


def test_retention_is_a_mapping_of_whole_days(store: Path) -> None:
    for value in ["5", "[]", "x", "", "true"]:
        (store / "config.yaml").write_text(f"retention: {value}\n")
        with pytest.raises(LoomError, match="BAD_CONFIG") as error:
            load(str(store), with_yaml=True)
        assert error.value.where.endswith("$.retention")
        (store / "config.yaml").write_text("retention: {}\n")
        assert load(str(store), with_yaml=True) == Settings()
    for value in ["0", "-1", "1.5", "'7'", "true", "null", "36501", "[7]"]:
        (store / "config.yaml").write_text(f"retention:\n  outputs_days: {value}\n")
        with pytest.raises(LoomError, match="BAD_CONFIG") as error:
            load(str(store), with_yaml=True)
        assert error.value.where.endswith("$.retention.outputs_days")


def test_settings_that_another_loom_compiled_are_compiled_anew(store: Path) -> None:
    (store / "config.yaml").write_text("retention: {local_days: 3}\n")
    load(str(store), with_yaml=True)
    path = store / "local" / "config.json"
    compiled = json.loads(path.read_text())
    compiled["source"]["names"] = ["hook_budget"]
    compiled["settings"] = {}
    path.write_text(json.dumps(compiled))
    assert [code for code, _ in load(str(store), with_yaml=False).warnings] == ["STALE_CONFIG"]
    assert load(str(store), with_yaml=True).local_days == 3


def test_live_reduction_is_switched_off_by_any_word_for_it(store: Path) -> None:
    for word in ["off", '"off"', "false", "no"]:
        (store / "config.yaml").write_text(
            f"reduce: {{live: {word}, tools: {{Bash: {{live: {word}}}, WebFetch: {{live: large}}}}}}\n"
        )
        loaded = load(str(store), with_yaml=True)
        assert (loaded.reduce_live, loaded.reduce_live_threshold) == ("off", 8000)
        assert loaded.reduce_tools == {"Bash": {"live": "off"}, "WebFetch": {"live": "large"}}
        assert load(str(store), with_yaml=False) == loaded


def test_what_reduce_may_not_say_is_refused(store: Path) -> None:
    for said in [
        "reduce: {rules: 1}", "reduce: {rules: [{keep: [a]}]}", "reduce: {rules: [{tool: a, kep: [a]}]}",
        "reduce: {rules: [{tool: a, keep: a}]}", "reduce: {rules: [{tool: a, threshold: -1}]}",
        "reduce: {rules: [{tool: a, template: 1}]}", "reduce: {rules: [{tool: ''}]}", "reduce: 1",
        "reduce: {live: small}", "reduce: {live: true}", "reduce: {live_threshold: 7999}",
        "reduce: {live_threshold: 10 kB}", "reduce: {tools: [Bash]}", "reduce: {tools: {Bash: off}}",
        "reduce: {tools: {Bash: {alive: off}}}", "reduce: {tools: {Bash: {live: 3}}}",
        "reduce: {tools: {Bash: {live_threshold: 1}}}",
    ]:  # fmt: skip
        (store / "config.yaml").write_text(f"{said}\n")
        raised = refusal(load, str(store), with_yaml=True)
        assert (raised.code, "$.reduce" in raised.where) == ("BAD_CONFIG", True)


def test_a_bad_rule_is_named_by_its_number_and_says_why(store: Path) -> None:
    keep = "keep: [location, $.unit.name, \"$['a b']\"]"
    good = f"{{tool: 'weather:*', {keep}, template: '{{location}}: {{result.days[0].t}}'}}"
    for rule, why in [
        ("{keep: [a]}", "expected a tool: "),
        ("{tool: b, keep: ['$[?(@.a)]']}", "'$[?(@.a)]' is neither"),
        ("{tool: b, keep: ['$..a']}", "'$..a' is neither"),
        ("{tool: b, template: 'at {a.b[*]}'}", "'{a.b[*]}' is neither"),
        ("{tool: b, template: 'at {place'}", "'{place' is neither"),
        ("{tool: b, template: '{}'}", "'{}' is neither"),
    ]:
        (store / "config.yaml").write_text(f"reduce: {{rules: [{good}]}}\n")
        assert len(load(str(store), with_yaml=True).reduce_rules) == 1
        (store / "config.yaml").write_text(f"reduce: {{rules: [{good}, {rule}]}}\n")
        with pytest.raises(LoomError, match="BAD_CONFIG") as raised:
            load(str(store), with_yaml=True)
        assert raised.value.where.endswith("$.reduce.rules[1]")
        assert why in str(raised.value.why)
