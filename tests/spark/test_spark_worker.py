"""What Spark's garbage collection after every task may look at."""

from __future__ import annotations

import gc

from pyspark.sql import SparkSession

from forebay.spark.worker import freeze_loaded_objects


def test_a_worker_keeps_what_it_has_imported_out_of_every_later_collection(spark: SparkSession) -> None:
    def passed_over(_row: int) -> tuple[int, int, int]:
        """By the collector, after so many calls as make a difference, and with more objects in memory."""
        freeze_loaded_objects()
        freeze_loaded_objects()
        before = gc.get_freeze_count()
        more = [[n] for n in range(1000)]
        freeze_loaded_objects()
        return before, gc.get_freeze_count(), len(more)

    ((first, second, _),) = spark.sparkContext.parallelize([0], 1).map(passed_over).collect()
    assert first > 10_000, "PySpark alone is more than that"
    assert second <= first, "what later tasks make is garbage like any other"


def test_the_process_of_a_user_is_left_alone() -> None:
    before = gc.get_freeze_count()
    freeze_loaded_objects()
    freeze_loaded_objects()
    assert gc.get_freeze_count() == before
