"""The answer of a state machine: what to save, and what may be sent once it is saved.

A machine owns the state that one partition of an internal topic stores. An operation looks at the state,
decides, and returns a Step. Durable state changes only when the records of a step are replayed, in normal
operation as in recovery; soft state (waiters, timers) may change in the operation itself.

The runtime guarantees four things:

- The records of a step are given to the machine's `replay`, with the offsets that they will have, then
  appended as one batch, before any other operation, so that the next operation sees them.
- Replies and effects wait until those records are committed. Those of a step without records wait for
  everything appended before it, since they may depend on it.
- When an append fails, or the machine raises anything in an operation, a tick or a replay, it is discarded
  and built again from the log; waiting requests get an error that clients retry. So a machine need not undo
  what it has begun.
- `tick` is called no later than the deadline of the last step, and again at once if that has already passed.
  One tick handles one timer: if that fails, the steps of other timers are not lost with it.

Time is passed in, as a `Now`, and is of three kinds that must not be mixed. Deadlines (sessions, rebalances,
waiting, the timeout of an open transaction) are in monotonic time, `ms`, which means nothing beyond this
machine: after a crash or a change of leader they start again. Times in records are wall time, `wall_ms`. The
age of stored data (offsets and transactional ids that expire) is measured by `trusted_ms`: wall time that
ignores a clock that was set forward by mistake.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import NamedTuple

from forebay.lazy import dataclass
from forebay.wire.fields import Response

Ticket = Hashable
"""Stands for one client that waits for an answer; opaque to everything but the runtime."""


class StateRecord(NamedTuple):
    key: bytes
    value: bytes | None
    """None is a tombstone."""
    offset: int = -1
    """The offset in the partition's log. Known when it is replayed, and not yet when a step is decided."""


class RequestInfo(NamedTuple):
    """The client, and the version of the API."""

    api_version: int
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    """The authenticated principal of the client."""


class Now(NamedTuple):
    """The time at which an operation happens."""

    ms: int
    """Monotonic: for deadlines. Not to be stored."""
    wall_ms: int
    """Since the epoch: for stored times. Not for waiting."""
    trusted_ms: int
    """Since the epoch, without sudden steps forward: for the age of stored data."""


class Effect:
    """Something that the runtime has to do outside the partition; each machine has its own kinds."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class Step:
    records: list[StateRecord] = field(default_factory=list)
    """Persisted first, in this order, all or none."""
    producer: tuple[int, int] | None = None
    """(producer id, epoch): the batch belongs to that producer's open transaction."""
    replies: list[tuple[Ticket, Response]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    deadline_ms: int | None = None
    """When to call `tick` next, in monotonic time; None while nothing is waiting."""

    def reply(self, ticket: Ticket, response: Response) -> None:
        self.replies.append((ticket, response))

    def include(self, other: Step) -> None:
        """Add the step of another operation of the same machine, without its deadline."""
        self.records += other.records
        self.replies += other.replies
        self.effects += other.effects
