"""Topics as tables and streams of Spark: `spark.read.format("forebay")` and its three siblings.

The source itself is found by Spark through the package `pyspark_forebay`; what people import from here is
`session`. Executors import this package too, so it stays light.
"""

from forebay.spark.session import session

__all__ = ["session"]
