"""Ready pipelines on Spark: a topic into a lake and back, SQL from topic to topic, what is in a topic.

Each is a function that takes a session (`forebay.spark.session`) and `Brokers`, and the same under
`forebay pipeline`:

    job = archive(spark, Brokers(bootstrap="127.0.0.1:9092"), "orders", "/lake/orders")
    print(job.wait().facts)
"""

from __future__ import annotations

from forebay.spark.pipelines.archiving.archive import ArchiveSettings, archive
from forebay.spark.pipelines.archiving.compact import compact
from forebay.spark.pipelines.archiving.decoded import DecodeSettings
from forebay.spark.pipelines.archiving.index import TimeRange
from forebay.spark.pipelines.archiving.replay import ReplaySettings, replay
from forebay.spark.pipelines.archiving.tables.catalogs import CatalogSettings
from forebay.spark.pipelines.brokers import Brokers, Tolerance
from forebay.spark.pipelines.jobs import ONCE, Job, PipelineError, Progress, Summary, Trigger
from forebay.spark.pipelines.queries.sql import SqlSettings, sql
from forebay.spark.pipelines.report import write_report
from forebay.spark.pipelines.stats import Stats, archive_stats, topic_stats

__all__ = [
    "Brokers",
    "Tolerance",
    "archive",
    "ArchiveSettings",
    "DecodeSettings",
    "CatalogSettings",
    "compact",
    "replay",
    "ReplaySettings",
    "TimeRange",
    "sql",
    "SqlSettings",
    "topic_stats",
    "archive_stats",
    "Stats",
    "write_report",
    "Job",
    "Progress",
    "Summary",
    "Trigger",
    "ONCE",
    "PipelineError",
]
