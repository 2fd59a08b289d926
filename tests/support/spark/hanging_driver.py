"""A Spark driver to be killed: writes a table exactly once, and never comes to the end of one of its tasks.

    python tests/support/spark/hanging_driver.py BOOTSTRAP SINK TIMEOUT_MS JVM_OPTIONS

One task finishes and leaves its transaction to the driver, the other has written rows and waits for more.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from forebay.spark.session import DRIVER_OPTIONS, session

ROWS_PER_TASK = 30_000
HANGS_AT = 55_000
"""In the second task: Spark moves ten thousand rows at a time, and the sink writes them by megabytes."""


def main(bootstrap: str, sink: str, timeout_ms: str, jvm_options: str) -> None:
    spark = session("hanging driver", "local[2]", quick=True, **{DRIVER_OPTIONS: jvm_options})

    def pass_on(number: int) -> str:
        import time

        if number == HANGS_AT:
            time.sleep(600)
        return str(number) * 200

    waits = F.udf(pass_on, StringType(), useArrow=False)
    (
        spark.range(2 * ROWS_PER_TASK, numPartitions=2)
        .select(waits("id").alias("value"))
        .write.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("delivery", "exactly-once")
        .option("kafka.transaction.timeout.ms", timeout_ms)
        .mode("append")
        .save()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
