"""The settings of a broker for topics: how they are created, and what applies to those without their own."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.keys.cluster.controller import not_zero
from forebay.config.values import LONG_MAX, Value, bool_key, int_key, list_key, long_key, text_key

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
CLEANUP_POLICIES = ("delete", "compact")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def _gzip_level(value: Value) -> None:
    if value == 0:
        raise ValueError("0 is not allowed, use -1 for the default or a level from 1 to 9")


@settings_group
class TopicDefaults:
    num_partitions: int = int_key(
        "num.partitions", 1, "Partitions of a topic that is created without a count.", 1, 10_000
    )
    replication_factor: int = int_key(
        "default.replication.factor",
        -1,
        "Replicas of a topic that is created without a count; -1 means three, or all brokers if fewer.",
        -1,
        32767,
        validate=not_zero,
    )
    """-1 means three, or all brokers if there are fewer."""
    auto_create: bool = bool_key(
        "auto.create.topics.enable", True, "Create a topic when a client asks for an unknown one."
    )
    delete_enable: bool = bool_key("delete.topic.enable", True, "Whether topics can be deleted.")


TOPIC_DEFAULT_KEYS = (
    int_key("message.max.bytes", 1048588, "The largest record batch that a topic takes.", 0, dynamic=True),
    text_key(
        "compression.type",
        "producer",
        "How batches are stored; producer keeps them as they were sent.",
        choices=COMPRESSION_TYPES,
        dynamic=True,
    ),
    int_key(
        "compression.gzip.level",
        -1,
        "The level at which batches are compressed when compression.type is gzip; -1 is gzip's default.",
        -1,
        9,
        validate=_gzip_level,
        dynamic=True,
    ),
    int_key(
        "compression.lz4.level",
        9,
        "The level when compression.type is lz4; 9, the default, is the fast one, as in Kafka.",
        1,
        17,
        dynamic=True,
    ),
    int_key(
        "compression.zstd.level", 3, "The level when compression.type is zstd.", -131_072, 22, dynamic=True
    ),
    text_key(
        "log.message.timestamp.type",
        "CreateTime",
        "Whether a message carries the producer's time or the time of its append.",
        choices=TIMESTAMP_TYPES,
        dynamic=True,
    ),
    long_key(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a producer's timestamp may lie in the past.",
        0,
        dynamic=True,
    ),
    long_key(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "How far a producer's timestamp may lie in the future.",
        0,
        dynamic=True,
    ),
    list_key(
        "log.cleanup.policy",
        ("delete",),
        "delete drops old segments by age and size; compact keeps the last value of each key. "
        "With none of them all messages are kept.",
        choices=CLEANUP_POLICIES,
        dynamic=True,
    ),
    long_key("log.retention.ms", None, "How long messages are kept; -1 means for ever.", -1, dynamic=True),
    int_key("log.retention.minutes", None, "Used when log.retention.ms is not set.", -1),
    int_key("log.retention.hours", 336, "Used when neither log.retention.ms nor .minutes is set.", -1),
    long_key(
        "log.retention.bytes",
        -1,
        "The size at which a partition drops old segments; -1 means none.",
        -1,
        dynamic=True,
    ),
    int_key("log.segment.bytes", 1073741824, "The size at which a segment is closed.", 14, dynamic=True),
    long_key("log.roll.ms", None, "The age at which a segment is closed.", 1, dynamic=True),
    int_key("log.roll.hours", 168, "Used when log.roll.ms is not set.", 1),
    long_key(
        "log.roll.jitter.ms",
        None,
        "Segments are closed up to this much earlier, each by another time, so that not all are at once.",
        0,
        dynamic=True,
    ),
    int_key("log.roll.jitter.hours", 0, "Used when log.roll.jitter.ms is not set.", 0),
    int_key(
        "log.index.interval.bytes", 4096, "Data between two entries of the offset index.", 0, dynamic=True
    ),
    int_key(
        "log.index.size.max.bytes",
        10485760,
        "The size at which an index closes its segment.",
        12,
        dynamic=True,
    ),
    long_key(
        "log.local.retention.ms",
        -2,
        "For topics with remote.storage.enable: how long a segment stays on the disks of brokers once it is "
        "in the object store. -2 means as long as it is retained at all, -1 for ever.",
        -2,
        dynamic=True,
    ),
    long_key(
        "log.local.retention.bytes",
        -2,
        "For topics with remote.storage.enable: how large a partition may be on the disks of brokers; what "
        "is more is deleted there once it is in the object store. -2 means as much as is retained at all.",
        -2,
        dynamic=True,
    ),
    long_key(
        "log.segment.delete.delay.ms",
        60_000,
        "How long the files of a deleted segment stay on disk, for readers in flight.",
        0,
        dynamic=True,
    ),
)
"""The defaults of topic settings."""
