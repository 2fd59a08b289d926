"""Views over the wire, for tests that look at single requests."""

from __future__ import annotations

import json
from typing import Any

from forebay.wire.batch import build_batch, split
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from forebay.wire.records import Record
from support.clients.wire_client import CREATE_TOPICS, WireClient, create_topic

DELETE_TOPICS = 5


def make_view(client: WireClient, name: str, source: str, where: str | None = None, **query: Any) -> bytes:
    """The id of the view."""
    made = try_view(client, name, source, where, **query)
    assert made.error_code == 0, made.error_message
    view_id: bytes = made.topic_id
    return view_id


def try_view(
    client: WireClient, name: str, source: str, where: str | None = None, partitions: int = -1, **query: Any
) -> Any:
    configs = {"forebay_view_source": source, **{f"forebay_view_{key}": text for key, text in query.items()}}
    if where is not None:
        configs["forebay_view_where"] = where
    (made,) = client.call(create_topic(name, partitions, **configs), CREATE_TOPICS).topics
    return made


def delete(client: WireClient, name: str) -> Any:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    (deleted,) = client.call(request, DELETE_TOPICS).responses
    return deleted


def document(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, **more}).encode()


def documents(numbers: range, *, timestamp: int = 1_000, region: bytes = b"eu", **how: Any) -> bytes:
    """A batch with a JSON document per number, at offsets from 0 on; the broker gives them their own."""
    records = [
        Record(at, timestamp + at, b"k%d" % number, document(number), (("region", region),))
        for at, number in enumerate(numbers)
    ]
    return bytes(build_batch(records, **how))


def counts_of(data: Any) -> list[tuple[int, int, int]]:
    """First and last offset, and the number of records, of each batch of an answer."""
    buffer = memoryview(data or b"")
    return [(header.base_offset, header.last_offset, header.record_count) for _, header in split(buffer)]
