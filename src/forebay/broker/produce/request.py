"""A Produce request on its way into the logs of its partitions, until its response can be made.

Two kinds of requests may have to wait before they are appended: requests with a transactional id for the
transaction coordinator (`transactional_request.py`), and large batches for topics whose records have to be
read, for the thread that reads them (`record_checks.py`). Such a wait is not pipelined: the connection is not
read any further, so that the batches behind it stay behind it.

A batch for a folded partition goes on to the one that takes it, under the alias of its producer: at once if
that is led here, else at its leader (`folded_batches.py`). The answer names the partition that the client
named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from forebay.broker.net.deferred_replies import Reply
from forebay.broker.net.dispatch import RequestContext
from forebay.broker.partition.append_refusals import not_enough_replicas
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.passed_on_batches import (
    PassedOn,
    append_passed_on,
    begins_transaction,
    pass_on,
    pass_on_removed,
)
from forebay.broker.produce.folded_batches import folded_request, take_answer
from forebay.broker.produce.produce_host import ProduceHost
from forebay.broker.produce.record_checks import Outcome
from forebay.broker.produce.transaction_verification import Admission, find_partition, folded_meanwhile
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.topics import INTERNAL_TOPICS
from forebay.core.partition.folds.closed_partition import OUT_OF_PLACE, PassOn
from forebay.core.partition.producer_admission import LATER_STATE_MAY_ADMIT
from forebay.core.partition.record_rules import Examined, Unexamined, with_records_named
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import HEADER_SIZE, is_transactional, read_header
from forebay.wire.compression import Codec
from forebay.wire.fields import Response
from forebay.wire.messages.folded_produce import FoldedProduceResponse
from forebay.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

log = logging.getLogger(__name__)

FORMAT_V2_FROM = 3
ZSTD_FROM = 7
_ACKS = (ACKS_ALL, 0, 1)

Encode: TypeAlias = Callable[[ProduceRequest, Sequence[Appended]], Response]
"""Makes the response of a request, from the result of each of its partitions in their order."""


class _Entry(NamedTuple):
    """One partition of a request, and what has become of its batch."""

    topic: TopicProduceData
    data: PartitionProduceData
    result: Appended
    known: PassOn | None = None
    """If it was sent for a folded partition: what that one knows of its producer."""


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
        "_version",
    )

    def __init__(
        self,
        service: ProduceHost,
        context: RequestContext,
        request: ProduceRequest,
        encode: Encode,
        *,
        version: int,
        admission: Admission | None = None,
        reply: Reply | None = None,
        known: PassOn | None = None,
    ) -> None:
        """`version`: of Produce, in which the client has sent it. `reply`: made already, for a request that
        had to wait before. `known`: another broker has handed it over, of a folded partition."""
        self._service = service
        self._context = context
        self._request = request
        self._encode = encode
        self._version = version
        self._admission = admission
        self._reply = reply
        self._entries = [
            _Entry(topic, data, Appended(data.index), known)
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

    def _append(self, entry: _Entry, examined: Examined | None, now_ms: int | None = None) -> None:
        topic, data, result, known = entry
        service, request = self._service, self._request
        try:
            _check(self._version, request, data)
            partition = self._find(topic, data)
            if partition.fold is not None:
                service.partitions.get_for_certain(partition.topic, partition.index)
                passed = pass_on(partition, data.records, known, service.now_ms())
                self._pass_on(entry, passed, partition.topic)
                return
            guard = self._admission and self._admission.guard_for(result.index, partition)
            result.partition = partition
            if request.acks == ACKS_ALL and not partition.enough_replicas:
                raise not_enough_replicas(str(partition), partition.producers, data.records)
            end_offset = partition.log.end_offset
            if known is None:
                time_ms = service.now_ms() if now_ms is None else now_ms
                result.base_offset, result.log_append_time_ms = partition.append(
                    data.records, time_ms, guard=guard, examined=examined
                )
            else:
                self._append_passed_on(entry, partition, guard, examined)
            result.log_start_offset = partition.log.start_offset
        except Unexamined:
            raise
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_TIMESTAMP and now_ms is None and self._is_moved(entry):
                # It has the time of the broker that moves it, and must not wait until the clocks agree.
                assert data.records is not None
                self._append(entry, examined, read_header(data.records).max_timestamp)
            else:
                self._refuse(entry, error)
            return
        if partition.log.end_offset > end_offset:
            assert data.records is not None
            service.write_cycle.queued(partition, len(data.records))
        else:
            service.metrics.duplicates_dropped += 1

    def _is_moved(self, entry: _Entry) -> bool:
        """Whether a broker has made the batch. What it hands over of a folded partition is a client's."""
        return entry.known is None and self._service.sent_by_broker(self._context)

    def _refuse(self, entry: _Entry, error: KafkaError) -> None:
        _, data, result, known = entry
        partition = result.partition
        if partition is None:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not self._find_removed(entry):
                result.fail(error)
            return
        if known is not None and known.repeats is not None and error.code in OUT_OF_PLACE:
            result.base_offset, result.log_append_time_ms = known.repeats
            self._service.metrics.duplicates_dropped += 1
            return
        result.fail(with_records_named(error, data.records, partition.policy, self._service.now_ms()))
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            # Java compares it with its last acknowledged offset; without it, Java retries for ever.
            result.log_start_offset = partition.log.start_offset

    def _find(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        partition = find_partition(self._service.partitions, self._version, topic, data)
        if partition.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"only brokers write to {partition.topic}; use another topic",
            )
        return partition

    # -- folded partitions -----------------------------------------------------------------------------

    def _append_passed_on(
        self, entry: _Entry, partition: Partition, guard: object | None, examined: Examined | None
    ) -> None:
        """Append a batch that was sent for a partition which is folded into this one."""
        records, result = entry.data.records, entry.result
        assert records is not None and entry.known is not None
        asks = guard is None and self._admission is not None
        if asks and begins_transaction(partition, read_header(records), entry.known):
            raise folded_meanwhile(partition)
        topic = self._service.metadata.image.topics[partition.topic]
        result.base_offset, result.log_append_time_ms = append_passed_on(
            partition, topic, records, self._service.now_ms(), entry.known, guard=guard, examined=examined
        )

    def _find_removed(self, entry: _Entry) -> bool:
        """Pass on a batch for a partition that was folded and is gone; False if there was none."""
        image = self._service.metadata.image
        name = image.topic_names.get(entry.topic.topic_id, entry.topic.name)
        topic = image.topics.get(name)
        if topic is None:
            return False
        try:
            passed = pass_on_removed(topic, entry.data.index, entry.data.records, self._service.now_ms())
            if passed is None:
                return False
            self._pass_on(entry, passed, name)
        except KafkaError as error:
            if isinstance(error, Unexamined):
                raise
            entry.result.fail(error)
        return True

    def _pass_on(self, entry: _Entry, passed: PassedOn, topic: str) -> None:
        """Go on with a batch in the partition that takes it: here, or at its leader."""
        service, index = self._service, passed.target
        state = service.metadata.image.partition(topic, index)
        if state is None or state.leader == NO_LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no leader now")
        service.metrics.folded_batches += 1
        self._context.connection.names_folded = True
        data = PartitionProduceData(index=index, records=passed.records)
        onward = self._entries[self._next] = _Entry(entry.topic, data, entry.result, passed.known)
        if state.leader == service.node_id:
            self._append(onward, None)
        else:
            self._hand_over(onward, state.leader, service.metadata.image.topics[topic].topic_id)

    def _hand_over(self, entry: _Entry, leader: int, topic_id: bytes) -> None:
        request, known = self._request, entry.known
        assert known is not None
        self._parts_left += 1
        self._service.handovers.send(
            leader,
            folded_request(
                entry.data.records,
                known,
                topic_id,
                entry.data.index,
                version=self._version,
                acks=request.acks,
                timeout_ms=request.timeout_ms,
                transactional_id=request.transactional_id,
            ),
            partial(self._handed_over, entry),
        )

    def _handed_over(self, entry: _Entry, answer: FoldedProduceResponse) -> None:
        result, known = entry.result, entry.known
        try:
            assert known is not None
            if answer.error_code in OUT_OF_PLACE and known.repeats is not None:
                result.base_offset, result.log_append_time_ms = known.repeats
                self._service.metrics.duplicates_dropped += 1
            else:
                take_answer(result, answer)
            if result.error_code:
                self._service.metrics.produce_failures += 1
                if self._request.acks == 0:
                    self._close_unheard([result])
            self._settle()
        except Exception:
            log.exception("a request could not be handled")
            if self._reply is not None:
                self._reply.abort()

    def _examine(self, entry: _Entry) -> None:
        """Have a batch examined, then go on with it."""
        self._own_batches()
        data, partition = entry.data, entry.result.partition
        assert data.records is not None and partition is not None
        self._service.examiner.submit(data.records, partition, partial(self._examined, entry))

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
        added = Unacknowledged(results, request.acks, self._settle, max(request.timeout_ms, 0))
        service.write_cycle.add(added)
        if failures and request.acks != 0:
            added.refused = [
                result
                for result in failures
                if result.partition is not None and result.error_code in LATER_STATE_MAY_ADMIT
            ]
        if failures and request.acks == 0:
            self._close_unheard(failures)

    def _close_unheard(self, failures: list[Appended]) -> None:
        """There is no response that could carry the error; closing is how the producer learns of it."""
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
    if request.transactional_id is None and is_transactional(data.records):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch needs the transactional id of its producer in the request",
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
