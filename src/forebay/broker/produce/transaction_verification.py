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
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.core.partition.admission import VERIFY
from forebay.core.partition.transaction_verification import Verifications
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError
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

    producer_id: int = -1
    guards: dict[TopicPartition, object] = field(default_factory=dict)
    errors: Verdict = field(default_factory=dict)
    _asking: list[tuple[Verifications, object]] = field(default_factory=list)

    def begin(self, partition: Partition, header: BatchHeader) -> None:
        """Get a guard for a partition that will be asked about."""
        key, verifications = (partition.topic, partition.index), partition.verifications
        if key in self.guards:
            return
        try:
            guard = verifications.begin(header.producer_id, header.producer_epoch, header.base_sequence)
        except KafkaError as error:
            self.errors[key] = error
        else:
            self.guards[key] = guard
            self._asking.append((verifications, guard))

    def guard_for(self, key: TopicPartition) -> object | None:
        error = self.errors.get(key)
        if error is not None:
            raise error
        return self.guards.get(key)

    def release(self) -> None:
        """Every batch of the request has been appended or refused."""
        for verifications, guard in self._asking:
            verifications.release(self.producer_id, guard)
        self._asking.clear()


def verify(
    request: ProduceRequest,
    version: int,
    *,
    partitions: PartitionTable,
    ask: VerifyTransaction,
    proceed: Callable[[Admission], None],
) -> bool:
    """Find out what may be appended, then `proceed`; returns whether that has happened already."""
    assert request.transactional_id is not None
    unverified = list(_unverified(partitions, version, request))
    if not unverified:
        proceed(Admission())
        return True
    producers = {(header.producer_id, header.producer_epoch) for _, header in unverified}
    if len(producers) > 1:
        proceed(Admission(errors=_mixed([partition for partition, _ in unverified])))
        return True
    ((producer_id, epoch),) = producers
    admission = Admission(producer_id=producer_id)
    for partition, header in unverified:
        admission.begin(partition, header)
    question = Verification(
        request.transactional_id, producer_id, epoch, list(admission.guards), version >= _IMPLICIT_ADD_FROM
    )
    answered = False

    def answer(verdict: Verdict) -> None:
        nonlocal answered
        answered = True
        errors = {**admission.errors, **verdict}
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
    partitions: PartitionTable, version: int, request: ProduceRequest
) -> Iterator[tuple[Partition, BatchHeader]]:
    """Partitions where a transaction would begin. What cannot be appended anyway is refused later."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            header = _header(data)
            if header is None or not header.is_transactional:
                continue
            try:
                partition = find_partition(partitions, version, topic, data)
            except KafkaError:
                continue
            if partition.decide(header) is VERIFY:
                yield partition, header


def find_partition(
    partitions: PartitionTable, version: int, topic: TopicProduceData, data: PartitionProduceData
) -> Partition:
    """The partition that a request names, if this broker leads it; raises KafkaError."""
    if version >= TOPIC_IDS_FROM:
        return partitions.by_id(topic.topic_id, data.index)
    return partitions.get(topic.name, data.index)


def _header(data: PartitionProduceData) -> BatchHeader | None:
    records = data.records
    return read_header(records) if records is not None and len(records) >= HEADER_SIZE else None


def _own_batches(request: ProduceRequest) -> None:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _mixed(partitions: list[Partition]) -> Verdict:
    error = KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        "one request carries transactional batches of several producers",
    )
    return {(partition.topic, partition.index): error for partition in partitions}


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
