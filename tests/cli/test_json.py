"""`--json`: one document with a schema version for every command, errors included (D52)."""

import json
import subprocess

import pytest

from loomctl.kit.text.fences import utf8_bytes
from loomctl.runs.store.blobs import Blobs, ref_of
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.cli.conftest import Cli
from tests.helpers.scenes import PHASES, Json, Scene, artifact

STEP = {"id", "visit", "stage", "prompt"}
SLIP = {"schema_version", "run_id", "handle", "event", "slip_id", "artifacts", "budget", "warnings"}

STEP_OF_A_TOOL = {
    *("id", "tool_name", "minimal_args", "observation", "outcome_ref", "success"),
    *("inline", "sha256", "bytes", "tokens_before", "tokens_after"),
}
READING = {
    *("found", "source", "outcome", "failure_reason", "preferred_next_label", "suggested_next_ids"),
    *("context_updates", "output", "errors", "warnings"),
}
MEMORY = {
    *("on", "file", "line", "has_line", "makes_file", "ignored_by_git"),
    *("run_ids", "imports", "left_out", "bytes", "price"),
}
FLEET = {
    *("at", "limit", "counts", "cost", "waits", "driven", "queued", "paused", "later", "failed"),
    *("paused_workflows", "held_hosts", "machines", "no_worker"),
}
GIVEN = {
    "debug reduce": '{"tool": "Bash", "args": {"command": "ls"}, "result": {"stdout": "a"}}',
    "debug outcome": '{"outcome": "succeeded"}',
}
"""What a command reads from standard input."""

