"""What attackers know of the brokers that they attack. It crosses to their process, so it is plain data."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

HOST = "127.0.0.1"

GOOD, NOBODY, ANALYST = "good", "nobody", "analyst"
"""Users: a client that is to be served; one without any right; one that may make views of TEXTS and BOMBS."""
PASSWORDS = {GOOD: "good-secret", NOBODY: "nobody-secret", ANALYST: "analyst-secret"}

ORDERS, TEXTS, BOMBS = "orders", "texts", "bombs"
SHOWN_ORDERS = "shown-orders"
"""A view of all orders, for good clients."""
VIEWS = "view-"
"""How the names of an analyst's views begin."""

Address = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Target:
    """`tls_doors` ask for a login over TLS, `open_doors` for one without TLS: one of each per broker."""

    tls_doors: tuple[Address, ...]
    open_doors: tuple[Address, ...]
    ca_file: str

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)

    def open_door(self, number: int) -> Address:
        return self.open_doors[number % len(self.open_doors)]

    def tls_door(self, number: int) -> Address:
        return self.tls_doors[number % len(self.tls_doors)]


def source_address(number: int) -> str:
    """One of 10,000 addresses of this machine; none of them is that of good clients or of brokers."""
    number %= 10_000
    return f"127.{1 + number // 2_500}.{number // 250 % 10}.{1 + number % 250}"
