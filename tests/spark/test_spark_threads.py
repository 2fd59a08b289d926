"""Writes from threads other than the session's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from forebay.spark import use_session
from support.brokers.broker_process import BrokerProcess
from support.spark.topics import contents, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_threads_write_in_parallel_once_they_have_the_session(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    make(broker.bootstrap, threaded=1)

    def load(n: int) -> None:
        rows = spark.range(n, n + 1).selectExpr("CAST(id AS STRING) AS value")
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "threaded"}
        rows.write.format("forebay").options(**options).mode("append").save()

    with ThreadPoolExecutor(1) as without, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        without.submit(load, 9).result()
    with ThreadPoolExecutor(2, initializer=use_session, initargs=(spark,)) as threads:
        list(threads.map(load, range(4)))
    assert {one.value for one in contents(broker.bootstrap, "threaded")} == {b"0", b"1", b"2", b"3"}
