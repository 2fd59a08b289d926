"""Spark on Forebay beside Spark's own Kafka connector: `python -m bench.spark`."""
