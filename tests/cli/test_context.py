"""`loomctl context`: values read and set by hand, what is refused, and what becomes of it all."""

import json
import shlex
from typing import Any

import pytest

from loomctl.flow import advance
from loomctl.runs.store.blobs import Blobs
from tests.cli.conftest import Cli
from tests.helpers import faber
from tests.helpers.scenes import BUILT_IN, OTHER, Json, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

SECRET = "ghp_" + "a1B2" * 9
LARGE = "x" * 110_000


def end(scene: Scene, **updates: Any) -> None:
    response = f"Done. {json.dumps({'outcome': 'succeeded', 'context_updates': updates})}"
    advance.done(scene.space(), scene.run_dir.name, response=response)


def values(scene: Scene) -> Json:
    context: Json = scene.state["context"]
    return {key: one for key, one in context.items() if not key.startswith(("last_", "response."))}


# the word that is given → the value that it is
VALUES: list[tuple[str, Any]] = [
    ("87", 87),
    ("-5", -5),
    ("-0.5e3", -500.0),
    ("1.0", 1.0),
    ("true", True),
    ("null", None),
    ("[1, {}]", [1, {}]),
    ('{"a": {"b": [null]}}', {"a": {"b": [None]}}),
    ('"87"', "87"),
    ('"with\\nlines"', "with\nlines"),
    ("src/auth.py", "src/auth.py"),
    ("two words", "two words"),
    ("", ""),
    (" ", " "),
    ("007", "007"),
    ("1e999", "1e999"),
    ("NaN", "NaN"),
    ("True", "True"),
    ("é € 😀", "é € 😀"),
    ("lines\nand more\n", "lines\nand more\n"),
    ("blob://sha256/" + "a" * 64, "blob://sha256/" + "a" * 64),
    ('{"$stage": "001-frame.ask@1", "file": "response.md"}', {"$stage": "001-frame.ask@1", "file": "response.md"}),
]


@each("word, value", VALUES)
@pytest.mark.usefixtures("begun")
def test_a_value_is_json_and_what_is_none_is_a_text(cli: Cli, word: str, value: Any) -> None:
    assert cli("context", "set", "k", word).code == 0
    assert json.dumps(cli("context", "get", "k", "--json").json["value"]) == json.dumps(value)
    printed = cli("context", "get", "k").stdout
    assert printed.removesuffix("\n") == value if isinstance(value, str) else json.loads(printed) == value


@each("word", ["87", "true", '{"a": 1,}', "-5", "[", "null"])
@pytest.mark.usefixtures("begun")
def test_text_is_text_whatever_it_looks_like(cli: Cli, word: str) -> None:
    assert cli("context", "set", "--text", "k", word).code == 0
    assert cli("context", "get", "k", "--json").json["value"] == word


@each("word", ['{"a": 1,}', "[1, 2", '"torn', '{"a": NaN}', "  {x}", "[" * 500, "[" * 300 + "]" * 300])
def test_what_only_looks_like_json_is_refused(begun: Scene, cli: Cli, word: str) -> None:
    ended = cli("context", "set", "k", word, "--json")
    assert (ended.code, ended.json["error"]["code"]) == (2, "BAD_VALUE")
    assert values(begun) == {}


def test_a_value_comes_from_a_file_or_from_standard_input_and_odd_words_are_refused(begun: Scene, cli: Cli) -> None:
    for line in (
        *("set", "set k", "set k 1 run more", "set k 1 --jsno", "get", "get a b c", "history a b c", "unset"),
        "list a b",
    ):
        assert cli("context", *line.split()).code == 2
    assert values(begun) == {}
    begun.write("report.json", '{"lines": 12}\n')
    run = begun.run_dir.name
    assert cli("context", "set", "a", "--from", "report.json").code == 0
    assert cli("context", "set", "b", run, "--from", "-", given="some text\n").code == 0
    assert cli("context", "set", "c", "--text", "--from", "report.json", run).code == 0
    assert values(begun) == {"a": {"lines": 12}, "b": "some text\n", "c": '{"lines": 12}\n'}
    begun.write("picture.png", b"\x89PNG\xff")
    for words, code in (
        (("--from", "nowhere.json"), "UNREADABLE"),
        (("--from", "picture.png"), "BAD_VALUE"),
        (("value", run, "--from", "report.json"), "USAGE"),
    ):
        ended = cli("context", "set", "d", *words, "--json")
        assert (ended.code, ended.json["error"]["code"]) == (2, code)
        assert ended.json["error"]["hint"]


