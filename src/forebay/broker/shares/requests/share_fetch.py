"""ShareFetch: acknowledge, acquire, and wait for something to acquire.

Acknowledgements in the request are applied first. Then records are acquired from the partitions of the
session in turn, up to the limits of the request. If there are none, the request waits for an append, for
records that other members release, or until its time is up. With acknowledgements, it waits only a moment
longer than they take to be persisted (`core/shares/call_states.py`). The response consists of ranges of
files.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import field
from functools import partial

from forebay.broker.fetch.cold_reads import Outcomes
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.quotas.fetch_quota import FetchQuota, fetch_quota
from forebay.broker.shares.cold_headers import RETRY_MS
from forebay.broker.shares.live_share import LiveShare
from forebay.broker.shares.requests.acquiring import Found, acquire
from forebay.broker.shares.requests.outstanding import Done
from forebay.broker.shares.requests.service import ShareService
from forebay.broker.shares.requests.share_call import ShareCall
from forebay.core.shares.call_states import AWAITING_RECORDS, LINGER, LONG_POLLS, WAIT, WAKE
from forebay.core.shares.partition.acquired_ranges import Acquired, Demand
from forebay.core.shares.sessions import SessionPartition, ShareRequest, ShareSession
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.fields import Response
from forebay.wire.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

log = logging.getLogger(__name__)

RECORD_LIMIT = 1
"""The acquire mode in which max_records is not exceeded."""
_GRACE_S = 0.02
"""The time that a response to acknowledgements waits for records to go with it. A busy partition has some
soon. Without the wait there would be two responses instead of one, and a record that comes in between would
find no waiting fetch."""
_NO_RECORDS = b""
_KNOWN_TO_CLIENTS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


@dataclass(slots=True, eq=False)
class _Delivery:
    """The records of one partition in the response."""

    at: SessionPartition
    share: LiveShare
    found: Found
    ranges: list[Acquired] = field(init=False)

    def __post_init__(self) -> None:
        self.ranges = self.found.ranges


class ShareFetch(ShareCall):
    """While it is a long poll, it waits for share partitions (`Waiter`)."""

    def __init__(
        self, service: ShareService, context: RequestContext, seen: ShareRequest, request: ShareFetchRequest
    ) -> None:
        super().__init__(service, context, seen, is_renew_request=request.is_renew_ack)
        self._request = request
        self._deliveries: dict[SessionPartition, _Delivery] = {}
        self._errors: dict[SessionPartition, KafkaError] = {}
        self._shares: dict[SessionPartition, LiveShare] = {}
        """The share partitions of the last attempt to acquire."""
        self._doubts: dict[SessionPartition, int] = {}
        """The number of doubts about each at that time."""
        self._awaited: list[LiveShare] = []
        self._timer: asyncio.TimerHandle | None = None
        """The end of a long poll."""

    def start(self) -> Response | Reply:
        self._acknowledge_all()
        self._service.shares.doubt(self._seen.key.group_id, self._seen.added)
        request = self._request
        wants_records = request.max_records > 0 and request.max_bytes > 0 and not request.is_renew_ack
        if self._seen.session is None or not wants_records:
            return self._answer()
        if self._acquire() or request.max_wait_ms <= 0 or not self._seen.session.partitions:
            self._deliver()
            return self._answer()
        return self._await_records()

    # -- acquiring and waiting -------------------------------------------------------------------------

    def _acquire(self, arrived: LiveShare | None = None) -> bool:
        """Acquire records of the session's partitions, or of the one where something arrived. True if there
        is something to answer: records, an error, or the end of the session."""
        session, request, now_ms = self._seen.session, self._request, self._service.time.uptime_ms()
        assert session is not None
        if session.has_ended:
            return True
        self._errors.clear()
        left = request.max_records
        is_record_limit = request.share_acquire_mode == RECORD_LIMIT or self._service.is_record_limit(
            self._seen.key.group_id
        )
        max_bytes = self._max_bytes() // max(len(session.partitions), 1)
        for at in list(session.partitions) if arrived is None else self._places(session, arrived):
            if left <= 0:
                break
            demand = Demand(left, max(request.batch_size, 1), is_record_limit)
            try:
                share = self._share(at)
                if not share.is_ready_for(self._doubts[at]):
                    continue  # it is being loaded, and wakes this request when it is there
                found = acquire(share, self._seen.key.member_id, demand, max_bytes=max_bytes, now_ms=now_ms)
            except KafkaError as error:
                self._errors[at] = error
                continue
            if found is not None:
                self._deliveries[at] = _Delivery(at, share, found)
                left -= sum(each.last - each.first + 1 for each in found.ranges)
        return bool(self._deliveries) or bool(self._errors)

    def _places(self, session: ShareSession, share: LiveShare) -> list[SessionPartition]:
        """The entries of the session for a share partition that this request waits for."""
        at = SessionPartition(share.key.topic_id, share.key.partition)
        return [at] if at in session.partitions and self._shares.get(at) is share else []

    def _share(self, at: SessionPartition) -> LiveShare:
        """The share partition. Raises KafkaError, also if the share that this request waited for has
        failed."""
        self._check_access(at)
        share = self._shares.get(at)
        if share is not None and share.failure is not None:
            raise share.failure
        found = self._service.shares.get(self._seen.key.group_id, at)
        if found is not share:
            self._shares[at], self._doubts[at] = found, found.confirmation.doubts
        return found

    def _max_bytes(self) -> int:
        wanted = min(self._request.max_bytes, self._service.settings.current.fetch.max_bytes)
        quota = self._quota()
        return wanted if quota is None else min(wanted, quota.bytes_max)

    def _quota(self) -> FetchQuota | None:
        quotas = self._service.quotas
        return fetch_quota(quotas, self._context) if quotas.active else None

    def _await_records(self) -> Reply:
        """Begin a long poll: nothing was found in any partition of the session.

        A long stretch without messages may not have been read to its end. The read continues at once. Once
        acknowledgements are persisted, their response waits for records no longer than _GRACE_S.
        """
        self._enter(WAIT)
        self._reply = reply = self._context.defer()
        reply.on_abandoned = reply.on_overtaken = self.finish
        self._timer = self._service.loop.call_later(self._request.max_wait_ms / 1000, self.finish)
        self._awaited = list(self._shares.values())
        for share in self._awaited:
            share.waiters[self] = None
        for share in self._awaited:
            share.line.joined()
        self._limit_writes()
        return reply

    def _nothing_outstanding(self) -> None:
        if self._state is AWAITING_RECORDS:
            self._enter(LINGER)
            self._service.loop.call_later(_GRACE_S, self.finish)
        else:
            super()._nothing_outstanding()

    def arrived(self, share: LiveShare, _size: int) -> None:
        """Called when a share partition that this request waits for has something to acquire."""
        if self._state in LONG_POLLS and self._context.counted(self._acquire_arrived)(share):
            self.finish()

    def _acquire_arrived(self, share: LiveShare) -> bool:
        """Acquire records for the member; True if the wait is over. It does not raise: others wait behind
        it."""
        assert self._reply is not None
        try:
            return self._acquire(share)
        except Exception:
            log.exception("a share fetch could not look at its partitions")
            self._reply.abort()
            return True

    def finish(self) -> None:
        """Answer now, if it is a long poll: there is something to answer, the time is up, a partition has
        another leader, or the client has gone or sent another request."""
        if self._state not in LONG_POLLS:
            return
        assert self._timer is not None
        self._enter(WAKE)
        self._timer.cancel()
        for share in self._awaited:
            share.waiters.pop(self, None)
        self._context.counted(self._answer_late)()

    def _answer_late(self) -> None:
        reply = self._reply
        assert reply is not None
        if reply.abandoned:
            self._complete(reply)
            return
        try:
            if not (self._deliveries or self._errors):
                self._acquire()
            self._deliver()
            self._answer()
        except Exception:
            log.exception("a share fetch could not be answered")
            reply.abort()

    # -- delivering ------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Have the response wait for the writes and reads of its deliveries."""
        for delivery in self._deliveries.values():
            log_, records = delivery.share.partition.log, delivery.found.records
            if delivery.found.write:
                written = partial(self._delivery_written, delivery)
                delivery.share.await_write(
                    delivery.found.write, self._outstanding.add(written, is_write=True)
                )
            if not (delivery.found.is_warm or log_.is_warm(records)):
                then = partial(self._delivery_loaded, delivery)
                loaded = self._outstanding.add(then, is_write=False)
                self._service.cold_reads.load([(log_.files, records)], partial(_tell_first, loaded))

    def _delivery_written(self, delivery: _Delivery, error: KafkaError | None) -> None:
        """Called when earlier deliveries are persisted, or took too long: then the records are released."""
        if error is not None:
            delivery.share.take_back(delivery.found.hold, delivery.ranges)
            delivery.ranges = []

    def _delivery_loaded(self, delivery: _Delivery, error: KafkaError | None) -> None:
        """Called when its bytes are in memory and checked. Damaged or unreadable records are not sent; the
        next read finds out which of the batches are affected."""
        if error is not None:
            delivery.share.take_back(delivery.found.hold, delivery.ranges, pause_ms=RETRY_MS)
            delivery.ranges = []
            self._errors[delivery.at] = error

    def _abandoned(self) -> None:
        """Release the records. If the session continued on another connection, its end would not release
        them."""
        for delivery in self._deliveries.values():
            delivery.share.take_back(delivery.found.hold, delivery.ranges)

    def _keep_held(self) -> None:
        """Remove records from a late response that the member no longer holds. It took too long; or the
        member has begun another session and may not read this response; or the lease has ended, and another
        leader may have delivered them to another member."""
        is_leading = self._service.lease.valid()
        if not is_leading or (self._seen.session is not None and self._seen.session.has_ended):
            self._abandoned()
        for delivery in self._deliveries.values():
            delivery.ranges = delivery.share.still_held(delivery.found.hold, delivery.ranges)
            if not (is_leading and delivery.share.is_current):  # the client has to look for the new leader
                delivery.ranges = []
                self._errors.setdefault(delivery.at, delivery.share.partition.not_leader())

    # -- answering -------------------------------------------------------------------------------------

    def _response(self, *, is_late: bool = False) -> ShareFetchResponse:
        if is_late:
            self._keep_held()
        topics: dict[bytes, list[PartitionData]] = {}
        for at, is_due in self._answered_partitions().items():
            if not (is_due or at in self._deliveries or at in self._errors or at in self._acknowledged):
                continue  # a session may have many partitions, most of them without news
            data = self._partition(at)
            says_something = data.acquired_records or data.error_code or at in self._acknowledged
            if says_something or is_due:
                topics.setdefault(at.topic_id, []).append(data)
            if self._seen.session is not None:
                records, error = bool(data.acquired_records), bool(data.error_code)
                self._seen.session.answered(at, records=records, error=error)
        return ShareFetchResponse(
            throttle_time_ms=self._throttle_ms(),
            acquisition_lock_timeout_ms=self._service.lock_ms(self._seen.key.group_id),
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=self._node_endpoints(),
        )

    def _throttle_ms(self) -> int:
        """The throttle time that the client is told. The response is not delayed: its records are
        acquired."""
        quota = self._quota()
        if quota is None:
            return 0
        ranges = [each.found.records.range for each in self._deliveries.values() if each.ranges]
        return quota.count(sum(each.length for each in ranges if each is not None))

    def _answered_partitions(self) -> dict[SessionPartition, bool]:
        """The partitions of the session and of the acknowledgements; True if one must be in the response."""
        partitions = dict.fromkeys(self._acknowledged, True)
        if self._seen.session is not None:
            partitions |= self._seen.session.partitions
        return partitions

    def _partition(self, at: SessionPartition) -> PartitionData:
        error, refused = self._errors.get(at), self._acknowledged.get(at)
        data = PartitionData(
            partition_index=at.partition,
            error_code=ErrorCode.NONE if error is None else _as_answered(error.code),
            error_message=None if error is None else error.message,
            acknowledge_error_code=ErrorCode.NONE if refused is None else refused.code,
            acknowledge_error_message=None if refused is None else refused.message,
            current_leader=self._current_leader(at, error or refused),
            records=_NO_RECORDS,
        )
        delivery = self._deliveries.get(at)
        if delivery is not None and delivery.ranges:
            records = delivery.found.records.range
            assert records is not None
            data.records = records
            delivery.share.sent(delivery.found.hold, delivery.ranges)
            data.acquired_records = [
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in delivery.ranges
            ]
            self._service.metrics.bytes_out += records.length
        return data


def _tell_first(done: Done, outcomes: Outcomes) -> None:
    done(outcomes[0])


def _as_answered(code: ErrorCode) -> ErrorCode:
    """Java's client knows few codes for a partition, and treats any other as a bug of its own."""
    return code if code in _KNOWN_TO_CLIENTS else ErrorCode.UNKNOWN_SERVER_ERROR
