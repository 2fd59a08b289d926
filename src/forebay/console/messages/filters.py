"""Filters of messages: by text, a key, a header, or a condition in SQL as views have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.console.messages.masking import Mask
from forebay.console.web.asking import WrongInput
from forebay.core.views.filtering import filter_batches
from forebay.core.views.view import CompiledView, ViewError, compile_view
from forebay.errors import ProtocolError
from forebay.wire.batch import records
from forebay.wire.records import Record

_UNPACKED_BYTES_MAX = 64 << 20
_NO_END = 2**63 - 1


class Filter(NamedTuple):
    text: bytes = b""
    """In the key, the value, or the name or value of a header; without regard to ASCII case."""
    key: bytes | None = None
    """The whole key."""
    header: str = ""
    header_value: bytes | None = None
    view: CompiledView | None = None
    mask: Mask | None = None
    """Applied before anything else sees a message."""

    @property
    def is_empty(self) -> bool:
        return self._replace(mask=None) == Filter()

    def matching(self, batch: memoryview, topic: str, partition: int, now_ms: int) -> Iterator[Record]:
        """The messages of a batch that match. A batch that cannot be unpacked has none."""
        try:
            if self.view is not None:
                filtered = filter_batches(
                    self.view,
                    batch,
                    0,
                    _NO_END,
                    topic=topic,
                    partition=partition,
                    now_ms=now_ms,
                    decompress_max_bytes=_UNPACKED_BYTES_MAX,
                )
                if not filtered.delivered:
                    return
                batch = memoryview(filtered.data)
            for record in records(batch, _UNPACKED_BYTES_MAX):
                shown = record if self.mask is None else self.mask(record)
                if self._matches(shown):
                    yield shown
        except ProtocolError:
            return

    def _matches(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        if self.header and not any(
            name == self.header and self.header_value in (None, value) for name, value in record.headers
        ):
            return False
        return not self.text or self._has_text(record)

    def _has_text(self, record: Record) -> bool:
        text = self.text
        if record.value is not None and text in record.value.lower():
            return True
        if record.key is not None and text in record.key.lower():
            return True
        return any(
            text in name.lower().encode() or text in (value or b"").lower() for name, value in record.headers
        )


def make_filter(
    *, text: str = "", key: str = "", header: str = "", where: str = "", mask: Mask | None = None
) -> Filter:
    """`header` is NAME or NAME=VALUE. Raises WrongInput."""
    if mask is not None and where.strip():
        raise WrongInput("conditions are for users who may see all fields: this console masks some", "where")
    name, equals, value = header.partition("=")
    return Filter(
        text=text.lower().encode(),
        key=key.encode() if key else None,
        header=name.strip(),
        header_value=value.encode() if equals else None,
        view=_compiled(where) if where.strip() else None,
        mask=mask,
    )


def _compiled(where: str) -> CompiledView:
    try:
        return compile_view(where, None)
    except ViewError as error:
        raise WrongInput(error.message, "where") from None
