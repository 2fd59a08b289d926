"""What the compaction tests share: keyed batches, a cleaning from end to end, and what a reader then sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.core.partition.compaction.batch_filter import LastBatches
from forebay.core.partition.compaction.plan import CompactionPlan
from forebay.storage.disk import Disk
from forebay.storage.log.compaction.cleaner import Cleaner, CleaningTask
from forebay.storage.log.log import Log
from forebay.storage.log.segment.segment import Segment
from forebay.wire.batch import EndTxnMarker, build_batch, build_marker, read_header, records, split
from forebay.wire.records import Record
from support.machines.storing import read_all

KeyValue = tuple[bytes | None, bytes | None]


def add_records(
    log: Log,
    pairs: Sequence[KeyValue],
    *,
    timestamp: int = 1000,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> int:
    """Queue one batch; its base offset. `producer`: id, epoch, base sequence."""
    base = log.end_offset
    made = build_batch(
        [Record(base + n, timestamp + n, key, value) for n, (key, value) in enumerate(pairs)],
        codec=codec,
        base_offset=base,
        partition_leader_epoch=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        attributes=attributes,
    )
    log.append(memoryview(made), read_header(made))
    return base


def add_marker(log: Log, producer_id: int, *, commit: bool, timestamp: int = 1000) -> int:
    base = log.end_offset
    made = build_marker(EndTxnMarker(producer_id, 0, commit, 0), timestamp=timestamp, base_offset=base)
    log.append(memoryview(made), read_header(made))
    return base


def task_for(
    log: Log,
    *,
    first_dirty: int = 0,
    now_ms: int = 0,
    delete_retention_ms: int = 1000,
    forgets_deletions: bool = True,
    buffer_bytes: int = 1 << 20,
    end_offset: int = 2**62,
    last_batches: LastBatches | None = None,
) -> CleaningTask | None:
    segments = log.sealed_segments(end_offset)
    if not segments:
        return None
    first_dirty = max(first_dirty, log.start_offset)
    return CleaningTask(
        plan=CompactionPlan(first_dirty, segments[-1].next_base, 1.0, False),
        segments=segments,
        log_start_offset=log.start_offset,
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
        forgets_deletions=forgets_deletions,
        last_batches=last_batches or LastBatches(),
        config=log.config,
        buffer_bytes=buffer_bytes,
        pass_over=log.unreadable.pass_over,
    )


def swap_in(log: Log, group: Sequence[Segment], new: Segment, at: Callable[[str], None]) -> None:
    """The steps of a swap; `at` is called before each, and may raise."""
    at("begin")
    assert log.begin_swap(group, new, generation=log.generation)
    at("adopt")
    log.files.sync_names()
    assert log.adopt_swap()
    at("end")
    log.files.sync_names()
    log.end_swap()


def compact(
    log: Log, disk: Disk, task: CleaningTask | None, at: Callable[[str], None] = lambda _: None
) -> int:
    """Clean a log as the broker does, but in one thread; the offset up to which it is clean."""
    if task is None:
        return log.start_offset
    log.write_pending()
    log.files.datasync()
    cleaner = Cleaner(disk, log.directory, task)
    aborted = log.aborted_transactions(task.segments[0].base_offset, task.plan.end_offset)
    for group in cleaner.read_keys(aborted):
        at("rewrite")
        rewritten = cleaner.rewrite(group)
        if rewritten is not None:
            swap_in(log, *rewritten, at)
    return cleaner.end_offset


def messages(log: Log, start: int | None = None) -> list[Record]:
    """Every message from an offset on, as a consumer gets them. Control batches are left out."""
    first = log.start_offset if start is None else start
    data = read_all(log, 700, start=first)
    return [
        record
        for position, header in split(data)
        if not header.is_control and header.record_count
        for record in records(data[position : position + header.size])
        if record.offset >= first
    ]


def table(log: Log) -> dict[bytes, bytes]:
    """The latest value of each key."""
    found: dict[bytes, bytes | None] = {}
    for record in messages(log):
        assert record.key is not None
        found[record.key] = record.value
    return {key: value for key, value in found.items() if value is not None}