# command → the keys of its document beside schema_version; run in this order in one project
COMMANDS: list[tuple[list[str], set[str]]] = [
    (
        ["run", "add dark mode", "--workflow", "tiny"],
        {
            *("run_id", "run_dir", "plan_id", "workflow_id", "work_id", "goal", "status", "dry_run"),
            *("step", "slip", "notes", "warnings"),
        },
    ),
    (["run", "x", "--workflow", "tiny", "--dry-run"], {"run_id", "handle", "step", "slip", "dry_run"}),
    (
        ["next"],
        {"run_id", "handle", "status", "closing", "stage", "outcome", "next", "pending_approvals", "slip", "notes"},
    ),
    (["done", "--response-file", "spec.md"], {"run_id", "handle", "status", "closing", "stage", "outcome", "next"}),
    (["undo"], {"run_id", "handle", "status", "next"}),
    (
        ["rewind", "--to", "ask"],
        {*("run_id", "status", "stage", "changed", "undone", "gone", "files", "patches", "next", "notes")},
    ),
    (["done", "--note", "asked"], {"run_id", "handle", "closing", "stage", "next"}),
    (["next"], {"run_id", "handle", "next", "notes"}),
    (["done", "--response-file", "spec.md"], {"run_id", "handle", "outcome", "stage", "next"}),
    (["reject"], {"run_id", "handle", "status", "next", "pending_approvals"}),
    (["resume"], {"run_id", "handle", "status", "step"}),
    (["approve"], {"run_id", "handle", "status", "next", "pending_approvals"}),
    (["prime-context", "--dry-run", "--force"], SLIP),
    (["prime-context", "--force"], SLIP | {"text"}),
    (["memory"], MEMORY),
    (["memory", "on", "--yes"], MEMORY | {"changed"}),
    (["memory", "off"], {"on", "changed"}),
    (["show"], {"run_id", "handle", "run_dir", "state", "step", "task_lists"}),
    (
        ["show", "shop", "001-frame.ask@1"],
        {"run_id", "handle", "stage", "entry", "status", "trouble", "folder", "files", "sizes"},
    ),
    (["show", "--stages"], {"run_id", "handle", "total", "stages"}),
    (["prove"], {"run_id", "handle", "must_survive", "compactions", "lost", "pending", "claim"}),
    (
        ["show", "--why", "001"],
        {"run_id", "handle", "step_id", "visit", "stage", "after", "way", "weighed", "denied", "drive"},
    ),
    (["report"], {"run_id", "handle", "run", "stages", "sessions", "events", "savings", "troubles", "page"}),
    (
        ["dump", "shop", "dumped"],
        {"run_id", "handle", "path", "files", "bytes", "stages", "events", "blobs", "troubles"},
    ),
    (["sessions"], {"run_id", "handle", "current_session_id", "summary", "sessions"}),
    (["debug", "state", "show"], {"run_id", "handle", "state"}),
    (["debug", "state", "show", "--path", "goal"], {"run_id", "handle", "path", "value"}),
    (["paths"], {"paths"}),
    (["check", "tiny"], {"ok", "files"}),
    (["check"], {"ok", "files"}),
    (
        ["prove", "--log"],
        {"run_id", "handle", "path", "ok", "entries", "checkpoint", "proven", "unproven", "torn", "fault", "faults"},
    ),
    (["prove", "--log", "--all"], {"ok", "runs", "unreadable"}),
    (["simulate", "tiny"], {"workflow_id", "stages", "status", "why", "context", "approvals", "warnings"}),
    (["debug", "schema", "state"], {"kind", "schema"}),
    (["plugin", "path"], {"path"}),
    (["plugin", "status"], {"hosts"}),
    (["plugin", "install", "qwen", "--yes"], {"host", "whole", "files", "loomctl", "then", "changed"}),
    (["plugin", "remove", "qwen"], {"host", "changed"}),
    (["steps"], {"run_id", "handle", "steps", "found", "agents_left_out", "total"}),
    (["steps", "shop", "--all", "--agents"], {"run_id", "handle", "steps", "found", "agents_left_out", "total"}),
    (["steps", "show", "toolu_01"], {"run_id", "handle", "step", "args", "result"}),
    (["steps", "show", "toolu_01", "--reduced"], {"run_id", "handle", "step", "text"}),
    (["steps", "--history"], {"run_id", "handle", "text", "tokens", "steps", "left_out"}),
    (
        ["debug", "preamble"],
        {"run_id", "handle", "step_id", "fidelity", "source", "degraded_from", "stages", "tokens", "warnings", "text"},
    ),
    (["steps", "--savings"], {"run_id", "handle", "tools", "all", "recovery"}),
    (["debug", "reduce"], STEP_OF_A_TOOL),
    (["context", "set", "k", "[1]"], {"run_id", "handle", "key", "value", "warnings"}),
    (["context", "get", "k"], {"run_id", "handle", "key", "type", "bytes", "engine", "value"}),
    (["context", "list", "--all"], {"run_id", "handle", "keys", "total"}),
    (["context", "history", "k"], {"run_id", "handle", "key", "changes", "back"}),
    (["context", "unset", "k"], {"run_id", "handle", "key", "before", "warnings"}),
    (["show", "--diff"], {"run_id", "handle", "stages"}),
    (["show", "--assets"], {"run_id", "handle", "assets", "bytes", "passed_over"}),
    (["show", "--assets", "cp", "out"], {"run_id", "handle", "dest", "written", "there_already", "failed"}),
    (["debug", "outcome", "--from", "-"], READING),
    (["trust"], {"run_id", "handle", "trusted", "commands", "artifacts"}),
    (["runs"], {"runs"}),
    (["status"], {"run_id", "handle", "status", "phases", "step", "waits", "next", "hooks", "versions"}),
    (["statusline"], {"run_id", "handle", "line", "alarm"}),
    (["tell", "use blue"], {"run_id", "handle", "unread", "heard"}),
    (["waits"], {"waits", "stopped", "unreadable"}),
    (["runs", "list"], {"runs"}),
    (["init", "--yes"], {"workflow", "extends", "path", "copy", "test_command", "settings", "notes"}),
    (["install", "--to", "bin"], {"path", "kind", "target", "changed", "before", "on_path", "first"}),
    (["doctor"], {"ok", "checks"}),
    (["pause"], {"run_id", "handle", "status"}),
    (["resume"], {"run_id", "handle", "run_dir", "step", "slip", "sessions", "differences", "notes"}),
    (["release"], {"run_id", "handle", "released", "how", "from"}),
    (["stop"], {"run_id", "handle", "how"}),
    (["cancel"], {"run_id", "handle", "status"}),
    (["run", "--resume", "shop", "--reopen"], {"run_id", "handle", "step", "slip", "sessions"}),
    (["debug", "state", "restore", "--dry-run"], {"run_id", "handle", "dry_run", "state", "plan"}),
    (["debug", "state", "restore", "--yes"], {"run_id", "handle", "dry_run", "state", "plan"}),
    (["clean", "--dry-run"], {"dry_run", "machine", "blobs"}),
    (["clean"], {"dry_run", "machine", "blobs"}),
    (["graph"], {"workflow_id", "run_id", "format", "output", "text"}),
    (["debug", "blob", "get", ref_of(b"7")], {"ref", "sha256", "bytes", "value", "path"}),
    (
        ["push", "--dry-run"],
        {"run_id", "handle", "remote", "commit", "files", "bytes", "gone", "left_out", "outputs", "notes"},
    ),
    (
        ["push", "--yes"],
        {"run_id", "handle", "remote", "commit", "files", "bytes", "gone", "left_out", "outputs", "notes"},
    ),
    (["runs", "--remote"], {"remote", "runs"}),
    (["pull"], {"run_id", "handle", "remote", "kind", "saved", "files", "pushed", "outputs", "left_out"}),
    (["pull", "--all"], {"remote", "runs"}),
    (["runs", "archive", "shop", "--force"], {"run_id", "handle", "archive", "files", "lost_blobs"}),
    (["runs", "restore", "shop"], {"run_id", "handle", "archive", "files", "trouble", "lost_blobs"}),
    (["runs", "rm", "shop", "--yes", "--force"], {"run_id", "handle", "removed"}),
    (["run", "again", "--workflow", "tiny"], {"run_id", "handle"}),
    (["runs", "rm", "shop", "--yes", "--force"], {"run_id", "handle", "removed"}),
    (["run", "ask", "--workflow", "asked"], {"run_id", "handle"}),
    (["choose", "yes"], {"run_id", "handle", "status", "stage", "outcome", "way", "next", "pending_approvals"}),
    (["run", "once more", "--workflow", "tiny"], {"run_id", "handle"}),
    (["done", "--response-file", "spec.md"], {"run_id", "handle"}),
    (
        ["fork", "--at", "ask"],
        {
            *("run_id", "run_dir", "status", "forked_from", "stages", "way", "tool_steps", "files_copied"),
            *("files", "patches", "notes"),
        },
    ),
    (["fleet", "add", "mend the lamp", "--workflow", "tiny"], {"runs"}),
    (["fleet", "status"], FLEET),
    (["fleet", "pause", "mend"], {"runs"}),
    (["fleet", "resume", "mend"], {"runs"}),
    (["fleet", "retry", "mend"], {"runs"}),
    (["fleet", "doctor"], {"differences", "mended"}),
    (["fleet", "rebuild"], {"runs"}),
    (["fleet", "report"], {"path", "bytes"}),
    (["fleet", "cancel", "mend"], {"runs"}),
    (["fleet", "clean"], {"runs", "worktrees", "dry_run"}),
]


