"""How an archive lies in its directory, and what in it counts.

    date=2026-11-15/hour=06/<query>-<batch>-<task>.parquet       what one task wrote of one batch; -1, -2 ...
                                                                 behind the task where an hour is large
    date=2026-11-15/hour=06/compacted-<digest>.parquet           many of those, merged
    _forebay/position.json                                       which batches count, and where to go on
    _forebay/checkpoint/                                         Spark's
    _forebay/compaction/                                         merges under way (see compact.py)
    _forebay/scratch/                                            files that tasks have not reported yet

Any reader of Parquet can read the data: names that begin with an underscore are passed over, and the folders
are the partition columns `date` and `hour` (of the message's timestamp, in UTC). Both are null for hours
before the year 1 and after 9999, which no date can show: these messages are in one folder (UNKNOWN_HOUR).

A batch counts once position.json says so. Until then some of its files may exist: the next writer removes
them first, and the batch is written again. So a message is in the archive once, whichever process is killed.
A reader by directory may see a part of the newest batch before the rest, never a message twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from forebay.lazy import dataclass
from forebay.spark.pipelines.lake import OWN, File, Lake, LakeError

POSITION = f"{OWN}/position.json"
NEXT_POSITION = f"{OWN}/next.json"
CHECKPOINT = f"{OWN}/checkpoint"
UNKNOWN_HOUR = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
"""As Hive, Spark and others name the folder of a null."""
PARQUET, ICEBERG, DELTA = FORMATS = ("parquet", "iceberg", "delta")
VERSION = 1

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of the source, as they are."""
FIELDS = "fields"
"""A column more, in archives that decode their values."""

_FOLDER = re.compile(r"date=(\d{1,4})-(\d\d)-(\d\d)/hour=(\d\d)/")
"""Earlier versions wrote years before 1000 with fewer digits."""
_BATCH_FILE = re.compile(r"(?P<query>[0-9a-f-]{36})-(?P<batch>\d{10})-(?P<task>\d{5})(-\d+)?\.parquet")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPACTED_FILE = re.compile(r"compacted-[0-9a-f]{16}\.parquet")
HOURS = (
    (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(hours=1),
    (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(hours=1),
)
"""The first and the last hour since 1970 that a date can show."""


def hour_folder(hour_start_us: int) -> str:
    try:
        start = _EPOCH + timedelta(microseconds=hour_start_us)
    except OverflowError:
        return UNKNOWN_HOUR
    return f"date={start.date().isoformat()}/hour={start.hour:02}"


def batch_file(query: str, batch: int, task: int) -> str:
    return f"{query}-{batch:010d}-{task:05d}.parquet"


def hour_of(path: str) -> datetime | None:
    """The hour that a data file belongs to; None where the folder does not say."""
    folder = _FOLDER.search(path)
    if folder is None:
        return None
    year, month, day, hour = map(int, folder.groups())
    return datetime(year, month, day, hour, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far an archive has come."""

    topic: str
    format: str = PARQUET
    topic_id: str | None = None
    """Of the topic when the archive was made; None in archives of earlier versions."""
    partitions: int
    """How many the topic had: a replay keeps partition numbers when its target has as many."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last batch that counts, of each query. There is a second query when a checkpoint was lost."""
    next_offsets: Mapping[str, int] = field(default_factory=dict)
    """By partition, where a query without a checkpoint has to begin."""
    decoded: Mapping[str, Any] | None = None
    """How the column FIELDS is made of the values (decoded.py); None where there is none."""
    columns: str | None = None
    """The column FIELDS itself, since its schema has changed (an Arrow schema in base64)."""
    catalog: Mapping[str, Any] | None = None
    """Of an Iceberg table in a catalog that is no file in the archive (tables/catalogs.py)."""

    def counts(self, query: str, batch: int) -> bool:
        return batch <= self.batches.get(query, -1)

    def after(self, query: str, batch: int, last_offsets: Mapping[int, int], partitions: int) -> Position:
        offsets = {str(partition): offset + 1 for partition, offset in sorted(last_offsets.items())}
        return replace(
            self,
            partitions=partitions,
            batches={**self.batches, query: batch},
            next_offsets={**self.next_offsets, **offsets},
        )

    def to_json(self) -> bytes:
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({"version": VERSION, **values}, indent=2).encode()


def read_position(lake: Lake, path: str = POSITION) -> Position | None:
    content = lake.read(path)
    if content is None:
        return None
    try:
        values = json.loads(content)
        if values.pop("version") != VERSION:
            raise ValueError("it is of another version of Forebay")
        return Position(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise LakeError(f"{lake.uri(path)} cannot be understood: {error}") from None


def require_position(lake: Lake) -> Position:
    position = read_position(lake)
    if position is None:
        raise LakeError(
            f"{lake.location} is no archive: `forebay pipeline archive TOPIC --to {lake.location}` makes one"
        )
    return position


def data_files(files: Iterable[File], position: Position) -> list[File]:
    """The files that count."""
    return [file for file in files if _is_merged(file.path) or _batch_counts(file.path, position)]


def leftovers(files: Iterable[File], position: Position) -> list[File]:
    """Files of batches that were never finished, wherever they are."""
    return [file for file in files if _batch_counts(file.path, position) is False]


def _is_merged(path: str) -> bool:
    return _COMPACTED_FILE.fullmatch(_name(path)) is not None


def _batch_counts(path: str, position: Position) -> bool | None:
    """True if the batch counts that a file belongs to; None for the file of no batch."""
    batch = _BATCH_FILE.fullmatch(_name(path))
    return None if batch is None else position.counts(batch["query"], int(batch["batch"]))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
