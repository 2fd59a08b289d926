"""Topics and partitions: what this broker holds of them, and the state of those that it leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from forebay.broker.prometheus.families import Page, escaped
from forebay.core.tiers.planning import copy_lag

if TYPE_CHECKING:
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.coordination.metadata import Metadata

_AT_ONCE = 100
_TRAFFIC = "kafka_server_brokertopicmetrics"
_REPLICAS = "kafka_server_replicamanager"
_PARTITION = "kafka_topic_partition"
_PER_TOPIC = 8
_PER_LED_PARTITION = 7


class TopicMetrics:
    """The sums of this broker, and those of each topic."""

    def __init__(self, partitions: PartitionTable, metadata: Metadata, time: BrokerTime) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._time = time

    async def prepare(self) -> None:
        pass

    def add_to(self, page: Page) -> Iterator[None]:
        sums = _Sums(self._time.now_ms())
        for number, partition in enumerate(self._partitions.all()):
            sums.add(partition)
            if not number % _AT_ONCE:
                yield
        unused = self._partitions.unused
        sums.add_to(page, unused)
        page.add(f"{_REPLICAS}_partitioncount", len(self._partitions) + unused)
        for number, (topic, held) in enumerate(sums.topics.items()):
            self._add_topic(page, topic, held)
            if not number % _AT_ONCE:
                yield

    def _add_topic(self, page: Page, topic: str, held: _TopicSums) -> None:
        if not page.has_room(_PER_TOPIC):
            return
        name, traffic = f'topic="{escaped(topic)}"', held.partition.traffic
        page.add("forebay_topic_log_bytes", held.log_bytes, name)
        if held.leads_first:
            image = self._metadata.image.topics.get(topic)
            page.add("kafka_topic_partitions", 0 if image is None else len(image.partitions), name)
        if held.leads:
            page.add(f"{_TRAFFIC}_messagesin_total", traffic.messages_in, name)
            page.add(f"{_TRAFFIC}_bytesin_total", traffic.bytes_in, name)
        if held.leads or traffic.bytes_out:
            page.add(f"{_TRAFFIC}_bytesout_total", traffic.bytes_out, name)
        if held.has_delays:
            page.add("forebay_topic_delayed_pending", held.delayed, name)
        if held.is_tiered:
            page.add("forebay_topic_remote_bytes", held.remote_bytes, name)
            page.add("forebay_topic_remote_lag_bytes", held.remote_lag, name)


class _TopicSums:
    __slots__ = (
        "delayed",
        "has_delays",
        "is_tiered",
        "leads",
        "leads_first",
        "log_bytes",
        "partition",
        "remote_bytes",
        "remote_lag",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        """One of them."""
        self.log_bytes = self.delayed = self.remote_bytes = self.remote_lag = 0
        self.leads = self.leads_first = self.has_delays = self.is_tiered = False


class _Sums:
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.topics: dict[str, _TopicSums] = {}
        self._led = self._under_replicated = self._under_min = self._offline = 0
        self._log_bytes = self._delayed = self._overdue_ms = 0
        self._remote_bytes = self._remote_lag = self._remote_lag_segments = self._remote_failing = 0

    def add(self, partition: Partition) -> None:
        held = self.topics.get(partition.topic)
        if held is None:
            held = self.topics[partition.topic] = _TopicSums(partition)
        size = partition.log.size
        held.log_bytes += size
        self._log_bytes += size
        self._offline += partition.log.offline is not None
        if partition.is_leader:
            held.leads = True
            held.leads_first |= partition.index == 0
            self._led += 1
            self._under_replicated += is_under_replicated(partition)
            self._under_min += not partition.enough_replicas
            if partition.delayed_messages is not None:
                self._add_delays(held, partition)
            if partition.remote is not None:
                self._add_tiers(held, partition)

    def _add_delays(self, held: _TopicSums, partition: Partition) -> None:
        waiting = partition.delayed_messages
        assert waiting is not None
        held.has_delays = True
        held.delayed += waiting.pending
        self._delayed += waiting.pending
        due_ms = None if waiting.index is None else waiting.index.next_due_ms
        if due_ms is not None:
            self._overdue_ms = max(self._overdue_ms, self._now_ms - due_ms)

    def _add_tiers(self, held: _TopicSums, partition: Partition) -> None:
        remote = partition.remote
        assert remote is not None
        held.is_tiered = True
        size = 0 if remote.manifest is None else remote.manifest.data_bytes
        segments, lag = copy_lag(partition.log.segments(), remote.copied_to)
        held.remote_bytes += size
        held.remote_lag += lag
        self._remote_bytes += size
        self._remote_lag += lag
        self._remote_lag_segments += segments
        self._remote_failing += remote.failure is not None

    def add_to(self, page: Page, unused: int) -> None:
        """`unused`: led here, too, and never written to."""
        page.add("forebay_remote_bytes", self._remote_bytes)
        page.add("forebay_remote_lag_bytes", self._remote_lag)
        page.add("forebay_remote_lag_segments", self._remote_lag_segments)
        page.add("forebay_remote_partitions_failing", self._remote_failing)
        page.add(f"{_REPLICAS}_leadercount", self._led + unused)
        page.add(f"{_REPLICAS}_underreplicatedpartitions", self._under_replicated)
        page.add(f"{_REPLICAS}_underminisrpartitioncount", self._under_min)
        page.add(f"{_REPLICAS}_offlinereplicacount", self._offline)
        page.add("forebay_log_bytes", self._log_bytes)
        page.add("forebay_delayed_pending", self._delayed)
        page.add("forebay_delayed_overdue_seconds", self._overdue_ms / 1000)


class PartitionMetrics:
    """Each partition."""

    def __init__(self, partitions: PartitionTable, metadata: Metadata, *, node_id: int) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._node_id = node_id

    async def prepare(self) -> None:
        pass

    def add_to(self, page: Page) -> Iterator[None]:
        for number, partition in enumerate(self._partitions.all()):
            name = f'topic="{escaped(partition.topic)}",partition="{partition.index}"'
            page.add_detail("kafka_log_log_size", partition.log.size, name)
            if partition.is_leader and page.has_room(_PER_LED_PARTITION):
                self._add_led(page, partition, name)
            if not number % _AT_ONCE:
                yield

    def _add_led(self, page: Page, partition: Partition, name: str) -> None:
        leadership = partition.leadership
        state = self._metadata.image.partition(partition.topic, partition.index)
        if leadership is None or state is None:
            return
        is_preferred = bool(state.replicas) and state.replicas[0] == self._node_id
        page.add(f"{_PARTITION}_current_offset", partition.high_watermark, name)
        page.add(f"{_PARTITION}_oldest_offset", partition.start_offset, name)
        page.add(f"{_PARTITION}_leader", self._node_id, name)
        page.add(f"{_PARTITION}_leader_is_preferred", int(is_preferred), name)
        page.add(f"{_PARTITION}_replicas", len(state.replicas), name)
        page.add(f"{_PARTITION}_in_sync_replica", len(leadership.isr), name)
        page.add(f"{_PARTITION}_under_replicated_partition", int(is_under_replicated(partition)), name)


def is_under_replicated(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is not None and len(leadership.isr) <= len(leadership.followers)
