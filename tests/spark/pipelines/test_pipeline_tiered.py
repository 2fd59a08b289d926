"""Pipelines over a topic whose old messages are in an object store: brokers send what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.spark.pipelines import ArchiveSettings, Brokers, archive, topic_stats
from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.layout import require_position
from forebay.spark.pipelines.lake import Lake
from support.brokers.broker_process import StartBroker
from support.brokers.tiered import create_tiered, eventually, fill, settings
from support.clients.wire_client import WireClient, offset_at
from support.scraping import free_port, scrape
from support.spark.archives import seen_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark shares its cores with whatever else runs

COUNT = 300
EARLIEST_LOCAL = -4


def test_archives_and_statistics_read_the_object_store(
    spark: SparkSession, start_broker: StartBroker, topic: str, tmp_path: Path
) -> None:
    address = ("127.0.0.1", free_port())
    own = {**settings(tmp_path / "store"), "forebay.metrics.listener": f"127.0.0.1:{address[1]}"}
    broker = start_broker(*(f"{name}={value}" for name, value in own.items()))
    with WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, COUNT)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > COUNT - 30)
        local = COUNT - offset_at(client, topic, EARLIEST_LOCAL)

    def bytes_out() -> float:
        return scrape(address)("kafka_server_brokertopicmetrics_bytesout_total")

    brokers, lake = Brokers(bootstrap=broker.bootstrap), Lake(str(tmp_path / "lake"))
    before = bytes_out()
    facts = archive(spark, brokers, topic, lake.location, ArchiveSettings()).wait().facts
    assert facts["rows"] == COUNT
    assert seen_in(lake, archive_files(lake, require_position(lake))) == [(0, n) for n in range(COUNT)]
    assert bytes_out() - before < 400 * local
    found = topic_stats(spark, brokers, topic)
    assert found.messages == COUNT
    assert found.stored_bytes > 200 * COUNT, "what is remote counts, too"
    assert bytes_out() - before < 2 * 400 * local
