"""Messages that are due, as the batch that consumers get, and the note that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.wire.batch import (
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NOTED,
    BatchHeader,
    assemble,
)
from forebay.wire.compression import compress
from forebay.wire.records import Record, parse_records
from forebay.wire.state.delay_notes import NoMore, Waiting, build_note
from forebay.wire.varint import write_varint

SCHEDULED_AT: Final = "forebay-scheduled-at"
"""Header of a delivered message: when the broker received it, in milliseconds since 1970."""
SCHEDULE_ID: Final = "forebay-schedule-id"
"""Header of a delivered message: its partition, and the offset that its producer was given."""


def fired_batch(
    messages: Sequence[Waiting],
    *,
    partition: int,
    now_ms: int,
    log_append_time: bool = False,
    codec: int,
    compression_level: int | None = None,
) -> bytearray:
    """A batch of these messages, in their order. Their timestamps are their due times."""
    times = [min(message.due_ms, now_ms) for message in messages]
    base_ms = times[0]
    payload = bytearray()
    id_start = _header_start(SCHEDULE_ID)
    for number, message in enumerate(messages):
        head = bytearray(1)  # the record's attributes: no bit of them is in use
        write_varint(head, times[number] - base_ms)
        write_varint(head, number)
        head += message.body
        head += id_start
        id_ = b"%d-%d" % (partition, message.id)
        write_varint(head, len(id_))
        head += id_
        write_varint(payload, len(head))
        payload += head
    attributes = codec | NOTED | (LOG_APPEND_TIME if log_append_time else 0)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(messages) - 1,
        base_timestamp=base_ms,
        max_timestamp=now_ms if log_append_time else max(times),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=len(messages),
    )
    return assemble(header, compress(codec, payload, compression_level))


def fired_note(messages: Sequence[Waiting], now_ms: int) -> bytearray:
    """The note that these messages are in the batch after it."""
    return build_note([NoMore(tuple(message.id for message in messages))], bound=True, timestamp=now_ms)


def as_record(message: Waiting, partition: int) -> Record:
    """A waiting message as the record that will be delivered."""
    payload = bytearray(1)
    write_varint(payload, 0)
    write_varint(payload, 0)
    payload += message.body + _header_start(SCHEDULE_ID)
    id_ = b"%d-%d" % (partition, message.id)
    write_varint(payload, len(id_))
    payload += id_
    out = bytearray()
    write_varint(out, len(payload))
    return next(parse_records(bytes(out + payload), 1, message.id, message.due_ms))


def _header_start(key: str) -> bytes:
    out = bytearray()
    name = key.encode()
    write_varint(out, len(name))
    return bytes(out + name)
