"""The options that reads and writes have in common. Spark hands their names over in lower case."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping

from forebay.errors import ConfigError
from forebay.transport import security

log = logging.getLogger(__name__)

CONNECTION = {f"kafka.{name}" for name in security.NAMES} | {
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.retry.backoff.ms",
}
"""Options of connections, which every Kafka client has."""

TUNING = frozenset(
    {
        "kafka.acks",
        "kafka.allow.auto.create.topics",
        "kafka.auto.commit.interval.ms",
        "kafka.auto.include.jmx.reporter",
        "kafka.buffer.memory",
        "kafka.client.dns.lookup",
        "kafka.compression.gzip.level",
        "kafka.compression.lz4.level",
        "kafka.compression.zstd.level",
        "kafka.connections.max.idle.ms",
        "kafka.delivery.timeout.ms",
        "kafka.enable.idempotence",
        "kafka.enable.metrics.push",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.min.bytes",
        "kafka.group.instance.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.heartbeat.interval.ms",
        "kafka.linger.ms",
        "kafka.max.block.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.metadata.max.age.ms",
        "kafka.metadata.max.idle.ms",
        "kafka.metadata.recovery.rebootstrap.trigger.ms",
        "kafka.metadata.recovery.strategy",
        "kafka.metric.reporters",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.partition.assignment.strategy",
        "kafka.partitioner.adaptive.partitioning.enable",
        "kafka.partitioner.availability.timeout.ms",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.retries",
        "kafka.retry.backoff.max.ms",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
        "kafka.socket.connection.setup.timeout.max.ms",
        "kafka.socket.connection.setup.timeout.ms",
    }
)
"""Settings of Java's clients that change nothing of what is read or written here. They are accepted, with a
warning, since people have them in their files."""

FORBIDDEN = {
    "kafka.config.providers": "there is no Java here to run them",
    "kafka.interceptor.classes": "there is no Java here to run them",
    "kafka.security.providers": "there is no Java here to run them",
}

_SERVERS = "kafka.bootstrap.servers"


def lowered(
    options: Mapping[str, str],
    *,
    known: Container[str],
    without_effect: Container[str],
    forbidden: Mapping[str, str],
) -> dict[str, str]:
    """The options by their names in lower case, without those that have no effect, of which a warning tells.

    ConfigError for one that cannot be used.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name in forbidden:
            raise ConfigError(f"option {name} cannot be used here: {forbidden[name]}")
        if name not in known and name not in TUNING and name not in without_effect:
            raise ConfigError(f"option {name} is not known; docs/spark.md lists what there is")
    unused = sorted(name for name in given if name not in known)
    if unused:
        log.warning("without effect here: %s", ", ".join(unused))
    return {name: value for name, value in given.items() if name in known}


def bootstrap_servers(given: Mapping[str, str]) -> str:
    if not given.get(_SERVERS, "").strip():
        raise ConfigError(f"option {_SERVERS} is missing: give host:port of one broker or more")
    return given[_SERVERS]
