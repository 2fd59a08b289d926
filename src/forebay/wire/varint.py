"""Zigzag varints, the integers inside a record.

Seven bits a byte, lowest first; the sign sits in the lowest bit so that small negative numbers stay short. A
varint that does not end, or that has more bits than its field, raises ProtocolError.
"""

from __future__ import annotations

from forebay.errors import ProtocolError

Bytes = bytes | bytearray | memoryview


def read_varint(data: Bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """The signed value at a position, and the position after it. IndexError where the data ends."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    raw = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift >= bits:
            raise ProtocolError(f"varint is longer than {bits} bits")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    if raw >> bits:
        raise ProtocolError(f"varint is larger than {bits} bits")
    return (raw >> 1) ^ -(raw & 1), position


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value of at most 64 bits."""
    raw = (value << 1) if value >= 0 else ((-value << 1) - 1)
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
