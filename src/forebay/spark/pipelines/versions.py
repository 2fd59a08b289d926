"""Refuses what some versions of PySpark cannot do."""

from __future__ import annotations

import importlib.util

from forebay.spark.pipelines.jobs import PipelineError


def require_limited_batches(what: str) -> None:
    """PySpark 4.1 does not say where a batch starts: it can have no limit, and no place to go on from."""
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        raise PipelineError(
            f"{what} needs PySpark 4.2 or later: earlier ones cannot begin where they stopped"
        )
