"""Whether a client's batch may be appended: every rule that needs the header, and none that needs the
records.

`validate` is on the path of every Produce request, so its good case is one straight line: unpack the
header, test all rules at once, compare the CRC. Only when something is wrong does `_refuse` go through the
rules again, one by one in Kafka's order, to find the code to answer with and a sentence that says what to
do.

The one rule that does need the records, that a compacted topic takes no record without a key, is paid for
by compacted topics alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    crc32c,
    crc_ok,
    patch_append_time,
    read_header,
    recompress,
    records,
)
from forebay.wire.compression import MAX_OUTPUT_BYTES, Codec

NO_LIMIT_MS = 2**63 - 1

_RECORD_BYTES_MIN = 7
"""A record without key, value and headers still takes this much."""

# A data batch of any codec, transactional or not. Anything else in the attributes is looked at by _refuse.
_PLAIN_ATTRIBUTES = frozenset(codec | flag for codec in Codec for flag in (0, TRANSACTIONAL))

_unpack = HEADER.unpack_from
_new_header = tuple.__new__
_pack_owned = Struct(">qii").pack_into


@dataclass(slots=True, frozen=True, kw_only=True)
class AppendPolicy:
    """What a topic's configuration says about batches; made anew when the configuration changes."""

    max_message_bytes: int = 1024 * 1024 + 12
    log_append_time: bool = False
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = 3_600_000
    codec: int | None = None
    """None keeps the producer's choice."""
    compression_level: int | None = None
    """For batches that the broker compresses; None is the codec's default."""
    compacted: bool = False
    max_output_bytes: int = MAX_OUTPUT_BYTES
    """Bound of a batch's records when they have to be decompressed."""

    @property
    def rewrites(self) -> bool:
        """Whether batches of this topic may have to be changed before they are stored."""
        return self.log_append_time or self.codec is not None


def validate(view: memoryview | None, policy: AppendPolicy, now_ms: int) -> BatchHeader:
    """The header of the one batch that the view must be, or a KafkaError with the code to answer with."""
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
        or count < 1
        or (count * _RECORD_BYTES_MIN > size - HEADER_SIZE and not attributes & CODEC_MASK)
        or now_ms - base_time > policy.timestamp_before_max_ms
        or max_time - now_ms > policy.timestamp_after_max_ms
        or (attributes & TRANSACTIONAL if producer_id < 0 else sequence < 0 or epoch < 0)
    ):
        _refuse(view, policy, now_ms)
    if policy.compacted:
        _require_keys(view, policy)
    return _new_header(BatchHeader, fields)


def place(
    view: memoryview, header: BatchHeader, base_offset: int, partition_leader_epoch: int
) -> BatchHeader:
    """Give a validated batch its place in the log: patched in place, and the header that goes with it."""
    patch_place(view, header, base_offset, partition_leader_epoch)
    return placed(header, base_offset, partition_leader_epoch)


def patch_place(view: memoryview, header: BatchHeader, base_offset: int, partition_leader_epoch: int) -> None:
    """Only the patch, for batches whose header nobody asks for any more: that is most of them."""
    _pack_owned(view, 0, base_offset, header[1], partition_leader_epoch)


def placed(header: BatchHeader, base_offset: int, partition_leader_epoch: int) -> BatchHeader:
    """The header of a batch after its patch."""
    # Joining tuples is measurably faster than unpacking one into the other, and this runs for every batch.
    return _new_header(BatchHeader, (base_offset, header[1], partition_leader_epoch) + header[3:])  # noqa: RUF005


def restore(view: memoryview, header: BatchHeader) -> None:
    """Make a batch that could not be stored what it was when it came: it may be looked at again."""
    HEADER.pack_into(view, 0, *header)


def rewrite(
    view: memoryview, header: BatchHeader, policy: AppendPolicy, now_ms: int
) -> tuple[memoryview, BatchHeader]:
    """What a policy that `rewrites` stores in place of the batch: under its codec, at the broker's time."""
    if policy.codec is not None and policy.codec != header.codec:
        view = _recompressed(view, policy)
    if policy.log_append_time:
        patch_append_time(view, 0, now_ms)
    return view, read_header(view)


def _recompressed(view: memoryview, policy: AppendPolicy) -> memoryview:
    assert policy.codec is not None
    try:
        made = recompress(view, policy.codec, policy.max_output_bytes, policy.compression_level)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    if len(made) > policy.max_message_bytes:
        raise _too_large(len(made), policy)
    return memoryview(made)


def _require_keys(view: memoryview, policy: AppendPolicy) -> None:
    try:
        keyless = sum(record.key is None for record in records(view, policy.max_output_bytes))
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    if keyless:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{keyless} records have no key, which a compacted topic needs; send a key with every record",
        )


def _refuse(view: memoryview, policy: AppendPolicy, now_ms: int) -> None:
    """Raise for the first rule that is broken. Returns when what looked odd is allowed after all."""
    header = read_header(view)
    _refuse_frame(view, header, policy)
    _refuse_content(header)
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
        raise _too_large(size, policy)
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
    if header.codec > max(Codec):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression codec {header.codec} does not exist; use gzip, snappy, lz4, zstd or none",
        )
    if not header.codec and header.record_count * _RECORD_BYTES_MIN > header.size - HEADER_SIZE:
        raise _invalid(f"{header.record_count} records do not fit into {header.size} bytes")


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
    if policy.log_append_time:
        return
    earliest, latest = now_ms - policy.timestamp_before_max_ms, now_ms + policy.timestamp_after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is outside of {earliest} to {latest}; check the producer's clock, "
                "or change message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic",
            )


def _too_short(view: bytes | memoryview) -> KafkaError:
    if not view:
        return _invalid("a Produce request carries exactly one batch per partition, not none")
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{len(view)} bytes are no batch; its header takes {HEADER_SIZE}"
    )


def _too_large(size: int, policy: AppendPolicy) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes is larger than max.message.bytes={policy.max_message_bytes} of the topic; "
        "raise it or send smaller batches",
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
