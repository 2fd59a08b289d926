"""Reads and writes the state of share partitions at the share coordinator, for the leader of a partition.

A call is repeated until the coordinator has accepted or refused it, or the caller no longer leads the
partition. Coordinators move, and a write whose response was lost is repeated: states only rise, so a repeat
does no harm. A coordinator that does not know the topic may not have seen its creation yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.core.shares.coordinator.key import coordinator_key
from forebay.core.shares.coordinator.persisted_state import UNKNOWN_COUNT, ShareKey
from forebay.core.shares.coordinator.ranges import NO_OFFSET
from forebay.core.shares.partition.writes import StateWrite
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import read_share_group_state as read_message
from forebay.wire.messages import write_share_group_state as write_message

log = logging.getLogger(__name__)

RETRY_S = 0.05
RETRY_S_MAX = 1.0

REFUSED_FOR_GOOD = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    }
)
"""The state belongs to another leader, or is deleted: a retry would not help."""


NO_WRITE = StateWrite(0, NO_OFFSET, [], UNKNOWN_COUNT)
"""An empty write. It changes nothing, and is refused if any other write would be."""


def partition_data(
    partition: int, write: StateWrite, state_epoch: int, leader_epoch: int
) -> write_message.PartitionData:
    """A write in the form of the request."""
    return write_message.PartitionData(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        state_batches=[
            write_message.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in write.ranges
        ],
    )


class ShareStateStore:
    def __init__(self, states: ShareStates) -> None:
        self._states = states

    async def read(
        self, key: ShareKey, leader_epoch: int, wanted: Callable[[], bool]
    ) -> read_message.PartitionResult:
        """The state. Reading it fences earlier leaders. Raises KafkaError if it is refused for good."""
        partition = read_message.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        request = read_message.ReadShareGroupStateRequest(
            group_id=key.group_id,
            topics=[read_message.ReadStateData(topic_id=key.topic_id, partitions=[partition])],
        )
        result: read_message.PartitionResult = await self._until_answered(key, request, wanted)
        return result

    async def write(
        self,
        key: ShareKey,
        write: StateWrite,
        *,
        state_epoch: int,
        leader_epoch: int,
        wanted: Callable[[], bool],
    ) -> None:
        """Raises KafkaError if it is refused for good, or no longer wanted."""
        partition = partition_data(key.partition, write, state_epoch, leader_epoch)
        await self._write(key, partition, wanted)

    async def forget_lost(
        self,
        key: ShareKey,
        found: read_message.PartitionResult,
        *,
        lost_from: int,
        leader_epoch: int,
        wanted: Callable[[], bool],
    ) -> None:
        """Remove the delivery states of this and later offsets. Raises KafkaError, like `write`."""
        partition = partition_data(key.partition, NO_WRITE, found.state_epoch, leader_epoch)
        partition.lost_from, partition.snapshot_epoch = lost_from, found.snapshot_epoch
        await self._write(key, partition, wanted)

    async def _write(
        self, key: ShareKey, partition: write_message.PartitionData, wanted: Callable[[], bool]
    ) -> None:
        request = write_message.WriteShareGroupStateRequest(
            group_id=key.group_id,
            topics=[write_message.WriteStateData(topic_id=key.topic_id, partitions=[partition])],
        )
        await self._until_answered(key, request, wanted)

    async def _until_answered(self, key: ShareKey, request: Any, wanted: Callable[[], bool]) -> Any:
        delay_s = RETRY_S
        while wanted():
            try:
                return await self._states.ask(request)
            except KafkaError as error:
                if error.code in REFUSED_FOR_GOOD:
                    raise
                log.debug(
                    "the share coordinator did not answer",
                    extra={"share": coordinator_key(key), "reason": error.message},
                )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition any more")
