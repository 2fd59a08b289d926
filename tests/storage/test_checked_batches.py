"""Reading batches from a file: none is believed before its CRC, and damage takes nothing else with it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.errors import ProtocolError, StorageError
from forebay.storage.disk import File
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.batch_file import Stretch
from forebay.storage.log.segment.batch_parts import CorruptBatch, DamagedPart, WholeBatch
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import HEADER_SIZE, checked_batches
from support.machines.storing import batch, fill

BATCHES = 12
SIZE = len(batch(0))
SECTOR = 4096
NOT_COVERED = {*range(8), *range(12, 16)}
"""Base offset and leader epoch: the broker sets them, and the CRC leaves them out."""


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = open_log(RealDisk(), str(tmp_path / "t-0"))
    fill(made, BATCHES)
    return made


def flip(log: Log, byte: int, bit: int = 0) -> None:
    path = Path(log.directory) / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def stretch(log: Log, offset: int = 0) -> Stretch:
    return next(iter(log.files_from(offset)))


def whole_offsets(parts: list[WholeBatch | DamagedPart]) -> list[int]:
    return [part.header.base_offset for part in parts if isinstance(part, WholeBatch)]


def damaged_parts(parts: list[WholeBatch | DamagedPart]) -> list[DamagedPart]:
    return [part for part in parts if isinstance(part, DamagedPart)]


@pytest.mark.parametrize("at", [byte for byte in range(SIZE) if byte not in NOT_COVERED])
@pytest.mark.parametrize("where", [0, 5, BATCHES - 1])
def test_a_flipped_bit_takes_its_own_batch_and_no_other(log: Log, where: int, at: int) -> None:
    for bit in range(8):
        flip(log, where * SIZE + at, bit)
        parts = list(stretch(log).read())
        assert whole_offsets(parts) == [offset for offset in range(BATCHES) if offset != where]
        (damaged,) = damaged_parts(parts)
        assert (damaged.position, damaged.end) == (where * SIZE, (where + 1) * SIZE)
        assert damaged.first_offset == where
        assert damaged.next_offset == (where + 1 if where < BATCHES - 1 else None)
        assert damaged.unreadable is None
        flip(log, where * SIZE + at, bit)


def test_a_reader_that_cannot_do_without_stops_at_damage(log: Log) -> None:
    flip(log, 5 * SIZE + 57)  # the count of records: nothing but the CRC tells
    read: list[int] = []
    with pytest.raises(CorruptBatch, match="CRC"):
        for _, header in stretch(log).batches():
            read.append(header.base_offset)
    assert read == [0, 1, 2, 3, 4]


def test_damage_to_the_end_of_a_sealed_file_ends_where_the_next_begins(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path / "t-0"), LogConfig(segment_bytes=4 * SIZE))
    fill(log, 10)
    flip(log, 3 * SIZE + 16)
    (damaged,) = damaged_parts(list(stretch(log).read()))
    assert (damaged.first_offset, damaged.next_offset) == (3, 4)
    parts = list(log.files.parts(2))
    assert whole_offsets(parts) == [2, 4, 5, 6, 7, 8, 9]


class BadSectors:
    """A file of which some bytes cannot be read."""

    def __init__(self, file: File, bad: Callable[[int, int], bool]) -> None:
        self._file = file
        self._bad = bad

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, length: int, position: int) -> bytes:
        first, last = position // SECTOR * SECTOR, -(-(position + length) // SECTOR) * SECTOR
        if self._bad(first, last):
            raise OSError(errno.EIO, "the device cannot be read")
        return self._file.pread(length, position)


def test_an_unreadable_sector_takes_the_batches_in_it_and_no_others(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path / "t-0"))
    count = 5 * SECTOR // SIZE
    fill(log, count)
    part = stretch(log)
    bad = range(2 * SECTOR, 3 * SECTOR)
    part.file.file = BadSectors(part.file.file, lambda first, last: first < bad.stop and last > bad.start)  # type: ignore[assignment]
    parts = list(part.read())
    lost = [n for n in range(count) if n * SIZE < bad.stop and (n + 1) * SIZE > bad.start]
    assert whole_offsets(parts) == [n for n in range(count) if n not in lost]
    damaged = damaged_parts(parts)
    assert damaged[0].first_offset == lost[0]
    assert damaged[-1].next_offset == lost[-1] + 1
    assert all(isinstance(each.unreadable, OSError) for each in damaged)


def test_a_disk_that_gives_nothing_is_an_error(log: Log) -> None:
    part = stretch(log)
    part.file.file = BadSectors(part.file.file, lambda *_: True)  # type: ignore[assignment]
    (lost,) = part.read()
    assert isinstance(lost, DamagedPart)
    assert (lost.first_offset, lost.next_offset) == (0, None)
    assert lost.unreadable is not None
    with pytest.raises(StorageError, match="cannot be read"):
        list(part.batches())
    large = Stretch(part.file, 0, 100 * SECTOR)
    part.file.size = large.end
    with pytest.raises(StorageError, match="cannot be read"):
        list(large.read())


@pytest.mark.parametrize("at", [byte for byte in range(HEADER_SIZE) if byte not in NOT_COVERED])
def test_no_damaged_header_in_a_buffer_is_believed(at: int) -> None:
    data = bytearray(b"".join(bytes(batch(offset)) for offset in range(3)))
    data[SIZE + at] ^= 4
    read: list[int] = []
    with pytest.raises(ProtocolError):
        for _, header in checked_batches(memoryview(data)):
            read.append(header.base_offset)
    assert read == [0]
