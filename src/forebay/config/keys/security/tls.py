"""The settings of TLS, for all listeners or for one of them (`listener.name.external.ssl.client.auth`).

They have Kafka's names. Certificates and keys are PEM, in files or in the settings themselves.
"""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.principal_mapping import validate_rules
from forebay.config.values import Secret, Value, int_key, list_key, long_key, password_key, text_key
from forebay.errors import ConfigError

PROTOCOLS = ("TLSv1.2", "TLSv1.3")


def _some_protocol(value: Value) -> None:
    if not value:
        raise ValueError(f"name at least one of {', '.join(PROTOCOLS)}")


CHANGED_WHILE_RUNNING = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "forebay.ssl.key.location",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.principal.mapping.rules",
        "forebay.ssl.handshake.timeout.ms",
    }
)
"""Can be changed at run time for one listener: `listener.name.<name>.ssl.client.auth`."""
SECRETS = frozenset({"ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"})
"""Cannot be: the store would have a private key, or its password."""


@settings_group
class TlsConfig:
    keystore_type: str = text_key(
        "ssl.keystore.type",
        "PEM",
        "How this broker's certificate and key are stored. Convert a Java keystore with keytool and openssl.",
        choices=("PEM",),
    )
    keystore_location: str | None = text_key(
        "ssl.keystore.location",
        None,
        "The file (PEM) with this broker's certificate, those that lead from it to the authority, and its "
        "key. It is read again when it changes.",
    )
    key_location: str | None = text_key(
        "forebay.ssl.key.location",
        None,
        "The file (PEM) with the key, where it is not in ssl.keystore.location.",
    )
    certificate_chain: Secret | None = password_key(
        "ssl.keystore.certificate.chain", None, "The certificates themselves (PEM), instead of a file."
    )
    key: Secret | None = password_key("ssl.keystore.key", None, "The key itself (PEM), instead of a file.")
    key_password: Secret | None = password_key(
        "ssl.key.password", None, "The password of the key, where it is encrypted."
    )
    truststore_type: str = text_key(
        "ssl.truststore.type", "PEM", "How the trusted certificates are stored.", choices=("PEM",)
    )
    truststore_location: str | None = text_key(
        "ssl.truststore.location",
        None,
        "The file (PEM) with the authorities whose certificates are accepted, of clients and of other "
        "brokers; none: for other brokers those of the system.",
    )
    truststore_certificates: Secret | None = password_key(
        "ssl.truststore.certificates", None, "The trusted certificates themselves (PEM), instead of a file."
    )
    client_auth: str = text_key(
        "ssl.client.auth",
        "none",
        "Whether clients show a certificate: required refuses those that have none.",
        choices=("none", "requested", "required"),
    )
    enabled_protocols: tuple[str, ...] = list_key(
        "ssl.enabled.protocols",
        PROTOCOLS,
        "The versions of TLS that are spoken.",
        choices=PROTOCOLS,
        validate=_some_protocol,
    )
    endpoint_identification: str = text_key(
        "ssl.endpoint.identification.algorithm",
        "https",
        "Whether a broker checks that the certificate of another is for the address that it connects to: "
        "https, or empty for no check.",
        choices=("https", ""),
    )
    principal_mapping_rules: str = text_key(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "Who a client is by the name in its certificate: DEFAULT, the whole name, or "
        "RULE:pattern/replacement/, with commas between several.",
        validate=validate_rules,
    )
    handshake_timeout_ms: int = long_key(
        "forebay.ssl.handshake.timeout.ms",
        10_000,
        "A connection whose TLS handshake takes longer is closed.",
        100,
    )
    handshakes_per_turn: int = int_key(
        "forebay.ssl.handshakes.per.turn",
        4,
        "Steps of TLS handshakes, about a millisecond each, before other connections have their turn.",
        1,
        1000,
    )
    reload_interval_ms: int = long_key(
        "forebay.ssl.reload.interval.ms",
        10_000,
        "How often to look whether the files of certificates and keys have changed. SIGHUP has them read at "
        "once.",
        100,
    )

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read from disk."""
        places = (self.keystore_location, self.key_location, self.truststore_location)
        return tuple(place for place in places if place)

    @property
    def has_truststore(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)


def check_tls(listener: str, config: TlsConfig) -> None:
    """Raises ConfigError for settings that do not make a TLS listener."""
    where = f"listener {listener}"
    inline = bool(config.certificate_chain or config.key)
    if inline and (config.keystore_location or config.key_location):
        raise ConfigError(
            f"{where}: give its certificate as a file, ssl.keystore.location, or in the settings, "
            "ssl.keystore.certificate.chain and ssl.keystore.key, not both"
        )
    if inline and not (config.certificate_chain and config.key):
        raise ConfigError(f"{where}: ssl.keystore.certificate.chain and ssl.keystore.key belong together")
    if not inline and not config.keystore_location:
        raise ConfigError(
            f"{where} has no certificate: set ssl.keystore.location to a PEM file. "
            "`forebay certs create` makes certificates for a first cluster"
        )
    if config.truststore_location and config.truststore_certificates:
        raise ConfigError(f"{where}: give ssl.truststore.location or ssl.truststore.certificates, not both")
    if config.client_auth != "none" and not config.has_truststore:
        raise ConfigError(
            f"{where}: ssl.client.auth={config.client_auth} needs ssl.truststore.location, the authority "
            "that clients' certificates have to come from"
        )
