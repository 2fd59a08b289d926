"""A connection whose client counts what the records of TLS hold, and does not decrypt them.

Decrypting takes a client as long as encrypting took the server. Where both share the cores, the client's half
hides what the server could do.
"""

from __future__ import annotations

import os
import socket
import ssl

from bench.server import BenchError

_HEADER_BYTES = 5
_APPLICATION_DATA = 23
_OVERHEAD_BYTES = 16 + 1
"""Of a record of TLS 1.3: the tag, and the type of the content."""


class RecordCounter:
    def __init__(self) -> None:
        self._header = b""
        """What has come of a record's header."""
        self._left = 0
        """What has not come of a record behind its header."""
        self._content = 0

    def count(self, received: memoryview) -> int:
        """The bytes in the records that end in what was received."""
        position, end, counted = 0, len(received), 0
        while position < end:
            if not self._left:
                taken = min(_HEADER_BYTES - len(self._header), end - position)
                self._header += bytes(received[position : position + taken])
                position += taken
                if len(self._header) < _HEADER_BYTES:
                    break
                self._begin(self._header)
                self._header = b""
            taken = min(self._left, end - position)
            position += taken
            self._left -= taken
            if not self._left:
                counted += self._content
        return counted

    def _begin(self, header: bytes) -> None:
        if header[0] != _APPLICATION_DATA:
            raise BenchError(f"the server sent a record of TLS of type {header[0]} in the middle of a load")
        self._left = int.from_bytes(header[3:], "big")
        self._content = self._left - _OVERHEAD_BYTES


class CountingSocket:
    """Sends as the secured socket does, and receives behind its back: it can decrypt nothing afterwards."""

    def __init__(self, secured: ssl.SSLSocket) -> None:
        if secured.version() != "TLSv1.3" or secured.pending():
            raise BenchError("the size of records is only known of TLS 1.3, from the start of a record on")
        self._plain = socket.socket(fileno=os.dup(secured.fileno()))
        self._plain.settimeout(secured.gettimeout())
        self._counter = RecordCounter()
        self.sendall = secured.sendall

    def recv_into(self, buffer: memoryview) -> int:
        """The number of bytes that were sent to this client; the buffer holds them encrypted."""
        while received := self._plain.recv_into(buffer):
            if counted := self._counter.count(buffer[:received]):
                return counted
        return 0

    def close(self) -> None:
        self._plain.close()
