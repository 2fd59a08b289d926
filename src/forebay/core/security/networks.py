"""Groups the addresses of one sender: limits for one sender have to count them together."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address

_IPV6_PREFIX_BITS = 64


@lru_cache(maxsize=4096)
def network_of(host: str) -> str:
    """The address itself for IPv4; the /64 for IPv6, since a host with one address of it has all of them."""
    if ":" not in host:
        return host
    address = int(IPv6Address(host.partition("%")[0]))
    host_bits = 128 - _IPV6_PREFIX_BITS
    return f"{IPv6Address(address >> host_bits << host_bits)}/{_IPV6_PREFIX_BITS}"
