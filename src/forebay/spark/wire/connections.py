"""Connections to brokers for Spark's driver and workers: blocking, few, and kept between tasks.

A task reads or writes one partition at a time and has nothing else to do while it waits, so a plain socket
and our own codec are all it takes; a worker imports no event loop and no client library. Spark reuses its
Python workers, and `Cluster.shared` lets the next task find the connections and the metadata of the last.

Whatever fails on the way to a broker is a KafkaError with a code. `Cluster.attempt` runs a piece of work
again when its code says that a repetition may help: it forgets what it believed about leaders, waits a little
longer each time, and gives up at a deadline.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self, TypeVar

from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.spark.wire.broker_connection import BrokerConnection
from forebay.transport.security import security
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

__all__ = ["GROUP", "TRANSACTION", "BrokerConnection", "Cluster", "Leader", "Timing", "check"]

T = TypeVar("T")

GROUP: Final = 0
TRANSACTION: Final = 1
"""Kinds of coordinator."""

POOL_CLUSTERS_MAX = 16
KAFKA: Final = "kafka."
"""The prefix of the settings of Kafka's clients, as everywhere in Spark."""

_BACKOFF_MAX_S = 1.0
_UNKNOWN_TOPIC_S = 3.0
"""A broker may not know a new topic yet. After this time the topic counts as missing."""
_TOPIC_IS_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_TOPIC_IS_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    request_s: float = 30.0
    """How long a broker may take to answer, beyond the wait that the request itself asks for."""
    attempts_s: float = 60.0
    """How long something is tried again before it has failed."""
    backoff_s: float = 0.05


def timing(options: Mapping[str, str]) -> Timing:
    return Timing(
        request_s=_seconds(options, "kafka.request.timeout.ms", 30_000),
        attempts_s=_seconds(options, "kafka.default.api.timeout.ms", 60_000),
        backoff_s=_seconds(options, "kafka.retry.backoff.ms", 50),
    )


def _seconds(options: Mapping[str, str], name: str, default_ms: int) -> float:
    text = options.get(name, str(default_ms))
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigError(f"{name}={text}: give a number of milliseconds greater than 0")
    return int(text) / 1000


@dataclass(frozen=True, slots=True)
class Leader:
    node_id: int
    epoch: int


