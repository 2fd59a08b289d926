"""Single records out of batches of every kind, in threads, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from errno import EIO
from pathlib import Path

import pytest

from forebay.broker.shares.dead_letters.record_reads import BadSector, RecordsRead, read_records
from forebay.broker.worker_threads import WorkerThreads
from forebay.core.shares.partition.dead_letter_headers import NoCopy
from forebay.errors import StorageError
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import HEADER_SIZE, EndTxnMarker, assemble, build_batch, build_marker, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record

MAGIC_AT = 16


def put(log: Log, batch: bytearray) -> None:
    header = read_header(batch)
    header = header._replace(base_offset=log.end_offset)
    data = assemble(header, bytes(batch[HEADER_SIZE:]))
    log.append(memoryview(data), read_header(data))


def batch_of(*deltas: int, codec: int = Codec.NONE, size: int = 3) -> bytearray:
    return build_batch([Record(delta, 0, b"k", b"v" * size) for delta in deltas], codec=codec)


@pytest.fixture
async def workers() -> AsyncIterator[WorkerThreads]:
    found = WorkerThreads(asyncio.get_running_loop(), ThreadPoolExecutor(1))
    yield found
    found.close()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """0-2, 3 and 5 with a gap between them, 6 is a marker, 7-8 compressed."""
    made = open_log(RealDisk(), str(tmp_path / "t-0"))
    put(made, batch_of(0, 1, 2))
    put(made, batch_of(0, 2))
    put(made, build_marker(EndTxnMarker(9, 0, True, 0), timestamp=0))
    put(made, batch_of(0, 1, codec=Codec.LZ4))
    made.write_pending()
    return made


async def read(
    log: Log, workers: WorkerThreads, wanted: Iterable[int], *, bytes_max: int = 10_000
) -> RecordsRead:
    return await read_records(log, list(wanted), workers, bytes_max=bytes_max, overhead=10)


async def test_what_exists_is_found(log: Log, workers: WorkerThreads) -> None:
    found = await read(log, workers, range(9))
    assert sorted(found.found) == [0, 1, 2, 3, 5, 7, 8]
    assert {record.value for record in found.found.values() if isinstance(record, Record)} == {b"vvv"}
    assert found.end == 9


async def test_only_what_is_wanted_is_found(log: Log, workers: WorkerThreads) -> None:
    found = await read(log, workers, [1, 4, 8])
    assert sorted(found.found) == [1, 8]
    assert found.end == 9


async def test_what_does_not_fit_is_left_for_later_but_for_the_first(
    log: Log, workers: WorkerThreads
) -> None:
    found = await read(log, workers, range(9), bytes_max=30)
    assert (sorted(found.found), found.end) == ([0, 1], 2)
    found = await read(log, workers, range(2, 9), bytes_max=1)
    assert (sorted(found.found), found.end) == ([2], 3)


async def test_deleted_records_are_known_to_have_been_there(log: Log, workers: WorkerThreads) -> None:
    log.advance_start(2)
    found = await read(log, workers, [0, 1, 2])
    assert found.found[0] is NoCopy.DELETED
    assert found.found[1] is NoCopy.DELETED
    assert isinstance(found.found[2], Record)


async def test_beyond_the_end_there_is_nothing(log: Log, workers: WorkerThreads) -> None:
    found = await read(log, workers, [8, 9, 10])
    assert (sorted(found.found), found.end) == ([8], 11)
    assert not (await read(log, workers, [9, 10])).found


async def test_records_that_nobody_can_read_are_there_all_the_same(log: Log, workers: WorkerThreads) -> None:
    bad = batch_of(0, 1)
    put(log, assemble(read_header(bad), b"\xff" * 20))
    put(log, batch_of(0))
    log.write_pending()
    found = await read(log, workers, [9, 10, 11])
    assert (found.found[9], found.found[10]) == (NoCopy.DAMAGED, NoCopy.DAMAGED)
    assert isinstance(found.found[11], Record)


async def test_what_cannot_be_copied_takes_room_all_the_same(log: Log, workers: WorkerThreads) -> None:
    log.advance_start(6)
    found = await read(log, workers, range(9), bytes_max=30)
    assert (sorted(found.found), found.end) == ([0, 1, 2], 3)


@pytest.mark.parametrize("deltas", [(0, 5), (0, 0), (1, 0), (-3, 1)], ids=str)
async def test_records_at_offsets_that_their_batch_does_not_have_are_not_believed(
    log: Log, workers: WorkerThreads, deltas: tuple[int, int]
) -> None:
    lying = batch_of(*deltas)
    put(log, assemble(read_header(lying)._replace(last_offset_delta=1), bytes(lying[HEADER_SIZE:])))
    put(log, batch_of(0))
    log.write_pending()
    found = await read(log, workers, [6, 8, 9, 10, 11, 14])
    assert sorted(found.found) == [8, 9, 10, 11]
    assert (found.found[9], found.found[10]) == (NoCopy.DAMAGED, NoCopy.DAMAGED)
    assert isinstance(found.found[11], Record)
    assert found.end == 15


def damage(log: Log, position: int) -> None:
    """Change a byte of the file, as a bad disk does."""
    with (Path(log.directory) / f"{0:020}.log").open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


async def test_a_batch_that_fails_its_checksum_is_found_without_its_records(
    log: Log, workers: WorkerThreads
) -> None:
    damage(log, len(batch_of(0, 1, 2)) - 1)
    found = await read(log, workers, range(9))
    assert sorted(found.found) == [0, 1, 2, 3, 5, 7, 8]
    assert [found.found[offset] for offset in range(3)] == [NoCopy.DAMAGED] * 3
    assert all(isinstance(found.found[offset], Record) for offset in (3, 5, 7, 8))


async def test_damage_that_ends_the_walk_through_a_log_does_not_stop_the_others(
    log: Log, workers: WorkerThreads
) -> None:
    damage(log, len(batch_of(0, 1, 2)) + MAGIC_AT)
    found = await read(log, workers, [1, 3, 8])
    assert isinstance(found.found[1], Record)
    assert (found.found[3], found.end) == (NoCopy.DAMAGED, 9)
    assert isinstance(found.found[8], Record), "what lies behind the damage is intact"
    found = await read(log, workers, [3, 5, 8], bytes_max=15)
    assert (found.found, found.end) == ({3: NoCopy.DAMAGED}, 5)


async def test_neighbours_of_what_the_disk_does_not_give_are_found(
    log: Log, workers: WorkerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = len(batch_of(0, 1, 2))
    end = begin + len(batch_of(0, 2))
    pread = RealFile.pread

    def bad(self: RealFile, length: int, position: int) -> bytes:
        if begin + HEADER_SIZE <= position < end:
            raise OSError(EIO, "Input/output error")
        if position < end and position + length > begin + HEADER_SIZE:
            length = begin + HEADER_SIZE - position
        return pread(self, length, position)

    monkeypatch.setattr(RealFile, "pread", bad)
    found = await read(log, workers, [1, 8])
    assert sorted(found.found) == [1, 8]
    assert all(isinstance(each, Record) for each in found.found.values())
    assert sorted((await read(log, workers, [8])).found) == [8]
    assert sorted((await read(log, workers, [0, 2])).found) == [0, 2]
    with pytest.raises(BadSector, match="Input/output error"):
        await read(log, workers, [1, 3])
    passed = await read_records(
        log, [1, 3, 8], workers, bytes_max=10_000, overhead=10, passes_bad_sectors=True
    )
    assert passed.found[3] is NoCopy.DAMAGED
    assert isinstance(passed.found[8], Record)


async def test_what_the_disk_does_not_give_is_not_taken_for_damage(
    log: Log, workers: WorkerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(EIO, "Input/output error")

    monkeypatch.setattr(RealFile, "pread", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        await read(log, workers, [1, 3])
