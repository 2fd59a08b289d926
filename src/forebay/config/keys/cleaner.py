"""The settings of log compaction, with Kafka's names and defaults.

There is one cleaning thread: it shares the interpreter with the event loop, so a second one would take time
from clients and gain nothing. `log.cleaner.dedupe.buffer.size` bounds its memory whatever the size of a log.
"""

from __future__ import annotations

from sys import float_info

from forebay.config.declared_settings import settings_group
from forebay.config.values import LONG_MAX, bool_key, double_key, long_key


@settings_group
class CleanerConfig:
    enable: bool = bool_key(
        "log.cleaner.enable",
        True,
        "Whether topics with cleanup.policy=compact are compacted; the offsets topic is one of them.",
    )
    buffer_bytes: int = long_key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory for the keys of one cleaning; a log with more keys takes several cleanings.",
        65_536,
        dynamic=True,
    )
    backoff_ms: int = long_key(
        "log.cleaner.backoff.ms", 15_000, "How long to wait when no log needs compaction.", 1, dynamic=True
    )
    bytes_per_second_max: float = double_key(
        "log.cleaner.io.max.bytes.per.second",
        float_info.max,
        "The most that compaction reads and writes, together.",
        1,
        dynamic=True,
    )


COMPACTION_KEYS = (
    double_key(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "The share of a log that must be uncompacted before it is compacted.",
        0,
        1,
        dynamic=True,
    ),
    long_key(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "How long every message stays, even if its key has a newer one.",
        0,
        dynamic=True,
    ),
    long_key(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "After this time a message is compacted whatever the uncompacted share; it closes segments as well.",
        1,
        dynamic=True,
    ),
    long_key(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long a message without a value, which deletes its key, can be read after compaction.",
        0,
        dynamic=True,
    ),
)
"""The defaults of topic settings."""
