"""A move, and the journal's state of the mover that makes it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from forebay.lazy import dataclass
from forebay.wire.batch import NO_PRODUCER_ID, SEQUENCE_MASK

MOVER_ID_CHARS_MAX = 1_000


def mover_id(kind: str, source: str) -> str:
    """The name of a mover in its journal, derived from the name of its source. A long name is hashed."""
    if len(kind) + 1 + len(source) <= MOVER_ID_CHARS_MAX:
        return f"{kind}:{source}"
    return f"{kind}#{sha256(source.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Records that are appended to one partition as one batch."""

    topic_id: bytes
    partition: int
    """The target, together with the topic id."""
    record_count: int
    """Fixed when the move is planned: a repeat needs the same count, to be recognised as a duplicate."""
    entries: bytes
    """The records to move: written and read by the mover's source alone."""
    revision: int
    """The revision of the image used for planning: a topic that is missing in a later one was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoverState:
    term: int
    """The leader epoch of the source; movers of earlier terms are fenced."""
    version: int
    """Counts the changes of this state: a writer must know the last version."""
    producer_id: int = NO_PRODUCER_ID
    next_sequence: int = 0
    """The sequence number of the pending move, or of the next one."""
    pending: Move | None = None
    """It may have been appended or not. Only this one may be sent."""

    @property
    def has_identity(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def planned(self, move: Move) -> MoverState:
        return replace(self, pending=move)

    def moved(self) -> MoverState:
        """The state after the pending move was made."""
        assert self.pending is not None
        next_sequence = (self.next_sequence + self.pending.record_count) & SEQUENCE_MASK
        return replace(self, next_sequence=next_sequence, pending=None)

    def with_identity(self, producer_id: int) -> MoverState:
        return replace(self, producer_id=producer_id, next_sequence=0)

    def abandoned(self) -> MoverState:
        """The state after giving up the pending move. Its numbers may have been used, so others are taken."""
        return replace(self, producer_id=NO_PRODUCER_ID, next_sequence=0, pending=None)
