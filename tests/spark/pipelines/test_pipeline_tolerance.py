"""Messages that are gone, or that nobody can read: explained, and passed over if that is wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from forebay.errors import ForebayError
from forebay.spark.pipelines import (
    ONCE,
    ArchiveSettings,
    Brokers,
    PipelineError,
    SqlSettings,
    Tolerance,
    archive,
    sql,
)
from forebay.wire.batch import HEADER, HEADER_SIZE, build_batch, crc32c, read_header
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, append
from support.spark.archives import seen_by_anyone
from support.spark.topics import NINE_MS, Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(420)  # Spark shares its cores with whatever else runs

SKIP_ALL = Tolerance(on_data_loss="skip", on_unreadable="skip")


@pytest.fixture(scope="module")
def brokers(broker: BrokerProcess) -> Brokers:
    make(broker.bootstrap, tol_lost=1, tol_bad=1, tol_out=1)
    return Brokers(bootstrap=broker.bootstrap)


def delete_before(bootstrap: str, topic: str, offset: int, partition: int = 0) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result(60)


def more_partitions(bootstrap: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, count)]).values():
        future.result(60)


def send_unreadable(bootstrap: str, topic: str, count: int) -> None:
    """A batch with a right checksum whose compressed bytes are garbage: a producer's bug, or an attack."""
    records = [Record(n, NINE_MS, None, b"{}") for n in range(count)]
    batch = bytearray(build_batch(records, codec=Codec.ZSTD))
    batch[HEADER_SIZE:] = b"garbage".ljust(len(batch) - HEADER_SIZE, b"\0")
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(crc=crc32c(memoryview(batch)[21:])))
    with WireClient(bootstrap) as client:
        assert append(client, topic, bytes(batch)).error_code == 0


def test_lost_messages_are_explained_and_passed_over_if_that_is_wanted(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    send(brokers.bootstrap, "tol-lost", [Sent(b"%d" % n) for n in range(10)])
    lake = str(tmp_path / "lake")
    archive(spark, brokers, "tol-lost", lake, ArchiveSettings(batch_records=4)).wait()
    send(brokers.bootstrap, "tol-lost", [Sent(b"%d" % n) for n in range(10, 20)])
    delete_before(brokers.bootstrap, "tol-lost", 15)
    with pytest.raises(PipelineError) as raised:
        archive(spark, brokers, "tol-lost", lake).wait()
    assert raised.value.cause is not None
    assert raised.value.cause.kind == "DataLoss"
    assert "offset 10 of tol-lost-0 is out of range; the log now starts at 15" in str(raised.value)
    assert "--on-data-loss skip goes on with what is there" in str(raised.value)
    assert "\n" not in str(raised.value)
    facts = archive(spark, brokers, "tol-lost", lake, ArchiveSettings(tolerance=SKIP_ALL)).wait().facts
    assert (facts["rows"], facts["unreadable"], facts["lost"]) == (5, 0, 5)
    assert [offset for _, offset in seen_by_anyone(tmp_path / "lake")] == [*range(10), *range(15, 20)]


def test_lost_messages_are_counted_wherever_they_were(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    """Before the first message that is left, in a partition that is new, and in a batch that is gone."""
    bootstrap = brokers.bootstrap
    make(bootstrap, tol_counted=1, tol_counted_out=1)
    send(bootstrap, "tol-counted", [Sent(b'{"id": 0}')])
    settings = SqlSettings(
        schemas={"tol-counted": "id INT"},
        trigger=ONCE,
        checkpoint=str(tmp_path),
        tolerance=Tolerance(on_data_loss="skip"),
    )

    def run() -> tuple[int, int]:
        query = "SELECT id FROM stream('tol-counted')"
        facts = sql(spark, brokers, query, "tol-counted-out", settings).wait().facts
        return facts["rows"], facts["lost"]

    assert run() == (1, 0)
    more_partitions(bootstrap, "tol-counted", 2)
    send(bootstrap, "tol-counted", [Sent(b'{"id": 1}', partition=at) for at in (0, 1, 1, 1)])
    delete_before(bootstrap, "tol-counted", 2, partition=1)
    assert run() == (2, 2)
    send(bootstrap, "tol-counted", [Sent(b'{"id": 2}', partition=0)] * 3)
    delete_before(bootstrap, "tol-counted", 5)
    assert run() == (0, 3)
    assert len(contents(bootstrap, "tol-counted-out")) == 3


def test_unreadable_messages_are_named_and_skipped_and_counted_if_that_is_wanted(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    bootstrap = brokers.bootstrap
    send(bootstrap, "tol-bad", [Sent(b'{"id": 1}')])
    send_unreadable(bootstrap, "tol-bad", 3)
    send(bootstrap, "tol-bad", [Sent(b'{"id": 2}'), Sent(b"no JSON")])
    lake = str(tmp_path / "lake")
    with pytest.raises(
        PipelineError, match=r"offsets 1 to 3 of tol-bad-0 cannot be read: .* skip passes"
    ) as it:
        archive(spark, brokers, "tol-bad", lake).wait()
    assert it.value.cause is not None
    assert it.value.cause.kind == "UnreadableBatch"
    settings = ArchiveSettings(tolerance=Tolerance(on_unreadable="skip"))
    facts = archive(spark, brokers, "tol-bad", lake, settings).wait().facts
    assert (facts["rows"], facts["unreadable"]) == (3, 3)
    assert [offset for _, offset in seen_by_anyone(tmp_path / "lake")] == [0, 4, 5]

    query = SqlSettings(
        schemas={"tol-bad": "id INT"},
        trigger=ONCE,
        checkpoint=str(tmp_path / "checkpoint"),
        tolerance=Tolerance(on_unreadable="skip"),
    )
    text = "SELECT id FROM stream('tol-bad')"
    facts = sql(spark, brokers, text, "tol-out", query).wait().facts
    assert (facts["rows written"], facts["unreadable"]) == (2, 4)
    found = [json.loads(one.value or b"") for one in contents(bootstrap, "tol-out")]
    assert found == [{"id": 1}, {"id": 2}]


def test_another_choice_is_refused() -> None:
    with pytest.raises(ForebayError, match="on_data_loss=maybe: choose fail or skip"):
        Tolerance(on_data_loss="maybe").options()
