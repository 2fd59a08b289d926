"""How a stream goes from batch to batch, told by its reader against a real broker, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from forebay.client import Admin, Consumer
from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.spark.source.data_loss import DataLoss
from forebay.spark.source.offset_ranges import IDS_KEY
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.wire_client import WireClient, create
from support.spark.odd_answers import answered, first_answered
from support.spark.reading import (
    NOON_MS,
    add,
    batch_reader,
    delete_records,
    make_topic,
    micro_batch,
    stream_reader,
    value,
    values,
    without_ids,
)

BEGIN = {"startingOffsets": "earliest"}


def more(broker: BrokerProcess, topic: str, partition: int, count: int, first: int = 0) -> None:
    with WireClient(broker.bootstrap) as client:
        add(client, topic, partition, count, first)


def test_batches_follow_each_other(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2, 1)
    reader = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN)
    start = reader.initialOffset()
    assert without_ids(start) == {topic: {"0": 0, "1": 0}}
    found, end = micro_batch(reader, start)
    assert (found, end) == ([b"0/0", b"0/1", b"1/0"], {topic: {"0": 2, "1": 1}})
    assert micro_batch(reader, end) == ([], end)
    more(broker, topic, 1, 2, first=1)
    found, end = micro_batch(reader, end)
    assert (found, end) == ([b"1/1", b"1/2"], {topic: {"0": 2, "1": 3}})
    reader.stop()


def test_where_a_stream_begins(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 10)

    def begins(**options: Any) -> int:
        offset: int = stream_reader(broker.bootstrap, subscribe=topic, **options).initialOffset()[topic]["0"]
        return offset

    assert begins() == 10
    assert begins(**BEGIN) == 0
    assert begins(startingTimestamp=NOON_MS + 4000) == 4
    assert begins(startingOffsets=json.dumps({topic: {"0": -2}})) == 0
    assert begins(startingOffsets=json.dumps({topic: {"0": -1}})) == 10
    assert begins(startingOffsets=json.dumps({topic: {"0": 7}})) == 7


def test_a_stream_that_starts_at_the_latest_message_while_others_write(
    broker: BrokerProcess, topic: str
) -> None:
    """Spark asks where a stream begins before it asks for the first end, and once more behind it."""
    make_topic(broker.bootstrap, topic, 3)
    reader = stream_reader(broker.bootstrap, subscribe=topic)
    start = reader.initialOffset()
    more(broker, topic, 0, 2, first=3)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    more(broker, topic, 0, 4, first=5)
    assert reader.initialOffset() == start
    assert values(reader, reader.partitions(reader.initialOffset(), end)) == [value(0, 3), value(0, 4)]
    # Killed here, it is started again with the end in its checkpoint, and asks where it begins.
    again = stream_reader(broker.bootstrap, subscribe=topic)
    repeated = again.partitions(again.initialOffset(), end)
    assert values(again, repeated) == [value(0, 3), value(0, 4)]
    found, last = micro_batch(again, end)
    assert (found, last) == ([value(0, n) for n in range(5, 9)], {topic: {"0": 9}})


def test_a_first_batch_without_rows_is_not_followed_by_others(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    for count in (0, 2):
        reader = stream_reader(broker.bootstrap, subscribe=topic)
        start = reader.initialOffset()
        more(broker, topic, 0, count, first=3)
        end = reader.latestOffset(start, ReadAllAvailable())
        assert reader.latestOffset(end, ReadAllAvailable()) == end, "Spark would run a batch without rows"


def test_available_now_at_the_latest_message_while_others_write(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    reader = stream_reader(broker.bootstrap, subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    more(broker, topic, 0, 2, first=3)
    assert micro_batch(reader, reader.initialOffset()) == ([], {topic: {"0": 3}})
    beyond = stream_reader(broker.bootstrap, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 50}}))
    beyond.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="ends at offset 5 now, before 50"):
        micro_batch(beyond, beyond.initialOffset())


# -- how much goes into a batch ----------------------------------------------------------------------------


def test_a_batch_has_an_upper_limit(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 30, 10)
    reader = stream_reader(broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=20, **BEGIN)
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    found, end = micro_batch(reader, reader.initialOffset())
    assert (len(found), end) == (20, {topic: {"0": 15, "1": 5}})
    assert reader.reportLatestOffset() == {topic: {"0": 30, "1": 10}}
    # Spark asks for everything when the trigger says so, and that wins.
    found, end = micro_batch(reader, end, ReadAllAvailable())
    assert (len(found), end) == (20, {topic: {"0": 30, "1": 10}})
    assert reader.reportLatestOffset() == {topic: {"0": 30, "1": 10}}


def test_a_batch_waits_for_enough_rows_but_not_for_ever(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    options = {"subscribe": topic, "minOffsetsPerTrigger": 10, **BEGIN}
    patient = stream_reader(broker.bootstrap, maxTriggerDelay="1h", maxOffsetsPerTrigger=12, **options)
    assert patient.getDefaultReadLimit() == ReadMinRows(10)
    found, end = micro_batch(patient, patient.initialOffset())
    assert len(found) == 3  # the first batch of a run does not wait
    more(broker, topic, 0, 9, first=3)
    assert micro_batch(patient, end) == ([], end)
    more(broker, topic, 0, 6, first=12)
    found, end = micro_batch(patient, end)
    assert len(found) == 12  # the upper limit holds too

    hasty = stream_reader(broker.bootstrap, maxTriggerDelay="100ms", **options)
    found, end = micro_batch(hasty, hasty.initialOffset())
    more(broker, topic, 0, 1, first=18)
    deadline = time.monotonic() + 60
    while not (found := micro_batch(hasty, end)[0]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found == [value(0, 18)]


def test_available_now_ends_where_the_topic_ended_at_its_start(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 5)
    reader = stream_reader(
        broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=3, minOffsetsPerTrigger=2, **BEGIN
    )
    reader.prepareForTriggerAvailableNow()
    more(broker, topic, 0, 5, first=5)
    found, end = micro_batch(reader, reader.initialOffset())
    assert len(found) == 3
    found, end = micro_batch(reader, end)
    assert (len(found), end) == (2, {topic: {"0": 5}})
    assert micro_batch(reader, end) == ([], end)


def test_tasks_of_a_batch_are_the_same_when_it_is_run_again(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 40, 10)
    options = {"subscribe": topic, "minPartitions": 5, **BEGIN}
    reader = stream_reader(broker.bootstrap, **options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    tasks = [task.value for task in reader.partitions(start, end)]
    assert [task.size for task in tasks] == [10, 10, 10, 10, 10]
    more(broker, topic, 0, 7)
    again = stream_reader(broker.bootstrap, **options).partitions(start, end)
    assert [task.value for task in again] == tasks


def test_spark_4_1_asks_without_saying_where(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 4)
    reader = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN)
    assert without_ids(reader.latestOffset()) == {topic: {"0": 4}}
    late = stream_reader(broker.bootstrap, subscribe=topic)
    end = late.latestOffset()
    more(broker, topic, 0, 2, first=4)
    assert values(late, late.partitions(late.initialOffset(), end)) == []
    limited = stream_reader(broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=1)
    with pytest.raises(ConfigError, match=r"PySpark 4\.2"):
        limited.latestOffset()


def test_spark_4_1_repeats_a_first_batch_from_where_it_began(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    reader = stream_reader(broker.bootstrap, subscribe=topic)
    end = reader.latestOffset()
    assert values(reader, reader.partitions(reader.initialOffset(), end)) == []
    more(broker, topic, 0, 2, first=3)
    # Killed in this batch. The next run names the offset, repeats the batch, and goes on.
    again = stream_reader(broker.bootstrap, subscribe=topic)
    assert again.partitions(end, end) == []
    assert values(again, again.partitions(again.initialOffset(), end)) == []
    assert values(again, again.partitions(end, again.latestOffset())) == [value(0, 3), value(0, 4)]


def test_spark_4_1_does_not_pass_over_what_retention_took_from_a_first_batch(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 6)
    reader = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN)
    end = reader.latestOffset()
    assert len(values(reader, reader.partitions(reader.initialOffset(), end))) == 6
    delete_records(broker.bootstrap, topic, 0, 4)
    again = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN)
    with pytest.raises(DataLoss, match=r"offset 0 of .* is out of range"):
        values(again, again.partitions(again.initialOffset(), end))


def test_spark_4_1_goes_on_from_its_checkpoint_wherever_a_new_stream_would_begin(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 3)
    reader = stream_reader(broker.bootstrap, subscribe=topic)
    end = reader.latestOffset()
    reader.partitions(reader.initialOffset(), end)
    assert reader.latestOffset() == end, "Spark would run a batch without rows"
    idle = stream_reader(broker.bootstrap, subscribe=topic)
    idle.partitions(end, end)
    assert idle.latestOffset() == end, "Spark would run a batch without rows"
    more(broker, topic, 0, 2, first=3)
    for names_the_offset in (True, False):
        again = stream_reader(broker.bootstrap, subscribe=topic)
        if names_the_offset:
            again.partitions(end, end)
        later = again.latestOffset()
        assert values(again, again.partitions(end, later)) == [value(0, 3), value(0, 4)]


def test_spark_4_1_has_no_limits_to_import() -> None:
    """A process of its own, because what is imported without the names stays without them."""
    script = """
