"""SQL from topics to a topic, running for ever and exactly once.

The topics are views whose columns are the fields of the messages (values.py). What the query yields becomes
messages: a column `value` as it is, or else all columns as one JSON object; a column `key` or the one that
the user names becomes the key.

The checkpoint keeps the query and its schemas: a schema that was inferred must not change while state by it
is kept, and another query must not go on with that state.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from forebay.lazy import dataclass
from forebay.spark.dead_letters import as_messages
from forebay.spark.pipelines.brokers import (
    NO_TOLERANCE,
    ROWS,
    SKIP,
    UNREADABLE_METRIC,
    Brokers,
    Tolerance,
    tolerantly,
    without_counted,
    without_marks,
)
from forebay.spark.pipelines.jobs import (
    LETTERS_METRIC,
    READ_AGAIN_METRIC,
    WRITTEN,
    Job,
    PipelineError,
    Trigger,
    explain,
    query_name,
)
from forebay.spark.pipelines.lake import Lake, absolute
from forebay.spark.pipelines.queries import values
from forebay.spark.pipelines.queries.checkpoints import default_checkpoint
from forebay.spark.pipelines.queries.sql_text import StreamCall, rewrite
from forebay.spark.pipelines.queries.values import ValueFormat
from forebay.spark.schemas.codecs import CORRUPT
from forebay.spark.update_mode import MESSAGE_COLUMNS, in_update_mode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

APPEND, COMPLETE, UPDATE = MODES = ("append", "complete", "update")
LATEST, EARLIEST = "latest", -2
_SAVED = "forebay-query.json"
_views = threading.Lock()
"""Held from making views until they are used: steps of one session may read the same topic, each its way."""
_HINTS = {
    "UNRESOLVED_COLUMN": (
        "a stream has the fields of its values, which --schema TOPIC='id INT' names, and _key, _partition,"
        " _offset, _timestamp and _corrupt_record"
    ),
    "without watermark": (
        "group by a window and say how late messages may be, stream('TOPIC', watermark => '1 minute'),"
        " or write changed rows with --mode update, or the whole result at every change with --mode complete"
    ),
}
"""Advice, by a part of the message of Spark."""
_DELAY = re.compile(r"\s*(?:(?P<column>[^\d\s]\S*)\s+)?(?P<delay>\d+\s+\w+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSettings:
    schemas: Mapping[str, str] = field(default_factory=dict)
    """By topic: Spark's notation, or @FILE with it, or @FILE.avsc."""
    formats: Mapping[str, str] = field(default_factory=dict)
    registry: str | None = None
    """The address of a schema registry, for values in the formats of one (confluent-avro and others)."""
    watermarks: Mapping[str, str] = field(default_factory=dict)
    """By topic: '10 seconds' of the message's timestamp, or 'COLUMN 10 seconds'."""
    key: str | None = None
    mode: str = "append"
    trigger: Trigger = field(default_factory=Trigger)
    start: str = "earliest"
    checkpoint: str | None = None
    dead_letters: str | None = None
    """A topic for the values that do not fit their schema; they are rows of nulls unless it is given."""
    tolerance: Tolerance = NO_TOLERANCE
    """Things that the streams may pass over. Values that do not fit their schema are unreadable, too."""


def sql(
    spark: SparkSession, brokers: Brokers, query: str, to: str, settings: SqlSettings | None = None
) -> Job:
    """Start a query whose results go to a topic."""
    from pyspark.errors import PySparkException

    settings = settings or SqlSettings()
    text, calls = check(brokers, query, to, settings)
    checkpoint = checkpoint_of(brokers, query, to, settings)
    begun = _begun(spark, brokers, query, calls, settings, Lake(checkpoint))
    try:
        streams = {call.topic: _stream(spark, brokers, call.topic, begun, settings) for call in calls}
        with _views:
            for call in calls:
                stream = _view(streams[call.topic], call, begun, settings)
                stream.createOrReplaceTempView(call.view(calls))
            found = spark.sql(text)
        results = _counted(messages(found, settings.key))
        options: Mapping[str, str] = brokers.writing(to)
        for topic, rows in streams.items():
            results, options = _with_letters(results, options, topic, rows, begun, settings)
        if settings.mode == UPDATE:
            writer = in_update_mode(results, options)
        else:
            writer = brokers.write_stream(results, options).outputMode(settings.mode)
        writer = writer.queryName(query_name(f"sql to {to}", checkpoint))
        started = settings.trigger.apply(writer.option("checkpointLocation", checkpoint)).start()
    except PySparkException as error:
        raise PipelineError(f"the query cannot be run: {explain(error)}{_hint(error)}") from None
    facts = {"topic": to, "checkpoint": checkpoint}
    return Job(f"query to {to}", started, lambda: facts, ends=settings.trigger.once)


