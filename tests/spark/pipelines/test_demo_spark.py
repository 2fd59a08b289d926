"""The Spark chapter of `make demo`, with few orders and on the session of the tests."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import BrokerProcess
from support.spark.topics import make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def in_utc(spark: SparkSession) -> Iterator[SparkSession]:
    """As the demo has it, which names minutes by it."""
    before = str(spark.conf.get(ZONE))
    spark.conf.set(ZONE, "UTC")
    yield spark
    spark.conf.set(ZONE, before)


def test_the_spark_chapter_counts_archives_and_replays(
    in_utc: SparkSession, fresh_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compares the numbers by itself, and fails where they differ."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    demo = importlib.import_module("demo_spark")
    orders = demo.all_orders(demo.ORDERS_SHORT)
    make(fresh_broker.bootstrap, orders=demo.PARTITIONS, per_minute=1, orders_again=demo.PARTITIONS)
    facts = demo.play_on(in_utc, fresh_broker.bootstrap, tmp_path, orders)
    total = f"{len(orders):,} orders, {sum(order.cents for order in orders) / 100:,.2f}"
    assert [result for _what, result in facts] == [total] * 3
