"""The fetches of followers, as the leader answers them.

A fetch says how far its follower has come, which is what moves the high watermark. Only one in the present
leader epoch says anything, and only from a broker that is registered as the one it claims to be: what an
older incarnation of it had on its disk proves nothing.

Followers have sessions with hundreds of partitions, of which few change at a time. A partition that was read
to its end is settled: it is looked at again when something is appended, which also ends the wait of the
session's fetch. So a quiet partition costs nothing, neither here nor at the follower.

A follower that finds something at once is behind, because producers do not wait for each other, and every
answer costs both sides as much as taking in a batch. So for a moment its small answers are held back for a
few turns of the event loop, in which more may come. A producer that sends one message at a time does not wait
for this.
"""

from __future__ import annotations

import asyncio
import logging

from forebay.broker.fetch.fetch_host import FetchHost
from forebay.broker.fetch.partition_reads import NO_RECORDS, Fetch, diverging
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.partition.leader_epoch_checks import check_leader_epoch
from forebay.broker.partition.partition import Partition
from forebay.config import is_throttled
from forebay.core.partition.fetch_session import FetchContext, FetchTarget
from forebay.core.partition.leadership import FetchMark
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

log = logging.getLogger(__name__)

_WATCHERS_MAX = 32
_BEHIND_S = 0.005
"""How long a follower counts as being behind after it was."""
_HELD_TURNS, _HELD_S_MAX = 4, 0.001
"""The turns of the loop for which an answer is held back. They are short unless others keep the loop busy.
Producers with acks=all wait for it."""
_HELD_BYTES_MAX = 256 * 1024


def replica_id(request: FetchRequest) -> int:
    """The broker that fetches; below 0: a consumer."""
    return max(request.replica_id, request.replica_state.replica_id)