def test_setting_is_told_in_the_log_by_reference_where_it_is_large(begun: Scene, cli: Cli) -> None:
    cli("context", "set", "k", "1")
    cli("context", "set", "k", '{"a": 2}')
    cli("context", "unset", "k")
    told = [(entry["event"], entry["properties"]) for entry in begun.events()[-3:]]
    by = {"by": "user", "keys": ["k"]}
    assert told == [
        ("context.updated", {**by, "values": {"k": 1}, "before": {}}),
        ("context.updated", {**by, "values": {"k": {"a": 2}}, "before": {"k": 1}}),
        ("context.updated", {**by, "values": {}, "before": {"k": {"a": 2}}}),
    ]
    assert cli("events", "--last", "1").stdout.rstrip().endswith("user keys=k")
    cli("context", "set", "k", "y" * 3000)
    cli("context", "set", "k", "1")
    assert values(begun) == {"k": 1}
    first, second = (entry["properties"] for entry in begun.events()[-2:])
    assert first["values"]["k"] == second["before"]["k"]
    assert Blobs(str(begun.store)).get(first["values"]["k"]) == json.dumps("y" * 3000).encode()
    assert cli("context", "set", "big", "--from", "-", given=LARGE).code == 0
    ref = values(begun)["big"]
    assert Blobs(str(begun.store)).get(ref) == json.dumps(LARGE).encode()
    told = cli("context", "get", "big", "--json").json
    assert (told["value"], told["ref"], told["bytes"], told["type"]) == (LARGE, ref, 110_002, "text")
    assert cli("context", "get", "big").stdout == LARGE + "\n"
    entry = begun.events()[-1]
    assert (entry["event"], entry["properties"]["values"]) == ("context.updated", {"big": ref})


def test_secrets_are_masked_where_they_are_shown_and_kept_where_they_are_used(begun: Scene, cli: Cli) -> None:
    cli("context", "set", "token", SECRET)
    cli("context", "set", "config", json.dumps({"api_password": "hunter2hunter2"}))
    cli("context", "set", "token", "gone")
    assert values(begun)["config"] == {"api_password": "hunter2hunter2"}
    shown = [
        cli("context", *words).stdout for words in (("get", "config"), ("list",), ("history",), ("history", "token"))
    ]
    shown += [cli("context", "history", "--json").stdout, (begun.run_dir / "events.jsonl").read_text()]
    for text in shown:
        holds(text, "[masked: ", but=(SECRET, "hunter2"))
    assert "To set it back" not in shown[3]  # nobody has kept it
    answers = [
        cli("context", "set", "db_password", "correcthorse7"),
        cli("context", "set", "db_password", "batterystaple8"),
    ]
    answers += [cli("context", *words.split()) for words in ("get db_password", "get db_password --json", "list")]
    answers += [cli("context", *words.split()) for words in ("history", "history db_password", "history --json")]
    answers += [cli("context", "unset", "db_password", "--json"), cli("context", "history", "db_password", "--json")]
    for ended in answers:
        assert ended.code == 0
        holds(ended.stdout, "[masked: ", but=("correcthorse7", "batterystaple8"))
    assert answers[-1].json["back"] is None
    assert "batterystaple8" not in (begun.run_dir / "events.jsonl").read_text()


@each("key", [*BUILT_IN, "_mine", "last_stage", "response.x", "output.x", "command.output", "parallel.results"])
def test_keys_of_looms_own_are_refused(begun: Scene, cli: Cli, key: str) -> None:
    before = begun.state
    for words in (("set", key, "1"), ("unset", key)):
        ended = cli("context", *words, "--json")
        assert (ended.code, ended.json["error"]["code"]) == (2, "RESERVED_KEY")
        assert "is reserved for Loom" in ended.json["error"]["message"]
    assert begun.state == before


@each("key", ["", "k" * 1001])
@pytest.mark.usefixtures("begun")
def test_what_is_no_key_is_refused(cli: Cli, key: str) -> None:
    ended = cli("context", "set", key, "1", "--json")
    assert (ended.code, ended.json["error"]["code"]) == (2, "BAD_KEY")


@each("status", ["completed", "cancelled"])
def test_a_run_that_is_over_stays_as_it_is(begun: Scene, cli: Cli, status: str) -> None:
    """It is read; to set a value it is reopened first (D4)."""
    cli("context", "set", "k", "1")
    before = begun.edit(status=status)
    for words in (("set", "k", "2"), ("unset", "k")):
        ended = cli("context", *words, begun.run_dir.name, "--json")
        assert (ended.code, ended.json["error"]["code"]) == (2, "BAD_STATUS")
        assert ended.json["error"]["hint"].endswith("--reopen")
    assert begun.state == before
    assert cli("context", "get", "k").stdout == "1\n"
    assert cli("context", "history", "k", "--json").json["back"] is None


