"""Fewer partitions: the last ones of a topic are *folded* into the others, decided on an image.

No client can be told to forget a partition: librdkafka never lowers its count, and a batch of the Java client
never changes its partition. So a folded partition stays in the metadata, closed to new messages. Messages
that clients send for partition p are stored in p modulo n, where n partitions stay open. When p is empty it
is removed, beginning with the last partition, since partitions are numbered without gaps. Messages that
clients still send for it take the same way, for ever.

A topic may be folded several times. Each fold covers a range of partitions, and the ranges do not overlap;
from 12 to 4 and later to 2 makes (4 to 11, modulo 4) and (2 to 3, modulo 2). Messages for 7 go to 3, where
their producer's sequence numbers are known, and from there to 1.

A compacted topic is never emptied by retention. So the records of its partitions are copied to those that
take their messages (`broker/record_moves/fold_copies.py`), one partition after the other in the order of
their numbers, and each stays open until that is done. If a topic has had its partitions doubled before, the
newer values of a key are in the later partition; in this order they are copied after the older ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from forebay.config import BrokerConfig, TopicConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, PartitionDeleted, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_folds import Fold, Folding, Gone
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.topics.more_partitions import check_settled
from forebay.core.cluster.topics.topic_requests import (
    KEEPS_COUNT,
    check_not_filled,
    check_own,
    create_partitions,
    existing_topic,
    filled_from,
)
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass

REMOVED_AT_ONCE_MAX = 32
"""Partitions that one transaction of the store removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRequest:
    """An administrator's request for fewer partitions."""

    count: int
    """The number of partitions that stay open."""
    now_ms: int
    drop_after_ms: int | None = None
    """When closed partitions are removed with their messages; None: when retention has emptied them."""
    allow_key_moves: bool = False
    """Fold although some keys get another partition."""


def fold_topic(
    image: ClusterImage, broker: BrokerConfig, topic: TopicImage, request: FoldRequest
) -> list[Change]:
    """Close the partitions from `request.count` on. Raises KafkaError INVALID_PARTITIONS."""
    count, current = request.count, len(topic.partitions)
    check_own(topic.name, KEEPS_COUNT)
    check_not_filled(image, topic.name)
    _check_fills(image, topic)
    _check(topic, request)
    config = TopicConfig.resolve(broker, image.topic_config(topic.name).overrides)
    _check_settings(topic, request, config, grace_ms=broker.storage.fold_grace_ms)
    before = topic.record.folding
    generation = 0 if before is None else before.generation + 1
    fold = Fold(first=count, end=current, divisor=count, generation=generation)
    drop_ms = None if request.drop_after_ms is None else request.now_ms + request.drop_after_ms
    folding = Folding(
        folds=(fold, *(() if before is None else before.folds)),
        closed_ms=request.now_ms,
        drop_ms=drop_ms,
        last_epoch=before.last_epoch if before is not None else -1,
        generation=generation,
        gone=before.gone if before is not None else (),
        copied=count if config.compacted else None,
    )
    return [TopicPut(record=replace(topic.record, folding=folding))]


def _check_fills(image: ClusterImage, topic: TopicImage) -> None:
    fills = sorted(filled.name for filled in filled_from(image, topic))
    if fills:
        names = ", ".join(map(repr, fills))
        raise _refused(f"{topic.name!r} fills the materialized views {names}: delete them first")


def _check(topic: TopicImage, request: FoldRequest) -> None:
    count, current = request.count, len(topic.partitions)
    if count < 1:
        raise _refused(f"a topic has at least 1 partition, not {count}")
    check_settled(topic)
    if topic.closed_from < current:
        raise _refused(
            f"partitions {topic.closed_from} to {current - 1} of {topic.name!r} are being folded already; "
            "wait until they are gone"
        )
    if current % count and not request.allow_key_moves:
        raise _refused(
            f"{count} does not divide {current}: some keys would get another partition, now and again when "
            f"clients learn the new count; choose {_divisors(current)}, or use "
            f"`forebay topic alter {topic.name} --partitions {count} --allow-key-moves`"
        )


