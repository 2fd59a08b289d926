"""An archive as a Delta table, by the library deltalake."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.spark.extras import require
from forebay.spark.pipelines.archiving.hour_files import Written
from forebay.spark.pipelines.archiving.layout import SCHEMA, hour_of
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import Lake

if TYPE_CHECKING:
    from deltalake import DeltaTable


class Delta:
    """Delta Lake keeps, for an application, the version that it wrote last: ours is the batch."""

    def __init__(self, lake: Lake, schema: pa.Schema = SCHEMA) -> None:
        """`schema` is needed to write only."""
        self._schema = schema
        self._deltalake = require("deltalake", "delta")
        require("deltalake.transaction", "delta")
        require("deltalake.exceptions", "delta")
        self._lake = lake

    def holds(self, query: str, batch: int) -> bool:
        table = self._table()
        version = table.transaction_version(query) if table is not None else None
        return version is not None and version >= batch

    def add(self, files: Sequence[Written], query: str, batch: int) -> None:
        table = self._table() or self._create()
        properties = self._deltalake.CommitProperties(
            app_transactions=[self._deltalake.Transaction(query, batch)]
        )
        table.create_write_transaction(
            [self._action(path, size, rows) for path, size, rows in _sizes(files)],
            mode="append",
            schema=self._deltalake.Schema.from_arrow(_delta_schema(self._schema)),
            partition_by=["date", "hour"],
            commit_properties=properties,
        )

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that files will have from now on. Can be repeated."""
        self._schema = schema
        table = self._table()
        if table is not None:
            self._deltalake.write_deltalake(
                table, _delta_schema(schema).empty_table(), mode="append", schema_mode="merge"
            )

    def compact(self, target_bytes: int) -> dict[str, Any]:
        """Delta's own compaction: one atomic change in its log. Old files stay for readers that use them."""
        table = self._table()
        if table is None:
            return {"merged files": 0, "new files": 0}
        told = table.optimize.compact(target_size=target_bytes)
        return {"merged files": told["numFilesRemoved"], "new files": told["numFilesAdded"]}

    def paths(self) -> list[str]:
        """The files of the table as it is now, below the lake."""
        table = self._table()
        if table is None:
            return []
        if _has_deletions(table):
            raise PipelineError(
                f"rows were deleted from the Delta table in {self._lake.location}, and its files still have"
                " them: have the engine that deleted them rewrite these files (in Spark REORG TABLE ... APPLY"
                " (PURGE)), then try again"
            )
        # Both with %20 for a space, and alike for whatever else an address must not have.
        root = table.table_uri.removeprefix("file://")
        return [posixpath.relpath(path, root) for path in table.file_uris()]

    def _table(self) -> DeltaTable | None:
        """None where there is none yet. (`is_deltatable` would hold Python's lock while a store answers.)"""
        try:
            table: DeltaTable = self._deltalake.DeltaTable(self._lake.location)
        except self._deltalake.exceptions.TableNotFoundError:
            return None
        return table

    def _create(self) -> DeltaTable:
        table: DeltaTable = self._deltalake.DeltaTable.create(
            self._lake.location,
            self._deltalake.Schema.from_arrow(_delta_schema(self._schema)),
            partition_by=["date", "hour"],
        )
        return table

    def _action(self, path: str, size: int, rows: int) -> Any:
        hour = hour_of(path)
        values = {
            "date": None if hour is None else hour.date().isoformat(),
            "hour": None if hour is None else str(hour.hour),
        }
        written_ms = 0 if hour is None else int(hour.timestamp() * 1000)
        stats = json.dumps({"numRecords": rows})
        return self._deltalake.transaction.AddAction(path, size, values, written_ms, True, stats)


def _has_deletions(table: DeltaTable) -> bool:
    """True if files have rows that the table does not have any more, by deletion vectors."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return False
    look = getattr(table, "deletion_vectors", None)
    if look is None:
        return True  # earlier versions of the library cannot tell
    return any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(look()))


def _sizes(files: Sequence[Written]) -> list[tuple[str, int, int]]:
    """A file with several partitions is reported several times: its path, size and rows, once."""
    rows: dict[tuple[str, int], int] = {}
    for file in files:
        rows[file.path, file.bytes] = rows.get((file.path, file.bytes), 0) + file.rows
    return [(path, size, count) for (path, size), count in sorted(rows.items())]


def _delta_schema(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("date", pa.string())).append(pa.field("hour", pa.int32()))
