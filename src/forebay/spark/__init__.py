"""Topics as tables and streams of Spark: `spark.read.format("forebay")` and its three siblings.

The source itself is found by Spark through the package `pyspark_forebay`; what people import from here are
`session` and `upsert`. Executors import this package too, so it stays light.
"""

from forebay.spark.session import session
from forebay.spark.update_mode import upsert

__all__ = ["session", "upsert"]
