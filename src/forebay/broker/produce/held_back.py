"""Refuses what a connection sends behind a refused batch: `core/partition/producers/refused_batches.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import load
from forebay.wire.batch import HEADER_SIZE, read_header
from forebay.wire.messages.produce import PartitionProduceData, TopicProduceData

if TYPE_CHECKING:
    from forebay.broker.net.connection import Connection
    from forebay.broker.partition.partition import Partition
    from forebay.core.partition.producers.refused_batches import RefusedBatches

_REFUSED_BATCHES = "forebay.core.partition.producers.refused_batches:RefusedBatches"
_BETWEEN_BROKERS = "forebay.core.partition.producers.refused_batches:BETWEEN_BROKERS"


def hold_back(
    connection: Connection,
    topic: TopicProduceData,
    data: PartitionProduceData,
    error: KafkaError,
    *,
    by_broker: bool = False,
) -> KafkaError:
    """The error for a batch that is refused: that of the one before it, if that will be sent again.

    `by_broker`: another broker hands over the batches of its clients by this connection.
    """
    refused = connection.refused_batches
    if refused is not None and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        error = refused.reason(topic, data) or error
    if error.code.retriable:
        if refused is None:
            make = load(_REFUSED_BATCHES)
            refused = make(load(_BETWEEN_BROKERS)) if by_broker else make()
        if refused.add(topic, data, error):
            connection.refused_batches = refused
            connection.memo = None  # which does not look for refused batches
    return error


def check_nothing_missing(
    refused: RefusedBatches,
    topic: TopicProduceData,
    data: PartitionProduceData,
    taker: Partition,
    records: memoryview | None,
) -> None:
    """Raise KafkaError for what a partition would take, because it does not know what comes before it.

    `records`: the batch as the partition sees it.
    """
    reason = refused.reason(topic, data)
    if reason is not None:
        assert records is not None, "it has numbers"
        if taker.producers.find(read_header(records).producer_id) is None:
            raise reason


def check_before_hand_over(
    connection: Connection, topic: TopicProduceData, data: PartitionProduceData
) -> None:
    """Raise KafkaError for a batch that another broker might take, not knowing what comes before it."""
    refused = connection.refused_batches
    if refused is not None:
        reason = refused.reason(topic, data)
        if reason is not None:
            raise reason
        refused.taken(topic, data)


def numbers_of(records: memoryview | None) -> bytes:
    """The bytes of a batch by which it is known when it was taken and is refused after all. The buffer that
    it came in is used again before."""
    assert records is not None
    return bytes(records[:HEADER_SIZE])
