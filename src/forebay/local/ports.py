"""Ports of loopback that stay with one server, however often it is restarted.

A port that is only found to be free may be given to another process before its server listens, and again
while its server is down. So a socket stays bound to it, which does not listen. Both sockets have
SO_REUSEADDR: so Linux lets the server bind to the port by its number, and gives it to nobody else.

Other systems let no second socket bind to it. There the port is only found, and another process may take it.
"""

from __future__ import annotations

import contextlib
import functools
import socket

HOST = "127.0.0.1"


class ReservedPort:
    def __init__(self, number: int = 0) -> None:
        """Any free port. A port that is requested by its number may be taken: its server will report it."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError) if number else contextlib.nullcontext():
            self._socket.bind((HOST, number))
        self.number: int = number or self._socket.getsockname()[1]
        if not _can_bind_beside():
            self._socket.close()

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


@functools.cache
def _can_bind_beside() -> bool:
    """True if this system lets a server bind to a port that another socket is bound to."""
    with socket.socket() as holder, socket.socket() as server:
        for each in (holder, server):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HOST, 0))
        try:
            server.bind(holder.getsockname())
        except OSError:
            return False
        return True
