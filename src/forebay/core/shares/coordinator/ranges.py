"""Ranges of offsets with one delivery state, and merging two reports about the same offsets.

Each delivery raises the count of an offset by one. While the count stays, the state only rises: AVAILABLE,
ACKNOWLEDGED, ARCHIVING, ARCHIVED. So (count, state) is a rank that never falls. Of two reports about an
offset the one with the higher rank is newer, whichever arrives first. Merging gives the same result in any
order and any number of times: a repeated or late write does no harm.

An offset outside all ranges counts as never delivered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heappop, heappush

from forebay.core.shares.partition.state_transitions import RecordState
from forebay.core.shares.partition.writes import StateRange

NO_OFFSET = -1
"""The start offset of a share partition that no leader has found yet."""


Ranges = tuple[StateRange, ...]
"""Sorted by offset, disjoint, and joined where neighbours are alike."""


def merge(ranges: Ranges, newer: Iterable[StateRange], start_offset: int) -> Ranges:
    """The union of both reports, from `start_offset` on. `newer` may overlap and be in any order.

    Ranges that `newer` does not touch are kept as they are.
    """
    kept = _from(ranges, start_offset)
    added = [_cut(new, start_offset) for new in newer if new.last >= start_offset]
    if not added:
        return kept
    if len(added) == 1 and (not kept or kept[-1].last + 1 < added[0].first):
        return (*kept, added[0])  # most writes: one more range, behind all others
    before, after = min(new.first for new in added) - 1, max(new.last for new in added) + 1
    low = bisect_left(kept, before, key=_last)
    high = bisect_right(kept, after, key=_first)
    return (*kept[:low], *_highest([*kept[low:high], *added]), *kept[high:])


def _first(each: StateRange) -> int:
    return each.first


def _last(each: StateRange) -> int:
    return each.last


def _from(ranges: Ranges, start_offset: int) -> Ranges:
    """The same ranges without what is below an offset."""
    if not ranges or ranges[0].first >= start_offset:
        return ranges
    index = bisect_left(ranges, start_offset, key=_last)
    return tuple(_cut(each, start_offset) for each in ranges[index : index + 1]) + ranges[index + 1 :]


def _cut(each: StateRange, start_offset: int) -> StateRange:
    return each if each.first >= start_offset else each._replace(first=start_offset)


def _highest(pieces: list[StateRange]) -> list[StateRange]:
    """Ranges in which each offset has the highest rank of the pieces that hold it.

    One pass from left to right. Most pieces overlap no other and are taken over. Where some overlap, those
    over the current position are in a heap, the highest rank first; ended ones are dropped when they come up.
    """
    pieces.sort()
    result: list[StateRange] = []
    over: list[tuple[int, int, int, RecordState]] = []
    position, index, end = 0, 0, len(pieces)
    while True:
        while over and over[0][2] < position:
            heappop(over)
        if not over:
            while index < end and (index + 1 == end or pieces[index].last < pieces[index + 1].first):
                _append(result, pieces[index])
                index += 1
            if index == end:
                return result
            position = pieces[index].first
        while index < end and pieces[index].first <= position:
            _, last, state, count = pieces[index]
            heappush(over, (-count, -state, last, state))
            index += 1
        negative_count, _, last, state = over[0]
        if last < position:
            continue
        if index < end:
            last = min(last, pieces[index].first - 1)
        _append(result, StateRange(position, last, state, -negative_count))
        position = last + 1


def _append(result: list[StateRange], piece: StateRange) -> None:
    """Add a piece to the end; it joins the one before if they touch and are alike."""
    if result and result[-1].last + 1 == piece.first and result[-1][2:] == piece[2:]:
        piece = piece._replace(first=result.pop().first)
    result.append(piece)
