"""The settings of log compaction, with Kafka's names and defaults.

There is one cleaning thread: it shares the interpreter with the event loop, so that a second one would take
time from clients and win none. `log.cleaner.dedupe.buffer.size` bounds its memory whatever the size of a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import float_info
from typing import Any

from forebay.config.values import LONG_MAX, ConfigType, Definition, long_key

CLEANER_KEYS = (
    Definition(
        name="log.cleaner.enable",
        type=ConfigType.BOOLEAN,
        default=True,
        doc="Whether topics with cleanup.policy=compact are compacted; the offsets topic is one of them.",
    ),
    long_key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory for the keys of one cleaning; a log with more keys takes several cleanings.",
        65_536,
        dynamic=True,
    ),
    long_key(
        "log.cleaner.backoff.ms", 15_000, "How long to wait when no log needs compaction.", 1, dynamic=True
    ),
    Definition(
        name="log.cleaner.io.max.bytes.per.second",
        type=ConfigType.DOUBLE,
        default=float_info.max,
        minimum=1,
        doc="The most that compaction reads and writes, together.",
        dynamic=True,
    ),
    Definition(
        name="log.cleaner.min.cleanable.ratio",
        type=ConfigType.DOUBLE,
        default=0.5,
        minimum=0,
        maximum=1,
        doc="The share of a log that must be uncompacted before it is compacted.",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    enable: bool = True
    buffer_bytes: int = 134_217_728
    backoff_ms: int = 15_000
    bytes_per_second_max: float = float_info.max


def cleaner_config(values: Mapping[str, Any]) -> CleanerConfig:
    return CleanerConfig(
        enable=values["log.cleaner.enable"],
        buffer_bytes=values["log.cleaner.dedupe.buffer.size"],
        backoff_ms=values["log.cleaner.backoff.ms"],
        bytes_per_second_max=values["log.cleaner.io.max.bytes.per.second"],
    )
