"""The timers of all groups of a shard."""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.deadline_heap import DeadlineHeap


class TimerKey(NamedTuple):
    group_id: str
    kind: str
    member_id: str = ""


Timers = DeadlineHeap[TimerKey]
