"""A Produce request on its way into the logs of its partitions, until its response can be made.

Two kinds of requests may have to wait before they are appended: requests with a transactional id for the
transaction coordinator (`transactional_request.py`), and large batches for topics whose records have to be
read, for the thread that reads them (`record_checks.py`). Such a wait is not pipelined: the connection is not
read any further, so that the batches behind it stay behind it.

Which partition takes a batch is not always the one that the request names (`folds/takers.py`), and another
broker may lead it. The response names the partition that the client named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from forebay.broker.folds.takers import OtherBroker, SentBatch
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.partition.append_refusals import not_enough_replicas
from forebay.broker.produce.held_back import (
    check_before_hand_over,
    check_nothing_missing,
    hold_back,
    numbers_of,
)
from forebay.broker.produce.produce_host import ProduceHost
from forebay.broker.produce.record_checks import Outcome
from forebay.broker.produce.request_checks import check_request
from forebay.broker.produce.transaction_verification import Admission, topic_name
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged
from forebay.core.partition.folds.closed_partition import PassOn
from forebay.core.partition.producers.producer_admission import LATER_STATE_MAY_ADMIT
from forebay.core.partition.record_rules import UNEXAMINED, Examined, Unexamined, with_records_named
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import read_header
from forebay.wire.fields import Response
from forebay.wire.messages.folded_produce import FoldedProduceResponse
from forebay.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

Encode: TypeAlias = Callable[[ProduceRequest, Sequence[Appended]], Response]
"""Makes the response of a request, from the result of each of its partitions in their order."""


class _Entry(SentBatch):
    """One partition of a request, and what has become of its batch."""

    __slots__ = ("data", "numbers", "result", "topic")

    def __init__(self, topic: TopicProduceData, data: PartitionProduceData, known: PassOn | None) -> None:
        self.index = index = data.index
        self.records = data.records
        self.known = known
        self.topic = topic
        self.data = data
        self.numbers: bytes | None = None
        """Of a batch that was appended or handed over, or whose refusal is not certain, until it is refused
        for good or held back."""
        self.result = Appended(index)


class AppendRequest:
    """A request whose batches go into their logs one after the other, mostly all at once.

    A batch that has to be examined in a thread first holds up those behind it, so that their order stays.
    """

    __slots__ = (
        "_admission",
        "_by_broker",
        "_context",
        "_encode",
        "_entries",
        "_entry_of",
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
        had to wait before. `known`: as in `SentBatch`, for a request that another broker hands over."""
        self._service = service
        self._context = context
        self._request = request
        self._encode = encode
        self._version = version
        self._admission = admission
        self._reply = reply
        self._by_broker = known is not None
        self._entries = [
            _Entry(topic, data, known) for topic in request.topic_data for data in topic.partition_data
        ]
        self._next = 0
        """The first entry that is neither appended nor refused yet."""
        self._owned = False
        self._entry_of: dict[object, _Entry] | None = None
        """By their results; made when one of several fails."""
        self._parts_left = 0
        """How many runs of entries, each appended in one turn of the loop, are not acknowledged yet."""

    def start(self) -> Reply | None:
        refused = self._context.connection.refused_batches
        if refused is not None and not refused.begin_request():
            self._context.connection.refused_batches = None
        self._go_on()
        waits = self._next < len(self._entries)
        if self._reply is None and (waits or self._request.acks != 0):
            self._reply = self._context.defer(pipelined=not waits)
        return self._reply

    def _go_on(self, examined: Examined | None = None) -> None:
        """Append what is left, up to a batch that has to be examined. `examined`: what the first one is."""
        first, entries = self._next, self._entries
        for entry in entries[first:]:
            if self._append(entry, examined) is UNEXAMINED:
                self._examine(entry)
                break
            self._next += 1
            examined = None
        if self._admission is not None and self._next == len(entries):
            self._admission.release()
        self._await_acks([entry.result for entry in entries[first : self._next]])

    def _append(
        self, entry: _Entry, examined: Examined | None, now_ms: int | None = None
    ) -> Unexamined | None:
        """Append a batch, hand it over or refuse it, unless it has to be examined first."""
        service, request, admission = self._service, self._request, self._admission
        result, named = entry.result, entry.index
        try:
            check_request(self._version, request, entry.records)
            taker = service.takers.who_takes(
                topic_name(service.partitions, self._version, entry.topic), entry
            )
            if entry.index != named:
                service.metrics.folded_batches += 1
                self._context.connection.names_folded = True
                examined = None  # that was the batch as the other partition would have stored it
            if isinstance(taker, OtherBroker):
                self._hand_over(entry, taker)
                return None
            guard = admission and admission.guard_for(result.index, taker)
            result.partition = taker
            if request.acks == ACKS_ALL and not taker.enough_replicas:
                raise not_enough_replicas(str(taker), taker.producers, entry.records)
            refused = self._context.connection.refused_batches
            if refused is not None:
                check_nothing_missing(refused, entry.topic, entry.data, taker, entry.records)
            log_, time_ms = taker.log, service.now_ms() if now_ms is None else now_ms
            end_offset = log_.end_offset
            appended = service.takers.append(taker, entry, time_ms, guard, admission is not None, examined)
            if appended is UNEXAMINED:
                return UNEXAMINED
        except KafkaError as error:
            if error.code == ErrorCode.INVALID_TIMESTAMP and now_ms is None and self._is_moved(entry):
                # It has the time of the broker that moves it, and must not wait until the clocks agree.
                assert entry.records is not None
                return self._append(entry, examined, read_header(entry.records).max_timestamp)
            self._refuse(entry, error)
            return None
        if refused is not None:
            refused.taken(entry.topic, entry.data)
        entry.numbers = numbers_of(entry.data.records)
        result.base_offset, result.log_append_time_ms = appended
        result.log_start_offset = log_.start_offset
        if log_.end_offset > end_offset:
            assert entry.records is not None
            service.write_cycle.queued(taker, len(entry.records))
        else:
            service.metrics.duplicates_dropped += 1
        return None

    def _is_moved(self, entry: _Entry) -> bool:
        """True if a broker has made the batch, and does not hand over a client's."""
        return entry.known is None and self._service.sent_by_broker(self._context)

    def _refuse(self, entry: _Entry, error: KafkaError) -> None:
        result, partition = entry.result, entry.result.partition
        connection = self._context.connection
        if partition is not None and self._is_repeat(entry, error.code):
            if connection.refused_batches is not None:
                connection.refused_batches.taken(entry.topic, entry.data)
            return
        error = self._held(entry, entry.data, error)
        if partition is None:
            result.fail(error)
            return
        result.fail(with_records_named(error, entry.records, partition.policy, self._service.now_ms()))
        if error.code in LATER_STATE_MAY_ADMIT:
            entry.numbers = numbers_of(entry.data.records)
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            # Java compares it with its last acknowledged offset; without it, Java retries for ever.
            result.log_start_offset = partition.log.start_offset

    def _is_repeat(self, entry: _Entry, code: int) -> bool:
        """Answer with where the batch is already, if it is refused with this code because it is elsewhere."""
        repeats = entry.stored_before(code)
        if repeats is None:
            return False
        entry.result.base_offset, entry.result.log_append_time_ms = repeats
        self._service.metrics.duplicates_dropped += 1
        return True

    # -- batches for other brokers ---------------------------------------------------------------------

    def _hand_over(self, entry: _Entry, to: OtherBroker) -> None:
        request = self._request
        check_before_hand_over(self._context.connection, entry.topic, entry.data)
        entry.numbers = numbers_of(entry.data.records)
        self._parts_left += 1
        self._service.takers.hand_over(
            entry,
            to,
            partial(self._later, self._handed_over, entry),
            version=self._version,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            transactional_id=request.transactional_id,
        )

    def _handed_over(self, entry: _Entry, response: FoldedProduceResponse) -> None:
        result = entry.result
        if not self._is_repeat(entry, response.error_code):
            _take_response(result, response)
        if result.error_code:
            self._service.metrics.produce_failures += 1
            if self._request.acks == 0:
                self._close_unheard([result])
            self._hold_back(entry)
        self._complete_part()

    def _later(self, go_on: Callable[[_Entry, T], None], entry: _Entry, outcome: T) -> None:
        """Go on in a turn of the loop whose caller could not answer the client."""
        try:
            go_on(entry, outcome)
        except Exception:
            log.exception("a request could not be handled")
            if self._reply is not None:
                self._reply.abort()

    # -- batches that are examined first ---------------------------------------------------------------

    def _examine(self, entry: _Entry) -> None:
        """Have a batch examined, then go on with it."""
        self._own_batches()
        records, partition = entry.records, entry.result.partition
        assert records is not None and partition is not None
        self._service.examiner.submit(records, partition, partial(self._later, self._examined, entry))

    def _examined(self, entry: _Entry, outcome: Outcome) -> None:
        """Go on with a batch that was examined."""
        if isinstance(outcome, KafkaError):
            entry.result.fail(self._held(entry, entry.data, outcome))
            self._next += 1
            self._await_acks([entry.result])
            self._go_on()
        else:
            self._go_on(outcome)
        self._service.write_cycle.finish_soon()

    def _own_batches(self) -> None:
        """Copy the batches: the buffer that they came in is used again before their turn comes."""
        if not self._owned:
            self._owned = True
            for entry in self._entries[self._next :]:
                sent = entry.data.records
                if sent is not None:
                    entry.data.records = memoryview(bytearray(sent))
                    if entry.records is sent:  # and not a copy under the alias of its producer
                        entry.records = entry.data.records

    # -- the response ----------------------------------------------------------------------------------

    def _await_acks(self, results: list[Appended]) -> None:
        """Have these acknowledged once they are written, and refuse those that have failed."""
        service, request = self._service, self._request
        failures = [result for result in results if result.error_code != ErrorCode.NONE]
        service.metrics.produce_failures += len(failures)
        self._parts_left += 1
        added = Unacknowledged(results, request.acks, self._complete_part, max(request.timeout_ms, 0))
        if len(self._entries) > 1:
            added.on_failed = self._failed
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

    def _complete_part(self) -> None:
        self._parts_left -= 1
        reply = self._reply
        if reply is None or self._parts_left or self._next < len(self._entries):
            return
        if self._request.acks == 0:
            reply.give_up()
            return
        try:
            for entry in self._entries:
                if entry.result.error_code:
                    self._hold_back(entry)
            reply.resolve_soon(self._encode(self._request, [entry.result for entry in self._entries]))
        except Exception:
            reply.abort()
            raise

    def _failed(self, result: object) -> None:
        """One of several batches is refused after all. What comes behind it may come before the response."""
        if self._entry_of is None:
            self._entry_of = {entry.result: entry for entry in self._entries}
        self._hold_back(self._entry_of[result])

    def _hold_back(self, entry: _Entry) -> None:
        """A batch was appended or handed over, and is refused after all."""
        numbers, entry.numbers = entry.numbers, None
        if numbers is None:
            return
        data = PartitionProduceData(index=entry.data.index, records=memoryview(numbers))
        error = entry.result.error
        assert error is not None
        held = self._held(entry, data, error)
        if held is not error:
            entry.result.fail(held)

    def _held(self, entry: _Entry, data: PartitionProduceData, error: KafkaError) -> KafkaError:
        return hold_back(self._context.connection, entry.topic, data, error, by_broker=self._by_broker)


def _take_response(result: Appended, response: FoldedProduceResponse) -> None:
    """Answer the client of a batch with the response of the broker that took it."""
    result.error_code, result.error_message = response.error_code, response.error_message
    result.base_offset, result.log_append_time_ms = response.base_offset, response.log_append_time_ms
    result.log_start_offset = response.log_start_offset
    if response.record_errors:
        result.bad_records = {
            bad.batch_index: bad.batch_index_error_message or "" for bad in response.record_errors
        }


def _log_unheard(context: RequestContext, failures: list[Appended]) -> None:
    host, port = context.connection.peer
    log.info(
        "closing the connection of an acks=0 producer whose messages were refused",
        extra={"client": f"{host}:{port}", "reason": failures[0].error_message},
    )
