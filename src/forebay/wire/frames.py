"""Requests and responses with their headers, as they cross a connection.

A frame is a length of four bytes and that many more. A request's header has tagged fields from the API's
first flexible version on, a response's likewise, with one exception: the ApiVersions response never has them,
because its reader does not know the broker's versions yet. The client id stays an ordinary string in every
version for the same reason. So the header of a request can be read even if its API or version is unknown.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from struct import Struct as Packing
from struct import error as struct_error
from typing import TypeVar

from forebay.errors import ProtocolError
from forebay.wire.api_keys import ApiKey
from forebay.wire.codec.compiled import appender, decode, stepwise_appender
from forebay.wire.codec.encoding import Encoder
from forebay.wire.codec.layout import skip_tags
from forebay.wire.fields import Request, Response
from forebay.wire.messages import flexible_from
from forebay.wire.parts import Part, join, size_of

R = TypeVar("R", bound=Response)


_LENGTH = Packing(">i")
_REQUEST_HEADER = Packing(">hhih")
_REQUEST_START = Packing(">ihhih")
_RESPONSE_START = Packing(">ii")


class RequestHeader:
    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version},"
            f" correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> RequestHeader:
    header = RequestHeader()
    header.api_key, header.api_version = api_key, api_version
    header.correlation_id, header.client_id = correlation_id, client_id
    return header


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request, given without its length, and the position of the body."""
    header = RequestHeader()
    try:
        header.api_key, header.api_version, header.correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = _REQUEST_HEADER.size
        if length >= 0:
            header.client_id = str(frame[position : position + length], "utf-8")
            position += length
        elif length == -1:
            header.client_id = None
        else:
            raise ProtocolError(f"request header: the client id has the length {length}")
        if header.api_version >= flexible_from(header.api_key):
            position = _skip_tags(frame, position)
    except (struct_error, IndexError, UnicodeDecodeError) as problem:
        raise ProtocolError(f"request header: {problem}") from None
    if position > len(frame):
        raise ProtocolError("request header: cut short")
    return header, position


def response_frame(api_key: int, api_version: int, correlation_id: int, response: Response) -> list[Part]:
    """A response ready to send, length first."""
    assert api_key == response.API_KEY
    append, tags = _response_form(type(response), api_version)
    out = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if tags:
        out.append(0)
    return _frame(append, response, out)


class EncodedResponse:
    """A response that is encoded once, for the many clients that get the same one."""

    __slots__ = ("_frame",)

    def __init__(self, api_version: int, response: Response) -> None:
        self._frame = join(response_frame(response.API_KEY, api_version, 0, response))

    def frame(self, correlation_id: int) -> bytearray:
        """The frame ready to send, length first."""
        frame = bytearray(self._frame)
        _LENGTH.pack_into(frame, _LENGTH.size, correlation_id)
        return frame


def response_steps(
    api_key: int, api_version: int, correlation_id: int, response: Response
) -> Generator[None, None, list[Part]]:
    """`response_frame` in steps, for a response with many elements."""
    assert api_key == response.API_KEY
    append, tags = (
        stepwise_appender(type(response), api_version),
        _has_response_tags(type(response), api_version),
    )
    out = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if tags:
        out.append(0)
    parts: list[Part] = []
    last = yield from append(response, out, parts)
    return _measured(out, last, parts)


def request_frame(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Part]:
    """A request ready to send, length first."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    out = bytearray(_REQUEST_START.pack(0, request.API_KEY, version, correlation_id, length))
    out += name
    if version >= request.FLEXIBLE_FROM:
        out.append(0)
    return _frame(appender(type(request), version), request, out)


def read_response(cls: type[R], version: int, frame: memoryview) -> tuple[int, R]:
    """The correlation id and the value of a response, given without its length."""
    try:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        position = _LENGTH.size
        if _has_response_tags(cls, version):
            position = _skip_tags(frame, position)
    except (struct_error, IndexError) as problem:
        raise ProtocolError(f"response header: {problem}") from None
    if position > len(frame):
        raise ProtocolError("response header: cut short")
    return correlation_id, decode(cls, version, frame[position:])


def _frame(append: Encoder, message: Request | Response, out: bytearray) -> list[Part]:
    """Adds the message to its header and prepends the length of everything."""
    parts: list[Part] = []
    return _measured(out, append(message, out, parts), parts)


def _measured(out: bytearray, last: bytearray, parts: list[Part]) -> list[Part]:
    """`out`: where the frame begins; `last`: where it ends."""
    if last or not parts:
        parts.append(last)
    size = len(out) if len(parts) == 1 else size_of(parts)
    _LENGTH.pack_into(out, 0, size - _LENGTH.size)
    return parts


@cache
def _response_form(cls: type[Response], version: int) -> tuple[Encoder, bool]:
    return appender(cls, version), _has_response_tags(cls, version)


def _has_response_tags(cls: type[Response], version: int) -> bool:
    return version >= cls.FLEXIBLE_FROM and cls.API_KEY != ApiKey.API_VERSIONS


def _skip_tags(frame: memoryview, position: int) -> int:
    count = frame[position]  # its first byte, which is all of it in every header that clients send
    return skip_tags(frame, count, position + 1) if count else position + 1
