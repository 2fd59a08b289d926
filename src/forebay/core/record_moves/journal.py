"""The journal of movers on one partition of __forebay_moves, as a state machine.

It keeps one state per mover, and lets the newest mover write it. A mover *opens* its state with its term (the
leader epoch of its source) and gets the present state. A term that is over is refused. Each write increments
the version, and must name the previous version; so does each opening. So a mover that was replaced by
another, even one of the same term, can write nothing more. A write that arrives twice, because its answer was
lost, is recognised: it led to the present version. An opening adds two to the version, so it is not mistaken
for a write that changed nothing.

A mover that has had nothing to do for a week is forgotten, and the next one begins with a new identity. So is
one with a pending move that was silent for a month: a waiting mover opens its journal every hour, so the
source of this one is gone, with its group or its topic. A fenced mover is not expected to live on for a week.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from forebay.core.record_moves.move import MOVER_ID_CHARS_MAX, Move, MoverState
from forebay.core.step import Now, RequestInfo, StateRecord, Step, Ticket
from forebay.errors import ErrorCode
from forebay.wire.fields import Request, Response
from forebay.wire.messages import move_journal as messages
from forebay.wire.state import moves as records
from forebay.wire.state.versioned import pack, unpack

_DAY_MS = 86_400_000
IDLE_MS_MAX = 7 * _DAY_MS
PENDING_MS_MAX = 30 * _DAY_MS
SWEEP_MS = 3_600_000
_FORGOTTEN_PER_SWEEP = 1_000
_OPENING = 2
ENTRIES_BYTES_MAX = 64 * 1024


class _Kept(NamedTuple):
    state: MoverState
    written_ms: int


class MoveJournalShard:
    def __init__(self) -> None:
        self._movers: dict[str, _Kept] = {}
        self._sweep_ms = 0

    @property
    def movers(self) -> Mapping[str, MoverState]:
        return MappingProxyType({mover_id: kept.state for mover_id, kept in self._movers.items()})

    # -- what the runtime calls around the operations ---------------------------------------------------

    def replay(self, record: StateRecord) -> None:
        """Apply a record: the only place where persistent state changes."""
        mover_id = unpack(records.MoverKey, record.key).mover_id
        if record.value is None:
            self._movers.pop(mover_id, None)
            return
        value = unpack(records.MoverValue, record.value)
        state = MoverState(
            term=value.term,
            version=value.version,
            producer_id=value.producer_id,
            next_sequence=value.next_sequence,
            pending=None if value.pending is None else read_pending(value.pending),
        )
        self._movers[mover_id] = _Kept(state, value.written_ms)

    def loaded(self, now: Now) -> Step:
        self._sweep_ms = now.ms + SWEEP_MS
        return Step(deadline_ms=self._sweep_ms)

    def tick(self, now: Now) -> Step:
        """Forget movers that have been idle or silent for long."""
        old = [
            mover_id
            for mover_id, (state, written_ms) in self._movers.items()
            if now.trusted_ms - written_ms > (PENDING_MS_MAX if state.pending else IDLE_MS_MAX)
        ]
        self._sweep_ms = now.ms + SWEEP_MS
        forgotten = [StateRecord(_key(mover_id), None) for mover_id in old[:_FORGOTTEN_PER_SWEEP]]
        return Step(records=forgotten, deadline_ms=self._sweep_ms)

    # -- operations -------------------------------------------------------------------------------------

    def journal(
        self, ticket: Ticket, request: messages.MoveJournalRequest, _info: RequestInfo, now: Now
    ) -> Step:
        """Open the state of a mover, or write it."""
        step = Step(deadline_ms=self._sweep_ms)
        after = self._decide(request)
        if isinstance(after, ErrorCode):
            step.reply(ticket, _refusal(after))
            return step
        kept = self._movers.get(request.mover_id)
        if kept is None or kept.state != after:
            step.records.append(StateRecord(_key(request.mover_id), _value(after, now.trusted_ms)))
        step.reply(ticket, _answer(after))
        return step

    def _decide(self, request: messages.MoveJournalRequest) -> MoverState | ErrorCode:
        """The state after a request; the present one, if the request was already carried out."""
        if not _is_sound(request):
            return ErrorCode.INVALID_REQUEST
        kept = self._movers.get(request.mover_id)
        if request.version == messages.OPEN:
            if kept is None:
                return MoverState(term=request.term, version=0)
            if request.term < kept.state.term:
                return ErrorCode.FENCED_LEADER_EPOCH
            return replace(kept.state, term=request.term, version=kept.state.version + _OPENING)
        wanted = MoverState(
            term=request.term,
            version=request.version + 1,
            producer_id=request.producer_id,
            next_sequence=request.next_sequence,
            pending=None if request.pending is None else read_pending(request.pending),
        )
        if kept is None or kept.state.term != request.term:
            return ErrorCode.FENCED_LEADER_EPOCH
        if kept.state.version == request.version or kept.state == wanted:
            return wanted
        return ErrorCode.FENCED_LEADER_EPOCH


def _is_sound(request: messages.MoveJournalRequest) -> bool:
    pending = request.pending
    return (
        0 < len(request.mover_id) <= MOVER_ID_CHARS_MAX
        and request.term >= 0
        and request.version >= messages.OPEN
        and (pending is None or (pending.record_count > 0 and len(pending.entries) <= ENTRIES_BYTES_MAX))
    )


def read_pending(pending: records.PendingMove | messages.PendingMove) -> Move:
    return Move(
        topic_id=pending.topic_id,
        partition=pending.partition,
        record_count=pending.record_count,
        entries=bytes(pending.entries),
        revision=pending.revision,
    )


def _pending_fields(move: Move) -> dict[str, int | bytes]:
    return {
        "topic_id": move.topic_id,
        "partition": move.partition,
        "record_count": move.record_count,
        "entries": move.entries,
        "revision": move.revision,
    }


def sent_pending(move: Move | None) -> messages.PendingMove | None:
    return None if move is None else messages.PendingMove(**_pending_fields(move))  # type: ignore[arg-type]


def _key(mover_id: str) -> bytes:
    return pack(records.MoverKey(mover_id=mover_id), records.MoverKey.MAX_VERSION)


def _value(state: MoverState, now_ms: int) -> bytes:
    pending = None if state.pending is None else records.PendingMove(**_pending_fields(state.pending))  # type: ignore[arg-type]
    value = records.MoverValue(
        term=state.term,
        version=state.version,
        producer_id=state.producer_id,
        next_sequence=state.next_sequence,
        pending=pending,
        written_ms=now_ms,
    )
    return pack(value, records.MoverValue.MAX_VERSION)


def _answer(state: MoverState) -> messages.MoveJournalResponse:
    return messages.MoveJournalResponse(
        version=state.version,
        producer_id=state.producer_id,
        next_sequence=state.next_sequence,
        pending=sent_pending(state.pending),
    )


def _refusal(code: ErrorCode) -> messages.MoveJournalResponse:
    return messages.MoveJournalResponse(error_code=code, error_message="another mover has taken over")


def failure(_request: Request, _info: RequestInfo, code: ErrorCode) -> Response:
    """The response while the journal is being loaded, or is elsewhere."""
    return messages.MoveJournalResponse(
        error_code=code, error_message="the journal of movers cannot answer now"
    )
