"""Every setting of a broker, with Kafka's name and meaning; `ignored.py` has those without effect.

Defaults are Kafka's except where its own are unsafe or useless for a single process: retention is two
weeks, the listener is loopback only, and replication factor and minimum in-sync replicas follow the
size of the cluster instead of being 1.
"""

from __future__ import annotations

from forebay.config.declared_settings import definitions_of, settings_group
from forebay.config.keys.authorization import AuthorizationConfig
from forebay.config.keys.cleaner import COMPACTION_KEYS, CleanerConfig
from forebay.config.keys.cluster import CLUSTER_KEYS
from forebay.config.keys.connections import SocketConfig
from forebay.config.keys.controller import DRAINED_KEY, ControllerConfig, not_zero
from forebay.config.keys.delegation_token import DelegationTokenConfig
from forebay.config.keys.group import GroupsConfig
from forebay.config.keys.ignored import IGNORED_BROKER_KEYS
from forebay.config.keys.oauth import OAuthConfig
from forebay.config.keys.quota import QuotaConfig
from forebay.config.keys.replication import ReplicationConfig
from forebay.config.keys.sasl import SaslConfig
from forebay.config.keys.share_coordinator import ShareCoordinatorConfig
from forebay.config.keys.tls import TlsConfig
from forebay.config.keys.transaction import TransactionsConfig
from forebay.config.listeners import (
    SecurityProtocol,
    validate_advertised,
    validate_listeners,
    validate_metrics_listener,
    validate_protocol_map,
)
from forebay.config.values import (
    LONG_MAX,
    Definition,
    Value,
    bool_key,
    int_key,
    list_key,
    long_key,
    text_key,
)

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
CLEANUP_POLICIES = ("delete", "compact")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def _one_directory(value: Value) -> None:
    if not isinstance(value, tuple) or len(value) != 1:
        raise ValueError(
            "exactly one data directory per broker process; start another broker for another disk"
        )


def _gzip_level(value: Value) -> None:
    if value == 0:
        raise ValueError("0 is not allowed, use -1 for the default or a level from 1 to 9")


_NODE_KEYS = (
    int_key(
        "node.id",
        1,
        "The number of this broker, unique in its cluster. A broker of a forebay.cluster that is given none "
        "gets one, and remembers it in its data directory.",
        0,
    ),
    text_key(
        "broker.rack",
        None,
        "The failure domain of this broker, told to clients and used to keep replicas apart.",
    ),
    list_key(
        "log.dirs",
        ("./forebay-data",),
        "The directory that holds this broker's data.",
        validate=_one_directory,
    ),
    list_key(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses to listen on, NAME://host:port, with commas between them; no name means PLAINTEXT, no "
        "host every interface, port 0 any free port.",
        validate=validate_listeners,
    ),
    list_key(
        "listener.security.protocol.map",
        (),
        "What is spoken on each listener, NAME:PROTOCOL, with commas between them. A listener that has the "
        "name of a protocol needs no entry.",
        validate=validate_protocol_map,
    ),
    list_key(
        "advertised.listeners",
        (),
        "The addresses told to clients, NAME://host:port. A client of a listener that is not named here is "
        "told the address that it came by.",
        validate=validate_advertised,
    ),
    text_key(
        "inter.broker.listener.name",
        None,
        "The listener by which brokers talk to each other; none: the first of them.",
    ),
    text_key(
        "security.inter.broker.protocol",
        None,
        "The same by protocol: the first listener that speaks it.",
        choices=tuple(SecurityProtocol),
    ),
    bool_key(
        "forebay.allow.insecure",
        False,
        "Listen beyond this machine without TLS and without authentication: whoever reaches such a listener "
        "may read and change all data.",
    ),
    text_key(
        "forebay.metrics.listener",
        None,
        "Where metrics are served for Prometheus, host:port, under /metrics; nowhere unless it is set.",
        validate=validate_metrics_listener,
    ),
    bool_key(
        "forebay.warm.up.enable",
        True,
        "Whether a broker that serves imports the parts that it has not needed yet. Without it the first"
        " request of a kind takes longer, and the installed package must not be replaced under the broker.",
    ),
    text_key("forebay.log.format", "text", "How the broker's own log lines look.", choices=("text", "json")),
)


