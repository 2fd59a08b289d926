"""Encryption of connections: Kafka's own security options, turned into a TLS context.

Names and meanings are those of Kafka's clients, with `kafka.` in front as everywhere in Spark. Stores are
PEM, as a file or as text in the option; Java's own keystore formats cannot be read without Java, and are
refused with the way out. librdkafka's shorter names are understood too: people have them in their files.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from forebay.errors import ConfigError

PLAINTEXT = "PLAINTEXT"
TLS = "SSL"

_CA_LOCATION = ("kafka.ssl.truststore.location", "kafka.ssl.ca.location")
_CERTIFICATE_LOCATION = ("kafka.ssl.keystore.location", "kafka.ssl.certificate.location")
_STORE_TYPES = ("kafka.ssl.truststore.type", "kafka.ssl.keystore.type")
_HOST_CHECK = "kafka.ssl.endpoint.identification.algorithm"

OPTIONS = frozenset(
    {
        "kafka.security.protocol",
        *_CA_LOCATION,
        *_CERTIFICATE_LOCATION,
        *_STORE_TYPES,
        _HOST_CHECK,
        "kafka.ssl.truststore.certificates",
        "kafka.ssl.keystore.certificate.chain",
        "kafka.ssl.keystore.key",
        "kafka.ssl.key.location",
        "kafka.ssl.key.password",
    }
)
"""Every option that is read here; the names of Kafka's options are lower case, as Spark hands them over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    protocol: str = PLAINTEXT
    ca_location: str = ""
    ca_text: str = ""
    certificate_location: str = ""
    key_location: str = ""
    """Empty when the key is in the same file as the certificate."""
    certificate_text: str = ""
    """Certificate chain and private key, one after the other."""
    key_password: str = ""
    check_hostname: bool = True

    def __repr__(self) -> str:
        return f"Security({self.protocol})"  # a private key must not end in a log

    def context(self) -> ssl.SSLContext | None:
        """What wraps a socket; None when connections are in the clear."""
        if self.protocol != TLS:
            return None
        try:
            return self._context()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the kafka.ssl.* options give no TLS connection: {error};"
                " certificates and keys must be PEM, and the password must fit the key"
            ) from error

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(
            cafile=self.ca_location or None, cadata=self.ca_text.replace("\\n", "\n") or None
        )
        context.check_hostname = self.check_hostname
        password = self.key_password or None
        if self.certificate_location:
            context.load_cert_chain(self.certificate_location, self.key_location or None, password)
        elif self.certificate_text:
            # OpenSSL's binding in Python reads a chain from files only; this one is gone when it was read.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(self.certificate_text.replace("\\n", "\n"))
                file.flush()
                context.load_cert_chain(file.name, None, password)
        return context


def security(options: Mapping[str, str]) -> Security:
    """The security that the options ask for; ConfigError when it cannot be had."""
    protocol = options.get("kafka.security.protocol", PLAINTEXT).upper()
    if protocol not in (PLAINTEXT, TLS):
        raise ConfigError(f"kafka.security.protocol={protocol} is not supported: use {PLAINTEXT} or {TLS}")
    for name in _STORE_TYPES:
        if options.get(name, "PEM").upper() != "PEM":
            raise ConfigError(f"{name}={options[name]} is not supported: convert the store to PEM")
    chain = options.get("kafka.ssl.keystore.certificate.chain", "")
    return Security(
        protocol=protocol,
        ca_location=_first(options, _CA_LOCATION),
        ca_text=options.get("kafka.ssl.truststore.certificates", ""),
        certificate_location=_first(options, _CERTIFICATE_LOCATION),
        key_location=options.get("kafka.ssl.key.location", ""),
        certificate_text=f"{chain}\n{options.get('kafka.ssl.keystore.key', '')}" if chain else "",
        key_password=options.get("kafka.ssl.key.password", ""),
        check_hostname=options.get(_HOST_CHECK, "https") != "",
    )


def _first(options: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((options[name] for name in names if name in options), "")
