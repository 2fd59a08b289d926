"""Who takes a batch: the partition that it was sent for, or the one into which that is folded.

A batch for a folded partition goes on to the one that takes it, under the alias of its producer, and with
what the closed partitions on its way know of the producer. It is appended at once if that partition is led
here, else its leader gets it (`handovers.py`). The answer names the partition that the client named.

`core/cluster/topics/fewer_partitions.py` says what a fold is.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, NamedTuple

from forebay.broker.folds.handovers import Done, Handovers, Taker, folded_request
from forebay.broker.partition.append_refusals import filled_by_view
from forebay.broker.partition.closed_partition import decided
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.topic_folds import Stop
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.partition.folds.aliases import PRODUCER_IDS_END, NamedProducer, named_by, under_alias
from forebay.core.partition.folds.closed_partition import (
    OUT_OF_PLACE,
    PassOn,
    aliased,
    assumed_state,
    takes,
    whole_header,
)
from forebay.core.partition.producers.producer_admission import VERIFY, Repeats, admit
from forebay.core.partition.record_rules import UNEXAMINED, Examined, Unexamined
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
        """The state of its producer as closed partitions on its way know it; None if there were none."""

    def stored_before(self, code: int) -> Repeats | None:
        """Where the batch is already, if the partition that gets it refuses it with this code: a closed
        partition has it."""
        return self.known.repeats if self.known is not None and code in OUT_OF_PLACE else None


class OtherBroker(NamedTuple):
    """The leader of the partition that takes a batch."""

    node_id: int
    topic_id: bytes


class Destination(NamedTuple):
    """Where a batch goes."""

    taker: Partition | OtherBroker
    target: int
    """Index of the partition that gets it."""
    header: BatchHeader
    """As the partition sees it."""
    known: PassOn | None
    """As in `SentBatch`."""

    def named(self, index: int) -> NamedProducer:
        """Whom the transaction coordinator knows, if a request has sent the batch for partition `index`."""
        return named_by(self.header.producer_id, index)


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
        try:
            partition = self._find(topic, batch.index)
            if partition.fold is None:
                return partition
        except KafkaError as error:
            self._removed_into(topic, batch.index, error)
        header = whole_header(batch.records, self._now_ms())
        assert batch.records is not None
        taker, batch.index, sent, batch.known = self.destination(
            topic, batch.index, header, batch.known, batch.records
        )
        if isinstance(taker, OtherBroker):
            self._handovers.check(taker.topic_id, sent, Taker(taker.node_id, batch.index))
        else:
            self._handovers.taken_here(taker.topic_id, sent, Taker(self._node_id, batch.index))
        batch.records = under_alias(batch.records, header, sent.producer_id)
        return taker

    def destination(
        self,
        topic: str,
        index: int,
        header: BatchHeader,
        known: PassOn | None,
        records: memoryview | None = None,
    ) -> Destination:
        """Where a batch with this header goes that was sent for this partition. Raises KafkaError.

        `records`: the batch, for closed partitions that have it under an alias. They recognise repeats within
        a transaction by the checksum, which the alias changes.
        """
        sent = header
        while True:
            try:
                partition = self._find(topic, index)
            except KafkaError as error:
                onward, generation = self._removed_into(topic, index, error)
                known = PassOn()
            else:
                fold = partition.fold
                if fold is None:
                    return Destination(partition, index, header, known)
                self._partitions.get_with_lease(topic, index)
                if records is not None and header.producer_id != sent.producer_id:
                    header = read_header(under_alias(records, sent, header.producer_id))
                onward, generation, known = fold.index, fold.generation, decided(partition, header, known)
            header, index = aliased(header, index, generation), onward
            other = self._led_elsewhere(topic, index)
            if other is not None:
                return Destination(other, index, header, known)

    def transaction_begins(
        self, topic: str, index: int, header: BatchHeader, known: PassOn | None
    ) -> Destination | None:
        """Where a transaction would begin with a batch, if that is here. Raises KafkaError."""
        if known is None and header.producer_id >= PRODUCER_IDS_END:
            # A client's batch under an alias, which only brokers give. The coordinator would be asked about
            # the partition that it names, and this one would never get a marker.
            return None
        found = self.destination(topic, index, header, known)
        is_begun = isinstance(found.taker, Partition) and _begins(found.taker, found.header, found.known)
        return found if is_begun else None

    def append(
        self,
        partition: Partition,
        batch: SentBatch,
        now_ms: int,
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
        header, producers = read_header(records), partition.producers
        if is_verified and guard is None and _begins(partition, header, known):
            raise folded_meanwhile(partition)
        self._check_takes(partition, header)
        state = producers.find(header.producer_id)
        # If its producer has sent nothing here yet, the batch must be the one that comes next there.
        assumed = assumed_state(state, known, header, forgets=producers.forgets)
        if assumed is None or assumed is state:
            return partition.append(records, now_ms, guard=guard, examined=examined)
        producers.assume(assumed)
        appended: tuple[int, int] | Unexamined = UNEXAMINED
        try:
            appended = partition.append(records, now_ms, guard=guard, examined=examined)
        finally:
            if appended is UNEXAMINED:
                producers.take_back(header.producer_id, state)
        return appended

    def _check_takes(self, partition: Partition, header: BatchHeader) -> None:
        """Raise KafkaError for a batch that came by a fold of which this partition is no part any more."""
        if not takes(self._partitions.topic_of(partition), partition.index, header.producer_id):
            named = named_by(header.producer_id, partition.index).partition
            text = f"messages for {partition.topic}-{named} do not go to {partition} any more"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def has_under_way(self, topic_id: bytes, named: Container[int]) -> bool:
        """True if batches for one of these partitions were handed over and are not answered yet."""
        return self._handovers.has_under_way(topic_id, named)

    def hand_over(self, batch: SentBatch, to: OtherBroker, done: Done, **how: Any) -> None:
        """Call `done` later, with the answer of that broker or with an error that clients retry.

        `how`: as for `folded_request`.
        """
        self._handovers.send(to.node_id, _request(batch, to, **how), done)

    async def ask(self, batch: SentBatch, to: OtherBroker) -> FoldedProduceResponse:
        """Like `hand_over`, but waits for the answer."""
        return await self._handovers.ask(to.node_id, _request(batch, to))

    def _find(self, topic: str, index: int) -> Partition:
        """A partition to which clients may write, closed or not."""
        partition = self._partitions.get(topic, index)
        if partition.is_filled:
            raise filled_by_view(topic)
        if topic in INTERNAL_TOPICS:
            text = f"only brokers write to {topic}; use another topic"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        return partition

    def _removed_into(self, topic: str, index: int, error: KafkaError) -> Stop:
        """Where batches go whose partition is folded and gone. Raises the error if there never was one."""
        stop = self._partitions.removed_into(topic, index)
        if stop is None or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
        return stop

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


def _begins(partition: Partition, header: BatchHeader, known: PassOn | None) -> bool:
    """True if a batch begins a transaction, so that the coordinator has to be asked first."""
    state = partition.producers.find(header.producer_id)
    if known is not None:
        state = assumed_state(state, known, header, forgets=partition.producers.forgets)
    return admit(state, header) is VERIFY


def _request(batch: SentBatch, to: OtherBroker, **how: Any) -> FoldedProduceRequest:
    assert batch.known is not None, "no fold leads to another broker"
    return folded_request(batch.records, batch.known, to.topic_id, batch.index, **how)
