"""The settings of SASL logins, with Kafka's names. The listeners' protocols require logins or not.

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


def _are_addresses(value: Value) -> None:
    from ipaddress import ip_network

    assert isinstance(value, tuple)
    for each in value:
        try:
            ip_network(each)
        except ValueError:
            raise ValueError(
                f"{each!r} is no address: use IP addresses, or ranges such as 10.0.0.0/8"
            ) from None


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
    failures_max: int = int_key(
        "forebay.login.failures.max",
        5,
        "Wrong logins of one user from one address (by IPv6: one /64) before that user has to wait there. A "
        "good login wipes them out.",
        1,
        1_000_000,
        dynamic=True,
    )
    address_failures_max: int = int_key(
        "forebay.login.address.failures.max",
        50,
        "Wrong logins from one address, as whatever users, before everybody has to wait there who has not "
        "logged in from there before.",
        1,
        1_000_000,
        dynamic=True,
    )
    wait_ms: int = int_key(
        "forebay.login.wait.ms",
        1_000,
        "How long that is after the first wrong login too many. Each further one doubles it. Logins before "
        "their time are refused unseen.",
        1,
        3_600_000,
        dynamic=True,
    )
    wait_max_ms: int = int_key(
        "forebay.login.wait.max.ms",
        60_000,
        "The longest wait after wrong logins; 0: nobody has to wait.",
        0,
        3_600_000,
        dynamic=True,
    )
    wait_exempt: tuple[str, ...] = list_key(
        "forebay.login.wait.exempt.addresses",
        ("127.0.0.1", "::1"),
        "Addresses, and ranges such as 10.0.0.0/8, where nobody has to wait: those that many share, such as "
        "this machine's own and that of a proxy.",
        validate=_are_addresses,
        dynamic=True,
    )
    failures_remembered_max: int = int_key(
        "forebay.login.failures.remembered.max",
        10_000,
        "Addresses, and users at addresses, whose wrong logins are remembered: so many of each. The oldest "
        "go first.",
        1,
        10_000_000,
        dynamic=True,
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
"""The settings that can be set for one listener."""
