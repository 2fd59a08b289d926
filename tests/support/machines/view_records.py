"""Records through a view, without a broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from forebay.core.views.filtering import Filtered, filter_batches
from forebay.core.views.view import CompiledView, compile_view
from forebay.wire.batch import build_batch, crc_ok, records, split
from forebay.wire.compression import MAX_OUTPUT_BYTES
from forebay.wire.records import Header, Record

NOW_MS = 1_700_000_000_000


def record(
    value: Any = None,
    *,
    key: bytes | None = b"k",
    headers: Sequence[Header] = (),
    offset: int = 0,
    timestamp: int = NOW_MS,
) -> Record:
    """A record of a document, or of bytes as they are; None is a tombstone."""
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return Record(offset, timestamp, key, data, headers)


def filtered(view: CompiledView, data: bytes, first_offset: int = 0, end_offset: int = 2**62) -> Filtered:
    return filter_batches(
        view,
        memoryview(data),
        first_offset,
        end_offset,
        topic="orders",
        partition=3,
        now_ms=NOW_MS,
        decompress_max_bytes=MAX_OUTPUT_BYTES,
    )


def records_of(data: bytes) -> list[Record]:
    """The records of all batches that are not control batches; their checksums must be good."""
    found: list[Record] = []
    for position, header in split(data):
        assert crc_ok(data, position, header.size)
        if not header.is_control and header.record_count:
            found += records(data[position : position + header.size])
    return found


def lets_through(where: str, one: Record, **options: Any) -> bool:
    """Whether a view delivers a record."""
    view = compile_view(where, None, **options)
    shown = filtered(view, bytes(build_batch([one], base_offset=one.offset)), one.offset)
    assert records_of(shown.data) == ([one] if shown.delivered else [])
    return bool(shown.delivered)


def truth(where: str, one: Record) -> bool | None:
    """What a condition says of a record: true, false or unknown."""
    if lets_through(where, one):
        return True
    if lets_through(f"NOT ({where})", one):
        return False
    assert lets_through(f"(({where}) AND TRUE) IS NULL", one)
    return None
