"""Checks the acknowledgements of one request for one share partition: all are applied, or none.

| case | answer |
|---|---|
| first > last; a batch that begins before the end of the one before | INVALID_REQUEST |
| no types; types that are neither one nor one per offset; an unknown type | INVALID_REQUEST |
| renew without the request's flag; offsets after the end of the window | INVALID_REQUEST |
| nothing is in the window; an offset twice | INVALID_RECORD_STATE |
| a record that is not acquired (its acknowledgement may be pending) | INVALID_RECORD_STATE |
| a record that is held by another member | INVALID_RECORD_STATE |
| renew where the group does not allow it | INVALID_RECORD_STATE |
| wholly below the start offset | success, nothing happens |

Kafka lets a batch begin with the last offset of the one before. It is then refused, because that record was
acknowledged a moment ago.

A lock is valid until `expire` removes it, even after its time. Until then no other member can have got the
record, so a refusal would only repeat finished work. Kafka does the same. If another broker may have taken
over without this broker's knowledge, the lease and the epochs of the write decide, not the lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from forebay.core.shares.partition.record_window import Walk, Window
from forebay.core.shares.partition.state_transitions import ACQUIRED
from forebay.errors import ErrorCode
from forebay.wire.messages.share_fetch import AcknowledgementBatch


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Run(NamedTuple):
    """Neighbouring offsets that are acknowledged alike."""

    first: int
    last: int
    type: AcknowledgeType


def checked(
    window: Window,
    member_id: str,
    batches: Sequence[AcknowledgementBatch],
    *,
    is_renew_request: bool,
    may_renew: bool,
) -> list[Run] | ErrorCode:
    """The runs to apply, or the error code that refuses all of them."""
    previous_last = -1
    for batch in batches:
        if batch.first_offset < previous_last or not _is_well_formed(batch, is_renew_request):
            return ErrorCode.INVALID_REQUEST
        previous_last = batch.last_offset
    runs: list[Run] = []
    walk = Walk(window)
    for batch in batches:
        if batch.last_offset < window.start:
            continue
        if not window.spans:
            return ErrorCode.INVALID_RECORD_STATE
        if batch.last_offset > window.end:
            return ErrorCode.INVALID_REQUEST
        for run in _runs(batch, window.start):
            before = runs[-1] if runs else None
            is_twice = before is not None and before.last >= run.first
            if is_twice or not _may_acknowledge(walk, member_id, run, may_renew):
                return ErrorCode.INVALID_RECORD_STATE
            if before is not None and before.last + 1 == run.first and before.type is run.type:
                runs[-1] = before._replace(last=run.last)  # many clients name each offset by itself
            else:
                runs.append(run)
    return runs


def _is_well_formed(batch: AcknowledgementBatch, is_renew_request: bool) -> bool:
    types = batch.acknowledge_types
    size = batch.last_offset - batch.first_offset + 1
    if size < 1 or not types or len(types) not in (1, size):
        return False
    return min(types) >= AcknowledgeType.GAP and max(types) <= (
        AcknowledgeType.RENEW if is_renew_request else AcknowledgeType.REJECT
    )


def _runs(batch: AcknowledgementBatch, start: int) -> Iterator[Run]:
    """Yields the runs of a batch by type, from the start offset on."""
    types = batch.acknowledge_types
    first = batch.first_offset
    if types.count(types[0]) == len(types):
        yield Run(max(first, start), batch.last_offset, AcknowledgeType(types[0]))
        return
    for number, alike in groupby(types):
        last = first + sum(1 for _ in alike) - 1
        if last >= start:
            yield Run(max(first, start), last, AcknowledgeType(number))
        first = last + 1


def _may_acknowledge(walk: Walk, member_id: str, run: Run, may_renew: bool) -> bool:
    if run.type is AcknowledgeType.RENEW and not may_renew:
        return False
    return all(
        span.state is ACQUIRED and span.member == member_id for span in walk.between(run.first, run.last)
    )
