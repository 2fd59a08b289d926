"""How far one fetch has come with one partition of a view, and what it will answer."""

from __future__ import annotations

from forebay.broker.views.cache import Cached
from forebay.core.cluster.view_image import ViewImage
from forebay.core.views.filtering import Filtered
from forebay.wire.batch import HEADER_SIZE, BatchHeader, assemble, read_header
from forebay.wire.parts import Part

_OFFSET_DELTA_MAX = 2**31 - 1


class ViewRead:
    __slots__ = (
        "_epoch",
        "_first_offset",
        "_gap",
        "_parts",
        "_size",
        "delivered",
        "examined_bytes",
        "next_offset",
        "tries",
        "view",
    )

    def __init__(self, view: ViewImage, fetch_offset: int) -> None:
        self.view = view
        self.tries = 0
        self._first_offset = fetch_offset
        self._epoch = -1
        self._begin()

    def _begin(self) -> None:
        self.next_offset = self._first_offset
        """Everything before it has been examined."""
        self.examined_bytes = 0
        """Of the source."""
        self.delivered = 0
        """Records that matched."""
        self._parts: list[Part] = []
        self._size = 0
        self._gap: BatchHeader | None = None
        """An empty batch, for the end of what was examined: it grows while nothing matches."""

    def in_epoch(self, leader_epoch: int) -> None:
        """Another term of a leader may have another log: what was read of the one before does not count."""
        if leader_epoch != self._epoch:
            self._epoch = leader_epoch
            self._begin()

    @property
    def size(self) -> int:
        """Bytes to be answered."""
        return self._size if self._gap is None else self._size + HEADER_SIZE

    def records(self) -> list[Part]:
        return self._parts if self._gap is None else [*self._parts, assemble(self._gap, b"")]

    def add(self, filtered: Filtered, source_bytes: int) -> None:
        """The next part of the source has been examined."""
        self.next_offset = filtered.next_offset
        self.examined_bytes += source_bytes
        self.delivered += filtered.delivered
        data = filtered.data
        if len(data) == HEADER_SIZE:
            self._widen_gap(read_header(data))
        elif data:
            self._close_gap()
            self._append(data)

    def add_cached(self, cached: Cached) -> None:
        """The next part has been filtered before."""
        self.next_offset = cached.next_offset
        self.delivered += cached.delivers
        self._close_gap()
        self._parts.append(cached.range)
        self._size += cached.range.length

    def _widen_gap(self, empty: BatchHeader) -> None:
        gap = self._gap
        if gap is not None and empty.last_offset - gap.base_offset <= _OFFSET_DELTA_MAX:
            delta = empty.last_offset - gap.base_offset
            self._gap = empty._replace(base_offset=gap.base_offset, last_offset_delta=delta)
        else:
            self._close_gap()
            self._gap = empty

    def _close_gap(self) -> None:
        if self._gap is not None:
            self._append(assemble(self._gap, b""))
            self._gap = None

    def _append(self, data: bytes | bytearray) -> None:
        self._parts.append(data)
        self._size += len(data)
