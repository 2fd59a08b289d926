"""TLS in front of a broker that speaks in the clear: what a terminating load balancer is to its clients."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from support.faults.proxy import Proxy


class TlsProxy(Proxy):
    def __init__(self, certificate: Path, key: Path, *, client_authority: Path | None = None) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        if client_authority is not None:
            self._context.load_verify_locations(client_authority)
            self._context.verify_mode = ssl.CERT_REQUIRED
        super().__init__()

    def greeted(self, arrived: socket.socket) -> socket.socket:
        """Turns away who does not speak TLS, or whom we do not know."""
        return self._context.wrap_socket(arrived, server_side=True)
