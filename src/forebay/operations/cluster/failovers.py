"""The last failovers of a cluster: brokers that were counted as dead because they refused connections."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from forebay.operations.wire import WireConnection, check
from forebay.wire.messages.describe_failovers import (
    DescribedFailover,
    DescribeFailoversRequest,
    DescribeFailoversResponse,
)


def read_failovers(connection: WireConnection) -> list[DescribedFailover]:
    """The newest last; none of a broker that does not know the request."""
    if not connection.serves(DescribeFailoversRequest):
        return []
    answer = connection.ask(DescribeFailoversRequest(), DescribeFailoversResponse)
    check(answer.error_code, answer.error_message)
    return answer.failovers


def failover_json(failover: DescribedFailover) -> dict[str, Any]:
    return {
        "broker": failover.broker,
        "by": failover.by,
        "at": time_text(failover.at_ms),
        "partitions": failover.partitions,
        "detect_ms": failover.detect_ms,
        "fence_ms": failover.fence_ms,
        "elect_ms": failover.elect_ms,
        "announce_ms": failover.announce_ms,
    }


def time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
