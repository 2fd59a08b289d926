"""Certificates of a test: an authority, a broker on this machine, clients, and settings that name them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from forebay.local.certificates import Authority, write_certificate

HOSTS = ("127.0.0.1", "localhost", "::1")


class TlsFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority.create()
        self.authority.save(directory)
        self.ca = str(directory / "ca.pem")
        self.broker = self.issue("broker", *HOSTS)
        self.client = self.issue("ada", unit="people")

    def issue(
        self,
        name: str,
        *hosts: str,
        unit: str | None = None,
        authority: Authority | None = None,
        days: float = 2,
        begins_in: timedelta = timedelta(),
    ) -> str:
        """The file of a new certificate with its key."""
        path = self._directory / f"{name}.pem"
        text = (authority or self.authority).issue(name, hosts, unit=unit, days=days, begins_in=begins_in)
        write_certificate(path, text)
        return str(path)

    def broker_settings(self, *, client_auth: str = "none") -> dict[str, str]:
        return {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": self.broker,
            "ssl.truststore.location": self.ca,
            "ssl.client.auth": client_auth,
        }

    def librdkafka(self, bootstrap: str, certificate: str | None = None) -> dict[str, Any]:
        """The settings of a client that trusts the authority, and shows a certificate if it is given one."""
        settings = {"bootstrap.servers": bootstrap, "security.protocol": "SSL", "ssl.ca.location": self.ca}
        if certificate is not None:
            settings |= {"ssl.certificate.location": certificate, "ssl.key.location": certificate}
        return settings
