"""The settings of SASL logins, with Kafka's names. Which listeners ask for one is said by their protocols.

Each may be set for one listener alone: `listener.name.<name>.sasl.enabled.mechanisms`.
"""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import INT_MAX, Secret, Value, int_key, list_key, long_key, password_key, text_key

BROKER_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
MECHANISMS = (*BROKER_MECHANISMS, "OAUTHBEARER")


def _not_empty(value: Value) -> None:
    if not value:
        raise ValueError(f"name at least one of {', '.join(MECHANISMS)}")


@settings_group
class SaslConfig:
    mechanisms: tuple[str, ...] = list_key(
        "sasl.enabled.mechanisms",
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "How clients may log in on SASL listeners. PLAIN sends the password itself: only with TLS.",
        choices=MECHANISMS,
        validate=_not_empty,
    )
    reauthenticate_ms: int = long_key(
        "connections.max.reauth.ms",
        0,
        "How long a login is good for: a client that has not logged in again by then is disconnected at its "
        "next request. 0: for as long as the connection lasts.",
        0,
    )
    receive_bytes_max: int = int_key(
        "sasl.server.max.receive.size",
        65_536,
        "The largest request from a client that has not logged in. Tokens of OAUTHBEARER have to fit.",
        1024,
        104_857_600,
    )
    failure_delay_ms: int = int_key(
        "connection.failed.authentication.delay.ms",
        100,
        "A failed login is answered after this time, so that guessing is slow.",
        0,
        60_000,
    )
    timeout_ms: int = int_key(
        "forebay.authentication.timeout.ms",
        10_000,
        "A client that has not logged in within this time is disconnected.",
        100,
        INT_MAX,
    )
    requests_max: int = int_key(
        "forebay.authentication.max.requests",
        16,
        "The most requests of one login: those that ask for versions and those that show who a client is. A "
        "client that sends more is disconnected.",
        4,
        1_000_000,
    )
    unauthenticated_max: int = int_key(
        "forebay.max.unauthenticated.connections",
        1_000,
        "Connections that may be open without a login, or within their TLS handshake. Beyond that, the "
        "oldest one from the address that has the most of them is closed for each new one (by IPv6: from "
        "the /64 network). The same happens at max.connections.",
        1,
    )
    broker_mechanism: str = text_key(
        "sasl.mechanism.inter.broker.protocol",
        "SCRAM-SHA-512",
        "How brokers log in at each other, where they talk by a SASL listener.",
        choices=BROKER_MECHANISMS,
    )
    broker_user: str | None = text_key(
        "forebay.sasl.username", None, "The user that this broker logs in as at other brokers."
    )
    broker_password: Secret | None = password_key("forebay.sasl.password", None, "The password of that user.")


LISTENER_KEYS = (
    "sasl.enabled.mechanisms",
    "connections.max.reauth.ms",
    "sasl.server.max.receive.size",
    "connection.failed.authentication.delay.ms",
    "forebay.authentication.timeout.ms",
    "forebay.authentication.max.requests",
)
"""Those that a listener may have of its own."""
