"""A mover: moves waiting records to a partition, exactly once, despite crashes and changes of leader.

The target partition's ordinary check of sequence numbers finds repeats. So a mover needs two things: an
identity (its own producer id, with the next sequence number), and a memory of what it has sent under which
number. That memory is the journal (`journal.py`), and these are the rules:

1. A mover sends only what the journal says is pending, under the sequence numbers in the journal.
2. The journal has one pending move. It is replaced only once the move is committed in the target, and the
   source has persisted that these records are moved.
3. Opening the journal fences all movers that opened it before: they can write nothing more to it.

A mover that dies, or loses its partition to another leader, leaves at most one pending move. The next one
sends it again under the same numbers. If the first got through, the second is a duplicate, and the other way
around, in whichever order and however late they arrive. So no epoch of the producer is needed: a fenced mover
can do no harm with what it may still send.

| crash or loss of the term after | the next mover finds | and |
|---|---|---|
| planning | nothing pending, records waiting | plans anew |
| journaling | a pending move | sends it: appended now |
| appending | a pending move | sends it: a duplicate, and goes on |
| the source's write | a pending move whose records wait no more | gives it up, and takes another identity |
| the last journaling | nothing pending | has nothing to do |

A pending move is given up without being sent in two cases: the source says that none of its records waits any
more (it is done, or the source was reset), or the target topic was deleted, and the copies with it. In both
cases the numbers may have been used or not, so the next move gets a new producer id. Likewise when the target
says that numbers before these are missing: it has lost what was acknowledged (an unclean election), so it
does not have these either.

When nothing is left to move, the journal is written once more, without a pending move. So nothing is sent
again after days, when the target has forgotten the producer (`producer.id.expiration.ms`).

`moving` is the whole algorithm, without I/O: it yields what to do, and is sent the outcome. It may be closed
at any point; another mover continues from the journal.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Any

from forebay.core.record_moves.move import Move, MoverState
from forebay.lazy import dataclass


class Sent(Enum):
    """The outcome of an append. The runtime repeats appends that may still succeed."""

    COMMITTED = "it is in the target, by this or an earlier attempt"
    OUT_OF_ORDER = "the target lacks what was sent before, and so this too"
    TARGET_GONE = "the target was deleted"


@dataclass(frozen=True, slots=True)
class Open:
    """Fence other movers. Outcome: the state in the journal."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Outcome: True if the source still wants a pending move to be made."""

    move: Move


@dataclass(frozen=True, slots=True)
class Plan:
    """Outcome: the next move, or None if nothing waits."""


@dataclass(frozen=True, slots=True)
class Identify:
    """Outcome: a producer id that nobody has used."""


@dataclass(frozen=True, slots=True)
class Journal:
    """Write the state to the journal. Outcome: the same state with its new version, once it is committed."""

    state: MoverState


@dataclass(frozen=True, slots=True)
class Send:
    """Append the pending move under its sequence numbers. Outcome: Sent."""

    state: MoverState


@dataclass(frozen=True, slots=True)
class Confirm:
    """Outcome: None, once the source has persisted that these records are moved."""

    move: Move


Action = Open | Ask | Plan | Identify | Journal | Send | Confirm

Moving = Generator[Action, Any, MoverState]


def moving(state: MoverState | None) -> Moving:
    """Move everything that waits. `state`: the result of an earlier run of this mover, if there was one.

    Returns the state as it is in the journal.
    """
    is_journaled = True
    if state is None:
        state = yield Open()
        if state.pending is not None:
            state = yield from _resume(state)
            is_journaled = False
    while (move := (yield Plan())) is not None:
        if not state.has_identity:
            state = state.with_identity((yield Identify()))
        state = yield Journal(state.planned(move))
        state = yield from _send(state)
        is_journaled = False
    return state if is_journaled else (yield Journal(state))


def _resume(state: MoverState) -> Moving:
    """Finish a move that was journaled by another mover, or by an earlier run."""
    assert state.pending is not None
    if not (yield Ask(state.pending)):
        return state.abandoned()
    return (yield from _send(state))


def _send(state: MoverState) -> Moving:
    """Send the pending move until its outcome is known; returns the state after it, not journaled yet."""
    assert state.pending is not None
    while True:
        outcome = yield Send(state)
        if outcome is Sent.COMMITTED:
            yield Confirm(state.pending)
            return state.moved()
        if outcome is Sent.TARGET_GONE:
            return state.abandoned()
        state = yield Journal(state.with_identity((yield Identify())))