def _stream(
    spark: SparkSession, brokers: Brokers, topic: str, begun: _Begun, settings: SqlSettings
) -> DataFrame:
    """The messages of a topic. All that is made of one such DataFrame reads the same offsets in a batch."""
    options = {"startingOffsets": begun.start(brokers, topic, settings)}
    if settings.dead_letters is not None:
        options["includeHeaders"] = "true"
    return brokers.read_stream(spark, topic, **settings.tolerance.options(), **options)


def _with_letters(
    results: DataFrame,
    options: Mapping[str, str],
    topic: str,
    rows: DataFrame,
    begun: _Begun,
    settings: SqlSettings,
) -> tuple[DataFrame, Mapping[str, str]]:
    """The results and the dead letters of a topic, for one write: a batch has both, or none of them."""
    from pyspark.sql import functions as F

    if settings.dead_letters is None:
        return results, options
    again = rows.observe(f"{READ_AGAIN_METRIC} {topic}", F.count(F.lit(1)).alias(ROWS))
    letters = values.misfits(without_marks(again), begun.formats[topic])
    if letters is None:
        return results, options
    letters = letters.observe(f"{LETTERS_METRIC} {topic}", F.count(F.lit(1)).alias(ROWS))
    to = options.get("topic")
    if to is not None:
        results = as_messages(results, to)
    both = results.unionByName(as_messages(letters, settings.dead_letters), allowMissingColumns=True)
    return both, {name: value for name, value in options.items() if name != "topic"}


def _hint(error: BaseException) -> str:
    text = str(error)
    return next((f"; {hint}" for part, hint in _HINTS.items() if part in text), "")


def check(brokers: Brokers, query: str, to: str, settings: SqlSettings) -> tuple[str, list[StreamCall]]:
    """Checks a query without Spark. Returns its text for Spark, and what it reads."""
    text, calls = rewrite(query)
    _check_names(calls, settings)
    for call in calls:
        brokers.partitions(call.topic)
        _given_format(call, settings)
        _watermark(call, settings)
    brokers.partitions(to)
    if settings.dead_letters is not None:
        if settings.dead_letters in (to, *(call.topic for call in calls)):
            raise PipelineError("dead letters need a topic that the query neither reads nor writes")
        brokers.partitions(settings.dead_letters)
    return text, calls


def _check_names(calls: list[StreamCall], settings: SqlSettings) -> None:
    known = {call.topic for call in calls}
    for given in (settings.schemas, settings.formats, settings.watermarks):
        for topic in given:
            if topic not in known:
                raise PipelineError(
                    f"the query has no stream('{topic}'): it reads {', '.join(sorted(known))}"
                )
    if settings.mode not in MODES:
        raise PipelineError(f"there is no mode {settings.mode}: choose {', '.join(MODES)}")


def checkpoint_of(brokers: Brokers, query: str, to: str, settings: SqlSettings) -> str:
    """Absolute: a JVM that was started before may have another working directory than this process."""
    if settings.checkpoint is not None:
        return absolute(settings.checkpoint)
    return default_checkpoint(brokers.bootstrap, brokers.cluster_id(), query, to)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """Facts that were found out when a query was begun, and hold as long as its checkpoint."""

    formats: Mapping[str, ValueFormat]
    latest: Mapping[str, Mapping[str, int]]
    """By topic, the ends of its partitions when a query was begun that starts at the latest message.

    A batch that Spark repeats begins there, too.
    """

    def start(self, brokers: Brokers, topic: str, settings: SqlSettings) -> str:
        if topic not in self.latest:
            return settings.start
        # Partitions that came since then are read from their first message on.
        known = self.latest[topic]
        offsets = {str(at): known.get(str(at), EARLIEST) for at in range(brokers.partitions(topic))}
        return json.dumps({topic: offsets})


def _begun(
    spark: SparkSession,
    brokers: Brokers,
    query: str,
    calls: list[StreamCall],
    settings: SqlSettings,
    checkpoint: Lake,
) -> _Begun:
    """The facts that the checkpoint keeps; if there are none, those that were given and found out."""
    saved = checkpoint.read(_SAVED)
    if saved is not None:
        kept = json.loads(saved)
        if kept["query"] != query:
            raise PipelineError(
                f"{checkpoint.location} is the checkpoint of another query: give a checkpoint of its own"
            )
        known = {topic: ValueFormat(**format) for topic, format in kept["streams"].items()}
        _check_letters(checkpoint, known)
        formats = {call.topic: _with_registry(known[call.topic], call, settings) for call in calls}
        return _Begun(formats=formats, latest=kept.get("latest", {}))
    formats = {call.topic: _format(spark, brokers, call, settings) for call in calls}
    streams = {topic: known.to_keep() for topic, known in formats.items()}
    at_latest = settings.start.strip().lower() == LATEST
    latest = {call.topic: brokers.latest(call.topic) for call in calls} if at_latest else {}
    content = {"query": query, "streams": streams, **({"latest": latest} if latest else {})}
    checkpoint.write(_SAVED, json.dumps(content, indent=2).encode())
    return _Begun(formats=formats, latest=latest)


