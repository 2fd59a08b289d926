"""The state of an embedded store: keys with revisions, and a bounded history for watches.

`plan` decides a transaction without changing anything, `apply` carries it out; a durable store writes the
planned events to disk in between. Watchers never block the keyspace: one that falls behind the history gets
the error that it is compacted.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence

from forebay.coordination.store import (
    Compacted,
    Compare,
    Delete,
    Event,
    EventKind,
    KeyValue,
    LeaseLost,
    Put,
    StoreClosed,
    Target,
    check_txn,
)

HISTORY_MAX = 10_000
"""Events kept for watches."""


class Keyspace:
    def __init__(self, *, history_max: int = HISTORY_MAX) -> None:
        self.revision = 0
        self.compacted = 0
        """The newest revision whose events are no longer kept."""
        self._items: dict[str, KeyValue] = {}
        self._history: deque[Event] = deque()
        self._history_max = history_max
        self._leases: set[int] = set()
        self._changed = asyncio.Event()
        self._closed = False

    def restore(
        self, items: Iterable[KeyValue], events: Iterable[Event], *, revision: int, compacted: int
    ) -> None:
        """Take over stored keys, in a new keyspace."""
        self._items = {item.key: item for item in items}
        self._history.extend(events)
        self.revision = revision
        self.compacted = compacted

    def get(self, key: str) -> KeyValue | None:
        self.check_open()
        return self._items.get(key)

    def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        self.check_open()
        found = [item for key, item in self._items.items() if key.startswith(prefix)]
        found.sort(key=lambda item: item.key)
        return found, self.revision

    def plan(
        self, compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[Delete]
    ) -> list[Event] | None:
        """The events of this transaction at the next revision; None if a compare does not hold."""
        self.check_open()
        check_txn(compares, puts, deletes)
        for put in puts:
            if put.lease and put.lease not in self._leases:
                raise LeaseLost(f"{put.key}: lease {put.lease} has ended")
        if not all(self._holds(compare) for compare in compares):
            return None
        doomed = {key for delete in deletes for key in self._matching(delete)}
        return [self._put(put) for put in puts] + [self._deletion(key) for key in sorted(doomed)]

    def plan_expiry(self) -> list[Event]:
        """The events at the end of a lease: its keys are deleted."""
        self.check_open()
        ended = [item.key for item in self._items.values() if item.lease and item.lease not in self._leases]
        return [self._deletion(key) for key in sorted(ended)]

    def apply(self, events: Sequence[Event]) -> None:
        """Apply planned events; they all carry the next revision."""
        if not events:
            return
        self.revision += 1
        for event in events:
            assert event.kv.mod_revision == self.revision
            if event.kind is EventKind.PUT:
                self._items[event.kv.key] = event.kv
            else:
                del self._items[event.kv.key]
        self._history.extend(events)
        self._forget_old()
        self._wake()

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        position = from_revision
        while True:
            events, seen = await self.next_events(prefix, position)
            position = seen + 1
            yield events, seen

    async def next_events(self, prefix: str, from_revision: int) -> tuple[list[Event], int]:
        """The events of this revision and later, once there are some, and the revision up to which these are
        all."""
        position = from_revision
        while True:
            self.check_open()
            if position <= self.compacted:
                raise Compacted(
                    f"events before revision {self.compacted + 1} are gone, {position} was asked for"
                )
            changed = self._changed
            if position > self.revision:
                await changed.wait()
                continue
            events = [event for event in self.since(position) if event.kv.key.startswith(prefix)]
            if events:
                return events, self.revision
            position = self.revision + 1

    def grant(self, lease: int) -> None:
        self.check_open()
        self._leases.add(lease)

    def end(self, lease: int) -> None:
        self._leases.discard(lease)

    def close(self) -> None:
        self._closed = True
        self._wake()

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    def _holds(self, compare: Compare) -> bool:
        item = self._items.get(compare.key)
        if item is None:
            return compare.revision == 0
        created = compare.target is Target.CREATE_REVISION
        return compare.revision == (item.create_revision if created else item.mod_revision)

    def _matching(self, delete: Delete) -> list[str]:
        if delete.prefix:
            return [key for key in self._items if key.startswith(delete.key)]
        return [delete.key] if delete.key in self._items else []

    def _put(self, put: Put) -> Event:
        revision = self.revision + 1
        before = self._items.get(put.key)
        return Event(
            kind=EventKind.PUT,
            kv=KeyValue(
                key=put.key,
                value=put.value,
                create_revision=before.create_revision if before else revision,
                mod_revision=revision,
                lease=put.lease,
            ),
        )

    def _deletion(self, key: str) -> Event:
        kv = KeyValue(key=key, value=b"", create_revision=0, mod_revision=self.revision + 1)
        return Event(kind=EventKind.DELETE, kv=kv)

    def since(self, revision: int) -> list[Event]:
        """The events of this revision and later that are still kept."""
        start = bisect_left(self._history, revision, key=lambda event: event.kv.mod_revision)
        return [self._history[index] for index in range(start, len(self._history))]

    def _forget_old(self) -> None:
        while len(self._history) > self._history_max and self._history[0].kv.mod_revision < self.revision:
            self.compacted = self._history[0].kv.mod_revision
            while self._history[0].kv.mod_revision == self.compacted:
                self._history.popleft()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
