"""`loomctl debug outcome` says what a response would mean: one document, no run, exit 1 for what breaks its schema."""

from tests.cli.conftest import Cli
from tests.helpers.scenes import Scene

KEYS = [
    *("schema_version", "found", "source", "outcome", "failure_reason", "preferred_next_label", "suggested_next_ids"),
    *("context_updates", "artifacts", "output", "errors", "warnings"),
]
DIRECTIVE = '{"outcome": "FAILURE", "failure_reason": "no", "context_updates": {"n": 1, "_x": 2}}'


def test_the_document_is_the_one_that_others_rely_on_in_any_encoding(cli: Cli) -> None:
    ended = cli("debug", "outcome", "--from", "-", "--json", given=f"Well: {DIRECTIVE}")
    assert (ended.code, ended.stderr, list(ended.json)) == (0, "", KEYS)
    document = ended.json
    assert (document["found"], document["source"], document["outcome"]) == (True, "response", "failed")
    assert document["context_updates"] == {"n": 1}
    (warning,) = document["warnings"]
    assert list(warning) == ["code", "where", "message"]
    assert (warning["code"], warning["where"]) == ("RESERVED_KEY", "/context_updates/_x")
    ended = cli("debug", "outcome", "--from", "-", "--json", given=b'\xff {"outcome": "failed"} \xfe')
    assert ended.json["outcome"] == "failed"


def test_people_are_told_line_by_line(scene: Scene, cli: Cli) -> None:
    for response, words, code, shows in [
        ("done", [], 0, ["found no JSON object that says how the step ended"]),
        (
            "done",
            ["--schema", "routing"],
            1,
            ["found no JSON object that says how the step ended", "error: NO_DIRECTIVE"],
        ),
        ("done", ["--status-json", "s.json"], 0, ["found in: status.json", "outcome: skipped"]),
        ("done", ["--last-file", "n.md"], 0, ["found in: last_file", "preferred_next_label: fix"]),
        ("done", ["--last-file", "tool.py"], 0, ["found no JSON object that says how the step ended"]),
        ("done", ["--last-file", "n.md", "--status-json", "s.json"], 0, ["found in: status.json"]),
        ('{"outcome": 1}', ["--schema", "routing", "--status-json", "s.json"], 1, ["error: WRONG_TYPE at /outcome"]),
        ('{"outcome": "SUCCESS", "artifacts": {"n": "a b.md"}}', [], 0, ["artifact n = a b.md"]),
        ('{"suggested_next_ids": ["a", "b"]}', [], 0, ["suggested_next_ids: a, b"]),
        ('{"context_updates": {"n": "x\\u001b[31m\\n"}}', [], 0, ['context n = "x']),
        ('{"n": 1}', ["--schema", "x.json"], 0, ["found in: response", 'output: {"n": 1}']),
        (
            '{"n": "a"}',
            ["--schema", "x.json", "--status-json", "s.json"],
            1,
            ["error: SCHEMA at /n: expected a number"],
        ),
        ("[1, 2]", ["--schema", "x.json"], 1, ["error: NO_OBJECT at the object"]),
    ]:
        scene.write("r.md", response)
        scene.write("s.json", '{"outcome": "SKIPPED"}')
        scene.write("n.md", '# Notes\n{"preferred_next_label": "fix"}')
        scene.write("tool.py", '{"outcome": "failed"}')  # a run reads no such file either (D35)
        scene.write("x.json", '{"properties": {"n": {"type": "number"}}}')
        ended = cli("debug", "outcome", "--from", "r.md", *words).ends(code)
        for line in shows:
            assert line in ended.stdout
        assert "\x1b" not in ended.stdout
        assert cli("debug", "outcome", "--from", "r.md", *words, "--json").code == code


def test_what_cannot_be_read_is_an_error(scene: Scene, cli: Cli) -> None:
    for words, code, said in [
        (["--nonsense"], 2, "USAGE"),
        (["--from", "none.md"], 2, "UNREADABLE"),
        (["--from", "r.md", "--status-json", "none.json"], 2, "UNREADABLE"),
        (["--from", "r.md", "--schema", "none.json"], 2, "UNREADABLE"),
        (["--from", "r.md", "--schema", "bad.json"], 5, "BAD_SCHEMA"),
        (["--from", "."], 2, "UNREADABLE"),
        (["--from", "large.md"], 2, "TOO_LARGE"),
        (["--from", "r.md", "--status-json", "mib.json"], 2, "TOO_LARGE"),
        (["--from", "r.md", "--last-file", "mib.json"], 2, "TOO_LARGE"),
    ]:
        scene.write("r.md", "x")
        scene.write("bad.json", '{"type": "objekt"}')
        scene.write("large.md", b" " * ((16 << 20) + 1) if said == "TOO_LARGE" else b"")
        scene.write("mib.json", b" " * ((1 << 20) + 1))  # more than a run reads of a fallback
        ended = cli("debug", "outcome", *words, "--json")
        assert (ended.code, ended.json["error"]["code"]) == (code, said)
