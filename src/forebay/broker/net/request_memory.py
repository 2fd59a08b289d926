"""The memory of requests that have not come whole, or wait to be handled. One bound for all connections.

A connection *holds* what was received and not handled yet. When the bound is reached, no connection may hold
more: it *waits*, and nothing is read from it, until others have given theirs back. Two things go on anyway:
  - Small requests. Little is read at a time then, and a request that comes whole holds nothing.
  - One request. It may go beyond the bound, or requests that are received in part could wait for each other
    for ever. (Kafka's MemoryPool lets one go beyond, too.)

*Large* requests, of more than a part of the memory, come one at a time, unless all of them fit into it
together. Others of that size wait for their turn. When a large one waits for memory, smaller ones of which
nothing was taken yet wait, too, until those under way hold a part of it at most; then the large one may go
on, whatever its size. So the most that is held is the largest request, a part for those under way, another
for the one of them that goes beyond, one for those that are queued, and what the first read of each
connection has brought.

A request that came whole and is handled later, in slices, is *queued*, and counts until it is handled. While
such requests take half of the memory, none goes beyond the bound, and a large one not while they take a part
of it: it can wait until they are done. If one is queued because its client owes time to a quota, that may be
long: then it is like one that does not come.

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
_LARGE_PART = 8
"""A request is large if it is larger than one of this many parts of the memory."""

_NOTHING = bytearray()


class Holder(Protocol):
    """A holder of memory: `Connection`."""

    held_bytes: int
    held_since: float
    """When the request began to come, or could be read again."""

    @property
    def sender(self) -> str: ...
    @property
    def is_held_back(self) -> bool:
        """True while the broker does not read on, for another reason than this memory."""

    @property
    def is_stalled(self) -> bool:
        """True while its client is that reason, so that others need not wait for it."""

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
        self._waiting: dict[Holder, tuple[int, int]] = {}
        """With what each wants to hold now, and in the end."""
        self._part = self._bytes_max // _LARGE_PART
        self._large: dict[Holder, int] = {}
        """The large requests whose turn it is, with their sizes."""
        self._lined_up: dict[Holder, None] = {}
        """Those that wait for their turn."""
        self._last_large_sender = ""
        self._beyond: Holder | None = None
        """The one of the others that may go beyond the bound."""
        self._under_way: dict[Holder, None] = {}
        """Requests that are not large and have been given memory, once or more often."""
        self._under_way_bytes = 0
        self.used_bytes = 0
        self.queued_bytes = 0
        """Of which this is for requests that came whole."""
        self.short = False
        """True while little is to be read at a time."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def hold(self, holder: Holder, size: int) -> None:
        """Note what a connection holds from now on: bytes that were received cannot be sent back."""
        self.used_bytes += size - holder.held_bytes
        if holder in self._under_way:
            self._under_way_bytes += size - holder.held_bytes
        holder.held_bytes = size
        self._holders[holder] = None
        self.short = self.used_bytes > self._bytes_max - _SHORT_BYTES

    def ask(self, holder: Holder, size: int, whole: int) -> bool:
        """True if a connection may hold this much, of a request of `whole` bytes. If not, it is notified when
        it may."""
        if size > holder.held_bytes:
            if not self._may_have(holder, size, whole):
                self._waiting[holder] = size, whole
                return False
            self._give(holder, size)
        return True

    def _give(self, holder: Holder, size: int) -> None:
        if holder not in self._large and holder not in self._under_way:
            self._under_way[holder] = None
            self._under_way_bytes += holder.held_bytes
        self.hold(holder, size)

    def _may_have(self, holder: Holder, size: int, whole: int) -> bool:
        if whole > self._part:
            return self._is_turn_of(holder, whole) and self._may_go_on(holder, size)
        if any(each in self._waiting for each in self._large):
            if holder not in self._under_way:
                return False
        elif self._fits(holder, size):
            return True
        if self._one_may_go_beyond:
            self._beyond = holder
        return self._beyond is holder

    def _fits(self, holder: Holder, size: int) -> bool:
        if self.used_bytes + size - holder.held_bytes <= self._bytes_max:
            return True
        counted = holder.held_bytes if holder in self._under_way else 0
        return bool(self._large) and self._under_way_bytes + size - counted <= self._part

    @property
    def _one_may_go_beyond(self) -> bool:
        return self._beyond is None and self.queued_bytes <= self._bytes_max // 2

    def _is_turn_of(self, holder: Holder, whole: int) -> bool:
        """True if a large request may be read now; else it lines up."""
        large = self._large
        if holder in large:
            return True
        if large and sum(large.values()) + whole > self._bytes_max - self._part:
            self._lined_up[holder] = None
            return False
        self._lined_up.pop(holder, None)
        large[holder] = whole
        self._last_large_sender = holder.sender
        return True

    def _may_go_on(self, holder: Holder, size: int) -> bool:
        """True if a large request whose turn it is may hold more."""
        if self.used_bytes + size - holder.held_bytes <= self._bytes_max:
            return True
        return self._under_way_bytes <= self._part and self.queued_bytes <= self._part

    def release(self, holder: Holder) -> None:
        """A connection holds nothing, and waits for nothing."""
        self.used_bytes -= holder.held_bytes
        if holder in self._under_way:
            del self._under_way[holder]
            self._under_way_bytes -= holder.held_bytes
        holder.held_bytes = 0
        self._holders.pop(holder, None)
        self.short = self.used_bytes > self._bytes_max - _SHORT_BYTES
        if self._beyond is holder:
            self._beyond = None
        if self._large or self._lined_up:
            self._large.pop(holder, None)
            self._lined_up.pop(holder, None)
        if self._waiting:
            self._waiting.pop(holder, None)
            self._grant()

    def _grant(self) -> None:
        for holder in [*self._first_large(), *self._under_way, *self._waiting]:
            if holder not in self._waiting:
                continue
            size, whole = self._waiting[holder]
            if self._may_have(holder, size, whole):
                del self._waiting[holder]
                self._give(holder, size)
                holder.memory_granted()
            elif self.used_bytes >= self._bytes_max and not self._one_may_go_beyond:
                return

    def _first_large(self) -> list[Holder]:
        """Those whose turn it is; if it is nobody's, those of other senders than the one that had it last."""
        if self._large:
            return [holder for holder in self._large if holder in self._waiting]
        return [holder for holder in self._lined_up if holder.sender != self._last_large_sender]

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
            # A large one keeps as much from those that have lined up, even if little of it has come.
            kept = self._large.get(holder, 0) if self._lined_up else 0
            held[holder.sender] += max(holder.held_bytes, kept)
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
