"""Truncating a follower's log to where it agrees with the leader's, in a thread.

Files are removed and synced, and the state of the producers is rebuilt from up to a whole segment. That takes
seconds, for which the loop must not be blocked. So the log is lent to a thread (`Assignment.lend`), and the
partition is not used in that time.

Who owns what while the log is lent:

- The thread: the log and its files, the leader epochs, and the checkpoints of this partition, which it
  lowers first and under whose lock it cuts (`Checkpoints.lowered`). It returns a new table of producers.
- The loop: the partition itself. The loop takes it out of use before (no fetch, append, retention or
  compaction finds it) and puts it back afterwards, with the table and the new end.
- The flush thread may sync the log at any time; `LogFiles.datasync` is safe for that.

The leader may change in that time, even to this broker. What an earlier leader made this one truncate was not
committed, so the truncation is finished, and the partition then takes the role that the image gives it. A
crash in the middle leaves a log that is truncated again when it follows, with checkpoints that are not beyond
its end.

After the store was restored, leaders are elected by what the replicas hold. One that was elected without
waiting for this broker may make it cut off committed messages. Their segments are copied aside before.

After a failure before anything was changed, the truncation is tried again a little later. After a later
failure the log is offline until the next start: the state of its producers would be wrong. Readers keep the
table from before, which has every open transaction. It is not written to disk, so the next start rebuilds it
from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TypeAlias

from forebay.broker.background import Background
from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.producer_replay import keep_producers_before, reload_producers
from forebay.core.cluster.restore_image import is_before_election
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import StorageError
from forebay.storage.datadir import DataDir
from forebay.storage.log.log import Log
from forebay.wire.batch import BatchHeader
from forebay.wire.messages.fetch import EpochEndOffset

log = logging.getLogger(__name__)


Work: TypeAlias = Callable[[], ProducerTable]
Lend: TypeAlias = Callable[[Partition, Work, Callable[[Future[ProducerTable]], float]], None]
"""Lends a log to a thread: see `Assignment.lend`."""
RemoteProducers: TypeAlias = Callable[[Partition, int], bytes]
"""The snapshot of the producers of a tiered partition at an offset. Raises KafkaError if it has to be asked
for again."""


class Truncation:
    __slots__ = ("_background", "_data", "_lend_log", "_now_ms", "_remote_producers", "_settings")

    def __init__(
        self,
        data: DataDir,
        lend: Lend,
        settings: LiveConfig,
        background: Background,
        now_ms: Callable[[], int],
        remote_producers: RemoteProducers,
    ) -> None:
        self._data = data
        self._remote_producers = remote_producers
        self._now_ms = now_ms
        self._lend_log = lend
        self._settings = settings
        self._background = background

    def truncate(self, partition: Partition, leader: EpochEndOffset) -> None:
        """Go back to where the leader's log and this one are the same for certain."""
        log_ = partition.log
        known, end_offset = partition.epochs.end_offset_for(leader.epoch, log_.end_offset)
        if known < 0:
            end_offset = partition.high_watermark  # the epochs say nothing; what is committed is the same
        elif known == leader.epoch:
            end_offset = min(end_offset, leader.end_offset)
        end_offset = max(min(end_offset, log_.end_offset), log_.start_offset)
        lost = partition.high_watermark - end_offset
        report = log.warning if lost > 0 else log.info
        report(
            "cutting off what the leader does not have",
            extra={
                "partition": str(partition),
                "from": end_offset,
                "to": log_.end_offset,
                "committed": max(lost, 0),
            },
        )
        copied_ms = self._now_ms() if _is_first_since_restore(partition) else None
        self._lend(partition, partial(_truncate, self._data, partition, end_offset, copied_ms=copied_ms))

    def start_anew(self, partition: Partition, offset: int) -> None:
        """Nothing of this log continues in the leader's: it begins where that one does. Raises KafkaError."""
        producers = self._producers_before(partition, offset)
        log.info("beginning anew", extra={"partition": str(partition), "offset": offset})
        self._lend(partition, partial(_start_anew, self._data, partition, offset, producers))

    def _producers_before(self, partition: Partition, offset: int) -> bytes:
        return b"" if partition.remote is None or not offset else self._remote_producers(partition, offset)

    def begin_with(
        self, partition: Partition, batch: bytes, header: BatchHeader, then: Callable[[], None]
    ) -> None:
        """Let an empty log begin with this batch: the leader's log begins in the middle of it.

        It cannot be fetched by its offset, which the leader no longer has; so it is kept from the answer.
        `then` is called on the loop when the batch is in the log. Raises KafkaError.
        """
        offset, first = header.base_offset, (batch, header)
        producers = self._producers_before(partition, offset)
        work = partial(_start_anew, self._data, partition, offset, producers, first)
        self._lend(partition, work, then=then)

    def read_again(self, partition: Partition) -> None:
        """The log could not be written: what was known of the batches that are not in it is forgotten."""
        self._lend(partition, partial(_reload, partition), rest_s=self._backoff_s())

    def _backoff_s(self) -> float:
        return self._settings.current.replication.fetch_backoff_ms / 1000

    def _lend(
        self,
        partition: Partition,
        work: Work,
        *,
        then: Callable[[], None] = lambda: None,
        rest_s: float = 0.0,
    ) -> None:
        backoff_s = self._backoff_s()

        def take_back(outcome: Future[ProducerTable]) -> float:
            error = outcome.exception()
            if error is None:
                partition.producers = outcome.result()
                partition.truncated()
                then()
                return rest_s
            if not isinstance(error, Exception):
                raise error
            doing = "cutting off what the leader does not have"
            self._background.failed(doing, error, partition=str(partition))
            if partition.log.offline_for_good:
                partition.truncated()
            return backoff_s

        self._lend_log(partition, work, take_back)


