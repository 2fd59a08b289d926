"""The messages between a served store and its clients.

A message is a length (four bytes) and JSON. A request is `[id, kind, arguments]`, an answer
`[id, is last, content]` or, for an error, `[id, kind, text]`. An answer may come in several messages; only a
range does, whose keys may be many. The server sends one message that nobody asked for: `[0, lease, ""]`, when
a lease has ended.

Values are bytes. They are written as text of the same code points (latin-1): most of them are JSON, which
stays readable that way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from struct import Struct
from typing import Any

from forebay.coordination.store import (
    Compacted,
    Compare,
    Delete,
    Event,
    EventKind,
    KeyValue,
    LeaseLost,
    Put,
    StoreClosed,
    StoreError,
    Target,
)

MESSAGE_BYTES_MAX = 64 << 20
"""Far above the largest: a page of keys, the events of one watch, or a transaction."""
UNASKED = 0
"""In place of the id of a request."""

_LENGTH = Struct(">I")
_COMPACTED, _LEASE_LOST, _CLOSED, _FAILED = "compacted", "lease lost", "closed", "failed"
_ERRORS: dict[str, type[StoreError]] = {
    _COMPACTED: Compacted,
    _LEASE_LOST: LeaseLost,
    _CLOSED: StoreError,  # not by the process that asks
    _FAILED: StoreError,
}
_KINDS: dict[type[Exception], str] = {
    Compacted: _COMPACTED,
    LeaseLost: _LEASE_LOST,
    StoreClosed: _CLOSED,
}

Message = list[Any]


def frame(message: Message) -> bytes:
    text = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None at the end. Raises StoreError for what is none."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MESSAGE_BYTES_MAX:
            raise StoreError(f"a message of {length} bytes from the store's socket, {MESSAGE_BYTES_MAX} fit")
        message = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    assert isinstance(message, list)
    return message


# -- parts of messages ---------------------------------------------------------------------------------


def put_item(item: KeyValue) -> Message:
    return [item.key, _text(item.value), item.create_revision, item.mod_revision, item.lease]


def take_item(part: Message) -> KeyValue:
    key, value, create_revision, mod_revision, lease = part
    return KeyValue(
        key=key,
        value=_bytes(value),
        create_revision=create_revision,
        mod_revision=mod_revision,
        lease=lease,
    )


def put_event(event: Event) -> Message:
    return [event.kind.value, *put_item(event.kv)]


def take_event(part: Message) -> Event:
    return Event(kind=EventKind(part[0]), kv=take_item(part[1:]))


def put_txn(compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]) -> Message:
    return [
        [[each.key, each.target.value, each.revision] for each in compares],
        [[each.key, _text(each.value), each.lease] for each in puts],
        [[each.key, each.prefix] for each in deletes],
    ]


def take_txn(part: Message) -> tuple[list[Compare], list[Put], list[Delete]]:
    compares, puts, deletes = part
    return (
        [Compare(key=key, target=Target(target), revision=revision) for key, target, revision in compares],
        [Put(key=key, value=_bytes(value), lease=lease) for key, value, lease in puts],
        [Delete(key=key, prefix=prefix) for key, prefix in deletes],
    )


def put_error(error: Exception) -> tuple[str, str]:
    return _KINDS.get(type(error), _FAILED), str(error)


def take_error(kind: str, text: str) -> StoreError:
    return _ERRORS.get(kind, StoreError)(text)


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
