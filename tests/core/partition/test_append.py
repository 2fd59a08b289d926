"""Every reason to refuse a client's batch, each with its error code; and what is let through untouched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.partition.batch_rules import EXAMINED_RECORDS_MAX, AppendPolicy, place, validate
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    assemble,
    build_batch,
    crc32c,
    crc_ok,
    read_header,
)
from forebay.wire.compression import EXPANSION_MAX, Codec
from forebay.wire.records import Record

NOW = 1_700_000_000_000
POLICY = AppendPolicy()
IDEMPOTENT = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


def rows(count: int = 2, timestamp: int = NOW, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, timestamp, key, b"v" * 20) for i in range(count)]


def made(**changes: Any) -> memoryview:
    """A good batch with some header fields changed, under a CRC that fits."""
    batch = build_batch(rows())
    header = read_header(batch)._replace(**changes)
    buffer = bytearray(HEADER.pack(*header) + batch[HEADER_SIZE:])
    buffer[17:21] = crc32c(buffer[21:]).to_bytes(4, "big")
    return memoryview(buffer)


def refusal(view: memoryview | None, policy: AppendPolicy = POLICY) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate(view, policy, NOW)
    return caught.value


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"batch_length": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 48}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 10_000}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 60}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ({"magic": 0}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ({"magic": 3}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ({"base_offset": 7}, ErrorCode.INVALID_RECORD),
        ({"base_offset": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": -3, "last_offset_delta": -4}, ErrorCode.INVALID_RECORD),
        ({"record_count": 3}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 4}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.INVALID_RECORD),
        (
            {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2, "attributes": Codec.GZIP},
            ErrorCode.INVALID_RECORD,
        ),
        (
            {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2, "attributes": Codec.ZSTD},
            ErrorCode.INVALID_RECORD,
        ),
        ({"attributes": DELETE_HORIZON}, ErrorCode.INVALID_RECORD),
        ({"attributes": CONTROL}, ErrorCode.INVALID_RECORD),
        ({"attributes": CONTROL | TRANSACTIONAL, **IDEMPOTENT}, ErrorCode.INVALID_RECORD),
        ({"attributes": TRANSACTIONAL}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"producer_id": 5, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"attributes": LOG_APPEND_TIME}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp": NOW + 3_600_001}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp": 2**63 - 1}, ErrorCode.INVALID_TIMESTAMP),
        ({"base_timestamp": 2**63 - 1}, ErrorCode.INVALID_TIMESTAMP),
        ({"base_timestamp": NOW + 3_600_001}, ErrorCode.INVALID_TIMESTAMP),
        ({"base_timestamp": -2}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp": -2}, ErrorCode.INVALID_TIMESTAMP),
        ({"base_timestamp": -(2**63)}, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_each_refusal_has_its_code(changes: dict[str, int], code: ErrorCode) -> None:
    assert refusal(made(**changes)).code == code


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attributes": TRANSACTIONAL, **IDEMPOTENT},
        {"producer_id": 5, "producer_epoch": 3, "base_sequence": 2**31 - 1},
        {"max_timestamp": NOW + 3_600_000},
        {"base_timestamp": 0, "max_timestamp": 0},
        {"base_timestamp": -1, "max_timestamp": -1},
        {"attributes": 0x100},  # a bit without a meaning
        {"max_timestamp": -1},  # some clients do not say it
    ],
)
def test_what_is_let_through(changes: dict[str, int]) -> None:
    view = made(**changes)
    before = bytes(view)
    assert validate(view, POLICY, NOW) == read_header(view)
    assert view == before


def test_no_records_at_all() -> None:
    assert refusal(None).code == ErrorCode.INVALID_RECORD
    assert refusal(memoryview(b"")).code == ErrorCode.INVALID_RECORD


def test_two_batches() -> None:
    assert refusal(memoryview(bytes(made()) * 2)).code == ErrorCode.INVALID_RECORD


@given(cut=st.integers(1, 200))
def test_a_cut_batch_is_corrupt(cut: int) -> None:
    view = made()
    assert refusal(view[: max(1, len(view) - cut)]).code == ErrorCode.CORRUPT_MESSAGE


def test_too_large_says_what_to_do() -> None:
    view = made()
    exact = AppendPolicy(max_message_bytes=len(view))
    assert validate(view, exact, NOW).size == len(view)
    error = refusal(view, AppendPolicy(max_message_bytes=len(view) - 1))
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert f"max.message.bytes={len(view) - 1}" in error.message
    assert "raise it or send smaller batches" in error.message


@given(data=st.data())
def test_no_damaged_byte_gets_through(data: st.DataObject) -> None:
    """Except in the leader epoch, which the broker sets anyway."""
    view = made()
    position = data.draw(st.integers(0, len(view) - 1).filter(lambda p: not 12 <= p < 16))
    view[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KafkaError):
        validate(view, POLICY, NOW)


def test_a_damaged_byte_behind_the_crc_is_corrupt() -> None:
    for position in range(17, len(made())):
        view = made()
        view[position] ^= 0x55
        assert refusal(view).code == ErrorCode.CORRUPT_MESSAGE


@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_code(data: bytes) -> None:
    with pytest.raises(KafkaError):
        validate(memoryview(data), POLICY, NOW)


def test_old_timestamps_are_refused_where_the_topic_says_so() -> None:
    policy = AppendPolicy(timestamp_before_max_ms=1000)
    assert validate(made(base_timestamp=NOW - 1000), policy, NOW)
    assert refusal(made(base_timestamp=NOW - 1001), policy).code == ErrorCode.INVALID_TIMESTAMP
    # The first record has no timestamp, the others are too old.
    late = made(base_timestamp=-1, max_timestamp=NOW - 1001)
    assert refusal(late, policy).code == ErrorCode.INVALID_TIMESTAMP
    assert validate(made(base_timestamp=-1, max_timestamp=-1), policy, NOW)


def test_producers_times_do_not_matter_where_the_broker_sets_them() -> None:
    policy = AppendPolicy(log_append_time=True, timestamp_before_max_ms=1000)
    assert validate(made(base_timestamp=5, max_timestamp=2**62), policy, NOW)
    assert refusal(made(attributes=LOG_APPEND_TIME), policy).code == ErrorCode.INVALID_TIMESTAMP


def test_many_small_compressed_records_are_fine() -> None:
    view = memoryview(build_batch([Record(i, NOW, None, None) for i in range(5000)], codec=Codec.ZSTD))
    assert len(view) < 5000
    assert validate(view, POLICY, NOW).record_count == 5000


@given(base_offset=st.integers(0, 2**62), epoch=st.integers(0, 2**31 - 1))
def test_place_patches_and_tells_the_same(base_offset: int, epoch: int) -> None:
    view = made()
    header = place(view, validate(view, POLICY, NOW), base_offset, epoch)
    assert header == read_header(view)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, epoch)
    assert crc_ok(view, 0, len(view))


def test_only_plain_policies_store_unread() -> None:
    assert POLICY.stores_unread
    for other in (
        AppendPolicy(compacted=True),
        AppendPolicy(log_append_time=True),
        AppendPolicy(codec=Codec.NONE),
    ):
        assert not other.stores_unread


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_count_is_bounded_by_what_its_batch_can_unpack_to(codec: Codec) -> None:
    """From the header alone, and no count is refused that the bytes could really stand for."""
    honest = build_batch([Record(i, NOW, None, None) for i in range(60_000)], codec=codec)
    assert validate(memoryview(honest), POLICY, NOW).record_count == 60_000

    def claiming(count: int, policy: AppendPolicy) -> KafkaError | None:
        try:
            validate(made(record_count=count, last_offset_delta=count - 1, attributes=codec), policy, NOW)
        except KafkaError as error:
            return error
        return None

    size = len(made()) - HEADER_SIZE
    most = size * EXPANSION_MAX[codec] // 7
    assert claiming(most, POLICY) is None
    lie = claiming(most + 1, POLICY)
    assert lie is not None and lie.code == ErrorCode.INVALID_RECORD and f"into {size} bytes" in lie.message
    small = AppendPolicy(max_output_bytes=700)
    assert claiming(100, small) is None
    large = claiming(101, small)
    assert large is not None and large.code == ErrorCode.INVALID_RECORD and "at most 100" in large.message


def test_where_records_are_looked_at_their_number_has_a_bound() -> None:
    count = EXAMINED_RECORDS_MAX + 1
    batch = build_batch(rows(), codec=Codec.ZSTD)
    payload = bytes(count * 7 // EXPANSION_MAX[Codec.ZSTD] + 1)
    header = read_header(batch)._replace(record_count=count, last_offset_delta=count - 1)
    view = memoryview(assemble(header, payload))
    assert validate(view, POLICY, NOW).record_count == count
    error = refusal(view, AppendPolicy(compacted=True))
    assert error.code == ErrorCode.INVALID_RECORD
    assert f"at most {EXAMINED_RECORDS_MAX}" in error.message