import sys
import pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
from forebay.spark.source.stream_reader import TopicStreamReader
assert TopicStreamReader.__mro__[-2:] == (pyspark.sql.datasource.ABC, object), TopicStreamReader.__mro__
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


# -- topics that change ------------------------------------------------------------------------------------


def test_partitions_that_are_added_are_read_from_their_start(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1)
    reader = stream_reader(broker.bootstrap, subscribe=topic)
    start = reader.initialOffset()
    with Admin(broker.bootstrap) as admin:
        admin.add_partitions(topic, 3)
    more(broker, topic, 2, 2)
    found, end = micro_batch(reader, start)
    assert (found, end) == ([b"2/0", b"2/1"], {topic: {"0": 1, "1": 0, "2": 2}})


def test_topics_that_come_to_match_a_pattern(broker: BrokerProcess, topic: str) -> None:
    reader = stream_reader(broker.bootstrap, subscribePattern=f"{topic}-.*")
    start = reader.initialOffset()
    assert without_ids(start) == {}
    make_topic(broker.bootstrap, f"{topic}-a", 2)
    found, end = micro_batch(reader, start)
    assert (found, end) == ([b"0/0", b"0/1"], {f"{topic}-a": {"0": 2}})


def test_a_new_partition_counts_for_the_limit(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 0)
    reader = stream_reader(broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger=4, **BEGIN)
    start = reader.initialOffset()
    with Admin(broker.bootstrap) as admin:
        admin.add_partitions(topic, 2)
    more(broker, topic, 1, 10)
    found, end = micro_batch(reader, start)
    assert (len(found), end) == (4, {topic: {"0": 0, "1": 4}})


