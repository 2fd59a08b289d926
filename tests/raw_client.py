"""A client made of nothing but the wire: one socket, one request at a time, any version."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, cast

from forebay.wire.fields import Request
from forebay.wire.frames import read_response, request_frame
from forebay.wire.messages import api

TIMEOUT_SECONDS = 30.0


class RawClient:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, request: Request, version: int) -> Any:
        """The response to this request."""
        self._correlation_id += 1
        parts = request_frame(request, version, self._correlation_id, "raw-client")
        self._socket.sendall(b"".join(cast("list[bytes]", parts)))
        (size,) = struct.unpack(">i", self._receive(4))
        response = api(type(request).API_KEY).response
        correlation_id, value = read_response(response, version, memoryview(self._receive(size)))
        assert correlation_id == self._correlation_id
        return value

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            assert chunk, "the broker closed the connection"
            received += chunk
        return bytes(received)
