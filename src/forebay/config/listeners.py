"""Addresses: `NAME://host:port`, or just `host:port`; an IPv6 host goes in brackets.

The name of a listener stands for a way to reach the broker, such as INTERNAL and EXTERNAL. Its protocol is in
`listener.security.protocol.map`; the names of the protocols need no entry there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from ipaddress import ip_address
from typing import Any

from forebay.config.values import Value
from forebay.errors import ConfigError
from forebay.lazy import dataclass

_PORT_MAX = 65535
_NAME = re.compile(r"[A-Z0-9_-]{1,100}")
EVERY_INTERFACE = ("", "0.0.0.0", "::")


class SecurityProtocol(StrEnum):
    """The protocol of a listener, by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str
    host: str
    """Empty means every interface."""
    port: int
    """0 means any free port."""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only processes on this machine can reach it."""
        return is_this_machine(self.host)


def parse_listener(text: str) -> Listener:
    """Raises ValueError for anything that is not an address."""
    scheme, separator, address = text.rpartition("://")
    name = scheme.upper() if separator else SecurityProtocol.PLAINTEXT.value
    if not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} does not begin with the name of a listener, write NAME://host:port")
    host, port = parse_address(address)
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
    listeners = parse_listeners(value)
    if not listeners:
        raise ValueError(
            "give an address such as 127.0.0.1:9092; no host, as in :9092, means every interface"
        )
    _names_are_unique(listeners)
    bound = [(each.host, each.port) for each in listeners if each.port]
    if len(set(bound)) < len(bound):
        raise ValueError("two listeners have the same address: give each its own port")


def _names_are_unique(listeners: Iterable[Listener]) -> None:
    names = [each.name for each in listeners]
    if len(set(names)) < len(names):
        raise ValueError(
            "two listeners have the same name: name them INTERNAL://... and EXTERNAL://... for example, and "
            "set listener.security.protocol.map"
        )


def validate_metrics_listener(value: Value) -> None:
    if value:
        parse_address(str(value))


def validate_advertised(value: Value) -> None:
    listeners = parse_listeners(value)
    _names_are_unique(listeners)
    for listener in listeners:
        if not listener.port or listener.host in EVERY_INTERFACE:
            raise ValueError(f"{str(listener)!r} is not an address that a client can connect to")


def validate_protocol_map(value: Value) -> None:
    parse_protocol_map(value)


def parse_protocol_map(value: Value) -> dict[str, SecurityProtocol]:
    """The protocol of each name; protocol names map to themselves unless they are mapped."""
    assert isinstance(value, tuple)
    protocols = {protocol.value: protocol for protocol in SecurityProtocol}
    for text in value:
        name, colon, protocol = (part.strip().upper() for part in text.partition(":"))
        if not colon or not _NAME.fullmatch(name):
            raise ValueError(f"{text!r} is not an entry, write NAME:PROTOCOL")
        if protocol not in tuple(SecurityProtocol):
            raise ValueError(f"{protocol!r} is not a protocol, use one of {', '.join(SecurityProtocol)}")
        protocols[name] = SecurityProtocol(protocol)
    return protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenersConfig:
    """The addresses where a broker listens, and those that it advertises."""

    all: tuple[Listener, ...]
    advertised: Mapping[str, Listener]
    """The addresses for clients, by the name of the listener; other clients get the one they connected to."""
    inter_broker: Listener
    """The listener for other brokers."""


def listeners_config(values: Mapping[str, Any]) -> ListenersConfig:
    """Raises ConfigError if settings contradict each other."""
    protocols = parse_protocol_map(values["listener.security.protocol.map"])
    listeners = tuple(_with_protocol(each, protocols) for each in parse_listeners(values["listeners"]))
    if not values["forebay.allow.insecure"]:
        for listener in listeners:
            _check_protected(listener)
    names = {each.name: each for each in listeners}
    advertised = {each.name: each for each in parse_listeners(values["advertised.listeners"])}
    for name in advertised:
        if name not in names:
            raise ConfigError(f"advertised.listeners: there is no {name} among the listeners: {_list(names)}")
    return ListenersConfig(
        all=listeners,
        advertised={name: replace(each, protocol=names[name].protocol) for name, each in advertised.items()},
        inter_broker=_inter_broker(values, names),
    )


def _with_protocol(listener: Listener, protocols: Mapping[str, SecurityProtocol]) -> Listener:
    protocol = protocols.get(listener.name)
    if protocol is None:
        raise ConfigError(
            f"listeners: what is spoken on {listener.name} is not said, add {listener.name}:PLAINTEXT, or "
            "another protocol, to listener.security.protocol.map"
        )
    return replace(listener, protocol=protocol)


def _check_protected(listener: Listener) -> None:
    if listener.protocol is SecurityProtocol.PLAINTEXT and not listener.is_loopback:
        raise ConfigError(
            f"listeners: other machines can reach {listener}, with neither TLS nor authentication: "
            "use an SSL listener (docs/security.md), listen on 127.0.0.1, or set "
            "forebay.allow.insecure=true if everybody who can reach this machine may read and change all data"
        )


def _inter_broker(values: Mapping[str, Any], names: Mapping[str, Listener]) -> Listener:
    wanted, protocol = values["inter.broker.listener.name"], values["security.inter.broker.protocol"]
    if wanted and protocol:
        raise ConfigError("give inter.broker.listener.name or security.inter.broker.protocol, not both")
    if wanted:
        if wanted.upper() not in names:
            raise ConfigError(
                f"inter.broker.listener.name: there is no {wanted} among the listeners: {_list(names)}"
            )
        return names[wanted.upper()]
    if protocol:
        for listener in names.values():
            if listener.protocol == protocol:
                return listener
        raise ConfigError(f"security.inter.broker.protocol: no listener speaks {protocol}: {_list(names)}")
    return next(iter(names.values()))


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def is_this_machine(host: str) -> bool:
    """True if an address cannot belong to another machine. A host name may stand for any address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
