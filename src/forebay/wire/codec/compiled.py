"""Converts values to bytes and back.

`decoder` and `encoder` return the compiled functions for a message class and a version; they are compiled on
first use, from the declaration, and cached. `decode` and `encode` are for code that is not on a hot path.
Whatever is wrong with the bytes, decoding raises ProtocolError and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from forebay.errors import ProtocolError
from forebay.wire.codec.decoding import (
    BoundedDecoder,
    Decoder,
    StepwiseDecoder,
    compile_bounded,
    compile_decoder,
    compile_stepwise,
)
from forebay.wire.codec.encoding import Encoder, StepwiseEncoder, compile_encoder, compile_stepwise_encoder
from forebay.wire.fields import Message
from forebay.wire.parts import FileRange, Part

M = TypeVar("M", bound=Message)


@cache
def decoder(cls: type[Message], version: int) -> Decoder:
    """The function (view, position) -> (value, position after it); it does not check what follows."""
    return compile_decoder(cls, version)


@cache
def bounded_decoder(cls: type[Message], version: int) -> BoundedDecoder:
    """Like `decoder`: (view, position, maximum of elements) -> the same; raises TooManyElements."""
    return compile_bounded(cls, version)


@cache
def stepwise_decoder(cls: type[Message], version: int) -> StepwiseDecoder:
    """Like `bounded_decoder`, in steps, for requests with many elements."""
    return compile_stepwise(cls, version)


@cache
def stepwise_appender(cls: type[Message], version: int) -> StepwiseEncoder:
    """Like `appender`, in steps, for responses with many elements."""
    return compile_stepwise_encoder(cls, version)


@cache
def appender(cls: type[Message], version: int) -> Encoder:
    """The function (value, buffer, parts) -> buffer that adds a value to a frame under construction."""
    return compile_encoder(cls, version)


@cache
def encoder(cls: type[Message], version: int) -> Callable[[Any], list[Part]]:
    """The function value -> parts."""
    append = appender(cls, version)

    def encode_parts(value: Any) -> list[Part]:
        parts: list[Part] = []
        out = append(value, bytearray(), parts)
        if out:
            parts.append(out)
        return parts

    return encode_parts


def decode(cls: type[M], version: int, data: bytes | bytearray | memoryview) -> M:
    """Decode the value; it must take up all of the data."""
    view = memoryview(data)
    value, position = decoder(cls, version)(view, 0)
    if position != len(view):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(view) - position} bytes follow the message")
    decoded: M = value
    return decoded


def encode(value: Message, version: int) -> bytes:
    """The value in one piece; records must be in memory."""
    parts = encoder(type(value), version)(value)
    memory = [part for part in parts if not isinstance(part, FileRange)]
    if len(memory) != len(parts):
        raise ValueError(f"{type(value).__name__} has records in a file; encode it to parts")
    return b"".join(memory)
