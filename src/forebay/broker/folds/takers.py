"""Who takes a batch: the partition that it was sent for, or the one into which that is folded.

A batch for a folded partition goes on to the one that takes it, under the alias of its producer, and with
what the closed partitions on its way know of the producer. It is appended at once if that partition is led
here, else its leader gets it (`handovers.py`). The answer names the partition that the client named.

`core/cluster/fewer_partitions.py` says what a fold is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from forebay.broker.folds.handovers import Done, Handovers, folded_request
from forebay.broker.partition.append_refusals import filled_by_view
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.passed_on_batches import (
    append_passed_on,
    begins_transaction,
    decided,
    pass_on,
    pass_on_removed,
)
from forebay.broker.partition.table import PartitionTable
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.topics import INTERNAL_TOPICS
from forebay.core.partition.folds.aliases import PRODUCER_IDS_END, NamedProducer, named_by
from forebay.core.partition.folds.closed_partition import OUT_OF_PLACE, PassOn, aliased
from forebay.core.partition.producer_admission import Repeats
from forebay.core.partition.record_rules import Examined, Unexamined
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import BatchHeader, read_header
from forebay.wire.messages.folded_produce import FoldedProduceRequest, FoldedProduceResponse


class SentBatch:
    """A batch on its way to the partition that takes it."""

    __slots__ = ("index", "known", "records")

    def __init__(self, index: int, records: memoryview | None, known: PassOn | None = None) -> None:
        self.index = index
        """The partition that it was sent for, or the one that gets it instead."""
        self.records = records
        self.known = known
        """What closed partitions on its way know of its producer; None if there were none."""

    def stored_before(self, code: int) -> Repeats | None:
        """Where the batch is already, if the partition that gets it refuses it with this code: a closed
        partition has it."""
        return self.known.repeats if self.known is not None and code in OUT_OF_PLACE else None


class OtherBroker(NamedTuple):
    """The leader of the partition that takes a batch."""

    node_id: int
    topic_id: bytes


class Destination(NamedTuple):
    """A partition, led here, to which a batch would go."""

    partition: Partition
    header: BatchHeader
    """As the partition would see it."""
    known: PassOn | None
    named: NamedProducer
    """Whom the transaction coordinator has to be asked about."""

    @property
    def begins_transaction(self) -> bool:
        return begins_transaction(self.partition, self.header, self.known)


class BatchTakers:
    def __init__(
        self,
        partitions: PartitionTable,
        metadata: Metadata,
        handovers: Handovers,
        *,
        node_id: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._handovers = handovers
        self._node_id = node_id
        self._now_ms = now_ms

    def who_takes(self, topic: str, batch: SentBatch) -> Partition | OtherBroker:
        """The partition that appends a batch, or the broker that leads it. Raises KafkaError.

        A batch for a folded partition becomes one for the partition that takes it.
        """
        while True:
            try:
                partition = self._find(topic, batch.index)
            except KafkaError as error:
                passed = None
                image = self._metadata.image.topics.get(topic)
                if image is not None and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    passed = pass_on_removed(image, batch.index, batch.records, self._now_ms())
                if passed is None:
                    raise
            else:
                if partition.fold is None:
                    return partition
                self._partitions.get_for_certain(topic, batch.index)
                passed = pass_on(partition, batch.records, batch.known, self._now_ms())
            batch.index, batch.records, batch.known = passed
            other = self._led_elsewhere(topic, batch.index)
            if other is not None:
                return other

    def would_take(self, topic: str, index: int, header: BatchHeader, known: PassOn | None) -> Destination:
        """Where a batch with this header would go. Nothing changes. Raises KafkaError, as `who_takes`."""
        if known is None and header.producer_id >= PRODUCER_IDS_END:
            # The coordinator would be asked about the partition that the alias names, and this one would
            # never get a marker.
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "only brokers give aliases")
        sent_for = index
        while True:
            try:
                partition = self._find(topic, index)
            except KafkaError:
                stop = self._partitions.removed_into(topic, index)
                if stop is None:
                    raise
                header, known = aliased(header, index, stop.generation), PassOn()
                index = stop.partition
                continue
            fold = partition.fold
            if fold is None:
                return Destination(partition, header, known, named_by(header.producer_id, sent_for))
            known = decided(partition, fold, header, known)
            header, index = aliased(header, index, fold.generation), fold.index

    def append(
        self,
        partition: Partition,
        batch: SentBatch,
        now_ms: int,
        *,
        guard: object | None = None,
        is_verified: bool = False,
        examined: Examined | None = None,
    ) -> tuple[int, int] | Unexamined:
        """Like `Partition.append`, for the partition that takes a batch.

        `is_verified`: all that had to be asked about its transaction was asked.
        """
        known, records = batch.known, batch.records
        if known is None:
            return partition.append(records, now_ms, guard=guard, examined=examined)
        assert records is not None
        if is_verified and guard is None and begins_transaction(partition, read_header(records), known):
            raise folded_meanwhile(partition)
        topic = self._partitions.topic_of(partition)
        return append_passed_on(partition, topic, records, now_ms, known, guard=guard, examined=examined)

    def hand_over(self, batch: SentBatch, to: OtherBroker, done: Done, **how: Any) -> None:
        """Call `done` later, with the answer of that broker or with an error that clients retry.

        `how`: as for `folded_request`.
        """
        self._handovers.send(to.node_id, _request(batch, to, **how), done)

    async def ask(self, batch: SentBatch, to: OtherBroker) -> FoldedProduceResponse:
        """The same for one that waits for the answer."""
        return await self._handovers.ask(to.node_id, _request(batch, to))

    def _find(self, topic: str, index: int) -> Partition:
        """A partition to which clients may write, closed or not."""
        partition = self._partitions.get(topic, index)
        if partition.is_filled:
            raise filled_by_view(topic)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"only brokers write to {topic}; use another topic"
            )
        return partition

    def _led_elsewhere(self, topic: str, index: int) -> OtherBroker | None:
        image = self._metadata.image
        state = image.partition(topic, index)
        if state is None or state.leader == NO_LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no leader now")
        if state.leader == self._node_id:
            return None
        return OtherBroker(state.leader, image.topics[topic].topic_id)


def folded_meanwhile(partition: Partition) -> KafkaError:
    """The error for a batch whose partition was folded while the coordinator was asked about it."""
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS, f"{partition} takes the batch now, and has to verify its transaction"
    )


def _request(batch: SentBatch, to: OtherBroker, **how: Any) -> FoldedProduceRequest:
    assert batch.known is not None, "no fold leads to another broker"
    return folded_request(batch.records, batch.known, to.topic_id, batch.index, **how)
