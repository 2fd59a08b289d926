"""Reads ranges of offsets from segments in an object store: range reads of a few megabytes, one ahead.

The bytes are those of the broker's log, so that they are selected and decoded as those of a fetch are. A
chunk is compared with its checksum when it is read. Of an object only the offsets count that its manifest
names: it may hold more, of a history that was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from forebay.spark.source.offset_ranges import OffsetRange
from forebay.spark.source.options import Fetching
from forebay.spark.source.record_batches import Piece, select
from forebay.spark.source.remote.planning import RemoteRange, segments_of
from forebay.spark.source.remote_options import ONLY
from forebay.tiers.object_store import Missing, ObjectStore, ObjectStoreError
from forebay.tiers.reading import read_chunks, read_index, read_manifest
from forebay.wire.messages.fetch import AbortedTransaction
from forebay.wire.tiers.layout import segment_name
from forebay.wire.tiers.manifest import RemoteSegment
from forebay.wire.tiers.segment_object import Chunk, SegmentIndex, chunk_at

_LOOKS_MAX = 3
"""How often a manifest is read again because an object that it named is gone."""


class SegmentPiece(NamedTuple):
    data: memoryview
    piece: Piece
    of: OffsetRange
    """The offsets that count, of those in the data."""


class SegmentPieces:
    """The pieces of one range, from its first remote offset on. `offset` is where to go on.

    `lose` is called for offsets that were deleted since the range was planned: the first, and the first that
    is left. Without it they are for the brokers to judge.
    """

    def __init__(
        self, fetching: Fetching, task: RemoteRange, lose: Callable[[int, int], None] | None = None
    ) -> None:
        self._lose = lose
        self._fetching = fetching
        self._task = task
        self._wanted = task.range
        self._segments = task.segments
        self.offset = max(self._wanted.start, task.first_offset)

    def pieces(self) -> Iterator[SegmentPiece]:
        """Until the end of the segments. Raises ObjectStoreError where they cannot be read on."""
        store = self._fetching.remote.open(self._task.url)
        looks = 0
        while self.offset < self._wanted.end:
            segment = next((each for each in self._segments if each.next_offset > self.offset), None)
            if segment is None or segment.base_offset > self.offset:
                return
            try:
                yield from self._of_segment(store, segment)
            except Missing:
                # It was deleted, or replaced by another, since the manifest was read.
                looks += 1
                if looks > _LOOKS_MAX or not self._look_again(store, segment):
                    raise

    def _look_again(self, store: ObjectStore, gone: RemoteSegment) -> bool:
        """True if there is another way to read on."""
        manifest = read_manifest(store, self._task.topic_id, self._wanted.at.partition)
        if manifest is None or (manifest.is_made_anew and self._fetching.remote.read != ONLY):
            return False  # brokers know better
        if manifest.first_offset > self.offset:
            if self._lose is None:
                return False
            first_left = min(manifest.first_offset, self._wanted.end)
            self._lose(self.offset, first_left)
            self.offset = first_left
        self._segments = segments_of(manifest, self._wanted._replace(start=self.offset))
        return gone not in self._segments

    def _of_segment(self, store: ObjectStore, segment: RemoteSegment) -> Iterator[SegmentPiece]:
        index = read_index(store, segment)
        _check_whole(index, segment)
        until = min(self._wanted.end, segment.next_offset)
        mine = OffsetRange(self._wanted.at, self.offset, until)
        reads = _reads(index, mine, self._fetching.bytes_max)
        with ThreadPoolExecutor(1) as reader:
            ahead: Future[bytes] | None = None
            for number, chunks in enumerate(reads):
                current = ahead or reader.submit(read_chunks, store, segment, chunks)
                data = current.result()
                following = reads[number + 1] if number + 1 < len(reads) else None
                ahead = reader.submit(read_chunks, store, segment, following) if following else None
                piece = self._selected(memoryview(data), chunks, index, until)
                _check_reached(piece.next_offset, min(until, chunks[-1].next_offset), segment)
                self.offset = min(until, chunks[-1].next_offset)
                yield SegmentPiece(memoryview(data), piece, mine)
        # All of its batches were looked at: compaction has taken the offsets that are left, before the topic
        # became a tiered one.
        self.offset = until

    def _selected(self, data: memoryview, chunks: Sequence[Chunk], index: SegmentIndex, until: int) -> Piece:
        return select(
            data,
            start=self.offset,
            end=until,
            aborted=_aborted(index, chunks) if self._fetching.read_committed else (),
            check_crcs=self._fetching.check_crcs,
            keep_corrupt=True,
            behind=chunks[-1].next_offset,
        )


def _check_whole(index: SegmentIndex, segment: RemoteSegment) -> None:
    """Nothing is passed over: an object that was not copied up to the end of its segment is an error, and so
    are bytes that its index does not have."""
    named = segment_name(segment.key)
    _check_reached(0 if named is None else named.next_offset, segment.next_offset, segment)
    position = 0
    for chunk in index.chunks:
        if chunk.position != position:
            raise ObjectStoreError(f"the index of {segment.key} has nothing at position {position}")
        position += chunk.length
    if position != segment.data_bytes:
        raise ObjectStoreError(f"the index of {segment.key} ends at {position}, before {segment.data_bytes}")


def _check_reached(found: int, wanted: int, segment: RemoteSegment) -> None:
    if found < wanted:
        raise ObjectStoreError(f"{segment.key} ends at offset {found}, before {wanted}")


def _reads(index: SegmentIndex, wanted: OffsetRange, bytes_max: int) -> list[list[Chunk]]:
    """The chunks with wanted offsets, as many together as one read may have of bytes; one at least."""
    first = chunk_at(index.chunks, wanted.start)
    reads: list[list[Chunk]] = []
    size = 0
    for chunk in index.chunks[first:] if first is not None else ():
        if chunk.base_offset >= wanted.end:
            break
        if not reads or size + chunk.length > bytes_max:
            reads.append([])
            size = 0
        reads[-1].append(chunk)
        size += chunk.length
    return reads


def _aborted(index: SegmentIndex, chunks: Sequence[Chunk]) -> list[AbortedTransaction]:
    """The aborted transactions that touch these chunks, as a broker lists those of a fetch."""
    first, behind = chunks[0].base_offset, chunks[-1].next_offset
    return [
        AbortedTransaction(producer_id=span.producer_id, first_offset=span.first_offset)
        for span in index.aborted
        if span.first_offset < behind and span.last_offset >= first
    ]
