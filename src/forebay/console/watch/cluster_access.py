"""A cluster as one person may use it: the settings of the connection, handles, and the watcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from forebay.console.settings import ClusterSettings, ConsoleSettings
from forebay.console.watch.message_times import MessageTimes
from forebay.console.watch.moving_job import MovingJob
from forebay.console.watch.remembered import Remembered
from forebay.console.watch.snapshot import Snapshot
from forebay.console.watch.watcher import Watcher
from forebay.operations.client import Client
from forebay.operations.wire import BrokerConnections

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

_IDLE_CONNECTIONS_MAX = 4
_IDLE_SECONDS_MAX = 60.0
_ANSWER_SECONDS = 20.0
"""A person waits no longer."""
_WITHOUT_DELAYS_SECONDS = 60.0
"""A topic that is given the setting meanwhile is seen after this time."""


class _Idle(NamedTuple):
    connections: BrokerConnections
    since: float
    troubles: int
    """As the watcher had counted then."""


class ClusterAccess:
    """Thread-safe. Everything here may block; pages use it in threads."""

    def __init__(
        self, cluster: ClusterSettings, client: Client, settings: ConsoleSettings, user: str = ""
    ) -> None:
        self.name = cluster.name
        self.user = user
        """The user who has logged in; empty for holders of the token."""
        self.settings = settings
        self.client = client
        self.message_times = MessageTimes(client)
        self.without_delays = Remembered(_WITHOUT_DELAYS_SECONDS)
        """Topics that take no delayed messages, by id: asking thousands of them each time takes long."""
        self.watcher = Watcher(
            client,
            interval_s=settings.sample_seconds,
            share=settings.sample_share,
            history_s=settings.history_seconds,
        )
        self.moving = MovingJob(client)
        self.tails = threading.BoundedSemaphore(settings.tails_max)
        """Live views of messages that may still be opened."""
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._idle: list[_Idle] = []
        self._closed = False

    def start(self) -> None:
        self.watcher.start()

    def close(self) -> None:
        self.watcher.stop()
        with self._lock:
            self._closed = True  # what pages still use is closed when they are done
            idle, self._idle = self._idle, []
            self._admin = self._producer = None
        for each in idle:
            each.connections.close()

    def snapshot(self) -> Snapshot:
        """The last picture of the cluster; raises CommandError if it does not answer."""
        return self.watcher.snapshot()

    def admin(self) -> AdminClient:
        """Raises CommandError at once if no broker answers, instead of after a timeout."""
        with self._lock:
            if self._admin is None:
                self._admin = self.client.admin()
            else:
                self.client.knock()
            return self._admin

    def producer(self) -> Producer:
        """A producer that waits for all replicas, for the messages that people send."""
        with self._lock:
            if self._producer is None:
                self._producer = self.client.producer(
                    {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 20_000}
                )
            else:
                self.client.knock()
            return self._producer

    @contextmanager
    def connections(self) -> Iterator[BrokerConnections]:
        """Connections of our own for one piece of work. They are kept for the next if nothing fails."""
        borrowed = self._borrow()
        try:
            yield borrowed
        except BaseException:
            borrowed.close()
            raise
        with self._lock:
            if len(self._idle) < _IDLE_CONNECTIONS_MAX and not self._closed:
                self._idle.append(_Idle(borrowed, time.monotonic(), self.watcher.troubles))
                return
        borrowed.close()

    def _borrow(self) -> BrokerConnections:
        """One that was used a moment ago, else a new one: brokers close those that are idle for long."""
        since = time.monotonic() - _IDLE_SECONDS_MAX
        while True:
            with self._lock:
                idle = self._idle.pop() if self._idle else None
            if idle is None:
                return BrokerConnections(self.client, answer_s=_ANSWER_SECONDS)
            if idle.since > since and idle.troubles == self.watcher.troubles:
                return idle.connections
            idle.connections.close()
