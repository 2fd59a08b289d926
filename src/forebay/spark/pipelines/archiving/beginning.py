"""How an archive begins, and goes on after a crash: with nothing left of batches that do not count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from forebay.spark.pipelines.archiving.decoded import DecodeSettings, looked_up
from forebay.spark.pipelines.archiving.layout import (
    ICEBERG,
    NEXT_POSITION,
    PARQUET,
    POSITION,
    Position,
    leftovers,
    read_position,
)
from forebay.spark.pipelines.archiving.letters import Note, read_note
from forebay.spark.pipelines.archiving.tables.catalogs import CatalogSettings
from forebay.spark.pipelines.archiving.tables.table import open_table
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import Lake

LettersWritten = Callable[[Note], bool]
"""Tells if the dead letters of a batch are committed."""


def begin(
    lake: Lake,
    topic: str,
    format: str,
    partitions: int,
    decode: DecodeSettings | None = None,
    *,
    topic_id: str = "",
    catalog: CatalogSettings | None = None,
    letters_written: LettersWritten = lambda _note: False,
) -> Position:
    """The archive's position, with nothing left of batches that do not count."""
    position = read_position(lake)
    if position is None:
        position = Position(
            topic=topic,
            topic_id=topic_id or None,
            format=format,
            partitions=partitions,
            decoded=None if decode is None else looked_up(decode, topic),
            catalog=None if catalog is None else catalog.to_keep(),
        )
        lake.write(POSITION, position.to_json())
    check_same(lake, position, topic, format, decode, catalog)
    check_not_made_anew(lake, position, topic_id)
    lake.clear_scratch()
    position = _with_what_has_happened(lake, position, catalog, letters_written)
    if format == PARQUET:  # a table does not know files that were never added
        for file in leftovers(lake.list(), position):
            lake.delete(file.path)
    return replace(
        position,
        topic_id=position.topic_id or topic_id or None,
        partitions=max(position.partitions, partitions),
    )


def check_same(
    lake: Lake,
    position: Position,
    topic: str,
    format: str,
    decode: DecodeSettings | None = None,
    catalog: CatalogSettings | None = None,
) -> None:
    if position.topic != topic or position.format != format:
        raise PipelineError(
            f"{lake.location} is an archive of topic {position.topic} as {position.format}:"
            f" give each topic and format a directory of its own"
        )
    kept = None if position.decoded is None else position.decoded["format"]
    if decode is not None and decode.format != kept:
        made = "without decoded values" if kept is None else f"with values decoded as {kept}"
        raise PipelineError(
            f"{lake.location} was made {made}: give a directory of its own, or leave out --decode"
        )
    _check_same_catalog(lake, position, catalog)


def _check_same_catalog(lake: Lake, position: Position, catalog: CatalogSettings | None) -> None:
    if catalog is None:
        return
    if position.format != ICEBERG:
        raise PipelineError(
            f"a catalog is for Iceberg tables: leave out --catalog, or add --format {ICEBERG}"
        )
    known = position.catalog or {"name": None, "table": None}
    if known["name"] != catalog.name or catalog.table not in (None, known["table"]):
        where = "in a file of its own" if known["name"] is None else f"in catalog {known['name']}"
        table = known["table"] or f"archive.{position.topic}"
        raise PipelineError(
            f"{lake.location} has its table {where}, as {table}: leave out --catalog and --table, or give a"
            " directory of its own"
        )


def check_not_made_anew(lake: Lake, position: Position, topic_id: str) -> None:
    """The offsets of a topic that was made anew begin at 0 again: going on would skip its first messages, and
    two messages would have the same offset in one archive."""
    if position.topic_id is not None and topic_id not in ("", position.topic_id):
        raise PipelineError(
            f"{lake.location} is an archive of a topic {position.topic} that was deleted and made anew since"
            f" (id {position.topic_id}, now {topic_id}): give the new topic a directory of its own"
        )


def _with_what_has_happened(
    lake: Lake, position: Position, catalog: CatalogSettings | None, letters_written: LettersWritten
) -> Position:
    """Count the batch that was added to the table, or whose letters were written, before a crash.

    Now, not when Spark repeats the batch: if the checkpoint is lost too, Spark reads its messages again, as
    part of another batch.
    """
    announced = read_position(lake, NEXT_POSITION)
    if announced is None:
        return position
    batches = [each for each in announced.batches.items() if not position.counts(*each)]
    if not batches:
        return position
    table = open_table(lake, announced, catalog)
    is_held = all(table.holds(*each) for each in batches)
    if not is_held:
        note = read_note(lake)
        if note is None or batches != [(note.query, note.batch)] or not letters_written(note):
            return position
        table.add(note.files, note.query, note.batch)
    lake.move(NEXT_POSITION, POSITION)
    return announced
