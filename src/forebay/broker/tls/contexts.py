"""OpenSSL's contexts from settings: certificates and keys (PEM) from files or from the settings."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from forebay.config import TlsConfig
from forebay.errors import ConfigError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(listener: str, config: TlsConfig) -> ssl.SSLContext:
    """Reads files; raises ConfigError that says what is wrong with them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client that wants new keys again and again would cost a handshake each time.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _limit_versions(context, config)
    _load_own(context, listener, config)
    context.verify_mode = _VERIFY[config.client_auth]
    if config.client_auth != "none":
        _load_trusted(context, listener, config)
        # A client that resumes a session does not show its certificate again, which may have expired since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def client_context(listener: str, config: TlsConfig) -> ssl.SSLContext:
    """For connections to other brokers, which see this broker's certificate. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit_versions(context, config)
    _load_own(context, listener, config)
    if config.has_truststore:
        _load_trusted(context, listener, config)
    else:
        context.load_default_certs()
    context.check_hostname = config.endpoint_identification == "https"
    return context


def _limit_versions(context: ssl.SSLContext, config: TlsConfig) -> None:
    versions = sorted(_VERSIONS[name] for name in config.enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _load_own(context: ssl.SSLContext, listener: str, config: TlsConfig) -> None:
    # Without a password of ours, OpenSSL would ask for one at the terminal.
    password = config.key_password.reveal() if config.key_password else ""
    try:
        if config.keystore_location:
            context.load_cert_chain(config.keystore_location, config.key_location, password=password)
        else:
            assert config.certificate_chain and config.key, "the settings were checked"
            with _file_of(f"{config.certificate_chain.reveal()}\n{config.key.reveal()}\n") as path:
                context.load_cert_chain(path, password=password)
    except (OSError, ValueError) as error:
        place = config.keystore_location or "ssl.keystore.certificate.chain and ssl.keystore.key"
        if config.key_location:
            place += f" with {config.key_location}"
        raise ConfigError(f"listener {listener}: {place}: {_reason(error)}") from None


def _load_trusted(context: ssl.SSLContext, listener: str, config: TlsConfig) -> None:
    place = config.truststore_location or "ssl.truststore.certificates"
    try:
        if config.truststore_certificates:
            context.load_verify_locations(cadata=config.truststore_certificates.reveal())
        else:
            context.load_verify_locations(config.truststore_location)
    except (OSError, ValueError) as error:
        raise ConfigError(f"listener {listener}: {place}: {_reason(error)}") from None
    if not context.cert_store_stats()["x509"]:
        raise ConfigError(f"listener {listener}: {place}: there is no certificate (PEM) in it")


def _reason(error: Exception) -> str:
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error) if isinstance(error, OSError) else str(error)
    known = {
        "KEY_VALUES_MISMATCH": "the key does not belong to the first certificate",
        "BAD_DECRYPT": "the key is encrypted: check ssl.key.password",
        "BAD_PASSWORD_READ": "the key is encrypted: set ssl.key.password",
        "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate (PEM) in it",
        "NO_START_LINE": "there is no certificate (PEM) in it",
    }
    # OpenSSL names nothing at all where the file lacks a key or a certificate.
    return known.get(error.reason or "", "") or (
        error.reason
        or "it needs a certificate and its key, both PEM: the key may be in a file of its own, "
        "forebay.ssl.key.location"
    )


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[str]:
    """A file that only this process can open, for Python reads keys from files alone."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("forebay-key")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield file.name
