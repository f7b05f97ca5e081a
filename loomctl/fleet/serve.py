"""The board, served to this machine's own browser: read alone, and by whoever has the address (D78)."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING

from loomctl.fleet import page
from loomctl.kit.errors import EXIT_SETUP, LoomError

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")  # by which a browser may call it: another name is another site's that leads here
_TOKEN = 24  # random bytes
_FRESH = 1.0  # seconds for which a page is given again, so that many readers ask the queue once
_PATIENCE = 10.0  # seconds that a request may take to arrive
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """Serves one page. draw: makes it anew; it may raise LoomError, and is never called twice at once.

    port: 0 for any that is free. Raises PORT_TAKEN.
    """

    daemon_threads = True
    request_queue_size = 128  # all that come at once wait; of more than these some would be sent away
    allow_reuse_address = True  # a port that nobody listens at any more

    def __init__(self, draw: Callable[[], str], port: int = 0) -> None:
        self._draw, self._lock = draw, threading.Lock()
        self._page, self._until = b"", 0.0
        self.path = f"/{secrets.token_urlsafe(_TOKEN)}/".encode()
        try:
            super().__init__((HOST, port), _Answer)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", "") or str(error)
            what, hint = f"port {port} cannot be listened at", "loomctl fleet board"
            raise LoomError("PORT_TAKEN", what, why=why, hint=hint, exit_code=EXIT_SETUP) from error
        names = (f"{name}:{self.server_port}" for name in _NAMES)
        self.names = {*names, *(_NAMES if self.server_port == 80 else ())}

    @property
    def url(self) -> str:
        """Give the one address at which there is anything."""
        return f"http://{HOST}:{self.server_port}{self.path.decode()}"

    def page(self) -> bytes:
        """Give the page, at most a second old. Raises LoomError."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._page = self._draw().encode("utf-8", "backslashreplace")
                self._until = time.monotonic() + _FRESH
            return self._page

    def server_bind(self) -> None:
        """Bind as any server does: http.server would ask for this machine's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a reader who goes away."""


class _Answer(BaseHTTPRequestHandler):
    server: Server
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Give the page."""
        # Whoever knows the token is told the rest of what is wrong; everybody else finds nothing here.
        if not hmac.compare_digest(self.path.encode("utf-8", "surrogateescape"), self.server.path):
            return self.send_error(HTTPStatus.NOT_FOUND)
        if self.headers.get_all("Host") not in [[name] for name in self.server.names]:
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        try:
            made = self.server.page()
        except LoomError as error:
            return self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, error.code)
        return self._give(HTTPStatus.OK, made, "text/html")

    do_HEAD = do_GET  # noqa: N815 - likewise

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer with a status and its name, and nothing of what was asked."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:  # how http.server refuses a method
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self._give(status, f"{status.phrase}\n".encode(), "text/plain")

    def _give(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        own = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        policy = page.policy(live=True) if status is HTTPStatus.OK else "default-src 'none'"
        own["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            own["Allow"] = "GET, HEAD"
        for name, value in {**own, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Give no versions away."""
        return "loomctl"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server calls it
        """Log nothing: the address is a key."""
