"""An archive as an Iceberg table, by the library pyiceberg."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from forebay.spark.pipelines.archiving.hour_files import Written
from forebay.spark.pipelines.archiving.layout import SCHEMA
from forebay.spark.pipelines.archiving.tables.catalogs import NAMESPACE, CatalogSettings, open_catalog
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import File, Lake

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as IcebergTable

_QUERY, _BATCH = "forebay.query", "forebay.batch"
_REPLACE_TRIES = 5


class Iceberg:
    """The table is partitioned by the hour of the timestamp."""

    def __init__(
        self,
        lake: Lake,
        topic: str,
        schema: pa.Schema = SCHEMA,
        catalog: CatalogSettings | None = None,
    ) -> None:
        """`schema` is needed to make the table only. Without `catalog` it is a file beside the data."""
        self._schema = schema
        self._lake = lake
        self._identifier = (NAMESPACE, topic) if catalog is None else catalog.identifier(topic)
        self._catalog = open_catalog(lake, catalog)

    def holds(self, query: str, batch: int) -> bool:
        """The last batch is a property of the table: snapshots tell of it only until somebody expires them.

        Tables of earlier versions have nothing else.
        """
        table = self.table()
        told = [snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary]
        return any(
            each.get(_QUERY) == query and int(each[_BATCH]) >= batch for each in [table.properties, *told]
        )

    def add(self, files: Sequence[Written], query: str, batch: int) -> None:
        """The files, and the batch that they are of, in one change of the table."""
        if not files:
            return
        paths = sorted({self._lake.uri(file.path) for file in files})
        ours = {_QUERY: query, _BATCH: str(batch)}
        with self.table().transaction() as change:
            change.set_properties(ours)
            change.add_files(paths, ours, check_duplicate_files=False)

    def paths(self) -> list[str]:
        """The files of the table as it is now, below the lake."""
        found = self._tasks(self.table())
        if any(task.delete_files for task in found.values()):
            raise PipelineError(
                f"rows were deleted from the table {'.'.join(self._identifier)}, and its files still have"
                " them: have the engine that deleted them rewrite these files (rewrite_data_files in Spark,"
                " optimize in Trino), then try again"
            )
        return list(found)

    def files(self) -> list[File]:
        """Those that can be merged: a file of which rows were deleted has them still."""
        return [
            File(path, task.file.file_size_in_bytes)
            for path, task in self._tasks(self.table()).items()
            if not task.delete_files
        ]

    def replace(self, old: Sequence[str], new: Sequence[str]) -> None:
        """One change of the table. It is made anew if an archive has added files meanwhile."""
        from pyiceberg import exceptions

        # Earlier versions of the library have no such check of their own.
        refused = getattr(exceptions, "ValidationException", exceptions.CommitFailedException)
        for left in reversed(range(_REPLACE_TRIES)):
            try:
                self._replace(old, new)
                break
            except (exceptions.CommitFailedException, refused):
                if not left:
                    raise

    def _replace(self, old: Sequence[str], new: Sequence[str]) -> None:
        """Fails as a whole if anyone else has changed the table meanwhile."""
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        table = self.table()
        known = self._tasks(table)
        if not all(path in known and not known[path].delete_files for path in old):
            raise PipelineError(
                "the table was changed while its files were merged: nothing is done, try again"
            )
        with table.transaction() as change, change.update_snapshot().overwrite() as update:
            for path in old:
                update.delete_data_file(known[path].file)
            paths = (self._lake.uri(path) for path in new)
            for file in parquet_files_to_data_files(table.io, table.metadata, paths):
                update.append_data_file(file)

    def _tasks(self, table: IcebergTable) -> dict[str, FileScanTask]:
        """The files of the table by their paths, each with the deletions of its rows."""
        try:
            found = list(table.scan().plan_files())
        except ValueError as error:  # deletions by the values of rows, for example
            raise PipelineError(
                f"the files of {'.'.join(self._identifier)} cannot be read: {error}"
            ) from None
        root = _without_scheme(self._location)
        return {posixpath.relpath(_without_scheme(task.file.file_path), root): task for task in found}

    def table(self) -> IcebergTable:
        if self._catalog.table_exists(self._identifier):
            found: IcebergTable = self._catalog.load_table(self._identifier)
            self._check_place(found)
            if not found.spec().fields and found.current_snapshot() is None:
                _partition(found)  # whoever has made it was killed before this
            return found
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        made: IcebergTable = self._catalog.create_table(
            self._identifier, self._schema, location=self._location
        )
        _partition(made)
        return made

    def check(self) -> None:
        """Raises PipelineError if the catalog does not answer, or has the table of somebody else."""
        try:
            exists = self._catalog.table_exists(self._identifier)
        except Exception as error:
            # Each kind of catalog has errors of its own.
            raise PipelineError(f"the Iceberg catalog {self._catalog.name} cannot be used: {error}") from None
        if exists:
            self._check_place(self._catalog.load_table(self._identifier))

    @property
    def _location(self) -> str:
        return f"file://{self._lake.location}" if self._lake.is_local else self._lake.location.rstrip("/")

    def _check_place(self, table: IcebergTable) -> None:
        if _without_scheme(table.location()) != _without_scheme(self._location):
            raise PipelineError(
                f"the table {'.'.join(self._identifier)} of catalog {self._catalog.name} lies in"
                f" {table.location()}, not in {self._lake.location}: name another one with --table"
            )

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that files will have from now on. Can be repeated."""
        self._schema = schema
        with self.table().update_schema() as update:
            update.union_by_name(schema)


def _partition(table: IcebergTable) -> None:
    from pyiceberg.transforms import HourTransform

    with table.update_spec() as update:
        update.add_field("timestamp", HourTransform(), "hour")


def _without_scheme(location: str) -> str:
    return location.rpartition("://")[2].rstrip("/")
