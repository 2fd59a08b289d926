"""The data source `forebay`: Spark makes one of it for every read and write, with the options of the user.

It is found by its name without being registered, because the package `pyspark_forebay` exposes it. Nothing is
connected here: planning happens in the readers, on the driver, and reading in tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from forebay.spark.arrow.schema import spark_schema
from forebay.spark.source.options import batch_options, include_headers, stream_options
from forebay.spark.worker import freeze_loaded_objects

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ForebayDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "forebay"

    def schema(self) -> StructType:
        return spark_schema(headers=include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from forebay.spark.source.batch_reader import TopicReader

        freeze_loaded_objects()
        return TopicReader(batch_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from forebay.spark.source.stream_reader import TopicStreamReader

        freeze_loaded_objects()
        return TopicStreamReader(stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from forebay.spark.sink.batch_writer import TopicWriter

        freeze_loaded_objects()
        return TopicWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        from forebay.spark.sink.stream_writer import TopicStreamWriter

        freeze_loaded_objects()
        return TopicStreamWriter(schema, self.options)
