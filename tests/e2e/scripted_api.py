"""A scripted Messages API on loopback, which the assistant under test talks to instead of a model."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Held = threading.Event | threading.Barrier


_numbers = itertools.count(1)
_FOR_GOOD = {"x-should-retry": "false"}
_PATIENCE = 30  # seconds that an answer is kept back at most

_NONE: Mapping[str, str] = {}
_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}

AUTO_COMPACT = {"input_tokens": 990_000}
"""A usage that makes the assistant compact by itself before its next request."""


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(name: str, **tool_input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_scripted{next(_numbers):06d}", "name": name, "input": tool_input}


def bash(command: str) -> dict[str, Any]:
    return tool("Bash", command=command)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model is made to answer; usage is merged over a plausible default.

    held: the answer is kept back until this is set, so that a session is alive while a test does something else; at a
    barrier it waits for the answers of other conversations, which are under way at the same time then.
    frees: set as the answer is given. status: of an answer that is an error; sticks: as is every other one behind the
    same tool call then. headers: of the answer. stops: it stops so many events after its beginning, and the connection
    stays; 0: nothing is answered at all.
    """

    content: tuple[dict[str, Any], ...]
    usage: dict[str, int] = field(default_factory=dict)
    held: Held | None = None
    frees: threading.Event | None = None
    status: int = 200
    sticks: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    stops: int | None = None


def reply(
    *content: dict[str, Any] | str,
    usage: dict[str, int] | None = None,
    held: Held | None = None,
    frees: threading.Event | None = None,
) -> Reply:
    """Build an answer out of blocks; a plain string is a text block."""
    blocks = tuple(text(block) if isinstance(block, str) else block for block in content)
    return Reply(blocks, usage or {}, held, frees)


def refused(status: int = 400) -> Reply:
    """An answer that is an error; behind a tool call, for the assistant asks again in other words."""
    return Reply((), status=status, sticks=True, headers=_FOR_GOOD)


