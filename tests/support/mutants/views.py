"""Mistakes with views; see brokers.py."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import pytest

from forebay.broker.fetch.view_fetch import ViewFetch
from forebay.broker.fetch.view_read import ViewRead
from forebay.broker.partition.partition import Partition
from forebay.broker.views import cache, materializing
from forebay.broker.views.cache import Cached, CachedSegment
from forebay.broker.views.fill_position import Fill
from forebay.core.partition.fetch_session import FetchTarget
from forebay.core.views import copying
from forebay.core.views.copying import Aborted, Copied
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.batch import BatchHeader


def move_readers_of_views_past_a_message(patch: pytest.MonkeyPatch) -> None:
    """What stands for messages that do not match reaches one offset too far."""
    widen_gap = ViewRead._widen_gap

    def too_wide(self: ViewRead, empty: BatchHeader) -> None:
        widen_gap(self, empty._replace(last_offset_delta=empty.last_offset_delta + 1))

    patch.setattr(ViewRead, "_widen_gap", too_wide)


def show_in_views_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    take_slice = ViewFetch._slice

    def to_the_end(self: ViewFetch, partition: Partition, target: FetchTarget, left: int, _: int) -> LogSlice:
        return take_slice(self, partition, target, left, partition.log.end_offset)

    patch.setattr(ViewFetch, "_slice", to_the_end)


def begin_too_late_in_the_cache_of_views(patch: pytest.MonkeyPatch) -> None:
    """The batch that holds the offset asked for is left out."""
    part = CachedSegment.part

    def later(self: CachedSegment, offset: int, max_bytes: int) -> Cached | None:
        after = bisect_right(self.offsets, offset)
        return part(self, self.offsets[after] if after < len(self.offsets) else offset, max_bytes)

    patch.setattr(CachedSegment, "part", later)
    patch.setattr(cache, "_INDEX_BYTES", 1)


def copy_aborted_messages(patch: pytest.MonkeyPatch) -> None:
    """A materialized view takes what its source shows to readers of committed messages only by a list."""
    copy = copying.copy_batches

    def all_of_it(data: memoryview, first_offset: int, _: Iterable[Aborted], limit: int) -> Copied:
        return copy(data, first_offset, [], limit)

    patch.setattr(materializing, "copy_batches", all_of_it)


def fill_past_a_message(patch: pytest.MonkeyPatch) -> None:
    """Where nothing is shown, a materialized view is taken to be one offset further than it is."""
    passed = Fill.passed

    def too_far(self: Fill, next_offset: int, now_s: float) -> None:
        passed(self, next_offset + 1, now_s)

    patch.setattr(Fill, "passed", too_far)
