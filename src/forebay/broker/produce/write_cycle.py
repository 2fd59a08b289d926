"""From appended to acknowledged.

Appends of one read event are queued in their logs and written together, one system call per partition,
before any of them is acknowledged. What an acknowledgement then still waits for depends on acks. With acks=1
it waits for nothing. With acks=all it waits for the other in-sync replicas; where there are none, for a sync
of the disk under `forebay.flush.policy=ack`. Where there should be others, consumers wait for that sync too.

A broker acknowledges nothing while it cannot be sure of its lease: others may have taken its place. The lease
is asked for wherever an acknowledgement leaves: when what was appended is written (`finish`), when the high
watermark has passed it (`advance`), and when the disk has it (`_complete_synced`). Batches for other brokers
are acknowledged by the broker that stores them, which asks for its own lease. A broker also refuses nothing
for good before its in-sync followers have shown that none of them leads.

One noun and two verbs for all of this: an *ack* is *awaited*, then it is *complete*, be it with an error. The
last ack of a request completes the request, which makes its response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct

from forebay.broker.partition.long_polls import Arrivals, release
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.pending_acks import (
    PendingAck,
    PendingRefusal,
    PendingRequest,
    PendingResult,
    complete_ack,
    not_replicated,
)
from forebay.broker.produce.flush import GroupCommit
from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.telemetry.request_times import Measurement
from forebay.core.partition.leadership import LeaderProof
from forebay.errors import ErrorCode, InvalidRecords, KafkaError, StorageError, known_code
from forebay.lazy import dataclass

log = logging.getLogger(__name__)

ACKS_ALL = -1
TIMEOUT_MS = 30_000
PROOF_S_MAX = 1.0
"""How long a refusal waits for the in-sync followers. Then the client is sent to look for the leader."""

NUMBERS = Struct(">ihqqq")
"""Index, error code, base offset, append time, log start offset: neighbours in a Produce response."""


@dataclass(slots=True, eq=False)
class Appended:
    """The outcome for one partition of a Produce request."""

    index: int
    partition: Partition | None = None
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    bad_records: Mapping[int, str] | None = None
    """If a batch was refused because of some of its records: which, and what is wrong with each."""

    @property
    def error(self) -> KafkaError | None:
        code, message = known_code(self.error_code), self.error_message or "not committed"
        if code == ErrorCode.NONE:
            return None
        return StorageError(message) if code == ErrorCode.KAFKA_STORAGE_ERROR else KafkaError(code, message)

    def fail(self, error: KafkaError) -> None:
        self.error_code = error.code
        self.error_message = error.message
        self.bad_records = error.records if isinstance(error, InvalidRecords) else None
        self.base_offset = self.log_append_time_ms = self.log_start_offset = -1


@dataclass(slots=True, eq=False)
class Unacknowledged:
    """One Produce request whose appends are queued, and what to do once its acks are complete."""

    results: list[Appended]
    acks: int
    on_complete: Callable[[], None]
    timeout_ms: int = TIMEOUT_MS
    """How long acks=all may wait for other replicas."""
    refused: Sequence[Appended] = ()
    """Those of the results that are final errors, and need the proof that this broker led."""
    acks_left: int = 0
    """Appends with acks=all, and refusals, whose ack is not complete yet."""
    on_failed: Callable[[PendingResult], None] | None = None
    """Called at once with an append that has failed, while others may still wait."""

    def fail(self, result: PendingResult, error: KafkaError) -> None:
        result.fail(error)
        if self.on_failed is None:
            return
        try:
            self.on_failed(result)
        except Exception:  # other requests have failed with it
            log.exception("a batch that was refused is not remembered")

    def complete_one(self) -> None:
        """One more ack is complete; the last one completes the request."""
        self.acks_left -= 1
        if self.acks_left:
            return
        try:
            self.on_complete()
        except Exception:  # other requests wait for the same flush or replicas, and must complete, too
            log.exception("a request could not be acknowledged")


class WriteCycle:
    def __init__(
        self,
        flush: GroupCommit,
        arrivals: Arrivals,
        metrics: Metrics,
        *,
        sync_on_ack: bool,
        lease_valid: Callable[[], bool],
    ) -> None:
        """`lease_valid` says whether this broker's lease holds at this moment."""
        self._flush = flush
        self._metrics = metrics
        self._arrivals = arrivals
        self._sync_on_ack = sync_on_ack
        self._lease_valid = lease_valid
        self.broken: Signal[Partition] = Signal()
        """A partition could not be written."""
        self._dirty: dict[Partition, int] = {}
        self._requests: list[Unacknowledged] = []
        self._responses: list[tuple[Partition, bytearray, int]] = []
        self.measured: list[Measurement] = []
        """Of requests whose responses are made already."""
        self._scheduled = False
        self.unsynced: dict[Partition, None] = {}
        """Partitions with writes that no flush has been asked for."""
        self._awaited: dict[Partition, None] = {}
        """Partitions whose acknowledgements wait for other replicas."""

    def queued(self, partition: Partition, size: int) -> None:
        dirty = self._dirty
        dirty[partition] = dirty.get(partition, 0) + size

    def add(self, request: Unacknowledged) -> None:
        self._requests.append(request)

    def queued_with_response(
        self, partition: Partition, size: int, response: bytearray, numbers_at: int
    ) -> None:
        """A batch was queued whose response is made already, but not sent before `finish`."""
        if size:
            dirty = self._dirty
            dirty[partition] = dirty.get(partition, 0) + size
        self._responses.append((partition, response, numbers_at))

    def finish(self) -> None:
        """Write everything queued in this event, then await or complete the acks of its requests.

        Repeats write nothing, and are acknowledged all the same: only with a lease.
        """
        if not (self._dirty or self._requests or self._responses):
            return
        failed = self._write()
        if failed:
            self._take_back(failed)
        if not self._lease_valid():
            self._refuse()
        self._responses.clear()
        if self.measured:
            for measurement in self.measured:
                measurement.end()
            self.measured.clear()
        requests, self._requests = self._requests, []
        for request in requests:
            if failed:
                for result in request.results:
                    error = failed.get(result.partition) if result.partition else None
                    if error is not None and result.error_code == ErrorCode.NONE:
                        request.fail(result, error)
            try:
                if request.acks == ACKS_ALL or request.refused:
                    self._await_acks(request)
                else:
                    request.on_complete()
            except Exception:
                log.exception("a request could not be acknowledged")

    def finish_soon(self) -> None:
        """Have `finish` called soon, for appends that do not come with a connection's requests."""
        if not self._scheduled:
            self._scheduled = True
            self._flush.loop.call_soon(self._finish_scheduled)

    def _finish_scheduled(self) -> None:
        self._scheduled = False
        self.finish()
        self._arrivals.wake()

    def _write(self) -> dict[Partition, KafkaError]:
        """Write what is queued in every partition, whatever happens to the others; the errors."""
        failed: dict[Partition, KafkaError] = {}
        dirty, self._dirty = self._dirty, {}
        for partition, size in dirty.items():
            try:
                try:
                    count = partition.write()
                except StorageError as error:
                    failed[partition] = error
                    release(partition)
                    self.broken.send(partition)
                    continue
                self.unsynced[partition] = None
                self._metrics.bytes_in += size
                self._metrics.messages_in += count
                traffic = partition.traffic
                traffic.bytes_in += size
                traffic.messages_in += count
                if partition.commits_at_once and partition.waiters:
                    self._arrivals.note(partition, size)
                elif partition.commits_by_sync:
                    self.sync_alone(partition)
                if partition.follower_fetches:
                    partition.notify_followers()
            except Exception:
                log.exception(
                    "waiting fetches and followers were not notified of a write",
                    extra={"partition": str(partition)},
                )
        return failed

    def _refuse(self) -> None:
        """Acknowledge nothing without a lease, and refuse nothing for good: another broker may decide both.

        What was written stays, and its fate is decided later.
        """
        error = _out_of_touch()
        self._take_back({partition: error for partition, _, _ in self._responses})
        self._metrics.acks_refused += len(self._responses)
        for request in self._requests:
            request.refused = ()
            for result in request.results:
                if result.partition is not None:
                    request.fail(result, error)
                    self._metrics.acks_refused += 1

    def _take_back(self, failed: dict[Partition, KafkaError]) -> None:
        for partition, response, numbers_at in self._responses:
            if partition in failed:
                NUMBERS.pack_into(response, numbers_at, partition.index, failed[partition].code, -1, -1, -1)

    # -- waiting for replicas --------------------------------------------------------------------------

    def _await_acks(self, request: Unacknowledged) -> None:
        """Complete once appends are as safe as the in-sync replicas can make them, and refusals are final."""
        waiting = [
            (result, result.partition)
            for result in request.results
            if result.partition is not None
            and request.acks == ACKS_ALL
            and result.error_code == ErrorCode.NONE
            and (self._sync_on_ack or not result.partition.commits_at_once)
        ]
        request.acks_left = len(waiting) + len(request.refused)
        if not request.acks_left:
            request.on_complete()
            return
        for result in request.refused:
            self._await_proof(request, result)
        deadline_s = self._flush.loop.time() + request.timeout_ms / 1000
        for result, partition in waiting:
            if not partition.is_leader:
                complete_ack(request, result, partition.not_leader())
            elif partition.commits_at_once:
                self._sync(partition, partial(self._complete_synced, request, result))
            else:
                self._awaited[partition] = None
                partition.acks.add(PendingAck(partition.log.end_offset, deadline_s, request, result))
                self.advance(partition)

    def _await_proof(self, request: Unacknowledged, result: Appended) -> None:
        """Let a refusal be final when no follower can have been leading already."""
        partition = result.partition
        assert partition is not None
        if partition.leadership is None:
            complete_ack(request, result, partition.not_leader())
            return
        proof = LeaderProof(partition.leadership.electable)
        if proof.is_complete:
            complete_ack(request, result, None)
        elif partition.refusals.is_full:
            complete_ack(request, result, _unproven(partition))
        else:
            self._awaited[partition] = None
            deadline_s = self._flush.loop.time() + min(request.timeout_ms / 1000, PROOF_S_MAX)
            partition.refusals.append(PendingRefusal(deadline_s, request, result, proof))
            partition.notify_followers()

    def _sync(self, partition: Partition, done: Callable[[KafkaError | None], None]) -> None:
        self.unsynced.pop(partition, None)
        self._flush.wait(partition.log.files, done)

    def _complete_synced(
        self, request: PendingRequest, result: PendingResult, error: KafkaError | None
    ) -> None:
        """The disk has an append with acks=all, and the lease may have ended meanwhile."""
        if error is None and not self._lease_valid():
            error = _out_of_touch()
            self._metrics.acks_refused += 1
        complete_ack(request, result, error)

    def sync_alone(self, partition: Partition) -> None:
        """Flush what no other replica has, and then commit it if no other replica has to have it."""
        leader_epoch, end_offset = partition.leader_epoch, partition.written_end_offset
        self._sync(partition, partial(self._synced_alone, partition, leader_epoch, end_offset))

    def _synced_alone(
        self, partition: Partition, leader_epoch: int, end_offset: int, error: KafkaError | None
    ) -> None:
        if error is not None:
            partition.acks.fail(partition, error.code)
        else:
            partition.synced(leader_epoch, end_offset)
            self.advance(partition)
        self.finish_soon()

    def _complete_committed(self, partition: Partition, ack: PendingAck) -> None:
        """The high watermark has passed an append with acks=all."""
        if not partition.enough_replicas:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            error = KafkaError(code, f"fewer replicas of {partition} are in sync than min.insync.replicas")
            complete_ack(ack.request, ack.result, error)
        elif self._sync_on_ack and partition.commits_at_once:
            # The other replicas have left the ISR since the append: it is on this disk alone.
            self._sync(partition, partial(self._complete_synced, ack.request, ack.result))
        else:
            complete_ack(ack.request, ack.result, None)

    def advance(self, partition: Partition) -> None:
        """A replica has come further, or one has left the ISR: complete what waited for it."""
        moved = partition.advance()
        if moved:
            # Followers learn of it with their next response; their fetches are not woken for it.
            partition.notify_followers(wake=False)
            if partition.waiters:
                self._arrivals.note(partition, 1)
        if partition.acks:
            reached = partition.acks.take_reached(partition.high_watermark)
            if reached and not self._lease_valid():
                self._metrics.acks_refused += len(reached)
                for ack in reached:
                    complete_ack(ack.request, ack.result, _out_of_touch())
            else:
                for ack in reached:
                    self._complete_committed(partition, ack)
            if partition.is_leader and not partition.enough_replicas:
                # The high watermark does not move until enough replicas are in sync again.
                partition.acks.fail(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def expire(self) -> None:
        """Answer requests that have waited for other replicas for too long.

        What they appended stays, and may be committed later.
        """
        now_s = self._flush.loop.time()
        for partition in list(self._awaited):
            for ack in partition.acks.take_expired(now_s):
                complete_ack(ack.request, ack.result, not_replicated(partition, ErrorCode.REQUEST_TIMED_OUT))
            if partition.refusals:
                partition.refusals.expire(now_s, _unproven(partition))
            if not partition.acks and not partition.refusals:
                del self._awaited[partition]

    def sync_all(self) -> None:
        """Have everything written so far made durable in the background.

        Also where nothing more can be written now: what was acknowledged before must not wait for room.
        """
        unsynced, self.unsynced = self.unsynced, {}
        self._flush.sync_soon([each.log.files for each in unsynced if not each.log.offline_for_good])


def _out_of_touch() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost touch with its cluster")


def _unproven(partition: Partition) -> KafkaError:
    reason = f"not all in-sync replicas of {partition} have shown that they still follow this broker"
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
