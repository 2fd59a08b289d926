"""Ports of loopback that stay with one server, however often it is started anew.

A port that is only found to be free may be given to another process before its server listens, and again
while its server is down. So a socket stays bound to it, which does not listen. Both sockets have
SO_REUSEADDR: so Linux lets the server bind to the port by its number, and gives it to nobody else.
"""

from __future__ import annotations

import contextlib
import socket

HOST = "127.0.0.1"


class ReservedPort:
    def __init__(self, number: int = 0) -> None:
        """Any free port. One that is asked for by its number may be taken: its server will say so."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError) if number else contextlib.nullcontext():
            self._socket.bind((HOST, number))
        self.number: int = number or self._socket.getsockname()[1]

    def close(self) -> None:
        """Let others have it."""
        self._socket.close()
