"""Shows, checks and cleans the object store of tiered storage, and brings topics back. Blocking.

Works on the store alone; only a restore needs a cluster.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from forebay.errors import ProtocolError
from forebay.operations.client import CommandError
from forebay.tiers.object_store import (
    ABSENT,
    Conflict,
    Listed,
    ManifestError,
    Missing,
    ObjectStore,
    ObjectStoreError,
)
from forebay.tiers.opening import open_store
from forebay.tiers.reading import (
    RemoteTopic,
    check_object,
    list_topics,
    partition_count,
    read_chunk,
    read_index,
    read_manifest,
)
from forebay.wire.batch import records
from forebay.wire.records import Record
from forebay.wire.tiers.layout import (
    MANIFEST,
    SEGMENT_SUFFIX,
    TOPIC,
    TOPICS,
    manifest_key,
    partition_prefix,
    segment_name,
)
from forebay.wire.tiers.manifest import Manifest, RemoteSegment, decode_manifest
from forebay.wire.tiers.segment_object import AbortedSpan, SegmentIndex, batch_headers

_PROBE = "probe.json"


class StoreReport(NamedTuple):
    topics: int
    partitions: int
    segments: int
    bytes: int
    orphans: list[Listed]
    """Segment objects that no manifest knows, old enough that no upload can be under way."""
    young: int
    """Others that no manifest knows yet."""
    problems: list[str]
    """Objects that are missing, damaged or unreadable."""
    kept: list[str]
    """Why other old segment objects are no orphans."""


class FoundManifests(NamedTuple):
    partitions: int
    manifests: list[Manifest]
    problems: list[str]
    """Why others cannot be read."""


def open_remote(url: str) -> ObjectStore:
    try:
        return open_store(url)
    except ObjectStoreError as error:
        raise CommandError(str(error)) from error


def read_manifests(store: ObjectStore, topic: RemoteTopic) -> FoundManifests:
    """Those of all partitions of a topic."""
    found = FoundManifests(partition_count(store, topic), [], [])
    for index in range(found.partitions):
        try:
            manifest = read_manifest(store, topic.topic_id, index)
        except ManifestError as error:
            found.problems.append(str(error))
        else:
            found.manifests.extend(() if manifest is None else (manifest,))
    return found


def check_store(
    store: ObjectStore,
    *,
    age_min_ms: int,
    deep: bool = False,
    on_segment: Callable[[str], None] = lambda _: None,
) -> StoreReport:
    """Compare all manifests with all objects. `deep`: also read every object, and compare its hash."""
    listed = {found.key: found for found in store.list(TOPICS)}
    problems: list[str] = []
    manifests: list[Manifest] = []
    for key in sorted(_manifest_keys(listed)):
        try:
            manifests.append(decode_manifest(store.get(key).data))
        except Missing:
            problems.append(f"{key}: it is missing; {_advice(store, key)}")
        except ProtocolError as error:
            problems.append(f"{key}: {error}")
    owned: set[str] = set()
    for manifest in manifests:
        owned.update(manifest.pending, (doomed.key for doomed in manifest.doomed))
        if manifest.is_made_anew:  # its leader has not said yet what of it counts
            place = partition_prefix(manifest.topic_id, manifest.partition)
            owned.update(key for key in listed if key.startswith(place))
        for segment in manifest.segments:
            owned.add(segment.key)
            problems += _check_segment(store, segment, listed.get(segment.key), deep=deep)
            on_segment(segment.key)
    if problems and any(key.endswith(f"/{MANIFEST}") for key in (each.split(":")[0] for each in problems)):
        owned.update(listed)  # what an unreadable manifest lists is nobody's to delete
    loose = [found for key, found in listed.items() if key.endswith(SEGMENT_SUFFIX) and key not in owned]
    before_ms = int(time.time() * 1000) - age_min_ms
    old = [found for found in loose if found.modified_ms < before_ms]
    behind = _behind_their_ends(manifests, old)
    orphans = [found for found in old if found.key not in behind]
    return StoreReport(
        topics=len({manifest.topic_id for manifest in manifests}),
        partitions=len(manifests),
        segments=sum(len(manifest.segments) for manifest in manifests),
        bytes=sum(segment.object_bytes for manifest in manifests for segment in manifest.segments),
        orphans=orphans,
        young=len(loose) - len(old),
        problems=problems,
        kept=list(_kept_behind(behind)),
    )


def _manifest_keys(listed: Iterable[str]) -> set[str]:
    """Those of all partitions that have objects. Not each was listed: a listing may be late.

    A topic that is removed has its manifests and its description removed last. So a manifest that is missing
    was lost, or a leader that did not know of the removal has finished an upload after it. Which of the two
    it was is not for a program to say, nor to delete what the manifest listed.
    """
    found = {key for key in listed if key.endswith(f"/{MANIFEST}")}
    segments = {key.rpartition("/")[0] for key in listed if key.endswith(SEGMENT_SUFFIX)}
    return found | {f"{folder}/{MANIFEST}" for folder in segments}


def _behind_their_ends(manifests: Iterable[Manifest], loose: Iterable[Listed]) -> dict[str, str]:
    """The segments that end behind what their manifest lists, by their manifests' keys.

    Copying passes over what a leader has left behind. Until then a manifest that ends before such a segment
    may be an older one, which somebody has brought back, and the segment the only copy of its messages.
    """
    ends = {manifest_key(each.topic_id, each.partition): each.next_offset for each in manifests}
    found: dict[str, str] = {}
    for each in loose:
        key, named = f"{each.key.rpartition('/')[0]}/{MANIFEST}", segment_name(each.key)
        if named is not None and named.next_offset > ends.get(key, named.next_offset):
            found[each.key] = key
    return found


def _kept_behind(behind: Mapping[str, str]) -> Iterator[str]:
    for key, count in sorted(Counter(behind.values()).items()):
        yield (
            f"{key}: {count} segments lie behind its end, so it may be an older one; if its leader says so "
            "(`forebay topic describe`), `forebay remote rebuild --force` makes it anew"
        )


def _advice(store: ObjectStore, manifest_key: str) -> str:
    try:
        store.get(f"{manifest_key.rsplit('/', 2)[0]}/{TOPIC}")
    except Missing:
        return (
            f"{TOPIC} is missing as well. If the topic was deleted, remove what is left of it by hand; "
            "otherwise `forebay remote rebuild` makes the manifest anew"
        )
    return "`forebay remote rebuild` makes it anew"


def _check_segment(
    store: ObjectStore, segment: RemoteSegment, listed: Listed | None, *, deep: bool
) -> Iterator[str]:
    if listed is None:
        try:
            store.get_range(segment.key, segment.object_bytes - 1, 1)  # a listing may be late
        except ObjectStoreError as error:
            yield f"{segment.key}: {error}"
        return
    if listed.size != segment.object_bytes:
        yield f"{segment.key}: it has {listed.size} bytes instead of {segment.object_bytes}"
    elif deep:
        try:
            read_index(store, segment)
            check_object(store, segment)
        except ObjectStoreError as error:
            yield f"{segment.key}: {error}"


def check_conditions(store: ObjectStore) -> None:
    """Check that the store refuses conditional writes whose condition does not hold. Raises CommandError."""
    unique = f"{TOPICS}{time.time_ns()}-{_PROBE}"
    try:
        tag = store.put(unique, b"1", replaces=ABSENT)
        store.put(unique, b"2", replaces=tag)
        for condition in (ABSENT, tag):
            try:
                store.put(unique, b"3", replaces=condition)
            except Conflict:
                continue
            raise CommandError(
                f"{store.url} ignores the conditions of writes (If-None-Match, If-Match): two leaders could "
                "overwrite each other's manifests. It cannot be used for tiered storage"
            )
    finally:
        store.delete(unique)


# -- bringing topics back ----------------------------------------------------------------------------------


def find_topic(store: ObjectStore, name: str) -> RemoteTopic:
    """The topic of that name, or with that id."""
    found = [topic for topic in list_topics(store) if name in (topic.name, topic.topic_id.hex())]
    if not found:
        raise CommandError(f"{store.url} has no topic {name!r}: `forebay remote list` shows what it has")
    if len(found) > 1:
        ids = ", ".join(topic.topic_id.hex() for topic in found)
        raise CommandError(f"{store.url} has several topics {name!r}: name one by its id, {ids}")
    return found[0]


def committed_messages(store: ObjectStore, topic: RemoteTopic, partition: int) -> Iterator[Record]:
    """Every message of a partition in the store that readers of committed messages see, in order."""
    manifest = read_manifest(store, topic.topic_id, partition)
    for segment in () if manifest is None else manifest.segments:
        assert manifest is not None
        index = read_index(store, segment)
        for record in _messages_of(store, segment, index):
            if max(manifest.start_offset, segment.base_offset) <= record.offset < segment.next_offset:
                yield record


def _messages_of(store: ObjectStore, segment: RemoteSegment, index: SegmentIndex) -> Iterator[Record]:
    for chunk in index.chunks:
        data = memoryview(read_chunk(store, segment, chunk))
        for position, header in batch_headers(data):
            aborted = header.is_transactional and _is_aborted(
                header.producer_id, header.base_offset, index.aborted
            )
            if not header.is_control and not aborted:
                yield from records(data[position : position + header.size])


def _is_aborted(producer_id: int, offset: int, aborted: tuple[AbortedSpan, ...]) -> bool:
    return any(
        entry.producer_id == producer_id and entry.first_offset <= offset <= entry.last_offset
        for entry in aborted
    )
