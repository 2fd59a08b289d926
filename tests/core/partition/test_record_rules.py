"""Batches whose records are read before they are stored: refused, packed anew, or too large to do at once."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.partition.batch_rules import AppendPolicy
from forebay.core.partition.delayed_on_append import DelayPolicy
from forebay.core.partition.record_rules import (
    AT_ONCE_BYTES_MAX,
    AT_ONCE_RECORDS_MAX,
    NAMED_RECORDS_MAX,
    UNEXAMINED,
    examine,
    examine_at_once,
)
from forebay.errors import ErrorCode, InvalidRecords, KafkaError
from forebay.wire.batch import (
    HEADER_SIZE,
    assemble,
    build_batch,
    crc_ok,
    patch_append_time,
    read_header,
    records,
)
from forebay.wire.compression import Codec, compress
from forebay.wire.records import Record

NOW = 1_700_000_000_000
COMPACTED = AppendPolicy(compacted=True)
CODECS = pytest.mark.parametrize("codec", list(Codec))


def rows(count: int = 2, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, NOW, key, b"v" * 20) for i in range(count)]


def made(*what: Record, codec: Codec = Codec.NONE, **changes: Any) -> memoryview:
    batch = build_batch(list(what) or rows(), codec=codec)
    header = read_header(batch)
    changes.setdefault("last_offset_delta", header.record_count - 1)
    return memoryview(assemble(header._replace(**changes), bytes(batch[HEADER_SIZE:])))


def look(batch: memoryview, policy: AppendPolicy = COMPACTED) -> memoryview:
    """What both ways say, which must be the same."""
    try:
        later = examine(batch, policy, NOW, lambda: None)
    except KafkaError as error:
        with pytest.raises(KafkaError) as caught:
            examine_at_once(batch, read_header(batch), policy, NOW)
        assert (caught.value.code, caught.value.message) == (error.code, error.message)
        raise
    assert examine_at_once(batch, read_header(batch), policy, NOW) == later
    return later.batch


def refusal(batch: memoryview, policy: AppendPolicy = COMPACTED) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        look(batch, policy)
    return caught.value


@CODECS
def test_a_good_batch_stays_what_it_is(codec: Codec) -> None:
    batch = made(*rows(), Record(2, NOW, b"k", None, [("a", b"1"), ("b", None)]), codec=codec)
    assert look(batch) is batch


@CODECS
def test_a_compacted_topic_needs_keys_and_names_the_records_without(codec: Codec) -> None:
    error = refusal(made(*rows(1), Record(1, NOW, None, b"v"), Record(2, NOW, None, None), codec=codec))
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_RECORD
    reason = "Compacted topic cannot accept message without key"
    assert error.records == {1: reason, 2: reason}
    assert error.message.startswith("2 of 3 records were refused")
    assert f"record 1: {reason}" in error.message


def test_only_the_first_of_many_bad_records_are_named() -> None:
    batch = made(*rows(NAMED_RECORDS_MAX + 5, key=None))
    with pytest.raises(InvalidRecords) as caught:
        examine(batch, COMPACTED, NOW, lambda: None)
    assert list(caught.value.records) == list(range(NAMED_RECORDS_MAX))
    assert f"{NAMED_RECORDS_MAX + 5} of {NAMED_RECORDS_MAX + 5} records" in caught.value.message


@CODECS
@pytest.mark.parametrize("offsets", [(100,), (0, 0), (1, 0), (0, 2)])
def test_records_are_where_their_number_says(codec: Codec, offsets: tuple[int, ...]) -> None:
    error = refusal(made(*(Record(offset, NOW, b"k", b"v") for offset in offsets), codec=codec))
    assert error.code == ErrorCode.INVALID_RECORD
    assert "offset delta" in error.message


def test_times_that_no_record_can_have() -> None:
    beyond = made(Record(0, 0, b"k", b"v"), Record(1, 10, b"k", b"v"), base_timestamp=2**63 - 10)
    policy = AppendPolicy(compacted=True, timestamp_after_max_ms=2**63 - 1)
    assert refusal(beyond, policy).code == ErrorCode.INVALID_TIMESTAMP
    negative = [Record(0, NOW, b"k", b"v"), Record(1, -2, b"k", b"v")]
    assert refusal(made(*negative)).code == ErrorCode.INVALID_TIMESTAMP
    assert look(made(Record(0, NOW, b"k", b"v"), Record(1, -1, b"k", b"v")))


def test_every_records_time_is_one_that_the_topic_takes() -> None:
    policy = AppendPolicy(compacted=True, timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    times = (NOW, NOW - 1000, NOW - 1001, NOW + 500, NOW + 501, -1)
    error = refusal(made(*(Record(n, time, b"k", b"v") for n, time in enumerate(times))), policy)
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert list(error.records) == [2, 4]
    assert "message.timestamp.before.max.ms" in error.records[2]
    broker_sets_it = AppendPolicy(compacted=True, timestamp_before_max_ms=1000, log_append_time=True)
    assert look(made(Record(0, 5, b"k", b"v"), Record(1, 2**62, b"k", b"v")), broker_sets_it)


def test_headers_that_cannot_be_read() -> None:
    batch = bytearray(made(Record(0, NOW, b"k", b"v", [("a", b"1")])))
    batch[-4] = 0x7E  # the length of the header's key
    broken = memoryview(assemble(read_header(batch), bytes(batch[HEADER_SIZE:])))
    assert refusal(broken).code == ErrorCode.INVALID_RECORD


def test_records_that_cannot_be_read_are_invalid_where_they_are_read() -> None:
    garbage = made(attributes=Codec.ZSTD)
    assert look(garbage, AppendPolicy()) is garbage
    assert refusal(garbage).code == ErrorCode.INVALID_RECORD
    assert refusal(garbage, AppendPolicy(codec=Codec.GZIP)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("source", list(Codec))
def test_a_batch_is_stored_under_the_topics_codec(source: Codec, target: Codec) -> None:
    policy = AppendPolicy(codec=target, log_append_time=True)
    batch = made(codec=source, producer_id=7, producer_epoch=1, base_sequence=5)
    stored = look(batch, policy)
    assert (stored is batch) == (source == target)
    before, after = read_header(batch), read_header(stored)
    assert after.codec == target
    assert after._replace(crc=0, attributes=0, batch_length=0) == before._replace(
        crc=0, attributes=0, batch_length=0
    )
    patch_append_time(stored, 0, NOW + 5)
    assert crc_ok(stored, 0, len(stored))
    assert [(r.key, r.timestamp) for r in records(stored)] == [(b"k", NOW + 5)] * 2


def test_the_new_size_has_the_same_bound() -> None:
    batch = made(Record(0, NOW, b"k", b"v" * 5000), codec=Codec.ZSTD)
    assert (
        refusal(batch, AppendPolicy(codec=Codec.NONE, max_message_bytes=1000)).code
        == ErrorCode.MESSAGE_TOO_LARGE
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_what_is_taken_out_to_be_delivered_later_counts_for_the_new_size(codec: Codec) -> None:
    policy = AppendPolicy(codec=codec, max_message_bytes=2_000, delays=DelayPolicy(10_000, 10, 0))
    due = [("forebay-deliver-after", b"5s")]
    batch, large = (
        made(Record(0, NOW, b"k", bytes(size), due), codec=Codec.ZSTD) for size in (100, 1_000_000)
    )
    assert len(large) < 2_000
    examined = examine_at_once(batch, read_header(batch), policy, NOW)
    assert examined is not UNEXAMINED
    assert examined.delayed is not None and examined.delayed.numbers == (0,)
    with pytest.raises(KafkaError) as refused:
        examine(large, policy, NOW, lambda: None)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_more_than_may_be_unpacked_is_refused() -> None:
    batch = made(Record(0, NOW, b"k", b"v" * 5000), codec=Codec.ZSTD)
    with pytest.raises(KafkaError, match="larger than 1000 bytes") as caught:
        examine(batch, AppendPolicy(compacted=True, max_output_bytes=1000), NOW, lambda: None)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "batch",
    [
        made(*rows(AT_ONCE_RECORDS_MAX + 1)),
        made(Record(0, NOW, b"k", bytes(AT_ONCE_BYTES_MAX))),
        made(Record(0, NOW, b"k", bytes(AT_ONCE_BYTES_MAX)), codec=Codec.ZSTD),
        made(Record(0, NOW, b"k", bytes(AT_ONCE_BYTES_MAX)), codec=Codec.SNAPPY),
    ],
)
def test_what_takes_long_is_not_done_at_once(batch: memoryview) -> None:
    assert examine_at_once(batch, read_header(batch), COMPACTED, NOW) is UNEXAMINED
    unread = examine_at_once(batch, read_header(batch), AppendPolicy(), NOW)
    assert unread is not UNEXAMINED and unread.batch is batch
    assert examine(batch, COMPACTED, NOW, lambda: None).batch is batch


def test_a_thread_makes_way_for_others() -> None:
    pauses: list[None] = []
    examine(made(*rows(1000)), COMPACTED, NOW, lambda: pauses.append(None))
    assert len(pauses) >= 10


def test_a_batch_is_no_larger_unpacked_than_its_payload_says() -> None:
    """Nothing is left behind the records that the count names."""
    batch = made()
    header = read_header(batch)
    longer = compress(Codec.ZSTD, bytes(batch[HEADER_SIZE:]) + b"more")
    error = refusal(memoryview(assemble(header._replace(attributes=Codec.ZSTD), longer)))
    assert error.code == ErrorCode.INVALID_RECORD
    assert "left over" in error.message
