"""When the certificates in a broker's settings expire."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from forebay.config import BrokerConfig

log = logging.getLogger(__name__)

ETCD = "etcd"
KEYSTORE, TRUSTSTORE = "keystore", "truststore"

Place: TypeAlias = tuple[str, str]
"""A listener, or ETCD, and one of its stores."""


def places_of(config: BrokerConfig) -> dict[Place, Path | str]:
    """Where there are certificates: files, or the texts (PEM) themselves."""
    found: dict[Place, Path | str] = {}
    for listener, tls in config.tls.items():
        if tls.keystore_location:
            found[listener, KEYSTORE] = Path(tls.keystore_location)
        elif tls.certificate_chain:
            found[listener, KEYSTORE] = tls.certificate_chain.reveal()
        if tls.truststore_certificates:
            found[listener, TRUSTSTORE] = tls.truststore_certificates.reveal()
        elif tls.truststore_location:
            found[listener, TRUSTSTORE] = Path(tls.truststore_location)
    if config.cluster.cert_file is not None:
        found[ETCD, KEYSTORE] = config.cluster.cert_file
    if config.cluster.ca_file is not None:
        found[ETCD, TRUSTSTORE] = config.cluster.ca_file
    return found


class Expiries:
    """Reads certificates when their files have changed. Blocks."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[object, float | None]] = {}
        """The times that were read, each with what tells this state of its file from another."""

    def read(self, places: Mapping[Place, Path | str]) -> dict[Place, float]:
        """In seconds since 1970; without those that cannot be read."""
        before, self._known = self._known, {}
        for place, source in places.items():
            stamp = _stamp(source)
            known = before.get(place)
            if known is None or known[0] != stamp:
                known = (stamp, _first_expiry(place, source))
            self._known[place] = known
        return {place: expires_s for place, (_, expires_s) in self._known.items() if expires_s is not None}


def _stamp(source: Path | str) -> object:
    if isinstance(source, str):
        return hash(source)
    try:
        found = source.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _first_expiry(place: Place, source: Path | str) -> float | None:
    """Of all certificates there: a chain ends with its weakest link."""
    from cryptography.x509 import load_pem_x509_certificates

    try:
        text = source.encode() if isinstance(source, str) else source.read_bytes()
        found = load_pem_x509_certificates(text)
    except (OSError, ValueError) as error:
        extra = {"listener": place[0], "store": place[1], "reason": str(error)}
        log.warning("it cannot be found out when certificates expire", extra=extra)
        return None
    return min(each.not_valid_after_utc.timestamp() for each in found)
