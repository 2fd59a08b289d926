"""Where the messages of tiered topics lie, and how far copying to the object store is, as the leaders say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from forebay.operations.client import CommandError
from forebay.wire.messages.describe_remote_logs import (
    DescribedRemoteLog,
    DescribeRemoteLogsRequest,
    DescribeRemoteLogsResponse,
)

if TYPE_CHECKING:
    from forebay.operations.wire import BrokerConnections

WAITING_SEGMENTS_MAX = 8
"""A leader copies four segments of a partition in one go: with twice as many waiting, copying is behind."""


def remote_logs(
    connections: BrokerConnections, addresses: Iterable[str], topics: Sequence[str]
) -> dict[tuple[str, int], DescribedRemoteLog]:
    """By partition; without those whose leader does not answer, or does not tell this user."""
    found: dict[tuple[str, int], DescribedRemoteLog] = {}
    for address in addresses:
        try:
            connection = connections.at(address)
            if not connection.serves(DescribeRemoteLogsRequest):
                continue
            answer = connection.ask(
                DescribeRemoteLogsRequest(topics=list(topics)), DescribeRemoteLogsResponse
            )
        except CommandError:
            continue  # the other leaders still help
        found |= {(each.topic, each.partition_index): each for each in answer.partitions}
    return found


def is_behind(log: DescribedRemoteLog) -> bool:
    """True if closed segments pile up although they should be copied."""
    return log.copies and log.is_known and log.waiting_segments >= WAITING_SEGMENTS_MAX
