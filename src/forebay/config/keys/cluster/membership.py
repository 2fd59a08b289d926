"""The settings that say which cluster a broker belongs to, and how it reaches that cluster's etcd.

Without `forebay.cluster` a broker is a cluster by itself, with its store in a file of the data directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.config.listeners import parse_address
from forebay.config.values import Secret, Value, int_key, password_key, text_key
from forebay.errors import ConfigError
from forebay.lazy import dataclass

EXAMPLE = "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/NAME"
ENDPOINTS_MAX = 16
_CLUSTER_URL = re.compile(r"(?P<scheme>etcds?)://(?P<endpoints>[^/]*)(?:/(?P<name>[^/]*))?/?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUrl:
    endpoints: tuple[tuple[str, int], ...]
    name: str
    tls: bool


def parse_cluster_url(text: str) -> ClusterUrl:
    """Raises ValueError with the correct form of an address."""
    match = _CLUSTER_URL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a cluster, write {EXAMPLE}, or etcds:// for TLS")
    if not _NAME.fullmatch(match["name"] or ""):
        raise ValueError(
            f"{text!r} does not name the cluster, write {EXAMPLE}; a name has letters, digits, '.', '_', '-'"
        )
    if "@" in match["endpoints"]:
        raise ValueError("user and password are not part of the address: set forebay.etcd.user and .password")
    parts = [part.strip() for part in match["endpoints"].split(",") if part.strip()]
    endpoints = tuple(dict.fromkeys(_endpoint(part) for part in parts))
    if not 1 <= len(endpoints) <= ENDPOINTS_MAX:
        raise ValueError(
            f"{text!r} names {len(endpoints)} etcd servers, name 1 to {ENDPOINTS_MAX}: {EXAMPLE}"
        )
    return ClusterUrl(endpoints=endpoints, name=match["name"], tls=match["scheme"] == "etcds")


def _endpoint(text: str) -> tuple[str, int]:
    host, port = parse_address(text)
    if not host or not port:
        raise ValueError(f"{text!r} is not the address of an etcd server, write host:2379")
    return host, port


def _validate_cluster(value: Value) -> None:
    if value:
        parse_cluster_url(str(value))


CLUSTER_KEYS = (
    text_key(
        "forebay.cluster",
        None,
        "The cluster to join, etcd://host:port,host:port/NAME, etcds:// for TLS; none: it is on its own.",
        validate=_validate_cluster,
    ),
    text_key(
        "forebay.etcd.ca.file",
        None,
        "The certificates (PEM) that etcd's own must come from; none: the system's.",
    ),
    text_key("forebay.etcd.cert.file", None, "The certificate (PEM) that this broker shows to etcd."),
    text_key(
        "forebay.etcd.key.file",
        None,
        "The private key (PEM) of that certificate; none: it is in the same file.",
    ),
    text_key("forebay.etcd.user", None, "The etcd user to log in as, where etcd asks for one."),
    password_key("forebay.etcd.password", None, "The password of that user."),
    int_key(
        "forebay.lease.ttl.ms",
        8_000,
        "How long a broker may be silent before the others go on without it.",
        6_000,
        60_000,
    ),
    int_key(
        "initial.broker.registration.timeout.ms",
        60_000,
        "How long a broker that starts waits for an etcd that does not answer, before it exits.",
        0,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    url: str | None = None
    """As it was written; None means that the store is a file in the data directory."""
    is_worker: bool = False
    """True if the process beside this one, its parent, has that file, and other workers use it too."""
    name: str = "main"
    endpoints: tuple[tuple[str, int], ...] = ()
    """Host and port of each etcd server."""
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password: Secret | None = None
    lease_ttl_ms: int = 8_000
    registration_timeout_ms: int = 60_000

    @property
    def embedded(self) -> bool:
        """True if this broker has the store to itself, and is alone."""
        return self.url is None and not self.is_worker


def cluster_config(values: Mapping[str, Any]) -> ClusterConfig:
    url = values["forebay.cluster"] or None
    lease_ttl_ms = values["forebay.lease.ttl.ms"]
    if url is None:
        return ClusterConfig(lease_ttl_ms=lease_ttl_ms, is_worker=values["forebay.worker"] > 0)
    parsed = parse_cluster_url(url)
    config = ClusterConfig(
        url=url,
        name=parsed.name,
        endpoints=parsed.endpoints,
        tls=parsed.tls,
        ca_file=_path(values["forebay.etcd.ca.file"]),
        cert_file=_path(values["forebay.etcd.cert.file"]),
        key_file=_path(values["forebay.etcd.key.file"]),
        user=values["forebay.etcd.user"] or None,
        password=values["forebay.etcd.password"] or None,
        lease_ttl_ms=lease_ttl_ms,
        registration_timeout_ms=values["initial.broker.registration.timeout.ms"],
    )
    _check_together(config)
    return config


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _check_together(config: ClusterConfig) -> None:
    files = (config.ca_file, config.cert_file, config.key_file)
    if not config.tls and any(files):
        raise ConfigError(
            "certificates are given, but forebay.cluster is not TLS: write etcds:// for etcd://"
        )
    if config.key_file is not None and config.cert_file is None:
        raise ConfigError("forebay.etcd.key.file is given without forebay.etcd.cert.file")
    if (config.user is None) != (config.password is None):
        raise ConfigError("give both forebay.etcd.user and forebay.etcd.password, or neither")
