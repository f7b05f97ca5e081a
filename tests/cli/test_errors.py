"""What every error says: its code means one thing, its hint can be pasted and works, `--json` says the same (D52)."""

import ast
import errno
import functools
import os
import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from loomctl.cli import output
from loomctl.cli.verbs import joined
from loomctl.kit import trouble
from loomctl.kit.errors import UPDATE, LoomError, quoted
from tests.cli.conftest import Cli
from tests.cli.test_exit_codes import CASES, begin, broken_state, newer_state, same, unwritable_home
from tests.cli.test_help import ALL
from tests.docs.errors import assigned_in
from tests.helpers.scenes import CHECKOUT, OTHER, Scene, handle
from tests.helpers.tables import each
from tests.helpers.texts import holds

SOURCES = sorted(CHECKOUT.glob("loomctl/**/*.py"))

# Codes that end a command in two ways: what a person typed is 2, the same in a file is 5, in another's hands 6.
TWO_ENDS = {
    "RUN_EXISTS": {"EXIT_USAGE", "EXIT_HELD"}, "BAD_ID": {"EXIT_USAGE", "EXIT_INVALID"},
    "BAD_REF": {"EXIT_USAGE", "EXIT_INVALID"}, "NO_OPEN_STEP": {"EXIT_USAGE", "EXIT_INVALID"},
    "PATH_ESCAPE": {"EXIT_USAGE", "EXIT_INVALID"}, "TOO_LARGE": {"EXIT_USAGE", "EXIT_INVALID"},
    "UNREADABLE": {"EXIT_USAGE", "EXIT_INVALID"}, "UNRESOLVED_PLACEHOLDER": {"EXIT_USAGE", "EXIT_INVALID"},
}  # fmt: skip
WITHOUT_HINT = {"BAD_EVENT": "a host sends events; its user has nothing to paste"}


class Raised(NamedTuple):
    code: str
    exit_code: str
    hint: bool
    place: str


@functools.cache
def raised() -> list[Raised]:
    return [one for path in SOURCES for one in raised_in(path)]


def raised_in(path: Path) -> Iterator[Raised]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or called(node) != "LoomError":
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        code = node.args[0]
        if isinstance(code, ast.Constant):
            end = ast.unparse(given["exit_code"]) if "exit_code" in given else "EXIT_INVALID"
            hint = given.get("hint")
            says = hint is not None and not (isinstance(hint, ast.Constant) and not hint.value)
            yield Raised(str(code.value), end, says, f"{path.relative_to(CHECKOUT)}:{node.lineno}")


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def test_every_code_is_a_word_of_its_own() -> None:
    codes = {one.code for one in raised()}
    assert len(codes) > 40
    assert [code for code in codes if not re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code)] == []
    plain = defaultdict(set)
    for code in codes:
        plain[code.replace("_", "").rstrip("S")].add(code)
    assert [same_word for same_word in plain.values() if len(same_word) > 1] == []


def test_every_code_ends_a_command_in_one_way() -> None:
    """A script that knows the code knows the exit code; where there are two, a file is told from what was typed."""
    ends = defaultdict(set)
    for one in raised():
        ends[one.code].add(one.exit_code)
    several = {code: found for code, found in ends.items() if len(found) > 1}
    assert {code: found for code, found in several.items() if found != TWO_ENDS.get(code)} == {}


def test_every_error_says_what_can_be_done() -> None:
    assert [one for one in raised() if not one.hint and one.code not in WITHOUT_HINT] == []
    assert set(WITHOUT_HINT) <= {one.code for one in raised() if not one.hint}, "an exception that is none any more"


