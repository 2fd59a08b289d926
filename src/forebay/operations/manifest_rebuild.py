"""Makes manifests anew that are lost, from the segments in the object store. Blocking.

Every segment object says itself what it holds: the manifest is a list of them. Their bytes are read whole,
since the manifest has their hashes.

A manifest that lacks a segment says that the segment was deleted. So nothing is written when the store fails,
nor when a segment is damaged, unless its loss is accepted. The segments are listed once the manifest is known
to be missing: no leader can add to them from then on. A leader may still delete some, by the manifest before:
so all are looked for again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.core.tiers.rebuilt_manifest import FoundSegment, listed_segments
from forebay.errors import ProtocolError
from forebay.operations.client import CommandError
from forebay.tiers.object_store import ABSENT, Conflict, Listed, Missing, ObjectStore
from forebay.tiers.reading import hash_object, read_topic
from forebay.wire.tiers.layout import (
    TOPICS,
    manifest_key,
    partition_of,
    partition_prefix,
    segment_name,
    topic_id_of,
)
from forebay.wire.tiers.manifest import (
    LOSS_ACCEPTED,
    REBUILT,
    Manifest,
    NewerFormat,
    RemoteSegment,
    decode_manifest,
    encode_manifest,
)
from forebay.wire.tiers.segment_object import FOOTER_SIZE, SegmentIndex, decode_tail, read_footer


class Rebuilt(NamedTuple):
    topic: str
    topic_id: str
    partition: int
    start_offset: int
    next_offset: int
    segments: int
    bytes: int
    left_out: list[str]
    """Segment objects that the manifest does not list: of a lost history, given up, or before a gap."""
    problems: list[str]
    """Segment objects that are damaged; or that there are none."""
    written: bool


class Wishes(NamedTuple):
    names: frozenset[str] = frozenset()
    """Topics or their ids; all if there are none."""
    write: bool = False
    """False to look only."""
    force: bool = False
    """Also manifests that can be read."""
    accepts_loss: bool = False
    """Damaged segments are left out, and brokers pass over what is missing."""


class _Place(NamedTuple):
    topic_id: bytes
    partition: int


def rebuild_manifests(store: ObjectStore, wishes: Wishes) -> Iterator[Rebuilt]:
    """The manifests that are missing or cannot be read. Raises ObjectStoreError and CommandError."""
    names = {topic_id: _name(store, topic_id) for topic_id in sorted({at.topic_id for at in _places(store)})}
    unknown = wishes.names - {*names.values()} - {topic_id.hex() for topic_id in names}
    if unknown:
        listed = ", ".join(sorted(unknown))
        raise CommandError(f"{store.url} has no segments of a topic {listed}: see `forebay remote check`")
    for at in _places(store):
        if not wishes.names or wishes.names & {names[at.topic_id], at.topic_id.hex()}:
            tag = _tag_to_replace(store, manifest_key(*at), force=wishes.force)
            if tag is not None:
                yield _rebuild(store, names[at.topic_id], at, tag, wishes)


def _places(store: ObjectStore) -> list[_Place]:
    """The partitions that have segments, or a manifest."""
    found = set()
    for listed in store.list(TOPICS):
        topic_id, partition = topic_id_of(listed.key), partition_of(listed.key)
        if topic_id is not None and partition is not None:
            found.add(_Place(topic_id, partition))
    return sorted(found)


def _name(store: ObjectStore, topic_id: bytes) -> str:
    """The topic's name; its id if its description is lost."""
    topic = read_topic(store, topic_id)
    return topic_id.hex() if topic is None else topic.name


def _tag_to_replace(store: ObjectStore, key: str, *, force: bool) -> str | None:
    """None if the manifest is there and can be read."""
    try:
        data, tag = store.get(key)
    except Missing:
        return ABSENT
    try:
        decode_manifest(data)
    except NewerFormat as error:
        raise CommandError(f"{key}: {error}") from error
    except ProtocolError:
        return tag
    return tag if force else None


def _rebuild(store: ObjectStore, topic: str, at: _Place, tag: str, wishes: Wishes) -> Rebuilt:
    found: list[FoundSegment] = []
    problems: list[str] = []
    for each in store.list(partition_prefix(*at)):
        if segment_name(each.key) is not None:
            try:
                found.append(_describe(store, each))
            except ProtocolError as error:
                problems.append(f"{each.key}: {error}")
    segments = listed_segments(found)
    manifest = Manifest(
        topic=topic,
        topic_id=at.topic_id,
        partition=at.partition,
        leader_epoch=max((each.leader_epoch for each in found), default=-1),
        writer=LOSS_ACCEPTED if wishes.accepts_loss else REBUILT,
        segments=segments,
    )
    if not found and not problems:
        problems.append(f"{manifest_key(*at)}: there are no segments to make it of")
    written = wishes.write and (wishes.accepts_loss or not problems)
    if written:
        _write(store, manifest_key(*at), manifest, tag)
    keys = {segment.key for segment in segments}
    return Rebuilt(
        topic=topic,
        topic_id=at.topic_id.hex(),
        partition=at.partition,
        start_offset=manifest.first_offset,
        next_offset=manifest.next_offset,
        segments=len(segments),
        bytes=manifest.data_bytes,
        left_out=[each.segment.key for each in found if each.segment.key not in keys],
        problems=problems,
        written=written,
    )


def _write(store: ObjectStore, key: str, manifest: Manifest, tag: str) -> None:
    try:
        store.put(key, encode_manifest(manifest), replaces=tag)
    except (Conflict, Missing) as error:
        raise CommandError(f"{key} was written by somebody else meanwhile") from error
    for segment in manifest.segments:
        try:
            store.get_range(segment.key, segment.object_bytes - 1, 1)
        except Missing as error:
            raise CommandError(
                f"{segment.key} was deleted meanwhile, by the manifest before: make it anew with --force"
            ) from error


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
