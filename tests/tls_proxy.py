"""TLS in front of a broker that speaks in the clear: what a terminating load balancer is to its clients."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType

_CHUNK = 64 * 1024
_JOIN_SECONDS = 10


class TlsProxy:
    """Listens as soon as it is made; set `target` before the first client comes."""

    def __init__(self, certificate: Path, key: Path, *, client_authority: Path | None = None) -> None:
        self.target = ("127.0.0.1", 0)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        if client_authority is not None:
            self._context.load_verify_locations(client_authority)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def __enter__(self) -> TlsProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A thread that waits in accept does not notice a close; a shutdown wakes it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            _shut(sock)
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
            assert not thread.is_alive()
        for sock in self._open:
            sock.close()

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._run(self._serve, self._listener.accept()[0])

    def _serve(self, plain: socket.socket) -> None:
        self._open.append(plain)
        with contextlib.suppress(OSError):  # a client that does not speak TLS, or whom we do not know
            client = self._context.wrap_socket(plain, server_side=True)
            self._open.append(client)
            server = socket.create_connection(self.target)
            self._open.append(server)
            self._run(_carry, server, client)
            _carry(client, server)


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
    _shut(sink)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
