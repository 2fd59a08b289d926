"""From appended to acknowledged.

Appends of one read event are queued in their logs and written together, one system call per partition,
before any of them is acknowledged. What an acknowledgement then still waits for depends on acks: nothing
for acks=1, a sync of the disk for acks=all under `forebay.flush.policy=ack`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from forebay.broker.group_commit import GroupCommit
from forebay.broker.metrics import Metrics
from forebay.broker.partition import Partition
from forebay.broker.waiters import Arrivals, release
from forebay.errors import ErrorCode, StorageError

log = logging.getLogger(__name__)

ACKS_ALL = -1

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

    def fail(self, error: StorageError) -> None:
        self.error_code = error.code
        self.error_message = error.message
        self.base_offset = self.log_append_time_ms = self.log_start_offset = -1


@dataclass(slots=True, eq=False)
class Unacknowledged:
    """One Produce request whose appends are queued, and what to do once they have settled."""

    results: list[Appended]
    acks: int
    settle: Callable[[], None]
    syncs_left: int = 0


class Appends:
    def __init__(
        self, commit: GroupCommit, arrivals: Arrivals, metrics: Metrics, *, sync_on_ack: bool
    ) -> None:
        self._commit = commit
        self._metrics = metrics
        self._arrivals = arrivals
        self._sync_on_ack = sync_on_ack
        self._dirty: dict[Partition, int] = {}
        self._requests: list[Unacknowledged] = []
        self._answered: list[tuple[Partition, bytearray, int]] = []
        self._scheduled = False
        self.unsynced: set[Partition] = set()
        """Partitions with writes that no sync has been asked for."""

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
        """Write everything queued in this event, then settle its requests."""
        if not self._dirty and not self._requests:
            self._answered.clear()
            return
        failed = self._write()
        if failed:
            self._take_back(failed)
        self._answered.clear()
        requests, self._requests = self._requests, []
        for request in requests:
            if failed:
                for result in request.results:
                    error = failed.get(result.partition) if result.partition else None
                    if error is not None and result.error_code == ErrorCode.NONE:
                        result.fail(error)
            if request.acks == ACKS_ALL and self._sync_on_ack:
                self._sync(request)
            else:
                request.settle()

    def finish_soon(self) -> None:
        """Have `finish` called soon, for who appends outside of a connection's requests."""
        if not self._scheduled:
            self._scheduled = True
            self._commit.loop.call_soon(self._finish_scheduled)

    def _finish_scheduled(self) -> None:
        self._scheduled = False
        self.finish()
        self._arrivals.wake()

    def _write(self) -> dict[Partition, StorageError]:
        failed: dict[Partition, StorageError] = {}
        dirty, self._dirty = self._dirty, {}
        for partition, size in dirty.items():
            high_watermark = partition.high_watermark
            try:
                partition.write()
            except StorageError as error:
                failed[partition] = error
                release(partition)
            else:
                self.unsynced.add(partition)
                self._metrics.bytes_in += size
                self._metrics.messages_in += partition.high_watermark - high_watermark
                if partition.waits:
                    self._arrivals.note(partition, size)
        return failed

    def _take_back(self, failed: dict[Partition, StorageError]) -> None:
        for partition, response, numbers_at in self._answered:
            if partition in failed:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                NUMBERS.pack_into(response, numbers_at, partition.index, code, -1, -1, -1)

    def _sync(self, request: Unacknowledged) -> None:
        """Settle once every partition of the request is durable."""
        waiting = [r for r in request.results if r.partition and r.error_code == ErrorCode.NONE]
        request.syncs_left = len(waiting)
        if not waiting:
            request.settle()
        for result in waiting:
            assert result.partition is not None
            self.unsynced.discard(result.partition)
            self._commit.wait(result.partition.log, _synced(request, result))

    def sync_all(self) -> None:
        """Have everything written so far made durable in the background."""
        unsynced, self.unsynced = self.unsynced, set()
        self._commit.sync_soon([partition.log for partition in unsynced if not partition.log.offline])


def _synced(request: Unacknowledged, result: Appended) -> Callable[[StorageError | None], None]:
    def done(error: StorageError | None) -> None:
        if error is not None:
            result.fail(error)
        request.syncs_left -= 1
        if request.syncs_left == 0:
            request.settle()

    return done
