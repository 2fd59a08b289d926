"""Writing the ends of transactions into partitions, for the coordinator on this broker or on another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.broker.appends import ACKS_ALL, Appended, Unacknowledged
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.checkpoint import TopicPartition
from forebay.wire.batch import EndTxnMarker

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerWrite:
    """One marker for one partition."""

    marker: EndTxnMarker
    topic: str
    index: int
    bumps_epoch: bool = False
    """Transaction version 2: the marker carries the epoch after the transaction's."""


async def write_markers(
    broker: Broker, marker: EndTxnMarker, partitions: Sequence[TopicPartition], *, bumps_epoch: bool
) -> dict[TopicPartition, int]:
    """Write a marker into several partitions; an error code for each, once they are committed."""
    outcome: asyncio.Future[list[Appended]] = broker.loop.create_future()

    def done(results: list[Appended]) -> None:
        if not outcome.done():
            outcome.set_result(results)

    append_markers(
        broker,
        [
            MarkerWrite(marker=marker, topic=topic, index=index, bumps_epoch=bumps_epoch)
            for topic, index in partitions
        ],
        done,
    )
    broker.appends.finish_soon()
    results = await outcome
    return {at: result.error_code for at, result in zip(partitions, results, strict=True)}


def append_markers(
    broker: Broker, writes: Iterable[MarkerWrite], done: Callable[[list[Appended]], None]
) -> None:
    """Append markers; `done` gets an outcome for each of them, in order, once they are committed.

    They are written when the requests of the current event have been handled.
    """
    results = [_append(broker, write) for write in writes]
    broker.appends.add(Unacknowledged(results, ACKS_ALL, lambda: done(results)))


def _append(broker: Broker, write: MarkerWrite) -> Appended:
    result = Appended(write.index)
    try:
        partition = broker.replicas.get(write.topic, write.index)
        result.partition = partition
        if not partition.enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"fewer replicas of {partition} are in sync than min.insync.replicas asks for",
            )
        header = partition.append_marker(write.marker, broker.now_ms(), bumps_epoch=write.bumps_epoch)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.base_offset = header.base_offset
    broker.appends.queued(partition, header.size)
    return result
