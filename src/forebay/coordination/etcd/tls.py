"""A broker's certificate for etcd, and whom it trusts: read from files, and again when they change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from forebay.config import ClusterConfig
from forebay.errors import ConfigError

log = logging.getLogger(__name__)

_Stamps = tuple[tuple[int, ...] | None, ...]


class EtcdClientTls:
    """Certificates are renewed under a running broker: each new connection is made with the newest ones.

    Files that cannot be used are left alone until they change again; what was read before stays in use.
    """

    def __init__(self, config: ClusterConfig) -> None:
        """Raises ConfigError that says what is wrong with the files."""
        self._config = config
        self._files = [
            file for file in (config.ca_file, config.cert_file, config.key_file) if file is not None
        ]
        self._stamps = self._look()
        self._context = _read(config)

    def context(self) -> ssl.SSLContext:
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = _read(self._config)
            except ConfigError as error:
                log.error("going on with the certificates that were read before: %s", error)
            else:
                log.info("new certificates for etcd are in use")
        return self._context

    def _look(self) -> _Stamps:
        return tuple(_stamp(Path(file)) for file in self._files)


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    # The last is for files that get their owner or rights after their contents.
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(config: ClusterConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if config.ca_file is None else str(config.ca_file))
        # From 3.13 on Python refuses certificates that lack extensions which other clients do not ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if config.cert_file is not None:
            context.load_cert_chain(config.cert_file, config.key_file)
    except OSError as error:
        raise ConfigError(
            f"the certificates for etcd cannot be used ({error}): "
            "see forebay.etcd.ca.file, forebay.etcd.cert.file and forebay.etcd.key.file"
        ) from error
    return context
