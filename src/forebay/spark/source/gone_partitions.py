"""Partitions that a stream was reading, and that are gone: was anything lost with them?

A topic that gets fewer partitions closes the last ones. When they are empty they are taken away, and the
topic remembers where each of them ended. Whoever has come that far has read all of it. Brokers other than
Forebay's say nothing, as their topics never get fewer partitions.
"""

from __future__ import annotations

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.source.offset_ranges import Offsets, TopicPartition
from forebay.spark.wire.connections import Cluster
from forebay.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

_VERSION = 0


def not_read_to_the_end(cluster: Cluster, gone: Offsets) -> list[TopicPartition]:
    """Those of the partitions that are gone of which more may have been to read than up to these offsets."""
    ends: Offsets = {}
    for topic in sorted({at.topic for at in gone}):
        ends |= _ends(cluster, topic, {at for at in gone if at.topic == topic})
    return sorted(at for at, offset in gone.items() if ends.get(at) != offset)


def _ends(cluster: Cluster, topic: str, wanted: set[TopicPartition]) -> Offsets:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)], response_partition_limit=1)

    def ask() -> Offsets:
        answer: DescribeTopicPartitionsResponse = cluster.any().ask(request, _VERSION)
        found: Offsets = {}
        for each in answer.topics:
            found |= {TopicPartition(topic, part.partition_index): part.end_offset for part in each.gone}
            if each.closed_ms >= 0 and not found.keys() >= wanted:
                # This broker may be a moment behind the one that does not show them any more.
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"not all of {topic} is known")
        return found

    try:
        return cluster.attempt(ask)
    except KafkaError:
        return {}  # nobody can say that they were read
