"""The memory of Python workers, as `python -m bench.spark` measures it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from bench.server import BenchError
from bench.spark import core

from support.brokers.broker_process import BrokerProcess
from support.spark.processes import workers
from support.spark.reading import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_of_the_session_are_found_and_measured(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 100)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    assert spark.read.format("forebay").options(**options).load().count() == 100
    running = workers(os.getpid())
    assert running
    memory = core.WorkerMemory()
    memory.look()
    assert memory.peak_mb > 30, "a worker that has imported Arrow and PySpark takes more than that"
    assert memory.peak_mb >= max(core._peak_mb(pid) for pid in running)


def test_memory_without_a_worker_is_an_error_and_not_zero() -> None:
    look = "from bench.spark.core import WorkerMemory; WorkerMemory().look()"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert BenchError.__name__ in done.stderr and "no Python worker of Spark is running" in done.stderr
