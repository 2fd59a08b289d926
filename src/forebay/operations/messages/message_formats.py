r"""Formats messages as lines: by a format string such as '%p %o %k %v\n', or as JSON.

Messages are bytes. A format string writes them unchanged; JSON must be text, so a key or value that is not
UTF-8 appears in base64 under a name that says so.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from forebay.operations.client import CommandError

if TYPE_CHECKING:
    from confluent_kafka import Message


class Line(NamedTuple):
    """A message as the commands show it, wherever it came from."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """-1 when the message has none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int | None = None
    """How often a share group has delivered it so far; None outside share groups."""


Writer = Callable[[Line], bytes]

_TOKENS: dict[str, Writer] = {
    "t": lambda line: line.topic.encode(),
    "p": lambda line: b"%d" % line.partition,
    "o": lambda line: b"%d" % line.offset,
    "k": lambda line: line.key or b"",
    "v": lambda line: line.value or b"",
    "h": lambda line: b",".join(name.encode() + b"=" + (value or b"") for name, value in line.headers),
    "T": lambda line: b"%d" % line.timestamp_ms,
    "D": lambda line: iso_time(line.timestamp_ms).encode(),
    "S": lambda line: b"%d" % (-1 if line.value is None else len(line.value)),
    "c": lambda line: b"" if line.delivery_count is None else b"%d" % line.delivery_count,
    "%": lambda _line: b"%",
}
TOKEN_HELP = (
    "%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp in ms, "
    r"%D the same as a date, %S size of the value, %c delivery count in a share group, %% a percent sign; "
    r"\n \t \r \0 \xHH as usual"
)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(
    r"%(?P<token>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL
)


def compile_format(text: str) -> Writer:
    """A function that writes one message; an unknown sign is refused now, not at the first message."""
    pieces = [_piece(match) for match in _PIECE.finditer(text)]
    return lambda line: b"".join(piece if isinstance(piece, bytes) else piece(line) for piece in pieces)


def _piece(match: re.Match[str]) -> bytes | Writer:
    if match["text"] is not None:
        return match["text"].encode()
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"])
    if match["token"] is not None and match["token"] in _TOKENS:
        return _TOKENS[match["token"]]
    if match["escape"] is not None and match["escape"] in _ESCAPES:
        return _ESCAPES[match["escape"]]
    raise CommandError(f"the format has no {match[0]!r}: it knows {TOKEN_HELP}")


def json_line(line: Line) -> bytes:
    """One JSON object on one line."""
    value: dict[str, Any] = {
        "topic": line.topic,
        "partition": line.partition,
        "offset": line.offset,
        "timestamp": line.timestamp_ms,
        **json_bytes("key", line.key),
        **json_bytes("value", line.value),
        "headers": json_headers(line.headers),
    }
    if line.delivery_count is not None:
        value["delivery_count"] = line.delivery_count
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def json_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, Any]]:
    """A list, not an object: a header may occur twice, and the order is significant."""
    return [{"name": name, **json_bytes("value", value)} for name, value in headers]


def json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def iso_time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_of(message: Message) -> Line:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, timestamp_ms = message.timestamp()
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Line(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
        delivery_count=message.delivery_count(),
    )
