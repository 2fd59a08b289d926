"""A TCP proxy in threads: what every proxy of the tests does, whatever it is that it does to connections.

It listens as soon as it is made and passes everything on to `target`, which is to be set before the first
client comes. Subclasses say how a client is greeted, and how much of what is sent may pass.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_CHUNK = 64 * 1024
_CONNECT_SECONDS = 10
_JOIN_SECONDS = 10
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Rule = Callable[[bytes, bool], int]
"""How many of these bytes may pass; when it is not all of them, both sides get a reset. The flag says whether
they are on their way to the broker."""


class Proxy:
    """Clients may come at once: a subclass calls this constructor when it has what it needs for them."""

    def __init__(self) -> None:
        self.target = ("127.0.0.1", 0)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._is_over = False
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._run(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A thread that waits in accept does not notice a close; a shutdown wakes it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._is_over = True
            for sock in self._open:
                _shut(sock)
        for thread in list(self._threads):
            thread.join(_JOIN_SECONDS)
            assert not thread.is_alive()
        for sock in self._open:
            sock.close()

    def greeted(self, arrived: socket.socket) -> socket.socket:
        """The socket to speak to a client by. An OSError turns it away."""
        return arrived

    def rule(self) -> Rule:
        """For a new connection, both ways together."""
        return lambda chunk, _: len(chunk)

    # -- threads ---------------------------------------------------------------------------------------

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._run(self._serve, self._kept(self._listener.accept()[0]), self.rule())

    def _kept(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._open.append(sock)
            if self._is_over:  # it came while the others were shut
                _shut(sock)
        return sock

    def _serve(self, arrived: socket.socket, rule: Rule) -> None:
        try:
            client = self._kept(self.greeted(arrived))
            server = self._kept(socket.create_connection(self.target, _CONNECT_SECONDS))
        except OSError:
            _shut(arrived)
            return
        server.settimeout(None)
        self._run(_carry, server, client, rule, False)
        _carry(client, server, rule, True)


def _carry(source: socket.socket, sink: socket.socket, rule: Rule, to_broker: bool) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK):
            passing = rule(chunk, to_broker)
            sink.sendall(chunk[:passing])
            if passing < len(chunk):
                _reset(source)
                _reset(sink)
                return
    _shut(source)
    _shut(sink)


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    _shut(sock)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
