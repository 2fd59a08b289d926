"""Messages as pages show them: text or hex, and never more of it than was asked for."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from typing import Any

import orjson

from forebay.wire.records import Record

PREVIEW_BYTES = 1_000
"""Of a key, a value or a header in a list."""
WHOLE_BYTES_MAX = 1 << 20
"""Of a key or a value that is shown alone. More can be downloaded."""
HEADERS_MAX = 50
_HEX_BYTES_MAX = 4096
_JSON_BYTES_MAX = 1 << 20
_ODD_JSON_BYTES_MAX = 1 << 14
_NOT_TEXT = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]")
_JSON_STARTS = b'{["-0123456789tfn'
_SCHEMA_FRAME_BYTES = 5


Decode = Callable[[bytes], str | None]
"""The JSON of a value that a registry describes; None for others."""


def shown_record(
    partition: int, record: Record, limit: int = PREVIEW_BYTES, decode: Decode | None = None
) -> dict[str, Any]:
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown_bytes(record.key, limit, decode),
        "value": shown_bytes(record.value, limit, decode),
        "headers": [[name, shown_bytes(value, limit)] for name, value in record.headers[:HEADERS_MAX]],
        "header_count": len(record.headers),
        "size": size,
    }


def shown_bytes(
    data: bytes | None, limit: int = PREVIEW_BYTES, decode: Decode | None = None
) -> dict[str, Any]:
    """`kind`: null, empty, json, text or hex; `cut`: true if there is more than is shown."""
    if data is None:
        return {"kind": "null", "text": "", "size": 0, "cut": False}
    if not data:
        return {"kind": "empty", "text": "", "size": 0, "cut": False}
    text = _text(data[:limit], whole=len(data) <= limit)
    if text is None:
        shown = data[: min(limit, _HEX_BYTES_MAX)]
        found = {"kind": "hex", "text": shown.hex(), "size": len(data), "cut": len(shown) < len(data)}
        if data[0] == 0 and len(data) > _SCHEMA_FRAME_BYTES:
            found["schema_id"] = int.from_bytes(data[1:_SCHEMA_FRAME_BYTES], "big")
            if decode is not None and (decoded := decode(data)) is not None:
                found |= {"kind": "json", "text": decoded[:limit], "cut": len(decoded) > limit}
        return found
    kind = "json" if _is_json(data) else "text"
    return {"kind": kind, "text": text, "size": len(data), "cut": len(data) > limit}


def _text(data: bytes, *, whole: bool) -> str | None:
    """The text, or None if it is not UTF-8. A cut one may end within a character."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError:
        return None
    return None if _NOT_TEXT.search(text) else text


def _is_json(data: bytes) -> bool:
    stripped = data[:64].lstrip()
    if not stripped or stripped[0] not in _JSON_STARTS:
        return False
    if len(data) > _JSON_BYTES_MAX:
        return stripped[:1] in (b"{", b"[")  # not worth reading all of it
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return len(data) <= _ODD_JSON_BYTES_MAX and _is_odd_json(data)
    return True


def _is_odd_json(data: bytes) -> bool:
    """JSON with longer numbers than most programs take."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
