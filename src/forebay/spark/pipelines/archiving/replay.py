"""An archive back into a topic: keys, values, headers and timestamps as they were, each message once.

Messages keep the order that they had in their partition. A topic with as many partitions as the archived one
gets every message in the partition where it was; in any other topic the key decides, so that the order of
each key is kept, and messages without a key are spread.

What a killed replay has written counts: the same command continues where it stopped. A finished replay
deletes its checkpoint, so the same command then replays everything again. It also begins anew if the topic
was deleted and made anew since.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving.compact import LOCK
from forebay.spark.pipelines.archiving.hour_files import without_null_arrays
from forebay.spark.pipelines.archiving.index import ALWAYS, TimeRange
from forebay.spark.pipelines.archiving.layout import require_position
from forebay.spark.pipelines.brokers import Brokers
from forebay.spark.pipelines.jobs import ONCE, Job, PipelineError, query_name
from forebay.spark.pipelines.lake import OWN, Lake, absolute
from forebay.spark.pipelines.versions import require_limited_batches
from forebay.spark.sink.transactions.batch_decisions import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTED = "forebay-replay.json"
"""In a checkpoint: which topic it is a replay to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    times: TimeRange = ALWAYS
    rate: float | None = None
    """Messages a second, at most."""
    speed: float | None = None
    """A factor: 2 replays twice as fast as the messages were produced."""
    checkpoint: str | None = None
    batch_records: int | None = None
    batch_bytes: int | None = None


def replay(
    spark: SparkSession, brokers: Brokers, source: str, topic: str, settings: ReplaySettings | None = None
) -> Job:
    """Start a replay; the job ends when the archive does."""
    settings = settings or ReplaySettings()
    _check(settings)
    lake = Lake(source)
    position = require_position(lake)
    lock = lake.lock(LOCK, shared=True)
    own = lake.uri(f"{OWN}/replays/{_digest(brokers, topic, settings)}")
    checkpoint = absolute(settings.checkpoint or own)
    try:
        same = brokers.partitions(topic) == position.partitions
        topic_id = brokers.topic_id(topic)
        continue_into(brokers, topic, topic_id, Lake(checkpoint))
        columns = ["key", "value", "headers", "timestamp", *(["partition"] if same else [])]
        rows = _stream(spark, lake, settings).select(*columns)
        rows = rows.withColumn("headers", without_null_arrays("headers"))
        writer = brokers.write_stream(rows, brokers.writing(topic))
        writer = writer.queryName(query_name(f"replay to {topic}", checkpoint))
        writer = writer.option("checkpointLocation", checkpoint)
        query = ONCE.apply(writer).start()
    except BaseException:
        lock.release()
        raise

    facts = {"topic": topic, "partitions kept": same}
    return Job(
        f"replay of {lake.location}",
        query,
        lambda: facts,
        ends=True,
        closed=lock.release,
        forget=lambda: Lake(checkpoint).remove(),
        nothing_left=lambda: nothing_left(Lake(checkpoint), _options(lake, settings)),
        verify=lambda: _check_same_topic(brokers, topic, topic_id),
    )


def continue_into(brokers: Brokers, topic: str, topic_id: str, checkpoint: Lake) -> None:
    """Prepare a checkpoint for a replay into this topic.

    It notes the id of the topic. One that was made anew has nothing of what an earlier run has written to the
    topic before, so that the replay begins anew, too.
    """
    noted = checkpoint.read(_NOTED)
    before = None if noted is None else json.loads(noted)["topic_id"]
    if before is None and checkpoint.list("commits") and not _is_recorded(brokers, topic, checkpoint):
        raise PipelineError(
            f"{checkpoint.location} is of a replay that an earlier version has begun, and {topic} was made"
            " anew since: remove that directory to replay everything"
        )
    if before is not None and topic_id not in ("", before):
        checkpoint.remove()
    if topic_id and topic_id != before:
        checkpoint.write(_NOTED, json.dumps({"topic": topic, "topic_id": topic_id}).encode())


def _is_recorded(brokers: Brokers, topic: str, checkpoint: Lake) -> bool:
    """True if brokers know that the query of a checkpoint has written to the topic.

    They forget it with the topic.
    """
    metadata = checkpoint.read("metadata")
    query = "" if metadata is None else str(json.loads(metadata)["id"])
    decision = Ledger(brokers.cluster(), query).read()
    return decision is not None and topic in decision.topics


def _check_same_topic(brokers: Brokers, topic: str, before: str) -> None:
    now = brokers.topic_id(topic)
    if before and now != before:
        raise PipelineError(
            f"{topic} was deleted and made anew while the replay wrote to it, and has only its last messages:"
            " run the same command again, which then begins anew"
        )


def nothing_left(checkpoint: Lake, options: Mapping[str, str]) -> bool:
    """True if the last batch in a checkpoint ends where the archive does."""
    from forebay.spark.pipelines.archiving.source import ArchiveReader

    names = [posixpath.basename(file.path) for file in checkpoint.list("commits")]
    last = max((int(name) for name in names if name.isdigit()), default=None)
    noted = checkpoint.read(f"offsets/{last}") if last is not None else None
    try:
        reached = json.loads(noted.splitlines()[-1]) if noted else {}
        ends = ArchiveReader(options).reportLatestOffset()
        return all(reached.get(at, 0) >= end for at, end in ends.items())
    except (ValueError, AttributeError, TypeError):
        return False  # kept, and gone on with


def _stream(spark: SparkSession, lake: Lake, settings: ReplaySettings) -> DataFrame:
    from forebay.spark.pipelines.archiving.source import NAME, ArchiveSource

    spark.dataSource.register(ArchiveSource)
    return spark.readStream.format(NAME).options(**_options(lake, settings)).load()


def _options(lake: Lake, settings: ReplaySettings) -> dict[str, str]:
    options = {
        "from_us": settings.times.from_us,
        "until_us": settings.times.until_us,
        "rate": settings.rate,
        "speed": settings.speed,
        "batch_records": settings.batch_records,
        "batch_bytes": settings.batch_bytes,
    }
    given = {name: str(value) for name, value in options.items() if value is not None}
    return {"path": lake.location, **given}


def _check(settings: ReplaySettings) -> None:
    if settings.rate is not None and settings.speed is not None:
        raise PipelineError("a rate and a speed exclude each other: give one")
    for name, value in (("rate", settings.rate), ("speed", settings.speed)):
        if value is not None and not value > 0:
            raise PipelineError(f"a {name} of {value:g} would never come to an end: give one above 0")
    require_limited_batches("a replay")


def _digest(brokers: Brokers, topic: str, settings: ReplaySettings) -> str:
    """The same replay has the same name; a different pace does not make it another one."""
    what = [brokers.bootstrap, topic, settings.times.from_us, settings.times.until_us]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
