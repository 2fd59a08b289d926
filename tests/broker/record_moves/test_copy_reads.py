"""What is copied of a compacted partition that is folded, where there are more keys than memory for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.record_moves.copy_reads import latest_offsets, read_latest
from forebay.core.partition.compaction.offset_map import ENTRY_BYTES
from forebay.errors import KafkaError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import TRANSACTIONAL, EndTxnMarker, assemble, build_batch, build_marker, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record

NOW_MS = 1_000


class Threads:
    async def run(self, work: Callable[[], Any]) -> Any:
        return work()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(RealDisk(), str(tmp_path))
    yield log
    log.discard()


def put(log: Log, *pairs: tuple[bytes, bytes | None], **how: int) -> int:
    """A batch; its first offset."""
    base = log.end_offset
    found = [Record(base + number, NOW_MS, key, value) for number, (key, value) in enumerate(pairs)]
    batch = memoryview(build_batch(found, base_offset=base, **how))
    log.append(batch, read_header(batch))
    log.write_pending()
    return base


def rounds(log: Log, keys_max: int) -> list[list[int]]:
    """The offsets that each map finds to be copied."""
    threads: Any = Threads()

    async def read() -> list[list[int]]:
        found, position = [], 0
        while position < log.end_offset:
            buffer_bytes = keys_max * ENTRY_BYTES
            latest = await latest_offsets(log, position, log.end_offset, threads, buffer_bytes)
            copy = await read_latest(log, position, latest, threads)
            assert copy.end == latest.end_offset > position
            found.append(list(copy.found))
            position = copy.end
        return found

    return asyncio.run(read())


@pytest.mark.parametrize("ends_file", [False, True])
def test_a_value_that_is_deleted_behind_the_end_of_the_map_is_not_copied(log: Log, ends_file: bool) -> None:
    """The next leader may have forgotten the deletion, and would leave the value where it was copied to."""
    for key in (b"a", b"b", b"c"):
        put(log, (key, b"old"))
    if ends_file:
        log.roll()
    deletion = put(log, (b"a", None))
    assert rounds(log, keys_max=2) == [[1], [2, deletion]]


def test_nor_one_that_is_deleted_in_the_batch_in_which_the_map_ends(log: Log) -> None:
    put(log, (b"a", b"old"), (b"b", b"old"), (b"c", b"old"), (b"a", None))
    assert rounds(log, keys_max=2) == [[1], [2, 3]]


def test_what_was_aborted_behind_the_end_of_the_map_deletes_nothing(log: Log) -> None:
    for key in (b"a", b"b", b"c"):
        put(log, (key, b"old"))
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first = put(log, (b"a", None), attributes=TRANSACTIONAL, **producer)
    marker = memoryview(build_marker(EndTxnMarker(7, 0, False, 0), timestamp=NOW_MS))
    header = read_header(marker)._replace(base_offset=log.end_offset)
    marker[:8] = header.base_offset.to_bytes(8, "big")
    log.append(marker, header)
    log.append_aborted(AbortedTxn(7, first, header.base_offset, header.base_offset))
    log.write_pending()
    assert rounds(log, keys_max=2) == [[0, 1], [2]]


def test_all_is_copied_once_with_memory_for_all(log: Log) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", b"1"))
    assert rounds(log, keys_max=9) == [[1, 2, 3]]


LARGE = bytes(100_000)
"""Compressed it is small."""


@pytest.mark.parametrize("keys_max", [1, 9])
def test_the_limit_of_what_a_batch_unpacks_to_is_the_setting(log: Log, keys_max: int) -> None:
    put(log, (b"a", b"old"))
    put(log, (b"b", b"old"))
    large = put(log, (b"a", LARGE), (b"b", b"new"), codec=Codec.ZSTD)
    log.configure(LogConfig(decompress_max_bytes=1 << 20))
    assert [offset for found in rounds(log, keys_max) for offset in found] == [large, large + 1]
    log.configure(LogConfig(decompress_max_bytes=50_000))
    with pytest.raises(KafkaError, match=r"forebay\.decompress\.max\.bytes"):
        rounds(log, keys_max)
    assert len(log.unreadable) == 1, "it is counted"


def test_nothing_is_left_out_because_its_limit_is_more_than_the_default(log: Log) -> None:
    put(log, (b"a", b"old"))
    large = put(log, (b"a", bytes(65 << 20)), codec=Codec.ZSTD)
    log.configure(LogConfig(decompress_max_bytes=128 << 20))
    assert rounds(log, keys_max=9) == [[large]]


def test_a_batch_that_makes_no_sense_is_not_left_out(log: Log) -> None:
    put(log, (b"a", b"value"))
    batch = bytearray(build_batch([Record(1, NOW_MS, b"b", b"value")], base_offset=1))
    batch[61:] = b"\xff" * (len(batch) - 61)
    made = memoryview(assemble(read_header(batch), bytes(batch[61:])))
    log.append(made, read_header(made))
    log.write_pending()
    with pytest.raises(KafkaError, match="cannot be copied"):
        rounds(log, keys_max=9)


def test_a_damaged_batch_is_not_left_out(log: Log) -> None:
    put(log, (b"a", b"old"))
    damaged = put(log, (b"a", b"new"))
    put(log, (b"b", b"value"))
    path = Path(log.directory) / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    size = read_header(data).size
    for byte in (22, 57 + 3, size - 1):  # its attributes, its count, its last byte
        changed = data[:]
        changed[damaged * size + byte] ^= 0x20
        path.write_bytes(changed)
        with pytest.raises(KafkaError, match="CRC"):
            rounds(log, keys_max=9)
