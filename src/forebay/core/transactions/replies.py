"""The responses of the transaction APIs, with the error codes that each version knows.

PRODUCER_FENCED was added late: clients of older versions get INVALID_PRODUCER_EPOCH, which means the same to
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions.state import Identity
from forebay.errors import ErrorCode
from forebay.wire.fields import Request, Response
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from forebay.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NOBODY: Identity = (-1, -1)

BATCHED_FROM = 4
"""AddPartitionsToTxn carries many transactions from this version on; only brokers send it."""

EPOCH_BUMP_FROM = 5
"""EndTxn raises the epoch from this version on."""

_ABORTABLE_FROM = 5


def init_producer_id(error: ErrorCode, version: int, identity: Identity = NOBODY) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=_fenced(error, version, known_from=4), producer_id=identity[0], producer_epoch=identity[1]
    )


def add_offsets_to_txn(error: ErrorCode, version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=_fenced(error, version, known_from=2))


def end_txn(error: ErrorCode, version: int, identity: Identity = NOBODY) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=_fenced(error, version, known_from=2), producer_id=identity[0], producer_epoch=identity[1]
    )


def transactions_of(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    """The transactions of a request of any version."""
    if version >= BATCHED_FROM:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset((topic.name, partition) for topic in topics for partition in topic.partitions)


def transaction_result(
    transaction: AddPartitionsToTxnTransaction, version: int, error_of: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResult:
    """The answer for one transaction, asking for the error of each of its partitions."""

    def result(topic: str, partition: int) -> AddPartitionsToTxnPartitionResult:
        error = _fenced(error_of((topic, partition)), version, known_from=2)
        if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
            error = ErrorCode.INVALID_TXN_STATE
        return AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=error)

    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[result(topic.name, partition) for partition in topic.partitions],
        )
        for topic in transaction.topics
    ]
    return AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)


def add_partitions_to_txn(
    results: list[AddPartitionsToTxnResult], version: int
) -> AddPartitionsToTxnResponse:
    if version >= BATCHED_FROM:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def failure(request: Request, version: int, error: ErrorCode) -> Response:
    """A response to any of these requests that has nothing but this error."""
    if isinstance(request, InitProducerIdRequest):
        return init_producer_id(error, version)
    if isinstance(request, AddOffsetsToTxnRequest):
        return add_offsets_to_txn(error, version)
    if isinstance(request, EndTxnRequest):
        return end_txn(error, version)
    assert isinstance(request, AddPartitionsToTxnRequest)
    results = [
        transaction_result(each, version, lambda _: error) for each in transactions_of(request, version)
    ]
    return add_partitions_to_txn(results, version)


def _fenced(error: ErrorCode, version: int, *, known_from: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < known_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
