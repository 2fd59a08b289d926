"""Fields that people without a right do not see: `--mask card --mask password`.

A record is masked before anything else sees it: before it is shown, searched for text, exported or
downloaded. Fields are found by their names at any depth of JSON, and among headers. A value that is no JSON,
and has such a name in it, is hidden as a whole; so is one that begins like a value of a schema registry,
unless it can be decoded.

With logins, users who may alter the topic see everything. Holders of the token have no name, and no such
right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from forebay.console.messages.shown import Decode
from forebay.console.watch.cluster_access import ClusterAccess
from forebay.operations.wire import BrokerConnections
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from forebay.wire.records import Record

MASKED = "•••"
_HIDDEN = b"(hidden: it may have masked fields)"
_ALTER = 1 << 7
"""The bit of the operation Alter in what a broker says of a user's rights."""

Mask = Callable[[Record], Record]


def mask_for(cluster: ClusterAccess, topic: str, user: str, decode: Decode | None) -> Mask | None:
    """None if this user sees everything of the topic. Asks a broker, so it is for threads."""
    names = cluster.settings.masks
    if not names:
        return None
    if user:
        with cluster.connections() as connections:
            if _may_alter(connections, topic):
                return None
    return _Masking(names, decode).masked


def _may_alter(connections: BrokerConnections, topic: str) -> bool:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    (found,) = connections.any().ask(request, MetadataResponse).topics
    return found.topic_authorized_operations > 0 and bool(found.topic_authorized_operations & _ALTER)


class _Masking:
    def __init__(self, names: Sequence[str], decode: Decode | None) -> None:
        self._names = {name.lower() for name in names}
        self._needles = [name.lower().encode() for name in names]
        self._decode = decode

    def masked(self, record: Record) -> Record:
        headers = [
            (name, MASKED.encode() if name.lower() in self._names else value)
            for name, value in record.headers
        ]
        return record._replace(key=self._bytes(record.key), value=self._bytes(record.value), headers=headers)

    def _bytes(self, data: bytes | None) -> bytes | None:
        if not data:
            return data
        if data[0] == 0:
            decoded = None if self._decode is None else self._decode(data)
            return _HIDDEN if decoded is None else self._json(decoded.encode())
        return self._json(data)

    def _json(self, data: bytes) -> bytes:
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            lower = data.lower()
            return _HIDDEN if any(needle in lower for needle in self._needles) else data
        return orjson.dumps(document) if self._hide(document) else data

    def _hide(self, part: Any) -> bool:
        """Mask the fields in place; True if there were some."""
        hidden = False
        waiting = [part]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict):
                for name in each:
                    if name.lower() in self._names:
                        each[name] = MASKED
                        hidden = True
                waiting.extend(each.values())
            elif isinstance(each, list):
                waiting.extend(each)
        return hidden
