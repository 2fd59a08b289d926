"""DescribeShareWindows: the share partitions of a group that are loaded here."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.broker.net.request_context import RequestContext
from forebay.broker.shares.requests.service import ShareService
from forebay.wire.messages.describe_share_windows import (
    DescribeShareWindowsRequest,
    DescribeShareWindowsResponse,
    ShareHolder,
    ShareSpan,
    ShareWindow,
)


def handle(
    service: ShareService, _context: RequestContext, request: DescribeShareWindowsRequest
) -> DescribeShareWindowsResponse:
    return DescribeShareWindowsResponse(windows=list(_windows(service, request.group_id)))


def _windows(service: ShareService, group_id: str) -> Iterator[ShareWindow]:
    for share in service.shares:
        if share.key.group_id != group_id or share.machine is None or not share.is_current:
            continue
        found = share.machine.describe(service.time.uptime_ms())
        yield ShareWindow(
            topic_name=share.partition.topic,
            partition_index=share.partition.index,
            start_offset=found.start_offset,
            end_offset=found.end_offset,
            window_max=found.window_max,
            available=found.available,
            waiting=found.waiting,
            acquired=found.acquired,
            dead_letters=found.archiving,
            dead_letter_problem=share.mover.problem,
            finished=found.finished,
            holders=[
                ShareHolder(
                    member_id=each.member_id, records=each.records, oldest_lock_ms=each.oldest_lock_ms
                )
                for each in found.holders
            ],
            spans=[
                ShareSpan(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    state=each.state,
                    deliveries=each.deliveries,
                    member_id=each.member_id,
                    left_ms=-1 if each.left_ms is None else each.left_ms,
                )
                for each in found.spans
            ],
        )
