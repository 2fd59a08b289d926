"""From appended to acknowledged.

Appends of one read event are queued in their logs and written together, one system call per partition,
before any of them is acknowledged. What an acknowledgement then still waits for depends on acks. With acks=1
it waits for nothing. With acks=all it waits for the other in-sync replicas; where there are none, for a sync
of the disk under `forebay.flush.policy=ack`. Where there should be others, consumers wait for that sync too.

A broker acknowledges nothing while it cannot be sure of its lease: others may have taken its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct

from forebay.broker.acks import Done
from forebay.broker.group_commit import GroupCommit
from forebay.broker.metrics import Metrics
from forebay.broker.partition import Partition
from forebay.broker.waiters import Arrivals, release
from forebay.errors import ErrorCode, InvalidRecords, KafkaError, StorageError

log = logging.getLogger(__name__)

ACKS_ALL = -1
TIMEOUT_MS = 30_000

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
    """Of a batch that was refused for the sake of some records: which, and what is wrong with each."""

    def fail(self, error: KafkaError) -> None:
        self.error_code = error.code
        self.error_message = error.message
        self.bad_records = error.records if isinstance(error, InvalidRecords) else None
        self.base_offset = self.log_append_time_ms = self.log_start_offset = -1


@dataclass(slots=True, eq=False)
class Unacknowledged:
    """One Produce request whose appends are queued, and what to do once they have settled."""

    results: list[Appended]
    acks: int
    settle: Callable[[], None]
    timeout_ms: int = TIMEOUT_MS
    """How long acks=all may wait for other replicas."""
    waits_left: int = 0


class Appends:
    def __init__(
        self,
        commit: GroupCommit,
        arrivals: Arrivals,
        metrics: Metrics,
        *,
        sync_on_ack: bool,
        may_lead: Callable[[], bool],
        on_broken: Callable[[Partition], None],
    ) -> None:
        """`may_lead` says whether this broker's lease holds at this moment; `on_broken` is told of a
        partition that could not be written."""
        self._commit = commit
        self._metrics = metrics
        self._arrivals = arrivals
        self._sync_on_ack = sync_on_ack
        self._may_lead = may_lead
        self._on_broken = on_broken
        self._dirty: dict[Partition, int] = {}
        self._requests: list[Unacknowledged] = []
        self._answered: list[tuple[Partition, bytearray, int]] = []
        self._scheduled = False
        self.unsynced: dict[Partition, None] = {}
        """Partitions with writes that no sync has been asked for."""
        self._awaited: dict[Partition, None] = {}
        """Partitions whose acknowledgements wait for other replicas."""

    def queued(self, partition: Partition, size: int) -> None:
        dirty = self._dirty
        dirty[partition] = dirty.get(partition, 0) + size

    def add(self, request: Unacknowledged) -> None:
        self._requests.append(request)

    def answered(self, partition: Partition, size: int, response: bytearray, numbers_at: int) -> None:
        """A batch was queued whose response is made already, but not sent before `finish`."""
        if size:
            dirty = self._dirty
            dirty[partition] = dirty.get(partition, 0) + size
        self._answered.append((partition, response, numbers_at))

    def finish(self) -> None:
        """Write everything queued in this event, then settle its requests.

        Repeats write nothing, and are acknowledged all the same: only with a lease.
        """
        if not (self._dirty or self._requests or self._answered):
            return
        failed = self._write()
        if failed:
            self._take_back(failed)
        if not self._may_lead():
            self._refuse()
        self._answered.clear()
        requests, self._requests = self._requests, []
        for request in requests:
            if failed:
                for result in request.results:
                    error = failed.get(result.partition) if result.partition else None
                    if error is not None and result.error_code == ErrorCode.NONE:
                        result.fail(error)
            try:
                if request.acks == ACKS_ALL:
                    self._await(request)
                else:
                    request.settle()
            except Exception:
                log.exception("a request could not be acknowledged")

    def finish_soon(self) -> None:
        """Have `finish` called soon, for who appends outside of a connection's requests."""
        if not self._scheduled:
            self._scheduled = True
            self._commit.loop.call_soon(self._finish_scheduled)

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
                    self._on_broken(partition)
                    continue
                self.unsynced[partition] = None
                self._metrics.bytes_in += size
                self._metrics.messages_in += count
                if partition.commits_at_once and partition.waits:
                    self._arrivals.note(partition, size)
                elif partition.commits_by_sync:
                    self.sync_alone(partition)
                if partition.watchers:
                    partition.notify_followers()
            except Exception:
                log.exception("nobody was told of a write", extra={"partition": str(partition)})
        return failed

    def _refuse(self) -> None:
        """Without a lease nothing is acknowledged, and nothing is refused for good: both are others' to say.

        What was written stays, and its fate is decided later.
        """
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost touch with its cluster")
        self._take_back({partition: error for partition, _, _ in self._answered})
        for request in self._requests:
            for result in request.results:
                if result.partition is not None:
                    result.fail(error)
                    self._metrics.acks_refused += 1

    def _take_back(self, failed: dict[Partition, KafkaError]) -> None:
        for partition, response, numbers_at in self._answered:
            if partition in failed:
                NUMBERS.pack_into(response, numbers_at, partition.index, failed[partition].code, -1, -1, -1)

    # -- acks=all --------------------------------------------------------------------------------------

    def _await(self, request: Unacknowledged) -> None:
        """Settle once every partition of the request is as safe as its in-sync replicas can make it."""
        waiting = [
            (result, result.partition)
            for result in request.results
            if result.partition is not None
            and result.error_code == ErrorCode.NONE
            and (self._sync_on_ack or not result.partition.commits_at_once)
        ]
        request.waits_left = len(waiting)
        if not waiting:
            request.settle()
            return
        deadline_s = self._commit.loop.time() + request.timeout_ms / 1000
        for result, partition in waiting:
            done = _settling(request, result)
            if not partition.is_leader:
                done(partition.not_leader())
            elif partition.commits_at_once:
                self._sync(partition, done)
            else:
                self._awaited[partition] = None
                partition.acks.wait(partition.log.end_offset, deadline_s, self._replicated(partition, done))
                self.advance(partition)

    def _sync(self, partition: Partition, done: Callable[[KafkaError | None], None]) -> None:
        self.unsynced.pop(partition, None)
        self._commit.wait(partition.log, done)

    def sync_alone(self, partition: Partition) -> None:
        """Make durable what nobody else has, and then commit it if nobody else need have it."""
        leader_epoch, end_offset = partition.leader_epoch, partition.written_end_offset

        def done(error: KafkaError | None) -> None:
            if error is not None:
                partition.acks.fail(error.code)
            else:
                partition.synced(leader_epoch, end_offset)
                self.advance(partition)
            self.finish_soon()

        self._sync(partition, done)

    def _replicated(self, partition: Partition, done: Callable[[KafkaError | None], None]) -> Done:
        """What to do when the high watermark has passed an append, or will not."""

        def replicated(code: ErrorCode) -> None:
            if code != ErrorCode.NONE:
                done(KafkaError(code, f"not all in-sync replicas of {partition} have it, or none can tell"))
            elif not partition.enough_replicas:
                code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                done(KafkaError(code, f"fewer replicas of {partition} are in sync than min.insync.replicas"))
            elif self._sync_on_ack and partition.commits_at_once:
                self._sync(partition, done)  # the others have left meanwhile: it is on this disk alone
            else:
                done(None)

        return replicated

    def advance(self, partition: Partition) -> None:
        """A replica has come further, or one counts no more: tell whoever waited for it."""
        moved = partition.advance()
        if moved:
            # Followers learn of it with their next answer; nobody wakes them for it.
            partition.notify_followers(wake=False)
            if partition.waits:
                self._arrivals.note(partition, 1)
        if partition.acks:
            for done in partition.acks.committed(partition.high_watermark):
                done(ErrorCode.NONE)
            if partition.is_leader and not partition.enough_replicas:
                # The high watermark stands still until others are in sync again, and nobody knows when.
                partition.acks.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def expire(self) -> None:
        """Answer acknowledgements that have waited for other replicas for too long."""
        now_s = self._commit.loop.time()
        for partition in list(self._awaited):
            partition.acks.expire(now_s)
            if not partition.acks:
                del self._awaited[partition]

    def sync_all(self) -> None:
        """Have everything written so far made durable in the background.

        Also where nothing more can be written now: what was acknowledged before must not wait for room.
        """
        unsynced, self.unsynced = self.unsynced, {}
        self._commit.sync_soon([each.log for each in unsynced if not each.log.offline_for_good])


def _settling(request: Unacknowledged, result: Appended) -> Callable[[KafkaError | None], None]:
    def done(error: KafkaError | None) -> None:
        if error is not None:
            result.fail(error)
        request.waits_left -= 1
        if request.waits_left:
            return
        try:
            request.settle()
        except Exception:  # others wait for the same sync or the same replicas, and are told all the same
            log.exception("a request could not be acknowledged")

    return done
