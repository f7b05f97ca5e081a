"""The live board: a real server at a real socket, which gives one page to whoever has its address, and no more."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loomctl.fleet import page
from loomctl.fleet.board import gather
from loomctl.fleet.model import WAITS
from loomctl.fleet.serve import Server
from loomctl.kit.errors import LoomError
from tests.fleet import boards
from tests.helpers.browser import Browser
from tests.helpers.scenes import MAIN, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds
from tests.helpers.waiting import until


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server(lambda: "<!doctype html><p>board</p>")) as one:
        yield one


def asked(server: Server, method: str = "GET", path: str | None = None, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, server.path.decode() if path is None else path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def raw(server: Server, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_who_has_the_address_gets_the_page_and_its_headers(server: Server) -> None:
    answer = asked(server)
    assert (answer.status, answer.read()) == (200, b"<!doctype html><p>board</p>")
    holds(
        dict(answer.getheaders()), "Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options",
        "Referrer-Policy", "Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy", but=("Set-Cookie", "Location"),
    )  # fmt: skip
    holds(answer.headers["Content-Security-Policy"], "frame-ancestors 'none'", "default-src 'none'")
    assert (answer.headers["Cache-Control"], answer.headers["Server"]) == ("no-store", "loomctl")
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.path) > 32


def test_a_head_is_the_same_without_the_page(server: Server) -> None:
    answer = asked(server, "HEAD")
    assert (answer.status, answer.headers["Content-Length"], answer.read()) == (200, "27", b"")


@each(
    "path", ["/", "", "/index.html", "/../../etc/passwd", "/TOKEN", "/TOKEN/x", "/TOKEN/?x=1", "/token/", "//TOKEN/x"]
)
def test_at_every_other_address_there_is_nothing(server: Server, path: str) -> None:
    token = server.path.decode().strip("/")
    answer = asked(server, path=path.replace("TOKEN", token).replace("token", token.swapcase()))
    body = answer.read()
    assert (answer.status, body) == (404, b"Not Found\n")


@each("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "X" * 40])
def test_nothing_but_reading_is_allowed(server: Server, method: str) -> None:
    answer = asked(server, method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert answer.read() == b"Method Not Allowed\n"


@each(("host", "status"), [
    ("127.0.0.1:PORT", 200), ("localhost:PORT", 200), ("evil.example:PORT", 421), ("127.0.0.1", 421), ("", 421),
    ("127.0.0.1:1", 421), ("127.0.0.1.evil.example:PORT", 421),
])  # fmt: skip
def test_a_name_that_another_site_leads_here_is_refused(server: Server, host: str, status: int) -> None:
    assert asked(server, Host=host.replace("PORT", str(server.server_port))).status == status


def test_a_request_without_a_host_or_with_two_is_refused(server: Server) -> None:
    line = b"GET %s HTTP/1.1\r\n" % server.path
    own = b"Host: 127.0.0.1:%d\r\n" % server.server_port
    assert raw(server, line + b"\r\n").startswith(b"HTTP/1.0 421 ")
    assert raw(server, line + own + b"Host: evil.example\r\n\r\n").startswith(b"HTTP/1.0 421 ")


@each(
    "data",
    [b"", b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"G" * 70_000, b"GET /\xff\x1b[31m\r\n\r\n"],
)
def test_what_is_no_request_does_not_end_it(server: Server, data: bytes) -> None:
    said = raw(server, data)
    holds(said, but=(b"Traceback", b"\x1b", b"Python", b"<!doctype"))
    assert asked(server).status == 200


def test_a_reader_who_says_nothing_does_not_keep_others_waiting(server: Server) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(20)]
    assert asked(server).status == 200
    for one in idle:
        one.close()


def test_many_readers_ask_the_queue_once_and_one_at_a_time() -> None:
    drawn, inside = [], threading.Lock()

    def draw() -> str:
        assert inside.acquire(blocking=False)
        drawn.append(1)
        inside.release()
        return "board"

    with serving(Server(draw)) as server:
        answers: list[int] = []
        readers = [threading.Thread(target=lambda: answers.append(asked(server).status)) for _ in range(20)]
        for one in readers:
            one.start()
        for one in readers:
            one.join()
        server._until = float("inf")
        before = len(drawn)
        assert asked(server).status == 200
        assert (answers, len(drawn)) == ([200] * 20, before)


def test_a_queue_that_is_gone_is_said_and_may_come_back() -> None:
    gone = [True]

    def draw() -> str:
        if gone.pop() if gone else False:
            raise LoomError("QUEUE_GONE", "gone", hint="loomctl fleet")
        return "board"

    with serving(Server(draw)) as server:
        assert (asked(server).status, asked(server).status) == (503, 200)


def test_a_port_that_is_taken_is_said(server: Server) -> None:
    with pytest.raises(LoomError, match="cannot be listened at") as refused:
        Server(lambda: "", server.server_port)
    assert refused.value.code == "PORT_TAKEN"


# ---- The command, and a browser.


@contextmanager
def command(scene: Scene) -> Iterator[str]:
    child = subprocess.Popen(
        [sys.executable, "-I", str(MAIN), "fleet", "board"], cwd=scene.root, env=scene.environ(None),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield child.stdout.readline().strip()
    finally:
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        assert (child.returncode, "Traceback" in errors) == (0, False), errors


def test_the_command_prints_the_address_serves_the_board_and_ends_with_an_interrupt(scene: Scene) -> None:
    boards.every_kind(boards.fleet(scene), boards.HOSTILE)
    with command(scene) as url:
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]+/)", url)
        assert found
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        connection.request("GET", found[2])
        answer = connection.getresponse()
        told = answer.read().decode()
        assert answer.status == 200
        holds(told, "Waiting for you", "loomctl trust w-2", but=(boards.SECRET, "\x1b", "<img"))
        connection.close()


WAITING = "document.querySelectorAll('#waits li').length"


@pytest.mark.slow
def test_a_page_follows_the_fleet_and_keeps_focus_and_place(scene: Scene, browser_of_its_own: Browser) -> None:
    browser, queue = browser_of_its_own, boards.fleet(scene)
    boards.every_kind(queue, boards.HOSTILE)
    with serving(Server(lambda: page.made(gather(queue), "shop", live=True))) as server:
        browser.show(1440)
        browser("Page.navigate", url=server.url)
        until(lambda: browser.tell(f"document.readyState === 'complete' && {WAITING} === 2"), "the page has loaded")
        for _ in range(6):
            browser.press("Tab")
        browser.tell("scrollTo({top: 300, behavior: 'instant'})")
        focus = "document.activeElement.textContent || document.activeElement.tagName"
        held, top = browser.tell(focus), browser.tell("scrollY")
        assert held != "BODY"
        queue.offer([boards.row(queue, "w-9", state=WAITS, kind="approval", command="loomctl approve w-9")])
        until(lambda: browser.tell(WAITING) == 3, "the page shows what came")
        assert (browser.tell(focus), browser.tell("scrollY"), browser.tell("document.title")) == (
            held, top, "(3) Fleet of shop",
        )  # fmt: skip
        assert browser.complaints == []
        assert browser.tell("window.hit") is None
    until(lambda: "not live" in browser.tell("document.getElementById('pulse').textContent"), "the page says so")


@pytest.fixture
def browser_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one
