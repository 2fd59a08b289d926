"""The fetches of consumers: answered at once, or when enough has come.

Consumers that read committed messages get batches up to the last stable offset, and a list of the aborted
transactions in them: it is the client that passes over those, because the batches go out as they are stored.

Consumers read from the leader, or from any replica if they know how to (version 11); a consumer that names
its rack is sent to an in-sync replica there (KIP-392).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from forebay.broker.fetch.fetch_host import FetchHost
from forebay.broker.fetch.partition_reads import NO_RECORDS, Fetch, diverging
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.partition.leader_epoch_checks import KnownTerm, check_leader_epoch, hear_of
from forebay.broker.partition.long_polls import FetchWait
from forebay.broker.partition.partition import Partition
from forebay.broker.quotas.fetch_quota import FetchQuota, fetch_quota
from forebay.broker.tiers.missed_chunk import ChunkRange
from forebay.core.cluster.topics.topic_requests import NamesView
from forebay.core.partition.fetch_session import FetchContext, FetchTarget
from forebay.core.partition.read_replica import closest_replica
from forebay.core.views.catalog import named_topic
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.log.log import Log
from forebay.wire.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse, PartitionData

log = logging.getLogger(__name__)

ANY_REPLICA_FROM = 11
TOPIC_IDS_FROM = 13
READ_COMMITTED = 1


class ViewNamed(Exception):
    """The request names a view, which this fetch cannot read (`view_fetch.py` can)."""


class ConsumerFetch(Fetch):
    """One request of a consumer: read, and read again when its wait is over."""

    __slots__ = ("_any_replica", "_committed", "_counted", "_early", "_may_read", "_quota", "_seen")

    def __init__(
        self,
        service: FetchHost,
        request: FetchRequest,
        session: FetchContext,
        listener: str,
        version: int,
    ) -> None:
        super().__init__(service, request, session, listener)
        self._committed = request.isolation_level == READ_COMMITTED
        self._any_replica = version >= ANY_REPLICA_FROM
        self._seen: dict[Partition, int] = {}
        self._early = False
        self._counted: dict[Partition, dict[FetchTarget, int]] = {}
        """The bytes that count for each target of a fetch that waits."""
        self._may_read: Callable[[str], bool] | None = None
        self._quota: FetchQuota | None = None

    def start(self, context: RequestContext) -> FetchResponse | Reply:
        """Raises ViewNamed; then nothing has happened."""
        self._look_up_client(context)
        urgent = self._read()
        if urgent and (news := self._news()):
            reply = context.defer()
            self._service.background.spawn(self._answer_later(news, reply), "waiting for an election")
            return reply
        request = self._request
        enough = self._size >= request.min_bytes or request.max_wait_ms <= 0 or self._is_full()
        if enough or urgent or not self._partitions:
            if self._cold():
                reply = context.defer()
                self._load(reply)
                return reply
            return self._response()
        # What was appended in this event is still to be written, and may lie before the offset asked for;
        # and where other replicas count, what comes can be read only when they have it. Delayed messages can
        # be read only when they are due.
        self._early = self._is_early()
        reply = context.defer()
        wait = FetchWait(
            self._partitions,
            bytes_missing=self._bytes_missing(),
            complete=context.counted(lambda: self._woken(reply)),
            loop=self._service.loop,
            timeout_s=request.max_wait_ms / 1000,
            recount=context.counted(self._recount) if self._committed or self._early else None,
        )
        reply.on_abandoned = reply.on_overtaken = wait.finish
        if self._missed:
            self._wait_for_store(wait)
        return reply

    def _is_early(self) -> bool:
        return any(
            not p.commits_at_once or p.high_watermark < p.log.end_offset or p.topic_delay is not None
            for p in self._partitions
        )

    def _wait_for_store(self, wait: FetchWait) -> None:
        """Answer when the first of the chunks is here that were missed."""
        reads = self._service.remote_reads()
        if reads is not None:
            for missed in self._missed:
                reads.notify(missed, wait.finish)

    def _look_up_client(self, context: RequestContext) -> None:
        """Look up which topics the client may read, and how many bytes."""
        service = self._service
        if service.authorization is not None:
            self._may_read = service.authorization.reader(context)
        if service.quotas.active and (quota := fetch_quota(service.quotas, context)) is not None:
            self._quota, request = quota, self._request
            request.max_bytes = min(request.max_bytes, quota.bytes_max)
            request.min_bytes = min(request.min_bytes, quota.bytes_max)

    def refuse(self) -> FetchResponse:
        """Others may lead by now. Clients look for them only when each partition says so."""
        return self.refuse_all(
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost touch with its cluster")
        )

    def refuse_all(self, error: KafkaError) -> FetchResponse:
        self._size = 0
        self._found = [(target, self._failed(target, error), 0) for target in self._session.targets]
        return self._response()

    def _response(self) -> FetchResponse:
        if self._quota is None or not self._size:
            return super()._response()
        is_sent, throttle_ms = self._quota.admit(self._size)
        response = super()._response() if is_sent else self._empty_response()
        response.throttle_time_ms = throttle_ms
        return response

    def _empty_response(self) -> FetchResponse:
        """Answer nothing, and count nothing as answered. A new session is not begun: its first answer has to
        name every partition."""
        session = self._session
        if session.incremental:
            return FetchResponse(session_id=session.session_id)
        self._service.sessions.close(session.session)
        return FetchResponse()

    def _news(self) -> list[KnownTerm]:
        """Terms of which this client has heard, and this broker has not yet: their partitions have errors."""
        image = self._service.metadata.image
        terms = (
            KnownTerm(name, target.request.partition, target.request.current_leader_epoch)
            for target, data, _ in self._found
            if data.error_code and (name := self._read_topic(target)) is not None
        )
        return [term for term in terms if term.is_news(image)]

    def _read_topic(self, target: FetchTarget) -> str | None:
        """The name of the topic whose messages are wanted, if it exists."""
        found = named_topic(self._service.metadata.image, target.topic)
        return None if found is None else found.name

    async def _answer_later(self, news: list[KnownTerm], reply: Reply) -> None:
        await hear_of(news, self._service.metadata)
        self._woken(reply)

    def _woken(self, reply: Reply) -> None:
        if reply.abandoned:
            return
        try:
            if not self._service.lease.valid():  # the lease has ended while the fetch waited
                reply.resolve(self.refuse())
                return
            self._read()
            if self._cold():
                self._load(reply)
            else:
                reply.resolve(self._response())
        except ViewNamed:  # it has taken the name of a topic that was deleted
            reply.resolve(self.refuse())
        except Exception:
            log.exception("a fetch could not be answered")
            reply.abort()

    def _recount(self, partition: Partition, missing: int, size: int) -> int:
        """How many bytes are missing after some came. If they may not all be readable, this partition is
        looked at again: it alone, since many fetches of many partitions may wait for it."""
        if not partition.producers.transactional and not self._early:
            return missing - size
        end = self._service.delays.readable_end(partition, committed=self._committed)
        if end == self._seen.get(partition):
            return missing
        self._seen[partition] = end
        left = self._bytes_max() - self._size
        for target, counted in self._counts_of(partition).items():
            wanted = target.request
            if wanted.fetch_offset < partition.log.start_offset:
                return self._count_all()
            room = max(min(wanted.partition_max_bytes, left + counted), 0)
            try:
                found = partition.log.read(
                    wanted.fetch_offset, room, min_one=self._size == counted, upper_offset=end
                )
            except KafkaError:
                return 0
            if found.more:
                return 0
            readable = 0 if found.range is None else found.range.length
            self._counted[partition][target] = readable
            self._size += readable - counted
            left -= readable - counted
        return self._bytes_missing()

    def _counts_of(self, partition: Partition) -> dict[FetchTarget, int]:
        """The bytes that count for the targets that this partition is read for.

        A fetch that waits has had no error, so each target has its partition.
        """
        if not self._counted:
            for read, (target, _, size) in zip(self._partitions, self._found, strict=True):
                self._counted.setdefault(read, {})[target] = size
        return self._counted[partition]

    def _count_all(self) -> int:
        self._counted = {}
        return 0 if self._read() else self._bytes_missing()

    def _is_full(self) -> bool:
        return self._size > 0 and self._bytes_missing() <= 0

    def _bytes_missing(self) -> int:
        """How many bytes to wait for: no more than the answer can hold."""
        request = self._request
        room = sum(target.request.partition_max_bytes for target in self._session.targets)
        return min(request.min_bytes, request.max_bytes, room) - self._size

    # -- reading -------------------------------------------------------------------------------------

    def _read_target(self, target: FetchTarget, left: int) -> tuple[PartitionData, int]:
        wanted = target.request
        if self._may_read is not None:
            self._check_access(target, self._may_read)
        partition = self._partition(target)
        check_leader_epoch(partition, wanted.current_leader_epoch)
        committed, stable = self._committed, partition.last_stable_offset
        high_watermark = partition.high_watermark
        if partition.topic_delay is not None:
            high_watermark = self._service.delays.readable_end(partition, committed=False)
            stable = min(stable, high_watermark)
        end = stable if committed else high_watermark
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=partition.start_offset,
            aborted_transactions=[] if committed else None,
            records=NO_RECORDS,
        )
        diverged = diverging(partition, wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverged is not None:
            data.diverging_epoch = diverged
            self._urgent = True
            return data, 0
        if self._request.rack_id and self._sent_elsewhere(partition, wanted.fetch_offset, data):
            self._urgent = True
            return data, 0
        found = self._slice(partition, target, left, end)
        self._seen[partition] = end
        if found.range is None:
            return data, 0
        if committed:
            if isinstance(found.range, ChunkRange):
                data.aborted_transactions = [
                    AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                    for each in found.range.aborted
                ]
            elif partition.log.has_aborted:
                data.aborted_transactions = aborted_between(
                    partition.log, wanted.fetch_offset, found.next_offset
                )
        data.records = found.range
        return data, found.range.length

    def _check_access(self, target: FetchTarget, may_read: Callable[[str], bool]) -> None:
        """The name in the request decides: who may read a view need not be allowed to read its source."""
        topic, image = target.topic, self._service.metadata.image
        name = (
            topic if isinstance(topic, str) else image.topic_names.get(topic) or image.view_names.get(topic)
        )
        if name is not None and not may_read(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the client may not read {name!r}")

    def _partition(self, target: FetchTarget) -> Partition:
        table, index = self._service.partitions, target.request.partition
        try:
            topic = self._topic_name(target)
            if not self._any_replica:
                return table.get(topic, index)
            partition = table.held(topic, index)
        except NamesView as error:
            raise ViewNamed from error
        if not partition.is_leader:
            if partition.topic_delay is not None:
                raise partition.not_leader()  # it alone says what is due
            self._check_follower(partition, target.request.fetch_offset)
        return partition

    def _check_follower(self, partition: Partition, offset: int) -> None:
        state = self._service.metadata.image.partition(partition.topic, partition.index)
        if state is None or self._service.node_id not in state.isr:
            raise partition.not_leader()
        if offset < partition.log.start_offset:
            # It may have deleted more than the leader, which alone says that an offset is out of range.
            raise partition.not_leader()
        if offset > partition.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {offset} of {partition} has not come here yet"
            )

    def _sent_elsewhere(self, partition: Partition, offset: int, data: PartitionData) -> bool:
        """True if the client is sent to a replica in its own rack."""
        leadership, image = partition.leadership, self._service.metadata.image
        state = image.partition(partition.topic, partition.index)
        if leadership is None or state is None or partition.topic_delay is not None:
            return False
        if offset < partition.log.start_offset:
            return False  # only the leader reads from an object store
        if not self._service.settings.current.replication.rack_aware_reads:
            return False
        node = closest_replica(image, state, rack=self._request.rack_id, leadership=leadership, offset=offset)
        if node is None:
            return False
        data.preferred_read_replica = node
        return True


def aborted_between(log_: Log, offset: int, next_offset: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log_.aborted_transactions(offset, next_offset)
    ]
