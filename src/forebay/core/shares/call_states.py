"""The states of a ShareFetch or ShareAcknowledge on its way to its answer, and every way from one to another.

    ASSEMBLING --answer---------------------------------------------------> ANSWERED
      |  ^  |                                                                  ^
      |  |  +--persist--> PERSISTING --answer--------------------------------- +
      |  |
      |  +--wake--------+-----------------+
      +--wait--> AWAITING_RECORDS --linger--> LINGERING

`TRANSITIONS` is the whole table. A ShareAcknowledge knows only the upper half of it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class CallState(Enum):
    ASSEMBLING = auto()
    """The broker determines, in one turn of the loop, what the response holds and what it has to wait for."""
    AWAITING_RECORDS = auto()
    """A long poll. Acknowledgements of the request may not be persisted yet."""
    LINGERING = auto()
    """A long poll whose acknowledgements are persisted. The response waits a moment longer for records."""
    PERSISTING = auto()
    """The contents of the response are known. It waits for share coordinators, or for the disk."""
    ANSWERED = auto()
    """The response was sent, or the client has gone."""


ASSEMBLING = CallState.ASSEMBLING
AWAITING_RECORDS = CallState.AWAITING_RECORDS
LINGERING = CallState.LINGERING
PERSISTING = CallState.PERSISTING
ANSWERED = CallState.ANSWERED

LONG_POLLS = (AWAITING_RECORDS, LINGERING)


class Transition(NamedTuple):
    name: str
    sources: tuple[CallState, ...]
    target: CallState
    reason: str


WAIT = Transition("wait", (ASSEMBLING,), AWAITING_RECORDS, "there is nothing to acquire yet")
LINGER = Transition("linger", (AWAITING_RECORDS,), LINGERING, "the acknowledgements are persisted")
WAKE = Transition(
    "wake",
    LONG_POLLS,
    ASSEMBLING,
    "records are acquired, the time is up, a partition has changed hands, or the client has gone",
)
PERSIST = Transition("persist", (ASSEMBLING,), PERSISTING, "writes or reads of the disk are under way")
ANSWER = Transition("answer", (ASSEMBLING, PERSISTING), ANSWERED, "nothing is left to wait for")

TRANSITIONS = (WAIT, LINGER, WAKE, PERSIST, ANSWER)
