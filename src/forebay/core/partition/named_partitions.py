"""Which partitions a request of a client is about, and how long it may wait for them.

Requests of brokers are about partitions, too, but do not wait: a follower fetches many partitions, and goes
on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from forebay.core.topic_partition import TopicPartition
from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import ZERO_UUID

WAIT_MS_MAX = 30_000
"""For requests that name no time, and the most for the others."""

_FETCH_WAIT_MS_MIN = 500
"""A fetch that takes what is there at once waits for the opening all the same: it is not about messages."""

NameOf = Callable[[str, bytes], str]
"""The topic that is meant by a name, or by an id where there is one. Raises KafkaError."""


class Named(NamedTuple):
    topics: Callable[[Any], Any]
    name: Callable[[Any], str]
    partitions: Callable[[Any], Any]
    index_of: Callable[[Any], int]
    wait_ms: Callable[[Any], int]
    uses: bool = True
    """False if it can be answered for a partition that nobody has used yet, which is then not opened."""
    checks_readers: bool = False
    """True if its handler checks who may read, so that partitions must not be opened for others before."""

    def keys(self, request: Any, name_of: NameOf) -> Iterator[TopicPartition]:
        for topic in self.topics(request):
            name = name_of(self.name(topic), getattr(topic, "topic_id", ZERO_UUID))
            for partition in self.partitions(topic):
                yield name, self.index_of(partition)

    def wait_s(self, request: Any) -> float:
        return max(0, min(self.wait_ms(request), WAIT_MS_MAX)) / 1000


def _by_clients(request: Any) -> Any:
    is_follower = request.replica_id >= 0 or getattr(request, "replica_state", _NO_STATE).replica_id >= 0
    return () if is_follower else request.topics


class _NoState(NamedTuple):
    replica_id: int = -1


_NO_STATE = _NoState()

NAMED: dict[int, Named] = {
    ApiKey.PRODUCE: Named(
        lambda request: request.topic_data,
        lambda topic: topic.name,
        lambda topic: topic.partition_data,
        lambda partition: partition.index,
        lambda request: request.timeout_ms,
    ),
    ApiKey.FETCH: Named(
        _by_clients,
        lambda topic: topic.topic,
        lambda topic: topic.partitions,
        lambda partition: partition.partition,
        lambda request: max(request.max_wait_ms, _FETCH_WAIT_MS_MIN),
        checks_readers=True,
    ),
    ApiKey.LIST_OFFSETS: Named(
        _by_clients,
        lambda topic: topic.name,
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        lambda request: request.timeout_ms or WAIT_MS_MAX,
        uses=False,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Named(
        _by_clients,
        lambda topic: topic.topic,
        lambda topic: topic.partitions,
        lambda partition: partition.partition,
        lambda _: WAIT_MS_MAX,
        uses=False,
    ),
    ApiKey.DELETE_RECORDS: Named(
        lambda request: request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        lambda request: request.timeout_ms,
    ),
    ApiKey.SHARE_FETCH: Named(
        lambda request: request.topics,
        lambda _: "",
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        lambda request: max(request.max_wait_ms, _FETCH_WAIT_MS_MIN),
        checks_readers=True,
    ),
    ApiKey.DESCRIBE_PRODUCERS: Named(
        lambda request: request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partition_indexes,
        lambda index: index,
        lambda _: WAIT_MS_MAX,
    ),
}
