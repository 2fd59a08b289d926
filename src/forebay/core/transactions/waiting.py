"""Requests that wait for the markers of the previous transaction, each for a bounded time."""

from __future__ import annotations

from collections import deque

from forebay.core.transactions.draft import Asked

WAIT_MS_MAX = 200

WAITING_MAX = 4
"""For one transactional id: a client has one request under way; its retries and successors make a few."""


class WaitingRoom:
    def __init__(self) -> None:
        self._waiting: dict[str, list[Asked]] = {}
        self._queue: deque[tuple[int, str, Asked]] = deque()
        """In the order in which waits expire; completed ones stay until they come to the front."""

    def admit(self, transactional_id: str, asked: Asked, now_ms: int) -> bool:
        """Add a request; False if there is no room."""
        waiting = self._waiting.setdefault(transactional_id, [])
        if len(waiting) >= WAITING_MAX:
            return False
        waiting.append(asked)
        self._queue.append((now_ms + WAIT_MS_MAX, transactional_id, asked))
        return True

    def leave(self, transactional_id: str) -> list[Asked]:
        """The requests that waited for this transactional id, in the order of arrival."""
        return self._waiting.pop(transactional_id, [])

    def give_up(self, now_ms: int) -> list[Asked]:
        """The requests whose wait has expired."""
        late: list[Asked] = []
        while (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            _, transactional_id, asked = self._queue.popleft()
            late.append(asked)
            others = [each for each in self._waiting.pop(transactional_id) if each is not asked]
            if others:
                self._waiting[transactional_id] = others
        return late

    @property
    def next_ms(self) -> int | None:
        """When the next wait expires."""
        queue = self._queue
        while queue and not self._waits(queue[0][1], queue[0][2]):
            queue.popleft()
        return queue[0][0] if queue else None

    def _waits(self, transactional_id: str, asked: Asked) -> bool:
        return any(each is asked for each in self._waiting.get(transactional_id, ()))
