"""Connections within their TLS handshake are bounded, and take no handshake from others."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from support.brokers.local_broker import local_broker
from support.brokers.tls_files import TlsFiles
from support.clients.kafka_clients import DEADLINE_SECONDS

UNFINISHED_MAX = 20
SECURED = 25


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01"])
def test_silent_connections_of_a_tls_listener_give_way(tmp_path: Path, says: bytes) -> None:
    """One that has begun its handshake and does not go on is like one that says nothing."""
    files = TlsFiles(tmp_path)
    settings = files.broker_settings() | {"forebay.max.unauthenticated.connections": str(UNFINISHED_MAX)}
    with local_broker(tmp_path / "data", settings) as broker, contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            host, port = broker.bootstrap.rsplit(":", 1)
            return stack.enter_context(socket.create_connection((host, int(port)), DEADLINE_SECONDS))

        def secure() -> None:
            stack.enter_context(context.wrap_socket(connect(), server_hostname="localhost"))

        context = ssl.create_default_context(cafile=files.ca)
        for _ in range(SECURED):
            secure()  # and stay, though they are more than may be unfinished
        silent = [connect() for _ in range(3 * UNFINISHED_MAX)]
        for each in silent:
            with contextlib.suppress(OSError):
                each.sendall(says)
        for each in silent[: 2 * UNFINISHED_MAX]:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
        secure()
        assert broker.on_loop(lambda node: node.logins.unfinished) <= UNFINISHED_MAX
        assert broker.on_loop(lambda node: node.metrics.logins_evicted) >= 2 * UNFINISHED_MAX
        assert broker.on_loop(lambda node: node.server.connection_count) > SECURED
