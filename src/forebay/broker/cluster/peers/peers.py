"""The other brokers, as this one asks them: connections by node id, opened on first use.

While a broker has a request that takes its time, it reads no further on that connection. So each API has a
connection of its own to a peer: a marker that waits for its replicas does not hold up the verification of a
transaction.

Where a broker listens is what its registration in the image says. When that changes, or the broker is gone,
its connections are closed, and their pending requests fail at once. A broker that could not be reached is not
tried again for a time that grows with each failure; until then requests to it fail at once.

A connection is given up with requests on it that the peer may not have read yet, and may read much later.
Where that would do harm the peer asks `admit`: connections are numbered, in their client id, and once a
request has come on one, requests on older ones are refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from forebay.errors import ErrorCode, KafkaError
from forebay.wire.frames import read_request_header

if TYPE_CHECKING:
    from forebay.broker.cluster.held_lease import HeldLease
    from forebay.broker.cluster.peers.peer_connection import PeerConnection
    from forebay.broker.cluster.peers.peer_dialing import PeerDialing
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.ports import Address
    from forebay.coordination.metadata import Metadata
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.registration import BrokerRegistration
    from forebay.wire.fields import Request, Response

OpenTo: TypeAlias = "Callable[[BrokerRegistration], Awaitable[PeerConnection]]"

_CLIENT_ID = re.compile(r"forebay-broker-(\d{1,10})\.(\d{1,19})\.(\d{1,19})")
_BROKERS = ("forebay-broker-", "forebay-replica-")
"""How the client ids of brokers begin: those of this module, and those of fetchers."""
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""How a broker that listens everywhere reaches itself."""
_TIMEOUT_S = 30.0
_BACKOFF_S = 0.05
_BACKOFF_S_MAX = 2.0


def is_from_broker(request: memoryview) -> bool:
    """True if the sender of a request says that it is a broker."""
    header, _ = read_request_header(request)
    return is_broker(header.client_id)


def is_broker(client_id: str | None) -> bool:
    return (client_id or "").startswith(_BROKERS)


class _Line:
    """The way to one API of one registered broker."""

    def __init__(self, registration: BrokerRegistration) -> None:
        self.registration = registration
        self._connection: PeerConnection | None = None
        self._lock = asyncio.Lock()
        self._backoff_s = _BACKOFF_S
        self._retry_at = 0.0

    async def connection(self, open_to: OpenTo) -> PeerConnection:
        async with self._lock:  # requests that come while it is being opened use the same one
            if self._connection is None or self._connection.closed:
                self._check_backoff()
                try:
                    self._connection = await open_to(self.registration)
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
    def __init__(
        self,
        *,
        node_id: int,
        settings: LiveConfig,
        metadata: Metadata,
        lease: HeldLease,
        dialing: PeerDialing,
        own_address: Callable[[], Address] | None = None,
    ) -> None:
        """`own_address`: where this broker listens. Where others reach it need not be reachable from here."""
        self._node_id = node_id
        self._own_address = own_address
        self._settings = settings
        self._metadata = metadata
        self._lease = lease
        self._dialing = dialing
        self._lines: dict[tuple[int, int], _Line] = {}
        self._opened = 0
        self._heard: dict[int, tuple[int, int]] = {}
        """The newest connection of each broker that `admit` was asked about: its epoch and number."""

    async def ask(
        self,
        node_id: int,
        request: Request,
        *,
        version: int | None = None,
        timeout_s: float = _TIMEOUT_S,
        sent_by: Callable[[object], None] | None = None,
    ) -> Response:
        """The answer of a broker, in the highest version that both speak unless one is given.

        `sent_by`: as for `PeerConnection.ask`.
        Raises KafkaError NETWORK_EXCEPTION when there is no answer; the request may have been carried out.
        """
        line = self._line(node_id, request.API_KEY)
        connection = await line.connection(self._open)
        if self._lines.get((node_id, request.API_KEY)) is not line:
            connection.close()  # the broker has moved while the connection was being opened
        return await connection.ask(request, version, timeout_s=timeout_s, sent_by=sent_by)

    async def _open(self, registration: BrokerRegistration) -> PeerConnection:
        self._opened += 1
        address = None
        if registration.id == self._node_id and self._own_address is not None:
            host, port = self._own_address()
            address = _LOOPBACK.get(host, host), port
        return await self._dialing.open(
            registration,
            client_id=self.client_id(self._opened),
            response_bytes_max=self._settings.current.socket.request_max_bytes,
            address=address,
        )

    def client_id(self, number: int) -> str:
        # Not what the image says: while this broker's lease is lost, that is nothing, and would seem old.
        epoch = max(self._lease.epoch, 0)
        return f"forebay-broker-{self._node_id}.{epoch}.{number}"

    def admit(self, client_id: str | None) -> bool:
        """True if a request may be carried out: none has come on a newer connection of the same broker
        before."""
        match = _CLIENT_ID.fullmatch(client_id or "")
        if match is None:
            return True  # not from a broker
        node_id, epoch, number = map(int, match.groups())
        newest = self._heard.get(node_id, (-1, -1))
        if (epoch, number) < newest:
            return False
        if node_id in self._metadata.image.brokers:  # which bounds what strangers can make us remember
            self._heard[node_id] = epoch, number
        return True

    def check_sender(self, client_id: str | None) -> None:
        """Raise KafkaError unless a request comes from a broker of this cluster.

        That is what its client id says. A broker whose registration has ended may try again.
        """
        match = _CLIENT_ID.fullmatch(client_id or "")
        if match is None:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers of the cluster may send such requests"
            )
        if int(match[1]) not in self._metadata.image.brokers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"no broker {match[1]} is registered")

    def _line(self, node_id: int, api_key: int) -> _Line:
        registration = self._metadata.image.brokers.get(node_id)
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