# What a hint may begin with: it shows something, or mends what the error names and nothing else. x: a program's path.
SHOWS = {"cat", "cd", "command", "df", "file", "git", "grep", "ls", "python3", "tar", "ulimit", "x"}
MENDS = {
    "chmod",
    "claude",
    "codex",
    "copilot",
    "cp",
    "export",
    "loomctl",
    "mkdir",
    "mv",
    "pipx",
    "rm",
    "unset",
    "${EDITOR:-vi}",
}
# Hints that are no command line, and why none would help.
PROSE = {
    "leave out the backticks": "what was typed was cut, and is typed anew",
    "copy it beside the workflow": "it becomes a problem of the workflow, which its author edits",
    "the path starts at the workflow's own file": "as above",
}
OWN_WORDS = re.compile(r"\b(RUN|FILE|WORK|PATH|NAME|ID)\b")


class Hint(NamedTuple):
    """A hint as the source has it, `x` for what is only known at run time; place: its file and line."""

    text: str
    place: str


@functools.cache
def hints() -> list[Hint]:
    """Read all hints of the source: once, and not while tests are only collected."""
    return [hint for path in SOURCES for hint in hints_in(path)]


def hints_in(path: Path) -> Iterator[Hint]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    said = {function: [(node, value) for node in ast.walk(function) for value in hint_values(node)]
            for function in functions}  # fmt: skip
    constants = constants_of(tree) if any(said.values()) else {}
    for function in filter(said.get, functions):
        assigned = sorted(assigned_in(function), key=lambda one: one[0])
        for node, value in said[function]:
            known = {**constants, **{name: value for line, name, value in assigned if line <= line_of(node)}}
            for text in texts(value, known):
                yield Hint(text, f"{path.relative_to(CHECKOUT)}:{line_of(node)}")


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    """Give the constants of a module and of those of the package that it imports from."""
    return {
        node.targets[0].id: node.value
        for module in (tree, *map(imported, of_package(tree)))
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def of_package(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("loomctl."):
            yield str(node.module)


@functools.cache
def imported(module: str) -> ast.Module:
    path = CHECKOUT / (module.replace(".", "/") + ".py")
    return ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")


def line_of(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def hint_values(node: ast.AST) -> Iterator[ast.expr]:
    """Give what a node makes a hint of: an error's, a finding's, or one that takes another's place."""
    if isinstance(node, ast.Call):
        name = called(node)
        if name == "LoomError":
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "hint")
        elif name in ("Finding", "_failed") and len(node.args) > 2 and not is_code(node.args[0]):
            yield node.args[2]
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr == "hint":
        yield node.value


def is_code(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).isupper()


def texts(node: ast.expr, known: Mapping[str, ast.expr]) -> list[str]:
    """Give what a hint may be, one text for each way through its conditions; empty ones are left out."""
    if isinstance(node, ast.Constant):
        return [str(node.value)] if node.value else []
    if isinstance(node, ast.IfExp):
        return texts(node.body, known) + texts(node.orelse, known)
    if isinstance(node, ast.BoolOp):
        return [text for part in node.values for text in texts(part, known)]
    if isinstance(node, ast.Name) and node.id in known:
        return texts(known[node.id], {name: value for name, value in known.items() if name != node.id})
    if isinstance(node, ast.BinOp):
        return [left + right for left in texts(node.left, known) for right in texts(node.right, known) or ["x"]]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)]
    return []  # a call: its own words are another place's, or the test of it


def test_a_hint_is_one_command_line() -> None:
    for hint in {hint.text: hint for hint in hints() if hint.text not in PROSE}.values():
        is_one_command_line(hint)


def is_one_command_line(hint: Hint) -> None:
    assert subprocess.run(["sh", "-n", "-c", hint.text], capture_output=True, check=False).returncode == 0, hint
    assert not OWN_WORDS.search(hint.text), hint
    for command in re.split(r"&&|;", hint.text):
        words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]
        assert words[0] in SHOWS | MENDS, hint
        if words[0] == "loomctl" and words[1] != "x":
            words = ["loomctl", *" ".join(joined(words[1:])).split()]
            known = max((at for at in (2, 3, 4) if " ".join(words[:at]) in KNOWN), default=0)
            assert known, hint
            assert " ".join(words[:known]) not in GROUPS or not words[known:], hint