class ReplicaFetch(Fetch):
    __slots__ = ("_broker_epoch", "_context", "_follower", "_reply", "_timer")

    def __init__(
        self,
        service: FetchHost,
        request: FetchRequest,
        session: FetchContext,
        listener: str,
        follower: int,
    ) -> None:
        super().__init__(service, request, session, listener)
        self._follower = follower
        self._broker_epoch = request.replica_state.replica_epoch
        self._reply: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, context: RequestContext) -> FetchResponse | Reply:
        service, self._context = self._service, context
        if not self._is_registered():
            return FetchResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        request, session = self._request, self._session.session
        service.followers.heard_of(self._follower, session)
        if self._read() or request.max_wait_ms <= 0 or session is None:
            return self._answer(context)
        enough = self._size >= request.min_bytes
        if self._size >= _HELD_BYTES_MAX:
            return self._answer(context)
        reply = self._reply = context.defer()
        reply.on_abandoned = self._stop_waiting
        if enough:
            service.followers.behind_s[self._follower] = service.loop.time()
            self._hold(_HELD_TURNS, service.loop.time() + _HELD_S_MAX)
        else:
            session.on_changed = self._changed
            wait_s = service.followers.wait_s(request.max_wait_ms)
            self._timer = service.loop.call_later(wait_s, self._woken)
        return reply

    def _is_registered(self) -> bool:
        registered = self._service.metadata.image.brokers.get(self._follower)
        return registered is not None and registered.epoch == self._broker_epoch

    def _answer(self, context: RequestContext) -> FetchResponse | Reply:
        if not self._cold():
            return self._response()
        reply = context.defer()
        self._load(reply)
        return reply

    # -- waiting -------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Called within an append: answer when its producer has been served."""
        self._stop_waiting()
        if self._is_behind():
            self._hold(_HELD_TURNS, self._service.loop.time() + _HELD_S_MAX)
        else:
            self._service.arrivals.call(self._woken)

    def _is_behind(self) -> bool:
        behind_s = self._service.followers.behind_s.get(self._follower, 0.0)
        return self._service.loop.time() - behind_s < _BEHIND_S

    def _hold(self, turns: int, until_s: float) -> None:
        loop = self._service.loop
        if turns and loop.time() < until_s:
            loop.call_soon(self._hold, turns - 1, until_s)
        else:
            self._woken()

    def _stop_waiting(self) -> None:
        session = self._session.session
        if session is not None and session.on_changed == self._changed:
            session.on_changed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_outdated(self) -> bool:
        """True if the follower has begun anew while this fetch waited, and may have less than it had."""
        session = self._session.session
        return not self._is_registered() or (session is not None and session.closed)

    def _woken(self) -> None:
        reply, self._reply = self._reply, None
        self._stop_waiting()
        if reply is None or reply.abandoned:
            return
        session = self._session.session
        try:
            if session is not None:
                self._session.targets = [] if self._is_outdated() else list(session.unsettled)
            self._read()
            if self._cold():
                self._load(reply)
            else:
                reply.resolve(self._response())
        except Exception:
            log.exception("a follower's fetch could not be answered")
            reply.abort()

    # -- reading -------------------------------------------------------------------------------------

    def _read_target(self, target: FetchTarget, left: int) -> tuple[PartitionData, int]:
        wanted = target.request
        partition = self._partition(target)
        check_leader_epoch(partition, wanted.current_leader_epoch)
        log_ = partition.log
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.high_watermark,
            log_start_offset=log_.start_offset,
            records=NO_RECORDS,
        )
        diverged = diverging(partition, wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverged is not None:
            data.diverging_epoch = diverged
            self._urgent = True
            return data, 0
        if not log_.start_offset <= wanted.fetch_offset <= log_.end_offset:
            # The log start, told with the error, is where a follower that has too little begins anew.
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            self._urgent = True
            return data, 0
        self._service.followers.fetched(
            partition, self._follower, wanted.fetch_offset, self._broker_epoch, wanted.log_start_offset
        )
        data.high_watermark = partition.high_watermark
        again = bool(partition.refusals) and self._shows_leader(partition)
        if self._is_throttled(partition):
            return data, 0  # it is looked at again when this fetch has waited
        found = self._slice(partition, target, left, log_.end_offset)
        if found.range is None:
            if wanted.fetch_offset == log_.end_offset and not again:
                self._settle(partition, target)
            return data, 0
        data.records = found.range
        self._count(partition, found.range.length)
        return data, found.range.length

    def _shows_leader(self, partition: Partition) -> bool:
        """The fetch shows whom its follower follows; whether the next one has to, and is to come at once."""
        mark = FetchMark(self._context.connection, self._context.correlation_id)
        again = partition.refusals.fetched(self._follower, mark)
        if again:
            self._urgent = True
        return again

    def _is_throttled(self, partition: Partition) -> bool:
        """True if the throttle holds back this replica for now."""
        service = self._service
        return self._counts(partition) and bool(service.throttle.wait_s(0, service.loop.time()))

    def _count_sent(self) -> None:
        self._service.metrics.replication_bytes_out += self._size

    def _count(self, partition: Partition, size: int) -> None:
        if self._counts(partition):
            self._service.throttle.wait_s(size, self._service.loop.time())

    def _counts(self, partition: Partition) -> bool:
        """True if the throttle applies: the replica is not in sync, and the topic's setting names it."""
        if not self._service.throttle.rate or self._in_sync(partition):
            return False
        return is_throttled(
            partition.config.leader_throttled_replicas, partition.index, self._service.node_id
        )

    def _in_sync(self, partition: Partition) -> bool:
        leadership = partition.leadership
        return leadership is not None and self._follower in leadership.isr

    def _settle(self, partition: Partition, target: FetchTarget) -> None:
        """There is nothing more: the partition says when there is."""
        told = target.high_watermark == partition.high_watermark
        if told and target.log_start_offset == partition.log.start_offset:
            target.skip_until_changed()
        watchers = partition.follower_fetches
        if len(watchers) > _WATCHERS_MAX:  # sessions that have ended since the last append
            partition.follower_fetches = {
                each: None for each in watchers if each.session and not each.session.closed
            }
        partition.follower_fetches[target] = None

    def _partition(self, target: FetchTarget) -> Partition:
        partition = self._service.partitions.get(self._topic_name(target), target.request.partition)
        leadership = partition.leadership
        if leadership is None or self._follower not in leadership.followers:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self._follower} holds no replica of {partition}",
            )
        return partition
