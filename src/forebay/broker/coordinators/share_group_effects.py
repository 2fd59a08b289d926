"""Carries out the effects of share groups at the share coordinators, and reports the results.

Effects that change one share partition are carried out in the order in which the group decided them;
summaries change nothing, and wait for nothing. An effect that fails for some seconds is reported as failed: a
group tries again, an administrator gets an error. It is not repeated after the term of the group's
coordinator: the next coordinator decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from forebay.core.groups.share.effects import (
    DeleteShares,
    InitializeShares,
    ShareStart,
    ShareSummary,
    SummarizeShares,
)
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import delete_share_group_state as delete_message
from forebay.wire.messages import initialize_share_group_state as initialize_message
from forebay.wire.messages import read_share_group_state_summary as summary_message

if TYPE_CHECKING:
    from forebay.broker.coordinators.share_coordinator import ShareStates

_PATIENCE_S = 5.0
_RETRY_S = 0.05
_RETRY_S_MAX = 0.5

Partition = tuple[bytes, int]
EndOffset = Callable[[bytes, int], Awaitable[int]]
"""Returns the end offset of a partition, led by any broker; raises KafkaError."""
GoesOn = Callable[[], bool]
"""Returns True while the coordinator of the group is in its term."""


class _Turn:
    """The effects of one share partition: one is carried out, the others wait in order."""

    __slots__ = ("effects", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.effects = 0


class ShareGroupEffects:
    def __init__(
        self, states: Callable[[], ShareStates], end_offset: EndOffset, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._states = states
        self._end_offset = end_offset
        self._loop = loop
        self._turns: dict[ShareKey, _Turn] = {}

    async def initialize(self, effect: InitializeShares, goes_on: GoesOn) -> dict[Partition, ErrorCode]:
        async def one(start: ShareStart) -> ErrorCode:
            partition = initialize_message.PartitionData(
                partition=start.partition, state_epoch=effect.state_epoch, start_offset=start.start_offset
            )
            topic = initialize_message.InitializeStateData(topic_id=start.topic_id, partitions=[partition])
            request = initialize_message.InitializeShareGroupStateRequest(
                group_id=effect.group_id, topics=[topic]
            )
            key = ShareKey(effect.group_id, start.topic_id, start.partition)
            return await self._code(key, request, goes_on)

        codes = await asyncio.gather(*map(one, effect.partitions))
        return {(s.topic_id, s.partition): code for s, code in zip(effect.partitions, codes, strict=True)}

    async def delete(self, effect: DeleteShares, goes_on: GoesOn) -> dict[Partition, ErrorCode]:
        async def one(at: Partition) -> ErrorCode:
            partition = delete_message.PartitionData(partition=at[1], state_epoch=effect.state_epoch)
            topic = delete_message.DeleteStateData(topic_id=at[0], partitions=[partition])
            request = delete_message.DeleteShareGroupStateRequest(group_id=effect.group_id, topics=[topic])
            return await self._code(ShareKey(effect.group_id, *at), request, goes_on)

        codes = await asyncio.gather(*map(one, effect.partitions))
        return dict(zip(effect.partitions, codes, strict=True))

    async def summarize(self, effect: SummarizeShares, goes_on: GoesOn) -> dict[Partition, ShareSummary]:
        give_up_s = self._loop.time() + _PATIENCE_S

        async def one(at: Partition) -> ShareSummary:
            partition = summary_message.PartitionData(partition=at[1], leader_epoch=-1)
            topic = summary_message.ReadStateSummaryData(topic_id=at[0], partitions=[partition])
            request = summary_message.ReadShareGroupStateSummaryRequest(
                group_id=effect.group_id, topics=[topic]
            )
            try:
                found = await self._ask(request, give_up_s, goes_on)
                return ShareSummary(
                    start_offset=found.start_offset,
                    leader_epoch=found.leader_epoch,
                    delivery_complete_count=found.delivery_complete_count,
                    end_offset=await self._end_offset(*at),
                    is_missing=not found.state_epoch,
                )
            except KafkaError as error:
                return ShareSummary(error_code=error.code)

        found = await asyncio.gather(*map(one, effect.partitions))
        return dict(zip(effect.partitions, found, strict=True))

    async def _code(self, key: ShareKey, request: Any, goes_on: GoesOn) -> ErrorCode:
        """The coordinator's error code; waits for the turn of this share partition."""
        give_up_s = self._loop.time() + _PATIENCE_S
        turn = self._turns.setdefault(key, _Turn())
        turn.effects += 1
        try:
            async with turn.lock:
                await self._ask(request, give_up_s, goes_on)
        except KafkaError as error:
            return error.code
        finally:
            turn.effects -= 1
            if not turn.effects:
                del self._turns[key]
        return ErrorCode.NONE

    async def _ask(self, request: Any, give_up_s: float, goes_on: GoesOn) -> Any:
        """The coordinator's response; within the term it is asked at least once. Raises KafkaError."""
        delay_s = _RETRY_S
        while goes_on():
            try:
                return await self._states().ask(request)
            except KafkaError as error:
                if not error.code.retriable or self._loop.time() + delay_s > give_up_s:
                    raise
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RETRY_S_MAX)
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "another coordinator looks after the group now")
