"""MoveJournal: a mover's request to its journal. Between brokers; not in Kafka."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, binary, int16, int32, int64, string, struct, uuid

OPEN = -1
"""The version of a request that does not write, but takes the journal over from earlier movers."""


class PendingMove(Struct):
    topic_id: bytes = uuid()
    partition: int = int32()
    record_count: int = int32()
    entries: bytes = binary()
    revision: int = int64()


class MoveJournalRequest(Request, api_key=ApiKey.MOVE_JOURNAL, flexible=0):
    mover_id: str = string()
    term: int = int32()
    version: int = int64(default=OPEN)
    """The version of the state that the rest of the request replaces."""
    producer_id: int = int64(default=-1)
    next_sequence: int = int32()
    pending: PendingMove | None = struct(PendingMove, nullable="0+", default=None)


class MoveJournalResponse(Response, api_key=ApiKey.MOVE_JOURNAL, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    version: int = int64()
    producer_id: int = int64(default=-1)
    next_sequence: int = int32()
    pending: PendingMove | None = struct(PendingMove, nullable="0+", default=None)
