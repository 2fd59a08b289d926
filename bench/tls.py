"""Brokers that are reached over TLS too: their certificates, and the way in of load generators.

A broker has two listeners, so that the same process is measured with TLS and without.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from bench.rounds import Broker
from bench.server import Address, ForebayServer, Server, WayIn
from forebay.local.certificates import Authority, write_certificate

HOST = "127.0.0.1"


class Certificates:
    """Of an authority and of a broker on this machine, with keys as `forebay certs` makes them (P-256)."""

    def __init__(self, directory: Path) -> None:
        authority = Authority.create()
        authority.save(directory)
        self.authority = directory / "ca.pem"
        self.broker = directory / "broker.pem"
        write_certificate(self.broker, authority.issue("broker", [HOST]))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        return [probes.enter_context(socket.create_server((HOST, 0))).getsockname()[1] for _ in range(count)]


class OverTls:
    """The TLS listener of a server: load goes there, all else to the plain one."""

    def __init__(self, server: Server, port: int, certificates: Certificates) -> None:
        self._server = server
        self.way_in = WayIn((HOST, port), str(certificates.authority))

    @property
    def address(self) -> Address:
        return self._server.address

    def cpu_s(self) -> float:
        return self._server.cpu_s()

    def discard_deleted(self) -> None:
        self._server.discard_deleted()


class ForebayWithTls(ForebayServer):
    def __init__(self, scratch: Path, name: str) -> None:
        self.certificates, (plain, tls) = Certificates(scratch / f"{name}-certificates"), free_ports(2)
        super().__init__(
            scratch,
            name,
            f"ssl.keystore.location={self.certificates.broker}",
            f"ssl.truststore.location={self.certificates.authority}",
            listen=f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{tls}",
        )
        self.over_tls: Broker = OverTls(self, tls, self.certificates)
