"""Waiting until a partition's log is committed."""

from __future__ import annotations

import asyncio

from forebay.broker.partition.partition import Partition
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged, WriteCycle
from forebay.errors import KafkaError, known_code

_TIMEOUT_MS = 10_000


async def committed(
    write_cycle: WriteCycle,
    partition: Partition,
    loop: asyncio.AbstractEventLoop,
    *,
    timeout_ms: int = _TIMEOUT_MS,
) -> None:
    """Return once everything that is appended now is committed. Raises KafkaError.

    Call it in the turn of the loop in which it was appended. If the disk refuses the write, that is undone,
    and only those who wait by then are told.
    """
    result = Appended(partition.index, partition)
    settled: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not settled.done():
            settled.set_result(None)

    write_cycle.add(Unacknowledged([result], ACKS_ALL, settle, timeout_ms))
    write_cycle.finish_soon()
    await settled
    if result.error_code:
        raise KafkaError(known_code(result.error_code), result.error_message or "not committed")