def test_a_deleted_topic_is_lost_data(broker: BrokerProcess, topic: str) -> None:
    gone, kept = f"{topic}-gone", f"{topic}-kept"
    make_topic(broker.bootstrap, gone, 1)
    make_topic(broker.bootstrap, kept, 1)
    options = {"subscribe": f"{gone},{kept}", "kafka_default_api_timeout_ms": 100, **BEGIN}
    careful = stream_reader(broker.bootstrap, **options)
    start = careful.initialOffset()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(gone)
    with pytest.raises(DataLoss, match=f"{gone}-0 does not exist any more"):
        micro_batch(careful, start)
    careless = stream_reader(broker.bootstrap, failOnDataLoss="false", **options)
    assert micro_batch(careless, start) == ([b"0/0"], {kept: {"0": 1}})


@pytest.mark.parametrize("careful", ["true", "false"])
@pytest.mark.parametrize("now", [False, True], ids=["processing time", "available now"])
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
def test_a_topic_that_a_broker_does_not_know_for_a_moment_is_not_lost(
    broker: BrokerProcess, topic: str, code: ErrorCode, now: bool, careful: str
) -> None:
    """An end without it would stay in the checkpoint, and the topic be read as a new one later."""
    make_topic(broker.bootstrap, topic, 5)
    reader = stream_reader(broker.bootstrap, subscribe=topic, failOnDataLoss=careful, **BEGIN)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    more(broker, topic, 0, 2, first=5)

    def unknown(answer: MetadataResponse) -> MetadataResponse:
        answer.topics = [MetadataResponseTopic(error_code=code, name=topic)]
        return answer

    with first_answered(MetadataRequest, unknown):
        if now:
            reader.prepareForTriggerAvailableNow()
        found = micro_batch(reader, end)
    assert found == ([value(0, 5), value(0, 6)], {topic: {"0": 7}})


