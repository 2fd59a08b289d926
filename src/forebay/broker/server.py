"""All connections of a broker: accepting, limits, idle ones closed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from forebay.broker.buffers import BufferPool
from forebay.broker.connection import Connection
from forebay.broker.metrics import Metrics
from forebay.broker.ports import Listening, Network
from forebay.broker.sockets import Address, Stream
from forebay.config import SocketConfig

log = logging.getLogger(__name__)


class Server:
    def __init__(
        self,
        config: SocketConfig,
        metrics: Metrics,
        network: Network,
        *,
        descriptors: int,
        handle: Callable[[Connection, memoryview], None],
        finish_requests: Callable[[], None],
        wake_waiters: Callable[[], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffers = BufferPool()
        self.handle = handle
        self.finish_requests = finish_requests
        """Called after the requests of one read event: writes what they appended."""
        self.wake_waiters = wake_waiters
        """Called after the responses of one read event are sent: serves those who waited for the data."""
        self.request_bytes_max = config.request_max_bytes
        self.inflight_max = config.inflight_requests_max
        self._config = config
        self._descriptors = descriptors
        """As many connections are taken as the system allows beside the files of the logs."""
        self._metrics = metrics
        self._network = network
        self.connections: dict[Connection, None] = {}
        self._per_address: Counter[str] = Counter()
        self._listener: Listening | None = None
        self._to_drain: dict[Connection, None] = {}

    def configure(self, config: SocketConfig) -> None:
        self._config = config
        self.request_bytes_max = config.request_max_bytes
        self.inflight_max = config.inflight_requests_max

    def listen(self, host: str, port: int) -> Address:
        """Bind now; connections wait in the backlog until start()."""
        self._listener = self._network.listen(host, port, self._accept)
        return self.address

    @property
    def address(self) -> Address:
        """What it is bound to, with the port that was chosen where any would do."""
        assert self._listener is not None, "listen first"
        return self._listener.address

    def start(self) -> None:
        assert self._listener is not None, "listen first"
        self._listener.start()

    def _accept(self, stream: Stream) -> None:
        host = stream.peer[0]
        reason = self._refusal(host)
        if reason is not None:
            log.warning("refusing a connection", extra={"client": host, "reason": reason})
            self._metrics.connections_refused += 1
            stream.close()
            return
        self._per_address[host] += 1
        self.connections[Connection(stream, self)] = None
        self._metrics.connections_accepted += 1

    def _refusal(self, host: str) -> str | None:
        if len(self.connections) >= self._config.max_connections:
            return f"max.connections={self._config.max_connections} are open; raise it or close some"
        if len(self.connections) >= self._descriptors:
            return f"the limit of open files allows {self._descriptors} connections; raise ulimit -n"
        if self._per_address[host] >= self._config.max_connections_per_ip:
            return f"max.connections.per.ip={self._config.max_connections_per_ip} are open from this address"
        return None

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        host = connection.peer[0]
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]

    def drain_soon(self, connection: Connection) -> None:
        """Several acknowledgements come at once: one system call per connection sends them all."""
        if not self._to_drain:
            self.loop.call_soon(self._drain)
        self._to_drain[connection] = None

    def _drain(self) -> None:
        connections, self._to_drain = self._to_drain, {}
        for connection in connections:
            connection.drain()

    def malformed(self) -> None:
        self._metrics.requests_malformed += 1

    def unserved(self) -> None:
        self._metrics.requests_unserved += 1

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    def close_idle(self) -> None:
        """Close connections on which nothing has moved for connections.max.idle.ms."""
        oldest = self.loop.time() - self._config.idle_ms_max / 1000
        for connection in [c for c in self.connections if c.last_active < oldest]:
            self._metrics.connections_idle_closed += 1
            connection.close()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.close()
