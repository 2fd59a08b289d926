"""The records of __forebay_moves: the last state of each mover. A tombstone forgets it."""

from __future__ import annotations

from forebay.wire.fields import Message, Struct, binary, int32, int64, string, struct, uuid


class PendingMove(Struct):
    topic_id: bytes = uuid()
    partition: int = int32()
    record_count: int = int32()
    entries: bytes = binary()
    revision: int = int64()


class MoverKey(Message, versions=(0, 0)):
    mover_id: str = string()


class MoverValue(Message, versions=(0, 0), flexible=0):
    term: int = int32()
    version: int = int64()
    producer_id: int = int64()
    next_sequence: int = int32()
    pending: PendingMove | None = struct(PendingMove, nullable="0+", default=None)
    written_ms: int = int64()
