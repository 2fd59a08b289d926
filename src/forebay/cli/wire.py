"""A connection to a broker, for the few requests that the client library does not have.

Blocking, one request at a time; any broker answers.
"""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any, TypeVar, cast

from forebay.cli.client import CONNECT_SECONDS, Client, CommandError, split_address
from forebay.errors import ProtocolError
from forebay.wire.fields import Request, Response
from forebay.wire.frames import read_response, request_frame
from forebay.wire.messages import api
from forebay.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

R = TypeVar("R", bound=Response)

_ANSWER_SECONDS = 60.0
_ANSWER_BYTES_MAX = 256 << 20
_LENGTH = struct.Struct(">i")


class WireConnection:
    """Use it with `with`: `WireConnection.open(client)`."""

    def __init__(self, connected: socket.socket, address: str) -> None:
        self._socket = connected
        self._address = address
        self._ids = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    def open(cls, client: Client) -> WireConnection:
        """To the first of the client's addresses that answers."""
        connection = cls(*_connect(client))
        try:
            found = connection._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0)
            connection._versions = {
                each.api_key: (each.min_version, each.max_version) for each in found.api_keys
            }
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, request: Request, response: type[R]) -> R:
        """The answer, in the highest version that both sides speak."""
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        version = min(request.MAX_VERSION, highest)
        if version < max(request.MIN_VERSION, lowest):
            name = type(request).__name__.removesuffix("Request")
            raise CommandError(
                f"the broker at {self._address} does not serve {name}; is it a Forebay of today?"
            )
        return self._exchange(request, response, version)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> WireConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, request: Request, response: type[R], version: int) -> R:
        assert api(request.API_KEY).response is response
        correlation_id = next(self._ids)
        parts = request_frame(request, version, correlation_id, "forebay-cli")
        try:
            self._socket.sendall(b"".join(cast("list[bytes]", parts)))
            got, answer = read_response(response, version, memoryview(self._frame()))
        except (OSError, ProtocolError) as error:
            raise CommandError(
                f"the broker at {self._address} did not answer as it should: {error}"
            ) from None
        if got != correlation_id:
            raise CommandError(f"the broker at {self._address} answered another question than was asked")
        return answer

    def _frame(self) -> bytes:
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if not 0 <= size <= _ANSWER_BYTES_MAX:
            raise ProtocolError(f"an answer of {size} bytes")
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = self._socket.recv(min(count - len(received), 1 << 20))
            if not piece:
                raise ProtocolError("the connection ended")
            received += piece
        return bytes(received)


def _connect(client: Client) -> tuple[socket.socket, str]:
    for address in client.bootstrap.split(","):
        try:
            connected = socket.create_connection(split_address(address.strip()), CONNECT_SECONDS)
        except OSError:
            continue
        connected.settimeout(_ANSWER_SECONDS)
        return connected, address.strip()
    client.knock()
    raise CommandError(f"no broker answers at {client.bootstrap}: try again")


def check(error_code: int, message: str | None) -> None:
    """Raises CommandError for an error that a broker answered with."""
    if error_code:
        raise CommandError(error_text(error_code, message))


def error_text(error_code: int, message: str | None) -> str:
    from forebay.errors import ErrorCode

    name: Any = error_code
    if error_code in set(ErrorCode):
        name = ErrorCode(error_code).name
    return f"{message or 'the broker refused'} ({name})"
