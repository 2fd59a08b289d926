"""The batch of a move of copies: it takes as many numbers whatever is left of its records."""

from __future__ import annotations

import pytest

from forebay.core.record_moves.key_copies import (
    copied_batch,
    pack_offsets,
    placed_records,
    size_of,
    unpack_offsets,
)
from forebay.errors import ProtocolError
from forebay.wire.batch import build_batch, crc_ok, read_header, records
from forebay.wire.compression import Codec
from forebay.wire.records import Record

FOUND = {
    offset: Record(offset, 1_000 + offset, b"key %d" % offset, None if offset == 9 else b"v", [("h", b"x")])
    for offset in (5, 6, 9, 2**40)
}


@pytest.mark.parametrize(
    "offsets",
    [[0], [2**62], [0, 1, 2], [3, 4, 9, 11, 12, 2**50], list(range(4_000)), list(range(0, 8_000, 2))],
)
def test_offsets_are_written_and_read_back(offsets: list[int]) -> None:
    assert unpack_offsets(pack_offsets(offsets)) == offsets
    assert len(pack_offsets(offsets)) <= 10 + 2 * len(offsets)


@pytest.mark.parametrize("entries", [b"", b"\x02", b"\x01\x02", b"\x02\x00", b"\x80"])
def test_what_are_no_offsets_is_refused(entries: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_offsets(entries)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_keep_their_content_and_leave_the_places_of_those_that_are_gone(codec: Codec) -> None:
    offsets = [5, 6, 7, 9, 2**40, 2**40 + 1]
    placed = placed_records(offsets, FOUND)
    batch = copied_batch(placed, len(offsets), producer_id=7, base_sequence=100, codec=codec)
    header = read_header(batch)
    assert crc_ok(batch, 0, len(batch)) and header.codec == codec
    assert (header.base_sequence, header.last_sequence, header.record_count) == (100, 105, 4)
    assert (header.base_timestamp, header.max_timestamp) == (1_005, 1_000 + 2**40)
    found = list(records(bytes(batch)))
    assert [record.offset for record in found] == [0, 1, 3, 4]
    for record, offset in zip(found, (5, 6, 9, 2**40), strict=True):
        assert record._replace(offset=offset, headers=list(record.headers)) == FOUND[offset]


def test_a_batch_of_nothing_still_takes_its_numbers() -> None:
    header = read_header(copied_batch([], 3, producer_id=7, base_sequence=2**31 - 2, codec=Codec.GZIP))
    assert (header.record_count, header.last_offset_delta, header.last_sequence) == (0, 2, 0)
    assert header.codec == Codec.NONE


def test_a_whole_batch_is_what_a_producer_would_send() -> None:
    placed = placed_records([5, 6], FOUND)
    batch = copied_batch(placed, 2, producer_id=7, base_sequence=3, codec=Codec.NONE)
    assert batch == build_batch(placed, producer_id=7, producer_epoch=0, base_sequence=3)


def test_a_record_is_not_larger_than_it_is_taken_for() -> None:
    record = Record(0, 0, b"k" * 300, b"v" * 70_000, [("\u00e9" * 100, b"x" * 500), ("y", None)])
    batch = build_batch([record, record._replace(offset=1, timestamp=2**42)])
    assert 2 * size_of(record) >= len(batch) - 61
