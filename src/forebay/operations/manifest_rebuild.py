"""Makes manifests anew that somebody has deleted from the object store, from the segments there. Blocking.

Every segment object says itself what it holds: the manifest is a list of them. Their bytes are read whole,
since the manifest has their hashes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from forebay.core.tiers.rebuilt_manifest import FoundSegment, listed_segments
from forebay.errors import ProtocolError
from forebay.operations.client import CommandError
from forebay.tiers.object_store import ABSENT, Conflict, Listed, Missing, ObjectStore, ObjectStoreError
from forebay.tiers.reading import RemoteTopic, hash_object, list_topics
from forebay.wire.tiers.layout import manifest_key, partition_of, segment_name, topic_prefix
from forebay.wire.tiers.manifest import Manifest, RemoteSegment, decode_manifest, encode_manifest
from forebay.wire.tiers.segment_object import FOOTER_SIZE, SegmentIndex, decode_tail, read_footer

WRITER = "rebuilt"


class Rebuilt(NamedTuple):
    topic: str
    topic_id: str
    partition: int
    start_offset: int
    next_offset: int
    segments: int
    bytes: int
    left_out: list[str]
    """Segment objects that the manifest does not list: of a lost history, given up, or beyond a gap."""
    problems: list[str]
    """Segment objects that cannot be read."""


def rebuild_manifests(store: ObjectStore, names: Iterable[str] = (), *, write: bool) -> Iterator[Rebuilt]:
    """The manifests that are missing or cannot be read, of these topics or of all; `write`: put them there.

    Raises ObjectStoreError, and CommandError if a broker was faster.
    """
    wanted = set(names)
    topics = sorted(list_topics(store))
    unknown = wanted - {topic.name for topic in topics} - {topic.topic_id.hex() for topic in topics}
    if unknown:
        raise CommandError(
            f"{store.url} has no topic {', '.join(sorted(unknown))}: see `forebay remote list`"
        )
    for topic in topics:
        if not wanted or wanted & {topic.name, topic.topic_id.hex()}:
            yield from _rebuild_topic(store, topic, write=write)


def _rebuild_topic(store: ObjectStore, topic: RemoteTopic, *, write: bool) -> Iterator[Rebuilt]:
    listed = [each for each in store.list(topic_prefix(topic.topic_id)) if segment_name(each.key) is not None]
    by_partition = itertools.groupby(
        sorted(listed, key=lambda each: (partition_of(each.key) or 0, each.key)),
        key=lambda each: partition_of(each.key) or 0,
    )
    for partition, objects in by_partition:
        tag = _tag_to_replace(store, manifest_key(topic.topic_id, partition))
        if tag is not None:
            yield _rebuild(store, topic, partition, list(objects), tag, write=write)


def _tag_to_replace(store: ObjectStore, key: str) -> str | None:
    """None if the manifest is there and can be read."""
    try:
        data, tag = store.get(key)
    except Missing:
        return ABSENT
    try:
        decode_manifest(data)
    except ProtocolError:
        return tag
    return None


def _rebuild(
    store: ObjectStore, topic: RemoteTopic, partition: int, objects: list[Listed], tag: str, *, write: bool
) -> Rebuilt:
    found: list[FoundSegment] = []
    problems: list[str] = []
    for each in objects:
        try:
            found.append(_describe(store, each))
        except (ObjectStoreError, ProtocolError) as error:
            problems.append(f"{each.key}: {error}")
    segments = listed_segments(found)
    start_offset = segments[0].base_offset if segments else 0
    manifest = Manifest(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition,
        leader_epoch=max((each.leader_epoch for each in found), default=-1),
        writer=WRITER,
        start_offset=start_offset,
        segments=segments,
    )
    if write and segments:
        key = manifest_key(topic.topic_id, partition)
        try:
            store.put(key, encode_manifest(manifest), replaces=tag)
        except (Conflict, Missing) as error:
            raise CommandError(f"{key} was written by somebody else meanwhile") from error
    keys = {segment.key for segment in segments}
    return Rebuilt(
        topic=topic.name,
        topic_id=topic.topic_id.hex(),
        partition=partition,
        start_offset=start_offset,
        next_offset=manifest.next_offset,
        segments=len(segments),
        bytes=manifest.data_bytes,
        left_out=[each.segment.key for each in found if each.segment.key not in keys],
        problems=problems,
    )


def _describe(store: ObjectStore, listed: Listed) -> FoundSegment:
    """What a manifest says of a segment. Raises ObjectStoreError or ProtocolError."""
    name = segment_name(listed.key)
    assert name is not None
    index, data_bytes = _read_tail(store, listed)
    if not index.chunks or not index.epochs:
        raise ProtocolError("it has no messages")
    segment = RemoteSegment(
        key=listed.key,
        base_offset=name.base_offset,
        next_offset=name.next_offset,
        data_bytes=data_bytes,
        object_bytes=listed.size,
        max_timestamp=max(chunk.max_timestamp for chunk in index.chunks),
        epochs=index.epochs,
        aborted=len(index.aborted),
        sha256=hash_object(store, listed.key, listed.size),
        copied_ms=listed.modified_ms,
    )
    return FoundSegment(name.leader_epoch, segment)


def _read_tail(store: ObjectStore, listed: Listed) -> tuple[SegmentIndex, int]:
    """The index, and how many bytes of batches lie before it."""
    if listed.size < FOOTER_SIZE:
        raise ProtocolError("it is cut short")
    footer = store.get_range(listed.key, listed.size - FOOTER_SIZE, FOOTER_SIZE)
    data_bytes = read_footer(footer, listed.size)
    tail = store.get_range(listed.key, data_bytes, listed.size - data_bytes)
    return decode_tail(tail, data_bytes), data_bytes
