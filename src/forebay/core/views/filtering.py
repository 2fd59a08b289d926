"""Filters the batches of a partition for a view.

A batch keeps its base offset, last offset, producer and transaction, and loses the records that the view does
not let through; its checksum is new. One that loses none stays as it is. Neighbouring batches that lose all
records become one empty batch over the same offsets, which takes a reader past them. It has no timestamps,
unless brokers ask for it to fill a materialized view, where its time decides how long it is kept. Transaction
markers pass: readers of committed messages need them. Other control batches do not: the brokers' own notes
may hold records that the view does not show.

Most topics store batches unread, so a batch with a valid checksum may still hold malformed records. Nobody
can say which of them match; they are skipped and counted, so one bad producer cannot stop a view.

Parsing a value may cost microseconds. So the bytes that a matching record must have are searched for in all
records at once (`prefilter.py`), and the records before the next hit are skipped by their lengths.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.views.conditions.rows import Scope
from forebay.core.views.matching import Matching, matching_records
from forebay.core.views.turn import ENDLESS, Place, Turn, UnpackLater
from forebay.core.views.view import CompiledView
from forebay.errors import ProtocolError
from forebay.wire.batch import NO_TIMESTAMP, BatchHeader, checked_batches
from forebay.wire.compression import Codec, OutputTooLarge
from forebay.wire.record_spans import payload_of, placeholder, replace_records

_DELTA_MAX = 2**31 - 1
_UNPACKED_BYTES_MAX = 32 << 20
"""After this many bytes were unpacked or selected, the rest is left to the next turn: a few kilobytes can
unpack to gigabytes, and no client waits that long for an answer."""
_LITTLE_BYTES = 4 << 20
"""Any number of threads may unpack batches of this size at once."""
_GZIP_LEVEL = 1
"""Data that is sent once is not worth better compression."""


class Filtered(NamedTuple):
    data: bytes
    """Whole batches."""
    next_offset: int
    """Where to continue: all offsets before it were examined."""
    delivered: int
    examined: int
    """Records of the batches that were examined, including those delivered."""
    invalid: int
    """Records that were not delivered because their value is not JSON, or their batch cannot be read."""
    whole: bool
    """True if all batches were examined. Otherwise one of them is damaged or ends too late, or there was too
    much work to continue."""
    source_bytes: int
    """The size of all batches that were examined to their ends."""
    cut: Place | None
    """The place where the last batch was left, if in the middle: nothing else of its offsets may follow in
    one answer, because the next turn shows the same batch again, without the examined records."""
    begins_within: bool
    """True if records before `first_offset` were left out, though their batch is shown."""


def filter_batches(
    view: CompiledView,
    data: memoryview,
    first_offset: int,
    end_offset: int,
    *,
    topic: str,
    partition: int,
    now_ms: int,
    decompress_max_bytes: int,
    keeps_times: bool = False,
    turn: Turn = ENDLESS,
    place: Place | None = None,
) -> Filtered:
    """The batches from `first_offset` on and before `end_offset`, as the view shows them, for one turn.

    `place`: where an earlier turn has ended.
    Raises ProtocolError if the first of them is damaged, and UnpackLater if it cannot be unpacked now; ends
    before one of which that is true later.
    """
    scope = Scope(topic, partition, now_ms)
    work = _Work(view, scope, first_offset, decompress_max_bytes, turn, keeps_times=keeps_times)
    work.place = place
    goes_on = True
    try:
        for batch, header in checked_batches(data):
            if header.last_offset < first_offset:
                work.source_bytes += header.size
                continue
            if header.next_offset > end_offset or not goes_on:
                return work.finish(whole=False)
            before = work.next_offset
            try:
                work.take(batch, header)
            except UnpackLater:
                if before == first_offset:
                    raise
                work.next_offset = before
                return work.finish(whole=False)
            goes_on = turn.goes_on() and work.unpacked_bytes < _UNPACKED_BYTES_MAX and work.cut is None
    except ProtocolError:
        if work.next_offset == first_offset:
            raise
        return work.finish(whole=False)
    return work.finish(whole=work.cut is None)


class _Work:
    def __init__(
        self,
        view: CompiledView,
        scope: Scope,
        first_offset: int,
        max_bytes: int,
        turn: Turn,
        *,
        keeps_times: bool,
    ) -> None:
        self.next_offset = first_offset
        self.unpacked_bytes = self.source_bytes = 0
        self.place: Place | None = None
        self.cut: Place | None = None
        self._first_offset = first_offset
        self._begins_within = False
        self._view = view
        self._scope = scope
        self._turn = turn
        self._passes = view.for_all(scope)
        self._max_bytes = max_bytes
        self._keeps_times = keeps_times
        self._out: list[bytes | bytearray | memoryview] = []
        self._passed_over: BatchHeader | None = None
        """An empty batch under construction, for the batches since the last that was delivered."""
        self._delivered = self._examined = self._invalid = 0

    def take(self, batch: memoryview, header: BatchHeader) -> None:
        examined = 0 if header.is_control else header.record_count
        self.next_offset = header.next_offset
        if header.is_control and header.is_transactional:
            self._deliver(batch, 0)
        elif header.is_control or not header.record_count or self._passes is False:
            self._pass_over(header)
        elif self._passes and self._view.project is None:
            self._deliver(batch, header.record_count)
        else:
            examined = self._filter(batch, header)
        self._examined += examined
        self.source_bytes += header.size if self.cut is None else 0

    def finish(self, *, whole: bool) -> Filtered:
        self._end_gap()
        return Filtered(
            data=b"".join(self._out),
            next_offset=self.next_offset,
            delivered=self._delivered,
            examined=self._examined,
            invalid=self._invalid,
            whole=whole,
            source_bytes=self.source_bytes,
            cut=self.cut,
            begins_within=self._begins_within,
        )

    def _filter(self, batch: memoryview, header: BatchHeader) -> int:
        """Deliver matching records; returns how many were examined."""
        view = self._view
        try:
            found = self._matching(batch, header)
        except ProtocolError:
            self._invalid += header.record_count
            self._pass_over(header)
            return header.record_count
        self._invalid += found.invalid
        self._begins_within = self._begins_within or found.begins_within
        if found.cut is not None:
            self.cut = found.cut
            header = header._replace(last_offset_delta=found.cut.offset - header.base_offset - 1)
            self.next_offset = header.next_offset
        if not found.records:
            self._pass_over(header)
        elif view.project is None and len(found.records) == header.record_count:
            self._deliver(batch, header.record_count)
        else:
            self._deliver_matching(header, found)
        return found.examined

    def _matching(self, batch: memoryview, header: BatchHeader) -> Matching:
        """The matching records; the rest of the unpacked batch is released."""
        payload = self._unpacked(batch, header)
        self.unpacked_bytes += len(payload)
        found = matching_records(
            self._view, payload, header, self._scope, self._first_offset, self._turn, self.place
        )
        found.forget_payload()
        return found

    def _unpacked(self, batch: memoryview, header: BatchHeader) -> bytes:
        try:
            return payload_of(batch, header, min(_LITTLE_BYTES, self._max_bytes))
        except OutputTooLarge:
            if self._max_bytes <= _LITTLE_BYTES:
                raise
        if not self._turn.may_unpack_much():
            raise UnpackLater
        return payload_of(batch, header, self._max_bytes)

    def _deliver_matching(self, header: BatchHeader, found: Matching) -> None:
        level = _GZIP_LEVEL if header.codec == Codec.GZIP else None
        shown = replace_records(header, found.records, found.largest_timestamp_delta, level)
        if self._view.project is not None:
            self.unpacked_bytes += sum(map(len, found.records))
        self._deliver(shown, len(found.records))

    def _deliver(self, batch: memoryview | bytearray, record_count: int) -> None:
        self._end_gap()
        self._out.append(batch)
        self._delivered += record_count

    def _pass_over(self, header: BatchHeader) -> None:
        if not self._keeps_times:
            header = header._replace(base_timestamp=NO_TIMESTAMP, max_timestamp=NO_TIMESTAMP)
        first = self._passed_over
        base_offset = header.base_offset if first is None else first.base_offset
        if header.last_offset - base_offset > _DELTA_MAX:
            self._end_gap()
            base_offset = header.base_offset
        self._passed_over = header._replace(
            base_offset=base_offset, last_offset_delta=header.last_offset - base_offset
        )

    def _end_gap(self) -> None:
        if self._passed_over is not None:
            self._out.append(placeholder(self._passed_over))
            self._passed_over = None
