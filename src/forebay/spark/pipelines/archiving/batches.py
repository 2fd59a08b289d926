"""Each batch of an archive, on the driver: its files, its dead letters, its table, and that it counts."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay.spark.pipelines.archiving import hour_files
from forebay.spark.pipelines.archiving.decoded import DecodeSettings, decoding, evolved, file_schema
from forebay.spark.pipelines.archiving.hour_files import Written
from forebay.spark.pipelines.archiving.layout import NEXT_POSITION, POSITION, Position, read_position
from forebay.spark.pipelines.archiving.letters import NOTE, Letters, Note
from forebay.spark.pipelines.archiving.tables.table import Table
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"
LOOK_S = 10.0
"""A schema that has changed is found after this time, at most, or with the next batch."""
log = logging.getLogger(__name__)


class BatchWriter:
    """Spark calls it with each batch, on the driver."""

    def __init__(
        self,
        lake: Lake,
        table: Table,
        position: Position,
        decode: DecodeSettings | None = None,
        letters: Letters | None = None,
    ) -> None:
        self._lake = lake
        self._table = table
        self._position = position
        self._decode = decode
        self._letters = letters
        self._column = decoding(position, decode)
        self._rows = 0
        self._files = 0
        self._bytes = 0
        self._misfits = 0
        self._look_again_s = 0.0
        self._added: list[str] = []
        self._kept_types: Sequence[str] = ()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query is not None, "Spark names the query of every batch"
        if self._position.counts(query, batch_id):
            return
        self._check_checkpoint(query, batch_id)
        if self._table.holds(query, batch_id):
            raise PipelineError(
                f"the table in {self._lake.location} has batch {batch_id}, and {POSITION} does not count it:"
                f" was {POSITION} put back to an earlier state?"
            )
        self._follow_schema()
        written = hour_files.write(batch, self._lake, query, batch_id, self._column)
        self._check_forward(written)
        note = self._note(query, batch_id, written)
        self._announce(query, batch_id, written, note)
        if note is not None and self._letters is not None and self._column is not None:
            self._letters.write(batch.sparkSession, self._lake, note, self._column)
        self._table.add(written, query, batch_id)
        self._finish()
        self._count(written)

    def facts(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {
            "rows": self._rows,
            "files": self._files,
            "bytes": self._bytes,
            "archive": self._lake.location,
        }
        if self._column is not None:
            facts["misfits" if self._letters is None else "dead letters"] = self._misfits
        if self._added:
            facts["new fields"] = ", ".join(self._added)
        if self._kept_types:
            facts["types not followed"] = ", ".join(self._kept_types)
        return facts

    def _follow_schema(self) -> None:
        """New fields become columns before the first file that has them."""
        now_s = time.monotonic()
        if self._column is None or now_s < self._look_again_s:
            return
        self._look_again_s = now_s + LOOK_S
        found = evolved(self._position, self._decode)
        if found.position is self._position:
            return
        if found.kept:
            log.warning(
                "%s keeps the types that its fields have: %s", self._lake.location, ", ".join(found.kept)
            )
        before, after = file_schema(self._position), file_schema(found.position)
        if after != before:
            self._table.evolve(after)
        self._position = found.position
        self._column = decoding(self._position, self._decode)
        self._added += found.added
        self._kept_types = found.kept

    def _check_checkpoint(self, query: str, batch_id: int) -> None:
        """Batches have to follow each other: a hole means that the checkpoint is not of this archive."""
        if batch_id != self._position.batches.get(query, -1) + 1:
            raise PipelineError(
                f"the checkpoint does not belong to {self._lake.location}, which has no batch {batch_id - 1}"
                f" of its query: remove the checkpoint, and the archive goes on from its own position"
            )

    def _check_forward(self, written: list[Written]) -> None:
        """Offsets that the archive has passed are those of another topic of the same name, or of another
        history of the topic.

        A stream that passes over lost data goes on with either.
        """
        known = self._position.next_offsets
        for file in written:
            if file.first_offset is not None and file.first_offset < known.get(str(file.partition), 0):
                raise PipelineError(
                    f"the topic {self._position.topic} was deleted and made anew, or has lost its last"
                    f" messages, while it was archived to {self._lake.location}: go on in a directory of"
                    " its own"
                )

    def _note(self, query: str, batch_id: int, written: list[Written]) -> Note | None:
        """Of the dead letters of a batch; None if there are none to write."""
        if self._letters is None or not any(file.misfits for file in written):
            return None
        return Note(topic=self._letters.topic, query=query, batch=batch_id, files=written)

    def _announce(self, query: str, batch_id: int, written: list[Written], note: Note | None) -> None:
        """Keep the next position beside the present one: letters and the table are written in between."""
        last_offsets: dict[int, int] = {}
        for file in written:
            last_offsets[file.partition] = max(last_offsets.get(file.partition, -1), file.last_offset)
        partitions = max([self._position.partitions, *(at + 1 for at in last_offsets)])
        after = self._position.after(query, batch_id, last_offsets, partitions)
        if note is not None:
            self._lake.write(NOTE, note.to_json())
        self._lake.write(NEXT_POSITION, after.to_json())

    def _finish(self) -> None:
        self._lake.move(NEXT_POSITION, POSITION)
        position = read_position(self._lake)
        assert position is not None
        self._position = position

    def _count(self, written: list[Written]) -> None:
        sizes = {file.path: file.bytes for file in written}
        self._rows += sum(file.rows for file in written)
        self._misfits += sum(file.misfits for file in written)
        self._files += len(sizes)
        self._bytes += sum(sizes.values())
