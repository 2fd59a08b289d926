"""Addresses: `PLAINTEXT://host:port`, or just `host:port`; an IPv6 host goes in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.config.values import Value

PLAINTEXT = "PLAINTEXT"
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str
    host: str
    """Empty means every interface."""
    port: int
    """0 means any free port."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """Raises ValueError for anything that is not an address."""
    scheme, separator, address = text.rpartition("://")
    name = scheme.upper() if separator else PLAINTEXT
    host, port = parse_address(address)
    if name != PLAINTEXT:
        raise ValueError(f"{text!r}: only {PLAINTEXT} listeners are served")
    return Listener(name=name, host=host, port=port)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; raises ValueError for anything that is not an address."""
    host, colon, port_text = text.rpartition(":")
    if not colon or not port_text.isascii() or not port_text.isdigit() or int(port_text) > _PORT_MAX:
        raise ValueError(f"{text!r} is not an address, write host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: put the IPv6 address in brackets, [{host}]:{port_text}")
    return host, int(port_text)


def parse_listeners(value: Value) -> tuple[Listener, ...]:
    assert isinstance(value, tuple)
    return tuple(parse_listener(text) for text in value)


def validate_listeners(value: Value) -> None:
    if len(parse_listeners(value)) != 1:
        raise ValueError(
            "give one address, such as 127.0.0.1:9092; no host, as in :9092, means every interface"
        )


def validate_metrics_listener(value: Value) -> None:
    if value:
        parse_address(str(value))


def validate_advertised(value: Value) -> None:
    listeners = parse_listeners(value)
    if len(listeners) > 1:
        raise ValueError("one advertised address is supported")
    for listener in listeners:
        if not listener.host or not listener.port or listener.host in ("0.0.0.0", "::"):
            raise ValueError(f"{str(listener)!r} is not an address that a client can connect to")
