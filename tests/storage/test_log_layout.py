"""The bytes on disk are Kafka's, to the last one."""

from __future__ import annotations

import struct
from pathlib import Path

from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from support.machines.storing import add, fill, find_timestamp, read_all

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def open_small(path: Path, *, clean: bool = False) -> Log:
    return open_log(RealDisk(), str(path), CONFIG, clean=clean)


def test_a_segment_is_the_batches_one_after_another(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = fill(log, 5)
    log.files.close()
    assert (tmp_path / "00000000000000000000.log").read_bytes() == b"".join(made)


def test_index_and_time_index(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = [add(log, timestamp=timestamp) for timestamp in (500, 700, 600, 650, 900, 100, 200)]
    assert {len(data) for data in made} == {121}
    log.roll()
    # More than 200 bytes after the last entry: the third batch at 242, the fifth at 484, the seventh at 726.
    entries = [(2, 242), (4, 484), (6, 726)]
    assert (tmp_path / "00000000000000000000.index").read_bytes() == b"".join(
        struct.pack(">ii", *entry) for entry in entries
    )
    # The largest timestamp so far, and the batch that had it, only where it has grown.
    assert (tmp_path / "00000000000000000000.timeindex").read_bytes() == struct.pack(">qiqi", 700, 1, 900, 4)


def test_the_last_time_entry_is_the_largest_timestamp(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    for timestamp in (100, 200, 150):
        add(log, timestamp=timestamp)
    log.files.close()
    assert (tmp_path / "00000000000000000000.timeindex").read_bytes()[-12:] == struct.pack(">qi", 200, 1)


def test_segments_are_named_by_their_base_offset(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    fill(log, 20)
    log.files.close()
    names = sorted(path.name for path in tmp_path.glob("*.log"))
    assert names == [f"{info:020d}.log" for info in (0, 8, 16)]


def test_preallocated_index_files_are_accepted(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = fill(log, 30)
    log.files.close()
    for suffix in ("index", "timeindex"):
        for path in tmp_path.glob(f"*.{suffix}"):
            path.write_bytes(path.read_bytes() + bytes(12 * 8 * 50))
    again = open_small(tmp_path, clean=True)
    assert find_timestamp(again, 1013) == (1013, 13)
    for offset in range(30):
        assert again.read(offset, 1).next_offset == offset + 1
    made += fill(again, 30)
    assert read_all(again) == b"".join(made)
    again.files.close()
    last_index = sorted(tmp_path.glob("*.index"))[-1].read_bytes()
    assert last_index[-8:] != bytes(8)
