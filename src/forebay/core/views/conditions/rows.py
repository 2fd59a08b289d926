"""One record at a time, as expressions see it: its fields are read from the batch when they are used.

Keys and headers are text, with invalid UTF-8 replaced. A value is a JSON document; invalid JSON raises
InvalidDocument when it is used, and a document that is too large raises TooMuchWork.
"""

from __future__ import annotations

from orjson import JSONDecodeError, loads

from forebay.core.views.conditions.limits import TooMuchWork, check_elements
from forebay.core.views.conditions.values import Value
from forebay.errors import ProtocolError
from forebay.wire.batch import BatchHeader
from forebay.wire.record_spans import RecordSpan
from forebay.wire.varint import read_varint

InvalidDocument = JSONDecodeError

_UNREAD = object()


class Scope:
    """The context that is the same for all records of a partition that are examined together."""

    __slots__ = ("now_ms", "partition", "topic")  # fmt: skip

    def __init__(self, topic: str, partition: int, now_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.now_ms = now_ms


class Row(Scope):
    """A record of a batch. One Row is moved from record to record of a batch."""

    __slots__ = ("_document", "_elements_max", "_header", "_headers", "_payload", "_span")  # fmt: skip

    def __init__(self, scope: Scope, payload: bytes, header: BatchHeader, elements_max: int) -> None:
        super().__init__(scope.topic, scope.partition, scope.now_ms)
        self._payload = payload
        self._header = header
        self._elements_max = elements_max

    def move_to(self, span: RecordSpan) -> None:
        self._span = span
        self._document: Value = _UNREAD
        self._headers: dict[str, str | None] | None = None

    @property
    def offset(self) -> int:
        return self._header.base_offset + self._span.offset_delta

    @property
    def timestamp(self) -> int:
        header = self._header
        if header.is_log_append_time:
            return header.max_timestamp
        return header.base_timestamp + self._span.timestamp_delta

    def key(self) -> str | None:
        key = self._span.key
        return None if key is None else _text(key)

    def document(self) -> Value:
        document = self._document
        if document is _UNREAD:
            document = self._document = self._read_document(self._span)
        return document

    def _read_document(self, span: RecordSpan) -> Value:
        if not span.has_value:
            return None
        value = self._payload[span.value_at : span.headers_at]
        if len(value) > self._elements_max:
            check_elements(value, self._elements_max)
        return loads(value)

    def header(self, name: str) -> str | None:
        """The last header of that name."""
        if self._headers is None:
            try:
                self._headers = _read_headers(self._payload, self._span, self._elements_max)
            except IndexError:
                raise ProtocolError("record runs past the end of its batch") from None
        return self._headers.get(name)


def _read_headers(payload: bytes, span: RecordSpan, count_max: int) -> dict[str, str | None]:
    headers: dict[str, str | None] = {}
    end = span.end
    count, position = read_varint(payload, span.headers_at)
    # A header takes at least two bytes, so a false count cannot cause a long loop.
    if not 0 <= count <= (end - position) // 2:
        raise ProtocolError(f"record cannot hold {count} headers")
    if count > count_max:
        raise TooMuchWork
    for _ in range(count):
        length, name_at = read_varint(payload, position)
        if length < 0:
            raise ProtocolError("record header without a key")
        name_end = name_at + length
        length, value_at = read_varint(payload, name_end)
        position = value_at + max(length, 0)
        if position > end:
            raise ProtocolError("record's headers do not fit in its length")
        headers[_text(payload[name_at:name_end])] = _text(payload[value_at:position]) if length >= 0 else None
    return headers


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
