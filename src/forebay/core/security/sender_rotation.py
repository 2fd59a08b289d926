"""Decides what is next of what many have sent: senders take turns, however much each of them has sent."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


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