@each("status", ["pending", "paused", "failed", "awaiting_feedback"])
def test_a_run_that_stands_still_can_be_set_right(begun: Scene, cli: Cli, status: str) -> None:
    begun.edit(status=status)
    assert cli("context", "set", "k", "2").code == 0
    assert (begun.state["status"], values(begun)) == (status, {"k": 2})


def test_a_session_that_does_not_drive_the_run_may_read_and_not_set(begun: Scene, cli: Cli) -> None:
    """A person in a terminal may where nobody drives it; another conversation takes the run up first (D1)."""
    for session in (OTHER, None):
        ended = cli("context", "set", "k", "1", session=session)
        assert (ended.code, "HELD_BY_ANOTHER" in ended.stderr) == (6, True)
        assert f"hint: loomctl resume {begun.handle} --take-over\n" in ended.stderr
    assert cli("context", "list", session=OTHER).code == 0
    begun.let_go()
    ended = cli("context", "set", "k", "1", session=OTHER)
    assert (ended.code, "NOT_BOUND" in ended.stderr) == (3, True)
    assert f"hint: loomctl resume {begun.handle}\n" in ended.stderr
    assert cli("context", "set", "k", "1", session=None).code == 0
    assert values(begun) == {"k": 1}


def test_without_a_run_it_says_so(scene: Scene, cli: Cli) -> None:
    for words in (("get", "k"), ("list",), ("history",), ("set", "k", "1"), ("unset", "k"), ("history", "k")):
        ended = cli("context", *words)
        assert (ended.code, "NO_ACTIVE_RUN" in ended.stderr) == (3, True)
    assert scene.root.exists()


def test_what_steps_left_is_read_as_what_it_is(begun: Scene, cli: Cli) -> None:
    end(begun, **{"auth.module_path": "src/auth.py", "coverage": 0.87})
    assert cli("context", "get", "auth.module_path").stdout == "src/auth.py\n"
    assert cli("context", "get", "coverage").stdout == "0.87\n"
    assert cli("context", "get", "response.frame/ask").stdout.startswith("Done. {")
    assert cli("context", "get", "last_stage").stdout == "frame/ask\n"
    begun.loomctl("context", "set", "n", "-3")
    ended = begun.loomctl("context", "get", "n")
    assert (ended.stdout, ended.stderr) == ("-3\n", "")


def test_built_in_keys_are_true_at_every_change_of_stage(begun: Scene, cli: Cli) -> None:
    """At the start, after a step, after an undo, after a resume, and at the end (D44); none is ever stored."""

    def told() -> tuple[Any, Any, Any]:
        found = {key: cli("context", "get", key, "--json").json["value"] for key in BUILT_IN}
        state = begun.state
        assert (found["_run_id"], found["_pipeline_name"]) == (state["run_id"], "tiny")
        assert found["_start_time"] == state["created_at"]
        started = state["steps"][-1]["started_at"] if found["_current_node"] else None
        assert found["_node_start_time"] == started
        assert not [key for key in state["context"] if key.startswith("_")]
        return found["_current_node"], found["_previous_node"], found["_retry_count"]

    assert told() == ("frame/ask", None, 0)
    end(begun)
    assert told() == ("build/make", "frame/ask", 0)
    cli("undo")
    assert told() == ("frame/ask", None, 0)
    end(begun)
    cli("pause")
    assert told() == ("build/make", "frame/ask", 0)
    cli("resume")
    assert told() == ("build/make", "frame/ask", 0)
    advance.done(begun.space(), begun.run_dir.name, response="no", outcome="failed")
    assert begun.state["status"] == "failed"
    assert told() == ("build/make", "frame/ask", 0)
    cli("resume")
    assert told()[0] == "build/make"
    for _ in range(3):
        end(begun)
    assert begun.state["status"] == "completed"
    assert told() == (None, "ship/send", 0)


def test_a_try_counts_as_one_of_its_step(scene: Scene, cli: Cli) -> None:
    steps = [{"id": "a", "prompt": "A."}, {"id": "b", "prompt": "B.", "max_retries": 2}]
    scene.workflow(phases={"p": {"steps": steps}})
    scene.begin()
    end(scene)
    for retries in range(3):
        assert cli("context", "get", "_retry_count").stdout == f"{retries}\n"
        assert cli("context", "get", "_previous_node").stdout == "p/a\n"
        advance.done(scene.space(), scene.run_dir.name, response="no", outcome="failed")


