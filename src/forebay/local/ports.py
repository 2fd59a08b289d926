"""Ports of loopback that stay with one server, however often it is restarted.

A port that was merely found free may be given to another process before its server listens, and again while
its server is down. So a socket stays bound to it, without listening. Both sockets have SO_REUSEADDR: so Linux
lets the server bind to the port by its number, and gives it to no other process.
"""

from __future__ import annotations

import contextlib
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

    def close(self) -> None:
        """Release the port."""
        self._socket.close()
