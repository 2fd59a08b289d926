"""Which parts of a read lie in the object store, by the manifests of its partitions.

A batch is cut into tasks of about the same number of bytes, so that many tasks read one partition, and none
is left when the others have ended. Small segments share a task, and large ones are shared by several. A
stream keeps its cuts, which have to be the same when a batch is repeated: its tasks read what is remote of
their ranges. Either way a task is given the segments, and needs no manifest as long as these are there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

from forebay.errors import KafkaError
from forebay.spark.source.offset_ranges import OffsetRange, RangeGroup, TopicPartition
from forebay.spark.source.remote.access import Place, place_of, unreachable
from forebay.spark.source.remote.histories import check_histories
from forebay.spark.source.remote_options import ONLY, RemoteOptions
from forebay.spark.wire.connections import Cluster
from forebay.tiers.object_store import ManifestError, ObjectStoreError
from forebay.tiers.reading import read_manifest
from forebay.wire.tiers.manifest import Manifest, RemoteSegment

TASK_BYTES = 128 << 20
"""A task has at most about so much of a partition."""
_SNAP_SHARE = 8
"""A cut that is less than this part of a task away from where a segment begins is made there."""
READERS_MAX = 16
"""Manifests that are read at the same time."""

PAUSE_S_MIN, PAUSE_S_MAX = 5.0, 300.0
"""How long a stream leaves a store alone that has failed; twice as long after each further failure."""

Manifests = Mapping[TopicPartition, Manifest]


class RemoteRange(NamedTuple):
    """A range of which some offsets are in these segments. Whatever is in none of them, brokers have."""

    range: OffsetRange
    url: str
    topic_id: bytes
    first_offset: int
    """Messages before it are deleted, even if a segment still holds them."""
    segments: tuple[RemoteSegment, ...]


Part = OffsetRange | RemoteRange


class RemotePlan(NamedTuple):
    """The remote part of some partitions, as it was when it was looked up."""

    url: str
    manifests: Manifests

    def cut(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The ranges in pieces that are worth a task."""
        return [piece for wanted in ranges for piece in self._cut(wanted)]

    def _cut(self, wanted: OffsetRange) -> list[OffsetRange]:
        manifest = self.manifests.get(wanted.at)
        if manifest is None:
            return [wanted]
        edges = [wanted.start, *_edges(manifest, wanted), wanted.end]
        return [OffsetRange(wanted.at, low, high) for low, high in pairwise(edges) if low < high]

    def only(self, ranges: Iterable[OffsetRange], given: Container[TopicPartition] = ()) -> list[OffsetRange]:
        """The remote parts of the ranges.

        Where the offset to start from was given, those that are not there any more are kept: a task finds
        that they are lost.
        """
        found = []
        for wanted in ranges:
            manifest = self.manifests.get(wanted.at)
            if manifest is not None:
                first = wanted.start if wanted.at in given else manifest.first_offset
                start = max(wanted.start, first)
                end = min(wanted.end, manifest.next_offset)
                found += [OffsetRange(wanted.at, start, end)] if start < end else []
        return found

    def attached(self, task: OffsetRange | RangeGroup) -> Part | RangeGroup:
        """The same task, with the segments that it can read."""
        if isinstance(task, RangeGroup):
            return RangeGroup(tuple(self._attached(part) for part in task.ranges))
        return self._attached(task)

    def _attached(self, part: Part) -> Part:
        assert isinstance(part, OffsetRange), "segments are attached once"
        manifest = self.manifests.get(part.at)
        segments = () if manifest is None else segments_of(manifest, part)
        if manifest is None or not segments:
            return part
        return RemoteRange(part, self.url, manifest.topic_id, manifest.first_offset, segments)


def segments_of(manifest: Manifest, wanted: OffsetRange) -> tuple[RemoteSegment, ...]:
    if wanted.end <= manifest.first_offset:
        return ()
    return manifest.from_offset(wanted.start, wanted.end)


class _Stretch(NamedTuple):
    """What a range has of a segment. Messages are taken for equally large."""

    start: int
    end: int
    size: float
    """In bytes."""

    def offset_at(self, position: float, snap: float) -> int:
        if position < snap:
            return self.start
        if self.size - position < snap:
            return self.end
        return self.start + round((self.end - self.start) * position / self.size)


def _edges(manifest: Manifest, wanted: OffsetRange) -> list[int]:
    """Where the pieces of a range begin, beyond its start."""
    stretches = list(_stretches(manifest, wanted))
    total = sum(each.size for each in stretches)
    count = math.ceil(total / TASK_BYTES)
    edges = [manifest.first_offset]
    begins, number = 0.0, 1
    for each in stretches:
        while number < count and (cut := total * number / count) <= begins + each.size:
            edges.append(each.offset_at(cut - begins, total / count / _SNAP_SHARE))
            number += 1
        begins += each.size
    return [edge for edge in (*edges, manifest.next_offset) if wanted.start < edge < wanted.end]


