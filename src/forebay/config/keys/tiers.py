"""The settings of tiered storage: where old segments go, and what copying and reading them may cost."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from forebay.config.declared_settings import settings_group
from forebay.config.values import LONG_MAX, Value, int_key, long_key, text_key

_SCHEMES = ("file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")


def _place(value: Value) -> None:
    if not value:
        return
    parts = urlsplit(str(value))
    if "://" in str(value) and parts.scheme not in _SCHEMES:
        raise ValueError(f"use a directory, or a URL that begins with {', '.join(_SCHEMES)} and ://")
    if parts.password is not None or (parts.username and parts.scheme not in ("abfs", "abfss")):
        raise ValueError(
            "credentials do not belong here: use the environment variables or files of the service"
        )


def _store_id(value: Value) -> None:
    if value and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", str(value)):
        raise ValueError("use up to 64 letters, digits, dots, dashes and underscores")


@settings_group
class TierConfig:
    url: str | None = text_key(
        "forebay.remote.url",
        None,
        "Where closed segments of topics with remote.storage.enable go: a directory, or a URL such as "
        "s3://bucket/prefix. All brokers of a cluster need the same. Without it there is no tiered storage.",
        validate=_place,
    )
    store_id: str | None = text_key(
        "forebay.remote.store.id",
        None,
        "The id of the object store to go on with, if it is not the one that the cluster knows: "
        "the broker says which one it has found. An empty store is given this id. Not needed otherwise.",
        validate=_store_id,
    )
    task_interval_ms: int = long_key(
        "remote.log.manager.task.interval.ms",
        30_000,
        "How often to look for segments to copy, and for objects to delete. A segment that is closed is "
        "looked at soon.",
        1,
    )
    retry_ms: int = long_key(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        "How long to wait after the object store has failed; twice as long after each further failure.",
        1,
    )
    retry_max_ms: int = long_key(
        "remote.log.manager.task.retry.backoff.max.ms",
        30_000,
        "The longest wait after the object store has failed.",
        1,
    )
    copy_threads: int = int_key(
        "remote.log.manager.copier.thread.pool.size",
        2,
        "Partitions that are copied at a time.",
        1,
        64,
    )
    copy_bytes_per_second_max: int = long_key(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        "How fast each of the copying threads may read and send segments.",
        1,
        dynamic=True,
    )
    read_threads: int = int_key(
        "remote.log.reader.threads", 4, "Chunks that are read from the object store at a time.", 1, 64
    )
    reads_pending_max: int = int_key(
        "remote.log.reader.max.pending.tasks",
        100,
        "Chunks that may wait to be read. Beyond it fetches of old messages are answered empty.",
        1,
    )
    cache_bytes: int = long_key(
        "forebay.remote.cache.bytes",
        1 << 30,
        "The disk that chunks read from the object store may take, in the directory remote-cache of the "
        "data directory.",
        1,
        dynamic=True,
    )
    chunk_bytes: int = int_key(
        "forebay.remote.chunk.bytes",
        4 << 20,
        "The size of the chunks that segments are divided into when they are copied, and read by.",
        4096,
        1 << 28,
    )
    read_ahead_chunks: int = int_key(
        "forebay.remote.read.ahead.chunks",
        3,
        "How many chunks after the one that was asked for are read as well.",
        0,
        64,
    )
    index_cache_bytes: int = long_key(
        "remote.log.index.file.cache.total.size.bytes",
        64 << 20,
        "The memory that indexes of segments in the object store may take.",
        1,
    )
    delete_delay_ms: int = long_key(
        "forebay.remote.delete.delay.ms",
        600_000,
        "How long an object stays after no manifest lists it any more, for readers that have an older one.",
        0,
        dynamic=True,
    )
    lost_history_retention_ms: int = long_key(
        "forebay.remote.lost.history.retention.ms",
        7 * 86_400_000,
        "How long objects stay that an unclean election has made invalid. They are not served.",
        0,
        dynamic=True,
    )
