"""One Spark session for all tests: it takes seconds to start, and every query on it some hundred
milliseconds.

So tests of what a source decides call its readers directly (`reading.py`), against the real broker but
without a JVM; the tests that need Spark are few, and look at what only Spark can show.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.errors import ForebayError
from forebay.spark.session import DRIVER_OPTIONS, QUICK_OPTIONS, find_java, session
from forebay.spark.wire.connections import Cluster
from support.brokers.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SITE = Path(__file__).parents[1] / "support" / "spark" / "site"
"""What it says makes Spark's Python workers start in a third of the time."""

SPARK_SECONDS_MAX = 900
PY4J_WARNINGS = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""Sockets to the JVM are left to the garbage collector, whenever that comes by."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a session pays for its start, which on a busy machine takes minutes; and a test that
    is interrupted while it talks to the JVM spoils the session for all that follow."""
    for item in items:
        if "jvm_options" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS_MAX))
            for ignored in PY4J_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    """Readers keep their connections for the next task; the next test may have another broker."""
    yield
    Cluster.close_shared()


@pytest.fixture(scope="session")
def quick_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SITE), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def jvm_options(broker: BrokerProcess, quick_workers: None, request: pytest.FixtureRequest) -> str:
    """For JVMs that live for seconds."""
    try:
        find_java()
    except ForebayError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    if cache is None:
        return QUICK_OPTIONS  # an archive that cannot be kept for the next run costs more than it saves
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own imports are not ours to tidy
        from support.spark.jvm import quick_options
    return quick_options(cache.mkdir("spark-classes"), broker.bootstrap)


@pytest.fixture(scope="session")
def spark(jvm_options: str) -> Iterator[SparkSession]:
    """A session on two cores of this machine; leave its settings as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own imports are not ours to tidy
        from support.spark import driver as spark_driver

        started = session(
            "forebay tests",
            "local[2]",
            quick=True,
            **{
                DRIVER_OPTIONS: jvm_options,
                "spark.sql.shuffle.partitions": 2,
                # A machine that has no time for us for a minute is no reason to give up.
                "spark.network.timeout": "600s",
                "spark.python.authenticate.socketTimeout": "300s",
                "spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.connect.grpc.binding.port": 0,
            },
        )
    yield started
    spark_driver.end(started)
