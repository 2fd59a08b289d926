"""Decides if a client's batch may be appended, by every rule that needs the header and not the records.

`validate` is on the path of every Produce request, so its good case is one straight line: unpack the
header, test all rules at once, compare the CRC. Only when something is wrong does `_refuse` go through the
rules again, one by one in Kafka's order, to find the code to answer with and a sentence that says what to
do.

Only topics that need it pay for reading records: see `record_rules.py`.
"""

from __future__ import annotations

from dataclasses import field
from struct import Struct
from struct import error as StructError

from forebay.core.partition.delayed_on_append import DelayPolicy
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    NO_TIMESTAMP,
    NOTED,
    TRANSACTIONAL,
    BatchHeader,
    crc32c,
    crc_ok,
    read_header,
)
from forebay.wire.compression import EXPANSION_MAX, MAX_OUTPUT_BYTES, Codec

NO_LIMIT_MS = 2**63 - 1

_RECORD_BYTES_MIN = 7
"""The minimum size of a record: without key, value and headers."""

_RECORDS_MAX = 2**31 - 1

EXAMINED_RECORDS_MAX = 1_000_000
"""The maximum number of records of a batch whose records are examined. Clients send ten thousand or so."""

# The maximum number of bytes that one byte of a batch can unpack to, by the lowest bits of the attributes.
_EXPANSION = tuple(EXPANSION_MAX.get(codec, 1) for codec in range(CODEC_MASK + 1))  # type: ignore[call-overload]

# A data batch of any codec, transactional or not. _refuse checks all other attributes.
_PLAIN_ATTRIBUTES = frozenset(codec | flag for codec in Codec for flag in (0, TRANSACTIONAL))

_unpack = HEADER.unpack_from
_new_header = tuple.__new__
_pack_owned = Struct(">qii").pack_into


class ClosedPartition(KafkaError):
    """The partition is folded into another, which takes its batches. Clients may retry at once."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition takes no more messages; try again")


@dataclass(slots=True, frozen=True, kw_only=True)
class AppendPolicy:
    """The rules for batches in a topic's configuration; built anew when the configuration changes."""

    max_message_bytes: int = 1024 * 1024 + 12
    log_append_time: bool = False
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = 3_600_000
    codec: int | None = None
    """None keeps the producer's choice."""
    compression_level: int | None = None
    """For batches that the broker compresses; None is the codec's default."""
    compacted: bool = False
    closed: bool = False
    """The partition is folded: it takes no batches of clients, of any size."""
    max_output_bytes: int = MAX_OUTPUT_BYTES
    """Bound of a batch's records when they have to be decompressed."""
    delays: DelayPolicy | None = None
    """Which delays records may request; None where delays are not checked."""
    records_max: tuple[int, ...] = field(init=False)
    """The maximum by codec: more records could not be unpacked, or take too long to examine."""
    stores_unread: bool = field(init=False)
    """True if batches are stored as they came: no record is read and nothing is changed."""

    def __post_init__(self) -> None:
        if self.closed:
            object.__setattr__(self, "max_message_bytes", -1)  # so that `validate` needs no test for it
        looks = self.compacted or self.delays is not None
        most = EXAMINED_RECORDS_MAX if looks else _RECORDS_MAX
        most_packed = min(most, self.max_output_bytes // _RECORD_BYTES_MIN)
        records_max = tuple(most_packed if codec else most for codec in range(CODEC_MASK + 1))
        stores_unread = not (looks or self.log_append_time or self.codec is not None)
        object.__setattr__(self, "records_max", records_max)
        object.__setattr__(self, "stores_unread", stores_unread)

    def repacks(self, codec: int) -> bool:
        """True if a batch that came with this codec is stored with another."""
        return self.codec is not None and self.codec != codec

    def timestamps(self, now_ms: int) -> tuple[int, int]:
        """The earliest and the latest timestamp that a record may have, if it has one."""
        if self.log_append_time:
            return 0, NO_LIMIT_MS
        return max(now_ms - self.timestamp_before_max_ms, 0), now_ms + self.timestamp_after_max_ms


def validate(view: memoryview | None, policy: AppendPolicy, now_ms: int) -> BatchHeader:
    """The header of the single batch in the view. Raises KafkaError with the code to answer with."""
    if view is None:
        raise _too_short(b"")
    try:
        fields = _unpack(view)
    except StructError:
        raise _too_short(view) from None
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        base_time,
        max_time,
        producer_id,
        epoch,
        sequence,
        count,
    ) = fields
    size = len(view)
    if (
        length != size - LENGTH_PREFIX
        or size > policy.max_message_bytes
        or crc != crc32c(view[CRC_START:])
        or magic != MAGIC
        or base_offset
        or attributes not in _PLAIN_ATTRIBUTES
        or last_delta != count - 1
        or not 0 < count <= policy.records_max[codec := attributes & CODEC_MASK]
        or count * _RECORD_BYTES_MIN > (size - HEADER_SIZE) * _EXPANSION[codec]
        or base_time < NO_TIMESTAMP
        or max_time < NO_TIMESTAMP
        or now_ms - base_time > policy.timestamp_before_max_ms
        or base_time - now_ms > policy.timestamp_after_max_ms
        or max_time - now_ms > policy.timestamp_after_max_ms
        or (attributes & TRANSACTIONAL if producer_id < 0 else sequence < 0 or epoch < 0)
    ):
        _refuse(view, policy, now_ms)
    return _new_header(BatchHeader, fields)


