"""Fetch: batches straight from the segments, at once or when enough of them have come.

Nothing is read here. Each partition answers with a range of a file, which the connection hands to sendfile.
A range whose bytes would have to come from the device first is loaded by a thread before the answer goes out.

Who reads committed messages gets batches up to the last stable offset, and a list of the aborted
transactions in them: it is the client that passes over those, because the batches go out as they are stored.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.broker.connection import Reply
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.partition import Partition
from forebay.broker.waiters import FetchWait
from forebay.core.fetch_session import FetchContext, FetchTarget
from forebay.errors import KafkaError, StorageError
from forebay.storage.log import LogSlice
from forebay.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

TOPIC_IDS_FROM = 13
READ_COMMITTED = 1
_NO_RECORDS = b""


def handle(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchResponse | Reply:
    broker.metrics.fetch_requests += 1
    by_id = context.api_version >= TOPIC_IDS_FROM
    session = broker.sessions.resolve(request, by_id=by_id, now_ms=broker.now_ms())
    if session.error_code:
        return FetchResponse(error_code=session.error_code)
    return _Fetch(broker, request, session).start(context)


class _Fetch:
    """One request: read, and read again when its wait is over."""

    __slots__ = (
        "_broker",
        "_committed",
        "_early",
        "_found",
        "_partitions",
        "_request",
        "_seen",
        "_session",
        "_size",
        "_slices",
    )

    def __init__(self, broker: Broker, request: FetchRequest, session: FetchContext) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        self._committed = request.isolation_level == READ_COMMITTED

    def start(self, context: RequestContext) -> FetchResponse | Reply:
        healthy = self._read()
        request = self._request
        enough = self._size >= request.min_bytes or request.max_wait_ms <= 0
        if enough or not healthy or not self._partitions:
            if self._cold():
                reply = context.defer()
                self._load(reply)
                return reply
            return self._response()
        # What was appended in this event is still to be written, and may lie before the offset asked for.
        self._early = any(p.high_watermark < p.log.end_offset for p in self._partitions)
        reply = context.defer()
        wait = FetchWait(
            self._partitions,
            bytes_missing=request.min_bytes - self._size,
            complete=lambda: self._woken(reply),
            loop=self._broker.loop,
            timeout_s=request.max_wait_ms / 1000,
            recount=self._recount if self._committed or self._early else None,
        )
        reply.on_abandoned = wait.finish
        return reply

    def _woken(self, reply: Reply) -> None:
        if reply.abandoned:
            return
        try:
            self._read()
            if self._cold():
                self._load(reply)
            else:
                reply.resolve(self._response())
        except Exception:
            log.exception("a fetch could not be answered")
            reply.abort()

    def _recount(self, partition: Partition, missing: int, size: int) -> int:
        """How many bytes are missing after some came: by reading again, if they may not all be readable."""
        if not partition.transactional and not self._early:
            return missing - size
        end = partition.last_stable_offset if self._committed else partition.high_watermark
        if end == self._seen.get(partition):
            return missing
        healthy = self._read()
        return self._request.min_bytes - self._size if healthy else 0

    # -- reading -------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Look at every partition that the request wants; whether all of them are well."""
        left = min(self._request.max_bytes, self._broker.config.fetch.max_bytes)
        self._found: list[tuple[FetchTarget, PartitionData, int]] = []
        self._partitions: list[Partition] = []
        self._slices: list[tuple[Partition, LogSlice]] = []
        self._seen: dict[Partition, int] = {}
        self._size = 0
        healthy = True
        for target in self._session.targets:
            try:
                data, size = self._read_target(target, left)
            except KafkaError as error:
                data, size = _failed(target, error), 0
                healthy = False
                self._broker.metrics.fetch_failures += 1
            self._found.append((target, data, size))
            self._size += size
            left -= size
        return healthy

    def _read_target(self, target: FetchTarget, left: int) -> tuple[PartitionData, int]:
        wanted = target.request
        partition = self._partition(target)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        committed, stable = self._committed, partition.last_stable_offset
        end = stable if committed else partition.high_watermark
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=stable,
            log_start_offset=partition.log.start_offset,
            aborted_transactions=[] if committed else None,
            records=_NO_RECORDS,
        )
        if _diverges(partition, wanted.last_fetched_epoch, wanted.fetch_offset, data):
            return data, 0
        max_bytes = min(wanted.partition_max_bytes, left)
        found = partition.log.read(
            wanted.fetch_offset,
            max(max_bytes, 0),
            min_one=self._size == 0,
            upper_offset=end,
        )
        self._partitions.append(partition)
        self._seen[partition] = end
        if found.range is None:
            return data, 0
        if committed and partition.log.has_aborted:
            data.aborted_transactions = _aborted(partition, wanted.fetch_offset, found.next_offset)
        self._slices.append((partition, found))
        data.records = found.range
        return data, found.range.length

    def _partition(self, target: FetchTarget) -> Partition:
        replicas, index = self._broker.replicas, target.request.partition
        if isinstance(target.topic, bytes):
            return replicas.by_id(target.topic, index)
        return replicas.get(target.topic, index)

    # -- answering -----------------------------------------------------------------------------------

    def _cold(self) -> list[tuple[Partition, LogSlice]]:
        return [(p, found) for p, found in self._slices if not p.log.is_warm(found)]

    def _load(self, reply: Reply) -> None:
        """Have the device's bytes brought into memory and checked, then answer."""

        def done(error: KafkaError | None) -> None:
            if reply.abandoned:
                return
            if error is not None:
                self._give_up(error)
            reply.resolve(self._response())

        self._broker.cold_reads.load([(p.log, found) for p, found in self._cold()], done)

    def _give_up(self, error: KafkaError) -> None:
        """Damaged bytes are never sent: the partitions that were cold answer with the error."""
        cold = {id(found.range) for _, found in self._cold()}
        for i, (target, data, _) in enumerate(self._found):
            if id(data.records) in cold:
                self._found[i] = (target, _failed(target, error), 0)

    def _response(self) -> FetchResponse:
        session = self._session
        topics: dict[str | bytes, list[PartitionData]] = {}
        for target, data, size in self._found:
            if session.must_answer(
                target,
                data.high_watermark,
                data.log_start_offset,
                size,
                data.error_code,
                forced=data.diverging_epoch.epoch >= 0,
            ):
                topics.setdefault(target.topic, []).append(data)
        self._broker.metrics.bytes_out += self._size
        return FetchResponse(
            session_id=session.session_id,
            responses=[self._topic(topic, partitions) for topic, partitions in topics.items()],
        )

    def _topic(self, topic: str | bytes, partitions: list[PartitionData]) -> FetchableTopicResponse:
        if isinstance(topic, bytes):
            return FetchableTopicResponse(topic_id=topic, partitions=partitions)
        return FetchableTopicResponse(topic=topic, partitions=partitions)


def _aborted(partition: Partition, offset: int, next_offset: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions(offset, next_offset)
    ]


def _diverges(partition: Partition, epoch: int, offset: int, data: PartitionData) -> bool:
    """Tell a reader whose last epoch ended earlier than it believes where to go back to."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return False
    known, end_offset = partition.epochs.end_offset_for(epoch, partition.log.end_offset)
    if known == epoch and end_offset >= offset:
        return False
    data.diverging_epoch = EpochEndOffset(epoch=known, end_offset=end_offset)
    return True


def _failed(target: FetchTarget, error: KafkaError) -> PartitionData:
    if isinstance(error, StorageError):  # everything else is between the client and us
        log.warning(
            "a fetch failed",
            extra={"partition": target.request.partition, "code": error.code.name, "reason": error.message},
        )
    return PartitionData(
        partition_index=target.request.partition,
        error_code=error.code,
        high_watermark=-1,
        records=_NO_RECORDS,
    )


ENDPOINT = Endpoint(1, 4, 18, handle)
