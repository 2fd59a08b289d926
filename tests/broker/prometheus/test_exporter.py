"""Metrics over HTTP: a page that Prometheus reads, and visitors that want something else."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.testing import BrokerFailed
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import WireClient, append, batch, create

_LABELLED = r"(?P=name)\{(?:reason|quota)=\"[a-z_]+\"\} [0-9]+\n"
_SAMPLE = re.compile(
    r"# TYPE (?P<name>[a-z_]+) (?P<kind>counter|gauge)\n"
    rf"(?:(?P=name) (?P<value>[0-9]+)\n|(?:{_LABELLED})+)"
)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, {"forebay.metrics.listener": "127.0.0.1:0"}) as running:
        yield running


def address(local: LocalBroker) -> tuple[str, int]:
    found = local.on_loop(lambda broker: broker.exporter.address)
    assert found is not None
    return found


def visit(local: LocalBroker, request: bytes) -> bytes:
    with socket.create_connection(address(local), timeout=60) as visitor:
        visitor.sendall(request)
        visitor.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: visitor.recv(65536), b""))


def read(local: LocalBroker, path: str = "/metrics") -> tuple[str, str]:
    host, port = address(local)
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def values(page: str) -> dict[str, int]:
    return {found["name"]: int(found["value"]) for found in _SAMPLE.finditer(page) if found["value"]}


def test_counters_and_gauges_are_shown(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t", 3)
        append(client, "t", batch(b"one", b"two"))
        kind, page = read(local)
    assert kind.startswith("text/plain; version=0.0.4")
    assert _SAMPLE.sub("", page) == "", "nothing but samples with their types"
    found = values(page)
    assert found["kafka_server_brokertopicmetrics_messagesin_total"] == 2
    assert found["kafka_server_replicamanager_leadercount"] == 3
    assert found["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert found["forebay_lease_valid"] == 1
    assert found["forebay_connections"] == 1


def test_other_wishes_are_refused_and_do_no_harm(local: LocalBroker) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read(local, "/")
    assert visit(local, b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
    head = visit(local, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    for garbage in (b"", b"\x00\xff" * 3000, b"GET /" + b"x" * 20_000, b"GET /metrics HTTP/1.1\r\n"):
        assert visit(local, garbage) == b""
    assert values(read(local)[1])["forebay_brokers"] == 1


def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(BrokerFailed, match=r"forebay\.metrics\.listener: cannot listen"),
            local_broker(tmp_path, {"forebay.metrics.listener": f"127.0.0.1:{port}"}),
        ):
            pass