@pytest.fixture
def project(scene: Scene) -> Scene:
    scene.write("spec.md", "# The spec\n\nheliotrope\n")
    scene.workflow([artifact("spec", "spec.md")], {**PHASES, "build": {**PHASES["build"], "require_approval": True}})
    gate = {"id": "gate", "kind": "human", "prompt": "Well?", "transitions": [{"to": "end", "label": "Yes"}]}
    scene.workflow(phases={"a": {"steps": [gate]}}, name="asked")
    (scene.root / ".git").rmdir()
    server = scene.root.parent / "server.git"
    for words in (["init", "-q", "--bare", str(server)], ["init", "-q", str(scene.root)]):
        subprocess.run(["git", *words], check=True)
    subprocess.run(["git", "remote", "add", "origin", str(server)], cwd=scene.root, check=True)
    return scene


def call_a_tool(scene: Scene) -> None:
    reducer = StepReducer(DataOffloader(scene.run_dir))
    step = reducer.reduce("Bash", {"command": "ls"}, {"stdout": "a\n" * 900}, step_id="toolu_01")
    tool_log.append(str(scene.run_dir), [step])


@pytest.mark.slow
def test_every_command_gives_one_document(project: Scene, cli: Cli) -> None:
    for words, keys in COMMANDS:
        if words == ["steps"]:
            call_a_tool(project)
            Blobs(str(project.store)).put(b"7")
        ended = cli(*words, "--json", given=GIVEN.get(" ".join(words[:2])))
        assert (ended.code, ended.stderr) == (0, ""), (words, ended)
        document = ended.json
        assert document["schema_version"] == 1, words
        assert keys <= set(document), (words, keys - set(document))


