"""A line of the network to a server on this machine, which a test may cut, silence and mend."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress


def free_port() -> int:
    """Give a port of the loopback that nobody listens at, and that no outgoing connection is given by chance: whoever
    came back to it would find it taken, and whoever tried it meanwhile be connected to himself.
    """
    while True:
        port = secrets.choice(range(20_000, 32_000))
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Line:
    """Carries what goes from its own port to a server's, and back, each end in threads of its own.

    It is what one worker has of the network, while the others' lines are sound.
    """

    def __init__(self, server: int) -> None:
        self.server = server
        self.port = free_port()
        self._flows = threading.Event()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.mend()

    def mend(self) -> None:
        """Take connections, at the same port as before, and carry what they say."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._flows.set()
        self._begin(self._accept, self._listener)

    def _begin(self, work: Callable[..., None], *given: socket.socket) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.server))
                except OSError:
                    near.close()
                    continue
                self._ends += near, far
                self._begin(self._carry, near, far)
                self._begin(self._carry, far, near)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while said := source.recv(65536):
                self._flows.wait()
                target.sendall(said)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Carry nothing more, and tell nobody, until `speak` or `cut`: a cable pulled somewhere between."""
        self._flows.clear()

    def speak(self) -> None:
        """Carry what was held back, and go on."""
        self._flows.set()

    def cut(self) -> None:
        """End every connection, and refuse new ones until `mend`."""
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._flows.set()
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()
        self._ends, self._threads = [], []
