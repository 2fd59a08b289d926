"""Produce requests that begin transactions on partitions: the coordinator is asked before they are appended.

A partition takes a transactional batch without a question while the producer's transaction is open there. The
first batch of a transaction needs the coordinator to know that the partition takes part, or the transaction
could never be ended there. Older clients have told it so (AddPartitionsToTxn) and it only has to agree; since
version 12 the Produce request itself adds the partition.

The coordinator is asked through a function (`VerifyTransaction`) that answers at once or later. If the answer
comes later, the batches of the request have been copied, because the buffer they came in is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import NamedTuple, TypeAlias

from forebay.broker.folds.takers import BatchTakers, Destination, folded_meanwhile
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.core.partition.folds.closed_partition import PassOn
from forebay.core.partition.transaction_verification import Verifications
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.batch import HEADER_SIZE, BatchHeader, read_header
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_IDS_FROM = 13
_IMPLICIT_ADD_FROM = 12
_ABORTABLE_FROM = 11

COME_BACK = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The coordinator has not answered yet. The error for the client must not make it look for another broker."""


class Verification(NamedTuple):
    """The question to the transaction coordinator."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]
    add: bool
    """Add the partitions to the ongoing transaction, or begin one with them; else they must be in it."""


Verdict: TypeAlias = dict[TopicPartition, KafkaError]
"""The partitions that are not in the transaction, and why."""

VerifyTransaction: TypeAlias = Callable[[Verification, Callable[[Verdict], None]], None]


@dataclass(slots=True, kw_only=True)
class Admission:
    """Which partitions of a request may begin a transaction: guards to show, or errors to answer with."""

    guards: dict[TopicPartition, tuple[object, Partition]] = field(default_factory=dict)
    """By the partition of the request; each counts for the partition that the batch goes to."""
    errors: Verdict = field(default_factory=dict)
    named: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """Which partition of the request the coordinator is asked about under this name."""
    _asking: list[tuple[Verifications, int, object]] = field(default_factory=list)

    def begin(self, index: int, destination: Destination) -> None:
        """Get a guard for where the batch goes that the request has for the partition `index`."""
        partition, header = destination.taker, destination.header
        assert isinstance(partition, Partition)
        key, verifications = (partition.topic, index), partition.verifications
        if key in self.guards:
            return
        if partition.closing is not None:
            self.errors[key] = _held(partition)
            return
        try:
            guard = verifications.begin(header.producer_id, header.producer_epoch, header.base_sequence)
        except KafkaError as error:
            self.errors[key] = error
        else:
            self.guards[key] = guard, partition
            self.named[partition.topic, destination.named(index).partition] = key
            self._asking.append((verifications, header.producer_id, guard))

    def guard_for(self, index: int, partition: Partition) -> object | None:
        """The guard to show a partition, for the batch that the request has for the partition `index`."""
        key = (partition.topic, index)
        error = self.errors.get(key)
        if error is not None:
            raise error
        guard, asked = self.guards.get(key, (None, partition))
        if asked is not partition:
            raise folded_meanwhile(partition)
        return guard

    def release(self) -> None:
        """Every batch of the request has been appended or refused."""
        for verifications, producer_id, guard in self._asking:
            verifications.release(producer_id, guard)
        self._asking.clear()


def verify(
    request: ProduceRequest,
    version: int,
    *,
    known: PassOn | None = None,
    partitions: PartitionTable,
    takers: BatchTakers,
    ask: VerifyTransaction,
    proceed: Callable[[Admission], None],
) -> bool:
    """Find out what may be appended, then `proceed`; returns whether that has happened already.

    `known`: the request was handed over by another broker, with what a folded partition knows.
    """
    assert request.transactional_id is not None
    undecided: Verdict = {}
    unverified = list(_unverified(partitions, takers, version, request, known, undecided))
    if not unverified:
        proceed(Admission())
        return True
    producers = {(each.named(at[1]).producer_id, each.header.producer_epoch) for at, each in unverified}
    if len(producers) > 1:
        proceed(Admission(errors=_mixed([at for at, _ in unverified])))
        return True
    ((producer_id, epoch),) = producers
    admission = Admission(errors=undecided)
    for (_, index), destination in unverified:
        admission.begin(index, destination)
    question = Verification(
        request.transactional_id, producer_id, epoch, list(admission.named), version >= _IMPLICIT_ADD_FROM
    )
    answered = False

    def answer(verdict: Verdict) -> None:
        nonlocal answered
        answered = True
        errors = {**admission.errors, **{admission.named[at]: error for at, error in verdict.items()}}
        admission.errors = {key: _for_client(error, version) for key, error in errors.items()}
        proceed(admission)

    if admission.guards:
        ask(question, answer)
    else:
        answer({})
    if not answered:
        _own_batches(request)
    return answered


def _unverified(
    partitions: PartitionTable,
    takers: BatchTakers,
    version: int,
    request: ProduceRequest,
    known: PassOn | None,
    undecided: Verdict,
) -> Iterator[tuple[TopicPartition, Destination]]:
    """Partitions where a transaction would begin. What cannot be appended anyway is refused later.

    A transaction begins where the batch goes, which the leader there finds out. `undecided` gets those of
    which that cannot be said now: while the coordinator is asked about others, they may come to take
    messages, and would find the batch unverified.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            header = _header(data)
            if header is None or not header.is_transactional:
                continue
            at = topic.name, data.index
            try:
                at = topic_name(partitions, version, topic), data.index
                destination = takers.transaction_begins(*at, header, known)
            except KafkaError as error:
                if error.code == ErrorCode.NOT_ENOUGH_REPLICAS:
                    undecided[at] = error
                continue
            if destination is not None:
                yield at, destination


def topic_name(partitions: PartitionTable, version: int, topic: TopicProduceData) -> str:
    """The topic that a request names. Raises KafkaError."""
    return partitions.name_of(topic.topic_id) if version >= TOPIC_IDS_FROM else topic.name


def _held(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"{partition} is about to be closed, and no transaction begins there now",
    )


def _header(data: PartitionProduceData) -> BatchHeader | None:
    records = data.records
    return read_header(records) if records is not None and len(records) >= HEADER_SIZE else None


def _own_batches(request: ProduceRequest) -> None:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _mixed(partitions: list[TopicPartition]) -> Verdict:
    error = KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        "one request carries transactional batches of several producers",
    )
    return dict.fromkeys(partitions, error)


def _for_client(error: KafkaError, version: int) -> KafkaError:
    """The coordinator's error as a producer of that version understands it."""
    code = error.code
    if code == ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, error.message)
    retried_badly = code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _IMPLICIT_ADD_FROM
    if code in COME_BACK or retried_badly:
        # Clients retry this one without looking for another leader, which not all do for the others.
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction is not verified: {error.message}")
    return error
