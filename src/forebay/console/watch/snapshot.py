"""A cluster at one moment, as values that pages read without asking a broker again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.lazy import dataclass
from forebay.operations.client import join_address

if TYPE_CHECKING:
    from forebay.wire.messages.describe_remote_logs import DescribedRemoteLog

Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSeen:
    id: int
    host: str
    port: int
    rack: str | None
    disk_bytes: int | None = None
    """The bytes of all logs of this broker; None if it does not say."""
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    answers: bool = True
    """False if the cluster knows it and it did not answer."""

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSeen:
    index: int
    leader: int
    """-1 without a leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int | None = None
    end: int | None = None
    """The next offset that readers of all messages will see."""
    size: int | None = None
    """Bytes on the leader's disk."""
    remote: DescribedRemoteLog | None = None
    """Of a tiered partition: what is in the object store."""

    @property
    def messages(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    name: str
    id: str
    partitions: tuple[PartitionSeen, ...]
    rate: float | None = None
    """Messages a second since the last look; None at the first."""

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def messages(self) -> int | None:
        known = [part.messages for part in self.partitions if part.messages is not None]
        return sum(known) if known else None

    @property
    def size(self) -> int | None:
        known = [part.size for part in self.partitions if part.size is not None]
        return sum(known) if known else None

    @property
    def remote_bytes(self) -> int | None:
        """Bytes in the object store; None if the topic is not tiered, or no leader has said it yet."""
        known = [part.remote.remote_bytes for part in self.partitions if part.remote is not None]
        return sum(known) if known else None

    @property
    def replication(self) -> int:
        return max((len(part.replicas) for part in self.partitions), default=0)

    @property
    def leaderless(self) -> int:
        return sum(part.leader < 0 for part in self.partitions)

    @property
    def under_replicated(self) -> int:
        return sum(len(part.isr) < len(part.replicas) for part in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    name: str
    kind: str
    """classic, consumer or share."""
    state: str
    coordinator: int
    offsets: Mapping[Place, int] = field(default_factory=dict)
    """The offsets that the group has committed, or at which a share group begins."""
    lags: Mapping[Place, int] = field(default_factory=dict)
    is_spark: bool = False
    """Its offsets were committed by a stream of Spark."""
    read_rate: float | None = None
    """Messages a second since the last look, by what was committed; None at the first."""
    moved_s: float | None = None
    """The time of the last change of its offsets; None if the console has seen none."""

    @property
    def lag(self) -> int | None:
        return sum(self.lags.values()) if self.lags else None

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for topic, _ in self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSeen:
    """The last commit of a stream or a job of Spark that writes exactly once."""

    name: str
    topics: tuple[str, ...]
    batch: int
    """The last one."""
    batches_rate: float | None = None
    """Batches a second since the last look."""
    moved_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsSeen:
    """The requests of one kind since the picture before."""

    name: str
    rate: float
    """A second."""
    median_ms: float | None
    slow_ms: float | None
    """One in a hundred took longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivitySeen:
    """The traffic of brokers since the picture before, a second."""

    bytes_in: float
    bytes_out: float
    connections: int
    requests: Mapping[str, RequestsSeen]
    """By the name of the API; Fetch as FetchConsumer and FetchFollower."""
    by_broker: Mapping[int, Mapping[str, RequestsSeen]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    time_s: float
    number: int
    """Counts the looks at the cluster, from 1."""
    cluster_id: str
    controller: int
    brokers: tuple[BrokerSeen, ...]
    topics: Mapping[str, TopicSeen]
    groups: Mapping[str, GroupSeen]
    readers: Mapping[str, tuple[str, ...]]
    """The groups that read each topic."""
    ledgers: Mapping[str, LedgerSeen]
    """Exactly-once writers of Spark, by name."""
    topic_lags: Mapping[str, int]
    """The largest lag that a group has on each topic that is read."""
    took_s: float
    """The time that was spent on waiting for answers: the brokers' work, at most."""
    hidden: tuple[str, ...] = ()
    """The things that this user may not see, in words."""
    activity: ActivitySeen | None = None
    """None at the first picture, and of brokers that do not tell."""

    def broker(self, node: int) -> BrokerSeen | None:
        return next((each for each in self.brokers if each.id == node), None)
