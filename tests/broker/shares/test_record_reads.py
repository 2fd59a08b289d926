"""Single records out of batches of every kind, in threads, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forebay.broker.shares.record_reads import RecordsRead, read_records
from forebay.broker.worker_threads import WorkerThreads
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import HEADER_SIZE, EndTxnMarker, assemble, build_batch, build_marker, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record


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
    assert {record.value for record in found.found.values() if record is not None} == {b"vvv"}
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
    assert found.found[0] is None
    assert found.found[1] is None
    assert found.found[2] is not None


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
    assert (found.found[9], found.found[10]) == (None, None)
    assert found.found[11] is not None
