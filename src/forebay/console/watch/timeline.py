"""The events of all brokers on one line of time, as far as they were seen: a bounded number of them.

All brokers notice that a broker has gone: what several of them say about the same moment is one event.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from forebay.wire.messages.describe_activity import BrokerEvent

_KEPT_MAX = 2_000
_SAME_MS = 15_000
"""Brokers learn of the same thing within this time."""
_SEEN_BY_ALL = ("broker", "controller")


class TimelineEvent(NamedTuple):
    broker: int
    """The one that told of it."""
    event: BrokerEvent


class Timeline:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[TimelineEvent] = []
        self._last_ids: dict[int, int] = {}

    def last_id(self, node: int) -> int:
        """The last event of a broker that is known here."""
        with self._lock:
            return self._last_ids.get(node, 0)

    def add(self, node: int, events: Iterable[BrokerEvent]) -> None:
        with self._lock:
            for event in events:
                self._last_ids[node] = max(event.id, self._last_ids.get(node, 0))
                if not self._is_known(event):
                    self._events.append(TimelineEvent(node, event))
            self._events.sort(key=lambda each: each.event.at_ms)
            del self._events[:-_KEPT_MAX]

    def events(self) -> list[TimelineEvent]:
        """The oldest first."""
        with self._lock:
            return list(self._events)

    def _is_known(self, event: BrokerEvent) -> bool:
        return event.kind in _SEEN_BY_ALL and any(
            (each.event.kind, each.event.what) == (event.kind, event.what)
            and abs(each.event.at_ms - event.at_ms) < _SAME_MS
            for each in self._events
        )
