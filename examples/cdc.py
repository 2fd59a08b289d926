"""The changes of a database into a table that always shows the present state: upserts and deletions.

    python examples/cdc.py                  # with a broker of its own
    python examples/cdc.py -b HOST:PORT     # with yours

A connector writes each change of the table `customers` to a compacted topic: the key is the primary key, the
value is the row as JSON, or null when the row was deleted. `follow` merges the changes into a Delta table,
each once: the number of the batch is noted in the table together with its rows, so that a batch that Spark
repeats after a crash is found there. In the end the table is compared with the database.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay.client import Admin
from forebay.spark import session
from forebay.testing import Broker

TOPIC = "customers"
SCHEMA = pa.schema(
    [("id", pa.string()), ("name", pa.string()), ("city", pa.string()), ("points", pa.int64())]
)
ROW = "name STRING, city STRING, points BIGINT"
CITIES = ("Berlin", "Lyon", "Porto", "Turin")
CUSTOMERS = 50
CHANGES = 2_000


class Table:
    """A Delta table with a row for each key."""

    def __init__(self, location: str, name: str) -> None:
        """`name` is that of the stream, under which the table notes its batches."""
        self._delta = DeltaTable.create(location, SCHEMA, mode="ignore")
        self._name = name

    def merge(self, changes: DataFrame, batch_id: int) -> None:
        """What Spark calls with each batch: the rows of the source, some for the same key."""
        self._delta.update_incremental()
        done = self._delta.transaction_version(self._name)
        if done is not None and done >= batch_id:
            return
        noted = CommitProperties(app_transactions=[Transaction(self._name, batch_id)])
        values = {column: f"new.{column}" for column in SCHEMA.names}
        (
            self._delta.merge(
                latest_of_each_key(changes).toArrow(),
                "old.id = new.id",
                source_alias="new",
                target_alias="old",
                commit_properties=noted,
            )
            .when_matched_delete("new.deleted")
            .when_matched_update(values)
            .when_not_matched_insert(values, "NOT new.deleted")
            .execute()
        )


def latest_of_each_key(changes: DataFrame) -> DataFrame:
    """All changes of a key are in one partition, in their order: the one with the last offset counts."""
    last = changes.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    row = F.from_json(F.col("value").cast("string"), ROW)
    return last.select(
        F.col("key").cast("string").alias("id"), row.alias("row"), F.col("value").isNull().alias("deleted")
    ).select("id", "row.*", "deleted")


def follow(spark: SparkSession, bootstrap: str, location: str, checkpoint: str) -> None:
    """What is there now. Without the trigger it runs on: `.trigger(processingTime="10 seconds")`."""
    changes = (
        spark.readStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.group.id", "customers-table")  # shows the lag
        .option("maxOffsetsPerTrigger", 1_000)
        .load()
    )
    query = (
        changes.writeStream.queryName("customers")
        .foreachBatch(Table(location, "customers").merge)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


# -- the database, and its connector ----------------------------------------------------------------------


def make_topic(bootstrap: str) -> None:
    compacted = {"cleanup.policy": "compact"}
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=4, config=compacted, exist_ok=True)


def change(bootstrap: str, seed: int, rows: dict[str, dict[str, object]]) -> None:
    """Customers come, move, collect points and go; `rows` is the table, which changes with it."""
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(CHANGES):
        id = f"c{chance.randrange(CUSTOMERS)}"
        if chance.random() < 0.1:
            rows.pop(id, None)
            producer.produce(TOPIC, None, id)
        else:
            rows[id] = {"name": f"Customer {id}", "city": chance.choice(CITIES), "points": number}
            producer.produce(TOPIC, json.dumps(rows[id]), id)
    producer.flush()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("-b", "--bootstrap-server", help="a running broker; without it, one is started")
    given = arguments.parse_args()
    with broker(given.bootstrap_server) as bootstrap, tempfile.TemporaryDirectory() as folder:
        spark = session("cdc", quick=True)
        run(spark, bootstrap, Path(folder))
        spark.stop()


def run(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    make_topic(bootstrap)
    rows: dict[str, dict[str, object]] = {}
    for seed in range(2):
        change(bootstrap, seed, rows)
        follow(spark, bootstrap, str(folder / "customers"), str(folder / "checkpoint"))
        show(str(folder / "customers"), rows)


def show(location: str, rows: dict[str, dict[str, object]]) -> None:
    table = DeltaTable(location)
    found = {row.pop("id"): row for row in table.to_pyarrow_table().to_pylist()}
    assert found == rows, "the table is not what the database has"
    print(f"version {table.version()} of the table has the {len(rows)} rows that the database has")


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with Broker(process=True) as started:
        yield started.bootstrap_servers


if __name__ == "__main__":
    main()
