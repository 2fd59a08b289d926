"""Keys and values of internal topics: a version in two bytes, then the message in that version.

As in Kafka, the version of a key also identifies the kind of record, so a reader looks at the version first.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from forebay.errors import ProtocolError
from forebay.wire.codec.compiled import appender, decode
from forebay.wire.fields import Message

M = TypeVar("M", bound=Message)

_VERSION = Struct(">h")


def pack(message: Message, version: int) -> bytes:
    """The bytes of a key or value."""
    return bytes(appender(type(message), version)(message, bytearray(_VERSION.pack(version)), []))


def version_of(data: bytes) -> int:
    """The version that a key or value begins with."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a key or value of an internal topic has only {len(data)} bytes")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def unpack(cls: type[M], data: bytes) -> M:
    """The message in a key or value, in whichever version it was written."""
    return decode(cls, version_of(data), memoryview(data)[_VERSION.size :])
