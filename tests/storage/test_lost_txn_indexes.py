"""Index files of aborted transactions that are missing when a log is opened: which of them were lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.broker.partition.producer_replay import load_producers
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.recovery.txn_index_recovery import TXN_INDEXED
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import TRANSACTIONAL, EndTxnMarker, build_batch, build_marker, read_header, split
from forebay.wire.records import Record
from support.faults.faulty_disk import FaultyDisk
from support.machines.compacting import compact, task_for

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)
PRODUCERS = 3
END = 46


def put(log: Log, producer_id: int, offset: int) -> None:
    record = Record(offset, 1000 + offset, b"k%d" % offset, b"v" * 20)
    batch = build_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        attributes=TRANSACTIONAL,
    )
    log.append(memoryview(batch), read_header(batch))


def fill(log: Log) -> list[AbortedTxn]:
    """Transactions that overlap each other and the borders of segments; every second is aborted."""
    aborted: list[AbortedTxn] = []
    begun: dict[int, int] = {}
    for number in range(24):
        producer = number % PRODUCERS
        begun[producer] = log.end_offset
        put(log, producer, log.end_offset)
        ending = (number + 1) % PRODUCERS
        if ending in begun:
            first, offset = begun.pop(ending), log.end_offset
            marker = EndTxnMarker(ending, 0, commit=number % 2 == 0, coordinator_epoch=0)
            batch = build_marker(marker, timestamp=2000, base_offset=offset)
            log.append(memoryview(batch), read_header(batch))
            if not marker.commit:
                stable = min(begun.values(), default=offset + 1)
                aborted.append(AbortedTxn(ending, first, offset, stable))
                log.append_aborted(aborted[-1])
        log.write_pending()
    assert len(log.segments()) > 4 and log.end_offset == END and len(aborted) > 5
    return aborted


def open_at(path: Path, disk: FaultyDisk | None = None, **options: object) -> Log:
    return open_log(disk or FaultyDisk(), str(path), CONFIG, **options)  # type: ignore[arg-type]


def listed(log: Log) -> list[AbortedTxn]:
    return log.aborted_transactions(0, log.end_offset)


def indexes(path: Path) -> list[Path]:
    return sorted(path.glob("*.txnindex"))


@pytest.fixture
def aborted(tmp_path: Path) -> list[AbortedTxn]:
    log = open_at(tmp_path)
    found = fill(log)
    assert listed(log) == found
    log.files.close()
    assert len(indexes(tmp_path)) == len(log.segments()), "each segment has one, though it may be empty"
    return found


@pytest.mark.parametrize("which", [slice(None), slice(0, 1), slice(-1, None), slice(1, None, 2)])
@pytest.mark.parametrize("recovery_point", [None, 0, 20, 46])
def test_what_was_lost_is_made_anew(
    aborted: list[AbortedTxn], tmp_path: Path, which: slice, recovery_point: int | None
) -> None:
    for path in indexes(tmp_path)[which]:
        path.unlink()
    point = END if recovery_point is None else recovery_point
    log = open_at(tmp_path, clean=recovery_point is None, power_lost=False, recovery_point=point)
    assert log.end_offset == END
    load_producers(log, LeaderEpochs(FaultyDisk(), str(tmp_path)))
    assert listed(log) == aborted
    log.files.close()
    log = open_at(tmp_path, clean=True)
    assert not log.lost_txn_indexes and listed(log) == aborted


def test_a_directory_of_an_earlier_version_is_opened_unread(
    aborted: list[AbortedTxn], tmp_path: Path
) -> None:
    """There, a segment without aborted transactions has no index."""
    (tmp_path / TXN_INDEXED).unlink()
    for path in indexes(tmp_path):
        if not path.stat().st_size:
            path.unlink()
    disk = FaultyDisk()
    for path in sorted(tmp_path.glob("*.log"))[:-1]:
        disk.break_path("pread", path.name)
    log = open_at(tmp_path, disk, clean=True)
    assert not log.lost_txn_indexes and listed(log) == aborted
    logs = list(tmp_path.glob("*.log"))
    assert len(indexes(tmp_path)) == len(logs), "from now on a missing one was lost"
    disk.repair()
    log.files.close()
    indexes(tmp_path)[0].unlink()
    assert len(open_at(tmp_path, clean=True).lost_txn_indexes) == 1


def test_cut_and_compacted_segments_have_theirs(aborted: list[AbortedTxn], tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_at(tmp_path, disk, clean=True)
    log.files.truncate_to(aborted[-2].last_offset)
    compact(log, disk, task_for(log))
    log.files.close()
    log = open_at(tmp_path, clean=True)
    assert not log.lost_txn_indexes
    log.files.truncate_fully_and_start_at(500)
    log.files.close()
    assert not open_at(tmp_path, clean=True).lost_txn_indexes


@pytest.mark.parametrize("byte", [8 + 3, 16, 22, 57 + 3])
def test_a_damaged_batch_hides_no_transaction_but_its_own(
    aborted: list[AbortedTxn], tmp_path: Path, byte: int
) -> None:
    """Its length, magic, attributes or count. The log is opened all the same."""
    log_file = sorted(tmp_path.glob("*.log"))[0]
    data = bytearray(log_file.read_bytes())
    hops = split(memoryview(bytes(data)))
    start, damaged = next((at, each) for at, each in hops if each.base_offset == aborted[0].first_offset)
    data[start + byte] ^= 0x21
    log_file.write_bytes(data)
    for path in indexes(tmp_path):
        path.unlink()
    log = open_at(tmp_path, clean=True)
    producers = load_producers(log, LeaderEpochs(FaultyDisk(), str(tmp_path)))
    assert listed(log) == [each for each in aborted if each.first_offset != damaged.base_offset]
    assert len(producers) == PRODUCERS
    assert len(log.unreadable) == 1
