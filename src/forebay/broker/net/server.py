"""All connections of a broker: accepting, limits, idle ones closed.

Other brokers are accepted beyond the limits (`broker_reserve.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.net.broker_reserve import BrokerReserve
from forebay.broker.net.buffers import BufferPool
from forebay.broker.net.connection import ANONYMOUS, Connection, Handle
from forebay.broker.net.request_memory import Holder, QueuedRequest, RequestMemory
from forebay.broker.net.scheduling.turns import Turns
from forebay.broker.ports import Address, Listening, Network, Stream
from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.telemetry.stalls import StallWatch
from forebay.broker.yielding.stranger_work import StrangerWork
from forebay.config import Listener, SocketConfig
from forebay.core.security.networks import network_of
from forebay.errors import ProtocolError
from forebay.wire.frames import read_request_header

if TYPE_CHECKING:
    from forebay.broker.tls.endpoint import TlsEndpoint
    from forebay.broker.tls.endpoints import TlsEndpoints
    from forebay.broker.tls.stream import TlsStream

log = logging.getLogger(__name__)

_STRANGERS_PART = 16
"""Connections that have not logged in have one of this many parts of the memory for requests."""
_CONTESTED_PART = 10
_SWEEP_S = 1.0
_HELD_MAX = 256
"""Refused connections that are kept for a while, so that their clients do not come back at once."""


class Server:
    def __init__(
        self,
        config: SocketConfig,
        metrics: Metrics,
        stalls: StallWatch,
        network: Network,
        tls: TlsEndpoints,
        strangers: StrangerWork,
        *,
        thread_cpu: Callable[[], float],
        descriptors: int,
        handler: Callable[[Listener], Handle],
        finish_requests: Callable[[], None],
        wake_waiters: Callable[[], None],
        inter_broker: Listener,
        is_broker: Callable[[Connection, memoryview], bool],
        other_brokers: Callable[[], int],
        connection_wait_s: Callable[[str], float],
        make_room: Callable[[], bool],
    ) -> None:
        """`thread_cpu`: the seconds of CPU that the loop's thread has used. `handler` tells what takes the
        first requests of a listener's connections. `inter_broker`: the listener of other brokers;
        `other_brokers` tells how many there are, `is_broker` whether one has sent a request.
        `connection_wait_s`: how long until an address may open another connection, 0 if now. `make_room`
        closes a connection that has not logged in; False if there is none."""
        self.loop = asyncio.get_running_loop()
        self.buffers = BufferPool()
        self.memory, self.strangers_memory = _request_memory(config)
        self.turns = Turns(self.loop, thread_cpu, strangers, config)
        self.finish_requests = finish_requests
        self.wake_waiters = wake_waiters
        self.request_bytes_max = config.request_max_bytes
        self.inflight_max = config.inflight_requests_max
        self._handler = handler
        self._config = config
        self._descriptors = descriptors
        """As many connections are taken as the system allows beside the files of the logs."""
        self._metrics = metrics
        self._stalls = stalls
        self._network = network
        self._tls = tls
        self._strangers = strangers
        self.connections: dict[Connection, None] = {}
        self._per_address: Counter[str] = Counter()
        self._listening: dict[str, Listening] = {}
        """By the names of the listeners."""
        self._to_drain: dict[Connection, None] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._reserve = BrokerReserve(
            inter_broker,
            self.loop,
            is_broker=is_broker,
            other_brokers=other_brokers,
            refuse=self._refuse,
        )
        self._connection_wait_s = connection_wait_s
        self._make_room = make_room
        self._held: dict[Stream, asyncio.TimerHandle] = {}
        """Refused because their address opens too many, with what closes them."""
        self.opened: Signal[Connection] = Signal()
        """A connection was accepted."""
        self.secured: Signal[Connection] = Signal()
        """Its TLS handshake is done."""
        self.closed: Signal[Connection] = Signal()
        """A connection has ended."""

    def configure(self, config: SocketConfig) -> None:
        self._config = config
        self.request_bytes_max = config.request_max_bytes
        self.inflight_max = config.inflight_requests_max

    def listen(self, listeners: Iterable[Listener]) -> None:
        """Bind now; connections wait in the backlog until start()."""
        for listener in listeners:
            accept = partial(self._accept, listener)
            self._listening[listener.name] = self._network.listen(listener.host, listener.port, accept)

    @property
    def addresses(self) -> dict[str, Address]:
        """The address of each listener, with the port that the system chose if any would do."""
        return {name: listening.address for name, listening in self._listening.items()}

    def start(self) -> None:
        assert self._listening, "listen first"
        for listening in self._listening.values():
            listening.start(self._strangers)
        self._sweep = self.loop.call_later(_SWEEP_S, self._end_unfinished)

    @property
    def is_serving(self) -> bool:
        """True once connections are accepted."""
        return self._sweep is not None

    def _accept(self, listener: Listener, stream: Stream) -> None:
        host = stream.peer[0]
        reason, wait_s = self._too_many_from(host), 0.0
        if reason is None and (wait_s := self._connection_wait_s(host)):
            reason = "this address opens connections faster than its quota connection_creation_rate"
        if reason is None:
            reason = self._no_room()
        if reason is not None and not self._reserve.takes(listener):
            self._count_refused(host, reason)
            self._close_after(wait_s, stream)
            return
        connection = self._connection(stream, listener)
        self._per_address[host] += 1
        self.connections[connection] = None
        self._metrics.connections_accepted += 1
        self.opened.send(connection)
        if reason is not None:
            self._reserve.begin(connection, reason)

    def _close_after(self, wait_s: float, stream: Stream) -> None:
        """Close a connection that was refused: not at once, if its client would come back at once."""
        if wait_s and len(self._held) < _HELD_MAX:
            self._held[stream] = self.loop.call_later(wait_s, self._let_go, stream)
        else:
            stream.close()

    def _let_go(self, stream: Stream) -> None:
        del self._held[stream]
        stream.close()

    def authenticated(self, connection: Connection) -> None:
        """A client has logged in."""
        self._strangers.known.note(network_of(connection.peer[0]))
        self._reserve.authenticated(connection)

    def _connection(self, stream: Stream, listener: Listener) -> Connection:
        handle = self._handler(listener)
        endpoint = self._tls.get(listener.name)
        if endpoint is None:
            return Connection(stream, self, listener, handle)
        secured = endpoint.accept(stream)
        connection = Connection(secured, self, listener, handle)
        secured.on_secured = partial(self._secured, connection, endpoint, secured)
        return connection

    def _secured(self, connection: Connection, endpoint: TlsEndpoint, secured: TlsStream) -> None:
        """Where no login says who a client is, its certificate does."""
        self._metrics.tls_handshakes += 1
        self.secured.send(connection)
        if connection.listener.protocol.is_sasl:
            return
        user = endpoint.user(secured)
        if user is None:
            connection.close()
        else:
            connection.principal = f"User:{user}"
            if connection.principal != ANONYMOUS:
                self._strangers.known.note(network_of(connection.peer[0]))

    def _refuse(self, connection: Connection, reason: str) -> None:
        self._count_refused(connection.peer[0], reason)
        connection.close()

    def _count_refused(self, host: str, reason: str) -> None:
        log.warning("refusing a connection", extra={"client": host, "reason": reason})
        self._metrics.connections_refused += 1

    def _too_many_from(self, host: str) -> str | None:
        if self._per_address[host] >= self._config.max_connections_per_ip:
            return f"max.connections.per.ip={self._config.max_connections_per_ip} are open from this address"
        return None

    def _no_room(self) -> str | None:
        """Why no more connections can be open; those that have not logged in make room first."""
        while (reason := self._full()) is not None and self._make_room():
            pass
        return reason

    def _full(self) -> str | None:
        if len(self.connections) >= self._config.max_connections:
            return f"max.connections={self._config.max_connections} are open; raise it or close some"
        if len(self.connections) >= self._descriptors:
            return f"the limit of open files allows {self._descriptors} connections; raise ulimit -n"
        return None

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._reserve.forget(connection)
        host = connection.peer[0]
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]
        self.closed.send(connection)

    def drain_soon(self, connection: Connection) -> None:
        """Several acknowledgements come at once: one system call per connection sends them all."""
        if not self._to_drain:
            self.loop.call_soon(self._drain)
        self._to_drain[connection] = None

    def _drain(self) -> None:
        connections, self._to_drain = self._to_drain, {}
        for connection in connections:
            connection.drain()

    def unmute_all(self) -> None:
        """Quotas have changed: clients that wait may go on, or are muted again."""
        for connection in list(self.connections):
            connection.unmute()

    def forget_fast_paths(self) -> None:
        """Access rules or quotas have changed: requests that passed before are to be looked at again."""
        for connection in self.connections:
            connection.memo = connection.last_prefix = None

    # -- requests ------------------------------------------------------------------------------------

    def took_long(self, connection: Connection, request: memoryview, seconds: float) -> None:
        """A request has kept the loop for more than its slice of time."""
        if seconds >= self._stalls.alarm_s:
            with contextlib.suppress(ProtocolError):  # it was refused, and that is logged
                header, _ = read_request_header(request)
                self._stalls.caused_by(connection.describe(header, len(request)), seconds)

    def _end_unfinished(self) -> None:
        """Close connections whose requests do not come, and keep memory that others wait for."""
        self._sweep = self.loop.call_later(_SWEEP_S, self._end_unfinished)
        now = self.loop.time()
        for memory in (self.memory, self.strangers_memory):
            for late in memory.overdue(now):
                self._end(late, "a request did not come whole within forebay.request.receive.timeout.ms")
            for contested in memory.contested(now):
                self._end(contested, "others wait for the memory that its request keeps")

    def _end(self, holder: Holder, reason: str) -> None:
        connection = holder.connection if isinstance(holder, QueuedRequest) else holder
        assert isinstance(connection, Connection)
        log.warning("closing a connection", extra=connection.about() | {"reason": reason})
        self._metrics.requests_unfinished += 1
        connection.close()

    def malformed(self) -> None:
        self._metrics.requests_malformed += 1

    def unserved(self) -> None:
        self._metrics.requests_unserved += 1

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    def close_idle(self, is_needed: Callable[[Connection], bool]) -> None:
        """Close connections on which nothing has moved for connections.max.idle.ms, and that nobody needs."""
        oldest = self.loop.time() - self._config.idle_ms_max / 1000
        for connection in [c for c in self.connections if c.last_active < oldest and not is_needed(c)]:
            self._metrics.connections_idle_closed += 1
            connection.close()

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for listening in self._listening.values():
            listening.close()
        for stream, timer in self._held.items():
            timer.cancel()
            stream.close()
        self._held.clear()
        for connection in list(self.connections):
            connection.close()


def _request_memory(config: SocketConfig) -> tuple[RequestMemory, RequestMemory]:
    """For connections that have logged in, or need not, and for the others."""
    whole, timeout_s = config.queued_bytes_max, config.receive_timeout_ms / 1000
    part = whole if whole < 0 else whole // _STRANGERS_PART
    known = RequestMemory(
        whole if whole < 0 else whole - part, timeout_s=timeout_s, contested_s=timeout_s / _CONTESTED_PART
    )
    return known, RequestMemory(part, timeout_s=timeout_s, contested_s=0.0)
