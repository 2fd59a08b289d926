"""Batches that are appended together are written together: into one segment, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.core.partition.batch_rules import place
from forebay.errors import StorageError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import BatchHeader, build_batch, read_header
from forebay.wire.records import Record
from support.faults.faulty_disk import FaultyDisk

NOW = 1_000_000


def batch(log: Log, size: int, behind: int = 0) -> tuple[memoryview, BatchHeader]:
    view = memoryview(build_batch([Record(0, NOW + behind, None, b"x" * size)]))
    return view, place(view, read_header(view), log.end_offset + behind, 1)


def append_both(log: Log, first: int, second: int) -> None:
    log.append_together((batch(log, first), batch(log, second, behind=1)))


def segments_of_pairs(log: Log) -> list[list[int]]:
    """The offsets in each segment."""
    return [
        [header.base_offset for _, header in stretch.batches()] for stretch in log.stretches(log.start_offset)
    ]


@pytest.mark.parametrize(
    "config", [LogConfig(segment_bytes=1_000), LogConfig(segment_index_bytes=32, index_interval_bytes=100)]
)
def test_a_pair_is_in_one_segment_whatever_its_limits(tmp_path: Path, config: LogConfig) -> None:
    log = open_log(RealDisk(), str(tmp_path / "log"), config)
    for number in range(40):
        append_both(log, 200, 5_000 if number % 7 == 0 else 300)
        if number % 3 == 0:
            log.append(*batch(log, 50))
        if number % 2:
            log.write_pending()
    log.write_pending()
    found = segments_of_pairs(log)
    assert len(found) > 3
    flat = [offset for segment in found for offset in segment]
    assert flat == list(range(log.end_offset))
    starts = {segment[0] for segment in found}
    offset = 0
    for number in range(40):
        assert offset + 1 not in starts, f"the pair at {offset} is in two segments"
        offset += 3 if number % 3 == 0 else 2
    log.files.close()
    again = open_log(RealDisk(), str(tmp_path / "log"), config)
    assert segments_of_pairs(again) == found
    for offset in flat:
        assert again.batch_at(offset) == offset, "the index leads to every batch"
    again.files.close()


def test_a_pair_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path / "log"), LogConfig(segment_bytes=1_000))
    append_both(log, 100, 100)
    log.write_pending()
    disk.torn_bytes = 170  # the first batch of the pair is whole, the second is not
    append_both(log, 100, 100)
    with pytest.raises(StorageError):
        log.write_pending()
    disk.torn_bytes = None
    assert log.end_offset == 2
    assert segments_of_pairs(log) == [[0, 1]]
    log.discard()