def place(
    view: memoryview, header: BatchHeader, base_offset: int, partition_leader_epoch: int
) -> BatchHeader:
    """Give a validated batch its place in the log: patches it, and returns the new header."""
    patch_place(view, header, base_offset, partition_leader_epoch)
    return placed(header, base_offset, partition_leader_epoch)


def patch_place(view: memoryview, header: BatchHeader, base_offset: int, partition_leader_epoch: int) -> None:
    """Like `place`, but without a new header, which most callers do not need."""
    _pack_owned(view, 0, base_offset, header[1], partition_leader_epoch)


def placed(header: BatchHeader, base_offset: int, partition_leader_epoch: int) -> BatchHeader:
    """The header of a batch after its patch."""
    # Joining tuples is measurably faster than unpacking one into the other, and this runs for every batch.
    return _new_header(BatchHeader, (base_offset, header[1], partition_leader_epoch) + header[3:])  # noqa: RUF005


def restore(view: memoryview, header: BatchHeader) -> None:
    """Restore a batch that could not be stored to what it was when it came: it may be examined again."""
    HEADER.pack_into(view, 0, *header)


def _refuse(view: memoryview, policy: AppendPolicy, now_ms: int) -> None:
    """Raise for the first rule that is broken. Returns if the unusual batch is allowed after all."""
    if policy.closed:
        raise ClosedPartition
    header = read_header(view)
    _refuse_frame(view, header, policy)
    _refuse_content(header)
    _refuse_count(header, policy)
    _refuse_producer(header)
    _refuse_timestamps(header, policy, now_ms)


def _refuse_frame(view: memoryview, header: BatchHeader, policy: AppendPolicy) -> None:
    size = header.size
    if size < HEADER_SIZE or size > len(view):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch claims {size} bytes, {len(view)} were sent")
    if header.magic != MAGIC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {header.magic} is not taken, only {MAGIC}; use a client of Kafka 0.11 or later",
        )
    if size < len(view):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a Produce request carries exactly one batch per partition"
        )
    if size > policy.max_message_bytes:
        raise too_large(size, policy)
    if not crc_ok(view, 0, size):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match its bytes; send it again")


def _refuse_content(header: BatchHeader) -> None:
    if header.base_offset:
        raise _invalid(f"the base offset of a new batch must be 0, not {header.base_offset}")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"the batch claims {header.record_count} records, the last at delta {header.last_offset_delta}"
        )
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.attributes & DELETE_HORIZON:
        raise _invalid("only the broker may give a batch a delete horizon")
    if header.attributes & NOTED:
        raise _invalid("only the broker may bind a batch to a delay note")
    if header.codec > max(Codec):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression codec {header.codec} does not exist; use gzip, snappy, lz4, zstd or none",
        )


def _refuse_count(header: BatchHeader, policy: AppendPolicy) -> None:
    """Refuse a record count that no such batch can have."""
    payload_bytes = header.size - HEADER_SIZE
    if header.record_count * _RECORD_BYTES_MIN > payload_bytes * _EXPANSION[header.codec]:
        raise _invalid(f"{header.record_count} records do not fit into {payload_bytes} bytes")
    records_max = policy.records_max[header.codec]
    if header.record_count > records_max:
        raise _invalid(
            f"the batch claims {header.record_count} records; this topic takes at most {records_max} in one "
            "batch, send smaller ones"
        )


def _refuse_producer(header: BatchHeader) -> None:
    if header.producer_id < 0:
        if header.is_transactional:
            raise _invalid("a transactional batch needs a producer id")
    elif header.base_sequence < 0 or header.producer_epoch < 0:
        sent = f"epoch {header.producer_epoch} and sequence {header.base_sequence}"
        raise _invalid(f"producer {header.producer_id} sent {sent}; neither may be negative")


def _refuse_timestamps(header: BatchHeader, policy: AppendPolicy, now_ms: int) -> None:
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may mark a batch as LogAppendTime")
    earliest, latest = policy.timestamps(now_ms)
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, out_of_range(timestamp, earliest, latest))


def out_of_range(timestamp: int, earliest: int, latest: int) -> str:
    return (
        f"timestamp {timestamp} is outside of {earliest} to {latest}; check the producer's clock, or change "
        "message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic"
    )


def _too_short(view: bytes | memoryview) -> KafkaError:
    if not view:
        return _invalid("a Produce request carries exactly one batch per partition, not none")
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{len(view)} bytes are no batch; its header takes {HEADER_SIZE}"
    )


def too_large(size: int, policy: AppendPolicy) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes is larger than max.message.bytes={policy.max_message_bytes} of the topic; "
        "raise it or send smaller batches",
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