WITH_A_RUN = {"loomctl steps", "loomctl show --assets"}  # groups that are commands, too
GROUPS = {name for name, one in ALL.items() if isinstance(one, click.Group)} - WITH_A_RUN
KNOWN = {*ALL, *GROUPS, "loomctl --debug", "loomctl --version", "loomctl runs --remote"}


def test_the_launchers_hints_are_command_lines_too() -> None:
    """It has no JSON but its own, so that none holds a quote either."""
    text = (CHECKOUT / "bin/loomctl").read_text(encoding="utf-8")
    said = re.findall(r"\bfail [A-Z_]+ '[^']+' (?:\\\n *)?(?:'[^']+'|\"[^\"]+\") (?:\\\n *)?'([^']+)'", text)
    assert len(said) == len(re.findall(r"\bfail [A-Z]", text))
    for hint in said:
        assert hint.split()[0] in SHOWS | MENDS, hint
        assert '"' not in hint


@pytest.mark.slow
def test_prose_is_still_said() -> None:
    assert set(PROSE) <= {hint.text for hint in hints()}


def two_runs(scene: Scene) -> None:
    scene.workflow()
    for work in ("first", "second"):
        scene.begin(work, session=OTHER)


def bad_workflow(scene: Scene) -> None:
    scene.write(".loom/workflows/it's bad.json", '{"id": "bad", "phases": {"x": {"steps": [{"prompt": 5}]}}}')


def bad_settings(scene: Scene) -> None:
    begin(scene)
    scene.write(".loom/config.yaml", "hook_budget: much\n")


def folder_for_a_report(scene: Scene) -> None:
    begin(scene)
    scene.write("folder.html/x", "mine")


def file_for_a_report(scene: Scene) -> None:
    begin(scene)
    scene.write("mine.html", "mine")


def over(scene: Scene) -> None:
    begin(scene)
    scene.edit(status="cancelled")


def completed(scene: Scene) -> None:
    begin(scene)
    scene.edit(status="completed")


def paused(scene: Scene) -> None:
    begin(scene)
    scene.edit(status="paused")


def archived(scene: Scene) -> None:
    over(scene)
    scene.write("shop.tar.gz", "x")


def file_for_a_store(scene: Scene) -> None:
    scene.write(".loom", "mine")


def anothers_state(scene: Scene) -> None:
    begin(scene)
    path = scene.run_dir / "state.json"
    (scene.run_dir / "state.backup.json").write_bytes(path.read_bytes())
    path.write_text(path.read_text().replace('"run_id": "', '"run_id": "x'))


def copied_run(scene: Scene) -> None:
    begin(scene)
    folder = scene.run_dir
    folder.rename(folder.with_name("shop-copy-run-2026-01-01T00-00-00Z"))


def unreadable_state(scene: Scene) -> None:
    begin(scene)
    (scene.run_dir / "state.json").rename(scene.run_dir / "state.backup.json")
    (scene.run_dir / "state.json").mkdir()


class Failing(NamedTuple):
    """words: a command line that fails; pasted: the exit code of its hint's first command, None where that is prose."""

    words: list[str]
    code: int
    error: str
    scenery: Callable[[Scene], None] | None = None
    pasted: int | None = 0


def in_git(scene: Scene) -> None:
    begin(scene)
    (scene.root / ".git").rmdir()
    subprocess.run(["git", "init", "-q", str(scene.root)], check=True)


def something_called_loomctl(scene: Scene) -> None:
    scene.write(".loom/workflows/loomctl", "")


def broken_queue(scene: Scene) -> None:
    scene.write(".loom/local/fleet.sqlite3", "mine\n" * 99)


def limit_of_no_use(scene: Scene) -> None:
    begin(scene)
    os.environ["LOOM_FLEET_LIMIT"] = "soon"


def bad_list(scene: Scene) -> None:
    scene.write("work.jsonl", '{"work": "add dark mode"}\n{"work": ""}\n')


