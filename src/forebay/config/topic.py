"""A topic's settings: its own overrides, and the broker's values for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay.config.broker import BrokerConfig
from forebay.config.keys.topic import ALL_REPLICAS, TOPIC_KEYS, TopicKey
from forebay.config.values import Value
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    cleanup_policy: tuple[str, ...]
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    max_message_bytes: int
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    retention_ms: int
    """-1 means for ever."""
    retention_bytes: int
    """-1 means no limit."""
    local_retention_ms: int
    """-2 means retention_ms; see `local_retention`."""
    local_retention_bytes: int
    remote_storage_enable: bool
    """True if closed segments are copied to an object store."""
    remote_copy_disable: bool
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    index_interval_bytes: int
    segment_index_bytes: int
    file_delete_delay_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    min_insync_replicas: int
    """-1 means a majority of the replicas; see `insync_replicas_min`."""
    unclean_leader_election_enable: bool
    takes_dead_letters: bool
    delay_ms: int
    """The age at which messages become visible to consumers."""
    delay_enable: bool
    """True if messages may be delayed individually, by their headers."""
    delay_max_ms: int
    delay_pending_max: int
    leader_throttled_replicas: tuple[str, ...]
    follower_throttled_replicas: tuple[str, ...]
    """As partition:broker; see `is_throttled`."""

    @staticmethod
    def resolve(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        values: dict[str, Any] = {}
        for key in TOPIC_KEYS.values():
            if key.attribute is None:
                continue
            given = key.given(overrides)
            values[key.attribute] = (
                _fallback(broker, key) if given is None else key.definition.parse(given[1])
            )
        return TopicConfig(**values)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True if retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def local_retention(self) -> tuple[int, int]:
        """Milliseconds and bytes after which segments leave the local disk; -1 means never."""
        of_time = self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms
        of_size = self.retention_bytes if self.local_retention_bytes == -2 else self.local_retention_bytes
        return of_time, of_size

    @property
    def compression_level(self) -> int | None:
        """The level of the codec for stored batches; None if it has no levels, or producers choose."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def insync_replicas_min(self, replicas: int) -> int:
        """The number of in-sync replicas that acks=all needs, for a partition with this many replicas."""
        if self.min_insync_replicas > 0:
            return self.min_insync_replicas
        return replicas // 2 + 1

    def needs_all(self, replicas: int) -> bool:
        """True if acks=all is refused as soon as one replica is down, for a partition with this many."""
        return 1 < replicas <= self.insync_replicas_min(replicas)


def is_throttled(replicas: tuple[str, ...], index: int, broker: int) -> bool:
    """True if a setting names this replica, which is catching up; all are meant if none is named."""
    return replicas in ((), ALL_REPLICAS) or f"{index}:{broker}" in replicas


def _fallback(broker: BrokerConfig, key: TopicKey) -> Value:
    for name, factor in key.fallbacks:
        value = broker.values[name]
        if value is not None:
            return key.from_broker(value, factor)
    return key.definition.default
