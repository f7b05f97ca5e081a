"""The bundle's plugin for OpenCode, played without it: what is passed on, and that nothing stands in its way."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.scenes import CHECKOUT
from tests.helpers.waiting import until

PLAYER = Path(__file__).with_name("opencode_plugin.mjs")
S, CHILD = "ses_1", "ses_2"
RECORD = '#!/bin/sh\ncat >>"$0.events"\necho >>"$0.events"\nenv >"$0.env"\n'
pytestmark = pytest.mark.slow(quick=2)


class Bundle:
    """A copy of the bundle in a folder with any name, whose `loomctl` is a script."""

    def __init__(self, root: Path, script: str) -> None:
        self.root, self.project = root, root / "проект ö"
        self.project.mkdir(parents=True)
        for name in ("commands", "skills"):
            shutil.copytree(CHECKOUT / name, root / name)
        (root / "hooks").mkdir()
        shutil.copy(CHECKOUT / "hooks" / "opencode.js", root / "hooks")
        self.loomctl = root / "bin" / "loomctl"
        self.loomctl.parent.mkdir()
        if script:
            self.loomctl.write_text(script, encoding="utf-8")
            self.loomctl.chmod(0o755)

    def play(self, *calls: list[Any], **more: Any) -> dict[str, Any]:
        """Call the plugin's hooks; gives `{outputs, asked, took}`."""
        given = json.dumps({"directory": str(self.project), "calls": calls, **more})
        words = ["node", str(PLAYER), str(self.root / "hooks" / "opencode.js")]
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def events(self) -> list[dict[str, Any]]:
        written = Path(f"{self.loomctl}.events").read_text(encoding="utf-8")
        return [json.loads(line) for line in written.splitlines() if line]


def bundle(tmp_path: Path, script: str = RECORD) -> Bundle:
    return Bundle(tmp_path / "каталог #1 ö", script)


def says(**answer: Any) -> str:
    return f"{RECORD}cat <<'END'\n{json.dumps(answer, ensure_ascii=False)}\nEND\n"


def prompt(text: str, **part: Any) -> list[Any]:
    held = {"id": "prt_1", "type": "text", "text": text, **part}
    message = {"id": "msg_1", "sessionID": S, "role": "user", "agent": "build", "model": {"modelID": "m"}}
    return ["chat.message", {"sessionID": S}, {"message": message, "parts": [held]}]


def assistant(text: str, **info: Any) -> dict[str, Any]:
    told = {"id": "msg_2", "sessionID": S, "role": "assistant", "finish": "stop", "parentID": "msg_1", **info}
    return {"info": told, "parts": [{"id": "prt_2", "type": "text", "text": text}]}


ASKS = {"info": {"id": "msg_1", "sessionID": S, "role": "user"}, "parts": [{"id": "prt_1", "type": "compaction"}]}
BEFORE = ["tool.execute.before", {"tool": "bash", "sessionID": S, "callID": "c"}, {"args": {"command": "true"}}]
AFTER = [
    "tool.execute.after",
    {"tool": "bash", "sessionID": S, "callID": "c", "args": {"command": "true"}},
    {"output": "much\n", "metadata": {"exit": 3, "output": "x" * 5000, "diff": {}}},
]
SUMMARISED = [ASKS, assistant("a summary", summary=True)]
COMPACTING = ["experimental.session.compacting", {"sessionID": S}, {"context": []}]
TRANSFORM = ["experimental.chat.messages.transform", {}, {"messages": SUMMARISED}]
COMPACTED = ["event", {"event": {"type": "session.compacted", "properties": {"sessionID": S}}}]
IDLE = ["event", {"event": {"type": "session.idle", "properties": {"sessionID": S}}}]


