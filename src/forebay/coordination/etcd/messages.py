"""The store's values in the JSON of etcd's gateway: bytes in base64, large numbers as text, no zeros."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from forebay.coordination.store import Compare, Delete, Event, EventKind, KeyValue, Put, Target

Json = dict[str, Any]

_FIELDS = {
    Target.CREATE_REVISION: ("CREATE", "create_revision"),
    Target.MOD_REVISION: ("MOD", "mod_revision"),
}


_PUT = '"request_put"'
"""Not found in what is written in base64."""
_SHORT_BYTES = 256
_TEXTS_KEPT = 1024


def text_of(data: bytes) -> str:
    return b64encode(data).decode("ascii")


@lru_cache(_TEXTS_KEPT)
def _short_text(data: bytes) -> str:
    """The same: a transaction compares and writes the same keys, and many have the same value."""
    return text_of(data)


def key_text(key: str) -> str:
    return text_of(key_bytes(key))


def key_bytes(key: str) -> bytes:
    """Works also for a key that is not text: others may have written it, and it must not hide the rest."""
    return key.encode(errors="surrogateescape")


def prefix_range(prefix: str) -> Json:
    """All keys with a prefix, as an etcd range: from the prefix to the first key without it."""
    start = prefix.encode()
    stem = start.rstrip(b"\xff")
    end = stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"
    return {"key": text_of(start or b"\0"), "range_end": text_of(end)}


def txn_request(compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]) -> bytes:
    """The text of a transaction. Written out: the death of a broker is hundreds of transactions of a hundred
    keys each, and their partitions wait for it."""
    compared = ",".join([_compare(compare) for compare in compares])
    written = ",".join([*(_put(put) for put in puts), *(_delete(delete) for delete in deletes)])
    return f'{{"compare":[{compared}],"success":[{written}]}}'.encode("ascii")


def has_put(txn: bytes) -> bool:
    """True if a transaction that succeeds makes a new revision. One that only deletes may find nothing."""
    return _PUT.encode() in txn


def _compare(compare: Compare) -> str:
    target, field = _FIELDS[compare.target]
    key = _short_text(key_bytes(compare.key))
    return f'{{"key":"{key}","target":"{target}","result":"EQUAL","{field}":"{compare.revision}"}}'


def _put(put: Put) -> str:
    key = _short_text(key_bytes(put.key))
    value = _short_text(put.value) if len(put.value) < _SHORT_BYTES else text_of(put.value)
    return f'{{{_PUT}:{{"key":"{key}","value":"{value}","lease":"{put.lease}"}}}}'


def _delete(delete: Delete) -> str:
    request = prefix_range(delete.key) if delete.prefix else {"key": key_text(delete.key)}
    return json.dumps({"request_delete_range": request}, separators=(",", ":"))


def watch_request(prefix: str, from_revision: int) -> Json:
    # Large responses come in fragments; otherwise one of more than a few megabytes would break the stream.
    create = {**prefix_range(prefix), "start_revision": str(from_revision), "fragment": True}
    return {"create_request": create}


def revision_of(answer: Json) -> int:
    return int(answer["header"].get("revision", 0))


def key_value(item: Json) -> KeyValue:
    return KeyValue(
        key=b64decode(item["key"]).decode(errors="surrogateescape"),
        value=b64decode(item.get("value", "")),
        create_revision=int(item.get("create_revision", 0)),
        mod_revision=int(item.get("mod_revision", 0)),
        lease=int(item.get("lease", 0)),
    )


def event(item: Json) -> Event:
    deleted = item.get("type") == "DELETE"
    return Event(kind=EventKind.DELETE if deleted else EventKind.PUT, kv=key_value(item["kv"]))
