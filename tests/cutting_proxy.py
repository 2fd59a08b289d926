"""A TCP proxy that cuts connections at random points: in the middle of a frame, between a request and its
response, before the first byte.

Each connection is given a number of bytes to carry, drawn from a seeded source; when they are used up, both
sides get a reset. After `cuts` of these the proxy lets everything through, so that a test ends.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from types import TracebackType

_CHUNK = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Listens as soon as it is made; set `target` before the first client comes, and `cutting` to begin."""

    def __init__(self, *, seed: int, cuts: int, bytes_min: int, bytes_max: int) -> None:
        self.target: tuple[str, int] = ("127.0.0.1", 0)
        self.cutting = False
        self.cuts_done = 0
        self._chance = random.Random(seed)
        self._cuts_max = cuts
        self._range = (bytes_min, bytes_max)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._run(self._accept)

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing = True
        # A thread that waits in accept does not notice a close; a shutdown wakes it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._open:
                _shut(sock)
        for thread in list(self._threads):
            thread.join(10)
            assert not thread.is_alive()
        for sock in self._open:
            sock.close()

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target, timeout=10)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
            allowance = _Allowance(self._chance.randint(*self._range))
        self._run(self._pump, client, server, allowance)
        self._run(self._pump, server, client, allowance)

    def _pump(self, source: socket.socket, sink: socket.socket, allowance: _Allowance) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                allowed = allowance.take(len(data))
                if allowed < len(data) and self._may_cut():
                    sink.sendall(data[:allowed])
                    _reset(source)
                    _reset(sink)
                    return
                sink.sendall(data)
        _shut(source)
        _shut(sink)

    def _may_cut(self) -> bool:
        with self._lock:
            if not self.cutting or self.cuts_done == self._cuts_max:
                return False
            self.cuts_done += 1
            return True


class _Allowance:
    """The bytes that a connection may still carry, both ways together."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        with self._lock:
            taken = min(wanted, self._left)
            self._left -= taken
            return taken


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    _shut(sock)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
