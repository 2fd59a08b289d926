"""Makes manifests anew that are lost, from the segments in the object store. Blocking.

Every segment object says itself what it holds: the manifest is a list of them. Their bytes are read whole,
since the manifest has their hashes.

A manifest that lacks a segment says that the segment was deleted. So nothing is written when the store fails,
nor when a segment is damaged or missing: somebody has to say whether leaders still have its messages, or its
loss is accepted, and that of all before it, since a manifest has no gaps. The segments are listed once the
manifest is known to be missing: no leader can add to them from then on. A leader may still delete some, by
the manifest before: so all are looked for again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from forebay.core.tiers.rebuilt_manifest import FoundSegment, runs_of_segments
from forebay.errors import ForebayError, ProtocolError
from forebay.operations.client import CommandError
from forebay.tiers.object_store import ABSENT, Conflict, Listed, Missing, ObjectStore
from forebay.tiers.reading import TopicMalformed, hash_object, read_topic
from forebay.wire.tiers.layout import (
    TOPICS,
    SegmentName,
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
    start_offset: int = 0
    next_offset: int = 0
    segments: int = 0
    bytes: int = 0
    left_out: Sequence[str] = ()
    """Segment objects that the manifest does not list: of a lost history, given up, or beyond a gap."""
    problems: Sequence[str] = ()
    """What is damaged or missing, or why nothing was written."""
    written: bool = False
    failed: bool = False
    """True if it could not be made, or not without a loss that nobody has accepted."""


class Wishes(NamedTuple):
    names: frozenset[str] = frozenset()
    """Topics or their ids; all if there are none."""
    write: bool = False
    """False to look only."""
    force: bool = False
    """Also manifests that can be read."""
    before_gap: bool = False
    """What lies before the first damaged or missing segment is listed; leaders are to copy the rest again."""
    accepts_loss: bool = False
    """What lies behind the last one is listed, and brokers pass over what is missing."""


class _Place(NamedTuple):
    topic_id: bytes
    partition: int


class _NotDone(ForebayError):
    """A manifest could not be made. Others can."""


def rebuild_manifests(store: ObjectStore, wishes: Wishes) -> Iterator[Rebuilt]:
    """The manifests that are missing or cannot be read. Raises ObjectStoreError and CommandError."""
    names = {topic_id: _name(store, topic_id) for topic_id in sorted({at.topic_id for at in _places(store)})}
    unknown = wishes.names - {*names.values()} - {topic_id.hex() for topic_id in names}
    if unknown:
        listed = ", ".join(sorted(unknown))
        raise CommandError(f"{store.url} has no segments of a topic {listed}: see `forebay remote check`")
    for at in _places(store):
        if not wishes.names or wishes.names & {names[at.topic_id], at.topic_id.hex()}:
            try:
                tag = _tag_to_replace(store, manifest_key(*at), force=wishes.force)
                if tag is not None:
                    yield _rebuild(store, names[at.topic_id], at, tag, wishes)
            except _NotDone as error:
                why = [f"{manifest_key(*at)}: {error}"]
                yield Rebuilt(names[at.topic_id], at.topic_id.hex(), at.partition, problems=why, failed=True)


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
    try:
        topic = read_topic(store, topic_id)
    except TopicMalformed:
        topic = None
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
        raise _NotDone(str(error)) from error
    except ProtocolError:
        return tag
    return tag if force else None


def _rebuild(store: ObjectStore, topic: str, at: _Place, tag: str, wishes: Wishes) -> Rebuilt:
    found: list[FoundSegment] = []
    damaged: list[tuple[int, str]] = []
    for each in store.list(partition_prefix(*at)):
        name = segment_name(each.key)
        if name is not None:
            try:
                found.append(_describe(store, each, name))
            except ProtocolError as error:
                damaged.append((name.base_offset, f"{each.key}: {error}"))
    runs = runs_of_segments(found) or [()]
    manifest = Manifest(
        topic=topic,
        topic_id=at.topic_id,
        partition=at.partition,
        leader_epoch=max((each.leader_epoch for each in found), default=-1),
        writer=LOSS_ACCEPTED if wishes.accepts_loss else REBUILT,
        segments=runs[-1] if wishes.before_gap else runs[0],
    )
    if wishes.before_gap:  # leaders copy the rest again
        problems = [text for offset, text in damaged if offset < manifest.next_offset]
    else:
        problems = [*(text for _, text in damaged), *_gaps(at, runs)]
    if not found and not problems:
        problems.append(f"{manifest_key(*at)}: there are no segments to make it of")
    failed = bool(problems) and not wishes.accepts_loss
    if wishes.write and not failed:
        _write(store, manifest_key(*at), manifest, tag)
    keys = {segment.key for segment in manifest.segments}
    return Rebuilt(
        topic=topic,
        topic_id=at.topic_id.hex(),
        partition=at.partition,
        start_offset=manifest.first_offset,
        next_offset=manifest.next_offset,
        segments=len(manifest.segments),
        bytes=manifest.data_bytes,
        left_out=[each.segment.key for each in found if each.segment.key not in keys],
        problems=problems,
        written=wishes.write and not failed,
        failed=failed,
    )


def _gaps(at: _Place, runs: Sequence[Sequence[RemoteSegment]]) -> Iterator[str]:
    """What lies between runs, of which the first is the last."""
    for behind, before in pairwise(runs):
        yield (
            f"{manifest_key(*at)}: messages {before[-1].next_offset} to {behind[0].base_offset - 1} are in "
            f"no segment, and {before[0].base_offset} to {before[-1].next_offset - 1} lie before them"
        )


def _write(store: ObjectStore, key: str, manifest: Manifest, tag: str) -> None:
    try:
        store.put(key, encode_manifest(manifest), replaces=tag)
    except (Conflict, Missing) as error:
        if not _is_stored(store, key, manifest):
            raise _NotDone("somebody else has written it meanwhile") from error
    for segment in manifest.segments:
        try:
            store.get_range(segment.key, segment.object_bytes - 1, 1)
        except Missing as error:
            raise _NotDone(
                f"{segment.key} was deleted meanwhile, by the manifest before: make it anew with --force"
            ) from error


def _is_stored(store: ObjectStore, key: str, manifest: Manifest) -> bool:
    """Of a request that was sent again, the first one may have done it."""
    try:
        return decode_manifest(store.get(key).data) == manifest
    except (Missing, ProtocolError):
        return False


def _describe(store: ObjectStore, listed: Listed, name: SegmentName) -> FoundSegment:
    """What a manifest says of a segment. Raises ObjectStoreError or ProtocolError."""
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
