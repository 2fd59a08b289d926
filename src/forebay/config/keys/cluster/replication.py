"""The settings of replication between brokers.

One default differs from Kafka's: a follower that lags for ten seconds, not thirty, leaves the in-sync set. A
dead broker is removed as soon as its lease has ended. This limit is for brokers that are alive and slow:
while they lag, no acks=all producer gets an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay.config.declared_settings import read_group, settings_group
from forebay.config.values import bool_key, int_key, long_key, text_key
from forebay.errors import ConfigError

_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"


@settings_group
class ReplicationConfig:
    lag_ms_max: int = int_key(
        "replica.lag.time.max.ms",
        10_000,
        "A follower that has not caught up with its leader for this long is not in sync.",
        100,
    )
    fetch_max_bytes: int = int_key(
        "replica.fetch.max.bytes",
        4 * 1024 * 1024,
        "The most data of one partition that a follower asks for at a time; a larger batch comes whole.",
        1024,
    )
    fetch_response_max_bytes: int = int_key(
        "replica.fetch.response.max.bytes",
        10 * 1024 * 1024,
        "The most data of all partitions that a follower asks a leader for at a time.",
        1024,
    )
    fetch_wait_ms: int = int_key(
        "replica.fetch.wait.max.ms", 500, "How long a follower's fetch waits for new data.", 1
    )
    fetch_backoff_ms: int = int_key(
        "replica.fetch.backoff.ms", 200, "How long a follower waits after a fetch that failed.", 1
    )
    socket_timeout_ms: int = int_key(
        "replica.socket.timeout.ms",
        30_000,
        "How long a request to another broker may take before its connection is given up.",
        1000,
    )
    selector: str = text_key(
        "replica.selector.class",
        "rack",
        "Whom consumers that name their rack read from: an in-sync replica there, or always the leader. "
        "Kafka's class names mean the same.",
        choices=("rack", "leader", _RACK_AWARE, _LEADER_ONLY),
    )
    leader_throttle: int | None = long_key(
        "leader.replication.throttled.rate",
        None,
        "The most bytes per second that this broker sends to replicas that are catching up; "
        "without a value there is no limit.",
        1,
        dynamic=True,
    )
    """Bytes per second for followers that are not in sync; None: no limit."""
    follower_throttle: int | None = long_key(
        "follower.replication.throttled.rate",
        None,
        "The most bytes per second that this broker copies for replicas that are catching up; "
        "without a value there is no limit.",
        1,
        dynamic=True,
    )
    """Bytes per second that this broker fetches of partitions with which it is not in sync."""
    controlled_shutdown: bool = bool_key(
        "controlled.shutdown.enable",
        True,
        "Whether a broker that is stopped hands its leaderships over first.",
    )

    @property
    def rack_aware_reads(self) -> bool:
        return self.selector in ("rack", _RACK_AWARE)


def replication_config(values: Mapping[str, Any]) -> ReplicationConfig:
    """Raises ConfigError for times that contradict each other."""
    _check_wait(values)
    return read_group(ReplicationConfig, values)


def _check_wait(values: Mapping[str, Any]) -> None:
    """A follower is noticed when it fetches: one that waits for longer would be taken for late, or dead."""
    wait = "replica.fetch.wait.max.ms"
    for limit in ("replica.lag.time.max.ms", "replica.socket.timeout.ms"):
        if values[wait] > values[limit]:
            raise ConfigError(
                f"{wait} ({values[wait]}) must be less than or equal to {limit} ({values[limit]}): "
                "set the one lower or the other higher"
            )
