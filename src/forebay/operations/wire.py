"""A connection to a broker, for the few requests that the client library does not have.

One request at a time; any broker answers.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any, TypeVar

from forebay import __version__
from forebay.errors import ErrorCode, KafkaError
from forebay.operations.client import CONNECT_SECONDS, Client, CommandError, split_address
from forebay.transport.blocking import BlockingConnection
from forebay.transport.connecting import connect
from forebay.transport.security import Security, security
from forebay.wire.fields import Request, Response
from forebay.wire.messages.api_versions import OWN_SOFTWARE_NAME, ApiVersionsRequest

R = TypeVar("R", bound=Response)

ANSWER_SECONDS = 60.0
_ANSWER_BYTES_MAX = 256 << 20


class WireConnection:
    """Use it with `with`: `WireConnection.open(client)`."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection
        self._is_identified = False

    @classmethod
    def open(cls, client: Client, *, answer_s: float = ANSWER_SECONDS) -> WireConnection:
        """Connect to the first of the client's addresses that answers. `answer_s`: how long it may take."""
        protection = security(client.properties)
        connected, address = _connect(client, protection)
        try:
            return cls(
                BlockingConnection(
                    connected,
                    address,
                    client_id="forebay-cli",
                    timeout_s=answer_s,
                    frame_bytes_max=_ANSWER_BYTES_MAX,
                    new_login=protection.login,
                )
            )
        except KafkaError as error:
            raise CommandError(error.message) from None

    def ask(self, request: Request, response: type[R], limit: int | None = None) -> R:
        """The answer, in the highest version that both sides know, or in `limit` if that is lower."""
        try:
            answer = self._connection.ask(request, limit)
        except KafkaError as error:
            hint = "; is it a Forebay of today?" if error.code == ErrorCode.UNSUPPORTED_VERSION else ""
            raise CommandError(f"{error.message}{hint}") from None
        assert isinstance(answer, response)
        return answer

    def serves(self, request: type[Request]) -> bool:
        """True if the broker has an API of Forebay's own. It tells clients that identify themselves."""
        try:
            self._identify()
            self._connection.version(request)
        except KafkaError:
            return False
        return True

    def _identify(self) -> None:
        if not self._is_identified:
            self._connection.ask(
                ApiVersionsRequest(
                    client_software_name=OWN_SOFTWARE_NAME, client_software_version=__version__
                )
            )
            self._is_identified = True

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> WireConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BrokerConnections:
    """Connections to several brokers of a cluster, opened when they are needed."""

    def __init__(self, client: Client, *, answer_s: float = ANSWER_SECONDS) -> None:
        self._client = client
        self._answer_s = answer_s
        self._opened: dict[str, WireConnection] = {}

    def any(self) -> WireConnection:
        return self.at(self._client.bootstrap)

    def at(self, address: str) -> WireConnection:
        if address not in self._opened:
            client = replace(self._client, bootstrap=address)
            self._opened[address] = WireConnection.open(client, answer_s=self._answer_s)
        return self._opened[address]

    def forget(self, address: str) -> None:
        """Close a connection that has failed; the next use opens a new one."""
        if (connection := self._opened.pop(address, None)) is not None:
            connection.close()

    def close(self) -> None:
        for connection in self._opened.values():
            connection.close()
        self._opened.clear()


def _connect(client: Client, protection: Security) -> tuple[socket.socket, str]:
    for address in client.bootstrap.split(","):
        try:
            connected = connect(*split_address(address.strip()), protection, CONNECT_SECONDS)
        except KafkaError:
            continue
        return connected, address.strip()
    client.knock()
    raise CommandError(f"no broker answers at {client.bootstrap}: try again")


def check(error_code: int, message: str | None) -> None:
    """Raises CommandError for an error in a broker's answer."""
    if error_code:
        raise CommandError(error_text(error_code, message))


def error_text(error_code: int, message: str | None) -> str:
    name: Any = error_code
    if error_code in set(ErrorCode):
        name = ErrorCode(error_code).name
    return f"{message or 'the broker refused'} ({name})"
