"""Batches of a connection that were refused and will be sent again: those behind them are refused as well.

A producer that numbers its batches keeps several of them under way. The first may be refused because this
broker does not lead yet, or has too few replicas in sync, and the second may come when it can be taken. The
second does not come next, for the first is missing. OUT_OF_ORDER_SEQUENCE_NUMBER would be true, but makes
librdkafka begin a new epoch in all its partitions, and send under new numbers what may be stored under the
old ones. And from a producer that it does not know, a partition takes any number: the second batch would be
stored, and the first refused when it comes again. So what comes behind a refused batch is refused for the
same reason, until that batch comes again.

A producer that hears of a refusal sends nothing new before all batches under way are answered. So a refusal
is forgotten after as many requests as a producer with numbers may have under way. A batch that was refused
because of one before it counts for those behind it as well, from its own request on: the one before may be
stored elsewhere, never come again and be forgotten while its successors are on their way.

The connection of a broker that hands over batches for folded partitions carries those of many producers, so
more requests may lie between two batches of one of them (`BETWEEN_BROKERS`).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from forebay.core.cluster.topics.topic_requests import NAME_LENGTH_MAX
from forebay.core.partition.producers.producer_table import BATCHES_RETAINED
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import HEADER_SIZE, BatchHeader, comes_after, read_header
from forebay.wire.messages.produce import PartitionProduceData, TopicProduceData

BETWEEN_BROKERS = 1000
"""The requests after which a refusal is forgotten on a connection by which a broker hands over batches: as
many as may be unanswered there (`broker/cluster/peers/peer_connection.py`), each of another producer."""
_SOURCES_MAX = 256
"""Of a client's connection that has batches of more of them refused at once, the last are remembered."""

_OF_A_SOURCE_MAX = 2 * BATCHES_RETAINED

Source: TypeAlias = tuple[str, bytes, int, int]
"""A partition as the client names it (name and id of the topic, index), and the producer's id."""


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    last_request: int
    """The last request of the connection to which it matters."""


class RefusedBatches:
    __slots__ = ("_last_request", "_refused", "_request", "_sources_max", "_window")

    def __init__(self, window: int = BATCHES_RETAINED) -> None:
        """`window`: the requests after which a refusal is forgotten."""
        self._window = window
        self._sources_max = max(window, _SOURCES_MAX)
        self._refused: dict[Source, list[_Refused]] = {}
        """By their sequences, and of each source only those that matter for longer than the ones before."""
        self._request = 0
        self._last_request = 0
        """The last one to which any of them matters."""

    def begin_request(self) -> bool:
        """Count a Produce request; False if it was certainly sent after the refusals had been heard."""
        self._request += 1
        return self._request <= self._last_request and bool(self._refused)

    def add(self, topic: TopicProduceData, data: PartitionProduceData, error: KafkaError) -> bool:
        """A batch was refused; True if others have to wait for it: it is numbered, and will be sent again."""
        header = _numbered(data.records)
        if header is None or not error.code.retriable:
            return False
        if len(topic.name) > NAME_LENGTH_MAX:
            return False  # no topic, only memory
        source = _source(topic, data, header)
        before = [refused for refused in self._refused.pop(source, ()) if self._matters(refused, header)]
        last_request = self._last_request = self._request + self._window
        if not before or before[-1].last_request < last_request:
            before.append(_Refused(header.producer_epoch, header.base_sequence, error.code, last_request))
        if len(self._refused) >= self._sources_max:
            del self._refused[next(iter(self._refused))]
        self._refused[source] = before[-_OF_A_SOURCE_MAX:]
        return True

    def reason(self, topic: TopicProduceData, data: PartitionProduceData) -> KafkaError | None:
        """Why a batch cannot be taken now: the reason for which one before it was refused, if one was."""
        header = _numbered(data.records)
        if header is None:
            return None
        for refused in self._refused.get(_source(topic, data, header), ()):
            if self._matters(refused, header):
                return KafkaError(
                    refused.code, "a batch before it was refused, and has to be sent again first"
                )
        return None

    def taken(self, topic: TopicProduceData, data: PartitionProduceData) -> None:
        """A batch was appended, or is there already: nothing before it is missing any more."""
        header = _numbered(data.records)
        if header is None:
            return
        source = _source(topic, data, header)
        behind = [
            refused
            for refused in self._refused.pop(source, ())
            if refused.producer_epoch == header.producer_epoch
            and comes_after(refused.base_sequence, header.base_sequence)
        ]
        if behind:
            self._refused[source] = behind

    def _matters(self, refused: _Refused, header: BatchHeader) -> bool:
        """True if a batch has to wait until this one comes again."""
        still_counts = refused.last_request >= self._request
        return still_counts and header.is_behind(refused.producer_epoch, refused.base_sequence)


def _source(topic: TopicProduceData, data: PartitionProduceData, header: BatchHeader) -> Source:
    return topic.name, topic.topic_id, data.index, header.producer_id


def _numbered(records: memoryview | None) -> BatchHeader | None:
    """The header of a batch, if its producer numbers its batches."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.producer_id >= 0 else None
