"""The memory of requests that have not come whole, or wait to be handled. One bound for all connections.

A connection *holds* what was received and not handled yet. When the bound is reached, no connection may hold
more: it *waits*, and nothing is read from it, until others have given theirs back. Two things go on anyway:
  - Small requests. Little is read at a time then, and a request that comes whole holds nothing.
  - One request. It may go beyond the bound, however large it is, or requests that are received in part could
    wait for each other for ever. (Kafka's MemoryPool lets one go beyond, too.)

A request that came whole and is handled later, in slices, is *queued*, and counts until it is handled. While
such requests take half of the memory, none goes beyond the bound: it can wait until they are done. If one is
queued because its client owes time to a quota, that may be long: then it is like one that does not come.

So that slow senders do not keep the memory, a request has a time in which it has to come. The time in which
it is not read does not count. While another sender waits, the one that holds the most has less time, also for
requests that are not read because their client does not take its answers.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from forebay.broker.net.buffers import SHARED_BYTES

_SHORT_BYTES = 2 * SHARED_BYTES
"""With less than this free, little is read at a time: one read may leave a shared buffer full to be held."""

_NOTHING = bytearray()


class Holder(Protocol):
    """What holds memory: `Connection`."""

    held_bytes: int
    held_since: float
    """When the request began to come, or could be read again."""

    @property
    def sender(self) -> str: ...
    @property
    def is_held_back(self) -> bool:
        """Whether the broker does not read on, for another reason than this memory."""

    @property
    def is_stalled(self) -> bool:
        """Whether its client is that reason, so that others need not wait for it."""

    def memory_granted(self) -> None:
        """It waits no more."""


class QueuedRequest:
    """A request that came whole and is handled later; it holds its memory until then."""

    __slots__ = ("_memory", "connection", "frame", "held_bytes", "held_since", "is_stalled", "sender")

    is_held_back = True

    def __init__(
        self,
        memory: RequestMemory,
        connection: Holder,
        size: int,
        frame: bytearray | memoryview | None = None,
    ) -> None:
        self._memory = memory
        self.connection = connection
        """By which it came."""
        self.frame = frame or _NOTHING
        self.sender = connection.sender
        self.held_bytes = 0
        self.held_since = math.inf
        self.is_stalled = False
        memory.queued_bytes += size
        memory.hold(self, size)

    def memory_granted(self) -> None:
        raise AssertionError("it asks for nothing")

    def owes(self, now: float) -> None:
        """It is its client for whom it waits, not the broker."""
        self.held_since = min(self.held_since, now)
        self.is_stalled = True

    def has_paid(self) -> None:
        self.is_stalled = False

    def done(self) -> None:
        """It holds nothing from now on."""
        self.frame = _NOTHING
        self._memory.queued_bytes -= self.held_bytes
        self._memory.release(self)


class RequestMemory:
    def __init__(self, bytes_max: int, *, timeout_s: float, contested_s: float) -> None:
        """`bytes_max`: negative for no bound. `timeout_s`: the time in which a request has to come;
        `contested_s`: the same for the sender that holds the most, while others wait."""
        self._bytes_max = bytes_max if bytes_max >= 0 else sys.maxsize
        self._timeout_s = timeout_s
        self._contested_s = contested_s
        self._holders: dict[Holder, None] = {}
        self._waiting: dict[Holder, int] = {}
        """With what each wants to hold."""
        self._beyond: Holder | None = None
        """The one that may go beyond the bound."""
        self.used_bytes = 0
        self.queued_bytes = 0
        """Of which this is for requests that came whole."""
        self.short = False
        """Whether little is to be read at a time."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def hold(self, holder: Holder, size: int) -> None:
        """Note what a connection holds from now on: bytes that were received cannot be sent back."""
        self.used_bytes += size - holder.held_bytes
        holder.held_bytes = size
        self._holders[holder] = None
        self.short = self.used_bytes > self._bytes_max - _SHORT_BYTES

    def ask(self, holder: Holder, size: int) -> bool:
        """Whether a connection may hold this much. If not, it is told when it may."""
        if size > holder.held_bytes:
            if not self._may_have(holder, size):
                self._waiting[holder] = size
                return False
            self.hold(holder, size)
        return True

    def _may_have(self, holder: Holder, size: int) -> bool:
        if self.used_bytes + size - holder.held_bytes <= self._bytes_max:
            return True
        if self._beyond is None and self.queued_bytes <= self._bytes_max // 2:
            self._beyond = holder
        return self._beyond is holder

    def release(self, holder: Holder) -> None:
        """A connection holds nothing, and waits for nothing."""
        self.used_bytes -= holder.held_bytes
        holder.held_bytes = 0
        self._holders.pop(holder, None)
        self.short = self.used_bytes > self._bytes_max - _SHORT_BYTES
        if self._beyond is holder:
            self._beyond = None
        if self._waiting:
            self._waiting.pop(holder, None)
            self._grant()

    def _grant(self) -> None:
        for holder, size in list(self._waiting.items()):
            if holder in self._waiting and self._may_have(holder, size):
                del self._waiting[holder]
                self.hold(holder, size)
                holder.memory_granted()
            elif self.used_bytes >= self._bytes_max:
                return

    # -- requests that do not come ---------------------------------------------------------------------

    def overdue(self, now: float) -> list[Holder]:
        """Those whose requests have not come in time."""
        late = []
        for holder in self._holders:
            if holder in self._waiting or isinstance(holder, QueuedRequest):
                continue
            if holder.is_held_back:
                if not holder.is_stalled:
                    holder.held_since = now
            elif now - holder.held_since > self._timeout_s:
                late.append(holder)
        return late

    def contested(self, now: float) -> Iterator[Holder]:
        """Those that have to make room for other senders, one after the other, while others wait."""
        if not self._waiting:
            return
        held: Counter[str] = Counter()
        for holder in self._holders:
            held[holder.sender] += holder.held_bytes
        greediest = max(held, key=held.__getitem__)
        since = now - self._contested_s
        found = [
            each
            for each in self._holders
            if each.sender == greediest
            and each.held_since <= since
            and (each.is_stalled or not each.is_held_back)
        ]
        for holder in sorted(found, key=lambda each: each.held_since):
            if all(each.sender == greediest for each in self._waiting):
                return
            yield holder