def test_every_command_with_json_is_tested() -> None:
    """No command with `--json` is left out here; what prints an object a line has tests of its own.

    So have a server, and what needs PostgreSQL.
    """
    from tests.cli.test_help import ALL

    having = {name for name, command in ALL.items() if any("--json" in option.opts for option in command.params)}
    tested = {f"loomctl {' '.join(words)}" for words, _ in COMMANDS}
    elsewhere = {"loomctl demo", "loomctl drive", "loomctl events", "loomctl fleet board", "loomctl fleet init"}
    for name in having - elsewhere:
        assert any(line == name or line.startswith(f"{name} ") for line in tested), name
    plain = set(ALL) - having
    groups = ("context", "fleet", "debug", "debug blob", "debug state", "plugin")
    assert plain == {"loomctl debug hook", "loomctl fleet work", *(f"loomctl {group}" for group in groups)}


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_errors_are_documents_too(cli: Cli) -> None:
    for words, _ in COMMANDS[1:]:
        for more in ([], ["--nonsense"]):
            if words[0] == "run" and "--resume" not in words and not more:
                continue
            ended = cli(*words, "--json", *more)
            document = ended.json
            assert document["schema_version"] == 1
            assert ("error" in document) == (ended.code != 0), words
            if ended.code != 0:
                assert set(document["error"]) <= {"code", "message", "where", "why", "hint"}


def test_documents_of_a_run_have_the_shape_that_others_rely_on(project: Scene, cli: Cli) -> None:
    """Design §8: run id, folder, plan, workflow, step with prompt, and the slip."""
    document = cli("run", "258", "--workflow", "tiny", "--json").json
    assert document["run_id"] == project.run_dir.name
    assert document["run_dir"] == str(project.run_dir)
    assert (document["work_id"], document["goal"]) == ("258", "")
    assert (set(document["step"]), document["step"]["id"]) == (STEP, "frame/ask")
    assert set(document["slip"]) >= SLIP
    (entry,) = document["slip"]["artifacts"]
    assert entry["form"] == "full"
    assert "heliotrope" in json.dumps(document["slip"])
    (project.root / "spec.md").write_text("# The spec\n\nviridian\n")
    document = cli("prime-context", "--dry-run", "--json").json
    (entry,) = document["artifacts"]
    assert (entry["decision"], entry["path"]) == ("load", "spec.md")
    assert entry["bytes"] == len("# The spec\n\nviridian\n")
    assert (len(entry["sha256"]), document["budget"]["limit"]) == (64, 24_000)
    assert "viridian" not in json.dumps(document)
    project.edit(goal="a \ud800 \x1b[31m 😀 \u2028 \u0000 b")
    for words in (["show"], ["runs"], ["debug", "state", "show"], ["next"], ["prime-context", "--force"]):
        assert isinstance(cli(*words, "--json").ends().json, dict)
    document = cli("done", "--json").json
    assert (document["closing"], document["stage"], document["next"]) == (True, "001-frame.ask@1", None)


def test_a_large_document_is_whole(scene: Scene, cli: Cli) -> None:
    """A command's slip in JSON keeps the command's budget, and the document is whole."""
    declared: list[Json] = []
    for number in range(20):
        scene.write(f"{number}.md", "some words of it 😀\n" * 3000)
        declared.append(artifact(f"a-{number}", f"{number}.md"))
    scene.workflow(declared)
    document = cli("run", "x", "--workflow", "tiny", "--json").json
    assert document["slip"]["budget"]["used"] <= 24_000
    assert utf8_bytes(document["slip"]["text"]) == document["slip"]["budget"]["used"]
