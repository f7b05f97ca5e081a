"""Keys of the usual kinds, planted wherever text comes from, never come out: injected, logged, shown or in errors.

The files that hold what was written (state, responses, prompts) hold it as it is (D47); what Loom tells does not.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.kit.text.secrets import mask, masked
from tests.helpers.repositories import git
from tests.helpers.scenes import OTHER, Ended, Json, Scene, artifact
from tests.helpers.verbs import read
from tests.hostile import inside, keys


class Told:
    """A project with keys wherever text comes from, and what came out of it, by where it did."""

    def __init__(self, folder: Path) -> None:
        self.out: dict[str, str] = {}
        self.documents: list[str] = []
        self.scene = Scene(folder)
        self._plant()
        self._run()
        self._call_tools()
        self._end()
        self._break()
        logs = self.scene.store.rglob("events.jsonl")
        self.out["events"] = "".join(path.read_text(encoding="utf-8") for path in logs)

    def _note(self, where: str, ended: Ended) -> None:
        self.out[where] = self.out.get(where, "") + ended.stdout + ended.stderr
        if "--json" in where and ended.stdout:
            self.documents.append(ended.stdout)

    def loomctl(self, *words: str, given: str | None = None, session: str | None = OTHER) -> None:
        self._note(" ".join(words)[:60], inside.loomctl(self.scene, *words, given=given, session=session))

    def hook(self, event: str, **told: Any) -> None:
        self._note(f"{event} {told.get('source', '')}".strip(), inside.hook(self.scene, event, session=OTHER, **told))

    def _plant(self) -> None:
        scene = self.scene
        scene.root.joinpath(".git").rmdir()
        git(scene.root.parent, "init", "-q", str(scene.root))
        scene.write("spec.md", f"# Spec\n\n{keys.TEXT}\n")
        scene.write(".env", "\n".join(f"KEY_{n}={text}" for n, text in enumerate(keys.ON_A_LINE.values())))
        scene.write("data.json", json.dumps(keys.PLANTED))
        scene.write("long.md", f"{keys.TEXT}\n" * 40)
        scene.write("notes/a.md", keys.TEXT)
        git(scene.root, "add", "spec.md")
        git(scene.root, "commit", "-q", "-m", f"use {keys.LINE}\n\n{keys.TEXT}")
        git(scene.root, "checkout", "-q", "-b", "use-" + keys.PLANTED["github"])
        gone = f"gone/{keys.PLANTED['gitlab']}/{keys.PLANTED['npm']}.md"
        texts = {"spec": "spec.md", "env": ".env", "long": "long.md", "gone": gone}
        declared = [
            *(artifact(name, path) for name, path in texts.items()),
            artifact("data", "data.json", type="json"),
            artifact("notes", "notes", type="directory", load_strategy="all"),
            artifact("state", "{state_path}", type="json"),
            artifact("log", None, type="git_info", command="git log -3"),
            artifact("branch", None, type="git_info", command="git branch -v"),
            artifact("from-state", None, path_from_state="artifacts.token_path"),
        ]
        one = {"steps": [{"id": "one", "name": keys.LINE, "description": keys.LINE, "prompt": f"Use\n{keys.TEXT}"}]}
        two = {"require_approval": True, "steps": [{"id": "two", "prompt": "Go on."}]}
        scene.workflow(declared, {"a": one, "b": two}, description=keys.LINE)

    def _run(self) -> None:
        scene = self.scene
        self.loomctl("run", keys.LINE, "--workflow", "tiny", "--json")
        self.loomctl("run", keys.LINE, "--workflow", "tiny", "--dry-run")
        context = {"secrets": keys.PLANTED, "list": list(keys.PLANTED.values()), keys.PLANTED["github"]: 1}
        paths = {"token_path": f"x/{keys.PLANTED['github']}/{keys.PLANTED['basic auth']}", "a": keys.LINE}
        scene.edit(context=context, artifacts=paths)
        for source in ("startup", "compact", "resume"):
            self.hook("session-start", source=source)
        self.hook("pre-compact", trigger="auto")
        for word in ("next", "show", "debug state show", "prime-context --force", "runs", "sessions", "resume"):
            self.loomctl(*word.split())
            self.loomctl(*word.split(), "--json")
        self.loomctl("prime-context", "--dry-run")
        for path in ("context", "context.secrets.github", f"context.{keys.PLANTED['github']}x"):
            self.loomctl("debug", "state", "show", "--path", path)

    def _call_tools(self) -> None:
        """Calls with keys in arguments, addresses, outputs, errors and names; what is told of them afterwards."""
        text, line, planted = keys.TEXT, keys.LINE, keys.PLANTED
        made = {planted["github"]: {planted["npm"]: text}, "token": planted["gitlab"], "list": [*planted.values()]}
        address = f"https://example.org/{planted['github']}?token={planted['slack']}"
        page = {"result": f"{text}\n{address}\n" * 9, "code": 200, "url": address}
        calls: list[tuple[str, Json, Any]] = [
            ("Bash", {"command": f"curl -u {line}"}, {"stdout": f"{text}\nerror: {line}\n" * 9, "stderr": line}),
            ("Bash", {"command": text}, {"stdout": text, "stderr": text}),
            ("Bash", {"command": planted["password"]}, None),
            ("Read", {"file_path": f"/x/{planted['github']}/{planted['slack']}"}, {"file": {"content": text}}),
            ("Write", {"file_path": "a", "content": text}, None),
            ("Edit", {"file_path": "a", "old_string": text, "new_string": line}, {"structuredPatch": [text]}),
            ("Grep", {"pattern": line, "path": planted["stripe"]}, {"mode": "content", "content": text}),
            ("Grep", {"pattern": "x"}, {"mode": "files_with_matches", "filenames": [*keys.ON_A_LINE.values()]}),
            ("Glob", {"pattern": line}, {"filenames": [f"a/{planted['github']}/{planted['npm']}.py"] * 30}),
            ("WebFetch", {"url": address, "prompt": line}, page),
            ("WebFetch", {"url": f"https://bot:{planted['openai']}@example.org/x"}, None),
            ("WebSearch", {"query": line}, {"query": line, "results": [{"title": line, "url": address}] * 4}),
            ("mcp__a__b", made, [{"type": "text", "text": text}, {"type": "text", "text": line}]),
            ("mcp__a__c", {"q": [made]}, made),
            (line, made, made),
            (planted["github"], {}, text),
        ]
        for number, (tool, args, result) in enumerate(calls):
            for at, failed in ((2 * number, False), (2 * number + 1, True)):
                name = "PostToolUseFailure" if failed or result is None else "PostToolUse"
                told: Json = {"session_id": OTHER, "hook_event_name": name, "tool_name": tool, "tool_input": args}
                told |= {"error": text if number % 2 else line} if name != "PostToolUse" else {"tool_response": result}
                event = json.dumps({**told, "tool_use_id": f"toolu_{at:02}"})
                self.loomctl("debug", "reduce", given=event)
                self.loomctl("debug", "reduce", "--json", given=event)
                (self.scene.store / "local/spool" / f"{OTHER}-{at}.json").write_text(event, encoding="utf-8")
            self.loomctl("steps", "--history", "--budget", "4000")  # as each was the newest
        asked = ["steps --all", "steps --history --json", "history --budget 20000 --recent 90", "savings"]
        for words in (*asked, "steps --all --json", "savings --json", "report --json", "report -o -"):
            self.loomctl(*words.split())
        for number in range(2 * len(calls)):
            self.loomctl("steps", "show", f"toolu_{number:02}", "--reduced")
            self.loomctl("steps", "show", f"toolu_{number:02}", "--reduced", "--json")
        self.loomctl("steps", "show", planted["github"])
        self.loomctl("steps", "--tool", line)
        self.hook("session-start", source="compact")

    def _end(self) -> None:
        run_id = self.scene.run_dir.name
        self.hook("stop", last_assistant_message=keys.TEXT)
        self.loomctl("show", run_id, keys.LINE)
        self.loomctl("show", keys.PLANTED["slack"])
        self.loomctl("resume", keys.PLANTED["stripe"])
        self.loomctl("done", "--note", keys.LINE, "--json", given=keys.TEXT)
        self.loomctl("show", run_id, "001")
        self.loomctl("show", run_id, "001", "--json")
        self.loomctl("approve", session=None)
        self.loomctl("next")
        self.hook("stop", last_assistant_message=keys.TEXT)
        self.loomctl("done", "--outcome", "failed", "--note", keys.PLANTED["openai"], given=keys.TEXT)
        self.loomctl("show", run_id)
        self.loomctl("paths", "--json")
        self.hook("session-end", reason=keys.LINE)

    def _break(self) -> None:
        scene = self.scene
        for settings_text in (
            f"hook_budget: {keys.PLANTED['anthropic']}\n",
            f"{keys.PLANTED['github']}: {keys.PLANTED['google']}\n",
            f"default_workflow: {keys.PLANTED['npm']}\n",
        ):
            scene.write(".loom/config.yaml", settings_text)
            self.loomctl("runs")
            self.loomctl("prime-context", "--force", "--text")
            self.loomctl("run", keys.LINE, "--dry-run")
        for name, text in keys.ON_A_LINE.items():
            evil = {"id": text, "phases": {text: {"steps": [{"id": text, "kind": text, text: 1}]}}, "autonomy": text}
            scene.write(f".loom/workflows/{name.replace(' ', '-')}.json", json.dumps(evil))
        self.loomctl("check")
        self.loomctl("check", "--json")
        (scene.run_dir / "state.json").write_text(json.dumps({**scene.state, "status": keys.TEXT}), encoding="utf-8")
        self.hook("session-start", source="startup")
        self.loomctl("show", scene.run_dir.name)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("secrets")
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(os.environ):
            if name.startswith(("CLAUDE", "GIT_", "XDG_", "LOOM_")):
                patch.delenv(name)
        patch.setenv("HOME", str(folder))
        patch.setenv("LOOM_STATE_HOME", str(folder / "state"))
        found = Told(folder / "shop")
    for document in found.documents:
        json.loads(document)
    return found.out


@pytest.mark.slow
@pytest.mark.shows("Secrets of known kinds are replaced by `[masked: kind]`")
def test_no_planted_key_comes_out(told: dict[str, str]) -> None:
    assert {where: keys.seen(text) for where, text in told.items() if keys.seen(text)} == {}


def test_what_is_masked_is_said(told: dict[str, str]) -> None:
    for where in (
        *("session-start startup", "show", "show --json", "debug state show", "events", "next", "check", "runs --json"),
        *(
            "debug reduce",
            "steps --all",
            "steps --all --json",
            "steps show toolu_00 --reduced",
            "steps --history --json",
        ),
        "session-start compact",
    ):
        assert "[masked: " in told[where], where
    assert len(set(re.findall(r"\[masked: ([a-z ]+)\]", told["debug state show"]))) > 15


@pytest.mark.shows("The files themselves, a step's response among them, are kept as they are")
def test_the_files_of_a_run_hold_what_was_written(scene: Scene) -> None:
    """A response, a prompt and a goal are the record; masking them would lose what cannot be had again (D47)."""
    scene.workflow(phases={"a": {"steps": [{"id": "one", "prompt": f"Use {keys.LINE}."}]}})
    inside.loomctl(scene, "run", keys.LINE, "--workflow", "tiny")
    inside.loomctl(scene, "done", given=keys.TEXT)
    stage = scene.state["steps"][0]["stage"]
    assert (read(scene, stage, "response.md"), scene.state["goal"]) == (keys.TEXT, keys.LINE)
    assert f"Use {keys.LINE}." in read(scene, stage, "prompt.md")


def test_the_keys_are_where_the_tests_look_for_them() -> None:
    assert set(keys.seen(keys.TEXT)) == set(keys.PLANTED)
    assert keys.seen(json.dumps(keys.PLANTED)) == keys.seen(keys.TEXT)
    assert keys.seen(mask(keys.TEXT)[0]) == []


SIGNS = ["the", "key", "is", "\n", "a", "=", ":", '"', "'", "{", "}", "x_1", "漢", "-", "—", "`", ",", "(", ")"]
WORDS = st.lists(st.sampled_from(SIGNS), max_size=30).map(" ".join)


@pytest.mark.slow
@given(WORDS, st.sampled_from(sorted(keys.PLANTED)), WORDS)
@settings(max_examples=300)
def test_a_key_is_masked_in_any_text(before: str, kind: str, after: str) -> None:
    clean, count = mask(f"{before}\n{keys.PLANTED[kind]}\n{after}")
    assert kind not in keys.seen(clean)
    assert count >= 1
    assert mask(clean)[0] == clean


NAMES = st.sampled_from(["a", "password", "token", "b c"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(sorted(keys.PLANTED.values())) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(child) for key, child in value.items()}
    return [shape(child) for child in value] if isinstance(value, list) else "" if isinstance(value, str) else value


@pytest.mark.slow
@given(JSON)
@settings(max_examples=200)
def test_a_masked_json_value_keeps_its_shape(value: Any) -> None:
    clean = masked(value)
    assert shape(clean) == shape(value)
    assert keys.seen(json.dumps(clean, ensure_ascii=False)) == []
    assert masked(clean) == clean


def test_a_value_is_masked_by_the_name_of_its_key() -> None:
    found = masked({"db": {"password": "hun" + "ter22"}, "tokens": ["a"], "auth": "required"})
    assert found == {"db": {"password": "[masked: password]"}, "tokens": ["a"], "auth": "required"}


@pytest.mark.slow
def test_a_deep_value_is_masked_without_recursion() -> None:
    value: Any = "password=" + "hun" + "ter22x"
    for _ in range(100_000):
        value = [value]
    clean = masked(value)
    while isinstance(clean, list):
        (clean,) = clean
    assert clean == "password=[masked: password]"


def test_what_identifies_is_not_mangled(scene: Scene) -> None:
    """Commits, digests, identifiers, slips and images carry meaning, and come through injection and `--json`."""
    digest = hashlib.sha256(b"x").hexdigest()
    kept = [
        *(hashlib.sha1(b"x").hexdigest(), digest, f"blob://sha256/{digest}", f"Loom slip {digest[:16]}"),
        *("toolu_01A09q90qw90lq917835lq9", "msg_01XFDUDYJgAACzvnptvVoYEL", "2026-11-22T01:26:46Z"),
        f"sha256-{base64.b64encode(hashlib.sha256(b'y').digest()).decode()}",
        str(uuid.UUID(int=2**127 + 12345)),
        "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 3).decode(),
    ]
    scene.write("spec.md", "\n".join(kept))
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    state = scene.edit(context={"kept": kept, "commit": kept[0]})
    given = inside.hook(scene, "session-start", source="startup").context
    assert [one for one in kept if one not in given] == []
    shown = inside.loomctl(scene, "show", "--json").json["state"]
    assert shown["context"] == state["context"]
    assert shown["ledger_head"]["sha256"] == scene.state["ledger_head"]["sha256"]
