"""Reading tiered topics straight from an object store, without a broker. All calls block.

    store = open_store("s3://bucket/prefix")
    manifest = read_manifest(store, topic_id, partition)
    for segment in manifest.from_offset(offset):
        index = read_index(store, segment)
        for chunk in index.chunks:
            batches = read_chunk(store, segment, chunk)

`wire/tiers/layout.py`, `manifest.py` and `segment_object.py` describe the formats.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from forebay.errors import ProtocolError
from forebay.tiers.object_store import (
    ManifestError,
    ManifestLost,
    Missing,
    ObjectStore,
    ObjectStoreError,
    Stored,
)
from forebay.wire.tiers.layout import (
    SEGMENT_SUFFIX,
    TOPIC,
    TOPICS,
    manifest_key,
    partition_prefix,
    topic_id_of,
    topic_key,
    topic_prefix,
)
from forebay.wire.tiers.manifest import Manifest, NewerFormat, RemoteSegment, decode_manifest
from forebay.wire.tiers.segment_object import Chunk, SegmentIndex, check_chunk, decode_tail

_HASHED_AT_ONCE = 8 << 20
_ADVICE = "bring it back, or have it made anew with `forebay remote rebuild`"


class TopicMalformed(ObjectStoreError):
    """The description of a topic cannot be read."""


class RemoteTopic(NamedTuple):
    """The contents of topic.json."""

    name: str
    topic_id: bytes
    partitions: int
    settings: dict[str, str]


def read_manifest(store: ObjectStore, topic_id: bytes, partition: int) -> Manifest | None:
    """The manifest as it is now; None if nothing of the partition was ever copied.

    Raises ManifestLost if something was, or the manifest cannot be read. A segment is announced in the
    manifest before it is written: where there is one, there was a manifest, and what it listed must not be
    taken for nothing.
    """
    found = read_tagged_manifest(store, topic_id, partition)
    return None if found is None else found[0]


def read_tagged_manifest(store: ObjectStore, topic_id: bytes, partition: int) -> tuple[Manifest, str] | None:
    """The manifest, and the tag to change it by."""
    key = manifest_key(topic_id, partition)
    found = _get(store, key)
    if found is None and has_segments(store, topic_id, partition):
        found = _get(store, key)  # its first segments may have come in between
        if found is None:
            raise ManifestLost(
                f"{key} is missing in {store.url}, though segments are there that it has listed: {_ADVICE}"
            )
    if found is None:
        return None
    data, tag = found
    try:
        return decode_manifest(data), tag
    except NewerFormat as error:
        raise ManifestError(f"{key} in {store.url}: {error}") from error
    except ProtocolError as error:
        raise ManifestLost(f"{key} in {store.url}: {error}; {_ADVICE}") from error


def has_manifest(store: ObjectStore, topic_id: bytes, partition: int, tag: str) -> bool:
    """True if the manifest is still the one with this tag. A long one is not decoded for it. Raises as
    `read_manifest` does."""
    found = _get(store, manifest_key(topic_id, partition))
    if found is not None and found.tag == tag:
        return True
    read_tagged_manifest(store, topic_id, partition)
    return False


def _get(store: ObjectStore, key: str) -> Stored | None:
    try:
        return store.get(key)
    except Missing:
        return None


def has_segments(store: ObjectStore, topic_id: bytes, partition: int, *, beside: Container[str] = ()) -> bool:
    """True if segments of the partition are in the store beside these, whether or not they count."""
    prefix = partition_prefix(topic_id, partition)
    return any(
        listed.key.endswith(SEGMENT_SUFFIX) and listed.key not in beside for listed in store.list(prefix)
    )


def read_index(store: ObjectStore, segment: RemoteSegment) -> SegmentIndex:
    """The index of a segment. Raises Missing if the object is gone: then the manifest is an old one."""
    tail = store.get_range(segment.key, segment.data_bytes, segment.object_bytes - segment.data_bytes)
    try:
        return decode_tail(tail, segment.data_bytes)
    except ProtocolError as error:
        raise ObjectStoreError(f"{segment.key} in {store.url}: {error}") from error


def read_chunk(store: ObjectStore, segment: RemoteSegment, chunk: Chunk) -> bytes:
    """The batches of a chunk, compared with their checksum."""
    return read_chunks(store, segment, [chunk])


def read_chunks(store: ObjectStore, segment: RemoteSegment, chunks: Sequence[Chunk]) -> bytes:
    """The batches of neighbouring chunks with one request, compared with their checksums."""
    first, last = chunks[0], chunks[-1]
    data = store.get_range(segment.key, first.position, last.position + last.length - first.position)
    view = memoryview(data)
    try:
        for chunk in chunks:
            at = chunk.position - first.position
            check_chunk(chunk, view[at : at + chunk.length])
    except ProtocolError as error:
        raise ObjectStoreError(f"{segment.key} in {store.url}: {error}") from error
    return data


def check_object(store: ObjectStore, segment: RemoteSegment) -> None:
    """Read a whole object and compare it with its hash. Raises ObjectStoreError if it differs."""
    if hash_object(store, segment.key, segment.object_bytes) != segment.sha256:
        raise ObjectStoreError(f"{segment.key} in {store.url} does not have the bytes that were copied")


def hash_object(store: ObjectStore, key: str, size: int) -> str:
    """The hash of a whole object, as manifests have it."""
    digest = sha256()
    for position in range(0, size, _HASHED_AT_ONCE):
        digest.update(store.get_range(key, position, min(_HASHED_AT_ONCE, size - position)))
    return digest.hexdigest()


def encode_topic(topic: RemoteTopic) -> bytes:
    content = {**topic._asdict(), "format": 1, "topic_id": topic.topic_id.hex()}
    return json.dumps(content, indent=1, sort_keys=True).encode()


def decode_topic(data: bytes) -> RemoteTopic:
    try:
        content: dict[str, Any] = json.loads(data)
        return RemoteTopic(
            name=str(content["name"]),
            topic_id=bytes.fromhex(content["topic_id"]),
            partitions=int(content["partitions"]),
            settings={str(k): str(v) for k, v in content["settings"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TopicMalformed(f"topic.json is malformed: {error!r}") from error


def read_topic(store: ObjectStore, topic_id: bytes) -> RemoteTopic | None:
    found = _get(store, topic_key(topic_id))
    return None if found is None else decode_topic(found.data)


def list_topics(store: ObjectStore) -> Iterator[RemoteTopic]:
    """Every topic in the store, by listing it."""
    for found in store.list(TOPICS):
        topic_id = topic_id_of(found.key)
        if topic_id is not None and found.key.endswith(f"/{TOPIC}"):
            topic = read_topic(store, topic_id)
            if topic is not None:
                yield topic


def partition_count(store: ObjectStore, topic: RemoteTopic) -> int:
    """How many partitions the topic had: those that were noted, or more if there are manifests of more."""
    prefix = topic_prefix(topic.topic_id)
    numbers = [
        int(part)
        for listed in store.list(prefix)
        if (part := listed.key.removeprefix(prefix).partition("/")[0]).isdigit()
    ]
    return max([topic.partitions, *(number + 1 for number in numbers)])
