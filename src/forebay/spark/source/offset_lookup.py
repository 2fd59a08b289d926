"""The driver's requests to brokers: which partitions exist, their first and last offsets, and commits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.source.offset_ranges import EARLIEST, LATEST, Offsets, Position, TopicPartition
from forebay.spark.source.options import ReadOptions, Subscription
from forebay.spark.wire.connections import BrokerConnection, Cluster, check
from forebay.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from forebay.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

NOT_FOUND = -1
"""The offset of a timestamp when every record is older."""

_BY_SPARK = "spark"
"""The metadata of committed offsets, by which the console knows who has committed them."""
_COMMIT_BY_NAME_VERSION = 9


def partitions(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """The partitions that exist now and are subscribed to; topics that do not exist are left out."""
    wanted = _topics(subscription)

    def look() -> list[TopicPartition]:
        found = cluster.refresh(wanted)
        return [
            TopicPartition(topic.name or "", partition.partition_index)
            for topic in _matching(found, subscription)
            for partition in topic.partitions
        ]

    existing = cluster.attempt(look)
    if subscription.partitions:
        return sorted(set(existing) & set(subscription.partitions))
    return sorted(existing)


def required_partitions(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """The same; a KafkaError when something that was named does not exist."""

    def look() -> list[TopicPartition]:
        found = partitions(cluster, subscription)
        topics = {at.topic for at in found}
        missing = [name for name in subscription.topics if name not in topics]
        missing += [str(at) for at in subscription.partitions if at not in found]
        if missing:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no {', '.join(missing)} at {cluster.bootstrap}: create it first",
            )
        return found

    return cluster.attempt(look)


def _topics(subscription: Subscription) -> list[str] | None:
    if subscription.pattern:
        return None
    return list(subscription.topics) or sorted({at.topic for at in subscription.partitions})


def _matching(found: MetadataResponse, subscription: Subscription) -> list[MetadataResponseTopic]:
    wanted = found.topics
    if subscription.pattern:
        pattern = re.compile(subscription.pattern)
        # As in Kafka's consumers, a pattern never matches internal topics. They can be read by their name.
        wanted = [topic for topic in wanted if not topic.is_internal and pattern.fullmatch(topic.name or "")]
    for topic in wanted:
        if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
            # It exists. A topic that is left out counts as deleted.
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name} is not available just now")
    return [topic for topic in wanted if not topic.error_code]


# -- offsets -----------------------------------------------------------------------------------------------


def offsets_at(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Offsets:
    """The offset of each partition's timestamp: EARLIEST, LATEST, or that of the first record as young."""
    return cluster.attempt(lambda: _ask_leaders(cluster, wanted, read_committed)) if wanted else {}


def ends(
    cluster: Cluster, subscription: Subscription, *, read_committed: bool, known: Iterable[str] = ()
) -> Offsets:
    """The ends of all partitions that exist and are subscribed to.

    Raises a KafkaError if one of the `known` topics is not among them. A single answer does not prove it.
    """

    def look() -> Offsets:
        # Anew each time: a partition that was closed may go in between.
        places = partitions(cluster, subscription)
        if missing := sorted(set(known) - {at.topic for at in places}):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {', '.join(missing)}")
        return _ask_leaders(cluster, dict.fromkeys(places, LATEST), read_committed)

    return cluster.attempt(look)


def _ask_leaders(cluster: Cluster, wanted: Mapping[TopicPartition, int], read_committed: bool) -> Offsets:
    by_leader: dict[BrokerConnection, list[TopicPartition]] = defaultdict(list)
    for at in sorted(wanted):
        by_leader[cluster.leader(*at)].append(at)
    found: Offsets = {}
    for leader, places in by_leader.items():
        answer = leader.ask(_list_request(cluster, {at: wanted[at] for at in places}, read_committed))
        for topic in answer.topics:
            for partition in topic.partitions:
                at = TopicPartition(topic.name, partition.partition_index)
                check(partition.error_code, f"the offsets of {at}")
                found[at] = partition.offset
    return found


def _list_request(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for at, timestamp in wanted.items():
        epoch = cluster.leadership(*at).epoch
        topics[at.topic].append(
            ListOffsetsPartition(
                partition_index=at.partition, timestamp=timestamp, current_leader_epoch=epoch
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=found) for name, found in topics.items()],
        timeout_ms=int(cluster.timing.request_s * 1000),
    )


def starting_offsets(cluster: Cluster, options: ReadOptions, places: Iterable[TopicPartition]) -> Offsets:
    return resolve(
        cluster,
        options.starting,
        places,
        read_committed=options.fetching.read_committed,
        latest_if_unmatched=options.latest_if_unmatched,
    )


def resolve(
    cluster: Cluster,
    position: Position,
    places: Iterable[TopicPartition],
    *,
    read_committed: bool,
    latest_if_unmatched: bool,
) -> Offsets:
    """The offsets that a position stands for."""
    wanted = position.of(places)
    if not position.is_timestamp:
        asked = {at: offset for at, offset in wanted.items() if offset in (EARLIEST, LATEST)}
        return wanted | offsets_at(cluster, asked, read_committed=read_committed)
    found = offsets_at(cluster, wanted, read_committed=read_committed)
    unmatched = [at for at, offset in found.items() if offset == NOT_FOUND]
    if unmatched and not latest_if_unmatched:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{position.option}: {', '.join(map(str, unmatched))} has no record as young as that;"
            " startingOffsetsByTimestampStrategy=latest starts at the end instead",
        )
    return found | offsets_at(cluster, dict.fromkeys(unmatched, LATEST), read_committed=read_committed)


# -- groups ------------------------------------------------------------------------------------------------


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members; KafkaError when it fails."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for at in sorted(offsets):
        topics[at.topic].append(
            OffsetCommitRequestPartition(
                partition_index=at.partition, committed_offset=offsets[at], committed_metadata=_BY_SPARK
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
    )
    answer = cluster.coordinator(group).ask(request, _COMMIT_BY_NAME_VERSION)
    for topic in answer.topics:
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            check(partition.error_code, f"offset of {at} for group {group}")
