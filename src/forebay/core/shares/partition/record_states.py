"""The delivery states of a record in a share partition, and every way from one to another.

    AVAILABLE --acquire--> ACQUIRED --accept--------------------> ACKNOWLEDGED
        ^                   |  |  |
        +--release, undo----+  |  +--gap, drop------------------> ARCHIVED
           (renew: stays)      +--bury--> ARCHIVING --bury done-> ARCHIVED

`TRANSITIONS` is the whole table. "Written" says whether the change is persisted. What is not written is what
a new leader finds out by itself: the persisted state of an acquired record is AVAILABLE with the count of its
delivery, so a release has nothing to add to it; and the log tells again which records it has lost.
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
    """To be copied to the dead-letter topic."""
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


class Transition(NamedTuple):
    name: str
    sources: tuple[RecordState, ...]
    target: RecordState
    is_written: bool
    reason: str


ACQUIRE = Transition("acquire", (AVAILABLE,), ACQUIRED, True, "sent to a member; the count goes up by one")
ACCEPT = Transition("accept", (ACQUIRED,), ACKNOWLEDGED, True, "the member has processed it")
GAP = Transition("gap", (ACQUIRED,), ARCHIVED, True, "the member found no record at this offset")
RELEASE = Transition(
    "release", (ACQUIRED,), AVAILABLE, False, "given back, lock timeout, or end of the session"
)
UNDO = Transition(
    "undo", (ACQUIRED,), AVAILABLE, False, "the disk did not give it; the delivery does not count"
)
RENEW = Transition("renew", (ACQUIRED,), ACQUIRED, False, "the lock begins anew")
DROP = Transition(
    "drop", (ACQUIRED, AVAILABLE), ARCHIVED, True, "rejected, or count at the limit; no dead-letter topic"
)
BURY = Transition(
    "bury",
    (ACQUIRED, AVAILABLE),
    ARCHIVING,
    True,
    "rejected, or count at the limit; with a dead-letter topic",
)
BURY_DONE = Transition("bury done", (ARCHIVING,), ARCHIVED, True, "it is in the dead-letter topic")
LOSE = Transition("lose", (ACQUIRED, AVAILABLE), ARCHIVED, False, "the log has no such record to deliver")

TRANSITIONS = (ACQUIRE, ACCEPT, GAP, RELEASE, UNDO, RENEW, DROP, BURY, BURY_DONE, LOSE)