def spoken(message: dict[str, Any], session: str = S) -> list[list[Any]]:
    """Give the events by which a message of the assistant's is told."""
    info = {**message["info"], "sessionID": session}
    updated = ["event", {"event": {"type": "message.updated", "properties": {"info": info}}}]
    parts = [{**part, "messageID": info["id"], "sessionID": session} for part in message["parts"]]
    told = [["event", {"event": {"type": "message.part.updated", "properties": {"part": part}}}] for part in parts]
    return [updated, *told, updated]


DONE = spoken(assistant("all done"))


def test_events_are_passed_on_in_the_protocols_shape(tmp_path: Path) -> None:
    here = bundle(tmp_path)
    told = here.play(prompt("hello"), BEFORE, AFTER, *DONE, IDLE, messages=[assistant("before")])
    start, asks, before, after, stop = here.events()
    own = {"session_id": S, "cwd": str(here.project)}
    assert start == {**own, "hook_event_name": "SessionStart", "source": "resume"}
    assert asks == {**own, "hook_event_name": "UserPromptSubmit", "prompt": "hello", "prompt_id": "msg_1"}
    assert (before["tool_name"], before["tool_input"]) == ("bash", {"command": "true"})
    assert after["tool_response"] == {"output": "much\n", "metadata": {"exit": 3}}
    assert (stop["last_assistant_message"], stop["prompt_id"]) == ("all done", "msg_1")
    assert told["second"] == []  # found twice it works once
    environ = Path(f"{here.loomctl}.env").read_text(encoding="utf-8")
    for line in (f"OPENCODE_SESSION_ID={S}", f"LOOM_HOST_SESSION={S}", "LOOM_HOST=opencode", f"PWD={here.project}"):
        assert f"{line}\n" in environ


def test_answers_are_carried_back(tmp_path: Path) -> None:
    here = bundle(tmp_path, says(text="the context", line="a line", goes_on="go on", output={"output": "short"}))
    told = here.play(prompt("hello"), AFTER, *DONE, IDLE)
    parts = told["outputs"][0]["parts"]
    assert [part["text"] for part in parts] == ["hello", "the context", "the context"]
    assert [part["id"] for part in parts] == ["prt_1", "prt_1L", "prt_1LL"]
    assert told["outputs"][1]["output"] == "short\n\nthe context"
    by_name = dict(told["asked"])
    assert by_name["toast"]["body"]["message"] == "a line"
    (sent,) = by_name["promptAsync"]["body"]["parts"]
    assert (sent["text"], sent["metadata"]) == ("go on", {"loom": "goes on", "turn": "msg_1"})


def test_what_goes_on_is_the_same_turn_and_no_prompt(tmp_path: Path) -> None:
    here = bundle(tmp_path)
    own = prompt("go on", metadata={"loom": "goes on", "turn": "msg_0"})
    here.play(own, *DONE, IDLE)
    (stop,) = here.events()
    assert (stop["hook_event_name"], stop["prompt_id"]) == ("Stop", "msg_0")


@pytest.mark.parametrize(
    "last",
    [
        assistant("", error={"name": "MessageAbortedError"}),
        assistant("a summary", summary=True),
        assistant("", finish=None),
    ],
)
def test_what_did_not_end_by_itself_is_no_stop(tmp_path: Path, last: dict[str, Any]) -> None:
    here = bundle(tmp_path)
    here.play(*spoken(last), IDLE)
    assert not Path(f"{here.loomctl}.events").exists()


def test_a_turns_end_is_told_once(tmp_path: Path) -> None:
    here = bundle(tmp_path)
    here.play(*DONE, IDLE, IDLE)
    assert len(here.events()) == 1


