"""Dead letters of an archive: values that do not fit their schema, in a topic, exactly once.

Files and a topic have no transaction in common. So the letters of a batch are written under its number, in
one transaction, between two steps of the archive:

 1. The tasks have written the files. A note names them (NOTE), and next.json is the position after the batch.
 2. The letters are committed. From here on the batch has happened.
 3. The files are added to the table, if the archive is one, and next.json becomes position.json.

A crash before the second step leaves nothing that counts: the batch is written again. After it, the next
start finishes the third step by the note, whether Spark's checkpoint is still there or not. So a value has
its letter if and only if its row is in the archive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forebay.lazy import dataclass
from forebay.spark.arrow.schema import spark_schema
from forebay.spark.dead_letters import dead_letters
from forebay.spark.pipelines.archiving.decoded import DecodedColumn, decoded_values
from forebay.spark.pipelines.archiving.hour_files import Written, without_null_arrays
from forebay.spark.pipelines.archiving.layout import FIELDS, SCHEMA
from forebay.spark.pipelines.brokers import SOURCE, Brokers
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import OWN, Lake
from forebay.spark.sink.transactions import stream_names
from forebay.spark.sink.transactions.batch_decisions import Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = f"{OWN}/dead-letters.json"
_REASON = "_forebay_reason"
_SINCE_THEN = "its schema became known since then"
TASKS_MAX = 32
_SCHEMA = SCHEMA.append(pa.field(_REASON, pa.string()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A batch whose letters are about to be written."""

    topic: str
    """Where they go."""
    query: str
    batch: int
    files: Sequence[Written]

    def to_json(self) -> bytes:
        files = [asdict(file) for file in self.files]
        values = {"topic": self.topic, "query": self.query, "batch": self.batch, "files": files}
        return json.dumps(values).encode()


def read_note(lake: Lake) -> Note | None:
    content = lake.read(NOTE)
    if content is None:
        return None
    values = json.loads(content)
    return Note(**{**values, "files": [Written(**file) for file in values["files"]]})


class Letters:
    """Writes the letters of an archive's batches."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self._brokers = brokers
        self.topic = topic

    def check(self, archived: str) -> None:
        """Raises an error if letters cannot go there."""
        if self.topic == archived:
            raise PipelineError("dead letters need a topic other than the one that is archived")
        self._brokers.partitions(self.topic)

    def write(self, spark: SparkSession, lake: Lake, note: Note, column: DecodedColumn) -> None:
        """Returns when they are committed, now or in an earlier attempt.

        They are made of the files of the batch: of exactly the rows that have no fields there.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        paths = sorted({file.path for file in note.files if file.misfits})
        fields = [*spark_schema(headers=True).fields, StructField(_REASON, StringType())]
        numbers = spark.range(0, len(paths), 1, min(len(paths), TASKS_MAX))
        found = numbers.mapInArrow(_misfits(lake.location, paths, column), StructType(fields))
        options = {**self._brokers.writing(self.topic), "delivery": "exactly-once"}
        named = {"streamId": note.query, "batchId": str(note.batch)}
        letters = dead_letters(found, F.col(_REASON)).withColumn("headers", without_null_arrays("headers"))
        letters.write.format(SOURCE).options(**options, **named).mode("append").save()


def are_written(brokers: Brokers, note: Note) -> bool:
    """True if the letters of a batch are committed. No attempt that is under way can commit them later."""
    cluster = brokers.cluster()
    name = stream_names.name_of(cluster, note.query, note.topic)
    decision = Ledger(cluster, name).settled()
    return decision is not None and decision.batch_id >= note.batch


def _misfits(
    location: str, paths: Sequence[str], column: DecodedColumn
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For a task that is given numbers of files: their rows without fields, each with the reason."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lake = Lake(location)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in _rows_without_fields(lake, paths[number]):
                    _, reasons = decoded_values(column, rows.column("value"))
                    said = [f"the value does not fit its schema: {each or _SINCE_THEN}" for each in reasons]
                    told = rows.append_column(_REASON, pa.array(said, pa.string()))
                    yield from told.cast(_SCHEMA).to_batches()

    return run


def _rows_without_fields(lake: Lake, path: str) -> Iterator[pa.Table]:
    with lake.files.open_input_file(lake.path(path)) as stream:
        file = pq.ParquetFile(stream)
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, [*SCHEMA.names, FIELDS]).select([*SCHEMA.names, FIELDS])
            wrong = pc.and_(pc.is_valid(rows.column("value")), pc.is_null(rows.column(FIELDS)))
            found = rows.filter(wrong).drop_columns([FIELDS])
            if found.num_rows:
                yield found
