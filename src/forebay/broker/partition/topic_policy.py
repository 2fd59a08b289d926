"""A topic's settings, translated for the parts that use them: appending, reading, and storage."""

from __future__ import annotations

from forebay.config import TopicConfig
from forebay.core.partition.batch_rules import AppendPolicy
from forebay.core.partition.delayed_on_append import DelayPolicy
from forebay.core.partition.topic_due_offset import DueOffset
from forebay.storage.log.config import LogConfig
from forebay.wire.compression import Codec

_CODECS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def append_policy(
    config: TopicConfig, decompress_max_bytes: int, index: int, *, closed: bool = False
) -> AppendPolicy:
    """Of the partition with this index. `closed`: it is folded into another."""
    return AppendPolicy(
        closed=closed,
        max_message_bytes=config.max_message_bytes,
        log_append_time=config.log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        codec=_CODECS[config.compression_type],
        compression_level=config.compression_level,
        compacted=config.compacted,
        max_output_bytes=decompress_max_bytes,
        delays=_delay_policy(config, index) if config.delay_enable else None,
    )


def _delay_policy(config: TopicConfig, index: int) -> DelayPolicy:
    return DelayPolicy(config.delay_max_ms, config.delay_pending_max, index)


def due_offset(config: TopicConfig) -> DueOffset | None:
    return DueOffset(config.delay_ms) if config.delay_ms else None


def log_config(config: TopicConfig, decompress_max_bytes: int) -> LogConfig:
    return LogConfig(
        segment_bytes=config.segment_bytes,
        # What is in the active segment is not compacted, so it has to close in time.
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms)
        if config.compacted
        else config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        segment_index_bytes=config.segment_index_bytes,
        file_delete_delay_ms=config.file_delete_delay_ms,
        # Segments leave the disk as fast as others fill. A reader whose file is gone goes on in the store.
        deleted_bytes_max=config.segment_bytes if config.remote_storage_enable else None,
        keeps_snapshots=config.remote_storage_enable,
        decompress_max_bytes=decompress_max_bytes,
    )
