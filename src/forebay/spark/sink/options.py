"""The options and columns of a write: those of Spark's Kafka sink, and what Forebay adds to them.

Checked when the query is planned, so that a mistake is an error on the driver, with the name of the option
or of the column, before a row has moved. `delivery`, `jobId`, `streamId`, `batchId` and `deadLetters` are
ours, and so is the column `timestamp`, which keeps the time of a record that is copied or replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from forebay.errors import ConfigError
from forebay.lazy import dataclass
from forebay.spark.options import CONNECTION, FORBIDDEN, bootstrap_servers, lowered
from forebay.spark.sink.producer import Limits
from forebay.wire.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"

_BATCH_BYTES_MAX = 64 << 20
_NAME_CHARACTERS_MAX = 200

_SINK = {
    "topic",
    "delivery",
    "jobid",
    "streamid",
    "batchid",
    "deadletters",
    "kafka.bootstrap.servers",
    "kafka.acks",
    "kafka.enable.idempotence",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.max.request.size",
    "kafka.transaction.timeout.ms",
}
_OF_SPARK = {"checkpointlocation", "queryname", "includeheaders"}
_OF_READS = {
    "kafka.check.crcs",
    "kafka.client.rack",
    "kafka.fetch.max.bytes",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "readremote",
    "remoteurl",
}
"""One set of options may serve reads and writes."""
_REMOTE = "remote."
"""How options begin of the object store that a read uses."""

_FORBIDDEN = {
    "path": "name the topic with the option topic, or in a column",
    "kafka.key.serializer": "give the column key as string or binary",
    "kafka.value.serializer": "give the column value as string or binary",
    "kafka.transactional.id": "use delivery=exactly-once, and jobId to name a batch job",
    "kafka.partitioner.class": "give the column partition",
    "kafka.partitioner.ignore.keys": "give the column partition",
    **FORBIDDEN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    bootstrap: str
    connection: Mapping[str, str] = field(default_factory=dict)
    """The kafka.* options of connections."""
    topic: str | None = None
    """Where all rows go; None when each row says so itself."""
    exactly_once: bool = False
    job_id: str | None = None
    stream_id: str | None = None
    batch_id: int | None = None
    """Of the stream's micro-batch, for a batch write that is one of its batches (foreachBatch)."""
    dead_letters: str | None = None
    """A topic for rows that cannot be written where they want to go; without it they fail the write."""
    limits: Limits = field(default_factory=Limits)
    transaction_timeout_ms: int | None = None
    """None: as `id_prefixes.timeout_ms` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Where in a row its parts are; None for those that it does not have."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    timestamp: int | None = None


def write_options(options: Mapping[str, str]) -> WriteOptions:
    known = _SINK | _OF_SPARK | CONNECTION
    of_reads = _OF_READS | {name.lower() for name in options if name.lower().startswith(_REMOTE)}
    given = lowered(options, known=known, without_effect=of_reads, forbidden=_FORBIDDEN)
    bootstrap = bootstrap_servers(given)
    if given.get("kafka.acks", "all").lower() not in ("all", "-1"):
        raise ConfigError(f"kafka.acks={given['kafka.acks']}: this sink only writes with acks=all")
    if given.get("kafka.enable.idempotence", "true").lower() != "true":
        raise ConfigError("kafka.enable.idempotence=false: this sink always writes idempotently")
    connection = {name: value for name, value in given.items() if name in CONNECTION}
    connection.setdefault("kafka.client.id", "spark-forebay-sink")
    return WriteOptions(
        bootstrap=bootstrap,
        connection=connection,
        topic=_topic(given),
        exactly_once=_exactly_once(given),
        job_id=_name(given, "jobId"),
        stream_id=_name(given, "streamId"),
        batch_id=_batch_id(given),
        dead_letters=_dead_letters(given),
        limits=_limits(given),
        transaction_timeout_ms=_transaction_timeout(given),
    )


def _topic(given: Mapping[str, str]) -> str | None:
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("option topic is empty: name a topic, or leave it out and give a column topic")
    return topic


def _dead_letters(given: Mapping[str, str]) -> str | None:
    topic = given.get("deadletters")
    if topic is not None and (not topic.strip() or topic == given.get("topic")):
        raise ConfigError(f"deadLetters={topic}: name a topic other than the one that is written to")
    return topic


def _exactly_once(given: Mapping[str, str]) -> bool:
    delivery = given.get("delivery", AT_LEAST_ONCE).strip().lower()
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ConfigError(f"delivery={given['delivery']}: give {AT_LEAST_ONCE} or {EXACTLY_ONCE}")
    return delivery == EXACTLY_ONCE


def _name(given: Mapping[str, str], option: str) -> str | None:
    name = given.get(option.lower())
    if name is None:
        return None
    if not _exactly_once(given):
        raise ConfigError(f"{option} names a write that must happen once: it needs delivery=exactly-once")
    if not 0 < len(name) <= _NAME_CHARACTERS_MAX or not name.isprintable():
        raise ConfigError(f"{option}={name!r}: give 1 to {_NAME_CHARACTERS_MAX} printable characters")
    return name


def _batch_id(given: Mapping[str, str]) -> int | None:
    text = given.get("batchid")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"batchId={text}: give the number that foreachBatch gives")
    if "streamid" not in given:
        raise ConfigError(
            "batchId needs streamId: a name for what a stream writes, another one for each write"
        )
    return int(text)


def _limits(given: Mapping[str, str]) -> Limits:
    name = given.get("kafka.compression.type", "none").strip().upper()
    if name not in Codec.__members__:
        known = ", ".join(codec.lower() for codec in Codec.__members__)
        raise ConfigError(f"kafka.compression.type={given['kafka.compression.type']}: give one of {known}")
    defaults = Limits()
    batch_bytes = _number(given, "kafka.batch.size", defaults.batch_bytes)
    if batch_bytes > _BATCH_BYTES_MAX:
        raise ConfigError(f"kafka.batch.size={batch_bytes}: {_BATCH_BYTES_MAX} is the most")
    request_bytes = _number(given, "kafka.max.request.size", defaults.request_bytes)
    return Limits(codec=Codec[name], batch_bytes=min(batch_bytes, request_bytes), request_bytes=request_bytes)


def _transaction_timeout(given: Mapping[str, str]) -> int | None:
    name = "kafka.transaction.timeout.ms"
    return _number(given, name, 0) if name in given else None


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default)).strip()
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise ConfigError(f"{name}={given[name]}: give a whole number of 1 or more")
    return int(text)


# -- columns ------------------------------------------------------------------------------------------------

_TEXT = ("string", "binary")
_TYPES: Mapping[str, tuple[str, ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}


def columns(schema: StructType, topic: str | None) -> Columns:
    """Where the sink's columns are; others are left out, as Spark's Kafka sink leaves them out."""
    found: dict[str, int] = {}
    for index, column in enumerate(schema.fields):
        name = column.name.lower()
        if name not in _TYPES:
            continue
        if name in found:
            raise ConfigError(f"there are two columns {name}: drop one of them")
        given = column.dataType.simpleString()
        if given not in _TYPES[name]:
            raise ConfigError(f"column {name} is {given}: it must be {' or '.join(_TYPES[name])}; cast it")
        found[name] = index
    if "value" not in found:
        raise ConfigError(
            f"there is no column value among {', '.join(schema.fieldNames()) or 'none at all'}: it is what a"
            " message carries, as string or binary; try to_json(struct(*)) as value"
        )
    if topic is None and "topic" not in found:
        raise ConfigError("where to? Give the option topic, or a column topic")
    return Columns(**found)
