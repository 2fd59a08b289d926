"""Searching a log by time: how much of it is read, what is remembered, and what is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.timestamp_search import Search
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import EndTxnMarker, build_batch, build_marker, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.machines.storing import add, batch, carry_out, fill, find_timestamp, largest_timestamp

BATCHES = 200
SMALL = LogConfig(index_interval_bytes=200)
SIZE = len(batch(0))
MARKER = EndTxnMarker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """One segment of batches of one record each; times rise with the offsets from 1000 on."""
    made = open_log(RealDisk(), str(tmp_path / "t-0"), SMALL)
    fill(made, BATCHES)
    return made


def damage(log: Log, offset: int, at: int) -> None:
    """Change a byte of the batch at an offset, as a bad disk does."""
    path = Path(log.directory) / "00000000000000000000.log"
    with path.open("r+b") as file:
        file.seek(offset * SIZE + at)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0xFF]))


def add_older(log: Log, count: int) -> None:
    for _ in range(count):
        add(log, timestamp=5)
    log.write_pending()


MAGIC_AT, TIME_AT, RECORDS_AT = 16, 30, 70


def walked_bytes(search: Search) -> int:
    spent: list[int] = []
    carry_out(search, spent.append)
    return sum(spent)


def test_what_lies_before_the_log_start_is_not_read(log: Log) -> None:
    """The largest time of the segment is one that has been deleted."""
    add(log, timestamp=5)
    log.write_pending()
    log.advance_start(BATCHES - 10)
    assert 0 < walked_bytes(log.search_largest_timestamp()) < 40 * SIZE
    assert largest_timestamp(log) == (1000 + BATCHES - 1, BATCHES - 1)


def test_what_was_found_out_is_not_read_again(log: Log) -> None:
    add_older(log, 100)
    log.advance_start(BATCHES)
    assert walked_bytes(log.search_largest_timestamp()) >= 100 * SIZE
    assert walked_bytes(log.search_largest_timestamp()) == 0
    assert largest_timestamp(log) == (5, BATCHES)
    # Nor is it for a question about a time that nothing reaches.
    for wanted in (1100, 1000, 6):
        assert walked_bytes(log.search_timestamp(wanted)) == 0
        assert find_timestamp(log, wanted) is None
    assert find_timestamp(log, 5) == (5, BATCHES)
    # What is appended is read, and only that.
    add(log, timestamp=7)
    log.write_pending()
    assert walked_bytes(log.search_largest_timestamp()) <= 4 * SIZE
    assert largest_timestamp(log) == (7, BATCHES + 100)
    assert find_timestamp(log, 6) == (7, BATCHES + 100)
    # And when the largest is deleted, all that is left is looked at again.
    log.advance_start(BATCHES + 101)
    assert largest_timestamp(log) is None


def test_a_time_that_was_not_found_is_remembered_as_such(log: Log) -> None:
    add_older(log, 100)
    log.advance_start(BATCHES)
    assert walked_bytes(log.search_timestamp(1100)) >= 90 * SIZE
    assert walked_bytes(log.search_timestamp(1100)) == walked_bytes(log.search_timestamp(1150)) == 0
    assert walked_bytes(log.search_timestamp(50)) >= 90 * SIZE
    assert walked_bytes(log.search_timestamp(50)) == 0
    assert find_timestamp(log, 3) == (5, BATCHES)


@pytest.mark.parametrize("at", [MAGIC_AT, TIME_AT, RECORDS_AT])
@pytest.mark.parametrize("where", [0, 1, 57, BATCHES - 1])
def test_damage_is_passed_over(log: Log, where: int, at: int) -> None:
    damage(log, where, at)
    for wanted in range(BATCHES):
        found = find_timestamp(log, 1000 + wanted)
        if found is None or found[1] != wanted:
            assert wanted == where, "of all batches only the damaged one is not found"
            assert found is None or found[1] == where + 1
    expected = BATCHES - 1 if where < BATCHES - 1 else BATCHES - 2
    assert largest_timestamp(log) == (1000 + expected, expected)
    assert len(log.unreadable) == 1


def test_damage_in_a_segment_does_not_hide_the_next(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=10 * SIZE, index_interval_bytes=1 << 20)
    log = open_log(RealDisk(), str(tmp_path / "t-0"), config)
    fill(log, 30)
    damage(log, 3, MAGIC_AT)
    assert [find_timestamp(log, 1000 + n) for n in (2, 3, 9, 10)] == [
        (1002, 2),
        (1004, 4),
        (1009, 9),
        (1010, 10),
    ]
    assert largest_timestamp(log) == (1029, 29)


def test_a_walk_can_be_ended(log: Log) -> None:
    class Enough(Exception):
        pass

    def stop(_: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        carry_out(log.search_timestamp(1100), stop)
    assert find_timestamp(log, 1100) == (1100, 100)


def test_a_search_for_messages_passes_over_markers_and_begins_where_it_is_told(log: Log) -> None:
    made = memoryview(build_marker(MARKER, timestamp=5000, base_offset=BATCHES))
    log.append(made, read_header(made))
    log.write_pending()
    assert carry_out(log.search_message(2000, 0)) is None
    assert find_timestamp(log, 2000) == (5000, BATCHES), "the search before has left nothing behind"
    add(log, timestamp=1500)
    log.write_pending()
    assert carry_out(log.search_message(1300, 0)) == (1500, BATCHES + 1)
    assert carry_out(log.search_message(1000, 50)) == (1050, 50)
    assert walked_bytes(log.search_message(2000, BATCHES - 5)) < 20 * SIZE


def test_a_message_that_cannot_be_unpacked_waits_by_the_time_of_its_header(log: Log) -> None:
    """Under forebay.delay.ms it would be seen early, with all that lies behind it."""
    large = build_batch([Record(BATCHES, 9000, b"k", bytes(100_000))], base_offset=BATCHES, codec=Codec.ZSTD)
    log.append(memoryview(large), read_header(large))
    add(log, timestamp=9500)
    log.write_pending()
    log.configure(LogConfig(decompress_max_bytes=50_000))
    assert carry_out(log.search_message(8000, 0)) == find_timestamp(log, 8000) == (9000, BATCHES)
    assert len(log.unreadable) == 1
    log.configure(LogConfig(decompress_max_bytes=1 << 20))
    assert carry_out(log.search_message(8000, 0)) == find_timestamp(log, 8000) == (9000, BATCHES)


def test_a_search_unpacks_as_much_as_the_setting_allows(log: Log) -> None:
    large = build_batch([Record(BATCHES, 9000, b"k", bytes(65 << 20))], base_offset=BATCHES, codec=Codec.ZSTD)
    log.append(memoryview(large), read_header(large))
    log.write_pending()
    log.configure(LogConfig(decompress_max_bytes=128 << 20))
    assert find_timestamp(log, 8000) == carry_out(log.search_message(8000, 0)) == (9000, BATCHES)
