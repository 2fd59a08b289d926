"""An archive back in a topic: everything as it was, in order, once."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.spark.pipelines import Brokers, PipelineError, ReplaySettings, TimeRange, replay
from forebay.spark.pipelines.archiving.replay import nothing_left
from forebay.spark.pipelines.lake import Lake, LakeError
from support.brokers.broker_process import BrokerProcess
from support.spark.archives import MINUTE_US, SIX_US, Message, make_archive
from support.spark.topics import Found, contents, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

DEADLINE_SECONDS = 90.0


def archived(folder: Path) -> list[Message]:
    """Three partitions, a key in each in every second message, in two batches; one message is late."""
    messages = [
        Message(at, n, SIX_US + n * MINUTE_US, b"key-%d-%d" % (at, n % 3) if n % 2 else None)
        for n in range(80)
        for at in range(3)
    ]
    messages[90] = messages[90]._replace(time_us=SIX_US)
    make_archive(folder, messages[:150], messages[150:])
    return messages


def as_found(message: Message) -> Found:
    return Found(*message[:2], message.key, message.value, message.time_us // 1000, (("n", message.value),))


@pytest.fixture(scope="module")
def brokers(broker: BrokerProcess) -> Brokers:
    make(broker.bootstrap, replayed=3, replayed_in_two=2, replayed_twice=3)
    return Brokers(bootstrap=broker.bootstrap)


def test_every_message_is_where_it_was(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    messages = archived(tmp_path)
    summary = replay(spark, brokers, str(tmp_path), "replayed").wait()
    assert summary.facts["partitions kept"] is True
    found = contents(brokers.bootstrap, "replayed")
    assert [one.content for one in found] == [as_found(one).content for one in sorted(messages)]
    assert [one.partition for one in found] == [one.partition for one in sorted(messages)]


def test_in_another_number_of_partitions_each_key_keeps_its_order(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    """And only the time that was asked for."""
    messages = [one for one in archived(tmp_path) if one.time_us >= SIX_US + 20 * MINUTE_US]
    settings = ReplaySettings(times=TimeRange(from_us=SIX_US + 20 * MINUTE_US), batch_records=50)
    summary = replay(spark, brokers, str(tmp_path), "replayed-in-two", settings).wait()
    assert summary.facts["partitions kept"] is False
    found = contents(brokers.bootstrap, "replayed-in-two")
    assert sorted(one.value or b"" for one in found) == sorted(one.value for one in messages)
    wanted, got = defaultdict(list), defaultdict(list)
    places = defaultdict(set)
    for message in sorted(messages, key=lambda one: one.offset):
        wanted[message.key].append(message.value)
    for one in found:
        got[one.key].append(one.value)
        places[one.key].add(one.partition)
    del wanted[None], got[None], places[None]
    assert got == wanted
    assert all(len(partitions) == 1 for partitions in places.values())


def test_a_replay_that_was_stopped_goes_on_and_one_that_ended_begins_anew(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    messages = archived(tmp_path)
    job = replay(spark, brokers, str(tmp_path), "replayed-twice", ReplaySettings(rate=20))
    told: list[int] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not told:
        assert time.monotonic() < deadline
        job.advance(lambda progress: told.append(progress.rows))
        time.sleep(0.05)
    job.query.stop()  # from outside, as spark.streams and a session that ends do it
    job.wait()
    assert told[0] == 20, "a second's worth"
    begun = len(contents(brokers.bootstrap, "replayed-twice"))
    assert 20 <= begun < len(messages)
    for times in (1, 2):
        replay(spark, brokers, str(tmp_path), "replayed-twice").wait()
        found = [one.value for one in contents(brokers.bootstrap, "replayed-twice")]
        assert sorted(found, key=str) == sorted((one.value for one in messages * times), key=str)


def test_whether_a_checkpoint_reaches_to_the_end_of_an_archive(tmp_path: Path) -> None:
    """As a replay finds it that was killed between its last batch and its end."""
    make_archive(tmp_path / "lake", [Message(0, 0, SIX_US), Message(1, 4, SIX_US)])
    options = {"path": str(tmp_path / "lake")}
    checkpoint = Lake(str(tmp_path / "checkpoint"))
    assert not nothing_left(checkpoint, options)
    for batch, offset in enumerate((b'{"0":1,"1":3}', b'{"0":1,"1":5}')):
        checkpoint.write(f"offsets/{batch}", b"v1\n{}\n" + offset)
        assert not nothing_left(checkpoint, options), "the batch was not committed"
        checkpoint.write(f"commits/{batch}", b"v1\n{}")
        assert nothing_left(checkpoint, options) == (batch == 1)
    checkpoint.write("offsets/1", b"v1\n{}\nwhat is this")
    assert not nothing_left(checkpoint, options)


def test_what_cannot_be_replayed_is_said(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is no archive"):
        replay(spark, brokers, str(tmp_path), "replayed")
    with pytest.raises(PipelineError, match="exclude each other"):
        replay(spark, brokers, str(tmp_path), "replayed", ReplaySettings(rate=1, speed=1))
    with pytest.raises(PipelineError, match="a rate of 0 would never come to an end"):
        replay(spark, brokers, str(tmp_path), "replayed", ReplaySettings(rate=0))
