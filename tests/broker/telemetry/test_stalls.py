"""How long the event loop stood still is known: in the metrics, and in the log when it was long."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.telemetry.stalls import StallWatch
from support.brokers.local_cluster import eventually, local_cluster


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
