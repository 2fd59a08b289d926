"""A Produce request on its way into the logs of its partitions, until its response can be made.

Two kinds of requests may have to wait before they are appended: requests with a transactional id for the
transaction coordinator (`transaction_verification.py`), and large batches for topics whose records have to be
read, for the thread that reads them (`record_checks.py`). Such a wait is not pipelined: the connection is not
read any further, so that the batches behind it stay behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

from forebay.broker.net.dispatch import RequestContext
from forebay.broker.net.replies import Reply
from forebay.broker.partition.client_batches import not_enough_replicas
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.record_checks import Outcome
from forebay.broker.produce.service import ProduceService
from forebay.broker.produce.transaction_verification import Admission, find_partition, verify
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged
from forebay.core.cluster.topics import INTERNAL_TOPICS
from forebay.core.partition.record_rules import Examined, Unexamined, with_records_named
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import HEADER_SIZE, read_header
from forebay.wire.compression import Codec
from forebay.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger(__name__)

FORMAT_V2_FROM = 3
ZSTD_FROM = 7
_ACKS = (ACKS_ALL, 0, 1)

Encode: TypeAlias = Callable[[ProduceRequest, Iterable[Appended]], ProduceResponse]
"""Makes the response of a request, from the result of each of its partitions in their order."""


class TransactionalRequest:
    """A request that is appended when its transaction has been verified: mostly at once."""

    __slots__ = ("_context", "_encode", "_reply", "_request", "_service")

    def __init__(
        self, service: ProduceService, context: RequestContext, request: ProduceRequest, encode: Encode
    ) -> None:
        self._service = service
        self._context = context
        self._request = request
        self._encode = encode
        self._reply: Reply | None = None

    def start(self) -> Reply:
        service = self._service
        done = verify(
            self._request,
            self._context.api_version,
            partitions=service.partitions,
            ask=service.verify_transaction,
            proceed=self._proceed,
        )
        if not done:
            self._reply = self._context.defer()
        assert self._reply is not None
        return self._reply

    def _proceed(self, admission: Admission) -> None:
        late = self._reply
        appending = AppendRequest(self._service, self._context, self._request, self._encode, admission, late)
        if late is None:
            self._reply = appending.start()
            return
        try:
            appending.start()
        except Exception:  # no caller could answer the client
            log.exception("a request could not be handled")
            admission.release()
            late.abort()
        self._service.write_cycle.finish_soon()


class _Entry(NamedTuple):
    """One partition of a request, and what has become of its batch."""

    topic: TopicProduceData
    data: PartitionProduceData
    result: Appended


class AppendRequest:
    """A request whose batches go into their logs one after the other, mostly all at once.

    A batch that has to be examined in a thread first holds up those behind it, so that their order stays.
    """

    __slots__ = (
        "_admission",
        "_context",
        "_encode",
        "_entries",
        "_next",
        "_owned",
        "_parts_left",
        "_reply",
        "_request",
        "_service",
    )

    def __init__(
        self,
        service: ProduceService,
        context: RequestContext,
        request: ProduceRequest,
        encode: Encode,
        admission: Admission | None = None,
        reply: Reply | None = None,
    ) -> None:
        """`reply`: made already, for a request that had to wait before."""
        self._service = service
        self._context = context
        self._request = request
        self._encode = encode
        self._admission = admission
        self._reply = reply
        self._entries = [
            _Entry(topic, data, Appended(data.index))
            for topic in request.topic_data
            for data in topic.partition_data
        ]
        self._next = 0
        """The first entry that is neither appended nor refused yet."""
        self._owned = False
        self._parts_left = 0
        """How many runs of entries, each appended in one turn of the loop, are not acknowledged yet."""

    def start(self) -> Reply | None:
        self._go_on()
        waits = self._next < len(self._entries)
        if self._reply is None and (waits or self._request.acks != 0):
            self._reply = self._context.defer(pipelined=not waits)
        return self._reply

    def _go_on(self, examined: Examined | None = None) -> None:
        """Append what is left, up to a batch that has to be examined. `examined`: what the first one is."""
        first, entries = self._next, self._entries
        try:
            for entry in entries[first:]:
                self._append(entry, examined)
                self._next += 1
                examined = None
        except Unexamined:
            self._examine(entries[self._next])
        if self._admission is not None and self._next == len(entries):
            self._admission.release()
        self._acknowledge([entry.result for entry in entries[first : self._next]])

    def _append(self, entry: _Entry, examined: Examined | None) -> None:
        topic, data, result = entry
        service, request = self._service, self._request
        try:
            _check(self._context.api_version, request, data)
            partition = self._find(topic, data)
            guard = self._admission and self._admission.guard_for((partition.topic, partition.index))
            result.partition = partition
            if request.acks == ACKS_ALL and not partition.enough_replicas:
                raise not_enough_replicas(str(partition), partition.producers, data.records)
            end_offset = partition.log.end_offset
            result.base_offset, result.log_append_time_ms = partition.append(
                data.records, service.now_ms(), guard=guard, examined=examined
            )
            result.log_start_offset = partition.log.start_offset
        except Unexamined:
            raise
        except KafkaError as error:
            self._refuse(entry, error)
            return
        if partition.log.end_offset > end_offset:
            assert data.records is not None
            service.write_cycle.queued(partition, len(data.records))
        else:
            service.metrics.duplicates_dropped += 1

    def _refuse(self, entry: _Entry, error: KafkaError) -> None:
        _, data, result = entry
        partition = result.partition
        if partition is None:
            result.fail(error)
            return
        result.fail(with_records_named(error, data.records, partition.policy, self._service.now_ms()))
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            # Java compares it with its last acknowledged offset; without it, Java retries for ever.
            result.log_start_offset = partition.log.start_offset

    def _find(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        partition = find_partition(self._service.partitions, self._context.api_version, topic, data)
        if partition.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"only brokers write to {partition.topic}; use another topic",
            )
        return partition

    def _examine(self, entry: _Entry) -> None:
        """Have a batch examined, then go on with it."""
        self._own_batches()
        data, partition = entry.data, entry.result.partition
        assert data.records is not None and partition is not None
        self._service.examiner.submit(data.records, partition.policy, partial(self._examined, entry))

    def _examined(self, entry: _Entry, outcome: Outcome) -> None:
        try:
            self._take(entry, outcome)
        except Exception:
            log.exception("a request could not be handled")
            if self._reply is not None:
                self._reply.abort()

    def _take(self, entry: _Entry, outcome: Outcome) -> None:
        """Go on with a batch that was examined."""
        if isinstance(outcome, KafkaError):
            entry.result.fail(outcome)
            self._next += 1
            self._acknowledge([entry.result])
            self._go_on()
        else:
            self._go_on(outcome)
        self._service.write_cycle.finish_soon()

    def _own_batches(self) -> None:
        """Copy the batches: the buffer that they came in is used again before their turn comes."""
        if not self._owned:
            self._owned = True
            for entry in self._entries[self._next :]:
                if entry.data.records is not None:
                    entry.data.records = memoryview(bytearray(entry.data.records))

    def _acknowledge(self, results: list[Appended]) -> None:
        """Have these acknowledged once they are written, and refuse those that have failed."""
        service, request = self._service, self._request
        failures = [result for result in results if result.error_code != ErrorCode.NONE]
        service.metrics.produce_failures += len(failures)
        self._parts_left += 1
        service.write_cycle.add(
            Unacknowledged(results, request.acks, self._settle, max(request.timeout_ms, 0))
        )
        if failures and request.acks == 0:
            # There is no response that could carry the error; closing is how the producer learns of it.
            _log_unheard(self._context, failures)
            self._context.connection.close()

    def _settle(self) -> None:
        self._parts_left -= 1
        reply = self._reply
        if reply is None or self._parts_left or self._next < len(self._entries):
            return
        if self._request.acks == 0:
            reply.give_up()
            return
        try:
            reply.resolve_soon(self._encode(self._request, [entry.result for entry in self._entries]))
        except Exception:
            reply.abort()
            raise


def _check(version: int, request: ProduceRequest, data: PartitionProduceData) -> None:
    """Raise KafkaError for what is wrong with a request before its batch is looked at."""
    if version < FORMAT_V2_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "only message format 2 is stored; use a client of Kafka 0.11 or later",
        )
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be all, 0 or 1, not {request.acks}")
    if request.transactional_id is not None and request.acks == 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, "a transaction needs acknowledgements: set acks=all"
        )
    if version < ZSTD_FROM and data.records is not None and _codec(data.records) == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM} or later, not {version}"
        )


def _codec(records: memoryview) -> int:
    return read_header(records).codec if len(records) >= HEADER_SIZE else Codec.NONE


def _log_unheard(context: RequestContext, failures: list[Appended]) -> None:
    host, port = context.connection.peer
    log.info(
        "closing the connection of an acks=0 producer whose messages were refused",
        extra={"client": f"{host}:{port}", "reason": failures[0].error_message},
    )
