"""The other brokers, as this one asks them: connections by node id, opened on first use.

While a broker has a request that takes its time, it reads no further on that connection. So each API has a
connection of its own to a peer: a marker that waits for its replicas does not hold up who verifies a
transaction.

Where a broker listens is what its registration in the image says. When that changes, or the broker is gone,
its connections are closed, and who waits learns at once that no answer comes. A broker that could not be
reached is left alone for a while that grows with each failure; who asks meanwhile is told so at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.broker.peer_connection import TIMEOUT_S, Connect, PeerConnection
from forebay.core.image import BrokerRegistration, ClusterImage
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Request, Response

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

__all__ = ["PeerConnection", "Peers"]

_BACKOFF_S = 0.05
_BACKOFF_S_MAX = 2.0


class _Line:
    """The way to one API of one registered broker."""

    def __init__(self, registration: BrokerRegistration) -> None:
        self.registration = registration
        self._connection: PeerConnection | None = None
        self._lock = asyncio.Lock()
        self._backoff_s = _BACKOFF_S
        self._retry_at = 0.0

    async def connection(self, connect: Connect, client_id: str, response_bytes_max: int) -> PeerConnection:
        async with self._lock:  # who comes while it is being opened takes the same
            if self._connection is None or self._connection.closed:
                self._check_backoff()
                try:
                    self._connection = await PeerConnection.open(
                        connect,
                        self.registration.host,
                        self.registration.port,
                        client_id=client_id,
                        response_bytes_max=response_bytes_max,
                    )
                except KafkaError:
                    self._back_off()
                    raise
                self._backoff_s = _BACKOFF_S
            return self._connection

    def _check_backoff(self) -> None:
        left_s = self._retry_at - asyncio.get_running_loop().time()
        if left_s > 0:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                f"broker {self.registration.id} could not be reached; next attempt in {left_s:.2f} s",
            )

    def _back_off(self) -> None:
        self._retry_at = asyncio.get_running_loop().time() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_S_MAX)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Peers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines: dict[tuple[int, int], _Line] = {}

    async def ask(
        self, node_id: int, request: Request, *, version: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> Response:
        """The answer of a broker, in the highest version that both speak unless one is given.

        Raises KafkaError NETWORK_EXCEPTION when there is none; the request may have been carried out.
        """
        line = self._line(node_id, request.API_KEY)
        connection = await line.connection(
            self._broker.ports.network.connect,
            f"forebay-broker-{self._broker.node_id}",
            self._broker.config.socket.request_max_bytes,
        )
        if self._lines.get((node_id, request.API_KEY)) is not line:
            connection.close()  # the broker has moved while the connection was being opened
        return await connection.ask(request, version, timeout_s=timeout_s)

    def _line(self, node_id: int, api_key: int) -> _Line:
        registration = self._broker.image.brokers.get(node_id)
        if registration is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} is not there")
        line = self._lines.get((node_id, api_key))
        if line is None or line.registration != registration:
            if line is not None:
                line.close()
            line = self._lines[node_id, api_key] = _Line(registration)
        return line

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Close the connections to brokers that have gone or come back elsewhere."""
        if after.brokers is before.brokers:
            return
        for key, line in list(self._lines.items()):
            if after.brokers.get(key[0]) != line.registration:
                del self._lines[key]
                line.close()

    def close(self) -> None:
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()
