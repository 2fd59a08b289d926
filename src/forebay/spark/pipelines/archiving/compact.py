"""Many small files of an hour into few large ones, while others read and write the archive.

Only hours that have closed are touched, and of those only files that count. A merge is:

 1. A task writes the merged file under _forebay/compaction, where readers do not look.
 2. The driver writes a note beside it that names the files that it replaces. From here on the merge has
    happened.
 3. The small files are deleted.
 4. The merged file is renamed into its hour, and the note is deleted.

A task may run twice, one after the other or at the same time: each attempt writes a file of its own and
deletes nothing. Only the file that the driver was told of gets a note.

After a crash the next run finishes a merge that has its note, and removes one that has none. Our own readers
(`archive_files`) know the notes, and hold a lock that keeps merges away: they see each message once. A reader
by directory may miss messages of that one hour between steps 3 and 4, and never sees one twice. For more,
use Delta, whose own compaction is called here, or Iceberg: there a merge is one atomic change of the table.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving.evolution import widened
from forebay.spark.pipelines.archiving.hour_files import HOUR_US, write_rows
from forebay.spark.pipelines.archiving.layout import (
    DELTA,
    FIELDS,
    ICEBERG,
    SCHEMA,
    UNKNOWN_HOUR,
    Position,
    data_files,
    hour_of,
    require_position,
)
from forebay.spark.pipelines.archiving.tables.delta import Delta
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.archiving.tables.table import open_iceberg
from forebay.spark.pipelines.jobs import Summary
from forebay.spark.pipelines.lake import OWN, File, Lake, LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK = "compaction"
NOTES = f"{OWN}/compaction"
TARGET_BYTES = 256 << 20
GRACE_S = 600
"""An hour counts as closed this long after its end. Messages that come later do no harm."""
ROUND_MERGES = 256
"""Merges whose small files stay until the last of them is written."""
_FINISHED_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files of one hour that become one."""

    inputs: tuple[str, ...]
    target: str
    staged: str | None = None
    """The merged file of the attempt that succeeded; None in notes of earlier versions."""

    @property
    def digest(self) -> str:
        return posixpath.basename(self.target).removeprefix("compacted-").removesuffix(".parquet")

    @property
    def merged(self) -> str:
        return self.staged or f"{NOTES}/{self.digest}.parquet"

    @property
    def has_times(self) -> bool:
        """False for messages whose times no date can show."""
        return posixpath.dirname(self.target) != UNKNOWN_HOUR

    @property
    def note(self) -> str:
        return f"{NOTES}/{self.digest}.json"

    def to_json(self) -> bytes:
        values = {"inputs": self.inputs, "target": self.target, "merged": self.merged}
        return json.dumps(values, indent=2).encode()


def compact(spark: SparkSession, archive: str, *, target_bytes: int = TARGET_BYTES) -> Summary:
    """Merge what can be merged now."""
    started_s = time.monotonic()
    lake = Lake(archive)
    position = require_position(lake)
    with lake.lock(LOCK):
        if position.format == DELTA:
            facts = Delta(lake).compact(target_bytes)
        elif position.format == ICEBERG:
            facts = _compact_table(spark, lake, open_iceberg(lake, position), target_bytes)
        else:
            facts = _compact_files(spark, lake, position, target_bytes)
    seconds = round(time.monotonic() - started_s, 1)
    return Summary(title=f"compaction of {lake.location}", facts={**facts, "seconds": seconds})


def _compact_files(spark: SparkSession, lake: Lake, position: Position, target_bytes: int) -> dict[str, Any]:
    finish_merges(lake)
    files = data_files(lake.list(), position)
    merges = plan(files, target_bytes, time.time())
    for start in range(0, len(merges), ROUND_MERGES):
        staged = _on_executors(spark, lake, merges[start : start + ROUND_MERGES], stage)
        with ThreadPoolExecutor(_FINISHED_AT_ONCE) as threads:
            list(threads.map(lambda merge: conclude(lake, merge), staged))
    return _facts(lake, files, merges)


def _compact_table(spark: SparkSession, lake: Lake, table: Iceberg, target_bytes: int) -> dict[str, Any]:
    """No notes are needed: a merge has happened when the table says so."""
    _clear(lake)
    files = sorted(table.files(), key=lambda file: file.path)
    merges = plan(files, target_bytes, time.time())
    staged = _on_executors(spark, lake, merges, stage)
    if merges:
        lake.move_all((merge.merged, merge.target) for merge in staged)
        inputs = [path for merge in merges for path in merge.inputs]
        table.replace(inputs, [merge.target for merge in merges])
    return _facts(lake, files, merges)


def _on_executors(
    spark: SparkSession, lake: Lake, merges: Sequence[Merge], work: Callable[[Lake, Merge], Merge]
) -> list[Merge]:
    location = lake.location
    if not merges:
        return []
    slices = min(len(merges), ROUND_MERGES)
    tasks = spark.sparkContext.parallelize(merges, slices)
    return tasks.map(lambda merge: work(Lake(location), merge)).collect()


