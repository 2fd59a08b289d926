"""What the options of reads and of writes have in common. Spark hands their names over in lower case."""

from __future__ import annotations

from collections.abc import Container, Mapping

from forebay.errors import ConfigError
from forebay.spark.wire import security

CONNECTION = security.OPTIONS | {
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.retry.backoff.ms",
}
"""Options of connections, which every Kafka client has."""

WITHOUT_EFFECT = {
    "kafka.client.dns.lookup",
    "kafka.connections.max.idle.ms",
    "kafka.metadata.max.age.ms",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.send.buffer.bytes",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
}
"""Settings that people have in their files. They are accepted, and change nothing that is read or written."""

_SERVERS = "kafka.bootstrap.servers"


def lowered(
    options: Mapping[str, str], *, known: Container[str], forbidden: Mapping[str, str]
) -> dict[str, str]:
    """The options by their names in lower case; ConfigError for one that cannot be used."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name in forbidden:
            raise ConfigError(f"option {name} cannot be used here: {forbidden[name]}")
        if name.startswith("kafka.sasl."):
            raise ConfigError(f"option {name}: SASL is not supported; use kafka.security.protocol=SSL")
        if name not in known:
            raise ConfigError(f"option {name} is not known; docs/spark.md lists what there is")
    return given


def bootstrap_servers(given: Mapping[str, str]) -> str:
    if not given.get(_SERVERS, "").strip():
        raise ConfigError(f"option {_SERVERS} is missing: give host:port of one broker or more")
    return given[_SERVERS]