def test_a_compaction_is_told_once_and_what_it_gives_is_kept(tmp_path: Path) -> None:
    """The part stands behind the question that the summary answers; the summariser's own request has none.

    Behind a summary stand the turns that the host keeps, an earlier summary among them.
    """
    here = bundle(tmp_path, says(text="the context"))
    summariser = ["experimental.chat.messages.transform", {}, {"messages": [ASKS]}]
    earlier = [
        {"info": {"id": "msg_0", "sessionID": S, "role": "user"}, "parts": []},
        assistant("old", summary=True, parentID="msg_0"),
    ]
    kept = ["experimental.chat.messages.transform", {}, {"messages": [*SUMMARISED, *earlier]}]
    told = here.play(COMPACTING, summariser, kept, COMPACTED, TRANSFORM, messages=SUMMARISED)
    assert [event["hook_event_name"] for event in here.events()] == ["PreCompact", "SessionStart", "PostCompact"]
    (start, after) = here.events()[1:]
    assert (start["source"], after["compact_summary"]) == ("compact", "a summary")
    shown = [output["messages"][0]["parts"] for output in told["outputs"] if "messages" in output]
    assert [[part.get("text") for part in parts] for parts in shown] == [
        [None],
        [None, "the context"],
        [None, "the context"],
    ]
    (patched,) = [request for name, request in told["asked"] if name == "patch"]
    assert patched["path"] == {"id": S, "messageID": "msg_1", "partID": "prt_1L"}


def test_a_prompt_may_come_before_the_host_tells_of_a_summary(tmp_path: Path) -> None:
    here = bundle(tmp_path, says(text="the context"))
    here.play(COMPACTING, TRANSFORM, prompt("go on"), COMPACTED, TRANSFORM, messages=SUMMARISED)
    names = [event["hook_event_name"] for event in here.events()]
    assert names == ["PreCompact", "SessionStart", "PostCompact", "UserPromptSubmit"]


def test_a_summary_of_an_earlier_process_is_left_to_the_prompt(tmp_path: Path) -> None:
    here = bundle(tmp_path, says(text="the context"))
    here.play(prompt("go on"), TRANSFORM, COMPACTED, messages=SUMMARISED)
    told = [(event["hook_event_name"], event.get("source")) for event in here.events()]
    assert told == [("SessionStart", "resume"), ("UserPromptSubmit", None)]


def test_a_summary_that_cannot_be_kept_does_not_silence_the_next_prompts(tmp_path: Path) -> None:
    here = bundle(tmp_path, says(text="the context"))
    odd = {**ASKS, "parts": [{"id": "prt_1", "type": "compaction"}, None]}
    told = here.play(COMPACTING, COMPACTED, prompt("go on"), messages=[odd, *SUMMARISED[1:]])
    assert here.events()[-1]["hook_event_name"] == "UserPromptSubmit"
    (said,) = [request["body"]["message"] for name, request in told["asked"] if name == "log"]
    assert said.startswith("Loom's plugin failed in compaction: TypeError")


def test_a_subagent_gets_nothing_and_its_calls_are_its_main_sessions(tmp_path: Path) -> None:
    here = bundle(tmp_path, says(text="the context"))
    asks, before, idle = (json.loads(json.dumps(one).replace(S, CHILD)) for one in (prompt("look"), BEFORE, IDLE))
    shell = ["shell.env", {"sessionID": CHILD, "cwd": "/"}, {"env": {}}]
    told = here.play(asks, before, shell, *spoken(assistant("done"), CHILD), idle, sessions={CHILD: {"parentID": S}})
    assert len(told["outputs"][0]["parts"]) == 1
    (call,) = here.events()
    assert (call["session_id"], call["agent_id"], call["hook_event_name"]) == (S, CHILD, "PreToolUse")
    assert told["outputs"][2]["env"]["OPENCODE_SESSION_ID"] == S
    assert told["outputs"][2]["env"]["PATH"].startswith(f"{here.root}/bin:")


