"""Batches of a connection that were refused and will be sent again: those behind them are refused as well.

A producer that numbers its batches keeps several of them under way. The first may be refused because this
broker does not lead yet, or has too few replicas in sync, and the second may come when it can be taken. The
second does not come next, for the first is missing. OUT_OF_ORDER_SEQUENCE_NUMBER would be true, but makes
librdkafka begin a new epoch in all its partitions, and send under new numbers what may be stored under the
old ones. And from a producer that it does not know, a partition takes any number: the second batch would be
stored, and the first refused when it comes again. So what comes behind a refused batch is refused for the
same reason, until that batch comes again.

A producer that hears of a refusal sends nothing new before all batches under way are answered. So a refusal
is forgotten after as many requests as a producer with numbers may have under way.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from forebay.core.cluster.topics.topic_requests import NAME_LENGTH_MAX
from forebay.core.partition.producers.producer_table import BATCHES_RETAINED
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import HEADER_SIZE, SEQUENCE_MASK, BatchHeader, read_header
from forebay.wire.messages.produce import PartitionProduceData, TopicProduceData

_HALF_OF_ALL_SEQUENCES = (SEQUENCE_MASK + 1) // 2

_BATCHES_MAX = 256
"""Of a connection that has more of them refused at once, the last are remembered."""

Source: TypeAlias = tuple[str, bytes, int, int]
"""A partition as the client names it (name and id of the topic, index), and the producer's id."""


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    code: ErrorCode


class RefusedBatches:
    __slots__ = ("_refused", "_requests_left")

    def __init__(self) -> None:
        self._refused: dict[Source, _Refused] = {}
        self._requests_left = 0

    def begin_request(self) -> bool:
        """Count a Produce request; False if it was certainly sent after the refusals had been heard."""
        self._requests_left -= 1
        return self._requests_left >= 0 and bool(self._refused)

    def add(self, topic: TopicProduceData, data: PartitionProduceData, error: KafkaError) -> bool:
        """A batch was refused; True if others have to wait for it: it is numbered, and will be sent again."""
        header = _numbered(data.records)
        if header is None or not error.code.retriable or self.reason(topic, data) is not None:
            return False
        if len(topic.name) > NAME_LENGTH_MAX:
            return False  # no topic, only memory
        if len(self._refused) >= _BATCHES_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[_source(topic, data, header)] = _Refused(
            header.producer_epoch, header.base_sequence, error.code
        )
        self._requests_left = BATCHES_RETAINED
        return True

    def reason(self, topic: TopicProduceData, data: PartitionProduceData) -> KafkaError | None:
        """Why a batch cannot be taken now: the reason for which one before it was refused, if one was."""
        header = _numbered(data.records)
        refused = None if header is None else self._refused.get(_source(topic, data, header))
        if header is None or refused is None or header.producer_epoch != refused.producer_epoch:
            return None
        ahead = (header.base_sequence - refused.base_sequence) & SEQUENCE_MASK
        if not 0 < ahead < _HALF_OF_ALL_SEQUENCES:
            return None
        return KafkaError(refused.code, "a batch before it was refused, and has to be sent again first")

    def taken(self, topic: TopicProduceData, data: PartitionProduceData) -> None:
        """A batch was appended, or is there already: nothing before it is missing any more."""
        header = _numbered(data.records)
        if header is not None:
            self._refused.pop(_source(topic, data, header), None)


def _source(topic: TopicProduceData, data: PartitionProduceData, header: BatchHeader) -> Source:
    return topic.name, topic.topic_id, data.index, header.producer_id


def _numbered(records: memoryview | None) -> BatchHeader | None:
    """The header of a batch, if its producer numbers its batches."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.producer_id >= 0 else None
