"""Closing partitions that are folded, and passing on the batches that clients still send for them."""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.partition.fold import FoldedInto
from forebay.broker.partition.partition import Partition
from forebay.core.cluster.image import TopicImage
from forebay.core.partition.admission import VERIFY, Refused, admit
from forebay.core.partition.aliases import under_alias
from forebay.core.partition.folded import PassOn, assumed_state, decide_closed, whole_header
from forebay.core.partition.record_rules import Examined
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader, read_header


class PassedOn(NamedTuple):
    """A batch on its way from a partition that is closed or gone to one that may take it."""

    target: int
    """The partition that gets it."""
    records: memoryview
    """A copy, under the alias of its producer."""
    known: PassOn
    """What the partitions on its way know of its producer."""


def follow_fold(partition: Partition, topic: TopicImage, decompress_max_bytes: int) -> None:
    """Close or open a partition as its topic's record says. Called when it has taken its role.

    What it has queued must be written by then.
    """
    fold, target = partition.fold, topic.folded_into(partition.index)
    if target is None:
        if fold is not None:
            partition.fold = None
            partition.configure(partition.config, decompress_max_bytes)
        return
    folding = topic.record.folding
    assert folding is not None
    if fold is None:
        fold = partition.fold = FoldedInto(
            index=target,
            revision=topic.revision,
            closed_ms=folding.closed_ms,
            drop_ms=folding.drop_ms,
            leader_epoch=partition.leader_epoch,
            end_offset=partition.log.end_offset,
        )
        partition.configure(partition.config, decompress_max_bytes)
        return
    fold.index, fold.revision = target, topic.revision
    fold.closed_ms, fold.drop_ms = folding.closed_ms, folding.drop_ms
    if fold.leader_epoch != partition.leader_epoch:
        fold.leader_epoch, fold.end_offset = partition.leader_epoch, partition.log.end_offset


def is_settled(partition: Partition) -> bool:
    """Whether all that clients have written to a closed partition is committed: no leader lacks any of it."""
    fold = partition.fold
    return fold is not None and partition.is_leader and partition.high_watermark >= fold.end_offset


def pass_on(partition: Partition, records: memoryview | None, known: PassOn | None, now_ms: int) -> PassedOn:
    """A batch that was sent for a closed partition, for the one that takes it; raises KafkaError.

    `known`: if it came from another closed partition, what that one knows of its producer.
    """
    fold = partition.fold
    assert fold is not None
    header = whole_header(records, now_ms)
    assert records is not None
    if not is_settled(partition):
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"{partition} is being closed, and not all of it is committed yet"
        )
    decision = decide_closed(partition.producers.find(header.producer_id), header, known)
    if isinstance(decision, Refused):
        raise decision.error()
    partition.producers.heard(header.producer_id)
    return PassedOn(fold.index, under_alias(records, header, partition.index), decision)


def pass_on_removed(
    topic: TopicImage, index: int, records: memoryview | None, now_ms: int
) -> PassedOn | None:
    """The same for a partition that is gone; None if there never was one of this number."""
    target = topic.folded_into(index)
    if target is None or index < len(topic.partitions):
        return None
    header = whole_header(records, now_ms)
    assert records is not None
    return PassedOn(target, under_alias(records, header, index), PassOn())


def append_passed_on(
    partition: Partition,
    records: memoryview,
    now_ms: int,
    known: PassOn,
    *,
    guard: object | None = None,
    examined: Examined | None = None,
) -> tuple[int, int]:
    """Like `Partition.append`, for a batch that was sent for another partition.

    If its producer has sent nothing here yet, the batch must be the one that comes next there.
    """
    producers, producer_id = partition.producers, read_header(records).producer_id
    state = producers.find(producer_id)
    assumed = assumed_state(state, known, producer_id)
    if assumed is state or assumed is None:
        return partition.append(records, now_ms, guard=guard, examined=examined)
    producers.assume(assumed)
    try:
        return partition.append(records, now_ms, guard=guard, examined=examined)
    except BaseException:
        producers.take_back(producer_id, state)
        raise


def begins_transaction(partition: Partition, header: BatchHeader, known: PassOn | None) -> bool:
    """Whether the coordinator has to be asked before a batch is appended here."""
    state = partition.producers.find(header.producer_id)
    if known is not None:
        state = assumed_state(state, known, header.producer_id)
    return admit(state, header) is VERIFY
