"""A scripted model on loopback in the forms of its APIs: Responses, Chat Completions, and Gemini's."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Says:
    """What the model is made to answer: words, a shell command that it runs, or both.

    beside: commands that it runs in the same answer, behind the first. tokens: what the API says that it was given, for
    a client that compacts by that. status: of a refusal in its place, with these words. seconds: before it answers.
    """

    words: str = ""
    shell: str = ""
    tokens: int = 0
    beside: tuple[str, ...] = ()
    status: int = 200
    seconds: float = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived. kind: main, of the conversation itself; else what the client's `kind` calls it."""

    kind: str
    body: dict[str, Any]

    def seen(self) -> str:
        """Give every text that the model could read, in the order in which it stands there."""
        told = {key: value for key, value in self.body.items() if key not in ("tools", "metadata")}
        return "\n".join(_texts(told))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for held in value.values():
            yield from _texts(held)
    elif isinstance(value, list):
        for held in value:
            yield from _texts(held)


class ScriptedModel:
    """Answers the conversation from a script, other requests by their kind, and keeps all of them.

    kind: tells what a request is for, by its body; shell: gives the name and the arguments of the client's shell tool
    for a command. A request of the conversation beyond the script is answered "OK".
    """

    def __init__(
        self, kind: Callable[[dict[str, Any]], str], shell: Callable[[str], tuple[str, dict[str, Any]]]
    ) -> None:
        self.requests: list[Asked] = []
        self.answers: dict[str, Says] = {}
        self._kind, self._shell = kind, shell
        self._script: list[Says] = []
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, answers: Sequence[Says | str]) -> None:
        """Set the answers to the conversation's next requests."""
        with self._lock:
            self._script = [Says(given) if isinstance(given, str) else given for given in answers]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def choose(self, body: dict[str, Any]) -> Says:
        """Keep a request and give what answers it."""
        with self._lock:
            asked = Asked(self._kind(body), body)
            self.requests.append(asked)
            if asked.kind != "main":
                return self.answers.get(asked.kind, Says("A short text."))
            return self._script.pop(0) if self._script else Says("OK")

    def calls(self, chosen: Says) -> list[tuple[str, dict[str, Any]]]:
        """Give the tools that an answer calls, each with its arguments."""
        return [self._shell(command) for command in (chosen.shell, *chosen.beside) if command]

    def counted(self, body: dict[str, Any], chosen: Says) -> int:
        return chosen.tokens or max(1, len(json.dumps(body)) // 4)


def _responses(model: ScriptedModel, body: dict[str, Any], chosen: Says) -> Iterator[tuple[str, Any]]:
    given, output = model.counted(body, chosen), list[dict[str, Any]]()
    if chosen.words:
        part = {"type": "output_text", "text": chosen.words, "annotations": []}
        output.append({"type": "message", "role": "assistant", "content": [part]})
    for name, arguments in model.calls(chosen):
        output.append({"type": "function_call", "call_id": f"call_{next(_numbers)}", "name": name})
        output[-1]["arguments"] = json.dumps(arguments)
    for item in output:
        item |= {"id": f"item_{next(_numbers)}", "status": "completed"}
    usage: dict[str, Any] = {"input_tokens": given, "output_tokens": 10, "total_tokens": given + 10}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": f"resp_{next(_numbers)}", "object": "response", "status": "completed", "model": body.get("model")}
    yield "response.created", {"response": {**whole, "output": [], "usage": None}}
    for index, item in enumerate(output):
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield "response.output_item.added", {"output_index": index, "item": item}
        if item["type"] == "message":
            yield "response.output_text.delta", {**at, "delta": item["content"][0]["text"]}
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": {**whole, "output": output, "usage": usage}}


def _chat(model: ScriptedModel, body: dict[str, Any], chosen: Says) -> tuple[dict[str, Any], str, dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": chosen.words or None}
    calls, given = model.calls(chosen), model.counted(body, chosen)
    for index, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": index, "id": f"call_{next(_numbers)}", "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(call)
    usage = {"prompt_tokens": given, "completion_tokens": 10, "total_tokens": given + 10}
    return message, "tool_calls" if calls else "stop", usage


def _gemini(model: ScriptedModel, body: dict[str, Any], chosen: Says) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": chosen.words}] if chosen.words else []
    parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in model.calls(chosen)]
    given = model.counted(body, chosen)
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": given, "candidatesTokenCount": 10, "totalTokenCount": given + 10}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that is ended in the middle of an answer is no error of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        """Name the one model that there is."""
        self._json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        """Answer a request for a message, as a stream if that is asked for; anything else with 404."""
        model, route = self.server.model, self.path.partition("?")[0]
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if route.endswith("/responses"):
            chosen = model.choose(body)
            time.sleep(chosen.seconds)
            if chosen.status != 200:
                kind = "insufficient_quota" if chosen.status == 429 else "invalid_request_error"
                self._json(chosen.status, {"error": {"message": chosen.words, "type": kind, "code": kind}})
                return
            events = _responses(model, body, chosen)
            self._stream(
                [(name, {"type": name, "sequence_number": n, **data}) for n, (name, data) in enumerate(events)]
            )
        elif route.endswith("/chat/completions"):
            self._chat(body, _chat(model, body, model.choose(body)))
        elif route.endswith(":countTokens"):
            self._json(200, {"totalTokens": max(1, len(json.dumps(body)) // 4)})
        elif route.endswith(":generateContent"):
            self._json(200, _gemini(model, body, model.choose(body)))
        elif route.endswith(":streamGenerateContent"):
            self._stream([("", _gemini(model, body, model.choose(body)))])
        else:
            self._json(404, {"error": {"message": f"not scripted: {route}", "code": 404}})

    def _chat(self, body: dict[str, Any], answer: tuple[dict[str, Any], str, dict[str, Any]]) -> None:
        message, ends, usage = answer
        head: dict[str, Any] = {"id": f"chat_{next(_numbers)}", "created": 0, "model": body.get("model")}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": ends}
            self._json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        head["object"] = "chat.completion.chunk"
        choices: list[dict[str, Any]] = [
            {"index": 0, "delta": message, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": ends},
        ]
        chunks = [*({**head, "choices": [choice]} for choice in choices), {**head, "choices": [], "usage": usage}]
        self._stream([*(("", chunk) for chunk in chunks), ("", "[DONE]")])

    def _stream(self, events: Sequence[tuple[str, Any]]) -> None:
        lines = [
            (f"event: {name}\n" if name else "") + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
            for name, data in events
        ]
        self._send(200, "text/event-stream", "".join(lines).encode())

    def _json(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
