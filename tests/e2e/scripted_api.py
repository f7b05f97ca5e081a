"""A scripted Messages API on loopback, which the assistant under test talks to instead of a model."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

_numbers = itertools.count(1)
_PATIENCE = 30  # seconds that an answer is kept back at most

AUTO_COMPACT = {"input_tokens": 990_000}
"""A usage that makes the assistant compact by itself before its next request."""


def text(words: str) -> dict[str, Any]:
    """One text block of an answer."""
    return {"type": "text", "text": words}


def tool(name: str, **tool_input: Any) -> dict[str, Any]:
    """One tool call of an answer."""
    return {"type": "tool_use", "id": f"toolu_scripted{next(_numbers):06d}", "name": name, "input": tool_input}


def bash(command: str) -> dict[str, Any]:
    """The tool call that tests need most: a shell command."""
    return tool("Bash", command=command)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model is made to answer; usage is merged over a plausible default.

    held: the answer is kept back until this is set, so that a session is alive while a test does something else.
    """

    content: tuple[dict[str, Any], ...]
    usage: dict[str, int] = field(default_factory=dict)
    held: threading.Event | None = None


def reply(
    *content: dict[str, Any] | str, usage: dict[str, int] | None = None, held: threading.Event | None = None
) -> Reply:
    """Build an answer out of blocks; a plain string is a text block."""
    return Reply(tuple(text(block) if isinstance(block, str) else block for block in content), usage or {}, held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it arrived. kind: main (the conversation), compaction, side, count_tokens, other."""

    kind: str
    path: str
    body: dict[str, Any]

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

    def system(self) -> str:
        """Give the system prompt, in which skills and commands may be listed."""
        system = self.body.get("system", "")
        return system if isinstance(system, str) else "\n".join(block.get("text", "") for block in system)

    def tool_results(self) -> list[ToolResult]:
        """Give the results of tool calls that this request carries, in order."""
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
    """Give one content block as text."""
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
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The base address, always loopback."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *replies: Reply | str) -> None:
        """Set the answers to the conversation's next requests."""
        with self._lock:
            self._script = [reply(given) if isinstance(given, str) else given for given in replies]

    def __enter__(self) -> ScriptedApi:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Record a request; give the HTTP status and the answer's JSON."""
        with self._lock:
            request = Request(kind=_kind(path, body), path=path, body=body)
            self.requests.append(request)
            if request.kind == "count_tokens":
                return 200, {"input_tokens": _tokens(body)}
            if request.kind == "other":
                return 404, {"type": "error", "error": {"type": "not_found_error", "message": path}}
            chosen = self._next(request)
        if chosen.held is not None:
            chosen.held.wait(timeout=_PATIENCE)
        return 200, _message(body, chosen)

    def _next(self, request: Request) -> Reply:
        """Choose the answer to a request for a message."""
        if request.kind == "compaction":
            return reply(f"<analysis>scripted</analysis><summary>{self.summary}</summary>")
        if request.kind == "main" and self._script:
            return self._script.pop(0)
        if request.kind == "main":
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


def _tokens(body: dict[str, Any]) -> int:
    """Give a plausible count of tokens."""
    return max(1, len(json.dumps(body)) // 4)


def _message(body: dict[str, Any], answer: Reply) -> dict[str, Any]:
    """Give the JSON of an assistant message."""
    calls_a_tool = any(block["type"] == "tool_use" for block in answer.content)
    usage = {
        "input_tokens": _tokens(body),
        "output_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    return {
        "id": f"msg_scripted{next(_numbers):06d}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "scripted"),
        "content": list(answer.content),
        "stop_reason": "tool_use" if calls_a_tool else "end_turn",
        "stop_sequence": None,
        "usage": {**usage, **answer.usage},
    }


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Give a message as the events of a stream."""
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


class _Server(ThreadingHTTPServer):
    """The HTTP server of one api, on a free port of loopback."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, api: ScriptedApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: an assistant that is ended in the middle of an answer is no error of the test."""


class _Handler(BaseHTTPRequestHandler):
    """Turns HTTP into calls of ScriptedApi.answer."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""

    def do_HEAD(self) -> None:
        """Answer the assistant's look whether anybody is there."""
        self._send(200, "application/json", b"")

    def do_GET(self) -> None:
        """Answer what is not part of the API with 404, and keep it for the tests."""
        status, answer = self.server.api.answer(self.path, {})
        self._send(status, "application/json", json.dumps(answer).encode())

    def do_POST(self) -> None:
        """Answer a request for a message, as a stream if that is asked for."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        status, answer = self.server.api.answer(self.path, body)
        if status == 200 and body.get("stream"):
            stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(answer))
            self._send(status, "text/event-stream", stream.encode())
        else:
            self._send(status, "application/json", json.dumps(answer).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        """Write one whole answer."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("request-id", f"req_scripted{next(_numbers):06d}")
        if status != 200:
            self.send_header("x-should-retry", "false")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
