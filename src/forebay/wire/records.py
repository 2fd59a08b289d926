"""The records inside a batch: parsed one by one on demand, or written.

The broker's data path does not use this; compacted topics, views, delays, timestamp lookups and the command
line do. A record states its own length, and every field must lie within it: malformed bytes of any kind raise
ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forebay.errors import ProtocolError
from forebay.wire.varint import read_varint, write_varint

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


def parse_records(payload: bytes, count: int, base_offset: int, base_timestamp: int) -> Iterator[Record]:
    """Exactly `count` records, which must fill the payload exactly."""
    position = 0
    for _ in range(count):
        try:
            record, position = _parse_record(payload, position, base_offset, base_timestamp)
        except IndexError:
            raise ProtocolError("record runs past the end of its batch") from None
        yield record
    if position != len(payload):
        raise ProtocolError(f"{len(payload) - position} bytes left over after the {count} records of a batch")


def _parse_record(data: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"record of {length} bytes does not fit in its batch")
    position += 1  # the record's attributes: no bit of them is in use
    timestamp_delta, position = read_varint(data, position, 64)
    offset_delta, position = read_varint(data, position)
    key, position = _parse_bytes(data, position, end)
    value, position = _parse_bytes(data, position, end)
    headers, position = parse_headers(data, position, end)
    if position != end:
        raise ProtocolError("record's length does not match its fields")
    return Record(base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, headers), position


def _parse_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise ProtocolError(f"field of {length} bytes does not fit in its record")
    return data[position:stop], stop


def parse_headers(data: bytes, position: int, end: int) -> tuple[Sequence[Header], int]:
    """The headers of a record that ends at `end`, from the position of their number."""
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    # A header takes at least two bytes, so a false count cannot cause a long loop.
    if not 0 < count <= (end - position) // 2:
        raise ProtocolError(f"record cannot hold {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _parse_bytes(data, position, end)
        value, position = _parse_bytes(data, position, end)
        headers.append((_header_key(key), value))
    return headers, position


def _header_key(key: bytes | None) -> str:
    if key is None:
        raise ProtocolError("record header without a key")
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise ProtocolError("record header key is not UTF-8") from None


def write_record(out: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    body = bytearray(1)
    write_varint(body, record.timestamp - base_timestamp)
    write_varint(body, record.offset - base_offset)
    write_bytes(body, record.key)
    write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        write_header(body, key, value)
    write_varint(out, len(body))
    out += body


def write_header(out: bytearray, key: str, value: bytes | None) -> None:
    write_bytes(out, key.encode())
    write_bytes(out, value)


def write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # the varint of -1
        return
    write_varint(out, len(value))
    out += value