def failing(status: int, **headers: str) -> Reply:
    """One answer that is an error; the next request gets the next answer.

    headers: `retry_after` is `retry-after`; `now+5` in one is the time five seconds later, in seconds since 1970.
    """
    return Reply((), status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def stopping(events: int = 0) -> Reply:
    """An answer that stops after so many events of its stream, and keeps the connection."""
    return Reply((text("I shall tell you at once"),), stops=events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it arrived. kind: main (the conversation), subagent, compaction, side, count_tokens, other.

    at: when, in seconds since 1970.
    """

    kind: str
    path: str
    body: dict[str, Any]
    at: float = field(default_factory=time.time)

    def pieces(self) -> list[tuple[str, str]]:
        """Give (role, text) of every block of every message, tool calls as their input's JSON."""
        found: list[tuple[str, str]] = []
        for message in self.body.get("messages", []):
            content = message["content"]
            blocks = [text(content)] if isinstance(content, str) else content
            found.extend((message["role"], _words(block)) for block in blocks)
        return found

    def seen(self) -> str:
        """Give all that the model could read in the messages (hook text may stand in any role)."""
        return "\n".join(words for _, words in self.pieces())

    def opening(self) -> str:
        """Give the first message, in which a subagent is told its task."""
        return Request(kind="", path="", body={"messages": self.body.get("messages", [])[:1]}).seen()

    def system(self) -> str:
        system = self.body.get("system", "")
        return system if isinstance(system, str) else "\n".join(block.get("text", "") for block in system)

    def news(self) -> str:
        """Give what the model was told since it last said something."""
        pieces = self.pieces()
        said = [at for at, (role, _) in enumerate(pieces) if role == "assistant"]
        return "\n".join(words for _, words in pieces[max(said, default=-1) + 1 :])

    def last_call(self) -> str:
        """Give the id of the last tool call; "" where there is none yet."""
        contents = [message["content"] for message in self.body.get("messages", [])]
        blocks = [block for content in contents if not isinstance(content, str) for block in content]
        return next((str(block["id"]) for block in reversed(blocks) if block["type"] == "tool_use"), "")

    def tool_results(self) -> list[ToolResult]:
        return [
            ToolResult(_words(block), bool(block.get("is_error")))
            for message in self.body.get("messages", [])
            if not isinstance(message["content"], str)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one tool call as the model sees it."""

    text: str
    is_error: bool


def _words(block: dict[str, Any]) -> str:
    if block["type"] == "text":
        return str(block["text"])
    if block["type"] == "tool_use":
        return json.dumps(block["input"], ensure_ascii=False)
    if block["type"] == "tool_result":
        content = block.get("content") or ""
        return content if isinstance(content, str) else "\n".join(_words(part) for part in content)
    return f"[{block['type']}]"


class ScriptedApi:
    """Answers the conversation from a script, and a request for a summary with `summary`; keeps all requests.

    A conversation's request beyond the script is answered "OK" and counted in `unscripted`.
    """

    def __init__(self, *, summary: str = "The user and the assistant worked on something.") -> None:
        self.summary = summary
        self.requests: list[Request] = []
        self.unscripted = 0
        self._script: list[Reply] = []
        self._reactions: dict[str, Reply] = {}
        self._subagents: dict[str, list[Reply]] = {}
        self._refused: set[str] = set()
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *replies: Reply | str) -> None:
        """Set the answers to the conversation's next requests."""
        with self._lock:
            self._script = [reply(given) if isinstance(given, str) else given for given in replies]

    def react(self, told: str, answer: Reply | str) -> None:
        """Set the answer to every request of the conversation, behind its script, whose news hold these words.

        Where several fit, the first that was set is given.
        """
        with self._lock:
            self._reactions[told] = reply(answer) if isinstance(answer, str) else answer

    def script_subagent(self, task: str, *replies: Reply | str) -> None:
        """Set the answers to the next requests of the conversations that open with a task (words of it will do)."""
        with self._lock:
            self._subagents[task] = [reply(given) if isinstance(given, str) else given for given in replies]

    def asked_by(self, task: str) -> list[Request]:
        """Give the requests of the conversations that opened with a task."""
        return [request for request in self.requests if request.kind == "subagent" and task in request.opening()]

    def __enter__(self) -> ScriptedApi:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[Reply, dict[str, Any]]:
        """Give the answer, of which what is no message has a status and headers alone, and its body."""
        with self._lock:
            request = Request(kind=_kind(path, body), path=path, body=body)
            task = next((task for task in self._subagents if task in request.opening()), None)
            if task is not None and request.kind == "main":
                request = replace(request, kind="subagent")
            self.requests.append(request)
            if request.kind == "count_tokens":
                return Reply(()), {"input_tokens": _tokens(body)}
            if request.kind == "other":
                return failing(404), {"type": "error", "error": {"type": "not_found_error", "message": path}}
            chosen = self._next(request, task)
        if chosen.held is not None:
            chosen.held.wait(timeout=_PATIENCE)
        if chosen.frees is not None:
            chosen.frees.set()
        if chosen.status != 200:
            said = {"type": _ERRORS.get(chosen.status, "api_error"), "message": "scripted to fail"}
            return chosen, {"type": "error", "error": said}
        return chosen, _message(body, chosen)

    def _next(self, request: Request, task: str | None) -> Reply:
        """Choose the answer to a request for a message. task: by which a subagent's script is found."""
        if request.kind == "compaction":
            return reply(f"<analysis>scripted</analysis><summary>{self.summary}</summary>")
        call = request.last_call()
        if call in self._refused:
            return refused()
        chosen = self._scripted(request, task)
        if chosen.sticks:
            self._refused.add(call)
        return chosen

    def _scripted(self, request: Request, task: str | None) -> Reply:
        """Choose the answer to a request of a conversation."""
        if request.kind == "main" and self._script:
            return self._script.pop(0)
        reaction = next((answer for told, answer in self._reactions.items() if told in request.news()), None)
        if request.kind == "main" and reaction is not None:
            return replace(reaction, content=tuple(map(_anew, reaction.content)))
        if request.kind == "subagent" and self._subagents[str(task)]:
            return self._subagents[str(task)].pop(0)
        if request.kind in ("main", "subagent"):
            self.unscripted += 1
        return reply("OK")


def _kind(path: str, body: dict[str, Any]) -> str:
    """Tell what a request is for."""
    route = path.partition("?")[0]
    if route.endswith("/count_tokens"):
        return "count_tokens"
    if route != "/v1/messages":
        return "other"
    last = Request(kind="", path=path, body=body).pieces()[-3:]
    if any("Respond with TEXT ONLY" in words and "<summary>" in words for _, words in last):
        return "compaction"
    return "main" if body.get("tools") else "side"


def _anew(block: dict[str, Any]) -> dict[str, Any]:
    return tool(block["name"], **block["input"]) if block["type"] == "tool_use" else block


def _tokens(body: dict[str, Any]) -> int:
    return max(1, len(json.dumps(body)) // 4)


def _message(body: dict[str, Any], answer: Reply) -> dict[str, Any]:
    calls_a_tool = any(block["type"] == "tool_use" for block in answer.content)
    usage = {
        "input_tokens": _tokens(body),
        "output_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    return {
        "id": f"msg_scripted{next(_numbers):06d}", "type": "message", "role": "assistant",
        "model": body.get("model", "scripted"), "content": list(answer.content),
        "stop_reason": "tool_use" if calls_a_tool else "end_turn", "stop_sequence": None,
        "usage": {**usage, **answer.usage},
    }  # fmt: skip


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    usage = message["usage"]
    opening = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": opening}]
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = text(""), {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    closing = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": closing, "usage": {"output_tokens": usage["output_tokens"]}})
    events.append({"type": "message_stop"})
    return events


def _stream(events: list[dict[str, Any]]) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, api: ScriptedApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: an assistant that is ended in the middle of an answer is no error of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""

    def do_HEAD(self) -> None:
        self._send(200, "application/json", b"")

    def do_GET(self) -> None:
        """Answer what is not part of the API with 404, and keep it for the tests."""
        chosen, answer = self.server.api.answer(self.path, {})
        self._send(chosen.status, "application/json", json.dumps(answer).encode())

    def do_POST(self) -> None:
        """Answer a request for a message, as a stream if that is asked for."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        chosen, answer = self.server.api.answer(self.path, body)
        if chosen.status == 200 and chosen.stops is not None:
            self._stop(_events(answer)[: chosen.stops])
        elif chosen.status == 200 and body.get("stream"):
            self._send(200, "text/event-stream", _stream(_events(answer)), chosen.headers)
        else:
            self._send(chosen.status, "application/json", json.dumps(answer).encode(), chosen.headers)

    def _send(self, status: int, kind: str, data: bytes, headers: Mapping[str, str] = _NONE) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("request-id", f"req_scripted{next(_numbers):06d}")
        for name, value in headers.items():
            plain, _, later = value.partition("now+")
            self.send_header(name, f"{plain}{int(time.time()) + int(later)}" if later else value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stop(self, events: list[dict[str, Any]]) -> None:
        """Give the beginning of a stream, if any, and then nothing until the other side goes."""
        if events:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(_stream(events))
        self.close_connection = True
        self.connection.settimeout(_PATIENCE)
        with contextlib.suppress(OSError):
            self.rfile.read(1)
