"""The index of aborted transactions: its layout, what it finds, and what is left of it after failures."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import StorageError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.txn_index import AbortedTxn, TxnIndex
from forebay.storage.real_disk import RealDisk
from support.faults.faulty_disk import FaultyDisk
from support.machines.manual_clock import ManualClock
from support.machines.storing import add, fill

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)
ENTRY_BYTES = 34


def index_at(path: Path, base_offset: int = 0) -> TxnIndex:
    return TxnIndex(RealDisk().open(str(path / "0.txnindex")), base_offset)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """The same directory, emptied: each example of a property begins with it."""
    path = tmp_path_factory.mktemp("index")

    def empty() -> Path:
        for file in path.iterdir():
            file.unlink()
        return path

    return empty


def aborted(last_offset: int, *, first: int | None = None, stable: int | None = None) -> AbortedTxn:
    return AbortedTxn(
        producer_id=7,
        first_offset=last_offset - 1 if first is None else first,
        last_offset=last_offset,
        last_stable_offset=last_offset + 1 if stable is None else stable,
    )


def test_the_layout_is_kafkas(tmp_path: Path) -> None:
    index_at(tmp_path).append([AbortedTxn(5, 10, 20, 21), AbortedTxn(6, 2, 30, 31)])
    data = (tmp_path / "0.txnindex").read_bytes()
    assert data == struct.pack(">hqqqqhqqqq", 0, 5, 10, 20, 21, 0, 6, 2, 30, 31)


def test_an_index_makes_no_file_before_it_has_entries_or_is_told_to(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.keep_below(0)
    index.truncate(0)
    index.datasync()
    assert (len(index), index.last(), index.overlapping(0, 100)) == (0, None, ([], False))
    assert list(tmp_path.iterdir()) == []


@st.composite
def interleaved(draw: st.DrawFn) -> list[AbortedTxn]:
    """Aborted transactions as a log brings them: each with the last stable offset of its time."""
    chance = draw(st.randoms(use_true_random=False))
    opened: dict[int, int] = {}
    entries: list[AbortedTxn] = []
    for offset in range(draw(st.integers(0, 60))):
        producer = chance.randrange(6)
        if producer not in opened:
            opened[producer] = offset
        elif chance.random() < 0.5:
            first = opened.pop(producer)
            stable = min(opened.values(), default=offset + 1)
            if chance.random() < 0.7:
                entries.append(AbortedTxn(producer, first, offset, stable))
    return entries


@given(interleaved(), st.integers(0, 60), st.integers(0, 60))
def test_it_finds_what_overlaps_and_knows_when_to_stop(
    again: Callable[[], Path], entries: list[AbortedTxn], offset: int, length: int
) -> None:
    index = index_at(again())
    index.append(entries)
    upper = offset + length
    found, complete = index.overlapping(offset, upper)
    assert found == [e for e in entries if e.last_offset >= offset and e.first_offset < upper]
    if complete:
        assert any(e.last_stable_offset >= upper for e in entries)


def test_more_entries_than_one_read_takes(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    entries = [aborted(offset) for offset in range(1, 1001)]
    index.append(entries)
    assert list(index.entries()) == entries
    assert index.overlapping(700, 2000) == (entries[699:], False)
    index.truncate(701)
    assert len(index) == 700
    assert index.last() == entries[699]
    index.truncate(5000)
    assert len(index) == 700


@given(garbage=st.binary(min_size=1, max_size=100), kept=st.integers(0, 3))
def test_what_a_crash_left_behind_the_synced_entries_is_dropped(
    again: Callable[[], Path], garbage: bytes, kept: int
) -> None:
    path = again()
    entries = [aborted(offset) for offset in (110, 120, 130)]
    index_at(path, 100).append(entries)
    with (path / "0.txnindex").open("ab") as file:
        file.write(garbage)
    index = index_at(path, 100)
    index.keep_below(101 + 10 * kept)
    assert list(index.entries()) == entries[:kept]
    assert (path / "0.txnindex").stat().st_size == kept * ENTRY_BYTES


@pytest.mark.parametrize("kept", [0, 2])
def test_zeros_that_a_loss_of_power_left_are_no_transaction(tmp_path: Path, kept: int) -> None:
    """In the first segment of a log they would be one of offset 0."""
    entries = [aborted(offset) for offset in (3, 6)][:kept]
    index_at(tmp_path).append(entries)
    with (tmp_path / "0.txnindex").open("ab") as file:
        file.write(bytes(2 * ENTRY_BYTES))
    index = index_at(tmp_path)
    index.keep_below(100)
    assert list(index.entries()) == entries
    assert (tmp_path / "0.txnindex").stat().st_size == kept * ENTRY_BYTES


@pytest.mark.parametrize("damage", [b"\0\1", b"\0\0" + bytes(32)])
def test_damage_is_an_error_and_never_an_omission(tmp_path: Path, damage: bytes) -> None:
    index = index_at(tmp_path, 100)
    index.append([aborted(offset) for offset in (110, 120, 130)])
    data = bytearray((tmp_path / "0.txnindex").read_bytes())
    data[ENTRY_BYTES : ENTRY_BYTES + len(damage)] = damage
    (tmp_path / "0.txnindex").write_bytes(data)
    with pytest.raises(StorageError):
        index_at(tmp_path, 100).overlapping(100, 200)


# -- in a log ----------------------------------------------------------------------------------------------


def abort_at_end(log: Log, first_offset: int) -> AbortedTxn:
    """Append a batch that stands for a marker, and the transaction it ended."""
    add(log)
    entry = AbortedTxn(7, first_offset, log.end_offset - 1, log.end_offset)
    log.append_aborted(entry)
    return entry


def indexes(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if "txnindex" in file.name)


def test_transactions_are_found_across_segments(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path), CONFIG)
    fill(log, 3)
    entries = []
    for _ in range(4):
        entries.append(abort_at_end(log, first_offset=2))
        fill(log, 10)
    assert len(indexes(tmp_path)) > 1
    assert log.aborted_transactions(0, log.end_offset) == entries
    assert log.aborted_transactions(2, 3) == entries[:1]
    assert log.aborted_transactions(0, 2) == []
    assert log.aborted_transactions(entries[1].last_offset, log.end_offset) == entries[1:]
    log.files.close()
    again = open_log(RealDisk(), str(tmp_path), CONFIG, clean=True)
    assert again.aborted_transactions(0, log.end_offset) == entries


def test_deleted_and_truncated_segments_take_their_entries_along(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(RealDisk(), str(tmp_path), CONFIG, clock=clock)
    add(log)
    first = abort_at_end(log, 0)
    fill(log, 20)
    second = abort_at_end(log, 15)
    fill(log, 1)
    third = abort_at_end(log, 16)
    log.write_pending()
    assert log.aborted_transactions(0, 100) == [first, second, third]
    log.files.truncate_to(third.last_offset)
    assert log.aborted_transactions(0, 100) == [first, second]
    log.delete_front(1)
    assert log.aborted_transactions(0, 100) == [second]
    clock.advance(CONFIG.file_delete_delay_ms)
    for path in log.reap():
        Path(path).unlink(missing_ok=True)
    assert indexes(tmp_path) == [f"{segment.base_offset:020d}.txnindex" for segment in log.segments()]
    log.files.truncate_fully_and_start_at(50)
    assert log.aborted_transactions(0, 100) == []
    assert indexes(tmp_path) == [f"{50:020d}.txnindex"]


@pytest.mark.parametrize("broken", [".log", ".txnindex"])
def test_an_entry_whose_marker_was_not_written_is_taken_back(tmp_path: Path, broken: str) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    log = open_log(disk, str(tmp_path), LogConfig(), clock=clock)
    fill(log, 3)
    kept = abort_at_end(log, 0)
    log.write_pending()
    disk.break_path("append", broken)
    abort_at_end(log, 1)
    with pytest.raises(StorageError):
        log.write_pending()
    assert log.end_offset == 4
    assert log.aborted_transactions(0, 100) == [kept]
    disk.repair()
    clock.advance(2000)
    fill(log, 2)
    after = abort_at_end(log, 5)
    log.write_pending()
    assert log.aborted_transactions(0, 100) == [kept, after]
    log.files.close()
    assert open_log(RealDisk(), str(tmp_path), clean=True).aborted_transactions(0, 100) == [kept, after]


def test_an_index_that_cannot_be_repaired_takes_the_log_offline_for_good(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    log = open_log(disk, str(tmp_path), LogConfig(), clock=clock)
    disk.break_path("append", ".log")
    disk.break_path("truncate", ".txnindex")
    abort_at_end(log, 0)
    with pytest.raises(StorageError):
        log.write_pending()
    disk.repair()
    clock.advance(2000)
    with pytest.raises(StorageError, match="cannot repair"):
        add(log)


@pytest.mark.parametrize("seed", range(12))
def test_synced_entries_survive_a_loss_of_power(tmp_path: Path, seed: int) -> None:
    disk, chance = FaultyDisk(), random.Random(seed)
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 8)
    synced = [abort_at_end(log, 3)]
    fill(log, 12)
    synced.append(abort_at_end(log, 15))
    log.write_pending()
    recovery_point = log.files.datasync()
    fill(log, 3)
    abort_at_end(log, 22)
    log.write_pending()
    disk.crash(lambda most: chance.randint(0, most))
    recovered = open_log(FaultyDisk(), str(tmp_path), CONFIG, recovery_point=recovery_point)
    # What was not synced is left to be read again from the log, whether it is there or not.
    assert recovered.aborted_transactions(0, 100) == synced
