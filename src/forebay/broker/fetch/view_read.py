"""How far one fetch has come with one partition of a view, and what it will answer.

Where nothing matches, an empty batch takes the client on. But librdkafka takes an answer without any record
for one whose first message is too large: it asks for more each time, and after ten such answers tells its
program of an error. Of control records it says nothing. So an answer without a match ends with a control
batch over the same offsets, of a type that means nothing to clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from forebay.broker.views.cache import Cached
from forebay.core.cluster.images.view_image import ViewImage
from forebay.core.views.filtering import Filtered
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import CONTROL, HEADER_SIZE, BatchHeader, assemble, build_batch, read_header
from forebay.wire.parts import Part
from forebay.wire.records import Record
from forebay.wire.tiers.segment_object import AbortedSpan

_OFFSET_DELTA_MAX = 2**31 - 1
_CONTROL_KEY = Struct(">hh").pack(0, 0x4656)
"""Version 0, and a type of our own."""


class ViewRead:
    __slots__ = (
        "_epoch",
        "_first_offset",
        "_gap",
        "_parts",
        "_size",
        "aborted",
        "delivered",
        "examined_bytes",
        "is_cut",
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
        self.is_cut = False
        """True if it ends in the middle of a batch of the source: nothing may follow in this answer."""
        self.aborted: dict[tuple[int, int], None] = {}
        """Producer id and first offset of the aborted transactions in what was examined."""
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
        return self._size if self._gap is None else self._size + len(self._tail(self._gap))

    def records(self) -> list[Part]:
        return self._parts if self._gap is None else [*self._parts, self._tail(self._gap)]

    def _tail(self, gap: BatchHeader) -> bytearray:
        if self.delivered:
            return assemble(gap, b"")
        return build_batch(
            [Record(gap.last_offset, max(gap.max_timestamp, 0), _CONTROL_KEY, b"")],
            base_offset=gap.base_offset,
            partition_leader_epoch=gap.partition_leader_epoch,
            attributes=CONTROL,
        )

    def note_aborted(self, aborted: Iterable[AbortedTxn | AbortedSpan]) -> None:
        for each in aborted:
            self.aborted[each.producer_id, each.first_offset] = None

    def add(self, filtered: Filtered) -> None:
        """The next part of the source has been examined."""
        self.next_offset = filtered.next_offset
        self.is_cut = filtered.cut is not None
        self.examined_bytes += filtered.source_bytes
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
        if cached.gap is not None:
            self._widen_gap(cached.gap)
            return
        self.delivered += cached.delivered
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
