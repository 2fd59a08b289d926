"""Lists of delayed messages: in the order in which they are due, and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any

from forebay.operations.client import CommandError
from forebay.operations.delays.delay_admin import DelayAdmin, ScheduleId
from forebay.operations.messages.message_formats import iso_time, json_bytes
from forebay.wire.messages.describe_delays import DelayedMessage

Waiting = tuple[ScheduleId, DelayedMessage]

_PROBLEMS_SHOWN_MAX = 20


def in_due_order(admin: DelayAdmin, partitions: Sequence[int], page: int) -> Iterator[Waiting]:
    """The waiting messages of these partitions; requests only as many as are consumed."""

    def waiting(partition: int) -> Iterator[Waiting]:
        for message in admin.messages(partition, page):
            yield ScheduleId(partition, message.id), message

    return merge(*(waiting(each) for each in partitions), key=_due)


def _due(waiting: Waiting) -> tuple[int, ScheduleId]:
    schedule_id, message = waiting
    return message.due_ms, schedule_id


def json_row(schedule_id: ScheduleId, message: DelayedMessage) -> dict[str, Any]:
    return {
        "id": str(schedule_id),
        "due": iso_time(message.due_ms),
        "due_ms": message.due_ms,
        "scheduled_ms": message.scheduled_ms,
        **json_bytes("schedule_key", message.schedule_key),
        **json_bytes("key", message.key),
        "value_bytes": None if message.value_size < 0 else message.value_size,
    }


def time_left(milliseconds: int) -> str:
    """The time in the two largest units: 3d 4h, 59s."""
    if milliseconds <= 0:
        return "now"
    seconds = -(-milliseconds // 1000)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def all_waiting(admin: DelayAdmin) -> list[ScheduleId]:
    """The ids of everything that waits in the topic now."""
    return [
        ScheduleId(partition, message.id)
        for partition in admin.partitions()
        for message in admin.messages(partition)
    ]


def alter_waiting(
    admin: DelayAdmin, action: int, ids: Sequence[ScheduleId], *, everything: bool
) -> tuple[int, CommandError | None]:
    """Cancel or fire: how many were, and what went wrong with the others.

    With `everything`, a message that was delivered meanwhile is nobody's mistake.
    """
    outcomes = admin.alter(action, list(dict.fromkeys(ids)))
    problems = {each: problem for each, problem in outcomes.items() if problem is not None}
    count = len(outcomes) - len(problems)
    if everything:
        problems = {each: why for each, why in problems.items() if not why.startswith("does not wait")}
    if not problems:
        return count, None
    lines = [f"{each}: {why}" for each, why in list(problems.items())[:_PROBLEMS_SHOWN_MAX]]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines):,} more")
    return count, CommandError("\n".join(lines))
