"""`upsert`: rows that have changed, each once, also when Spark repeats a batch or has lost its checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.errors import ConfigError
from forebay.spark import upsert
from forebay.spark.sink.options import write_options
from support.brokers.broker_process import BrokerProcess
from support.spark.topics import Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

SOURCE, TARGET = "update-words", "update-counts"


def run(spark: SparkSession, bootstrap: str, checkpoint: Path, stream_id: str | None = None) -> None:
    words = (
        spark.readStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS word")
    )
    stream = upsert(
        words.groupBy("word").count(), TARGET, key="word", bootstrap=bootstrap, stream_id=stream_id
    )
    stream = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    stream.start().awaitTermination()


def written(bootstrap: str) -> list[tuple[bytes | None, int]]:
    return [(one.key, json.loads(one.value or b"")["count"]) for one in contents(bootstrap, TARGET)]


def test_each_change_is_written_once(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    bootstrap, checkpoint = broker.bootstrap, tmp_path / "checkpoint"
    make(bootstrap, update_words=1, update_counts=1)
    send(bootstrap, SOURCE, [Sent(b"a"), Sent(b"b"), Sent(b"a")])
    run(spark, bootstrap, checkpoint, "words")
    assert sorted(written(bootstrap)) == [(b"a", 2), (b"b", 1)]

    send(bootstrap, SOURCE, [Sent(b"a")])
    run(spark, bootstrap, checkpoint, "words")
    changed = written(bootstrap)
    assert changed[2:] == [(b"a", 3)]

    # As after a kill between the write and Spark's note of it: Spark repeats the batch.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run(spark, bootstrap, checkpoint, "words")
    assert written(bootstrap) == changed

    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="streamId"):
        run(spark, bootstrap, checkpoint, "words")
    assert written(bootstrap) == changed


def test_a_batch_is_written_to_two_topics_under_one_stream_id_and_not_twice_to_one(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    bootstrap = broker.bootstrap
    make(bootstrap, forked_words=1, forked_left=1, forked_right=1)
    send(bootstrap, "forked-words", [Sent(b"a"), Sent(b"b")])

    def run(checkpoint: str, *targets: str, group: str | None = None) -> None:
        def write(batch: DataFrame, batch_id: int) -> None:
            if group is not None:
                spark.sparkContext.setJobGroup(group, "a job group of the user's own")
            for target in targets:
                options = {"delivery": "exactly-once", "streamId": "forked", "batchId": str(batch_id)}
                writer = batch.select("value").write.format("forebay").options(**options)
                writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
                writer.mode("append").save()

        words = spark.readStream.format("forebay").option("kafka.bootstrap.servers", bootstrap)
        words = words.option("subscribe", "forked-words").option("startingOffsets", "earliest")
        stream = words.load().writeStream.foreachBatch(write).trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()

    run("one", "forked-left", "forked-right")
    (tmp_path / "one" / "commits" / "0").unlink()
    (tmp_path / "one" / "commits" / ".0.crc").unlink(missing_ok=True)
    run("one", "forked-left", "forked-right")
    for topic in ("forked-left", "forked-right"):
        assert [each.value for each in contents(bootstrap, topic)] == [b"a", b"b"]

    send(bootstrap, "forked-words", [Sent(b"c")])
    # The next start repeats the batch, and finds its first write: the second is refused all the same.
    for group in (None, "mine"):
        with pytest.raises(StreamingQueryException, match="two writes to forked-left with one streamId"):
            run("one", "forked-left", "forked-left", group=group)
    assert [each.value for each in contents(bootstrap, "forked-left")] == [b"a", b"b", b"c"]


def test_what_cannot_be_is_said(spark: SparkSession) -> None:
    table = spark.range(1)
    with pytest.raises(ConfigError, match="upsert is for streams"):
        upsert(table, "x", key="id", bootstrap="a:1")
    rates = spark.readStream.format("rate").load()
    with pytest.raises(ConfigError, match="no column id for the key: there are timestamp, value"):
        upsert(rates, "x", key="id", bootstrap="a:1")
    least = {"kafka.bootstrap.servers": "a:1", "delivery": "exactly-once"}
    with pytest.raises(ConfigError, match="batchId needs streamId"):
        write_options({**least, "batchId": "1"})
    with pytest.raises(ConfigError, match="batchId=x: give the number"):
        write_options({**least, "streamId": "s", "batchId": "x"})
