"""The fast path for a Produce request with the same header as the previous one on its connection.

Two requests of a producer for one topic differ only in the correlation id, the partition's index and the
batch. So a connection remembers the rest of its last request (the *prefix*) and the response to it. A request
that begins with that prefix is not decoded, and its response not encoded: the numbers are put into a copy.

The batch goes through Partition.append like any other, and is admitted or refused in
`core/partition/producers/producer_admission.py`. Anything unusual (an error, an unknown partition, too few
in-sync replicas, a batch that begins a transaction or follows a refused one) takes the full path, before any
state has changed. The rule by which an ack waits is the write cycle's.
`tests/broker/produce/test_produce_repeats.py` sends generated requests both ways, and compares the responses
byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct

from forebay.broker.net.connection import Connection
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.held_back import hold_back
from forebay.broker.produce.next_leaders import with_next_leaders
from forebay.broker.produce.produce_host import ProduceHost
from forebay.broker.produce.write_cycle import ACKS_ALL, NUMBERS, Appended, Unacknowledged
from forebay.broker.telemetry.request_times import Measurement
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.partition.record_rules import UNEXAMINED
from forebay.errors import KafkaError
from forebay.wire.api_keys import ApiKey
from forebay.wire.batch import ATTRIBUTES_LOW_AT, HEADER_SIZE, TRANSACTIONAL
from forebay.wire.codec.layout import read_uvarint
from forebay.wire.fields import ZERO_UUID
from forebay.wire.frames import response_frame
from forebay.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_HEAD_BYTES = 4  # api key and version; the correlation id follows
_PREFIX_START = 8
_INDEX = Struct(">i")
_unpack_index = Struct(">iBB").unpack_from
"""The partition's index, and the first two bytes behind it: most batches have their length in two."""
_CORRELATION_AT, _CORRELATION_END = 4, 8
_REST_BYTES_MIN = 4 + 1 + HEADER_SIZE
_REPEATED_FROM = 7
"""Older versions refuse zstd, and before 5 a response has no log start offset beside the other numbers."""


class RepeatedProduce:
    __slots__ = (
        "_acks_all",
        "_find",
        "_flexible",
        "_head",
        "_index_at",
        "_listener",
        "_metrics",
        "_now_ms",
        "_numbers_at",
        "_partitions",
        "_plain",
        "_prefix",
        "_response",
        "_service",
        "_sync_on_ack",
        "_tail",
        "_tail_bytes",
        "_timeout_ms",
        "_times",
        "_topic",
        "_version",
        "_write_cycle",
    )

    def __init__(
        self,
        service: ProduceHost,
        context: RequestContext,
        request: ProduceRequest,
        head: bytes,
        prefix: bytes,
        tail: bytes,
    ) -> None:
        version, topic = context.api_version, request.topic_data[0]
        self._service = service
        self._listener = context.connection.listener.name
        self._topic = TopicProduceData(name=topic.name, topic_id=topic.topic_id)
        self._now_ms = service.now_ms
        self._write_cycle = service.write_cycle
        self._metrics = service.metrics
        self._times = service.metrics.requests.of(ApiKey.PRODUCE)
        self._acks_all = request.acks == ACKS_ALL
        self._sync_on_ack = service.sync_on_ack
        self._plain = request.transactional_id is None
        self._timeout_ms = max(request.timeout_ms, 0)
        self._version = version
        self._find = _finder(service.partitions, topic)
        self._head = head
        self._prefix = prefix
        self._tail = tail
        self._tail_bytes = len(tail)
        self._flexible = bool(tail)
        self._index_at = _PREFIX_START + len(prefix)
        self._partitions: dict[int, Partition] = {}
        self._response, self._numbers_at = _response_template(version, topic.name, topic.topic_id)

    def repeat(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, stop: int
    ) -> bool:
        """Handle the request in buffer[start:stop] if it has the prefix; otherwise change nothing."""
        if not (
            buffer.startswith(self._head, start, stop)
            and buffer.startswith(self._prefix, start + _PREFIX_START, stop)
        ):
            return False
        position = start + self._index_at
        # The last check of the frame: what lies between the index and the tail is the length and the batch.
        if stop - position < _REST_BYTES_MIN or not buffer.endswith(self._tail, position, stop):
            return False
        index, low, high = _unpack_index(buffer, position)
        end = stop - self._tail_bytes
        if not self._flexible:
            (size,) = _INDEX.unpack_from(buffer, position + 4)
            position += 8
        elif low >= 0x80 > high:
            size = (low & 0x7F | high << 7) - 1
            position += 6
        else:
            size, position = read_uvarint(view, position + 4)
            size -= 1
        if position + size != end or (self._plain and buffer[position + ATTRIBUTES_LOW_AT] & TRANSACTIONAL):
            return False
        partition = self._partitions.get(index)
        if partition is None or partition.closed:  # it may have been deleted and made again
            try:
                partition = self._partitions[index] = self._find(index)
            except KafkaError:
                return False
        if self._acks_all and not partition.enough_replicas:
            return False
        log = partition.log
        end_offset = log.end_offset
        try:
            appended = partition.append(view[position:end], self._now_ms())
        except KafkaError:
            return False  # the full path meets the same error, and answers with it
        if appended is UNEXAMINED:
            return False
        base_offset, append_time_ms = appended
        times = self._times
        count = times.count = times.count + 1
        measurement = None if count < times.measured_from else self._measure(connection)
        if base_offset < end_offset:
            self._metrics.duplicates_dropped += 1
            size = 0
        response = bytearray(self._response)
        correlation_at = start + _HEAD_BYTES
        response[_CORRELATION_AT:_CORRELATION_END] = buffer[correlation_at : correlation_at + 4]
        NUMBERS.pack_into(response, self._numbers_at, index, 0, base_offset, append_time_ms, log.start_offset)
        if self._acks_all and (self._sync_on_ack or not partition.commits_at_once):
            numbers = bytes(view[position : position + HEADER_SIZE])
            self._respond_later(connection, partition, numbers, size, response, measurement)
        else:
            connection.respond_with(response)
            self._write_cycle.queued_with_response(partition, size, response, self._numbers_at)
            if measurement is not None:
                self._write_cycle.measured.append(measurement)
        return True

    def _measure(self, connection: Connection) -> Measurement:
        times, began_s = self._times, connection.last_active
        return Measurement(times.times, times.begin(began_s), began_s, self._service.uptime_s)

    def _respond_later(
        self,
        connection: Connection,
        partition: Partition,
        numbers: bytes,
        size: int,
        response: bytearray,
        measurement: Measurement | None,
    ) -> None:
        """The response is built now, and sent when the batch is committed as acks=all requires."""
        if size:
            self._write_cycle.queued(partition, size)
        result = Appended(partition.index, partition)
        (correlation_id,) = _INDEX.unpack_from(response, _CORRELATION_AT)
        reply = connection.defer(ProduceRequest.API_KEY, self._version, correlation_id, pipelined=True)
        reply.measurement = measurement
        late = _LateResponse(self, connection, reply, response, result, numbers)
        self._write_cycle.add(Unacknowledged([result], ACKS_ALL, late.complete, self._timeout_ms))

    def refused(
        self, connection: Connection, partition: Partition, batch: memoryview, error: KafkaError
    ) -> None:
        """A batch was taken, and is refused after all."""
        hold_back(connection, self._topic, PartitionProduceData(index=partition.index, records=batch), error)

    def failure(self, result: Appended) -> ProduceResponse:
        """The response to a request whose batch was not acknowledged."""
        refused = PartitionProduceResponse(
            index=result.index,
            error_code=result.error_code,
            error_message=result.error_message,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
        )
        name, topic_id = self._topic.name, self._topic.topic_id
        topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[refused])
        return with_next_leaders(self._service, ProduceResponse(responses=[topic]), self._listener)