def _facts(lake: Lake, files: Iterable[File], merges: Sequence[Merge]) -> dict[str, Any]:
    sizes = {file.path: file.size for file in files}
    targets = {merge.target for merge in merges}
    return {
        "merged files": sum(len(merge.inputs) for merge in merges),
        "new files": len(merges),
        "bytes before": sum(sizes[path] for merge in merges for path in merge.inputs),
        "bytes after": sum(file.size for file in lake.list() if file.path in targets),
    }


def plan(files: Iterable[File], target_bytes: int, now_s: float) -> list[Merge]:
    """The merges to make: neighbouring files of a closed hour, up to `target_bytes` in one merge."""
    merges = []
    for folder, below in groupby(files, key=lambda file: posixpath.dirname(file.path)):
        if not _is_closed(folder, now_s):
            continue
        for group in _groups([file for file in below if file.size < target_bytes], target_bytes):
            inputs = tuple(file.path for file in group)
            digest = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
            merges.append(Merge(inputs=inputs, target=f"{folder}/compacted-{digest}.parquet"))
    return merges


def _is_closed(folder: str, now_s: float) -> bool:
    """Messages of no hour have no time to wait for."""
    hour = hour_of(f"{folder}/")
    if hour is None:
        return folder == UNKNOWN_HOUR
    return hour.timestamp() + HOUR_US / 1_000_000 + GRACE_S <= now_s


def _groups(files: Sequence[File], target_bytes: int) -> Iterator[list[File]]:
    group: list[File] = []
    for file in files:
        if group and sum(member.size for member in group) + file.size > target_bytes:
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) > 1:
        yield group


def stage(lake: Lake, merge: Merge) -> Merge:
    """Step 1, in a task. The merge with the file that this attempt has written."""
    staged = f"{NOTES}/{merge.digest}-{uuid.uuid4().hex}.parquet"
    with lake.create(staged) as stream:
        write_rows(stream, _rows(lake, merge.inputs), with_times=merge.has_times)
    return replace(merge, staged=staged)


def conclude(lake: Lake, merge: Merge) -> None:
    """Steps 2 to 4, on the driver."""
    lake.write(merge.note, merge.to_json())
    finish(lake, merge)


def _rows(lake: Lake, paths: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of files, with the columns that an archive has, without those that readers make of folders."""
    schema = _common_schema(lake, paths)
    for path in paths:
        with lake.files.open_input_file(lake.path(path)) as stream:
            file = pq.ParquetFile(stream)
            for number in range(file.num_row_groups):
                yield file.read_row_group(number).select(schema.names).cast(schema)


def _common_schema(lake: Lake, paths: Sequence[str]) -> pa.Schema:
    """Later files may have more fields than earlier ones (evolution.py)."""
    fields: pa.DataType | None = None
    for path in paths:
        with lake.files.open_input_file(lake.path(path)) as stream:
            found = pq.read_schema(stream)
        if FIELDS not in found.names:
            return SCHEMA
        kind = found.field(FIELDS).type
        fields = kind if fields is None else widened(fields, kind, promotes=True).kind
    return SCHEMA if fields is None else SCHEMA.append(pa.field(FIELDS, fields))


def finish(lake: Lake, merge: Merge) -> None:
    """Steps 3 and 4. Can be repeated after a crash."""
    is_staged = lake.exists(merge.merged)
    if not is_staged and not lake.exists(merge.target):
        raise LakeError(
            f"{lake.uri(merge.note)} names a merged file that is gone: the files that it replaced are kept;"
            " remove the note, and merge again"
        )
    for path in merge.inputs:
        lake.delete(path)
    if is_staged:
        lake.move(merge.merged, merge.target)
    lake.delete(merge.note)


def finish_merges(lake: Lake) -> None:
    """Finish the merges that have a note, and remove the files of all others. Needs the lock."""
    for merge in notes(lake):
        finish(lake, merge)
    _clear(lake)


def _clear(lake: Lake) -> None:
    for file in lake.list(NOTES):
        lake.delete(file.path)


def notes(lake: Lake) -> list[Merge]:
    found = []
    for file in lake.list(NOTES):
        content = lake.read(file.path) if file.path.endswith(".json") else None
        if content is not None:
            values = json.loads(content)
            found.append(
                Merge(inputs=tuple(values["inputs"]), target=values["target"], staged=values.get("merged"))
            )
    return found


def archive_files(lake: Lake, position: Position) -> list[str]:
    """The files that hold each message of the archive once. Hold the lock, shared, while reading them."""
    if position.format == DELTA:
        return Delta(lake).paths()
    if position.format == ICEBERG:
        return open_iceberg(lake, position).paths()
    merges = notes(lake)
    replaced = {path for merge in merges for path in merge.inputs} | {merge.target for merge in merges}
    present = [file.path for file in data_files(lake.list(), position) if file.path not in replaced]
    return present + [_where(lake, merge) for merge in merges]


def _where(lake: Lake, merge: Merge) -> str:
    return merge.merged if lake.exists(merge.merged) else merge.target
