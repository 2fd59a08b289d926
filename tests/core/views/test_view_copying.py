"""What a materialized view stores: messages at the source's offsets, and nothing of producers."""

from __future__ import annotations

import pytest

from forebay.core.views.copying import Aborted, copy_batches, gap_batch, source_epoch
from forebay.errors import ProtocolError
from forebay.wire.batch import (
    TRANSACTIONAL,
    EndTxnMarker,
    build_batch,
    build_marker,
    crc_ok,
    read_header,
    records,
    split,
)
from forebay.wire.compression import Codec
from forebay.wire.record_spans import keep_records, payload_of, record_spans, widened
from forebay.wire.records import Record
from forebay.wire.state.delay_notes import is_note

LIMIT = 1 << 20
PRODUCER = 77


def message(offset: int) -> Record:
    return Record(offset, 1_000 + offset, b"k", b"%d" % offset, [("h", b"v")])


def sent(*offsets: int, epoch: int = 4, attributes: int = 0, codec: int = Codec.NONE) -> bytes:
    """A batch of the source, of a producer."""
    return bytes(
        build_batch(
            [message(offset) for offset in offsets],
            base_offset=offsets[0],
            partition_leader_epoch=epoch,
            producer_id=PRODUCER,
            producer_epoch=3,
            base_sequence=9,
            attributes=attributes,
            codec=codec,
        )
    )


def marker(offset: int, *, commit: bool) -> bytes:
    ended = EndTxnMarker(PRODUCER, 3, commit, 0)
    return bytes(build_marker(ended, timestamp=1, base_offset=offset, partition_leader_epoch=4))


def stored_offsets(batches: list[bytearray]) -> list[int]:
    return [record.offset for batch in batches for record in records(batch)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_messages_keep_their_place_and_lose_their_producer(codec: Codec) -> None:
    data = memoryview(sent(5, 6, 8, codec=codec))
    copied = copy_batches(data, 5, [], LIMIT)
    (batch,) = copied.batches
    assert list(records(batch)) == [message(offset) for offset in (5, 6, 8)]
    header = read_header(batch)
    assert crc_ok(batch, 0, len(batch))
    assert (header.producer_id, header.producer_epoch, header.codec) == (-1, -1, codec)
    assert source_epoch(header) == 4
    assert (copied.next_offset, copied.epoch, copied.record_count) == (9, 4, 3)


def test_what_was_aborted_is_left_out_and_what_was_committed_is_not() -> None:
    aborted = sent(0, 1, attributes=TRANSACTIONAL) + marker(2, commit=False)
    committed = sent(3, 4, attributes=TRANSACTIONAL) + marker(5, commit=True)
    copied = copy_batches(memoryview(aborted + committed), 0, [Aborted(PRODUCER, 0)], LIMIT)
    assert stored_offsets(copied.batches) == [3, 4]
    assert not any(read_header(batch).is_transactional for batch in copied.batches)
    assert copied.next_offset == 6, "also markers are read past"


def test_a_transaction_that_is_aborted_again_is_left_out_again() -> None:
    data = b"".join(
        [
            sent(0, attributes=TRANSACTIONAL),
            marker(1, commit=False),
            sent(2, attributes=TRANSACTIONAL),
            marker(3, commit=False),
            sent(4, attributes=TRANSACTIONAL),
        ]
    )
    copied = copy_batches(memoryview(data), 0, [Aborted(PRODUCER, 2), Aborted(PRODUCER, 0)], LIMIT)
    assert stored_offsets(copied.batches) == [4]


def test_deletions_begin_their_time_anew() -> None:
    """The source's compaction has set an end to it, which may be over when the view is compacted."""
    data = sent(3, 4)
    header = read_header(data)
    payload = payload_of(data, header, 1 << 20)
    compacted = keep_records(header, payload, list(record_spans(payload, header)), delete_horizon_ms=900)
    assert read_header(compacted).delete_horizon_ms == 900
    (batch,) = copy_batches(memoryview(compacted), 3, [], LIMIT).batches
    assert read_header(batch).delete_horizon_ms is None
    assert list(records(batch)) == [message(3), message(4)], "their own times stay"


def test_of_a_batch_that_begins_too_early_the_rest_is_taken() -> None:
    data = memoryview(sent(3, 4, 5, 6))
    copied = copy_batches(data, 5, [], LIMIT)
    (batch,) = copied.batches
    assert (read_header(batch).base_offset, stored_offsets([batch])) == (5, [5, 6])
    assert (copied.next_offset, copied.record_count) == (7, 2)
    assert source_epoch(read_header(batch)) == 4
    assert copy_batches(data, 7, [], LIMIT).batches == []


def test_nothing_is_taken_of_the_offsets_that_compaction_has_added_to_a_batch() -> None:
    data = sent(3, 4)
    header = read_header(data)
    wide = memoryview(widened(data, header, header._replace(base_offset=20)))
    copied = copy_batches(wide, 5, [], LIMIT)
    assert (copied.batches, copied.next_offset, copied.epoch) == ([], 22, 4)
    (batch,) = copy_batches(wide, 3, [], LIMIT).batches
    assert (read_header(batch).last_offset, stored_offsets([batch])) == (21, [3, 4])


def test_a_damaged_batch_is_not_stored() -> None:
    data = bytearray(sent(0, 1))
    data[-1] ^= 1
    with pytest.raises(ProtocolError):
        copy_batches(memoryview(data), 0, [], LIMIT)


def test_an_empty_answer_leads_nowhere() -> None:
    copied = copy_batches(memoryview(b""), 12, [], LIMIT)
    assert (copied.batches, copied.next_offset) == ([], 12)


def test_a_gap_is_no_message_and_no_delay_note() -> None:
    batch = gap_batch(10, 30, epoch=6, timestamp=-1)
    ((_, header),) = split(batch)
    assert (header.base_offset, header.next_offset, header.is_control) == (10, 30, True)
    assert source_epoch(header) == 6
    assert not is_note(header)
    unknown = read_header(gap_batch(10, 30, epoch=-1, timestamp=1))
    assert source_epoch(unknown) == -1 and not is_note(unknown), "epoch 0 would be another one"
    wide = read_header(gap_batch(0, 2**40, epoch=6, timestamp=5))
    assert wide.next_offset == 2**40