class _LateResponse:
    """A response that is sent when its append is acknowledged or has failed."""

    __slots__ = ("_connection", "_memo", "_numbers", "_reply", "_response", "_result")

    def __init__(
        self,
        memo: RepeatedProduce,
        connection: Connection,
        reply: Reply,
        response: bytearray,
        result: Appended,
        numbers: bytes,
    ) -> None:
        self._memo = memo
        self._connection = connection
        self._reply = reply
        self._response = response
        self._result = result
        self._numbers = numbers

    def complete(self) -> None:
        if self._result.error_code:
            error, partition = self._result.error, self._result.partition
            assert error is not None and partition is not None
            self._memo.refused(self._connection, partition, memoryview(self._numbers), error)
            self._reply.resolve_soon(self._memo.failure(self._result))
        else:
            self._reply.fill_soon([self._response])


def _finder(partitions: PartitionTable, topic: TopicProduceData) -> Callable[[int], Partition]:
    """How to find partitions: by topic id if the request has one, since a new topic may have the name now."""
    if topic.topic_id != ZERO_UUID:
        return partial(partitions.by_id, topic.topic_id)
    return partial(partitions.get, topic.name)


def remember(
    service: ProduceHost, context: RequestContext, request: ProduceRequest, frame: memoryview
) -> None:
    """Remember a request. The second one with the same prefix makes the connection's fast path."""
    connection = context.connection
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return
    if connection.refused_batches is not None:
        return  # the fast path does not look for them
    if context.api_version < _REPEATED_FROM or request.acks not in (1, ACKS_ALL):
        return
    records = request.topic_data[0].partition_data[0].records
    if records is None:
        return
    tail = b"\0\0\0" if context.api_version >= ProduceRequest.FLEXIBLE_FROM else b""
    size = len(records)
    length_bytes = _uvarint_bytes(size + 1) if tail else 4
    index_at = len(frame) - len(tail) - size - length_bytes - 4
    if bytes(frame[len(frame) - len(tail) :]) != tail:
        return  # tagged fields that we do not know
    head, prefix = bytes(frame[:_HEAD_BYTES]), bytes(frame[_PREFIX_START:index_at])
    if connection.last_prefix != prefix:
        connection.last_prefix = prefix
        return
    topic, image = request.topic_data[0], service.metadata.image
    name = image.topic_names.get(topic.topic_id, topic.name)
    if name in image.topics and name not in INTERNAL_TOPICS:
        connection.memo = RepeatedProduce(service, context, request, head, prefix, tail)


def _uvarint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _response_template(version: int, topic: str, topic_id: bytes) -> tuple[bytes, int]:
    """The response with blank numbers, and where they go."""
    blank = NUMBERS.pack(0x5EC0DED, 0, *([0x5EC0DED5EC0DED] * 3))
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic,
                topic_id=topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=0x5EC0DED,
                        base_offset=0x5EC0DED5EC0DED,
                        log_append_time_ms=0x5EC0DED5EC0DED,
                        log_start_offset=0x5EC0DED5EC0DED,
                    )
                ],
            )
        ]
    )
    template = b"".join(bytes(part) for part in response_frame(0, version, 0, response))  # type: ignore[arg-type]
    return template, template.index(blank)
