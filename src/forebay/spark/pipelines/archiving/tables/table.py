"""The three forms of an archive, and how each takes the files of a batch exactly once.

Parquet needs nothing: the files lie where a reader looks. Delta and Iceberg have a log of their own in which
files are added; the batch is noted in the same entry, so that a repetition finds it there. Both libraries
work without a JVM, and neither copies data: the tasks have written the files already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from forebay.spark.pipelines.archiving.decoded import file_schema
from forebay.spark.pipelines.archiving.hour_files import Written
from forebay.spark.pipelines.archiving.layout import DELTA, ICEBERG, Position
from forebay.spark.pipelines.archiving.tables.catalogs import CatalogSettings, kept
from forebay.spark.pipelines.archiving.tables.delta import Delta
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.lake import Lake


class Table(Protocol):
    def holds(self, query: str, batch: int) -> bool:
        """True if the batch was added already; for Parquet only position.json knows."""

    def add(self, files: Sequence[Written], query: str, batch: int) -> None: ...

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that files will have from now on. Can be repeated."""


def open_table(lake: Lake, position: Position, catalog: CatalogSettings | None = None) -> Table:
    """`catalog`: settings of the archive's catalog that its position does not keep."""
    if position.format == DELTA:
        return Delta(lake, file_schema(position))
    if position.format == ICEBERG:
        return open_iceberg(lake, position, catalog)
    return Parquet()


def open_iceberg(lake: Lake, position: Position, catalog: CatalogSettings | None = None) -> Iceberg:
    return Iceberg(lake, position.topic, file_schema(position), kept(position.catalog, catalog))


class Parquet:
    def holds(self, query: str, batch: int) -> bool:  # noqa: ARG002 - the protocol's
        return False

    def add(self, files: Sequence[Written], query: str, batch: int) -> None:
        """The files are where a reader finds them."""

    def evolve(self, schema: pa.Schema) -> None:
        """Each file has its own schema."""
