"""Waiting until what this broker has appended by itself is committed.

Each of these is called in the turn of the loop in which something was appended. If the disk refuses the
write, that is undone, and only waiters that are there by then are notified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay.broker.partition.partition import Partition
from forebay.broker.produce.write_cycle import ACKS_ALL, TIMEOUT_MS, Appended, Unacknowledged, WriteCycle
from forebay.errors import KafkaError

_TIMEOUT_MS = 10_000


def when_committed(
    write_cycle: WriteCycle,
    partition: Partition,
    done: Callable[[KafkaError | None], None],
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> None:
    """Call `done` once everything that is appended now is committed, or with the reason why it is not."""
    result = Appended(partition.index, partition)
    write_cycle.add(Unacknowledged([result], ACKS_ALL, lambda: done(result.error), timeout_ms))
    write_cycle.finish_soon()


def commit_of(
    write_cycle: WriteCycle,
    partition: Partition,
    loop: asyncio.AbstractEventLoop,
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> asyncio.Future[KafkaError | None]:
    """A future of what `when_committed` calls `done` with."""
    outcome: asyncio.Future[KafkaError | None] = loop.create_future()

    def done(error: KafkaError | None) -> None:
        if not outcome.done():
            outcome.set_result(error)

    when_committed(write_cycle, partition, done, timeout_ms=timeout_ms)
    return outcome


async def committed(
    write_cycle: WriteCycle,
    partition: Partition,
    loop: asyncio.AbstractEventLoop,
    *,
    timeout_ms: int = _TIMEOUT_MS,
) -> None:
    """Return once everything that is appended now is committed. Raises KafkaError."""
    error = await commit_of(write_cycle, partition, loop, timeout_ms=timeout_ms)
    if error is not None:
        raise error