def _check_letters(checkpoint: Lake, topics: Iterable[str]) -> None:
    """Before, dead letters were written by streams beside the query, which had come to other offsets."""
    if any(checkpoint.read(f"dead-letters/{topic}/metadata") is not None for topic in topics):
        raise PipelineError(
            f"{checkpoint.location} was made by an earlier version, which wrote dead letters beside the"
            " query: give a new checkpoint, and --start latest if the results are to go on from now"
        )


def described_formats(calls: list[StreamCall], settings: SqlSettings, checkpoint: str) -> dict[str, str]:
    """How the values of each topic will be read, as far as it is known without Spark."""
    saved = Lake(checkpoint).read(_SAVED)
    if saved is not None:
        kept = json.loads(saved)["streams"]
        return {topic: _described(ValueFormat(**kept[topic])) for topic in kept}
    return {call.topic: _described(_given_format(call, settings)) for call in calls}


def _described(format: ValueFormat | None) -> str:
    if format is None:
        return f"json, schema: inferred from the first {values.SAMPLE_RECORDS:,} messages"
    return f"{format.format}, schema: {' '.join(format.schema.split())}" if format.schema else format.format


def _format(spark: SparkSession, brokers: Brokers, call: StreamCall, settings: SqlSettings) -> ValueFormat:
    return _given_format(call, settings) or values.infer(spark, brokers, call.topic)


def _given_format(call: StreamCall, settings: SqlSettings) -> ValueFormat | None:
    """The format that the query, the command line or the registry names; None to find it out."""
    format = call.options.get("format", settings.formats.get(call.topic))
    schema = call.options.get("schema", settings.schemas.get(call.topic))
    registry = _registry(call, settings)
    if format is not None and format in values.KINDS and registry and schema is None:
        subject = call.options.get("subject", f"{call.topic}-value")
        return values.registered(format, registry, subject, call.options.get("message", ""))
    found = values.value_format(format, schema)
    return None if found is None else _with_registry(found, call, settings)


def _with_registry(format: ValueFormat, call: StreamCall, settings: SqlSettings) -> ValueFormat:
    """A checkpoint keeps the address of a registry without its password."""
    registry = _registry(call, settings) if format.format in values.KINDS else ""
    return replace(format, registry=registry) if registry else format


def _registry(call: StreamCall, settings: SqlSettings) -> str:
    return call.options.get("registry", settings.registry or "")


def _view(rows: DataFrame, call: StreamCall, begun: _Begun, settings: SqlSettings) -> DataFrame:
    stream = tolerantly(rows, call.topic, settings.tolerance)
    decoded = values.decode(stream, begun.formats[call.topic])
    if CORRUPT in decoded.columns:
        if settings.dead_letters is not None:
            decoded = decoded.where(f"{CORRUPT} IS NULL")
        elif settings.tolerance.on_unreadable == SKIP:
            misfits = f"{UNREADABLE_METRIC} values of {call.topic}"
            decoded = without_counted(decoded, misfits, f"{CORRUPT} IS NOT NULL")
    watermark = _watermark(call, settings)
    return decoded if watermark is None else decoded.withWatermark(*watermark)


def _watermark(call: StreamCall, settings: SqlSettings) -> tuple[str, str] | None:
    """Its column and its delay."""
    given = call.options.get("watermark", settings.watermarks.get(call.topic))
    if given is None:
        return None
    parts = _DELAY.fullmatch(given)
    if parts is None:
        raise PipelineError(f"the watermark {given!r} is neither '10 seconds' nor 'COLUMN 10 seconds'")
    return parts["column"] or "_timestamp", parts["delay"]


def messages(result: DataFrame, key: str | None) -> DataFrame:
    """The rows that a query yields, as the sink wants them."""
    from pyspark.sql import functions as F

    if not result.isStreaming:
        raise PipelineError("the query does not read from its streams")
    if key is not None and key not in result.columns:
        raise PipelineError(f"the query has no column {key} for a key: it has {', '.join(result.columns)}")
    if key is None and "value" in result.columns and MESSAGE_COLUMNS.issuperset(result.columns):
        return result
    columns = [F.col(f"`{name}`") for name in result.columns]
    value = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("value")
    return result.select(*_key(result, key), value)


def _counted(results: DataFrame) -> DataFrame:
    """The same, with the number of rows in the query's progress."""
    from pyspark.sql import functions as F

    return results.observe(WRITTEN, F.count(F.lit(1)).alias(ROWS))


def _key(result: DataFrame, key: str | None) -> list[Column]:
    from pyspark.sql import functions as F

    name = key or ("key" if "key" in result.columns else None)
    return [] if name is None else [F.col(f"`{name}`").cast("string").alias("key")]
