"""Metrics over HTTP: a page that Prometheus reads, whether the broker serves, and visitors that want more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.broker.prometheus.catalog import CATALOG
from forebay.broker.prometheus.health import Health
from forebay.testing import BrokerFailed
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.local_cluster import eventually, local_cluster
from support.clients.wire_client import WireClient, append, batch, create
from support.scraping import scrape, visit

METRICS = {"forebay.metrics.listener": "127.0.0.1:0"}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, METRICS) as running:
        yield running


def address(local: LocalBroker) -> tuple[str, int]:
    return address_of(local.node)


def address_of(node: Node) -> tuple[str, int]:
    found = node.exporter.address
    assert found is not None
    return found


def send(local: LocalBroker, request: bytes) -> bytes:
    with socket.create_connection(address(local), timeout=60) as visitor:
        visitor.sendall(request)
        visitor.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: visitor.recv(65536), b""))


def test_counters_and_gauges_are_shown(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t", 3)
        append(client, "t", batch(b"one", b"two"))
        found = scrape(address(local))
    assert found("kafka_server_brokertopicmetrics_messagesin_total") == 2
    assert found("kafka_server_replicamanager_leadercount") == 3
    assert found("kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert found("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert found("forebay_lease_valid") == 1
    assert found("forebay_connections") == 1


def test_every_metric_is_in_the_catalog_with_its_type_help_and_labels(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t", 3)
        append(client, "t", batch(b"one", b"two"))
    by_family = {family.name.removesuffix("_total"): family for family in CATALOG.values()}
    for name, shown in scrape(address(local)).families.items():
        family = by_family[name]
        assert (shown.type, shown.documentation) == (family.kind, family.help)
        for sample in shown.samples:
            assert set(sample.labels) - {"le"} <= set(family.labels), sample


def test_other_wishes_are_refused_and_do_no_harm(local: LocalBroker) -> None:
    assert visit(address(local), "/").status == 404
    assert send(local, b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
    head = send(local, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    for garbage in (b"", b"\x00\xff" * 3000, b"GET /" + b"x" * 20_000, b"GET /metrics HTTP/1.1\r\n"):
        assert send(local, garbage) == b""
    assert scrape(address(local))("forebay_brokers") == 1


async def test_visitors_that_come_together_share_one_page(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, METRICS, brokers=1) as cluster:
        page = cluster[1].exporter.metrics_page
        first, second = await asyncio.gather(page.pieces(open_metrics=True), page.pieces(open_metrics=True))
        assert first is second
        third = await page.pieces(open_metrics=True)
        assert third is not first


def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(BrokerFailed, match=r"forebay\.metrics\.listener: cannot listen"),
            local_broker(tmp_path, {"forebay.metrics.listener": f"127.0.0.1:{port}"}),
        ):
            pass


# -- health --------------------------------------------------------------------------------------------


def test_a_broker_that_serves_is_healthy_and_ready(local: LocalBroker) -> None:
    assert visit(address(local), "/healthz")[::2] == (200, "ok\n")
    assert visit(address(local), "/readyz")[::2] == (200, "ok\n")
    found = scrape(address(local))
    assert (found("forebay_ready"), found("kafka_server_kafkaserver_brokerstate")) == (1, 3)


def test_a_broker_without_its_lease_lives_but_is_not_ready_and_says_why(local: LocalBroker) -> None:
    def lose(node: Node) -> None:
        node.lease.current = None

    local.on_loop(lose)
    status, _, reason = visit(address(local), "/readyz")
    assert status == 503
    assert "no lease" in reason
    assert visit(address(local), "/healthz").status == 200
    found = scrape(address(local))
    assert (found("forebay_ready"), found("forebay_lease_valid")) == (0, 0)


async def test_a_broker_that_stops_is_not_ready_any_more(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, METRICS) as cluster:
        node = cluster[1]
        where = address_of(node)
        assert (await asyncio.to_thread(visit, where, "/readyz")).status == 200
        cluster.slow_down(1, 1.0)
        stopping = asyncio.create_task(cluster.stop(1))
        await eventually(lambda: node.exporter.health.problem() is not None)
        status, _, reason = await asyncio.to_thread(visit, where, "/readyz")
        assert (status, "stopping" in reason) == (503, True)
        await stopping


async def test_a_broker_that_has_not_joined_yet_is_not_ready(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, METRICS, brokers=1) as cluster:
        health = Health(cluster[1].lease, cluster[1].metadata, is_serving=lambda: False)
        assert health.state == 1
        assert "starting" in (health.problem() or "")
