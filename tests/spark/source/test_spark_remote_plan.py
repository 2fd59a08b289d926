"""How a batch is cut into tasks by the manifests of its partitions: no store and no broker is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from forebay.spark.source.offset_ranges import OffsetRange, TopicPartition
from forebay.spark.source.remote.planning import TASK_BYTES, RemotePlan, RemoteRange
from forebay.wire.tiers.manifest import Manifest, RemoteSegment

AT = TopicPartition("orders", 0)
MB = 1 << 20


def manifest_of(sizes: Sequence[tuple[int, int]], first: int = 0, start: int = 0) -> Manifest:
    """By the messages and the bytes of each segment."""
    segments, base = [], first
    for count, size in sizes:
        end = base + count
        segments.append(RemoteSegment(f"{base}", base, end, size, size, 0, ((0, base),), 0, "", 0))
        base = end
    return Manifest("orders", bytes(16), 0, start_offset=start, segments=tuple(segments))


def pieces_of(manifest: Manifest, start: int, end: int) -> list[tuple[int, int]]:
    cut = RemotePlan("file:///store", {AT: manifest}).cut([OffsetRange(AT, start, end)])
    assert all(each.at == AT for each in cut)
    assert [each.end for each in cut[:-1]] == [each.start for each in cut[1:]]
    assert (cut[0].start, cut[-1].end) == (start, end)
    return [(each.start, each.end) for each in cut]


def test_tasks_are_about_equally_large() -> None:
    # Three tasks of 128 MB and one of 64 would leave a core without work at the end.
    sizes = [(1000, 16 * MB)] * 28
    pieces = pieces_of(manifest_of(sizes), 0, 28_000)
    assert pieces == [(0, 7000), (7000, 14_000), (14_000, 21_000), (21_000, 28_000)]


def test_a_large_segment_is_shared_by_several_tasks() -> None:
    pieces = pieces_of(manifest_of([(8000, 1024 * MB)]), 0, 8000)
    assert pieces == list(pairwise(range(0, 8001, 1000)))


def test_small_segments_share_a_task() -> None:
    assert pieces_of(manifest_of([(10, MB)] * 100), 0, 1000) == [(0, 1000)]


def test_what_brokers_have_is_not_joined_with_what_is_remote() -> None:
    manifest = manifest_of([(10, MB)] * 3, first=10, start=15)
    assert pieces_of(manifest, 0, 60) == [(0, 15), (15, 40), (40, 60)]
    assert pieces_of(manifest, 40, 60) == [(40, 60)]
    assert pieces_of(manifest, 0, 10) == [(0, 10)]


def test_only_the_bytes_of_the_range_count() -> None:
    manifest = manifest_of([(1000, 1000 * MB)])
    assert pieces_of(manifest, 400, 500) == [(400, 500)]
    assert len(pieces_of(manifest, 400, 600)) == 2


def test_a_segment_with_fewer_messages_than_tasks() -> None:
    assert pieces_of(manifest_of([(2, 1024 * MB)]), 0, 2) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("seed", range(50))
def test_tasks_of_any_manifest_cover_it_and_are_even(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [
        (chance.randint(1_000, 100_000), chance.choice([1, MB, 16 * MB, 300 * MB, 1024 * MB]))
        for _ in range(chance.randint(1, 40))
    ]
    manifest = manifest_of(sizes, first=chance.randint(0, 10**9))
    end = manifest.next_offset
    plan = RemotePlan("file:///store", {AT: manifest})
    start = chance.randint(manifest.first_offset, end - 1)
    cut = plan.cut([OffsetRange(AT, start, end)])
    pieces_of(manifest, start, end)
    even = sum(_bytes(manifest, each) for each in cut) / len(cut)
    assert even <= TASK_BYTES
    for piece in cut:
        assert _bytes(manifest, piece) <= even * 1.3
        task = plan.attached(piece)
        assert isinstance(task, RemoteRange)
        wanted = [each for each in manifest.segments if _overlap(each, piece)]
        assert list(task.segments) == wanted


def _bytes(manifest: Manifest, piece: OffsetRange) -> float:
    return sum(_overlap(each, piece) * each.data_bytes for each in manifest.segments)


def _overlap(segment: RemoteSegment, piece: OffsetRange) -> float:
    """The part of a segment's messages that a piece has."""
    both = min(segment.next_offset, piece.end) - max(segment.base_offset, piece.start)
    return max(both, 0) / (segment.next_offset - segment.base_offset)
