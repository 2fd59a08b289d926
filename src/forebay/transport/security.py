"""The security settings of Kafka's clients, turned into TLS and logins.

Names and meanings are those of Java's clients; librdkafka's shorter names are accepted too, because people
have them in their files. Stores are PEM, as a file or as text in the setting; Java's own keystore formats
cannot be read without Java, and are refused with a hint.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Mapping

from forebay.errors import ConfigError
from forebay.lazy import dataclass
from forebay.wire.sasl.client import Login, new_login
from forebay.wire.sasl.scram import BY_NAME

PLAINTEXT, TLS, SASL_PLAINTEXT, SASL_TLS = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS = (PLAINTEXT, TLS, SASL_PLAINTEXT, SASL_TLS)
MECHANISMS = (*BY_NAME, "PLAIN")

_CA_LOCATION = ("ssl.truststore.location", "ssl.ca.location")
_CERTIFICATE_LOCATION = ("ssl.keystore.location", "ssl.certificate.location")
_CA_TEXT = ("ssl.truststore.certificates", "ssl.ca.pem")
_CHAIN_TEXT = ("ssl.keystore.certificate.chain", "ssl.certificate.pem")
_KEY_TEXT = ("ssl.keystore.key", "ssl.key.pem")
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
_JAAS = "sasl.jaas.config"
_JAAS_OPTION = re.compile(r'(?P<name>\w+)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"')

NAMES = frozenset(
    {
        "security.protocol",
        *_CA_LOCATION,
        *_CERTIFICATE_LOCATION,
        *_STORE_TYPES,
        _HOST_CHECK,
        *_CA_TEXT,
        *_CHAIN_TEXT,
        *_KEY_TEXT,
        "ssl.key.location",
        "ssl.key.password",
        *_MECHANISM,
        _JAAS,
        "sasl.username",
        "sasl.password",
    }
)
"""Every setting that is read here."""


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
    mechanism: str = ""
    user: str = ""
    password: str = ""
    prefix: str = ""
    """The prefix of setting names in messages."""

    def __repr__(self) -> str:
        return f"Security({self.protocol})"  # neither a private key nor a password may get into a log

    @property
    def is_tls(self) -> bool:
        return self.protocol in (TLS, SASL_TLS)

    def login(self) -> Login | None:
        """One login; None if none is configured."""
        if self.protocol not in (SASL_PLAINTEXT, SASL_TLS):
            return None
        return new_login(self.mechanism, self.user, self.password, os.urandom)

    def context(self) -> ssl.SSLContext | None:
        """The TLS context for sockets; None without TLS."""
        if not self.is_tls:
            return None
        try:
            return self._context()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the {self.prefix}ssl.* options give no TLS connection: {error};"
                " certificates and keys must be PEM, and the password must fit the key"
            ) from error

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(
            cafile=self.ca_location or None, cadata=self.ca_text.replace("\\n", "\n") or None
        )
        # From 3.13 on Python refuses certificates that lack extensions which other clients do not ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.check_hostname
        password = self.key_password or None
        if self.certificate_location:
            context.load_cert_chain(self.certificate_location, self.key_location or None, password)
        elif self.certificate_text:
            # Python's ssl module reads a chain from files only; this one is removed after it was read.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(self.certificate_text.replace("\\n", "\n"))
                file.flush()
                context.load_cert_chain(file.name, None, password)
        return context


def security(settings: Mapping[str, str], prefix: str = "") -> Security:
    """The security settings; raises ConfigError if they cannot be used."""
    given = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    protocol = given.get("security.protocol", PLAINTEXT).upper()
    if protocol not in PROTOCOLS:
        names = ", ".join(PROTOCOLS)
        raise ConfigError(f"{prefix}security.protocol={protocol} is not supported: use one of {names}")
    for name in _STORE_TYPES:
        if given.get(name, "PEM").upper() != "PEM":
            raise ConfigError(f"{prefix}{name}={given[name]} is not supported: convert the store to PEM")
    chain = _first(given, _CHAIN_TEXT)
    mechanism, user, password = _credentials(given, prefix) if protocol.startswith("SASL_") else ("", "", "")
    return Security(
        protocol=protocol,
        ca_location=_first(given, _CA_LOCATION),
        ca_text=_first(given, _CA_TEXT),
        certificate_location=_first(given, _CERTIFICATE_LOCATION),
        key_location=given.get("ssl.key.location", ""),
        certificate_text=f"{chain}\n{_first(given, _KEY_TEXT)}" if chain else "",
        key_password=given.get("ssl.key.password", ""),
        check_hostname=given.get(_HOST_CHECK, "https") not in ("", "none"),
        mechanism=mechanism,
        user=user,
        password=password,
        prefix=prefix,
    )


def _credentials(given: Mapping[str, str], prefix: str) -> tuple[str, str, str]:
    mechanism = _first(given, _MECHANISM)
    if mechanism not in MECHANISMS:
        names = ", ".join(MECHANISMS)
        raise ConfigError(f"{prefix}sasl.mechanism={mechanism} is not supported: use one of {names}")
    told = {**jaas_login(given.get(_JAAS, "")), **given}
    user, password = told.get("sasl.username", ""), told.get("sasl.password", "")
    if not user or not password:
        raise ConfigError(
            f"a login needs {prefix}sasl.username and {prefix}sasl.password, or {prefix}{_JAAS} with both"
        )
    return mechanism, user, password


def jaas_login(text: str) -> dict[str, str]:
    """Name and password of Java's `sasl.jaas.config`, by librdkafka's names."""
    options = {
        found["name"]: re.sub(r"\\(.)", r"\1", found["value"], flags=re.S)
        for found in _JAAS_OPTION.finditer(text)
    }
    return {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}


def _first(options: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((options[name] for name in names if name in options), "")
