"""DescribeRemoteLogs: the tiered partitions that this broker leads, for the console and `topic describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.tiers.planning import copy_lag
from forebay.wire.messages.describe_remote_logs import (
    DescribedRemoteLog,
    DescribeRemoteLogsRequest,
    DescribeRemoteLogsResponse,
)

if TYPE_CHECKING:
    from forebay.broker.net.request_context import RequestContext
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable


def handle(
    partitions: PartitionTable, _: RequestContext, request: DescribeRemoteLogsRequest
) -> DescribeRemoteLogsResponse:
    wanted = None if request.topics is None else frozenset(request.topics)
    return DescribeRemoteLogsResponse(
        partitions=[
            _described(each)
            for each in partitions.all()
            if each.remote is not None and each.is_leader and (wanted is None or each.topic in wanted)
        ]
    )


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