def test_the_list_shows_kinds_sizes_and_who_set_what(begun: Scene, cli: Cli) -> None:
    cli("context", "set", "by.hand", "[1, 2]")
    end(begun, coverage=61, note="fine")
    cli("context", "set", "note", "better")
    told = cli("context", "list", "--json").json
    rows = [(one["key"], one["type"], one["bytes"], one["by"], one["stage"]) for one in told["keys"]]
    assert rows == [
        ("by.hand", "list", 5, "user", None),
        ("coverage", "number", 2, "step", "001-frame.ask@1"),
        ("note", "text", 8, "user", None),
    ]
    text = cli("context", "list").stdout
    holds(text, "coverage  number  2      001-frame.ask@1  61\n", "3 keys and 10 of Loom's own")
    every = cli("context", "list", "--all", "--json").json
    assert {one["key"] for one in every["keys"] if one["engine"]} == {
        *BUILT_IN, "last_stage", "last_response", "response.frame/ask",
    }  # fmt: skip
    assert every["total"] == told["total"] == len(every["keys"]) == 13


def test_what_is_not_there_is_told_and_spoils_no_list(begun: Scene, cli: Cli) -> None:
    assert cli("context", "list").stdout.startswith(f"{begun.handle}: 0 keys and 7 of Loom's own")
    assert "no step and no person has set a key yet" in cli("context", "history").stdout
    assert cli("context", "history", "--json").json["changes"] == []
    cli("context", "set", "coverage", "1")
    for words in (("get", "covrage"), ("unset", "covrage"), ("history", "covrage")):
        ended = cli("context", *words)
        assert (ended.code, "NO_SUCH_KEY" in ended.stderr) == (3, True)
    assert "coverage" in cli("context", "get", "covrage").stderr
    cli("context", "set", "big", "--from", "-", given=LARGE)
    cli("context", "set", "small", "1")
    ref = values(begun)["big"]
    (begun.store / "blobs" / "sha256" / ref[14:16] / ref[14:]).unlink()
    told = cli("context", "list")
    assert (told.code, "! there is no blob" in told.stdout, "small" in told.stdout) == (0, True, True)
    ended = cli("context", "get", "big", "--json")
    assert (ended.code, ended.json["error"]["code"]) == (3, "NO_SUCH_BLOB")
    assert ended.json["error"]["where"].startswith("context big: ")


def changes(cli: Cli, *words: str) -> list[tuple[Any, ...]]:
    """Give who changed what from what to what; ... where a key was not set."""
    told = cli("context", "history", *words, "--json").json["changes"]
    return [(one["key"], one["stage"] or one["by"], one.get("before", ...), one.get("after", ...)) for one in told]


def test_every_change_is_told_in_order(begun: Scene, cli: Cli) -> None:
    cli("context", "set", "k", "1")
    cli("context", "set", "mine", "1")
    end(begun, k=2, other=[1])
    cli("context", "set", "k", "3")
    assert [row[3] for row in changes(cli, "k")] == [1, 2, 3]
    cli("undo")
    stage = "001-frame.ask@1"
    assert values(begun) == {"k": 1, "mine": 1}
    assert changes(cli, "k") == [("k", "user", ..., 1), ("k", stage, 1, 2), ("k", "user", 2, 3), ("k", stage, 3, 1)]
    told = cli("context", "history", "k", "--json").json["changes"]
    assert [one["by"] for one in told] == ["user", "step", "user", "undo"]
    assert changes(cli, "other") == [("other", stage, ..., [1]), ("other", stage, [1], ...)]
    end(begun, k=4)
    cli("context", "unset", "k")
    assert changes(cli, "k")[4:] == [("k", stage, 1, 4), ("k", "user", 4, ...)]
    assert [row[0] for row in changes(cli)] == ["k", "mine", "k", "other", "k", "k", "other", "k", "k"]
    by = {one["key"]: one["by"] for one in cli("context", "list", "--json").json["keys"]}
    assert by == {"mine": "user"}


def test_an_undo_gives_a_key_back_to_who_set_it_before(begun: Scene, cli: Cli) -> None:
    end(begun, k=1)
    end(begun, k=2)
    cli("undo")
    (one,) = cli("context", "list", "--json").json["keys"]
    assert (one["stage"], values(begun)) == ("001-frame.ask@1", {"k": 1})
    cli("context", "set", "k", "5")
    cli("undo")
    assert cli("context", "list", "--json").json["keys"] == []


