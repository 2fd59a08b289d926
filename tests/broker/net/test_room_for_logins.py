"""Connections that say nothing keep nobody out, however few connections there may be."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.local_broker import LocalBroker
from support.brokers.sasl_broker import log_in, sasl_broker
from support.clients.wire_client import WireClient

CONNECTIONS = 20
SETTINGS = {
    "max.connections": str(CONNECTIONS),
    "forebay.max.unauthenticated.connections": "1000",
    "forebay.authentication.timeout.ms": "600000",
}


def open_connections(broker: LocalBroker) -> int:
    return broker.on_loop(lambda node: node.server.connection_count)


def test_silent_connections_make_room_for_logins_at_the_limit(tmp_path: Path) -> None:
    """500 of them, from one address, let 2 of 75 clients in."""
    with sasl_broker(tmp_path / "data", SETTINGS) as broker, contextlib.ExitStack() as stack:
        for _ in range(5 * CONNECTIONS):
            stack.enter_context(WireClient(broker.bootstrap, source="127.0.0.3"))
        ready = []
        for number in range(CONNECTIONS):
            client = stack.enter_context(WireClient(broker.bootstrap, source=f"127.0.1.{number + 1}"))
            assert log_in(client).error_code == 0
            ready.append(client)
            assert open_connections(broker) <= CONNECTIONS
        for client in ready:
            assert client.call(MetadataRequest(topics=None), 12).brokers


def test_clients_that_have_logged_in_make_no_room(tmp_path: Path) -> None:
    with sasl_broker(tmp_path / "data", SETTINGS) as broker, contextlib.ExitStack() as stack:
        ready = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(CONNECTIONS)]
        for client in ready:
            assert log_in(client).error_code == 0
        with WireClient(broker.bootstrap, source="127.0.0.4") as late:
            assert late.is_closed()
        for client in ready:
            assert client.call(MetadataRequest(topics=None), 12).brokers


def test_an_address_at_its_own_limit_takes_nothing_from_others(tmp_path: Path) -> None:
    settings = SETTINGS | {"max.connections.per.ip": "5"}
    with sasl_broker(tmp_path / "data", settings) as broker, contextlib.ExitStack() as stack:
        quiet = [
            stack.enter_context(WireClient(broker.bootstrap, source=f"127.0.2.{number + 1}"))
            for number in range(CONNECTIONS - 5)
        ]
        greedy = [stack.enter_context(WireClient(broker.bootstrap, source="127.0.0.5")) for _ in range(50)]
        assert greedy[-1].is_closed()
        for client in quiet:
            assert log_in(client).error_code == 0


def ipv6_works() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not ipv6_works(), reason="this machine has no IPv6")
def test_silent_connections_by_ipv6_keep_nobody_out(tmp_path: Path) -> None:
    settings = SETTINGS | {"listeners": "SASL_PLAINTEXT://[::]:0", "forebay.allow.insecure": "true"}
    with sasl_broker(tmp_path / "data", settings) as broker, contextlib.ExitStack() as stack:
        port = int(broker.bootstrap.rpartition(":")[2])
        for _ in range(5 * CONNECTIONS):
            stack.enter_context(socket.create_connection(("::1", port)))
        with WireClient(f"127.0.0.1:{port}") as client:
            assert log_in(client).error_code == 0
