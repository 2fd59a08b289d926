"""How long the event loop stood still is known: in the metrics, and in the log when it was long."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.telemetry.stalls import StallWatch
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from support.brokers.local_broker import local_broker
from support.brokers.local_cluster import eventually, local_cluster
from support.clients.wire_client import CLIENT_ID, WireClient
from support.waiting import Patience


def test_only_stalls_of_more_than_a_quarter_of_the_lease_count(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    watch = StallWatch(metrics, lease_ttl_ms=8_000, alarm_ms=250)
    with caplog.at_level(logging.WARNING):
        for late_s in (0.001, 1.9, 2.1, 0.5):
            watch.woken(late_s)
    assert metrics.loop_stalls == 1
    assert watch.longest_ms == 2_100
    assert [record.getMessage() for record in caplog.records] == ["the event loop stood still"]


async def test_a_loop_that_is_blocked_shows_it(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        time.sleep(1.2)  # noqa: ASYNC251 - the loop of all three brokers stands still
        await eventually(lambda: all(cluster[node].stalls.longest_ms > 500 for node in cluster.nodes))


def test_a_long_stall_names_the_request_that_took_longest(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    watch = StallWatch(metrics, lease_ttl_ms=8_000, alarm_ms=250)
    with caplog.at_level(logging.WARNING):
        watch.caused_by({"request": "Metadata v12", "principal": "User:eve"}, 2.5)
        watch.caused_by({"request": "Fetch v12", "principal": "User:bob"}, 0.3)
        watch.woken(2.8)
        watch.woken(2.8)
    assert metrics.requests_stalling == 2
    named, unnamed = [record for record in caplog.records if record.getMessage().endswith("stood still")]
    assert (named.ms, named.request_ms, named.principal) == (2800, 2500, "User:eve")  # type: ignore[attr-defined]
    assert not hasattr(unnamed, "principal"), "it was another time"


@pytest.mark.parametrize("count", [500, 5_000])
def test_a_request_that_blocks_the_loop_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """The smaller one is handled at once, when it comes, the other one in slices. A fast machine may handle
    one of them within the millisecond from which on it is reported: so they are sent until one is."""
    partitions = [FetchPartition(partition=number) for number in range(count)]
    request = FetchRequest(topics=[FetchTopic(topic="unknown", partitions=partitions)], max_wait_ms=0)
    settings = {"forebay.stall.alarm.ms": "1", "forebay.connection.turn.max.ms": "1"}
    with (
        caplog.at_level(logging.WARNING, "forebay.broker.telemetry.stalls"),
        local_broker(tmp_path / "data", settings) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        patience = Patience("a request is reported")
        while not broker.on_loop(lambda node: node.metrics.requests_stalling):
            patience.check()
            frame = client.frame(request, 12)
            client.socket.sendall(frame)
            assert len(client.read().responses[0].partitions) == len(partitions)
        host, port = client.socket.getsockname()
    blamed = [vars(record) for record in caplog.records if "blocked" in record.getMessage()]
    found = max((each for each in blamed if each["request"] == "Fetch v12"), key=lambda each: each["ms"])
    assert found["ms"] >= 1
    assert (found["client_id"], found["client"]) == (CLIENT_ID, f"{host}:{port}")
    assert (found["principal"], found["bytes"]) == ("User:ANONYMOUS", len(frame) - 4)
