"""Makes `.format("forebay")` known: Spark looks for a DefaultSource in packages named pyspark_*."""

from forebay.spark.data_source import ForebayDataSource as DefaultSource

__all__ = ["DefaultSource"]
