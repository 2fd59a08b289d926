"""Topics that were deleted and made anew under the same name: an archive of one, and a replay to one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from forebay.cli.pipeline.checks import check_archive_target
from forebay.spark.pipelines import Brokers, PipelineError, ReplaySettings, archive, replay
from forebay.spark.pipelines.archiving import hour_files
from forebay.spark.pipelines.archiving.batches import BatchWriter
from forebay.spark.pipelines.archiving.beginning import begin
from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.layout import POSITION, Position, require_position
from forebay.spark.pipelines.archiving.replay import continue_into
from forebay.spark.pipelines.archiving.tables.table import open_table
from forebay.spark.pipelines.lake import Lake
from support.brokers.broker_process import BrokerProcess
from support.spark.archives import (
    MINUTE_US,
    SIX_US,
    Message,
    batch_of,
    make_archive,
    seen_in,
    write_without_spark,
)
from support.spark.topics import Sent, contents, make, send
from support.spark.writing import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs


@pytest.fixture
def brokers(broker: BrokerProcess) -> Brokers:
    return Brokers(bootstrap=broker.bootstrap)


def remake(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic]).values():
        future.result(60)
    make(bootstrap, **{topic: 1})


def values(brokers: Brokers, topic: str) -> list[bytes | None]:
    return [each.value for each in contents(brokers.bootstrap, topic)]


# -- archives ------------------------------------------------------------------------------------------------


def test_an_archive_does_not_go_on_with_another_topic_of_the_same_name(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert begin(lake, "t", "parquet", 1, topic_id="one").topic_id == "one"
    assert require_position(lake).topic_id == "one"
    assert begin(lake, "t", "parquet", 1, topic_id="one").topic_id == "one"
    with pytest.raises(PipelineError, match=r"made anew since \(id one, now two\): give the new topic a dir"):
        begin(lake, "t", "parquet", 1, topic_id="two")
    assert begin(lake, "t", "parquet", 1).topic_id == "one", "brokers without topic ids"


def test_a_topic_that_was_made_anew_is_found_before_spark_is_started(
    brokers: Brokers, tmp_path: Path, topic: str
) -> None:
    make(brokers.bootstrap, **{topic: 1})
    begin(Lake(str(tmp_path)), topic, "parquet", 1, topic_id=brokers.topic_id(topic))
    check_archive_target(brokers, topic, str(tmp_path), "parquet")
    remake(brokers.bootstrap, topic)
    with pytest.raises(PipelineError, match="that was deleted and made anew since"):
        check_archive_target(brokers, topic, str(tmp_path), "parquet")


def test_an_archive_of_an_earlier_version_learns_the_id_of_its_topic(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    earlier = Position(topic="t", partitions=1, batches={"q": 3}, next_offsets={"0": 10})
    lake.write(POSITION, earlier.to_json())
    assert "topic_id" not in json.loads(earlier.to_json())
    position = begin(lake, "t", "parquet", 1, topic_id="one")
    assert position == replace(earlier, topic_id="one")
    assert position.after("q", 4, {0: 12}, 1).topic_id == "one"


def test_archiving_a_topic_that_was_made_anew_is_refused_when_its_checkpoint_is_removed(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    topic = f"anew-{uuid4().hex[:8]}"
    make(brokers.bootstrap, **{topic: 1})
    send(brokers.bootstrap, topic, [Sent(b"old-%d" % n) for n in range(10)])
    assert archive(spark, brokers, topic, str(tmp_path)).wait().facts["rows"] == 10
    remake(brokers.bootstrap, topic)
    send(brokers.bootstrap, topic, [Sent(b"new-%d" % n) for n in range(25)])
    shutil.rmtree(tmp_path / "_forebay" / "checkpoint")
    with pytest.raises(PipelineError, match="give the new topic a directory of its own"):
        archive(spark, brokers, topic, str(tmp_path))


def test_an_archive_that_passes_over_lost_data_does_not_mix_two_topics_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream goes on with the new topic, from its first message on."""
    monkeypatch.setattr(hour_files, "write", write_without_spark)
    lake = Lake(str(tmp_path))
    position = begin(lake, "t", "parquet", 2)
    writer = BatchWriter(lake, open_table(lake, position), position)
    writer(batch_of([Message(n % 2, n // 2, SIX_US) for n in range(20)]), 0)
    writer(batch_of([Message(0, 10, SIX_US)]), 1)
    with pytest.raises(
        PipelineError, match=r"made anew, or has lost .* while it was archived to .* a directory of its own"
    ):
        writer(batch_of([Message(n % 2, n // 2, SIX_US) for n in range(50)]), 2)
    kept = require_position(lake)
    assert kept.next_offsets == {"0": 11, "1": 10}
    assert len(seen_in(lake, archive_files(lake, kept))) == 21


# -- replays -------------------------------------------------------------------------------------------------


def test_a_replay_begins_anew_with_its_topic(brokers: Brokers, tmp_path: Path) -> None:
    checkpoint = Lake(str(tmp_path / "checkpoint"))
    continue_into(brokers, "t", "one", checkpoint)
    checkpoint.write("commits/0", b"v1\n{}")
    continue_into(brokers, "t", "one", checkpoint)
    assert checkpoint.list("commits")
    continue_into(brokers, "t", "two", checkpoint)
    assert not checkpoint.list("commits")
    checkpoint.write("commits/0", b"v1\n{}")
    continue_into(brokers, "t", "two", checkpoint)
    assert checkpoint.list("commits")


def test_a_replay_that_an_earlier_version_began_goes_on_if_brokers_know_that_it_has_written(
    brokers: Brokers, tmp_path: Path
) -> None:
    topic = f"anew-{uuid4().hex[:8]}"
    make(brokers.bootstrap, **{topic: 1})
    query = Query(brokers.bootstrap, topic, [[[b"a"]]])
    assert query.run().to_the_end()
    query.close()
    checkpoint = Lake(str(tmp_path / "checkpoint"))

    def earlier() -> None:
        checkpoint.remove()
        checkpoint.write("metadata", json.dumps({"id": query.name}).encode())
        checkpoint.write("commits/0", b"v1\n{}")

    earlier()
    continue_into(brokers, topic, brokers.topic_id(topic), checkpoint)
    assert checkpoint.list("commits")
    remake(brokers.bootstrap, topic)
    earlier()
    with pytest.raises(PipelineError, match=f"{topic} was made anew since: remove that directory"):
        continue_into(brokers, topic, brokers.topic_id(topic), checkpoint)


def test_a_replay_into_a_topic_that_was_made_anew_is_complete(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    topic = f"anew-{uuid4().hex[:8]}"
    make(brokers.bootstrap, **{topic: 1})
    messages = [Message(0, n, SIX_US + n * MINUTE_US) for n in range(60)]
    make_archive(tmp_path, messages)
    job = replay(spark, brokers, str(tmp_path), topic, ReplaySettings(rate=20))
    while not values(brokers, topic):
        assert job.advance()
    job.stop()
    assert 0 < len(values(brokers, topic)) < len(messages)
    remake(brokers.bootstrap, topic)
    job = replay(spark, brokers, str(tmp_path), topic, ReplaySettings(batch_records=20))
    job.wait(forget=False)
    assert values(brokers, topic) == [each.value for each in messages]

    # Made anew at the last moment, the result is no success, and the next run has all.
    remake(brokers.bootstrap, topic)
    with pytest.raises(PipelineError, match="made anew while the replay wrote to it"):
        job.wait()
    replay(spark, brokers, str(tmp_path), topic).wait()
    assert values(brokers, topic) == [each.value for each in messages]
