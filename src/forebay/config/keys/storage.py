"""The settings of the data directory: flushing, open files, expiry of producers, folded partitions."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import int_key, long_key, text_key


@settings_group
class StorageConfig:
    flush_policy: str = text_key(
        "forebay.flush.policy",
        "ack",
        "When data is forced to disk: ack before acks=all is answered, interval every log.flush.interval.ms, "
        "never for tests only: neither logs nor the store of a single broker then survive a loss of power.",
        choices=("ack", "interval", "never"),
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
    open_before_ready_max: int = int_key(
        "forebay.open.before.ready.max",
        1000,
        "A broker with more partitions than this is ready before it has opened them: first those that "
        "clients ask for, whose requests wait, then the others. A single broker does not even make the "
        "directories of partitions that nobody has used yet.",
        0,
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

    @property
    def syncs(self) -> bool:
        """False if nothing need survive a loss of power."""
        return self.flush_policy != "never"