def _check_settings(topic: TopicImage, request: FoldRequest, config: TopicConfig, *, grace_ms: int) -> None:
    if config.delay_enable:
        raise _refused(
            f"{topic.name!r} has forebay.delay.enable, and partitions of such a topic cannot be folded yet: "
            "messages that wait there would be delivered to closed partitions"
        )
    drop_after_ms = request.drop_after_ms
    if drop_after_ms is not None and drop_after_ms < grace_ms:
        raise _refused(
            f"closed partitions stay for at least {grace_ms} ms (forebay.fold.grace.ms), not for "
            f"{drop_after_ms}: producers may still send again what is in them"
        )


def _divisors(count: int) -> str:
    return ", ".join(str(n) for n in range(1, count) if count % n == 0)


def set_partitions(
    image: ClusterImage,
    broker: BrokerConfig,
    name: str,
    request: FoldRequest,
    assignment: Sequence[Sequence[int]] | None = None,
) -> list[Change]:
    """Give a topic as many partitions as an administrator asks for: more, or fewer by folding."""
    topic = existing_topic(image, name)
    if request.count >= topic.closed_from:
        if request.count > topic.closed_from:
            _check_taken_back(image, broker, topic)
        return create_partitions(image, name, request.count, assignment)
    if assignment is not None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no partitions are added that could be assigned"
        )
    return fold_topic(image, broker, topic, request)


def _check_taken_back(image: ClusterImage, broker: BrokerConfig, topic: TopicImage) -> None:
    config = TopicConfig.resolve(broker, image.topic_config(topic.name).overrides)
    if config.compacted and topic.closed_from < len(topic.partitions):
        raise _refused(
            f"{topic.name!r} is compacted, and closed partitions of such a topic cannot be taken back yet: "
            "newer values of their keys are in others; wait until the closed ones are gone"
        )


def remove_closed(
    image: ClusterImage, topic_id: bytes, over: Mapping[int, int], node_id: int
) -> list[Change]:
    """Remove the last partitions of a topic, as far as they are over and led by this broker.

    `over`: the partitions that may be removed, and the end offset of each.
    """
    topic = image.topic_by_id(topic_id)
    folding = None if topic is None else topic.record.folding
    if topic is None or folding is None or folding.growth is not None:
        return []
    going = list(_last_ones(topic, over, node_id))
    if not going:
        return []
    left = topic.record.assignment[: going[-1]]
    states = [topic.partitions[index] for index in going]
    kept = (each for each in folding.gone if each.partition not in going)
    folding = replace(
        folding,
        last_epoch=max(folding.last_epoch, *(state.leader_epoch for state in states)),
        gone=(*kept, *(Gone(index, over[index]) for index in going)),
        copied=None if going[-1] == topic.closed_from else folding.copied,
    )
    return [
        TopicPut(record=replace(topic.record, assignment=left, folding=folding)),
        *(PartitionDeleted(topic_id=topic_id, state=state) for state in states),
    ]


def close_copied(
    image: ClusterImage, topic_id: bytes, index: int, *, node_id: int, leader_epoch: int, now_ms: int
) -> list[Change]:
    """Close a partition whose records are copied. Only its leader may do so, in its own term.

    The state of the partition is written with it, unchanged: so nothing is written if another leader has been
    elected, which may have taken messages.
    """
    topic = image.topic_by_id(topic_id)
    folding = None if topic is None else topic.record.folding
    if topic is None or folding is None or folding.next_copy != index:
        return []
    state = topic.partitions[index]
    if state.leader != node_id or state.leader_epoch != leader_epoch:
        return []
    after = replace(folding, copied=index + 1)
    if after.next_copy is None:
        after = replace(after, closed_ms=now_ms)
    return [
        TopicPut(record=replace(topic.record, folding=after)),
        PartitionPut(topic_id=topic_id, state=state),
    ]


def _last_ones(topic: TopicImage, over: Container[int], node_id: int) -> Iterator[int]:
    last = len(topic.partitions) - 1
    for index in range(last, max(topic.closed_from - 1, last - REMOVED_AT_ONCE_MAX), -1):
        if index not in over or topic.partitions[index].leader != node_id:
            return
        yield index


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_PARTITIONS, message)
