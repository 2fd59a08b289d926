"""The producers of a partition across restarts: a snapshot, and a replay of the batches after it.

The replay also restores what a crash may have lost: leader epochs that were not yet in their file, and
entries of the index of aborted transactions. Entries below the recovery point are on the disk. So the
snapshot must not be newer than the recovery point: the replay must include every marker after that point. Nor
may it be older than the first batch of the log: the batches between the two are deleted. An index of aborted
transactions that was lost altogether is made anew first.

After a truncation while the log is in use those files are intact, so the newest snapshot is enough.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.core.partition.producers.repeat_checksums import stored_crc
from forebay.errors import ProtocolError, StorageError
from forebay.storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from forebay.storage.log.log import Log
from forebay.storage.log.segment.batch_parts import WholeBatch
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import BatchHeader, read_marker
from forebay.wire.state.delay_notes import is_note

log = logging.getLogger(__name__)


def load_producers(
    log_: Log, epochs: LeaderEpochs, on_note: Callable[[], None] = lambda: None
) -> ProducerTable:
    """The producers' state as of the end of the log. Blocks.

    `on_note` is called for delay notes that are met on the way.
    """
    if log_.lost_txn_indexes:
        log_.files.replace_lost_aborted(_aborted_transactions(log_, on_note))
    # An orderly stop has synced the one at the end.
    taken_at, table = newest_at, newest = _load_newest(
        log_, synced_at=log_.end_offset if log_.was_closed else -1
    )
    if newest_at > max(log_.recovery_point, log_.begin_offset):
        taken_at, table = _newest_snapshot(log_, log_.recovery_point)
    if taken_at == log_.end_offset and log_.was_closed:
        log_.note_snapshot()  # one that was taken when a segment was full may not be on the disk
    # The batches below the first are deleted: what the file says of them is all that is known.
    epochs.forget_from(max(log_.recovery_point, log_.begin_offset))
    if log_.report.cut_epoch is not None:
        epochs.assign(*log_.report.cut_epoch)
        with suppress(OSError):  # it is written with the next sync
            epochs.datasync()
    # Without leader epochs truncation cannot find where two logs differ. So they are read from the first
    # batch on, and the producers from the snapshot on: it knows of batches that are deleted. What a crash may
    # have lost begins at the recovery point, so that much is read, too, if a later snapshot knows of more.
    offset = log_.begin_offset if epochs.latest == UNDEFINED_EPOCH else taken_at
    if offset < log_.end_offset:
        # Also batches before the log start offset: a marker there has ended its transaction.
        for batch, header in _whole_batches(log_, offset):
            epochs.assign(header.partition_leader_epoch, header.base_offset)
            if is_note(header):
                on_note()
            if header.last_offset >= taken_at:
                _replay(log_, table, batch, header)
            if newest_at > taken_at and header.last_offset >= newest_at:
                replay_batch(newest, batch, header)
    return newest if newest_at > taken_at else table


def _aborted_transactions(log_: Log, on_note: Callable[[], None]) -> Iterator[AbortedTxn]:
    """All that the log tells, in the order of their markers, up to where an index was lost.

    Read from the beginning: a transaction may have begun in any segment before the one of its marker.
    """
    table, end_offset = ProducerTable(), log_.lost_txn_indexes[-1].next_base
    for batch, header in _whole_batches(log_, log_.begin_offset):
        if header.base_offset >= end_offset:
            return
        if is_note(header):
            on_note()
        elif header.is_transactional:
            aborted = replay_batch(table, batch, header)
            if aborted is not None:
                yield aborted


def reload_producers(log_: Log) -> ProducerTable:
    """Load the producers of a log that was cut, or could not be written, while it was in use. Blocks."""
    offset, table = _load_newest(log_, synced_at=-1)
    if offset < log_.end_offset:
        for batch, header in _whole_batches(log_, offset):
            replay_batch(table, batch, header)
    return table


def keep_producers_before(log_: Log, offset: int, known: ProducerTable) -> None:
    """Before a log is cut at an offset: have a synced snapshot that the cut leaves. Blocks.

    The log cannot tell of producers whose batches are deleted. `known`: the producers as of its end.
    """
    begin_offset = log_.begin_offset
    if begin_offset and not log_.has_synced_snapshot(begin_offset, offset):
        taken_at, table = _snapshot(log_, offset) or (offset, _as_of_cut(log_, offset, known))
        log_.files.write_snapshot_at(taken_at, table.to_bytes())


def _as_of_cut(log_: Log, offset: int, known: ProducerTable) -> ProducerTable:
    """The producers as of an offset, where all snapshots tell of batches behind it."""
    table = _as_of(log_.begin_offset, known)
    for batch, header in _whole_batches(log_, log_.begin_offset):
        if header.base_offset >= offset:
            break
        replay_batch(table, batch, header)
    return table


def _as_of(offset: int, known: ProducerTable) -> ProducerTable:
    """The producers of which batches before an offset are remembered, as they were there."""
    earlier = ProducerTable()
    for state in known:
        before = state.copy()
        before.truncate(offset)
        if before.batches:
            earlier.assume(before)
    return ProducerTable.from_bytes(earlier.to_bytes())  # with their open transactions


def save_producers(log_: Log, producers: ProducerTable, *, sync: bool = False) -> bool:
    """False if they could not be saved."""
    try:
        write = log_.files.write_snapshot if sync else log_.write_snapshot
        write(producers.to_bytes())
    except OSError as error:
        # The state can be had from the log; before its batches are deleted, this is tried again.
        log.warning("no producer snapshot", extra={"log": log_.directory, "reason": str(error)})
        return False
    return True


def _load_newest(log_: Log, synced_at: int) -> tuple[int, ProducerTable]:
    """By the newest snapshot that is whole; by none, from the first batch on."""
    found = _snapshot(log_, log_.end_offset)
    if found is None:
        return log_.begin_offset, ProducerTable()
    log_.files.snapshot_read(found[0], synced=found[0] == synced_at)
    return found


def _newest_snapshot(log_: Log, offset_max: int) -> tuple[int, ProducerTable]:
    return _snapshot(log_, offset_max) or (log_.begin_offset, ProducerTable())


def _snapshot(log_: Log, offset_max: int) -> tuple[int, ProducerTable] | None:
    begin_offset = log_.begin_offset
    for taken_at, data in log_.files.snapshots(max(offset_max, begin_offset)):
        if taken_at < begin_offset:
            break
        try:
            return taken_at, ProducerTable.from_bytes(data)
        except ProtocolError as error:
            log_.files.snapshot_damaged(taken_at)
            log.warning("a producer snapshot is damaged", extra={"log": log_.directory, "reason": str(error)})
    return None


def _whole_batches(log_: Log, offset: int) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Those from an offset on that are not damaged.

    A damaged one does not keep the partition from being opened: reading it is an error for consumers, and
    what its producer sent is known from the batches around it.
    """
    for part in log_.files.parts(offset):
        if isinstance(part, WholeBatch):
            yield part.data, part.header
        elif part.unreadable is not None:
            raise StorageError(f"cannot read {log_.directory}: {part.unreadable}") from part.unreadable
        else:
            log_.unreadable.pass_over(part.first_offset, part.why)


def _replay(log_: Log, table: ProducerTable, batch: memoryview, header: BatchHeader) -> None:
    aborted = replay_batch(table, batch, header)
    if aborted is not None:
        log_.files.restore_aborted(aborted)


def replay_batch(table: ProducerTable, batch: memoryview, header: BatchHeader) -> AbortedTxn | None:
    """Take note of a batch that is stored and committed; the transaction that it aborted, if it did."""
    aborted = accept_batch(table, batch, header)
    table.written()
    if header.is_control:
        table.transactions.settle(header.next_offset)
    return aborted


def accept_batch(table: ProducerTable, batch: memoryview, header: BatchHeader) -> AbortedTxn | None:
    """Take note of a batch that is in the log; the transaction that it aborted, if it is such a marker."""
    if not header.is_control:
        # It is compared in transactions only.
        table.accept(header._replace(crc=stored_crc(header)) if header.is_transactional else header)
        return None
    if not header.is_transactional or not header.record_count:
        return None  # no marker; compaction leaves empty ones
    marker = read_marker(batch)
    ended = None if marker is None else table.accept_marker(header, marker)
    if ended is None or ended.commit:
        return None
    return AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