FAILING = [
    Failing(["init"], 2, "NO_TERMINAL"),
    Failing(["install", "--to", ".loom/workflows"], 2, "FILE_EXISTS", something_called_loomctl, None),
    Failing(["plugin", "install", "gemini"], 2, "NOT_CONFIRMED", pasted=2),  # its user types that in a terminal
    Failing(["plugin", "remove", "nowhere"], 2, "USAGE"),
    Failing(["plugin", "status", "nowhere"], 2, "USAGE"),
    Failing(["run"], 2, "NO_WORK"),
    Failing(["run", "x", "--workflow", "cor"], 2, "UNKNOWN_WORKFLOW"),
    Failing(["run", "x", "--workflow", "./.loom/workflows/it's bad.json"], 5, "INVALID_WORKFLOW", bad_workflow, 5),
    Failing(["run", "x", "--resume", "y"], 2, "USAGE", None, 3),
    Failing(["run", "x", "--key", "two\nlines"], 2, "BAD_KEY"),
    Failing(["run", "--resume", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["next"], 3, "NO_ACTIVE_RUN"),
    Failing(["next"], 2, "BAD_STATUS", paused),
    Failing(["next"], 3, "AMBIGUOUS_RUN", two_runs),
    Failing(["done", "--artifact", "x=nowhere.md"], 2, "MISSING", begin, None),
    Failing(["done", "--artifact", "nonsense"], 2, "USAGE", begin),
    Failing(["done", "--response-file", "nowhere.md"], 2, "UNREADABLE", begin, None),
    Failing(["undo"], 2, "NOTHING_TO_UNDO", begin),
    Failing(["rewind", "--to", "nowhere"], 3, "NO_SUCH_STAGE", begin),
    Failing(["fork", "--at", "nowhere"], 3, "NO_SUCH_STAGE", begin),
    Failing(["fork", "--at", "1"], 2, "STAGE_OPEN", begin),
    Failing(["resume"], 3, "NO_ACTIVE_RUN", over),
    Failing(["resume"], 3, "AMBIGUOUS_RUN", two_runs),
    Failing(["resume", "shop"], 2, "BAD_STATUS", over),
    Failing(["pause", "shop"], 2, "BAD_STATUS", over),
    Failing(["tell", "shop", "use blue"], 2, "BAD_STATUS", over),
    Failing(["pause", "shop", "--after-step"], 2, "BAD_STATUS", over),
    Failing(["drive", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["fleet", "status"], 8, "QUEUE_GONE", broken_queue, None),
    Failing(["fleet", "status"], 2, "BAD_LIMIT", limit_of_no_use, None),
    Failing(["fleet", "status", "--queue", "mysql://db.example.org/loom"], 2, "BAD_QUEUE", begin),
    Failing(["fleet", "add"], 2, "USAGE"),
    Failing(["fleet", "add", "--from", "work.jsonl"], 2, "BAD_ORDER", bad_list),
    Failing(["fleet", "add", "x", "--after", "nowhere"], 3, "NO_SUCH_RUN", begin),
    *(Failing(["fleet", verb, "nowhere"], 3, "NO_SUCH_RUN", begin) for verb in ("pause", "resume", "retry", "cancel")),
    Failing(["fleet", "init"], 2, "USAGE"),
    Failing(["fleet", "work", "--nonsense"], 2, "USAGE"),
    *(Failing(["fleet", verb], 8, "QUEUE_GONE", broken_queue, None) for verb in ("clean", "doctor", "rebuild")),
    Failing(["fleet", "report"], 8, "QUEUE_GONE", broken_queue, None),
    Failing(["fleet", "report", "-o", "nowhere/board.html"], 2, "NO_FOLDER", None, None),
    Failing(["fleet", "board"], 8, "QUEUE_GONE", broken_queue, None),
    Failing(["stop"], 3, "NO_ACTIVE_RUN"),
    Failing(["release"], 3, "NO_ACTIVE_RUN"),
    Failing(["waits", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["cancel", "shop"], 2, "BAD_STATUS", completed),
    Failing(["approve"], 2, "NOTHING_TO_APPROVE", begin),
    Failing(["reject"], 2, "NOTHING_TO_APPROVE", begin),
    Failing(["choose", "fix"], 2, "NOTHING_TO_CHOOSE", begin),
    Failing(["trust"], 8, "NOT_REMEMBERED", unwritable_home, None),
    Failing(["prime-context", "--trigger", "nonsense"], 2, "UNKNOWN_TRIGGER", begin),
    Failing(["prime-context", "--artifacts", ","], 2, "USAGE", begin),
    Failing(["status"], 3, "NO_ACTIVE_RUN"),
    Failing(["memory", "nonsense"], 2, "USAGE"),
    Failing(["memory", "on"], 2, "NOT_CONFIRMED"),
    Failing(["memory", "off", "nonsense"], 2, "USAGE"),
    Failing(["status"], 3, "AMBIGUOUS_RUN", two_runs),
    Failing(["statusline"], 3, "NO_ACTIVE_RUN"),
    Failing(["runs"], 5, "BAD_CONFIG", bad_settings, None),
    Failing(["runs"], 5, "NOT_A_FOLDER", file_for_a_store, None),
    Failing(["show"], 5, "NOT_A_FOLDER", file_for_a_store, None),
    Failing(["runs", "list", "more"], 2, "USAGE"),
    Failing(["runs", "rm", "shop", "--yes"], 6, "RUN_IS_ACTIVE", begin),
    Failing(["runs", "rm", "shop", "--force"], 2, "NOT_CONFIRMED", over),
    Failing(["runs", "archive", "shop", "--to", "shop.tar.gz"], 2, "ARCHIVE_EXISTS", archived),
    Failing(["runs", "archive", "shop", "--to", "spec.md/x"], 5, "SYSTEM", over, None),
    Failing(["show"], 7, "SCHEMA_TOO_NEW", newer_state, None),
    Failing(["show", "shop", "nowhere"], 3, "NO_SUCH_STAGE", begin),
    Failing(["prove"], 3, "NO_ACTIVE_RUN"),
    Failing(["prove", "--add", " "], 2, "EMPTY_TEXT", begin),
    Failing(["prove", "--add", "$.a[*]"], 2, "PATH_SYNTAX", begin),
    Failing(["prove", "--drop", "nothing"], 2, "NO_SUCH_ITEM", begin),
    Failing(["prove", "shop", "--add", "x"], 2, "BAD_STATUS", over),
    Failing(["context", "get", "nowhere"], 3, "NO_SUCH_KEY", begin),
    Failing(["context", "set", "k"], 2, "USAGE", begin),
    Failing(["context", "set", "k", "{a}"], 2, "BAD_VALUE", begin),
    Failing(["context", "set", "_run_id", "x"], 2, "RESERVED_KEY", begin),
    Failing(["context", "set", "", "x"], 2, "BAD_KEY", begin),
    Failing(["context", "set", "k", "--from", "nowhere.json"], 2, "UNREADABLE", begin, None),
    Failing(["context", "set", "k", "1", "shop"], 2, "BAD_STATUS", over),
    Failing(["context", "unset", "k"], 3, "NO_SUCH_KEY", begin),
    Failing(["context", "list", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["context", "history", "_run_id"], 2, "USAGE", begin),
    Failing(["sessions", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["show", "--diff", "shop", "nowhere"], 3, "NO_SUCH_STAGE", begin),
    Failing(["show", "--assets", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["show", "--assets", "cp"], 2, "USAGE", begin),
    Failing(["steps", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["steps", "shop", "more"], 2, "USAGE", begin),
    Failing(["steps", "--last", "0"], 2, "USAGE", begin),
    Failing(["steps", "show", "nowhere"], 3, "NO_SUCH_TOOL_STEP", begin),
    Failing(["steps", "--history", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["debug", "preamble", "--step", "nothing"], 3, "NO_SUCH_STEP", begin),
    Failing(["debug", "outcome", "--from", "nowhere"], 2, "UNREADABLE", pasted=None),
    Failing(["steps", "--savings", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["debug", "reduce"], 2, "NO_INPUT"),
    Failing(["debug", "state", "show", "--path", "none"], 2, "NOTHING_THERE", begin),
    Failing(["debug", "state", "show"], 5, "BAD_JSON", broken_state),
    Failing(["debug", "state", "restore"], 2, "NOT_CONFIRMED", unreadable_state),
    Failing(["show", "shop"], 5, "RUN_ID_MISMATCH", anothers_state),
    Failing(["show", "shop"], 5, "RUN_ID_MISMATCH", copied_run),
    Failing(["paths", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["check", "nowhere"], 2, "UNKNOWN_WORKFLOW"),
    Failing(["prove", "--log", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["prove", "--log", "shop", "--all"], 2, "USAGE", begin),
    Failing(["graph", "nowhere"], 2, "UNKNOWN_WORKFLOW"),
    Failing(["simulate", "nowhere"], 2, "UNKNOWN_WORKFLOW"),
    Failing(["simulate", "core", "--outcomes", "nowhere.json"], 2, "UNREADABLE", None, None),
    Failing(["show", "--why", "nothing"], 3, "NO_SUCH_STAGE", begin),
    Failing(["debug", "schema", "nonsense"], 2, "USAGE"),
    Failing(["plugin", "path", "more"], 2, "USAGE"),
    Failing(["demo", "--nonsense"], 2, "USAGE"),
    Failing(["show", "../etc"], 2, "BAD_ID", begin),
    Failing(["doctor", "--nonsense"], 2, "USAGE"),
    Failing(["report", "nowhere"], 3, "NO_SUCH_RUN", begin),
    Failing(["report", "-o", "folder.html"], 2, "FILE_EXISTS", folder_for_a_report, None),
    Failing(["report", "-o", "mine.html"], 2, "FILE_EXISTS", file_for_a_report),
    Failing(["report", "-o", ".."], 2, "USAGE", begin),
    Failing(["report", "-o", "nowhere/report.html"], 2, "NO_FOLDER", begin, None),
    Failing(["clean"], 3, "NO_ACTIVE_RUN"),
    Failing(["debug", "blob", "get", "x"], 2, "BAD_REF", begin),
    Failing(["debug", "blob", "get", f"blob://sha256/{'a' * 64}"], 3, "NO_SUCH_BLOB", begin),
    Failing(["push", "--yes"], 8, "NO_REPOSITORY", begin, None),
    Failing(["push", "--yes"], 2, "NO_REMOTE", in_git, None),
    Failing(["pull", "--remote", "file:///nowhere.git"], 8, "REMOTE_UNREACHABLE", in_git, None),
    Failing(["pull", "x", "--all"], 2, "USAGE", begin),
    Failing(["nonsense"], 2, "USAGE"),
]


@each("case", FAILING)
def test_each_command_fails_alike_in_text_and_in_json_and_its_hint_works(scene: Scene, cli: Cli, case: Failing) -> None:
    if case.scenery is not None:
        case.scenery(scene)
    told = cli(*case.words).ends(case.code)
    assert told.stdout == "" or case.words == ["trust"]  # which shows what it would trust first
    document = cli(*case.words, "--json")
    assert (document.code, document.stderr) == (case.code, "")
    error = document.json["error"]
    assert error["code"] == case.error
    said = told.stderr[told.stderr.index("loomctl: ") :]  # behind a question, where one is asked
    assert same(error, said), (error, said)
    line = pasted(error["hint"])
    if case.pasted is None:
        assert line is None, line
        return
    assert line is not None, error["hint"]
    cli(*shlex.split(line)[1:]).ends(case.pasted)


def pasted(hint: str) -> str | None:
    return hint if hint.startswith("loomctl ") else None


def test_a_state_of_another_run_is_put_back_where_that_is_possible(scene: Scene, cli: Cli) -> None:
    anothers_state(scene)
    meant = handle(scene.run_dir.name)  # by its folder: the state names another
    assert cli("show", "shop", "--json").json["error"]["hint"] == f"loomctl debug state restore {meant}"
    (scene.run_dir / "state.backup.json").unlink()
    assert cli("show", "shop", "--json").json["error"]["hint"] == "loomctl runs"


def test_every_command_fails_once_above() -> None:
    known = [*(case.words for case in FAILING), *(words for _, words, _, error in CASES if error)]
    failing = [f"loomctl {' '.join(words)} " for words in known]
    loud = set(ALL) - {"loomctl debug hook", "loomctl plugin", "loomctl debug state", "loomctl debug blob"}
    assert [name for name in loud if not any(line.startswith(f"{name} ") for line in failing)] == []


def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(cli: Cli) -> None:
    for words, meant in (
        (["nxet"], "next"),
        (["runs", "archiv"], "archive"),
        (["show", "--jsn"], "--json"),
        (["done", "--outcom", "failed"], "--outcome"),
        (["debug", "schema", "workflows"], "workflow"),
        (["run", "x", "--workflow", "cor"], "did you mean core?"),
        (["check", "defalt"], "did you mean default?"),
    ):
        ended = cli(*words).ends(2)
        assert meant in ended.stderr, ended


def test_a_slip_in_a_runs_name_is_answered_with_the_run(scene: Scene, cli: Cli) -> None:
    """By its handle, by its handle without the mark, or by the beginning of it; what is near to no run, as before."""
    # No mark has a u.
    scene.workflow()
    scene.begin("add dark mode")
    for word in ("add-drak-mode", f"ad{scene.handle[3:]}", "add-drk", f"{scene.handle[:-1]}u"):
        for verb in ("status", "show", "resume"):
            ended = cli(verb, word).ends(3)
            holds(ended.stderr, f"why: did you mean {scene.handle}?", f"hint: loomctl {verb} {scene.handle}")
    assert "did you mean" not in cli("status", "nowhere").ends(3).stderr
    assert "did you mean" not in cli("status", "xy").ends(3).stderr


MISSING_VALUES = [
    (["push", "--yes", "shop", "--remote"], "push"),
    (["runs", "archive", "shop", "--to"], "runs archive"),
    (["context", "get", "key", "--branch"], "context get"),
    (["steps", "--last"], "steps"),
    (["steps", "--last", "5", "show", "x", "--run"], "steps show"),
    (["done", "--response-file"], "done"),
    (["--debug", "report", "-o"], "report"),
    (["nonsense"], ""),
]


@each("words, command", MISSING_VALUES)
def test_an_option_without_its_value_sends_to_the_help_of_its_own_command(
    cli: Cli, words: list[str], command: str
) -> None:
    ended = cli(*words).ends(2)
    assert ended.stderr.rpartition("hint: ")[2].strip() == " ".join(filter(None, ["loomctl", command, "--help"]))


LONG = "y" * 300
TOO_LONG = [
    (["show", LONG], "BAD_ID"),
    (["resume", LONG], "BAD_ID"),
    (["show", "shop", LONG], "NO_SUCH_STAGE"),
    (["run", "x", "--workflow", LONG], "BAD_ID"),
    (["run", "x", "--workflow", f"./{LONG}.json"], "UNKNOWN_WORKFLOW"),
    (["check", f"{LONG}.json"], "UNKNOWN_WORKFLOW"),
    (["check", "/" + "y/" * 4000], "UNKNOWN_WORKFLOW"),
    (["done", "--response-file", LONG], "UNREADABLE"),
    (["done", "--artifact", f"x={LONG}"], "MISSING"),
    (["done", "--artifact", f"{LONG}=spec.md"], "USAGE"),
    (["runs", "archive", "shop", "--force", "--to", LONG], "SYSTEM"),
    (["prime-context", "--trigger", LONG], "UNKNOWN_TRIGGER"),
    (["debug", "state", "show", "--path", "y." * 9000], "NOTHING_THERE"),
]


def test_a_name_that_no_file_system_takes_is_one_clear_error(scene: Scene, cli: Cli) -> None:
    scene.write("spec.md", "x")
    scene.workflow()
    scene.begin()
    before = (scene.run_dir / "state.json").read_bytes()
    for words, code in TOO_LONG:
        ended = cli(*words, "--json")
        assert ended.json["error"]["code"] == code, (words, ended)
        assert ended.json["error"]["hint"]
        assert len(ended.stdout) < 30_000
    assert (scene.run_dir / "state.json").read_bytes() == before


@each("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_what_the_system_refuses_is_said_with_a_line_that_looks_closer(tmp_path: Path, number: int) -> None:
    path = tmp_path / "it's a file"
    path.touch()
    said = output.in_words(OSError(number, os.strerror(number), str(path)), "loomctl --debug show")
    assert (said.code, said.exit_code, said.where) == ("SYSTEM", 5, str(path))
    assert os.strerror(number) in said.what
    assert said.why
    done = subprocess.run(["sh", "-c", said.hint], capture_output=True, text=True, check=False)
    assert done.returncode == 0, said.hint


def test_what_nothing_is_known_of_can_be_shown() -> None:
    for error in (OSError("odd"), OSError(errno.EIO, "Input/output error", b"/x"), OSError(errno.ENAMETOOLONG, "x")):
        assert output.in_words(error, "loomctl --debug show").hint == "loomctl --debug show"


@each("name", ["plain/file-1.json", "", "a b", "it's", '"', "$HOME", "`id`", "é", "\n", "a\\b", "~", "*"])
def test_a_quoted_path_is_one_word_to_a_shell(name: str) -> None:
    shown = subprocess.run(["sh", "-c", f"printf %s {quoted(name)}"], capture_output=True, check=True)
    assert shown.stdout.decode() == name


def test_an_error_without_a_part_leaves_it_out() -> None:
    error = LoomError("X", "what", hint="do")
    assert str(error) == "X: what\n  hint: do"
    assert error.to_dict() == {"code": "X", "message": "what", "hint": "do"}


def test_what_is_too_new_is_mended_by_a_line_for_this_bundle(scene: Scene, cli: Cli, tmp_path: Path) -> None:
    """A clone is loaded in place, so git fetches what is newer; a copy is the host's to update, a wheel pipx's."""
    newer_state(scene)
    assert cli("show", "--json").json["error"]["hint"] == f"git -C {CHECKOUT} pull"
    checked = cli("check", str(scene.run_dir / "state.json"), "--json").json["files"][0]["problems"]
    assert [problem["hint"] for problem in checked] == [f"git -C {CHECKOUT} pull"]
    for bundle, hint in (
        (tmp_path / "copy", "claude plugin update loom@loom"),
        (tmp_path / "_bundle", "pipx upgrade loomctl"),
        (
            tmp_path / ".codex/plugins/cache/loom/loom/0.1.0",
            "codex plugin marketplace upgrade; codex plugin add loom@loom",
        ),
        (tmp_path / ".copilot/installed-plugins/loom/loom", "copilot plugin update loom@loom"),
        (tmp_path / ".gemini/extensions/loom", "gemini extensions update loom"),
        (tmp_path / ".qwen/extensions/loom", "qwen extensions update loom"),
    ):
        assert trouble.fitting(LoomError("SCHEMA_TOO_NEW", "what", hint=UPDATE), str(bundle)).hint == hint
        if bundle.name == "loom":  # an assistant may copy the clone with its .git
            (bundle / ".git").mkdir(parents=True)
            assert trouble.update_plugin(str(bundle)) == hint
