"""Decides what is next of what many have sent: senders take turns, however much each of them has sent.

Strangers have little of a broker's time, and from thousands of addresses each of them has next to nothing. So
networks from which somebody has logged in lately have most turns of what strangers wait for: a client that
comes back after a fault does not wait for all of these.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")

_NETWORKS_MAX = 10_000
_TURNS_OF_KNOWN = 3
"""How many turns known networks have for one of the others."""


class SenderRotation(Generic[T]):
    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}
        """By sender, the next one first."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def senders(self) -> int:
        return len(self._queues)

    def add(self, sender: str, item: T) -> None:
        self._queues.setdefault(sender, deque()).append(item)
        self._count += 1

    def take(self) -> T:
        sender, queue = next(iter(self._queues.items()))
        del self._queues[sender]
        item = queue.popleft()
        self._count -= 1
        if queue:
            self._queues[sender] = queue  # behind the other senders
        return item


class KnownNetworks:
    """Networks from which somebody has logged in, the latest of them."""

    def __init__(self, most: int = _NETWORKS_MAX) -> None:
        self._most = most
        self._networks: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, network: str) -> bool:
        return network in self._networks

    def note(self, network: str) -> None:
        """Somebody has logged in from there."""
        self._networks[network] = None
        self._networks.move_to_end(network)
        if len(self._networks) > self._most:
            self._networks.popitem(last=False)


class StrangerRotation(Generic[T]):
    """A `SenderRotation` in which known networks have several turns for one of all others."""

    def __init__(self, known: KnownNetworks) -> None:
        self._known = known
        self._from_known: SenderRotation[T] = SenderRotation()
        self._from_others: SenderRotation[T] = SenderRotation()
        self._turns_of_known = 0
        """Since the others had one."""

    def __len__(self) -> int:
        return len(self._from_known) + len(self._from_others)

    def __bool__(self) -> bool:
        return bool(self._from_known or self._from_others)

    @property
    def senders(self) -> int:
        return self._from_known.senders + self._from_others.senders

    def add(self, sender: str, item: T) -> None:
        (self._from_known if sender in self._known else self._from_others).add(sender, item)

    def take(self) -> T:
        is_turn_of_others = self._turns_of_known >= _TURNS_OF_KNOWN or not self._from_known
        if self._from_others and is_turn_of_others:
            self._turns_of_known = 0
            return self._from_others.take()
        self._turns_of_known += 1
        return self._from_known.take()
