"""The three forms of an archive, and how each takes the files of a batch exactly once.

Parquet needs nothing: the files lie where a reader looks. Delta and Iceberg have a log of their own in which
files are added; the batch is noted in the same entry, so that a repetition finds it there. Both libraries
work without a JVM, and neither copies data: the tasks have written the files already.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from forebay.spark.extras import require
from forebay.spark.pipelines.archiving.decoded import file_schema
from forebay.spark.pipelines.archiving.hour_files import Written
from forebay.spark.pipelines.archiving.layout import DELTA, ICEBERG, SCHEMA, Position, hour_of
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import OWN, File, Lake

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table as IcebergTable

NAMESPACE = "archive"
_QUERY, _BATCH = "forebay.query", "forebay.batch"


class Table(Protocol):
    def holds(self, query: str, batch: int) -> bool:
        """Whether the batch was added already; for Parquet only position.json knows."""

    def add(self, files: Sequence[Written], query: str, batch: int) -> None: ...


def open_table(lake: Lake, position: Position) -> Table:
    if position.format == DELTA:
        return Delta(lake, file_schema(position))
    if position.format == ICEBERG:
        return Iceberg(lake, position.topic, file_schema(position))
    return Parquet()


class Parquet:
    def holds(self, query: str, batch: int) -> bool:  # noqa: ARG002 - the protocol's
        return False

    def add(self, files: Sequence[Written], query: str, batch: int) -> None:
        """The files are where a reader finds them."""


class Delta:
    """Delta Lake keeps, for an application, the version that it wrote last: ours is the batch."""

    def __init__(self, lake: Lake, schema: pa.Schema = SCHEMA) -> None:
        """`schema` is needed to write only."""
        self._schema = schema
        self._deltalake = require("deltalake", "delta")
        require("deltalake.transaction", "delta")
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
        # Both with %20 for a space, and alike for whatever else an address must not have.
        root = table.table_uri.removeprefix("file://")
        return [posixpath.relpath(path, root) for path in table.file_uris()]

    def _table(self) -> DeltaTable | None:
        if not self._deltalake.DeltaTable.is_deltatable(self._lake.location):
            return None
        table: DeltaTable = self._deltalake.DeltaTable(self._lake.location)
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


class Iceberg:
    """A catalog in a file beside the data; the table is partitioned by the hour of the timestamp."""

    def __init__(self, lake: Lake, topic: str, schema: pa.Schema = SCHEMA) -> None:
        """`schema` is needed to make the table only."""
        self._schema = schema
        self._catalog = require("pyiceberg.catalog.sql", "iceberg")
        if not lake.is_local:
            raise PipelineError("an Iceberg archive needs a directory: its catalog is an SQLite file")
        self._lake = lake
        self._topic = topic

    def holds(self, query: str, batch: int) -> bool:
        """Looks at the last entry that is ours; others may have written since."""
        for snapshot in reversed(self.table().snapshots()):
            properties = snapshot.summary.additional_properties if snapshot.summary else {}
            if properties.get(_QUERY) == query:
                return int(properties[_BATCH]) >= batch
        return False

    def add(self, files: Sequence[Written], query: str, batch: int) -> None:
        if files:
            paths = sorted({self._lake.uri(file.path) for file in files})
            self.table().add_files(paths, {_QUERY: query, _BATCH: str(batch)}, check_duplicate_files=False)

    def paths(self) -> list[str]:
        """The files of the table as it is now, below the lake."""
        return [file.path for file in self.files()]

    def files(self) -> list[File]:
        return [
            File(path, found.file_size_in_bytes) for path, found in self._data_files(self.table()).items()
        ]

    def replace(self, old: Iterable[str], new: Iterable[str]) -> None:
        """One change of the table, which fails as a whole if anyone else has changed it meanwhile."""
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        table = self.table()
        known = self._data_files(table)
        with table.transaction() as change, change.update_snapshot().overwrite() as update:
            for path in old:
                update.delete_data_file(known[path])
            paths = (self._lake.uri(path) for path in new)
            for file in parquet_files_to_data_files(table.io, table.metadata, paths):
                update.append_data_file(file)

    def _data_files(self, table: IcebergTable) -> dict[str, DataFile]:
        found = [task.file for task in table.scan().plan_files()]
        root = self._lake.location
        return {posixpath.relpath(file.file_path.removeprefix("file://"), root): file for file in found}

    def table(self) -> IcebergTable:
        from pyiceberg.transforms import HourTransform

        catalog = self._open_catalog()
        identifier = (NAMESPACE, self._topic)
        if catalog.table_exists(identifier):
            found: IcebergTable = catalog.load_table(identifier)
            return found
        catalog.create_namespace_if_not_exists(NAMESPACE)
        made: IcebergTable = catalog.create_table(
            identifier, self._schema, location=f"file://{self._lake.location}"
        )
        with made.update_spec() as update:
            update.add_field("timestamp", HourTransform(), "hour")
        return made

    def _open_catalog(self) -> Any:
        path = Path(self._lake.path(OWN, "iceberg.db"))
        path.parent.mkdir(parents=True, exist_ok=True)
        return self._catalog.SqlCatalog(
            "forebay", uri=f"sqlite:///{path}", warehouse=f"file://{self._lake.location}"
        )


def _sizes(files: Sequence[Written]) -> list[tuple[str, int, int]]:
    """A file with several partitions is reported several times: its path, size and rows, once."""
    rows: dict[tuple[str, int], int] = {}
    for file in files:
        rows[file.path, file.bytes] = rows.get((file.path, file.bytes), 0) + file.rows
    return [(path, size, count) for (path, size), count in sorted(rows.items())]


def _delta_schema(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("date", pa.string())).append(pa.field("hour", pa.int32()))
