"""Topics with large values: an archive and its replay, in a JVM that has room for a part of the values only.

Producers compress them, so that brokers and disks have little to do; in Spark they have their full size.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from forebay.spark.arrow.batch_sizes import BATCH_BYTES
from forebay.spark.session import DRIVER_OPTIONS
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import command, environment
from support.spark.archives import seen_by_anyone
from support.spark.reading import batch_reader
from support.spark.topics import NINE_MS, Sent, make, send

DEADLINE_SECONDS = 1200
VALUE_BYTES = 250_000
SMALL_BATCHES = Path(__file__).parents[2] / "support" / "spark" / "small_batches"
SHARE = 8
"""Batches are smaller by this there."""
MEMORY_BYTES = 64 << 20
SENT_TOGETHER = 1000
"""A producer's queue holds no more than a gigabyte."""
STEPS = """
steps:
  - archive: {{topic: {topic}, to: {topic}, once: true}}
  - replay: {{archive: {topic}, to: {topic}-again}}
"""


def archive_and_replay(
    bootstrap: str, topic: str, count: int, folder: Path, *options: str, environ: Mapping[str, str]
) -> None:
    """Run both as a user would, and compare what is in the topics."""
    make(bootstrap, **{topic: 1, f"{topic}-again": 1})
    for first in range(0, count, SENT_TOGETHER):
        numbers = range(first, min(count, first + SENT_TOGETHER))
        send(bootstrap, topic, (Sent(b"%d" % n + b"." * VALUE_BYTES, None, 0, NINE_MS + n) for n in numbers))
    (folder / "steps.yml").write_text(STEPS.format(topic=topic))
    done = subprocess.run(
        command("pipeline", "run", "steps.yml", "--json", "--master", "local[2]", *options),
        env={**environment(bootstrap), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [summary["rows"] for summary in json.loads(done.stdout)] == [count, count]
    assert seen_by_anyone(folder / topic) == [(0, n) for n in range(count)]
    assert beginnings(bootstrap, f"{topic}-again") == [(b"%d" % n + b"." * 8)[:8] for n in range(count)]


def beginnings(bootstrap: str, topic: str) -> list[bytes]:
    """The first bytes of each committed value; a piece of the topic in memory at a time."""
    reader = batch_reader(bootstrap, subscribe=topic, kafka_isolation_level="read_committed")
    batches = (batch for task in reader.partitions() for batch in reader.read(task))
    return [value.as_py()[:8] for batch in batches for value in batch.column("value")]


@pytest.mark.timeout(DEADLINE_SECONDS)
def test_values_that_do_not_fit_together_into_the_memory_of_the_jvm(
    broker: BrokerProcess, tmp_path: Path, jvm_options: str
) -> None:
    """Arrow's memory in the JVM is less than what the values take. Batches have an eighth of their usual
    size, so that few values show it; the next test has the usual size."""
    options = f"{DRIVER_OPTIONS}={jvm_options} -XX:MaxDirectMemorySize={MEMORY_BYTES}"
    batches = f"spark.sql.execution.arrow.maxBytesPerBatch={BATCH_BYTES // SHARE}"
    count = MEMORY_BYTES // VALUE_BYTES * 6 // 5
    environ = {"PYTHONPATH": str(SMALL_BATCHES)}
    arguments = ("--conf", options, "--conf", batches)
    archive_and_replay(broker.bootstrap, "large-values", count, tmp_path, *arguments, environ=environ)


@pytest.mark.chaos
@pytest.mark.timeout(DEADLINE_SECONDS)
def test_ten_thousand_large_values_in_a_gigabyte(broker: BrokerProcess, tmp_path: Path) -> None:
    memory = ("--conf", "spark.driver.memory=1g")
    archive_and_replay(broker.bootstrap, "many-large-values", 10_000, tmp_path, *memory, environ={})
