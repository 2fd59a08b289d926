"""One Spark session for all tests: it takes seconds to start, and every query on it some hundred
milliseconds.

So tests of what a source decides call its readers directly (`spark_reading.py`), against the real broker but
without a JVM; the tests that need Spark are few, and look at what only Spark can show.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from forebay.errors import ForebayError
from forebay.spark.connection import Cluster
from forebay.spark.session import find_java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SPARK_SECONDS_MAX = 400
STOP_SECONDS_MAX = 60
PY4J_WARNINGS = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""Sockets to the JVM are left to the garbage collector, whenever that comes by."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a session pays for its start, which on a busy machine takes minutes; and a test that
    is interrupted while it talks to the JVM spoils the session for all that follow."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS_MAX))
            for ignored in PY4J_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    """Readers keep their connections for the next task; the next test may have another broker."""
    yield
    Cluster.close_shared()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine; leave its settings as they are."""
    try:
        find_java()
    except ForebayError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own imports are not ours to tidy
        started = session(
            "forebay tests",
            "local[2]",
            quick=True,
            **{
                "spark.sql.shuffle.partitions": 2,
                "spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.connect.grpc.binding.port": 0,
            },
        )
    yield started
    _end(started)


def _end(started: SparkSession) -> None:
    """End the JVM too, and what is left of the connections to it."""
    from pyspark import SparkContext

    gateway: Any = started.sparkContext._gateway
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(STOP_SECONDS_MAX)
        SparkContext._gateway = SparkContext._jvm = None
        del gateway
        gc.collect()
