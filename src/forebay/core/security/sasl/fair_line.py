"""A line in which addresses take turns, and at each address its users.

So a login waits for one login of each other address, and one of each other user at its own address, however
many of them others have queued.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairLine(Generic[T]):
    def __init__(self) -> None:
        self._addresses: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        """The first has the next turn."""

    def put(self, address: str, user: str, item: T) -> None:
        users = self._addresses.setdefault(address, OrderedDict())
        users.setdefault(user, deque()).append(item)

    def take(self) -> T | None:
        """The next login; None if nobody waits."""
        if not self._addresses:
            return None
        address, users = self._addresses.popitem(last=False)
        user, items = users.popitem(last=False)
        item = items.popleft()
        if items:
            users[user] = items
        if users:
            self._addresses[address] = users
        return item
