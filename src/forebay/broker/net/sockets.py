"""The socket seam: the only code of the broker that talks to the operating system's network.

A `Stream` (see `ports.py`) is a connected, non-blocking byte stream that calls back when it can be read or
written. Raw sockets on the event loop's selector are used instead of asyncio's transports and streams: those
copy every byte once more and cost more than twice the CPU on the produce and fetch path.

Linux sends files by itself (`sendfile`), and waits for more where it is told that more follows (`MSG_MORE`).
Elsewhere pieces of files are read and sent, and nothing waits. The `sendfile` of macOS and the BSDs is not
used: when a signal interrupts it, Python loses the count of sent bytes and sends them twice (decision 0051).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from forebay.broker.ports import Accepting, Address, Listening, Stream
from forebay.wire.parts import FileRange

Resolved = tuple[int, int, int, str, Any]
"""One address of a name as the system gives it: family, kind, protocol, name, address."""

_ADDRESS_S = 1.0
"""An address that does not answer within this time is passed over while the name has others."""
BACKLOG = 1024
_ACCEPTED_MAX = 64
_ACCEPT_S_MAX = 0.002
"""After this many new connections, or this time, others have their turn."""
_NO_DESCRIPTORS_S = 0.1
_HAS_SENDFILE = sys.platform == "linux" and hasattr(os, "sendfile")
_MORE_FOLLOWS: int = getattr(socket, "MSG_MORE", 0)
_PIECE_BYTES = 128 * 1024
"""Of a file, where pieces are read: about what a socket takes at once."""
_MAPPED = "::ffff:"
_NOT_OURS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def _unmapped(address: Address) -> Address:
    """Clients by IPv4 of a socket that takes both families have addresses such as ::ffff:10.0.0.1. Rules,
    quotas and limits of addresses mean the same client by 10.0.0.1."""
    host, port = address
    return (host[len(_MAPPED) :], port) if host.startswith(_MAPPED) and "." in host else (host, port)


class SocketStream:
    """A TCP connection on the running event loop."""

    __slots__ = ("_loop", "_socket", "local", "peer", "recv_into", "send")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # not every address family has it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._loop = loop
        self.peer: Address = _unmapped(sock.getpeername()[:2])
        self.local: Address = _unmapped(sock.getsockname()[:2])
        # Bound once: these are called for every read event and need no wrapper.
        self.recv_into = sock.recv_into
        self.send = sock.send

    def at_end(self) -> bool:
        """True if the client has gone, as far as can be told without reading what it sent."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def send_and_more(self, data: bytes | bytearray | memoryview) -> int:
        return self._socket.send(data, _MORE_FOLLOWS)

    if _HAS_SENDFILE:

        def send_file(self, source: FileRange) -> int:
            return os.sendfile(self._socket.fileno(), source.file.fileno(), source.position, source.length)

    else:

        def send_file(self, source: FileRange) -> int:
            piece = source.file.pread(min(source.length, _PIECE_BYTES), source.position)
            return self._socket.send(piece) if piece else 0

    # The loop is given numbers. Of a socket that is not registered it first makes an error message, with two
    # system calls for the addresses, and that is each time a connection begins to wait for its output.

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_reader(self._socket.fileno())
        else:
            self._loop.add_reader(self._socket.fileno(), callback)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_writer(self._socket.fileno())
        else:
            self._loop.add_writer(self._socket.fileno(), callback)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()


class SocketNetwork:
    """The system's TCP. `shared` has sockets of the parent process, which its other children accept from,
    too: each belongs to the listener that has this port for itself."""

    def __init__(self, shared: Mapping[int, socket.socket] | None = None) -> None:
        self._shared = shared or {}

    def listen(self, host: str, port: int, on_stream: Callable[[Stream], None]) -> Listening:
        own = Listener(bind(host, port), on_stream)
        shared = self._shared.get(port)
        return own if shared is None else BothListeners(own, Listener(shared, on_stream))

    async def connect(self, host: str, port: int) -> SocketStream:
        """Tries every address that the name stands for, in the system's order.

        Raises ConnectionRefusedError if all of them refuse, else another OSError.
        """
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # a label that is empty or has more than 63 characters
            raise OSError(f"{host!r} is no name of a host: {error}") from error
        problems: list[OSError] = []
        for number, resolved in enumerate(found, 1):
            try:
                # The last one has as long as the caller gives it.
                async with asyncio.timeout(_ADDRESS_S if number < len(found) else None):
                    return await _connected(resolved)
            except OSError as error:
                problems.append(error)
        tried = zip(found, problems, strict=True)
        reason = "; ".join(f"{each[4][0]}: {str(error) or 'it took too long'}" for each, error in tried)
        if problems and all(isinstance(error, ConnectionRefusedError) for error in problems):
            raise ConnectionRefusedError(errno.ECONNREFUSED, reason)
        raise OSError(reason or f"{host} has no address")


async def _connected(resolved: Resolved) -> SocketStream:
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = resolved
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
        return SocketStream(sock, loop)
    except BaseException:
        sock.close()
        raise


def bind(host: str, port: int) -> socket.socket:
    """A socket on the first address of the name that this machine has, of the older family first."""
    name = host.encode() if host.isascii() else host  # text would have the tables of IDNA loaded
    found = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found.sort(key=lambda resolved: resolved[0] != socket.AF_INET)
    for number, (family, kind, protocol, _, address) in enumerate(found, 1):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except OSError as error:
            sock.close()
            # An address in use must not be skipped: clients would connect to the other process.
            if error.errno not in _NOT_OURS or number == len(found):
                raise
        else:
            return sock
    raise OSError(f"{host} has no address")


class Listener:
    """Accepts connections on one address and hands each over as a Stream."""

    def __init__(self, bound: socket.socket, on_stream: Callable[[Stream], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_stream = on_stream
        self._retry: asyncio.TimerHandle | None = None
        self._socket = bound
        try:
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        self.address: Address = self._socket.getsockname()[:2]

    def start(self, strangers: Accepting) -> None:
        self._strangers = strangers
        self._begin = strangers.kind(self._accept_some)
        self._listen()

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket.fileno(), self._come)

    def _come(self) -> None:
        """Connections have come. They are accepted when it is their turn."""
        self._loop.remove_reader(self._socket.fileno())
        self._begin()

    def _accept_some(self) -> bool:
        """A few at a time, so that a storm of connections does not starve those already here."""
        if self._socket.fileno() < 0:
            return False  # closed meanwhile
        end = self._loop.time() + _ACCEPT_S_MAX
        for _ in range(_ACCEPTED_MAX):
            try:
                sock, _peer = self._socket.accept()
            except (BlockingIOError, ConnectionError):
                self._listen()
                return False
            except OSError:
                # Out of descriptors: the connection stays in the backlog; try again a little later.
                self._retry = self._loop.call_later(_NO_DESCRIPTORS_S, self._listen)
                return False
            try:
                stream = SocketStream(sock, self._loop)
            except OSError:  # the client has gone already
                sock.close()
            else:
                self._on_stream(stream)
            if self._loop.time() > end or self._strangers.piece_is_over:
                break
        return True

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class BothListeners:
    """A listener's own address, and one that other processes accept from as well."""

    def __init__(self, own: Listener, shared: Listener) -> None:
        self._own = own
        self._shared = shared
        self.address = own.address
        """Its own: others cannot tell who would answer at the shared one."""

    def start(self, strangers: Accepting) -> None:
        self._own.start(strangers)
        self._shared.start(strangers)

    def close(self) -> None:
        self._own.close()
        self._shared.close()
