"""Orders as a streaming table, what each country spent as a view, and large orders in a topic."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SERVERS = os.environ.get("FOREBAY_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
LARGE = 100

spark = SparkSession.active()

dp.create_sink(
    "large_orders",
    "forebay",
    {"kafka.bootstrap.servers": SERVERS, "topic": "large-orders", "delivery": "exactly-once"},
)


@dp.table
def orders() -> DataFrame:
    topic = (
        spark.readStream.format("forebay")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    fields = F.from_json(F.col("value").cast("string"), "country STRING, amount INT")
    return topic.select(fields.alias("order"), "timestamp").select("order.*", "timestamp")


@dp.materialized_view
def spent() -> DataFrame:
    return spark.read.table("orders").groupBy("country").agg(F.sum("amount").alias("amount"))


@dp.append_flow(target="large_orders")
def large_orders_flow() -> DataFrame:
    large = spark.readStream.table("orders").where(F.col("amount") > LARGE)
    return large.select(
        F.col("country").alias("key"), F.to_json(F.struct("country", "amount")).alias("value")
    )
