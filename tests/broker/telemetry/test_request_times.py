"""Requests are counted exactly and measured now and then, in a histogram for each API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.telemetry.request_times import (
    BOUNDS_MS,
    INTERVAL_MAX,
    ApiTimes,
    Histogram,
    Measurement,
    RequestTimes,
)
from forebay.wire.api_keys import ApiKey
from support.brokers.local_broker import LocalBroker, local_broker
from support.busy_broker import METRICS, scraped
from support.clients.wire_client import WireClient, append, batch, create, read

REQUESTS, TIMES = "kafka_network_requestmetrics_requests_total", "kafka_network_requestmetrics_totaltimems"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, METRICS) as running:
        yield running


def measured(times: ApiTimes, requests: int, every_s: float = 1e-5) -> list[tuple[int, int]]:
    """Number and weight of the requests that are measured, of so many."""
    found = []
    for number in range(requests):
        times.count += 1
        if times.count >= times.measured_from:
            found.append((times.count, times.begin(number * every_s)))
    return found


def test_of_many_requests_one_in_64_is_measured_and_counts_for_those_before_it() -> None:
    found = measured(ApiTimes(is_sampled=True), 64_000)
    assert 900 <= len(found) <= 1100
    assert sum(weight for _, weight in found) == found[-1][0]


def test_of_few_requests_each_is_measured() -> None:
    assert measured(ApiTimes(is_sampled=True), 50, every_s=0.02) == [(number, 1) for number in range(1, 51)]


@pytest.mark.parametrize("clients", [2, 3, 8, 16, 17, 31])
def test_clients_that_take_turns_are_all_measured(clients: int) -> None:
    found = measured(ApiTimes(is_sampled=True), 128_000)
    by_client = Counter(number % clients for number, _ in found)
    assert len(by_client) == clients
    assert max(by_client.values()) <= 3 * min(by_client.values())


def test_of_other_apis_each_request_is_measured() -> None:
    requests = RequestTimes()
    assert measured(requests.of(ApiKey.METADATA), 3) == [(1, 1), (2, 1), (3, 1)]
    assert requests.of(ApiKey.METADATA) is requests.of(ApiKey.METADATA)


def test_times_are_put_into_the_bucket_that_holds_them() -> None:
    histogram, now = Histogram(), [5.0]
    for milliseconds in (0.1, 0.25, 0.3, 40_000.0):
        measurement = Measurement(histogram, 2, now[0], lambda: now[0])
        now[0] += milliseconds / 1000
        measurement.end()
    assert histogram.counts[0] + histogram.counts[1] == 6
    assert histogram.counts[len(BOUNDS_MS)] == 2
    assert histogram.sum_ms == pytest.approx(2 * 40_000.65)


@pytest.mark.parametrize("acks", [1, -1], ids=["answered at once", "answered after a flush"])
def test_produce_requests_are_counted_on_the_fast_path_too(local: LocalBroker, acks: int) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t")
        for _ in range(200):
            append(client, "t", batch(b"x"), acks=acks)
        assert local.on_loop(lambda node: all(each.memo is not None for each in node.server.connections))
        found = scraped(local)
    assert found(REQUESTS, request="Produce") == 200
    assert found("kafka_server_brokertopicmetrics_totalproducerequests_total") == 200
    assert 200 - INTERVAL_MAX <= found(f"{TIMES}_count", request="Produce") <= 200
    assert found(f"{TIMES}_sum", request="Produce") > 0
    assert found(f"{TIMES}_bucket", request="Produce", le="+Inf") == found(
        f"{TIMES}_count", request="Produce"
    )


def test_waits_count_and_consumers_are_told_from_followers(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t")
        read(client, "t", max_wait_ms=300)  # the first one is measured
        found = scraped(local)
    assert found(REQUESTS, request="Fetch") == 1
    assert found(f"{TIMES}_count", request="FetchConsumer") == 1
    assert found(f"{TIMES}_bucket", request="FetchConsumer", le="250.0") == 0
    assert found(f"{TIMES}_count", request="FetchFollower") == 0
    assert found(f"{TIMES}_count", request="CreateTopics") == 1
