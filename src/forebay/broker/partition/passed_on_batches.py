"""Closing partitions that are folded, and passing on the batches that clients still send for them."""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.partition.append_refusals import require_known_producers
from forebay.broker.partition.fold_state import FoldedInto
from forebay.broker.partition.partition import Partition
from forebay.config.keys.broker import StorageConfig
from forebay.core.cluster.topic_folds import Stop
from forebay.core.cluster.topic_image import TopicImage
from forebay.core.partition.folds.aliases import named_by, under_alias
from forebay.core.partition.folds.closed_partition import (
    PassOn,
    assumed_state,
    decide_closed,
    takes,
    whole_header,
)
from forebay.core.partition.producer_admission import VERIFY, Refused, admit
from forebay.core.partition.producer_table import ProducerState
from forebay.core.partition.record_rules import UNEXAMINED, Examined, Unexamined
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


def follow_fold(partition: Partition, topic: TopicImage, storage: StorageConfig, now_ms: int) -> None:
    """Close or open a partition as its topic's record says. Called when it has taken its role.

    What it has queued must be written by then.
    """
    folding, stop = topic.record.folding, topic.folded_into(partition.index)
    assert folding is not None
    fold, is_returning = partition.fold, folding.is_gathering(partition.index)
    was_held = _end_hold(partition, is_closed=stop is not None)
    if stop is None and not is_returning:
        if fold is not None or was_held:
            partition.fold = None
            partition.configure(partition.config, storage.decompress_max_bytes)
        return
    if fold is None:
        fold = partition.fold = FoldedInto(
            leader_epoch=partition.leader_epoch, end_offset=partition.log.end_offset
        )
        partition.configure(partition.config, storage.decompress_max_bytes)
    if is_returning and not fold.is_returning and fold.is_over:
        partition.producers.forget_idle()  # it gathers what the other partition knows
    fold.index, fold.generation = stop or Stop(partition.index, None)
    fold.is_returning, fold.revision = is_returning, topic.revision
    fold.closed_ms, fold.drop_ms = folding.closed_ms, folding.drop_ms
    fold.age(now_ms, storage)
    fold.is_copied = folding.copied is not None and folding.next_copy is None
    if fold.leader_epoch != partition.leader_epoch:
        fold.leader_epoch, fold.end_offset = partition.leader_epoch, partition.log.end_offset


def _end_hold(partition: Partition, *, is_closed: bool) -> bool:
    """End what a leader of an earlier term, or this one until the close, has held; whether it was held."""
    hold = partition.hold
    if hold is None:
        return False
    if not is_closed and partition.is_leader and hold.leader_epoch == partition.leader_epoch:
        return False
    partition.hold = None
    return True


def is_settled(partition: Partition) -> bool:
    """Whether no later leader of a closed partition has less of what clients have written to it, or more."""
    fold = partition.fold
    is_committed = fold is not None and partition.high_watermark >= fold.end_offset
    return is_committed and partition.is_leader and partition.is_followed


def check_passes_on(partition: Partition, fold: FoldedInto) -> None:
    """Raise KafkaError while batches for a closed partition cannot be passed on; clients try again."""
    require_known_producers(partition.log)
    if fold.is_returning:
        problem = "takes messages itself in a moment"
    elif not is_settled(partition):
        problem = "is being closed, and not all of it is committed yet"
    else:
        return
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{partition} {problem}")


def known_producer(partition: Partition, producer_id: int) -> ProducerState | None:
    """What a closed partition knows of a producer, for as long as that counts."""
    state, fold = partition.producers.find(producer_id), partition.fold
    if state is None or state.in_transaction or fold is None or not fold.is_over:
        return state
    return None


def decided(partition: Partition, fold: FoldedInto, header: BatchHeader, known: PassOn | None) -> PassOn:
    """What a closed partition tells the one that takes a batch; raises KafkaError.

    `known`: if it came from another closed partition, what that one knows of its producer.
    """
    check_passes_on(partition, fold)
    decision = decide_closed(known_producer(partition, header.producer_id), header, known)
    if isinstance(decision, Refused):
        raise decision.error()
    return decision


def pass_on(partition: Partition, records: memoryview | None, known: PassOn | None, now_ms: int) -> PassedOn:
    """A batch that was sent for a closed partition, for the one that takes it; raises KafkaError."""
    fold = partition.fold
    assert fold is not None
    header = whole_header(records, now_ms)
    assert records is not None
    decision = decided(partition, fold, header, known)
    partition.producers.heard(header.producer_id)
    copy = under_alias(records, header, partition.index, fold.generation)
    return PassedOn(fold.index, copy, decision)


def pass_on_removed(
    topic: TopicImage, index: int, records: memoryview | None, now_ms: int
) -> PassedOn | None:
    """The same for a partition that is gone; None if there never was one of this number."""
    stop = topic.folded_into(index)
    if stop is None or index < len(topic.partitions):
        return None
    header = whole_header(records, now_ms)
    assert records is not None
    return PassedOn(stop.partition, under_alias(records, header, index, stop.generation), PassOn())


def append_passed_on(
    partition: Partition,
    topic: TopicImage,
    records: memoryview,
    now_ms: int,
    known: PassOn,
    *,
    guard: object | None = None,
    examined: Examined | None = None,
) -> tuple[int, int] | Unexamined:
    """Like `Partition.append`, for a batch that was sent for another partition.

    If its producer has sent nothing here yet, the batch must be the one that comes next there.
    """
    producers, header = partition.producers, read_header(records)
    producer_id = header.producer_id
    if not takes(topic, partition.index, producer_id):
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"messages for {partition.topic}-{named_by(producer_id, partition.index).partition} do not go to "
            f"{partition} any more",
        )
    state = producers.find(producer_id)
    assumed = assumed_state(state, known, header, forgets=producers.forgets)
    if assumed is state or assumed is None:
        return partition.append(records, now_ms, guard=guard, examined=examined)
    producers.assume(assumed)
    appended: tuple[int, int] | Unexamined = UNEXAMINED
    try:
        appended = partition.append(records, now_ms, guard=guard, examined=examined)
    finally:
        if appended is UNEXAMINED:
            producers.take_back(producer_id, state)
    return appended


def begins_transaction(partition: Partition, header: BatchHeader, known: PassOn | None) -> bool:
    """Whether the coordinator has to be asked before a batch is appended here."""
    state = partition.producers.find(header.producer_id)
    if known is not None:
        state = assumed_state(state, known, header, forgets=partition.producers.forgets)
    return admit(state, header) is VERIFY