def test_looms_own_keys_have_a_history_too(begun: Scene, cli: Cli) -> None:
    end(begun)
    end(begun)
    assert changes(cli) == []
    assert changes(cli, "last_stage") == [
        ("last_stage", "001-frame.ask@1", ..., "frame/ask"),
        ("last_stage", "002-build.make@1", "frame/ask", "build/make"),
    ]
    assert {row[0] for row in changes(cli, "--all")} == {
        "last_stage", "last_response", "response.frame/ask", "response.build/make",
    }  # fmt: skip
    ended = cli("context", "history", "_run_id")
    assert (ended.code, "has no history" in ended.stderr) == (2, True)


BACK: list[tuple[list[str], Any]] = [
    (["61"], 61),
    (['a b\'s "c" $HOME `x`'], 'a b\'s "c" $HOME `x`'),
    (["--text", "61"], "61"),
    (['{"a": [null, true]}'], {"a": [None, True]}),
    (["-5"], -5),
    (["é\nlines"], "é\nlines"),
    (["y" * 5000], "y" * 5000),
]


@each("words, value", BACK)
@each("key", ["k", "-x", "a b's"])
def test_the_history_shows_how_to_set_it_back(begun: Scene, cli: Cli, key: str, words: list[str], value: Any) -> None:
    *options, word = words
    cli("context", "set", *options, "--", key, word)
    for verb in (["set", "--", key, "other"], ["unset", "--", key]):
        cli("context", *verb)
        line = cli("context", "history", "--json", "--", key).json["back"]
        assert f"To set it back: {line}" in cli("context", "history", "--", key).stdout
        given = None
        for part in line.split(" | "):
            given = cli(*shlex.split(part)[1:], given=given).ends().stdout
        assert cli("context", "get", "--json", "--", key).json["value"] == value
    cli("context", "set", "fresh", "1")
    line = cli("context", "history", "fresh", "--json").json["back"]
    assert line == f"loomctl context unset fresh {begun.handle}"


def test_a_change_that_is_not_on_record_is_told_as_that(begun: Scene, cli: Cli) -> None:
    cli("context", "set", "k", "1")
    begun.edit(context={"k": 7, "new": 1})
    cli("context", "set", "k", "2")
    assert changes(cli, "k") == [("k", "user", ..., 1), ("k", "unknown", 1, 7), ("k", "user", 7, 2)]
    assert changes(cli, "new") == [("new", "unknown", ..., 1)]
    assert "unknown" in cli("context", "history").stdout
    assert "unknown" in cli("context", "list").stdout


def test_an_end_that_a_kill_met_is_told_once(begun: Scene, cli: Cli) -> None:
    """The log had it, the state had not; then the step was ended again. What an undo took back stays told."""
    end(begun, k=1)
    cli("undo")
    before = begun.state
    end(begun, k=2)
    begun.edit(**{**before, "ledger_head": begun.state["ledger_head"]})
    cli("next")
    end(begun, k=3)
    stage = "001-frame.ask@1"
    assert changes(cli, "k") == [("k", stage, ..., 1), ("k", stage, 1, ...), ("k", stage, ..., 3)]


def test_a_damaged_log_and_stage_spoil_no_history(begun: Scene, cli: Cli) -> None:
    cli("context", "set", "k", "1")
    end(begun, k=2)
    cli("context", "set", "k", "3")
    (begun.run_dir / "stages/001-frame.ask@1/status.json").write_text("{torn")
    log = begun.run_dir / "events.jsonl"
    log.write_bytes(b"\x00\xff not an entry\n[]\n" + log.read_bytes())
    assert changes(cli, "k") == [("k", "user", ..., 1), ("k", "unknown", 1, 2), ("k", "user", 2, 3)]
    log.unlink()
    assert changes(cli, "k") == [("k", "unknown", ..., 3)]


def test_one_word_is_a_key_and_else_a_run(begun: Scene, cli: Cli) -> None:
    cli("context", "set", "k", "1")
    run = begun.run_dir.name
    assert changes(cli, run) == changes(cli, run[:8]) == changes(cli, "k", run) == [("k", "user", ..., 1)]
    cli("context", "set", run, "2")
    assert changes(cli, run) == [(run, "user", ..., 2)]
    cli("context", "unset", run)
    assert len(changes(cli, run)) == 2


def test_a_run_of_fabers_has_a_context_too(scene: Scene, cli: Cli) -> None:
    """It is set in its file, beside all that FABER keeps there (D5)."""
    faber.lay(scene)
    assert (cli("resume", faber.RUN_ID).code, cli("context", "set", "k", '{"a": 1}').code) == (0, 0)
    assert cli("context", "get", "k").stdout == '{\n "a": 1\n}\n'
    assert changes(cli, "k") == [("k", "user", ..., {"a": 1})]
