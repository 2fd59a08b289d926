"""The producers of a topic that its leaders remember: idempotent and transactional ones, by partition."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from forebay.console.pages.topics.topic import seen
from forebay.console.web.asking import Ask
from forebay.console.web.page import Page
from forebay.console.web.paging import page_of
from forebay.operations.wire import BrokerConnections
from forebay.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)

PAGE = Page()


class Active(NamedTuple):
    partition: int
    state: ProducerState


@PAGE.get("/topics/{topic}/producers")
def producers(ask: Ask) -> dict[str, Any]:
    """The last that have written come first; `open`: only those with an open transaction."""
    picture, found = seen(ask)
    leaders: dict[str, list[int]] = defaultdict(list)
    for part in found.partitions:
        broker = picture.broker(part.leader)
        if broker is not None and broker.answers:
            leaders[broker.address].append(part.index)
    refused: set[str] = set()
    with ask.cluster.connections() as connections:
        rows = [
            each
            for address, indexes in leaders.items()
            for each in _active(connections, address, found.name, indexes, refused)
        ]
    listed = page_of(
        ask,
        [row for row in rows if not ask.flag("open") or row.state.current_txn_start_offset >= 0],
        name=lambda row: f"{row.state.producer_id}",
        columns={
            "producer": lambda row: row.state.producer_id,
            "partition": lambda row: row.partition,
            "last": lambda row: row.state.last_timestamp,
        },
        default="-last",
        show=_shown,
    )
    return {
        **listed,
        "now_ms": time.time_ns() // 1_000_000,
        "open_all": sum(row.state.current_txn_start_offset >= 0 for row in rows),
        "refused": sorted(refused),
    }


def _active(
    connections: BrokerConnections, address: str, topic: str, indexes: list[int], refused: set[str]
) -> Iterator[Active]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=indexes)])
    answer = connections.at(address).ask(request, DescribeProducersResponse)
    for found in answer.topics:
        for part in found.partitions:
            if part.error_code:
                refused.add(part.error_message or f"error {part.error_code}")
            yield from (Active(part.partition_index, state) for state in part.active_producers)


def _shown(row: Active) -> dict[str, Any]:
    state = row.state
    return {
        "producer": state.producer_id,
        "epoch": state.producer_epoch,
        "partition": row.partition,
        "sequence": state.last_sequence,
        "last": state.last_timestamp if state.last_timestamp >= 0 else None,
        "open_from": state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    }