def test_a_topic_without_a_leader_that_a_pattern_does_not_match_holds_nothing_up(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    impatient = {"kafka_default_api_timeout_ms": 1000}
    reader = stream_reader(broker.bootstrap, subscribePattern=topic, **BEGIN, **impatient)

    def with_another(answer: MetadataResponse) -> MetadataResponse:
        other = MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=f"{topic}-other")
        answer.topics = [*answer.topics, other]
        return answer

    with answered(MetadataRequest, with_another):
        found, end = micro_batch(reader, reader.initialOffset())
    assert (len(found), end) == (2, {topic: {"0": 2}})


def test_spark_does_not_note_an_end_without_a_topic_that_is_lost_data(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 1)
    impatient = {"kafka_default_api_timeout_ms": 100}
    reader = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN, **impatient)
    start = reader.initialOffset()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(topic)
    with pytest.raises(DataLoss, match=f"{topic}-0 does not exist any more"):
        reader.latestOffset(start, ReadAllAvailable())


def test_a_topic_made_anew_is_lost_data(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 9)
    start = {topic: {"0": 9}}
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(topic)
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
        add(client, topic, 0, 3)
    with pytest.raises(DataLoss, match=f"{topic}-0 ends at offset 3 now, before 9"):
        micro_batch(stream_reader(broker.bootstrap, subscribe=topic), start)
    careless = stream_reader(broker.bootstrap, subscribe=topic, failOnDataLoss="false")
    found, end = micro_batch(careless, start)
    assert (found, end) == ([], {topic: {"0": 3}})
    more(broker, topic, 0, 1, first=3)
    assert micro_batch(careless, end)[0] == [value(0, 3)]


def make_anew(broker: BrokerProcess, topic: str, count: int) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(topic)
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
        add(client, topic, 0, count)


def test_a_topic_made_anew_is_known_by_its_id_however_long_it_has_grown(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 3)
    first = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert end[IDS_KEY] == start[IDS_KEY] != {}
    assert first.latestOffset(end, ReadAllAvailable()) == end, "Spark would run a batch without rows"
    make_anew(broker, topic, 5)
    with pytest.raises(DataLoss, match=f"the topic {topic} was deleted and made anew"):
        micro_batch(first, end)
    careless = stream_reader(broker.bootstrap, subscribe=topic, failOnDataLoss="false")
    later = careless.latestOffset(end, ReadAllAvailable())
    assert values(careless, careless.partitions(end, later)) == [value(0, n) for n in range(5)]
    assert careless.latestOffset(later, ReadAllAvailable()) == later
    # Offsets of earlier versions have no ids: they are read as before.
    found, _ = micro_batch(stream_reader(broker.bootstrap, subscribe=topic), without_ids(end))
    assert found == [value(0, 3), value(0, 4)]


def test_a_batch_that_is_run_again_when_its_topic_was_made_anew(broker: BrokerProcess, topic: str) -> None:
    """The batch was planned before; Spark asks for its tasks before it asks for anything else."""
    make_topic(broker.bootstrap, topic, 3)
    planner = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN)
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadAllAvailable())
    make_anew(broker, topic, 5)
    with pytest.raises(DataLoss, match=f"the topic {topic} was deleted and made anew"):
        stream_reader(broker.bootstrap, subscribe=topic).partitions(start, end)
    careless = stream_reader(broker.bootstrap, subscribe=topic, failOnDataLoss="false")
    assert careless.partitions(start, end) == []
    later = careless.latestOffset(end, ReadAllAvailable())
    assert len(values(careless, careless.partitions(end, later))) == 5


