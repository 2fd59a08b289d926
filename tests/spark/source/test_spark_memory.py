"""A task's memory has to do with the size of a fetch, and nothing with how much there is to read."""

from __future__ import annotations

import subprocess
import sys

from forebay.wire.batch import build_batch
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, append, create
from support.spark.reading import NOON_MS

BATCH_RECORDS = 50
VALUE = b"." * 20_000
BATCHES = 48
FETCH_BYTES = 2_000_000

PROGRAM = """
import resource
import sys
from pyspark.sql.datasource import InputPartition
from forebay.spark.source.offset_ranges import OffsetRange
from forebay.spark.source.options import batch_options
from forebay.spark.source.batch_reader import TopicReader
from forebay.spark.arrow.schema import spark_schema

bootstrap, topic, fetch_bytes = sys.argv[1:]
reader = TopicReader(
    batch_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "kafka.max.partition.fetch.bytes": fetch_bytes,
        }
    ),
    spark_schema(headers=False),
)
(task,) = reader.partitions()
for end in (task.value.end // 4, task.value.end):
    part = InputPartition(OffsetRange(task.value.at, 0, end))
    rows = sum(batch.num_rows for batch in reader.read(part))
    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_four_times_as_much_to_read_takes_no_more_memory(broker: BrokerProcess) -> None:
    topic = "read-in-little-memory"
    records = [Record(n, NOON_MS, None, VALUE) for n in range(BATCH_RECORDS)]
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 1)
        for _ in range(BATCHES):
            assert append(client, topic, bytes(build_batch(records))).error_code == 0
    arguments = [broker.bootstrap, topic, str(FETCH_BYTES)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    (few, few_kb), (many, many_kb) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert (few, many) == (BATCHES * BATCH_RECORDS // 4, BATCHES * BATCH_RECORDS)
    more_read_bytes = (many - few) * len(VALUE)
    assert 1024 * (many_kb - few_kb) < more_read_bytes // 3, "memory grows with what was read"
