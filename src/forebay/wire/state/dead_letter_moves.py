"""The records of a move of dead letters: `Move.entries`, in the journal of movers."""

from __future__ import annotations

from forebay.wire.fields import Message, Struct, array, int8, int16, int32, int64


class DeadLetterRange(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    """All offsets between the two have a record, or had one before the log was truncated."""
    delivery_count: int = int16()
    cause: int = int8()
    damage: int = int8(default=0, tag=0)
    """1: the record cannot be copied, because its batch is damaged. 2: and that is why it was given up."""


class DeadLetterMove(Message, versions=(0, 0), flexible=0):
    state_epoch: int = int32()
    """The epoch of the share partition's state. A reset changes it, and the move is then obsolete."""
    ranges: list[DeadLetterRange] = array(DeadLetterRange)
    leader_epoch: int = int32(default=-1, tag=0)
    """The leader epoch when the move was planned. A later leader's record at an offset is another one."""