@settings_group
class FetchConfig:
    max_bytes: int = int_key(
        "fetch.max.bytes", 57671680, "The most data that one Fetch response carries.", 1024
    )
    session_slots_max: int = int_key(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Fetch sessions kept for clients; beyond it the oldest makes room.",
        0,
    )
    view_source_max_bytes: int = int_key(
        "forebay.view.fetch.source.max.bytes",
        4 * 1024 * 1024,
        "How much of its source a fetch of a view's partition examines before it is answered, if nothing "
        "matches.",
        1,
        dynamic=True,
    )
    view_cache_bytes: int = long_key(
        "forebay.view.cache.bytes",
        1024 * 1024 * 1024,
        "Disk space for what views show of closed segments, which is filtered once and kept; 0 means none.",
        0,
        dynamic=True,
    )
    view_pattern_size_max: int = int_key(
        "forebay.view.pattern.size.max",
        2_000,
        "The instructions that the patterns of a new view may be compiled to, all of them together. Each may "
        "be a step for each byte of a text.",
        1,
        1_000_000,
        dynamic=True,
    )
    view_turn_ms: int = int_key(
        "forebay.view.turn.ms",
        20,
        "How long a view filters until it is the turn of others. It ends between two messages.",
        1,
        10_000,
        dynamic=True,
    )
    view_record_steps_max: int = long_key(
        "forebay.view.record.max.steps",
        64 * 1024 * 1024,
        "What a view may spend on one message: the bytes of a text times the instructions of the view's "
        "patterns. A message that may take more is not shown, and counted. A step takes up to 8 ns.",
        1024,
        dynamic=True,
    )
    view_record_max_bytes: int = int_key(
        "forebay.view.record.max.bytes",
        4 * 1024 * 1024,
        "A larger message is not shown by a view that has to read it, and counted. Its value counts if the "
        "view uses it.",
        1024,
        dynamic=True,
    )
    view_record_elements_max: int = int_key(
        "forebay.view.record.max.elements",
        100_000,
        "A message whose value has more fields and elements, or that has more headers, is not shown by a "
        "view that has to read them, and counted.",
        1,
        dynamic=True,
    )


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


@settings_group
class StorageConfig:
    flush_policy: str = text_key(
        "forebay.flush.policy",
        "ack",
        "When data is forced to disk: ack before acks=all is answered, interval every log.flush.interval.ms.",
        choices=("ack", "interval"),
    )
    flush_interval_ms: int = long_key(
        "log.flush.interval.ms",
        1000,
        "The longest that appended data waits for the disk, whatever the flush policy.",
        1,
    )
    retention_check_interval_ms: int = long_key(
        "log.retention.check.interval.ms", 300_000, "How often retention is looked at.", 1
    )
    open_files_max: int = int_key("forebay.open.files.max", 512, "Log files held open at a time.", 16)
    delay_indexes_open_max: int = int_key(
        "forebay.delay.indexes.open.max",
        256,
        "Indexes of delayed messages held open at a time, each with three descriptors and up to 256 KiB of "
        "memory. Others are opened when they are needed, which takes time.",
        4,
    )
    decompress_max_bytes: int = int_key(
        "forebay.decompress.max.bytes",
        64 * 1024 * 1024,
        "The most that one batch may unpack to, where the broker has to unpack it.",
        1024,
    )
    producer_id_expiration_ms: int = int_key(
        "producer.id.expiration.ms",
        86_400_000,
        "An idempotent producer that appends nothing to a partition for this long is forgotten there. The "
        "broker's own time counts, from its start on; timestamps of messages do not.",
        1,
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = int_key(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often to look for producers that are to be forgotten.",
        1,
    )
    fold_grace_ms: int = long_key(
        "forebay.fold.grace.ms",
        600_000,
        "How long a folded partition stays at least, even if it is empty: for this long it recognises what "
        "producers send again that they have sent before the fold. Longer than their delivery timeouts.",
        0,
        dynamic=True,
    )

    @property
    def flush_on_ack(self) -> bool:
        return self.flush_policy == "ack"


_TOPIC_KEYS = (
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
        "log.segment.delete.delay.ms",
        60_000,
        "How long the files of a deleted segment stay on disk, for readers in flight.",
        0,
        dynamic=True,
    ),
)
"""The defaults of topic settings."""

BROKER_KEYS: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        *_NODE_KEYS,
        *definitions_of(TlsConfig),
        *CLUSTER_KEYS,
        *definitions_of(SocketConfig),
        *definitions_of(SaslConfig),
        *definitions_of(OAuthConfig),
        *definitions_of(DelegationTokenConfig),
        *definitions_of(FetchConfig),
        *definitions_of(TopicDefaults),
        *_TOPIC_KEYS,
        *definitions_of(StorageConfig),
        *definitions_of(CleanerConfig),
        *COMPACTION_KEYS,
        *definitions_of(GroupsConfig),
        *definitions_of(TransactionsConfig),
        *definitions_of(ShareCoordinatorConfig),
        *definitions_of(ReplicationConfig),
        DRAINED_KEY,
        *definitions_of(ControllerConfig),
        *definitions_of(AuthorizationConfig),
        *definitions_of(QuotaConfig),
        *IGNORED_BROKER_KEYS,
    )
}

ALIASES = {
    "broker.id": "node.id",
    "log.dir": "log.dirs",
    "delegation.token.master.key": "delegation.token.secret.key",
}
"""Other names that Kafka's users write for the same key."""