def _stretches(manifest: Manifest, wanted: OffsetRange) -> Iterator[_Stretch]:
    for segment in segments_of(manifest, wanted):
        start = max(segment.base_offset, wanted.start, manifest.first_offset)
        end = min(segment.next_offset, wanted.end)
        if start < end:
            share = (end - start) / (segment.next_offset - segment.base_offset)
            yield _Stretch(start, end, segment.data_bytes * share)


# -- manifests ----------------------------------------------------------------------------------------------


def look_up(cluster: Cluster, options: RemoteOptions, places: Iterable[TopicPartition]) -> RemotePlan | None:
    """The remote part of these partitions now; None if there is none, or it is not to be read."""
    wanted = sorted(places)
    ids = cluster.topic_ids({at.topic for at in wanted})
    try:
        place = place_of(cluster, options, wanted)
        return None if place is None else read_plan(options, place, wanted, ids, cluster)
    except (KafkaError, ObjectStoreError) as error:
        unreachable(options, error)
        return None


def read_plan(
    options: RemoteOptions,
    place: Place,
    places: Iterable[TopicPartition],
    topic_ids: Mapping[str, str],
    cluster: Cluster | None = None,
) -> RemotePlan:
    """By the manifests of these partitions. Raises ObjectStoreError.

    Until a leader has claimed one that was made anew, brokers know better. So they do of one that lists
    messages which its leader does not have; without a cluster nobody can tell.
    """
    known = [at for at in places if at in place.partitions and at.topic in topic_ids]
    store = options.open(place.url)
    with ThreadPoolExecutor(READERS_MAX) as readers:
        looks = [
            readers.submit(read_manifest, store, bytes.fromhex(topic_ids[at.topic]), at.partition)
            for at in known
        ]
        found = [look.result() for look in looks]
    manifests = {at: each for at, each in zip(known, found, strict=True) if each is not None}
    for at, manifest in manifests.items():
        if manifest.is_made_anew and options.read != ONLY:
            raise ManifestError(f"the manifest of {at} was made anew, and its leader has not claimed it yet")
    if cluster is not None:
        check_histories(cluster, manifests)
    return RemotePlan(place.url, manifests)


class StreamPlans:
    """The remote parts that a stream has still to read; brokers have everything behind them.

    Manifests are read for each batch until the stream has come to their ends: a history that was lost
    meanwhile is not in them any more. From then on the stream costs the store nothing, until it is started
    again.

    Where the store or the brokers' answer about it fails, batches are read from brokers for a while, and then
    it is asked again.
    """

    def __init__(self, options: RemoteOptions, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._monotonic_s = monotonic_s
        self._pause_s = 0.0
        self._again_at_s = 0.0
        self._place: Place | None = None
        self._asked: set[TopicPartition] = set()
        """The partitions that brokers were asked about."""
        self._passed: set[tuple[TopicPartition, str]] = set()
        """Partitions whose remote parts are behind the stream. A topic that is made anew has another id."""

    def plan(
        self, cluster: Cluster, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]
    ) -> RemotePlan | None:
        starts = {wanted.at: wanted.start for wanted in ranges if wanted.size > 0}
        if self._pause_s and self._monotonic_s() < self._again_at_s:
            return None
        try:
            found = self._look(cluster, starts, topic_ids)
        except (KafkaError, ObjectStoreError) as error:
            unreachable(self._options, error)
            self._pause_s = min(max(2 * self._pause_s, PAUSE_S_MIN), PAUSE_S_MAX)
            self._again_at_s = self._monotonic_s() + self._pause_s
            return None
        self._pause_s = 0.0
        return found

    def _look(
        self, cluster: Cluster, starts: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
    ) -> RemotePlan | None:
        if not starts.keys() <= self._asked:
            self._place = place_of(cluster, self._options, starts.keys()) or self._place
            self._asked |= starts.keys()
        if self._place is None:
            return None
        keys = {at: (at, topic_ids.get(at.topic, "")) for at in starts}
        left = [at for at in starts if keys[at] not in self._passed]
        found = read_plan(self._options, self._place, left, topic_ids, cluster) if left else None
        manifests = {} if found is None else found.manifests
        useful = {at: each for at, each in manifests.items() if starts[at] < each.next_offset}
        self._passed |= {keys[at] for at in left if at not in useful}
        return RemotePlan(self._place.url, useful) if useful else None