def test_a_task_does_not_read_a_topic_that_was_made_anew_after_it_was_planned(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 3)
    stream = stream_reader(broker.bootstrap, subscribe=topic, **BEGIN)
    start = stream.initialOffset()
    tasks = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    batch = batch_reader(broker.bootstrap, subscribe=topic)
    planned = batch.partitions()
    assert len(values(stream, tasks)) == len(values(batch, planned)) == 3
    make_anew(broker, topic, 5)
    for reader, found in ((stream, tasks), (batch, planned)):
        with pytest.raises(DataLoss, match=r"offsets 0 to 3 of .* are gone: .*UNKNOWN_TOPIC_ID"):
            values(reader, found)
    careless = batch_reader(broker.bootstrap, subscribe=topic, failOnDataLoss="false")
    assert values(careless, planned) == []
    assert len(values(careless)) == 5


# -- the consumer group ------------------------------------------------------------------------------------


def test_what_is_finished_is_committed_to_the_group(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 10, 4)
    group = f"{topic}-group"
    reader = stream_reader(
        broker.bootstrap, subscribe=topic, kafka_group_id=group, maxOffsetsPerTrigger=7, **BEGIN
    )
    start = reader.initialOffset()
    with Admin(broker.bootstrap) as admin:
        _, end = micro_batch(reader, start)
        # Planned and read, but Spark has not said yet that it is finished.
        assert admin.committed(group) == {(topic, 0): 0, (topic, 1): 0}
        micro_batch(reader, end)
        assert admin.committed(group) == {(topic, 0): 5, (topic, 1): 2}
        assert admin.lag(group) == {(topic, 0): 5, (topic, 1): 2}
        reader.commit({topic: {"0": 10, "1": 4}})
        assert set(admin.lag(group).values()) == {0}
    # Where the offsets are is a topic too, of the broker's own: a pattern does not find it.
    assert stream_reader(broker.bootstrap, subscribe="__consumer_offsets").initialOffset() != {}
    hidden = stream_reader(broker.bootstrap, subscribePattern="__consumer_.*")
    assert without_ids(hidden.initialOffset()) == {}


def test_a_group_with_members_is_not_for_a_stream(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    group = f"{topic}-group"
    with Consumer(broker.bootstrap, topic, group=group) as consumer:
        assert next(iter(consumer)).value == value(0, 0)
        reader = stream_reader(broker.bootstrap, subscribe=topic, kafka_group_id=group, **BEGIN)
        with pytest.raises(KafkaError, match=group):
            micro_batch(reader, reader.initialOffset())


def test_a_coordinator_that_was_away(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker()
    make_topic(broker.bootstrap, topic, 3)
    reader = stream_reader(broker.bootstrap, subscribe=topic, kafka_group_id="away", **BEGIN)
    _, end = micro_batch(reader, reader.initialOffset())
    broker.kill()
    broker.restart()
    assert micro_batch(reader, end) == ([], end)
    with Admin(broker.bootstrap) as admin:
        assert admin.committed("away") == {(topic, 0): 3}


def test_a_coordinator_that_stays_away_is_no_reason_to_stop(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream_reader(
        "127.0.0.1:1", subscribe=topic, kafka_group_id="away", kafka_default_api_timeout_ms=100
    )
    reader.commit({topic: {"0": 3}})
    assert "were not committed" in caplog.text


def test_commits_are_left_out_when_they_are_not_wanted(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    group = f"{topic}-group"
    reader = stream_reader(
        broker.bootstrap, subscribe=topic, kafka_group_id=group, commitOffsets="false", **BEGIN
    )
    _, end = micro_batch(reader, reader.initialOffset())
    micro_batch(reader, end)
    with Admin(broker.bootstrap) as admin:
        assert admin.committed(group) == {}


def test_replayed_batches_read_the_same_records(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 6)
    reader = stream_reader(broker.bootstrap, subscribe=topic)
    start, end = {topic: {"0": 2}}, {topic: {"0": 5}}
    assert values(reader, reader.partitions(start, end)) == [b"0/2", b"0/3", b"0/4"]
    assert reader.partitions(end, end) == []