class Cluster:
    """The brokers behind `kafka.bootstrap.servers`, with the leaders of partitions from the last metadata.

    Closing it, or leaving its `with` block, drops its connections; using it afterwards opens new ones.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        options = options or {}
        self.bootstrap = bootstrap
        self.timing = timing(options)
        self._addresses = _addresses(bootstrap)
        self._security = security(options, KAFKA)
        self._client_id = options.get("kafka.client.id", "forebay-spark")
        self._connections: dict[tuple[tuple[str, int], bool], BrokerConnection] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[str, dict[int, Leader]] = {}
        self._topic_ids: dict[str, str] = {}
        self._coordinators: dict[tuple[str, int], tuple[str, int]] = {}

    @classmethod
    def shared(cls, bootstrap: str, options: Mapping[str, str] | None = None) -> Cluster:
        """This thread's cluster for these servers and connection options, with its open connections."""
        return _pool().get(bootstrap, options or {})

    @classmethod
    def close_shared(cls) -> None:
        """Close what `shared` keeps open for this thread."""
        _pool().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # -- brokers -------------------------------------------------------------------------------------

    def any(self) -> BrokerConnection:
        """Any broker: one that is connected and idle, else the first that can be reached."""
        for connection in self._connections.values():
            if not connection.closed and not connection.unanswered:
                return connection
        problem: KafkaError | None = None
        for address in dict.fromkeys([*self._addresses, *self._nodes.values()]):
            try:
                return self._connection(address, aside=self._is_busy(address))
            except KafkaError as error:
                problem = error
        raise KafkaError(
            ErrorCode.NETWORK_EXCEPTION,
            f"no broker of kafka.bootstrap.servers={self.bootstrap} can be reached; the last said: {problem}",
        )

    def everyone(self) -> list[BrokerConnection]:
        """Every broker that the metadata names now, without those that have died."""
        self.refresh([])
        return [self._connection(address) for address in self._nodes.values()]

    def leader(self, topic: str, partition: int) -> BrokerConnection:
        """The connection to the leader of a partition; asks for metadata when the leader is not known."""
        node_id = self.leadership(topic, partition).node_id
        if node_id not in self._nodes:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader just now")
        return self._connection(self._nodes[node_id])

    def broker(self, node_id: int) -> BrokerConnection:
        """The connection to a broker of the last metadata."""
        if node_id not in self._nodes:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not known")
        return self._connection(self._nodes[node_id])

    def node_ids(self) -> list[int]:
        """The brokers of the last metadata."""
        if not self._nodes:
            self.refresh([])
        return sorted(self._nodes)

    def leader_for_writes(self, topic: str, partition: int) -> BrokerConnection:
        """The same for a producer. What is sent for a partition that was folded and is gone is stored in
        another, so a producer that still knows it may go on."""
        try:
            return self.leader(topic, partition)
        except KafkaError as error:
            count = len(self._leaders.get(topic, ()))
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not 0 < count <= partition:
                raise
            return self.leader(topic, partition % count)

    def knows(self, topic: str, partition: int) -> bool:
        """True if `leader` can tell without asking a broker first."""
        return partition in self._leaders.get(topic, {})

    def leadership(self, topic: str, partition: int) -> Leader:
        if partition not in self._leaders.get(topic, {}):
            self.refresh([topic])
        known = self._leaders.get(topic, {}).get(partition)
        if known is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of topic {topic}"
            )
        return known

    def coordinator(self, key: str, kind: int = GROUP) -> BrokerConnection:
        """The connection to the coordinator of a group or of a transactional id."""
        if (key, kind) not in self._coordinators:
            answer = self.any().ask(FindCoordinatorRequest(key=key, key_type=kind), 3)
            check(answer.error_code, f"no coordinator for {key}")
            self._coordinators[key, kind] = (answer.host, answer.port)
        return self._connection(self._coordinators[key, kind])

    # -- metadata ------------------------------------------------------------------------------------

    def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """Ask for the leaders of these topics, or of all; a topic that does not exist is forgotten.

        `create` lets the broker make a topic that does not exist, when its settings allow that.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer: MetadataResponse = self.any().ask(request, 12)
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        if wanted is None:
            self._leaders.clear()
            self._topic_ids.clear()
        for topic in answer.topics:
            name = topic.name or ""
            self._leaders.pop(name, None)
            self._topic_ids.pop(name, None)
            if topic.error_code not in _TOPIC_IS_MISSING:
                if any(topic.topic_id):
                    self._topic_ids[name] = topic.topic_id.hex()
                check(topic.error_code, f"topic {name}")
                self._leaders[name] = {
                    found.partition_index: Leader(found.leader_id, found.leader_epoch)
                    for found in topic.partitions
                }
        return answer

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic as the brokers know them now; none when there is no such topic."""
        self.refresh([topic])
        return sorted(self._leaders.get(topic, ()))

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has in the last metadata; 0 when there is no such topic."""
        if topic not in self._leaders:
            self.refresh([topic])
        return len(self._leaders.get(topic, ()))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of these topics in the last metadata, of those that have one."""
        return {name: self._topic_ids[name] for name in topics if name in self._topic_ids}

    def forget(self) -> None:
        """Drop what is known about leaders and coordinators."""
        self._leaders.clear()
        self._coordinators.clear()

    def attempt(self, work: Callable[[], T], *, limit_s: float | None = None) -> T:
        """The result of the work, once it succeeds; its KafkaError when that is final or time is up."""
        patience_s = self.timing.attempts_s if limit_s is None else min(limit_s, self.timing.attempts_s)
        deadline_s = time.monotonic() + patience_s
        missing_s: float | None = None
        """When the topic counts as missing, if brokers say until then that they do not know it."""
        backoff_s = 0.0  # a connection that was idle for too long is replaced without a pause
        while True:
            try:
                return work()
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                now_s = time.monotonic()
                if error.code not in _TOPIC_IS_UNKNOWN:
                    missing_s = None
                elif missing_s is None:
                    missing_s = now_s + _UNKNOWN_TOPIC_S
                if now_s + backoff_s > min(deadline_s, missing_s or deadline_s):
                    raise
            self.forget()
            time.sleep(backoff_s)
            backoff_s = min(max(backoff_s * 2, self.timing.backoff_s), _BACKOFF_MAX_S)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _is_busy(self, address: tuple[str, int]) -> bool:
        connection = self._connections.get((address, False))
        return connection is not None and not connection.closed and connection.unanswered > 0

    def _connection(self, address: tuple[str, int], *, aside: bool = False) -> BrokerConnection:
        """The connection to a broker; `aside` is a second one, for questions while the first is busy."""
        connection = self._connections.get((address, aside))
        if connection is None or connection.closed:
            host, port = address
            connection = BrokerConnection(
                host,
                port,
                security=self._security,
                timeout_s=self.timing.request_s,
                client_id=self._client_id,
            )
            self._connections[address, aside] = connection
        return connection


_LACKS_A_RIGHT = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
_RIGHTS_HINT = ": this user lacks a right; docs/acls.md lists those that Spark needs"


def check(code: int, what: str) -> None:
    """Raise the error that a broker answered with, if it did."""
    if not code:
        return
    try:
        known = ErrorCode(code)
    except ValueError:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: error {code}") from None
    raise KafkaError(known, f"{what}: {known.name}{_RIGHTS_HINT if known in _LACKS_A_RIGHT else ''}")


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    found = []
    for text in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, _, port = text.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"kafka.bootstrap.servers={bootstrap}: {text} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigError("kafka.bootstrap.servers is empty: give host:port of at least one broker")
    return found


# -- what outlives a task --------------------------------------------------------------------------------


class _Pool:
    """The clusters of one thread of one process, the least recently used one closed when they are many."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._clusters: OrderedDict[tuple[Any, ...], Cluster] = OrderedDict()

    def get(self, bootstrap: str, options: Mapping[str, str]) -> Cluster:
        key = (bootstrap, security(options, KAFKA), timing(options), options.get("kafka.client.id"))
        if key not in self._clusters:
            self._clusters[key] = Cluster(bootstrap, options)
        self._clusters.move_to_end(key)
        if len(self._clusters) > POOL_CLUSTERS_MAX:
            self._clusters.popitem(last=False)[1].close()
        return self._clusters[key]

    def close(self) -> None:
        while self._clusters:
            self._clusters.popitem()[1].close()


_local = threading.local()


def _pool() -> _Pool:
    pool: _Pool | None = getattr(_local, "pool", None)
    if pool is not None and pool.process_id != os.getpid():
        pool.close()  # forked off a process that goes on using them: closes only our ends
        pool = None
    if pool is None:
        pool = _local.pool = _Pool()
    return pool
