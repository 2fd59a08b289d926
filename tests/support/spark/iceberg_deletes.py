"""Deletes rows of an Iceberg table as engines do that leave data files as they are: by a file of positions.

pyiceberg reads such files, and does not write them.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import _FastAppendFiles

_PATH, _POSITION = 2147483546, 2147483545
"""The numbers that Iceberg has for these columns."""


def delete_row(table: Table, path: str, position: int) -> None:
    """One row of a file, whose path is as the table has it."""
    (of,) = (task.file for task in table.scan().plan_files() if task.file.file_path == path)
    noted = Path(path.removeprefix("file://")).with_name(f"deletes-{uuid.uuid4().hex}.parquet")
    kinds = (("file_path", pa.string(), _PATH), ("pos", pa.int64(), _POSITION))
    schema = pa.schema(
        [
            pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
            for name, kind, number in kinds
        ]
    )
    pq.write_table(pa.table({"file_path": [path], "pos": [position]}, schema=schema), noted)
    bounds = {_PATH: path.encode()}
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{noted}",
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        record_count=1,
        file_size_in_bytes=noted.stat().st_size,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    deletes.spec_id = table.spec().spec_id
    with table.transaction() as change, change.update_snapshot().fast_append() as update:
        update.__class__ = _AppendDeletes
        update.append_data_file(deletes)


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(_FastAppendFiles):
    """Its manifest is one of deletions."""

    def new_manifest_writer(self, spec: Any) -> _DeletesWriter:
        schema = self._transaction.table_metadata.schema()
        return _DeletesWriter(spec, schema, self.new_manifest_output(), self._snapshot_id, self._compression)
