"""DescribeRemoteLogs: the tiered partitions that this broker leads, for the console and `topic describe`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.core.tiers.planning import copy_lag
from forebay.wire.messages.describe_remote_logs import (
    DescribedRemoteLog,
    DescribeRemoteLogsRequest,
    DescribeRemoteLogsResponse,
)

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.net.request_context import RequestContext
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable


_SEGMENTS_AT_ONCE = 5_000
"""Between two turns of the loop: bytes are added up over all segments of a partition."""


def handle(
    partitions: PartitionTable,
    background: Background,
    context: RequestContext,
    request: DescribeRemoteLogsRequest,
) -> Reply:
    return answer_later(background, context.defer(), _answer(partitions, request), "describing remote logs")


async def _answer(
    partitions: PartitionTable, request: DescribeRemoteLogsRequest
) -> DescribeRemoteLogsResponse:
    wanted = None if request.topics is None else frozenset(request.topics)
    found: list[DescribedRemoteLog] = []
    segments = 0
    for partition in partitions.all():
        if partition.remote is None or not partition.is_leader:
            continue
        if wanted is None or partition.topic in wanted:
            found.append(_described(partition))
            segments += 1 + found[-1].remote_segments + len(partition.log.segments())
        if segments > _SEGMENTS_AT_ONCE:
            segments = 0
            await asyncio.sleep(0)
    return DescribeRemoteLogsResponse(partitions=found)


def _described(partition: Partition) -> DescribedRemoteLog:
    remote = partition.remote
    assert remote is not None
    manifest = remote.manifest
    has_segments = manifest is not None and bool(manifest.segments)
    waiting_segments, waiting_bytes = copy_lag(partition.log.segments(), remote.copied_to)
    return DescribedRemoteLog(
        topic=partition.topic,
        partition_index=partition.index,
        is_known=remote.known,
        local_start_offset=partition.log.start_offset,
        remote_start_offset=manifest.first_offset if manifest is not None and has_segments else -1,
        remote_end_offset=manifest.next_offset if manifest is not None and has_segments else -1,
        remote_bytes=0 if manifest is None else manifest.data_bytes,
        remote_segments=0 if manifest is None else len(manifest.segments),
        waiting_segments=waiting_segments,
        waiting_bytes=waiting_bytes,
        copies=not partition.config.remote_copy_disable,
        problem=remote.failure or "",
    )