def _is_first_since_restore(partition: Partition) -> bool:
    """True if the log has nothing of a leader that was elected after the store was restored.

    What it holds beyond such a leader was not reported before the election, because an administrator did not
    want to wait for this broker.
    """
    return is_before_election(partition.last_epoch, partition.leader_epoch)


# -- in the thread ---------------------------------------------------------------------------------------


def _truncate(data: DataDir, partition: Partition, offset: int, *, copied_ms: int | None) -> ProducerTable:
    """`copied_ms`: the time, if a copy is kept of what is cut off."""
    log_ = partition.log
    end_offset = log_.files.end_below(offset)
    with suppress(StorageError):  # what cannot be read takes the log offline when it is cut
        keep_producers_before(log_, end_offset, partition.producers)
    with (
        nullcontext() if copied_ms is None else _copied_aside(data, partition, end_offset, copied_ms),
        data.checkpoints.lowered(partition.topic, partition.index, end_offset),
    ):
        log_.files.truncate_to(end_offset)
    return _reload(partition)


@contextmanager
def _copied_aside(data: DataDir, partition: Partition, end_offset: int, at_ms: int) -> Iterator[None]:
    """Keep a copy of what is about to be cut off, unless it is not: that is tried again, with a new copy."""
    path = data.copy_aside(
        partition.topic,
        partition.index,
        f"a copy of what was cut off from {end_offset} on, after a restore of the store",
        at_ms,
        partition.log,
        offset=end_offset,
        high_watermark=partition.high_watermark,
    )
    log.error("what is cut off after the restore of the store is kept", extra={"directory": path})
    try:
        yield
    except (OSError, StorageError):
        if not partition.log.offline_for_good:
            data.aside.drop_copy(path)  # nothing was cut off
        raise


def _start_anew(
    data: DataDir,
    partition: Partition,
    offset: int,
    producers: bytes,
    first: tuple[bytes, BatchHeader] | None = None,
) -> ProducerTable:
    log_ = partition.log
    if 0 < offset < log_.end_offset:
        # None of its snapshots may tell of the producers before the offset.
        _start_anew(data, partition, 0, b"")
        with _offline_if_it_fails(log_, "it did not begin anew"):
            return _start_anew(data, partition, offset, producers, first)
    try:
        if producers:  # so that a crash leaves no log there that knows none
            log_.files.write_snapshot_at(offset, producers)
        # A crash must not leave a log that begins where it did before.
        with data.checkpoints.lowered(partition.topic, partition.index, 0, start=not offset):
            partition.epochs.forget_all()
            with _offline_if_it_fails(log_, "it did not begin anew"):  # it must not go on without its epochs
                log_.files.truncate_fully_and_start_at(offset)
    except BaseException:
        log_.files.forget_snapshots_ahead()
        raise
    # Without it a power failure would seem to have taken the beginning of the log, and all of it would go.
    with _offline_if_it_fails(log_, "its start cannot be recorded"):
        data.checkpoints.note_start(partition.topic, partition.index, offset)
    if first is not None:
        batch, header = first
        with suppress(StorageError):  # it comes again; that the log cannot be written is known to the log
            log_.append(memoryview(batch), header)
            log_.write_pending()
            partition.epochs.assign(header.partition_leader_epoch, header.base_offset)
    return _reload(partition)


def _reload(partition: Partition) -> ProducerTable:
    log_ = partition.log
    # Their file follows when the log is synced, and is not believed beyond that.
    partition.epochs.forget_from(log_.end_offset)
    with _offline_if_it_fails(log_, "its producers cannot be read"):
        return reload_producers(log_)


@contextmanager
def _offline_if_it_fails(log_: Log, why: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        log_.take_offline(f"{log_.directory}: {why}: {error}; start the broker again")
        raise