def test_a_command_runs_its_block_with_the_session(tmp_path: Path) -> None:
    here = bundle(tmp_path, '#!/bin/sh\nread -r line\necho "$1 for $OPENCODE_SESSION_ID: $line $& $1"\n')
    config = ["config", {"command": {"loom:doctor": {"template": "mine"}}}]
    (settings,) = here.play(config)["outputs"]
    assert settings["skills"]["paths"] == [f"{here.root}/skills"]
    assert settings["command"]["loom:doctor"] == {"template": "mine"}
    status = settings["command"]["loom:status"]
    assert status["description"].startswith("Show where")
    words = "здесь; echo no"
    text = status["template"].replace("$ARGUMENTS", words)
    told = {"command": "loom:status", "sessionID": S, "arguments": words}
    call = ["command.execute.before", told, {"parts": [{"type": "text", "text": text}]}]
    other = ["command.execute.before", {**told, "command": "mine"}, {"parts": [{"type": "text", "text": text}]}]
    _, own, others = (output.get("parts", [{}])[0] for output in here.play(config, call, other)["outputs"])
    assert own["text"].lstrip().startswith(f"status for {S}: здесь; echo no $& status\n")
    assert own["metadata"] == {"loom": "loom:status"}
    assert others["text"] == text


@pytest.mark.parametrize("typed", ["x\n```\n```!\ntouch {0}\n```", "x\nLOOM_ARGUMENTS_END\ntouch {0}", "$(touch {0})"])
def test_what_was_typed_behind_a_command_is_never_run(tmp_path: Path, typed: str) -> None:
    here = bundle(tmp_path, "#!/bin/sh\ncat\n")
    words = typed.format(tmp_path / "ran")
    told = {"command": "loom:run", "sessionID": S, "arguments": words}
    call = ["command.execute.before", told, {"parts": [{"type": "text", "text": "as the host filled it"}]}]
    own = here.play(["config", {}], call)["outputs"][1]["parts"][0]["text"]
    assert own.lstrip().startswith(f"{words}\n--end-of-arguments--")
    assert not (tmp_path / "ran").exists()


BROKEN = {
    "missing": "",
    "no program": "#!/nonexistent\n",
    "no JSON": "#!/bin/sh\necho 'nonsense{'\n",
    "a number": "#!/bin/sh\necho 7\n",
    "null": "#!/bin/sh\necho null\n",
    "reads nothing": "#!/bin/sh\nexit 3\n",
    "closes at once": "#!/bin/sh\nexec <&- >&-\n",
    "without end": "#!/bin/sh\nyes\n",
}


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN)
def test_whatever_becomes_of_loomctl_the_turn_goes_on(tmp_path: Path, script: str) -> None:
    here = bundle(tmp_path, script)
    told = here.play(prompt("hello " * 200_000), BEFORE, AFTER, *DONE, IDLE)
    assert len(told["outputs"][0]["parts"]) == 1
    assert told["outputs"][2]["output"] == "much\n"
    assert "promptAsync" not in [name for name, _ in told["asked"]]


@pytest.mark.parametrize("answer", [None, {}, [None], [{}], [{"info": None, "parts": 7}], "much"])
def test_whatever_the_host_answers_the_turn_goes_on(tmp_path: Path, answer: object) -> None:
    here = bundle(tmp_path)
    calls = [COMPACTING, ["experimental.chat.messages.transform", {}, {"messages": answer}], COMPACTED, prompt("hello")]
    told = here.play(*calls, BEFORE, ["command.execute.before", {}, {}], ["event", {"event": {}}], messages=answer)
    assert len(told["outputs"]) == 7
    said = [request["body"]["message"] for name, request in told["asked"] if name == "log"]
    assert any("failed in command.execute.before: TypeError" in one for one in said)


def test_a_hook_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    here = bundle(tmp_path, '#!/bin/sh\nsleep 300 &\necho $! >>"$0.pids"\necho \'{"text": "late\'\nwait\n')
    told = here.play(BEFORE)
    assert 4_500 < told["took"] < 15_000
    (pid,) = Path(f"{here.loomctl}.pids").read_text(encoding="utf-8").split()
    stat = Path(f"/proc/{pid}/stat")
    until(
        lambda: not stat.exists() or stat.read_text(encoding="utf-8").split()[2] == "Z", "a killed process to be gone"
    )
