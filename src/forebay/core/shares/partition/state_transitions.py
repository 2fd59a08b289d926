"""The delivery states of a record in a share partition, and every way from one to another.

    AVAILABLE --acquire--> ACQUIRED --accept--------------------> ACKNOWLEDGED
        ^                   |  |  |
        +--release, undo----+  |  +--gap, drop------------------> ARCHIVED
           (send, renew: stays)+--bury--> ARCHIVING --bury done-> ARCHIVED

`TRANSITIONS` is the whole table. "Written" says if the change is persisted. A new leader does not need the
others: the persisted state of an acquired record is AVAILABLE with its delivery count, so acquiring and
releasing add nothing to it; and the log shows again which records it has lost.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """The numbers are those of the persisted format."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Only in memory; persisted as AVAILABLE."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It waits to be copied to the dead-letter topic."""
    ARCHIVED = 4


AVAILABLE = RecordState.AVAILABLE
ACQUIRED = RecordState.ACQUIRED
ACKNOWLEDGED = RecordState.ACKNOWLEDGED
ARCHIVING = RecordState.ARCHIVING
ARCHIVED = RecordState.ARCHIVED

FINISHED = (ACKNOWLEDGED, ARCHIVED)
"""States that a record never leaves; the start offset passes over them."""


class DeadLetterCause(Enum):
    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery limit"
    UNREADABLE = "unreadable"
    """Its batch is damaged, or the disk does not return it."""


class Transition(NamedTuple):
    name: str
    sources: tuple[RecordState, ...]
    target: RecordState
    is_written: bool
    reason: str


ACQUIRE = Transition("acquire", (AVAILABLE,), ACQUIRED, False, "kept for a member, and not sent yet")
SEND = Transition("send", (ACQUIRED,), ACQUIRED, True, "leaves for the member; the count goes up by one")
ACCEPT = Transition("accept", (ACQUIRED,), ACKNOWLEDGED, True, "the member has processed it")
GAP = Transition("gap", (ACQUIRED,), ARCHIVED, True, "the member found no record at this offset")
RELEASE = Transition(
    "release", (ACQUIRED,), AVAILABLE, False, "given back, lock timeout, or end of the session"
)
UNDO = Transition(
    "undo", (ACQUIRED,), AVAILABLE, False, "it was not sent, so that the delivery does not count"
)
RENEW = Transition("renew", (ACQUIRED,), ACQUIRED, False, "the lock begins anew")
DROP = Transition(
    "drop",
    (ACQUIRED, AVAILABLE),
    ARCHIVED,
    True,
    "rejected, count at the limit, or unreadable; no dead-letter topic",
)
BURY = Transition(
    "bury",
    (ACQUIRED, AVAILABLE),
    ARCHIVING,
    True,
    "rejected, count at the limit, or unreadable; with a dead-letter topic",
)
BURY_DONE = Transition("bury done", (ARCHIVING,), ARCHIVED, True, "it is in the dead-letter topic")
LOSE = Transition("lose", (ACQUIRED, AVAILABLE), ARCHIVED, False, "the log has no such record to deliver")

TRANSITIONS = (ACQUIRE, SEND, ACCEPT, GAP, RELEASE, UNDO, RENEW, DROP, BURY, BURY_DONE, LOSE)
