"""A task reads a range of offsets of one partition, as Arrow batches.

It reads from the leader, or from a replica in its own rack if the leader names one. A replica that does not
answer, or does not have an offset yet, is left for the leader until the end of the range. What is in an
object store is read from there.

Memory holds one answer and a few megabytes of rows, however long the range is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

import pyarrow as pa

from forebay.lazy import dataclass
from forebay.spark.source.data_loss import data_loss
from forebay.spark.source.decode import ALL_ROWS, Decoder, Rows
from forebay.spark.source.fetches import Fetches
from forebay.spark.source.offset_ranges import OffsetRange, RangeGroup, joined, split
from forebay.spark.source.options import JOINED_TASKS, Fetching, ReadOptions
from forebay.spark.source.remote.access import unreachable
from forebay.spark.source.remote.planning import RemotePlan, RemoteRange
from forebay.spark.source.remote.segments import SegmentPieces
from forebay.spark.source.remote_options import ONLY
from forebay.spark.worker import freeze_loaded_objects
from forebay.tiers.object_store import ObjectStoreError

Task: TypeAlias = OffsetRange | RangeGroup | RemoteRange


def tasks_of(
    ranges: Iterable[OffsetRange], options: ReadOptions, remote: RemotePlan | None = None
) -> list[Task]:
    """Ranges as tasks: large ones cut, and many small ones joined, as the options say.

    With a plan, tasks have the segments that they can read from an object store.
    """
    found = split(ranges, tasks_min=options.tasks_min, records_max=options.records_per_task_max)
    tasks = joined(found, more_than=JOINED_TASKS, records_min=options.records_per_task_min)
    chosen = tasks if len(tasks) >= options.tasks_min else list(found)
    return list(chosen) if remote is None else [remote.attached(task) for task in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the tasks of a query read: everything that a worker needs, besides its range."""

    fetching: Fetching
    schema: pa.Schema
    rows: Rows = ALL_ROWS
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The topics that were planned with: one that was made anew since is another, under the same name."""

    def read(self, wanted: Task) -> Iterator[pa.RecordBatch]:
        freeze_loaded_objects()
        for part in wanted.ranges if isinstance(wanted, RangeGroup) else (wanted,):
            if isinstance(part, RemoteRange):
                yield from self._read_remote(part)
            elif self.fetching.remote.read == ONLY:
                yield from self._marked([self._lost_remote(part, part.start, part.end)], part)
            else:
                yield from self._read(part)

    def _read_remote(self, part: RemoteRange) -> Iterator[pa.RecordBatch]:
        """Read from there what is in segments, and from the brokers what lies before and behind them."""
        wanted, options = part.range, self.fetching.remote
        lost: list[tuple[int, int]] = []

        def lose(first: int, until: int) -> None:
            lost.append(self._lost_remote(wanted, first, until))

        pieces = SegmentPieces(self.fetching, part, lose if options.read == ONLY else None)
        if wanted.start < pieces.offset:
            before = wanted._replace(end=min(wanted.end, pieces.offset))
            if options.read == ONLY:
                lose(before.start, before.end)
            else:
                yield from self._read(before)
        try:
            for data, piece, mine in pieces.pieces():
                decoder = Decoder(self.schema, mine, self.rows, mark_unreadable=self.fetching.mark_unreadable)
                yield from decoder.decode(data, piece)
        except ObjectStoreError as error:
            unreachable(options, error)
        if pieces.offset < wanted.end:
            if options.read == ONLY:
                raise ObjectStoreError(
                    f"offsets {pieces.offset} to {wanted.end - 1} of {wanted.at} are not remote"
                )
            yield from self._read(wanted._replace(start=max(wanted.start, pieces.offset)))
        yield from self._marked(lost, wanted)

    def _lost_remote(self, wanted: OffsetRange, first: int, until: int) -> tuple[int, int]:
        """Offsets that were deleted from the object store, where nothing else is read."""
        offsets = f"offsets {first} to {until - 1} of {wanted.at}"
        data_loss(self.fetching, f"{offsets} are gone: they are not in the object store any more")
        return first, until - first

    def _marked(self, lost: Iterable[tuple[int, int]], wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        if self.fetching.mark_lost:
            decoder = Decoder(self.schema, wanted, self.rows)
            yield from (decoder.lost(*stretch) for stretch in lost)

    def _read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        fetches = Fetches(self.fetching, wanted, self.topic_ids.get(wanted.at.topic, ""))
        decoder = Decoder(self.schema, wanted, self.rows, mark_unreadable=self.fetching.mark_unreadable)
        try:
            while (fetched := fetches.next_piece()) is not None:
                data, piece = fetched
                yield from decoder.decode(data, piece)
            yield from self._marked(fetches.lost, wanted)
        finally:
            fetches.abandon()
