"""Partitions that could not be opened. Other replicas lead them meanwhile. Those that the system refused to
open are tried again: a full disk may have room, or there are free descriptors.

A log that is damaged is not tried again: that would fail in the same way. The pause before each attempt is
twice as long as the one before, because checking a log costs time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from forebay.broker.background import Background
from forebay.broker.cluster.departure import Departure
from forebay.core.topic_partition import TopicPartition
from forebay.errors import StorageError

_PAUSE_S_MIN = 1.0
_PAUSE_S_MAX = 60.0
_WITHDRAW_AGAIN_S = 1.0


class OpeningRefused(StorageError):
    """The system refused to open a log; the log itself is not known to be damaged."""


class _Attempt(NamedTuple):
    at_s: float
    pause_s: float
    """The time from the attempt before to this one."""


class OpeningAgain:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._attempts: dict[TopicPartition, _Attempt] = {}

    def due(self, broken: Mapping[TopicPartition, StorageError]) -> list[TopicPartition]:
        """Which of the partitions that could not be opened are to be tried now."""
        refused = [key for key, error in broken.items() if isinstance(error, OpeningRefused)]
        now_s, before = self._now_s(), self._attempts
        self._attempts = {
            key: before.get(key) or _Attempt(now_s + _PAUSE_S_MIN, _PAUSE_S_MIN) for key in refused
        }
        due = [key for key, attempt in self._attempts.items() if attempt.at_s <= now_s]
        for key in due:
            pause_s = min(self._attempts[key].pause_s * 2, _PAUSE_S_MAX)
            self._attempts[key] = _Attempt(now_s + pause_s, pause_s)
        return due


class Withdrawal:
    """Lets other replicas lead what cannot be opened here."""

    def __init__(
        self,
        departure: Departure,
        background: Background,
        loop: asyncio.AbstractEventLoop,
        is_needed: Callable[[TopicPartition], bool],
    ) -> None:
        """`is_needed`: a partition is still not open, and other brokers may have replicas of it."""
        self._departure = departure
        self._background = background
        self._loop = loop
        self._is_needed = is_needed

    def begin(self, key: TopicPartition) -> None:
        if self._is_needed(key):
            self._background.spawn(self._leave(key), f"leaving the in-sync set of {key[0]}-{key[1]}")

    async def _leave(self, key: TopicPartition) -> None:
        if not await self._departure.withdraw({key}):
            self._loop.call_later(_WITHDRAW_AGAIN_S, self.begin, key)
