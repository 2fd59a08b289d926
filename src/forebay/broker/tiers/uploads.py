"""Copying one segment to the object store, in a thread.

Every batch is compared with its CRC on the way: damage on the local disk is not copied, and so never becomes
a reason to delete another replica's intact messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from forebay.broker.yielding.pace import Pace
from forebay.core.tiers.planning import Copy
from forebay.errors import StorageError
from forebay.storage.log.files import LogFiles
from forebay.storage.log.segment.batch_file import LentFile, Stretch
from forebay.tiers.object_store import ObjectStore
from forebay.wire.tiers.manifest import RemoteSegment
from forebay.wire.tiers.segment_object import AbortedSpan, ChunkBuilder, SegmentIndex, encode_tail


class Upload(NamedTuple):
    """Everything needed to copy a segment without the event loop."""

    key: str
    copy: Copy
    stretch: Stretch
    files: LogFiles
    aborted: tuple[AbortedSpan, ...]
    chunk_bytes: int
    copied_ms: int
    held: LentFile
    """Keeps the file of the segment there, if the messages are deleted meanwhile."""

    def run(self, store: ObjectStore, pace: Pace) -> RemoteSegment:
        """Blocks. Raises ObjectStoreError, StorageError, OSError, and Stopped."""
        parts = _Parts(self, pace)
        try:
            store.upload(self.key, parts)
        except Exception:
            if parts.failure is not None:
                raise parts.failure from None  # a store may have hidden it behind an error of its own
            raise
        builder = parts.builder
        return RemoteSegment(
            key=self.key,
            base_offset=self.copy.base_offset,
            next_offset=self.copy.next_offset,
            data_bytes=builder.data_bytes,
            object_bytes=parts.size,
            max_timestamp=max((chunk.max_timestamp for chunk in builder.chunks), default=-1),
            epochs=tuple(builder.epochs),
            aborted=len(self.aborted),
            sha256=parts.digest.hexdigest(),
            copied_ms=self.copied_ms,
        )


class _Parts:
    """The bytes of the object, piece by piece. A store that tries again begins anew."""

    def __init__(self, upload: Upload, pace: Pace) -> None:
        self._upload = upload
        self._pace = pace
        self.failure: Exception | None = None
        self._begin()

    def _begin(self) -> None:
        self.builder = ChunkBuilder(self._upload.chunk_bytes)
        self.digest = sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        self._begin()
        try:
            yield from self._parts()
        except Exception as error:
            self.failure = error
            raise

    def _parts(self) -> Iterator[bytes]:
        upload, builder = self._upload, self.builder
        for batch, header in upload.stretch.batches():
            self._pace.spend(len(batch))
            done = builder.add(batch, header)
            if done is not None:
                yield self._counted(done)
        last = builder.finish()
        if last is not None:
            yield self._counted(last)
        if not builder.chunks:
            raise StorageError(f"the segment for {upload.key} is empty")
        if builder.chunks[-1].next_offset > upload.copy.next_offset:
            raise StorageError(f"the segment for {upload.key} has grown")
        index = SegmentIndex(
            tuple(builder.chunks),
            upload.aborted,
            tuple(builder.epochs),
            upload.files.snapshot_at(upload.copy.next_offset),
        )
        yield self._counted(encode_tail(index, builder.data_bytes))

    def _counted(self, data: bytes) -> bytes:
        self.digest.update(data)
        self.size += len(data)
        return data
