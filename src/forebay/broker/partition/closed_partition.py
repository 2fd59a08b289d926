"""A partition that is folded: how it is closed and opened, and what it knows of the batches sent for it."""

from __future__ import annotations

from forebay.broker.partition.append_refusals import require_known_producers
from forebay.broker.partition.fold_state import FoldedInto
from forebay.broker.partition.partition import Partition
from forebay.config.keys.storage import StorageConfig
from forebay.core.cluster.images.topic_folds import Stop
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.partition.folds.closed_partition import PassOn, decide_closed
from forebay.core.partition.producers.producer_admission import Refused
from forebay.core.partition.producers.producer_table import ProducerState
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader


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
    hold = partition.closing
    if hold is None:
        return False
    if not is_closed and partition.is_leader and hold.leader_epoch == partition.leader_epoch:
        return False
    partition.closing = None
    return True


def is_settled(partition: Partition) -> bool:
    """True if every later leader of a closed partition has exactly the clients' messages that this one
    has."""
    fold = partition.fold
    is_committed = fold is not None and partition.high_watermark >= fold.end_offset
    return is_committed and partition.is_leader and partition.is_followed


def _check_passes_on(partition: Partition, fold: FoldedInto) -> None:
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
    """The state of a producer in a closed partition, for as long as it counts."""
    state, fold = partition.producers.find(producer_id), partition.fold
    if state is None or state.in_transaction or fold is None or not fold.is_over:
        return state
    return None


def decided(partition: Partition, header: BatchHeader, known: PassOn | None) -> PassOn:
    """The decision that a closed partition passes on with a batch; raises KafkaError.

    `known`: if it came from another closed partition, what that one knows of its producer.
    """
    assert partition.fold is not None
    _check_passes_on(partition, partition.fold)
    decision = decide_closed(known_producer(partition, header.producer_id), header, known)
    if isinstance(decision, Refused):
        raise decision.error()
    partition.producers.heard(header.producer_id)
    return decision
